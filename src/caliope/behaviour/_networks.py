"""A neural network with early stopping on held-out trajectories."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._ragged import Bool, Float, Int, at_actions
from caliope.behaviour._fit import MostLikelyAction, number_groups
from caliope.behaviour._threads import one_blas_thread

# An epoch counts as better if the held-out loss falls by more: on small problems it keeps falling slowly.
_GAIN = 5e-4


class NetworkPolicy(MostLikelyAction, BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron with early stopping on the log loss of held-out trajectories.

    The early stopping of scikit-learn uses the accuracy on held-out rows. That is too late: the network becomes
    overconfident long after its accuracy has settled, and rows of the same trajectory are not held out. Here a share
    of the trajectories is held out, and the weights of the best epoch are kept. Features are standardised.

    Parameters
    ----------
    hidden : tuple of int
        Units of each layer.
    alpha : float
        Strength of the L2 penalty.
    learning_rate : float
        Of the Adam optimiser.
    batch_size : int
        Rows per batch.
    max_epochs : int
        Passes over the data at most.
    patience : int
        Training ends after this many epochs in which the held-out log loss did not fall by 5e-4.
    held_out : float
        Share of the trajectories that is held out.
    random_state : int
        Seed of weights, batches and the held-out share.

    Examples
    --------
    >>> from caliope.behaviour import NetworkPolicy
    >>> from caliope.domains import ward
    >>> data = ward.simulate(20, rng=0)
    >>> model = NetworkPolicy((8,), max_epochs=2).fit(data.states, data.actions, groups=data.layout.owner)
    >>> model.predict_proba(data.states).shape == (data.n_steps, 3)
    True
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (128, 128),
        *,
        alpha: float = 1e-3,
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        max_epochs: int = 100,
        patience: int = 5,
        held_out: float = 0.15,
        random_state: int = 0,
    ) -> None:
        self.hidden = hidden
        self.alpha = alpha
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.held_out = held_out
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> NetworkPolicy:
        """Train on most trajectories, stop on the others; ``groups`` names the trajectory of each row."""
        if not self.max_epochs >= 1:
            raise ValueError(f"max_epochs must be at least 1, got {self.max_epochs}.")
        x, actions = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(actions)
        self.classes_, codes = np.unique(actions, return_inverse=True)
        self.scaler_ = StandardScaler().fit(x)
        x = self.scaler_.transform(x)
        held_out = hold_out(len(x), groups, self.held_out, self.random_state)
        network = MLPClassifier(
            self.hidden,
            alpha=self.alpha,
            learning_rate_init=self.learning_rate,
            batch_size=min(self.batch_size, max(1, int((~held_out).sum()))),
            # Not the seed itself: every partial_fit would start from it again, with the same batches.
            random_state=np.random.RandomState(self.random_state),
        )
        best, self.losses_ = np.inf, []
        # The last epoch that was better by _GAIN.
        clearly_better = 0
        for _ in range(self.max_epochs):
            with one_blas_thread():
                network.partial_fit(x[~held_out], codes[~held_out], classes=np.arange(len(self.classes_)))
            self.losses_.append(mean_nll(_predict(network, x[held_out], len(self.classes_)), codes[held_out]))
            if self.losses_[-1] < self.losses_[clearly_better] - _GAIN:
                clearly_better = len(self.losses_) - 1
            if self.losses_[-1] < best:
                best, self.network_ = self.losses_[-1], copy.deepcopy(network)
            if len(self.losses_) - 1 - clearly_better >= self.patience:
                break
        if not np.isfinite(best):
            raise ValueError(
                "the network has diverged: after every epoch it gave probability 0 to actions of the held-out "
                f"trajectories. Lower learning_rate, now {self.learning_rate}."
            )
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False))
        return _predict(self.network_, x, len(self.classes_))


def _predict(network: Any, x: Float, n_classes: int) -> Float:
    proba = np.asarray(network.predict_proba(x))
    return np.ones((len(x), 1)) if n_classes == 1 else proba


def mean_nll(proba: Float, codes: Int) -> float:
    """Return the mean negative log-likelihood of the logged actions; infinite where one has probability 0."""
    with np.errstate(divide="ignore"):
        return float(-np.log(at_actions(proba, codes)).mean())


def hold_out(n: int, groups: ArrayLike | None, share: float, seed: int) -> Bool:
    """Mark the rows of a random share of the groups, at least one and never all, (n,)."""
    if not 0 < share < 1:
        raise ValueError(f"the share held out must lie between 0 and 1, got {share}.")
    codes = number_groups(groups, n)
    n_groups = int(codes.max()) + 1
    if n_groups < 2:
        raise ValueError(
            f"early stopping needs at least 2 trajectories, one of them held out; got one, n_samples = {n}."
        )
    size = min(max(1, round(share * n_groups)), n_groups - 1)
    return np.isin(codes, np.random.default_rng(seed).permutation(n_groups)[:size])
