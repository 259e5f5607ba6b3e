"""Isotonic ratio calibration: what it solves exactly, and that it never looks like evidence."""

import numpy as np
import pytest

import caliope as cal
from caliope.domains import ward
from caliope.ratio_calibration import calibrate_ratios, isotonic_ratio


def loss(g, levels, scores, wanted, logged):
    """The sum of the formula, step by step."""
    total = 0.0
    for t in range(len(logged)):
        total += 0.5 * g[np.searchsorted(levels, logged[t])] ** 2
        for a in range(scores.shape[1]):
            cell = max(np.searchsorted(levels, scores[t, a], side="right") - 1, 0)
            total -= wanted[t, a] * g[cell]
    return total


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    acted, wanted = rng.dirichlet(np.ones(3), size=40), rng.dirichlet(np.ones(3), size=40)
    actions = np.array([rng.choice(3, p=p) for p in acted])
    scores = wanted / acted
    return scores, wanted, scores[np.arange(40), actions]


def test_no_increasing_function_does_better(problem):
    levels, g = isotonic_ratio(*problem)
    assert (np.diff(g) >= 0).all()
    best = loss(g, levels, *problem)
    rng = np.random.default_rng(1)
    for _ in range(200):
        other = np.sort(np.maximum(g + 0.1 * rng.normal(size=len(g)), 0))
        assert loss(other, levels, *problem) >= best - 1e-9


def test_weights_have_mean_one_where_they_were_fitted(problem):
    # Each block has the wanted mass that falls into it, and all blocks together all of it: one a step.
    levels, g = isotonic_ratio(*problem)
    assert g[np.searchsorted(levels, problem[2])].mean() == pytest.approx(1.0)


def test_it_is_pulled_towards_practice_and_never_trusted():
    data = ward.simulate(400, rng=0)
    target = cal.TabularPolicy(ward.AGGRESSIVE)
    behaviour = cal.TabularPolicy(ward.PRACTICE)
    raw = cal.gather(data, target, behaviour)
    calibrated = calibrate_ratios(data, target, behaviour, rng=0)
    row = cal.estimate(calibrated, cal.wis, n_draws=50, rng=0)[0]
    assert row.verdict == "do not trust"
    assert "W105" in {finding.code for finding in row.findings}
    assert cal.effective_n(calibrated) > cal.effective_n(raw)


def test_practice_against_itself_stays_near_one():
    data = ward.simulate(400, rng=0)
    behaviour = cal.TabularPolicy(ward.PRACTICE)
    e = calibrate_ratios(data, behaviour, behaviour, rng=0)
    assert np.exp(e.log_ratio) == pytest.approx(np.ones(data.n_steps))


def test_logged_probabilities_alone_do_not_suffice():
    data = ward.simulate(20, rng=0)
    with pytest.raises((TypeError, ValueError)):
        calibrate_ratios(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"], rng=0)
