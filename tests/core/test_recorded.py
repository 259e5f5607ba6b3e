"""Recorded probabilities of all actions: what they are checked for, and that relative targets use them exactly."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit._inputs import as_logged
from caliope._ragged import at_actions
from caliope._recorded import RecordedPractice, recorded_support, restrict_to
from caliope.domains import ward
from caliope.values import TabularRegressor

EARLIER = cal.TabularPolicy(ward.EARLIER)
SHARE, WEIGHTS = 0.3, np.array([1.0, 2.0, 0.5])


@pytest.fixture(scope="module")
def log():
    return ward.simulate(200, rng=5)


@pytest.fixture(scope="module")
def recorded(log):
    return np.asarray(ward.PRACTICE)[log.states[:, 0].astype(int)]


def audited(log, target, **given):
    models = {"logistic": LogisticRegression()}
    settings = {"regressor": TabularRegressor(), "n_draws": 20, "rng": 0}
    return cal.audit(log, target, models, **settings, **given)


# -- checks --


def test_the_probabilities_of_the_actions_taken_are_those_of_the_table(log, recorded):
    taken, practice = as_logged(log, recorded)
    assert taken == pytest.approx([recorded[i, a] for i, a in enumerate(log.actions)], abs=0)
    assert practice.digits is None
    assert (practice.table == recorded).all()
    assert as_logged(log, taken)[1] is None
    assert as_logged(log, None) == (None, None)


def test_rounded_rows_are_rescaled_and_that_is_said(log, recorded):
    thirds = np.where(recorded.argmax(axis=1)[:, None] >= 0, 0.33, 0.0) * np.ones(3)
    taken, practice = as_logged(log, thirds)
    assert practice.digits == 2
    assert taken == pytest.approx(np.full(log.n_steps, 1 / 3), abs=1e-15)
    assert (
        practice.describe("logged probabilities")
        == "logged probabilities of all actions, rounded to 2 digits and rescaled"
    )


def test_bad_tables_are_refused_in_one_line(log, recorded):
    short = "must have shape .* one column per action; got"
    for table, said in (
        (recorded[:, :2], short),
        (recorded[:-1], short),
        (recorded[:, :, None], "or a row with those of all 3 actions"),
        (recorded * 0.9, "every row must hold probabilities that sum to 1"),
        (np.log(recorded), "Log-probabilities or scores"),
    ):
        with pytest.raises(ValueError, match=said) as error:
            as_logged(log, table)
        assert "\n" not in str(error.value)


def test_a_zero_for_an_action_that_was_taken_is_refused_with_its_place(log, recorded):
    wrong = recorded.copy()
    wrong[7] = np.eye(3)[(log.actions[7] + 1) % 3]
    i = log.layout.owner[7]
    place = f"1 of {log.n_steps} do not .first: 0 in trajectory {log.ids[i]}, step {7 - log.offsets[i]}"
    with pytest.raises(ValueError, match=place):
        as_logged(log, wrong)


# -- relative targets --


def naive_ratios(log, table, target):
    """Ratios of a mixture and of a tilt, one decision at a time."""
    found = []
    for i, (state, action) in enumerate(zip(log.states[:, 0].astype(int), log.actions, strict=True)):
        b = table[i]
        if target == "mix":
            new = [(1 - SHARE) * b[a] + SHARE * ward.EARLIER[state][a] for a in range(3)]
        else:
            total = sum(b[a] * WEIGHTS[a] for a in range(3))
            new = [b[a] * WEIGHTS[a] / total for a in range(3)]
        found.append(new[action] / b[action])
    return np.array(found)


@pytest.mark.parametrize("kind", ["mix", "tilt"])
def test_ratios_relative_to_recorded_practice_are_those_of_the_loop(log, recorded, kind):
    target = cal.mix(cal.practice, EARLIER, SHARE) if kind == "mix" else cal.tilt(cal.practice, WEIGHTS)
    e = cal.gather(log, target, RecordedPractice(recorded))
    assert np.exp(e.log_ratio) == pytest.approx(naive_ratios(log, recorded, kind), abs=1e-12)
    assert e.behaviour_known
    assert e.notes == ()


@pytest.mark.slow
def test_an_audit_of_a_mixture_is_that_of_the_mixture_by_hand(log, recorded):
    by_hand = (1 - SHARE) * recorded + SHARE * cal.action_probabilities(EARLIER, log.states, 3)
    relative = audited(log, cal.mix(cal.practice, EARLIER, SHARE), logged=recorded)
    absolute = audited(log, by_hand, logged=recorded)
    assert relative.target_probs == pytest.approx(by_hand, abs=1e-12)
    assert relative.table["wis"].value == pytest.approx(absolute.table["wis"].value, abs=1e-12)
    assert relative.behaviour_probs == pytest.approx(recorded, abs=0)
    assert relative.settings.behaviour == "logged probabilities of all actions"
    assert (relative.settings.propensities_logged, relative.settings.all_recorded) == (True, True)
    assert "A110" in {finding.code for finding in relative.findings}
    # At share 1 the mixture is the policy itself.
    assert relative.reach.shares[-1] == 1


@pytest.mark.slow
def test_a_tilt_of_recorded_practice_is_exact_and_practice_itself_is_zero(log, recorded):
    found = audited(log, cal.tilt(cal.practice, WEIGHTS), logged=recorded)
    expected = recorded * WEIGHTS
    expected /= expected.sum(axis=1, keepdims=True)
    assert found.target_probs == pytest.approx(expected, abs=1e-12)
    tilted = np.asarray(ward.PRACTICE) * WEIGHTS
    truth = ward.value(tilted / tilted.sum(axis=1, keepdims=True))
    # The 95% interval is as wide as four standard errors.
    interval = found.headline.interval
    assert abs(found.headline.value - truth) < interval.high - interval.low
    same = audited(log, cal.practice, logged=recorded)
    assert same.gain.value == 0
    with pytest.raises(ValueError, match="one column per action, or leave logged out"):
        audited(log, cal.tilt(cal.practice, WEIGHTS), logged=at_actions(recorded, log.actions))


# -- what practice never does --


def test_restricting_removes_actions_of_recorded_probability_0():
    recorded = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    policy = np.array([[0.2, 0.2, 0.6], [0.5, 0.0, 0.5], [0.1, 0.1, 0.8]])
    expected = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    assert restrict_to(policy, recorded) == pytest.approx(expected, abs=1e-15)
    data = cal.Trajectories(np.zeros((3, 1)), [0, 1, 2], np.zeros(3), offsets=[0, 1, 2, 3])
    support = recorded_support(data, policy, RecordedPractice(recorded))
    assert support.mass == pytest.approx((0.6 + 1.0) / 3)
    assert support.changes
    assert support.findings() == ()
    assert support.restrict(policy) == pytest.approx(expected, abs=1e-15)
    mixed = support.restrict(cal.mix(cal.practice, cal.UniformPolicy(3), 0.5))
    assert mixed.policy[1] == pytest.approx([0, 1, 0])
    assert support.restrict(cal.practice) is cal.practice
