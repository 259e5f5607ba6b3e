"""Neighbours in the space of a fitted regression."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope.behaviour.fitting import fit_model, fold_of_groups, group_numbers
from caliope.behaviour.neighbours import NeighbourPolicy
from caliope.behaviour.shrinking import STRENGTHS, likelihood
from caliope.policies import action_probabilities
from caliope.ragged import Float, Int

_FOLDS = 3  # that choose the shrinkage
_ASKED = 7_000  # points of each that are asked


def logistic(c: float) -> Any:
    """Logistic regression on standardised features with penalty 1 / c."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=500, tol=1e-3))


class LogitNeighbours(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Neighbours under a learned metric: two states are alike if a logistic regression says the same of them.

    In 198 raw dimensions the nearest neighbours are hardly nearer than anyone; in the space of the logits of the
    actions they are those that were treated alike.

    Parameters
    ----------
    k : int
        Number of neighbours.
    c : float
        1 / penalty of the regression.
    shrinkage : float, "cv" or None
        Strength of the pull towards the marginal frequencies, in neighbours. ``"cv"`` chooses it on trajectories that
        neither the neighbours nor the regression have seen: a regression with many columns puts steps that were
        treated alike together, whether or not the next patient will be.
    random_state : int
        Seed of these folds.
    """

    def __init__(
        self,
        k: int = 50,
        *,
        c: float = 0.03,
        shrinkage: float | Literal["cv"] | None = "cv",
        random_state: int = 0,
    ) -> None:
        self.k = k
        self.c = c
        self.shrinkage = shrinkage
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> LogitNeighbours:
        """Fit the regression, and the neighbours in its logits; ``groups`` tells the trajectory of each row."""
        x, actions = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(actions)
        self.metric_ = logistic(self.c).fit(x, actions)
        trajectory = group_numbers(groups, len(x))
        codes = np.unique(actions, return_inverse=True)[1]
        strength = self._chosen(x, codes, trajectory) if self.shrinkage == "cv" else self.shrinkage
        neighbours = NeighbourPolicy(self.k, shrinkage=strength)
        self.neighbours_ = neighbours.fit(self._logits(x), actions, groups=trajectory)
        self.classes_ = self.neighbours_.classes_
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        return self.neighbours_.predict_proba(
            self._logits(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))
        )

    def predict(self, X: ArrayLike) -> Any:
        """The most likely action."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def _logits(self, x: Float) -> Float:
        logits = np.asarray(self.metric_.decision_function(x))
        return logits[:, None] if logits.ndim == 1 else logits

    def _chosen(self, x: Float, codes: Int, trajectory: Int) -> float:
        """The strength of highest likelihood in folds that everything else was fitted without."""
        fold = fold_of_groups(trajectory, min(_FOLDS, int(trajectory.max()) + 1), self.random_state)
        plain, rng = clone(self).set_params(shrinkage=None), np.random.default_rng(self.random_state)
        logged, base = [], []
        for j in range(int(fold.max()) + 1):
            fit, held_out = np.flatnonzero(fold != j), rng.permutation(np.flatnonzero(fold == j))[:_ASKED]
            part = fit_model(plain, x[fit], codes[fit], trajectory[fit])
            table = action_probabilities(part, x[held_out], int(codes.max()) + 1)
            logged.append(table[np.arange(len(held_out)), codes[held_out]])
            base.append((np.bincount(codes[fit], minlength=table.shape[1]) / len(fit))[codes[held_out]])
        p, overall = np.concatenate(logged), np.concatenate(base)
        return max(STRENGTHS, key=lambda m: likelihood((self.k * p + m * overall) / (self.k + m)))
