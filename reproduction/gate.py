"""The gate: whether the verdicts of an audit can be believed, measured on processes whose values are known.

A scenario is a process, an overlap, a number of trajectories, a model of the behaviour policy, and a target policy.
Every replicate logs the process anew and audits every target policy. The interval covers the exact value or not, and
the verdict is ``trust``, ``caution`` or ``do not trust``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope._audit import GAIN, LOGGED as TRUTH, PRACTICE, Audit, PreparedAudit, prepare_audit
from caliope._cache import Cache
from caliope._ragged import Float, at_actions
from caliope._trajectories import Trajectories
from caliope.behaviour._models import candidate_models
from caliope.domains import random_mdp
from reproduction._problems import Problem, Question, from_random, problem, random_problem
from reproduction._report import Report
from reproduction._runs import Unit, seed_of

NAME = "gate"
OVERLAPS = ("wide", "narrow")  # half of the decisions at random; preferences twice as strong
SEPSIS = "sepsis"  # clinicians as they are, in the smallest size: the costliest process
HIDDEN = "clinic-hidden"  # reported separately: no check of the log can find what is not in it


@dataclass(frozen=True)
class Config:
    """Sizes: processes, overlaps, numbers of trajectories, behaviour models, replicates."""

    domains: tuple[str, ...] = (
        "bandit-5", "bandit-25", "random-5", "random-10", "random-20", "clinic", "map", SEPSIS,
    )  # fmt: skip
    overlaps: tuple[str, ...] = OVERLAPS
    sizes: tuple[int, ...] = (500,)
    models: tuple[str, ...] = (TRUTH, "chosen", "logistic")
    replicates: int = 6
    n_draws: int = 400
    first: int = 12  # number of the first replicate: those before it chose the levels of the findings

    def longer(self, times: int) -> Config:
        """Multiply the replicates; those of the shorter run are among them."""
        return replace(self, replicates=times * self.replicates)


SMOKE = Config(("bandit-5",), ("wide",), (60,), (TRUTH, "marginal"), replicates=2, n_draws=50, first=0)
DEFAULT = Config()
FULL = Config(
    (*DEFAULT.domains, HIDDEN),
    sizes=(500, 2000),
    models=(*DEFAULT.models, "overfitted"),
    replicates=20,
    n_draws=1000,
)


def _logs(config: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every log by the key of its unit; the replicates of a shorter run come first."""
    seeds = range(config.first, config.first + config.replicates)
    for seed, n, domain, overlap in product(seeds, config.sizes, config.domains, config.overlaps):
        if domain == SEPSIS and (overlap != config.overlaps[0] or n != config.sizes[0]):
            continue
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
    if domain == SEPSIS:
        return problem(SEPSIS)
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
    """Models of practice by name; "chosen" is what an audit does by default."""
    logged = at_actions(where.truth(data), data.actions) if name == TRUTH else None
    return prepare_audit(
        data,
        None if name == "chosen" else _MODELS[name](data),
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
    """Coverage by verdict, by process and by kind of scenario, the obstacles to trust, and what no check can see."""
    from reproduction._gate_report import make_report

    return make_report(config, results)


def figure(found: Report) -> Any:
    """Coverage of every scenario against the share of its audits that say trust."""
    from reproduction._gate_report import draw

    return draw(found)
