"""A number beside what it would be if the model were right: no calibration number means anything alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope.ragged import Float, Int


@dataclass(frozen=True)
class AgainstNull:
    """A number, and its mean and spread over logs in which the model itself would have acted."""

    value: float
    null_mean: float
    null_sd: float

    @property
    def excess(self) -> float:
        """What the number exceeds its null by; 0 for a model that is right, up to noise."""
        return self.value - self.null_mean

    @property
    def z(self) -> float:
        """The excess in standard deviations of the null; where those are 0, 0 or infinite."""
        if self.null_sd > 0:
            return self.excess / self.null_sd
        # A null without spread: the model leaves no choice, so either it is right to the digit or it is not.
        return 0.0 if abs(self.excess) < 1e-12 else float(np.copysign(np.inf, self.excess))


def against_draws(value: float, draws: Float) -> AgainstNull:
    """A number against its values in simulated logs, (R,)."""
    return AgainstNull(float(value), float(np.mean(draws)), float(np.std(draws, ddof=1)))


class Imagined:
    """Actions as the model would have taken them in the logged states, drawn again and again."""

    def __init__(self, table: Float, rng: np.random.Generator) -> None:
        self._steps = np.cumsum(table, axis=1, dtype=np.float64)
        self._steps /= self._steps[:, -1:]
        self._rng = rng

    def draw(self) -> Int:
        """One action a row, (N,)."""
        u = self._rng.random((len(self._steps), 1))
        return np.asarray((u >= self._steps[:, :-1]).sum(axis=1))


def row_of(table: NDArray[Any], actions: Int) -> NDArray[Any]:
    """The entry of each logged action, (N,)."""
    return table[np.arange(len(actions)), actions]
