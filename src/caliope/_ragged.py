"""Where the steps of trajectories of unequal length lie in memory.

N steps of n trajectories stand one after the other; trajectory i owns the rows
``offsets[i]:offsets[i + 1]``. Sorted by length they fall into one dense block a length, with no
padding, so that sums over trajectories become matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Float = NDArray[np.floating[Any]]
Int = NDArray[np.integer[Any]]
Bool = NDArray[np.bool_]

_ROUNDING = 1e-9  # relative
STRETCH = 1 << 16  # steps of a long log that are worked on at a time: a column of them fits into the cache


def read_only(x: NDArray[Any]) -> NDArray[Any]:
    """Return a view that cannot be written through; the caller's own array stays as it was."""
    if not x.flags.writeable:
        return x
    view = x.view()
    view.flags.writeable = False
    return view


def check_offsets(offsets: ArrayLike, n_steps: int) -> Int:
    """Validate and return offsets as read-only int64: 0, then strictly rising, up to the number of steps."""
    given = np.asarray(offsets)
    if given.ndim != 1 or len(given) < 2 or not np.issubdtype(given.dtype, np.integer):
        raise ValueError(
            "offsets must be a one-dimensional integer array of n + 1 entries for n >= 1 trajectories, "
            f"got shape {given.shape} of {given.dtype}."
        )
    if given[0] != 0 or given[-1] != n_steps:
        raise ValueError(
            f"offsets must run from 0 to the number of steps, {n_steps}; they run from {given[0]} to {given[-1]}."
        )
    lengths = np.diff(given.astype(np.int64))
    if (lengths <= 0).any():
        i = int(np.argmax(lengths <= 0))
        raise ValueError(
            f"every trajectory needs at least one step; {int((lengths <= 0).sum())} have none "
            f"(first: trajectory {i}, rows {given[i]}:{given[i + 1]}). Drop them before loading."
        )
    return read_only(given.astype(np.int64))


def as_positions(which: Any, n: int) -> Int:
    """Numbers of the trajectories that a list, a mask or a slice names; raise for others."""
    if isinstance(which, slice):
        return np.arange(n)[which]
    chosen = np.atleast_1d(np.asarray(which))
    if chosen.dtype == bool:
        if chosen.shape != (n,):
            raise IndexError(f"a mask over trajectories must have shape ({n},), got {chosen.shape}.")
        return np.flatnonzero(chosen)
    if chosen.ndim != 1 or (len(chosen) and not np.issubdtype(chosen.dtype, np.integer)):
        raise IndexError("trajectories are chosen by whole numbers, a mask over trajectories, or a slice.")
    outside = chosen[(chosen < -n) | (chosen >= n)]
    if len(outside):
        raise IndexError(f"trajectory {int(outside[0])} is out of range for {n} trajectories.")
    return np.where(chosen < 0, chosen + n, chosen).astype(np.int64)


def column_max(block: Float) -> Float:
    """``block.max(axis=0)``, several rows at once: numpy is slow along a short last axis."""
    rows = max(1, 512 // block.shape[1])
    even = len(block) // rows * rows
    folded = block[:even].reshape(-1, rows * block.shape[1]).max(axis=0, initial=-np.inf)
    return np.maximum(folded.reshape(rows, -1).max(axis=0), block[even:].max(axis=0, initial=-np.inf))


def running_sum(block: Float) -> Float:
    """``np.cumsum(block, axis=1)``, column by column where columns are long: numpy is slow along a short axis."""
    if len(block) < 1024:
        return np.cumsum(block, axis=1)
    out = block.copy()
    for start in range(0, len(block), 4096):  # what fits into the cache
        part = out[start : start + 4096]
        for t in range(1, block.shape[1]):
            part[:, t] += part[:, t - 1]
    return out


def at_actions(table: NDArray[Any], actions: Int) -> NDArray[Any]:
    """Entry of each row of a table at the action of that row, (N, A) -> (N,)."""
    if (
        not table.flags.c_contiguous
        or not len(actions)
        or actions.min() < 0
        or actions.max() >= table.shape[1]
    ):
        return table[np.arange(len(actions)), actions]
    # Ten times as fast as with two indices.
    return table.reshape(-1).take(np.arange(0, actions.size * table.shape[1], table.shape[1]) + actions)


def first_of_largest(x: Float) -> int:
    """Number of the largest entry, and the first of those that only rounding tells apart.

    Sums over the same numbers round differently where parts of a log have other sizes.

    Examples
    --------
    >>> first_of_largest(np.array([1.0, 3.0 - 1e-12, 3.0]))
    1
    """
    return int(np.argmax(x >= x.max() * (1 - _ROUNDING)))


def by_size(x: Float) -> Int:
    """Numbers of all entries, the largest first; those that only rounding tells apart keep their order.

    Examples
    --------
    >>> by_size(np.array([1.0, 3.0 - 1e-12, 3.0])).tolist()
    [1, 2, 0]
    """
    top = np.nanmax(np.abs(x), initial=0.0)
    return np.argsort(-(np.round(x / top, 9) if 0 < top < np.inf else x), kind="stable")


def cluster_se(totals: Float, sizes: Int, *, ddof: int = 0) -> float:
    r"""Standard error of a mean over steps whose trajectories are independent and whose steps are not.

    With :math:`u_i` the sum over trajectory i of :math:`l_i` steps and :math:`\bar u = \sum_i u_i / \sum_i l_i`,

    .. math:: \Big( \tfrac{n}{n - d} \sum_i (u_i - \bar u\, l_i)^2 \Big)^{1/2} \Big/ \sum_i l_i .
    """
    n, steps = len(sizes), sizes.sum()
    square = ((totals - totals.sum() / steps * sizes) ** 2).sum()
    return float(np.sqrt(square * n / max(n - ddof, 1) if ddof else square) / steps)


@dataclass(frozen=True)
class Group:
    """The trajectories of one length, neighbours once everything is sorted by length."""

    length: int
    members: slice  # among the trajectories sorted by length
    steps: slice  # among the steps so sorted


@dataclass(frozen=True, eq=False)
class Ragged:
    """The layout: lengths, time index, the blocks of equal length, and which trajectories are independent."""

    offsets: Int  # (n + 1,)
    cluster: Int | None = None  # (n,), numbers from 0 of those that hang together; None where each is alone

    @cached_property
    def lengths(self) -> Int:
        """Steps in each trajectory, (n,)."""
        return np.diff(self.offsets)

    @cached_property
    def n(self) -> int:
        """Number of trajectories."""
        return len(self.offsets) - 1

    @cached_property
    def horizon(self) -> int:
        """Length of the longest trajectory."""
        return int(self.lengths.max())

    @cached_property
    def equal(self) -> bool:
        """Whether all trajectories have the same length."""
        return bool((self.lengths == self.lengths[0]).all())

    @cached_property
    def first(self) -> Int:
        """Row of each trajectory's first step, (n,)."""
        return self.offsets[:-1]

    @cached_property
    def last(self) -> Int:
        """Row of each trajectory's last step, (n,)."""
        return self.offsets[1:] - 1

    @cached_property
    def time(self) -> Int:
        """Index t of every step inside its trajectory, (N,)."""
        if self.equal:
            return np.tile(np.arange(self.horizon), self.n)
        return np.arange(self.offsets[-1]) - np.repeat(self.first, self.lengths)

    @cached_property
    def owner(self) -> Int:
        """Trajectory that every step belongs to, (N,)."""
        return np.repeat(np.arange(self.n), self.lengths)

    @cached_property
    def n_units(self) -> int:
        """Number of independent units: clusters where there are any, else trajectories."""
        return self.n if self.cluster is None else int(self.cluster.max()) + 1

    @cached_property
    def unit(self) -> Int:
        """Independent unit that every trajectory belongs to, (n,)."""
        return np.arange(self.n) if self.cluster is None else self.cluster

    @cached_property
    def unit_of_step(self) -> Int:
        """Independent unit that every step belongs to, (N,): the groups that no fold may part."""
        return self.owner if self.cluster is None else self.cluster[self.owner]

    @cached_property
    def stretches(self) -> tuple[slice, ...]:
        """Neighbouring trajectories with about as many steps as are worked on at a time."""
        ends = np.searchsorted(self.offsets, np.arange(STRETCH, self.offsets[-1], STRETCH), side="right") - 1
        edges = np.unique([0, *ends, self.n]).tolist()
        return tuple(slice(start, stop) for start, stop in pairwise(edges))

    def steps_of(self, members: slice) -> slice:
        """Where the steps of neighbouring trajectories are."""
        return slice(int(self.offsets[members.start]), int(self.offsets[members.stop]))

    def part(self, members: slice) -> Ragged:
        """The layout of neighbouring trajectories by themselves, each independent."""
        return Ragged(self.offsets[members.start : members.stop + 1] - self.offsets[members.start])

    def pool(self, x: NDArray[Any]) -> NDArray[Any]:
        """Sum a per-trajectory column, (n,) or (n, k), over each independent unit; (n_units,) or (n_units, k)."""
        if self.cluster is None:
            return x
        if x.ndim == 1:
            return np.bincount(self.cluster, weights=x, minlength=self.n_units)
        return np.stack([self.pool(column) for column in x.T], axis=1)

    def sum_units(self, x: Float) -> Float:
        """Sum a per-step column over the steps of each independent unit, (n_units,)."""
        return self.pool(self.sum_steps(x))

    def se_of_mean(self, x: Float) -> float:
        r"""Compute the standard error of a mean, :math:`(\sum_g (\sum_{i \in g} (x_i - \bar x))^2)^{1/2} / n`."""
        return float(np.sqrt((self.pool(x - x.mean()) ** 2).sum()) / self.n)

    @cached_property
    def order(self) -> Int | None:
        """Trajectories from short to long, (n,); None when they already are."""
        if (np.diff(self.lengths) >= 0).all():
            return None
        # Ten times as fast with few bits.
        return np.argsort(
            self.lengths.astype(np.uint16 if self.horizon < 1 << 16 else np.int64), kind="stable"
        )

    @cached_property
    def rows(self) -> Int | None:
        """Rows of the steps once trajectories are sorted by length, (N,); None when they already are."""
        return None if self.order is None else self.rows_of(self.order)

    def rows_of(self, which: Int) -> Int:
        """Rows of all steps of the named trajectories, one trajectory after the other."""
        lengths = self.lengths[which]
        starts = np.cumsum(lengths) - lengths
        return np.arange(lengths.sum()) + np.repeat(self.first[which] - starts, lengths)

    def divide(self, which: Int) -> list[Int]:
        """Divide some trajectories into neighbours with no more steps than are worked on at a time, or one alone."""
        return np.array_split(which, max(1, len(which) * self.horizon // STRETCH))

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """One group per distinct length, short to long."""
        lengths, sizes = np.unique(self.lengths, return_counts=True)
        groups, who, row = [], 0, 0
        for length, size in zip(lengths.tolist(), sizes.tolist(), strict=True):
            groups.append(Group(length, slice(who, who + size), slice(row, row + size * length)))
            who, row = who + size, row + size * length
        return tuple(groups)

    def members(self, group: Group) -> Int | slice:
        """Trajectories of a group, in the order in which the caller has them."""
        return group.members if self.order is None else self.order[group.members]

    def blocks(self, x: NDArray[Any]) -> Iterator[tuple[Group, NDArray[Any]]]:
        """Yield each group with its part of a per-step column, shaped (members, length)."""
        x = x if self.rows is None else x[self.rows]
        for group in self.groups:
            yield group, x[group.steps].reshape(-1, group.length)

    def cumulate(self, x: Float) -> Float:
        """Running sum inside each trajectory.

        Block by block, never one sum over all steps: a single -inf (an action that the target never takes)
        would turn every later trajectory into nan.
        """
        if self.rows is None:
            parts = [running_sum(block).ravel() for _, block in self.blocks(x)]
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        out = np.empty_like(x)
        for group, block in self.blocks(x):
            out[self.rows[group.steps]] = running_sum(block).ravel()
        return out

    @cached_property
    def under_way(self) -> Int:
        """How many trajectories reach each t, (T,)."""
        return self.n - np.cumsum(np.bincount(self.lengths)[:-1])

    def sum_by_time(self, x: Float) -> Float:
        """Sum over the trajectories that reach each t, (T,)."""
        return np.asarray(np.bincount(self.time, weights=x, minlength=self.horizon), dtype=np.float64)

    def sum_steps(self, x: Float) -> Float:
        """Sum over the steps of each trajectory, (n,)."""
        if self.equal:
            return x.reshape(self.n, self.horizon).sum(axis=1)
        return np.add.reduceat(x, self.first)

    def weigh_steps(self, x: Float, factor: Float) -> Float:
        """Sum over the steps of each trajectory with a factor for every t, (n,)."""
        if self.equal:
            return np.asarray(x.reshape(self.n, self.horizon) @ factor)
        return self.sum_steps(x * factor[self.time])

    def count_with(self, such: Bool) -> int:
        """How many trajectories have such a step."""
        return int(np.logical_or.reduceat(such, self.first).sum())

    def before(self, x: NDArray[Any], fill: float) -> NDArray[Any]:
        """Entry of the step before, inside each trajectory; ``fill`` at the first step."""
        out = np.empty_like(x)
        out[1:] = x[:-1]
        out[self.first] = fill
        return out

    def after(self, x: NDArray[Any], fill: float) -> NDArray[Any]:
        """Entry of the step after, inside each trajectory; ``fill`` at the last step."""
        out = np.empty_like(x)
        out[:-1] = x[1:]
        out[self.last] = fill
        return out

    def dense(self, x: NDArray[Any], which: Int, *, carry: bool = False) -> NDArray[Any]:
        """Rows of the named trajectories padded to the horizon: by zeros, or by their last entry."""
        column = np.arange(self.horizon)
        alive = column < self.lengths[which, None]
        rows = np.minimum(self.first[which, None] + column, self.last[which, None])
        return x[rows] if carry else np.where(alive, x[rows], 0)
