"""Fit a behaviour policy on the log, and remember how: on the same trajectories, or across folds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline

from caliope.behaviour.grouping import blind_to_actions, end_of, groups_name, not_told, parts_of
from caliope.behaviour.recognition import places_in
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

        Trajectories that the model was fitted on are recognised by their states and actions, and in discrete states
        by their ids too (:func:`~caliope.behaviour.recognition.places_in`), and keep their own probabilities,
        whatever the rewards; new ones are predicted.
        """
        if data is self.data:
            return self.probabilities
        place = places_in(self.data, data)
        table = np.empty((data.n_steps, self.probabilities.shape[1]))
        known, new = np.flatnonzero(place >= 0), data.layout.rows_of(np.flatnonzero(place < 0))
        table[data.layout.rows_of(known)] = self.probabilities[self.data.layout.rows_of(place[known])]
        if len(new):
            table[new] = action_probabilities(self.model, data.states[new], table.shape[1])
        return table

    def everywhere(self, data: Trajectories) -> FittedBehaviour:
        """The same, with its probabilities in another log: once, for all who ask for them."""
        return self if data is self.data else replace(self, probabilities=read_only(self.on(data)), data=data)


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
    flexible models; folds never part a trajectory. A model that keeps such predictions of its own, in
    ``oof_proba_``, is taken at its word unless a step before it in a pipeline may have seen the actions. Which one
    it was is noted in every estimate, and for neighbours also whether a step may find its own trajectory.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from sklearn.linear_model import LogisticRegression
    >>> fitted = fit_behaviour(LogisticRegression(), ward.simulate(50, rng=0), mode="cross", rng=0)
    >>> fitted.probabilities.shape
    (326, 3)
    """
    _check(model, data, mode, folds)
    whole = fit_model(model, data.states, data.actions, data.layout.owner)
    if not hasattr(whole, "predict_proba"):
        raise TypeError(
            f"a behaviour model needs predict_proba, and {type(whole).__name__} has none: take another classifier, or "
            "wrap it in scikit-learn's CalibratedClassifierCV."
        )
    if mode == "same":
        table, message = _on_its_own_log(whole, data)
    elif (kept := kept_out_of_fold(whole)) is not None:
        table = columns_of(whole.classes_, kept, data.n_actions)
        message = (
            "the behaviour policy was cross-fitted: each trajectory by models that have not seen it, in the model's "
            "own folds"
        )
    else:
        table = np.empty((data.n_steps, data.n_actions))
        for fit, held_out in data.folds(folds, rng=rng):
            part = fit_model(model, data.states[fit], data.actions[fit], data.layout.owner[fit])
            table[held_out] = action_probabilities(part, data.states[held_out], data.n_actions)
        message = f"the behaviour policy was cross-fitted: each trajectory by a model of {folds - 1} in {folds} others"
    if untold := not_told(model):
        message += f"; {', '.join(untold)} could not be told which steps are of one trajectory"
    return FittedBehaviour(whole, read_only(table), mode, Finding("B102", "note", message), data)


def _check(model: Any, data: Trajectories, mode: str, folds: int) -> None:
    if not isinstance(data, Trajectories):
        raise TypeError(f"data must be Trajectories (see read_table), got {type(data).__name__}.")
    if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "get_params")):
        name = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(
            f"model must be a scikit-learn classifier to be fitted, such as LogisticRegression(), got {name}; a "
            "policy that needs no fitting goes to gather as it is."
        )
    if mode not in ("same", "cross"):
        raise ValueError(f"mode must be 'same' or 'cross', got {mode!r}.")
    if mode == "cross" and (len(data) < 2 or folds < 2):
        raise ValueError(
            f"cross-fitting needs at least 2 trajectories and 2 folds, got {len(data)} and {folds}."
        )


def fit_model(model: Any, x: Float, actions: Int, trajectory: Int) -> Any:
    """Fit a fresh copy; whoever asks for ``groups``, also at the end of pipelines, is told the trajectories.

    Where one action alone was taken there is nothing to fit, and most classifiers refuse: its frequency, 1, stands in.
    """
    if (actions == actions[0]).all():
        return DummyClassifier(strategy="prior").fit(x, actions)
    fresh = clone(model)
    name = groups_name(fresh)
    return fresh.fit(x, actions) if name is None else fresh.fit(x, actions, **{name: trajectory})


def kept_out_of_fold(fitted: Any) -> Float | None:
    """What a model, or the end of a pipeline, has itself predicted for its log without the own trajectory.

    Nothing where an earlier step of the pipeline may have seen the actions, of the own trajectory too.
    """
    if not isinstance(fitted, Pipeline):
        return getattr(fitted, "oof_proba_", None)
    *before, (_, last) = fitted.steps
    return kept_out_of_fold(last) if all(blind_to_actions(step) for _, step in before) else None


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
    given = np.asarray(groups)
    if given.shape != (n,):
        raise ValueError(f"groups must name the trajectory of each row, shape ({n},), got {given.shape}.")
    return np.unique(given, return_inverse=True)[1]


def fold_of_groups(trajectory: Int, k: int, seed: int) -> Int:
    """The fold of each row, folds of nearly as many trajectories each."""
    n = int(trajectory.max()) + 1
    if not 2 <= k <= n:
        raise ValueError(f"the number of folds must lie between 2 and the {n} trajectories, got {k}.")
    return np.random.default_rng(seed).permutation(np.arange(n) % k)[trajectory]


def _on_its_own_log(fitted: Any, data: Trajectories) -> tuple[Float, str]:
    message = "the behaviour policy was fitted on the same trajectories that it weighs"
    last = end_of(fitted)
    if not hasattr(last, "predict_own"):
        if any(hasattr(part, "predict_own") for part in parts_of(fitted)):
            message += "; inside it a step counts among its own neighbours"
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
