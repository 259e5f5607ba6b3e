"""Trajectories from a table with one row per decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from caliope._clusters import clusters_of_steps
from caliope._ragged import Bool, Float
from caliope._trajectories import Trajectories
from caliope._validation import ActionCountError, as_actions
from caliope.io._columns import (
    Roles,
    Types,
    as_names,
    check_count,
    check_present,
    check_roles,
    check_types,
    is_word,
    state_type,
)
from caliope.io._contents import Column, Filled, fill
from caliope.io._encode import Cutting, encode_actions, encode_by, encode_states
from caliope.io._encoder import Encoder
from caliope.io._learn import check_cutting, refuse_dates
from caliope.io._order import Plan, calendar_of, plan_rows
from caliope.io._source import open_source

_GIVEN = "as given; levels, cut points and counts of gaps are those of the log that it was learnt on"


def _count_names(names: Sequence[str], n_actions: int | None, columns: Sequence[str]) -> int:
    if n_actions not in (None, len(names)):
        raise ActionCountError(
            f"column {' and '.join(map(repr, columns))} holds {len(names)} different actions ({', '.join(names[:6])}), "
            f"but n_actions is {n_actions}. Correct the one or the other."
        )
    return len(names)


def _rewards(column: Column) -> tuple[Float, str]:
    """Rewards, and what was taken for granted: given in the last rows alone, they are 0 before."""
    missing, last = np.isnan(column.values), column.plan.offsets[1:] - 1
    earlier = np.ones(len(missing), dtype=bool)
    earlier[last] = False
    if earlier.any() and missing[earlier].all() and np.isfinite(column.values[last]).all():
        return np.where(
            missing, 0.0, column.values
        ), "given in the last row of each trajectory alone: 0 before"
    remedy = "Fill in or drop them before loading; Caliope never guesses a missing reward."
    column.refuse(~np.isfinite(column.values), "hold no finite reward", remedy)
    return column.values, ""


def _terminated(column: Column) -> Bool:
    values, last = column.values, column.plan.offsets[1:] - 1
    remedy = "Say in every row whether the episode ended there."
    column.refuse((values != 0) & (values != 1), "are neither True nor False", remedy)
    early = values == 1
    early[last] = False
    remedy = "Nothing follows an end: drop the later rows, or correct the column."
    column.refuse(early, "end an episode that goes on", remedy)
    return values[last] == 1


def _worded(roles: Roles, types: Types) -> list[str]:
    """Columns of states and actions that hold words; raise for dates among the states."""
    for name in roles.states:
        if any(dtype in (nw.Date, nw.Datetime) for dtype in types[name]):
            refuse_dates(name)
    return [name for name in roles.contents if name in roles.may_be_words and any(map(is_word, types[name]))]


def read_table(
    source: Any,
    *,
    episode: str | None,
    action: str | Sequence[str],
    reward: str,
    states: str | Sequence[str],
    time: str | None = None,
    terminated: str | None = None,
    keep: str | Sequence[str] = (),
    n_actions: int | None = None,
    levels: int | None = None,
    cuts: Sequence[float] | Mapping[str, Sequence[float]] | None = None,
    calendar: str | None = None,
    cluster: str | None = None,
    encoder: Encoder | None = None,
) -> Trajectories:
    """Read a table with one row per decision.

    Words, categories and booleans are read as they are; ``data.encoder`` says what they became, and encodes new rows.
    With ``time``, rows may be in any order. Trajectories are returned in the order in which they first appear. Files
    are read in batches, so that memory holds little more than the result.

    A gap in a state becomes the last value before it in the same trajectory. Where there is none it becomes 0, which
    is not learnt from any row. Features "x missing" and "x not yet recorded" say so. The default behaviour models that
    standardise replace that 0 by the mean of the rows that they are fitted on, inside their folds.

    Errors name the column, the number of rows and the first of them. Refused are missing actions, rewards and episodes,
    infinite values, doses that were not cut, two rows of an episode at the same time, gaps in a counter of decisions,
    rows after the end of an episode, dates as states, and states that contain the action or the reward.

    Parameters
    ----------
    source : path, list of paths, glob, directory, "-", or frame
        Parquet (.parquet, .pq), CSV (.csv, .tsv, also packed as .gz; columns separated by commas, semicolons, tabs or
        bars) or Excel (.xlsx, .xls; extra ``excel``) files; "-" is the standard input; a polars DataFrame or LazyFrame,
        a pandas DataFrame, or a pyarrow Table. Numbers in CSV files may have decimal commas, marks for thousands, and a
        sign of a currency or of percent, as in 1.234,50 €; what they were read as is in the result. Files of a glob are
        read in the order of their names. A directory means the Parquet files in it, or else its CSV files. Files and
        lazy queries are read twice: first episode and time, then everything.
    episode : str or None
        Column with the id of the trajectory, numbers or text. Ids in CSV files are numbers only if all are written
        like 7; with one id like 07 all of them stay text. None: each row is a trajectory of its own.
    action : str or sequence of str
        Column with the action: words, categories or booleans, whole numbers from 0, or doses (with ``levels`` or
        ``cuts``). Names are coded in sorted order, or in the order of an enum or an ordered categorical. Several
        columns are combined into one action.
    reward : str
        Column with the reward of the decision. If it is empty in all rows but the last of each episode, it is 0 there.
    states : str or sequence of str
        Columns with what was known before the decision. A category becomes one feature per level, such as "ward=ICU"
        (one in all where there are two levels). Levels in fewer than 1% of the trajectories, or in fewer than 10 where
        that is at most 5%, and those after the 30 most frequent are pooled into "other". Numbers become float32 if that
        is exact for all of them (Float32, Boolean, and integers of 8 or 16 bits), otherwise float64.
    time : str, optional
        Column that orders the rows of an episode. Whole numbers count decisions and must rise by the same stride
        everywhere. Floats, dates and datetimes only order the rows. Dates in CSV files are written 2020-03-01, with
        or without a time, or with the day or the month first where one day above 12 tells them apart. Without ``time``
        the rows of an episode must be consecutive and in order.
    terminated : str, optional
        Column that is True in the last row of an episode that ended. It is False in all earlier rows, and in the last
        row of an episode that was cut off by the end of the log. By default all episodes ended.
    keep : str or sequence of str, optional
        Further columns to keep, such as a group. A missing value is NaN in numbers (whole numbers then become floats)
        and None in text.
    n_actions : int, optional
        Number of actions. By default one more than the largest in the log; required if that is 10 or more and fewer
        than half of the numbers up to it occur.
    levels : int, optional
        Cut doses into so many levels at quantiles of the positive ones; 0 is a level of its own.
    cuts : sequence of float, or mapping from column to sequence, optional
        Cut doses at these points: ``[0, 50]`` gives the levels 0, above 0 to 50, and above 50.
    calendar : str, optional
        Column that says when an episode began, by its first row: numbers, dates or datetimes (as days since 1970).
        Practice that changes over time is looked for along it; without it, along the order of the file.
    cluster : str, optional
        Column with the cluster of the trajectory, numbers or text, such as a site, or the person behind several
        visits. It must be the same in all rows of a trajectory. Folds and resamples keep clusters together.
    encoder : Encoder, optional
        ``data.encoder`` of an earlier log, or ``policy.encoder`` of a saved policy: levels, gaps and doses then mean
        what they meant there. Words that it does not know are refused.

    Returns
    -------
    Trajectories
        With ``ids`` from ``episode``, ``action_names``, the ``encoder``, and the columns of ``keep``. Doses that were
        cut are kept, too, under the name of their column.

    Examples
    --------
    >>> import polars as pl
    >>> log = pl.DataFrame({"user": [7, 7, 9], "age": [40, 41, 23], "offer": [0, 1, 0], "gain": [0, 1, 1]})
    >>> read_table(log, episode="user", action="offer", reward="gain", states=["age"])
    Trajectories(2 trajectories of 1 to 2 steps, 3 steps, 1 feature, 2 actions)
    """
    check_count(n_actions)
    actions = tuple(action) if isinstance(action, list | tuple) else (action,)
    roles = Roles(
        episode,
        actions,
        reward,
        as_names("states", states),
        time,
        terminated,
        as_names("keep", keep),
        calendar,
        cluster,
    )
    check_roles(roles)
    cutting = Cutting(levels, check_cutting(actions, levels, cuts))
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
    filled = fill(batches, plan, roles, worded=_worded(roles, types), dtype=state_type(roles, types))
    columns = {name: Column(name, values, plan) for name, values in filled.numbers.items()}
    rewards, reward_note = _rewards(columns[reward])
    notes = {"file": "; ".join(table.notes), f"reward {reward!r}": reward_note}
    if encoder is None:
        codes, named = encode_actions(filled, roles, plan, types, cutting)
        features, made = encode_states(filled, roles, plan, types)
    else:
        features, codes = encode_by(encoder, filled, roles, plan)
        made, named, notes["encoder"] = encoder.columns, encoder.actions, _GIVEN
    encoder = Encoder(made, named, episode, tuple((name, text) for name, text in notes.items() if text))
    if encoder.action_names is not None:
        n_actions = _count_names(encoder.action_names, n_actions, actions)
    whole, count = as_actions(codes, n_actions, plan.where, name=f"column {' and '.join(map(repr, actions))}")
    read = Trajectories(
        features,
        whole,
        rewards,
        plan.offsets,
        feature_names=encoder.feature_names,
        ids=None if episode is None else plan.ids,  # rows have no name of their own
        n_actions=count,
        terminated=None if terminated is None else _terminated(columns[terminated]),
        columns=_doses(filled, encoder) | {name: filled.kept[name] for name in roles.keep},
        calendar=moments,
        cluster=None if cluster is None else _clusters(filled, plan, cluster, episode),
        action_names=encoder.action_names,
        encoder=encoder,
    )
    object.__setattr__(read, "row_places", plan.rows)  # arrays in the order of the table are then found out
    return read


def _doses(filled: Filled, encoder: Encoder) -> dict[str, NDArray[Any]]:
    """The doses behind the levels, so that they can be cut otherwise."""
    return {each.name: filled.numbers[each.name] for each in encoder.actions if each.cuts}


def _clusters(filled: Filled, plan: Plan, name: str, episode: str | None) -> NDArray[Any]:
    if name == episode:
        return plan.ids
    return clusters_of_steps(filled.kept[name], plan.offsets, plan.ids, name=name)
