"""From the contents of a table to features and codes of actions, and to the encoder that describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from caliope._ragged import Float
from caliope._validation import as_actions
from caliope.io._columns import Roles, Types
from caliope.io._contents import Column, Filled
from caliope.io._encoder import ActionColumn, Encoder, StateColumn, combine
from caliope.io._learn import (
    learn_category,
    learn_doses,
    learn_names,
    learn_number,
    place_names,
    refuse_numbers_as_text,
)
from caliope.io._order import Plan

_ROWS = 1 << 14  # looked at together: they stay in the cache meanwhile

# -- states --


def encode_states(
    filled: Filled, roles: Roles, plan: Plan, types: Types
) -> tuple[Float, tuple[StateColumn, ...]]:
    """Features of the states, (N, d), and how they were made of the columns."""
    numbers = [name for name in roles.states if name not in filled.words]
    values: dict[str, Any] = dict(zip(numbers, filled.states.T, strict=True))
    gappy = dict(zip(numbers, _has_gaps(filled.states), strict=True))
    columns = []
    for name in roles.states:
        if name in filled.words:
            refuse_numbers_as_text(filled.words[name], "state", declared=_declared(types[name]))
            column, values[name] = learn_category(filled.words[name], plan.offsets)
        else:
            column = learn_number(name, values[name], plan.offsets) if gappy[name] else StateColumn(name)
        columns.append(column)
    if len(numbers) == len(columns) and not any(column.gaps for column in columns):
        return filled.states, tuple(columns)
    return _features(columns, values, plan, filled.states.dtype), tuple(columns)


def _has_gaps(states: Float) -> list[bool]:
    """Whether each column of numbers lacks a value somewhere; in the order of memory, which is much faster."""
    found = np.zeros(states.shape[1], dtype=bool)
    for start in range(0, len(states), _ROWS):
        found |= np.isnan(states[start : start + _ROWS]).any(axis=0)
    return found.tolist()


def _features(columns: Sequence[StateColumn], values: Mapping[str, Any], plan: Plan, dtype: Any) -> Float:
    out = np.empty((plan.n_steps, sum(len(column.features) for column in columns)), dtype=dtype)
    first, start = np.repeat(plan.offsets[:-1], np.diff(plan.offsets)), 0
    for column in columns:
        width = len(column.features)
        column.write(out[:, start : start + width], values[column.name], first)
        start += width
    return out


def encode_by(encoder: Encoder, filled: Filled, roles: Roles, plan: Plan) -> tuple[Float, Float]:
    """Features, (N, d), and codes of actions, (N,), by an encoder that was learnt on another log."""
    for part, ours, theirs in (
        ("states", roles.states, encoder.columns),
        ("action", roles.actions, encoder.actions),
    ):
        names = tuple(each.name for each in theirs)
        if ours != names:
            raise ValueError(f"{part} must be the columns of the encoder, {list(names)}, got {list(ours)}.")
    numbers = [name for name in roles.states if name not in filled.words]
    values: dict[str, Any] = dict(zip(numbers, filled.states.T, strict=True))
    for column in encoder.columns:
        if bool(column.levels) != (column.name in filled.words):
            kind = "words" if column.levels else "numbers"
            raise TypeError(
                f"column {column.name!r} must hold {kind}, as in the log that the encoder was learnt on."
            )
        if column.levels:
            words = filled.words[column.name]
            values[column.name] = np.append(column.places(pl.Series(words.words, dtype=pl.String)), -1)[
                words.codes
            ]
        column.refuse_new_gaps(values[column.name])
    codes = [_codes_by(column, filled, plan) for column in encoder.actions]
    return _features(encoder.columns, values, plan, filled.states.dtype), combine(codes, encoder.actions)


def _codes_by(column: ActionColumn, filled: Filled, plan: Plan) -> Float:
    words = filled.words.get(column.name)
    if words is None:
        values = filled.numbers[column.name]
        code = (
            column.codes(nw.from_native(pl.Series(column.name, values), series_only=True))
            if column.cuts
            else values
        )
    else:
        known = column.codes(nw.from_native(pl.Series(column.name, words.words), series_only=True))
        code = np.append(known, np.nan)[words.codes]
    _refuse_missing(column, code, plan)
    return code


def _refuse_missing(column: ActionColumn, code: Float, plan: Plan) -> None:
    missing = np.flatnonzero(np.isnan(code))
    if column.names and len(missing):
        raise ValueError(
            f"column {column.name!r}: {len(missing)} of {len(code)} rows hold no action (first: "
            f"{plan.where(int(missing[0]))}). An action is never filled in: correct or drop the rows."
        )


def _declared(types: Sequence[Any]) -> bool:
    """Whether the type itself says that a column holds names."""
    return all(dtype in (nw.Categorical, nw.Enum) for dtype in types)


# -- actions --


@dataclass(frozen=True)
class Cutting:
    """How doses are cut into levels."""

    levels: int | None
    cuts: Mapping[str, Sequence[float]]

    def of(self, name: str) -> bool:
        return self.levels is not None or name in self.cuts


def encode_actions(
    filled: Filled, roles: Roles, plan: Plan, types: Types, cutting: Cutting
) -> tuple[Float, tuple[ActionColumn, ...]]:
    """The code of every row, and how codes were made of the columns."""
    codes, columns = [], []
    for name in roles.actions:
        column, code = _encode_action(name, filled, plan, types, cutting)
        if len(roles.actions) > 1 and not column.names:
            whole, count = as_actions(code, None, plan.where, name=f"column {name!r}")
            column, code = (
                ActionColumn(name, tuple(map(str, range(count))), rule="coded as it stands"),
                whole * 1.0,
            )
        _refuse_missing(column, code, plan)
        codes.append(code)
        columns.append(column)
    return combine(codes, columns), tuple(columns)


def _encode_action(
    name: str, filled: Filled, plan: Plan, types: Types, cutting: Cutting
) -> tuple[ActionColumn, Float]:
    if name in filled.words:
        words = filled.words[name]
        refuse_numbers_as_text(words, "action", declared=_declared(types[name]))
        if cutting.levels is None and name not in cutting.cuts:
            column = learn_names(words, boolean=False)
            return column, place_names(words, column)
        raise TypeError(
            f"column {name!r} holds words, and only doses can be cut into levels: leave levels and cuts out."
        )
    values = filled.numbers[name]
    if all(dtype == nw.Boolean for dtype in types[name]) and not cutting.of(name):
        return ActionColumn(name, ("False", "True"), rule="0 False, 1 True"), values
    if not cutting.of(name):
        return ActionColumn(name), values
    Column(name, values, plan).refuse(
        ~np.isfinite(values), "hold no finite dose", "An action is never filled in: correct or drop the rows."
    )
    column = learn_doses(name, values, levels=cutting.levels, cuts=cutting.cuts.get(name))
    return column, np.searchsorted(column.cuts, values, side="left").astype(np.float64)
