"""Where pipelines are compared: processes with a behaviour policy, evaluation policies, and the exact value of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope.behaviour import present_columns
from caliope.domains import icu_sepsis, random_mdp, toy_map
from caliope.domains.random_mdp import Problem
from caliope.gathering import target_probabilities
from caliope.policies import action_probabilities, mix, practice, tilt
from caliope.ragged import Bool, Float
from caliope.trajectories import Trajectories
from caliope.values import cross_fitted_q, cross_fitted_q_by_time

Table = Callable[[Trajectories], Float]  # probabilities of all actions at every step, (N, A)
Given = Callable[[Trajectories, Float], Float]  # the same from those of the behaviour policy
Values = Callable[
    [Trajectories, Float, int, int], Float
]  # log, target, folds, seed -> cross-fitted Q, (N, A)


@dataclass(frozen=True, eq=False)
class Question:
    """An evaluation policy with its exact value; ``relative`` states it as a change to practice, where it is one."""

    name: str
    value: float
    table: Table
    relative: Given | None = None
    change: Any = None  # the same as a policy (``mix``, ``tilt``)


@dataclass(frozen=True, eq=False)
class Arena:
    """A process to log, who acts in it, and what is asked."""

    name: str
    simulate: Callable[[int, np.random.Generator], Trajectories]
    truth: Table
    worth: float  # exact value of the behaviour policy
    questions: tuple[Question, ...]
    values: Values
    gamma: float = 1.0
    confounded: bool = False  # the log lacks something that both decisions and outcomes depend on
    present: Callable[[Trajectories], Any] = field(default=lambda data: None)  # columns of the present moment


def kernel_ridge(data: Trajectories, target: Float, folds: int, seed: int, *, horizon: int) -> Float:
    """Fitted Q for a few measurements: ridge regression on 50 kernel features, one model an action.

    The values are stationary. They learn from all steps alike and do not know how many are left, so that they fall
    short of the whole; for the corrections of a doubly robust estimate more data counts for more than that.
    """
    regressor = make_pipeline(StandardScaler(), Nystroem(n_components=50, random_state=seed), Ridge(0.3))
    with warnings.catch_warnings():
        # An action that was taken fewer than 50 times has fewer features.
        warnings.filterwarnings("ignore", "n_components > n_samples", UserWarning)
        return cross_fitted_q(
            data,
            target,
            regressor,
            gamma=1.0,
            n_iterations=horizon,
            folds=folds,
            rng=seed,
            per_action=True,
        ).table


def trees_by_time(data: Trajectories, target: Float, folds: int, seed: int, *, gamma: float) -> Float:
    """Fitted Q for many measurements and a cap on the length: extremely randomised trees, backward in time."""
    trees = ExtraTreesRegressor(50, min_samples_leaf=5, max_features="sqrt", random_state=seed)
    return cross_fitted_q_by_time(data, target, trees, gamma=gamma, folds=folds, rng=seed).table


def of_problem(problem: Problem) -> Arena:
    """A random process, bandit or clinic; placebo left out."""
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

    return Arena(
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


def of_map(name: str, behaviour: toy_map.Compass) -> Arena:
    """The two-dimensional map with one of its behaviour policies; the target, and half of the steps by it."""
    half = mix(behaviour, toy_map.HEADING, 0.5)
    stated = mix(practice, toy_map.HEADING, 0.5)

    def table(policy: Any) -> Table:
        return lambda data: action_probabilities(policy, data.states, data.n_actions)

    return Arena(
        f"map, {name}",
        lambda n, rng: toy_map.simulate(n, policy=behaviour, rng=rng),
        table(behaviour),
        toy_map.value(behaviour),
        (
            Question(
                "half heading",
                toy_map.value(half),
                table(half),
                _given(stated),
                stated,
            ),
            Question("heading", toy_map.value(toy_map.HEADING), table(toy_map.HEADING)),
        ),
        partial(kernel_ridge, horizon=toy_map.MAP.horizon),
    )


def of_sepsis(gamma: float = 0.99) -> Arena:
    """ICU-Sepsis with four evaluation policies, each a change to what clinicians do."""
    best, without = icu_sepsis.optimal(), np.arange(icu_sepsis.N_ACTIONS) % icu_sepsis.LEVELS == 0
    shares = {"a fifth optimal": 0.2, "half optimal": 0.5, "nine tenths optimal": 0.9}

    def stated(name: str) -> Given:
        if name in shares:
            share = shares[name]
            return lambda data, b: (1 - share) * b + share * icu_sepsis.true_probabilities(data, best)
        return lambda data, b: (b + _only(without, b)) / 2

    def tables(policy: Float) -> Table:
        return lambda data: icu_sepsis.true_probabilities(data, policy)

    return Arena(
        "ICU-Sepsis",
        lambda n, rng: icu_sepsis.simulate(n, rng=rng),
        icu_sepsis.true_probabilities,
        icu_sepsis.value(gamma=gamma),
        tuple(
            Question(name, icu_sepsis.value(policy, gamma=gamma), tables(policy), stated(name))
            for name, policy in icu_sepsis.evaluation_policies().items()
            if name != "clinicians"
        ),
        partial(trees_by_time, gamma=gamma),
        gamma=gamma,
        present=lambda data: present_columns(data.feature_names),
    )


def _only(allowed: Bool, b: Float) -> Float:
    """A policy with the allowed actions alone, scaled up; where it takes none of them, as it is."""
    share = b[:, allowed].sum(axis=1, keepdims=True)
    return np.where(share > 0, np.where(allowed, b, 0) / np.where(share > 0, share, 1.0), b)


_SUITE = (
    "random-5",
    "random-8",
    "random-10",
    "random-15",
    "random-20",
    "bandit-5",
    "bandit-25",
    "clinic",
    "clinic-hidden",
)
ARENAS = ("sepsis", "map-roaming", "map-astray", *_SUITE)


def arena(name: str) -> Arena:
    """One of :data:`ARENAS`."""
    if name == "sepsis":
        return of_sepsis()
    if name.startswith("map-"):
        return of_map(name[4:], {"roaming": toy_map.ROAMING, "astray": toy_map.ASTRAY}[name[4:]])
    return of_problem(problem(name))


def problem(name: str) -> Problem:
    """One of the random processes, bandits and clinics among :data:`ARENAS`."""
    return random_mdp.suite(rng=0)[_SUITE.index(name)]
