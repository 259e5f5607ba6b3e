"""Small Markov decision processes: simulated, solved, and written out trajectory by trajectory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from caliope.ragged import Bool, Float, Int
from caliope.trajectories import Trajectories


class Path(NamedTuple):
    """One trajectory that can happen, and how likely it is under the policy that was asked for."""

    probability: float
    states: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class TabularMDP:
    """A decision process with numbered states, of which some are absorbing, over a fixed number of steps.

    An episode ends on arrival in an absorbing state, or after ``horizon`` steps. Policies are tables of shape
    (S, A).
    """

    initial: Float  # (S,)
    transitions: Float  # (S, A, S)
    rewards: Float  # (S, A, S), or (S, A) where the next state does not matter
    absorbing: Bool  # (S,)
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
        r""":math:`V_t(s)` under a policy, by dynamic programming, (T + 1, S); the last row, after the end, is 0."""
        policy = np.asarray(policy, dtype=np.float64)
        reward = (policy * self._expected_rewards).sum(axis=1)
        step = np.einsum("sa,sat->st", policy, self.transitions)
        v = np.zeros((self.horizon + 1, len(self.initial)))
        for t in reversed(range(self.horizon)):
            v[t] = np.where(self.absorbing, 0.0, reward + gamma * step @ v[t + 1])
        return v

    def action_values(self, policy: ArrayLike, gamma: float) -> Float:
        r""":math:`Q_t(s, a)` under a policy, by dynamic programming, (T, S, A)."""
        following = self.state_values(policy, gamma)[1:]
        return self._expected_rewards + gamma * np.einsum(
            "sau,tu->tsa", self.transitions, following, optimize=True
        )

    def value(self, policy: ArrayLike, gamma: float = 1.0) -> float:
        """Exact value of a policy."""
        return float(self.initial @ self.state_values(policy, gamma)[0])

    @cached_property
    def _expected_rewards(self) -> Float:
        return np.einsum("sau,sau->sa", self.transitions, self.rewards)

    def simulate(self, policy: ArrayLike, n: int, *, rng: int | np.random.Generator) -> Trajectories:
        """Log n episodes under a policy; column ``behaviour`` holds the probability of each logged action."""
        rng = np.random.default_rng(rng)
        policy = np.asarray(policy, dtype=np.float64)
        state = _sample(np.broadcast_to(self.initial, (n, len(self.initial))), rng)
        who, steps = np.arange(n), []
        for t in range(self.horizon):
            action = _sample(policy[state], rng)
            following = _sample(self.transitions[state, action], rng)
            reward = self.rewards[state, action, following]
            steps.append((who, np.full(len(who), t), state, action, reward, policy[state, action]))
            going = ~self.absorbing[following]
            who, state = who[going], following[going]
            if not len(who):
                break
        owner, time, states, actions, rewards, chance = map(np.concatenate, zip(*steps, strict=True))
        order = np.lexsort((time, owner))
        return Trajectories(
            states[order].astype(np.float64),
            actions[order],
            rewards[order],
            np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=n))]),
            n_actions=policy.shape[1],
            columns={"behaviour": chance[order], "time": time[order]},
            feature_names=["state"],
        )

    def paths(self, policy: ArrayLike) -> Iterator[Path]:
        """Every trajectory that has a chance under a policy: expectations without Monte Carlo."""
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
    """One column a row, by inversion."""
    cumulative = proba.cumsum(axis=1)
    drawn = rng.random(len(proba))[:, None] * cumulative[:, -1:]
    return (drawn >= cumulative).sum(axis=1)
