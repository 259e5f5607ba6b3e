"""Which calibration number ranks behaviour models as the truth does? Asked in the zoo, where the truth is known.

Eight models, the true policy among them, are measured on held-out trajectories by every number, and by their total
variation to the truth, which no real log knows. A number is good if it puts the models in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from caliope.behaviour import (
    NeighbourPolicy,
    NetworkPolicy,
    Shrinkage,
    Temperature,
    recalibrate,
)
from caliope.calibration import (
    Neighbourhoods,
    balance_table,
    brier_loss,
    classwise_error,
    kernel_error,
    log_loss,
    neighbourhood_calibration,
    neighbourhoods,
    top_label_error,
    total_variation,
)
from caliope.domains import zoo
from caliope.experiments.fits import predicted
from caliope.experiments.runs import Unit, seed_of
from caliope.experiments.zoo_report import METRICS, TRUE, TRUTH
from caliope.experiments.zoo_report import figure as figure
from caliope.experiments.zoo_report import report as report
from caliope.ragged import Float
from caliope.trajectories import Trajectories

NAME = "zoo"
MEMBERS = {
    "linear-50": zoo.MEMBERS[0],
    "linear-10": zoo.MEMBERS[1],
    "protocol": zoo.MEMBERS[2],
    "local": zoo.MEMBERS[3],
    "overconfident": zoo.MEMBERS[4],
    "sites": zoo.sites,
}


@dataclass(frozen=True)
class Config:
    """Sizes; a log has ten steps a trajectory, and as many trajectories to fit on as to measure with."""

    members: tuple[str, ...] = tuple(MEMBERS)
    trajectories: int = 600
    seeds: int = 10
    k: int = 150
    n_states: int = 1000
    n_draws: int = 50
    trees: int = 50


SMOKE = Config(("protocol", "sites"), trajectories=60, seeds=2, k=30, n_states=100, n_draws=20, trees=10)
DEFAULT = Config()
FULL = Config(trajectories=2000, seeds=20, n_states=5000, n_draws=200, trees=100)


def units(config: Config) -> list[Unit]:
    """One unit for each policy of the zoo and seed."""
    sizes = replace(config, seeds=0, members=())  # a longer run has more units, and the same ones
    return [
        Unit(f"{member}-seed{seed}", one_log, {"member": member, "seed": seed, "config": sizes})
        for seed in range(config.seeds)
        for member in config.members
    ]


def one_log(member: str, seed: int, config: Config) -> dict[str, Any]:
    """Fit every model on one log, and measure it on another."""
    policy = MEMBERS[member](rng=seed_of(NAME, member, seed, "policy"))
    train, test = (
        zoo.simulate(policy, config.trajectories, rng=seed_of(NAME, member, seed, part))
        for part in ("train", "test")
    )
    truth = policy.predict_proba(test.states)
    rows = seed_of(NAME, member, seed, "states").choice(
        test.n_steps, min(config.n_states, test.n_steps), False
    )
    near = neighbourhoods(test, np.sort(rows), k=config.k)
    tables = _models(train, test, seed, config) | {TRUTH: truth}
    return {
        name: _measured(table, test, near, config) | {TRUE: total_variation(table, truth).mean()}
        for name, table in tables.items()
    }


def _models(train: Trajectories, test: Trajectories, seed: int, config: Config) -> dict[str, Float]:
    """Probabilities of each model at every step of the test log, (N, 25)."""
    forest = RandomForestClassifier(config.trees, min_samples_leaf=5, random_state=seed)
    logistic = predicted(LogisticRegression(max_iter=1000), train, test.states)
    marginal = np.bincount(train.actions, minlength=train.n_actions) / train.n_steps
    tables = {
        "neighbours": predicted(NeighbourPolicy(config.k, shrinkage="cv"), train, test.states),
        "logistic": logistic,
        "forest": recalibrate(forest, train, Shrinkage(), folds=2, rng=seed).on(test),
        "network": predicted(NetworkPolicy(random_state=seed), train, test.states),
        "marginal": np.tile(marginal, (test.n_steps, 1)),
        "logistic, too sure": Temperature(0.5)(logistic),
        "logistic, too unsure": Temperature(2.0)(logistic),
    }
    return {name: _with_one_more_step(table, train) for name, table in tables.items()}


def _with_one_more_step(table: Float, train: Trajectories) -> Float:
    """One imaginary step is spread over all actions, so that none is ruled out because nobody took it yet."""
    n = train.n_steps
    return (n * table + 1 / train.n_actions) / (n + 1)


def _measured(table: Float, test: Trajectories, near: Neighbourhoods, config: Config) -> dict[str, float]:
    """Every number of one model; the smaller the better."""
    draws = config.n_draws
    around = neighbourhood_calibration(table, near, n_draws=draws, rng=0)
    paper = around.paper_metric()
    values = (
        paper.value,
        abs(paper.excess),
        around.averaged_metric().excess,
        log_loss(table, test.actions).mean(),
        brier_loss(table, test.actions).mean(),
        top_label_error(table, test.actions, n_draws=20, rng=0).ece.value,
        classwise_error(table, test.actions, n_draws=20, rng=0).ece.value,
        kernel_error(table, test, n_rows=1000, n_draws=20, rng=0).value,
        balance_table(table, test, n_draws=20, rng=0).largest.value,
    )
    return dict(zip(METRICS, map(float, values), strict=True))
