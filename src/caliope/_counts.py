"""Counts: how often each trajectory occurs, in one resample per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caliope._ragged import Float, Int, read_only
from caliope._traced import TracedCounts


@dataclass(frozen=True, eq=False)
class LeaveOneOutCounts:
    """Counts with one changed trajectory per row: row j adds ``step[j]`` to trajectory ``which[j]`` of ``base``.

    A step of -1 leaves the trajectory out, and an infinitesimal imaginary step differentiates. Written out,
    these counts would be an (n, n) matrix; in this form every sum over them costs O(n).
    """

    base: Float  # (n,)
    which: Int  # (rows,)
    step: NDArray[Any]  # (rows,), real or complex

    def restrict_to(self, members: Int) -> LeaveOneOutCounts:
        """Return the same rows for some of the trajectories only."""
        place = np.full(len(self.base), -1)
        place[members] = np.arange(len(members))
        which = place[self.which]
        return LeaveOneOutCounts(self.base[members], np.maximum(which, 0), np.where(which >= 0, self.step, 0))


Counts = Float | LeaveOneOutCounts | TracedCounts


def as_counts(counts: ArrayLike | Counts | None, n: int) -> Counts | None:
    """Counts of n trajectories, (n,) or (draws, n); raise for others."""
    if counts is None or isinstance(counts, LeaveOneOutCounts | TracedCounts):
        return counts
    array = np.asarray(counts, dtype=np.float64)
    if array.ndim not in (1, 2) or array.shape[-1] != n:
        raise ValueError(f"counts must have shape ({n},) or (draws, {n}), got {array.shape}.")
    if not (array.min() >= 0 and array.max() < np.inf):
        raise ValueError("counts must be finite and not negative.")
    return read_only(array)
