"""Calibration numbers with their null: draws from the model, and how far a number exceeds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope._policies import check_probabilities
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories

# Differences below this are rounding errors of sums of floats.
_ROUNDING = 1e-9
# With fewer draws a standard deviation is a guess.
LEAST_DRAWS = 20


@dataclass(frozen=True)
class AgainstNull:
    """A calibration number with its null: its distribution if the model were right.

    Parameters
    ----------
    value : float
        The number.
    null_mean, null_sd : float
        Its mean and standard deviation over draws from the model.
    p_value : float
        Share of the draws with a number at least as large.

    Examples
    --------
    >>> number = AgainstNull(0.5, null_mean=0.25, null_sd=0.125)
    >>> number.excess, number.z
    (0.25, 2.0)
    """

    value: float
    null_mean: float
    null_sd: float
    p_value: float = float("nan")

    @property
    def excess(self) -> float:
        """The number minus the mean of its null; 0 for a model that is right, up to noise."""
        return self.value - self.null_mean

    @property
    def z(self) -> float:
        """The excess in standard deviations of the null; where those are 0, 0 or infinite."""
        if self.null_sd > _ROUNDING:
            return self.excess / self.null_sd
        if np.isnan(self.null_sd) or np.isnan(self.value):
            return float("nan")
        # A null without spread: the model is certain, and either exactly right or wrong.
        return 0.0 if abs(self.excess) < 1e-6 else float(np.copysign(np.inf, self.excess))


def against_draws(value: Any, draws: Float) -> AgainstNull:
    """Compare a number with its values in draws from the model, (R,)."""
    # Equal up to rounding counts as equal: a null of few possible values is full of ties.
    as_large = int((draws >= value - _ROUNDING * max(1.0, abs(float(value)))).sum())
    p = (1 + as_large) / (len(draws) + 1)
    return AgainstNull(float(value), float(np.mean(draws)), float(np.std(draws, ddof=1)), p)


def check_draws(n_draws: int) -> None:
    """Raise unless there are enough draws for a standard deviation."""
    if isinstance(n_draws, bool) or not isinstance(n_draws, (int, np.integer)) or n_draws < LEAST_DRAWS:
        raise ValueError(f"n_draws must be a whole number from {LEAST_DRAWS}, got {n_draws!r}.")


def check_table(table: Any, data: Trajectories) -> Float:
    """Return probabilities of all actions at every step of a log; raise unless they are such."""
    probs = np.asarray(table, dtype=np.float64)
    if probs.shape != (data.n_steps, data.n_actions):
        raise ValueError(
            f"a table of probabilities must have shape ({data.n_steps}, {data.n_actions}), one row per step and one "
            f"column per action, got {probs.shape}."
        )
    return check_probabilities(probs, "table")


class ModelDraws:
    """Actions drawn from the model in the logged states."""

    def __init__(self, table: Float, rng: np.random.Generator) -> None:
        self._steps = np.cumsum(table, axis=1, dtype=np.float64)
        self._steps /= self._steps[:, -1:]
        self._rng = rng

    def draw(self) -> Int:
        """Draw one action per row, (N,)."""
        u = self._rng.random((len(self._steps), 1))
        return np.asarray((u >= self._steps[:, :-1]).sum(axis=1))
