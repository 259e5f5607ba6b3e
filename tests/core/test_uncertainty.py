import numpy as np
import pytest
from scipy import stats

import caliope as cal
from caliope.domains import ward
from caliope.uncertainty import _resampling
from conftest import ESTIMATORS, SELF_NORMALISED, random_evidence
from support import naive

every = pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS)


@pytest.fixture(scope="module")
def e():
    return random_evidence(seed=11, n=40, spread=0.4)


# -- the schemes --


@pytest.mark.parametrize(
    "scheme",
    [cal.uncertainty.with_replacement, cal.uncertainty.without_replacement, cal.uncertainty.bayesian],
)
def test_counts_of_a_resample_sum_to_its_size(scheme):
    counts = scheme(50, 20, 7, np.random.default_rng(0))
    assert counts.shape == (7, 50)
    assert counts.sum(axis=1) == pytest.approx(np.full(7, 20.0))
    assert (counts >= 0).all()


def test_without_replacement_no_trajectory_occurs_twice():
    counts = cal.uncertainty.without_replacement(10, 6, 50, np.random.default_rng(0))
    assert set(np.unique(counts)) == {0.0, 1.0}
    with pytest.raises(ValueError, match="11 different trajectories cannot be drawn from 10"):
        cal.uncertainty.without_replacement(10, 11, 1, np.random.default_rng(0))


def test_bayesian_weights_never_lose_a_trajectory():
    assert (cal.uncertainty.bayesian(100, 100, 50, np.random.default_rng(0)) > 0).all()


def test_counts_with_replacement_have_the_moments_of_a_multinomial():
    counts = cal.uncertainty.with_replacement(20, 20, 20_000, np.random.default_rng(0))
    # Each count is binomial(20, 1/20): mean 1, variance 0.95; standard errors 0.007 and 0.02 (four of each).
    assert counts[:, 3].mean() == pytest.approx(1.0, abs=0.03)
    assert counts[:, 3].var() == pytest.approx(0.95, abs=0.08)


def test_the_blocks_of_counts_do_not_affect_the_numbers(e, monkeypatch):
    for scheme in (
        cal.uncertainty.with_replacement,
        cal.uncertainty.without_replacement,
        cal.uncertainty.bayesian,
    ):
        together = np.concatenate(list(_blocks(e, scheme)))
        monkeypatch.setattr(_resampling, "CELLS", 7 * len(e))
        assert len(list(_blocks(e, scheme))) == 8  # 50 draws, 7 at a time
        assert np.array_equal(np.concatenate(list(_blocks(e, scheme))), together)
        monkeypatch.undo()


def _blocks(e, scheme):
    return _resampling.count_blocks(len(e), 50, scheme=scheme, rng=np.random.default_rng(3))


def test_the_same_seed_gives_the_same_draws_and_another_does_not(e):
    assert np.array_equal(
        cal.uncertainty.draws(cal.wis, e, n_draws=9, rng=1),
        cal.uncertainty.draws(cal.wis, e, n_draws=9, rng=1),
    )
    assert not np.array_equal(
        cal.uncertainty.draws(cal.wis, e, n_draws=9, rng=1),
        cal.uncertainty.draws(cal.wis, e, n_draws=9, rng=2),
    )


@every
def test_draws_are_the_estimator_on_copied_trajectories(estimator, e):
    drawn = cal.uncertainty.draws(estimator, e, n_draws=4, rng=5)
    counts = cal.uncertainty.with_replacement(len(e), len(e), 4, np.random.default_rng(5))
    slow = [getattr(naive, estimator.__name__)(naive.trajectories(e, row), e.gamma) for row in counts]
    assert drawn == pytest.approx(slow, rel=1e-10)


def test_a_resample_without_the_giant_is_still_a_number():
    # One trajectory outweighs the others by e^800: beside it they vanish, without it they are as good as ever.
    e = cal.Evidence([7.0, 1.0, 3.0], [800.0, 0.0, 0.0], [0, 1, 2, 3])
    counts = np.array([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    assert _resampling.evaluate(cal.wis, e, counts).tolist() == [2.0, 7.0]
    assert cal.uncertainty.leave_one_out(cal.wis, e).tolist() == [2.0, 7.0, 7.0]


# -- leave one out, influence --


@pytest.mark.slow
@every
def test_leave_one_out_is_the_formula_without_it(estimator, e):
    slow = getattr(naive, estimator.__name__)
    xs = naive.trajectories(e)
    expected = [slow(xs[:i] + xs[i + 1 :], e.gamma) for i in range(len(xs))]
    assert cal.uncertainty.leave_one_out(estimator, e) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", SELF_NORMALISED)
@pytest.mark.parametrize("scale", [30.0, 60.0])
def test_leaving_out_a_trajectory_that_dominates_loses_no_digits(name, scale):
    # Its weight is e^30 and e^60 times the others': taken away by subtraction, nothing but rounding would remain.
    e = random_evidence(seed=2, n=10)
    log_ratio = e.log_ratio.copy()
    log_ratio[e.offsets[4]] += scale
    e = cal.Evidence(e.rewards, log_ratio, e.offsets, e.gamma, q=e.q, v=e.v)
    xs = naive.trajectories(e)
    expected = getattr(naive, name)(xs[:4] + xs[5:], e.gamma)
    assert cal.uncertainty.leave_one_out(ESTIMATORS[name], e)[4] == pytest.approx(expected, rel=1e-9)


@every
def test_influence_is_the_derivative_in_the_count(estimator, e):
    step = 1e-6
    nudged = estimator(e.with_counts(1 + step * np.eye(len(e)))) - estimator(
        e.with_counts(1 - step * np.eye(len(e)))
    )
    assert cal.uncertainty.influence(estimator, e) == pytest.approx(len(e) * nudged / (2 * step), abs=1e-6)


@every
def test_influences_sum_to_zero(estimator, e):
    # Counting everyone twice changes no estimate, so the derivative along (1, ..., 1) is 0.
    assert abs(cal.uncertainty.influence(estimator, e).sum()) < 1e-8


def test_the_influence_of_wis_is_its_closed_form(e):
    w, n = e.rho[e.layout.last], len(e)
    assert cal.uncertainty.influence(cal.wis, e) == pytest.approx(
        n * w * (e.returns - cal.wis(e)) / w.sum(), rel=1e-10
    )


def test_the_influence_on_an_average_over_lengths_is_that_inside_each_length():
    # Of each length apart: its share times the influence inside it, and its distance from the average.
    e = random_evidence(seed=4, n=60, spread=0.3)
    lengths, expected = np.diff(e.offsets), np.empty(len(e))
    for length in np.unique(lengths):
        members = np.flatnonzero(lengths == length)
        part = e.take(members)
        expected[members] = (
            cal.uncertainty.influence(cal.wdr, part) + float(cal.wdr(part)) - float(cal.phwdr(e))
        )
    assert len(np.unique(lengths)) > 3
    assert cal.uncertainty.influence(cal.phwdr, e) == pytest.approx(expected, abs=1e-10)


def test_the_influence_of_stepwise_wis_is_its_closed_form():
    e = random_evidence(seed=1, n=15, longest=4, equal=True)
    r, w = e.rewards.reshape(15, 4), e.rho.reshape(15, 4)
    share = w / w.sum(axis=0)
    mean = (share * r).sum(axis=0)
    expected = (e.discount * 15 * share * (r - mean)).sum(axis=1)
    assert cal.uncertainty.influence(cal.step_wis, e) == pytest.approx(expected, rel=1e-10)


# -- intervals --


def test_the_percentile_interval_is_between_the_quantiles_of_the_draws(e):
    drawn = cal.uncertainty.draws(cal.wis, e, n_draws=400, rng=0)
    interval = cal.bootstrap(cal.wis, e, n_draws=400, level=0.9, rng=0)
    assert (interval.low, interval.high) == pytest.approx(tuple(np.quantile(drawn, [0.05, 0.95])))
    assert interval.level == 0.9


def test_bca_agrees_with_scipy_on_a_mean():
    e = random_evidence(seed=4, n=80)
    ours = cal.uncertainty.bca(cal.monte_carlo, e, n_draws=20_000, rng=0)
    theirs = stats.bootstrap(
        (e.returns,), np.mean, n_resamples=20_000, method="BCa", rng=np.random.default_rng(1)
    )
    # Two independent sets of 20,000 draws: a 2.5% quantile has a Monte Carlo error of about 0.02 standard errors.
    tolerance = 0.1 * theirs.standard_error
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=tolerance)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=tolerance)


def test_bca_moves_the_interval_towards_the_long_tail():
    rng = np.random.default_rng(0)
    e = cal.Evidence(rng.exponential(size=60) ** 2, np.zeros(60), np.arange(61))
    plain, moved = (f(cal.monte_carlo, e, n_draws=4000, rng=0) for f in (cal.bootstrap, cal.uncertainty.bca))
    assert moved.low > plain.low
    assert moved.high > plain.high


def test_the_jackknife_of_a_mean_is_the_t_interval():
    e = random_evidence(n=25)
    expected = stats.t.interval(0.95, 24, loc=e.returns.mean(), scale=stats.sem(e.returns))
    for interval in (
        cal.uncertainty.jackknife(cal.monte_carlo, e),
        cal.uncertainty.delta_method(cal.monte_carlo, e),
    ):
        assert (interval.low, interval.high) == pytest.approx(expected)


def test_the_delta_method_of_wis_is_its_textbook_formula(e):
    w = e.final_weight / e.final_weight.sum()
    n = len(e)
    se = np.sqrt(((w * (e.returns - cal.wis(e))) ** 2).sum() * n / (n - 1))
    interval = cal.uncertainty.delta_method(cal.wis, e)
    assert interval.width == pytest.approx(2 * stats.t.ppf(0.975, n - 1) * se)


@pytest.mark.slow
@pytest.mark.parametrize("name", SELF_NORMALISED)
def test_all_intervals_agree_where_there_is_nothing_to_disagree_about(name):
    data = ward.simulate(3000, rng=0)
    q = np.zeros((data.n_steps, 3))
    e = cal.gather(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"], q=q)
    widths = [
        cal.bootstrap(ESTIMATORS[name], e, n_draws=1000, rng=0).width,
        cal.bootstrap(ESTIMATORS[name], e, n_draws=1000, scheme=cal.uncertainty.bayesian, rng=0).width,
        cal.uncertainty.delta_method(ESTIMATORS[name], e).width,
        cal.uncertainty.jackknife(ESTIMATORS[name], e).width,
    ]
    # Monte Carlo error of a width from 1000 draws: about 3%.
    assert max(widths) / min(widths) < 1.15


def test_draws_without_weight_are_reported_and_too_many_leave_no_interval():
    # One of n trajectories has weight: it is missing from (1 - 1/n)^n = 36% of the resamples.
    e = cal.Evidence(np.ones(30), [0.0, *[-np.inf] * 29], np.arange(31))
    interval = cal.bootstrap(cal.wis, e, n_draws=300, rng=0)
    assert np.isnan([interval.low, interval.high]).all()
    assert [f.code for f in interval.findings] == ["U102"]
    assert interval.findings[0].level == "issue"
    assert interval.findings[0].numbers["share"] == pytest.approx(0.36, abs=0.1)
    # A few missing draws leave an interval, with a caution: 4 of 30 are all missing in (26/30)^30 = 1.4%.
    e = cal.Evidence(np.arange(30.0), [*[0.0] * 4, *[-np.inf] * 26], np.arange(31))
    interval = cal.bootstrap(cal.wis, e, n_draws=500, rng=0)
    assert np.isfinite([interval.low, interval.high]).all()
    assert interval.findings[0].level == "caution"


def test_where_all_rests_on_one_trajectory_the_jackknife_says_so():
    e = cal.Evidence(np.ones(30), [0.0, *[-np.inf] * 29], np.arange(31))
    for interval in (
        cal.uncertainty.jackknife(cal.wis, e),
        cal.uncertainty.bca(cal.wis, e, n_draws=50, rng=0),
    ):
        assert np.isnan(interval.low)
        assert interval.findings[0].level == "issue"
    found = cal.uncertainty.jackknife(cal.wis, e).findings[0]
    assert (found.code, found.numbers) == ("U103", {"trajectories": 1})


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_a_level_outside_zero_to_one_is_refused(level, e):
    for interval in (
        lambda: cal.bootstrap(cal.wis, e, n_draws=9, level=level, rng=0),
        lambda: cal.uncertainty.bca(cal.wis, e, n_draws=9, level=level, rng=0),
        lambda: cal.uncertainty.jackknife(cal.wis, e, level=level),
        lambda: cal.uncertainty.delta_method(cal.wis, e, level=level),
    ):
        with pytest.raises(ValueError, match="level must lie between 0 and 1"):
            interval()


def test_evidence_that_carries_counts_is_not_resampled_again(e):
    counted = e.with_counts(np.ones(len(e)))
    for f in (
        lambda: cal.uncertainty.draws(cal.wis, counted, n_draws=2, rng=0),
        lambda: cal.uncertainty.leave_one_out(cal.wis, counted),
        lambda: cal.uncertainty.influence(cal.wis, counted),
    ):
        with pytest.raises(ValueError, match="already carries counts"):
            f()


def test_one_trajectory_has_no_standard_error():
    e = random_evidence(n=1)
    for interval in (cal.uncertainty.jackknife, cal.uncertainty.delta_method):
        with pytest.raises(ValueError, match="at least 2 trajectories"):
            interval(cal.wis, e)


# -- the paired difference --


def test_the_difference_to_practice_is_paired():
    data = ward.simulate(1500, rng=1)
    e = cal.gather(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"])
    gain = cal.difference(cal.wis)
    assert gain(e) == pytest.approx(cal.wis(e) - cal.monte_carlo(e))
    paired = cal.bootstrap(gain, e, n_draws=800, rng=0).width
    # What both share cancels: narrower than two independent intervals put together.
    apart = np.hypot(
        cal.bootstrap(cal.wis, e, n_draws=800, rng=0).width,
        cal.bootstrap(cal.monte_carlo, e, n_draws=800, rng=0).width,
    )
    assert paired < 0.8 * apart
    assert gain.__name__ == "difference_wis"
    assert gain.__doc__ == "Weighted importance sampling, minus current practice."


def test_practice_does_not_differ_from_itself():
    data = ward.simulate(100, rng=2)
    e = cal.gather(data, cal.practice, data["behaviour"])
    interval = cal.bootstrap(cal.difference(cal.wis), e, n_draws=100, rng=0)
    assert interval.low == pytest.approx(0.0, abs=1e-12)
    assert interval.high == pytest.approx(0.0, abs=1e-12)


# -- the paper's resampled error --


def test_the_resampled_error_is_bias_squared_plus_variance(e):
    result = cal.uncertainty.resampled_mse(cal.wis, e, truth=0.3, size=20, n_draws=200, rng=0)
    drawn = cal.uncertainty.draws(cal.wis, e, n_draws=200, size=20, rng=0)
    assert result.mse == pytest.approx(np.mean((drawn - 0.3) ** 2))
    assert result.mse == pytest.approx(result.bias**2 + result.variance)
    assert result.mse_se == pytest.approx(np.std((drawn - 0.3) ** 2) / np.sqrt(200))


def test_the_resampled_error_of_the_mean_return_is_its_variance_over_n(e):
    # With replacement, samples of 200 of the log's own mean: var(G) / 200, bias 0.
    result = cal.uncertainty.resampled_mse(cal.monte_carlo, e, truth=e.returns.mean(), n_draws=4000, rng=0)
    expected = e.returns.var() / 200
    # A variance from 4000 draws has a relative standard error of sqrt(2 / 4000) = 2.2%: four of them.
    assert result.mse == pytest.approx(expected, rel=0.09)
    assert (result.size, result.n_draws, result.failed) == (200, 4000, 0)


def test_samples_without_replacement_of_everything_have_no_variance(e):
    result = cal.uncertainty.resampled_mse(
        cal.wis, e, truth=0.0, size=len(e), n_draws=5, scheme=cal.uncertainty.without_replacement, rng=0
    )
    assert result.variance == pytest.approx(0, abs=1e-25)
    assert result.bias == pytest.approx(cal.wis(e))


def test_samples_without_any_weight_are_counted_and_left_out():
    e = cal.Evidence(np.ones(30), [0.0, *[-np.inf] * 29], np.arange(31))
    result = cal.uncertainty.resampled_mse(cal.wis, e, truth=1.0, size=30, n_draws=200, rng=0)
    assert result.failed > 0
    assert result.mse == pytest.approx(0.0, abs=1e-25)
    assert f"{result.failed} samples had no finite value" in str(result)
