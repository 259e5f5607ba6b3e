"""Benchmark problems: processes with a behaviour policy, target policies, and the exact value of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope._gather import target_probabilities
from caliope._policies import action_probabilities, mix, practice, tilt
from caliope._ragged import Bool, Float
from caliope._trajectories import Trajectories
from caliope._trees import ExtraTreesRegressor
from caliope.behaviour import present_columns
from caliope.domains import icu_sepsis, random_mdp, toy_map
from caliope.domains._sepsis_process import without_vasopressors
from caliope.values import cross_fitted_q, cross_fitted_q_by_time

Table = Callable[[Trajectories], Float]  # probabilities of all actions at every step, (N, A)
Given = Callable[[Trajectories, Float], Float]  # the same from those of the behaviour policy
Values = Callable[
    [Trajectories, Float, int, int], Float
]  # log, target, folds, seed -> cross-fitted Q, (N, A)


@dataclass(frozen=True, eq=False)
class Question:
    """A target policy with its exact value; ``relative`` states it relative to practice, where it can be."""

    name: str
    value: float
    table: Table
    relative: Given | None = None
    change: Any = None  # the same as a policy (``mix``, ``tilt``)


@dataclass(frozen=True, eq=False)
class Problem:
    """A process to log, its behaviour policy, and the questions asked."""

    name: str
    simulate: Callable[[int, np.random.Generator], Trajectories]
    truth: Table
    worth: float  # exact value of the behaviour policy
    questions: tuple[Question, ...]
    values: Values
    gamma: float = 1.0
    confounded: bool = False  # the log lacks a variable that both decisions and outcomes depend on
    present: Callable[[Trajectories], Any] = field(default=lambda data: None)  # columns of the present moment


def kernel_ridge(data: Trajectories, target: Float, folds: int, seed: int, *, horizon: int) -> Float:
    """Fitted Q for a few measurements: ridge regression on 50 kernel features, one model per action.

    The values are stationary: all steps are training data, and the number of steps left is not a feature. That biases
    them, but for the corrections of a doubly robust estimate the larger sample matters more.
    """
    regressor = make_pipeline(StandardScaler(), Nystroem(n_components=50, random_state=seed), Ridge(0.3))
    with warnings.catch_warnings():
        # An action that was taken fewer than 50 times has fewer features.
        warnings.filterwarnings("ignore", "n_components > n_samples", UserWarning)
        fitted = cross_fitted_q(
            data, target, regressor, gamma=1.0, n_iterations=horizon, folds=folds, rng=seed, per_action=True
        )
    return fitted.table


def trees_by_time(data: Trajectories, target: Float, folds: int, seed: int, *, gamma: float) -> Float:
    """Fitted Q for many measurements and a cap on the length: extremely randomised trees, backward in time."""
    trees = ExtraTreesRegressor(50, min_samples_leaf=5, max_features="sqrt", random_state=seed)
    return cross_fitted_q_by_time(data, target, trees, gamma=gamma, folds=folds, rng=seed).table


def from_random(problem: random_mdp.Problem) -> Problem:
    """A random process, bandit or clinic; the behaviour policy itself is not asked for."""
    targets = problem.targets()
    mixed = {"mild mix": random_mdp.MILD, "strong mix": random_mdp.STRONG}

    def change(name: str) -> Any:
        if name == "unrelated":
            return None
        return (
            mix(practice, problem.reading(problem.best), mixed[name])
            if name in mixed
            else tilt(practice, problem.weigh)
        )

    def tables(policy: Float) -> Table:
        return lambda data: problem.true_probabilities(data, policy)

    return Problem(
        problem.name,
        lambda n, rng: problem.simulate(n, rng=rng),
        problem.true_probabilities,
        problem.value(problem.behaviour),
        tuple(
            Question(name, problem.value(policy), tables(policy), _given(change(name)), change(name))
            for name, policy in targets.items()
            if name != "practice"
        ),
        partial(kernel_ridge, horizon=problem.process.horizon),
        confounded=len(np.unique(problem.seen[problem.seen >= 0])) < int((problem.seen >= 0).sum()),
    )


def _given(change: Any) -> Given | None:
    return None if change is None else lambda data, behaviour: target_probabilities(data, change, behaviour)


def from_map(name: str, behaviour: toy_map.Compass) -> Problem:
    """The two-dimensional map with one behaviour policy; targets: HEADING, and HEADING in half of the steps."""
    half = mix(behaviour, toy_map.HEADING, 0.5)
    stated = mix(practice, toy_map.HEADING, 0.5)

    def table(policy: Any) -> Table:
        return lambda data: action_probabilities(policy, data.states, data.n_actions)

    return Problem(
        f"map, {name}",
        lambda n, rng: toy_map.simulate(n, policy=behaviour, rng=rng),
        table(behaviour),
        toy_map.value(behaviour),
        (
            Question("half heading", toy_map.value(half), table(half), _given(stated), stated),
            Question("heading", toy_map.value(toy_map.HEADING), table(toy_map.HEADING)),
        ),
        partial(kernel_ridge, horizon=toy_map.MAP.horizon),
    )


def from_sepsis(gamma: float = 0.99) -> Problem:
    """ICU-Sepsis with four target policies, each a change to what clinicians do."""
    best, without = icu_sepsis.optimal(), np.arange(icu_sepsis.N_ACTIONS) % icu_sepsis.LEVELS == 0
    shares = {"a fifth optimal": 0.2, "half optimal": 0.5, "nine tenths optimal": 0.9}

    def stated(name: str) -> Given:
        if name in shares:
            share = shares[name]
            return lambda data, b: (1 - share) * b + share * icu_sepsis.true_probabilities(data, best)
        return lambda data, b: (b + _only(without, b)) / 2

    def change(name: str) -> Any:
        mixed_in = _OfHiddenState(best if name in shares else without_vasopressors())
        return mix(practice, mixed_in, shares.get(name, 0.5))  # type: ignore[call-overload]

    def tables(policy: Float) -> Table:
        return lambda data: icu_sepsis.true_probabilities(data, policy)

    return Problem(
        "ICU-Sepsis",
        lambda n, rng: icu_sepsis.simulate(n, rng=rng),
        icu_sepsis.true_probabilities,
        icu_sepsis.value(gamma=gamma),
        tuple(
            Question(name, icu_sepsis.value(policy, gamma=gamma), tables(policy), stated(name), change(name))
            for name, policy in icu_sepsis.evaluation_policies().items()
            if name != "clinicians"
        ),
        partial(trees_by_time, gamma=gamma),
        gamma=gamma,
        present=lambda data: present_columns(data.feature_names),
    )


@dataclass(frozen=True, eq=False)
class _OfHiddenState:
    """A policy of the hidden states of ICU-Sepsis, (716, 25), at the steps of a log that recorded them."""

    policy: Float

    def on(self, data: Trajectories) -> Float:
        """Return its probabilities, (N, 25)."""
        return icu_sepsis.true_probabilities(data, self.policy)


def _only(allowed: Bool, b: Float) -> Float:
    """A policy with the allowed actions only, rescaled; where it takes none of them, unchanged."""
    share = b[:, allowed].sum(axis=1, keepdims=True)
    return np.where(share > 0, np.where(allowed, b, 0) / np.where(share > 0, share, 1.0), b)


_SUITE = (
    "random-5", "random-8", "random-10", "random-15", "random-20", "bandit-5", "bandit-25", "clinic", "clinic-hidden",
)  # fmt: skip
PROBLEMS = ("sepsis", "map-roaming", "map-astray", *_SUITE)


def problem(name: str) -> Problem:
    """One of :data:`PROBLEMS`."""
    if name == "sepsis":
        return from_sepsis()
    if name.startswith("map-"):
        return from_map(name[4:], {"roaming": toy_map.ROAMING, "astray": toy_map.ASTRAY}[name[4:]])
    return from_random(random_problem(name))


def random_problem(name: str) -> random_mdp.Problem:
    """One of the random processes, bandits and clinics among :data:`PROBLEMS`."""
    return random_mdp.suite(rng=0)[_SUITE.index(name)]
