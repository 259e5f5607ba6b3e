"""Multi-layer perceptrons in PyTorch, with early stopping, on the CPU or on a GPU; needs the extra ``torch``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from caliope._ragged import Float
from caliope.behaviour._devices import choose_device, import_torch

# Entries of the widest layer in one call of the network.
ENTRIES = 1 << 25
# Steps before the kernels of a step are recorded on a GPU.
_WARM = 3


@dataclass(frozen=True)
class Training:
    """How a network is trained; the parameters are those of the estimators."""

    hidden: tuple[int, ...]
    alpha: float
    dropout: float
    learning_rate: float
    batch_size: int
    max_epochs: int
    patience: int
    random_state: int

    def run(self, x: Any, y: Any, apart: Any, n_out: int, loss: Any) -> tuple[Any, list[float]]:
        """Return the network of the best epoch and the losses on the rows held out.

        First weights and batches are drawn on the CPU, so that they are the same on every device.
        """
        torch = import_torch()
        if not self.max_epochs >= 1:
            raise ValueError(f"max_epochs must be at least 1, got {self.max_epochs}.")
        # The global random state of the caller stays as it was.
        with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
            torch.manual_seed(self.random_state)
            network = make_layers([x.shape[1], *self.hidden, n_out], self.dropout).to(x.device)
            with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
                return self._train(network, x, y, apart, loss)

    def _train(self, network: Any, x: Any, y: Any, apart: Any, loss: Any) -> tuple[Any, list[float]]:
        torch = import_torch()
        optimiser = torch.optim.AdamW(
            network.parameters(),
            lr=self.learning_rate,
            weight_decay=self.alpha,
            fused=True,
            capturable=x.is_cuda,
        )
        step = _Step(network, optimiser, lambda rows: loss(network(x[rows]), y[rows]))
        fit, held = torch.nonzero(~apart).ravel().cpu(), torch.nonzero(apart).ravel()
        best, kept, losses = float("inf"), copy.deepcopy(network.state_dict()), []
        size = min(self.batch_size, len(fit))
        for _ in range(self.max_epochs):
            network.train()
            # Whole batches alone: what is left over comes in another epoch.
            order = fit[torch.randperm(len(fit))][: len(fit) // size * size]
            for rows in order.to(x.device).split(size):
                step(rows)
            network.eval()
            with torch.no_grad():
                losses.append(float(loss(network(x[held]), y[held])))
            if losses[-1] < best:
                best, kept = losses[-1], copy.deepcopy(network.state_dict())
            elif len(losses) - int(np.argmin(losses)) > self.patience:
                break
        if not np.isfinite(best):
            raise ValueError(f"the network has diverged: lower learning_rate, now {self.learning_rate}.")
        network.load_state_dict(kept)
        return network.eval(), losses


class _Step:
    """One step of the optimiser. On a GPU its kernels are recorded once and then started together.

    A step of a small network is some fifty kernels of microseconds, which take longer to start than to run.
    """

    def __init__(self, network: Any, optimiser: Any, loss: Callable[[Any], Any]) -> None:
        self.optimiser, self.loss, self.done = optimiser, loss, 0
        self.on_gpu = next(network.parameters()).is_cuda
        self.graph: Any = None

    def __call__(self, rows: Any) -> None:
        torch = import_torch()
        if not self.on_gpu:
            self._run(rows)
            return
        if self.done < _WARM:
            self._warm(rows)
        elif self.graph is None:
            self.rows, self.graph = rows.clone(), torch.cuda.CUDAGraph()
            self.optimiser.zero_grad(set_to_none=True)
            with torch.cuda.graph(self.graph):
                self._run(self.rows, clear=False)
            self.graph.replay()
        else:
            self.rows.copy_(rows)
            self.graph.replay()
        self.done += 1

    def _warm(self, rows: Any) -> None:
        """Run a step on a stream of its own, as recording wants it."""
        torch = import_torch()
        beside, here = torch.cuda.Stream(rows.device), torch.cuda.current_stream(rows.device)
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            self._run(rows)
        here.wait_stream(beside)

    def _run(self, rows: Any, *, clear: bool = True) -> None:
        if clear:
            self.optimiser.zero_grad(set_to_none=True)
        self.loss(rows).backward()
        self.optimiser.step()


def make_layers(sizes: list[int], dropout: float) -> Any:
    """Make a perceptron with layers of these sizes."""
    torch, parts = import_torch(), []
    for i, (a, b) in enumerate(pairwise(sizes)):
        parts.append(torch.nn.Linear(a, b))
        if i < len(sizes) - 2:
            parts += [torch.nn.ReLU(), *([torch.nn.Dropout(dropout)] if dropout else [])]
    return torch.nn.Sequential(*parts)


class OnDevice:
    """What the estimators share: standardised inputs on a device, and a network that is stored for the CPU."""

    device: str | None
    network_: Any
    device_: str
    mean_: Float
    spread_: Float

    def _start(self, x: Float) -> Any:
        """Learn mean and spread of the columns; return them standardised, on the device."""
        self.device_ = choose_device(self.device)
        self.mean_, self.spread_ = x.mean(axis=0), np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
        return self._standardise(x)

    def _standardise(self, x: Float) -> Any:
        return self._send((x - self.mean_) / self.spread_)

    def _send(self, x: Any) -> Any:
        return import_torch().as_tensor(np.ascontiguousarray(x), device=self.device_)

    def _outputs(self, x: Float) -> Float:
        """Return what the network gives for each row, (N, outputs)."""
        torch = import_torch()
        widest = max(layer.out_features for layer in self.network_ if hasattr(layer, "out_features"))
        with torch.no_grad():
            parts = [
                self.network_(self._standardise(part)).cpu().numpy()
                for part in np.array_split(x, 1 + len(x) * widest // ENTRIES)
            ]
        return np.concatenate(parts)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())  # type: ignore[call-overload]
        if "network_" in state:
            state |= {"network_": copy.deepcopy(self.network_).cpu(), "device_": "cpu"}
        return state
