r"""Linear values and marginalised weights in closed form: an estimate that needs no behaviour policy.

With features :math:`\phi(s, a)`, LSTD-Q solves for the values and minimax weight learning for the ratio of the
target's occupancy to the log's. Both invert the same matrix and give the same estimate. It shares nothing with
the importance-sampling family but the log, so that a disagreement is news.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from caliope.gathering import target_probabilities
from caliope.policies import Policy
from caliope.ragged import Float
from caliope.results import Finding, Interval
from caliope.trajectories import Trajectories, check_gamma
from caliope.values.fitted import transitions

_RANK = 1e-12  # singular values below this part of the largest are rounding error
_CAPPED = 0.1  # share of trajectories that end at the longest length, above which that looks like a cap

Features = Callable[[Float], Float]  # states (N, d) -> (N, p), the same for every action


def intercept_and_states(states: Float) -> Float:
    """1 and the state itself: values linear in the state, with coefficients of their own for each action."""
    return np.concatenate([np.ones((len(states), 1)), states], axis=1)


@dataclass(frozen=True, eq=False)
class LinearQ:
    r"""Linear values, :math:`Q(s, a) = x(s)^\top \beta_a`."""

    coefficients: Float  # (A, p)
    features: Features
    gamma: float

    def q_all(self, states: ArrayLike) -> Float:
        """Values of all actions in each state, (N, A)."""
        return self.features(np.asarray(states)) @ self.coefficients.T

    def on(self, data: Trajectories) -> Float:
        """Values of all actions at every step of a log, (N, A)."""
        return self.q_all(data.states)


@dataclass(frozen=True, eq=False)
class LinearValue:
    """The value of a policy from linear features, its interval, and both sides of the solution."""

    value: float
    interval: Interval
    values: LinearQ
    weights: Float  # (N,): occupancy of each logged step under the target relative to the log
    value_by_weights: float  # the same value, as a weighted mean of the logged rewards
    condition: float  # of the matrix that was inverted


def linear_value(
    data: Trajectories,
    target: Policy | ArrayLike,
    *,
    gamma: float,
    features: Features = intercept_and_states,
    level: float = 0.95,
) -> LinearValue:
    r"""Evaluate a policy with linear values, without any behaviour policy.

    With :math:`\phi` the features of (s, a) and :math:`\phi'_\pi` their mean under the target in the next state,

    .. math:: A = \tfrac1n \sum \phi\, (\phi - \gamma \phi'_\pi)^\top, \quad
        \beta = A^{-1} \tfrac1n \sum \phi\, r, \quad
        \hat V = \bar\phi_{0,\pi}^\top \beta = \tfrac1n \sum w\, r, \quad w = \phi^\top A^{-\top} \bar\phi_{0,\pi}

    Consistent if the states are Markov and the values **or** the occupancy ratio are linear in the features. There
    must be no cap on the length, or the time must be among the features: where a stay is stopped by the clock,
    being in a state late is not worth what it is worth early. The interval is from the influence of each trajectory
    and does not include a lack of fit. A singular matrix is solved in the least squares sense, and the result says
    so. The units of the features do not matter.

    References
    ----------
    Lagoudakis & Parr (2003), LSTD-Q. Uehara, Huang & Jiang (2020), minimax weight and Q-function learning.
    """
    check_gamma(gamma)
    _check_level(level, len(data))
    proba, (x, scale) = target_probabilities(data, target), scaled_features(data, features)
    phi, phi_next, phi_first = _feature_columns(data, proba, x)
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
    findings = _singular(matrix, condition) + _capped(data)
    interval = Interval(value - arm, value + arm, level, "delta method", findings)
    linear = LinearQ(beta.reshape(data.n_actions, -1) / scale, features, gamma)
    return LinearValue(value, interval, linear, weights, float(weights @ data.rewards) / n, condition)


def _check_level(level: float, n: int) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
    if n < 2:
        raise ValueError(f"an interval needs at least 2 trajectories, got {n}.")


def scaled_features(data: Trajectories, features: Features) -> tuple[Float, Float]:
    """Features of all steps, (N, p), each column over its root mean square, and these, (p,)."""
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
    scale = np.where(size > 0, size, 1.0)  # a column of zeros stays one
    return x / scale, scale


def _feature_columns(data: Trajectories, proba: Float, x: Float) -> tuple[Float, Float, Float]:
    """Features of (s, a), of the next state under the target (0 after the end), and of the first state."""
    taken = np.eye(data.n_actions)[data.actions]
    under_target = _product(proba, x)
    following = np.zeros_like(under_target)
    following[:-1] = under_target[1:]
    following[data.layout.last] = 0.0
    return _product(taken, x), following, under_target[data.layout.first]


def _product(actions: Float, x: Float) -> Any:
    return (actions[:, :, None] * x[:, None, :]).reshape(len(x), -1)


def _singular(matrix: Float, condition: float) -> tuple[Finding, ...]:
    if condition < 1e10:
        return ()
    message = (
        f"the features do not determine the values (condition number {condition:.2g}): features repeat each other, an "
        "action was hardly ever taken, or gamma = 1 with nothing ever ending"
    )
    rank = float(np.linalg.matrix_rank(matrix))
    return (Finding("V101", "issue", message, {"condition": condition, "rank": rank}),)


def _capped(data: Trajectories) -> tuple[Finding, ...]:
    longest = data.layout.horizon
    share = float(np.mean(data.terminated & (data.lengths == longest)))
    if data.layout.equal or share <= _CAPPED:
        return ()
    message = (
        f"{share:.0%} of the trajectories end at the longest length, {longest} steps: it looks like a cap, of which "
        "stationary values do not know; put the time among the features, or say that these were cut off"
    )
    return (Finding("V105", "caution", message, {"share": share, "longest": float(longest)}),)
