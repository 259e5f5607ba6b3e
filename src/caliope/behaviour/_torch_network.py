"""The network of :mod:`caliope.behaviour._networks` in PyTorch, for GPUs; needs the extra ``torch``."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._ragged import Float
from caliope.behaviour._fit import MostLikelyAction
from caliope.behaviour._networks import hold_out

# Rows per call of the network.
_ROWS = 1 << 16


class TorchNetworkPolicy(MostLikelyAction, BaseEstimator):  # type: ignore[misc]
    """A multi-layer perceptron in PyTorch with early stopping on the log loss of held-out trajectories.

    The parameters are those of :class:`~caliope.behaviour.NetworkPolicy`, and ``dropout``.
    ``device`` is by default the GPU if PyTorch finds one, else the CPU.
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
        self.mean_, self.spread_ = x.mean(axis=0), np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
        self.device_ = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        apart = hold_out(len(x), groups, self.held_out, self.random_state)
        inputs = torch.as_tensor((x - self.mean_) / self.spread_, device=self.device_)
        targets = torch.as_tensor(codes, device=self.device_)
        # The global random state of the caller stays as it was.
        with torch.random.fork_rng():
            torch.manual_seed(self.random_state)
            self.network_ = self._train(inputs, targets, torch.as_tensor(apart, device=self.device_))
        return self

    def _train(self, x: Any, y: Any, apart: Any) -> Any:
        network = _layers([x.shape[1], *self.hidden, len(self.classes_)], self.dropout).to(self.device_)
        optimiser = torch.optim.AdamW(network.parameters(), lr=self.learning_rate, weight_decay=self.alpha)
        loss = torch.nn.CrossEntropyLoss()
        fit, best, kept = torch.nonzero(~apart).ravel(), float("inf"), network
        self.losses_: list[float] = []
        for _ in range(self.max_epochs):
            network.train()
            for batch in fit[torch.randperm(len(fit), device=fit.device)].split(self.batch_size):
                optimiser.zero_grad()
                loss(network(x[batch]), y[batch]).backward()
                optimiser.step()
            network.eval()
            with torch.no_grad():
                self.losses_.append(float(loss(network(x[apart]), y[apart])))
            if self.losses_[-1] < best:
                best, kept = self.losses_[-1], copy.deepcopy(network)
            elif len(self.losses_) - int(np.argmin(self.losses_)) > self.patience:
                break
        return kept.eval()

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = (validate_data(self, X, dtype=np.float32, reset=False) - self.mean_) / self.spread_
        with torch.no_grad():
            parts = [
                torch.softmax(self.network_(torch.as_tensor(part, device=self.device_)).double(), dim=1)
                .cpu()
                .numpy()
                for part in np.array_split(x, max(1, len(x) // _ROWS))
            ]
        return np.concatenate(parts)


def _layers(sizes: list[int], dropout: float) -> Any:
    parts: list[Any] = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        parts.append(torch.nn.Linear(a, b))
        if i < len(sizes) - 2:
            parts += [torch.nn.ReLU(), torch.nn.Dropout(dropout)]
    return torch.nn.Sequential(*parts)
