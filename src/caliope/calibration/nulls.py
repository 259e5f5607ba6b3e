"""A number beside what it would be if the model were right: no calibration number means anything alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope.policies import check_probabilities
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories

_ROUNDING = 1e-9  # differences below this are those of sums of floats
LEAST_DRAWS = 20  # with fewer a standard deviation is a guess


@dataclass(frozen=True)
class AgainstNull:
    """A number, and its mean and spread over logs in which the model itself would have acted."""

    value: float
    null_mean: float
    null_sd: float
    p_value: float = float("nan")  # share of those logs with as large a number

    @property
    def excess(self) -> float:
        """What the number exceeds its null by; 0 for a model that is right, up to noise."""
        return self.value - self.null_mean

    @property
    def z(self) -> float:
        """The excess in standard deviations of the null; where those are 0, 0 or infinite."""
        if self.null_sd > _ROUNDING:
            return self.excess / self.null_sd
        if np.isnan(self.null_sd) or np.isnan(self.value):
            return float("nan")
        # A null without spread: the model leaves no choice, so either it is right to the digit or it is not.
        return 0.0 if abs(self.excess) < 1e-6 else float(np.copysign(np.inf, self.excess))


def against_draws(value: Any, draws: Float) -> AgainstNull:
    """A number against its values in simulated logs, (R,)."""
    # Equal up to rounding counts as equal: a null of few possible values is full of ties.
    as_large = int((draws >= value - _ROUNDING * max(1.0, abs(float(value)))).sum())
    p = (1 + as_large) / (len(draws) + 1)
    return AgainstNull(float(value), float(np.mean(draws)), float(np.std(draws, ddof=1)), p)


def check_draws(n_draws: int) -> None:
    """Raise unless there are enough draws to tell a standard deviation from."""
    if isinstance(n_draws, bool) or not isinstance(n_draws, (int, np.integer)) or n_draws < LEAST_DRAWS:
        raise ValueError(f"n_draws must be a whole number from {LEAST_DRAWS}, got {n_draws!r}.")


def check_table(table: Any, data: Trajectories) -> Float:
    """Probabilities of all actions at every step of a log, or an error that says what is wrong with them."""
    found = np.asarray(table, dtype=np.float64)
    if found.shape != (data.n_steps, data.n_actions):
        raise ValueError(
            f"a table of probabilities must have shape ({data.n_steps}, {data.n_actions}), a row a step and a column "
            f"an action, got {found.shape}."
        )
    return check_probabilities(found, "table")


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
