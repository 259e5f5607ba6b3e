"""The derivative of an estimate in the counts of all trajectories at once, by way of the sums that it is made of.

An estimate is a function of few sums over trajectories. So it is asked three times: its sums are written down; each
of them is changed, all at once; and how much the estimate follows each sum is followed back to the trajectories. That
takes as long as a few estimates, however many trajectories there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._ragged import Float, Int

_STEP = 1e-100  # of the complex step: exact to rounding
_CELLS = 1 << 21  # of sums that are changed at once
_OTHER_SUMS = "this estimator takes other sums in every call, and has no derivative."


@dataclass(eq=False)
class Trace:
    """What is known of the sums of an estimate, in the order in which it asks for them.

    Attributes
    ----------
    found : array of shape (n,)
        The derivative, once slopes are known.
    sums : list of array
        Each sum, as it is.
    changed : array or None
        Which entries of all sums, one after the other, are changed; one row of the estimate each.
    slopes : list of array or None
        The derivative of the estimate in each sum.
    """

    found: Float
    sums: list[NDArray[Any]] = field(default_factory=list)
    changed: Int | None = None
    slopes: list[Float] | None = None
    _asked: int = 0

    def ask(self, estimator: Any, e: Any) -> Any:
        """The estimate under counts of one."""
        self._asked, known = 0, bool(self.sums)
        with np.errstate(invalid="ignore"):  # as where no trajectory has weight
            value = estimator(e.with_counts(TracedCounts(self)))
        if known and self._asked != len(self.sums):
            raise TypeError(_OTHER_SUMS)
        return value

    def take(self, value: Callable[[], Any], follow: Callable[[Any], Float], members: Int | None) -> Any:
        """A sum over some trajectories, as :class:`TracedCounts` describes it."""
        k, self._asked = self._asked, self._asked + 1
        first = self.changed is None and self.slopes is None
        if not first and k >= len(self.sums):
            raise TypeError(_OTHER_SUMS)
        if self.changed is not None:
            return self._change(k)
        if self.slopes is None:
            self.sums.append(np.asarray(value()))
        elif self.slopes[k].any():
            self.found[slice(None) if members is None else members] += follow(self.slopes[k])
        return self.sums[k][()]

    def _change(self, k: int) -> NDArray[Any]:
        whole, changed = self.sums[k], np.asarray(self.changed)
        rows = np.zeros((len(changed), whole.size), dtype=np.complex128) + whole.ravel()
        place = changed - sum(x.size for x in self.sums[:k])
        own = np.flatnonzero((place >= 0) & (place < whole.size))
        rows[own, place[own]] += 1j * _STEP
        return rows.reshape(len(changed), *whole.shape)


@dataclass(frozen=True, eq=False)
class TracedCounts:
    """Counts of one each, whose sums are traced.

    Attributes
    ----------
    trace : Trace
        Of the estimate.
    members : array or None
        The trajectories that are counted, of those of the whole evidence; None for all.
    """

    trace: Trace
    members: Int | None = None

    def restrict_to(self, members: Int) -> TracedCounts:
        """The same for some of the trajectories only."""
        return TracedCounts(self.trace, members if self.members is None else self.members[members])

    def take(self, value: Callable[[], Any], follow: Callable[[Any], Float]) -> Any:
        """A sum: how it is computed, and from a slope in it to the derivative in each trajectory."""
        return self.trace.take(value, follow, self.members)


def differentiate(estimator: Any, e: Any) -> Float:
    """Differentiate an estimate in the count of each trajectory, (n,).

    Parameters
    ----------
    estimator : callable
        Function from evidence to a value, by way of sums over trajectories.
    e : Evidence
        The log, without counts.

    Returns
    -------
    (n,)
        The derivatives; they sum to 0.

    Examples
    --------
    >>> from caliope import Evidence, monte_carlo
    >>> differentiate(monte_carlo, Evidence([1, 3, 5], np.zeros(3), offsets=[0, 1, 2, 3])).round(6).tolist()
    [-0.666667, 0.0, 0.666667]
    """
    trace = Trace(np.zeros(len(e)))
    trace.ask(estimator, e)
    sizes = [x.size for x in trace.sums]
    slope, rows = np.zeros(sum(sizes)), max(1, _CELLS // max(sizes, default=1))
    for start in range(0, len(slope), rows):
        trace.changed = np.arange(start, min(start + rows, len(slope)))
        slope[trace.changed] = np.asarray(trace.ask(estimator, e)).imag / _STEP
    trace.changed = None
    parts = np.split(slope, np.cumsum(sizes)[:-1]) if sizes else []
    trace.slopes = [part.reshape(x.shape) for part, x in zip(parts, trace.sums, strict=True)]
    trace.ask(estimator, e)
    return trace.found
