"""The gate as tables and words: what the verdicts of an audit are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from caliope.auditing.chain import LOGGED
from caliope.auditing.panel import GAIN, HEADLINE, PRACTICE
from caliope.experiments.reports import Report, ReportTable

if TYPE_CHECKING:
    from caliope.experiments.gate import Config

TITLE = "The gate: are the verdicts of an audit honest?"
GOALS = "The gate against its targets"
VERDICTS = "Coverage by verdict"
WHERE = "Coverage and verdicts by what the scenario is"
OBSTACLES = "What stood between an interval and trust"
HIDDEN = "A reason that nobody recorded"
SCENARIOS = "Every scenario"
COVERED, REFUSED = 0.93, 0.95  # of the intervals marked trust; of the scenarios that cover under BROKEN
BROKEN, GOOD = 0.8, 0.9  # coverage of a scenario
VALUE, FITTED, DIFFERENCE, OTHERS = "value", "value, fitted", "difference from practice", "other estimators"


@dataclass(frozen=True)
class Interval:
    """One interval of one audit: whether it covers, and what the audit said of it."""

    covers: bool
    verdict: str
    codes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Scenario:
    """A process, an overlap, a size, a model of practice and a new policy; its intervals over all replicates."""

    process: str
    overlap: str
    n: int
    model: str
    policy: str
    quantity: str
    intervals: tuple[Interval, ...]

    @property
    def coverage(self) -> float:
        """Share of the intervals that hold the exact value."""
        return float(np.mean([x.covers for x in self.intervals]))

    @property
    def trusted(self) -> float:
        """Share of the intervals marked trust."""
        return float(np.mean([x.verdict == "trust" for x in self.intervals]))


def scenarios(config: Config, results: Mapping[str, Any]) -> list[Scenario]:
    """What was found, by scenario and quantity."""
    found: dict[tuple[Any, ...], list[Interval]] = {}
    for seed in range(config.replicates):
        for n in config.sizes:
            for domain in config.domains:
                for overlap in config.overlaps:
                    log = results[f"{domain}-{overlap}-n{n}-seed{seed}"]
                    for name, asked in log["scenarios"].items():
                        model, policy = name.split(" | ")
                        for row, given in asked["rows"].items():
                            if row == PRACTICE:
                                continue
                            key = (log["name"], overlap, n, model, policy, row)
                            truth = asked["value"] - (log["worth"] if row == GAIN else 0.0)
                            found.setdefault(key, []).append(_interval(given, truth))
    return [
        Scenario(process, overlap, n, model, policy, row, tuple(intervals))
        for (process, overlap, n, model, policy, row), intervals in found.items()
    ]


def _interval(given: Mapping[str, Any], truth: float) -> Interval:
    # An interval that is not there covers nothing.
    covers = bool(given["low"] is not None and given["low"] <= truth <= given["high"])
    return Interval(covers, given["verdict"], tuple(given["codes"]))


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """The targets, coverage by verdict, where and why, and what no gate can see."""
    found = scenarios(config, results)
    hidden = [x for x in found if _is_hidden(x)]
    open_ = [x for x in found if not _is_hidden(x)]
    of = {
        VALUE: [x for x in open_ if x.quantity == HEADLINE],
        FITTED: [x for x in open_ if x.quantity == HEADLINE and x.model != LOGGED],
        DIFFERENCE: [x for x in open_ if x.quantity == GAIN],
        OTHERS: [x for x in open_ if x.quantity not in (HEADLINE, GAIN)],
    }
    goals = [_goal_row(name, these) for name, these in of.items() if these]
    tables = [
        ReportTable(GOALS, _GOAL_COLUMNS, tuple(goals), _note(config)),
        ReportTable(
            VERDICTS, _VERDICT_COLUMNS, tuple(r for k, v in of.items() if v for r in _verdict_rows(k, v))
        ),
        ReportTable(WHERE, _WHERE_COLUMNS, tuple(_where_rows(of[VALUE])), _WHERE_NOTE),
        ReportTable(OBSTACLES, _CODE_COLUMNS, tuple(_code_rows(of[VALUE])), _CODE_NOTE),
        ReportTable(SCENARIOS, _SCENARIO_COLUMNS, tuple(_scenario_row(x) for x in found), detail=True),
    ]
    if hidden:
        rows = tuple(_verdict_rows(VALUE, [x for x in hidden if x.quantity == HEADLINE]))
        tables.insert(4, ReportTable(HIDDEN, _VERDICT_COLUMNS, rows, _HIDDEN_NOTE))
    return Report("gate", TITLE, tuple(tables), tuple(_findings(goals, hidden)), vars(config))


def _is_hidden(scenario: Scenario) -> bool:
    # The true probabilities know what the log does not.
    return "hidden" in scenario.process


_GOAL_COLUMNS = (
    "interval of", "scenarios", "intervals", "marked trust", "of these cover", "se", "met", "scenarios under 80%",
    "never trust", "of their intervals not trust", "met ", "scenarios at 90% or more", "of their intervals trust",
)  # fmt: skip


def _goal_row(name: str, these: Sequence[Scenario]) -> tuple[Any, ...]:
    every = [x for scenario in these for x in scenario.intervals]
    trusted = [x.covers for x in every if x.verdict == "trust"]
    broken = [x for x in these if x.coverage < BROKEN]
    good = [x for x in these if x.coverage >= GOOD]
    covered = _mean(trusted)
    refused = _mean(y.verdict != "trust" for x in broken for y in x.intervals)
    return (
        name,
        len(these),
        len(every),
        len(trusted),
        covered,
        _clustered_se(these),
        _met(covered, COVERED),
        len(broken),
        _mean(x.trusted == 0 for x in broken),
        refused,
        _met(refused, REFUSED),
        len(good),
        _mean(y.verdict == "trust" for x in good for y in x.intervals),
    )


def _clustered_se(these: Sequence[Scenario]) -> float:
    """Of the share of trusted intervals that cover, by log: a replicate of a process, overlap and size."""
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


_WHERE_COLUMNS = ("by", "which", "scenarios", "cover", "trust", "trusted that cover")
_WHERE_NOTE = "Intervals of the value of the new policy."


def _where_rows(these: Sequence[Scenario]) -> list[tuple[Any, ...]]:
    by: tuple[tuple[str, Callable[[Scenario], Any]], ...] = (
        ("process", lambda x: x.process),
        ("overlap", lambda x: x.overlap),
        ("trajectories", lambda x: x.n),
        ("practice known by", lambda x: x.model),
        ("new policy", lambda x: x.policy),
    )
    rows = []
    for name, key in by:
        for which in dict.fromkeys(key(x) for x in these):
            part = [x for x in these if key(x) == which]
            every = [y for x in part for y in x.intervals]
            covered = _mean(y.covers for y in every if y.verdict == "trust")
            trust = _mean(y.verdict == "trust" for y in every)
            rows.append((name, str(which), len(part), _mean(y.covers for y in every), trust, covered))
    return rows


_CODE_COLUMNS = ("finding", "intervals", "cover", "alone", "alone, cover")
_CODE_NOTE = (
    "Findings graver than a note on intervals of the value; 'alone': nothing else was found, so that without it the "
    "verdict were trust."
)


def _code_rows(these: Sequence[Scenario]) -> list[tuple[Any, ...]]:
    every = [x for scenario in these for x in scenario.intervals]
    rows = []
    for code, times in sorted(Counter(code for x in every for code in x.codes).items()):
        alone = [x.covers for x in every if x.codes == (code,)]
        rows.append(
            (code, times, _mean(x.covers for x in every if code in x.codes), len(alone), _mean(alone))
        )
    return rows


_SCENARIO_COLUMNS = (
    "process", "overlap", "trajectories", "practice known by", "new policy", "estimate", "replicates", "cover", "trust",
)  # fmt: skip


def _scenario_row(x: Scenario) -> tuple[Any, ...]:
    about = (x.process, x.overlap, x.n, x.model, x.policy, x.quantity)
    return (*about, len(x.intervals), x.coverage, x.trusted)


_HIDDEN_NOTE = (
    "The clinic whose clinicians know who is frail while the log does not. Left out of everything above: no check of a "
    "log can see what is not in it, and what an audit says here is the strength of a reason that would overturn it."
)


def _note(config: Config) -> str:
    return (
        f"95% intervals, {config.replicates} replicates of every scenario, {config.n_draws} draws each. A scenario is "
        "a process, an overlap, a number of trajectories, a model of practice and a new policy; 'fitted': those in "
        "which nobody wrote the probabilities down. The models: the better one of logistic regression and neighbours "
        "('chosen'), logistic regression, which is wrong here, one that is too sure, and the mere frequencies. "
        "Standard errors by log, for the scenarios of a log share it. Other estimators: WIS, stepwise and per-horizon "
        "forms, doubly robust without capped weights, and fitted values alone. The logs here have no copies, cut-offs, "
        "leaks or wrong propensities: those checks have tests of their own."
    )


def _findings(goals: Sequence[tuple[Any, ...]], hidden: Sequence[Scenario]) -> list[str]:
    said = []
    for row in goals:
        name, scenarios_, intervals, trusted, covered, se, _, broken, never, refused, _, good, share = row
        said.append(
            f"Intervals of the {name}: {scenarios_} scenarios, {intervals} intervals. {trusted} are marked trust"
            f"{_if(covered, f', and {covered:.1%} of these cover (standard error {se:.1%}, target {COVERED:.0%})')}. "
            f"{broken} scenarios cover under {BROKEN:.0%}"
            f"{_if(refused, f'; {refused:.1%} of their intervals are not marked trust (target {REFUSED:.0%})')}"
            f"{_if(never, f', and in {never:.1%} of them not one')}. {good} scenarios cover {GOOD:.0%} or more"
            f"{_if(share, f'; {share:.1%} of their intervals are marked trust')}."
        )
    seen = [y for x in hidden if x.quantity == HEADLINE and x.model != LOGGED for y in x.intervals]
    trusted_too = [y.covers for y in seen if y.verdict == "trust"]
    if trusted_too:
        said.append(
            f"With a reason that nobody recorded, {len(trusted_too)} of {len(seen)} intervals are marked trust, and "
            f"{_mean(trusted_too):.1%} of these cover: no check of the log can see it."
        )
    return said


def _if(known: float, text: str) -> str:
    return "" if np.isnan(known) else text


def figure(found: Report) -> Any:
    """Coverage of every scenario against the share of its audits that say trust."""
    from caliope.plots import COLOURS, panels, points

    rows: list[dict[str, Any]] = [
        row for row in found.table(SCENARIOS).records() if row["estimate"] == HEADLINE
    ]
    drawing, axes = panels(1, 1, width=5.0)
    axis = axes[0][0]
    for colour, n in zip(COLOURS, sorted({row["trajectories"] for row in rows}), strict=False):
        part = [row for row in rows if row["trajectories"] == n and "hidden" not in row["process"]]
        x, y = [row["cover"] for row in part], [row["trust"] for row in part]
        points(x, y, axis, label=f"{n} trajectories", colour=colour)
    axis.axvline(BROKEN, color="#999999", linewidth=0.8, linestyle="dotted")
    axis.set(xlabel="coverage of the scenario", ylabel="share of its audits that say trust")
    axis.legend(fontsize=7, frameon=False)
    return drawing
