"""Whole ways from a log to an estimate: behaviour model, recalibration, fit, treatment of the ratios, estimator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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
from caliope.behaviour.calibrators import Calibrator
from caliope.estimators import dm, monte_carlo, phwis, step_wis, wdr, wis
from caliope.evidence import Evidence
from caliope.experiments.arenas import Arena, Question
from caliope.gathering import gather
from caliope.policies import action_probabilities
from caliope.ragged import Float
from caliope.ratio_calibration import calibrate_ratios
from caliope.trajectories import Trajectories
from caliope.transforms import clip_weights


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
    """What was done, in words."""

    model: str
    recalibration: str
    fit: str  # "held out": on one half of the log, weighing the other
    ratios: str
    estimator: str

    def __str__(self) -> str:
        return " | ".join((self.model, self.recalibration, self.fit, self.ratios, self.estimator))

    @classmethod
    def of(cls, text: str) -> Pipeline:
        """Read what ``str`` has written."""
        return cls(*text.split(" | "))


PAPER = Pipeline("neighbours", "shrunk", "held out", "raw", "PHWIS")
DEFAULT = Pipeline("default", "own", "cross", "raw", "clipped WDR")
RELATIVE = replace(DEFAULT, ratios="relative")
ADVISED = replace(DEFAULT, ratios="relative where it can be")
TRUE = Pipeline("truth", "-", "known", "raw", "clipped WDR")
TRUE_WEIGHTS = replace(TRUE, estimator="clipped WIS")
MEAN = Pipeline("-", "-", "-", "-", "mean")


@dataclass(frozen=True, eq=False)
class Behaviour:
    """A behaviour policy at every step of the log that it weighs, and how it came about."""

    model: str
    recalibration: str
    fit: str
    table: Float  # (N, A)
    data: Trajectories


def behaviours(data: Trajectories, arena: Arena, *, folds: int, seed: int) -> Iterator[Behaviour]:
    """Every behaviour policy to be compared, the true one last."""
    yield _held_out(data, seed)
    for name, model in _models(seed).items():
        crossed = fit_behaviour(model, data, mode="cross", folds=folds, rng=seed)
        for recalibration, calibrator in _CALIBRATORS.items():
            table = calibrator.fit(crossed.probabilities, data.actions)(crossed.probabilities)
            yield Behaviour(name, recalibration, "cross", table, data)
        yield Behaviour(name, "-", "same", _same(crossed, data), data)
    model = default_model(present=arena.present(data), folds=folds, random_state=seed)
    crossed = fit_behaviour(model, data, mode="cross")
    yield Behaviour("default", "own", "cross", crossed.probabilities, data)
    yield Behaviour("default", "own", "same", _same(crossed, data), data)
    yield Behaviour("truth", "-", "known", arena.truth(data), data)


_CALIBRATORS: Mapping[str, Calibrator] = {
    "shrunk": Shrinkage(),
    "temperature": Chain((Shrinkage(), Temperature())),
}


def _models(seed: int) -> dict[str, Any]:
    pool = default_models(random_state=seed)
    return {
        "neighbours": _neighbours(),
        "logistic": pool["logistic, weak"],
        "forest": pool["forest"],
    }


def _neighbours() -> Any:
    """The paper's 150 neighbours, found exactly."""
    return make_pipeline(StandardScaler(), NeighbourPolicy(150))


def _held_out(data: Trajectories, seed: int) -> Behaviour:
    """The paper's way: neighbours in one half of the log, the other half to weigh; zeros shrunk away."""
    fit, weigh = data.split(0.5, rng=seed)
    fitted = fit_behaviour(_neighbours(), fit, mode="cross")
    shrunk = Shrinkage().fit(fitted.probabilities, fit.actions)
    table = shrunk(action_probabilities(fitted.model, weigh.states, data.n_actions))
    return Behaviour("neighbours", "shrunk", "held out", _supported(table, weigh), weigh)


def _same(fitted: FittedBehaviour, data: Trajectories) -> Float:
    """What the model says of the log that it was fitted on, own steps included."""
    return _supported(action_probabilities(fitted.model, data.states, data.n_actions), data)


def _supported(table: Float, data: Trajectories) -> Float:
    """Where a logged action has probability 0 there is no weight: shrunk towards the marginal, as likelihood says."""
    if (table[np.arange(data.n_steps), data.actions] > 0).all():
        return table
    return Shrinkage().fit(table, data.actions)(table)


def estimates(
    question: Question, arena: Arena, given: list[Behaviour], *, folds: int, seed: int
) -> dict[str, float]:
    """What every pipeline makes of one question, by the name of the pipeline."""
    data = given[-1].data
    q = arena.values(data, question.table(data), folds, seed)
    found = {MEAN: monte_carlo(gather(data, given[-1].table, given[-1].table, gamma=arena.gamma))}
    for each in given:
        whole = each.fit != "held out"
        target = question.table(each.data)
        evidence = _evidence(each, target, arena, q if whole else None)
        found |= _estimated(each, "raw", evidence)
        if whole and (question.relative is not None) and each.model != "truth":
            target = question.relative(data, each.table)
            own = (
                arena.values(data, target, folds, seed)
                if each.model == "default" and each.fit == "cross"
                else None
            )
            found |= _estimated(each, "relative", _evidence(each, target, arena, own))
        if each.fit == "cross":
            found |= _estimated(each, "calibrated", _calibrated(each, question, arena, evidence))
    return {str(pipeline): float(value) for pipeline, value in found.items()}


def _evidence(given: Behaviour, target: Float, arena: Arena, q: Float | None) -> Evidence:
    # Taken as known: the log's own tests of a behaviour model cost more than all estimators, and are not asked here.
    return gather(given.data, target, given.table, gamma=arena.gamma, q=q, behaviour_known=True)


def _calibrated(given: Behaviour, question: Question, arena: Arena, raw: Evidence) -> Evidence:
    """Isotonic ratios: a sensitivity."""
    target = question.table(given.data)
    ratios = calibrate_ratios(given.data, target, given.table, gamma=arena.gamma, rng=0)
    return replace(raw, log_ratio=ratios.log_ratio)


def _estimated(given: Behaviour, ratios: str, evidence: Evidence) -> dict[Pipeline, float]:
    estimators = {**WEIGHING, **(VALUING if evidence.q is not None else {})}
    return {
        Pipeline(given.model, given.recalibration, given.fit, ratios, name): float(estimator(evidence))
        for name, estimator in estimators.items()
    }
