"""What the columns of a log in files hold in all parts, so that a sample of it is read as the whole would be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from caliope._validation import FEW_ACTIONS
from caliope.io._columns import as_names
from caliope.io._encoder import ActionColumn, Encoder, StateColumn, as_text
from caliope.io._learn import Words, learn_names

_MOST_WORDS, _MOST_CODES = 1000, 100_000  # of a column that are told apart; more are no category


@dataclass(frozen=True)
class Survey:
    """What was found in the columns of states and actions.

    Attributes
    ----------
    gaps : mapping from str to int
        Rows without a value, by column of the states.
    words : mapping from str to tuple of str
        The different words, sorted, by column of words.
    codes : mapping from str to tuple of float
        The different codes, sorted, by column of actions that are numbers and not cut.
    """

    gaps: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    codes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def columns_to_survey(options: Mapping[str, Any]) -> list[str]:
    """The columns of states and actions."""
    return list(
        dict.fromkeys((*as_names("states", options["states"]), *as_names("action", options["action"])))
    )


def survey(rows: pl.DataFrame, options: Mapping[str, Any]) -> Survey:
    """Look at the columns of some rows; raise for a dose that no level is made for."""
    states, actions = as_names("states", options["states"]), as_names("action", options["action"])
    words = {
        name: _words_in(rows[name]) for name in dict.fromkeys((*states, *actions)) if _is_word(rows[name])
    }
    gaps = {name: _count_gaps(rows[name]) for name in states}
    cut = set(actions) if options.get("levels") is not None else _cut_columns(options.get("cuts"), actions)
    if options.get("levels") is not None:
        _refuse_negative(rows, actions)
    codes = {
        name: _codes_in(rows[name]) for name in actions if name not in cut and rows.schema[name].is_numeric()
    }
    return Survey({name: n for name, n in gaps.items() if n}, words, codes)


def together(found: Sequence[Survey]) -> Survey:
    """What several stretches hold together."""
    gaps: dict[str, int] = {}
    words: dict[str, set[str]] = {}
    codes: dict[str, set[float]] = {}
    for each in found:
        for name, n in each.gaps.items():
            gaps[name] = gaps.get(name, 0) + n
        for name, some in each.words.items():
            words.setdefault(name, set()).update(some)
        for name, numbers in each.codes.items():
            codes.setdefault(name, set()).update(numbers)
    return Survey(
        gaps,
        {name: tuple(sorted(some)) for name, some in words.items()},
        {name: tuple(sorted(some)) for name, some in codes.items()},
    )


def count_actions(whole: Survey, options: Mapping[str, Any]) -> int | None:
    """The number of actions where one column holds codes; None where the sample has to tell, or names do."""
    name, given = options["action"], options.get("n_actions")
    if isinstance(name, str) and name in whole.words:
        return None  # a word may be outside the sample: they are counted when all are known
    if given is not None or not isinstance(name, str):
        return given
    codes = np.array(whole.codes.get(name, ()))
    if not len(codes) or codes[0] != 0 or (codes != np.floor(codes)).any():
        return None  # reading the rows says what is wrong
    high = int(codes[-1])
    if high >= FEW_ACTIONS and 2 * len(codes) < high + 1:
        raise ValueError(
            f"column {name!r}: fewer than half of the actions 0 to {high} occur in all files. If {high} stands for "
            f"something else, such as a missing action, correct or drop its rows; if not, say n_actions={high + 1}."
        )
    return high + 1


def widen_encoder(encoder: Encoder, whole: Survey) -> Encoder:
    """The encoder of a sample, with room for what the rest of the log holds and the sample does not.

    Words of states that the sample never had are pooled, a gap gets its indicator, and an action gets its code. In the
    sample these features are 0, so that models do not depend on them.
    """
    columns, notes = [], dict(encoder.notes)
    for column in encoder.columns:
        wider, said = _widen_state(column, whole)
        columns.append(wider)
        if said:
            notes[f"state {column.name!r}"] = "; ".join(filter(None, (column.describe(), said)))
    actions = tuple(_widen_action(each, whole) for each in encoder.actions)
    return replace(encoder, columns=tuple(columns), actions=actions, notes=tuple(notes.items()))


def _widen_state(column: StateColumn, whole: Survey) -> tuple[StateColumn, str]:
    said = []
    strange = set(whole.words.get(column.name, ())) - set(column.levels)
    if column.levels and strange and not column.pooled:
        column = replace(column, pooled=len(strange))
        said.append(f"{len(strange)} levels outside the sample pooled into {column.pool!r}")
    gaps = whole.gaps.get(column.name, 0)
    if gaps and not column.gaps:
        column = replace(column, gaps=gaps, unseen=gaps)
        said.append(
            f"{gaps} gaps outside the sample filled by the last value before in the trajectory, or by 0 where there "
            "is none, with an indicator"
        )
    return column, "; ".join(said)


def _widen_action(column: ActionColumn, whole: Survey) -> ActionColumn:
    if column.cuts or not column.names:
        return column
    if whole.codes.get(column.name):  # one of several columns, with codes
        count = max(len(column.names), int(whole.codes[column.name][-1]) + 1)
        return replace(column, names=tuple(map(str, range(count))))
    words = whole.words.get(column.name, ())
    if set(words) <= set(column.names):
        return column
    # An order that a type declares holds all words already: these are sorted.
    every = {word: i for i, word in enumerate(sorted({*column.names, *words}))}
    return learn_names(Words(column.name, np.empty(0, dtype=np.int64), numbers=every), boolean=False)


def _is_word(column: pl.Series) -> bool:
    return column.dtype in (pl.String, pl.Categorical, pl.Enum)


def _words_in(column: pl.Series) -> tuple[str, ...]:
    text = as_text(nw.from_native(column, series_only=True)).drop_nulls().unique()
    return tuple(sorted(text.to_list())[:_MOST_WORDS])


def _count_gaps(column: pl.Series) -> int:
    if _is_word(column):
        return as_text(nw.from_native(column, series_only=True)).null_count()
    missing = column.null_count()
    return missing + int(column.is_nan().sum() or 0) if column.dtype.is_float() else missing


def _cut_columns(cuts: Any, actions: Sequence[str]) -> set[str]:
    if cuts is None:
        return set()
    return set(cuts) if isinstance(cuts, Mapping) else {actions[0]}


def _codes_in(column: pl.Series) -> tuple[float, ...]:
    found = column.drop_nulls().unique().to_numpy().astype(np.float64)
    return tuple(np.sort(found[np.isfinite(found)])[-_MOST_CODES:].tolist())


def _refuse_negative(rows: pl.DataFrame, actions: Sequence[str]) -> None:
    """Raise for a negative dose, which the sample that levels are learnt on may not show."""
    for name in actions:
        if rows.schema[name].is_numeric() and (negative := int((rows[name] < 0).sum() or 0)):
            raise ValueError(
                f"column {name!r}: {negative} of {len(rows)} doses are negative, and levels= takes quantiles of the "
                "positive ones with zero apart. Give cut points instead, with cuts=[...] (--cuts)."
            )
