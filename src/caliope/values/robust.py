"""Linear values chosen to make the doubly robust estimate vary least, rather than to fit best."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from caliope.gathering import gather, target_probabilities
from caliope.policies import Policy
from caliope.ragged import Float
from caliope.trajectories import Trajectories
from caliope.values.linear import Features, LinearQ, intercept_and_states


def more_robust_q(
    data: Trajectories,
    target: Policy | ArrayLike,
    behaviour: Policy | ArrayLike,
    *,
    gamma: float,
    features: Features = intercept_and_states,
) -> LinearQ:
    r"""Values that minimise the variance of the doubly robust estimate (MRDR).

    Given the past, a doubly robust step is :math:`\hat V + \lambda (R - \hat Q)`, whose mean does not depend on
    :math:`\hat Q` and whose second moment is, up to a constant,

    .. math:: \hat Q^\top \big( \mathrm{diag}(\pi_e^2 / \pi_b) - \pi_e \pi_e^\top \big) \hat Q
        - 2\, E\big[ \lambda R\, (\lambda \hat Q(a) - \hat V) \big]

    The sum over steps, each with weight :math:`\gamma^{2t} \rho_{t-1}^2`, is minimised over linear
    :math:`\hat Q`, with :math:`R_t = \sum_{j \ge t} \gamma^{j-t} \lambda_{t+1} \cdots \lambda_j\, r_j`. With an
    estimated behaviour policy its error enters twice; cross-fit it.

    References
    ----------
    Farajtabar, Chow & Ghavamzadeh (2018), more robust doubly robust off-policy evaluation.
    """
    e = gather(data, target, behaviour, gamma=gamma)
    pi_e, pi_b = target_probabilities(data, target), target_probabilities(data, behaviour)
    x = np.asarray(features(data.states), dtype=np.float64)
    ratio = np.exp(e.log_ratio)
    weight = e.discounted(e.rho_before) ** 2
    taken = np.eye(data.n_actions)[data.actions]
    # The quadratic form is (diag(pi_e^2 / pi_b) - pi_e pi_e') in actions, times x x' in features.
    square = np.divide(pi_e**2, pi_b, out=np.zeros_like(pi_e), where=pi_b > 0)
    form = -np.einsum("na,nb->nab", pi_e, pi_e)
    form[:, np.arange(data.n_actions), np.arange(data.n_actions)] += square
    matrix = np.einsum("n,nab,np,nq->apbq", weight, form, x, x, optimize=True)
    direction = ratio[:, None] * taken - pi_e
    scale = weight * ratio * _returns_to_go(ratio, data, gamma)
    right = np.einsum("n,na,np->ap", scale, direction, x, optimize=True)
    size = data.n_actions * x.shape[1]
    beta = np.linalg.lstsq(matrix.reshape(size, size), right.ravel(), rcond=None)[0]
    return LinearQ(beta.reshape(data.n_actions, -1), features)


def _returns_to_go(ratio: Float, data: Trajectories, gamma: float) -> Float:
    """Reward of a step and, weighted by the ratios after it, of those that follow."""
    out = data.rewards.copy()
    for t in reversed(range(data.layout.horizon - 1)):
        rows = np.flatnonzero((data.layout.time == t) & (np.repeat(data.lengths, data.lengths) > t + 1))
        out[rows] += gamma * ratio[rows + 1] * out[rows + 1]
    return out
