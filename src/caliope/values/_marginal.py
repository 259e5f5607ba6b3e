"""Marginalised importance sampling for discrete states: it weights states, not histories."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._gather import gather
from caliope._policies import Policy
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope.values._fqe import transitions


def marginalised_is(
    data: Trajectories,
    target: Policy | ArrayLike,
    behaviour: Policy | ArrayLike,
    *,
    gamma: float,
    state_of: ArrayLike | None = None,
) -> float:
    r"""Estimate the value of a policy from the probability of each state at each step.

    .. math:: \hat d_{t+1}(s') = \sum_s \hat d_t(s)\, \hat P_t(s' \mid s), \qquad
        \hat V = \sum_t \gamma^t \sum_s \hat d_t(s)\, \hat r_t(s)

    where :math:`\hat P_t` and :math:`\hat r_t` average the transitions and rewards out of s at step t with the
    ratio :math:`\lambda_t` of that one step. The variance grows polynomially with the length, not exponentially,
    if the states are Markov and each occurs often at each step. The probabilities at a step may sum to less than 1:
    actions of the target that the log lacks are lost, and so are states in which every trajectory was cut off. The last
    step of a cut-off trajectory is left out of the averages, for what followed it is unknown.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The target policy, or its probabilities at the logged states.
    behaviour : Policy, or array of shape (N, A) or (N,)
        The behaviour policy, or its probabilities of all or of the logged actions.
    gamma : float
        Discount in [0, 1].
    state_of : array-like of int, shape (N,), optional
        The number of the state of each step; by default equal rows of ``data.states`` are one state.

    Returns
    -------
    float
        The estimated value.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.domains import ward
    >>> from caliope.values import marginalised_is
    >>> data = ward.simulate(200, rng=0)
    >>> value = marginalised_is(data, TabularPolicy(ward.EARLIER), TabularPolicy(ward.PRACTICE), gamma=1.0)
    >>> print(f"{value:.2f}")
    0.51

    References
    ----------
    Xie, Ma & Wang (2019), optimal off-policy evaluation with marginalized importance sampling.
    """
    ratio = np.exp(gather(data, target, behaviour, gamma=gamma).log_ratio)
    state, layout, value = _number_states(data, state_of), data.layout, 0.0
    n_states = int(state.max()) + 1
    known = np.zeros(data.n_steps, dtype=bool)
    known[transitions(data)] = True
    at: Float = np.bincount(state[layout.first], minlength=n_states) / len(data)
    for t in range(layout.horizon):
        rows = np.flatnonzero((layout.time == t) & known)
        here = state[rows]
        per_visit = _divide(at, np.bincount(here, minlength=n_states))[here] * ratio[rows]
        value += gamma**t * float(per_visit @ data.rewards[rows])
        goes_on = layout.lengths[layout.owner[rows]] > t + 1
        at = np.zeros(n_states)
        np.add.at(at, state[rows[goes_on] + 1], per_visit[goes_on])
    return value


def _number_states(data: Trajectories, state_of: ArrayLike | None) -> Int:
    """Number the state of each step without gaps, (N,)."""
    if state_of is None:
        return np.unique(data.states, axis=0, return_inverse=True)[1].ravel()
    numbers = np.asarray(state_of)
    if numbers.shape != (data.n_steps,) or numbers.dtype.kind not in "iu":
        raise ValueError(
            f"state_of must hold one whole number for each of the {data.n_steps} steps, shape ({data.n_steps},), "
            f"got {numbers.dtype} of shape {numbers.shape}; number the states, e.g. with numpy.unique."
        )
    return np.unique(numbers, return_inverse=True)[1]


def _divide(mass: Float, visits: Any) -> Float:
    """Divide the mass of each state by its visits; 0 for a state without visits."""
    return np.divide(mass, visits, out=np.zeros_like(mass), where=visits > 0)
