"""Linear values chosen to make the doubly robust estimate vary least, rather than to fit best."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from caliope.evidence import Evidence
from caliope.gathering import gather, target_probabilities
from caliope.policies import Policy
from caliope.ragged import Float
from caliope.trajectories import Trajectories
from caliope.values.linear import Features, LinearQ, intercept_and_states, linear_value, scaled_features

_RANK = 1e-6  # directions of less weight than this part of the largest change no doubly robust term


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

    For use with :func:`~caliope.estimators.dr`, and as nothing else: adding :math:`c(s)\, \pi_b / \pi_e` changes no
    doubly robust term, so that these values are not unique, and need not be near the true ones. Of all that do
    equally well the nearest to those of :func:`linear_value` are taken. Where the log was cut off, these stand for
    what followed. For few features: the matrix has :math:`(A p)^2` entries.

    References
    ----------
    Farajtabar, Chow & Ghavamzadeh (2018), more robust doubly robust off-policy evaluation.
    """
    if not hasattr(behaviour, "predict_proba") and not hasattr(behaviour, "on") and np.ndim(behaviour) != 2:
        raise ValueError(
            f"behaviour must give the probabilities of all actions here, shape ({data.n_steps}, {data.n_actions}), got "
            f"{np.shape(behaviour)}: actions that were not taken count too. Fit a behaviour policy."
        )
    e = gather(data, target, behaviour, gamma=gamma)
    pi_e, pi_b = target_probabilities(data, target, behaviour), target_probabilities(data, behaviour)
    start = linear_value(data, pi_e, gamma=gamma, features=features).values
    x, scale = scaled_features(data, features)
    weight, weighted_return = _weights(e, data, (pi_e * start.on(data)).sum(axis=1))
    # The quadratic form is (diag(pi_e^2 / pi_b) - pi_e pi_e') in actions, times x x' in features.
    square = np.divide(pi_e**2, pi_b, out=np.zeros_like(pi_e), where=pi_b > 0)
    form = -np.einsum("na,nb->nab", pi_e, pi_e)
    form[:, np.arange(data.n_actions), np.arange(data.n_actions)] += square
    matrix = np.einsum("n,nab,np,nq->apbq", weight, form, x, x, optimize=True)
    direction = np.exp(e.log_ratio)[:, None] * np.eye(data.n_actions)[data.actions] - pi_e
    right = np.einsum("n,na,np->ap", weighted_return, direction, x, optimize=True)
    beta, size = (start.coefficients * scale).ravel(), right.size
    matrix = matrix.reshape(size, size)
    beta = beta + np.linalg.pinv(matrix, rcond=_RANK, hermitian=True) @ (right.ravel() - matrix @ beta)
    return LinearQ(beta.reshape(data.n_actions, -1) / scale, features, gamma)


def _weights(e: Evidence, data: Trajectories, v: Float) -> tuple[Float, Float]:
    r"""Weight :math:`\gamma^{2t} \rho_{t-1}^2` of each step, and that times :math:`\lambda_t R_t`.

    Both over the square of the largest :math:`\rho_{t-1}`: products of ratios leave the range of a float. The last
    step of a cut-off trajectory is not corrected, so it has no weight; there v stands for what follows.
    """
    before = np.zeros(data.n_steps)
    before[1:] = e.log_rho[:-1]
    before[data.layout.first] = 0.0
    largest = before.max()
    rho_before = np.exp(before - largest)
    tail = np.exp(e.log_rho - largest) * data.rewards
    cut = data.layout.last[~data.terminated]
    tail[cut] = rho_before[cut] * v[cut]
    goes_on = np.ones(data.n_steps, dtype=bool)
    goes_on[data.layout.last] = False
    for t in reversed(range(data.layout.horizon - 1)):
        rows = np.flatnonzero((data.layout.time == t) & goes_on)
        tail[rows] += e.gamma * tail[rows + 1]
    discounted = e.discounted(e.discounted(rho_before))
    discounted[cut] = 0.0
    return discounted * rho_before, discounted * tail
