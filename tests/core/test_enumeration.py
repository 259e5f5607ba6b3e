"""Exact expectations: every trajectory of a small decision process, weighted by its probability.

Evidence whose counts are probabilities turns an estimator into its own limit, and a mean over trajectories
into an expectation. The process (two states, four steps, an action-dependent end) is the one behind the
numbers of the reference: V_e = 1.0962, V_b = 0.4872.
"""

import numpy as np
import pytest
from scipy.special import logsumexp

import caliope as cal
from caliope.domains.tabular import TabularMDP
from conftest import LENGTHY_B, LENGTHY_E, LENGTHY_GAMMA, evidence_of_all_paths


@pytest.fixture(scope="module")
def v_e(lengthy):
    return lengthy.value(LENGTHY_E, LENGTHY_GAMMA)


@pytest.fixture(scope="module")
def exact_q(lengthy):
    return lengthy.action_values(LENGTHY_E, LENGTHY_GAMMA)


@pytest.fixture(scope="module")
def everything(lengthy, exact_q):
    return evidence_of_all_paths(lengthy, LENGTHY_B, LENGTHY_E, LENGTHY_GAMMA, q=exact_q)


def test_the_two_values_are_those_of_the_reference(lengthy, v_e):
    assert v_e == pytest.approx(1.0962, abs=5e-5)
    assert lengthy.value(LENGTHY_B, LENGTHY_GAMMA) == pytest.approx(0.4872, abs=5e-5)


@pytest.mark.parametrize("estimator", [cal.ois, cal.step_is, cal.phis])
def test_importance_sampling_is_unbiased(estimator, everything, v_e):  # 16
    assert estimator(everything) == pytest.approx(v_e, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_doubly_robust_is_unbiased_for_any_values(seed, lengthy, exact_q, v_e):  # 16
    wrong = exact_q + np.random.default_rng(seed).normal(scale=2, size=exact_q.shape)
    e = evidence_of_all_paths(lengthy, LENGTHY_B, LENGTHY_E, LENGTHY_GAMMA, q=wrong)
    assert cal.dr(e) == pytest.approx(v_e, abs=1e-12)


@pytest.mark.parametrize("estimator", [cal.dr, cal.wdr])
def test_with_exact_values_a_wrong_behaviour_policy_does_not_matter(
    estimator, lengthy, everything, v_e
):  # 16
    believed = np.array([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5]])
    # The log is still that of the true policy (its counts); the ratios are those of a wrong model of it.
    wrong = evidence_of_all_paths(lengthy, believed, LENGTHY_E, LENGTHY_GAMMA)
    e = cal.Evidence(
        everything.rewards,
        wrong.log_ratio,
        everything.offsets,
        LENGTHY_GAMMA,
        everything.counts,
        everything.q,
        everything.v,
    )
    assert abs(cal.ois(e) - v_e) > 0.1  # the premise: the ratios are wrong
    # Whatever rho_t, E[rho_t (r_t + gamma V(s_{t+1}) - Q(s_t, a_t))] = 0, and wdr divides all of it by one sum.
    assert estimator(e) == pytest.approx(v_e, abs=1e-12)


@pytest.mark.parametrize("estimator", [cal.wis, cal.step_wis, cal.wdr])
def test_weighted_estimators_are_consistent(estimator, everything, v_e):  # 18
    assert estimator(everything) == pytest.approx(v_e, abs=1e-12)


def test_wdr_is_consistent_for_any_values(lengthy, exact_q, v_e):  # 18
    wrong = exact_q + np.random.default_rng(0).normal(size=exact_q.shape)
    e = evidence_of_all_paths(lengthy, LENGTHY_B, LENGTHY_E, LENGTHY_GAMMA, q=wrong)
    assert cal.wdr(e) == pytest.approx(v_e, abs=1e-12)


def test_phwis_tends_to_its_own_limit_which_is_not_the_value(lengthy, everything, v_e):  # 18
    """The policy changes how long episodes last, and PHWIS keeps the lengths of the log."""
    limit = sum(_p_length(lengthy, LENGTHY_B)[n] * _mean_given_length(lengthy, n) for n in (1, 2, 3, 4))
    assert cal.phwis(everything) == pytest.approx(limit, abs=1e-12)
    assert cal.phwis(everything) == pytest.approx(0.8470, abs=5e-5)
    assert cal.estimators.step_phwis(everything) == pytest.approx(0.8469, abs=5e-5)
    assert cal.phwdr(everything) == pytest.approx(0.9642, abs=5e-5)  # although its values are exact
    assert v_e - cal.phwis(everything) > 0.2


def _p_length(mdp, policy):
    law = dict.fromkeys((1, 2, 3, 4), 0.0)
    for path in mdp.paths(policy):
        law[len(path.actions)] += path.probability
    return law


def _mean_given_length(mdp, length):
    paths = [p for p in mdp.paths(LENGTHY_E) if len(p.actions) == length]
    total = sum(p.probability for p in paths)
    return (
        sum(p.probability * sum(LENGTHY_GAMMA**t * r for t, r in enumerate(p.rewards)) for p in paths) / total
    )


def test_with_evaluation_lengths_per_horizon_recovers_the_value_but_its_stepwise_form_does_not(
    everything, v_e
):
    # "A lower variance equivalent" it is not: given the length, later ratios have not mean one.
    whole = cal.per_horizon(cal.wis, length_weights="evaluation")(everything)
    stepwise = cal.per_horizon(cal.step_wis, length_weights="evaluation")(everything)
    assert whole == pytest.approx(v_e, abs=1e-12)
    assert whole == pytest.approx(1.096171, abs=5e-7)
    assert stepwise == pytest.approx(1.096137, abs=5e-7)


def test_over_survivors_alone_the_stepwise_denominator_tends_to_something_else(everything, v_e):
    # What we do not do: 1.4310, and 0.9491 with the logged share of survivors in front.
    e, c = everything, everything.counts
    alive = e.total_by_time(np.ones(len(e.rewards)))
    by_survivors = e.discount * e.total_by_time(e.rho * e.rewards) / e.total_by_time(e.rho)
    assert by_survivors.sum() == pytest.approx(1.4310, abs=5e-5)
    assert (by_survivors * alive / c.sum()).sum() == pytest.approx(0.9491, abs=5e-5)


def test_ratios_to_the_step_before_estimate_the_wrong_thing(everything, v_e):
    # The main text of the paper stops at t - 1: 0.4503 where the value is 1.0962.
    e = everything
    main_text = e.total(e.layout.sum_steps(e.discounted(e.rho_before * e.rewards)))
    assert main_text == pytest.approx(0.4503, abs=5e-5)


def test_carried_weights_have_mean_one_at_every_step(everything):  # 17
    mean = everything.weight_by_time() * np.exp(everything.log_scale)
    np.testing.assert_allclose(mean, 1.0, atol=1e-12)


def test_weights_within_a_length_do_not_have_mean_one(lengthy, everything):  # 17
    e = everything
    rho, p_b, p_e = e.rho[e.layout.last], _p_length(lengthy, LENGTHY_B), _p_length(lengthy, LENGTHY_E)
    means = []
    for length in (1, 2, 3, 4):
        mass = (e.counts * rho)[e.layout.lengths == length].sum()
        assert mass == pytest.approx(p_e[length], abs=1e-12)
        means.append(mass / p_b[length])
    np.testing.assert_allclose(means, [0.61, 0.82, 0.99, 1.72], atol=5e-3)


def test_the_variances_are_those_of_the_reference(everything, v_e):  # 19
    # Per trajectory: IS 10.475, step-wise 3.550, doubly robust with exact values 0.882.
    e, c = everything, everything.counts
    terms = {
        10.475: e.rho[e.layout.last] * e.returns,
        3.550: e.layout.sum_steps(e.discounted(e.rho * e.rewards)),
        0.882: e.layout.sum_steps(e.discounted(e.rho * (e.rewards - e.q) + e.rho_before * e.v)),
    }
    for expected, x in terms.items():
        assert c @ (x - v_e) ** 2 == pytest.approx(expected, abs=5e-4)


@pytest.fixture(scope="module")
def clockwork():
    """A process without chance: one start, and every action leads to one state."""
    return TabularMDP(
        initial=[1.0, 0.0, 0.0],
        transitions=np.eye(3)[np.array([[1, 0], [2, 0], [2, 2]])],
        rewards=[[1.0, -1.0], [2.0, 0.5], [0.0, 0.0]],
        absorbing=[False, False, True],
        horizon=4,
    )


def test_without_chance_and_with_exact_values_every_trajectory_gives_the_value(clockwork):  # 19
    b, target = np.array([[0.5, 0.5]] * 3), np.array([[0.8, 0.2], [0.3, 0.7], [0.5, 0.5]])
    q = clockwork.action_values(target, 0.9)
    e = evidence_of_all_paths(clockwork, b, target, 0.9, q=q)
    for i in range(len(e)):
        assert cal.dr(e.take(np.array([i]))) == pytest.approx(clockwork.value(target, 0.9), abs=1e-12)


def test_the_bias_of_weighted_is_in_tiny_samples_is_exactly_enumerated(lengthy, everything, v_e):  # 20
    e, p = everything, everything.counts
    # n = 1: the weight cancels, and E[WIS] is the value of the logged policy.
    alone = sum(p[i] * cal.wis(e.take(np.array([i]))) for i in range(len(e)))
    assert alone == pytest.approx(lengthy.value(LENGTHY_B, LENGTHY_GAMMA), abs=1e-12)
    # n = 2: every ordered pair; the mean lies between the two values.
    w, g = e.rho[e.layout.last], e.returns
    pairs = (w[:, None] * g[:, None] + w * g) / (w[:, None] + w)
    both = p @ pairs @ p
    assert lengthy.value(LENGTHY_B, LENGTHY_GAMMA) < both < v_e


def test_log_weights_agree_with_logsumexp(everything):
    e = everything
    last = e.log_rho[e.layout.last]
    expected = np.exp(
        logsumexp(last + np.log(e.counts), b=e.returns, return_sign=True)[0]
        - logsumexp(last + np.log(e.counts))
    )
    assert cal.wis(e) == pytest.approx(expected, rel=1e-12)
