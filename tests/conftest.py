from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings, strategies as st
from sklearn.base import BaseEstimator

sys.path.insert(0, str(Path(__file__).parent))

import caliope as cal
from caliope.domains.tabular import TabularMDP

# No deadline: timings belong to the benchmarks. Derandomised: a red build is red for everyone.
settings.register_profile("caliope", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("caliope")

# A third of the time of a small audit goes into names of parameters, looked up anew for every tree of a forest.
BaseEstimator._get_param_names = classmethod(cache(BaseEstimator._get_param_names.__func__))

ESTIMATORS = {
    name: getattr(cal.estimators, name)
    for name in [
        "monte_carlo",
        "ois",
        "step_is",
        "wis",
        "step_wis",
        "phis",
        "phwis",
        "step_phwis",
        "dm",
        "dr",
        "wdr",
        "phwdr",
    ]
}
SELF_NORMALISED = ["wis", "step_wis", "phwis", "step_phwis", "wdr", "phwdr"]


def random_evidence(seed=0, n=12, longest=6, gamma=0.9, spread=0.7, zeros=0.0, equal=False, **changes):
    """Ragged evidence with every field filled; ``zeros`` is the chance that a ratio is 0."""
    rng = np.random.default_rng(seed)
    lengths = np.full(n, longest) if equal else rng.integers(1, longest + 1, size=n)
    steps = int(lengths.sum())
    log_ratio = rng.normal(scale=spread, size=steps)
    log_ratio[rng.random(steps) < zeros] = -np.inf
    fields = {
        "rewards": rng.normal(size=steps),
        "log_ratio": log_ratio,
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
        "gamma": gamma,
        "q": rng.normal(size=steps),
        "v": rng.normal(size=steps),
    }
    return cal.Evidence(**(fields | changes))


@st.composite
def evidences(draw, *, zeros=st.sampled_from([0.0, 0.1]), equal=st.just(False), gamma=None):
    return random_evidence(
        seed=draw(st.integers(0, 10_000)),
        n=draw(st.integers(2, 14)),
        longest=draw(st.integers(1, 7)),
        gamma=draw(st.sampled_from([0.0, 0.5, 0.95, 1.0]) if gamma is None else gamma),
        spread=draw(st.sampled_from([0.1, 0.8, 2.0])),
        zeros=draw(zeros),
        equal=draw(equal),
    )


@pytest.fixture(scope="session")
def lengthy():
    """The MDP whose policy decides how long episodes last (two states, four steps)."""
    going = np.array(
        [
            [[0.40007079, 0.59992921], [0.89720385, 0.10279615]],
            [[0.25241806, 0.74758194], [0.47140482, 0.52859518]],
        ]
    )
    # numpy's own draw, to the last digit: default_rng(0).dirichlet([1, 1], size=(2, 2))
    drawn = np.random.default_rng(0).dirichlet([1, 1], size=(2, 2))
    assert np.allclose(drawn, going, atol=5e-9)
    ending = np.array([[0.1, 0.6], [0.2, 0.5]])
    transitions = np.zeros((3, 2, 3))
    transitions[:2, :, :2] = (1 - ending)[:, :, None] * drawn
    transitions[:2, :, 2] = ending
    return TabularMDP(
        initial=[0.6, 0.4, 0.0],
        transitions=transitions,
        rewards=[[1.0, 0.2], [0.3, -0.5], [0.0, 0.0]],
        absorbing=[False, False, True],
        horizon=4,
    )


LENGTHY_B = np.array([[0.5, 0.5], [0.4, 0.6], [0.5, 0.5]])
LENGTHY_E = np.array([[0.85, 0.15], [0.7, 0.3], [0.5, 0.5]])
LENGTHY_GAMMA = 0.9


def evidence_of_all_paths(mdp, behaviour, target, gamma, q=None):
    """Evidence in which every possible trajectory stands once, and counts are its probability under behaviour.

    Estimates on it are the limits of the estimators: no Monte Carlo.
    """
    paths = list(mdp.paths(behaviour))
    log_ratio = [
        float(np.log(target[s, a]) - np.log(behaviour[s, a]))
        for p in paths
        for s, a in zip(p.states, p.actions, strict=True)
    ]
    values = {}
    if q is not None:
        at = [(t, s, a) for p in paths for t, (s, a) in enumerate(zip(p.states, p.actions, strict=True))]
        values = {
            "q": [q[t, s, a] for t, s, a in at],
            "v": [float(target[s] @ q[t, s]) for t, s, _ in at],
        }
    return cal.Evidence(
        rewards=[r for p in paths for r in p.rewards],
        log_ratio=log_ratio,
        offsets=np.cumsum([0, *(len(p.actions) for p in paths)]),
        gamma=gamma,
        counts=[p.probability for p in paths],
        **values,
    )
