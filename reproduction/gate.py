"""The gate: whether the verdicts of an audit can be believed, measured on processes whose values are known.

A scenario is a process, an overlap, a number of trajectories, a model of the behaviour policy, and a target policy.
Every replicate logs the process anew and audits every target policy. The interval covers the exact value or not, and
the verdict is ``trust``, ``caution`` or ``do not trust``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope._audit import GAIN, HEADLINE, LOGGED as TRUTH, PRACTICE, Audit, PreparedAudit, prepare_audit
from caliope._cache import Cache
from caliope._ragged import Float, at_actions
from caliope._trajectories import Trajectories
from caliope.behaviour._models import candidate_models
from caliope.domains import random_mdp
from reproduction._problems import Problem, Question, from_random, problem, random_problem
from reproduction._report import Report, ReportTable
from reproduction._runs import Unit, seed_of

NAME, TITLE = "gate", "The gate: are the verdicts of an audit honest?"
GOALS, VERDICTS = "The gate against its targets", "Coverage by verdict"
WHERE = "Coverage and verdicts by what the scenario is"
OBSTACLES = "What stood between an interval and trust"
CONFOUNDED, SCENARIOS = "An unmeasured confounder", "Every scenario"
COVERED, REFUSED = 0.93, 0.95  # of the intervals marked trust; of the scenarios that cover under BROKEN
BROKEN, GOOD = 0.8, 0.9  # coverage of a scenario
VALUE, FITTED, DIFFERENCE, OTHERS = "value", "value, fitted", "difference from practice", "other estimators"
OVERLAPS = ("wide", "narrow")  # half of the decisions at random; preferences twice as strong
HIDDEN = "clinic-hidden"  # reported separately: no check of the log can find what is not in it


@dataclass(frozen=True)
class Config:
    """Sizes: processes, overlaps, numbers of trajectories, behaviour models, replicates."""

    domains: tuple[str, ...] = ("bandit-5", "random-5", "clinic", "map", HIDDEN)
    overlaps: tuple[str, ...] = OVERLAPS
    sizes: tuple[int, ...] = (500, 2000)
    models: tuple[str, ...] = (TRUTH, "chosen", "logistic", "overfitted", "marginal")
    replicates: int = 4
    n_draws: int = 400

    def longer(self, times: int) -> Config:
        """Multiply the replicates; those of the shorter run are among them."""
        return replace(self, replicates=times * self.replicates)


SMOKE = Config(("bandit-5",), ("wide",), (60,), (TRUTH, "marginal"), replicates=2, n_draws=50)
DEFAULT = Config()
FULL = Config(replicates=40, n_draws=1000)


def _logs(config: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every log by the key of its unit; the replicates of a shorter run come first."""
    seeds = range(config.replicates)
    for seed, n, domain, overlap in product(seeds, config.sizes, config.domains, config.overlaps):
        log = {"domain": domain, "overlap": overlap, "n": n, "seed": seed}
        yield f"{domain}-{overlap}-n{n}-seed{seed}", log


def units(config: Config) -> list[Unit]:
    """One unit for each process, overlap, size and replicate."""
    settings = {"models": config.models, "n_draws": config.n_draws}
    return [Unit(key, one_log, log | settings) for key, log in _logs(config)]


def one_log(domain: str, overlap: str, n: int, seed: int, models: list[str], n_draws: int) -> dict[str, Any]:
    """Log once, and audit every target policy with every behaviour model."""
    where = make_problem(domain, overlap)
    data = where.simulate(n, seed_of(NAME, domain, overlap, n, seed))
    # Values of a policy in absolute terms serve all models of practice.
    kept = Cache({})
    found: dict[str, Any] = {}
    for name in models:
        prepared = _prepare(name, data, where, seed, kept)
        for question in where.questions:
            stated, target = _state(question, data, name)
            audit = prepared.audit(target, n_draws=n_draws, learnt_on="no")
            found[f"{name} | {question.name}{stated}"] = {"value": question.value, "rows": _rows(audit)}
    return {"name": where.name, "worth": where.worth, "scenarios": found}


def make_problem(domain: str, overlap: str) -> Problem:
    """A process with a behaviour policy that leaves much or little to chance."""
    if domain == "map":
        return problem({"wide": "map-roaming", "narrow": "map-astray"}[overlap])
    source = random_problem(domain)
    return from_random(replace(source, behaviour=_with_overlap(source, overlap)))


def _with_overlap(source: random_mdp.Problem, overlap: str) -> Float:
    if overlap == "wide":
        return 0.5 * source.behaviour + 0.5 / source.n_actions
    sharper = source.behaviour**2
    return sharper / sharper.sum(axis=1, keepdims=True)


def _prepare(name: str, data: Trajectories, where: Problem, seed: int, kept: Cache) -> PreparedAudit:
    logged = at_actions(where.truth(data), data.actions) if name == TRUTH else None
    return prepare_audit(
        data,
        _MODELS[name](data),
        gamma=where.gamma,
        logged=logged,
        ended="all",
        recorded_before="all",
        rng=seed,
        work=kept,
    )


def _pick(data: Trajectories, *names: str) -> Mapping[str, Any]:
    """Some of the default models of an audit."""
    models = candidate_models(data)
    return {name: models[name] for name in names}


def _overfitted(data: Trajectories) -> Mapping[str, Any]:
    features = Nystroem(n_components=min(100, data.n_steps // 2), random_state=0)
    model = make_pipeline(StandardScaler(), features, LogisticRegression(C=1e4, max_iter=300))
    return {"overfitted": model}


_MODELS: Mapping[str, Callable[[Trajectories], Mapping[str, Any]]] = {
    TRUTH: lambda data: _pick(data, "logistic"),
    "chosen": lambda data: _pick(data, "logistic", "neighbours"),
    "logistic": lambda data: _pick(data, "logistic"),
    "overfitted": _overfitted,
    "marginal": lambda data: {"marginal": DummyClassifier(strategy="prior")},
}


def _state(question: Question, data: Trajectories, model: str) -> tuple[str, Any]:
    """The target as a user would state it: a tilt relative to practice, unless probabilities were logged."""
    if question.name in ("tilt", "half heading") and model != TRUTH:
        return ", relative", question.change
    return "", question.table(data)


def _rows(audit: Audit) -> dict[str, Any]:
    found = {}
    for row in audit.table:
        codes = sorted({f"{x.code} {x.level}" for x in row.findings if x.level != "note"})
        interval = {"low": row.interval.low, "high": row.interval.high}
        found[row.name] = {"value": row.value, **interval, "verdict": row.verdict, "codes": codes}
    return found


@dataclass(frozen=True)
class Interval:
    """One interval of one audit: whether it covers, its verdict, and the codes of its findings."""

    covers: bool
    verdict: str
    codes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Scenario:
    """One scenario and estimate, with its intervals over all replicates."""

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

    def row(self) -> tuple[Any, ...]:
        """The row of the table of all scenarios."""
        about = (self.process, self.overlap, self.n, self.model, self.policy, self.quantity)
        return (*about, len(self.intervals), self.coverage, self.trusted)


def collect(config: Config, results: Mapping[str, Any]) -> list[Scenario]:
    """Intervals of all audits, by scenario and estimate."""
    found: dict[tuple[str, str, int, str, str, str], list[Interval]] = {}
    for unit, log in _logs(config):
        for model, policy, row, interval in _intervals(results[unit]):
            key = (results[unit]["name"], log["overlap"], log["n"], model, policy, row)
            found.setdefault(key, []).append(interval)
    return [Scenario(*key, tuple(intervals)) for key, intervals in found.items()]


def _intervals(log: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Interval]]:
    """Every interval of one log, with its model, policy and estimate; practice itself is left out."""
    for name, asked in log["scenarios"].items():
        model, policy = name.split(" | ")
        for row, given in asked["rows"].items():
            if row != PRACTICE:
                truth = asked["value"] - (log["worth"] if row == GAIN else 0.0)
                # A missing interval covers nothing.
                covers = bool(given["low"] is not None and given["low"] <= truth <= given["high"])
                yield model, policy, row, Interval(covers, given["verdict"], tuple(given["codes"]))


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Coverage by verdict and by kind of scenario, the obstacles to trust, and what no check can see."""
    found = collect(config, results)
    # The true probabilities know what the log does not.
    confounded = [x for x in found if "hidden" in x.process]
    others = [x for x in found if "hidden" not in x.process]
    of = {
        VALUE: [x for x in others if x.quantity == HEADLINE],
        FITTED: [x for x in others if x.quantity == HEADLINE and x.model != TRUTH],
        DIFFERENCE: [x for x in others if x.quantity == GAIN],
        OTHERS: [x for x in others if x.quantity not in (HEADLINE, GAIN)],
    }
    goals = [_goal_row(name, these) for name, these in of.items() if these]
    verdicts = tuple(row for name, these in of.items() if these for row in _verdict_rows(name, these))
    tables = [
        ReportTable(GOALS, _GOAL_COLUMNS, tuple(goals), _note(config)),
        ReportTable(VERDICTS, _VERDICT_COLUMNS, verdicts),
        ReportTable(WHERE, _WHERE_COLUMNS, tuple(_where_rows(of[VALUE])), "Intervals of the value."),
        ReportTable(OBSTACLES, _CODE_COLUMNS, tuple(_code_rows(of[VALUE])), _CODE_NOTE),
        ReportTable(SCENARIOS, _SCENARIO_COLUMNS, tuple(x.row() for x in found), detail=True),
    ]
    if confounded:
        rows = tuple(_verdict_rows(VALUE, [x for x in confounded if x.quantity == HEADLINE]))
        tables.insert(4, ReportTable(CONFOUNDED, _VERDICT_COLUMNS, rows, _CONFOUNDED_NOTE))
    return Report(NAME, TITLE, tuple(tables), tuple(_findings(goals, confounded)), vars(config))


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
    share = _mean(y.verdict == "trust" for x in good for y in x.intervals)
    return (
        name, len(these), len(every), len(trusted), covered, _clustered_se(these), _met(covered, COVERED), len(broken),
        _mean(x.trusted == 0 for x in broken), refused, _met(refused, REFUSED), len(good), share,
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


def _note(config: Config) -> str:
    return (
        f"95% intervals, {config.replicates} replicates of every scenario, {config.n_draws} draws each. A scenario is "
        "a process, an overlap, a number of trajectories, a behaviour model and a target policy; 'fitted': without "
        "logged probabilities. The behaviour models: the better of logistic regression and neighbours ('chosen'), "
        "logistic regression, which is misspecified here, an overfitted one, and the marginal frequencies. Standard "
        "errors are clustered by log. Other estimators: WIS, stepwise and per-horizon forms, doubly robust without "
        f"capped weights, and fitted values alone. Targets: {COVERED:.0%} of the intervals marked trust cover; of the "
        f"intervals in scenarios that cover under {BROKEN:.0%}, {REFUSED:.0%} are not marked trust."
    )


def _findings(goals: Sequence[tuple[Any, ...]], confounded: Sequence[Scenario]) -> list[str]:
    findings = []
    for row in goals:
        name, _, intervals, trusted, covered = row[:5]
        refused, share = row[9], row[12]
        if not np.isnan([covered, refused, share]).any():
            findings.append(
                f"Intervals of the {name}: {trusted} of {intervals} are marked trust; {covered:.1%} of these cover. "
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


def figure(found: Report) -> Any:
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
