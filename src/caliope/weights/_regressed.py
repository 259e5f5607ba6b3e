"""Regression of importance weights on state and time, out of fold, and its predictions for other trajectories."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope._ragged import Bool, Float, Int, as_positions
from caliope._trajectories import Trajectories

_ROWS = 1 << 16  # predicted at a time, of what was not fitted on


def default_regressors() -> dict[str, Any]:
    """Return the regressors that weights are marginalised with, unfitted.

    A constant where weights do not depend on the state, trees for many measurements, kernels for few. Trees have one
    thread: several sum in the order in which they end.
    """
    from sklearn.dummy import DummyRegressor  # the other transforms need NumPy alone
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from caliope._trees import ExtraTreesRegressor

    def kernel(penalty: float) -> Any:
        return make_pipeline(StandardScaler(), Nystroem(n_components=100), Ridge(penalty))

    trees = ExtraTreesRegressor(50, min_samples_leaf=20, max_features=0.5)
    return {
        "a constant": DummyRegressor(),
        "trees": trees,
        "kernel": kernel(1.0),
        "kernel, penalty 10": kernel(10.0),
    }


@dataclass(frozen=True, eq=False)
class Design:
    """What weights are regressed on: state and time of each row, its fold, and which rows are fitted on."""

    data: Trajectories
    fold: Int  # (n,)
    sampled: Bool  # (n,)

    @classmethod
    def of(cls, data: Trajectories, fold: Int, fitted_on: Int | None) -> Design:
        sampled = np.full(len(data), fitted_on is None)
        sampled[slice(None) if fitted_on is None else as_positions(fitted_on, len(data))] = True
        if not sampled.any():
            raise ValueError("fitted_on must name at least one trajectory, got none.")
        return cls(data, fold, sampled)

    @property
    def n_fitted(self) -> int:
        return int(self.sampled.sum())

    @property
    def time(self) -> Int:
        return self.data.layout.time

    def rows(self, of: Bool) -> Int:
        """Rows after the first step, of some trajectories."""
        return np.flatnonzero(of[self.data.layout.owner] & (self.time > 0))

    def x(self, rows: Int) -> Float:
        """State and time of some rows."""
        return _state_and_time(self.data, rows)


@dataclass(frozen=True, eq=False)
class WeightRegression:
    """Predicted weights before each step, relative to the mean at their step, and what predicts them elsewhere.

    Attributes
    ----------
    predicted : array of shape (N,)
        The predictions, out of fold; 1 at first steps.
    name : str
        Which regressor was chosen.
    r2 : float
        The share of the variance that it explains of held-out trajectories.
    n_fitted : int
        Trajectories that it was fitted to.
    fold : array of shape (n,)
        The fold of each trajectory.
    fit : optional
        The fitted models, and which of their outputs is meant; None where no trajectory has a second step.
    """

    predicted: Float
    name: str
    r2: float
    n_fitted: int
    fold: Int
    fit: tuple[_HeldOut, int] | None = None

    def for_all(self, predicted: Float) -> WeightRegression:
        """The same with predictions for another log, without its models."""
        return replace(self, predicted=predicted, fold=np.zeros(0, dtype=np.int64), fit=None)

    def without_log(self) -> WeightRegression:
        """The same with its models, and without the log that they were fitted to."""
        empty, fit = np.zeros(0), None if self.fit is None else (self.fit[0].without_log(), self.fit[1])
        return replace(self, predicted=empty, fold=np.zeros(0, dtype=np.int64), fit=fit)


def predict_weights(regressions: Sequence[WeightRegression], data: Trajectories, turn: Int) -> Float:
    """Predictions of several regressions at every step of new trajectories, (N, k), by the model whose turn it is."""
    found = np.ones((data.n_steps, len(regressions)))
    later = np.flatnonzero(data.layout.time > 0)
    done: dict[int, Float] = {}
    for k, each in enumerate(regressions):
        if each.fit is not None and len(later):
            fit, column = each.fit
            if id(fit) not in done:
                done[id(fit)] = fit.predict_new(data, later, turn[data.layout.owner[later]])
            found[later, k] = done[id(fit)][:, column]
    return found


def regress_columns(
    before: Float, design: Design, regressors: Mapping[str, Any], *, seed: int
) -> list[WeightRegression]:
    """Regress columns of weights before each step, (N, k), on state and time: the best regressor for each."""
    time = design.time
    if not (time > 0).any():
        nothing = WeightRegression(np.ones(len(time)), "none", np.nan, design.n_fitted, design.fold)
        return [nothing] * before.shape[1]
    total = np.stack([np.bincount(time, weights=column) for column in before.T], axis=1)
    mean = total / np.bincount(time)[:, None]
    y = before / np.where(mean > 0, mean, 1.0)[time]
    fits = {name: _HeldOut(model, design, y, seed) for name, model in regressors.items()}
    sample = design.rows(design.sampled)
    errors = {name: ((y[sample] - fit.predicted[sample]) ** 2).mean(axis=0) for name, fit in fits.items()}
    spread, found = y[sample].var(axis=0), []
    best = [min(errors, key=lambda name: errors[name][j]) for j in range(y.shape[1])]
    for name in set(best):
        fits[name].predict_rest()
    for j, name in enumerate(best):
        r2 = 1 - errors[name][j] / spread[j] if spread[j] > 0 else np.nan
        fit = fits[name]
        found.append(
            WeightRegression(fit.predicted[:, j], name, float(r2), design.n_fitted, design.fold, (fit, j))
        )
    return found


class _HeldOut:
    """A regressor fitted without each fold in turn; predictions (N, k) within the range of targets, 1 at first steps.

    What was fitted on is predicted at once, so that regressors can be compared, and the rest only when asked for.
    """

    def __init__(self, model: Any, design: Design, y: Float, seed: int) -> None:
        self.design, self.predicted = design, np.ones_like(y)
        self.models: dict[int, tuple[Any, Float, Float]] = {}
        for j in np.unique(design.fold).tolist():
            fit = design.rows(design.sampled & (design.fold != j))
            if not len(fit):
                continue  # no other trajectory has a second step: the mean, which is 1
            fitted = _fit_seeded(model, design.x(fit), y[fit, 0] if y.shape[1] == 1 else y[fit], seed)
            self.models[j] = fitted, y[fit].min(axis=0), y[fit].max(axis=0)
            self._predict(j, design.rows(design.sampled & (design.fold == j)))

    def predict_rest(self) -> None:
        """Predict the trajectories that were not fitted on, some rows at a time."""
        for j in self.models:
            rest = self.design.rows(~self.design.sampled & (self.design.fold == j))
            for start in range(0, len(rest), _ROWS):
                self._predict(j, rest[start : start + _ROWS])

    def _predict(self, j: int, rows: Int) -> None:
        if len(rows):
            self.predicted[rows] = _predict_within(*self.models[j], self.design.x(rows))

    def predict_new(self, data: Trajectories, rows: Int, turn: Int) -> Float:
        """Predict some rows of another log, (m, k), each by the model whose turn it is."""
        width = self.predicted.shape[1]
        x = _state_and_time(data, rows)
        found = np.ones((len(rows), width))
        for j, model in self.models.items():
            own = turn == j
            if own.any():
                found[own] = _predict_within(*model, x[own])
        return found

    def without_log(self) -> _HeldOut:
        """The models alone."""
        other = copy(self)
        other.predicted = self.predicted[:0]
        del other.design
        return other


def _predict_within(model: Any, low: Float, high: Float, x: Float) -> Float:
    """Predictions, (m, k), within the range of the targets."""
    predicted = np.asarray(model.predict(x), dtype=np.float64).reshape(len(x), -1)
    if not np.isfinite(predicted).all():
        raise ValueError(
            f"{type(model).__name__} predicted a weight that is NaN or infinite: use another regressor."
        )
    return np.clip(predicted, low, high)


def _state_and_time(data: Trajectories, rows: Int) -> Float:
    return np.column_stack([data.states[rows].astype(np.float64), data.layout.time[rows]])


def _fit_seeded(model: Any, x: Float, y: Float, seed: int) -> Any:
    from sklearn.base import clone

    with warnings.catch_warnings():
        # Fewer steps than kernel features: then there are fewer features.
        warnings.filterwarnings("ignore", "n_components > n_samples", UserWarning)
        return _seeded(clone(model), seed).fit(x, y)


def _seeded(model: Any, seed: int) -> Any:
    """Give the same seed to every part of a model that has none."""
    names = [
        name for name, x in model.get_params().items() if name.split("__")[-1] == "random_state" and x is None
    ]
    return model.set_params(**dict.fromkeys(names, seed))


def check_regressors(regressors: Mapping[str, Any]) -> None:
    if not regressors:
        raise ValueError("regressors must name at least one regressor, got an empty mapping.")
    for name, model in regressors.items():
        if isinstance(model, type) or not all(hasattr(model, x) for x in ("fit", "predict", "get_params")):
            raise TypeError(
                f"regressors[{name!r}] must be an unfitted regressor of scikit-learn, got {model!r}."
            )
