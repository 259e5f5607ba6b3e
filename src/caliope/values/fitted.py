"""Fitted Q: evaluation of a policy by repeated regression, and, apart from it, improvement."""

from __future__ import annotations

import hashlib
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
from caliope.trajectories import Trajectories, check_gamma
from caliope.values.regression import ActionAsFeature, ModelPerAction


class CaliopeWarning(UserWarning):
    """Something went on that makes a result doubtful."""


@dataclass(frozen=True)
class Iteration:
    """What one round of regression changed."""

    number: int
    value: float  # mean V of the first states
    change: float  # root mean square change of V over all logged states
    largest: float  # largest absolute Q


@dataclass(frozen=True, eq=False)
class FittedQ:
    """Values of all actions under a policy, and how the fit came about."""

    model: ActionAsFeature | ModelPerAction
    gamma: float
    trace: tuple[Iteration, ...]
    target: Policy | None = field(repr=False)
    diverged: bool = False

    def q_all(self, states: ArrayLike) -> Float:
        """Values of all actions in each state, (N, A)."""
        return self.model.predict(np.asarray(states))

    def q(self, states: ArrayLike, actions: ArrayLike) -> Float:
        """Value of one action in each state, (N,)."""
        table = self.q_all(states)
        return table[np.arange(len(table)), np.asarray(actions)]

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
    transition of its own.

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
        settings, the fit goes on from it.

    References
    ----------
    Ernst, Geurts & Wehenkel (2005), tree-based batch mode reinforcement learning. Le, Voloshin & Yue (2019).
    """
    proba = target_probabilities(data, target)

    def expected(q: Float) -> Float:
        return (proba * q).sum(axis=1)

    kind = ModelPerAction if per_action else ActionAsFeature
    policy = target if isinstance(target, Policy) else None
    store = _Checkpoint(checkpoint, data, proba, (gamma, repr(regressor), per_action, n_iterations))
    model, trace = _iterate(
        data, kind(regressor, data.n_actions), expected, gamma, n_iterations, progress, store
    )
    return FittedQ(model, gamma, trace, policy, _warn_if_diverged(trace, data, gamma))


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
    that has been chosen to look good on this very log; evaluate ``GreedyPolicy`` of it on another one.

    References
    ----------
    Ernst, Geurts & Wehenkel (2005).
    """

    def best(q: Float) -> Float:
        return q.max(axis=1)

    kind = ModelPerAction if per_action else ActionAsFeature
    store = _Checkpoint(None, data, np.empty(0), ())
    model, trace = _iterate(data, kind(regressor, data.n_actions), best, gamma, n_iterations, progress, store)
    return FittedQ(model, gamma, trace, None, _warn_if_diverged(trace, data, gamma))


def _iterate(
    data: Trajectories,
    model: Any,
    backup: Backup,
    gamma: float,
    n_iterations: int,
    progress: Progress | None,
    store: _Checkpoint,
) -> tuple[Any, tuple[Iteration, ...]]:
    check_gamma(gamma)
    if n_iterations < 1:
        raise ValueError(f"n_iterations must be at least 1, got {n_iterations}.")
    rows, first = transitions(data), data.layout.first

    def regress(v: Float) -> Any:
        targets = data.rewards + gamma * following(data, v)
        return model.fit(data.states[rows], data.actions[rows], targets[rows])

    trace, before, v = store.load(data.n_steps)
    if len(trace) >= n_iterations:
        return regress(before), trace
    for k in range(len(trace) + 1, n_iterations + 1):
        fitted = regress(v)
        q = fitted.predict(data.states)
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


class _Checkpoint:
    """The values of the last two rounds, on disk: all that a fit needs to go on."""

    def __init__(self, path: str | Path | None, data: Trajectories, proba: Float, settings: tuple[Any, ...]):
        self.path = None if path is None else Path(path)
        if self.path is not None:
            digest = hashlib.sha256(repr(settings).encode())
            for x in (data.states, data.actions, data.rewards, data.offsets, data.terminated, proba):
                digest.update(np.ascontiguousarray(x).tobytes())
            self.fingerprint = digest.hexdigest()

    def load(self, n_steps: int) -> tuple[tuple[Iteration, ...], Float, Float]:
        """Trace, and V of the last round but one and of the last; zeros where there is no file."""
        if self.path is None or not self.path.exists():
            return (), np.zeros(n_steps), np.zeros(n_steps)
        with np.load(self.path, allow_pickle=False) as found:
            if str(found["fingerprint"]) != self.fingerprint:
                raise ValueError(
                    f"{self.path} was written for other data, another policy or other settings; "
                    "remove it to start anew."
                )
            trace = tuple(Iteration(int(row[0]), *map(float, row[1:])) for row in found["trace"])
            return trace, found["before"], found["v"]

    def save(self, trace: tuple[Iteration, ...], before: Float, v: Float) -> None:
        """Write beside, then move into place: a kill leaves the old file or the new one."""
        if self.path is None:
            return
        rows = np.array([(x.number, x.value, x.change, x.largest) for x in trace])
        partial = self.path.with_name(self.path.name + ".partial")
        with partial.open("wb") as file:
            np.savez(file, fingerprint=self.fingerprint, trace=rows, before=before, v=v)
        partial.replace(self.path)
