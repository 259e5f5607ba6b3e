"""What every estimator promises, on random ragged evidence (numbers as in the reference list of properties)."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import caliope as cal
from caliope._counts import LeaveOneOutCounts
from conftest import ESTIMATORS, SELF_NORMALISED, evidences, random_evidence

pytestmark = pytest.mark.slow

every = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, equal_nan=True)


def repeated(e, counts):
    """The same log with trajectory i written down counts[i] times."""
    return e.take(np.repeat(np.arange(len(e)), counts))


@every
@given(e=evidences(), data=st.data())
def test_a_count_is_a_copy(estimator, e, data):
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(e), max_size=len(e)).filter(any))
    close(estimator(e.with_counts(counts)), estimator(repeated(e, counts)))


@pytest.mark.slow
@every
@given(e=evidences(), seed=st.integers(0, 99))
def test_many_rows_of_counts_are_a_loop_over_single_ones(estimator, e, seed):
    counts = np.random.default_rng(seed).integers(0, 3, size=(5, len(e)))
    counts[:, 0] += 1
    together = estimator(e.with_counts(counts))
    assert together.shape == (5,)
    close(together, [estimator(e.with_counts(row)) for row in counts])


@pytest.mark.slow
@every
@given(e=evidences())
def test_no_counts_are_counts_of_one(estimator, e):
    close(estimator(e), estimator(e.with_counts(np.ones(len(e)))))


@pytest.mark.slow
@every
@given(e=evidences(zeros=st.just(0.0)))
def test_leaving_one_out_by_subtraction_is_leaving_it_out(estimator, e):
    counts = LeaveOneOutCounts(np.ones(len(e)), np.arange(len(e)), np.full(len(e), -1.0))
    close(estimator(e.with_counts(counts)), estimator(e.with_counts(1 - np.eye(len(e)))))


@pytest.mark.slow
@every
@given(e=evidences(), seed=st.integers(0, 99))
def test_the_order_of_trajectories_does_not_matter(estimator, e, seed):  # 6
    close(estimator(e.take(np.random.default_rng(seed).permutation(len(e)))), estimator(e))


@every
@given(e=evidences())
def test_the_log_written_twice_gives_the_same_value(estimator, e):  # 6
    close(estimator(repeated(e, np.full(len(e), 2))), estimator(e))


@every
@given(e=evidences(), c=st.sampled_from([-3.0, 0.0, 0.25, 1e4]))
def test_values_scale_with_the_reward(estimator, e, c):  # 5
    scaled = replace(e, rewards=c * e.rewards, q=c * e.q, v=c * e.v)
    np.testing.assert_allclose(estimator(scaled), c * estimator(e), rtol=1e-8, atol=1e-8, equal_nan=True)


@pytest.mark.slow
@every
@given(e=evidences())
def test_under_the_logged_policy_itself_the_value_is_the_mean_return(estimator, e):  # 1, 29
    # The doubly robust ones with Q = r + gamma V(next): then Q, V are the observed returns-to-go, in every trajectory.
    togo = np.zeros(len(e.rewards))
    for i in range(len(e)):
        following = 0.0
        for row in reversed(range(e.offsets[i], e.offsets[i + 1])):
            following = togo[row] = e.rewards[row] + e.gamma * following
    on_policy = replace(e, log_ratio=np.zeros(len(e.rewards)), q=togo, v=togo)
    close(estimator(on_policy), cal.monte_carlo(on_policy))


@pytest.mark.slow
@every
@given(e=evidences(gamma=st.just(0.0)))
def test_with_gamma_zero_only_the_first_reward_counts(estimator, e):  # 9
    changed = e.rewards.copy()
    changed[e.layout.time > 0] += 7.0
    close(estimator(replace(e, rewards=changed)), estimator(e))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["monte_carlo", "ois", "step_is", "wis", "step_wis", "dm", "dr", "wdr"])
@given(e=evidences(), extra=st.integers(1, 4))
def test_padding_with_an_absorbing_state_changes_nothing(name, e, extra):  # 12
    close(ESTIMATORS[name](padded(e, extra)), ESTIMATORS[name](e))


def padded(e, extra):
    """Every trajectory filled up with steps of reward 0, ratio 1 and value 0, to one length plus ``extra``."""
    length = e.layout.horizon + extra
    everyone = np.arange(len(e))

    def fill(x):
        out = np.zeros((len(e), length))
        out[:, : e.layout.horizon] = e.layout.dense(x, everyone)
        return out.ravel()

    dead = np.isneginf(e.log_ratio)
    log_ratio = fill(np.where(dead, 0.0, e.log_ratio))
    log_ratio[fill(dead.astype(float)) > 0] = -np.inf
    offsets = np.arange(len(e) + 1) * length
    return cal.Evidence(fill(e.rewards), log_ratio, offsets, e.gamma, q=fill(e.q), v=fill(e.v))


@given(e=evidences())
def test_padded_to_equal_length_per_horizon_wis_becomes_wis(e):  # 12, second half: it documents what PH does
    close(cal.phwis(padded(e, 1)), cal.wis(e))


@pytest.mark.parametrize(("ph", "plain"), [("phwis", "wis"), ("step_phwis", "step_wis"), ("phwdr", "wdr")])
@given(e=evidences(equal=st.just(True)))
def test_for_equal_lengths_per_horizon_is_the_plain_estimator(ph, plain, e):  # 2
    close(ESTIMATORS[ph](e), ESTIMATORS[plain](e))


@pytest.mark.slow
@given(e=evidences())
def test_without_values_the_doubly_robust_are_the_stepwise_ones(e):  # 3
    blank = replace(e, q=np.zeros(len(e.rewards)), v=np.zeros(len(e.rewards)))
    close(cal.dr(blank), cal.step_is(e))
    close(cal.wdr(blank), cal.step_wis(e))


@given(e=evidences())
def test_per_horizon_wis_with_evaluation_lengths_is_wis(e):  # 4
    close(cal.per_horizon(cal.wis, length_weights="evaluation")(e), cal.wis(e))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wis", "phwis"])
@given(e=evidences(gamma=st.just(1.0)), c=st.sampled_from([-2.0, 10.0]))
def test_a_constant_in_every_return_shifts_weighted_is_by_it(name, e, c):  # 5
    shifted = e.rewards.copy()
    shifted[e.layout.last] += c
    close(ESTIMATORS[name](replace(e, rewards=shifted)), ESTIMATORS[name](e) + c)


def test_a_constant_does_not_shift_unweighted_is():  # 5
    e = random_evidence(gamma=1.0)
    shifted = e.rewards.copy()
    shifted[e.layout.last] += 10
    assert abs(cal.ois(replace(e, rewards=shifted)) - cal.ois(e) - 10) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", SELF_NORMALISED)
@given(e=evidences(equal=st.just(True)), c=st.sampled_from([-2.0, 10.0]))
def test_for_equal_lengths_a_constant_in_every_reward_shifts_by_its_discounted_sum(name, e, c):  # 5
    togo = c * np.array([e.discount[: len(e.discount) - t].sum() for t in range(len(e.discount))])
    togo = np.tile(togo, len(e))
    shifted = replace(e, rewards=e.rewards + c, q=e.q + togo, v=e.v + togo)
    close(ESTIMATORS[name](shifted), ESTIMATORS[name](e) + c * e.discount.sum())


@given(e=evidences(), c=st.sampled_from([-2.0, 10.0]))
def test_values_shifted_with_the_reward_shift_dr_exactly_on_ragged_data(e, c):  # 5, telescoping
    togo = np.array([c * e.discount[: left + 1].sum() for left in _steps_left(e)])
    shifted = replace(e, rewards=e.rewards + c, q=e.q + togo, v=e.v + togo)
    # Each trajectory shifts by c sum_t gamma^t over its own length.
    own = c * np.cumsum(e.discount)[e.layout.lengths - 1]
    close(cal.dr(shifted), cal.dr(e) + own.mean())


def _steps_left(e):
    return np.repeat(e.layout.lengths, e.layout.lengths) - 1 - e.layout.time


@given(e=evidences(zeros=st.sampled_from([0.0, 0.1, 0.4])))
def test_weighted_is_stays_inside_the_observed_returns(e):  # 7
    assume(e.final_weight.any())
    assert e.returns.min() - 1e-12 <= cal.wis(e) <= e.returns.max() + 1e-12


@given(e=evidences(equal=st.just(True), zeros=st.just(0.0)))
def test_stepwise_weighted_is_stays_inside_the_observed_rewards_of_each_step(e):  # 7
    r = e.rewards.reshape(len(e), -1)
    low, high = e.discount @ r.min(axis=0), e.discount @ r.max(axis=0)
    assert low - 1e-9 <= cal.step_wis(e) <= high + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", SELF_NORMALISED)
@given(e=evidences(), c=st.sampled_from([1e-6, 3.0, 1e5]))
def test_a_common_factor_in_the_first_ratio_cancels(name, e, c):  # 8
    log_ratio = e.log_ratio.copy()
    log_ratio[e.layout.first] += np.log(c)
    close(ESTIMATORS[name](replace(e, log_ratio=log_ratio)), ESTIMATORS[name](e))


@pytest.mark.parametrize("name", ["wis", "step_wis", "wdr"])
@given(e=evidences(equal=st.just(True)), seed=st.integers(0, 99))
def test_for_equal_lengths_a_factor_in_each_step_cancels(name, e, seed):  # 8
    factor = np.random.default_rng(seed).normal(size=e.layout.horizon)
    scaled = replace(e, log_ratio=e.log_ratio + np.tile(factor, len(e)))
    close(ESTIMATORS[name](scaled), ESTIMATORS[name](e))


@given(e=evidences())
def test_with_one_step_stepwise_and_whole_are_the_same(e):  # 9
    first = cal.Evidence(e.rewards[e.layout.first], e.log_ratio[e.layout.first], np.arange(len(e) + 1))
    close(cal.step_is(first), cal.ois(first))
    close(cal.step_wis(first), cal.wis(first))


def test_a_length_that_occurs_once_contributes_its_own_return():  # 11
    e = cal.Evidence([1, 2, 10, 10], np.log([1, 3, 5, 5]), [0, 1, 2, 4])
    # Length 1: (1 * 1 + 3 * 2) / 4 with W = 2/3; length 2, once: 20 with W = 1/3 whatever its ratio.
    close(cal.phwis(e), 2 / 3 * 7 / 4 + 1 / 3 * 20)


@pytest.mark.slow
@given(e=evidences())
def test_a_trajectory_of_weight_zero_dilutes_is_and_leaves_wis_alone(e):  # 11
    more = cal.Evidence(
        np.append(e.rewards, 5.0),
        np.append(e.log_ratio, -np.inf),
        np.append(e.offsets, e.offsets[-1] + 1),
        e.gamma,
    )
    close(cal.wis(more), cal.wis(e))
    close(cal.ois(more), cal.ois(e) * len(e) / (len(e) + 1))


@every
def test_two_thousand_steps_stay_finite(estimator):  # 26
    e = random_evidence(seed=5, n=40, longest=2000, gamma=1.0, spread=0.2)
    assert np.isfinite(estimator(e))


@pytest.mark.parametrize("name", SELF_NORMALISED)
def test_self_normalised_estimators_survive_weights_far_beyond_a_float(name):  # 26
    rng = np.random.default_rng(7)
    steps = 50 * 500
    log_ratio = rng.uniform(np.log(1e-3), np.log(1e3), size=steps) - 1.0
    e = cal.Evidence(
        rng.normal(size=steps), log_ratio, np.arange(51) * 500, q=np.zeros(steps), v=np.zeros(steps)
    )
    assert e.log_rho[e.layout.last].max() < -100  # the weights themselves are below 1e-40
    moved = replace(e, log_ratio=log_ratio + 4.0)  # and by this above 1e+300
    assert np.isfinite(ESTIMATORS[name](e))
    close(ESTIMATORS[name](moved), ESTIMATORS[name](e))


@every
def test_float32_input_is_computed_in_float64(estimator):  # 26
    e = random_evidence()
    single = cal.Evidence(
        e.rewards.astype(np.float32),
        e.log_ratio.astype(np.float32),
        e.offsets.astype(np.int32),
        e.gamma,
        q=e.q.astype(np.float32),
        v=e.v.astype(np.float32),
    )
    double = cal.Evidence(
        single.rewards,
        single.log_ratio,
        e.offsets,
        e.gamma,
        q=single.q.astype(float),
        v=single.v.astype(float),
    )
    assert single.rewards.dtype == single.rho.dtype == np.float64
    assert estimator(single) == estimator(double)


@every
def test_one_trajectory_is_enough_for_a_point_estimate(estimator):  # 27
    assert np.isfinite(estimator(random_evidence(n=1)))


@every
def test_an_estimator_changes_nothing_it_is_given(estimator):
    e = random_evidence()
    before = [x.copy() for x in (e.rewards, e.log_ratio, e.q, e.v)]
    estimator(e)
    for x, y in zip((e.rewards, e.log_ratio, e.q, e.v), before, strict=True):
        assert np.array_equal(x, y)


def test_tabular_ris_of_a_bandit_is_the_direct_method():  # 10
    # pi_b by its frequencies in the same data: sum_i pi_e(a_i) / pihat(a_i) r_i / n = sum_a pi_e(a) mean(r given a).
    rng = np.random.default_rng(0)
    actions, target = rng.integers(0, 3, size=60), np.array([0.2, 0.3, 0.5])
    rewards = rng.normal(size=60) + actions
    frequency = np.bincount(actions, minlength=3) / 60
    data = cal.Trajectories(np.zeros((60, 1)), actions, rewards, np.arange(61))
    e = cal.gather(data, np.tile(target, (60, 1)), np.tile(frequency, (60, 1)))
    direct = sum(target[a] * rewards[actions == a].mean() for a in range(3))
    close(cal.ois(e), direct)
    close(e.rho.mean(), 1.0)
    close(cal.wis(e), direct)
