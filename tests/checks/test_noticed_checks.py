"""Checks: what no other test would show to be wrong."""

import numpy as np
import pytest

import caliope as cal
from caliope._traits import traits_of
from caliope.checks import _estimates
from caliope.checks._audit import check_beyond, check_logged
from caliope.checks._bias import bias_factor, grade_capping
from caliope.checks._clusters import check_clusters
from caliope.checks._counting import MOVED
from caliope.checks._estimates import examine
from caliope.io._doses import Beyond


def single(rewards, log_ratio=None, **more):
    """One decision per trajectory."""
    log_ratio = np.zeros(len(rewards)) if log_ratio is None else log_ratio
    return cal.Evidence(rewards, log_ratio, np.arange(len(rewards) + 1), **more)


def codes(estimator, e):
    return {finding.code for finding in examine(estimator, e)}


def test_an_interval_without_width_is_not_stretched():
    assert bias_factor(1.0, 0.0, 0.95) == 1.0
    assert bias_factor(0.0, 1.0, 0.95) == pytest.approx(1.0)


def test_a_shift_is_told_in_standard_errors_whichever_its_direction():
    for moved in (3.5 * MOVED[1], -3.5 * MOVED[1]):
        (finding,) = grade_capping(moved, 2.0)
        assert finding.level == "caution"
        assert finding.facts["errors"] == pytest.approx(3.5 * MOVED[1] / 2)
        assert finding.facts["moved"] == moved
    assert grade_capping(2 * MOVED[0], 2.0) == ()
    assert grade_capping(-2.002 * MOVED[0], 2.0)[0].level == "note"


def test_logged_probabilities_that_fit_worse_say_by_how_much():
    """All too small by a factor of 1.04, which is no matter of scale yet: log(1.04) = 0.039 nats per decision."""
    actions = (np.arange(500) % 10 < 7).astype(int)
    data = cal.Trajectories(np.zeros((500, 1)), actions, np.zeros(500), np.arange(501))
    fitted = np.tile([0.3, 0.7], (500, 1))
    (finding,) = check_logged(data, np.where(actions == 1, 0.7, 0.3) / 1.04, fitted)
    assert (finding.code, finding.level) == ("A105", "issue")
    assert (finding.facts["gain"], finding.facts["worse"]) == pytest.approx((-np.log(1.04), np.log(1.04)))


def test_clusters_without_any_weight_are_none():
    e = single(np.zeros(40), np.full(40, -np.inf), cluster=np.arange(40) // 2)
    note, issue = check_clusters(traits_of(cal.wis), e)
    assert (note.code, issue.code, issue.level) == ("L109", "D115", "issue")
    assert issue.facts["effective_clusters"] == 0.0
    assert issue.facts["clusters"] == 20


def test_values_protect_stepwise_weights_from_a_constant_in_the_reward():
    lengths = np.arange(300) % 3 + 1
    offsets, steps = np.concatenate([[0], np.cumsum(lengths)]), lengths.sum()
    e = cal.Evidence(np.ones(steps), np.zeros(steps), offsets, q=np.zeros(steps), v=np.zeros(steps))
    assert "D108" in codes(cal.step_wis, e)
    assert "D108" not in codes(cal.wdr, e)
    assert "D108" not in codes(cal.wis, e)


def test_what_is_rounding_is_no_number_of_standard_errors():
    assert _estimates._standardise(cal.monte_carlo, single([0.1, 0.2, -0.3]))[0] == 0.0
    assert _estimates._standardise(cal.monte_carlo, single([1.0, 1.0, 1.0])) == (0.0, 1.0)
    z, size = _estimates._standardise(cal.monte_carlo, single([0.0, 1.0]))
    assert (z, size) == pytest.approx((0.5 / (np.sqrt(0.5) / 2), 0.5))


@pytest.mark.parametrize(("mean", "told"), [(0.7, True), (0.85, False), (1.2, False), (1.3, True)])
def test_a_mean_weight_far_from_one_is_told_though_it_is_no_more_than_noise(mean, told):
    """Weights of mean 0.7 whose standard error is 0.3: one standard error off, and below 0.8."""
    n = 400
    spread = 0.3 * np.sqrt(n - 1)
    large = np.arange(n) < 4  # hold all that there is beside a little
    base = mean - spread * np.sqrt(4 / (n - 4)) if mean > spread * np.sqrt(4 / (n - 4)) else 0.05
    top = (mean * n - base * (n - 4)) / 4
    e = single(np.arange(n) % 2 * 1.0, np.log(np.where(large, top, base)))
    error = e.layout.se_of_mean(e.rho[e.layout.last])
    assert e.rho.mean() == pytest.approx(mean)
    assert abs(mean - 1) < 2.5 * error
    found = _estimates._check_mean_weight(traits_of(cal.wis), e)
    assert (found is not None) == told


@pytest.mark.parametrize(("size", "level"), [(0.15, "caution"), (0.25, "issue"), (-0.25, "issue")])
def test_values_are_refuted_where_they_are_off_by_two_standard_errors_of_the_interval(size, level):
    """Values of -1 and 1 in turn: the error of their mean is 0.1. Rewards differ from them by ``size``, clearly."""
    n = 101
    v = np.where(np.arange(n) % 2, 1.0, -1.0)
    noise = np.where(np.arange(n) % 3, 0.1, -0.2)
    e = single(v + size + noise, np.full(n, -np.inf), q=v, v=v)
    assert e.layout.se_of_mean(v) == pytest.approx(0.1, rel=0.01)
    found = _estimates._check_values(traits_of(cal.dm), e)
    assert (found.code, found.level) == ("D109", level)
    assert found.facts["correction"] == pytest.approx(size + noise.mean())


@pytest.mark.parametrize(("size", "z"), [(0.8, 0.0), (1.5, 150.0)])
def test_differences_within_rounding_of_the_values_are_no_evidence_against_them(size, z):
    """Values of a thousand million: 0.8 is less than a thousand-millionth of them, and 1.5 is more."""
    n = 400
    v = np.full(n, 1e9)
    noise = np.where(np.arange(n) % 2, 0.2, -0.2)  # standard error 0.01
    e = single(v + size + noise, q=v, v=v)
    found, told = _estimates._test_temporal_differences(e)
    assert found == pytest.approx(z, rel=0.01)
    assert told == pytest.approx(size, rel=1e-6)


@pytest.mark.parametrize(("weight", "told"), [(19.5, True), (5.0, True), (3.0, False)])
def test_more_than_a_fiftieth_of_the_weight_on_one_trajectory_is_told(weight, told):
    """Of 100 trajectories with weight 1 but for one; of few, one holds more than a fiftieth without being odd."""
    weights = np.ones(150)
    weights[7] = weight
    share = weight / weights.sum()
    assert (share > 0.02) == told
    found = _estimates._check_largest_weight(traits_of(cal.wis), single(np.zeros(150), np.log(weights)))
    assert (found is not None) == told
    assert not told or found.numbers == {"share": pytest.approx(share), "trajectory": 7}


def test_a_cap_is_not_said_to_explain_weights_whose_mean_is_too_large():
    """1.5 after the cap, which removed a part: what a cap takes away makes a mean smaller, never larger."""
    weights = np.where(np.arange(400) % 40 == 0, 9.0, 1.5)
    e = cal.weights.clip_weights(single(np.arange(400) % 3.0, np.log(weights)), at=4.0)
    assert e.notes[0].numbers["removed"] > 0.01
    found = _estimates._check_mean_weight(traits_of(cal.wis), e)
    assert found.variants == ("plain",)
    light = cal.weights.clip_weights(single(np.arange(400) % 3.0, np.log(weights / 5)), at=0.8)
    assert _estimates._check_mean_weight(traits_of(cal.wis), light).variants == ("removed",)


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.009, "note"), (0.01, "caution"), (0.099, "caution"), (0.1, "issue"), (0.4, "issue")],
)
def test_recommended_doses_beyond_the_log_have_their_level_by_their_share(share, level):
    (found,) = check_beyond([Beyond("dose", share, 0.0, 100.0, 7000.0)])
    assert (found.code, found.level) == ("S103", level)
    assert found.message.startswith(
        f"{share:.1%} of the values recommended for dose lie beyond those in the log"
    )
    assert "run from 0 to 100. The furthest is 7000." in found.message
