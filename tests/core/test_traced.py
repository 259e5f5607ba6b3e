"""Derivatives by way of sums: those of one trajectory after the other, and as quick on a long log."""

import numpy as np
import pytest

import caliope as cal
from caliope import estimators
from caliope._traced import differentiate
from caliope.uncertainty import _intervals
from caliope.uncertainty._intervals import difference, influence

EVERY = [
    cal.monte_carlo,
    cal.ois,
    cal.step_is,
    cal.wis,
    cal.step_wis,
    cal.dm,
    cal.dr,
    cal.wdr,
    cal.phwis,
    cal.phwdr,
    estimators.step_phwis,
    estimators.wdr_under_way,
    difference(cal.wdr),
    estimators.per_horizon(cal.wis, length_weights="evaluation"),
]


def evidence(seed, *, equal=False, zeros=0.0, given=False):
    rng = np.random.default_rng(seed)
    n = 40
    lengths = np.full(n, 5) if equal else rng.integers(1, 9, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    steps = offsets[-1]
    log_ratio = np.where(rng.random(steps) < zeros, -np.inf, rng.normal(size=steps) / 2)
    r, q, v, weight = rng.normal(size=(4, steps))
    options = {"log_weight": weight} if given else {}
    return cal.Evidence(r, log_ratio, offsets, 0.9, q=q, v=v, terminated=rng.random(n) < 0.7, **options)


LOGS = {
    "unequal": evidence(0),
    "equal": evidence(1, equal=True),
    "zeros": evidence(17, zeros=0.3),
}


@pytest.mark.parametrize("e", LOGS.values(), ids=list(LOGS))
@pytest.mark.parametrize("estimator", EVERY, ids=lambda f: f.__name__)
def test_it_is_the_derivative_in_one_trajectory_after_the_other(estimator, e):
    one_by_one = influence(estimator, e) / len(e)
    np.testing.assert_allclose(differentiate(estimator, e), one_by_one, rtol=1e-9, atol=1e-13)


def test_weights_of_single_steps_are_derived_too():
    e = evidence(4, given=True)
    np.testing.assert_allclose(differentiate(cal.wdr, e) * len(e), influence(cal.wdr, e), atol=1e-13)


def test_a_long_log_is_derived_by_way_of_its_sums(monkeypatch):
    """Trajectories one by one, in blocks, would sum over all of them once per block."""
    e, asked = evidence(0), []
    expected = influence(cal.wdr, e)
    monkeypatch.setattr(_intervals, "CELLS", len(e) * e.layout.horizon - 1)

    def counted(evidence):
        asked.append(evidence.counts)
        return cal.wdr(evidence)

    np.testing.assert_allclose(influence(counted, e), expected, rtol=1e-9, atol=1e-13)
    assert len(asked) == 3


def test_what_chooses_from_the_data_has_no_derivative():
    with pytest.raises(TypeError, match="no derivative"):
        differentiate(estimators.magic, evidence(0))


def test_an_estimator_that_takes_other_sums_each_time_is_refused():
    calls = []

    def moody(e):
        calls.append(1)
        return sum(e.total(e.returns) for _ in calls)

    with pytest.raises(TypeError, match="other sums in every call"):
        differentiate(moody, evidence(0))
