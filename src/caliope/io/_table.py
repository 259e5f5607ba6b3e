"""Trajectories from a table with one row per decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._clusters import clusters_of_steps
from caliope._ragged import Bool, Float, Int
from caliope._trajectories import Trajectories
from caliope._validation import as_actions
from caliope.io._columns import (
    Roles,
    as_names,
    check_count,
    check_present,
    check_roles,
    check_types,
    state_type,
)
from caliope.io._order import Plan, calendar_of, plan_rows
from caliope.io._source import Frame, as_array, as_float, open_source

_TILE_ROWS = 2048  # turned from columns to rows together: they stay in the cache meanwhile


@dataclass(frozen=True)
class _Filled:
    """Contents of the table, every row in its place."""

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
        for name in roles.labels:
            filled.write_kept(places, name, as_array(batch[name]))
        start += len(batch)
    return filled


@dataclass(frozen=True)
class _Column:
    """A column in its final order, and what its error messages need."""

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
    remedy = "Nothing follows an end: drop the later rows, or correct the column."
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
    calendar: str | None = None,
    cluster: str | None = None,
) -> Trajectories:
    """Read a table with one row per decision.

    With ``time``, rows may be in any order. Trajectories are returned in the order in which they first appear. Files
    are read in batches, so that memory holds little more than the result.

    Errors name the column, the number of rows and the first of them. Refused are missing or infinite values, actions
    that are not 0, 1, 2, ..., two rows of an episode at the same time, gaps in a counter of decisions, rows after the
    end of an episode, and states that contain the action or the reward. Missing values are never filled in.

    Parameters
    ----------
    source : path, list of paths, glob, directory, or frame
        Parquet (.parquet, .pq) or CSV (.csv, .csv.gz) files; a polars DataFrame or LazyFrame, a pandas DataFrame, or a
        pyarrow Table. Files of a glob are read in the order of their names. A directory means the Parquet files in
        it. Files and lazy queries are read twice: first episode and time, then everything.
    episode : str
        Column with the id of the trajectory, numbers or text. Ids in CSV files are numbers only if all are written
        like 7; with one id like 07 all of them stay text.
    action : str
        Column with the action, whole numbers from 0.
    reward : str
        Column with the reward of the decision.
    states : str or sequence of str
        Columns with what was known before the decision. They become float32 if that is exact for all of them
        (Float32, Boolean, and integers of 8 or 16 bits), otherwise float64.
    time : str, optional
        Column that orders the rows of an episode. Whole numbers count decisions and must rise by the same stride
        everywhere. Floats, dates and datetimes only order the rows. Dates in CSV files are written 2020-03-01, with
        or without a time. Without ``time`` the rows of an episode must be consecutive and in order.
    terminated : str, optional
        Column that is True in the last row of an episode that ended. It is False in all earlier rows, and in the last
        row of an episode that was cut off by the end of the log. By default all episodes ended.
    keep : str or sequence of str, optional
        Further columns to keep, such as a group. A missing value is NaN in numbers (whole numbers then become floats)
        and None in text.
    n_actions : int, optional
        Number of actions. By default one more than the largest in the log; required if that is 10 or more and fewer
        than half of the numbers up to it occur.
    calendar : str, optional
        Column that says when an episode began, by its first row: numbers, dates or datetimes (as days since 1970).
        Practice that changes over time is looked for along it; without it, along the order of the file.
    cluster : str, optional
        Column with the cluster of the trajectory, numbers or text, such as a site, or the person behind several
        visits. It must be the same in all rows of a trajectory. Folds and resamples keep clusters together.

    Returns
    -------
    Trajectories
        With ``ids`` from ``episode``, and the columns of ``keep``.

    Examples
    --------
    >>> import polars as pl
    >>> log = pl.DataFrame({"user": [7, 7, 9], "age": [40, 41, 23], "offer": [0, 1, 0], "gain": [0, 1, 1]})
    >>> read_table(log, episode="user", action="offer", reward="gain", states=["age"])
    Trajectories(2 trajectories of 1 to 2 steps, 3 steps, 1 feature, 2 actions)
    """
    check_count(n_actions)
    roles = Roles(
        episode,
        action,
        reward,
        as_names("states", states),
        time,
        terminated,
        as_names("keep", keep),
        calendar,
        cluster,
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
    moments = None if calendar is None else calendar_of(keys[calendar], plan)
    del keys
    filled = _fill(batches, plan, roles, dtype=state_type(roles, types))
    columns = {name: _Column(name, values, plan) for name, values in filled.numbers.items()}
    actions, count = as_actions(filled.numbers[action], n_actions, plan.where, name=f"column {action!r}")
    return Trajectories(
        filled.states,
        actions,
        _rewards(columns[reward]),
        plan.offsets,
        feature_names=roles.states,
        ids=plan.ids,
        n_actions=count,
        terminated=None if terminated is None else _terminated(columns[terminated]),
        columns={name: filled.kept[name] for name in roles.keep},
        calendar=moments,
        cluster=None if cluster is None else _clusters(filled, plan, cluster, episode),
    )


def _clusters(filled: _Filled, plan: Plan, name: str, episode: str) -> NDArray[Any]:
    if name == episode:
        return plan.ids
    return clusters_of_steps(filled.kept[name], plan.offsets, plan.ids, name=name)
