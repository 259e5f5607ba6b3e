"""Kinds of values that settings hold: how each is typed, what it must be, and how it reads in a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Any

ROW = "row"  # in place of the column of trajectories: each row is one
_LISTED = 12  # names that a printed setting spells out


@dataclass(frozen=True)
class Kind:
    """What a setting holds: how it is typed, what it must be, and how it reads in a list of settings."""

    metavar: str | None
    check: Callable[[str, Any], None]  # name, value; raises ValueError or TypeError, in one sentence
    show: Callable[[Any], str] = str
    type: Any = str  # of the option
    flag: bool = False


def _require(fits: bool, name: str, needed: str, x: Any) -> None:
    if not fits:
        raise ValueError(f"{name} must be {needed}, got {x!r}")


def is_text(x: Any) -> bool:
    return isinstance(x, str) and bool(x.strip())


def _check_text(name: str, x: Any) -> None:
    _require(is_text(x), name, "text", x)


def _check_names(name: str, x: Any) -> None:
    several = isinstance(x, list | tuple) and all(map(is_text, x))
    # A comma alone names nothing, and neither does the range p2..p0.
    _require((is_text(x) or several) and bool(split_names(x)), name, "a list of names", x)


def _check_number(name: str, x: Any) -> None:
    _require(isinstance(x, int | float) and not isinstance(x, bool), name, "a number", x)


def _check_gamma(name: str, x: Any) -> None:
    from caliope._validation import check_gamma

    _check_number(name, x)
    check_gamma(x)


def _check_level(name: str, x: Any) -> None:
    from caliope.uncertainty._intervals import check_level

    _check_number(name, x)
    check_level(x)


def _check_share(name: str, x: Any) -> None:
    _check_number(name, x)
    _require(0 < x < 1, name, "a number between 0 and 1", x)


def _check_flag(name: str, x: Any) -> None:
    _require(isinstance(x, bool), name, "true or false", x)


def whole(low: int, high: int) -> Kind:
    def check(name: str, x: Any) -> None:
        whole = isinstance(x, int) and not isinstance(x, bool)
        _require(whole and low <= x <= high, name, f"a whole number from {low} to {high}", x)

    return Kind("N", check, type=int)


def list_names(names: Sequence[str]) -> str:
    """Names for a reader: the first ones, and how many more there are."""
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"


def split_names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Names from a list or from text with commas; ``p0..p24`` stands for all from the first to the last.

    >>> split_names("age, p0..p2")
    ('age', 'p0', 'p1', 'p2')
    """
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(name for part in parts for name in _expand_range(part.strip()) if name)


def split_files(given: str | Sequence[str]) -> tuple[str, ...]:
    """Files from a list or from text with commas.

    >>> split_files("2h.parquet, 8h.parquet")
    ('2h.parquet', '8h.parquet')
    """
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(dict.fromkeys(name for part in parts if (name := part.strip())))


def _expand_range(part: str) -> list[str]:
    first, dots, last = part.partition("..")
    stem = first.rstrip("0123456789")
    if not dots or not last.startswith(stem):
        return [part]
    ends = first[len(stem) :], last[len(stem) :]
    if not all(end.isdecimal() for end in ends):
        return [part]
    return [f"{stem}{i}" for i in range(int(ends[0]), min(int(ends[1]), int(ends[0]) + 100_000) + 1)]


def _check_files(name: str, x: Any) -> None:
    several = isinstance(x, list | tuple) and bool(x) and all(map(is_text, x))
    _require(is_text(x) or several, name, "the name of a file, or a list of names", x)


def _check_cuts(name: str, x: Any) -> None:
    parse_cuts(x, ("",))


def parse_cuts(text: Any, actions: Sequence[str]) -> dict[str, list[float]]:
    """Cut points by column: ``0,50`` for the only action, ``fluid:0,50;dose:0,0.1`` for several.

    >>> parse_cuts("0,50", ["dose"])
    {'dose': [0.0, 50.0]}
    """
    if isinstance(text, list | tuple):
        text = ",".join(map(str, text))
    found = {}
    for part in str(text).split(";"):
        name, colon, points = part.rpartition(":")
        try:
            cuts = [float(x) for x in points.split(",")]
        except ValueError:
            cuts = []
        if not cuts or any(a >= b for a, b in pairwise(cuts)) or not all(map(isfinite, cuts)):
            raise ValueError(f"cuts must be rising numbers, such as 0,50,200 or dose:0,50, got {part!r}")
        found[name.strip() if colon else actions[0]] = cuts
    return found


def _check_require(name: str, x: Any) -> None:
    from caliope._audit._requirements import check_limits

    check_limits(parse_require(x))


def parse_require(given: Any) -> dict[str, Any]:
    """Conditions by name: a table of a study file, or text of an option.

    >>> parse_require("effective-n=200, width=0.1")
    {'effective_n': 200.0, 'width': 0.1}
    """
    if not isinstance(given, str):
        pairs = given.items() if isinstance(given, Mapping) else given
        return {str(name).replace("-", "_"): limit for name, limit in pairs}
    found: dict[str, Any] = {}
    for part in given.split(","):
        name, _, limit = (x.strip() for x in part.partition("="))
        try:
            found[name.replace("-", "_")] = float(limit)
        except ValueError:
            raise ValueError(f"require must be given as effective_n=200,width=0.1, got {part!r}") from None
    return found


def _check_grid(name: str, x: Any) -> None:
    from caliope._audit._about import grid_names

    grid_names(parse_grid(x))


def parse_grid(given: Any) -> dict[str, Any]:
    """Two factors and their numbers of levels: a table of a study file, or text of an option.

    >>> parse_grid("price:3, colour:2")
    {'price': 3, 'colour': 2}
    """
    if not isinstance(given, str):
        return dict(given)
    found = {}
    for part in given.split(","):
        name, _, levels = (x.strip() for x in part.rpartition(":"))
        if not name or not levels.isdecimal():
            raise ValueError(f"action_grid must be given as price:3,colour:2, got {part!r}")
        found[name] = int(levels)
    return found


def _choice(*words: str) -> Kind:
    def check(name: str, x: Any) -> None:
        _require(x in words, name, " or ".join(filter(None, [", ".join(words[:-1]), words[-1]])), x)

    return Kind("|".join(words), check)


COLUMN = Kind("COLUMN", _check_text, "column {!r}".format)
COLUMNS = Kind("COLUMNS", _check_names, list_names)
PROPENSITY = Kind("COLUMN(S)", _check_names, lambda x: f"column {x[0]!r}" if len(x) == 1 else list_names(x))
NAMES = Kind("NAMES", _check_names, list_names)
WORD = Kind("WORD", _check_text)
TEXT = Kind("TEXT", _check_text)
GRID = Kind("NAME:N,NAME:N", _check_grid)
ENDED = Kind("all|COLUMN", _check_text)
LEARNT_ON = Kind("no|COLUMN", _check_text)
RECORDED = Kind("all|COLUMNS", _check_names, list_names)
STRATA = Kind("COLUMN[:LIMITS]", _check_text)
EPISODE = Kind("COLUMN|row", _check_text, lambda x: "each row" if x == ROW else f"column {x!r}")
CUTS = Kind("POINTS", _check_cuts, str)
FILES = Kind("FILES", _check_files, lambda x: x if isinstance(x, str) else ", ".join(x))
FILE = Kind("FILE", _check_text)
PAGE = Kind("FILE.html", _check_text)
OBJECT = Kind("MODULE:OBJECT", _check_text)
SHARE = Kind("SHARE", _check_share, "{:.4g}".format, float)
GAMMA = Kind("NUMBER", _check_gamma, "{:.4g}".format, float)
LEVEL = Kind("NUMBER", _check_level, "{:.4g}".format, float)
NUMBER = Kind("NUMBER", _check_number, "{:.6g}".format, float)
FLAG = Kind(None, _check_flag, flag=True)
REQUIRE = Kind("NAME=NUMBER,...", _check_require)
FAIL_ON = _choice("issue", "caution", "never")
ENGINE = _choice("local", "dask")
ADDRESS = Kind("ADDRESS", _check_text)
