"""The encoder of a table: which numbers its words, categories, gaps and doses became."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from caliope._ragged import Bool, Float, Int

# What stands for no value in text. Words that may be a name, such as none, are not among them.
GAPS = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "<NA>", "NaT")
OTHER = "other"
_LISTED = 6  # names that a description spells out


def as_text(column: nw.Series[Any]) -> pl.Series:
    """Return words without surrounding spaces, null where there is no value."""
    text = column.to_polars().cast(pl.String).str.strip_chars()
    return text.set(text.is_in(GAPS).fill_null(False), None)


def last_known(known: Bool, first: Int) -> Int:
    """The latest row of the same trajectory, up to each row itself, that has a value; -1 where there is none, (N,).

    ``first`` is the first row of the trajectory of each row. No later row and no other trajectory is looked at.
    """
    latest = np.maximum.accumulate(np.where(known, np.arange(len(known)), -1))
    return np.where(latest >= first, latest, -1)


@dataclass(frozen=True)
class StateColumn:
    """A column of the table among the states, and the features that it became.

    Attributes
    ----------
    name : str
        The column.
    levels : tuple of str
        Levels of a category that have a feature of their own; empty for numbers.
    pooled : int
        How many rare levels share the feature "other".
    gaps : int
        Rows of the log without a value.
    unseen : int
        Gaps before the first value of their trajectory: they became 0, the others the last value before.

    Examples
    --------
    >>> StateColumn("ward", ("ICU", "cardiology", "surgery"), pooled=4, gaps=3).features
    ('ward=ICU', 'ward=cardiology', 'ward=surgery', 'ward=other', 'ward missing')
    """

    name: str
    levels: tuple[str, ...] = ()
    pooled: int = 0
    gaps: int = 0
    unseen: int = 0

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the features that hold the value itself."""
        if not self.levels:
            return (self.name,)
        shown = self.levels[1:] if len(self.levels) == 2 and not self.pooled else self.levels
        return tuple(f"{self.name}={level}" for level in (*shown, *((self.pool,) if self.pooled else ())))

    @property
    def pool(self) -> str:
        """What the rare levels are called together."""
        return OTHER if OTHER not in self.levels else "pooled"

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all its features: its values, and what says that there is none."""
        missing = (f"{self.name} missing",) if self.gaps else ()
        unseen = (f"{self.name} not yet recorded",) if 0 < self.unseen < self.gaps else ()
        return (*self.values, *missing, *unseen)

    def write(self, out: Float, values: Float | Int, first: Int) -> None:
        """Write the features into the columns of ``out``, (N, k); values are numbers, or places among the levels."""
        known = values >= 0 if self.levels else ~np.isnan(values)
        source = np.arange(len(known)) if known.all() else last_known(known, first)
        unseen, width = source < 0, len(self.values)
        found = values[np.where(unseen, 0, source)]
        if self.levels:
            from_second = len(self.levels) == 2 and not self.pooled
            for j in range(width):
                out[:, j] = (found == j + from_second) & ~unseen
        else:
            out[:, 0] = np.where(unseen, 0.0, found)
        for j, shown in enumerate((~known, unseen)[: out.shape[1] - width]):
            out[:, width + j] = shown

    def refuse_new_gaps(self, values: Float | Int) -> None:
        """Raise for a gap in a column that had none in the log that it was learnt on."""
        gaps = int((values < 0 if self.levels else np.isnan(values)).sum())
        if gaps and not self.gaps:
            raise ValueError(
                f"column {self.name!r} has {gaps} gaps, and the log had none there: models fitted on it know of no "
                "gap. Fill them in."
            )

    def places(self, text: pl.Series) -> Int:
        """Places of words among the levels, -1 where there is no value; raise for a word that the log never had."""
        known, n = {level: i for i, level in enumerate(self.levels)}, len(self.levels)
        words = [x for x in text.unique().to_list() if x is not None]
        strange = [x for x in words if x not in known]
        if strange and not self.pooled:
            raise ValueError(
                f"column {self.name!r} holds {strange[0]!r}, which the log never had; its levels are "
                f"{_listed(self.levels)}. Correct it, or fit again on a log that has it."
            )
        return replaced(text, {x: known.get(x, n) for x in words})

    def describe(self) -> str:
        """How the column was read, in words; empty for numbers without a gap."""
        parts = []
        if self.levels:
            parts.append(f"category with the levels {_listed(self.levels)}")
        if self.pooled:
            parts.append(f"{self.pooled} rare levels pooled into {self.pool!r}")
        if self.gaps:
            carried = self.gaps - self.unseen
            how = [f"{carried} by the last value before in the trajectory"] * bool(carried)
            how += [f"{self.unseen} by 0, before any value"] * bool(self.unseen)
            parts.append(f"{self.gaps} gaps filled ({', '.join(how)}), with an indicator")
        return "; ".join(parts)


@dataclass(frozen=True)
class ActionColumn:
    """A column of the table with actions, and the codes that they became.

    Attributes
    ----------
    name : str
        The column.
    names : tuple of str
        Names of the codes 0, 1, ...; empty where the column held the codes.
    cuts : tuple of float
        Upper limits of the levels of a dose but the last; empty where no dose was cut.
    rule : str
        How the names or limits were found, in words.

    Examples
    --------
    >>> doses = nw.from_native(pl.Series([0.0, 20.0, 80.0]), series_only=True)
    >>> ActionColumn("dose", ("0", "above 0 to 50", "above 50"), (0.0, 50.0)).codes(doses)
    array([0., 1., 2.])
    """

    name: str
    names: tuple[str, ...] = ()
    cuts: tuple[float, ...] = ()
    rule: str = ""

    def codes(self, values: nw.Series[Any]) -> Float:
        """Codes of the actions, NaN where there is none; raise for an action that the log never had."""
        if self.cuts:
            doses = values.cast(nw.Float64).to_numpy()
            places = np.searchsorted(self.cuts, doses, side="left").astype(np.float64)
            return np.where(np.isfinite(doses), places, np.nan)
        if not self.names:
            return values.cast(nw.Float64).to_numpy()
        text = boolean_words(as_text(values), self.names)
        known = {name: i for i, name in enumerate(self.names)}
        odd = [x for x in text.unique(maintain_order=True).to_list() if x is not None and x not in known]
        if odd:
            close = get_close_matches(odd[0], self.names, n=1)
            hint = f" (close: {close[0]!r})" if close else ""
            raise ValueError(
                f"column {values.name!r} holds the action {odd[0]!r}{hint} in {int((text == odd[0]).sum())} rows, "
                f"which was never taken in the log; its actions are {_listed(self.names)}. Correct it: no log tells "
                "the value of what was never done."
            )
        places = replaced(text, known).astype(np.float64)
        return np.where(places >= 0, places, np.nan)


def boolean_words(text: pl.Series, names: Sequence[str]) -> pl.Series:
    """The words of booleans as names, however they are written."""
    if set(names) != {"False", "True"}:
        return text
    return text.replace(
        {"true": "True", "false": "False", "TRUE": "True", "FALSE": "False", "0": "False", "1": "True"}
    )


def replaced(text: pl.Series, places: dict[str, int]) -> Int:
    """Places of words, -1 for null."""
    if not places:
        return np.full(len(text), -1)
    found = text.replace_strict(list(places), list(places.values()), default=-1, return_dtype=pl.Int64)
    return found.fill_null(-1).to_numpy()


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_LISTED]))
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"


@dataclass(frozen=True)
class Encoder:
    """What a table became: its columns as features and actions as codes; ``data.encoder`` of what ``read_table`` read.

    Attributes
    ----------
    columns : tuple of StateColumn
        The columns of the states, in their order.
    actions : tuple of ActionColumn
        The columns of the action; several are combined, the last one counting fastest.
    episode : str or None
        The column that tells trajectories apart; None where each row is one.
    notes : tuple of (str, str)
        What else was taken for granted when the table was read: setting and words.

    Examples
    --------
    >>> import caliope as cal
    >>> log = pl.DataFrame(
    ...     {"user": [7, 7, 9], "from": ["ad", None, "mail"], "offer": ["no", "yes", "no"], "gain": [0, 1, 1]}
    ... )
    >>> data = cal.read_table(log, episode="user", action="offer", reward="gain", states="from")
    >>> data.feature_names, data.action_names
    (('from=mail', 'from missing'), ('no', 'yes'))
    >>> data.encoder.transform(pl.DataFrame({"user": [1], "from": ["mail"]}))
    array([[1., 0.]])
    """

    columns: tuple[StateColumn, ...]
    actions: tuple[ActionColumn, ...]
    episode: str | None = None
    notes: tuple[tuple[str, str], ...] = ()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def action_names(self) -> tuple[str, ...] | None:
        """Names of the actions; None where the table held their codes."""
        if len(self.actions) == 1:
            return self.actions[0].names or None
        names = [""]
        for each in self.actions:
            names = [f"{x}, {each.name} {y}".removeprefix(", ") for x in names for y in each.names]
        return tuple(names)

    @property
    def unseen_pairs(self) -> tuple[tuple[int, int], ...]:
        """Numbers of each feature that is 0 before its first value, and of the feature that says so."""
        found, start = [], 0
        for column in self.columns:
            width = len(column.features)
            if column.unseen and not column.levels:
                found.append((start, start + width - 1))  # the last feature says what was never recorded yet
            start += width
        return tuple(found)

    @property
    def trivial(self) -> bool:
        """Whether the table held nothing but numbers without gaps, and codes of actions."""
        plain = all(not column.levels and not column.gaps for column in self.columns)
        return plain and self.action_names is None

    def transform(self, frame: Any) -> Float:
        """Encode rows of the same kind of table.

        A gap becomes the last value before it in the same trajectory, by the order of the rows. Where the frame has no
        column of trajectories every row stands alone, and every gap becomes 0 with its indicator.

        Parameters
        ----------
        frame : polars, pandas or pyarrow table
            New rows, with the columns of the states.

        Returns
        -------
        array of shape (N, d)
            States as the models of the log expect them.
        """
        table = nw.from_native(frame, eager_only=True)
        lacking = [column.name for column in self.columns if column.name not in table.columns]
        if lacking:
            raise ValueError(f"the frame lacks the columns {_listed(lacking)}, which were states of the log.")
        order, first = _by_trajectory(table, self.episode)
        out, start = np.zeros((len(table), len(self.feature_names))), 0
        for column in self.columns:
            values = _values_of(column, table[column.name])[order]
            column.refuse_new_gaps(values)
            width = len(column.features)
            column.write(out[:, start : start + width], values, first)
            start += width
        back = np.empty_like(out)
        back[order] = out
        return back

    def encode_actions(self, frame: Any) -> Int:
        """Encode actions written as in the table: words or doses.

        Parameters
        ----------
        frame : table with the columns of the action, or one column of values
            Rows with actions, such as recommended ones under the names of the logged ones.

        Returns
        -------
        array of int of shape (N,)
            Codes; a dose is cut like the logged ones.
        """
        if hasattr(frame, "columns"):
            table = nw.from_native(frame, eager_only=True)
            return self._combined([table[each.name] for each in self.actions])
        if len(self.actions) > 1:
            raise TypeError(f"give a table with the columns {_listed([each.name for each in self.actions])}.")
        return self._combined(
            [nw.from_native(pl.Series(self.actions[0].name, frame, strict=False), series_only=True)]
        )

    def _combined(self, columns: Sequence[nw.Series[Any]]) -> Int:
        found = combine([each.codes(x) for each, x in zip(self.actions, columns, strict=True)], self.actions)
        bad = np.flatnonzero(np.isnan(found))
        if len(bad):
            raise ValueError(
                f"column {columns[0].name!r}: {len(bad)} of {len(found)} rows name no action (first: row {bad[0]})."
            )
        return found.astype(np.int64)

    def describe(self) -> dict[str, str]:
        """How the table was read, in words, by setting; empty where it held nothing but numbers."""
        found = {}
        for action in self.actions:
            if action.rule:
                found[f"action {action.name!r}"] = action.rule
        found |= {f"state {column.name!r}": text for column in self.columns if (text := column.describe())}
        return found | dict(self.notes)


def combine(codes: Sequence[Float], actions: Sequence[ActionColumn]) -> Float:
    """One code per row from those of several columns, the last one counting fastest; NaN where one has none."""
    found = codes[0]
    for code, column in zip(codes[1:], actions[1:], strict=True):
        found = found * len(column.names) + code
    return found


def _values_of(column: StateColumn, series: nw.Series[Any]) -> Float | Int:
    if column.levels:
        return column.places(as_text(series))
    try:
        return series.cast(nw.Float64).to_numpy()
    except Exception as error:
        raise TypeError(
            f"column {column.name!r} must hold numbers, as in the log, but is {series.dtype}."
        ) from error


def _by_trajectory(table: nw.DataFrame[Any], episode: str | None) -> tuple[Int, Int]:
    """Rows with those of a trajectory together, and the first place of the trajectory of each, (N,) both."""
    n = len(table)
    if episode is None or episode not in table.columns:
        return np.arange(n), np.arange(n)
    labels = table[episode].to_polars().rank("dense").to_numpy().astype(np.int64)
    order = np.argsort(labels, kind="stable")
    begins = np.concatenate([[True], np.diff(labels[order]) != 0])[:n]
    return order, np.maximum.accumulate(np.where(begins, np.arange(n), 0))
