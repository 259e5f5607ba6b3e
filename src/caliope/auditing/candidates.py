"""Which behaviour models an audit tries when none are named, and on how much of the log they are fitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope.behaviour import (
    NeighbourPolicy,
    PooledPolicy,
    TabularFrequencies,
    default_model,
    default_models,
    present_columns,
)
from caliope.trajectories import Trajectories

POOL = "pool and neighbours"  # the default model's name among the candidates
_FEW_STATES = 200  # distinct ones: discrete enough to count in


def candidate_models(data: Trajectories, *, random_state: int = 0) -> Mapping[str, Any]:
    """Models from simple to complex, unfitted: counts where states are discrete, then the members and the default."""
    members = default_models(random_state=random_state)
    sample = data.states[: 20 * _FEW_STATES]
    models: dict[str, Any] = {}
    if len(np.unique(sample, axis=0)) <= _FEW_STATES:
        models["frequencies"] = TabularFrequencies()
    models["logistic"] = members["logistic, medium"]
    models["neighbours"] = make_pipeline(
        StandardScaler(), NeighbourPolicy(50, shrinkage="cv", bandwidth="cv")
    )
    # In a pool of its own: a forest rules out what none of its leaves has seen, and the pool shrinks it.
    models["forest"] = PooledPolicy({"forest": members["forest"]}, random_state=random_state)
    models[POOL] = default_model(present=present_columns(data.feature_names), random_state=random_state)
    return models
