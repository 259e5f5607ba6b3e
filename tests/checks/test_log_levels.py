"""Checks of the log and of a model on it, on both sides of their thresholds, with their numbers."""

import numpy as np
import pytest

import caliope as cal
from caliope.checks._log import _functions, _unbalanced, check_log


def one_step(states, actions, rewards=None):
    n = len(actions)
    rewards = np.random.default_rng(5).normal(size=n) if rewards is None else rewards
    return cal.Trajectories(np.asarray(states, float).reshape(n, -1), actions, rewards, np.arange(n + 1))


def of_log(data, code):
    return next((finding for finding in check_log(data) if finding.code == code), None)


def level(finding):
    return finding and finding.level


@pytest.mark.parametrize(("wrong", "expected"), [(0, "issue"), (8, "issue"), (9, None)])
def test_a_feature_holds_the_action_from_98_of_100_on(wrong, expected):
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, 400)
    told = np.where(np.isin(np.arange(400), rng.choice(400, wrong, replace=False)), 1 - actions, actions)
    data = one_step(np.column_stack([rng.normal(size=400), told]), actions)
    finding = of_log(data, "L102")
    assert level(finding) == expected
    if finding:
        assert finding.numbers == {"told": pytest.approx(1 - wrong / 400), "column": 1}
        assert finding.facts["feature"] == "x1"


@pytest.mark.parametrize(("others", "expected"), [(40, "issue"), (39, None)])
def test_an_action_that_nearly_all_decisions_share_is_not_called_told(others, expected):
    actions = np.random.default_rng(1).permutation(np.where(np.arange(400) < others, 1, 0))
    assert level(of_log(one_step(actions, actions), "L102")) == expected


def test_each_half_is_told_by_the_other():
    # Every trajectory has a value of its own: what its own action was tells nothing.
    rng = np.random.default_rng(2)
    assert of_log(one_step(np.arange(60), rng.integers(0, 2, 60)), "L102") is None


@pytest.mark.parametrize(("outcomes", "expected"), [(5, None), (6, "issue")])
def test_up_to_five_outcomes_are_told_apart_and_beyond_them_only_the_upper_half(outcomes, expected):
    rng = np.random.default_rng(3)
    returns = rng.permutation(np.resize(np.arange(outcomes, dtype=float), 600))
    actions = rng.integers(0, 2, 600)
    assert level(of_log(one_step(returns, actions, returns), "L106")) == "issue"
    # A feature that says on which side of the median the outcome is tells two kinds, not five.
    side = (returns > np.median(returns)).astype(float)
    assert level(of_log(one_step(side, actions, returns), "L106")) == expected


def test_one_action_alone():
    finding = of_log(one_step(np.arange(200), np.full(200, 2)), "L104")
    assert (finding.level, finding.numbers["action"]) == ("issue", 2)
    assert of_log(one_step(np.arange(200), np.arange(200) % 2), "L104") is None


def unbalanced(n, share):
    """A model that says one half, and a log that took the second action so often; half of each is on either side."""
    actions = (np.arange(n) < round(share * n)).astype(int)
    data = one_step(np.resize([-1.0, 1.0], n), actions, np.zeros(n))
    error = np.eye(2)[actions] - 0.5
    return _unbalanced(error, *_functions(data, np.arange(n)), data.layout)


@pytest.mark.parametrize(
    ("n", "share", "expected"),
    [
        (10_000, 0.518, None),  # z = .018 * sqrt(10000) / .5 = 3.6; four cells ask for 3.66
        (10_000, 0.519, "caution"),  # 3.8
        (10_000, 0.481, "caution"),
        (100_000, 0.5098, None),  # clear, and too small
        (100_000, 0.51, "caution"),  # 1,000 decisions of 100,000: exactly 0.01
        (100_000, 0.5102, "caution"),
        (100_000, 0.5498, "caution"),
        (100_000, 0.55, "caution"),
        (100_000, 0.5502, "issue"),
    ],
)
def test_actions_more_or_less_often_than_the_model_says(n, share, expected):
    finding = unbalanced(n, share)
    assert level(finding) == expected
    if finding:
        effect = share - 0.5
        more = (effect > 0) == (finding.numbers["action"] == 1)
        assert finding.facts["often"] == ("more" if more else "less")
        assert finding.facts["where"] == "overall"
        assert finding.numbers["effect"] == pytest.approx(abs(effect))
        assert finding.numbers["tests"] == 4
        assert abs(finding.numbers["z"]) == pytest.approx(abs(effect) * np.sqrt(n) / 0.5)


def test_the_place_that_is_told_is_the_clearest_by_trajectory_and_not_by_decision():
    """400 trajectories of four decisions alike, and 400 of four that are not: these tell more, with less effect."""
    alike = np.repeat(
        np.where(np.arange(400) < 280, 0.5, -0.5), 4
    )  # mean 0.2: 16 by decision, 8 by trajectory
    hits = np.where(np.arange(400) < 240, 3, 2)  # of four: mean 0.15, 12 by decision, 15.5 by trajectory
    apart = np.where(np.arange(4) < hits[:, None], 0.5, -0.5).ravel()
    error = np.concatenate([alike, apart])[:, None]
    functions = np.repeat(np.eye(2), 1600, axis=0)
    data = cal.Trajectories(np.zeros((3200, 1)), np.zeros(3200, int), np.zeros(3200), 4 * np.arange(801))
    finding = _unbalanced(error, functions, ["where alike", "where apart"], data.layout)
    assert finding.facts["where"] == "where apart"
    assert finding.numbers["z"] == pytest.approx(240 / np.sqrt(240))
    assert finding.numbers["effect"] == pytest.approx(240 / 3200)


def test_functions_of_the_state_are_standardised_and_named_in_order():
    data = cal.Trajectories(
        np.array([[1.0, 5], [3, 5], [1, 5], [3, 5]]), [0, 1, 0, 1], np.zeros(4), [0, 2, 4],
        feature_names=["dose", "unit"],
    )  # fmt: skip
    columns, where = _functions(data, np.arange(4))
    assert where == [
        "overall",
        "at late steps",
        "where dose is high",
        "where unit is high",
        "where dose is far from its mean",
        "where unit is far from its mean",
    ]
    # Time 0, 1, 0, 1 and dose 1, 3, 1, 3 both become -1, 1, -1, 1; the square of that is constant, and the unit too.
    moved = [-1.0, 1, -1, 1]
    assert columns.T.tolist() == [[1.0] * 4, moved, moved, [0.0] * 4, [0.0] * 4, [0.0] * 4]


def test_rewards_that_cancel_are_rewards():
    """One decision gained 1 and the next lost it, in every trajectory: returns of 0, and yet something was logged."""
    rewards, actions = np.resize([1.0, -1.0], 80), np.resize([0, 1, 1, 0], 80)
    data = cal.Trajectories(np.zeros((80, 1)), actions, rewards, 2 * np.arange(41))
    assert of_log(data, "L107") is None
    assert level(of_log(data.replace(rewards=np.zeros(80)), "L107")) == "issue"


# -- copies --


def with_copies(distinct, copied):
    """Trajectories that never coincide by chance, and so many of them a second time."""
    which = [*range(distinct), *range(copied)]
    x = np.random.default_rng(0).normal(size=distinct)[which]
    return one_step(x, (np.arange(distinct) % 2)[which], np.zeros(len(which)))


@pytest.mark.parametrize(("copied", "expected"), [(0, None), (1, "caution"), (5, "caution"), (6, "issue")])
def test_more_than_one_in_twenty_copies_are_an_issue(copied, expected):
    finding = of_log(with_copies(100 - copied, copied), "L101")
    assert level(finding) == expected
    if finding:
        assert finding.numbers == {"copies": copied, "n": 100}


@pytest.mark.parametrize(("distinct", "expected"), [(19, None), (20, "issue")])
def test_a_log_of_few_states_that_holds_itself_again(distinct, expected):
    # One state and as many rewards: trajectories may be alike, but not each of twenty exactly twice.
    rewards = np.repeat(np.arange(distinct, dtype=float), 2)
    finding = of_log(one_step(np.zeros(2 * distinct), np.arange(2 * distinct) // 2 % 2, rewards), "L101")
    assert level(finding) == expected
    if finding:
        assert finding.numbers == {"copies": distinct, "n": 2 * distinct}
