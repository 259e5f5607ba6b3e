"""A network as the regressor of fitted Q, in PyTorch, for GPUs; needs the extra ``torch``."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._ragged import Float
from caliope.behaviour._devices import import_torch
from caliope.behaviour._networks import hold_out
from caliope.behaviour._torch_training import ENTRIES, OnDevice, Training


class TorchNetworkRegressor(OnDevice, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron in PyTorch, for :func:`fitted_q`, with early stopping on held-out rows.

    It needs the extra ``torch``. First weights and batches are the same on every device, so that fits on the CPU and
    on a GPU differ by rounding alone. A stored model predicts on the CPU. A network extrapolates: see
    :meth:`FittedQ.check_convergence` and compare with trees.

    Parameters
    ----------
    hidden : tuple of int
        Units of each layer.
    alpha : float
        Strength of the weight decay.
    learning_rate : float
        Of the AdamW optimiser.
    batch_size : int
        Rows per batch; what is left over after the last whole batch waits for another epoch.
    max_epochs : int
        Passes over the data at most.
    patience : int
        Training ends after more than this many epochs without a lower held-out error.
    held_out : float
        Share of the rows that is held out.
    device : str, optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on; by default a GPU if PyTorch finds one, else the CPU.
    random_state : int
        Seed of weights, batches and the held-out share.

    Examples
    --------
    >>> from caliope.values import TorchNetworkRegressor
    >>> TorchNetworkRegressor((64,), device="cpu")
    TorchNetworkRegressor(device='cpu', hidden=(64,))
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (128, 128),
        *,
        alpha: float = 1e-3,
        learning_rate: float = 1e-3,
        batch_size: int = 512,
        max_epochs: int = 50,
        patience: int = 3,
        held_out: float = 0.1,
        device: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.hidden = hidden
        self.alpha = alpha
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.held_out = held_out
        self.device = device
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> TorchNetworkRegressor:
        """Train on most rows, stop on the others."""
        x, targets = validate_data(self, X, y, dtype=np.float32, y_numeric=True)
        self.mean_target_ = float(np.mean(targets))
        self.spread_target_ = float(np.std(targets)) or 1.0
        apart = hold_out(len(x), None, self.held_out, self.random_state)
        scaled = ((targets - self.mean_target_) / self.spread_target_).astype(np.float32)
        training = Training(
            tuple(self.hidden),
            self.alpha,
            0.0,
            self.learning_rate,
            self.batch_size,
            self.max_epochs,
            self.patience,
            self.random_state,
        )
        self.network_, self.losses_ = training.run(
            self._start(x),
            self._send(scaled[:, None]),
            self._send(apart),
            1,
            import_torch().nn.functional.mse_loss,
        )
        return self

    def predict(self, X: ArrayLike) -> Float:
        """Return the mean target of each row, (N,)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float32, reset=False)
        return self._as_targets(self._outputs(x)[:, 0])

    def predict_actions(self, states: Float, n_actions: int) -> Float:
        """Return the mean targets of states with each action as the last columns, one indicator each, (N, A).

        The first layer sees a state once, and not once per action.
        """
        check_is_fitted(self)
        torch, d = import_torch(), self.n_features_in_ - n_actions
        mean, spread = self.mean_, self.spread_
        first, rest = self.network_[0], self.network_[1:]
        widest = max([1, *self.hidden]) * n_actions
        parts = []
        with torch.no_grad():
            actions = self._send((np.eye(n_actions, dtype=np.float32) - mean[d:]) / spread[d:])
            of_actions = actions @ first.weight[:, d:].T + first.bias
            for part in np.array_split(np.asarray(states), 1 + len(states) * widest // ENTRIES):
                x = self._send((part.astype(np.float32) - mean[:d]) / spread[:d])
                both = (x @ first.weight[:, :d].T)[:, None, :] + of_actions
                parts.append(rest(both).squeeze(-1).cpu().numpy())
        return self._as_targets(np.concatenate(parts))

    def _as_targets(self, outputs: Float) -> Float:
        return outputs.astype(np.float64) * self.spread_target_ + self.mean_target_
