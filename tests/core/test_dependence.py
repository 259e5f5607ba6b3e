"""Neighbours in the file that hang together: the test, the inflation, and the interval that is widened by it."""

import numpy as np
import pytest
from scipy import stats

import caliope as cal
from caliope.uncertainty._dependence import WINDOWS, find_dependence, inflation, stretch
from caliope.weights import clip_weights


def naive_inflation(u, windows):
    """Bartlett's windows, as loops."""
    n, mean = len(u), sum(u) / len(u)
    variance = sum((x - mean) ** 2 for x in u)
    best = 1.0
    for window in windows:
        total = 1.0
        for lag in range(1, window + 1):
            rho = sum((u[i] - mean) * (u[i + lag] - mean) for i in range(n - lag)) / variance
            total += 2 * (1 - lag / (window + 1)) * rho
        quantile = stats.t.ppf(0.975, 1.5 * n / window) / stats.norm.ppf(0.975)
        best = max(best, total**0.5 * quantile if total > 0 else 0.0)
    return best


@pytest.mark.parametrize("seed", range(3))
def test_the_inflation_is_that_of_the_loops(seed):
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.normal(size=30), 4) + rng.normal(size=120)
    assert inflation(u, [1, 3, 10]) == pytest.approx(naive_inflation(u.tolist(), [1, 3, 10]), rel=1e-9)
    assert find_dependence(u).factor == pytest.approx(naive_inflation(u.tolist(), [1, 3, 10]), rel=1e-9)
    assert inflation(np.tile([1.0, -1.0], 60), [1, 3]) == 1.0  # neighbours that differ shorten nothing


def test_the_statistic_is_standardised_for_a_random_order():
    rng = np.random.default_rng(0)
    z = [find_dependence(rng.exponential(size=150)).z for _ in range(300)]
    # The largest of four correlated standard normals: mean about 0.7 and spread 0.85, errors 0.05 and 0.035.
    assert np.mean(z) == pytest.approx(0.7, abs=0.2)
    assert np.std(z) == pytest.approx(0.85, abs=0.14)


KINDS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "binary": lambda rng, n: (rng.random(n) < 0.1) * 1.0,
    "rare": lambda rng, n: (rng.random(n) < 0.01) * 1.0,
    "heavy": lambda rng, n: np.exp(1.5 * rng.normal(size=n)) * rng.normal(size=n),
    "cauchy": lambda rng, n: rng.standard_cauchy(n),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_independent_neighbours_are_hardly_ever_reported(kind):
    rng = np.random.default_rng(4)
    clear = sum(find_dependence(KINDS[kind](rng, 300)).clear for _ in range(300))
    assert clear <= 6  # 1.5 expected at 0.005; more than 6 has probability 0.001


@pytest.mark.parametrize(("groups", "size", "share"), [(30, 20, 0.3), (200, 3, 0.6), (12, 50, 0.3)])
def test_clusters_that_stand_together_are_found(groups, size, share):
    rng = np.random.default_rng(1)
    for _ in range(5):
        level = np.repeat(rng.normal(size=groups), size)
        u = np.sqrt(share) * level + np.sqrt(1 - share) * rng.normal(size=groups * size)
        found = find_dependence(u)
        assert found.clear
        true = np.sqrt(1 + (size - 1) * share)
        assert 0.5 * true < found.factor < 1.8 * true


def test_too_few_and_constant_and_undefined_entries_tell_nothing():
    for u in (np.repeat([0.0, 1.0], 20), np.zeros(300), np.full(300, np.nan)):
        assert find_dependence(u).factor == 1.0
        assert not find_dependence(u).clear
    assert max(WINDOWS) == 100


def test_a_log_of_many_units_needs_no_permutations():
    rng = np.random.default_rng(0)
    assert not find_dependence(rng.normal(size=30_000)).clear
    assert find_dependence(np.repeat(rng.normal(size=3_000), 10)).clear


def test_stretching_keeps_the_estimate_and_the_proportion():
    interval = cal.Interval(1.0, 4.0, 0.95, "x")
    wide = stretch(interval, 2.0, 1.5)
    assert (wide.low, wide.high) == (0.5, 5.0)
    assert stretch(interval, 2.0, 1.0) is interval
    outside = stretch(interval, 5.0, 2.0)  # an estimate outside its own interval
    assert (outside.low, outside.high) == (-3.0, 5.0)
    assert stretch(interval, float("nan"), 2.0) is interval


def evidence(level, *, seed=0, groups=60, size=5, cluster=None):
    rng = np.random.default_rng(seed)
    n = groups * size
    rewards = level * np.repeat(rng.normal(size=groups), size) + rng.normal(size=n)
    log_ratio = np.log(rng.choice([0.5, 1.5], size=n))
    return cal.Evidence(rewards, log_ratio, np.arange(n + 1), cluster=cluster, behaviour_known=True)


def test_an_interval_of_neighbours_that_hang_together_is_widened_and_the_others_stay():
    e = evidence(1.5)
    plain = cal.bootstrap(cal.wis, e, n_draws=300, rng=0)
    row = cal.estimate(e, cal.wis, cal.difference(cal.wis), n_draws=300, rng=0)["wis"]
    found = next(f for f in row.findings if f.code == "L108")
    assert found.level == "caution"
    assert row.verdict == "caution"
    factor = found.facts["factor"]
    assert factor > 1.3
    assert row.interval.high == pytest.approx(row.value + factor * (plain.high - row.value))
    assert row.interval.low == pytest.approx(row.value - factor * (row.value - plain.low))
    assert row.interval.method.endswith(f"widened {factor:.2f} times")
    assert "Neighbouring trajectories in the file hang together" in found.message
    independent = evidence(0.0)
    same = cal.estimate(independent, cal.wis, n_draws=300, rng=0)[0]
    assert same.interval == cal.bootstrap(cal.wis, independent, n_draws=300, rng=0)
    assert "L108" not in {f.code for f in same.findings}


def test_with_the_cluster_named_there_is_nothing_left_to_find():
    e = evidence(1.5, cluster=np.repeat(np.arange(60), 5))
    row = cal.estimate(e, cal.wis, n_draws=300, rng=0)[0]
    assert "L108" not in {f.code for f in row.findings}
    assert row.interval.width > 1.3 * cal.bootstrap(cal.wis, evidence(1.5), n_draws=300, rng=0).width


def test_neighbouring_clusters_may_hang_together_too():
    e = evidence(2.0, groups=60, size=10, cluster=np.repeat(np.arange(300), 2))
    found = [f for f in cal.estimate(e, cal.monte_carlo, n_draws=100, rng=0)[0].findings if f.code == "L108"]
    assert "Neighbouring clusters" in found[0].message


def test_an_estimator_without_an_influence_is_judged_by_the_returns():
    e = clip_weights(evidence(1.5))
    row = cal.estimate(e, lambda e: 2 * cal.wis(e), n_draws=100, rng=0)[0]
    assert "L108" in {f.code for f in row.findings}

    @cal.estimators.estimator(uses={"weights"}, normalised=True)
    def picky(e):
        """Not differentiable."""
        if not isinstance(e.counts, np.ndarray | None):
            raise TypeError("no derivative")
        return cal.wis(e)

    assert "L108" in {f.code for f in cal.estimate(e, picky, n_draws=100, rng=0)[0].findings}
