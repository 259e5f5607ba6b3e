import csv

import numpy as np
import pytest

from caliope.domains import ward
from caliope.domains.tabular import TabularMDP

pytestmark = pytest.mark.slow


@pytest.fixture
def coin():
    # One decision: action 1 pays 1, action 0 pays 0, and the episode ends.
    return TabularMDP(
        initial=[1.0, 0.0],
        transitions=[[[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]],
        rewards=[[0.0, 1.0], [0.0, 0.0]],
        absorbing=[False, True],
        horizon=3,
    )


def test_the_value_of_one_decision_is_its_probability(coin):
    assert coin.value([[0.3, 0.7], [1.0, 0.0]]) == pytest.approx(0.7)


def test_the_paths_of_one_decision_are_its_two_outcomes(coin):
    paths = sorted(coin.paths([[0.3, 0.7], [1.0, 0.0]]))
    assert paths == [(0.3, (0,), (0,), (0.0,)), (0.7, (0,), (1,), (1.0,))]


def test_paths_sum_to_one_and_average_to_the_value():
    paths = list(_short_ward().paths(ward.EARLIER))
    assert sum(p.probability for p in paths) == pytest.approx(1)
    mean = sum(p.probability * 0.9 ** (len(p.rewards) - 1) * p.rewards[-1] for p in paths)
    assert mean == pytest.approx(_short_ward().value(ward.EARLIER, gamma=0.9), abs=1e-12)


def _short_ward():
    w = ward.WARD
    return TabularMDP(w.initial, w.transitions, w.rewards, w.absorbing, horizon=3)


def test_simulated_returns_agree_with_dynamic_programming():
    data = ward.simulate(20_000, rng=1)
    returns = data.returns()
    # Three standard errors of a mean of zeros and ones.
    assert abs(returns.mean() - ward.WARD.value(ward.PRACTICE)) < 3 * returns.std() / np.sqrt(len(data))


def test_logged_probabilities_are_those_of_the_policy_that_acted():
    data = ward.simulate(50, rng=2)
    assert np.array_equal(data["behaviour"], ward.PRACTICE[data.states[:, 0].astype(int), data.actions])


def test_transitions_that_do_not_sum_to_one_are_refused():
    with pytest.raises(ValueError, match="sum to 1"):
        TabularMDP([1.0], [[[0.5]]], [[0.0]], [False], 2)


def test_the_log_that_comes_with_the_package_is_what_the_simulator_makes():
    data = ward.simulate(1000, rng=0)
    with ward.csv_path().open() as file:
        rows = [tuple(map(int, row)) for row in list(csv.reader(file))[1:]]
    expected = zip(
        (data.layout.owner + 1).tolist(),
        (4 * data["time"]).tolist(),
        data.states[:, 0].astype(int).tolist(),
        data.actions.tolist(),
        data.rewards.astype(int).tolist(),
        strict=True,
    )
    assert rows == list(expected)


@pytest.fixture(scope="module")
def sepsis():
    from caliope.domains import icu_sepsis

    try:
        return icu_sepsis.load()
    except ModuleNotFoundError as missing:
        pytest.skip(str(missing))


def test_the_exact_values_of_icu_sepsis_are_those_published(sepsis):
    # Published 0.78 and 0.78, lengths 9.22 and 9.45 by Monte Carlo; exact by dynamic programming.
    random = np.full((716, 25), 1 / 25)
    for policy, value, length in ((sepsis.expert, 0.781845, 9.2379), (random, 0.780071, 9.4623)):
        assert sepsis.process.value(policy) == pytest.approx(value, abs=5e-7)
        w = sepsis.process
        clock = TabularMDP(w.initial, w.transitions, np.ones((716, 25)), w.absorbing, w.horizon)
        assert clock.value(policy) == pytest.approx(length, abs=5e-5)
