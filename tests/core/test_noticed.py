"""Numbers that nothing else would show to be wrong: each test says what a user would have seen."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression, LogisticRegression

import caliope as cal
from caliope._ragged import running_sum
from caliope.behaviour import Temperature, fit_behaviour, recalibrate, recalibrate_fitted
from caliope.behaviour._fit import assign_folds
from caliope.calibration import (
    AgainstNull,
    balance_table,
    classwise_error,
    kernel_error,
    split_loss,
    top_label_curve,
    top_label_error,
    weight_moments,
)
from caliope.calibration._null import against_draws
from caliope.domains import ward
from caliope.uncertainty import bca
from caliope.uncertainty._intervals import percentile_interval
from caliope.uncertainty._resampling import failed_draws
from caliope.values import (
    TabularRegressor,
    fitted_q,
    fitted_q_by_time,
    fitted_q_iteration,
    linear_value,
    more_robust_q,
)
from caliope.values._linear import _weigh_steps
from conftest import random_evidence

EARLIER = cal.TabularPolicy(ward.EARLIER)


# -- evidence --


@pytest.mark.parametrize("n", [1023, 1024, 4096, 4097, 8193])
def test_long_blocks_are_summed_as_short_ones_are(n):
    block = np.random.default_rng(0).normal(size=(n, 3))
    assert running_sum(block) == pytest.approx(np.cumsum(block, axis=1))


def test_the_weights_of_ten_thousand_trajectories_of_one_length_are_products():
    ratios = np.random.default_rng(0).normal(scale=0.3, size=(10_000, 5))
    e = cal.Evidence(np.zeros(50_000), ratios.ravel(), np.arange(0, 50_001, 5))
    assert e.log_rho.reshape(-1, 5)[:, -1] == pytest.approx(ratios.sum(axis=1))


def test_evidence_says_what_it_holds():
    e = random_evidence(n=3, longest=2, q=None, v=None)
    steps = len(e.rewards)
    assert repr(e) == f"Evidence(3 trajectories, {steps} steps, gamma=0.9)"
    assert "with q and v" in repr(random_evidence(n=3))
    assert "rows of counts" not in repr(e.with_counts([1, 2, 0]))
    assert "4 rows of counts" in repr(e.with_counts(np.ones((4, 3))))


@pytest.mark.parametrize("counts", [[1.0, np.inf, 0.0], [1.0, -1.0, 0.0], [1.0, np.nan, 0.0]])
def test_counts_that_are_none_are_refused(counts):
    with pytest.raises(ValueError, match="counts must be finite and not negative"):
        random_evidence(n=3).with_counts(counts)


def test_the_name_says_whose_lengths_are_used():
    by = cal.per_horizon(cal.wis, length_weights="evaluation")
    assert by.__name__ == "per_horizon_wis_by_evaluation_lengths"
    assert cal.per_horizon(cal.wis).__name__ == "per_horizon_wis"


# -- intervals --


def test_bca_of_a_skewed_mean_is_that_of_scipy():
    # Acceleration 0.1 or so: where it is nearly 0, nothing that is done with it shows.
    sample = np.random.default_rng(3).pareto(2.5, size=60)
    found = bca(cal.monte_carlo, cal.Evidence(sample, np.zeros(60), np.arange(61)), n_draws=20_000, rng=0)
    other = stats.bootstrap(
        (sample,), np.mean, n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    width = other.high - other.low
    assert found.low == pytest.approx(other.low, abs=0.03 * width)
    assert found.high == pytest.approx(other.high, abs=0.03 * width)


def test_an_estimator_of_the_wrong_shape_is_refused():
    def scalar(e):
        return 1.0

    with pytest.raises(ValueError, match="must return one value for each"):
        cal.bootstrap(scalar, random_evidence(), n_draws=20, rng=0)


@pytest.mark.parametrize(("draws", "few"), [(199, True), (200, False)])
def test_an_interval_wants_five_draws_beyond_each_end(draws, few):
    found = percentile_interval(np.arange(float(draws)), level=0.95, method="m")
    assert ("U106" in {f.code for f in found.findings}) == few


@pytest.mark.parametrize(("failed", "level"), [(0, None), (1, "caution"), (50, "caution"), (51, "issue")])
def test_undefined_draws_are_an_issue_above_five_of_a_hundred(failed, level):
    values = np.where(np.arange(1000) < failed, np.nan, 1.0)
    found = failed_draws(values)
    assert [f.level for f in found] == ([level] if level else [])
    if found:
        assert found[0].numbers == {"share": failed / 1000, "failed": failed, "draws": 1000}


# -- calibration --


def debiased_by_hand(p, hit):
    """One bin: the squared gap minus the variance of a frequency."""
    o, n = hit.mean(), len(hit)
    return np.sqrt(max((o - p) ** 2 - o * (1 - o) / (n - 1), 0.0))


@pytest.mark.parametrize(("p", "hits"), [(0.9, 60), (0.7, 60), (0.6, 60)])
def test_the_debiased_calibration_error_is_the_root_of_a_squared_gap(p, hits):
    table, actions = np.tile([p, 1 - p], (100, 1)), (np.arange(100) >= hits).astype(int)
    expected = debiased_by_hand(p, actions == 0)
    for error in (top_label_error, classwise_error):
        assert error(table, actions, n_draws=20, rng=0).debiased == pytest.approx(expected)


def test_the_curve_of_the_most_likely_action():
    table = np.array([[0.6, 0.4]] * 10 + [[0.1, 0.9]] * 10)
    actions = np.array([0] * 7 + [1] * 3 + [1] * 8 + [0] * 2)
    curve = top_label_curve(table, actions, n_bins=2)
    assert curve.predicted == pytest.approx([0.6, 0.9])
    assert curve.observed == pytest.approx([0.7, 0.8])
    assert curve.count.tolist() == [10, 10]


def test_the_true_policy_passes_the_test_of_its_weights():
    p = []
    for seed in range(10):
        data = ward.simulate(400, rng=seed)
        p.append(weight_moments(cal.gather(data, EARLIER, data["behaviour"]), n_draws=100, rng=0).p_value)
    # Uniform under a right model: a median below 0.1 in ten logs has a chance of 0.002.
    assert np.median(p) > 0.1


def test_weights_that_are_one_at_the_first_step_alone_are_not_called_right():
    e = cal.Evidence(np.zeros(6), np.log([1.0, 3.0] * 3), [0, 2, 4, 6])
    assert np.isnan(weight_moments(e, rng=0).p_value)


def test_an_action_that_is_taken_less_often_than_said_is_the_worst_of_the_table():
    # Said 6%, taken 2%: 1 of 3 actions; the others are said 47% and taken 49%.
    n = 3000
    actions = np.where(np.arange(n) % 50 == 0, 0, 1 + np.arange(n) % 2)
    data = cal.Trajectories(
        np.random.default_rng(0).normal(size=(n, 1)), actions, np.zeros(n), np.arange(n + 1)
    )
    found = balance_table(np.tile([0.06, 0.47, 0.47], (n, 1)), data, n_draws=50, rng=0)
    assert found.worst == (0, "constant")
    z = (0.02 - 0.06) * np.sqrt(n / (0.06 * 0.94))
    assert found.z[0, 0] == pytest.approx(z)
    assert found.largest.value == pytest.approx(-z)
    assert found.p_value == pytest.approx(1 / 51)


def test_feature_weights_multiply_squared_differences():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    data = cal.Trajectories(x, rng.integers(0, 2, 40), np.zeros(40), np.arange(41))
    table = np.full((40, 2), 0.5)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    squared = np.einsum("ijk,k->ij", (scaled[:, None] - scaled) ** 2, [4.0, 0.25])
    apart = ~np.eye(40, dtype=bool)
    error = np.eye(2)[data.actions] - table
    kernel = np.exp(-squared / np.median(squared[apart]))
    expected = ((error @ error.T) * kernel)[apart].mean()
    found = kernel_error(table, data, feature_weights=[4.0, 0.25], n_draws=20, rng=0)
    assert found.value == pytest.approx(expected)


def test_a_number_far_below_a_null_without_spread_is_infinitely_far():
    assert AgainstNull(-0.1, 0.0, 0.0).z == -np.inf


def test_p_values_count_the_log_itself_once():
    draws = np.arange(99.0)
    assert against_draws(1000.0, draws).p_value == pytest.approx(0.01)
    assert against_draws(98.0, draws).p_value == pytest.approx(0.02)
    assert against_draws(-1.0, draws).p_value == 1.0


def test_halves_of_the_log_recalibrate_each_other():
    data = ward.simulate(40, rng=0)
    seen = []

    def counted(table, actions):
        seen.append(len(actions))
        return -np.log(table[np.arange(len(actions)), actions])

    split_loss(np.full((data.n_steps, 3), 1 / 3), data, counted, rng=0)
    halves = np.array(seen[1:3])
    assert halves.sum() == data.n_steps
    assert halves.min() > 0.35 * data.n_steps


# -- behaviour --


class OnlyCall:
    def __call__(self, p):
        return p


class OnlyFit:
    def fit(self, p, actions):
        return self


@pytest.mark.parametrize("wrong", [OnlyCall(), OnlyFit(), Temperature, None])
def test_what_is_no_calibrator_is_refused(wrong):
    data = ward.simulate(10, rng=0)
    with pytest.raises(TypeError, match="calibrator must be an unfitted calibrator"):
        recalibrate(LogisticRegression(), data, wrong, rng=0)
    with pytest.raises(TypeError, match="calibrator must be an unfitted calibrator"):
        recalibrate_fitted(cal.TabularPolicy(ward.PRACTICE), data, wrong)


def test_a_model_that_cannot_be_cloned_is_refused():
    class NoParameters:
        def fit(self, x, y):
            return self

    with pytest.raises(TypeError, match="model must be an unfitted scikit-learn classifier"):
        fit_behaviour(NoParameters(), ward.simulate(10, rng=0), mode="same")


def test_two_folds_are_enough_and_as_many_as_trajectories_too():
    data = ward.simulate(10, rng=0)
    assert fit_behaviour(LogisticRegression(), data, mode="cross", folds=2, rng=0).note.facts["folds"] == 2
    with pytest.raises(ValueError, match="2 folds, got 10 and 1"):
        fit_behaviour(LogisticRegression(), data, mode="cross", folds=1, rng=0)
    assert sorted(assign_folds(np.arange(5), 5, 0)) == [0, 1, 2, 3, 4]
    for k in (1, 6):
        with pytest.raises(ValueError, match=f"between 2 and the 5 trajectories, got {k}"):
            assign_folds(np.arange(5), k, 0)


def test_actions_beyond_the_columns_are_refused_by_a_calibrator():
    with pytest.raises(ValueError, match=r"actions"):
        Temperature().fit(np.full((3, 2), 0.5), np.array([0, 1, 2]))


# -- support --


@pytest.mark.parametrize(("share", "level"), [(0.0, None), (0.01, "caution"), (0.0101, "issue")])
def test_a_hundredth_of_the_target_without_support_is_an_issue(share, level):
    n = 1000
    data = cal.Trajectories(
        np.zeros((n, 1)), np.zeros(n, dtype=int), np.zeros(n), np.arange(n + 1), n_actions=2
    )
    target = np.tile([1 - share, share], (n, 1))
    notes = cal.gather(data, target, np.tile([1.0, 0.0], (n, 1))).notes
    found = [note for note in notes if note.code == "S101"]
    assert [note.level for note in found] == ([level] if level else [])
    if found:
        assert found[0].numbers["mass"] == pytest.approx(share)


# -- values --


@pytest.fixture(scope="module")
def log():
    return ward.simulate(120, rng=0)


def test_the_trace_of_fitted_values_is_a_root_mean_square(log):
    kept = []
    one = fitted_q(log, EARLIER, TabularRegressor(), gamma=1.0, n_iterations=1)
    two = fitted_q(log, EARLIER, TabularRegressor(), gamma=1.0, n_iterations=2, progress=kept.append)
    change = two.v(log.states) - one.v(log.states)
    assert kept[1].change == pytest.approx(np.sqrt((change**2).mean()))
    assert kept[1].largest == pytest.approx(np.abs(two.q_all(log.states)).max())
    assert kept[1].value == pytest.approx(two.v(log.states[log.layout.first]).mean())


def test_values_come_from_one_model_unless_asked(log):
    # A plain linear model shares its slope between the actions; a model per action does not.
    shared = fitted_q(log, EARLIER, LinearRegression(), gamma=0.5, n_iterations=1).q_all([[0.0], [1.0]])
    best = fitted_q_iteration(log, LinearRegression(), gamma=0.5, n_iterations=1).q_all([[0.0], [1.0]])
    own = fitted_q(log, EARLIER, LinearRegression(), gamma=0.5, n_iterations=1, per_action=True)
    for table in (shared, best):
        assert np.ptp(table[1] - table[0]) == pytest.approx(0, abs=1e-9)
    assert np.ptp(np.diff(own.q_all([[0.0], [1.0]]), axis=0)) > 1e-3


def test_values_of_actions_of_the_wrong_shape_are_refused(log):
    values = fitted_q(log, EARLIER, TabularRegressor(), gamma=1.0, n_iterations=1)
    for wrong in ([0], [[0], [1]], [0.0, 1.0]):
        with pytest.raises(ValueError, match=r"whole numbers of shape \(2,\)"):
            values.q([[0.0], [1.0]], wrong)


@pytest.mark.parametrize("t", [-1, 99])
def test_values_of_a_step_that_has_none_are_refused(log, t):
    values = fitted_q_by_time(log, EARLIER, TabularRegressor(), gamma=1.0)
    with pytest.raises(ValueError, match=f"not for {t}"):
        values.q_all([[0.0]], t)


def test_the_interval_of_linear_values_covers_and_is_not_too_wide():
    # One step, one state, one action of interest: the value is a weighted mean, with the standard error of a mean.
    rng = np.random.default_rng(0)
    n = 400
    rewards = 5 + rng.normal(size=n)
    data = cal.Trajectories(np.zeros((n, 1)), np.zeros(n, dtype=int), rewards, np.arange(n + 1), n_actions=1)
    found = linear_value(data, np.ones((n, 1)), gamma=1.0, features=lambda x: np.ones((len(x), 1)))
    arm = stats.t.ppf(0.975, n - 1) * rewards.std(ddof=1) / np.sqrt(n)
    assert found.value == pytest.approx(rewards.mean())
    assert found.interval.width == pytest.approx(2 * arm)


def test_the_last_step_of_a_cut_off_trajectory_has_no_weight_in_robust_values():
    ends = np.arange(60) % 3 > 0
    data = ward.simulate(60, rng=0).replace(terminated=ends)
    e = cal.gather(data, EARLIER, data["behaviour"], gamma=0.9)
    weight, weighted_return = _weigh_steps(e, data, np.ones(data.n_steps))
    cut = data.layout.last[~ends]
    assert (weight[cut] == 0).all()
    assert (weighted_return[cut] == 0).all()
    assert (weight[data.layout.last[ends]] > 0).all()
    assert np.isfinite(
        more_robust_q(data, EARLIER, cal.TabularPolicy(ward.PRACTICE), gamma=0.9).coefficients
    ).all()
