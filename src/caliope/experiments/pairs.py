"""Two policies, each known by a log: one to be evaluated on the log of the other, by every model and estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from caliope.behaviour import (
    Chain,
    FittedBehaviour,
    Shrinkage,
    Temperature,
    default_models,
    fit_behaviour,
    paper_models,
)
from caliope.calibration import (
    Neighbourhoods,
    averaged_floor,
    distance_to_truth,
    log_loss,
    marginal_baseline,
    total_variation,
)
from caliope.estimators import Estimator, dm, monte_carlo, phwdr, phwis, step_phwis, step_wis, wis
from caliope.experiments.cohorts import unfinished_training
from caliope.gathering import gather
from caliope.policies import action_probabilities
from caliope.ragged import Float
from caliope.resampled_error import resampled_mse
from caliope.trajectories import Trajectories
from caliope.values import CrossFittedQ, cross_fitted_q_by_time

FAMILIES = ("logistic", "forest", "network", "neighbours")
# Extremely randomised, leaves of ten: as a target it belongs to none of the four families, though it is akin to the
# forest. Its own behaviour models recognise it, and are not compared with the others where it is the target.
NEUTRAL = "trees"
WEIGHING: Mapping[str, Estimator] = {
    "mean": monte_carlo,  # of the second log, whatever the policy
    "PHWIS": phwis,
    "step-PHWIS": step_phwis,
    "WIS": wis,
    "step-WIS": step_wis,
}
VALUING: Mapping[str, Estimator] = {"AM": dm, "PHWDR": phwdr}


@dataclass(frozen=True, eq=False)
class Pair:
    """A log of the policy to be evaluated, and the log that it is evaluated on."""

    first: Trajectories
    second: Trajectories
    worth: float | None  # exact value of the policy that acted in the first log, where it is known
    acted: Float | None = None  # (N, A), who acted in the second log, where that is known
    wanted: Float | None = (
        None  # (N, A), who acted in the first log, at the states of the second, where known
    )


def model_of(family: str, seed: int) -> Any:
    """An unfitted model."""
    models = {**paper_models(random_state=seed), NEUTRAL: default_models(random_state=seed)["forest"]}
    return models[family]


@dataclass(frozen=True, eq=False)
class Tables:
    """Probabilities of one model in the log of the behaviour policy, fitted in three ways, (N, A) each."""

    same: Float  # fitted on the same patients
    cross: (
        Float  # each patient by a model of others, shrunk towards the marginal as far as that predicts better
    )
    recalibrated: Float  # the same, and a temperature

    def by_fit(self) -> dict[str, Float]:
        """Each under its name."""
        return {"same": self.same, "cross": self.cross, "cross + temperature": self.recalibrated}


def behaviour_tables(family: str, data: Trajectories, *, folds: int, seed: int) -> Tables:
    """Fit a model to the log it will weigh.

    Neighbours in their own log find themselves too, as anyone would who queries the points that were stored.
    """
    fitted = _fitted(family, data, folds=folds, seed=seed)
    logged = data.actions
    shrunk = Shrinkage().fit(fitted.probabilities, logged)
    warm = Chain((Shrinkage(), Temperature())).fit(fitted.probabilities, logged)
    same = action_probabilities(fitted.model, data.states, data.n_actions)
    if (same[np.arange(data.n_steps), logged] == 0).any():  # an approximate search may miss the point itself
        same = shrunk(same)
    return Tables(same, shrunk(fitted.probabilities), warm(fitted.probabilities))


def _fitted(family: str, data: Trajectories, *, folds: int, seed: int) -> FittedBehaviour:
    with unfinished_training():
        return fit_behaviour(model_of(family, seed), data, mode="cross", folds=folds, rng=seed)


def evaluation_table(family: str, pair: Pair, *, seed: int) -> Float:
    """The policy of the first log as a model learned it, at the states of the second, (N, A)."""
    with unfinished_training():
        fitted = fit_behaviour(model_of(family, seed), pair.first, mode="same")
    return action_probabilities(fitted.model, pair.second.states, pair.second.n_actions)


def fitted_values(data: Trajectories, target: Float, *, gamma: float, trees: int, seed: int) -> CrossFittedQ:
    """Fitted Q evaluation with extremely randomised trees, backward in time, on the patients of the other half."""
    forest = ExtraTreesRegressor(trees, min_samples_leaf=5, max_features="sqrt", random_state=seed)
    return cross_fitted_q_by_time(data, target, forest, gamma=gamma, folds=2, rng=seed)


@dataclass(frozen=True)
class Resampling:
    """The paper's way to an error: so many samples of so many trajectories."""

    gamma: float
    size: int = 200
    n_draws: int = 500


def errors(
    data: Trajectories, target: Float, behaviour: Float, truth: float, how: Resampling, q: Any = None
) -> dict[str, dict[str, float]]:
    """Mean squared error, bias and variance of every estimator against ``truth``."""
    evidence = gather(data, target, behaviour, gamma=how.gamma, q=q, behaviour_known=False)
    estimators = {**WEIGHING, **(VALUING if q is not None else {})}
    found = {}
    for name, estimator in estimators.items():
        error = resampled_mse(estimator, evidence, truth, size=how.size, n_draws=how.n_draws, rng=0)
        found[name] = {
            "mse": error.mse,
            "bias": error.bias,
            "variance": error.variance,
            "failed": error.failed,
        }
    return found


Scores = Callable[[Float], dict[str, float | None]]


def scores(data: Trajectories, near: Neighbourhoods, acted: Float | None) -> Scores:
    """Calibration numbers of a table (N, A) in one log: NLL, the paper's, its repair, and the distance to the truth."""
    h = near.histograms()

    def of(table: Float) -> dict[str, float | None]:
        averaged = total_variation(h, near.mean_of(table)) - averaged_floor(table, near)
        return {
            "NLL": float(log_loss(table, data.actions).mean()),
            "paper TV": float(total_variation(h, table[near.rows]).mean()),
            "NA-TV excess": float(averaged.mean()),
            "true TV": None
            if acted is None
            else float(distance_to_truth(table, acted, data.actions).tv.mean()),
        }

    return of


def marginal_table(data: Trajectories) -> Float:
    """How often other patients receive each action, whatever their state, (N, A)."""
    return marginal_baseline(data)
