"""Bounds under unrecorded reasons: against a linear programme, at their ends, and where they overturn a comparison."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import linprog

import caliope as cal
from caliope.confounding import breakdown, confounding_bounds


def evidence(rng, n=12):
    return cal.Evidence(rng.normal(size=n), rng.normal(size=n), np.arange(n + 1))


def by_linear_programme(e, gamma):
    """Charnes-Cooper: weights v that sum to 1, each between rho t / gamma and gamma rho t for some t > 0."""
    rho, n = e.rho, len(e)
    upper = np.hstack([np.eye(n), -gamma * rho[:, None]])
    lower = np.hstack([-np.eye(n), rho[:, None] / gamma])
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


@pytest.mark.parametrize("gamma", [1.0, 1.3, 2.0, 10.0])
def test_bounds_are_those_of_the_linear_programme(gamma):
    for seed in range(5):
        e = evidence(np.random.default_rng(seed))
        found = confounding_bounds(e, gamma)
        assert [found.low, found.high] == pytest.approx(by_linear_programme(e, gamma))


def test_without_confounding_they_are_the_estimate_and_they_widen():
    e = evidence(np.random.default_rng(0), n=50)
    assert confounding_bounds(e, 1.0).low == pytest.approx(cal.wis(e))
    ends = [confounding_bounds(e, gamma) for gamma in (1.0, 1.5, 3.0, 1e5)]
    assert all(a.low >= b.low and a.high <= b.high for a, b in pairwise(ends))
    assert ends[-1].low == pytest.approx(e.returns.min(), abs=1e-3)


def test_the_breakdown_is_where_a_bound_meets_practice():
    for seed in range(6):
        e = evidence(np.random.default_rng(seed), n=40)
        found = breakdown(e)
        bounds = confounding_bounds(e, found.gamma)
        better = found.estimate > found.practice
        assert (bounds.low if better else bounds.high) == pytest.approx(found.practice, abs=1e-6)
        assert ("better" if better else "worse") in str(found)


def test_where_nothing_overturns_it():
    e = cal.Evidence([1.0, 2.0], np.zeros(2), [0, 1, 2])
    assert breakdown(e, practice=0.5).gamma == np.inf
    assert "no factor" in str(breakdown(e, practice=0.5))


def test_no_weight_at_all_has_no_bounds():
    e = cal.Evidence([1.0, 2.0], np.full(2, -np.inf), [0, 1, 2])
    assert np.isnan(confounding_bounds(e, 2.0).low)
    assert np.isnan(breakdown(e).gamma)


def test_gamma_below_one_is_refused():
    with pytest.raises(ValueError, match=r"from 1, got 0\.5"):
        confounding_bounds(evidence(np.random.default_rng(0)), 0.5)
