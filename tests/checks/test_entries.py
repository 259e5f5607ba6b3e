"""Entries that look like something else: an outcome in every row, and numbers that stand for a gap."""

import numpy as np
import pytest

import caliope as cal
from caliope.checks._entries import check_repeats, check_running_total, check_stand_ins
from caliope.checks._log import check_log


def log(rewards, lengths, states=None):
    rewards = np.asarray(rewards, dtype=float)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    states = np.random.default_rng(0).normal(size=(n, 1)) if states is None else states
    return cal.Trajectories(states, np.arange(n) % 2, rewards, offsets)


@pytest.mark.parametrize(("rewarded", "said"), [(9, False), (10, True)])
def test_an_outcome_in_every_row_of_ten_trajectories_is_said(rewarded, said):
    outcome = np.arange(30) < rewarded
    found = check_repeats(log(np.repeat(outcome, 3), [3] * 30))
    assert (found is not None) == said
    if found:
        assert (found.code, found.level, found.facts) == ("L110", "caution", {"n": 30})


def test_what_is_no_repeated_outcome_is_not_called_one():
    outcome = (np.arange(30) < 15).astype(float)
    assert check_repeats(log(np.repeat(outcome, 3), [3] * 30)) is not None
    once = np.repeat(outcome, 3)
    once[0] = 0.0  # one trajectory whose decisions differ
    assert check_repeats(log(once, [3] * 30)) is None
    assert check_repeats(log(np.ones(90), [3] * 30)) is None  # one reward for all, such as per hour alive
    assert check_repeats(log(outcome, [1] * 30)) is None  # a single decision each
    last = np.zeros(90)
    last[2::3] = outcome
    assert check_repeats(log(last, [3] * 30)) is None  # the outcome at the end alone
    # Single decisions beside trajectories of several say nothing, and are not counted.
    mixed = log(np.concatenate([np.repeat(outcome, 3), np.ones(20)]), [3] * 30 + [1] * 20)
    assert check_repeats(mixed).facts == {"n": 30}
    assert check_repeats(log(np.repeat(outcome, 2), [2] * 30)).facts == {"n": 30}  # two decisions are several


@pytest.mark.parametrize(
    ("n", "flat", "said"), [(30, 0, True), (20, 0, True), (19, 0, False), (30, 14, True), (30, 15, False)]
)
def test_a_running_total_is_said(n, flat, said):
    earned = np.random.default_rng(0).exponential(size=(n, 4))
    earned[:flat, :-1] = 0.0  # all at the end
    found = check_running_total(log(earned.cumsum(axis=1).ravel(), [4] * n))
    assert (found is not None) == said
    if found:
        assert (found.code, found.level, found.facts) == (
            "L112",
            "caution",
            {"n": n, "rising": (n - flat) / n},
        )
    assert check_running_total(log(earned.ravel(), [4] * n)) is None


def test_what_is_no_running_total_is_not_called_one():
    total = np.arange(1.0, 4).repeat(30).reshape(3, 30).T  # 1, 2, 3 in each
    assert check_running_total(log(total.ravel(), [3] * 30)) is not None
    once = total.copy()
    once[7] = [1, 2, 1]
    assert check_running_total(log(once.ravel(), [3] * 30)) is None
    last = np.zeros((30, 3))
    last[:, 2] = 1
    assert check_running_total(log(last.ravel(), [3] * 30)) is None  # the outcome at the end alone
    assert check_running_total(log(total[:, :2].ravel(), [2] * 30)) is None  # too short to tell
    falling = np.concatenate([total, [[5.0, 6, 7]]])
    falling[:, 0] = (
        np.arange(31)[::-1] - 40
    )  # the first of a trajectory may be below the last of the one before
    assert check_running_total(log(falling.ravel(), [3] * 31)).facts["n"] == 31


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.1, 500.0, -999.0], -999.0),
        ([0.1, 1200.0, -999.0], None),  # no further from the others than they are from each other
        ([20.0, 70.0, 9999.0], 9999.0),
        ([20.0, 70.0, 9998.0], None),  # no number that stands for a gap anywhere
        ([20.0, 70.0, 999999.0], 999999.0),
        ([20.0, 70.0, 9999999.0], None),  # seven nines
        ([20.0, 70.0, -999999.0], -999999.0),
        ([20.0, 70.0, -9999999.0], None),
        (
            [20.0, 46.0, 99.0],
            None,
        ),  # apart by 53, and the others by 26: three times as far is asked of short ones
        ([20.0, 37.0, 99.0], 99.0),
        ([0.0, 2.0, -9.0], -9.0),
        ([0.0, 4.0, -9.0], None),
        ([0.0, 0.0, -999.0], None),  # two values are a code of their own
        ([-999.0, -999.0, -999.0], None),
    ],
)
def test_a_number_stands_for_a_gap_where_it_is_far_from_all_others(values, found):
    states = np.resize(np.asarray(values), (60, 1))
    said = check_stand_ins(log(np.zeros(60), [1] * 60, states))
    assert [finding.facts["value"] for finding in said] == ([] if found is None else [found])
    if found is not None:
        (finding,) = said
        assert (finding.code, finding.level) == ("L111", "note")
        assert (finding.facts["rows"], finding.facts["features"]) == (20, 0)
        assert "feature 'x0'" in finding.message


def test_of_several_features_the_one_with_most_such_rows_is_named_and_a_reward_is_a_caution():
    states = np.random.default_rng(1).normal(size=(60, 3))
    states[:2, 0] = -999
    states[:7, 2] = 99999
    rewards = np.resize([0.0, 1.0, 2.0], 60)
    rewards[5] = -99
    found = check_stand_ins(log(rewards, [1] * 60, states))
    assert [(x.level, x.facts["name"], x.facts["rows"]) for x in found] == [
        ("caution", "the reward", 1),
        ("note", "feature 'x2'", 7),
    ]
    assert found[1].facts["features"] == 1
    assert {x.code for x in check_log(log(rewards, [1] * 60, states))} >= {"L111"}
