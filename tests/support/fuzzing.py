"""Damaged tables: a small log whose answer is known, how it is written down, and what may come of it.

A ``Table`` is a frame, the options that name its columns, and a way to write it. A ``Damage`` changes any of the three
and says what must come of it:

``same``       harmless: every estimate and interval is that of the undamaged table, to 1e-9
``reordered``  harmless, but episodes fall into other folds: what needs no folds is the same, to 1e-9
``right``      the numbers that need no folds are those of plain loops over the damaged table, or it is refused; where
               the loops find no number, it must be refused
``visible``    as right, and evaluate tells a finding that the undamaged table does not have
``refused``    no number may come of it
``any``        nothing is known of the numbers

Always: a number with exit code 0 or 3, or one line and exit code 2.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from click.testing import CliRunner

from caliope.cli import main
from caliope.domains import ward

PATIENTS, HOURS, EVERY = 24, 12, 4
BASES = 5  # different logs to damage
_SHARP = 64  # probabilities are multiples of 1 / 64: exact in float32, and in six decimals

COLUMNS = {
    "--episode": "patient",
    "--time": "hour",
    "--action": "dose",
    "--reward": "alive",
    "--states": "severity,age",
}
# What is asked of the log; the first is asked of most.
REQUESTS: Mapping[str, Mapping[str, str]] = {
    "logged": COLUMNS | {"--target-columns": "p0..p2", "--propensity": "b"},
    "fitted": COLUMNS | {"--target-columns": "p0..p2"},
    "advice": COLUMNS | {"--recommended": "advice", "--propensity": "b"},
    "softened": COLUMNS | {"--recommended": "advice", "--soften": "0.75"},
    "calibrate": COLUMNS,
}
FAST = ("--models", "neighbours", "--quiet", "--json")

Write = Callable[[pl.DataFrame, Path], Path]


def as_parquet(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_parquet(folder / "log.parquet")
    return folder / "log.parquet"


def as_csv(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_csv(folder / "log.csv")
    return folder / "log.csv"


@dataclass(frozen=True)
class Table:
    """A log, the options that name its columns, and how it is written down."""

    frame: pl.DataFrame
    options: Mapping[str, str]
    command: str = "evaluate"
    write: Write = as_parquet
    readable: bool = True  # whether the frame still tells what is in the file
    in_study: bool = False  # whether a study file says what the options say

    def named(self, option: str) -> str:
        """The column that an option names; one that is not there if it does not."""
        return self.options.get(option, "")

    @property
    def used(self) -> list[str]:
        """Columns of the frame that the options name, each once."""
        names = [*self.options.values(), *self.named("--states").split(",")]
        names += ["p0", "p1", "p2"] * (self.named("--target-columns") == "p0..p2")
        return [name for name in dict.fromkeys(names) if name in self.frame.columns]

    def having(self, frame: pl.DataFrame, **options: str) -> Table:
        """The same with another frame, and other options."""
        return replace(
            self, frame=frame, options={**self.options, **{f"--{k}": x for k, x in options.items()}}
        )


@dataclass(frozen=True)
class Damage:
    """Something that happens to a table, and what must come of it."""

    name: str
    change: Callable[[Table, np.random.Generator], Table]
    expected: str


def _sharp(policy: Any) -> Any:
    """Probabilities rounded to multiples of 1 / 64, none of them 0, that sum to 1."""
    rounded = np.maximum(np.round(policy * _SHARP), 1)
    rounded[:, 0] += _SHARP - rounded.sum(axis=1)
    return rounded / _SHARP


@cache
def base_frame(seed: int) -> pl.DataFrame:
    """Some patients of the ward, with the probabilities of those who acted and of two new policies."""
    practice, wanted = _sharp(ward.PRACTICE), _sharp(ward.EARLIER)
    data = ward.WARD.simulate(practice, PATIENTS, rng=seed)
    severity, owner = data.states[:, 0].astype(int), data.layout.owner
    # Recommended is what was done in three of four decisions, so that some trajectories agree with the advice.
    other = np.random.default_rng(seed).random(data.n_steps) < 0.25
    age = np.random.default_rng(seed + 1000).integers(20 * 16, 90 * 16, PATIENTS) / 16
    return pl.DataFrame(
        {
            "patient": 100 + 7 * owner,
            "hour": EVERY * data.layout.time,
            "severity": severity,
            "age": age[owner] + data.layout.time / 16,
            "dose": data.actions,
            "alive": data.rewards,
            "b": practice[severity, data.actions],
            "advice": np.where(other, (data.actions + 1) % 3, data.actions),
            "unit": np.where(owner % 2, "north", "south"),
            **{f"p{a}": wanted[severity, a] for a in range(3)},
        }
    ).filter(pl.col("hour") < HOURS)


def base_table(seed: int, request: str = "logged") -> Table:
    """The undamaged table."""
    command = "calibrate" if request == "calibrate" else "evaluate"
    return Table(base_frame(seed % BASES), REQUESTS[request], command)


# -- what the command makes of it --


@dataclass(frozen=True)
class Outcome:
    """What a command answered: numbers by name, or an error; and what is wrong with the answer itself."""

    numbers: Mapping[str, float | None] | None
    verdict: str = ""
    codes: frozenset[str] = frozenset()
    said: str = ""
    fault: str = ""


def run(arguments: list[str], command: str) -> Outcome:
    """Call the command, and look at the form of its answer."""
    result = CliRunner().invoke(main, [command, *arguments], prog_name="caliope")
    said = result.stderr.strip()
    if result.exit_code == 2:
        return Outcome(None, said=said, fault=_fault_of_error(result))
    if result.exit_code not in (0, 3):
        return Outcome(None, fault=f"exit code {result.exit_code}: {result.exception!r} {said[-300:]}")
    try:
        found = json.loads(result.stdout)
    except ValueError:
        return Outcome(None, fault=f"no JSON: {result.stdout[:200]!r}")
    return _evaluated(found, result.exit_code, said) if command == "evaluate" else _calibrated(found, said)


def _fault_of_error(result: Any) -> str:
    said = result.stderr
    for fault, wrong in {
        "something on the standard output": result.stdout != "",
        "not one line": said.count("\n") != 1 or "\r" in said,
        "no error": not said.startswith("Error: ") or len(said) < 30,
        "a traceback": "Traceback" in said,
        "not foreseen": "This is unexpected" in said,
        "a long line": len(said) > 2000,
    }.items():
        if wrong:
            return f"{fault}: {said[:300]!r}"
    return ""


def _evaluated(found: Mapping[str, Any], code: int, said: str) -> Outcome:
    rows = found["estimates"]["rows"]
    numbers = {row["name"]: row["value"] for row in rows}
    numbers |= {
        f"{row['name']} {end}": (row["interval"] or {}).get(end) for row in rows for end in ("low", "high")
    }
    codes = frozenset(finding["code"] for finding in found["headline"]["findings"])
    verdict, fault = found["verdict"], ""
    if code != (3 if verdict == "do not trust" else 0):
        fault = f"exit code {code} for {verdict!r}"
    if found["headline"]["value"] is None and verdict != "do not trust":
        fault = f"no number, and yet {verdict!r}"
    if said:
        fault = f"beside the answer: {said[:300]!r}"
    return Outcome(numbers, verdict, codes, said, fault)


def _calibrated(found: Mapping[str, Any], said: str) -> Outcome:
    numbers = {
        f"{row['model']}, {row['stratum']}: {name}": x
        for row in found["rows"]
        for name, x in row.items()
        if isinstance(x, int | float) or x is None
    }
    codes = frozenset(finding["code"] for row in found["rows"] for finding in row.get("findings", ()))
    return Outcome(
        numbers, codes=codes, said=said, fault=f"beside the answer: {said[:300]!r}" if said else ""
    )


def outcome(table: Table, folder: Path) -> Outcome:
    """Write a table and put it to its command."""
    path = table.write(table.frame, folder)
    options = [] if table.in_study else [part for pair in table.options.items() for part in pair]
    draws = ["--draws", "20"] if table.command == "evaluate" else []
    return run([str(path), *FAST, *draws, *options], table.command)


# -- what would be right --


def right_numbers(table: Table) -> dict[str, float] | None:
    """Current practice and weighted importance sampling by plain loops; None where the table gives no numbers.

    In fractions, so that nothing is rounded and nothing overflows.
    """
    try:
        episodes = _episodes(table)
    except (TypeError, ValueError, KeyError, IndexError):
        return None
    returns = [sum(r for _, r, _ in steps) for steps in episodes]
    found = {"monte_carlo": float(sum(returns) / len(returns))}
    if "--propensity" in table.options and table.command == "evaluate":
        weights = [math.prod(ratio for _, _, ratio in steps) for steps in episodes]
        total = sum(weights)
        found["wis"] = (
            float(sum(w * g for w, g in zip(weights, returns, strict=True)) / total) if total else math.nan
        )
        found["step_wis"] = _step_wis(episodes)
    return found


def _step_wis(episodes: list[list[tuple[Any, Fraction, Fraction]]]) -> float:
    value = 0.0
    for t in range(max(map(len, episodes))):
        weights = [math.prod(ratio for _, _, ratio in steps[: t + 1]) for steps in episodes]
        rewards = [steps[t][1] if t < len(steps) else 0 for steps in episodes]
        total = sum(weights)
        value += (
            float(sum(w * r for w, r in zip(weights, rewards, strict=True)) / total) if total else math.nan
        )
    return value


def _episodes(table: Table) -> list[list[tuple[Any, Fraction, Fraction]]]:
    """Time, reward and ratio of every decision, by episode and in the order of time; raise where there is none."""
    found: dict[Any, list[tuple[Any, Fraction, Fraction]]] = {}
    for row in table.frame.iter_rows(named=True):
        for name in table.named("--states").split(","):
            _state(row[name])
        who, when = row[table.named("--episode")], _moment(row[table.named("--time")])
        if who is None or who == "" or who != who:
            raise ValueError("no episode")
        found.setdefault(who, []).append((when, _finite(row[table.named("--reward")]), _ratio(table, row)))
    if not found:
        raise ValueError("no rows")
    for steps in found.values():
        steps.sort(key=lambda step: step[0])
        if any(a[0] == b[0] for a, b in pairwise(steps)):
            raise ValueError("two decisions at the same time")
    return list(found.values())


def _ratio(table: Table, row: Mapping[str, Any]) -> Fraction:
    action = _whole(row[table.named("--action")])
    if table.command == "calibrate":
        return Fraction(1)
    if "--recommended" in table.options:
        wanted = Fraction(_whole(row[table.named("--recommended")]) == action)
    else:
        chances = [_finite(row[name]) for name in ("p0", "p1", "p2")]
        if abs(sum(chances) - 100) <= 1e-4:  # in percent
            chances = [chance / 100 for chance in chances]
        if min(chances) < 0 or abs(sum(chances) - 1) > 1e-6:
            raise ValueError("no probabilities")
        wanted = chances[action]
    if "--propensity" not in table.options:
        return Fraction(1)
    taken = _finite(row[table.named("--propensity")])
    if not 0 < taken <= 1:
        raise ValueError("no probability")
    return wanted / taken


def _finite(x: Any) -> Fraction:
    if type(x) is int:
        return Fraction(x)  # past 2**53 a float would be another number
    truth = {"true": 1.0, "false": 0.0}  # what CSV files have for booleans
    number = truth[x.lower()] if isinstance(x, str) and x.lower() in truth else float(x)
    if not math.isfinite(number):
        raise ValueError("not finite")
    return Fraction(number)


def _state(x: Any) -> None:
    """Words and gaps are states too; what is infinite or nested is none."""
    if isinstance(x, float) and math.isinf(x):
        raise ValueError("not finite")
    if not isinstance(x, str | int | float | Decimal | None):
        raise TypeError("no state")


def _whole(x: Any) -> int:
    number = _finite(x)
    if number < 0 or number != int(number):
        raise ValueError("not a whole number from 0")
    return int(number)


def _moment(x: Any) -> Any:
    if x is None or x == "":
        raise ValueError("no time")
    try:
        return _finite(x)
    except (TypeError, ValueError):
        if isinstance(x, float):
            raise
        return x


# -- whether it came --


def close(found: float | None, wanted: float | None) -> bool:
    """Whether two numbers are the same but for rounding, or both are none."""
    if found is None or wanted is None or math.isnan(wanted):
        return found is None and (wanted is None or math.isnan(wanted))
    return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-12 * min(1.0, abs(wanted)) + 1e-300)


def strictest(expectations: list[str]) -> str:
    """What must come of several damages together."""
    order = (
        "refused",
        "any",
        "right",
        "visible",
        "reordered",
        "same",
    )  # of two, one may undo what the other shows
    return min(expectations, key=order.index)


def fault_of(table: Table, came: Outcome, expected: str, before: Outcome) -> str:
    """What is wrong with an outcome; empty where nothing is."""
    if came.fault:
        return came.fault
    if came.numbers is None:
        return f"refused, but harmless: {came.said}" if expected in ("same", "reordered") else ""
    if expected == "refused":
        return f"accepted: {dict(list(came.numbers.items())[:4])}"
    if expected == "same":
        return _differences(came.numbers, before.numbers or {}, before.numbers or {})
    if expected == "any" or not table.readable:
        return ""
    wanted = right_numbers(table)
    if wanted is None:
        return f"there is no number, but it says {came.numbers.get('monte_carlo')}"
    if table.command == "calibrate":  # who acted, and nothing of what came of it
        return ""
    fault = _differences(came.numbers, wanted, wanted)
    if not fault and expected == "visible" and not came.codes - before.codes:
        fault = f"nobody is told: {sorted(came.codes)}"
    return fault


def _differences(found: Mapping[str, Any], wanted: Mapping[str, Any], names: Mapping[str, Any]) -> str:
    odd = [name for name in names if name not in found or not close(found[name], wanted[name])]
    return "; ".join(f"{name} is {found.get(name)}, not {wanted[name]}" for name in odd[:3])
