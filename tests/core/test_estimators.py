"""Each estimator beside a loop copied from its formula."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

import caliope as cal
from conftest import ESTIMATORS, evidences, random_evidence
from support import naive


def assert_same(fast, slow):
    assert fast == pytest.approx(slow, rel=1e-10, abs=1e-10, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
@given(e=evidences())
def test_every_estimator_is_the_loop_copied_from_its_formula(name, e):
    assert_same(ESTIMATORS[name](e), getattr(naive, name)(naive.trajectories(e), e.gamma))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wis", "step_wis", "wdr", "ois"])
@given(e=evidences(zeros=st.just(0.0)))
def test_per_horizon_with_evaluation_lengths_is_its_loop(name, e):
    fast = cal.per_horizon(ESTIMATORS[name], length_weights="evaluation")
    slow = naive.per_horizon(getattr(naive, name), length_weights="evaluation")
    assert_same(fast(e), slow(naive.trajectories(e), e.gamma))


def test_a_pencil_is_enough_to_check_the_importance_sampling_family():
    # Two trajectories: ratios (2, 1/2) with rewards (1, 3), and ratio (3) with reward 5; gamma = 1/2.
    e = cal.Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5)
    assert_same(cal.monte_carlo(e), (2.5 + 5) / 2)  # G = 1 + 3/2 and 5
    assert_same(cal.ois(e), (1 * 2.5 + 3 * 5) / 2)  # rho = 2 * 1/2 and 3
    assert_same(cal.wis(e), (1 * 2.5 + 3 * 5) / (1 + 3))
    assert_same(cal.step_is(e), (2 * 1 + 0.5 * 1 * 3 + 3 * 5) / 2)
    # t = 0: (2 * 1 + 3 * 5) / (2 + 3); t = 1: the second has ended and keeps its 3: (1 * 3) / (1 + 3).
    assert_same(cal.step_wis(e), 17 / 5 + 0.5 * 3 / 4)
    # Lengths 2 and 1 occur once each: every group returns its own mean, whatever the ratios.
    assert_same(cal.phwis(e), (2.5 + 5) / 2)


def test_a_pencil_is_enough_to_check_the_doubly_robust_family():
    e = cal.Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    assert_same(cal.dm(e), (1 + 3) / 2)
    # First: 2 (1 - 1) + 1 * 1 + 1/2 [1 (3 - 2) + 2 * 2] = 3.5; second: 3 (5 - 4) + 1 * 3 = 6.
    assert_same(cal.dr(e), (3.5 + 6) / 2)
    # t = 0: [2 * 0 + 3 * 1] / 5 + (1 + 3) / 2 = 2.6; t = 1: 1/2 [1 * 1 / 4 + 2 * 2 / 5] = 0.525.
    assert_same(cal.wdr(e), 2.6 + 0.525)


@given(e=evidences())
def test_per_horizon_is_is_plain_importance_sampling(e):
    # sum_l (n_l / n) (1 / n_l) sum_{i in l} rho G = (1 / n) sum_i rho G
    assert_same(cal.phis(e), cal.ois(e))


@pytest.mark.parametrize("name", ["dm", "dr", "wdr", "phwdr"])
def test_without_values_the_doubly_robust_family_says_what_it_needs(name):
    with pytest.raises(ValueError, match="needs action values"):
        ESTIMATORS[name](replace(random_evidence(), q=None, v=None))


def test_zero_target_probability_stays_in_its_own_trajectory():
    # One cumulative sum over all steps would turn the second trajectory into nan.
    e = cal.Evidence([1, 1, 1, 1], [-np.inf, 0.0, np.log(2), 0.0], [0, 2, 4])
    assert e.rho.tolist() == [0, 0, 2, 2]


@pytest.mark.parametrize("name", ["wis", "step_wis", "wdr", "phwis", "step_phwis", "phwdr"])
def test_when_all_weights_are_zero_there_is_no_value(name):
    e = random_evidence(zeros=1.0)
    assert np.isnan(ESTIMATORS[name](e))


@pytest.mark.parametrize("name", ["ois", "step_is"])
def test_unweighted_importance_sampling_of_zero_weights_is_zero_as_its_formula_says(name):
    assert ESTIMATORS[name](random_evidence(zeros=1.0)) == 0


def test_a_length_without_weight_is_left_out_and_the_rest_scaled_up():
    # Length 1 (two trajectories) has weight 0; length 2 returns 3. Not (1/3) * 3 = 1, and not nan.
    e = cal.Evidence([9, 9, 1, 2], [-np.inf, -np.inf, 0, 0], [0, 1, 2, 4])
    assert cal.phwis(e) == 3


def test_per_horizon_of_a_users_own_estimator():
    def largest_return(e):
        """Largest return."""
        return (
            e.returns.max() if e.counts is None else np.where(e.counts > 0, e.returns, -np.inf).max(axis=-1)
        )

    e = cal.Evidence([1, 2, 5, 5], np.zeros(4), [0, 1, 2, 4])
    lifted = cal.per_horizon(largest_return)
    assert lifted(e) == pytest.approx((2 * 2 + 1 * 10) / 3)
    assert lifted.__name__ == "per_horizon_largest_return"
    assert lifted.__doc__ == "Per-horizon largest return."


def test_length_weights_other_than_the_two_are_refused():
    with pytest.raises(ValueError, match="'behaviour' or 'evaluation', got 'target'"):
        cal.per_horizon(cal.wis, length_weights="target")
