"""The gate, measured: whether the verdicts of an audit can be believed, on processes whose values are known.

A scenario is a process, how much its behaviour policy leaves to chance, a number of trajectories, what is known of the
behaviour policy, and a new policy. Every replicate logs the process anew and audits every new policy; the interval
covers its exact value or not, and the audit has said ``trust``, ``caution`` or ``do not trust`` before anybody looked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope.auditing import Audit, Groundwork, audit_policy, lay_groundwork
from caliope.auditing.candidates import candidate_models
from caliope.auditing.chain import LOGGED as TRUTH
from caliope.domains.random_mdp import Problem
from caliope.experiments.arenas import Arena, Question, arena, of_problem
from caliope.experiments.arenas import problem as problem_named
from caliope.experiments.gate_report import figure as figure
from caliope.experiments.gate_report import report as report
from caliope.experiments.runs import Unit, seed_of
from caliope.ragged import Float
from caliope.trajectories import Trajectories

NAME = "gate"
OVERLAPS = ("wide", "narrow")  # half of the decisions at random; preferences twice as strong
HIDDEN = "clinic-hidden"  # shown apart: what is not in the log, no check of the log can find


@dataclass(frozen=True)
class Config:
    """Sizes: processes, overlaps, numbers of trajectories, models of practice, replicates."""

    domains: tuple[str, ...] = ("bandit-5", "random-5", "clinic", "map", HIDDEN)
    overlaps: tuple[str, ...] = OVERLAPS
    sizes: tuple[int, ...] = (500, 2000)
    models: tuple[str, ...] = (TRUTH, "chosen", "logistic", "overfitted", "marginal")
    replicates: int = 4
    n_draws: int = 400

    def longer(self, times: int) -> Config:
        """So many times the replicates; those of the shorter run are among them."""
        return replace(self, replicates=times * self.replicates)


SMOKE = Config(("bandit-5",), ("wide",), (60,), (TRUTH, "marginal"), replicates=2, n_draws=50)
DEFAULT = Config()
FULL = Config(replicates=40, n_draws=1000)


def units(config: Config) -> list[Unit]:
    """One unit for each process, overlap, size and replicate; the replicates of a shorter run come first."""
    return [
        Unit(
            f"{domain}-{overlap}-n{n}-seed{seed}",
            one_log,
            {
                "domain": domain,
                "overlap": overlap,
                "n": n,
                "seed": seed,
                "models": config.models,
                "n_draws": config.n_draws,
            },
        )
        for seed in range(config.replicates)
        for n in config.sizes
        for domain in config.domains
        for overlap in config.overlaps
    ]


def one_log(domain: str, overlap: str, n: int, seed: int, models: list[str], n_draws: int) -> dict[str, Any]:
    """Log once, and audit every new policy with every model of practice."""
    where = place(domain, overlap)
    data = where.simulate(n, seed_of(NAME, domain, overlap, n, seed))
    kept: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for name in models:
        groundwork = _groundwork(name, data, where, seed)
        for question in where.questions:
            for stated, target in _statements(question, data, name).items():
                keep = _Memory(kept, question.name + (f"{stated} {name}" if stated else ""))
                seen = audit_policy(groundwork, target, n_draws=n_draws, keep=keep)
                found[f"{name} | {question.name}{stated}"] = {"value": question.value, "rows": _rows(seen)}
    return {"name": where.name, "worth": where.worth, "scenarios": found}


def place(domain: str, overlap: str) -> Arena:
    """A process with a behaviour policy that leaves much or little to chance."""
    if domain == "map":
        return arena({"wide": "map-roaming", "narrow": "map-astray"}[overlap])
    problem = problem_named(domain)
    return of_problem(replace(problem, behaviour=_with_overlap(problem, overlap)))


def _with_overlap(problem: Problem, overlap: str) -> Float:
    if overlap == "wide":
        return 0.5 * problem.behaviour + 0.5 / problem.n_actions
    sharper = problem.behaviour**2
    return sharper / sharper.sum(axis=1, keepdims=True)


def _groundwork(name: str, data: Trajectories, where: Arena, seed: int) -> Groundwork:
    logged = where.truth(data)[np.arange(data.n_steps), data.actions] if name == TRUTH else None
    return lay_groundwork(data, _MODELS[name](data), gamma=where.gamma, logged=logged, rng=seed)


def _chosen(data: Trajectories) -> Mapping[str, Any]:
    """Of what an audit tries by default the two that are quick."""
    models = candidate_models(data)
    return {name: models[name] for name in ("logistic", "neighbours")}


def _overfitted(data: Trajectories) -> Mapping[str, Any]:
    features = Nystroem(n_components=min(100, data.n_steps // 2), random_state=0)
    model = make_pipeline(StandardScaler(), features, LogisticRegression(C=1e4, max_iter=300))
    return {"overfitted": model}


def _logistic(data: Trajectories) -> Mapping[str, Any]:
    return {"logistic": candidate_models(data)["logistic"]}


_MODELS: Mapping[str, Callable[[Trajectories], Mapping[str, Any]]] = {
    TRUTH: _logistic,
    "chosen": _chosen,
    "logistic": _logistic,
    "overfitted": _overfitted,
    "marginal": lambda data: {"marginal": DummyClassifier(strategy="prior")},
}


def _statements(question: Question, data: Trajectories, name: str) -> dict[str, Any]:
    """The new policy as it would be stated: a tilt as a change to practice, unless probabilities were logged."""
    if question.name in ("tilt", "half heading") and name != TRUTH:
        return {", relative": question.change}
    return {"": question.table(data)}


@dataclass(frozen=True)
class _Memory:
    """Values that were fitted for a policy in absolute terms serve all models of practice."""

    kept: dict[str, Any]
    what: str

    def __call__(self, name: str, make: Callable[[], Any]) -> Any:
        if self.what not in self.kept:
            self.kept[self.what] = make()
        return self.kept[self.what]


def _rows(found: Audit) -> dict[str, Any]:
    return {
        row.name: {
            "value": row.value,
            "low": row.interval.low,
            "high": row.interval.high,
            "verdict": row.verdict,
            "codes": sorted({f"{x.code} {x.level}" for x in row.findings if x.level != "note"}),
        }
        for row in found.table
    }
