"""Logs that once passed for good ones: copies, outcomes among states, wrong propensities, cut-offs, wrong models."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit import audit, prepare_audit
from caliope.checks._audit import check_scale
from caliope.checks._log import check_log
from caliope.domains import ward

LOGISTIC = {"logistic": LogisticRegression()}


def codes(findings, *levels):
    return {x.code for x in findings if not levels or x.level in levels}


def chance(logit):
    return 1 / (1 + np.exp(-logit))


def bandit(n, rng, *, features=2, reason=lambda x: x[:, 0], outcome=lambda x, a: np.where(a == 1, 0.7, 0.4)):
    """One decision each: the chance of action 1 is logistic in ``reason``; returns data and that chance."""
    rng = np.random.default_rng(rng)
    x = rng.normal(size=(n, features))
    p = chance(reason(x))
    a = (rng.random(n) < p).astype(int)
    y = (rng.random(n) < outcome(x, a)).astype(float)
    return cal.Trajectories(x, a, y, np.arange(n + 1)), p


MOSTLY_ONE = np.array([0.2, 0.8])


def audited(data, **given):
    return audit(data, np.tile(MOSTLY_ONE, (data.n_steps, 1)), LOGISTIC, n_draws=200, rng=0, **given)


@pytest.mark.parametrize("copies", [2, 4])
def test_copies_are_found_however_many(copies):
    data, _ = bandit(120, 0)
    assert "L101" not in codes(check_log(data))
    which = np.tile(np.arange(120), copies)
    again = cal.Trajectories(
        data.states[which], data.actions[which], data.rewards[which], np.arange(len(which) + 1)
    )
    assert "L101" in codes(check_log(again), "issue")


@pytest.mark.slow
def test_an_outcome_among_the_states_is_found():
    data, _ = bandit(400, 0)
    told = np.column_stack([data.states, 1 - data.rewards])  # "died"
    leaking = cal.Trajectories(told, data.actions, data.rewards, data.offsets)
    assert "L106" in codes(check_log(leaking), "issue")
    assert "L106" not in codes(check_log(data))
    assert audited(leaking).verdict == "do not trust"


def test_a_severity_that_foretells_much_is_no_outcome():
    assert "L106" not in codes(check_log(ward.simulate(500, rng=0)))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 1))
    y = (x[:, 0] + 0.5 * rng.normal(size=500) > 0).astype(float)  # right in about 85 of 100
    data = cal.Trajectories(x, rng.integers(0, 2, 500), y, np.arange(501))
    assert "L106" not in codes(check_log(data))


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["a placeholder", "the largest"])
def test_propensities_that_are_all_too_large_are_found(wrong):
    data, p = bandit(500, 1)
    right = np.where(data.actions == 1, p, 1 - p)
    given = np.full(500, 0.9) if wrong == "a placeholder" else np.maximum(p, 1 - p)
    assert "A111" in codes(audited(data, logged=given).findings, "issue")
    assert "A110" in codes(audited(data, logged=right).findings, "note")


def test_a_fitted_policy_weighted_by_the_true_probabilities_has_total_probability_one():
    # E[m(A) / p(A)] = sum_a p(a) m(a) / p(a) = 1; here with a policy m that is not p.
    data, p = bandit(20_000, 2)
    taken = np.where(data.actions == 1, p, 1 - p)
    m = np.where(data.actions == 1, 0.6, 0.4)
    assert check_scale(data, m / taken) is None
    assert check_scale(data, m / np.minimum(1.2 * taken, 1.0)) is not None


@pytest.mark.slow
def test_a_difference_from_returns_that_were_cut_off_is_not_trusted():
    data = ward.simulate(400, rng=0)
    cut = np.random.default_rng(0).random(400) < 0.35
    rewards = data.rewards.copy()
    rewards[data.layout.last[cut]] = 0.0  # discharged later, after the log ends
    logged = cal.Trajectories(data.states, data.actions, rewards, data.offsets, terminated=~cut)
    found = audit(
        logged, cal.TabularPolicy(ward.EARLIER), {"logistic": LogisticRegression()}, n_draws=100, rng=0
    )
    assert "D110" in codes(found.practice.findings, "issue")
    assert "D110" in codes(found.gain.findings, "issue")


@pytest.mark.slow
def test_values_past_a_time_limit_are_not_trusted():
    # Rewards of 1 on average whatever is done: the difference is 0. Without an end the values go on adding.
    rng = np.random.default_rng(0)
    n, steps = 300, 10
    states = rng.normal(size=(n * steps, 1))
    actions = (rng.random(n * steps) < 1 / (1 + np.exp(-0.3 * states[:, 0]))).astype(int)
    rewards = 1 + 5 * rng.normal(size=n * steps)
    offsets = np.arange(0, n * steps + 1, steps)
    more = cal.tilt(cal.practice, [1.0, 1.2])
    model = {"logistic": LogisticRegression()}
    stopped = cal.Trajectories(states, actions, rewards, offsets, terminated=np.zeros(n, dtype=bool))
    found = audit(stopped, more, model, n_draws=100, rng=0)
    assert found.verdict == "do not trust"
    assert "D112" in codes(found.findings, "issue")
    log, answers = (
        cal.Trajectories(states, actions, rewards, offsets),
        {"learnt_on": "no", "recorded_before": "all"},
    )
    ended = audit(log, more, model, n_draws=200, ended="all", rng=0, **answers)
    assert ended.verdict == "trust"
    assert ended.gain.interval.low < 0 < ended.gain.interval.high


@pytest.mark.slow
def test_a_forest_challenges_the_only_model():
    # Practice and outcome follow a product that a logistic regression cannot see, nor the balance of its terms.
    data, _ = bandit(
        600,
        4,
        features=4,
        reason=lambda x: 2 * x[:, 0] * x[:, 1],
        outcome=lambda x, a: chance(1.5 * x[:, 0] * x[:, 1]),
    )
    prepared = prepare_audit(data, LOGISTIC, rng=0)
    assert "P103" in codes(prepared.findings, "issue")
    plain, _ = bandit(600, 4)
    assert "P103" not in codes(prepare_audit(plain, LOGISTIC, rng=0).findings)


@pytest.mark.slow
def test_a_policy_like_practice_is_not_called_fragile():
    data, _ = bandit(400, 5)
    found = audit(data, cal.practice, LOGISTIC, n_draws=100, rng=0)
    assert "A103" not in codes(found.findings)


@pytest.mark.slow
def test_capping_that_moves_the_estimate_is_found():
    # Those who are rarely treated are the ones who gain: the largest weights carry the benefit, and are capped.
    data, _ = bandit(
        900,
        6,
        features=1,
        reason=lambda x: 2.5 * x[:, 0],
        outcome=lambda x, a: np.where((a == 1) & (x[:, 0] < -1), 0.95, 0.3),
    )
    found = audited(data)
    moved = found.headline.value - found.table["wdr"].value
    (told,) = [finding for finding in found.headline.findings if finding.code == "A109"]
    assert told.numbers["moved"] == pytest.approx(moved)
    # The interval is wider by the factor that the finding states, and holds the value without a cap.
    assert found.headline.interval.width / told.numbers["factor"] / 3.92 == pytest.approx(
        told.numbers["se"], rel=1e-3
    )
    # The same shift is more standard errors of the difference.
    (apart,) = [finding for finding in found.gain.findings if finding.code == "A109"]
    assert apart.numbers["moved"] == pytest.approx(moved)
    assert apart.numbers["errors"] == pytest.approx(abs(moved) / apart.numbers["se"])
    calm, _ = bandit(900, 6, reason=lambda x: 0.5 * x[:, 0])
    assert "A109" not in codes(audited(calm).findings)
