"""Table 3, ours: whole pipelines on processes with known values, against the paper's pipeline and the plain mean.

Every replicate logs a process under its behaviour policy, fits every behaviour model, and estimates the value of every
target policy by every pipeline: behaviour model, recalibration, fit, treatment of the ratios, estimator. Even
replicates choose the best pipeline, odd ones report it; the default was fixed before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope._evidence import Evidence
from caliope._formulas import dm, monte_carlo, step_wis, wdr, wis
from caliope._gather import gather
from caliope._policies import action_probabilities
from caliope._ragged import Float
from caliope._trajectories import Trajectories
from caliope.behaviour import (
    Chain,
    FittedBehaviour,
    NeighbourPolicy,
    Shrinkage,
    Temperature,
    default_model,
    default_models,
    fit_behaviour,
)
from caliope.behaviour._calibrators import Calibrator
from caliope.estimators import phwis
from caliope.weights import calibrate_ratios, clip_weights
from reproduction._problems import PROBLEMS, Problem, Question, problem
from reproduction._report import Report
from reproduction._runs import Unit, seed_of

NAME = "table3"


@dataclass(frozen=True)
class Config:
    """Sizes: problems, and replicates at each number of trajectories."""

    problems: tuple[str, ...] = (
        "sepsis", "map-roaming", "random-5", "random-10", "bandit-25", "clinic", "clinic-hidden",
    )  # fmt: skip
    sizes: tuple[tuple[int, int], ...] = ((500, 4), (2000, 2))  # trajectories, replicates
    folds: int = 2  # of the behaviour models and of the fitted values

    def longer(self, times: int) -> Config:
        """Multiply the replicates; those of the shorter run are among them."""
        return replace(self, sizes=tuple((n, times * replicates) for n, replicates in self.sizes))


SMOKE = Config(("bandit-5", "clinic-hidden"), ((40, 2),))
DEFAULT = Config()
FULL = Config(PROBLEMS, ((500, 40), (2000, 20)), folds=5)


def units(config: Config) -> list[Unit]:
    """One unit for each problem, size and replicate; the replicates of a shorter run come first."""
    most = max(replicates for _, replicates in config.sizes)
    return [
        Unit(f"{name}-n{n}-seed{seed}", one_log, {"name": name, "n": n, "seed": seed, "folds": config.folds})
        for seed in range(most)
        for n, replicates in config.sizes
        if seed < replicates
        for name in config.problems
    ]


def one_log(name: str, n: int, seed: int, folds: int) -> dict[str, Any]:
    """Log once, and answer every question by every pipeline."""
    where = problem(name)
    data = where.simulate(n, seed_of(NAME, name, n, seed))
    behaviours = list(fit_behaviours(data, where, folds=folds, seed=seed))
    return {
        "name": where.name,
        "worth": where.worth,
        "confounded": where.confounded,
        "spread": float(data.returns(where.gamma).std(ddof=1)),
        "questions": {
            question.name: {
                "value": question.value,
                "relative": question.relative is not None,
                "estimates": estimate_all(question, where, behaviours, folds=folds, seed=seed),
            }
            for question in where.questions
        },
    }


def clipped_wis(e: Evidence) -> Any:
    """WIS with capped weights."""
    return wis(clip_weights(e))


def clipped_wdr(e: Evidence) -> Any:
    """WDR with capped weights."""
    return wdr(clip_weights(e))


WEIGHING: Mapping[str, Callable[[Evidence], Any]] = {
    "PHWIS": phwis,
    "WIS": wis,
    "clipped WIS": clipped_wis,
    "step-WIS": step_wis,
}
VALUING: Mapping[str, Callable[[Evidence], Any]] = {"DM": dm, "clipped WDR": clipped_wdr}


@dataclass(frozen=True, order=True)
class Pipeline:
    """The five choices of a pipeline, in words."""

    model: str
    recalibration: str
    fit: str  # "held out": on one half of the log, weighing the other
    ratios: str
    estimator: str

    def __str__(self) -> str:
        return " | ".join((self.model, self.recalibration, self.fit, self.ratios, self.estimator))

    @classmethod
    def of(cls, text: str) -> Pipeline:
        """Parse what ``str`` writes."""
        return cls(*text.split(" | "))  # the keys of the units' results


PAPER = Pipeline("neighbours", "shrunk", "held out", "raw", "PHWIS")
OURS = Pipeline("default", "own", "cross", "raw", "clipped WDR")
RELATIVE = replace(OURS, ratios="relative")
ADVISED = replace(OURS, ratios="relative where it can be")
TRUE = Pipeline("truth", "-", "known", "raw", "clipped WDR")
TRUE_WEIGHTS = replace(TRUE, estimator="clipped WIS")
MEAN = Pipeline("-", "-", "-", "-", "mean")


@dataclass(frozen=True, eq=False)
class Behaviour:
    """A behaviour policy at every step of the log that it weighs, and how it was fitted."""

    model: str
    recalibration: str
    fit: str
    table: Float  # (N, A)
    data: Trajectories


def fit_behaviours(data: Trajectories, where: Problem, *, folds: int, seed: int) -> Iterator[Behaviour]:
    """Fit every behaviour policy to be compared; the true one comes last."""
    yield _fit_half(data, seed)
    for name, model in _models(seed).items():
        crossed = fit_behaviour(model, data, mode="cross", folds=folds, rng=seed)
        for recalibration, calibrator in _CALIBRATORS.items():
            table = calibrator.fit(crossed.probabilities, data.actions)(crossed.probabilities)
            yield Behaviour(name, recalibration, "cross", table, data)
        yield Behaviour(name, "-", "same", _predict_same(crossed, data), data)
    model = default_model(present=where.present(data), folds=folds, random_state=seed)
    crossed = fit_behaviour(model, data, mode="cross")
    yield Behaviour("default", "own", "cross", crossed.probabilities, data)
    yield Behaviour("default", "own", "same", _predict_same(crossed, data), data)
    yield Behaviour("truth", "-", "known", where.truth(data), data)


_CALIBRATORS: Mapping[str, Calibrator] = {
    "shrunk": Shrinkage(),
    "temperature": Chain((Shrinkage(), Temperature())),
}


def _models(seed: int) -> dict[str, Any]:
    pool = default_models(random_state=seed)
    return {"neighbours": _neighbours(), "logistic": pool["logistic, weak"], "forest": pool["forest"]}


def _neighbours() -> Any:
    """The paper's 150 neighbours, found exactly."""
    return make_pipeline(StandardScaler(), NeighbourPolicy(150))


def _fit_half(data: Trajectories, seed: int) -> Behaviour:
    """The paper's way: neighbours in one half of the log weigh the other half; zeros are shrunk."""
    fit, weigh = data.split(0.5, rng=seed)
    fitted = fit_behaviour(_neighbours(), fit, mode="cross")
    shrunk = Shrinkage().fit(fitted.probabilities, fit.actions)
    table = shrunk(action_probabilities(fitted.model, weigh.states, data.n_actions))
    return Behaviour("neighbours", "shrunk", "held out", _shrink_zeros(table, weigh), weigh)


def _predict_same(fitted: FittedBehaviour, data: Trajectories) -> Float:
    """Predictions on the log that the model was fitted on, own steps included."""
    return _shrink_zeros(action_probabilities(fitted.model, data.states, data.n_actions), data)


def _shrink_zeros(table: Float, data: Trajectories) -> Float:
    """Shrink towards the marginal, by log loss, if a logged action has probability 0 and so no weight."""
    if (table[np.arange(data.n_steps), data.actions] > 0).all():
        return table
    return Shrinkage().fit(table, data.actions)(table)


def estimate_all(
    question: Question, where: Problem, behaviours: list[Behaviour], *, folds: int, seed: int
) -> dict[str, float]:
    """Estimate one value by every pipeline; keys are the names of the pipelines."""
    data = behaviours[-1].data
    q = where.values(data, question.table(data), folds, seed)
    truth = behaviours[-1].table
    found = {MEAN: float(monte_carlo(gather(data, truth, truth, gamma=where.gamma)))}
    for each in behaviours:
        whole = each.fit != "held out"
        target = question.table(each.data)
        evidence = _evidence(each, target, where, q if whole else None)
        found |= _estimate(each, "raw", evidence)
        if whole and (question.relative is not None) and each.model != "truth":
            target = question.relative(data, each.table)
            default = each.model == "default" and each.fit == "cross"
            own = where.values(data, target, folds, seed) if default else None
            found |= _estimate(each, "relative", _evidence(each, target, where, own))
        if each.fit == "cross":
            found |= _estimate(each, "calibrated", _calibrate(each, question, where, evidence))
    return {str(pipeline): value for pipeline, value in found.items()}


def _evidence(behaviour: Behaviour, target: Float, where: Problem, q: Float | None) -> Evidence:
    # Passed as known: the tests of a fitted behaviour model cost more than all estimators, and are not used here.
    return gather(behaviour.data, target, behaviour.table, gamma=where.gamma, q=q, behaviour_known=True)


def _calibrate(behaviour: Behaviour, question: Question, where: Problem, raw: Evidence) -> Evidence:
    """Evidence with isotonic ratios: a sensitivity analysis."""
    target = question.table(behaviour.data)
    ratios = calibrate_ratios(behaviour.data, target, behaviour.table, gamma=where.gamma, rng=0)
    return replace(raw, log_ratio=ratios.log_ratio)


def _estimate(behaviour: Behaviour, ratios: str, evidence: Evidence) -> dict[Pipeline, float]:
    estimators = {**WEIGHING, **(VALUING if evidence.q is not None else {})}
    return {
        Pipeline(behaviour.model, behaviour.recalibration, behaviour.fit, ratios, name): float(
            estimator(evidence)
        )
        for name, estimator in estimators.items()
    }


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Goals, the best pipelines on replicates that did not choose them, and where the default loses."""
    from reproduction._table3_report import make_report

    return make_report(config, results)


def figure(found: Report) -> Any:
    """Error of the default and of the paper's pipeline relative to the plain mean, against the contrast."""
    from reproduction._table3_report import draw

    return draw(found)
