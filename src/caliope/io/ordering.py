"""From the episode and time of every row to the place where the row belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from caliope.io.arrays import as_array, as_float
from caliope.io.sources import Frame
from caliope.ragged import Bool, Int


@dataclass(frozen=True)
class Plan:
    """Episodes in the order of their first row, each in the order of time."""

    offsets: Int  # (n + 1,)
    ids: NDArray[Any]  # (n,)
    rows: Int | None  # (N,) place of each row of the table; None when all are where they belong

    @property
    def n_steps(self) -> int:
        """Number of rows."""
        return int(self.offsets[-1])

    def places(self, start: int, stop: int) -> Int | slice:
        """Places of some neighbouring rows of the table."""
        return slice(start, stop) if self.rows is None else self.rows[start:stop]

    def where(self, place: int) -> str:
        """Name a place, for messages."""
        i = int(np.searchsorted(self.offsets, place, side="right")) - 1
        return f"episode {self.ids[i]}, step {place - self.offsets[i]}"


@dataclass(frozen=True)
class _Runs:
    """Stretches of rows that belong to one episode; episodes are numbered as they first appear."""

    first: Int  # row where each run begins
    episode: Int  # number of the episode of each run
    n_rows: int
    ids: NDArray[Any]  # (n,)

    @property
    def lengths(self) -> Int:
        return np.diff(self.first, append=self.n_rows)

    @property
    def whole(self) -> bool:
        """Whether no episode is in two runs."""
        return len(self.first) == len(self.ids)

    @property
    def offsets(self) -> Int:
        sizes = np.bincount(self.episode, weights=self.lengths)
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    def id_of(self, row: int) -> Any:
        return self.ids[self.episode[np.searchsorted(self.first, row, side="right") - 1]]


def _missing(column: nw.Series[Any]) -> Int:
    """Rows without a value; NaN and infinity are none."""
    missing = ~np.isfinite(as_float(column)) if column.dtype.is_float() else column.is_null().to_numpy()
    return np.flatnonzero(missing)


def _runs(column: nw.Series[Any]) -> _Runs:
    labels = column.cast(nw.String) if column.dtype in (nw.Categorical, nw.Enum) else column
    begins = (labels != labels.shift(1)).fill_null(True)
    heads = labels.filter(begins)
    dense = heads.rank("dense").to_numpy().astype(np.int64) - 1
    # The last write to a place stands, so going backwards leaves the first appearance of each.
    appeared = np.empty(int(dense.max()) + 1, dtype=np.int64)
    appeared[dense[::-1]] = np.arange(len(dense))[::-1]
    order = np.argsort(appeared)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    first = np.flatnonzero(begins.to_numpy())
    return _Runs(first, number[dense], len(labels), as_array(heads[appeared[order]]))


def _refuse_split(runs: _Runs, episode: str) -> None:
    if runs.whole:
        return
    counts = np.bincount(runs.episode)
    first = int(np.argmax(counts > 1))
    rows = runs.first[runs.episode == first][:2]
    raise ValueError(
        f"column {episode!r}: {int((counts > 1).sum())} of {len(counts)} episodes lie in separate stretches of rows "
        f"(first: episode {runs.ids[first]}, from row {rows[0]} and again from row {rows[1]}). Without time= the "
        "rows of an episode must stand together, in the order of time: say with time= which column orders them."
    )


def _ticks(column: nw.Series[Any]) -> NDArray[Any]:
    """Times as numbers that have their order: whole ones, except where the column has floats."""
    dtype = column.dtype
    if dtype in (nw.Date, nw.Datetime, nw.Duration):
        values = column.to_numpy()
        return (values.astype("datetime64[D]") if values.dtype == object else values).view(np.int64)
    if dtype.is_integer():
        return column.to_numpy().astype(np.uint64 if dtype.is_unsigned_integer() else np.int64, copy=False)
    return as_float(column)


@dataclass(frozen=True)
class _Sequence:
    """Times of all rows in their final order."""

    name: str
    column: nw.Series[Any]  # as in the table
    source: Int | None  # row of the table that each comes from
    inside: Bool  # (N - 1,) whether a row and the next are of one episode
    steps: NDArray[Any]  # (N - 1,) from the time of a row to that of the next
    plan: Plan

    def at(self, place: int) -> Any:
        return self.column[place if self.source is None else int(self.source[place])]

    def refuse_repeats(self) -> None:
        bad = np.flatnonzero(self.inside & (self.steps == 0))
        if len(bad):
            raise ValueError(
                f"column {self.name!r}: {len(bad)} rows have the same time as another row of their episode "
                f"(first: {self.at(bad[0])} in {self.plan.where(bad[0] + 1)}). "
                "Every decision needs a time of its own: drop the copies, or merge the rows."
            )

    def refuse_gaps(self) -> None:
        """A missing decision is a missing factor in every later weight, so it must not pass unseen."""
        if not self.inside.any():
            return
        stride = self.steps[self.inside].min()
        bad = np.flatnonzero(self.inside & (self.steps != stride))
        if len(bad):
            raise ValueError(
                f"column {self.name!r} counts decisions in steps of {stride}, but {len(bad)} steps are longer (first: "
                f"from {self.at(bad[0])} to {self.at(bad[0] + 1)} in {self.plan.where(bad[0] + 1)}). A missing "
                "decision is a missing factor in every later weight: insert the row, or cut the episode there. "
                "If the column is a clock and no counter, cast it to float or datetime: then it only orders the rows."
            )


def _sequence(keys: Frame, runs: _Runs, time: str) -> _Sequence:
    ticks, offsets = _ticks(keys[time]), runs.offsets
    inside = np.ones(len(ticks) - 1, dtype=bool)
    inside[offsets[1:-1] - 1] = False
    if runs.whole and (~inside | (ticks[1:] > ticks[:-1])).all():
        return _Sequence(time, keys[time], None, inside, np.diff(ticks), Plan(offsets, runs.ids, None))
    source = np.lexsort((ticks, np.repeat(runs.episode, runs.lengths)))
    rows = np.empty_like(source)
    rows[source] = np.arange(len(source))
    return _Sequence(time, keys[time], source, inside, np.diff(ticks[source]), Plan(offsets, runs.ids, rows))


def plan_rows(keys: Frame, episode: str, *, time: str | None) -> Plan:
    """Find the place of every row; raise when an episode cannot be put in the order of time without a doubt."""
    nameless = _missing(keys[episode])
    if len(nameless):
        raise ValueError(
            f"column {episode!r}: {len(nameless)} of {len(keys)} rows name no episode (first: row {nameless[0]}). "
            "A decision that belongs to nobody cannot be used: fill in the id or drop the row."
        )
    runs = _runs(keys[episode])
    if time is None:
        _refuse_split(runs, episode)
        return Plan(runs.offsets, runs.ids, None)
    timeless = _missing(keys[time])
    if len(timeless):
        raise ValueError(
            f"column {time!r}: {len(timeless)} of {len(keys)} rows have no time, or one that is not finite "
            f"(first: episode {runs.id_of(timeless[0])}). Fill it in or drop the row."
        )
    sequence = _sequence(keys, runs, time)
    sequence.refuse_repeats()
    if keys[time].dtype.is_integer():
        sequence.refuse_gaps()
    return sequence.plan
