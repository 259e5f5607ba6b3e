"""Roles of the columns of a table, and checks of their names and types."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.dtypes import DType

# Types of each column; files may differ in them.
Types = Mapping[str, tuple[DType, ...]]

# Number of columns that a message can list and stay readable.
_FEW = 30
# Integers that NumPy does not have.
WIDE = (nw.Int128, nw.UInt128)
_PARTS = ("episode", "time", "action", "reward", "terminated")  # each has a column of its own
_FITS_FLOAT32 = (nw.Float32, nw.Int8, nw.Int16, nw.UInt8, nw.UInt16, nw.Boolean)


@dataclass(frozen=True)
class Roles:
    """Names of the columns, by role."""

    episode: str | None  # None where each row is a trajectory
    actions: tuple[str, ...]
    reward: str
    states: tuple[str, ...]
    time: str | None
    terminated: str | None
    keep: tuple[str, ...]
    calendar: str | None = None
    cluster: str | None = None

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Columns that give the episode and the order of a row, and when the episode began; the reward without any."""
        return self._labels or (self.reward,)

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(x for x in (self.episode, self.time, self.calendar) if x is not None))

    @cached_property
    def numbers(self) -> tuple[str, ...]:
        """Columns other than states that become one number per row."""
        found = (*self.actions, self.reward)
        return found if self.terminated is None else (*found, self.terminated)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Columns that are kept as they are, the cluster among them."""
        return self.keep if self.cluster in (None, *self.keep) else (*self.keep, str(self.cluster))

    @cached_property
    def contents(self) -> tuple[str, ...]:
        """Columns that are read besides the keys, each once."""
        return tuple(dict.fromkeys((*self.states, *self.numbers, *self.labels)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Columns that are read, each once."""
        return tuple(dict.fromkeys((*self.keys, *self.contents)))

    @cached_property
    def measures(self) -> frozenset[str]:
        """Columns that become numbers; not those that name an episode or a time."""
        return frozenset({*self.states, *self.numbers} - {*self._labels})

    @cached_property
    def may_be_words(self) -> frozenset[str]:
        """Columns that may hold words instead of numbers."""
        return frozenset({*self.states, *self.actions} - {*self._labels})

    @cached_property
    def floats(self) -> frozenset[str]:
        """Columns that are used as floating-point numbers only."""
        return self.measures - {*self.labels}


def as_names(part: str, names: Any) -> tuple[str, ...]:
    """Return names as a tuple; a single string is one name."""
    if isinstance(names, str):
        return (names,)
    try:
        return tuple(names)
    except TypeError:
        raise TypeError(
            f"{part} must be the name of a column or a list of names, got {names!r}: name the columns, "
            f"e.g. {part}=['age', 'weight']."
        ) from None


def check_count(n_actions: Any) -> None:
    """Raise unless the number of actions is None or a whole number of at least 1."""
    if n_actions is None:
        return
    try:
        count = operator.index(n_actions)
    except TypeError:
        count = None
    if count is None or isinstance(n_actions, bool):
        raise TypeError(
            f"n_actions must be a whole number, got {n_actions!r}: say how many actions there are, or leave it out."
        )
    if count < 1:
        raise ValueError(
            f"n_actions must be 1 or more, got {n_actions}: say how many actions there are, or leave it out."
        )


def _check_text(part: str, name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(
            f"{part} must name a column by text, got {name!r} ({type(name).__name__}). If the columns of your frame "
            "are called by numbers, rename them first, e.g. frame.columns = [str(x) for x in frame.columns]."
        )
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise ValueError(
            f"{part} names the column {name!r}, but to polars this is a pattern of several names, and another column "
            "might be read for it: rename it."
        )


def refuse_duplicates(roles: Roles, names: Sequence[Any], where: str) -> None:
    """Raise if a column with a role occurs more than once."""
    wanted = {*roles.names}
    for name, times in Counter(name for name in names if name in wanted).items():
        places = [i for i, other in enumerate(names) if other == name] if times > 1 else []
        if places:
            raise ValueError(
                f"column {name!r} must be there once, but {where} names {len(places)} columns so (the first two "
                f"are columns {places[0] + 1} and {places[1] + 1}). Rename or drop all but the one you mean."
            )


def check_roles(roles: Roles) -> None:
    """Raise if a column has two roles, or if there is no state."""
    single = {part: getattr(roles, part) for part in ("episode", "time", "reward", "terminated")}
    for part, name in single.items():
        if name is not None or part == "reward":
            _check_text(part, name)
    if not roles.actions:
        raise ValueError("action names no column: name the one that holds the action.")
    for name in roles.actions:
        _check_text("action", name)
    if roles.episode is None and roles.time is not None:
        raise ValueError(
            f"without episode= each row is a trajectory of its own, and time={roles.time!r} has no rows to order: "
            "leave it out, or name the column that tells trajectories apart."
        )
    if roles.calendar is not None:
        _check_text("calendar", roles.calendar)
        used = [part for part, name in single.items() if part != "time" and name == roles.calendar]
        used += ["action"] * (roles.calendar in roles.actions)
        if used:
            raise ValueError(
                f"column {roles.calendar!r} is given as {used[0]} and calendar; each needs a column of its own."
            )
    for part in ("states", "keep"):
        for name in getattr(roles, part):
            _check_text(part, name)
    if roles.cluster is not None:
        _check_text("cluster", roles.cluster)
    played = [(part, name) for part, name in single.items() if name is not None]
    played = sorted(
        [*played, *(("action", name) for name in roles.actions)], key=lambda pair: _PARTS.index(pair[0])
    )
    named = [name for _, name in played]
    for name in named:
        if named.count(name) > 1:
            parts = " and ".join(part for part, other in played if other == name)
            raise ValueError(f"column {name!r} is given as {parts}; each needs a column of its own.")
    if not roles.states:
        raise ValueError("states is empty: name at least one column that was known before the decision.")
    twice = sorted(name for name, times in Counter(roles.states).items() if times > 1)
    if twice:
        raise ValueError(f"states names {', '.join(map(repr, twice))} more than once.")
    leaks = [f"{name!r} (the {part})" for part, name in played if part != "time" and name in roles.states]
    if leaks:
        raise ValueError(
            f"states must hold only what was known before the decision, but lists {', '.join(leaks)}: it would give "
            "the answer away. Take it out."
        )


def types_elsewhere(schemas: Sequence[pl.Schema], names: Sequence[str]) -> list[Any]:
    """Of each file, the types that other files give to columns without a value in it, which have no type there."""
    shared = [name for name in names if all(name in each for each in schemas)]
    known = {name: next((x[name] for x in schemas if x[name] != pl.Null), pl.Null) for name in shared}
    return [{name: dtype for name, dtype in known.items() if own[name] == pl.Null} for own in schemas]


def _nearest(name: str, available: Sequence[str]) -> str:
    close = get_close_matches(str(name), available, n=3)
    return f"{name!r}" + (f" (close: {', '.join(map(repr, close))})" if close else "")


def check_present(roles: Roles, types: Types) -> None:
    """Raise unless the table has every column that was named."""
    missing = [name for name in roles.names if name not in types]
    if missing:
        available = [name for name in types if isinstance(name, str)]
        odd = [name for name in types if not isinstance(name, str)]
        rename = (
            f" Beside these, {len(odd)} columns have names that are not text (first: {next(iter(odd), None)!r}): "
            "rename them, e.g. frame.columns = [str(x) for x in frame.columns]."
        )
        listed = ", ".join(map(repr, available)) if len(available) <= _FEW else f"{len(available)} others"
        wrong = ", ".join(_nearest(name, available) for name in missing[:_FEW])
        more = f" and {len(missing) - _FEW} more" if len(missing) > _FEW else ""
        raise ValueError(
            "not a column of the table (of all its files): "
            f"{wrong}{more}. There are {listed or 'none'}." + rename * bool(odd)
        )


def _is_number(dtype: DType) -> bool:
    return dtype.is_numeric() or dtype == nw.Boolean


def is_word(dtype: DType) -> bool:
    """Whether a type holds words."""
    return dtype in (nw.String, nw.Categorical, nw.Enum)


def _is_value(dtype: DType) -> bool:
    return _is_number(dtype) or is_word(dtype)


def _is_state(dtype: DType) -> bool:
    return _is_value(dtype) or dtype in (nw.Date, nw.Datetime)  # refused later, with what to do


def _is_time(dtype: DType) -> bool:
    return (dtype.is_numeric() and dtype not in WIDE) or dtype in (nw.Date, nw.Datetime, nw.Duration)


def _is_label(dtype: DType) -> bool:
    return dtype.is_numeric() or dtype in (nw.String, nw.Categorical, nw.Enum, nw.Date, nw.Datetime)


class _Need(NamedTuple):
    part: str
    fits: Callable[[DType], bool]
    needed: str
    remedy: str


_NULLS = "In pandas, .astype(float) or .astype(str) makes numbers or words of it, .dt.total_seconds() of a duration."
_NEEDS = (
    _Need("states", _is_state, "states must be numbers, categories or booleans", _NULLS),
    _Need(
        "reward",
        _is_number,
        "the reward must be a number",
        "Give the outcome as a number, such as 1 where it is good and 0 where it is not.",
    ),
    _Need("actions", _is_value, "actions must be words, booleans, doses, or whole numbers from 0", _NULLS),
    _Need(
        "terminated",
        _is_number,
        "terminated must be True or False (or 1 and 0)",
        "Fill in missing values first; in pandas they turn a column of booleans into objects.",
    ),
    _Need("episode", _is_label, "episodes must be called by numbers or text", "Turn the ids into strings."),
    _Need(
        "cluster", _is_label, "clusters must be called by numbers or text", "Turn the labels into strings."
    ),
    _Need(
        "time",
        _is_time,
        "time must be a number of at most 64 bits, a date or a datetime",
        "Parse it first: as text, 10 precedes 9.",
    ),
    _Need(
        "calendar",
        _is_time,
        "the calendar must be a number of at most 64 bits, a date or a datetime",
        "Parse it first: as text, 10 precedes 9.",
    ),
)


def check_types(roles: Roles, types: Types) -> None:
    """Raise unless every column has a type that suits its role."""
    for need in _NEEDS:
        names = as_names(need.part, getattr(roles, need.part) or ())
        odd = [f"{name!r} is {dtype}" for name in names for dtype in types[name] if not need.fits(dtype)]
        if odd:
            raise TypeError(f"{need.needed}, but column {', '.join(odd)}. {need.remedy}")


def state_type(roles: Roles, types: Types) -> type[np.floating[Any]]:
    """Return float32 if that is exact for every state, otherwise float64."""
    small = all(dtype in _FITS_FLOAT32 for name in roles.states for dtype in types[name])
    return np.float32 if small else np.float64
