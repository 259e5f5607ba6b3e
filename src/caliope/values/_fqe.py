"""Fitted Q evaluation and fitted Q iteration with any regressor; values do not depend on the step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._cache import Cache
from caliope._gather import target_probabilities
from caliope._policies import Policy, action_probabilities
from caliope._ragged import Bool, Float, Int, at_actions
from caliope._trajectories import Trajectories
from caliope._validation import check_gamma
from caliope.checks import V102, V103, V104, Finding
from caliope.values._regression import Model, check_finite, make_model

# A fit has converged if V changes by less in the last round, relative to the largest |Q|.
_CONVERGED = 0.02


class CaliopeWarning(UserWarning):
    """A warning that a result is doubtful, such as a fit that diverges."""


@dataclass(frozen=True)
class Iteration:
    """What one round of regression changed.

    Attributes
    ----------
    number : int
        Number of the round, from 1.
    value : float
        Mean V of the first states.
    change : float
        Root mean square change of V over all logged states.
    largest : float
        Largest absolute Q.

    Examples
    --------
    >>> Iteration(number=1, value=0.5, change=0.1, largest=1.0).change
    0.1
    """

    number: int
    value: float
    change: float
    largest: float


@dataclass(frozen=True, eq=False)
class FittedQ:
    """Fitted values of all actions under a policy; the same at every step.

    Parameters
    ----------
    model : Model
        The fitted regression of values on states and actions.
    gamma : float
        The discount.
    trace : tuple of Iteration
        What each round of regression changed.
    target : Policy or None
        The target policy; None if it was given as probabilities.
    diverged : bool
        Whether values exceed every possible return.
    fitted_on : frozenset of bytes
        Digests of the trajectories of the fit.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.domains import ward
    >>> from caliope.values import TabularRegressor, fitted_q
    >>> data, target = ward.simulate(200, rng=0), TabularPolicy(ward.EARLIER)
    >>> values = fitted_q(data, target, TabularRegressor(), gamma=1.0, n_iterations=20)
    >>> values.v([[0.0], [4.0]]).round(2)
    array([0.85, 0.16])
    """

    model: Model
    gamma: float
    trace: tuple[Iteration, ...]
    target: Policy | None = field(repr=False)
    diverged: bool = False
    fitted_on: frozenset[bytes] = field(default=frozenset(), repr=False)

    def q_all(self, states: ArrayLike) -> Float:
        """Return the values of all actions in each state, (N, A)."""
        return self.model.predict(np.asarray(states))

    def q(self, states: ArrayLike, actions: ArrayLike) -> Float:
        """Return the value of one action in each state, (N,)."""
        table, chosen = self.q_all(states), np.asarray(actions)
        if chosen.shape != (len(table),) or chosen.dtype.kind not in "iu":
            raise ValueError(
                f"actions must be whole numbers of shape ({len(table)},), one per state, "
                f"got {chosen.dtype} of shape {chosen.shape}."
            )
        outside = np.flatnonzero((chosen < 0) | (chosen >= table.shape[1]))
        if len(outside):
            raise ValueError(
                f"actions must lie between 0 and {table.shape[1] - 1}; {len(outside)} do not "
                f"(first: {chosen[outside[0]]} in row {outside[0]})."
            )
        return at_actions(table, chosen)

    def v(self, states: ArrayLike) -> Float:
        r"""Return the value of each state, :math:`\sum_a \pi_e(a \mid s)\, Q(s, a)`, (N,)."""
        if self.target is None:
            raise TypeError(
                "v needs a target policy, but probabilities were given to the fit; use q_all and your own policy."
            )
        table = self.q_all(states)
        return (action_probabilities(self.target, np.asarray(states), table.shape[1]) * table).sum(axis=1)

    def on(self, data: Trajectories, needed: Bool | None = None) -> Float:
        """Return the values of all actions at every step of a log, (N, A), for ``gather(..., q=self)``.

        Where it is said which are ``needed``, others may be anything finite.
        """
        return self.model.predict(data.states, needed)

    def greedy(self) -> BestAction:
        """Return the policy that takes the action of the largest value in each state."""
        return BestAction(self)

    def notes_for(self, data: Trajectories) -> tuple[Finding, ...]:
        """Return the findings for an estimate from ``data`` with these values."""
        return check_same_data(self.fitted_on, data) + self.check_convergence()

    def check_convergence(self) -> tuple[Finding, ...]:
        """Return a finding if the fit diverged, or had not converged in the last round."""
        last = self.trace[-1]
        numbers = {"change": last.change, "largest": last.largest, "iterations": float(last.number)}
        if self.diverged:
            return (V103.finding("issue", **numbers),)
        if last.change <= _CONVERGED * last.largest:
            return ()
        return (V104.finding("caution", **numbers),)


@dataclass(frozen=True, eq=False)
class BestAction:
    """The policy that takes the action of the largest fitted value; the lowest number wins a tie."""

    values: FittedQ

    @property
    def classes_(self) -> Int:
        """All actions, 0 to A - 1."""
        return np.arange(self.values.model.n_actions)

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return 1 for the best action and 0 for the others, (N, A)."""
        return np.eye(self.values.model.n_actions)[self.values.q_all(X).argmax(axis=1)]


def check_same_data(fitted_on: frozenset[bytes], data: Trajectories) -> tuple[Finding, ...]:
    """Return a caution if most of ``data`` was used to fit the values."""
    again = sum(digest in fitted_on for digest in data.digests)
    # In discrete states a few trajectories are alike by chance.
    if again < 0.5 * len(data):
        return ()
    return (V102.finding("caution", trajectories=float(again)),)


# Q of all logged states, (N, A) -> V of them, (N,)
Backup = Callable[[Float], Float]
Progress = Callable[[Iteration], None]
Rounds = tuple[tuple[Iteration, ...], Float, Float]
_ROUNDS = "rounds of fitted Q"  # as kept on disk


def fitted_q(
    data: Trajectories,
    target: Policy | ArrayLike,
    regressor: Any,
    *,
    gamma: float,
    n_iterations: int,
    from_returns: bool = False,
    per_action: bool = False,
    progress: Progress | None = None,
    work: str | Path | Cache | None = None,
) -> FittedQ:
    r"""Fit the value of each action under the target policy: fitted Q evaluation (FQE).

    .. math:: Q_{k+1} = \arg\min_Q \sum_{i,t} \Big( r_t + \gamma \sum_{a'} \pi_e(a' \mid s_{t+1})\,
        Q_k(s_{t+1}, a') - Q(s_t, a_t) \Big)^2, \qquad Q_0 = 0

    The backup is the **expectation under the target**; the largest value would evaluate another policy, see
    :func:`fitted_q_iteration`. A terminated step has no successor. The last step of a cut-off trajectory
    (``terminated`` False) is used as a successor only, for what follows it is unknown. The values do not depend on the
    step: where trajectories end at a maximal length, use :func:`fitted_q_by_time`.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The target policy, or its probabilities at the logged states.
    regressor : scikit-learn regressor
        Any: extremely randomised trees as in Ernst et al., forests, boosting, linear, ``TabularRegressor``.
    gamma : float
        Discount in [0, 1].
    n_iterations : int
        Rounds of regression; with k rounds, values look k steps ahead.
    from_returns : bool
        Start from the logged returns instead of 0. After k rounds the target policy decides k times, and practice from
        then on: for trajectories with more steps than there are rounds.
    per_action : bool
        Fit one model per action, instead of one model with indicator columns for the action.
    progress : callable, optional
        Called with each :class:`Iteration`.
    work : path, optional
        A folder of your own that keeps the values of the last round. A fit that was stopped continues from there if
        data, policy, settings and code are the same; ``n_iterations`` may grow. Fewer rounds than are kept are
        fitted anew.

    Returns
    -------
    FittedQ
        The values, and how the fit converged.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.domains import ward
    >>> from caliope.values import TabularRegressor, fitted_q
    >>> data, target = ward.simulate(200, rng=0), TabularPolicy(ward.EARLIER)
    >>> fitted_q(data, target, TabularRegressor(), gamma=1.0, n_iterations=20).q_all([[2.0]]).round(3)
    array([[0.478, 0.565, 0.556]])

    References
    ----------
    Ernst, Geurts & Wehenkel (2005), tree-based batch mode reinforcement learning. Le, Voloshin & Yue (2019).
    """
    proba = target_probabilities(data, target)

    def expected(q: Float) -> Float:
        return (proba * q).sum(axis=1)

    model = make_model(regressor, data.n_actions, per_action=per_action)
    policy = target if isinstance(target, Policy) else None
    begin = returns_to_go(data, gamma) if from_returns else None
    again = (True,) if from_returns else ()
    kept = Cache.of(work).keyed("fitted_q", data, proba, gamma, regressor, per_action, *again)
    fitted, trace = _iterate(data, model, expected, gamma, n_iterations, progress, kept, begin)
    diverged = _warn_if_diverged(trace, data, gamma, ahead=data.layout.horizon if from_returns else 0)
    return FittedQ(fitted, gamma, trace, policy, diverged, frozenset(data.digests))


def fitted_q_iteration(
    data: Trajectories,
    regressor: Any,
    *,
    gamma: float,
    n_iterations: int,
    per_action: bool = False,
    progress: Progress | None = None,
) -> FittedQ:
    r"""Fit the values of the best policy: fitted Q iteration, **improvement** and not evaluation.

    The backup takes the best action, :math:`\max_{a'} Q_k(s_{t+1}, a')`. The policy is chosen to look good on this very
    log, so that its values are too high: evaluate :meth:`FittedQ.greedy` on another log.

    Parameters
    ----------
    data : Trajectories
        The log.
    regressor : scikit-learn regressor
        Any, as in :func:`fitted_q`.
    gamma : float
        Discount in [0, 1].
    n_iterations : int
        Rounds of regression.
    per_action : bool
        Fit one model per action.
    progress : callable, optional
        Called with each :class:`Iteration`.

    Returns
    -------
    FittedQ
        The values of the best policy.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from caliope.values import TabularRegressor, fitted_q_iteration
    >>> values = fitted_q_iteration(ward.simulate(200, rng=0), TabularRegressor(), gamma=1.0, n_iterations=20)
    >>> values.greedy().predict_proba([[4.0]])
    array([[0., 0., 1.]])

    References
    ----------
    Ernst, Geurts & Wehenkel (2005), tree-based batch mode reinforcement learning.
    """

    def best(q: Float) -> Float:
        return q.max(axis=1)

    model = make_model(regressor, data.n_actions, per_action=per_action)
    fitted, trace = _iterate(data, model, best, gamma, n_iterations, progress, Cache())
    diverged = _warn_if_diverged(trace, data, gamma)
    return FittedQ(fitted, gamma, trace, None, diverged, frozenset(data.digests))


def _iterate(
    data: Trajectories,
    model: Model,
    backup: Backup,
    gamma: float,
    n_iterations: int,
    progress: Progress | None,
    kept: Cache,
    begin: Float | None = None,
) -> tuple[Model, tuple[Iteration, ...]]:
    check_gamma(gamma)
    if n_iterations < 1:
        raise ValueError(f"n_iterations must be at least 1, got {n_iterations}.")
    rows, first = transitions(data), data.layout.first

    def regress(v: Float) -> Model:
        targets = data.rewards + gamma * data.layout.after(v, 0.0)
        return model.fit(data.states[rows], data.actions[rows], targets[rows])

    # All that a fit needs to go on: its trace, and V of the last two rounds.
    nothing = np.zeros(data.n_steps)
    start: Rounds = ((), nothing, nothing if begin is None else begin)
    trace, before, v = kept.get(_ROUNDS, start)
    if len(trace) > n_iterations:
        trace, before, v = start
    if len(trace) == n_iterations:
        return regress(before), trace
    for k in range(len(trace) + 1, n_iterations + 1):
        fitted = regress(v)
        q = check_finite(fitted.predict(data.states), f"iteration {k}")
        before, v = v, backup(q)
        change = float(np.sqrt(np.mean((v - before) ** 2)))
        trace = (*trace, Iteration(k, float(v[first].mean()), change, float(np.abs(q).max())))
        kept.put(_ROUNDS, (trace, before, v))
        if progress is not None:
            progress(trace[-1])
    return fitted, trace


def returns_to_go(data: Trajectories, gamma: float) -> Float:
    """Sum the discounted rewards from each step to the end of its trajectory, (N,)."""
    total, rows = data.rewards.astype(np.float64), np.argsort(-data.layout.time, kind="stable")
    ends = np.cumsum(np.bincount(data.layout.time[rows])[::-1])
    for start, stop in pairwise(ends):
        # The trajectories that last longer than this step; they have been summed from the next one on.
        before = rows[start:stop]
        before = before[before != data.layout.last[data.layout.owner[before]]]
        total[before] += gamma * total[before + 1]
    return total


def transitions(data: Trajectories) -> Int:
    """Return the steps whose outcome is in the log: all but the last of a cut-off trajectory."""
    known = np.ones(data.n_steps, dtype=bool)
    known[data.layout.last[~data.terminated]] = False
    if not known.any():
        raise ValueError(
            "every trajectory was cut off after one step: the log has no transition to learn from."
        )
    return np.flatnonzero(known)


def _warn_if_diverged(
    trace: tuple[Iteration, ...], data: Trajectories, gamma: float, *, ahead: int = 0
) -> bool:
    # No return of k steps exceeds the largest reward times 1 + gamma + ... + gamma^(k-1).
    largest = float(np.abs(data.rewards).max())
    possible = largest * np.cumsum(gamma ** np.arange(trace[-1].number + ahead))[ahead:]
    beyond = [x for x in trace if x.largest > 2 * possible[x.number - 1]]
    if beyond:
        warnings.warn(
            f"fitted Q diverges: after {beyond[0].number} iterations the largest value is {beyond[0].largest:.4g}, "
            f"but no return of so many steps exceeds {possible[beyond[0].number - 1]:.4g}. Use a regressor that does "
            "not extrapolate (trees), more regularisation, or a smaller gamma.",
            CaliopeWarning,
            stacklevel=3,
        )
    return bool(beyond)
