"""Fitted Q: evaluation of a policy by repeated regression, and, apart from it, improvement."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.gathering import target_probabilities
from caliope.policies import Policy, action_probabilities
from caliope.ragged import Float, Int
from caliope.results import Finding
from caliope.trajectories import Trajectories, check_gamma
from caliope.values.checkpoint import Checkpoint, Iteration
from caliope.values.regression import Model, check_finite, unfitted

_SETTLED = 0.02  # change of V in the last round, relative to the largest |Q|


class CaliopeWarning(UserWarning):
    """Something went on that makes a result doubtful."""


@dataclass(frozen=True, eq=False)
class FittedQ:
    """Values of all actions under a policy, and how the fit came about."""

    model: Model
    gamma: float
    trace: tuple[Iteration, ...]
    target: Policy | None = field(repr=False)
    diverged: bool = False
    fitted_on: frozenset[bytes] = field(default=frozenset(), repr=False)  # digests of trajectories

    def q_all(self, states: ArrayLike) -> Float:
        """Values of all actions in each state, (N, A)."""
        return self.model.predict(np.asarray(states))

    def q(self, states: ArrayLike, actions: ArrayLike) -> Float:
        """Value of one action in each state, (N,)."""
        table, chosen = self.q_all(states), np.asarray(actions)
        if chosen.shape != (len(table),) or chosen.dtype.kind not in "iu":
            raise ValueError(
                f"actions must be whole numbers of shape ({len(table)},), one for each state, "
                f"got {chosen.dtype} of shape {chosen.shape}."
            )
        outside = np.flatnonzero((chosen < 0) | (chosen >= table.shape[1]))
        if len(outside):
            raise ValueError(
                f"actions must lie between 0 and {table.shape[1] - 1}; {len(outside)} do not "
                f"(first: {chosen[outside[0]]} in row {outside[0]})."
            )
        return table[np.arange(len(table)), chosen]

    def v(self, states: ArrayLike) -> Float:
        r"""Value of each state, :math:`\sum_a \pi_e(a \mid s)\, Q(s, a)`, (N,)."""
        if self.target is None:
            raise TypeError(
                "the target was given as probabilities at the logged states; use q_all and your own policy."
            )
        table = self.q_all(states)
        return (action_probabilities(self.target, np.asarray(states), table.shape[1]) * table).sum(axis=1)

    def on(self, data: Trajectories) -> Float:
        """Values of all actions at every step of a log, (N, A); what ``gather(..., q=self)`` asks for."""
        return self.q_all(data.states)

    def greedy(self) -> BestAction:
        """The policy that takes the action of the largest value in each state."""
        return BestAction(self)

    def notes_for(self, data: Trajectories) -> tuple[Finding, ...]:
        """What a reader of an estimate from ``data`` with these values must know."""
        return same_data(self.fitted_on, data) + self.doubts()

    def doubts(self) -> tuple[Finding, ...]:
        """Whether the fit ran away, or stopped before it had settled."""
        last = self.trace[-1]
        numbers = {"change": last.change, "largest": last.largest, "iterations": float(last.number)}
        if self.diverged:
            message = (
                f"fitted Q diverged: the largest value is {last.largest:.4g} after {last.number} iterations, more "
                "than any return of so many steps"
            )
            return (Finding("V103", "issue", message, numbers),)
        if last.change <= _SETTLED * last.largest:
            return ()
        message = f"the last round still changed the values by {last.change:.2g}: add iterations"
        return (Finding("V104", "caution", message, numbers),)


@dataclass(frozen=True, eq=False)
class BestAction:
    """Always the action of the largest fitted value; the lowest number wins a tie."""

    values: FittedQ

    @property
    def classes_(self) -> Int:
        """All actions, 0 to A - 1."""
        return np.arange(self.values.model.n_actions)

    def predict_proba(self, X: ArrayLike) -> Float:
        """1 for the best action, 0 for the others."""
        return np.eye(self.values.model.n_actions)[self.values.q_all(X).argmax(axis=1)]


def same_data(fitted_on: frozenset[bytes], data: Trajectories) -> tuple[Finding, ...]:
    """A caution where values meet the trajectories that they were fitted on."""
    again = sum(digest in fitted_on for digest in data.digests)
    if again < 0.5 * len(data):  # a few trajectories of discrete states are alike by chance
        return ()
    message = (
        "the values were fitted on trajectories that they now correct: a flexible regressor explains them too well, "
        "and intervals come out too short; use cross_fitted_q"
    )
    return (Finding("V102", "caution", message, {"trajectories": float(again)}),)


Backup = Callable[[Float], Float]  # Q of all logged states, (N, A) -> V of them, (N,)
Progress = Callable[[Iteration], None]


def fitted_q(
    data: Trajectories,
    target: Policy | ArrayLike,
    regressor: Any,
    *,
    gamma: float,
    n_iterations: int,
    per_action: bool = False,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
) -> FittedQ:
    r"""Fitted Q evaluation: what each action is worth if the target policy decides from then on.

    .. math:: Q_{k+1} = \arg\min_Q \sum_{i,t} \Big( r_t + \gamma \sum_{a'} \pi_e(a' \mid s_{t+1})\,
        Q_k(s_{t+1}, a') - Q(s_t, a_t) \Big)^2, \qquad Q_0 = 0

    The backup is the **expectation under the target**; the largest action would evaluate another policy (see
    :func:`fitted_q_iteration`). Nothing follows a terminated step. Where the log was cut off
    (``terminated`` False), what follows the last step is unknown: that step is used as a successor, and not as a
    transition of its own. The values are stationary: they do not know of a cap on the length, and take the last
    step before it for the end of all who are in that state. Under a cap use :func:`fitted_q_by_time`.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The evaluation policy, or its probabilities at the logged states.
    regressor : scikit-learn regressor
        Any: extremely randomised trees as in Ernst et al., forests, boosting, linear, ``TabularRegressor``.
    gamma : float
        Discount in [0, 1].
    n_iterations : int
        Rounds of regression; with k rounds, values look k steps ahead.
    per_action : bool
        One model for each action, instead of the action as further columns of one model.
    progress : callable, optional
        Called with each :class:`Iteration`.
    checkpoint : path, optional
        Where to keep the values of each round. If the file is there, and from the same data, policy and
        settings, the fit goes on from it; ``n_iterations`` may grow.

    References
    ----------
    Ernst, Geurts & Wehenkel (2005), tree-based batch mode reinforcement learning. Le, Voloshin & Yue (2019).
    """
    proba = target_probabilities(data, target)

    def expected(q: Float) -> Float:
        return (proba * q).sum(axis=1)

    model = unfitted(regressor, data.n_actions, per_action=per_action)
    policy = target if isinstance(target, Policy) else None
    store = Checkpoint(checkpoint, data, proba, (gamma, regressor, per_action))
    fitted, trace = _iterate(data, model, expected, gamma, n_iterations, progress, store)
    diverged = _warn_if_diverged(trace, data, gamma)
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
    r"""Fitted Q iteration: **improvement**, not evaluation.

    The backup takes the best action, :math:`\max_{a'} Q_k(s_{t+1}, a')`. The result is the value of a policy
    that has been chosen to look good on this very log: evaluate that policy, :meth:`FittedQ.greedy`, on another
    one.

    References
    ----------
    Ernst, Geurts & Wehenkel (2005).
    """

    def best(q: Float) -> Float:
        return q.max(axis=1)

    model = unfitted(regressor, data.n_actions, per_action=per_action)
    store = Checkpoint(None, data, np.empty(0), ())
    fitted, trace = _iterate(data, model, best, gamma, n_iterations, progress, store)
    diverged = _warn_if_diverged(trace, data, gamma)
    return FittedQ(fitted, gamma, trace, None, diverged, frozenset(data.digests))


def _iterate(
    data: Trajectories,
    model: Model,
    backup: Backup,
    gamma: float,
    n_iterations: int,
    progress: Progress | None,
    store: Checkpoint,
) -> tuple[Model, tuple[Iteration, ...]]:
    check_gamma(gamma)
    if n_iterations < 1:
        raise ValueError(f"n_iterations must be at least 1, got {n_iterations}.")
    rows, first = transitions(data), data.layout.first

    def regress(v: Float) -> Model:
        targets = data.rewards + gamma * following(data, v)
        return model.fit(data.states[rows], data.actions[rows], targets[rows])

    trace, before, v = store.load(n_iterations)
    if len(trace) == n_iterations:
        return regress(before), trace
    for k in range(len(trace) + 1, n_iterations + 1):
        fitted = regress(v)
        q = check_finite(fitted.predict(data.states), f"iteration {k}")
        before, v = v, backup(q)
        change = float(np.sqrt(np.mean((v - before) ** 2)))
        trace = (*trace, Iteration(k, float(v[first].mean()), change, float(np.abs(q).max())))
        store.save(trace, before, v)
        if progress is not None:
            progress(trace[-1])
    return fitted, trace


def transitions(data: Trajectories) -> Int:
    """Steps whose outcome is in the log: all but the last of a trajectory that was cut off."""
    known = np.ones(data.n_steps, dtype=bool)
    known[data.layout.last[~data.terminated]] = False
    if not known.any():
        raise ValueError("every trajectory was cut off after one step: there is no transition to learn from.")
    return np.flatnonzero(known)


def following(data: Trajectories, v: Float) -> Float:
    """Value of the state after each step; 0 after the last one."""
    after = np.zeros(data.n_steps)
    after[:-1] = v[1:]
    after[data.layout.last] = 0.0
    return after


def _warn_if_diverged(trace: tuple[Iteration, ...], data: Trajectories, gamma: float) -> bool:
    # No return of k steps exceeds the largest reward times 1 + gamma + ... + gamma^(k-1).
    largest = float(np.abs(data.rewards).max())
    possible = largest * np.cumsum(gamma ** np.arange(trace[-1].number))
    beyond = [x for x in trace if x.largest > 2 * possible[x.number - 1]]
    if beyond:
        warnings.warn(
            f"fitted Q diverges: after {beyond[0].number} iterations the largest value is {beyond[0].largest:.4g}, "
            f"and no return of so many steps exceeds {possible[beyond[0].number - 1]:.4g}. Use a regressor that does "
            "not extrapolate (trees), more regularisation, or a smaller gamma.",
            CaliopeWarning,
            stacklevel=3,
        )
    return bool(beyond)
