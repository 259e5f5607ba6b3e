"""A table with one row a decision -> Trajectories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope.io.arrays import as_array, as_float
from caliope.io.ordering import Plan, plan_rows
from caliope.io.roles import Roles, as_names, check_count, check_present, check_roles, check_types, state_type
from caliope.io.sources import Frame, open_source
from caliope.ragged import Bool, Float, Int
from caliope.trajectories import Trajectories

_TILE_ROWS = 2048  # turned from columns to rows together: they stay in the cache meanwhile


@dataclass(frozen=True)
class _Filled:
    """The contents of the table, every row in its place."""

    states: Float  # (N, d)
    numbers: dict[str, Float]  # (N,) each
    kept: dict[str, NDArray[Any]] = field(default_factory=dict)  # (N,) each

    def write_states(self, places: Int | slice, columns: Sequence[Float]) -> None:
        for start in range(0, len(columns[0]), _TILE_ROWS):
            tile = np.stack([column[start : start + _TILE_ROWS] for column in columns], axis=1)
            if isinstance(places, slice):
                self.states[places.start + start : places.start + start + len(tile)] = tile
            else:
                self.states[places[start : start + len(tile)]] = tile

    def write_kept(self, places: Int | slice, name: str, values: NDArray[Any]) -> None:
        out = self.kept.get(name)
        if out is None:
            out = np.empty(len(self.states), dtype=values.dtype)
        # A later batch may be the first without a value somewhere: whole numbers then turn into floats.
        self.kept[name] = out.astype(np.result_type(out, values), copy=False)
        self.kept[name][places] = values


def _fill(batches: Iterator[Frame], plan: Plan, roles: Roles, *, dtype: type[np.floating[Any]]) -> _Filled:
    n = plan.n_steps
    filled = _Filled(np.empty((n, len(roles.states)), dtype), {name: np.empty(n) for name in roles.numbers})
    start = 0
    for batch in batches:
        places = plan.places(start, start + len(batch))
        filled.write_states(places, [as_float(batch[name], dtype) for name in roles.states])
        for name in roles.numbers:
            filled.numbers[name][places] = as_float(batch[name])
        for name in roles.keep:
            filled.write_kept(places, name, as_array(batch[name]))
        start += len(batch)
    return filled


@dataclass(frozen=True)
class _Column:
    """A column in its final order, with what is needed to complain about it."""

    name: str
    values: Float
    plan: Plan

    def refuse(self, bad: Bool, fault: str, remedy: str) -> None:
        found = np.flatnonzero(bad)
        if len(found):
            raise ValueError(
                f"column {self.name!r}: {len(found)} of {len(self.values)} rows {fault} "
                f"(first: {self.values[found[0]]:.15g} in {self.plan.where(int(found[0]))}). {remedy}"
            )


def hardly_used(used: int, high: int) -> bool:
    """Whether so few of the actions 0 to ``high`` occur that the largest may be a code for something else."""
    return high >= 10 and 2 * used < high + 1


def _refuse_sparse(column: _Column, high: int) -> None:
    """Raise when the largest action looks like a code for something else, such as 999 for a missing one."""
    values = column.values
    # More numbers than twice the rows: fewer than half were logged, whatever they are.
    logged = (
        len(values) if high >= 2 * len(values) else np.count_nonzero(np.bincount(values.astype(np.int64)))
    )
    if not hardly_used(int(logged), high):
        return
    found = np.flatnonzero(values == high)
    raise ValueError(
        f"column {column.name!r}: fewer than half of the actions 0 to {high} were ever logged; the largest, {high}, "
        f"stands in {len(found)} of {len(values)} rows (first: {column.plan.where(int(found[0]))}). If it is a code, "
        f"such as 999 for a missing action, correct it; if there are so many actions, say n_actions={high + 1}."
    )


def _actions(column: _Column, n_actions: int | None) -> Int:
    values = column.values
    # NaN is caught here too: it is not equal to its own floor.
    unusable = (values != np.floor(values)) | (values < 0) | (values > 2**53)
    column.refuse(
        unusable, "hold no whole number from 0", "Number the actions 0, 1, 2, ...; none may be missing."
    )
    low, high = int(values.min()), int(values.max())
    if n_actions is None:
        _refuse_sparse(column, high)
    if low == 1 and n_actions in (None, high):
        unless = "" if n_actions else f"; if action 0 exists and was never taken, say n_actions={high + 1}"
        raise ValueError(
            f"column {column.name!r}: none of {len(values)} rows holds action 0, they run from 1 to {high} "
            f"(first: {values[0]:g} in {column.plan.where(0)}). Actions are numbered from 0: subtract 1{unless}."
        )
    if n_actions is not None:
        beyond = f"hold an action beyond n_actions={n_actions}"
        column.refuse(
            values >= n_actions, beyond, f"The last action is {n_actions - 1}: correct one of the two."
        )
    return values.astype(np.int64)


def _rewards(column: _Column) -> Float:
    remedy = "Fill in or drop them before loading; Caliope never guesses a missing value."
    column.refuse(~np.isfinite(column.values), "hold no finite reward", remedy)
    return column.values


def _terminated(column: _Column) -> Bool:
    values, last = column.values, column.plan.offsets[1:] - 1
    remedy = "Say in every row whether the episode ended there."
    column.refuse((values != 0) & (values != 1), "are neither True nor False", remedy)
    early = values == 1
    early[last] = False
    remedy = "Nothing follows an end: drop the later rows, or mend the column."
    column.refuse(early, "end an episode that goes on", remedy)
    return values[last] == 1


def read_table(
    source: Any,
    *,
    episode: str,
    action: str,
    reward: str,
    states: str | Sequence[str],
    time: str | None = None,
    terminated: str | None = None,
    keep: str | Sequence[str] = (),
    n_actions: int | None = None,
) -> Trajectories:
    """Read a table with one row for each decision.

    Rows may come in any order when `time` says how to order them. Episodes come out in the order in which
    they first appear. Files are read in batches, so that little more than the result is ever in memory.

    Refused, with the column, the count and the first episode: missing or infinite values, actions that are
    not 0, 1, 2, ..., two rows of an episode at one time, gaps in a counter of decisions, rows after the end
    of an episode, states that hold the action or the outcome. Caliope never guesses a missing value.

    Parameters
    ----------
    source : path, list of paths, glob, directory, or frame
        Parquet (.parquet, .pq) or CSV (.csv, .csv.gz) files, those of a glob in the order of their names; a
        directory stands for the Parquet files in it; or a polars DataFrame or LazyFrame, a pandas DataFrame, a
        pyarrow Table. Files and lazy queries are read twice: first the episode and the time, then everything.
    episode : str
        Column that tells which rows belong together: numbers or text. It becomes ``ids``. From CSV, ids are
        numbers only if all are written as such: with an id 01 among them all stay text.
    action : str
        Column of what was done, whole numbers from 0.
    reward : str
        Column of what followed.
    states : str or sequence of str
        Columns of what was known before the decision. They become float32 where that is exact for all of them
        (Float32, Boolean, and integers of 8 or 16 bits), otherwise float64.
    time : str, optional
        Column that orders the rows of an episode. Whole numbers count decisions, so all must rise by the same
        stride, the smallest one found; floats, dates and datetimes only order. In CSV, dates must be
        written 2020-03-01, with or without a time. Without it the rows of an episode must stand together, in
        order.
    terminated : str, optional
        Column that is True in the last row of an episode that ended, False in that of one cut off by the end
        of the log, and False before. By default all ended.
    keep : str or sequence of str, optional
        Further columns to carry along, such as a severity score. In numbers, NaN stands for no value (whole
        numbers turn into floats then); in text, None.
    n_actions : int, optional
        How many actions there are. By default one more than the largest one logged; needed when that is 10 or
        more and fewer than half of the numbers up to it were logged.

    Examples
    --------
    >>> import polars as pl
    >>> log = pl.DataFrame({"stay": [7, 7, 9], "sofa": [4, 6, 2], "dose": [0, 1, 0], "r": [0, 1, 1]})
    >>> read_table(log, episode="stay", action="dose", reward="r", states=["sofa"])
    Trajectories(2 trajectories of 1 to 2 steps, 3 steps, 1 feature, 2 actions)
    """
    check_count(n_actions)
    roles = Roles(
        episode, action, reward, as_names("states", states), time, terminated, as_names("keep", keep)
    )
    check_roles(roles)
    table = open_source(source, roles)
    types = table.columns
    check_present(roles, types)
    keys, batches = table.read(roles.keys, roles.contents)
    if len(keys) == 0:
        raise ValueError("the table has no rows.")
    types = {**types, **{name: (keys[name].dtype,) for name in roles.keys}}  # as their text was understood
    check_types(roles, types)
    plan = plan_rows(keys, episode, time=time)
    del keys
    filled = _fill(batches, plan, roles, dtype=state_type(roles, types))
    columns = {name: _Column(name, values, plan) for name, values in filled.numbers.items()}
    return Trajectories(
        filled.states,
        _actions(columns[action], n_actions),
        _rewards(columns[reward]),
        plan.offsets,
        feature_names=roles.states,
        ids=plan.ids,
        n_actions=n_actions,
        terminated=None if terminated is None else _terminated(columns[terminated]),
        columns=filled.kept,
    )
