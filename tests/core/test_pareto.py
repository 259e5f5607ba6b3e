import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import genpareto

from caliope.weights._pareto import fit_pareto, khat_threshold, smooth_tail, tail_size


def naive_fit(excess):
    """Zhang & Stephens (2009), section 4, with k of the opposite sign; in loops, and without a prior for k."""
    x = sorted(excess)
    n = len(x)
    m = 30 + int(np.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    theta, likelihood = [], []
    for j in range(1, m + 1):
        b = 1 / x[-1] + (1 - np.sqrt(m / (j - 0.5))) / (3 * quartile)
        k = sum(np.log1p(-b * value) for value in x) / n
        theta.append(b)
        likelihood.append(n * (np.log(-b / k) - k - 1))
    weight = [1 / sum(np.exp(other - own) for other in likelihood) for own in likelihood]
    b = sum(w * t for w, t in zip(weight, theta, strict=True))
    k = sum(np.log1p(-b * value) for value in x) / n
    return k, -k / b


@pytest.mark.parametrize("k", [-0.3, 0.2, 0.9])
@pytest.mark.parametrize("n", [5, 6, 60])
def test_the_fit_agrees_with_a_loop_over_the_published_formula(n, k):
    x = genpareto.rvs(k, scale=2.0, size=n, random_state=n)
    shape, scale = naive_fit(x)
    # The prior of Vehtari et al.: ten observations that say 0.5.
    assert fit_pareto(x) == pytest.approx(((n * shape + 10 * 0.5) / (n + 10), scale), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [0.2, 0.5, 0.9])
def test_the_shape_and_scale_of_a_pareto_sample_are_recovered(k, seed):
    n, sigma = 4000, 3.0
    found, scale = fit_pareto(genpareto.rvs(k, scale=sigma, size=n, random_state=seed))
    # Asymptotic sd of the maximum likelihood estimates: (1 + k) / sqrt(n) for k, sigma sqrt(2 (1 + k) / n) for
    # sigma; four of each. The prior moves k by at most 10 * |0.5 - k| / (n + 10).
    assert abs(found - k) < 4 * (1 + k) / np.sqrt(n) + 10 * abs(0.5 - k) / (n + 10)
    assert abs(scale - sigma) < 4 * sigma * np.sqrt(2 * (1 + k) / n)


def test_a_heavier_tail_has_a_larger_shape():
    # The sign: in Zhang & Stephens a heavy tail has negative k, in Vehtari et al. and here a positive one.
    p = (np.arange(1, 201) - 0.5) / 200
    shapes = [fit_pareto(genpareto.ppf(p, k))[0] for k in (-0.4, 0.0, 0.4, 0.8)]
    assert shapes == sorted(shapes)
    assert shapes[0] < 0 < shapes[2]


def test_the_prior_pulls_a_small_sample_most_of_the_way_to_one_half():
    # Evenly spaced excesses look like a bounded tail. Five of them stand against the ten of the prior.
    x = np.arange(1.0, 6.0)
    alone, _ = naive_fit(x)
    assert alone < 0
    assert fit_pareto(x)[0] - 0.5 == pytest.approx((alone - 0.5) / 3)  # 5 / (5 + 10)


def test_the_shape_does_not_depend_on_the_unit():
    x = genpareto.rvs(0.6, size=50, random_state=0)
    k, sigma = fit_pareto(x)
    assert fit_pareto(1000 * x) == pytest.approx((k, 1000 * sigma), rel=1e-9)


@pytest.mark.parametrize(
    ("n", "size"),
    [
        (20, 4),  # a fifth: 4
        (25, 5),
        (101, 21),  # a fifth, 20.2, rounded up
        (225, 45),  # where a fifth, 45, meets three times the root, 3 * 15
        (400, 60),  # 3 * 20
        (1000, 95),  # 3 * 31.6 = 94.9
    ],
)
def test_the_tail_is_a_fifth_and_at_most_three_times_the_root(n, size):
    assert tail_size(n) == size


# -- smoothing ----------------------------------------------------------------------------------------


def test_the_tail_is_replaced_by_quantiles_of_the_fitted_pareto():
    weights = np.random.default_rng(0).permutation(np.exp(np.random.default_rng(1).normal(size=100)))
    tail = smooth_tail(weights)
    order = np.argsort(weights)
    cutoff = weights[order[-21]]  # the tail is 20 of 100
    k, sigma = fit_pareto(weights[order[-20:]] - cutoff)
    # Order statistic j of 20 is placed at the quantile (j - 1/2) / 20, and none above the largest seen.
    quantiles = cutoff + genpareto.ppf((np.arange(20) + 0.5) / 20, k, scale=sigma)
    assert tail.weights[order[-20:]] == pytest.approx(np.minimum(quantiles, weights.max()), rel=1e-10)
    assert tail.k == k
    assert np.array_equal(tail.weights[order[:-20]], weights[order[:-20]])


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(25, 300), st.floats(0.1, 3.0), st.floats(0.0, 0.7), st.integers(0, 10_000))
def test_smoothing_keeps_the_order_the_zeros_and_the_maximum(n, spread, share_of_zeros, seed):
    rng = np.random.default_rng(seed)
    weights = np.exp(rng.normal(scale=spread, size=n)) * (rng.random(n) >= share_of_zeros)
    before = weights.copy()
    smoothed = smooth_tail(weights).weights
    assert np.array_equal(weights, before)
    assert np.isfinite(smoothed).all()
    assert smoothed.max() <= weights.max()
    assert (smoothed[weights == 0] == 0).all()
    assert (smoothed[weights > 0] > 0).all()
    assert (np.diff(smoothed[np.argsort(weights, kind="stable")]) >= 0).all()


def test_smoothing_is_indifferent_to_a_common_factor():
    weights = np.exp(np.random.default_rng(2).normal(size=200))
    one, other = smooth_tail(weights), smooth_tail(weights * 1e-200)
    assert other.k == pytest.approx(one.k, rel=1e-9)
    assert other.weights * 1e200 == pytest.approx(one.weights, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_too_few_weights_are_left_as_they_are(n):
    # The tail of 20 is 4, fewer than five.
    weights = np.exp(np.random.default_rng(0).normal(size=n))
    tail = smooth_tail(weights)
    assert np.array_equal(tail.weights, weights)
    assert np.isnan(tail.k)


def test_equal_weights_are_left_as_they_are():
    tail = smooth_tail(np.ones(100))
    assert np.array_equal(tail.weights, np.ones(100))
    assert np.isnan(tail.k)


def test_a_heavy_tail_above_many_equal_weights_is_not_overlooked():
    # A target that departs from practice rarely: 950 trajectories share one weight and 50 hold a tail of shape
    # 1.25, without a mean. The tail of 1000 is 95, so its lower half ties with the cut-off.
    heavy = 1 + genpareto.rvs(1.25, size=50, random_state=0)
    tail = smooth_tail(np.concatenate([np.full(950, 0.9), heavy]))
    assert tail.k > 0.7


def test_a_heavy_tail_above_many_zeros_is_not_overlooked():
    # A deterministic target: 910 of 1000 trajectories have weight zero, and so has the cut-off of a tail of 95.
    heavy = genpareto.rvs(1.25, size=90, random_state=0)
    tail = smooth_tail(np.concatenate([np.zeros(910), heavy]))
    assert tail.k > 0.7


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (5, 0.0),
        (10, 0.0),  # 1 - 1 / 1
        (100, 0.5),  # 1 - 1 / 2
        (200, 0.5654),  # log10(200) = 2.30103, 1 - 0.43459
        (1000, 2 / 3),
        (2200, 0.7),  # 1 - 1 / 3.3424 = 0.7008, and never above 0.7
        (10**6, 0.7),
    ],
)
def test_the_threshold_rises_with_the_sample_up_to_0_7(n, expected):
    assert khat_threshold(n) == pytest.approx(expected, abs=1e-4)
