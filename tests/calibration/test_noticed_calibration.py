"""Calibration: what no other test would show to be wrong."""

from types import SimpleNamespace

import numpy as np
import pytest

import caliope as cal
from caliope.behaviour import TabularFrequencies, fit_behaviour
from caliope.calibration import (
    AgainstNull,
    balance_table,
    classwise_error,
    kernel_error,
    neighbourhoods,
    repeat_baseline,
    severity_strata,
    weight_moments,
)
from caliope.calibration._compare import _Study, compare_policies
from caliope.calibration._findings import check_held_out
from caliope.calibration._scores import sample_rows, stratum_key
from caliope.calibration._tests import _draw_signs
from caliope.domains import ward


@pytest.fixture(scope="module")
def log():
    return ward.simulate(30, rng=0)


def test_the_interval_of_a_mean_is_that_of_resampled_trajectories():
    """Trajectories 0 to 11 have steps; a draw without any of them has no mean, and does not count."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(12), 2)
    data = cal.Trajectories(np.zeros((32, 1)), np.zeros(32, int), np.zeros(32), np.arange(0, 33, 2))
    counts = rng.multinomial(16, np.full(16, 1 / 16), size=41).astype(float)
    counts[7, :12], counts[7, 12:] = 0, 4
    values, weights = rng.exponential(size=24), rng.random(24)
    study = SimpleNamespace(data=data, counts=counts, level=0.9)
    found = _Study._interval(study, values, np.arange(24), weights)
    means = [
        np.sum(c[owner] * weights * values) / np.sum(c[owner] * weights)
        for i, c in enumerate(counts)
        if i != 7
    ]
    assert [found.low, found.high] == pytest.approx(np.quantile(means, [0.05, 0.95]))
    few = _Study._interval(study, values[:8], np.arange(8))
    assert np.isnan(few.low)
    assert few.method == "too few trajectories"


def test_an_infinite_trajectory_makes_the_upper_end_infinite_and_no_more():
    data = cal.Trajectories(np.zeros((12, 1)), np.zeros(12, int), np.zeros(12), np.arange(13))
    counts = np.ones((40, 12))
    counts[:20, 0], counts[:20, 1] = 0, 2
    values = np.arange(12.0)
    values[0] = np.inf
    found = _Study._interval(SimpleNamespace(data=data, counts=counts, level=0.9), values, np.arange(12))
    # Without trajectory 0 the mean is (1 + 1 + 2 + ... + 11) / 12 = 67 / 12.
    assert (found.low, found.high) == (pytest.approx(67 / 12), np.inf)


def test_what_no_comparison_can_be_made_of_is_refused(log):
    model = {"uniform": cal.UniformPolicy(3)}
    with pytest.raises(TypeError, match="models must be a mapping from names to policies"):
        compare_policies([cal.UniformPolicy(3)], log, rng=0)
    with pytest.raises(ValueError, match="no models were given"):
        compare_policies({}, log, rng=0)
    for name, value in [("n_states", 2.5), ("max_steps", True), ("n_states", 0)]:
        with pytest.raises(ValueError, match=f"{name} must be a whole number from 1, got {value}"):
            compare_policies(model, log, rng=0, **{name: value})


def test_a_whole_log_is_not_called_a_sample(log):
    model = {"uniform": cal.UniformPolicy(3)}
    whole = compare_policies(model, log, n_draws=20, rng=0)
    part = compare_policies(model, log, n_draws=20, max_steps=100, rng=0)
    assert "sampled" not in whole.title
    assert "(sampled from 30 trajectories)" in part.title


def test_a_model_judged_on_its_own_log_is_an_issue_with_its_share(log):
    same = fit_behaviour(TabularFrequencies(shrinkage=1.0), log, mode="same", rng=0)
    (finding,) = check_held_out(same, log)
    assert (finding.code, finding.level, finding.numbers["share"]) == ("K107", "issue", 1.0)
    assert check_held_out(same, ward.simulate(30, rng=1)) == ()
    crossed = fit_behaviour(TabularFrequencies(shrinkage=1.0), log, mode="cross", rng=0)
    assert check_held_out(crossed, log) == ()


def test_no_rows_are_refused_by_name(log):
    with pytest.raises(ValueError, match=r"rows must be numbers of steps from 0 to .*, at least one"):
        neighbourhoods(log, np.array([], dtype=int), k=5)


def test_the_first_step_may_be_a_neighbour_and_a_log_of_two_decisions_has_some():
    data = cal.Trajectories([[0.0], [1.0], [2.0]], [0, 1, 0], np.zeros(3), np.arange(4), n_actions=2)
    found = neighbourhoods(data, k=2)
    assert np.sort(found.ids).tolist() == [[1, 2], [0, 2], [0, 1]]
    two = cal.Trajectories([[0.0], [1.0]], [0, 1], np.zeros(2), [0, 1, 2], n_actions=2)
    assert neighbourhoods(two, k=5).ids.tolist() == [[1], [0]]


def test_against_a_null_that_is_unknown_nothing_is_known():
    assert np.isnan(AgainstNull(0.5, 0.2, np.nan).z)
    assert np.isnan(AgainstNull(np.nan, 0.2, 0.0).z)
    assert AgainstNull(0.5, 0.2, 0.0).z == np.inf
    assert AgainstNull(0.1, 0.2, 0.0).z == -np.inf


def test_there_are_fifteen_bins_by_default():
    rng = np.random.default_rng(0)
    p = rng.random(500)
    table, actions = np.column_stack([p, 1 - p]), rng.integers(2, size=500)
    default = classwise_error(table, actions, n_draws=20, rng=0).ece.value
    assert default == classwise_error(table, actions, n_bins=15, n_draws=20, rng=0).ece.value
    assert default != classwise_error(table, actions, n_bins=16, n_draws=20, rng=0).ece.value


def test_a_first_decision_repeats_nothing():
    """Not even the last one of the trajectory before: the others begin with 0 and 1, so that it is even."""
    data = cal.Trajectories(np.zeros((6, 1)), [0, 1, 0, 0, 1, 0], np.zeros(6), [0, 2, 4, 6])
    assert repeat_baseline(data)[2].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("score", [[1.0, np.nan], [1.0, np.inf], [[1.0], [2.0]]])
def test_a_severity_that_is_no_number_has_no_stratum(score):
    with pytest.raises(ValueError, match="a severity score must be one finite number per step"):
        severity_strata(score)


def test_states_are_sampled_by_stratum_and_sorted(log):
    rng = np.random.default_rng(0)
    some = sample_rows(None, log, 7, rng)
    assert len(set(some.tolist())) == 7
    assert (np.diff(some) > 0).all()
    labels = np.where(np.arange(log.n_steps) < 4, "few", "many")
    found = labels[sample_rows(labels, log, 7, rng)]
    assert (found == "few").sum() == 4
    assert (found == "many").sum() == 7


@pytest.mark.parametrize("test", [balance_table, kernel_error])
def test_a_test_needs_draws(test, log):
    with pytest.raises(ValueError, match="n_draws"):
        test(np.full((log.n_steps, 3), 1 / 3), log, n_draws=0, rng=0)


def test_clusters_may_lie_anywhere_in_the_log_of_a_kernel_error():
    """The same pairs of decisions of different clusters, whichever the order of the trajectories."""
    rng, n = np.random.default_rng(0), 40
    cluster, order = np.arange(n) % 5, np.argsort(np.arange(n) % 5, kind="stable")
    data = cal.Trajectories(
        rng.normal(size=(n, 1)), rng.integers(2, size=n), np.zeros(n), np.arange(n + 1), cluster=cluster
    )
    table = np.full((n, 2), 0.5)
    found, sorted_ = kernel_error(table, data, rng=0), kernel_error(table, data[order], rng=0)
    assert found.value == pytest.approx(sorted_.value)
    assert (found.null_sd, found.p_value) == pytest.approx((sorted_.null_sd, sorted_.p_value))


@pytest.mark.parametrize(
    "names",
    [
        ["0-4", "2.5 to 5", "5-9", "10-13", "14+", "none", "missing"],
        ["up to 27.68", "above 27.68 to 35.1", "above 35.1 to 143", "above 143", "missing"],
        ["below -5", "-5 to 2.5", "2.5 to 30", "30+"],
        ["up to 3", "3", "above 3"],
        ["1", "2", "10", "3 beds", "ICU"],
        ["2023-12-31", "2024-01-01", "2024-02-01"],
    ],
)
def test_strata_are_sorted_by_the_number_that_they_begin_with(names):
    shuffled = np.random.default_rng(0).permutation(names).tolist()
    assert sorted(shuffled, key=stratum_key) == names


def test_the_null_of_a_balance_table_gives_each_trajectory_a_sign():
    rng = np.random.default_rng(1)
    error, functions, owner = (
        rng.normal(size=(7, 2)),
        rng.normal(size=(7, 3)),
        np.array([0, 0, 1, 1, 1, 2, 3]),
    )
    scale = rng.random((2, 3)) + 0.5
    expected = []
    for signs in np.random.default_rng(0).choice([-1.0, 1.0], size=(20, 4)):
        z = [
            abs(sum(signs[owner[i]] * error[i, a] * functions[i, f] for i in range(7))) / scale[a, f]
            for a in range(2)
            for f in range(3)
        ]
        expected.append(max(z))
    assert _draw_signs(error, functions, scale, owner, 20, np.random.default_rng(0)) == pytest.approx(
        expected
    )


def test_the_null_of_the_mean_weights_gives_each_trajectory_a_sign():
    log_ratio = np.random.default_rng(2).normal(scale=0.5, size=(6, 2))
    found = weight_moments(
        cal.Evidence(np.zeros(12), log_ratio.ravel(), np.arange(0, 13, 2)), n_draws=30, rng=0
    )
    weights = np.exp(np.cumsum(log_ratio, axis=1))
    off = weights - weights.mean(axis=0)
    se = np.sqrt((off**2).sum(axis=0) * 6 / 5) / 6
    rng = np.random.default_rng(0)
    drawn = [max(abs(rng.choice([-1.0, 1.0], size=6) @ off) / 6 / se) for _ in range(30)]
    assert found.largest.value == pytest.approx(max(abs(weights.mean(axis=0) - 1) / se))
    assert found.largest.null_mean == pytest.approx(np.mean(drawn))
