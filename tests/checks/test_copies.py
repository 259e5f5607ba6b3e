"""Copies of trajectories, and trajectories that merely coincide."""

import numpy as np
import pytest

import caliope as cal
from caliope.checks import _copies
from caliope.checks._copies import Pairs, count_pairs
from caliope.checks._log import check_log


def draw(n, seed, *, columns=4, levels=4, steps=1):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, levels, size=(n * steps, columns)).astype(float)
    a = (rng.random(n * steps) < 1 / (1 + np.exp(levels / 2 - x[:, 0]))).astype(int)
    return cal.Trajectories(x, a, (rng.random(n * steps) < 0.3) * 1.0, np.arange(0, n * steps + 1, steps))


def copies(data):
    return [(x.level, x.numbers["copies"]) for x in check_log(data) if x.code == "L101"]


def repeat(data, which):
    rows = data.layout.rows_of(np.asarray(which))
    steps = data.lengths[0]
    offsets = np.arange(0, len(rows) + 1, steps)
    return cal.Trajectories(data.states[rows], data.actions[rows], data.rewards[rows], offsets, n_actions=2)


@pytest.mark.parametrize("kind", [{"levels": 4}, {"columns": 6, "levels": 3}, {"columns": 2, "levels": 25}])
def test_discrete_rows_that_coincide_are_no_copies(kind):
    for seed in range(5):
        data = draw(800, seed, **kind)
        assert 0.5 < len(set(data.digests)) / 800 < 0.9
        assert copies(data) == []


def test_discrete_rows_that_were_copied_are_found():
    data = draw(800, 0, columns=8, levels=3)
    same = len(data) - len(set(data.digests))
    assert copies(data) == []
    some = repeat(data, [*range(800), *range(400)])
    assert copies(some) == [("issue", len(some) - len(set(some.digests)))]
    assert len(some) - len(set(some.digests)) == same + 400


def test_a_log_that_holds_itself_again_is_found_however_few_its_states():
    data = draw(60, 1, columns=1, levels=3, steps=6)
    assert copies(data) == []
    assert copies(repeat(data, [*range(60), *range(60)])) == [("issue", 60)]
    # One that is missing from the second copy: with so few states no more than chance.
    assert copies(repeat(data, [*range(60), *range(30)])) == []


def bandit(times):
    """Rewards that only state and action decide: six courses, each so many times."""
    state, action, reward = np.repeat(
        [[0, 0, 1.0], [0, 1, 0.3], [1, 0, 0.2], [1, 1, 0.6], [2, 0, 0.0], [2, 1, 0.9]], times, axis=0
    ).T
    return cal.Trajectories(state, action.astype(int), reward, np.arange(len(state) + 1))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([20, 9, 7, 8, 7, 9], []),  # 60 of 6: ten times each on average
        ([19, 9, 7, 8, 7, 9], [("issue", 53)]),
        ([10] * 6, [("issue", 54)]),  # all equally often
    ],
)
def test_a_few_courses_that_are_common_are_no_copies(times, expected):
    assert copies(bandit(times)) == expected


def test_one_column_that_never_repeats_is_enough():
    data, rng = draw(300, 2), np.random.default_rng(0)
    exact = data.replace(states=np.column_stack([data.states, rng.normal(size=300)]))
    assert copies(exact) == []
    assert copies(repeat(exact, [*range(300), 7])) == [("caution", 1)]


def test_pairs_are_counted_as_a_loop_counts_them():
    data = draw(60, 3, columns=3, levels=3, steps=2)
    for j, found in enumerate(count_pairs(data)):
        one = alike = near = near_alike = 0
        rest = [c for c in range(3) if c != j]
        for i in range(60):
            for k in range(i):
                a, b = data.layout.rows_of(np.array([i])), data.layout.rows_of(np.array([k]))
                x, y = data.states[a], data.states[b]
                course = (data.actions[a] == data.actions[b]).all() and (
                    data.rewards[a] == data.rewards[b]
                ).all()
                if (x[0] == y[0]).all():
                    one += 1
                    alike += bool((x == y).all() and course)
                elif (x[0, rest] == y[0, rest]).all():
                    near += 1
                    near_alike += bool((x[:, rest] == y[:, rest]).all() and course)
        assert tuple(found) == (one, alike, near, near_alike)


@pytest.mark.parametrize(("alike", "by_chance"), [(9, True), (10, False)])
def test_a_few_more_that_coincide_than_expected_are_still_chance(alike, by_chance, monkeypatch):
    """None of 30 near pairs is alike: of 100 pairs 3% = 3 may be, and three standard errors, 3 * sqrt(3 + 1) = 6."""
    monkeypatch.setattr(_copies, "count_pairs", lambda data: [Pairs(100, alike, 30, 0)])
    assert _copies._coincide_by_chance(draw(10, 0)) == by_chance


def test_of_a_long_log_the_pairs_of_twenty_thousand_trajectories_are_counted():
    n = 20_003
    (pairs,) = count_pairs(
        cal.Trajectories(np.zeros((n, 1)), np.arange(n) % 2, np.zeros(n), np.arange(n + 1))
    )
    assert pairs.one_state == 20_000 * 19_999 // 2
