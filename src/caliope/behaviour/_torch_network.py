"""The network of :mod:`caliope.behaviour._networks` in PyTorch, for GPUs; needs the extra ``torch``."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._ragged import Float
from caliope.behaviour._devices import import_torch
from caliope.behaviour._fit import MostLikelyAction
from caliope.behaviour._networks import hold_out
from caliope.behaviour._torch_training import OnDevice, Training


class TorchNetworkPolicy(OnDevice, MostLikelyAction, BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron in PyTorch with early stopping on the log loss of held-out trajectories.

    It needs the extra ``torch``. First weights and batches are the same on every device, dropout is not: fits on the
    CPU and on a GPU differ like those of two seeds, and with ``dropout=0`` by rounding alone. A stored model predicts
    on the CPU.

    Parameters
    ----------
    hidden : tuple of int
        Units of each layer.
    alpha : float
        Strength of the weight decay.
    dropout : float
        Share of the units that are left out in each step.
    learning_rate : float
        Of the AdamW optimiser.
    batch_size : int
        Rows per batch; what is left over after the last whole batch waits for another epoch.
    max_epochs : int
        Passes over the data at most.
    patience : int
        Training ends after more than this many epochs without a lower held-out log loss.
    held_out : float
        Share of the trajectories that is held out.
    device : str, optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on; by default a GPU if PyTorch finds one, else the CPU.
    random_state : int
        Seed of weights, batches, dropout and the held-out share.

    Examples
    --------
    >>> from caliope.behaviour import TorchNetworkPolicy
    >>> TorchNetworkPolicy((64,), dropout=0.0, device="cpu")
    TorchNetworkPolicy(device='cpu', dropout=0.0, hidden=(64,))
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (128, 128),
        *,
        alpha: float = 1e-3,
        dropout: float = 0.1,
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        max_epochs: int = 100,
        patience: int = 5,
        held_out: float = 0.15,
        device: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.hidden = hidden
        self.alpha = alpha
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.held_out = held_out
        self.device = device
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> TorchNetworkPolicy:
        """Train on most trajectories, stop on the others; ``groups`` names the trajectory of each row."""
        x, actions = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(actions)
        self.classes_, codes = np.unique(actions, return_inverse=True)
        apart = hold_out(len(x), groups, self.held_out, self.random_state)
        training = Training(
            tuple(self.hidden),
            self.alpha,
            self.dropout,
            self.learning_rate,
            self.batch_size,
            self.max_epochs,
            self.patience,
            self.random_state,
        )
        self.network_, self.losses_ = training.run(
            self._start(x),
            self._send(codes),
            self._send(apart),
            len(self.classes_),
            import_torch().nn.functional.cross_entropy,
        )
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float32, reset=False)
        return softmax(self._outputs(x).astype(np.float64), axis=1)
