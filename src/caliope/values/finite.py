"""Fitted Q over a fixed horizon: one regression for each step, from the last to the first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.gathering import target_probabilities
from caliope.policies import Policy
from caliope.ragged import Bool, Float
from caliope.results import Finding
from caliope.trajectories import Trajectories, check_gamma
from caliope.values.fitted import following, same_data
from caliope.values.regression import Model, check_finite, unfitted


@dataclass(frozen=True, eq=False)
class TimeIndexedQ:
    """Values of all actions that depend on the step: one model for each."""

    models: tuple[Model, ...]  # (T,)
    gamma: float
    fitted_on: frozenset[bytes] = field(default=frozenset(), repr=False)  # digests of trajectories

    def q_all(self, states: ArrayLike, t: int) -> Float:
        """Values of all actions in each state at step t, (N, A)."""
        if not 0 <= t < len(self.models):
            raise ValueError(f"there are models for the steps 0 to {len(self.models) - 1}, not for {t}.")
        return self.models[t].predict(np.asarray(states))

    def on(self, data: Trajectories) -> Float:
        """Values of all actions at every step of a log, (N, A); what ``gather(..., q=self)`` asks for.

        A step later than all that were fitted takes the last model.
        """
        table = np.empty((data.n_steps, data.n_actions))
        time = np.minimum(data.layout.time, len(self.models) - 1)
        for t in range(int(time.max()) + 1):
            rows = np.flatnonzero(time == t)
            table[rows] = self.q_all(data.states[rows], t)
        return table

    def notes_for(self, data: Trajectories) -> tuple[Finding, ...]:
        """What a reader of an estimate from ``data`` with these values must know."""
        return same_data(self.fitted_on, data)

    def doubts(self) -> tuple[Finding, ...]:
        """None: one pass is exact, with nothing to settle."""
        return ()


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
    learned from the few trajectories that reach them.

    What follows the last step of a cut-off trajectory is unknown, and the step teaches nothing. Where all that reach
    a step are cut off there or later, its value is unknown too, and a step that leads there teaches nothing either.
    The last step that can be taught is therefore the latest at which a trajectory ended, and only those that end
    there teach it; later steps take its model. If many are cut off late, these few are no fair sample:
    use :func:`fitted_q`.
    """
    check_gamma(gamma)
    proba, layout = target_probabilities(data, target), data.layout
    model, known = unfitted(regressor, data.n_actions, per_action=per_action), _teaching(data)
    v, models = np.zeros(data.n_steps), []
    last = int(layout.time[known].max())
    for t in reversed(range(last + 1)):
        here = layout.time == t
        rows, everyone = np.flatnonzero(here & known), np.flatnonzero(here)
        targets = data.rewards[rows] + gamma * following(data, v)[rows]
        models.append(model.fit(data.states[rows], data.actions[rows], targets))
        q = check_finite(models[-1].predict(data.states[everyone]), f"step {t}")
        v[everyone] = (proba[everyone] * q).sum(axis=1)
    late = [models[0]] * (layout.horizon - 1 - last)
    return TimeIndexedQ((*models[::-1], *late), gamma, frozenset(data.digests))


def _teaching(data: Trajectories) -> Bool:
    """Steps from which something is known: of what follows them, the reward and the value."""
    layout = data.layout
    if not data.terminated.any():
        raise ValueError(
            f"fitted_q_by_time: all {len(data)} trajectories are cut off, so that the value of no last step is known; "
            "no trajectory ends: use fitted_q."
        )
    last = int(layout.lengths[data.terminated].max()) - 1  # nothing is known of the steps after it
    known = layout.time < last
    known[layout.last] = data.terminated
    return known
