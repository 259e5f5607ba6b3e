"""Models that recalibrate themselves: where held-out predictions are clearly better, and never by their own rows."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression

from caliope._ragged import at_actions
from caliope.behaviour import Isotonic, Temperature, fit_behaviour, load_model, save_model
from caliope.behaviour._calibrated import CalibratedPolicy, recalibrate_by_fold
from caliope.behaviour._models import candidate_models, fit_other_models
from caliope.domains import ward


class Sharpened(ClassifierMixin, BaseEstimator):
    """The true probabilities to a power: wrong by a temperature alone."""

    def __init__(self, power=1.0):
        self.power = power

    def fit(self, X, y):
        self.classes_ = np.arange(3)
        return self

    def predict_proba(self, X):
        p = ward.PRACTICE[np.asarray(X)[:, 0].astype(int)] ** self.power
        return p / p.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def log():
    return ward.simulate(300, rng=2)


def fitted(log, power):
    return CalibratedPolicy(Sharpened(power)).fit(log.states, log.actions, groups=log.layout.owner)


def test_an_overconfident_model_is_recalibrated_and_a_right_one_stays(log):
    wrong, right = fitted(log, 2.5), fitted(log, 1.0)
    assert right.calibrator_ is None
    assert (right.predict_proba(log.states) == Sharpened(1.0).fit(None, None).predict_proba(log.states)).all()
    assert wrong.calibrator_ is not None
    truth = Sharpened(1.0).predict_proba(log.states)
    assert np.abs(wrong.predict_proba(log.states) - truth).max() < 0.1
    assert np.abs(Sharpened(2.5).predict_proba(log.states) - truth).max() > 0.2


def test_a_right_model_is_hardly_ever_recalibrated():
    # Three standard errors: about 1 in 700 each of two tries.
    found = [fitted(ward.simulate(60, rng=seed), 1.0).calibrator_ for seed in range(40)]
    assert sum(x is not None for x in found) <= 1


@pytest.mark.parametrize("calibrator", [Temperature(), Isotonic()])
def test_no_fold_is_recalibrated_by_its_own_rows(log, calibrator):
    table = Sharpened(2.0).predict_proba(log.states)
    fold = (np.arange(log.n_steps) % 3)[log.layout.owner]
    found = recalibrate_by_fold(table, log.actions, fold, calibrator)
    for j in range(3):
        others = [i for i in range(log.n_steps) if fold[i] != j]
        own = [i for i in range(log.n_steps) if fold[i] == j]
        expected = calibrator.fit(table[others], log.actions[others])(table[own])
        assert found[own] == pytest.approx(expected, abs=1e-12)


def test_an_action_that_other_folds_never_took_keeps_its_probability():
    table = np.tile([0.5, 0.4, 0.1], (6, 1))
    codes, fold = np.array([0, 1, 0, 1, 0, 2]), np.array([0, 0, 1, 1, 2, 2])
    found = recalibrate_by_fold(table, codes, fold, Isotonic())
    assert (at_actions(found, codes) > 0).all()


def test_without_recalibration_the_predictions_are_those_of_the_model_itself(log):
    plain = fit_behaviour(LogisticRegression(), log, mode="cross", rng=7)
    same = fit_behaviour(CalibratedPolicy(LogisticRegression(), random_state=7), log, mode="cross", rng=7)
    assert same.model.calibrator_ is None
    assert same.probabilities == pytest.approx(plain.probabilities, abs=1e-12)


def test_candidates_recalibrate_themselves_and_keep_their_variants(log, tmp_path):
    models = candidate_models(log)
    assert [name for name, x in models.items() if isinstance(x, CalibratedPolicy)] == [
        "logistic",
        "neighbours",
    ]
    near = fit_behaviour(models["neighbours"], log, mode="cross", rng=0)
    others = fit_other_models({"neighbours": near}, "neighbours", near, rng=0)
    assert {"neighbours, k = 25", "neighbours, k = 100"} <= set(others)
    save_model(near.model, tmp_path / "near.skops")
    again = load_model(tmp_path / "near.skops").predict_proba(log.states)
    assert again == pytest.approx(near.model.predict_proba(log.states))
