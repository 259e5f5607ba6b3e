"""Values for a log from models that have not seen the trajectory: what the doubly robust family asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.gathering import target_probabilities
from caliope.policies import Policy
from caliope.ragged import Float, read_only
from caliope.trajectories import Trajectories
from caliope.values.fitted import FittedQ, fitted_q


@dataclass(frozen=True, eq=False)
class CrossFittedQ:
    """Values of all actions at every step of one log, each trajectory's by a model fitted without it."""

    table: Float  # (N, A)
    models: tuple[FittedQ, ...]
    data: Trajectories

    def on(self, data: Trajectories) -> Float:
        """Return the values kept for the log that was cross-fitted; there are none for any other."""
        if data is not self.data:
            raise ValueError(
                "cross-fitted values belong to the log that they were fitted on; use fitted_q for another."
            )
        return self.table


def cross_fitted_q(
    data: Trajectories,
    target: Policy | ArrayLike,
    regressor: Any,
    *,
    gamma: float,
    n_iterations: int,
    folds: int = 5,
    rng: int | np.random.Generator,
    **options: Any,
) -> CrossFittedQ:
    """Fitted Q evaluation across folds of trajectories.

    A flexible regressor explains the very rewards it was fitted on, the correction of a doubly robust
    estimate then vanishes, and its interval is too short. Options go to :func:`fitted_q`.
    """
    proba = target_probabilities(data, target)
    fold = data.fold_of(folds, rng=rng)
    table, models = np.empty((data.n_steps, data.n_actions)), []
    for j in range(folds):
        fit = np.flatnonzero(fold != j)
        rows = data.layout.rows_of(fit)
        models.append(
            fitted_q(data[fit], proba[rows], regressor, gamma=gamma, n_iterations=n_iterations, **options)
        )
        held_out = data.layout.rows_of(np.flatnonzero(fold == j))
        table[held_out] = models[-1].q_all(data.states[held_out])
    return CrossFittedQ(read_only(table), tuple(models), data)
