"""Honesty and power of the verdicts on the public default path: families of logs that are right, or wrong in one way.

The gate (:mod:`reproduction.gate`) varies overlap and model on a few processes. Here every log goes through
``caliope.audit`` as a user calls it, with its default models. Honesty and power are reported apart: of faulty logs,
how many intervals are trusted and wrong; of right ones, how many are trusted, and how many of these cover.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from caliope._audit import audit
from caliope._audit._result import GAIN, HEADLINE
from reproduction._families import FAMILIES, HIDDEN, RIGHT, SHOWN, UNSEEN, Family
from reproduction._report import Report, ReportTable
from reproduction._runs import Unit

NAME, TITLE = "honesty", "Honesty and power: is trust right outside the gate's grid?"
GOALS = "Against the targets"
FAULTS, POWER, CONDITIONS = "Faults that a log shows", "Right logs", "Faults that no log shows"
CODES = "What stood between right logs and trust"
WRONG, TRUSTED, COVERED = 0.05, 0.85, 0.93  # the targets
CHOOSING = 1000  # seeds from here on are for choosing, and not in any report
_QUANTITIES = {HEADLINE: "value", GAIN: "difference"}
_EVERY = {**FAMILIES, **UNSEEN}


@dataclass(frozen=True)
class Config:
    """Families, replicates and draws."""

    families: tuple[str, ...] = tuple(FAMILIES)
    replicates: int = 10
    n_draws: int = 400
    first_seed: int = 0

    def longer(self, times: int) -> Config:
        """Multiply the replicates; those of the shorter run are among them."""
        return replace(self, replicates=times * self.replicates)


SMOKE = Config(("single decisions", "habits"), 2, 60)
DEFAULT = Config()
FULL = Config(tuple(_EVERY))


def units(config: Config) -> list[Unit]:
    """One unit per family and replicate; all families of a replicate come before the next."""
    return [
        Unit(_key(name, seed), one_log, {"family": name, "seed": seed, "n_draws": config.n_draws})
        for seed in _seeds(config)
        for name in config.families
    ]


def _seeds(config: Config) -> range:
    return range(config.first_seed, config.first_seed + config.replicates)


def _key(name: str, seed: int) -> str:
    return f"{name.replace(', ', '-').replace(' ', '-')}-seed{seed}"


def one_log(family: str, seed: int, n_draws: int) -> dict[str, Any]:
    """Log a family once, and audit its question as a user would."""
    where = _EVERY[family]
    data = where.log(seed)
    found = audit(data, n_draws=n_draws, rng=seed, **where.settings(data))
    truth = {HEADLINE: where.value(new=True), GAIN: where.value(new=True) - where.value(new=False)}
    rows = {}
    for name, true in truth.items():
        row = found.table[name]
        codes = sorted({f"{x.code} {x.level}" for x in row.findings if x.level != "note"})
        rows[name] = {
            "truth": true,
            "value": row.value,
            "low": row.interval.low,
            "high": row.interval.high,
            "verdict": row.verdict,
            "condition": row.condition,
            "codes": codes,
        }
    return {"rows": rows, "behaviour": found.settings.behaviour}


@dataclass(frozen=True, eq=False)
class Outcome:
    """All intervals of one quantity in one family."""

    family: Family
    quantity: str
    rows: Sequence[Mapping[str, Any]]

    @property
    def trusted(self) -> list[bool]:
        """Of each interval, whether it is marked trust."""
        return [row["verdict"] == "trust" for row in self.rows]

    @property
    def covers(self) -> list[bool]:
        """Of each interval, whether it holds the truth; a missing one does not."""
        return [row["low"] is not None and row["low"] <= row["truth"] <= row["high"] for row in self.rows]

    @property
    def wrong(self) -> int:
        """Intervals that are trusted and do not cover."""
        return sum(t and not c for t, c in zip(self.trusted, self.covers, strict=True))

    @property
    def right(self) -> int:
        """Intervals that are trusted and cover."""
        return sum(t and c for t, c in zip(self.trusted, self.covers, strict=True))


def limits(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Exact confidence limits of a share (Clopper & Pearson 1934)."""
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else float(special.betaincinv(hits, n - hits + 1, tail))
    high = 1.0 if hits == n else float(special.betaincinv(hits + 1, n - hits, 1 - tail))
    return low, high


def collect(config: Config, results: Mapping[str, Any]) -> list[Outcome]:
    """Intervals by family and quantity."""
    return [
        Outcome(_EVERY[name], quantity, [results[_key(name, seed)]["rows"][row] for seed in _seeds(config)])
        for name in config.families
        for row, quantity in _QUANTITIES.items()
    ]


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Honesty, power and conditions by family, with confidence limits."""
    found = collect(config, results)
    parts = {kind: [x for x in found if x.family.kind == kind] for kind in (SHOWN, RIGHT, HIDDEN)}
    goals = _goals(parts)
    tables = [
        ReportTable(GOALS, _GOAL_COLUMNS, tuple(goals), _note(config)),
        ReportTable(FAULTS, _FAULT_COLUMNS, tuple(_fault_row(x) for x in parts[SHOWN]), _FAULT_NOTE),
        ReportTable(POWER, _POWER_COLUMNS, tuple(_power_row(x) for x in parts[RIGHT])),
        ReportTable(
            CONDITIONS, _CONDITION_COLUMNS, tuple(_condition_row(x) for x in parts[HIDDEN]), _HIDDEN_NOTE
        ),
        ReportTable(CODES, ("finding", "intervals", "cover"), tuple(_code_rows(parts[RIGHT]))),
    ]
    kept = [table for table in tables if table.rows]
    return Report(NAME, TITLE, tuple(kept), tuple(_findings(parts)), vars(config))


_GOAL_COLUMNS = (
    "target",
    "families",
    "intervals",
    "share",
    "low",
    "high",
    "worst family",
    "met by each family",
)


def _goals(parts: Mapping[str, Sequence[Outcome]]) -> list[tuple[Any, ...]]:
    goals = []
    if shown := parts[SHOWN]:
        worst = max(shown, key=lambda x: x.wrong / len(x.rows))
        total, wrong = sum(len(x.rows) for x in shown), sum(x.wrong for x in shown)
        met = all(x.wrong <= WRONG * len(x.rows) for x in shown)
        text = f"a fault that the log shows: at most {WRONG:.0%} trusted and wrong"
        goals.append(
            (text, len(shown) // 2, total, wrong / total, *limits(wrong, total), _name(worst), _yes(met))
        )
    if right := parts[RIGHT]:
        worst = min(right, key=lambda x: sum(x.trusted) / len(x.rows))
        total, trusted = sum(len(x.rows) for x in right), sum(sum(x.trusted) for x in right)
        met = all(sum(x.trusted) >= TRUSTED * len(x.rows) for x in right)
        text = f"right logs: at least {TRUSTED:.0%} trusted"
        goals.append(
            (text, len(right) // 2, total, trusted / total, *limits(trusted, total), _name(worst), _yes(met))
        )
        covered = [x for x in right if sum(x.trusted)]
        hits = sum(x.right for x in covered)
        if covered:
            worst = min(covered, key=lambda x: x.right / sum(x.trusted))
            met = all(x.right >= COVERED * sum(x.trusted) for x in covered)
            text = f"right logs: at least {COVERED:.0%} of the trusted cover"
            goals.append(
                (
                    text,
                    len(covered) // 2,
                    trusted,
                    hits / trusted,
                    *limits(hits, trusted),
                    _name(worst),
                    _yes(met),
                )
            )
    return goals


def _name(outcome: Outcome) -> str:
    return f"{outcome.family.name}, {outcome.quantity}"


def _yes(met: bool) -> str:
    return "yes" if met else "no"


_FAULT_COLUMNS = (
    "family", "interval of", "logs", "cover", "trust", "caution", "do not trust", "trusted and wrong", "high",
)  # fmt: skip
_FAULT_NOTE = (
    "'high': upper 95% confidence limit (Clopper and Pearson) of the share that is trusted and wrong."
)


def _fault_row(x: Outcome) -> tuple[Any, ...]:
    n = len(x.rows)
    verdicts = Counter(row["verdict"] for row in x.rows)
    shares = [verdicts[verdict] / n for verdict in ("trust", "caution", "do not trust")]
    return (
        x.family.name,
        x.quantity,
        n,
        float(np.mean(x.covers)),
        *shares,
        x.wrong / n,
        limits(x.wrong, n)[1],
    )


_POWER_COLUMNS = (
    "family",
    "interval of",
    "logs",
    "cover",
    "trust",
    "low",
    "high",
    "trusted that cover",
    "low ",
    "high ",
)


def _power_row(x: Outcome) -> tuple[Any, ...]:
    n, trusted = len(x.rows), sum(x.trusted)
    covered = (x.right / trusted, *limits(x.right, trusted)) if trusted else (None, None, None)
    return (
        x.family.name, x.quantity, n, float(np.mean(x.covers)), trusted / n, *limits(trusted, n), *covered,
    )  # fmt: skip


_CONDITION_COLUMNS = (
    "family", "interval of", "logs", "cover", "trust", "of these with a condition", "that names the fault",
)  # fmt: skip
_HIDDEN_NOTE = (
    "No check of a log can find what is not in it. So trust is never printed without its condition, and the condition "
    "that fails in the family must be among those printed."
)


def _condition_row(x: Outcome) -> tuple[Any, ...]:
    given = [row["condition"] for row in x.rows if row["verdict"] == "trust"]
    stated = float(np.mean([bool(text) for text in given])) if given else None
    named = float(np.mean([x.family.claim in text for text in given])) if given else None
    return (
        x.family.name,
        x.quantity,
        len(x.rows),
        float(np.mean(x.covers)),
        float(np.mean(x.trusted)),
        stated,
        named,
    )


def _code_rows(these: Sequence[Outcome]) -> list[tuple[Any, ...]]:
    rows = [
        (code, covers)
        for x in these
        for row, covers in zip(x.rows, x.covers, strict=True)
        for code in row["codes"]
    ]
    return [
        (code, times, float(np.mean([covers for other, covers in rows if other == code])))
        for code, times in sorted(Counter(code for code, _ in rows).items())
    ]


def _note(config: Config) -> str:
    unseen = [name for name in config.families if name in UNSEEN]
    text = (
        f"{config.replicates} logs of each family, audited with the default models and truthful answers; 95% "
        f"intervals, {config.n_draws} draws. Values of 400,000 simulated courses. Limits: 95%, Clopper and Pearson."
    )
    return text + (f" Nothing was chosen on these families: {', '.join(unseen)}." if unseen else "")


def _findings(parts: Mapping[str, Sequence[Outcome]]) -> list[str]:
    findings = []
    if shown := parts[SHOWN]:
        trusted = sum(sum(x.trusted) for x in shown)
        findings.append(
            f"Of {sum(len(x.rows) for x in shown)} intervals of logs with a fault that the log shows, {trusted} are "
            f"trusted and {sum(x.wrong for x in shown)} are trusted and wrong."
        )
    if right := parts[RIGHT]:
        total, trusted = sum(len(x.rows) for x in right), sum(sum(x.trusted) for x in right)
        covered = f"; {sum(x.right for x in right) / trusted:.1%} of these cover" if trusted else ""
        findings.append(f"Of {total} intervals of right logs, {trusted / total:.1%} are trusted{covered}.")
    return findings


def figure(found: Report) -> Any:
    """Share of trusted intervals by family, right ones and faulty ones."""
    from caliope.plots import COLOURS, panels, points

    drawing, axes = panels(1, 1, width=6.0)
    axis = axes[0][0]
    names: list[str] = []
    for colour, title in zip(COLOURS, (POWER, FAULTS), strict=False):
        rows: list[dict[str, Any]] = [
            row for table in found.tables if table.title == title for row in table.records()
        ]
        rows = [row for row in rows if row["interval of"] == "value"]
        places = [len(names) + i for i in range(len(rows))]
        names += [str(row["family"]) for row in rows]
        if rows:
            points([row["trust"] for row in rows], places, axis, label=title, colour=colour)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set(xlabel="share of the intervals of the value that are trusted", xlim=(-0.02, 1.02))
    axis.legend(fontsize=7, frameon=False)
    return drawing
