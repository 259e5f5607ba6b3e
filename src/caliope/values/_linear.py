r"""Linear values in closed form (LSTD-Q), and values that minimise the variance of the doubly robust estimator (MRDR).

With features :math:`\phi(s, a)`, LSTD-Q solves for the values and minimax weight learning for the ratio of the
target's occupancy to the log's. Both invert the same matrix and give the same estimate. It uses no importance
weights, so that a disagreement with estimators that do is informative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from caliope._evidence import Evidence
from caliope._gather import gather, target_probabilities
from caliope._policies import Policy
from caliope._ragged import Float
from caliope._results import Interval
from caliope._trajectories import Trajectories
from caliope._validation import check_gamma
from caliope.checks import V101, V105, Finding
from caliope.values._fqe import transitions

# Singular values below this share of the largest are rounding error.
_RANK = 1e-12
# Above this share of trajectories that end at the longest length, there seems to be a maximal length.
_CAPPED = 0.1

# states (N, d) -> (N, p), the same for every action
Features = Callable[[Float], Float]


def intercept_and_states(states: Float) -> Float:
    """Return 1 and the state itself: values are then linear in the state, with coefficients per action."""
    return np.concatenate([np.ones((len(states), 1)), states], axis=1)


@dataclass(frozen=True, eq=False)
class LinearQ:
    r"""Linear values, :math:`Q(s, a) = x(s)^\top \beta_a`.

    Parameters
    ----------
    coefficients : array of shape (A, p)
        :math:`\beta`, one row per action.
    features : callable
        Turns states, (N, d), into features x, (N, p).
    gamma : float
        The discount.

    Examples
    --------
    >>> import numpy as np
    >>> from caliope.values import LinearQ
    >>> values = LinearQ(np.array([[1.0], [2.0]]), features=lambda states: states, gamma=0.9)
    >>> values.q_all([[3.0]])
    array([[3., 6.]])
    """

    coefficients: Float
    features: Features
    gamma: float

    def q_all(self, states: ArrayLike) -> Float:
        """Return the values of all actions in each state, (N, A)."""
        return self.features(np.asarray(states)) @ self.coefficients.T

    def on(self, data: Trajectories) -> Float:
        """Return the values of all actions at every step of a log, (N, A), for ``gather(..., q=self)``."""
        return self.q_all(data.states)


@dataclass(frozen=True, eq=False)
class LinearValue:
    """The value of a policy from linear features, with its confidence interval.

    Parameters
    ----------
    value : float
        The estimated value.
    interval : Interval
        Its confidence interval, with findings.
    values : LinearQ
        The values of states and actions.
    weights : array of shape (N,)
        Occupancy of each logged step under the target relative to the log.
    value_by_weights : float
        The same value, as a weighted mean of the logged rewards.
    condition : float
        Condition number of the matrix that was inverted.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.domains import ward
    >>> from caliope.values import linear_value
    >>> result = linear_value(ward.simulate(200, rng=0), TabularPolicy(ward.EARLIER), gamma=1.0)
    >>> abs(result.value - result.value_by_weights) < 1e-9
    True
    """

    value: float
    interval: Interval
    values: LinearQ
    weights: Float
    value_by_weights: float
    condition: float


def linear_value(
    data: Trajectories,
    target: Policy | ArrayLike,
    *,
    gamma: float,
    features: Features = intercept_and_states,
    level: float = 0.95,
) -> LinearValue:
    r"""Estimate the value of a policy with linear values, without a behaviour policy.

    With :math:`\phi` the features of (s, a) and :math:`\phi'_\pi` their mean under the target in the next state,

    .. math:: A = \tfrac1n \sum \phi\, (\phi - \gamma \phi'_\pi)^\top, \quad
        \beta = A^{-1} \tfrac1n \sum \phi\, r, \quad
        \hat V = \bar\phi_{0,\pi}^\top \beta = \tfrac1n \sum w\, r, \quad w = \phi^\top A^{-\top} \bar\phi_{0,\pi}

    Consistent if the states are Markov and the values **or** the occupancy ratio are linear in the features. There must
    be no maximal length, or the time must be among the features: shortly before the maximal length a state has another
    value than early on. The interval comes from the influence of each trajectory and does not include a lack of fit. A
    singular matrix is solved by least squares, with a finding. The units of the features do not matter.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The target policy, or its probabilities at the logged states.
    gamma : float
        Discount in [0, 1].
    features : callable
        Turns states, (N, d), into features, (N, p), with coefficients per action; by default 1 and the state.
    level : float
        Confidence level of the interval.

    Returns
    -------
    LinearValue
        The value, its confidence interval and both sides of the solution.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.domains import ward
    >>> from caliope.values import linear_value
    >>> result = linear_value(ward.simulate(200, rng=0), TabularPolicy(ward.EARLIER), gamma=1.0)
    >>> print(f"{result.value:.2f} [{result.interval.low:.2f}, {result.interval.high:.2f}]")
    0.52 [0.45, 0.59]

    References
    ----------
    Lagoudakis & Parr (2003), LSTD-Q. Uehara, Huang & Jiang (2020), minimax weight and Q-function learning.
    """
    check_gamma(gamma)
    _check_level(level, len(data))
    proba, (x, scale) = target_probabilities(data, target), _scale_features(data, features)
    phi, phi_next, phi_first = _make_columns(data, proba, x)
    rows, n = transitions(data), len(data)
    matrix = phi[rows].T @ (phi[rows] - gamma * phi_next[rows]) / n
    mean_first = phi_first.mean(axis=0)
    inverse = np.linalg.pinv(matrix, rcond=_RANK)
    beta = inverse @ (phi[rows].T @ data.rewards[rows] / n)
    weights, error = np.zeros(data.n_steps), np.zeros(data.n_steps)
    weights[rows] = phi[rows] @ (inverse.T @ mean_first)
    error[rows] = data.rewards[rows] + (gamma * phi_next[rows] - phi[rows]) @ beta
    value = float(mean_first @ beta)
    # Influence of a trajectory: its weighted temporal differences, and its first state.
    u = data.layout.sum_steps(weights * error) + phi_first @ beta - value
    arm = special.stdtrit(n - 1, (1 + level) / 2) * np.sqrt((u**2).sum() / (n * (n - 1)))
    condition = float(np.linalg.cond(matrix))
    findings = _check_rank(matrix, condition) + _check_length(data)
    interval = Interval(value - arm, value + arm, level, "delta method", findings)
    linear = LinearQ(beta.reshape(data.n_actions, -1) / scale, features, gamma)
    return LinearValue(value, interval, linear, weights, float(weights @ data.rewards) / n, condition)


def _check_level(level: float, n: int) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
    if n < 2:
        raise ValueError(f"an interval needs at least 2 trajectories, got {n}.")


def _scale_features(data: Trajectories, features: Features) -> tuple[Float, Float]:
    """Compute the features of all steps, (N, p), over their root mean squares, and these, (p,)."""
    x = np.asarray(features(data.states), dtype=np.float64)
    if x.ndim != 2 or len(x) != data.n_steps or x.shape[1] == 0:
        raise ValueError(
            f"features(states) must return one row for each of the {data.n_steps} steps, "
            f"shape ({data.n_steps}, p), got {x.shape}."
        )
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        raise ValueError(
            f"features(states): {len(bad)} of {x.size} numbers are NaN or infinite "
            f"(first: column {bad[0, 1]} of row {bad[0, 0]})."
        )
    size = np.sqrt(np.mean(x**2, axis=0))
    # A column of zeros stays as it is.
    scale = np.where(size > 0, size, 1.0)
    return x / scale, scale


def _make_columns(data: Trajectories, proba: Float, x: Float) -> tuple[Float, Float, Float]:
    """Compute features of (s, a), of the next state under the target (0 after the end), of the first state."""
    taken = np.eye(data.n_actions)[data.actions]
    under_target = _multiply(proba, x)
    following = data.layout.after(under_target, 0.0)
    return _multiply(taken, x), following, under_target[data.layout.first]


def _multiply(actions: Float, x: Float) -> Any:
    return (actions[:, :, None] * x[:, None, :]).reshape(len(x), -1)


def _check_rank(matrix: Float, condition: float) -> tuple[Finding, ...]:
    if condition < 1e10:
        return ()
    rank = float(np.linalg.matrix_rank(matrix))
    return (V101.finding("issue", condition=condition, rank=rank),)


def _check_length(data: Trajectories) -> tuple[Finding, ...]:
    longest = data.layout.horizon
    share = float(np.mean(data.terminated & (data.lengths == longest)))
    if data.layout.equal or share <= _CAPPED:
        return ()
    return (V105.finding("caution", share=share, longest=float(longest)),)


# Directions of less weight than this share of the largest change no doubly robust term.
_MRDR_RANK = 1e-6


def more_robust_q(
    data: Trajectories,
    target: Policy | ArrayLike,
    behaviour: Policy | ArrayLike,
    *,
    gamma: float,
    features: Features = intercept_and_states,
) -> LinearQ:
    r"""Fit linear values that minimise the variance of the doubly robust estimate (MRDR).

    Given the past, a doubly robust step is :math:`\hat V + \lambda (R - \hat Q)`, whose mean does not depend on
    :math:`\hat Q` and whose second moment is, up to a constant,

    .. math:: \hat Q^\top \big( \mathrm{diag}(\pi_e^2 / \pi_b) - \pi_e \pi_e^\top \big) \hat Q
        - 2\, E\big[ \lambda R\, (\lambda \hat Q(a) - \hat V) \big]

    The sum over steps, each with weight :math:`\gamma^{2t} \rho_{t-1}^2`, is minimised over linear
    :math:`\hat Q`, with :math:`R_t = \sum_{j \ge t} \gamma^{j-t} \lambda_{t+1} \cdots \lambda_j\, r_j`. With an
    estimated behaviour policy its error enters twice; cross-fit it.

    Use them with :func:`~caliope.dr` only: adding :math:`c(s)\, \pi_b / \pi_e` changes no doubly robust term, so that
    these values are not unique, and need not be near the true ones. Of all that do equally well the nearest to those of
    :func:`linear_value` are taken. At a cut-off these replace the unknown rest. For few features: the matrix has
    :math:`(A p)^2` entries.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The target policy, or its probabilities at the logged states.
    behaviour : Policy, or array of shape (N, A)
        The behaviour policy, or its probabilities of all actions.
    gamma : float
        Discount in [0, 1].
    features : callable
        Turns states, (N, d), into features, (N, p), with coefficients per action; by default 1 and the state.

    Returns
    -------
    LinearQ
        The values, for ``gather(..., q=...)``.

    Examples
    --------
    >>> import caliope as cal
    >>> from caliope.domains import ward
    >>> from caliope.values import more_robust_q
    >>> data, target = ward.simulate(200, rng=0), cal.TabularPolicy(ward.EARLIER)
    >>> behaviour = cal.TabularPolicy(ward.PRACTICE)
    >>> q = more_robust_q(data, target, behaviour, gamma=1.0)
    >>> print(f"{cal.dr(cal.gather(data, target, behaviour, q=q)):.2f}")
    0.48

    References
    ----------
    Farajtabar, Chow & Ghavamzadeh (2018), more robust doubly robust off-policy evaluation.
    """
    if not hasattr(behaviour, "predict_proba") and not hasattr(behaviour, "on") and np.ndim(behaviour) != 2:
        raise ValueError(
            f"behaviour must give the probabilities of all actions, shape ({data.n_steps}, {data.n_actions}), not of "
            f"the logged ones alone, got {np.shape(behaviour)}. Fit a behaviour policy."
        )
    e = gather(data, target, behaviour, gamma=gamma)
    pi_e, pi_b = target_probabilities(data, target, behaviour), target_probabilities(data, behaviour)
    start = linear_value(data, pi_e, gamma=gamma, features=features).values
    x, scale = _scale_features(data, features)
    weight, weighted_return = _weigh_steps(e, data, (pi_e * start.on(data)).sum(axis=1))
    # The quadratic form is (diag(pi_e^2 / pi_b) - pi_e pi_e') in actions, times x x' in features.
    square = np.divide(pi_e**2, pi_b, out=np.zeros_like(pi_e), where=pi_b > 0)
    form = -np.einsum("na,nb->nab", pi_e, pi_e)
    form[:, np.arange(data.n_actions), np.arange(data.n_actions)] += square
    matrix = np.einsum("n,nab,np,nq->apbq", weight, form, x, x, optimize=True)
    direction = np.exp(e.log_ratio)[:, None] * np.eye(data.n_actions)[data.actions] - pi_e
    right = np.einsum("n,na,np->ap", weighted_return, direction, x, optimize=True)
    beta, size = (start.coefficients * scale).ravel(), right.size
    matrix = matrix.reshape(size, size)
    beta = beta + np.linalg.pinv(matrix, rcond=_MRDR_RANK, hermitian=True) @ (right.ravel() - matrix @ beta)
    return LinearQ(beta.reshape(data.n_actions, -1) / scale, features, gamma)


def _weigh_steps(e: Evidence, data: Trajectories, v: Float) -> tuple[Float, Float]:
    r"""Return the weight :math:`\gamma^{2t} \rho_{t-1}^2` of each step, and that times :math:`\lambda_t R_t`.

    Both are divided by the square of the largest :math:`\rho_{t-1}`, for products of ratios can overflow. The last
    step of a cut-off trajectory is not corrected, so it has no weight; v replaces what follows.
    """
    before = data.layout.before(e.log_rho, 0.0)
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
