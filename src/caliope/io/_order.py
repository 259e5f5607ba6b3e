"""Order of the rows: the place of every row, from its episode and its time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from caliope._cells import shortened
from caliope._ragged import Bool, Float, Int
from caliope.io._columns import WIDE
from caliope.io._source import Frame, as_array, as_float

_LONGEST = 60  # letters of an id in a message


def _short(name: Any) -> str:
    return shortened(str(name), _LONGEST)


@dataclass(frozen=True)
class Plan:
    """Episodes in the order of their first row, each in the order of time."""

    offsets: Int  # (n + 1,)
    ids: NDArray[Any]  # (n,)
    rows: Int | None  # (N,) place of each row of the table; None if they are in order

    @property
    def n_steps(self) -> int:
        """Number of rows."""
        return int(self.offsets[-1])

    def places(self, start: int, stop: int) -> Int | slice:
        """Return the places of consecutive rows of the table."""
        return slice(start, stop) if self.rows is None else self.rows[start:stop]

    def where(self, place: int) -> str:
        """Name a place, for messages."""
        i = int(np.searchsorted(self.offsets, place, side="right")) - 1
        return f"episode {_short(self.ids[i])}, step {place - self.offsets[i]}"


@dataclass(frozen=True)
class _Runs:
    """Runs of consecutive rows of one episode. Episodes are numbered as they first appear."""

    first: Int  # row where each run begins
    lengths: Int  # rows of each run
    episode: Int  # number of the episode of each run
    ids: NDArray[Any]  # (n,)

    @property
    def whole(self) -> bool:
        """Whether no episode is in two runs."""
        return len(self.first) == len(self.ids)

    @property
    def offsets(self) -> Int:
        """Where each episode will begin, (n + 1,)."""
        sizes = np.bincount(self.episode, weights=self.lengths)
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @property
    def owner(self) -> Int:
        """Number of the episode of each row, (N,)."""
        return np.repeat(self.episode, self.lengths)

    def id_of(self, row: int) -> Any:
        """Id of the episode of a row."""
        return self.ids[self.episode[np.searchsorted(self.first, row, side="right") - 1]]


def _codes(labels: nw.Series[Any]) -> Int:
    """Return one small whole number per label."""
    if labels.dtype.is_integer():
        values = labels.to_numpy().astype(np.int64)
        low, high = int(values.min()), int(values.max())
        # Close enough together to be used as they are.
        if high - low < 4 * len(values):
            return values - low
    return labels.rank("dense").to_numpy().astype(np.int64) - 1


def _find_runs(column: nw.Series[Any]) -> _Runs:
    labels = column.cast(nw.String) if column.dtype in (nw.Categorical, nw.Enum, *WIDE) else column
    begins = (labels != labels.shift(1)).fill_null(True)
    first = np.flatnonzero(begins.to_numpy())
    heads = labels.filter(begins)
    codes = _codes(heads)
    # The last write to a place stands, so going backwards leaves the first run of each label.
    appeared = np.full(int(codes.max()) + 1, -1)
    appeared[codes[::-1]] = np.arange(len(codes))[::-1]
    seen = np.flatnonzero(appeared >= 0)
    order = seen[np.argsort(appeared[seen])]
    number = np.empty(len(appeared), dtype=np.int64)
    number[order] = np.arange(len(order))
    return _Runs(first, np.diff(first, append=len(labels)), number[codes], as_array(heads[appeared[order]]))


def _ticks(column: nw.Series[Any]) -> NDArray[Any]:
    """Return the times as numbers: whole ones, except where the column has floats."""
    dtype = column.dtype
    if dtype in (nw.Date, nw.Datetime, nw.Duration):
        values = column.to_numpy()
        return (values.astype("datetime64[D]") if values.dtype == object else values).view(np.int64)
    if dtype.is_integer():
        return column.to_numpy().astype(np.uint64 if dtype.is_unsigned_integer() else np.int64, copy=False)
    return as_float(column)


def _count_places(ticks: Int, owner: Int, offsets: Int) -> Int | None:
    """Place rows by a counter, without sorting; None if the counter has gaps or repeats."""
    lengths = np.diff(offsets)
    low = np.full(len(lengths), ticks.max())
    high = np.full(len(lengths), ticks.min())
    np.minimum.at(low, owner, ticks)
    np.maximum.at(high, owner, ticks)
    strides, left = np.divmod((high - low)[lengths > 1], (lengths[lengths > 1] - 1).astype(ticks.dtype))
    stride = strides[0] if len(strides) else 1
    if stride == 0 or left.any() or (strides != stride).any():
        return None
    steps = ticks - low[owner]
    if stride > 1 and (steps % stride).any():
        return None
    places = offsets[owner] + (steps // stride).astype(np.int64)
    taken = np.zeros(len(places), dtype=bool)
    taken[places] = True
    return places if taken.all() else None


@dataclass(frozen=True)
class _Sequence:
    """Times of all rows, sorted by episode and time."""

    column: nw.Series[Any]  # as in the table
    source: Int | None  # (N,) row of the table that each comes from
    steps: NDArray[Any]  # (N - 1,) from the time of a row to that of the next
    inside: Bool  # (N - 1,) whether the next is of the same episode
    plan: Plan

    def at(self, place: int) -> Any:
        return self.column[place if self.source is None else int(self.source[place])]

    def refuse_repeats(self) -> None:
        bad = np.flatnonzero(self.inside & (self.steps == 0))
        if len(bad):
            raise ValueError(
                f"column {self.column.name!r}: {len(bad)} rows have the time of another row of their episode "
                f"(first: {self.at(bad[0])} in {self.plan.where(bad[0] + 1)}). "
                "Every decision needs a time of its own: drop the copies, or merge the rows. Where the rows of each "
                "episode stand in order, leave the time out, and its column out of the states."
            )

    def refuse_gaps(self) -> None:
        stride = self.steps.min(where=self.inside, initial=np.iinfo(self.steps.dtype).max)
        bad = np.flatnonzero(self.inside & (self.steps != stride))
        if len(bad):
            raise ValueError(
                f"column {self.column.name!r} counts decisions in steps of {stride}, but has {len(bad)} gaps "
                f"(first: from {self.at(bad[0])} to {self.at(bad[0] + 1)} in {self.plan.where(bad[0] + 1)}). "
                "A missing decision is a missing factor in every later weight: insert the row, or cut the "
                "episode there. If the column is a clock and no counter, cast it to float or datetime: then it "
                "only orders the rows."
            )


def _place_by_time(runs: _Runs, column: nw.Series[Any]) -> Plan:
    ticks, offsets, counted = _ticks(column), runs.offsets, column.dtype.is_integer()
    inside = np.ones(len(ticks) - 1, dtype=bool)
    inside[offsets[1:-1] - 1] = False
    source = rows = None
    if not runs.whole or not (~inside | (ticks[1:] > ticks[:-1])).all():
        owner = runs.owner
        rows = _count_places(ticks, owner, offsets) if counted else None
        if rows is not None:
            return Plan(offsets, runs.ids, rows)
        source = np.lexsort((ticks, owner))
        rows = np.empty_like(source)
        rows[source] = np.arange(len(source))
        ticks = ticks[source]
    sequence = _Sequence(column, source, np.diff(ticks), inside, Plan(offsets, runs.ids, rows))
    sequence.refuse_repeats()
    if counted:
        sequence.refuse_gaps()
    return sequence.plan


def _refuse_split(runs: _Runs, episode: str) -> None:
    if runs.whole:
        return
    counts = np.bincount(runs.episode)
    one = int(np.argmax(counts > 1))
    rows = runs.first[runs.episode == one]
    raise ValueError(
        f"column {episode!r}: {int((counts > 1).sum())} of {len(counts)} episodes lie in separate stretches of "
        f"rows (first: episode {_short(runs.ids[one])}, from row {rows[0]} and again from row {rows[1]}). Without "
        "time= the rows of an episode must stand together, in order: say with time= which column orders them."
    )


def _missing(column: nw.Series[Any]) -> Int:
    """Return the rows without a value; NaN and infinity count as missing."""
    missing = ~np.isfinite(as_float(column)) if column.dtype.is_float() else column.is_null().to_numpy()
    return np.flatnonzero(missing)


def calendar_of(column: nw.Series[Any], plan: Plan) -> Float:
    """Return when each episode began, by its first row: numbers, or days since 1970, (n,)."""
    missing = _missing(column)
    if len(missing):
        place = int(missing[0]) if plan.rows is None else int(plan.rows[missing[0]])
        raise ValueError(
            f"column {column.name!r}: {len(missing)} of {len(column)} rows have no moment in the calendar, or one that "
            f"is not finite (first: {plan.where(place)}). Fill it in, or leave the calendar out: then the order of the "
            "file counts."
        )
    rows = plan.offsets[:-1] if plan.rows is None else np.argsort(plan.rows)[plan.offsets[:-1]]
    if column.dtype not in (nw.Date, nw.Datetime):
        return _ticks(column)[rows].astype(np.float64)
    values = column.to_numpy()[rows].astype("datetime64[us]")
    return (values - np.datetime64(0, "us")) / np.timedelta64(1, "D")


def _refuse_alike(ids: NDArray[Any], episode: str) -> None:
    """Raise for ids that differ in spaces, in leading zeros or in a last .0 alone: one episode would count as two."""
    if ids.dtype.kind not in "OU":
        return
    bare: dict[str, Any] = {}
    for each in ids:
        text = str(each).strip()
        whole = text.removesuffix(".0")
        other = bare.setdefault((whole.lstrip("0") or "0") if whole.isdigit() else text, each)
        if other is each:
            continue
        if str(other).strip() == text:
            raise ValueError(
                f"column {episode!r}: {other!r} and {each!r} differ in spaces alone, and would be two episodes. Remove "
                "the spaces around ids."
            )
        where = (
            "leading zeros"
            if text.isdigit() and str(other).strip().isdigit()
            else "the way a number is written"
        )
        raise ValueError(
            f"column {episode!r}: {other!r} and {each!r} differ in {where} alone, and would be two episodes. "
            "Write the ids of an episode alike, or put a letter before those that differ."
        )


def plan_rows(keys: Frame, episode: str | None, *, time: str | None) -> Plan:
    """Find the place of every row; raise if their order is not certain."""
    if episode is None:
        return Plan(np.arange(len(keys) + 1), np.arange(len(keys)), None)
    nameless = _missing(keys[episode])
    if len(nameless):
        raise ValueError(
            f"column {episode!r}: {len(nameless)} of {len(keys)} rows name no episode "
            f"(first: row {nameless[0]}). Fill in the id or drop the row."
        )
    runs = _find_runs(keys[episode])
    _refuse_alike(runs.ids, episode)
    if time is None:
        _refuse_split(runs, episode)
        return Plan(runs.offsets, runs.ids, None)
    timeless = _missing(keys[time])
    if len(timeless):
        raise ValueError(
            f"column {time!r}: {len(timeless)} of {len(keys)} rows have no time, or one that is not finite "
            f"(first: episode {runs.id_of(timeless[0])}). Fill it in or drop the row."
        )
    return _place_by_time(runs, keys[time])
