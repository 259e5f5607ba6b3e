"""Tabular decision processes with exact values, and the classic examples ModelWin and ModelFail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from caliope._ragged import Bool, Float, Int
from caliope._trajectories import Trajectories


class Path(NamedTuple):
    """One possible trajectory, and its probability under a policy.

    Parameters
    ----------
    probability : float
        Probability under the policy.
    states, actions, rewards : tuple
        One entry per step.

    Examples
    --------
    >>> round(sum(path.probability for path in MODEL_FAIL.paths(MODEL_FAIL_LOGGED)), 6)
    1.0
    """

    probability: float
    states: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """A decision process with numbered states, of which some are absorbing, over a fixed number of steps.

    A trajectory ends on arrival in an absorbing state, or after ``horizon`` steps. Policies are tables (S, A).

    Parameters
    ----------
    initial : (S,)
        Probability of each state at the start.
    transitions : (S, A, S)
        Probability of each next state; every row out of a state that is not absorbing sums to 1.
    rewards : (S, A, S) or (S, A)
        Rewards, with or without the next state.
    absorbing : (S,)
        True for states where a trajectory ends.
    horizon : int
        Largest number of steps.

    Examples
    --------
    >>> round(MODEL_WIN.value(MODEL_WIN_TARGET), 6)
    0.92
    >>> MODEL_WIN.simulate(MODEL_WIN_LOGGED, 100, rng=0)
    Trajectories(100 trajectories of 20 steps, 2000 steps, 1 feature, 2 actions)
    """

    initial: Float
    transitions: Float
    rewards: Float
    absorbing: Bool
    horizon: int

    def __post_init__(self) -> None:
        s, a, _ = np.shape(self.transitions)
        rewards = np.asarray(self.rewards, dtype=np.float64)
        rewards = rewards[:, :, None] if rewards.ndim == 2 else rewards
        object.__setattr__(self, "initial", np.asarray(self.initial, dtype=np.float64))
        object.__setattr__(self, "transitions", np.asarray(self.transitions, dtype=np.float64))
        object.__setattr__(self, "rewards", np.broadcast_to(rewards, (s, a, s)))
        object.__setattr__(self, "absorbing", np.asarray(self.absorbing, dtype=bool))
        going = ~self.absorbing
        if not np.allclose(self.transitions[going].sum(axis=-1), 1) or not np.isclose(self.initial.sum(), 1):
            raise ValueError("initial and every row of transitions out of a living state must sum to 1.")

    def state_values(self, policy: ArrayLike, gamma: float) -> Float:
        r"""Compute :math:`V_t(s)` under a policy, by dynamic programming, (T + 1, S); the last row is 0."""
        policy = np.asarray(policy, dtype=np.float64)
        reward = (policy * self._expected_rewards).sum(axis=1)
        step = np.einsum("sa,sat->st", policy, self.transitions)
        v = np.zeros((self.horizon + 1, len(self.initial)))
        for t in reversed(range(self.horizon)):
            v[t] = np.where(self.absorbing, 0.0, reward + gamma * step @ v[t + 1])
        return v

    def action_values(self, policy: ArrayLike, gamma: float) -> Float:
        r"""Compute :math:`Q_t(s, a)` under a policy, by dynamic programming, (T, S, A)."""
        following = self.state_values(policy, gamma)[1:]
        return self._expected_rewards + gamma * np.einsum(
            "sau,tu->tsa", self.transitions, following, optimize=True
        )

    def value(self, policy: ArrayLike, gamma: float = 1.0) -> float:
        """Compute the exact value of a policy.

        Parameters
        ----------
        policy : (S, A)
            Probabilities of the actions in each state.
        gamma : float
            Discount in [0, 1].

        Returns
        -------
        float
            Expected discounted return.
        """
        return float(self.initial @ self.state_values(policy, gamma)[0])

    @cached_property
    def _expected_rewards(self) -> Float:
        return np.einsum("sau,sau->sa", self.transitions, self.rewards)

    def simulate(self, policy: ArrayLike, n: int, *, rng: int | np.random.Generator) -> Trajectories:
        """Simulate a log of a policy.

        Parameters
        ----------
        policy : (S, A)
            Probabilities of the actions in each state.
        n : int
            Number of trajectories.
        rng : int or Generator
            Seed.

        Returns
        -------
        Trajectories
            With columns ``behaviour``, the probability of each logged action, and ``time``.
        """
        rng = np.random.default_rng(rng)
        policy = np.asarray(policy, dtype=np.float64)
        state = _sample(np.broadcast_to(self.initial, (n, len(self.initial))), rng)
        alive, steps = np.arange(n), []
        for t in range(self.horizon):
            action = _sample(policy[state], rng)
            following = _sample(self.transitions[state, action], rng)
            reward = self.rewards[state, action, following]
            steps.append((alive, np.full(len(alive), t), state, action, reward, policy[state, action]))
            going = ~self.absorbing[following]
            alive, state = alive[going], following[going]
            if not len(alive):
                break
        owner, time, states, actions, rewards, chance = map(np.concatenate, zip(*steps, strict=True))
        order = np.lexsort((time, owner))
        return Trajectories(
            states[order].astype(np.float64),
            actions[order],
            rewards[order],
            np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))]),
            n_actions=policy.shape[1],
            terminated=np.ones(n, dtype=bool),
            columns={"behaviour": chance[order], "time": time[order]},
            feature_names=["state"],
        )

    def paths(self, policy: ArrayLike) -> Iterator[Path]:
        """Yield every possible trajectory under a policy, for expectations without Monte Carlo."""
        policy = np.asarray(policy, dtype=np.float64)
        stack = [Path(p, (s,), (), ()) for s, p in enumerate(self.initial.tolist()) if p > 0]
        while stack:
            path = stack.pop()
            s = path.states[-1]
            if self.absorbing[s] or len(path.actions) == self.horizon:
                yield path._replace(states=path.states[: len(path.actions)])
                continue
            for a, following in np.argwhere(policy[s][:, None] * self.transitions[s] > 0).tolist():
                p = path.probability * float(policy[s, a] * self.transitions[s, a, following])
                reward = float(self.rewards[s, a, following])
                stack.append(Path(p, (*path.states, following), (*path.actions, a), (*path.rewards, reward)))


def _sample(proba: Float, rng: np.random.Generator) -> Int:
    """Draw one column per row, by inversion."""
    cumulative = proba.cumsum(axis=1)
    drawn = rng.random(len(proba))[:, None] * cumulative[:, -1:]
    return (drawn >= cumulative).sum(axis=1)


MODEL_WIN_LOGGED = np.tile([0.73, 0.27], (3, 1))
MODEL_WIN_TARGET = np.tile([0.27, 0.73], (3, 1))

MODEL_WIN = TabularMDP(
    initial=np.array([1.0, 0.0, 0.0]),
    # From state 0 an action leads to the good state 1 with chance 0.4 or 0.6, else to the bad state 2; both lead back.
    transitions=np.array([[[0, 0.4, 0.6], [0, 0.6, 0.4]], [[1, 0, 0], [1, 0, 0]], [[1, 0, 0], [1, 0, 0]]]),
    rewards=np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0]]),
    absorbing=np.zeros(3, dtype=bool),
    horizon=20,
)
"""ModelWin of Thomas and Brunskill (2016): fully observed, so that a model is exact. V = 0.92 for the target."""

MODEL_FAIL_LOGGED = np.tile([0.88, 0.12], (4, 1))
MODEL_FAIL_TARGET = np.tile([0.12, 0.88], (4, 1))

MODEL_FAIL = TabularMDP(
    initial=np.array([1.0, 0.0, 0.0, 0.0]),
    # The first action decides between an upper and a lower state; the second decides nothing.
    transitions=np.eye(4)[np.array([[1, 2], [3, 3], [3, 3], [3, 3]])],
    rewards=np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]),
    absorbing=np.array([False, False, False, True]),
    horizon=2,
)
"""ModelFail of Thomas and Brunskill (2016): states cannot be told apart (hide_states). V = -0.76 for the target."""


def hide_states(data: Trajectories) -> Trajectories:
    """Return the same log with all states equal, as ModelFail is observed.

    Parameters
    ----------
    data : Trajectories
        A log of :data:`MODEL_FAIL`.

    Returns
    -------
    Trajectories
        The log with states of 0.

    Examples
    --------
    >>> data = hide_states(MODEL_FAIL.simulate(MODEL_FAIL_LOGGED, 10, rng=0))
    >>> bool((data.states == 0).all())
    True
    """
    return Trajectories(
        np.zeros_like(data.states),
        data.actions,
        data.rewards,
        data.offsets,
        n_actions=data.n_actions,
        terminated=data.terminated if data.ends_stated else None,
        columns=data.columns,
    )
