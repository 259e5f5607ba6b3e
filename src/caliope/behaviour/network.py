"""A neural network that stops when it no longer predicts strangers better."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from caliope.behaviour.fitting import group_numbers
from caliope.ragged import Bool, Float, Int

_GAIN = (
    5e-4  # of the held-out likelihood, below which an epoch is no better: most small problems creep for long
)


class NetworkPolicy(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron, stopped early on the log-likelihood of held-out trajectories.

    scikit-learn's own early stopping looks at accuracy on held-out rows: a network goes on for long after its
    accuracy has settled, becoming ever more certain, and rows of a patient that it has seen are no strangers. Here
    a share of the trajectories is held out, and the weights of the best epoch are kept. Features are standardised.

    Parameters
    ----------
    hidden : tuple of int
        Units of each layer.
    alpha : float
        Strength of the L2 penalty.
    learning_rate, batch_size, max_epochs, patience : numbers
        Of the optimiser; training ends after ``patience`` epochs without a held-out likelihood that is better by
        5e-4 or more.
    held_out : float
        Share of the trajectories that is held out.
    random_state : int
        Seed of weights, batches and the held-out share.
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
        """Train on most trajectories, stop on the others; ``groups`` tells the trajectory of each row."""
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
            # Not the seed itself: every partial_fit would begin again with it, and so with the same batches.
            random_state=np.random.RandomState(self.random_state),
        )
        best, self.losses_ = np.inf, []
        clearly_better = 0  # the last epoch that was
        for _ in range(self.max_epochs):
            # One thread: for batches this small several mostly wait for each other on a busy machine.
            with threadpool_limits(1, user_api="blas"):
                network.partial_fit(x[~held_out], codes[~held_out], classes=np.arange(len(self.classes_)))
            self.losses_.append(mean_nll(_proba(network, x[held_out], len(self.classes_)), codes[held_out]))
            if self.losses_[-1] < self.losses_[clearly_better] - _GAIN:
                clearly_better = len(self.losses_) - 1
            if self.losses_[-1] < best:
                best, self.network_ = self.losses_[-1], copy.deepcopy(network)
            if len(self.losses_) - 1 - clearly_better >= self.patience:
                break
        if not np.isfinite(best):
            raise ValueError(
                "after every epoch the network gave probability 0 to actions of the held-out trajectories: it has "
                f"diverged. Lower learning_rate, now {self.learning_rate}."
            )
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = self.scaler_.transform(validate_data(self, X, dtype=np.float64, reset=False))
        return _proba(self.network_, x, len(self.classes_))

    def predict(self, X: ArrayLike) -> Any:
        """The most likely action."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]


def _proba(network: Any, x: Float, n_classes: int) -> Float:
    proba = np.asarray(network.predict_proba(x))
    return np.ones((len(x), 1)) if n_classes == 1 else proba


def mean_nll(proba: Float, codes: Int) -> float:
    """Mean negative log-likelihood of what was done; infinite where it had probability 0."""
    with np.errstate(divide="ignore"):
        return float(-np.log(proba[np.arange(len(codes)), codes]).mean())


def hold_out(n: int, groups: ArrayLike | None, share: float, seed: int) -> Bool:
    """Mark the rows of a random share of the groups, at least one and never all, (n,)."""
    if not 0 < share < 1:
        raise ValueError(f"the share held out must lie between 0 and 1, got {share}.")
    codes = group_numbers(groups, n)
    n_groups = int(codes.max()) + 1
    if n_groups < 2:
        raise ValueError(
            f"stopping early needs at least 2 trajectories, one to hold out; got one, n_samples = {n}."
        )
    size = min(max(1, round(share * n_groups)), n_groups - 1)
    return np.isin(codes, np.random.default_rng(seed).permutation(n_groups)[:size])
