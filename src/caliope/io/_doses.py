"""Doses behind the levels of a log: policies that recommend doses, and the same log with other levels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope.io._encoder import ActionColumn, Encoder
from caliope.io._learn import learn_doses, level_names

_ROOM = 0.1  # of the range of the logged doses: so far beyond them a recommended one is still like them
# In the name of such a choice.
CUT, MERGED = " cut at ", " (levels merged)"


@dataclass(frozen=True)
class RecommendedDoses:
    """The policy that gives the doses in some columns of the log, which are cut like the logged ones.

    Unlike actions that were cut once, it is cut anew where an audit tries other levels of the doses.

    Parameters
    ----------
    columns : str or sequence of str
        Columns with the recommended doses or words, kept in the log: one per action column, in their order.

    Examples
    --------
    >>> import caliope as cal
    >>> log = pl.DataFrame({"id": [1, 2], "x": [0, 1], "dose": [0.0, 80.0], "advice": [20.0, 90.0], "gain": [0, 1]})
    >>> data = cal.read_table(
    ...     log, episode="id", action="dose", reward="gain", states="x", cuts=[0, 50], keep="advice"
    ... )
    >>> RecommendedDoses("advice").on(data)
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """

    columns: str | Sequence[str]

    def on(self, data: Trajectories) -> Float:
        """Return the probabilities at every step of a log, (N, A)."""
        names = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        encoder = data.encoder
        if not isinstance(encoder, Encoder) or len(names) != len(encoder.actions):
            many = 0 if encoder is None else len(encoder.actions)
            raise ValueError(
                f"the log has {many} action columns that were read from a table, and {len(names)} recommended ones are "
                "named: name one for each, in the same order."
            )
        columns = zip(encoder.actions, names, strict=True)
        frame = pl.DataFrame([pl.Series(each.name, data[name], strict=False) for each, name in columns])
        return np.eye(data.n_actions)[encoder.encode_actions(frame)]

    def beyond(self, data: Trajectories) -> tuple[Beyond, ...]:
        """What is recommended beyond the doses of a log, by column; those of the log were cut and kept."""
        names = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        found = (
            _beyond(each.name, np.asarray(data[name], dtype=np.float64), data[each.name])
            for each, name in zip(data.encoder.actions, names, strict=True)
            if each.cuts and each.name in data.columns
        )
        return tuple(each for each in found if each is not None)


@dataclass(frozen=True)
class Beyond:
    """Recommended doses of one column that lie beyond those of the log.

    Attributes
    ----------
    column : str
        The column of the logged doses.
    share : float
        Share of the decisions.
    low, high : float
        The smallest and the largest dose of the log.
    worst : float
        The recommended dose that is furthest from them.
    """

    column: str
    share: float
    low: float
    high: float
    worst: float


def _beyond(name: str, asked: Float, given: Float) -> Beyond | None:
    """Doses outside those of the log by more than a tenth of their range, or below 0 where none of the log is."""
    low, high = float(np.min(given)), float(np.max(given))
    room = _ROOM * (high - low)
    least = 0.0 if low >= 0 and low - room < 0 else low - room
    outside = (asked < least) | (asked > high + room)
    if not outside.any():
        return None
    far = np.where(asked > high, asked - high, low - asked)
    return Beyond(name, float(outside.mean()), low, high, float(asked[far.argmax()]))


@dataclass(frozen=True, eq=False)
class OtherLevels:
    """Another way to cut the doses of one column.

    Attributes
    ----------
    name : str
        The column and its cut points, in words.
    encoder : Encoder
        That of the log, with the other levels.
    merged : array of int of shape (A,), or None
        Which new action each action of the log belongs to, where levels were merged; None where all were cut anew.
    """

    name: str
    encoder: Encoder
    merged: Int | None = None

    def cut(self, data: Trajectories) -> Trajectories:
        """The same log with these levels as its actions."""
        sizes = [len(each.names) for each in data.encoder.actions]
        codes = list(np.unravel_index(data.actions, sizes))
        for j, each in enumerate(self.encoder.actions):
            if each.cuts:
                codes[j] = np.searchsorted(each.cuts, data[each.name], side="left")
        names = self.encoder.action_names or ()
        actions = np.ravel_multi_index(codes, [len(each.names) for each in self.encoder.actions])
        return data.replace(
            actions=actions, n_actions=len(names), action_names=list(names), encoder=self.encoder
        )


def dose_columns(data: Trajectories) -> Iterator[int]:
    """Places, among the action columns of a log, of those whose doses were cut and are kept."""
    encoder = data.encoder
    if not isinstance(encoder, Encoder) or not all(each.names for each in encoder.actions):
        return
    if data.n_actions != np.prod([len(each.names) for each in encoder.actions]):
        return  # the log was given room for actions of its own
    for j, each in enumerate(encoder.actions):
        if each.cuts and each.name in data.columns:
            yield j


def cut_anew(data: Trajectories) -> tuple[OtherLevels, ...]:
    """Each dose in one level fewer and in one more, at quantiles of the positive doses."""
    found = []
    for j in dose_columns(data):
        column = data.encoder.actions[j]
        doses = np.asarray(data[column.name], dtype=np.float64)
        if (doses < 0).any():
            continue
        positive = len(column.names) - (column.cuts[0] == 0)
        for k in (positive - 1, positive + 1):
            if k >= 1 + (column.cuts[0] != 0):  # two levels in all, at least
                other = learn_doses(column.name, doses, levels=k, cuts=None)
                if other.cuts != column.cuts:
                    found.append(_other(data.encoder, j, other))
    return tuple(found)


def merge_levels(data: Trajectories) -> tuple[OtherLevels, ...]:
    """Each dose with two neighbouring levels as one: those above 0 that hold the fewest decisions together."""
    found = []
    for j in dose_columns(data):
        column = data.encoder.actions[j]
        first = int(column.cuts[0] == 0)  # no dose at all stays a level of its own
        counts = np.bincount(
            np.searchsorted(column.cuts, data[column.name], side="left"), minlength=len(column.names)
        )
        pairs = counts[first:-1] + counts[first + 1 :]
        if not len(pairs) or len(column.names) < 3:
            continue
        lower = first + int(pairs.argmin())
        cuts = (*column.cuts[:lower], *column.cuts[lower + 1 :])
        other = ActionColumn(column.name, level_names(cuts, data[column.name]), cuts)
        sizes = [len(each.names) for each in data.encoder.actions]
        codes = list(np.unravel_index(np.arange(data.n_actions), sizes))
        codes[j] = codes[j] - (codes[j] > lower)
        sizes[j] -= 1
        found.append(_other(data.encoder, j, other, merged=np.ravel_multi_index(codes, sizes)))
    return tuple(found)


def _other(encoder: Encoder, j: int, column: ActionColumn, *, merged: Int | None = None) -> OtherLevels:
    actions = (*encoder.actions[:j], column, *encoder.actions[j + 1 :])
    points = ", ".join(f"{x:.6g}" for x in column.cuts)
    name = f"{column.name}{CUT}{points}{'' if merged is None else MERGED}"
    return OtherLevels(name, replace(encoder, actions=actions), merged)


def merge_columns(table: Any, levels: OtherLevels) -> Float:
    """Probabilities of the levels of a log, (N, A), as those of merged levels."""
    if levels.merged is None:
        raise ValueError("these levels were cut anew, and no probabilities of the old ones belong to them.")
    out = np.zeros((int(levels.merged.max()) + 1, len(table)))
    np.add.at(out, levels.merged, np.asarray(table).T)
    return out.T
