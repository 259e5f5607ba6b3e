"""Fitted Q over a fixed horizon: one regression for each step, from the last to the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.gathering import target_probabilities
from caliope.policies import Policy
from caliope.ragged import Float
from caliope.trajectories import Trajectories, check_gamma
from caliope.values.fitted import following, transitions
from caliope.values.regression import ActionAsFeature, ModelPerAction


@dataclass(frozen=True, eq=False)
class TimeIndexedQ:
    """Values of all actions that depend on the step: one model for each."""

    models: tuple[Any, ...]  # (T,)
    gamma: float

    def q_all(self, states: ArrayLike, t: int) -> Float:
        """Values of all actions in each state at step t, (N, A)."""
        if not 0 <= t < len(self.models):
            raise ValueError(f"there are models for the steps 0 to {len(self.models) - 1}, not for {t}.")
        return self.models[t].predict(np.asarray(states))

    def on(self, data: Trajectories) -> Float:
        """Values of all actions at every step of a log, (N, A); what ``gather(..., q=self)`` asks for."""
        table = np.empty((data.n_steps, data.n_actions))
        for t in range(data.layout.horizon):
            rows = np.flatnonzero(data.layout.time == t)
            table[rows] = self.q_all(data.states[rows], t)
        return table


def fitted_q_by_time(
    data: Trajectories,
    target: Policy | ArrayLike,
    regressor: Any,
    *,
    gamma: float,
    per_action: bool = False,
) -> TimeIndexedQ:
    r"""Fitted Q evaluation backward in time, for episodes of bounded length.

    .. math:: Q_t = \arg\min_Q \sum_i \Big( r_t + \gamma \sum_{a'} \pi_e(a' \mid s_{t+1})\, Q_{t+1}(s_{t+1}, a')
        - Q(s_t, a_t) \Big)^2

    Exact for one pass, and right where the time left matters, as under a cap on the length. The late steps are
    learned from the few trajectories that reach them. A step that no trajectory can teach (all cut off there)
    takes the model of the step before it in this pass.
    """
    check_gamma(gamma)
    proba = target_probabilities(data, target)
    known = np.zeros(data.n_steps, dtype=bool)
    known[transitions(data)] = True
    kind = ModelPerAction if per_action else ActionAsFeature
    v, models = np.zeros(data.n_steps), []
    for t in reversed(range(data.layout.horizon)):
        here = data.layout.time == t
        rows = np.flatnonzero(here & known)
        if len(rows):
            targets = data.rewards[rows] + gamma * following(data, v)[rows]
            models.append(kind(regressor, data.n_actions).fit(data.states[rows], data.actions[rows], targets))
        elif models:
            models.append(models[-1])
        else:
            continue  # nothing is known from here on: the values after the last teachable step are 0
        here = np.flatnonzero(here)
        v[here] = (proba[here] * models[-1].predict(data.states[here])).sum(axis=1)
    missing = data.layout.horizon - len(models)
    return TimeIndexedQ((*models[::-1], *[models[0]] * missing), gamma)
