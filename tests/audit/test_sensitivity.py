"""Bounds under unmeasured confounding: against a linear programme, and where they overturn a comparison."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog

import caliope as cal
from caliope.sensitivity import bounds, breakdown


def evidence(rng, n=12):
    return cal.Evidence(rng.normal(size=n), rng.normal(size=n), np.arange(n + 1))


def by_linear_programme(e, factor):
    """Charnes-Cooper: weights v that sum to 1, each between rho t / factor and factor rho t for some t > 0."""
    rho, n = e.rho, len(e)
    upper = np.hstack([np.eye(n), -factor * rho[:, None]])
    lower = np.hstack([-np.eye(n), rho[:, None] / factor])
    ends = []
    for sign in (1, -1):
        found = linprog(
            np.append(sign * e.returns, 0.0),
            A_ub=np.vstack([upper, lower]),
            b_ub=np.zeros(2 * n),
            A_eq=[np.append(np.ones(n), 0.0)],
            b_eq=[1.0],
            bounds=(0, None),
        )
        ends.append(sign * found.fun)
    return ends


@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0, 10.0])
def test_bounds_are_those_of_the_linear_programme(factor):
    for seed in range(5):
        e = evidence(np.random.default_rng(seed))
        found = bounds(e, factor)
        assert [found.low, found.high] == pytest.approx(by_linear_programme(e, factor))


def test_without_confounding_they_are_the_estimate_and_they_widen():
    e = evidence(np.random.default_rng(0), n=50)
    assert bounds(e, 1.0).low == pytest.approx(cal.wis(e))
    ends = [bounds(e, factor) for factor in (1.0, 1.5, 3.0, 1e5)]
    assert all(a.low >= b.low and a.high <= b.high for a, b in pairwise(ends))
    assert ends[-1].low == pytest.approx(e.returns.min(), abs=1e-3)


def test_the_breakdown_is_where_a_bound_meets_practice():
    for seed in range(6):
        e = evidence(np.random.default_rng(seed), n=40)
        found = breakdown(e)
        ends = bounds(e, found.factor)
        better = found.estimate > found.baseline
        assert (ends.low if better else ends.high) == pytest.approx(found.baseline, abs=1e-6)
        assert ("better" if better else "worse") in str(found)


def test_where_nothing_overturns_it():
    e = cal.Evidence([1.0, 2.0], np.zeros(2), [0, 1, 2])
    assert breakdown(e, baseline=0.5).factor == np.inf
    assert "no factor" in str(breakdown(e, baseline=0.5))


def test_no_weight_at_all_has_no_bounds():
    e = cal.Evidence([1.0, 2.0], np.full(2, -np.inf), [0, 1, 2])
    assert np.isnan(bounds(e, 2.0).low)
    assert np.isnan(breakdown(e).factor)


def test_a_factor_below_one_is_refused():
    with pytest.raises(ValueError, match=r"factor must be a number from 1, got 0\.5"):
        bounds(evidence(np.random.default_rng(0)), 0.5)
