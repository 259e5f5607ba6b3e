"""Figure 1: what an error of the behaviour policy costs, on the two-dimensional map.

Neighbours of varied k and number of training walks model two behaviour policies; the walks that are weighed are
others. How far the model is from the truth at the logged actions stands against the fractional error of the value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from caliope.behaviour import NeighbourPolicy
from caliope.calibration import distance_to_truth
from caliope.diagnostics import effective_n
from caliope.domains.toy_map import ASTRAY, HEADING, ROAMING, simulate, value, value_error
from caliope.estimators import step_wis, wis
from caliope.experiments.figure1_report import POLICIES
from caliope.experiments.figure1_report import figure as figure
from caliope.experiments.figure1_report import report as report
from caliope.experiments.fits import predicted
from caliope.experiments.runs import Unit, seed_of
from caliope.gathering import gather
from caliope.policies import action_probabilities
from caliope.trajectories import Trajectories

NAME = "figure1"
Shrunk = float | Literal["cv"]
BEHAVIOURS = dict(zip(POLICIES, (ROAMING, ASTRAY), strict=True))


@dataclass(frozen=True)
class Config:
    """Sizes. The paper gives none of them but the horizon of 15."""

    walks: int = 400  # in the log that is weighed
    training: tuple[int, ...] = (20, 60, 200, 500)  # walks that the model is fitted on, 15 points each
    k: tuple[int, ...] = (5, 15, 30, 50, 150)
    # Imaginary neighbours that act like everybody: none as in the paper, one, or as many as predict best.
    shrinkage: tuple[Shrunk, ...] = (0.0, 1.0, "cv")
    seeds: int = 20


SMOKE = Config(walks=60, training=(20, 60), k=(15, 150), seeds=2)
DEFAULT = Config()
FULL = Config(walks=1000, training=(20, 60, 200, 500, 1000), k=(5, 15, 30, 50, 150, 500), seeds=50)


def units(config: Config) -> list[Unit]:
    """The exact value, and one unit for each behaviour policy and seed."""
    sizes = replace(config, seeds=0)  # a longer run has more units, and the same ones
    logs = [
        Unit(f"{name}-seed{seed}", one_log, {"behaviour": name, "seed": seed, "config": sizes})
        for seed in range(config.seeds)
        for name in BEHAVIOURS
    ]
    return [Unit("value", exact_value), *logs]


def exact_value() -> dict[str, float]:
    """Value of the evaluation policy, and how far it may be off."""
    return {"value": value(HEADING), "error": value_error(HEADING)}


def one_log(behaviour: str, seed: int, config: Config) -> dict[str, Any]:
    """Weigh one log with every model, and with the truth."""
    acted = BEHAVIOURS[behaviour]
    log = simulate(config.walks, policy=acted, rng=seed_of(NAME, behaviour, seed, "log"))
    others = simulate(max(config.training), policy=acted, rng=seed_of(NAME, behaviour, seed, "training"))
    truth = action_probabilities(acted, log.states, log.n_actions)
    known = gather(log, HEADING, log["behaviour"])
    models = [
        {
            "walks": n,
            "k": k,
            "shrinkage": m,
            **_weighed(NeighbourPolicy(k, shrinkage=m), others[:n], log, truth),
        }
        for n in config.training
        for k in config.k
        if k < n * others.lengths[0]
        for m in config.shrinkage
    ]
    true = {"wis": float(wis(known)), "step_wis": float(step_wis(known)), "effective_n": effective_n(known)}
    return {"truth": true, "models": models}


def _weighed(model: NeighbourPolicy, train: Trajectories, log: Trajectories, truth: Any) -> dict[str, Any]:
    """Fit on other walks; where a logged action gets probability 0 there is no weight and no estimate."""
    table = predicted(model, train, log.states)
    off = distance_to_truth(table, truth, log.actions)
    zero = float((table[np.arange(log.n_steps), log.actions] == 0).mean())
    found = {"error": float(off.at_logged.mean()), "tv": float(off.tv.mean()), "zero_share": zero}
    if zero:
        return found | {"wis": None, "step_wis": None}
    e = gather(log, HEADING, table, behaviour_known=False)
    return found | {"wis": float(wis(e)), "step_wis": float(step_wis(e))}
