"""Mistakes found in other libraries, each with a test that would catch it here.

The numbers are those of the survey; B18 concerns a z-score and B17 an old scikit-learn interface that we do
not use, and have their nearest relative tested.
"""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import caliope as cal
from caliope.domains import ward
from caliope.domains.tabular import TabularMDP
from conftest import ESTIMATORS, SELF_NORMALISED, random_evidence


@pytest.fixture
def one_or_ten():
    """Half of the episodes last 1 step and half 10, every reward is 1, and the target is the logged policy."""
    offsets = np.cumsum([0, *([1, 10] * 20)])
    steps = int(offsets[-1])
    return cal.Evidence(np.ones(steps), np.zeros(steps), offsets, q=np.zeros(steps), v=np.zeros(steps))


def small_log(seed=0, n=30, n_actions=3):
    rng = np.random.default_rng(seed)
    states, actions = rng.normal(size=(n * 3, 2)), rng.integers(n_actions, size=n * 3)
    return cal.Trajectories(
        states, actions, rng.normal(size=n * 3), np.arange(n + 1) * 3, n_actions=n_actions
    )


def test_b1_the_target_probability_is_that_of_the_logged_action():
    data = small_log()
    deterministic = np.eye(3)[data.actions]  # the target does exactly what was done, with certainty
    e = cal.gather(data, deterministic, np.full((90, 3), 1 / 3))
    assert np.allclose(e.log_ratio, np.log(3))
    # Renaming the actions everywhere changes nothing.
    rename = np.array([2, 0, 1])
    renamed = cal.Trajectories(data.states, rename[data.actions], data.rewards, data.offsets, n_actions=3)
    target = np.random.default_rng(1).dirichlet(np.ones(3), size=90)
    other = np.empty_like(target)
    other[:, rename] = target
    a = cal.gather(data, target, np.full((90, 3), 1 / 3)).log_ratio
    b = cal.gather(renamed, other, np.full((90, 3), 1 / 3)).log_ratio
    assert np.array_equal(a, b)


def test_b2_stepwise_ratios_are_products_and_discounted_and_never_assumed():
    # One trajectory of three steps: 2 * 1 + 0.5 * (2 * 3) * 1 + 0.25 * (2 * 3 * 5) * 1.
    e = cal.Evidence([1, 1, 1], np.log([2, 3, 5]), [0, 3], gamma=0.5)
    assert cal.step_is(e) == pytest.approx(2 + 3 + 7.5)
    with pytest.raises(TypeError):
        cal.gather(small_log(), np.full((90, 3), 1 / 3))  # no behaviour policy: no number


def test_b3_log_likelihoods_are_not_taken_for_probabilities():
    with pytest.raises(ValueError, match="Log-probabilities or scores are not probabilities"):
        cal.gather(small_log(), np.log(np.full((90, 3), 1 / 3)), np.full((90, 3), 1 / 3))


def test_b4_ragged_and_fixed_lengths_match_brute_force():
    from support import naive

    for equal in (True, False):
        e = random_evidence(seed=3, equal=equal)
        xs = naive.trajectories(e)
        for name, estimator in ESTIMATORS.items():
            assert estimator(e) == pytest.approx(getattr(naive, name)(xs, e.gamma), rel=1e-10)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_b5_b6_the_value_of_one_or_ten_steps_is_five_and_a_half(name, one_or_ten):
    # (1 + 10) / 2 = 5.5; denominators over the survivors alone give 10.
    expected = 0.0 if name == "dm" else 5.5  # dm only reads the values, which are 0 here
    assert ESTIMATORS[name](one_or_ten) == pytest.approx(expected)


def test_b7_survival_is_that_of_the_target_and_not_of_the_log():
    # Action 0 ends the episode, action 1 goes on for one more step; each step pays 1.
    mdp = TabularMDP(
        initial=[1, 0, 0],
        transitions=np.eye(3)[np.array([[2, 1], [2, 2], [2, 2]])],
        rewards=np.ones((3, 2)),
        absorbing=[False, False, True],
        horizon=2,
    )
    logged, target = np.full((3, 2), 0.5), np.array([[0.1, 0.9], [0.5, 0.5], [0.5, 0.5]])
    data = mdp.simulate(logged, 4000, rng=0)
    e = cal.gather(data, cal.TabularPolicy(target), data["behaviour"])
    # V_e = 1 + 0.9 = 1.9. With the logged survival of one half in front it would be 1.5.
    assert cal.step_wis(e) == pytest.approx(1.9, abs=0.03)  # sd of a share 0.9 / 0.5-weighted: below 0.01


@pytest.mark.parametrize("name", ["ois", "step_is", "wis", "step_wis", "dr", "wdr"])
def test_b8_padding_does_not_enter_the_weights(name):
    from test_contract import padded

    e = random_evidence(seed=4)
    assert ESTIMATORS[name](padded(e, 5)) == pytest.approx(ESTIMATORS[name](e), rel=1e-12)


def test_b9_long_products_of_small_probabilities_stay_finite():
    # 25 actions, 250 and 2000 steps: the product of the probabilities alone underflows, that of ratios does not.
    for length in (250, 2000):
        rng = np.random.default_rng(0)
        table = rng.dirichlet(np.full(25, 50.0), size=length * 4)
        actions = rng.integers(25, size=length * 4)
        data = cal.Trajectories(
            np.zeros((length * 4, 1)), actions, np.ones(length * 4), np.arange(5) * length, n_actions=25
        )
        e = cal.gather(data, table, np.full((length * 4, 25), 1 / 25))
        assert np.prod(table[np.arange(length), actions[:length]]) == 0.0
        assert all(np.isfinite(f(e)) for f in (cal.ois, cal.step_is, cal.wis, cal.step_wis, cal.phwis))


def test_b10_tiny_weights_keep_their_meaning():
    # mean rho = 1e-14 and less: an epsilon of 1e-10 below would return a value near 0.
    for tiny in (1e-14, 1e-46, 1e-300):
        e = cal.Evidence([4.0, 5.0], np.log([tiny, 3 * tiny]), [0, 1, 2])
        assert cal.wis(e) == pytest.approx(4.75)  # (4 + 3 * 5) / 4
        assert cal.step_wis(e) == pytest.approx(4.75)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_b11_gamma_zero_is_a_discount_like_any_other(name):
    assert np.isfinite(ESTIMATORS[name](random_evidence(gamma=0.0)))


@pytest.mark.parametrize("name", SELF_NORMALISED)
def test_b12_the_interval_of_a_constant_reward_has_no_width(name):
    e = random_evidence(seed=6, n=30, equal=True, gamma=1.0)
    zero = np.zeros(len(e.rewards))
    constant = replace(e, rewards=np.ones(len(e.rewards)), q=zero, v=zero)
    interval = cal.bootstrap(ESTIMATORS[name], constant, n_draws=200, rng=0)
    assert interval.low == pytest.approx(6.0, abs=1e-12)
    assert interval.high == pytest.approx(6.0, abs=1e-12)


@pytest.mark.parametrize("name", SELF_NORMALISED)
def test_b12_both_ends_of_an_interval_move_with_the_reward(name):
    e = random_evidence(seed=6, n=30, equal=True, gamma=1.0)
    togo = 3.0 * np.tile(np.arange(6, 0, -1), 30)
    shifted = replace(e, rewards=e.rewards + 3.0, q=e.q + togo, v=e.v + togo)
    for interval in (cal.bootstrap, cal.uncertainty.bca):
        a = interval(ESTIMATORS[name], e, n_draws=200, rng=0)
        b = interval(ESTIMATORS[name], shifted, n_draws=200, rng=0)
        assert (b.low - a.low, b.high - a.high) == pytest.approx((18.0, 18.0))  # 6 steps of 3


def test_b13_the_effective_number_ignores_the_scale_of_the_weights():
    # Kish: (1 + 2 + 3)^2 / (1 + 4 + 9) = 36 / 14, for these weights and for ten times them.
    for scale in (1.0, 10.0, 1e-200):
        e = cal.Evidence([0, 0, 0], np.log(scale * np.array([1.0, 2.0, 3.0])), [0, 1, 2, 3])
        assert cal.weights.effective_n(e) == pytest.approx(36 / 14)
    many = random_evidence(n=50)
    assert 1 <= cal.weights.effective_n(many) <= 50
    assert cal.weights.effective_n(replace(many, log_ratio=np.zeros(len(many.rewards)))) == pytest.approx(50)


def test_b14_a_policy_of_two_actions_sums_to_one():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    model = LogisticRegression().fit(x, (x[:, 0] + rng.normal(size=200) > 0).astype(int))
    proba = cal.action_probabilities(model, x, 2)
    assert np.allclose(proba.sum(axis=1), 1)
    assert np.array_equal(proba[:, 1], model.predict_proba(x)[:, 1])


def test_b15_columns_follow_the_classes_and_not_the_order_of_appearance():
    x = np.array([[0.0], [1.0], [2.0]])
    model = DecisionTreeClassifier().fit(x, [2, 0, 1])  # appearance 2, 0, 1; classes_ 0, 1, 2
    assert np.array_equal(cal.action_probabilities(model, x, 3), np.eye(3)[[2, 0, 1]])


def test_b16_an_action_missing_from_training_does_not_shift_the_columns():
    x = np.array([[0.0], [1.0]])
    model = DecisionTreeClassifier().fit(x, [0, 2])  # never saw action 1
    assert np.array_equal(cal.action_probabilities(model, x, 3), [[1, 0, 0], [0, 0, 1]])


def test_b17_models_recalibrated_by_the_newest_scikit_learn_are_policies():
    data = ward.simulate(200, rng=0)
    model = CalibratedClassifierCV(LogisticRegression(), method="temperature", cv=data.folds(2, rng=0))
    model.fit(data.states, data.actions)
    assert np.isfinite(cal.wis(cal.gather(data, cal.TabularPolicy(ward.EARLIER), model)))


def test_b18_standard_errors_are_those_of_the_textbook():
    e = random_evidence(n=25)
    interval = cal.uncertainty.delta_method(cal.monte_carlo, e)
    # The t-interval of a mean: 2.0639 is the 0.975 quantile with 24 degrees of freedom.
    arm = 2.0639 * e.returns.std(ddof=1) / 5
    assert interval.high - interval.low == pytest.approx(2 * arm, rel=1e-4)


def test_b19_with_three_actions_only_the_logged_one_enters_the_product():
    data, rng = small_log(seed=1, n=20), np.random.default_rng(2)
    target, behaviour = rng.dirichlet(np.ones(3), size=60), rng.dirichlet(np.ones(3), size=60)
    e = cal.gather(data, target, behaviour)
    for i in range(20):
        product = 1.0
        for row in range(3 * i, 3 * i + 3):
            product *= target[row, data.actions[row]] / behaviour[row, data.actions[row]]
            assert e.rho[row] == pytest.approx(product)
    negative = replace(e, rewards=-np.abs(e.rewards))
    assert cal.wis(negative) < 0  # negative rewards are rewards


@pytest.mark.parametrize("name", ESTIMATORS)
def test_b20_resampling_everyone_once_is_the_point_estimate(name):
    e = random_evidence(seed=8)

    def everyone_once(n, size, n_draws, rng):
        return np.ones((n_draws, n))

    drawn = cal.uncertainty.draws(ESTIMATORS[name], e, n_draws=3, scheme=everyone_once, rng=0)
    assert drawn == pytest.approx(np.full(3, ESTIMATORS[name](e)), rel=1e-12)


def test_b21_values_are_those_of_the_target_at_the_same_step():
    # gather takes V(s_t) and Q(s_t, a_t) in the states of the steps themselves, for each row its own.
    class Values:
        def q(self, states, actions):
            return 10 * states[:, 0] + actions

        def v(self, states):
            return 10 * states[:, 0]

    data = cal.Trajectories([[0.0], [1.0], [2.0]], [1, 0, 1], [0, 0, 0], [0, 2, 3])
    e = cal.gather(data, np.full((3, 2), 0.5), np.tile([0.4, 0.6], (3, 1)), q=Values())
    assert e.q.tolist() == [1, 10, 21]
    assert e.v.tolist() == [0, 10, 20]


def test_b22_the_value_of_a_state_is_the_mean_over_a_stochastic_target():
    data = cal.Trajectories([[0.0]], [0], [0.0], [0, 1], n_actions=2)
    e = cal.gather(data, [[0.75, 0.25]], [[0.5, 0.5]], q=[[4.0, 8.0]])
    assert e.v.tolist() == [5.0]  # 3/4 * 4 + 1/4 * 8, not max(4, 8)
    assert cal.dm(e) == 5.0


def test_b22_b23_the_direct_method_reads_the_first_state_only():
    e = cal.Evidence([0, 0, 0], [0, 0, 0], [0, 3], q=[0, 0, 0], v=[1.0, 10.0, 100.0])
    assert cal.dm(e) == 1.0


def test_b23_a_probability_is_never_taken_to_be_one():
    data = small_log()
    with pytest.raises(cal.SupportError, match="every logged probability is 1"):
        cal.gather(data, np.full((90, 3), 1 / 3), np.ones(90))


def test_b24_weights_are_float64():
    data = small_log()
    table = np.random.default_rng(0).dirichlet(np.ones(3), size=90)
    e = cal.gather(data, table.astype(np.float32), np.full((90, 3), 1 / 3, dtype=np.float32))
    assert e.rho.dtype == e.log_ratio.dtype == e.rewards.dtype == np.float64
