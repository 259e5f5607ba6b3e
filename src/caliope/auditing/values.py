"""Fitted values for a whole log from a part of it, no trajectory by a model that has seen it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories
from caliope.values import cross_fitted_q
from caliope.values.fitted import FittedQ

_ROUNDS = 30  # at most; no more than the longest episode


def values_on(
    data: Trajectories,
    part: Trajectories,
    which: Int,
    wanted: Float,
    regressor: Any,
    *,
    gamma: float,
    rng: int,
) -> Float:
    """Values of all actions at every step under the target, (N, A).

    Cross-fitted on the trajectories ``which``; the others, which no model has seen, get the mean of the models.
    """
    trees = ExtraTreesRegressor(30, min_samples_leaf=20, max_features="sqrt", n_jobs=-1, random_state=rng)
    rows = data.layout.rows_of(which)
    fitted = cross_fitted_q(
        part,
        wanted[rows],
        trees if regressor is None else regressor,
        gamma=gamma,
        n_iterations=min(part.layout.horizon, _ROUNDS),
        folds=2,
        rng=rng,
    )
    if len(rows) == data.n_steps:
        return fitted.table
    table = np.empty((data.n_steps, data.n_actions))
    table[rows] = fitted.table
    new = np.ones(data.n_steps, dtype=bool)
    new[rows] = False
    models = [model for model in fitted.models if isinstance(model, FittedQ)]
    table[new] = np.mean([model.q_all(data.states[new]) for model in models], axis=0)
    return table
