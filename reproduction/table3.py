"""Table 3, ours: whole pipelines on processes with known values, against the paper's pipeline and the plain mean.

Every replicate logs a process under its behaviour policy, fits every behaviour model, and estimates the value of every
target policy by every pipeline: behaviour model, recalibration, fit, treatment of the ratios, estimator. Even
replicates choose the best pipeline, odd ones report it; the default was fixed before, on other logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import click
import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope._audit._basis import choose_values
from caliope._cache import Cache
from caliope._evidence import Evidence
from caliope._formulas import dm, monte_carlo, step_wis, wdr, wis
from caliope._gather import gather, target_probabilities
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
from caliope.values._defaults import fit_default_values
from caliope.values._kernel_values import fit_kernel_values
from caliope.weights import calibrate_ratios, clip_weights, marginalise_weights, normalise_under_way
from reproduction._kept import kept_fits
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
    folds: int = 2  # of the behaviour models and of the problem's own fitted values
    # All pipelines, or only the default, the previous one, the paper's, the true policy and the mean.
    every: bool = True
    last: int | None = None  # only so many target policies per process, the last ones

    def longer(self, times: int) -> Config:
        """Multiply the replicates; those of the shorter run are among them."""
        return replace(self, sizes=tuple((n, times * replicates) for n, replicates in self.sizes))

    def fewer(self) -> Config:
        """Leave out the pipelines that the default is not compared with; they take most of the time."""
        return replace(self, every=False)

    def only(self, trajectories: int) -> Config:
        """Leave out logs of other sizes."""
        sizes = tuple(size for size in self.sizes if size[0] == trajectories)
        if not sizes:
            raise click.UsageError(
                f"trajectories must be {' or '.join(str(n) for n, _ in self.sizes)}, got {trajectories}."
            )
        return replace(self, sizes=sizes)

    def key(self, name: str, n: int, seed: int) -> str:
        """Name the unit of one replicate."""
        return f"{name}-n{n}-seed{seed}{'' if self.every else '-few'}"


SMOKE = Config(("bandit-5", "clinic-hidden"), ((40, 2),), last=2)
DEFAULT = Config()
FULL = Config(PROBLEMS, ((500, 40), (2000, 20)), folds=5)


def units(config: Config) -> list[Unit]:
    """One unit for each problem, size and replicate; the replicates of a shorter run come first."""
    most = max(replicates for _, replicates in config.sizes)
    some = {} if config.last is None else {"last": config.last}
    return [
        Unit(
            config.key(name, n, seed),
            one_log,
            {"name": name, "n": n, "seed": seed, "folds": config.folds, "every": config.every, **some},
            keeps=True,
        )
        for seed in range(most)
        for n, replicates in config.sizes
        if seed < replicates
        for name in config.problems
    ]


def one_log(
    name: str,
    n: int,
    seed: int,
    folds: int,
    every: bool = True,
    last: int | None = None,
    kept: str | None = None,
) -> dict[str, Any]:
    """Log once, and answer every question by every pipeline; what was fitted is kept in a folder."""
    where = problem(name)
    data = where.simulate(n, seed_of(NAME, name, n, seed))
    fits = Fits(where, data, folds, seed, kept_fits(kept).keyed(data, name, folds, seed))
    behaviours = list(fit_behaviours(fits, every=every))
    return {
        "name": where.name,
        "worth": where.worth,
        "confounded": where.confounded,
        "spread": float(data.returns(where.gamma).std(ddof=1)),
        "questions": {
            question.name: {
                "value": question.value,
                "relative": question.relative is not None,
                "estimates": estimate_all(question, fits, behaviours, every=every),
            }
            for question in where.questions[-(last or 0) :]
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
CHOSEN = ", default values"  # those of an audit; the others are the problem's own


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
OURS = Pipeline("default", "own", "cross", "raw", f"marginalised WDR{CHOSEN}")
RELATIVE = replace(OURS, ratios="change")  # with its own influence function
ADVISED = replace(OURS, ratios="change where it can be")
PREVIOUS = replace(OURS, estimator="clipped WDR")
PREVIOUS_RELATIVE = replace(PREVIOUS, ratios="relative")  # as a table
PREVIOUS_ADVISED = replace(PREVIOUS, ratios="relative where it can be")
TRUE = Pipeline("truth", "-", "known", "raw", "clipped WDR")
TRUE_WEIGHTS = replace(TRUE, estimator="clipped WIS")
MEAN = Pipeline("-", "-", "-", "-", "mean")


@dataclass(frozen=True, eq=False)
class Fits:
    """What is fitted to one log, kept apart from estimates so that a change of an estimator refits nothing."""

    where: Problem
    data: Trajectories
    folds: int
    seed: int
    kept: Cache

    def own_values(self, target: Float) -> Float:
        """Values as the problem fits them, (N, A)."""
        found: Float = self.kept.keyed(target)(
            "own values", lambda: self.where.values(self.data, target, self.folds, self.seed)
        )
        return found

    def default_values(self, target: Float) -> tuple[tuple[Float, str], tuple[Float, str]]:
        """Values that an audit chooses among: by trees, and by a kernel per action."""
        kept, options = self.kept.keyed(target), {"gamma": self.where.gamma, "rng": self.seed}
        return (
            kept("trees", lambda: fit_default_values(self.data, target, **options)),  # type: ignore[arg-type]
            kept("kernel", lambda: fit_kernel_values(self.data, target, **options)),  # type: ignore[arg-type]
        )


@dataclass(frozen=True, eq=False)
class Behaviour:
    """A behaviour policy at every step of the log that it weighs, and how it was fitted."""

    model: str
    recalibration: str
    fit: str
    table: Float  # (N, A)
    data: Trajectories

    @property
    def weighed_anew(self) -> bool:
        """Whether weights are also normalised and marginalised: for the default, and for the truth."""
        return self.model == "truth" or (self.model == "default" and self.fit == "cross")

    def pipeline(self, ratios: str, estimator: str) -> Pipeline:
        """Name a pipeline with this behaviour policy."""
        return Pipeline(self.model, self.recalibration, self.fit, ratios, estimator)


def fit_behaviours(fits: Fits, *, every: bool) -> Iterator[Behaviour]:
    """Fit every behaviour policy to be compared; the true one comes last."""
    data, folds, seed = fits.data, fits.folds, fits.seed
    yield _fit_half(fits)
    for name, model in (_models(seed) if every else {}).items():
        crossed, same = fits.kept(name, partial(_fit_twice, model, data, folds=folds, rng=seed))
        for recalibration, calibrator in _CALIBRATORS.items():
            table = calibrator.fit(crossed, data.actions)(crossed)
            yield Behaviour(name, recalibration, "cross", table, data)
        yield Behaviour(name, "-", "same", same, data)
    model = default_model(present=fits.where.present(data), folds=folds, random_state=seed)
    crossed, same = fits.kept("default", partial(_fit_twice, model, data))
    yield Behaviour("default", "own", "cross", crossed, data)
    if every:
        yield Behaviour("default", "own", "same", same, data)
    yield Behaviour("truth", "-", "known", fits.where.truth(data), data)


def _fit_twice(model: Any, data: Trajectories, **how: Any) -> tuple[Float, Float]:
    """Probabilities from models that have not seen the trajectory, and from one that has seen all."""
    fitted = fit_behaviour(model, data, mode="cross", **how)
    return fitted.probabilities, _predict_same(fitted, data)


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


def _fit_half(fits: Fits) -> Behaviour:
    """The paper's way: neighbours in one half of the log weigh the other half; zeros are shrunk."""
    fit, weigh = fits.data.split(0.5, rng=fits.seed)

    def predict() -> Float:
        fitted = fit_behaviour(_neighbours(), fit, mode="cross")
        shrunk = Shrinkage().fit(fitted.probabilities, fit.actions)
        return _shrink_zeros(shrunk(action_probabilities(fitted.model, weigh.states, fit.n_actions)), weigh)

    return Behaviour("neighbours", "shrunk", "held out", fits.kept("half", predict), weigh)


def _predict_same(fitted: FittedBehaviour, data: Trajectories) -> Float:
    """Predictions on the log that the model was fitted on, own steps included."""
    return _shrink_zeros(action_probabilities(fitted.model, data.states, data.n_actions), data)


def _shrink_zeros(table: Float, data: Trajectories) -> Float:
    """Shrink towards the marginal, by log loss, if a logged action has probability 0 and so no weight."""
    if (table[np.arange(data.n_steps), data.actions] > 0).all():
        return table
    return Shrinkage().fit(table, data.actions)(table)


def estimate_all(
    question: Question, fits: Fits, behaviours: list[Behaviour], *, every: bool
) -> dict[str, float]:
    """Estimate one value by every pipeline; keys are the names of the pipelines."""
    where, data, truth = fits.where, fits.data, behaviours[-1].table
    q = fits.own_values(question.table(data))
    found = {MEAN: float(monte_carlo(gather(data, truth, truth, gamma=where.gamma)))}
    for each in behaviours:
        whole = each.fit != "held out"
        evidence = _evidence(each, question.table(each.data), where, q if whole else None)
        found |= _estimate(each, "raw", evidence)
        if each.weighed_anew:
            found |= _estimate_anew(each, "raw", question.table(data), fits)
        if each.weighed_anew and each.model != "truth" and question.change is not None:
            found |= _estimate_anew(each, "change", question.change, fits)
        if whole and (question.relative is not None) and each.model != "truth":
            target = question.relative(data, each.table)
            own = fits.own_values(target) if each.weighed_anew else None
            found |= _estimate(each, "relative", _evidence(each, target, where, own))
        if every and each.fit == "cross":
            found |= _estimate(each, "calibrated", _calibrate(each, question, where, evidence))
    return {str(pipeline): value for pipeline, value in found.items()}


def _estimate_anew(each: Behaviour, ratios: str, target: Any, fits: Fits) -> dict[Pipeline, float]:
    """WDR with capped, normalised and marginalised weights, with the problem's own values and those of an audit."""
    where, probabilities = fits.where, target_probabilities(fits.data, target, each.table)
    own = _evidence(each, target, where, fits.own_values(probabilities))

    def with_values(q: Float) -> tuple[Evidence, Evidence]:
        evidence = _evidence(each, target, where, q)
        return evidence, clip_weights(evidence)

    chosen = choose_values(*fits.default_values(probabilities), with_values)[2]
    log_weight = marginalise_weights(own, fits.data, rng=fits.seed).log_weight  # whatever the values
    found = {}
    for e, values in ((own, ""), (chosen, CHOSEN)):
        estimates = {
            "clipped WDR": clipped_wdr(e),
            "normalised WDR": wdr(clip_weights(normalise_under_way(e))),
            "marginalised WDR": wdr(replace(e, log_weight=log_weight)),
        }
        for name, estimate in estimates.items():
            found[each.pipeline(ratios, name + values)] = float(estimate)
    return found


def _evidence(behaviour: Behaviour, target: Any, where: Problem, q: Float | None) -> Evidence:
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
        behaviour.pipeline(ratios, name): float(estimator(evidence)) for name, estimator in estimators.items()
    }


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Goals, the best pipelines on replicates that did not choose them, and where the default loses."""
    from reproduction._table3_report import make_report

    return make_report(config, results)


def figure(found: Report) -> Any:
    """Error of the default and of the paper's pipeline relative to the plain mean, against the contrast."""
    from reproduction._table3_report import draw

    return draw(found)
