"""Small processes with large contrasts: exact values, measurements that tell the state, and what is hidden."""

import numpy as np
import pytest

import caliope as cal
from caliope._policies import Policy, action_probabilities, mix, practice, tilt
from caliope.domains import random_mdp

SUITE = random_mdp.suite(rng=0)


@pytest.fixture(params=SUITE, ids=[problem.name for problem in SUITE])
def problem(request):
    return request.param


def test_the_suite_has_horizons_from_one_to_twenty():
    assert [p.process.horizon for p in SUITE] == [5, 8, 10, 15, 20, 1, 1, 12, 12]
    assert [p.n_actions for p in SUITE] == [5, 5, 5, 5, 5, 5, 25, 3, 3]
    assert len({p.name for p in SUITE}) == len(SUITE)


def test_the_same_seed_makes_the_same_suite_and_another_does_not():
    again, other = random_mdp.suite(rng=0), random_mdp.suite(rng=1)
    for a, b, c in zip(SUITE, again, other, strict=True):
        assert np.array_equal(a.process.transitions, b.process.transitions)
        assert np.array_equal(a.centres, b.centres)
        assert not np.array_equal(a.centres, c.centres)


@pytest.mark.slow
def test_simulated_returns_agree_with_the_exact_value(problem):
    for seed, table in enumerate(problem.targets().values()):
        returns = problem.simulate(2000, rng=seed, policy=table).returns(0.9)
        exact = problem.value(table, gamma=0.9)
        # 45 comparisons in the suite: four standard errors are passed once in 350 suites that are right.
        assert abs(returns.mean() - exact) < 4 * returns.std() / np.sqrt(2000)


def test_values_are_those_of_a_plain_recursion():
    problem = random_mdp.random_mdp(3, 2, horizon=3, rng=4)
    w, policy = problem.process, problem.targets()["tilt"]

    def value(s, steps):
        if w.absorbing[s] or steps == 0:
            return 0.0
        return sum(
            policy[s, a] * w.transitions[s, a, u] * (w.rewards[s, a, u] + 0.9 * value(u, steps - 1))
            for a in range(2)
            for u in range(4)
        )

    expected = sum(w.initial[s] * value(s, 3) for s in range(4))
    assert problem.value(policy, gamma=0.9) == pytest.approx(expected, abs=1e-12)


def test_weighted_returns_agree_with_the_exact_value(problem):
    # Ratios of true probabilities from the log of practice, where the effective sample is large enough: the tilt.
    data = problem.simulate(4000, rng=2)
    target = problem.targets()["tilt"]
    evidence = cal.gather(data, problem.true_probabilities(data, target), data["behaviour"])
    weighted = np.multiply.reduceat(np.exp(evidence.log_ratio), data.layout.first) * data.returns()
    assert abs(weighted.mean() - problem.value(target)) < 4 * weighted.std() / np.sqrt(4000)


def test_logged_probabilities_are_those_of_the_policy_that_acted(problem):
    for table in problem.targets().values():
        data = problem.simulate(20, rng=3, policy=table)
        chosen = problem.true_probabilities(data, table)[np.arange(data.n_steps), data.actions]
        assert np.array_equal(chosen, data["behaviour"])


def test_measurements_tell_what_is_seen_of_the_state(problem):
    data = problem.simulate(300, rng=4)
    seen = problem.seen[data["state"]]
    away = np.sqrt(((data.states[:, None, :] - problem.centres) ** 2).sum(axis=2))
    assert np.array_equal(away.argmin(axis=1), seen)
    gaps = [
        np.linalg.norm(a - b)
        for i, a in enumerate(problem.centres)
        for j, b in enumerate(problem.centres)
        if i < j
    ]
    # Uniform in a ball of radius R in 6 dimensions: the mean distance from its centre is 6/7 R.
    radius = 0.49 * min(gaps)
    own = away[np.arange(len(seen)), seen]
    assert own.max() <= radius
    assert own.mean() == pytest.approx(6 / 7 * radius, abs=4 * own.std() / np.sqrt(len(own)))


def test_a_reading_is_the_policy_on_measurements(problem):
    data = problem.simulate(100, rng=5)
    for table in (problem.best, problem.unrelated):
        policy = problem.reading(table)
        assert isinstance(policy, Policy)
        found = action_probabilities(policy, data.states, data.n_actions)
        assert np.array_equal(found, problem.true_probabilities(data, table))


@pytest.mark.slow
def test_mixes_and_tilts_can_be_stated_relative_to_practice(problem):
    data = problem.simulate(100, rng=6)
    truth, targets = problem.true_probabilities(data), problem.targets()
    relative = {
        "practice": practice,
        "mild mix": mix(practice, problem.reading(problem.best), 0.2),
        "strong mix": mix(practice, problem.reading(problem.best), 0.5),
        "tilt": tilt(practice, problem.weigh),
    }
    for name, policy in relative.items():
        found = policy.apply(data.states, truth)
        assert found == pytest.approx(problem.true_probabilities(data, targets[name]), abs=1e-12)


def test_contrasts_are_large_where_they_should_be():
    for problem in SUITE:
        practised = problem.value(problem.behaviour)
        spread = problem.simulate(1000, rng=7).returns().std()
        contrast = {name: (problem.value(t) - practised) / spread for name, t in problem.targets().items()}
        assert contrast["practice"] == 0
        assert contrast["mild mix"] > 0.1
        assert contrast["tilt"] > 0.1
        # From a third of a standard deviation in the clinic to nearly two in the longest process.
        assert 0.3 < contrast["strong mix"] < 2.5
        assert contrast["strong mix"] > 2 * contrast["mild mix"]


def test_the_best_policy_of_a_bandit_takes_the_highest_mean_reward():
    problem = random_mdp.random_mdp(6, 4, horizon=1, rng=8)
    w = problem.process
    for s in range(6):
        mean = [float(w.transitions[s, a] @ w.rewards[s, a]) for a in range(4)]
        assert problem.best[s].argmax() == int(np.argmax(mean))
        # The worst action has e^-0.5, the best e^0.5, the others lie evenly between in the exponent.
        order = np.argsort(mean)
        assert np.log(problem.weights[s])[order] == pytest.approx([-0.5, -1 / 6, 1 / 6, 0.5])


def test_the_best_first_choice_beats_every_evaluation_policy():
    # Stationary, so not optimal at the last steps; in expectation far better than practice all the same.
    for problem in SUITE:
        values = [problem.value(table) for table in problem.targets().values()]
        assert problem.value(problem.best) > max(values)


def test_frailty_is_seen_in_one_clinic_and_hidden_in_the_other():
    seen, hidden = (random_mdp.clinic(hidden=flag) for flag in (False, True))
    assert len(seen.centres) == 10
    assert len(hidden.centres) == 5
    assert np.array_equal(seen.process.transitions, hidden.process.transitions)
    assert np.array_equal(seen.behaviour, hidden.behaviour)
    # States 0 to 4 are the severities of the others, 5 to 9 of the frail.
    assert np.array_equal(hidden.seen[:5], hidden.seen[5:10])
    assert isinstance(seen.reading(seen.behaviour), Policy)
    with pytest.raises(ValueError, match="the same measurements"):
        hidden.reading(hidden.behaviour)


def test_hidden_frailty_confounds():
    # The frail get more and fare worse: what follows a high dose looks worse, among those who look alike, than it is.
    problem = random_mdp.clinic(hidden=True)
    data = problem.simulate(20_000, rng=9)
    frail = (data["state"] >= 5) & (data["state"] < 10)
    high = data.actions == 2
    assert frail[high].mean() > 0.6
    assert frail[data.actions == 0].mean() < 0.45


def test_a_chance_in_the_clinic_by_hand():
    # State 8: frail, severity 3, so 3/4 of the way; high dose: better .34 - .18 + .30 - .08 = .38,
    # worse .06 + .21 + .10 / 4 - .25 * 3/4 + .08 = .1875, the rest stay: .4325.
    row = random_mdp.clinic(hidden=False).process.transitions[8, 2]
    assert row[[7, 9, 8]] == pytest.approx([0.38, 0.1875, 0.4325])


def test_what_cannot_be_is_refused():
    problem = SUITE[0]
    with pytest.raises(ValueError, match="at least 2 states"):
        random_mdp.random_mdp(1, 2, horizon=3, rng=0)
    with pytest.raises(ValueError, match="n >= 1"):
        problem.simulate(0, rng=0)
    with pytest.raises(ValueError, match=r"shape \(21, 5\)"):
        problem.value(np.full((20, 5), 0.2))
    with pytest.raises(ValueError, match="sum to 1"):
        problem.simulate(3, rng=0, policy=np.ones((21, 5)))
    with pytest.raises(ValueError, match="finite"):
        problem.reading(problem.best).predict_proba(np.full((2, 6), np.nan))
