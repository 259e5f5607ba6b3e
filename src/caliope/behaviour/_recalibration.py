"""Recalibrate behaviour policies on out-of-fold or held-out predictions.

A calibrator is fitted on predictions for trajectories that the model has not seen, then applied to every prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._policies import Policy, action_probabilities
from caliope._ragged import Float, Int, at_actions, read_only
from caliope._trajectories import Trajectories
from caliope.behaviour._calibrators import Calibrator, Shrinkage
from caliope.behaviour._fit import FittedBehaviour, fit_behaviour
from caliope.behaviour._networks import mean_nll
from caliope.checks import B103


@dataclass(frozen=True, eq=False)
class Recalibrated:
    """A fitted model followed by a fitted calibrator: a policy over all ``n_actions`` actions.

    Parameters
    ----------
    model : Policy
        The fitted model.
    calibrator : Calibrator
        The fitted calibrator.
    n_actions : int
        Number of actions; those that the model does not know have probability 0 before recalibration.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.behaviour import Recalibrated, Temperature
    >>> Recalibrated(TabularPolicy([[0.8, 0.2]]), Temperature(2.0), n_actions=2).predict_proba([[0]])
    array([[0.66666667, 0.33333333]])
    """

    model: Policy
    calibrator: Calibrator
    n_actions: int

    @property
    def classes_(self) -> Int:
        """All actions, including those that the model does not know."""
        return np.arange(self.n_actions)

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the recalibrated probabilities of all actions, (N, A)."""
        return self.calibrator(action_probabilities(self.model, X, self.n_actions))


@dataclass(frozen=True, eq=False)
class RecalibratedBehaviour(FittedBehaviour):
    """A recalibrated behaviour policy, with out-of-fold probabilities for the log that it was fitted on.

    Parameters
    ----------
    model : Recalibrated
        The model fitted on the whole log, followed by the calibrator.
    probabilities : array of shape (N, A)
        Recalibrated out-of-fold probabilities of all actions in the log.
    mode : str
        Always ``"cross"``.
    note : Finding
        How the probabilities were made, in words.
    data : Trajectories
        The log.
    predictions : array of shape (N, A)
        Out-of-fold probabilities before recalibration.

    Examples
    --------
    >>> from caliope.behaviour import Shrinkage, TabularFrequencies, recalibrate
    >>> from caliope.domains import ward
    >>> behaviour = recalibrate(TabularFrequencies(), ward.simulate(50, rng=0), Shrinkage(), rng=0)
    >>> behaviour.probabilities.shape == behaviour.predictions.shape
    True
    """

    model: Recalibrated
    predictions: Float

    @property
    def calibrator(self) -> Calibrator:
        """The calibrator, fitted on ``predictions``."""
        return self.model.calibrator


def recalibrate(
    model: Any,
    data: Trajectories,
    calibrator: Calibrator,
    *,
    folds: int = 5,
    rng: int | np.random.Generator,
) -> RecalibratedBehaviour:
    """Fit a classifier to the logged actions and recalibrate it on out-of-fold predictions.

    Each trajectory is predicted by a model fitted without it, and recalibrated by a calibrator fitted without it, on
    predictions for the trajectories of other folds. For new states the model is fitted once more on the whole log, and
    the calibrator on all these predictions. Isotonic regression needs a large log.

    Parameters
    ----------
    model : classifier
        Any unfitted scikit-learn classifier with ``predict_proba``.
    data : Trajectories
        The log.
    calibrator : Calibrator
        An unfitted calibrator, such as ``Temperature()``.
    folds : int
        Number of folds, by trajectory.
    rng : int or numpy.random.Generator
        Seed of the folds.

    Returns
    -------
    RecalibratedBehaviour
        A policy, with probabilities for the log and the log loss before and after in its note.

    Examples
    --------
    >>> from caliope.behaviour import Temperature, recalibrate
    >>> from caliope.domains import ward
    >>> from sklearn.naive_bayes import GaussianNB
    >>> behaviour = recalibrate(GaussianNB(), ward.simulate(200, rng=0), Temperature(), rng=0)
    >>> behaviour.note.code, str(behaviour.calibrator)
    ('B103', 'temperature 1.13')
    """
    _check_calibrator(calibrator)
    cross = fit_behaviour(model, data, mode="cross", folds=folds, rng=rng)
    fitted = calibrator.fit(cross.probabilities, data.actions)
    table = _recalibrate_out_of_fold(cross, calibrator, fitted, data.folds(folds, rng=rng))
    before, after = (mean_nll(p, data.actions) for p in (cross.probabilities, table))
    facts = {**cross.note.facts, "calibrator": str(fitted), "nll_before": before, "nll_after": after}
    return RecalibratedBehaviour(
        model=Recalibrated(cross.model, fitted, data.n_actions),
        probabilities=read_only(table),
        mode=cross.mode,
        note=B103.finding("note", *cross.note.variants, **facts),
        data=data,
        predictions=cross.probabilities,
    )


def _recalibrate_out_of_fold(
    cross: FittedBehaviour, calibrator: Calibrator, fitted: Calibrator, folds: list[tuple[Int, Int]]
) -> Float:
    """Recalibrate each fold by what was fitted on the predictions for the others, (N, A)."""
    p, actions = cross.probabilities, cross.data.actions
    table = np.empty_like(p)
    for others, held_out in folds:
        table[held_out] = calibrator.fit(p[others], actions[others])(p[held_out])
    # An action that the other folds never took has no frequency there, and would rule out what happened.
    unseen = at_actions(table, actions) == 0
    table[unseen] = fitted(p)[unseen]
    return table


def recalibrate_fitted(model: Policy, held_out: Trajectories, calibrator: Calibrator) -> Recalibrated:
    """Recalibrate a fitted model on held-out trajectories.

    Parameters
    ----------
    model : Policy
        The fitted model.
    held_out : Trajectories
        Trajectories that the model has not seen.
    calibrator : Calibrator
        An unfitted calibrator, such as ``Temperature()``.

    Returns
    -------
    Recalibrated
        A policy.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.behaviour import Temperature, recalibrate_fitted
    >>> from caliope.domains import ward
    >>> flat = recalibrate_fitted(TabularPolicy(ward.AGGRESSIVE), ward.simulate(50, rng=0), Temperature())
    >>> str(flat.calibrator)
    'temperature 20'
    """
    _check_calibrator(calibrator)
    p = action_probabilities(model, held_out.states, held_out.n_actions)
    return Recalibrated(model, calibrator.fit(p, held_out.actions), held_out.n_actions)


def shrink_fitted(fitted: FittedBehaviour, data: Trajectories) -> FittedBehaviour:
    """Mix a fitted model with the overall frequencies of the actions of a log, by the share that predicts it best.

    An action that the model rules out may have been taken in one fold alone: the frequencies are those of the whole
    log, its own fold included. A model that rules out no action that was taken stays as it is.
    """
    predicted = fitted.on(data)
    if (at_actions(predicted, data.actions) > 0).all():
        return fitted
    shrinkage = Shrinkage().fit(predicted, data.actions)
    return replace(
        fitted,
        model=Recalibrated(fitted.model, shrinkage, data.n_actions),
        probabilities=read_only(shrinkage(fitted.probabilities)),
    )


def _check_calibrator(calibrator: Any) -> None:
    if isinstance(calibrator, type) or not (hasattr(calibrator, "fit") and callable(calibrator)):
        raise TypeError(
            "calibrator must be an unfitted calibrator, such as Temperature() or Chain((Shrinkage(), Temperature())), "
            f"got {calibrator!r}."
        )
