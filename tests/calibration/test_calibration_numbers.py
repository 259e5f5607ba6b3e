"""Each calibration number beside a loop copied from its formula, and its floor beside a simulation."""

from math import comb

import numpy as np
import pytest

import caliope as cal
from caliope.behaviour import Temperature
from caliope.calibration import (
    AgainstNull,
    averaged_floor,
    balance_table,
    brier_loss,
    classwise_error,
    distance_to_truth,
    kernel_error,
    log_loss,
    marginal_baseline,
    neighbourhood_calibration,
    neighbourhoods,
    noise_floor,
    ratio_reliability,
    reliability_curve,
    repeat_baseline,
    split_loss,
    top_label_error,
    weight_moments,
)
from caliope.domains import ward, zoo


@pytest.fixture(scope="module")
def log():
    return zoo.simulate(zoo.linear(10, rng=0), 120, rng=1, length=5)


@pytest.fixture(scope="module")
def table(log):
    return np.random.default_rng(0).dirichlet(np.ones(25), size=log.n_steps)


@pytest.fixture(scope="module")
def near(log):
    return neighbourhoods(log, np.arange(0, log.n_steps, 7), k=30)


# -- scores --


def test_losses_are_the_formula(log, table):
    for t in range(0, log.n_steps, 37):
        a = log.actions[t]
        assert log_loss(table, log.actions)[t] == pytest.approx(-np.log(table[t, a]))
        squared = sum((table[t, b] - (b == a)) ** 2 for b in range(25))
        assert brier_loss(table, log.actions)[t] == pytest.approx(squared)


def test_baselines_count_other_trajectories_only():
    data = cal.Trajectories(np.zeros((5, 1)), [0, 0, 1, 0, 1], np.zeros(5), [0, 3, 5], n_actions=2)
    # For the first trajectory the other one has actions 0, 1; half a count is added to each: (1.5, 1.5) / 3.
    assert marginal_baseline(data)[0] == pytest.approx([0.5, 0.5])
    # For the second the first has 0, 0, 1: (2.5, 1.5) / 4.
    assert marginal_baseline(data)[3] == pytest.approx([2.5 / 4, 1.5 / 4])
    # Second step of the first, after action 0: the other trajectory went on with 1 once: (0.5, 1.5) / 2.
    assert repeat_baseline(data)[1] == pytest.approx([0.5 / 2, 1.5 / 2])
    # First steps are a kind of their own: the other one began with 0.
    assert repeat_baseline(data)[0] == pytest.approx([1.5 / 2, 0.5 / 2])


@pytest.mark.slow
def test_the_calibration_part_is_what_a_wrong_temperature_costs():
    policy = zoo.linear(10, rng=0)
    data = zoo.simulate(policy, 600, rng=1)
    truth = policy.predict_proba(data.states)
    rng = np.random.default_rng(0)
    for wrong in (0.5, 2.0):
        bent = Temperature(wrong)(truth)
        found = split_loss(bent, data, rng=rng)
        cost = log_loss(bent, data.actions).mean() - log_loss(truth, data.actions).mean()
        # Temperature, or a richer change, undoes it; 3000 steps choose it, for a loss of order 1 / 3000.
        assert found.calibration == pytest.approx(cost, abs=0.02)
        assert found.total == pytest.approx(log_loss(bent, data.actions).mean())
    right = split_loss(truth, data, rng=rng)
    assert 0 <= right.calibration < 0.01


def test_a_zero_probability_makes_the_loss_infinite_and_the_refinement_finite(log, table):
    broken = table.copy()
    broken[np.arange(log.n_steps), log.actions] *= np.arange(log.n_steps) > 3
    broken /= broken.sum(axis=1, keepdims=True)
    found = split_loss(broken, log, rng=np.random.default_rng(0))
    assert found.total == np.inf
    assert np.isfinite(found.refinement)


# -- neighbourhoods --


def naive_neighbours(data, row, k):
    x = (data.states - data.states.mean(axis=0)) / data.states.std(axis=0)
    order = np.argsort(((x - x[row]) ** 2).sum(axis=1), kind="stable")
    return order[data.layout.owner[order] != data.layout.owner[row]][:k]


def test_neighbourhoods_leave_out_the_own_trajectory(log, near):
    for i in (0, 11, 40):
        assert set(near.ids[i]) == set(naive_neighbours(log, near.rows[i], 30))


def test_neighbourhood_numbers_are_the_formula(log, near, table):
    found = neighbourhood_calibration(table, near, n_draws=20, rng=0)
    for i in (0, 11, 40):
        h, around = np.zeros(25), np.zeros(25)
        for j in near.ids[i]:
            h[log.actions[j]] += 1 / 30
            around += table[j] / 30
        assert found.paper[i] == pytest.approx(0.5 * np.abs(h - table[near.rows[i]]).sum())
        assert found.averaged[i] == pytest.approx(0.5 * np.abs(h - around).sum())
        floor = 0.5 * sum(
            np.sqrt(2 / np.pi * sum(table[j, a] * (1 - table[j, a]) for j in near.ids[i])) for a in range(25)
        )
        assert found.floor[i] == pytest.approx(floor / 30)


def test_the_noise_floor_is_the_mean_over_all_outcomes():
    k, p = 12, np.array([[0.5, 0.3, 0.2, 0.0], [1.0, 0.0, 0.0, 0.0]])

    def expected(q):
        return sum(comb(k, x) * q**x * (1 - q) ** (k - x) * abs(x / k - q) for x in range(k + 1))

    assert noise_floor(p, k)[0] == pytest.approx(0.5 * sum(expected(q) for q in p[0]), abs=1e-12)
    assert noise_floor(p, k)[1] == 0
    # The reference values for 150 neighbours: 25 equal actions .157; geometric with .7 .099.
    uniform = np.full((1, 25), 1 / 25)
    assert noise_floor(uniform, 150)[0] == pytest.approx(0.157, abs=5e-4)
    geometric = 0.3 * 0.7 ** np.arange(25)
    assert noise_floor(geometric[None] / geometric.sum(), 150)[0] == pytest.approx(0.099, abs=5e-4)


@pytest.mark.slow
def test_floors_agree_with_simulation():
    policy = zoo.linear(10, rng=0)
    data = zoo.simulate(policy, 300, rng=1)
    truth = policy.predict_proba(data.states)
    near = neighbourhoods(data, np.arange(0, 3000, 10), k=150)
    found = neighbourhood_calibration(truth, near, n_draws=400, rng=0)
    # The null mean has a standard error of its spread / sqrt(400); both are to agree to a thousandth.
    null = found.averaged_metric()
    assert null.null_sd / 20 < 3e-4
    assert averaged_floor(truth, near).mean() == pytest.approx(null.null_mean, abs=1e-3)
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(150, truth[near.rows], size=(200, len(near.rows))) / 150
    simulated = 0.5 * np.abs(drawn - truth[near.rows]).sum(axis=-1).mean()
    assert noise_floor(truth[near.rows], 150).mean() == pytest.approx(simulated, abs=1e-3)


def test_too_few_others_are_all_of_them():
    data = cal.Trajectories(
        np.arange(6.0)[:, None], [0, 1, 0, 1, 0, 1], np.zeros(6), [0, 2, 4, 6], n_actions=2
    )
    assert neighbourhoods(data, k=150).ids.shape == (6, 4)
    with pytest.raises(ValueError, match="one trajectory has no neighbours"):
        neighbourhoods(cal.Trajectories(np.zeros((3, 1)), [0, 1, 0], np.zeros(3), [0, 3]))


# -- reliability --


def test_reliability_curve_is_the_loop_over_bins(log, table):
    curve = reliability_curve(table, log.actions, n_bins=5)
    assert curve.count.sum() == table.size
    edges = np.quantile(table, [0.2, 0.4, 0.6, 0.8], method="higher")
    predicted, observed, count = np.zeros(5), np.zeros(5), np.zeros(5)
    for t in range(log.n_steps):
        for a in range(25):
            b = int((table[t, a] >= edges).sum())
            predicted[b] += table[t, a]
            observed[b] += log.actions[t] == a
            count[b] += 1
    assert curve.predicted == pytest.approx(predicted / count)
    assert curve.observed == pytest.approx(observed / count)


def naive_top_label(table, actions, n_bins):
    best = table.argmax(axis=1)
    p = table.max(axis=1)
    edges = np.quantile(p, np.arange(1, n_bins) / n_bins, method="higher")
    total = 0.0
    for b in range(n_bins):
        inside = [t for t in range(len(p)) if (p[t] >= edges).sum() == b]
        if inside:
            total += abs(sum((best[t] == actions[t]) - p[t] for t in inside)) / len(p)
    return total


def test_top_label_error_is_the_loop(log, table):
    found = top_label_error(table, log.actions, n_bins=6, n_draws=20, rng=0)
    assert found.ece.value == pytest.approx(naive_top_label(table, log.actions, 6))


@pytest.mark.slow
def test_calibration_errors_of_the_truth_are_their_null():
    policy = zoo.linear(10, rng=3)
    data = zoo.simulate(policy, 400, rng=4)
    truth = policy.predict_proba(data.states)
    for error in (top_label_error, classwise_error):
        right = error(truth, data.actions, rng=0)
        assert abs(right.ece.z) < 3
        bent = error(Temperature(0.5)(truth), data.actions, rng=0)
        assert bent.ece.z > 10
        assert bent.debiased > 3 * right.debiased


def test_constant_predictions_make_one_bin():
    table = np.tile([0.25, 0.75], (40, 1))
    actions = np.repeat([0, 1], [10, 30])
    curve = reliability_curve(table, actions, n_bins=10)
    assert curve.predicted == pytest.approx([0.25, 0.75])
    assert curve.observed == pytest.approx([10 / 40, 30 / 40])
    assert classwise_error(table, actions, n_draws=20, rng=0).ece.value == pytest.approx(0)


def test_ratio_reliability_is_the_loop_over_pairs():
    rng = np.random.default_rng(0)
    data = cal.Trajectories(
        np.zeros((60, 1)), rng.integers(3, size=60), np.zeros(60), np.arange(0, 61, 3), n_actions=3
    )
    table, target = rng.dirichlet(np.ones(3), size=60), rng.dirichlet(np.ones(3), size=60)
    found = ratio_reliability(table, data, target, n_bins=4)
    ratios = target / table
    order = np.argsort(ratios, axis=None)
    middle = np.cumsum(target.ravel()[order]) - target.ravel()[order] / 2
    bins = np.empty(180, dtype=int)
    bins[order] = np.minimum((middle / target.sum() * 4).astype(int), 3)
    bins = bins.reshape(60, 3)
    for b in range(4):
        expected = sum(target[t, a] for t in range(60) for a in range(3) if bins[t, a] == b)
        observed = sum(ratios[t, data.actions[t]] for t in range(60) if bins[t, data.actions[t]] == b)
        variance = 0.0
        for t in range(60):
            inside = [a for a in range(3) if bins[t, a] == b]
            variance += (
                sum(target[t, a] ** 2 / table[t, a] for a in inside) - sum(target[t, a] for a in inside) ** 2
            )
        assert found.observed[b] == pytest.approx(observed / expected)
        assert found.se[b] == pytest.approx(np.sqrt(variance) / expected)
        assert found.mass[b] == pytest.approx(expected / 60)


def test_ratio_reliability_finds_no_fault_with_the_truth_and_some_with_others():
    policy = zoo.linear(10, rng=0)
    data = zoo.simulate(policy, 500, rng=2)
    truth = policy.predict_proba(data.states)
    usable = ratio_reliability(truth, data).events > 10
    assert np.abs(ratio_reliability(truth, data).z[usable]).max() < 3.5
    assert np.abs(ratio_reliability(Temperature(0.5)(truth), data).z).max() > 8


def test_what_the_model_rules_out_is_unsupported():
    data = cal.Trajectories(np.zeros((2, 1)), [0, 0], np.zeros(2), [0, 1, 2], n_actions=2)
    found = ratio_reliability(np.array([[1.0, 0.0], [1.0, 0.0]]), data, np.array([[0.7, 0.3], [0.9, 0.1]]))
    assert found.unsupported == pytest.approx(0.2)
    assert found.observed == pytest.approx(np.ones(len(found.observed)))


# -- moments --


def test_balance_is_the_loop_over_trajectories(log, table):
    strata = np.where(log.states[:, 0] > 0, "high", "low")
    found = balance_table(table, log, strata=strata, n_draws=50, rng=0)
    assert found.functions[:3] == ("constant", "time", "x0")
    assert found.functions[-2:] == ("stratum high", "stratum low")
    time = log.layout.time
    x = {
        "constant": np.ones(log.n_steps),
        "time": (time - time.mean()) / time.std(),
        "stratum high": strata == "high",
    }
    for name, f in x.items():
        for a in (0, 13):
            sums = []
            for i in range(len(log)):
                rows = range(log.offsets[i], log.offsets[i + 1])
                sums.append(sum(((log.actions[t] == a) - table[t, a]) * f[t] for t in rows))
            z = found.z[a, found.functions.index(name)]
            spread = sum(table[t, a] * (1 - table[t, a]) * f[t] ** 2 for t in range(log.n_steps))
            assert z == pytest.approx(np.sum(sums) / np.sqrt(spread))
            assert found.effect[a, found.functions.index(name)] == pytest.approx(np.sum(sums) / log.n_steps)


def test_constant_features_are_no_functions_to_test():
    data = cal.Trajectories(np.ones((20, 2)), np.arange(20) % 2, np.zeros(20), np.arange(0, 21, 2))
    assert balance_table(np.full((20, 2), 0.5), data, n_draws=20, rng=0).functions == ("constant", "time")


def test_weight_moments_carry_the_last_weight():
    # Weights 2 then ended; 0.5 then 1: at the second step the means are (2 + 1) / 2 with the ended one kept.
    e = cal.Evidence([0.0, 0, 0], np.log([2.0, 0.5, 2.0]), [0, 1, 3])
    assert weight_moments(e, n_draws=20, rng=0).mean == pytest.approx([1.25, 1.5])


def test_weights_of_the_true_policy_have_mean_one_and_of_a_wrong_one_have_not():
    data = ward.simulate(2000, rng=0)
    target = cal.TabularPolicy(ward.EARLIER)
    right = weight_moments(cal.gather(data, target, data["behaviour"]), rng=0)
    assert right.p_value > 0.01
    assert np.abs(right.z).max() < 3.5
    wrong = weight_moments(cal.gather(data, target, cal.UniformPolicy(3)), rng=0)
    assert wrong.p_value < 0.01


# -- the kernel --


def naive_kernel(table, data):
    x = (data.states - data.states.mean(axis=0)) / data.states.std(axis=0)
    owner = data.layout.owner
    pairs = [(i, j) for i in range(len(x)) for j in range(len(x)) if owner[i] != owner[j]]
    middle = np.median([((x[i] - x[j]) ** 2).sum() for i, j in pairs])
    total = 0.0
    for i, j in pairs:
        error = [np.eye(table.shape[1])[data.actions[t]] - table[t] for t in (i, j)]
        apart = 0.5 * np.abs(table[i] - table[j]).sum()
        total += error[0] @ error[1] * np.exp(-apart) * np.exp(-((x[i] - x[j]) ** 2).sum() / middle)
    return total / len(pairs)


def test_kernel_error_is_the_loop_over_pairs():
    data = zoo.simulate(zoo.linear(10, rng=0), 20, rng=1, length=3)
    table = np.random.default_rng(0).dirichlet(np.ones(25), size=60)
    assert kernel_error(table, data, rng=0).value == pytest.approx(naive_kernel(table, data))


def test_kernel_error_of_one_trajectory_is_unknown():
    data = cal.Trajectories(np.zeros((3, 1)), [0, 1, 0], np.zeros(3), [0, 3])
    assert np.isnan(kernel_error(np.full((3, 2), 0.5), data, rng=0).value)


# -- the truth --


def test_distances_to_the_truth():
    truth, table = np.array([[0.5, 0.5, 0.0]]), np.array([[0.25, 0.25, 0.5]])
    found = distance_to_truth(table, truth, np.array([1]))
    assert found.tv[0] == pytest.approx(0.5)
    assert found.kl[0] == pytest.approx(np.log(2))
    assert found.at_logged[0] == pytest.approx(0.25)
    assert found.inflation[0] == pytest.approx(2.0)  # E[pi / pihat] = 0.5 * 2 + 0.5 * 2
    ruled_out = distance_to_truth(np.array([[1.0, 0.0, 0.0]]), truth, np.array([0]))
    assert ruled_out.kl[0] == np.inf


def test_a_null_without_spread():
    assert AgainstNull(0.0, 0.0, 0.0).z == 0
    assert AgainstNull(0.1, 0.0, 0.0).z == np.inf
    assert np.isnan(AgainstNull(float("nan"), 0.0, 0.0).z)


def test_a_certain_model_that_is_right_has_nothing_against_it():
    rng = np.random.default_rng(0)
    actions = rng.integers(3, size=300)
    data = cal.Trajectories(
        rng.normal(size=(300, 2)), actions, np.zeros(300), np.arange(0, 301, 3), n_actions=3
    )
    found = neighbourhood_calibration(np.eye(3)[actions], neighbourhoods(data, k=30), n_draws=20, rng=0)
    assert found.paper_metric().z == 0
    assert found.averaged_metric().z == 0


def test_equal_states_do_not_all_share_the_same_neighbours():
    data = ward.simulate(300, rng=0)
    ids = neighbourhoods(data, np.arange(0, data.n_steps, 3), k=50).ids
    # Five severities: without random ties five times 50 rows, in the order of the file, would stand for all.
    assert len(np.unique(ids)) > 0.8 * data.n_steps


def test_ties_do_not_make_a_small_log_look_unbalanced():
    for seed in range(10):
        data = ward.simulate(3, rng=seed)
        found = balance_table(ward.PRACTICE[data.states[:, 0].astype(int)], data, n_draws=40, rng=0)
        assert found.p_value > 0.02
        assert found.signs_p > 0.1  # three signs: all alike in one draw of four


def test_weights_that_are_all_wrong_are_not_called_right():
    e = cal.Evidence([0.0, 0, 0], np.log([3.0, 3.0, 3.0]), [0, 1, 2, 3])
    assert np.isnan(weight_moments(e, rng=0).p_value)
    assert weight_moments(cal.Evidence([0.0, 0], [0.0, 0.0], [0, 1, 2]), rng=0).p_value == 1


@pytest.mark.parametrize(
    "broken", [np.full((600, 25), np.nan), np.full((600, 25), 0.5 / 25), np.ones((3, 25)) / 25]
)
def test_a_table_that_holds_no_probabilities_is_refused(log, near, broken):
    rng = np.random.default_rng(0)
    for use in (
        lambda: balance_table(broken, log, rng=rng),
        lambda: kernel_error(broken, log, rng=rng),
        lambda: split_loss(broken, log, rng=rng),
        lambda: ratio_reliability(broken, log),
    ):
        with pytest.raises(ValueError, match=r"table|probabilities"):
            use()
