"""Families of logs for the trial of the verdicts: right ones, ones with a fault that a log shows, and hidden faults.

Each family simulates courses of decisions with recorded measurements, a behaviour policy and a new policy. The value
of either is known from 400,000 simulated courses. A family that is wrong is wrong in one way, and the estimates of an
audit that does not notice miss by several standard errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.ensemble import RandomForestRegressor

from caliope._ragged import Bool, Float, Int
from caliope._trajectories import Trajectories
from reproduction._runs import seed_of

RIGHT, SHOWN, HIDDEN = "right", "a fault that the log shows", "a fault that no log shows"
N_TRUTH = 400_000  # courses behind a value
ACTIONS = 3
_GAIN = np.array([0.0, 0.6, 0.3])  # of each action
_SLOPE = np.array([0.0, -0.4, 0.5])  # the same by the first measurement


@dataclass(frozen=True, eq=False)
class Past:
    """What has happened in n courses before a decision; lists have one entry per earlier step."""

    x: Float  # (n, d): the true state now
    seen: Float  # (n, d): the same as it is recorded
    hidden: Float  # (n,): standard normal, one per course or per cluster
    place: Float  # (n,): place in the file, from 0 to 1
    states: list[Float] = field(default_factory=list)
    recorded: list[Float] = field(default_factory=list)
    actions: list[Int] = field(default_factory=list)
    rewards: list[Float] = field(default_factory=list)

    @property
    def time(self) -> int:
        """Number of the step, from 0."""
        return len(self.actions)

    def last_action(self, back: int = 1) -> Float:
        """Indicators of the action so many steps back, (n, A); 0 before the first."""
        if self.time < back:
            return np.zeros((len(self.x), ACTIONS))
        return np.eye(ACTIONS)[self.actions[-back]]

    def last_state(self) -> Float:
        """The measurements one step back, (n, d); those of now at the first step."""
        return self.states[-1] if self.states else self.x


Choose = Callable[[Past], Float]  # logits of the actions, (n, A)
Respond = Callable[[Past, Int, np.random.Generator], Float]  # rewards, (n,)


def usual_logits(past: Past) -> Float:
    """Preferences of current practice: linear in the measurements."""
    x = past.x
    return np.stack([0.3 * x[:, 1], 0.7 * x[:, 0], -0.6 * x[:, 0] + 0.5 * x[:, 1]], axis=1)


def effect_of(x: Float, action: Int) -> Float:
    """Expected effect of an action on reward and next state, (n,)."""
    return _GAIN[action] + _SLOPE[action] * x[:, 0]


def usual_rewards(past: Past, action: Int, rng: np.random.Generator) -> Float:
    """Effect of the action, the state, and noise."""
    return effect_of(past.x, action) + 0.5 * past.x[:, 0] + 0.5 * rng.standard_normal(len(action))


def usual_change(past: Past) -> Float:
    """Logits that the new policy adds to those of usual practice: towards better actions."""
    every = np.arange(ACTIONS)
    return 0.7 * np.stack([effect_of(past.x, np.full(len(past.x), a)) for a in every], axis=1)


@dataclass(frozen=True, eq=False)
class Family:
    """One kind of log: how decisions are made, what follows, what is recorded, and what is asked."""

    name: str
    kind: str
    practice: Choose = usual_logits
    base: Choose = usual_logits  # what the new policy changes
    change: Choose = usual_change
    rewards: Respond = usual_rewards
    horizon: int = 4
    features: int = 3
    loses: Callable[[Float], Bool] | None = None  # courses that the log loses before this decision, unmarked
    error: float = 0.0  # of the recorded measurements
    level: float = 0.0  # of the hidden variable in the reward
    cluster_size: int = 1
    tell_cluster: bool = False
    limit: int | None = None  # steps that the log shows; the others are cut off
    learnt: str = ""  # "stated" or "across folds": a policy learnt on the log itself
    effectless: bool = False  # actions change nothing
    claim: str = ""  # word of the printed condition that fails in this family
    n: int = 600

    def play(self, n: int, rng: np.random.Generator, *, new: bool = False) -> Past:
        """Simulate n courses of current practice, or of the new policy, which sees what is recorded."""
        groups = -(-n // self.cluster_size)
        hidden = np.repeat(rng.standard_normal(groups), self.cluster_size)[:n]
        x = rng.standard_normal((n, self.features))
        past = Past(x, self._record(x, rng), hidden, (np.arange(n) + 0.5) / n)
        for _ in range(self.horizon):
            proba = self._new_policy(past.seen) if new else softmax(self.practice(past), axis=1)
            action = _draw(proba, rng)
            reward = self.rewards(past, action, rng) + self.level * past.hidden
            following = self._move(past, action, rng)
            past = replace(
                past,
                x=following,
                seen=self._record(following, rng),
                states=[*past.states, past.x],
                recorded=[*past.recorded, past.seen],
                actions=[*past.actions, action],
                rewards=[*past.rewards, reward],
            )
        return past

    def _record(self, x: Float, rng: np.random.Generator) -> Float:
        return x if self.error == 0 else x + self.error * rng.standard_normal(x.shape)

    def _new_policy(self, seen: Float) -> Float:
        nothing = np.zeros(len(seen))
        past = Past(seen, seen, nothing, nothing)
        return np.asarray(softmax(self.base(past) + self.change(past), axis=1))

    def _move(self, past: Past, action: Int, rng: np.random.Generator) -> Float:
        following = 0.6 * past.x + 0.6 * rng.standard_normal(past.x.shape)
        if not self.effectless:
            following[:, 0] += 0.3 * effect_of(past.x, action)
        return following

    def value(self, *, new: bool) -> float:
        """Mean return of current practice, or of the new policy, over 400,000 courses; seeds of their own."""
        if self.learnt:
            new = False  # nothing changes anything
        return _value(self, new)

    def log(self, seed: int) -> Trajectories:
        """What an audit is given."""
        past = self.play(self.n, seed_of("honesty", self.name, seed))
        steps = self.horizon if self.limit is None else self.limit
        kept = np.ones((self.n, steps), dtype=bool)
        if self.loses is not None:
            lost = np.stack([self.loses(x) for x in past.states[:steps]], axis=1)
            lost[:, 0] = False
            kept = ~np.logical_or.accumulate(lost, axis=1)
        states, actions, rewards = (
            np.stack(each[:steps], axis=1)[kept] for each in (past.recorded, past.actions, past.rewards)
        )
        return Trajectories(
            states,
            actions,
            rewards,
            np.concatenate([[0], np.cumsum(kept.sum(axis=1))]),
            n_actions=ACTIONS,
            feature_names=[f"x{j}" for j in range(self.features)],
        )

    def target(self, data: Trajectories) -> Float:
        """Probabilities of the new policy at every step of the log, (N, A)."""
        return self._new_policy(data.states.astype(np.float64))

    def settings(self, data: Trajectories) -> dict[str, Any]:
        """Arguments of the audit: the policy, and truthful answers to what is asked."""
        asked: dict[str, Any] = {"recorded_before": "all", "ended": "all", "learnt_on": "no"}
        if self.limit is not None:
            asked["ended"] = np.zeros(len(data), dtype=bool)
        if self.tell_cluster:
            asked["cluster"] = np.arange(len(data)) // self.cluster_size
        if self.learnt == "across folds":
            del asked["learnt_on"]
            return asked | {"learn": learn_greedy}
        if self.learnt == "stated":
            asked["learnt_on"] = data.ids
            return asked | {"target": learn_greedy(data)}
        return asked | {"target": self.target(data)}


@cache
def _value(family: Family, new: bool) -> float:
    past = family.play(N_TRUTH, seed_of("honesty", "value", family.name, new), new=new)
    return float(sum(past.rewards, np.zeros(N_TRUTH)).mean())


def _draw(proba: Float, rng: np.random.Generator) -> Int:
    """Draw one action per row, by inversion."""
    return np.asarray((rng.random(len(proba))[:, None] >= proba.cumsum(axis=1)[:, :-1]).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Greedy:
    """The action of the largest predicted reward, seven times in ten."""

    model: Any

    @property
    def classes_(self) -> Int:
        """All actions."""
        return np.arange(ACTIONS)

    def predict_proba(self, X: Any) -> Float:
        """Probabilities of all actions, (N, A)."""
        x = np.asarray(X, dtype=np.float64)
        tables = [np.concatenate([x, np.tile(row, (len(x), 1))], axis=1) for row in np.eye(ACTIONS)]
        best = np.stack([self.model.predict(table) for table in tables], axis=1).argmax(axis=1)
        return 0.55 * np.eye(ACTIONS)[best] + 0.15


def learn_greedy(data: Trajectories) -> Greedy:
    """Learn from a log which action is followed by the largest reward, by a forest."""
    inputs = np.concatenate([data.states, np.eye(ACTIONS)[data.actions]], axis=1)
    forest = RandomForestRegressor(60, min_samples_leaf=5, max_features=0.7, random_state=0)
    return Greedy(forest.fit(inputs, data.rewards))


# -- how practice and outcomes go wrong --


def _habit(past: Past) -> Float:
    """Two kinds of practitioners: those who repeat the last action, and those who avoid it."""
    kind = np.where(past.hidden > -0.4, 2.0, -1.0)
    return usual_logits(past) + kind[:, None] * past.last_action()


def _never_twice(past: Past) -> Float:
    return usual_logits(past) - 4.0 * past.last_action()


def _by_last_state(past: Past) -> Float:
    before = past.last_state()[:, :1]
    return usual_logits(past) + before * np.array([0.0, 1.2, -1.2])


def _after_bad_reward(past: Past) -> Float:
    total = sum(past.rewards, np.zeros(len(past.x)))
    return usual_logits(past) + np.tanh(total)[:, None] * np.array([0.0, -1.3, 1.3])


def _tired_of(past: Past, action: Int, rng: np.random.Generator) -> Float:
    """An action that is repeated works less."""
    again = (past.last_action()[np.arange(len(action)), action] > 0) if past.time else False
    return usual_rewards(past, action, rng) - 1.2 * again


def _with_last_state(past: Past, action: Int, rng: np.random.Generator) -> Float:
    return usual_rewards(past, action, rng) + 0.8 * past.last_state()[:, 0] * (action == 1)


def _with_total(past: Past, action: Int, rng: np.random.Generator) -> Float:
    total = sum(past.rewards, np.zeros(len(past.x)))
    return usual_rewards(past, action, rng) + 0.8 * np.tanh(total) * (action == 2)


def _drift(shape: Callable[[Float], Float]) -> dict[str, Any]:
    """Practice and outcomes that both change with the place in the file."""

    def practice(past: Past) -> Float:
        return usual_logits(past) + shape(past.place)[:, None] * np.array([0.0, 1.3, -0.6])

    def rewards(past: Past, action: Int, rng: np.random.Generator) -> Float:
        return usual_rewards(past, action, rng) + 0.8 * shape(past.place)

    return {"practice": practice, "rewards": rewards}


def _line(place: Float) -> Float:
    return 2.0 * place - 1.0


def _step(place: Float) -> Float:
    return np.where(place > 0.6, 1.0, -0.6)


def _season(place: Float) -> Float:
    return np.sin(3 * np.pi * place)


def _no_choice(where: Callable[[Float], Bool]) -> dict[str, Any]:
    """A region where everybody gets the first action, and the others would do harm."""

    def practice(past: Past) -> Float:
        return np.where(where(past.x)[:, None], np.array([30.0, 0.0, 0.0]), usual_logits(past))

    def rewards(past: Past, action: Int, rng: np.random.Generator) -> Float:
        return usual_rewards(past, action, rng) - 3.0 * (where(past.x) & (action > 0))

    return {"practice": practice, "rewards": rewards}


def _high(x: Float) -> Bool:
    return x[:, 0] > 1.3


def _disc(x: Float) -> Bool:
    return (x[:, 0] - 0.8) ** 2 + (x[:, 1] + 0.5) ** 2 < 0.45**2


def _confounded(past: Past) -> Float:
    return usual_logits(past) + past.hidden[:, None] * np.array([0.0, 0.9, -0.4])


def _sharper(past: Past) -> Float:
    return 2.0 * usual_logits(past)


def _parity(x: Float) -> Float:
    return np.sign(x[:, 1] * x[:, 2] * x[:, 3])


def _by_parity(past: Past) -> Float:
    return usual_logits(past) + _parity(past.x)[:, None] * np.array([0.0, 1.3, -0.6])


def _parity_rewards(past: Past, action: Int, rng: np.random.Generator) -> Float:
    return usual_rewards(past, action, rng) + 0.8 * _parity(past.x)


def _curved(past: Past) -> Float:
    x = past.x
    bend = np.sin(1.5 * x[:, 0])
    return np.stack([0.8 * np.cos(1.5 * x[:, 1]), 0.9 * bend, -0.9 * bend], axis=1)


def _small_change(past: Past) -> Float:
    return 0.5 * usual_change(past)


def _no_effect(past: Past, action: Int, rng: np.random.Generator) -> Float:
    return 0.5 * past.x[:, 0] + rng.standard_normal(len(action))


def _lost(x: Float) -> Bool:
    """Courses that deteriorate are transferred, and the log takes it for an end."""
    return x[:, 0] < -0.7


def _either_end(x: Float) -> Bool:
    return np.abs(x[:, 1]) > 2.0


_FAMILIES = (
    Family("linear practice", RIGHT),
    Family("curved practice", RIGHT, practice=_curved, base=_curved, change=_small_change, n=1500),
    Family("single decisions", RIGHT, horizon=1, features=5, n=1000),
    Family("longer courses, small change", RIGHT, horizon=8, change=_small_change),
    Family("hospitals, named", RIGHT, level=0.35, cluster_size=10, tell_cluster=True),
    Family("habits", SHOWN, practice=_habit, rewards=_tired_of),
    Family("never the same twice", SHOWN, practice=_never_twice, rewards=_tired_of),
    Family("previous measurement", SHOWN, practice=_by_last_state, rewards=_with_last_state),
    Family("drift", SHOWN, **_drift(_line)),
    Family("sudden change", SHOWN, **_drift(_step)),
    Family("hospitals, not named", SHOWN, level=0.5, cluster_size=20),
    Family("three stays, not named", SHOWN, level=1.0, cluster_size=3),
    Family("no choice when high", SHOWN, **_no_choice(_high)),
    Family("no choice in a disc", SHOWN, n=1000, **_no_choice(_disc)),
    Family("learnt here, stated", SHOWN, rewards=_no_effect, learnt="stated", effectless=True),
    Family("learnt here, across folds", SHOWN, rewards=_no_effect, learnt="across folds", effectless=True),
    Family("cut off, stated", SHOWN, horizon=6, limit=3),
    Family("unmeasured confounder", HIDDEN, practice=_confounded, level=0.8, claim="missing"),
    Family("measured with error", HIDDEN, practice=_sharper, error=0.8, claim="missing"),
    Family(
        "product of three", HIDDEN, practice=_by_parity, rewards=_parity_rewards, features=8, claim="missing"
    ),
    Family("lost, not marked", HIDDEN, loses=_lost, claim="ended"),
)

_UNSEEN = (
    Family("app with daily decisions", RIGHT, horizon=10, features=2, change=_small_change, n=800),
    Family("after bad rewards", SHOWN, practice=_after_bad_reward, rewards=_with_total),
    Family("seasons", SHOWN, n=900, **_drift(_season)),
    Family("no choice at either end", SHOWN, n=800, **_no_choice(_either_end)),
)

FAMILIES: Mapping[str, Family] = {family.name: family for family in _FAMILIES}
"""Families that thresholds and defaults may be chosen on, with other seeds than those of the report."""

UNSEEN: Mapping[str, Family] = {family.name: family for family in _UNSEEN}
"""Families that nothing was chosen on: they are run once, at the end."""
