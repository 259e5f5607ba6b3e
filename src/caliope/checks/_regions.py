"""Regions of the states in which something was never done: found on some trajectories, counted on the others.

A region is a rectangle in one or two columns. All rectangles on a grid of quantiles are looked at. A smooth practice
has empty rectangles by chance, so what was found on five sixths of the trajectories must be empty in the rest.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy import special

from caliope._ragged import Bool, Float, Int

FOLDS = 6
# Between these quantiles of a column lie the sides of rectangles; the tails are cut finer.
_TAIL = np.array([0.01, 0.02, 0.03, 0.045])
_CUTS = np.concatenate([_TAIL, np.arange(1, 12) / 12, 1 - _TAIL[::-1]])
_BINS = len(_CUTS) + 1
_PAIRS = 200  # of columns, in the searches for all occurrences together
_BOXES = 3  # in one search
# What practice may do at least, to be called a choice: a part of what the policy asks for, and of what is expected.
_RATIO, _MARGIN = 5.0, 2.5
_FOUND = 2.0  # occurrences that a rectangle must lack at the least, where it is searched
_LEVEL = 0.002  # of the test on other trajectories
_BACK = 2.0  # occurrences that are expected between the edge of a rectangle and the nearest one seen
_LEAKS = 0.2  # of the occurrences at the least, that may be seen in those: edges are never quite right


class Box(NamedTuple):
    """A rectangle: two columns (of a single one the second is free), above ``low`` and at most ``high``."""

    columns: tuple[int, int]
    low: tuple[float, float]
    high: tuple[float, float]

    def within(self, states: Float, axis: int) -> Bool:
        """Which rows lie between the sides in one of the two columns, (m,)."""
        x = states[:, self.columns[axis]]
        return (x > self.low[axis]) & (x <= self.high[axis])

    def holds(self, states: Float) -> Bool:
        """Which rows lie in it, (m,)."""
        return self.within(states, 0) & self.within(states, 1)


class Grid(NamedTuple):
    """The columns of the states and their bins, with the upper edges of these."""

    states: Float  # (N, d)
    codes: Int  # (N, d)
    edges: tuple[Float, ...]  # of each column, one less than its bins

    def part(self, rows: Bool) -> Grid:
        """Some rows, in the same bins."""
        return Grid(self.states[rows], self.codes[rows], self.edges)

    def box(self, columns: tuple[int, int], first: tuple[int, int], last: tuple[int, int]) -> Box:
        """The rectangle from the first to the last bin in each of two columns."""
        ends = [np.concatenate([[-np.inf], self.edges[j], [np.inf]]) for j in columns]
        low = (float(ends[0][first[0]]), float(ends[1][first[1]]))
        # Columns with few values have few bins; the others are empty.
        high = [float(end[min(k + 1, len(end) - 1)]) for end, k in zip(ends, last, strict=True)]
        if columns[0] == columns[1]:
            return Box(columns, (max(low), -np.inf), (min(high), np.inf))
        return Box(columns, low, (high[0], high[1]))


def make_grid(states: Float) -> Grid:
    """Cut every column at its quantiles, or between its values where these are few."""
    codes, edges = np.empty(states.shape, dtype=np.int64), []
    for j, column in enumerate(states.T):
        values = np.unique(column)
        few = len(values) <= _BINS
        upper = values[:-1] if few else np.unique(np.quantile(column, _CUTS, method="lower"))
        codes[:, j] = np.searchsorted(upper, column, side="left")
        edges.append(np.asarray(upper, dtype=np.float64))
    return Grid(states, codes, tuple(edges))


class Uses(NamedTuple):
    """Whether something was done at each step, what is usual, and the least that is a choice, (N,) each."""

    taken: Float
    usual: Float
    least: Float

    @classmethod
    def of(cls, taken: Float, target: Float, expected: Float) -> Uses:
        """From what was done, what a policy asks for, and what a behaviour model expects.

        A flexible model may have learnt that something is never done: no less is usual than half of the overall
        frequency. The least is a fifth of what the policy asks for, or two fifths of what is usual if that is less.
        """
        usual = np.maximum(expected, taken.mean() / 2)
        return cls(taken, usual, np.minimum(target / _RATIO, usual / _MARGIN))

    def part(self, rows: Bool) -> Uses:
        """Some rows."""
        return Uses(self.taken[rows], self.usual[rows], self.least[rows])


def find_empty(grid: Grid, fold: Int, uses: Uses, *, searches: int) -> tuple[Box, ...]:
    """Rectangles in which something was never done, although it would be if practice left a choice.

    Parameters
    ----------
    grid : Grid
        The states.
    fold : array of shape (N,)
        Fold of each step; those of a trajectory are in one.
    uses : Uses
        Whether it was done, and what is usual.
    searches : int
        How many such searches there are; the more, the fewer columns each looks at.

    Returns
    -------
    tuple of Box
        Empty in the whole log; none unless those of each part of the log are empty in the rest of it.
    """
    columns = max(3, int(np.sqrt(2 * _PAIRS / searches)))
    seen, due = np.zeros(_BOXES), np.zeros(_BOXES)
    for k in range(int(fold.max()) + 1):
        fit, rest = fold != k, np.flatnonzero(fold == k)
        for i, box in enumerate(_search(grid.part(fit), uses.part(fit), _FOUND, columns, back=_BACK)):
            inside = box.holds(grid.states[rest])
            seen[i] += uses.taken[rest[inside]].sum()
            due[i] += uses.least[rest[inside]].sum()
            rest = rest[~inside]
    seen, due = np.cumsum(seen), np.cumsum(due)
    unlikely = np.where(due > 0, special.pdtr(seen, due), 1.0)
    passed = np.flatnonzero((unlikely < _LEVEL) & (seen <= _LEAKS * due))
    if not len(passed):
        return ()
    needed = _FOUND * FOLDS / (FOLDS - 1)
    return _search(grid, uses, needed, columns, back=0.0)[: int(passed[-1]) + 1]


def _search(grid: Grid, uses: Uses, needed: float, columns: int, *, back: float) -> tuple[Box, ...]:
    """Empty rectangles that lack the most, one after the other; each at least ``needed``."""
    pairs = _pairs(grid.codes, uses.taken - uses.usual, columns)
    boxes: list[Box] = []
    while len(boxes) < _BOXES and float(uses.least.sum()) >= needed:
        found = [_largest_empty(grid.codes[:, pair], uses) for pair in pairs]
        best = max(range(len(pairs)), key=lambda i: found[i][0])
        lack, first, last = found[best]
        if lack < needed:
            break
        boxes.append(_fit_sides(grid.box(pairs[best], first, last), grid.states, uses, back))
        left = ~boxes[-1].holds(grid.states)
        grid, uses = grid.part(left), uses.part(left)
    return tuple(boxes)


def _pairs(codes: Int, error: Float, columns: int) -> list[tuple[int, int]]:
    """Pairs of the columns in whose bins the errors of the model add up most."""
    d = codes.shape[1]
    if d == 1:
        return [(0, 0)]
    chosen = np.arange(d)
    if d > columns:
        misfit = [_misfit(codes[:, j], error) for j in range(d)]
        chosen = np.sort(np.argsort(misfit, kind="stable")[-columns:])
    return [(int(i), int(j)) for i, j in combinations(chosen, 2)]


def _misfit(code: Int, error: Float) -> float:
    total, square = np.bincount(code, error), np.bincount(code, error**2)
    return float(np.divide(total**2, square, out=np.zeros_like(total), where=square > 0).sum())


_FIRST, _LAST = np.triu_indices(_BINS)
# One row per run of bins, with 1 in each of its bins.
_RUNS = ((np.arange(_BINS) >= _FIRST[:, None]) & (np.arange(_BINS) <= _LAST[:, None])).astype(np.float64)


def _largest_empty(codes: Int, uses: Uses) -> tuple[float, tuple[int, int], tuple[int, int]]:
    """Of all rectangles in two columns, (m, 2), without any occurrence: the one that lacks the most."""
    cell = codes[:, 0] * _BINS + codes[:, 1]
    shape = (_BINS, _BINS)
    seen = _RUNS @ np.bincount(cell, uses.taken, minlength=_BINS**2).reshape(shape) @ _RUNS.T
    due = _RUNS @ np.bincount(cell, uses.least, minlength=_BINS**2).reshape(shape) @ _RUNS.T
    due[seen > 0.5] = 0.0
    i, j = np.unravel_index(int(due.argmax()), due.shape)
    return float(due[i, j]), (int(_FIRST[i]), int(_FIRST[j])), (int(_LAST[i]), int(_LAST[j]))


def _fit_sides(box: Box, states: Float, uses: Uses, back: float) -> Box:
    """Move each side of an empty rectangle to the nearest occurrence, less where ``back`` of them are usual."""
    low, high = list(box.low), list(box.high)
    for axis in (0, 1):
        beside = Box(box.columns, (low[0], low[1]), (high[0], high[1])).within(states, 1 - axis)
        x, taken, usual = states[beside, box.columns[axis]], uses.taken[beside] > 0, uses.usual[beside]
        low[axis] = _fit_side(x, taken, usual, back, ends=(low[axis], high[axis]))
        # The other side is the same in the mirror; there it would be out, so it is the last value that is in.
        edge = -_fit_side(-x, taken, usual, back, ends=(-np.nextafter(high[axis], np.inf), -low[axis]))
        high[axis] = edge if np.isinf(edge) else float(x[x < edge].max(initial=low[axis]))
    return Box(box.columns, (low[0], low[1]), (high[0], high[1]))


def _fit_side(x: Float, taken: Bool, usual: Float, back: float, *, ends: tuple[float, float]) -> float:
    """The value above which rows lie in a run, from the nearest occurrence at or below its lower end."""
    low, high = ends
    beyond = x[taken & (x <= low)]
    if not len(beyond):
        return -np.inf
    nearest = float(beyond.max())
    free = (x > nearest) & (x <= high)
    order = np.argsort(x[free], kind="stable")
    values = x[free][order]
    dropped = int(np.searchsorted(np.cumsum(usual[free][order]), back))
    if dropped >= len(values):
        return nearest
    # A value that many rows share is dropped by none of them.
    before = int(np.searchsorted(values, values[dropped]))
    return float(values[before - 1]) if before > 0 else nearest
