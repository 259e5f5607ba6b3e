"""Table 2: the error of off-policy evaluation by behaviour model, where one log of a cohort judges the other.

The paper splits a cohort at random and by an intervention, takes the mean return of the first part for the value of its
policy, and estimates it on the second part. Two more designs have an exact truth: there the policy of the first log is
deployed in ICU-Sepsis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope._formulas import dm, monte_carlo, step_wis, wis
from caliope._gather import gather
from caliope._policies import action_probabilities
from caliope._ragged import Float
from caliope._traits import Estimator
from caliope._trajectories import Trajectories
from caliope._trees import ExtraTreesRegressor
from caliope.behaviour import Chain, Shrinkage, Temperature, default_models, fit_behaviour, paper_models
from caliope.calibration import (
    Neighbourhoods,
    averaged_floor,
    distance_to_truth,
    log_loss,
    marginal_baseline,
    neighbourhoods,
    total_variation,
)
from caliope.domains import icu_sepsis
from caliope.estimators import phwdr, phwis, step_phwis
from caliope.uncertainty._resampling import resampled_mse
from caliope.values import cross_fitted_q_by_time
from reproduction._cohorts import (
    ignore_early_stop,
    intervention_split,
    kernel_weights,
    random_split,
    read_cohort,
    selection_bias,
)
from reproduction._report import Report
from reproduction._runs import Unit, seed_of

NAME = "table2"
GAMMA = 0.99
SPLITS = {"random": random_split, "intervention": intervention_split}
DEPLOYED = ("deployed", "deployed-far")  # no vasopressors; half of the decisions optimal
LONG = 200  # steps after which in one patient of 10^12 anything goes on
FAMILIES = ("logistic", "forest", "network", "neighbours")
# Extremely randomised, leaves of ten: as a target it belongs to none of the four families, though it resembles the
# forest. Its own behaviour models would recognise it, and are not ranked where it is the target.
NEUTRAL = "trees"
WEIGHING: Mapping[str, Estimator] = {
    "mean": monte_carlo,  # of the second log, whatever the policy
    "PHWIS": phwis,
    "step-PHWIS": step_phwis,
    "WIS": wis,
    "step-WIS": step_wis,
}
VALUING: Mapping[str, Estimator] = {"AM": dm, "PHWDR": phwdr}


@dataclass(frozen=True)
class Config:
    """Sizes. The paper has 17,898 patients and 50 pairs, 10 for PHWDR."""

    patients: int = 1200  # in both logs together
    pairs: int = 4  # of each design, from a cohort of its own each
    value_pairs: int = 2  # of these, the first so many with fitted values: AM and PHWDR
    families: tuple[str, ...] = FAMILIES
    designs: tuple[str, ...] = (*SPLITS, *DEPLOYED)
    folds: int = 2
    trees: int = 50  # of the fitted values
    n_states: int = 500  # at which the calibration of a model is measured
    k: int = 150
    size: int = 200
    n_draws: int = 500
    data: str = ""  # the user's own cohort: the two splits only
    digest: str = ""  # of its content


SMOKE = Config(
    patients=60, pairs=2, value_pairs=1, families=("logistic", "neighbours"),
    designs=("random", "intervention", "deployed"), trees=5, n_states=40, k=30, size=30, n_draws=50,
)  # fmt: skip
DEFAULT = Config()
FULL = Config(patients=17_898, pairs=50, value_pairs=10)


def units(config: Config) -> list[Unit]:
    """One unit for each design and pair; on simulated patients the exact selection bias too."""
    designs = [each for each in config.designs if each in SPLITS or not config.data]
    # A longer run has more units, and the same ones.
    sizes = replace(config, pairs=0, value_pairs=0, designs=())
    pairs = [
        Unit(
            f"{design}-pair{pair}",
            one_pair,
            {"design": design, "pair": pair, "config": sizes, "values": pair < config.value_pairs},
        )
        for pair in range(config.pairs)
        for design in designs
    ]
    return pairs if config.data else [Unit("selection", exact_selection), *pairs]


def exact_selection() -> dict[str, Any]:
    """The intervention split in the process: on the scale of the experiment, and as chances of survival."""
    return {
        "rewards": vars(selection_bias(gamma=GAMMA)),
        "survival": vars(selection_bias(gamma=1.0, cap=LONG, outcome=(0.0, 1.0))),
    }


@dataclass(frozen=True, eq=False)
class Pair:
    """A log of the target policy, and the log that it is evaluated on."""

    first: Trajectories
    second: Trajectories
    worth: float | None  # exact value of the policy of the first log, if known
    behaviour_probs: Float | None = None  # (N, A), true policy of the second log, if known
    target_probs: Float | None = (
        None  # (N, A), true policy of the first log at the states of the second, if known
    )


def one_pair(design: str, pair: int, config: Config, *, values: bool) -> dict[str, Any]:
    """Evaluate the policy of the first log on the second, by every model and estimator.

    ``values``: fit Q too, for AM and PHWDR.
    """
    rng, seed = seed_of(NAME, design, pair), pair
    logs = _make_pair(design, config, rng)
    targets = _targets(logs, config, seed)
    tables = _behaviours(logs, config, seed)
    truth, errors = float(logs.first.returns(GAMMA).mean()), []
    for name, target in targets.items():
        q = _fit_values(logs.second, target, trees=config.trees, seed=seed) if values else None
        for (model, fit), table in tables.items():
            if name in (model, NEUTRAL, "truth"):
                kind = name if name in (NEUTRAL, "truth") else "own"
                errors += [
                    {"target": kind, "model": model, "fit": fit, "estimator": estimator, **error}
                    for estimator, error in _errors(logs.second, target, table, truth, config, q=q)
                ]
    return {
        "truth": truth,
        "worth": logs.worth,
        "practice": float(logs.second.returns(GAMMA).mean()),
        "tv": {f: float(total_variation(targets[f], tables[f, "cross"]).mean()) for f in config.families},
        "exact_tv": _exact_tv(logs),
        "scores": _scores(logs, tables, config, rng),
        "errors": errors,
    }


def _make_pair(design: str, config: Config, rng: np.random.Generator) -> Pair:
    if config.data:
        return Pair(*SPLITS[design](read_cohort(config.data), rng=rng), worth=None)
    if design in DEPLOYED:
        table = _deployed_policy(design)
        first = icu_sepsis.simulate(config.patients // 2, policy=table, rng=rng)
        second = icu_sepsis.simulate(config.patients // 2, rng=rng)
        probs = (icu_sepsis.true_probabilities(second, each) for each in (None, table))
        return Pair(first, second, icu_sepsis.value(table, gamma=GAMMA), *probs)
    first, second = SPLITS[design](icu_sepsis.simulate(config.patients, rng=rng), rng=rng)
    if design == "intervention":
        # The split depends on what came later, so neither log follows a policy of the state.
        return Pair(first, second, None)
    truth = icu_sepsis.true_probabilities(second)
    return Pair(first, second, icu_sepsis.value(gamma=GAMMA), truth, truth)


def _deployed_policy(design: str) -> Float:
    if design == "deployed":
        return icu_sepsis.without_vasopressors()
    return icu_sepsis.evaluation_policies()["half optimal"]


def _targets(logs: Pair, config: Config, seed: int) -> dict[str, Float]:
    """The policy of the first log as fitted by each family and by a neutral one, and the true one, (N, A) each."""
    fitted = {family: _fit_target(family, logs, seed=seed) for family in (*config.families, NEUTRAL)}
    return fitted if logs.target_probs is None else {**fitted, "truth": logs.target_probs}


def _fit_target(family: str, logs: Pair, *, seed: int) -> Float:
    """The policy of the first log, fitted, at the states of the second, (N, A)."""
    with ignore_early_stop():
        fitted = fit_behaviour(_model(family, seed), logs.first, mode="same")
    return action_probabilities(fitted.model, logs.second.states, logs.second.n_actions)


def _behaviours(logs: Pair, config: Config, seed: int) -> dict[tuple[str, str], Float]:
    """The policy of the second log by each family and fit, by the marginal, and the true one, (N, A) each."""
    data = logs.second
    found = {
        (family, fit): table
        for family in (*config.families, NEUTRAL)
        for fit, table in behaviour_tables(family, data, folds=config.folds, seed=seed).items()
    }
    found["marginal", "cross"] = marginal_baseline(data)
    return found if logs.behaviour_probs is None else {**found, ("truth", "known"): logs.behaviour_probs}


def behaviour_tables(family: str, data: Trajectories, *, folds: int, seed: int) -> dict[str, Float]:
    """Fit a model to the log that it weighs, in three ways, (N, A) each.

    "same": on the same patients; neighbours then find the step itself too. "cross": each patient by a model of the
    others, shrunk towards the marginal as far as that predicts better. "cross + temperature": recalibrated further.
    """
    with ignore_early_stop():
        fitted = fit_behaviour(_model(family, seed), data, mode="cross", folds=folds, rng=seed)
    logged = data.actions
    shrunk = Shrinkage().fit(fitted.probabilities, logged)
    warm = Chain((Shrinkage(), Temperature())).fit(fitted.probabilities, logged)
    same = action_probabilities(fitted.model, data.states, data.n_actions)
    if (same[np.arange(data.n_steps), logged] == 0).any():  # an approximate search may miss the step itself
        same = shrunk(same)
    return {
        "same": same,
        "cross": shrunk(fitted.probabilities),
        "cross + temperature": warm(fitted.probabilities),
    }


def _model(family: str, seed: int) -> Any:
    models = {**paper_models(random_state=seed), NEUTRAL: default_models(random_state=seed)["forest"]}
    return models[family]


def _fit_values(data: Trajectories, target: Float, *, trees: int, seed: int) -> Any:
    """Fitted Q evaluation with extremely randomised trees, backward in time, on the patients of the other half."""
    forest = ExtraTreesRegressor(trees, min_samples_leaf=5, max_features="sqrt", random_state=seed)
    return cross_fitted_q_by_time(data, target, forest, gamma=GAMMA, folds=2, rng=seed)


def _errors(
    data: Trajectories, target: Float, behaviour: Float, truth: float, config: Config, *, q: Any
) -> Iterator[tuple[str, dict[str, float]]]:
    """Mean squared error, bias and variance of every estimator against ``truth``, as the paper resamples."""
    evidence = gather(data, target, behaviour, gamma=GAMMA, q=q, behaviour_known=False)
    for name, estimator in {**WEIGHING, **(VALUING if q is not None else {})}.items():
        x = resampled_mse(estimator, evidence, truth, size=config.size, n_draws=config.n_draws, rng=0)
        yield name, {"mse": x.mse, "bias": x.bias, "variance": x.variance, "failed": x.failed}


def _exact_tv(logs: Pair) -> float | None:
    if logs.behaviour_probs is None or logs.target_probs is None:
        return None
    return float(total_variation(logs.behaviour_probs, logs.target_probs).mean())


def _scores(
    logs: Pair, tables: Mapping[tuple[str, str], Float], config: Config, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Calibration numbers of every table whose models had not seen the patients."""
    data = logs.second
    rows = np.sort(rng.choice(data.n_steps, min(config.n_states, data.n_steps), replace=False))
    weights = kernel_weights(data.feature_names, lags=True)
    near = neighbourhoods(data, rows, k=config.k, feature_weights=weights)
    return [
        {"model": model, "fit": fit, **_score(table, data, near, logs.behaviour_probs)}
        for (model, fit), table in tables.items()
        if fit != "same"
    ]


def _score(
    table: Float, data: Trajectories, near: Neighbourhoods, truth: Float | None
) -> dict[str, float | None]:
    """Log loss, the paper's number, its repair, and the distance to the truth."""
    h = near.histograms()
    averaged = total_variation(h, near.mean_of(table)) - averaged_floor(table, near)
    off = None if truth is None else distance_to_truth(table, truth, data.actions).tv
    return {
        "NLL": float(log_loss(table, data.actions).mean()),
        "paper TV": float(total_variation(h, table[near.rows]).mean()),
        "NA-TV excess": float(averaged.mean()),
        "true TV": None if off is None else float(off.mean()),
    }


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Errors, their parts, the ground truths, and whether calibration predicts errors."""
    from reproduction._table2_report import make_report

    return make_report(config, results)


def figure(found: Report) -> Any:
    """Errors of the four families by design and fit, with PHWIS and WIS."""
    from reproduction._table2_report import draw

    return draw(found)
