"""Recalibration: make the probabilities of a fitted model agree with how often the actions were taken.

A calibrator is fitted on predictions that were made out of fold, and then applied to every prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.behaviour.calibrators import Calibrator
from caliope.behaviour.fitting import FittedBehaviour, fit_behaviour
from caliope.behaviour.network import mean_nll
from caliope.policies import Policy, action_probabilities
from caliope.ragged import Float, Int, read_only
from caliope.results import Finding
from caliope.trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class Recalibrated:
    """A fitted model with a fitted calibrator behind it: a policy over all ``n_actions`` actions."""

    model: Policy
    calibrator: Calibrator
    n_actions: int

    @property
    def classes_(self) -> Int:
        """All actions, also those that the model does not know."""
        return np.arange(self.n_actions)

    def predict_proba(self, X: ArrayLike) -> Float:
        """Predict, then recalibrate."""
        return self.calibrator(action_probabilities(self.model, X, self.n_actions))


@dataclass(frozen=True, eq=False)
class RecalibratedBehaviour(FittedBehaviour):
    """A recalibrated behaviour policy; on its own log its probabilities are out of fold."""

    model: Recalibrated
    predictions: Float  # (N, A), out of fold, as the calibrator got them

    @property
    def calibrator(self) -> Calibrator:
        """What was fitted on the predictions."""
        return self.model.calibrator


def recalibrate(
    model: Any,
    data: Trajectories,
    calibrator: Calibrator,
    *,
    folds: int = 5,
    rng: int | np.random.Generator,
) -> RecalibratedBehaviour:
    """Fit a classifier to the logged actions and correct its probabilities on trajectories it has not seen.

    Every trajectory is predicted by a model fitted without it; the calibrator is fitted on all these predictions
    together, and the model once more on the whole log. The calibrator itself has seen all actions: harmless for the
    few numbers of a temperature, while isotonic regression asks for a large log.

    Examples
    --------
    >>> from caliope.behaviour import Temperature
    >>> from caliope.domains import ward
    >>> from sklearn.naive_bayes import GaussianNB
    >>> behaviour = recalibrate(GaussianNB(), ward.simulate(200, rng=0), Temperature(), rng=0)
    >>> behaviour.note.code, str(behaviour.calibrator)
    ('B103', 'temperature 1.13')
    """
    _check(calibrator)
    crossed = fit_behaviour(model, data, mode="cross", folds=folds, rng=rng)
    fitted = calibrator.fit(crossed.probabilities, data.actions)
    table = fitted(crossed.probabilities)
    before, after = (mean_nll(p, data.actions) for p in (crossed.probabilities, table))
    numbers = {"nll_before": before, "nll_after": after}
    how = f"recalibrated on these predictions by {fitted}, NLL {before:.4g} to {after:.4g}"
    return RecalibratedBehaviour(
        model=Recalibrated(crossed.model, fitted, data.n_actions),
        probabilities=read_only(table),
        mode=crossed.mode,
        note=Finding("B103", "note", f"{crossed.note.message}; {how}", numbers),
        data=data,
        predictions=crossed.probabilities,
    )


def recalibrate_fitted(model: Policy, held_out: Trajectories, calibrator: Calibrator) -> Recalibrated:
    """Correct a model that has been fitted already, on trajectories that it has not seen."""
    _check(calibrator)
    p = action_probabilities(model, held_out.states, held_out.n_actions)
    return Recalibrated(model, calibrator.fit(p, held_out.actions), held_out.n_actions)


def _check(calibrator: Any) -> None:
    if isinstance(calibrator, type) or not (hasattr(calibrator, "fit") and callable(calibrator)):
        raise TypeError(
            "calibrator must be one to be fitted, such as Temperature() or Chain((Shrinkage(), Temperature())), got "
            f"{calibrator!r}."
        )
