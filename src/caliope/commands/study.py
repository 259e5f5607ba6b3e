"""A study: which log, which columns, which policy, and how; from options, from a TOML file, or from both."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

TARGETS = ("target_columns", "recommended", "model", "policy")
_PATHS = ("log", "model", "out")  # in a file they start from its folder


@dataclass(frozen=True)
class Study:
    """What is to be evaluated; what is None or empty is chosen from the log, and said."""

    log: str
    episode: str = "episode"
    action: str = "action"
    reward: str = "reward"
    states: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    time: str | None = None
    terminated: str | None = None
    target_columns: tuple[str, ...] = ()
    recommended: str | None = None
    model: str | None = None
    policy: str | None = None
    soften: float | None = None
    trust_trees: bool = False
    gamma: float = 1.0
    propensity: str | None = None
    by: str | None = None
    n_actions: int | None = None
    models: tuple[str, ...] = ()
    level: float = 0.95
    draws: int = 1000
    fit_steps: int = 10_000
    seed: int = 0
    out: str | None = None


def study_from(source: str, given: Mapping[str, Any], *, needs_target: bool) -> Study:
    """A study from the first argument, a log or a study file, and the options that were given.

    Options win over the file. All mistakes are told at once.
    """
    options = {name: x for name, x in given.items() if x is not None}
    if not source.lower().endswith(".toml"):
        return _checked({"log": source} | options, "the options have", needs_target)
    values = _read(Path(source))
    if needs_target and any(name in options for name in TARGETS):
        # Another policy: neither softened like that of the file, nor trusted like it.
        values = {name: x for name, x in values.items() if name not in (*TARGETS, "soften", "trust_trees")}
    return _checked(values | options, f"{source} has", needs_target)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is no TOML file: {error}. Write lines such as log = 'stays.parquet'."
        ) from None
    values = {name.replace("-", "_"): x for name, x in found.items()}
    for name in _PATHS:
        if isinstance(values.get(name), str):
            values[name] = str(path.parent / values[name])
    return values


def _checked(values: dict[str, Any], whose: str, needs_target: bool) -> Study:
    mistakes = [*_unknown(values), *_unfit(values), *_contradictions(values, needs_target)]
    if mistakes:
        several = f"{len(mistakes)} mistakes" if len(mistakes) > 1 else "a mistake"
        raise ValueError(f"{whose} {several}: {'; '.join(mistakes)}.")
    lists = {name: names_in(x) for name, x in values.items() if name in _LISTS}
    return Study(**(values | lists))


def names_in(given: Any) -> tuple[str, ...]:
    """Names from a list or from text with commas; ``p0..p24`` stands for all from the first to the last.

    >>> names_in("sofa, p0..p2")
    ('sofa', 'p0', 'p1', 'p2')
    """
    parts = given.split(",") if isinstance(given, str) else given
    return tuple(name for part in parts for name in _range(part.strip()) if name)


def _range(part: str) -> list[str]:
    first, dots, last = part.partition("..")
    stem = first.rstrip("0123456789")
    if not dots or not last.startswith(stem):
        return [part]
    ends = first[len(stem) :], last[len(stem) :]
    if not all(end.isdecimal() for end in ends):
        return [part]
    return [f"{stem}{i}" for i in range(int(ends[0]), min(int(ends[1]), int(ends[0]) + 100_000) + 1)]


def _unknown(values: Mapping[str, Any]) -> list[str]:
    known = [field.name for field in fields(Study)]
    found = []
    for name in values:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            found.append(f"{name!r} is no setting" + (f" (did you mean {close[0]!r}?)" if close else ""))
    return found


def _text(x: Any) -> bool:
    return isinstance(x, str) and bool(x.strip())


def _texts(x: Any) -> bool:
    several = isinstance(x, list | tuple) and all(map(_text, x))
    return (_text(x) or several) and bool(names_in(x))  # a comma names nothing, nor does p2..p0


def _whole(low: int, high: int) -> tuple[Callable[[Any], bool], str]:
    def fits(x: Any) -> bool:
        return isinstance(x, int) and not isinstance(x, bool) and low <= x <= high

    return fits, f"must be a whole number from {low} to {high}"


def _number(fits: Callable[[float], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, int | float) and not isinstance(x, bool) and fits(x)


_LISTS = ("states", "ignore", "target_columns", "models")
_TEXT = (_text, "must be text")
_NEEDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("log", "episode", "action", "reward", "time", "terminated", "recommended"), _TEXT),
    **dict.fromkeys(("model", "policy", "propensity", "by", "out"), _TEXT),
    **dict.fromkeys(_LISTS, (_texts, "must be a list of names")),
    "soften": (_number(lambda x: 0 < x < 1), "must be a number between 0 and 1"),
    "gamma": (_number(lambda x: 0 <= x <= 1), "must be a number from 0 to 1"),
    "level": (_number(lambda x: 0.5 <= x < 1), "must be a number from 0.5 to below 1"),
    "draws": _whole(20, 1_000_000),
    "fit_steps": _whole(100, 10**12),
    "n_actions": _whole(1, 10_000),  # every decision has a probability of each
    "seed": _whole(0, 2**32 - 1),  # what scikit-learn takes
    "trust_trees": (lambda x: isinstance(x, bool), "must be true or false"),
}


def _unfit(values: Mapping[str, Any]) -> list[str]:
    needs = ((name, x, *_NEEDS[name]) for name, x in values.items() if name in _NEEDS)
    return [f"{name} {needed}, got {x!r}" for name, x, fits, needed in needs if not fits(x)]


def _repeated(values: Mapping[str, Any]) -> list[str]:
    """Names that stand twice in a list, or both among the states and among what is to be ignored."""
    lists = {name: names_in(values[name]) for name in _LISTS if name in values and _texts(values[name])}
    found = []
    for name, names in lists.items():
        twice = [x for x in dict.fromkeys(names) if names.count(x) > 1]
        if twice:
            found.append(f"{name} names {', '.join(map(repr, twice[:5]))} twice")
    both = [x for x in lists.get("states", ()) if x in lists.get("ignore", ())]
    if both:
        found.append(f"{', '.join(map(repr, both[:5]))} cannot be both a state and ignored")
    return found


def _contradictions(values: Mapping[str, Any], needs_target: bool) -> list[str]:
    found = []
    if "log" not in values:
        found.append("log is missing: name the table, e.g. log = 'stays.parquet'")
    targets = [name for name in TARGETS if name in values]
    if needs_target and len(targets) != 1:
        choice = "target_columns, recommended, model or policy"
        said = f"both {' and '.join(targets)} are given" if targets else "the new policy is missing"
        found.append(f"{said}: give one of {choice}")
    if needs_target and "soften" in values and "propensity" in values:
        found.append(
            "soften needs practice's probabilities of all actions and propensity holds those of the actions taken: "
            "give one of the two"
        )
    found += _repeated(values)
    given, columns = values.get("n_actions"), values.get("target_columns")
    if given is not None and _texts(columns) and given != len(names_in(columns)):
        found.append(
            f"n_actions is {given}, but target_columns names {len(names_in(columns))} columns, one an action"
        )
    if str(values.get("out", ".html")).lower().rsplit(".", 1)[-1] not in ("html", "htm"):
        found.append(f"out must end in .html, got {values['out']!r}")
    return found
