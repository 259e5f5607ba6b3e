"""Behaviour models that rule out what was done: mixed with the overall frequencies where no other can be used."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit import audit
from caliope._audit._opened import compare_behaviour
from caliope.behaviour import TabularFrequencies, fit_behaviour
from caliope.behaviour._recalibration import shrink_fitted
from caliope.domains import ward


@pytest.fixture(scope="module")
def rare():
    """A log whose action 3 is taken once: in the models of the other folds it does not exist."""
    data = ward.simulate(60, rng=0)
    actions = data.actions.copy()
    actions[7] = 3
    return cal.Trajectories(data.states, actions, data.rewards, data.offsets, n_actions=4)


@pytest.mark.slow
def test_an_action_of_one_fold_does_not_end_the_audit(rare):
    found = compare_behaviour(rare, {"logistic": LogisticRegression()}, rng=0)
    assert found.comparison.recommended == "logistic"
    seen = {finding.code: finding for finding in found.findings}["B110"]
    assert seen.level == "note"
    assert seen.facts["zero"] == 1
    assert seen.facts["steps"] == rare.n_steps
    assert 0 < seen.facts["share"] < 1
    assert (found.recommended.on(rare)[np.arange(rare.n_steps), rare.actions] > 0).all()
    policy = audit(rare, cal.practice, {"logistic": LogisticRegression()}, n_draws=50, rng=0)
    assert "B110" in {finding.code for finding in policy.findings}


def test_the_share_is_that_of_highest_likelihood(rare):
    plain = fit_behaviour(LogisticRegression(), rare, mode="cross", rng=0)
    p = plain.probabilities[np.arange(rare.n_steps), rare.actions]
    f = (np.bincount(rare.actions) / rare.n_steps)[rare.actions]
    grid = np.linspace(0.001, 1, 1000)
    best = max(grid, key=lambda s: np.log((1 - s) * p + s * f).sum())
    shrunk = shrink_fitted(plain, rare)
    assert shrunk.model.calibrator.share == pytest.approx(best, abs=0.001)
    expected = (1 - shrunk.model.calibrator.share) * p + shrunk.model.calibrator.share * f
    np.testing.assert_allclose(shrunk.on(rare)[np.arange(rare.n_steps), rare.actions], expected)


def test_one_model_that_can_be_used_leaves_the_others_alone(rare):
    models = {"frequencies": TabularFrequencies(), "uniform": DummyClassifier(strategy="prior")}
    plain = fit_behaviour(LogisticRegression(), rare, mode="cross", rng=0)
    assert (plain.probabilities[7, 3]) == 0
    log = ward.simulate(60, rng=0)
    found = compare_behaviour(log, models, rng=0)
    assert "B110" not in {finding.code for finding in found.findings}
    usable = fit_behaviour(LogisticRegression(), log, mode="cross", rng=0)
    assert shrink_fitted(usable, log) is usable


def test_a_model_that_knows_one_action_becomes_the_marginal():
    data = ward.simulate(60, rng=0)
    blind = fit_behaviour(DummyClassifier(strategy="constant", constant=0), data, mode="cross", rng=0)
    shrunk = shrink_fitted(blind, data)
    counts = np.bincount(data.actions, minlength=3) / data.n_steps
    # Maximum likelihood of (1 - s) 1{a = 0} + s f_a is reached at s = 1.
    np.testing.assert_allclose(shrunk.probabilities, np.tile(counts, (data.n_steps, 1)), atol=1e-4)
    np.testing.assert_allclose(shrunk.predict_proba(data.states[:2]), [counts] * 2, atol=1e-4)
