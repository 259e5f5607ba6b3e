"""From any scikit-learn regressor to a function of state and action, evaluated for all actions at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope.ragged import Float, Int

_NUMBERS = 1 << 25  # of all rows of (state, action) that are predicted in one call: 256 MB


@dataclass(frozen=True, eq=False)
class ActionAsFeature:
    """One regressor on the state with the action appended, one column an action."""

    regressor: Any
    n_actions: int

    def fit(self, states: Float, actions: Int, targets: Float) -> ActionAsFeature:
        """Fit a fresh copy."""
        x = np.concatenate([states, np.eye(self.n_actions, dtype=states.dtype)[actions]], axis=1)
        return ActionAsFeature(clone(self.regressor).fit(x, targets), self.n_actions)

    def predict(self, states: Float) -> Float:
        """Values of all actions, (N, A): every state once with every action, in one batched call."""
        out = np.empty((len(states), self.n_actions))
        width = states.shape[1] + self.n_actions
        chunk = max(1, _NUMBERS // (self.n_actions * width))
        for start in range(0, len(states), chunk):
            part = states[start : start + chunk]
            actions = np.tile(np.eye(self.n_actions, dtype=states.dtype), (len(part), 1))
            x = np.concatenate([np.repeat(part, self.n_actions, axis=0), actions], axis=1)
            out[start : start + chunk] = _predicted(self.regressor, x).reshape(len(part), self.n_actions)
        return out


@dataclass(frozen=True, eq=False)
class ModelPerAction:
    """One regressor for each action, on the steps at which it was taken.

    An action that was never taken has nothing to learn from: it is given the mean target of all steps.
    """

    regressor: Any
    n_actions: int
    fitted: tuple[Any, ...] = ()
    default: float = 0.0

    def fit(self, states: Float, actions: Int, targets: Float) -> ModelPerAction:
        """Fit fresh copies."""
        models = []
        for a in range(self.n_actions):
            rows = np.flatnonzero(actions == a)
            models.append(clone(self.regressor).fit(states[rows], targets[rows]) if len(rows) else None)
        return ModelPerAction(self.regressor, self.n_actions, tuple(models), float(targets.mean()))

    def predict(self, states: Float) -> Float:
        """Values of all actions, (N, A)."""
        out = np.full((len(states), self.n_actions), self.default)
        for a, model in enumerate(self.fitted):
            if model is not None:
                out[:, a] = _predicted(model, states)
        return out


Model = ActionAsFeature | ModelPerAction


def unfitted(regressor: Any, n_actions: int, *, per_action: bool) -> Model:
    """A regressor as a function of state and action, yet to be fitted."""
    if isinstance(regressor, type) or not hasattr(regressor, "fit") or not hasattr(regressor, "predict"):
        raise TypeError(
            f"regressor must be a scikit-learn regressor with fit and predict, got {regressor!r}."
        )
    if hasattr(regressor, "__sklearn_tags__") and is_classifier(regressor):
        raise TypeError(
            f"regressor must be a regressor, got the classifier {type(regressor).__name__}: values are numbers, not "
            "labels. Use its regression form."
        )
    return ModelPerAction(regressor, n_actions) if per_action else ActionAsFeature(regressor, n_actions)


def check_finite(table: Float, where: str) -> Float:
    """Return predictions, or raise where one is NaN or infinite."""
    bad = int((~np.isfinite(table)).sum())
    if bad:
        raise ValueError(
            f"{where}: the regressor predicted NaN or infinity for {bad} of {table.size} states and actions. "
            "Use one that does not extrapolate (trees), or scale the states."
        )
    return table


def _predicted(regressor: Any, x: Float) -> Float:
    found = np.asarray(regressor.predict(x), dtype=np.float64)
    if found.shape not in ((len(x),), (len(x), 1)):
        raise ValueError(
            f"{type(regressor).__name__}.predict must return one number for each of {len(x)} rows, "
            f"got shape {found.shape}."
        )
    return found.ravel()


class TabularRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The mean target of each distinct row: exact for discrete states, useless for continuous ones.

    A row that was never seen gets the mean of all targets.
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> TabularRegressor:
        """Average the targets of equal rows."""
        x, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self.rows_, cell = np.unique(_as_keys(x), return_inverse=True)
        self.means_ = np.bincount(cell, weights=targets) / np.bincount(cell)
        self.default_ = float(self.means_ @ np.bincount(cell) / len(cell))
        return self

    def predict(self, X: ArrayLike) -> Float:
        """Look the rows up."""
        check_is_fitted(self)
        keys = _as_keys(validate_data(self, X, dtype=np.float64, reset=False))
        place = np.minimum(np.searchsorted(self.rows_, keys), len(self.rows_) - 1)
        return np.where(self.rows_[place] == keys, self.means_[place], self.default_)


def _as_keys(x: Float) -> Any:
    """Rows as opaque bytes, so that whole rows compare and sort at once."""
    x = np.ascontiguousarray(x + 0.0)  # -0.0 and 0.0 are one state
    return x.view(np.dtype((np.void, x.dtype.itemsize * x.shape[1]))).ravel()
