"""The audit: the whole chain on a log whose truth is known, and each of its checks on a log made to fail it."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import caliope as cal
from caliope._audit import audit, run_placebo
from caliope.behaviour import TabularFrequencies, fit_behaviour
from caliope.checks._log import check_log, predict_by
from caliope.domains import ward
from caliope.sensitivity import find_influential, try_other_choices

pytestmark = pytest.mark.slow

MODELS = {"frequencies": TabularFrequencies(), "logistic": LogisticRegression()}


@pytest.fixture(scope="module")
def log():
    return ward.simulate(400, rng=0)


@pytest.fixture(scope="module")
def found(log):
    return audit(log, cal.TabularPolicy(ward.EARLIER), MODELS, n_draws=200, rng=0)


def codes(findings):
    return {finding.code for finding in findings}


def test_the_value_is_near_the_truth(found):
    truth, practice = ward.WARD.value(ward.EARLIER), ward.WARD.value(ward.PRACTICE)
    # A 95% interval is 3.92 standard errors wide; the estimate is to lie within three of the truth.
    assert abs(found.headline.value - truth) < 3 * found.headline.interval.width / 3.92
    assert abs(found.gain.value - (truth - practice)) < 3 * found.gain.interval.width / 3.92
    assert found.practice.value == pytest.approx(found.data.returns().mean())
    assert found.headline.value - found.practice.value == pytest.approx(found.gain.value)


def test_a_policy_far_from_practice_is_not_to_be_trusted(log):
    far = audit(log, cal.TabularPolicy(ward.AGGRESSIVE), MODELS, n_draws=100, rng=0)
    assert far.verdict == "do not trust"
    assert "D101" in codes(far.findings)
    assert str(far).startswith("Verdict: do not trust.")
    printed = next(
        line for line in str(far).splitlines() if line.startswith("Weighted importance sampling  ")
    )
    assert printed.endswith("do not trust")
    assert "withheld" in printed
    assert "The returns in the log run from 0 to 1." in str(far)
    ends = f"{far.headline.interval.low:.3f}", f"{far.headline.interval.high:.3f}"
    assert not any(end in str(far) for end in ends)
    assert far.to_dict()["headline"]["interval"]["withheld"]
    assert far.to_dict()["estimates"]["rows"][0]["interval"]["low"] is None


def test_every_choice_is_in_the_result(found):
    assert found.settings.candidates == ("frequencies", "logistic")
    assert found.settings.seed == 0
    first = [
        "checking the log",
        "fitting behaviour models: frequencies",
        "fitting behaviour models: logistic",
    ]
    assert [stage.name for stage in found.stages][:3] == first
    read = json.loads(found.to_json())
    assert read["verdict"] == found.verdict
    assert read["headline"]["value"] == pytest.approx(found.headline.value)
    rows = read["other_choices"]["rows"]
    assert len(rows) == len(found.others)
    for row, choice in zip(rows, found.others, strict=True):
        assert (row["model"], row["weights"], row["estimator"]) == (
            choice.model,
            choice.weights,
            choice.estimator,
        )
        assert row["value"] == pytest.approx(choice.value)
        assert row["gain"] == pytest.approx(choice.value - found.practice.value)
    assert {choice.estimator for choice in found.others} >= {
        cal.estimators.label(f) for f in (cal.wis, cal.wdr)
    }


def test_the_same_seed_gives_the_same_audit(log, found):
    again = audit(log, cal.TabularPolicy(ward.EARLIER), MODELS, n_draws=200, rng=0)
    # To rounding: the trees of a forest are summed in whatever order their threads end.
    for one, other in zip(found.table, again.table, strict=True):
        assert one.value == pytest.approx(other.value, abs=1e-9)
        assert one.interval.low == pytest.approx(other.interval.low, abs=1e-9)
        assert codes(one.findings) == codes(other.findings)


def test_a_policy_stated_relative_to_practice(log):
    target = cal.mix(cal.practice, cal.TabularPolicy(ward.EARLIER), 0.5)
    near = audit(log, target, MODELS, n_draws=100, rng=0)
    assert near.headline.effective_n > 0.7 * len(log)


def test_practice_itself_is_worth_what_it_returned(log):
    same = audit(log, cal.practice, MODELS, n_draws=50, rng=0)
    assert same.table["wis"].value == pytest.approx(log.returns().mean())
    assert same.headline.effective_n == pytest.approx(len(log))


def test_logged_probabilities_are_used_and_checked(log):
    right = audit(log, cal.TabularPolicy(ward.EARLIER), MODELS, logged=log["behaviour"], n_draws=50, rng=0)
    expected = cal.gather(log, cal.TabularPolicy(ward.EARLIER), log["behaviour"])
    assert right.table["wis"].value == pytest.approx(cal.wis(expected))
    assert right.settings.propensities_logged
    assert right.settings.behaviour == "logged probabilities"
    notes = [finding for finding in right.findings if finding.code == "A110"]
    assert [note.level for note in notes] == ["note"]
    wrong = audit(
        log, cal.TabularPolicy(ward.EARLIER), MODELS, logged=np.full(log.n_steps, 1 / 3), n_draws=50, rng=0
    )
    assert [finding.level for finding in wrong.findings if finding.code in ("A105", "A111")] == ["issue"]
    assert wrong.verdict == "do not trust"


def test_a_long_log_is_fitted_on_a_stated_sample(log):
    small = audit(log, cal.TabularPolicy(ward.EARLIER), MODELS, fit_steps=600, n_draws=50, rng=0)
    assert small.settings.n_fitted_on < 120
    assert small.headline.n == len(log)


# -- the log --


def changed(log, **parts):
    given = {
        "states": log.states,
        "actions": log.actions,
        "rewards": log.rewards,
        "offsets": log.offsets,
    } | parts
    return cal.Trajectories(*given.values(), n_actions=3)


def test_a_sound_log_has_nothing_against_it(log):
    assert check_log(log) == ()


def test_copies_of_episodes_are_found(log):
    rng = np.random.default_rng(0)
    noisy = changed(log, states=log.states + rng.normal(size=log.states.shape))
    twice = noisy[np.concatenate([np.arange(400), np.arange(10)])]
    found = check_log(twice)
    assert codes(found) == {"L101"}
    assert "10 of 410" in found[0].message
    assert "L101" not in codes(check_log(log))  # five states and three doses: alike by chance


def test_a_feature_that_gives_the_action_away_is_found(log):
    leaking = changed(log, states=np.column_stack([log.states, log.actions + 0.001 * log.layout.time]))
    found = check_log(leaking)
    assert codes(found) == {"L102"}
    assert "'x1' alone predicts 100.0%" in found[0].message
    blind = np.random.default_rng(0).normal(size=log.n_steps)
    commonest = np.bincount(log.actions).max() / log.n_steps
    assert predict_by(blind, log.actions, log.layout.owner, 3) < commonest + 0.02


def test_missing_outcomes_are_found(log):
    outcome = np.where(log.returns() > 0, 15.0, -15.0)
    outcome[:40] = 0.0
    rewards = np.zeros(log.n_steps)
    rewards[log.layout.last] = outcome
    found = check_log(changed(log, rewards=rewards))
    assert [(x.code, x.level) for x in found] == [("L103", "issue")]
    assert "10.0% of the trajectories" in found[0].message
    assert codes(check_log(changed(log, rewards=np.zeros(log.n_steps)))) == {"L107"}


def test_one_action_and_few_episodes_are_said(log):
    assert "L104" in codes(check_log(changed(log, actions=np.zeros(log.n_steps, dtype=int))))
    assert [(x.code, x.level) for x in check_log(log[:50])] == [("L105", "caution")]


# -- the placebo --


def test_the_placebo_passes_where_the_model_is_right_and_fails_where_it_is_not(log):
    good = fit_behaviour(LogisticRegression(), log, mode="cross", rng=0)
    passed = run_placebo(log, good, gamma=1.0, rng=0)
    assert passed.findings == ()
    assert passed.practice == pytest.approx(log.returns().mean(), abs=0.02)
    # Uniform is no model of this ward: reweighting with it changes what was known before.
    failed = run_placebo(log, cal.UniformPolicy(3), gamma=1.0, rng=0)
    assert [(x.code, x.level) for x in failed.findings] == [("P101", "issue")]


# -- influence and other choices --


def test_how_few_trajectories_change_the_sign():
    # Nine at 0, one at 10 with all the rest equal: against practice 0.5 the one decides.
    e = cal.Evidence(np.array([0.0] * 19 + [10.0]), np.zeros(20), np.arange(21))

    def above_half(evidence):
        """Mean return minus 0.4."""
        return cal.monte_carlo(evidence) - 0.4

    found = find_influential(above_half, e)
    assert found.top[0] == 19
    assert found.to_flip == 1
    assert found.effect[0] == pytest.approx(-(10 - 0.5) / 20)
    steady = cal.Evidence(np.full(20, 1.0), np.zeros(20), np.arange(21))
    assert find_influential(above_half, steady).to_flip is None


def test_trajectories_that_only_rounding_tells_apart_are_listed_in_the_order_of_the_log():
    rewards = np.array([0.0, 1.0, 1.0 + 1e-13, 0.0, 1.0 - 1e-13, 0.0])
    found = find_influential(cal.monte_carlo, cal.Evidence(rewards, np.zeros(6), np.arange(7)))
    assert found.top.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_model_that_rules_out_what_was_done_has_no_row_of_numbers(log):
    tree = DecisionTreeClassifier(min_samples_leaf=1).fit(log.states[:30], log.actions[:30] * 0)
    table = try_other_choices(
        log,
        cal.TabularPolicy(ward.EARLIER),
        {"none": tree, "good": LogisticRegression().fit(log.states, log.actions)},
        gamma=1.0,
    )
    assert np.isnan(table[0].value)
    assert {row.weights for row in table if row.model == "good"} == {
        "as they are",
        "capped",
        "shrunk towards current practice",
    }
    raw = next(row for row in table if row.model == "good" and row.weights == "as they are")
    assert raw.gain == pytest.approx(raw.value - log.returns().mean())


def test_bad_input_is_refused(log):
    with pytest.raises(TypeError, match="data must be Trajectories"):
        audit(np.zeros((3, 3)), cal.practice, rng=0)
    with pytest.raises(ValueError, match="a tilt of practice needs the probabilities of all actions"):
        audit(
            log, cal.tilt(cal.practice, [1.0, 2.0, 1.0]), MODELS, logged=log["behaviour"], n_draws=50, rng=0
        )
    with pytest.raises(ValueError, match="logged must hold one probability"):
        audit(log, cal.practice, MODELS, logged=[0.5], n_draws=50, rng=0)
