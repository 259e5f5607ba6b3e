"""Frequencies by discrete state: balance, shrinkage, and what same-data fitting is worth."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import caliope as cal
from caliope.behaviour import PooledPolicy, TabularFrequencies, Temperature
from caliope.behaviour._fit import assign_folds
from caliope.behaviour._frequencies import STRENGTHS, frequencies_of_others
from caliope.domains import ward
from caliope.domains.tabular import TabularMDP


@parametrize_with_checks([TabularFrequencies(shrinkage=0.5)])
def test_it_keeps_the_rules_of_scikit_learn(estimator, check):
    check(estimator)


def test_maximum_likelihood_balances_every_state():
    data = ward.simulate(100, rng=0)
    fitted = cal.fit_behaviour(TabularFrequencies(shrinkage=None), data, mode="same")
    error = np.eye(3)[data.actions] - fitted.probabilities
    for s in np.unique(data.states):
        assert error[data.states[:, 0] == s].sum(axis=0) == pytest.approx(np.zeros(3), abs=1e-9)


def test_shrinkage_and_unseen_states():
    model = TabularFrequencies(shrinkage=2.0).fit([[0], [0], [1], [1]], [0, 0, 0, 1])
    # State 0: two visits, both action 0; marginal (3/4, 1/4): (2 + 1.5) / 4 and 0.5 / 4. State 7: the marginal.
    assert model.predict_proba([[0], [7]]) == pytest.approx(np.array([[3.5 / 4, 0.5 / 4], [3 / 4, 1 / 4]]))
    certain = TabularFrequencies(shrinkage=None).fit([[0], [0], [1], [1]], [0, 0, 0, 1])
    assert certain.predict_proba([[1], [7]]) == pytest.approx(np.array([[0.5, 0.5], [3 / 4, 1 / 4]]))


def naive_choice(states, actions, groups):
    """Each step predicted from the counts of the other trajectories, for each strength."""
    scores = []
    for m in STRENGTHS:
        total = 0.0
        for i in range(len(states)):
            others = (groups != groups[i]) & (states == states[i])
            there, same = others.sum(), (others & (actions == actions[i])).sum()
            base = (actions[groups != groups[i]] == actions[i]).mean()
            p = (same + m * base) / (there + m) if there + m > 0 else base
            total += np.log(p) if p > 0 else -np.inf
        scores.append(total)
    return STRENGTHS[int(np.argmax(scores))]


@pytest.mark.slow
def test_the_strength_is_that_of_the_loop_over_steps():
    chosen = set()
    for seed in range(6):
        rng = np.random.default_rng(seed)
        n = 20 * 2 ** (seed % 3)
        groups = np.repeat(np.arange(n), 4)
        states = rng.integers(3 + 5 * (seed % 2), size=4 * n)
        actions = (rng.random(4 * n) < (states % 3) / 3 + 0.1).astype(int)
        model = TabularFrequencies().fit(states[:, None], actions, groups=groups)
        assert model.shrinkage_ == naive_choice(states, actions, groups)
        chosen.add(model.shrinkage_)
    assert len(chosen) > 1


def test_columns_make_the_state():
    x = np.array([[0.0, 0.3], [0.0, 0.9], [1.0, 0.5]])
    model = TabularFrequencies(columns=[0], shrinkage=None).fit(x, [0, 1, 1])
    assert model.predict_proba([[0.0, 5.0]])[0] == pytest.approx([0.5, 0.5])
    with pytest.raises(ValueError, match="columns must lie from 0 to 1"):
        TabularFrequencies(columns=[2]).fit(x, [0, 1, 1])
    with pytest.raises(ValueError, match="whole numbers"):
        TabularFrequencies(columns=["severity"]).fit(x, [0, 1, 1])


@pytest.mark.slow
def test_fitting_on_the_same_data_beats_other_data_and_the_truth():
    """The process of Hanna et al.'s question: 5 states, 3 actions, 8 steps, 100 trajectories."""
    rng = np.random.default_rng(1)
    initial = rng.dirichlet(np.ones(5))
    transitions = rng.dirichlet(0.5 * np.ones(5), size=(5, 3))
    rewards = rng.normal(size=(5, 3))
    logged = rng.dirichlet(2 * np.ones(3), size=5)
    target = 0.5 * rng.dirichlet(2 * np.ones(3), size=5) + 0.5 * logged
    mdp = TabularMDP(initial, transitions, rewards, np.zeros(5, dtype=bool), horizon=8)
    policy, model = cal.TabularPolicy(target), TabularFrequencies(shrinkage=1.0)
    found = []
    for seed in np.random.SeedSequence(6).spawn(250):
        rng = np.random.default_rng(seed)
        data, other = mdp.simulate(logged, 100, rng=rng), mdp.simulate(logged, 100, rng=rng)
        behaviours = (
            data["behaviour"],
            cal.fit_behaviour(model, data, mode="same"),
            cal.fit_behaviour(model, other, mode="same"),
        )
        found.append([cal.wis(cal.gather(data, policy, b)) for b in behaviours])
    known, same, independent = ((np.array(found) - mdp.value(target)) ** 2).mean(axis=0)
    # Over 250 replicates a mean square has a relative standard error of about sqrt(2 / 250) = 9%. The reference has
    # .169 (known), .104 (same), .305 (independent, not smoothed).
    assert same < 0.8 * known
    assert independent > 1.2 * known


def test_frequencies_of_other_folds_hold_nothing_of_the_own_one():
    rng = np.random.default_rng(0)
    actions, fold = rng.integers(0, 5, 200), rng.integers(0, 4, 200)
    actions[0], fold[0] = 5, 2  # taken once
    found = frequencies_of_others(actions, fold)
    for k in range(4):
        counts = [sum(1 for a, f in zip(actions, fold, strict=True) if a == b and f != k) for b in range(6)]
        counts = [c if c > 0 else 0.5 for c in counts]
        assert found[k] == pytest.approx(np.array(counts) / sum(counts))
    assert found[2, 5] > 0


def test_a_pool_predicts_the_log_without_the_frequencies_of_the_own_fold():
    # Actions drawn at random from 46: whatever is counted without a fold predicts it worse than the truth does.
    rng = np.random.default_rng(1)
    x, actions = rng.normal(size=(2000, 1)), rng.integers(0, 46, 2000)
    pool = PooledPolicy({"prior": DummyClassifier(strategy="prior")}).fit(x, actions)
    fold = assign_folds(np.arange(2000), 5, 0)
    others = frequencies_of_others(actions, fold)[fold]
    assert pool.oof_proba_ == pytest.approx(Temperature(pool.temperature_)(others))
    held_out = -np.log(pool.oof_proba_[np.arange(2000), actions]).mean()
    assert held_out > np.log(46) - 0.001  # the temperature has seen them: one number, 1 / (2 n) nats
    # With its own rows among the counts it would seem better than the truth, by 45 / (2 n) nats.
    counted = -np.log((np.bincount(actions) / 2000)[actions]).mean()
    assert np.log(46) - counted == pytest.approx(45 / 4000, rel=0.5)
