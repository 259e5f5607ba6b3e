"""Marginalised importance sampling for discrete states: weigh states, not histories."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.gathering import gather
from caliope.policies import Policy
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories
from caliope.values.fitted import transitions


def marginalised_is(
    data: Trajectories,
    target: Policy | ArrayLike,
    behaviour: Policy | ArrayLike,
    *,
    gamma: float,
    state_of: ArrayLike | None = None,
) -> float:
    r"""Value of a policy from the chances to be in each state at each step.

    .. math:: \hat d_{t+1}(s') = \sum_s \hat d_t(s)\, \hat P_t(s' \mid s), \qquad
        \hat V = \sum_t \gamma^t \sum_s \hat d_t(s)\, \hat r_t(s)

    where :math:`\hat P_t` and :math:`\hat r_t` average the transitions and rewards out of s at step t with the
    ratio :math:`\lambda_t` of that one step. Its variance grows polynomially with the length, not exponentially,
    if the states are Markov and each occurs often at each step. The chances at a step may sum to less than 1: those
    are lost of actions that the target takes and the log does not, and of states in which every trajectory was cut
    off. The last step of a cut-off trajectory is left out of the averages: what followed it was not seen.

    ``state_of`` numbers the state of each step, (N,); by default equal rows of ``data.states`` are one state.

    References
    ----------
    Xie, Ma & Wang (2019), optimal off-policy evaluation with marginalized importance sampling.
    """
    ratio = np.exp(gather(data, target, behaviour, gamma=gamma).log_ratio)
    state, layout, value = _states(data, state_of), data.layout, 0.0
    n_states = int(state.max()) + 1
    known = np.zeros(data.n_steps, dtype=bool)
    known[transitions(data)] = True
    at: Float = np.bincount(state[layout.first], minlength=n_states) / len(data)
    for t in range(layout.horizon):
        rows = np.flatnonzero((layout.time == t) & known)
        here = state[rows]
        per_visit = _share(at, np.bincount(here, minlength=n_states))[here] * ratio[rows]
        value += gamma**t * float(per_visit @ data.rewards[rows])
        goes_on = layout.lengths[layout.owner[rows]] > t + 1
        at = np.zeros(n_states)
        np.add.at(at, state[rows[goes_on] + 1], per_visit[goes_on])
    return value


def _states(data: Trajectories, state_of: ArrayLike | None) -> Int:
    """The state of each step, numbered without gaps, (N,)."""
    if state_of is None:
        return np.unique(data.states, axis=0, return_inverse=True)[1].ravel()
    given = np.asarray(state_of)
    if given.shape != (data.n_steps,) or given.dtype.kind not in "iu":
        raise ValueError(
            f"state_of must hold one whole number for each of the {data.n_steps} steps, shape ({data.n_steps},), "
            f"got {given.dtype} of shape {given.shape}; number the states, e.g. with numpy.unique."
        )
    return np.unique(given, return_inverse=True)[1]


def _share(mass: Float, visits: Any) -> Float:
    """Mass of each state over its visits; a state without visits passes nothing on."""
    return np.divide(mass, visits, out=np.zeros_like(mass), where=visits > 0)
