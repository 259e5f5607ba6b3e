"""Fitted values for a whole log from a part of it, no trajectory by a model that has seen it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories
from caliope.values import cross_fitted_q, cross_fitted_q_by_time
from caliope.values.crossfit import CrossFittedQ

_ROUNDS = 30  # of fitted Q at most, and no more than the longest episode
_FEATURES = 30  # looked at for every split
_AT_THE_CAP = 0.02  # of the episodes that are as long as the longest: then their length is capped


def values_on(
    data: Trajectories, which: Int, wanted: Float, regressor: Any, *, gamma: float, rng: int
) -> tuple[Float, str]:
    """Values of all actions at every step under the target, (N, A), and how they were fitted.

    Cross-fitted on the trajectories ``which``; the others, which no model has seen, take turns with the models.
    """
    part = data.part(which)
    # On one thread: several sum the trees in whatever order they end, and the next round splits elsewhere for the last
    # digit. For the same reason probabilities that a forest may have summed are rounded.
    given = _trees(data, rng) if regressor is None else regressor
    rows = data.layout.rows_of(which)
    fitted, how = _fitted(part, np.round(wanted[rows], 12), given, gamma, rng)
    how = f"{type(given).__name__}, {how}, cross-fitted"
    if part is data:
        return fitted.table, how
    table = np.empty((data.n_steps, data.n_actions))
    table[rows] = fitted.table
    new = np.setdiff1d(np.arange(len(data)), which)
    for turn, model in enumerate(fitted.models):
        own = new[turn :: len(fitted.models)]
        if len(own):
            table[data.layout.rows_of(own)] = model.on(data[own])
    return table, how


def _trees(data: Trajectories, seed: int) -> ExtraTreesRegressor:
    # Trees that look at few features miss the action among them, and values shrink towards those of practice.
    features = min(_FEATURES, data.states.shape[1] + data.n_actions)
    return ExtraTreesRegressor(30, min_samples_leaf=5, max_features=features, random_state=seed)


def _fitted(
    part: Trajectories, wanted: Float, regressor: Any, gamma: float, rng: int
) -> tuple[CrossFittedQ, str]:
    horizon = part.layout.horizon
    capped = (part.lengths == horizon).mean() > _AT_THE_CAP
    if capped and 1 < horizon <= _ROUNDS and part.terminated.all():
        # Values that do not know the time left are wrong near the end of an episode that is cut short.
        return cross_fitted_q_by_time(part, wanted, regressor, gamma=gamma, folds=2, rng=rng), "by step"
    rounds = min(horizon, _ROUNDS)
    fitted = cross_fitted_q(part, wanted, regressor, gamma=gamma, n_iterations=rounds, folds=2, rng=rng)
    return fitted, f"{rounds} rounds"
