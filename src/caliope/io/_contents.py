"""The contents of a table, every row in its place: numbers, words, and columns that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._ragged import Bool, Float, Int
from caliope.io._columns import Roles
from caliope.io._learn import Words
from caliope.io._order import Plan
from caliope.io._source import Frame, as_array, as_float

_TILE_ROWS = 2048  # turned from columns to rows together: they stay in the cache meanwhile


@dataclass(frozen=True)
class Filled:
    """Contents of the table, every row in its place."""

    states: Float  # (N, number of columns of states that hold numbers)
    numbers: dict[str, Float]  # (N,) each
    words: dict[str, Words]
    kept: dict[str, NDArray[Any]] = field(default_factory=dict)  # (N,) each

    def write_states(self, places: Int | slice, columns: Sequence[Float]) -> None:
        for start in range(0, len(columns[0]) if columns else 0, _TILE_ROWS):
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


def fill(
    batches: Iterator[Frame],
    plan: Plan,
    roles: Roles,
    *,
    worded: Sequence[str],
    dtype: type[np.floating[Any]],
) -> Filled:
    n, states = plan.n_steps, [name for name in roles.states if name not in worded]
    numbers = [name for name in roles.numbers if name not in worded]
    filled = Filled(
        np.empty((n, len(states)), dtype),
        {name: np.empty(n) for name in numbers},
        {name: Words(name, np.empty(n, dtype=np.int64)) for name in worded},
    )
    start = 0
    for batch in batches:
        places = plan.places(start, start + len(batch))
        filled.write_states(places, [as_float(batch[name], dtype) for name in states])
        for name in numbers:
            filled.numbers[name][places] = as_float(batch[name])
        for name, words in filled.words.items():
            words.add(places, batch[name])
        for name in roles.labels:
            filled.write_kept(places, name, as_array(batch[name]))
        start += len(batch)
    return filled


@dataclass(frozen=True)
class Column:
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
