"""Logs and arguments that once passed for good ones: cycles, products of the past, learners that do not learn."""

from dataclasses import replace

import numpy as np
import pytest

import caliope as cal
from caliope._audit._answers import answer_learnt_on, answer_recorded_before
from caliope._audit._learn import learn_across_folds
from caliope.checks._bias import grade_capping
from caliope.checks._past import check_past, find_cycle
from caliope.domains import ward


def log(practice, n=600, steps=4, seed=0):
    """A log with two features and two actions; practice gives the logit from state, past states, past actions, row."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, steps, 2))
    actions = np.zeros((n, steps), dtype=int)
    for t in range(steps):
        logit = practice(x[:, : t + 1], actions[:, :t], np.arange(n))
        actions[:, t] = rng.random(n) < 1 / (1 + np.exp(-logit))
    offsets = np.arange(0, n * steps + 1, steps)
    return cal.Trajectories(x.reshape(-1, 2), actions.ravel(), np.zeros(n * steps), offsets, n_actions=2)


def checks_of(data):
    """What the tests of the past say of the model that knows the present alone: 1/2 at every step."""
    return check_past(data, np.full((data.n_steps, 2), 0.5))


PASTS = {
    "far from its mean": lambda x, a, row: 1.5 * (np.abs(x[:, -2, 0]) - 0.8) if a.shape[1] else 0 * row,
    "product of two": lambda x, a, row: 1.5 * (2 * a[:, -1] - 1) * x[:, -2, 0] if a.shape[1] else 0 * row,
    "one and three back": lambda x, a, row: (
        1.5 * (2 * a[:, -1] - 1) * (2 * a[:, -3] - 1) if a.shape[1] > 2 else 0.0 * row
    ),
}


@pytest.mark.parametrize("kind", PASTS)
def test_practice_that_follows_the_past_in_no_straight_line_is_found(kind):
    (found,) = checks_of(log(PASTS[kind])).findings
    assert (found.code, found.level) == ("B107", "issue")
    assert abs(found.numbers["z"]) > 5


def test_practice_that_follows_nothing_is_left_alone():
    assert checks_of(log(lambda x, a, row: 0.0 * row)).findings == ()


def test_a_cycle_of_seven_rows_is_found_and_named():
    data = log(lambda x, a, row: np.where(row % 7 < 2, 1.0, -0.4))
    (found,) = [finding for finding in checks_of(data).findings if finding.code == "B108"]
    assert found.level == "issue"
    assert "in a cycle of" in found.message
    action, period, power, tests = find_cycle(data, np.full((data.n_steps, 2), 0.5))
    # The period of the pattern, or one of its overtones.
    assert min(abs(period - 7 / k) for k in (1, 2, 3)) < 0.1
    assert tests == 2 * (301 - 4)
    # The periodogram at that frequency, as a loop.
    error = data.layout.sum_steps((data.actions == action) - 0.5)
    total = sum(e * np.exp(-2j * np.pi * j / period) for j, e in enumerate(error))
    assert power == pytest.approx(abs(total) ** 2 / max((error**2).sum(), data.n_steps / 4), rel=1e-9)


def test_cycles_are_at_their_level_where_there_are_none():
    # The largest of 594 exponentials is beyond log(594 / 0.001) once in 1,000 logs.
    alarms = sum(bool(checks_of(log(lambda x, a, row: 0.0 * row, seed=s)).findings) for s in range(40))
    assert alarms <= 1


def test_a_shift_that_is_rounding_is_none():
    assert grade_capping(1e-16, 0.0) == ()
    assert grade_capping(1e-3, 0.0)[0].level == "issue"


def test_a_learner_that_returns_one_and_the_same_policy_is_refused():
    data, fixed = ward.simulate(60, rng=0), cal.TabularPolicy(ward.EARLIER)
    with pytest.raises(ValueError, match="the same TabularPolicy for every fold: it does not learn"):
        learn_across_folds(data, lambda part: fixed, gamma=1.0, rng=np.random.default_rng(0))
    learnt = learn_across_folds(
        data, lambda part: replace(fixed), gamma=1.0, rng=np.random.default_rng(0)
    )  # one each is taken at its word, and that is a condition
    assert len(learnt.policies) == 5


@pytest.mark.parametrize(
    ("given", "said"),
    [(np.ones(60, dtype=int), "look like a mask: give True and False"), ([np.nan], "ids that are missing")],
)
def test_numbers_that_are_no_ids_are_refused(given, said):
    data = ward.simulate(60, rng=0).replace(ids=np.arange(1000, 1060))
    with pytest.raises(ValueError, match=said):
        answer_learnt_on(data, given, cal.TabularPolicy(ward.EARLIER))


def test_what_was_recorded_before_is_a_list():
    with pytest.raises(TypeError, match="recorded_before must be 'all' or a list of state columns, got True"):
        answer_recorded_before(ward.simulate(5, rng=0), True)


def test_an_audit_in_a_shell_is_one_line():
    models = {"frequencies": cal.behaviour.TabularFrequencies()}
    data, q = ward.simulate(100, rng=0), cal.values.TabularRegressor()
    found = cal.audit(data, cal.TabularPolicy(ward.AGGRESSIVE), models, regressor=q, n_draws=20, rng=0)
    assert repr(found).startswith("Audit(verdict='do not trust', value=")
    assert "no interval" in repr(found)
    assert "\n" not in repr(found)
