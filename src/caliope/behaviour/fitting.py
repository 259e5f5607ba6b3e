"""Fit a behaviour policy on the log, and remember how: on the same trajectories, or across folds."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from caliope.policies import Policy, action_probabilities
from caliope.ragged import Float, Int, read_only
from caliope.results import Finding
from caliope.trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class FittedBehaviour:
    """A fitted model of who acted, with its probabilities for the log that it was fitted on.

    It is itself a policy. On its own log :func:`~caliope.gathering.gather` uses ``probabilities``, which in
    mode ``"cross"`` come from models that have not seen the trajectory; elsewhere it predicts.
    """

    model: Policy  # fitted on the whole log
    probabilities: Float  # (N, A)
    mode: str
    note: Finding
    data: Trajectories

    @property
    def classes_(self) -> Any:
        """The actions that the model knows."""
        return self.model.classes_

    def predict_proba(self, X: ArrayLike) -> Any:
        """Predict with the model that was fitted on the whole log."""
        return self.model.predict_proba(X)

    def on(self, data: Trajectories) -> Float:
        """Probabilities of all actions in a log, (N, A).

        A copy of the log that the model was fitted on, or a selection from it, is recognised by its content, and its
        trajectories keep their own probabilities; any other is predicted.
        """
        if data is self.data:
            return self.probabilities
        return kept_or_predicted(data, self.data, self.probabilities, self.model)


def kept_or_predicted(data: Trajectories, own: Trajectories, kept: Float, model: Policy) -> Float:
    """Rows of a log from what was kept for its trajectories, and from the model where nothing was."""
    place = {digest: i for i, digest in enumerate(own.digests)}
    found = np.array([place.get(digest, -1) for digest in data.digests])
    if (found >= 0).mean() < 0.5:
        found[:] = -1  # another log: a few trajectories of discrete states are alike by chance
    table = np.empty((data.n_steps, kept.shape[1]))
    known, new = np.flatnonzero(found >= 0), np.flatnonzero(found < 0)
    table[data.layout.rows_of(known)] = kept[own.layout.rows_of(found[known])]
    rows = data.layout.rows_of(new)
    if len(rows):
        table[rows] = action_probabilities(model, data.states[rows], kept.shape[1])
    return table


def fit_behaviour(
    model: Any,
    data: Trajectories,
    *,
    mode: Literal["same", "cross"],
    folds: int = 5,
    rng: int | np.random.Generator = 0,
) -> FittedBehaviour:
    """Fit any scikit-learn classifier to the logged actions.

    ``mode="same"`` fits and predicts on the same trajectories: for the importance-sampling family this has a
    lower error than even the true probabilities (Hanna et al. 2019), as long as the model does not memorise.
    ``mode="cross"`` predicts every trajectory by a model fitted without it, for the doubly robust family and
    flexible models; folds never part a trajectory. Which one it was is noted in every estimate, and for
    neighbours also whether a step may find its own trajectory.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from sklearn.linear_model import LogisticRegression
    >>> fitted = fit_behaviour(LogisticRegression(), ward.simulate(50, rng=0), mode="cross", rng=0)
    >>> fitted.probabilities.shape
    (326, 3)
    """
    if mode not in ("same", "cross"):
        raise ValueError(f"mode must be 'same' or 'cross', got {mode!r}.")
    whole = fit_model(model, data.states, data.actions, data.layout.owner)
    if mode == "same":
        table, message = _on_its_own_log(whole, data)
    elif (kept := kept_out_of_fold(whole)) is not None:
        table = columns_of(whole.classes_, kept, data.n_actions)
        message = "the behaviour policy was cross-fitted: each trajectory by models that have not seen it"
    else:
        table = np.empty((data.n_steps, data.n_actions))
        for fit, held_out in data.folds(folds, rng=rng):
            part = fit_model(model, data.states[fit], data.actions[fit], data.layout.owner[fit])
            table[held_out] = action_probabilities(part, data.states[held_out], data.n_actions)
        message = f"the behaviour policy was cross-fitted: each trajectory by a model of {folds - 1} in {folds} others"
    return FittedBehaviour(whole, read_only(table), mode, Finding("B102", "note", message), data)


def fit_model(model: Any, x: Float, actions: Int, trajectory: Int) -> Any:
    """Fit a fresh copy; a model that asks for ``groups``, also at the end of a pipeline, is told the trajectories."""
    fresh = clone(model)
    last = fresh[-1] if isinstance(fresh, Pipeline) else fresh
    if "groups" not in inspect.signature(last.fit).parameters:
        return fresh.fit(x, actions)
    name = f"{fresh.steps[-1][0]}__groups" if isinstance(fresh, Pipeline) else "groups"
    return fresh.fit(x, actions, **{name: trajectory})


def kept_out_of_fold(fitted: Any) -> Float | None:
    """What a model, or the end of a pipeline, has itself predicted for its log without the own trajectory."""
    return getattr(fitted[-1] if isinstance(fitted, Pipeline) else fitted, "oof_proba_", None)


def out_of_fold(model: Any, x: Float, codes: Int, trajectory: Int, fold: Int) -> Float:
    """Probabilities of every row by a model fitted on the other folds, (N, A); codes are 0 to A - 1."""
    table = np.empty((len(x), int(codes.max()) + 1))
    for j in range(int(fold.max()) + 1):
        fit, held_out = np.flatnonzero(fold != j), np.flatnonzero(fold == j)
        fitted = fit_model(model, x[fit], codes[fit], trajectory[fit])
        table[held_out] = action_probabilities(fitted, x[held_out], table.shape[1])
    return table


def group_numbers(groups: ArrayLike | None, n: int) -> Int:
    """The trajectory of each row, numbered from 0; without groups every row is one of its own."""
    if groups is None:
        return np.arange(n)
    numbers = np.unique(np.asarray(groups), return_inverse=True)[1]
    if len(numbers) != n:
        raise ValueError(f"groups must name the trajectory of each of the {n} rows, got {len(numbers)}.")
    return numbers


def fold_of_groups(trajectory: Int, k: int, seed: int) -> Int:
    """The fold of each row, folds of nearly as many trajectories each."""
    n = int(trajectory.max()) + 1
    if not 2 <= k <= n:
        raise ValueError(f"the number of folds must lie between 2 and the {n} trajectories, got {k}.")
    return np.random.default_rng(seed).permutation(np.arange(n) % k)[trajectory]


def _on_its_own_log(fitted: Any, data: Trajectories) -> tuple[Float, str]:
    message = "the behaviour policy was fitted on the same trajectories that it weighs"
    last = fitted[-1] if isinstance(fitted, Pipeline) else fitted
    if not hasattr(last, "predict_own"):
        return action_probabilities(fitted, data.states, data.n_actions), message
    treatment = {
        "include": "a step counts among its own neighbours",
        "point": "a step does not count among its own neighbours, the rest of its trajectory does",
        "trajectory": "the own trajectory does not count among the neighbours",
    }[last.own]
    return columns_of(last.classes_, last.predict_own(), data.n_actions), f"{message}; {treatment}"


def columns_of(classes: Any, proba: Float, n_actions: int) -> Float:
    """Put the columns of known actions in their places among all, (N, n_actions)."""
    table = np.zeros((len(proba), n_actions))
    table[:, np.asarray(classes, dtype=np.int64)] = proba
    return table
