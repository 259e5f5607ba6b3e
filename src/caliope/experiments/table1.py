"""Table 1: total variation between behaviour models and the neighbours of a state, by severity.

Models are fitted on some patients of ICU-Sepsis and measured on others: by the paper's number with its null, by the
neighbourhood-averaged one, by likelihood and Brier score, and by the distance to the policy that really acted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope.behaviour import (
    Chain,
    Shrinkage,
    Temperature,
    default_model,
    paper_models,
    present_columns,
    recalibrate,
)
from caliope.calibration import (
    Neighbourhoods,
    brier_loss,
    log_loss,
    neighbourhood_calibration,
    neighbourhoods,
    severity_strata,
    total_variation,
)
from caliope.experiments.cohorts import Cohorts, from_file, kernel_weights, simulated, unfinished_training
from caliope.experiments.fits import predicted
from caliope.experiments.runs import Unit, seed_of
from caliope.experiments.table1_report import figure as figure
from caliope.experiments.table1_report import report as report
from caliope.policies import action_probabilities
from caliope.ragged import Float

NAME = "table1"
STRATA = ("0-4", "5-9", "10-13", "14+")


@dataclass(frozen=True)
class Config:
    """Sizes. The paper has 17,898 patients, does not say how they were parted, and looks at 500 states a stratum."""

    train: int = 1000  # patients
    test: int = 3000
    models: tuple[str, ...] = ("logistic", "forest", "network", "neighbours", "default", "truth")
    seeds: int = 5
    n_states: int = 500
    k: int = 150
    n_draws: int = 100
    folds: int = 3  # of the recalibration
    weigh_lags: bool = True  # the kernel counts informative features of earlier steps twice too
    data: str = ""  # a reader's own cohort instead of simulated patients
    digest: str = ""  # of its content


SMOKE = Config(60, 80, ("logistic", "neighbours", "truth"), seeds=2, n_states=40, k=30, n_draws=20, folds=2)
DEFAULT = Config()
FULL = Config(train=8949, test=8949, seeds=20, folds=5)


def units(config: Config) -> list[Unit]:
    """One unit for each model and seed; on a reader's own data there is no truth to measure."""
    sizes = replace(config, seeds=0, models=())  # a longer run has more units, and the same ones
    models = [model for model in config.models if not (config.data and model == "truth")]
    return [
        Unit(f"{model}-seed{seed}", one_model, {"model": model, "seed": seed, "config": sizes})
        for seed in range(config.seeds)
        for model in models
    ]


def one_model(model: str, seed: int, config: Config) -> dict[str, Any]:
    """Fit one model as it is and recalibrated, and measure both in every stratum."""
    logs = from_file(config.data) if config.data else _patients(seed, config)
    strata = severity_strata(logs.sofa)
    rng = seed_of(NAME, seed, "states")
    rows = [np.flatnonzero(strata == stratum) for stratum in STRATA]
    rows = [rng.choice(each, min(config.n_states, len(each)), replace=False) for each in rows]
    weights = kernel_weights(logs.test.feature_names, lags=config.weigh_lags)
    near = neighbourhoods(logs.test, np.sort(np.concatenate(rows)), k=config.k, feature_weights=weights)
    return {
        variant: _measured(table, logs, near, strata, config)
        for variant, table in _tables(model, logs, seed, config).items()
    }


def _patients(seed: int, config: Config) -> Cohorts:
    return simulated(config.train, config.test, seed_of(NAME, seed, "patients"))


def _tables(model: str, logs: Cohorts, seed: int, config: Config) -> dict[str, Float]:
    """Probabilities at every step of the test log, as fitted and recalibrated, (N, 25) each."""
    if model == "truth":
        if logs.truth is None:
            raise ValueError("the truth is known for simulated patients only.")
        return {"raw": logs.truth}
    if model == "default":
        present = present_columns(logs.train.feature_names)
        pool = default_model(present=present, random_state=seed)
        return {"raw": predicted(pool, logs.train, logs.test.states)}
    calibrator = Chain((Shrinkage(), Temperature()))
    with unfinished_training():
        both = recalibrate(
            paper_models(random_state=seed)[model], logs.train, calibrator, folds=config.folds, rng=seed
        )
    raw = action_probabilities(both.model.model, logs.test.states, logs.test.n_actions)
    return {"raw": raw, "recalibrated": both.calibrator(raw)}


def _measured(
    table: Float, logs: Cohorts, near: Neighbourhoods, strata: Any, config: Config
) -> dict[str, dict[str, float]]:
    """Every number for the whole log and for each stratum."""
    around = neighbourhood_calibration(table, near, n_draws=config.n_draws, rng=0)
    losses = {"nll": log_loss(table, logs.test.actions), "brier": brier_loss(table, logs.test.actions)}
    losses["zero_share"] = np.isinf(losses["nll"]).astype(float)
    if logs.truth is not None:
        losses["true_tv"] = total_variation(table, logs.truth)
    found: dict[str, dict[str, float]] = {}
    for stratum in ("all", *STRATA):
        steps = np.flatnonzero((strata == stratum) | (stratum == "all"))
        weights = _state_weights(strata, near, stratum)
        if not weights.any():
            continue
        paper, averaged = around.paper_metric(weights), around.averaged_metric(weights)
        found[stratum] = {
            "states": int((weights > 0).sum()),
            "paper": paper.value,
            "null": paper.null_mean,
            "z": paper.z,
            "averaged_excess": averaged.excess,
            "averaged_z": averaged.z,
        } | {name: float(each[steps].mean()) for name, each in losses.items()}
    return found


def _state_weights(strata: Any, near: Neighbourhoods, stratum: str) -> Float:
    """The states of a stratum alike; over all of them, each for as many steps as it was drawn from, (M,)."""
    drawn = strata[near.rows]
    if stratum != "all":
        return (drawn == stratum).astype(np.float64)
    stands_for = {name: (strata == name).sum() / (drawn == name).sum() for name in set(drawn)}
    return np.array([stands_for[name] for name in drawn])
