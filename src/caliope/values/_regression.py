"""Regression of values on states and actions with any scikit-learn regressor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._ragged import Bool, Float, Int
from caliope._trajectories import Trajectories
from caliope._trees import ExtraTreesRegressor

# Features looked at for every split of the default regressor.
_FEATURES = 30
# Entries of the matrix of states and actions that is predicted in one call: 256 MB.
_ENTRIES = 1 << 25


@dataclass(frozen=True, eq=False)
class ActionAsFeature:
    """One regressor on the state with the action appended, one indicator column per action."""

    regressor: Any
    n_actions: int

    def fit(self, states: Float, actions: Int, targets: Float) -> ActionAsFeature:
        """Fit a copy of the regressor."""
        x = np.concatenate([states, np.eye(self.n_actions, dtype=states.dtype)[actions]], axis=1)
        return ActionAsFeature(clone(self.regressor).fit(x, targets), self.n_actions)

    def predict(self, states: Float, needed: Bool | None = None) -> Float:
        """Predict the values of all actions, (N, A): every state with every action, in few calls.

        Where it is said which are ``needed``, (N, A), others are 0, or predicted too where that costs nothing.
        """
        if needed is not None and not hasattr(self.regressor, "predict_actions"):
            return self._predict_needed(states, needed)
        if hasattr(self.regressor, "predict_actions"):
            return np.asarray(self.regressor.predict_actions(states, self.n_actions), dtype=np.float64)
        out = np.empty((len(states), self.n_actions))
        width = states.shape[1] + self.n_actions
        chunk = max(1, _ENTRIES // (self.n_actions * width))
        for start in range(0, len(states), chunk):
            part = states[start : start + chunk]
            actions = np.tile(np.eye(self.n_actions, dtype=states.dtype), (len(part), 1))
            x = np.concatenate([np.repeat(part, self.n_actions, axis=0), actions], axis=1)
            out[start : start + chunk] = _predict_column(self.regressor, x).reshape(len(part), self.n_actions)
        return out

    def _predict_needed(self, states: Float, needed: Bool) -> Float:
        out, indicator = np.zeros(needed.shape), np.eye(self.n_actions, dtype=states.dtype)
        rows, actions = np.nonzero(needed)
        chunk = max(1, _ENTRIES // (states.shape[1] + self.n_actions))
        for start in range(0, len(rows), chunk):
            at = rows[start : start + chunk], actions[start : start + chunk]
            out[at] = _predict_column(
                self.regressor, np.concatenate([states[at[0]], indicator[at[1]]], axis=1)
            )
        return out


@dataclass(frozen=True, eq=False)
class ModelPerAction:
    """One regressor per action, on the steps at which it was taken.

    An action that was never taken gets the mean target of all steps.
    """

    regressor: Any
    n_actions: int
    fitted: tuple[Any, ...] = ()
    default: float = 0.0

    def fit(self, states: Float, actions: Int, targets: Float) -> ModelPerAction:
        """Fit copies of the regressor."""
        models = []
        for a in range(self.n_actions):
            rows = np.flatnonzero(actions == a)
            models.append(clone(self.regressor).fit(states[rows], targets[rows]) if len(rows) else None)
        return ModelPerAction(self.regressor, self.n_actions, tuple(models), float(targets.mean()))

    def predict(self, states: Float, needed: Bool | None = None) -> Float:
        """Predict the values of all actions, (N, A); where it is said which are ``needed``, others are the mean."""
        out = np.full((len(states), self.n_actions), self.default)
        for a, model in enumerate(self.fitted):
            own = slice(None) if needed is None else np.flatnonzero(needed[:, a])
            if model is not None and len(out[own]):
                out[own, a] = _predict_column(model, states[own])
        return out


Model = ActionAsFeature | ModelPerAction


def default_regressor(data: Trajectories, *, random_state: int = 0) -> ExtraTreesRegressor:
    """Return the regressor that an audit fits values with, unfitted: extremely randomised trees.

    Parameters
    ----------
    data : Trajectories
        The log, for the number of its features and actions.
    random_state : int
        Seed of the trees.

    Returns
    -------
    ExtraTreesRegressor
        On one thread: several sum the trees in the order in which they end, and the last digit moves later splits.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> default_regressor(ward.simulate(10, rng=0)).max_features
    4
    """
    # Trees that look at few features miss the action among them, and values shrink towards those of practice.
    features = min(_FEATURES, data.states.shape[1] + data.n_actions)
    return ExtraTreesRegressor(30, min_samples_leaf=5, max_features=features, random_state=random_state)


def make_model(regressor: Any, n_actions: int, *, per_action: bool) -> Model:
    """Make an unfitted model of states and actions from a regressor."""
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


def _predict_column(regressor: Any, x: Float) -> Float:
    column = np.asarray(regressor.predict(x), dtype=np.float64)
    if column.shape not in ((len(x),), (len(x), 1)):
        raise ValueError(
            f"{type(regressor).__name__}.predict must return one number for each of {len(x)} rows, "
            f"got shape {column.shape}."
        )
    return column.ravel()


class TabularRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The mean target of each distinct row: exact for discrete states, useless for continuous ones.

    An unseen row gets the mean of all targets.

    Examples
    --------
    >>> from caliope.values import TabularRegressor
    >>> TabularRegressor().fit([[0], [0], [1]], [1.0, 3.0, 7.0]).predict([[0], [1]])
    array([2., 7.])
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> TabularRegressor:
        """Average the targets of equal rows."""
        x, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self.rows_, cell = np.unique(_as_keys(x), return_inverse=True)
        self.means_ = np.bincount(cell, weights=targets) / np.bincount(cell)
        self.default_ = float(self.means_ @ np.bincount(cell) / len(cell))
        return self

    def predict(self, X: ArrayLike) -> Float:
        """Return the mean target of each row, (N,)."""
        check_is_fitted(self)
        keys = _as_keys(validate_data(self, X, dtype=np.float64, reset=False))
        place = np.minimum(np.searchsorted(self.rows_, keys), len(self.rows_) - 1)
        return np.where(self.rows_[place] == keys, self.means_[place], self.default_)


def _as_keys(x: Float) -> Any:
    """View rows as bytes, so that whole rows can be compared and sorted."""
    # -0.0 and 0.0 are the same state.
    x = np.ascontiguousarray(x + 0.0)
    return x.view(np.dtype((np.void, x.dtype.itemsize * x.shape[1]))).ravel()
