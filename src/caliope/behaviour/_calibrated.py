"""A behaviour model that recalibrates itself where that clearly improves held-out predictions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._policies import action_probabilities
from caliope._ragged import Float, Int, at_actions
from caliope.behaviour._calibrators import Calibrator, Chain, Isotonic, Shrinkage, Temperature
from caliope.behaviour._fit import (
    MostLikelyAction,
    assign_folds,
    end_of,
    fit_model,
    get_out_of_fold,
    number_groups,
    predict_out_of_fold,
)

# Standard errors, and nats per decision, by which recalibrated predictions must be better.
_CLEARLY, _NATS = 3.0, 0.001


class CalibratedPolicy(MostLikelyAction, BaseEstimator):  # type: ignore[misc]
    """A classifier, recalibrated by a temperature or by isotonic regression where that clearly helps.

    Each trajectory is predicted by a model fitted without it; where the model keeps such predictions, these are used.
    Those of a fold are recalibrated by what was fitted on those of the other folds. The better of the two is kept if it
    lowers the mean log loss by 3 standard errors, clustered by trajectory, and by 0.001 nats. Otherwise the model stays
    as it is.

    Parameters
    ----------
    model : classifier
        The unfitted model. If its ``fit`` takes ``groups``, it gets the trajectories.
    folds : int
        Number of folds, by trajectory.
    random_state : int
        Seed of the folds.

    Attributes
    ----------
    model_ : classifier
        The model, fitted on all rows.
    calibrator_ : Calibrator or None
        The calibrator, fitted on all out-of-fold predictions; None where none clearly helps.
    oof_proba_ : array of shape (N, A)
        Out-of-fold probabilities, recalibrated out of fold. Only the choice of the calibrator has seen their actions.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from sklearn.naive_bayes import GaussianNB
    >>> data = ward.simulate(300, rng=0)
    >>> model = CalibratedPolicy(GaussianNB()).fit(data.states, data.actions, groups=data.layout.owner)
    >>> model.predict_proba(data.states).shape == (data.n_steps, 3)
    True
    """

    def __init__(self, model: Any, *, folds: int = 5, random_state: int = 0) -> None:
        self.model = model
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> CalibratedPolicy:
        """Cross-fit the model, choose the calibrator, and fit both again on all rows."""
        x, actions = validate_data(self, X, y, dtype=(np.float64, np.float32))
        self.classes_, codes = np.unique(actions, return_inverse=True)
        trajectory = number_groups(groups, len(x))
        fold = assign_folds(trajectory, min(self.folds, int(trajectory.max()) + 1), self.random_state)
        self.model_ = fit_model(self.model, x, codes, trajectory)
        stored = get_out_of_fold(self.model_)
        plain = predict_out_of_fold(self.model, x, codes, trajectory, fold) if stored is None else stored
        found = _choose(plain, codes, trajectory, fold)
        self.oof_proba_ = plain if found is None else found[0]
        self.calibrator_: Calibrator | None = None if found is None else found[1]
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        table = action_probabilities(self.model_, x, len(self.classes_))
        return table if self.calibrator_ is None else self.calibrator_(table)


def innermost(model: Any) -> Any:
    """The last step of a pipeline, also of one that is recalibrated."""
    return end_of(model.model if isinstance(model, CalibratedPolicy) else model)


def _choose(plain: Float, codes: Int, trajectory: Int, fold: Int) -> tuple[Float, Calibrator] | None:
    """Predictions recalibrated out of fold, and the calibrator fitted on all; None where none clearly helps."""
    # Where a logged action has probability 0 shrinkage comes first: the others need positive probabilities.
    before = (Shrinkage(),) if (at_actions(plain, codes) == 0).any() else ()
    best: tuple[float, Float, Calibrator] | None = None
    for last in (Temperature(), Isotonic()):
        calibrator: Calibrator = Chain((*before, last)) if before else last
        table = recalibrate_by_fold(plain, codes, fold, calibrator)
        gain, clear = _gain(plain, table, codes, trajectory)
        if clear and (best is None or gain > best[0]):
            best = gain, table, calibrator
    return None if best is None else (best[1], best[2].fit(plain, codes))


def recalibrate_by_fold(table: Float, codes: Int, fold: Int, calibrator: Calibrator) -> Float:
    """Recalibrate the rows of each fold by what was fitted on the other folds, (N, A).

    The rows whose action has probability 0 then, because the other folds never took it, stay as they are.
    """
    found = np.empty_like(table)
    for j in np.unique(fold):
        own = fold == j
        found[own] = calibrator.fit(table[~own], codes[~own])(table[own])
    ruled_out = at_actions(found, codes) == 0
    found[ruled_out] = table[ruled_out]
    return found


def _gain(plain: Float, table: Float, codes: Int, trajectory: Int) -> tuple[float, bool]:
    """By how much the mean log loss is lower, and whether clearly; any that is finite beats one that is not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = np.log(at_actions(table, codes)) - np.log(at_actions(plain, codes))
    if not np.isfinite(lower).all():
        return float(lower[np.isfinite(lower)].sum() / len(lower)), bool((at_actions(table, codes) > 0).all())
    sums = np.bincount(trajectory, weights=lower)
    lengths = np.bincount(trajectory)
    mean = float(sums.sum() / len(lower))
    se = float(np.sqrt(((sums - mean * lengths) ** 2).sum()) / len(lower))
    return mean, mean > max(_CLEARLY * se, _NATS)
