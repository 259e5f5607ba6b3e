"""Marginalised importance sampling for discrete states: weigh states, not histories."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.gathering import gather
from caliope.policies import Policy
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories


def marginalised_is(
    data: Trajectories,
    target: Policy | ArrayLike,
    behaviour: Policy | ArrayLike,
    *,
    gamma: float,
    state_of: Int | None = None,
) -> float:
    r"""Value of a policy from the chances to be in each state at each step.

    .. math:: \hat d_{t+1}(s') = \sum_s \hat d_t(s)\, \hat P_t(s' \mid s), \qquad
        \hat V = \sum_t \gamma^t \sum_s \hat d_t(s)\, \hat r_t(s)

    where :math:`\hat P_t` and :math:`\hat r_t` average the transitions and rewards out of s at step t with the
    ratio :math:`\lambda_t` of that one step. Its variance grows polynomially with the length, not exponentially,
    if the states are Markov and each occurs often at each step. A state that the target reaches and the log
    does not has no successors: the chance that flows into it is lost.

    ``state_of`` numbers the state of each step, (N,); by default equal rows of ``data.states`` are one state.

    References
    ----------
    Xie, Ma & Wang (2019), optimal off-policy evaluation with marginalized importance sampling.
    """
    ratio = np.exp(gather(data, target, behaviour, gamma=gamma).log_ratio)
    if state_of is None:
        state_of = np.unique(data.states, axis=0, return_inverse=True)[1].ravel()
    n_states = int(state_of.max()) + 1
    layout, value = data.layout, 0.0
    at: Float = np.bincount(state_of[layout.first], minlength=n_states) / len(data)
    for t in range(layout.horizon):
        rows = np.flatnonzero(layout.time == t)
        here = state_of[rows]
        per_visit = _share(at, np.bincount(here, minlength=n_states))[here] * ratio[rows]
        value += gamma**t * float(per_visit @ data.rewards[rows])
        goes_on = layout.lengths[layout.owner[rows]] > t + 1
        at = np.zeros(n_states)
        np.add.at(at, state_of[rows[goes_on] + 1], per_visit[goes_on])
    return value


def _share(mass: Float, visits: Any) -> Float:
    """Mass of each state over its visits; a state without visits passes nothing on."""
    return np.divide(mass, visits, out=np.zeros_like(mass), where=visits > 0)
