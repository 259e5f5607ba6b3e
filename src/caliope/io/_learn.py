"""Learn the encoder of a table: levels of categories, names of actions, and cut points of doses."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl

from caliope._ragged import Float, Int
from caliope.io._encoder import ActionColumn, StateColumn, as_text, last_known
from caliope.io._written import number_form

_KEPT = 30  # levels of a category that have a feature of their own
_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$|^\d{1,2}[./]\d{1,2}[./]\d{2,4}$")
_MOST_LEVELS = 100  # of a dose
_LEVELS = 10  # different numbers up to which they may be names, such as grades


@dataclass
class Words:
    """Words of a column as they come, batch by batch: a number for each different one."""

    name: str
    codes: Int  # (N,), -1 where there is no value
    order: tuple[str, ...] = ()  # that a type declares
    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, places: Int | slice, column: nw.Series[Any]) -> None:
        """Take in the words of some rows."""
        if isinstance(column.dtype, nw.Enum):
            self.order = tuple(dict.fromkeys((*self.order, *column.dtype.categories)))
        text = as_text(column)
        for word in text.unique(maintain_order=True).to_list():
            if word is not None:
                self.numbers.setdefault(word, len(self.numbers))
        coded = (
            text.replace_strict(
                list(self.numbers), list(self.numbers.values()), default=-1, return_dtype=pl.Int64
            )
            if self.numbers
            else pl.Series([-1] * len(text))
        )
        self.codes[places] = coded.fill_null(-1).to_numpy()

    @property
    def words(self) -> list[str]:
        """The different words, as numbered."""
        return list(self.numbers)

    @property
    def holds_numbers(self) -> bool:
        """Whether numbers are meant: in most rows, or in most of the words where these are many."""
        return self.numeric_share() >= 0.5 or mostly_numbers(self.words)

    def numeric_share(self) -> float:
        """The share of rows with a value whose word is a number."""
        counts = np.bincount(self.codes[self.codes >= 0], minlength=len(self.numbers))
        number = np.array([is_number(word) for word in self.words], dtype=bool)
        return float(counts[number].sum() / counts.sum()) if counts.sum() else 0.0


def mostly_numbers(words: Sequence[str]) -> bool:
    """Whether most of these different words are numbers, and too many to be the names of levels."""
    numbers = sum(map(is_number, words))
    return numbers > _LEVELS and 2 * numbers > len(words)


def is_number(word: str) -> bool:
    """Whether a word is a number, also with a decimal comma."""
    try:
        return math.isfinite(float(word.replace(",", ".", 1)))
    except ValueError:
        return False


def _sorted(words: Sequence[str], order: Sequence[str]) -> list[str]:
    """Words in the order that the type declares, numbers by size, all others by the alphabet."""
    if order:
        return list(order)
    if words and all(map(is_number, words)):
        return sorted(words, key=lambda word: (float(word.replace(",", ".", 1)), word))
    return sorted(words)


def refuse_numbers_as_text(found: Words, part: str, *, declared: bool) -> None:
    """Raise where a column of text holds numbers for the most part: one odd cell would make a category of it."""
    marked = len(found.numbers) > _LEVELS and number_form(found.words) is not None
    if declared or not found.numbers or not (found.holds_numbers or marked):
        return
    odd = next((word for word in found.words if not is_number(word)), None)
    if odd is None or marked:
        raise TypeError(
            f"column {found.name!r} ({part}) is text that holds numbers, such as {found.words[0]!r}. Cast it to a "
            "number; if they are names, to a categorical type."
        )
    raise ValueError(
        f"column {found.name!r} ({part}) is text and holds numbers for the most part, but also {odd!r}. Write numbers "
        "as 1.5 and leave gaps empty; if they are names, make the column a categorical type."
    )


# -- states --


def refuse_dates(name: str) -> None:
    """Raise for a date among the states: a calendar date never comes again."""
    raise TypeError(
        f"states must be numbers, categories or booleans, but column {name!r} holds dates: a date never recurs, so "
        f"nothing can be learnt from it. Order rows by it with time={name!r}, say when trajectories began with "
        f"calendar={name!r}, or turn it into a number, such as days since the first row or the hour of the day."
    )


def is_date(words: Sequence[str | None]) -> bool:
    """Whether most words are dates, in whatever form."""
    known = [word for word in words if word]
    return bool(known) and 2 * sum(bool(_DATE.match(word)) for word in known) > len(known)


def rare_below(n: int) -> int:
    """A level in fewer trajectories than this is rare: 1% of them, and 10 where that is no more than 5%."""
    return max(1, math.ceil(0.01 * n), min(10, math.ceil(0.05 * n)))


def learn_category(found: Words, offsets: Int) -> tuple[StateColumn, Int]:
    """Levels of a category, rare ones pooled; and the place of each row's level, -1 for a gap, (N,)."""
    if not found.numbers:
        raise _empty(found.name)
    if is_date(found.words[:100]):
        refuse_dates(found.name)
    n = len(offsets) - 1
    spread = _trajectories_with(found.codes, offsets, len(found.words))
    limit = rare_below(n)
    ranking = np.argsort(-spread, kind="stable")
    kept = [int(i) for i in ranking[:_KEPT] if spread[i] >= limit]
    left = [int(i) for i in range(len(spread)) if i not in set(kept)]
    if not kept:
        raise ValueError(
            f"states: column {found.name!r} holds {len(spread)} different texts, none of them in {limit} of the {n} "
            "trajectories: an id or free text, from which nothing recurs. Leave it out, or group it first."
        )
    if len(left) == 1 and len(kept) < _KEPT and spread[left[0]] > 0:
        kept, left = [*kept, left[0]], []
    levels = _sorted(
        [found.words[i] for i in kept], [w for w in found.order if w in {found.words[i] for i in kept}]
    )
    place = np.full(len(spread) + 1, len(levels))  # the last one is for gaps
    place[kept] = [levels.index(found.words[i]) for i in kept]
    place[-1] = -1
    return _with_gaps(StateColumn(found.name, tuple(levels), len(left)), place[found.codes], offsets), place[
        found.codes
    ]


def _trajectories_with(codes: Int, offsets: Int, size: int) -> Int:
    """In how many trajectories each code occurs."""
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    pairs = np.unique(owner[codes >= 0] * size + codes[codes >= 0])
    return np.bincount(pairs % size, minlength=size)


def learn_number(name: str, values: Float, offsets: Int) -> StateColumn:
    """A column of numbers, with its gaps counted."""
    if np.isnan(values).all():
        raise _empty(name)
    return _with_gaps(StateColumn(name), values, offsets)


def _empty(name: str) -> ValueError:
    return ValueError(f"states: column {name!r} has no value in any row. Leave it out.")


def _with_gaps(column: StateColumn, values: Float | Int, offsets: Int) -> StateColumn:
    known = values >= 0 if column.levels else ~np.isnan(values)
    if known.all():
        return column
    unseen = last_known(known, np.repeat(offsets[:-1], np.diff(offsets))) < 0
    return StateColumn(column.name, column.levels, column.pooled, int((~known).sum()), int(unseen.sum()))


# -- actions --


def learn_names(found: Words, *, boolean: bool) -> ActionColumn:
    """Actions in words: their names in the order that their type declares, or sorted."""
    if boolean:
        return ActionColumn(found.name, ("False", "True"), rule="0 False, 1 True")
    names = _sorted(found.words, found.order)
    how = "in the order of their type" if found.order else "in sorted order"
    shown = ", ".join(f"{i} {name}" for i, name in enumerate(names[:12]))
    more = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ActionColumn(found.name, tuple(names), rule=f"coded {how}: {shown}{more}{_capitals(names)}")


def _capitals(names: Sequence[str]) -> str:
    """Say which names differ in capitals alone: one action that was written in two ways counts as two."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(name.casefold(), []).append(name)
    several = [" and ".join(same) for same in alike.values() if len(same) > 1]
    shown = ", ".join(several[:3])
    return f"; {shown} differ in capitals alone, and count as different actions" if several else ""


def place_names(found: Words, column: ActionColumn) -> Float:
    """The code of every row, NaN where there is none."""
    place = np.array([*(column.names.index(word) for word in found.words), np.nan])
    return place[found.codes]


def learn_doses(name: str, doses: Float, *, levels: int | None, cuts: Sequence[float] | None) -> ActionColumn:
    """Cut points of doses: as given, or quantiles of the positive ones with zero apart."""
    if cuts is not None:
        limits, how = tuple(float(x) for x in cuts), "cut where asked"
        return ActionColumn(name, level_names(limits, doses), limits, _rule(how, limits))
    known = doses[np.isfinite(doses)]
    negative = int((known < 0).sum())
    if negative:
        raise ValueError(
            f"column {name!r}: {negative} of {len(doses)} doses are negative, and levels= takes quantiles of the "
            "positive ones with zero apart. Give cut points instead, with cuts=[...] (--cuts)."
        )
    positive = known[known > 0]
    k = int(levels or 0)
    if not len(positive):
        raise ValueError(
            f"column {name!r}: no dose is positive, so that there is nothing to cut into levels."
        )
    quantiles = np.quantile(positive, np.arange(1, k) / k).tolist()
    inner = sorted({x for x in (float(f"{x:.6g}") for x in quantiles) if 0 < x < positive.max()})
    zero = (0.0,) if (known == 0).any() else ()
    limits = (*zero, *inner)
    if not limits:
        raise ValueError(
            f"column {name!r}: one level of doses, and none of 0: every action is the same. Ask for more."
        )
    fewer = f" ({len(inner) + 1} instead of {k}, because doses repeat)" if len(inner) + 1 < k else ""
    how = f"cut at quantiles of the positive doses{', zero apart' * bool(zero)}{fewer}"
    return ActionColumn(name, level_names(limits, doses), limits, _rule(how, limits))


def _rule(how: str, limits: Sequence[float]) -> str:
    return f"{how}: {', '.join(f'{x:.6g}' for x in limits)}"


def level_names(limits: Sequence[float], doses: Float) -> tuple[str, ...]:
    """What the levels between some limits are called."""
    lowest = np.nanmin(doses)
    first = "0" if limits[0] == 0 and lowest >= 0 else f"up to {limits[0]:.6g}"
    inner = [f"above {low:.6g} to {high:.6g}" for low, high in pairwise(limits)]
    return (first, *inner, f"above {limits[-1]:.6g}")


def check_cutting(actions: Sequence[str], levels: Any, cuts: Any) -> dict[str, Sequence[float]]:
    """Cut points by column; raise unless levels and cuts can be used, before anything is read."""
    if levels is not None and cuts is not None:
        raise ValueError("give levels or cuts for the doses, not both.")
    if levels is not None and (
        not isinstance(levels, int | np.integer)
        or isinstance(levels, bool)
        or not 1 <= levels <= _MOST_LEVELS
    ):
        raise ValueError(f"levels must be a whole number from 1 to {_MOST_LEVELS}, got {levels!r}.")
    if cuts is None:
        return {}
    given = cuts if isinstance(cuts, Mapping) else {actions[0]: cuts}
    if not isinstance(cuts, Mapping) and len(actions) > 1:
        raise TypeError(
            f"with several action columns give cuts by column, as in cuts={{{actions[0]!r}: [1, 10]}}."
        )
    strange = [name for name in given if name not in actions]
    if strange:
        raise ValueError(
            f"cuts names {strange[0]!r}, which is no action column; they are {', '.join(actions)}."
        )
    return {name: _as_cuts(name, points) for name, points in given.items()}


def _as_cuts(name: str, points: Any) -> Sequence[float]:
    try:
        found = [float(x) for x in points]
    except (TypeError, ValueError):
        found = []
    if not found or not np.isfinite(found).all() or (np.diff(found) <= 0).any():
        raise ValueError(f"cuts of {name!r} must be rising numbers, such as [0, 50, 200], got {points!r}.")
    return found
