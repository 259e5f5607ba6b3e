"""The report of the gate: coverage by verdict, what stood between an interval and trust, and its figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from caliope._audit import GAIN, HEADLINE, LOGGED as TRUTH
from reproduction._report import Report, ReportTable
from reproduction.gate import NAME, Config, Scenario, collect

TITLE = "The gate: are the verdicts of an audit honest?"
GOALS, VERDICTS = "The gate against its targets", "Coverage by verdict"
WHERE = "Coverage and verdicts by what the scenario is"
OBSTACLES = "What stood between an interval and trust"
CONFOUNDED, SCENARIOS = "An unmeasured confounder", "Every scenario"
COVERED, REFUSED = 0.93, 0.97  # of the intervals marked trust; of the scenarios that cover under BROKEN
MANY = 100  # trusted intervals, from which a process is judged by itself
BROKEN, GOOD = 0.8, 0.9  # coverage of a scenario
VALUE, FITTED, KNOWN = "value", "value, fitted", "value, logged"
DIFFERENCE, OTHERS = "difference from practice", "other estimators"
FAMILIES = "Trusted intervals by process"
POWER = {FITTED: 0.5, KNOWN: 0.65}  # of the intervals of scenarios that cover GOOD or more: marked trust


def make_report(config: Config, results: Mapping[str, Any]) -> Report:
    """Coverage by verdict and by kind of scenario, the obstacles to trust, and what no check can see."""
    found = collect(config, results)
    # The true probabilities know what the log does not.
    confounded = [x for x in found if "hidden" in x.process]
    others = [x for x in found if "hidden" not in x.process]
    of = {
        VALUE: [x for x in others if x.quantity == HEADLINE],
        FITTED: [x for x in others if x.quantity == HEADLINE and x.model != TRUTH],
        KNOWN: [x for x in others if x.quantity == HEADLINE and x.model == TRUTH],
        DIFFERENCE: [x for x in others if x.quantity == GAIN],
        OTHERS: [x for x in others if x.quantity not in (HEADLINE, GAIN)],
    }
    goals = [_goal_row(name, these) for name, these in of.items() if these]
    verdicts = tuple(row for name, these in of.items() if these for row in _verdict_rows(name, these))
    tables = [
        ReportTable(GOALS, _GOAL_COLUMNS, tuple(goals), _note(config)),
        ReportTable(VERDICTS, _VERDICT_COLUMNS, verdicts),
        ReportTable(FAMILIES, _FAMILY_COLUMNS, tuple(_family_rows(of)), _FAMILY_NOTE),
        ReportTable(WHERE, _WHERE_COLUMNS, tuple(_where_rows(of[VALUE])), "Intervals of the value."),
        ReportTable(OBSTACLES, _CODE_COLUMNS, tuple(_code_rows(of[VALUE])), _CODE_NOTE),
        ReportTable(SCENARIOS, _SCENARIO_COLUMNS, tuple(x.row() for x in found), detail=True),
    ]
    if confounded:
        rows = tuple(_verdict_rows(VALUE, [x for x in confounded if x.quantity == HEADLINE]))
        tables.insert(5, ReportTable(CONFOUNDED, _VERDICT_COLUMNS, rows, _CONFOUNDED_NOTE))
    return Report(NAME, TITLE, tuple(tables), tuple(_findings(goals, confounded)), vars(config))


_GOAL_COLUMNS = (
    "interval of", "scenarios", "intervals", "cover", "marked trust", "of these cover", "se", "met",
    "scenarios under 80%", "never trust", "of their intervals not trust", "met ",
    "scenarios at 90% or more", "of their intervals trust", "met  ",
)  # fmt: skip


def _goal_row(name: str, these: Sequence[Scenario]) -> tuple[Any, ...]:
    every = [x for scenario in these for x in scenario.intervals]
    trusted = [x.covers for x in every if x.verdict == "trust"]
    broken = [x for x in these if x.coverage < BROKEN]
    good = [x for x in these if x.coverage >= GOOD]
    covered = _mean(trusted)
    refused = _mean(y.verdict != "trust" for x in broken for y in x.intervals)
    share = _mean(y.verdict == "trust" for x in good for y in x.intervals)
    return (
        name, len(these), len(every), _mean(x.covers for x in every), len(trusted), covered, _clustered_se(these),
        _met(covered, COVERED), len(broken), _mean(x.trusted == 0 for x in broken), refused, _met(refused, REFUSED),
        len(good), share, _met(share, POWER[name]) if name in POWER else "",
    )  # fmt: skip


def _clustered_se(these: Sequence[Scenario]) -> float:
    """Standard error of the share of trusted intervals that cover, clustered by log."""
    logs: dict[tuple[Any, ...], list[bool]] = {}
    for x in these:
        for i, y in enumerate(x.intervals):
            if y.verdict == "trust":
                logs.setdefault((x.process, x.overlap, x.n, i), []).append(y.covers)
    sizes, hits = (np.array([f(v) for v in logs.values()], dtype=float) for f in (len, sum))
    if len(logs) < 2:
        return float("nan")
    return float(np.sqrt(((hits - hits.sum() / sizes.sum() * sizes) ** 2).sum()) / sizes.sum())


def _mean(values: Iterable[Any]) -> float:
    given = list(values)
    return float(np.mean(given)) if given else float("nan")


def _met(value: float, target: float) -> str:
    return "" if np.isnan(value) else "yes" if value >= target else "no"


_VERDICT_COLUMNS = ("interval of", "verdict", "intervals", "share", "cover")


def _verdict_rows(name: str, these: Sequence[Scenario]) -> list[tuple[Any, ...]]:
    every = [x for scenario in these for x in scenario.intervals]
    rows = []
    for verdict in ("trust", "caution", "do not trust"):
        part = [x.covers for x in every if x.verdict == verdict]
        rows.append((name, verdict, len(part), len(part) / len(every), _mean(part)))
    return rows


_FAMILY_COLUMNS = ("interval of", "process", "intervals", "cover", "marked trust", "of these cover", "met")
_FAMILY_NOTE = f"Coverage of a process is judged where at least {MANY} of its intervals are marked trust."


def _family_rows(of: Mapping[str, Sequence[Scenario]]) -> Iterator[tuple[Any, ...]]:
    for name in (VALUE, DIFFERENCE):
        for process in dict.fromkeys(x.process for x in of[name]):
            every = [y for x in of[name] if x.process == process for y in x.intervals]
            trusted = [y.covers for y in every if y.verdict == "trust"]
            met = _met(_mean(trusted), COVERED) if len(trusted) >= MANY else "too few"
            covers = _mean(y.covers for y in every)
            yield name, process, len(every), covers, len(trusted), _mean(trusted), met


_WHERE_COLUMNS = ("by", "which", "scenarios", "cover", "trust", "trusted that cover")


_KINDS = {
    "process": "process", "overlap": "overlap", "trajectories": "n", "practice known by": "model",
    "new policy": "policy",
}  # fmt: skip


def _where_rows(these: Sequence[Scenario]) -> list[tuple[Any, ...]]:
    rows = []
    for name, key in _KINDS.items():
        for which in dict.fromkeys(getattr(x, key) for x in these):
            part = [x for x in these if getattr(x, key) == which]
            every = [y for x in part for y in x.intervals]
            covered = _mean(y.covers for y in every if y.verdict == "trust")
            trust = _mean(y.verdict == "trust" for y in every)
            rows.append((name, str(which), len(part), _mean(y.covers for y in every), trust, covered))
    return rows


_CODE_COLUMNS = ("finding", "intervals", "cover", "alone", "alone, cover")
_CODE_NOTE = "Cautions and issues on intervals of the value; 'alone': without it the verdict would be trust."


def _code_rows(these: Sequence[Scenario]) -> list[tuple[Any, ...]]:
    every = [x for scenario in these for x in scenario.intervals]
    rows = []
    for code, times in sorted(Counter(code for x in every for code in x.codes).items()):
        alone = [x.covers for x in every if x.codes == (code,)]
        covered = _mean(x.covers for x in every if code in x.codes)
        rows.append((code, times, covered, len(alone), _mean(alone)))
    return rows


_SCENARIO_COLUMNS = (
    "process", "overlap", "trajectories", "practice known by", "new policy", "estimate", "replicates", "cover", "trust",
)  # fmt: skip


_CONFOUNDED_NOTE = (
    "The clinic whose clinicians know who is frail while the log does not. Left out of everything above: no check of a "
    "log can see what is not in it. The audit reports how strong a confounder would overturn its result."
)


_MODELS_IN_WORDS = {
    TRUTH: "the logged probabilities",
    "chosen": "what an audit chooses by default ('chosen')",
    "logistic": "logistic regression, which is misspecified here",
    "overfitted": "an overfitted one",
    "marginal": "the marginal frequencies",
}


def _note(config: Config) -> str:
    models = "; ".join(_MODELS_IN_WORDS[name] for name in config.models)
    return (
        f"95% intervals, {config.replicates} replicates of every scenario, {config.n_draws} draws each. A scenario is "
        "a process, an overlap, a number of trajectories, a behaviour model and a target policy; 'fitted': without "
        f"logged probabilities. The behaviour models: {models}. Standard "
        "errors are clustered by log. Other estimators: doubly robust and WIS with capped and with plain weights, "
        "stepwise and per-horizon forms, and fitted values alone. "
        f"Targets: {COVERED:.0%} of the intervals marked trust cover; of the "
        f"intervals in scenarios that cover under {BROKEN:.0%}, {REFUSED:.0%} are not marked trust."
    )


def _findings(goals: Sequence[tuple[Any, ...]], confounded: Sequence[Scenario]) -> list[str]:
    findings = []
    for row in goals:
        name, _, intervals, all_covered, trusted, covered = row[:6]
        refused, share = row[10], row[13]
        if not np.isnan([covered, refused, share]).any():
            findings.append(
                f"Intervals of the {name}: {all_covered:.1%} of {intervals} cover. {trusted} are marked trust, and "
                f"{covered:.1%} of these cover. "
                f"Of the intervals in scenarios that cover under {BROKEN:.0%}, {refused:.1%} are not marked trust; in "
                f"scenarios that cover {GOOD:.0%} or more, {share:.1%} are."
            )
    seen = [y for x in confounded if x.quantity == HEADLINE and x.model != TRUTH for y in x.intervals]
    if covers := [y.covers for y in seen if y.verdict == "trust"]:
        findings.append(
            f"With an unmeasured confounder, {len(covers)} of {len(seen)} intervals are marked trust, and "
            f"{_mean(covers):.1%} of these cover: no check of the log can see it."
        )
    return findings


def draw(found: Report) -> Any:
    """Coverage of every scenario against the share of its audits that say trust."""
    from caliope.plots import COLOURS, panels, points

    rows: list[dict[str, Any]] = [x for x in found.table(SCENARIOS).records() if x["estimate"] == HEADLINE]
    drawing, axes = panels(1, 1, width=5.0)
    axis = axes[0][0]
    for colour, n in zip(COLOURS, sorted({row["trajectories"] for row in rows}), strict=False):
        part = [row for row in rows if row["trajectories"] == n and "hidden" not in row["process"]]
        x, y = ([row[key] for row in part] for key in ("cover", "trust"))
        points(x, y, axis, label=f"{n} trajectories", colour=colour)
    axis.axvline(BROKEN, color="#999999", linewidth=0.8, linestyle="dotted")
    axis.set(xlabel="coverage of the scenario", ylabel="share of its audits that say trust")
    axis.legend(fontsize=7, frameon=False)
    return drawing
