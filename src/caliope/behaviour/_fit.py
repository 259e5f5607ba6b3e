"""Fit a behaviour policy on the same trajectories or across folds, and recognise the trajectories it was fitted on."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn import decomposition, feature_selection, impute, preprocessing
from sklearn.base import ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline

from caliope._policies import Policy, action_probabilities
from caliope._ragged import Float, Int, read_only
from caliope._trajectories import Trajectories
from caliope.checks import B102, Finding


@dataclass(frozen=True, eq=False, repr=False)
class FittedBehaviour:
    """A fitted behaviour policy, with its probabilities for the log that it was fitted on.

    It is itself a policy. For its own log :func:`~caliope.gather` uses ``probabilities``; for other trajectories it
    predicts.

    Parameters
    ----------
    model : Policy
        The classifier, fitted on the whole log.
    probabilities : array of shape (N, A)
        Probabilities of all actions in the log; in mode ``"cross"`` out of fold.
    mode : {"same", "cross"}
        How ``probabilities`` were made, see :func:`fit_behaviour`.
    note : Finding
        The same in words; every estimate carries it.
    data : Trajectories
        The log that ``probabilities`` belong to.

    Examples
    --------
    >>> from caliope.behaviour import TabularFrequencies, fit_behaviour
    >>> from caliope.domains import ward
    >>> fitted = fit_behaviour(TabularFrequencies(), ward.simulate(50, rng=0), mode="same")
    >>> fitted.mode, fitted.predict_proba([[4.0]]).shape
    ('same', (1, 3))
    """

    model: Policy
    probabilities: Float
    mode: str
    note: Finding
    data: Trajectories

    def __repr__(self) -> str:
        model, data = type(self.model).__name__, self.data
        return f"{type(self).__name__}({model}, mode={self.mode!r}, {len(data)} {data.units}, {data.n_steps} steps)"

    @property
    def classes_(self) -> Any:
        """The actions that the model knows."""
        return self.model.classes_

    def predict_proba(self, X: ArrayLike) -> Any:
        """Predict with the model that was fitted on the whole log."""
        return self.model.predict_proba(X)

    def on(self, data: Trajectories) -> Float:
        """Probabilities of all actions in a log, (N, A).

        Trajectories of the fit keep their own probabilities, whatever their rewards. They are recognised by states
        and actions, and in discrete states by ids too (``match_trajectories``). Others are predicted.
        """
        if data is self.data:
            return self.probabilities
        place = match_trajectories(self.data, data)
        table = np.empty((data.n_steps, self.probabilities.shape[1]))
        known, new = np.flatnonzero(place >= 0), data.layout.rows_of(np.flatnonzero(place < 0))
        table[data.layout.rows_of(known)] = self.probabilities[self.data.layout.rows_of(place[known])]
        if len(new):
            table[new] = action_probabilities(self.model, self.widen(data).states[new], table.shape[1])
        return table

    @property
    def added(self) -> str:
        """What the model sees beside the state, in words; nothing here."""
        return ""

    def widen(self, data: Trajectories) -> Trajectories:
        """The log with all that the model sees in its states; the log itself here."""
        return data

    def fit_again(self, fit: Callable[[Trajectories], FittedBehaviour]) -> FittedBehaviour:
        """Fit another model to what this one sees of its own log."""
        return fit(self.data)

    def with_predictions_for(self, data: Trajectories) -> FittedBehaviour:
        """Return a copy that keeps its probabilities for ``data`` instead of its own log."""
        return self if data is self.data else replace(self, probabilities=read_only(self.on(data)), data=data)


class MostLikelyAction(ClassifierMixin):  # type: ignore[misc]
    """A classifier whose prediction is the action of the largest probability."""

    def predict(self, X: ArrayLike) -> Any:
        """Return the most likely action of each row, (N,)."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]


def fit_behaviour(
    model: Any,
    data: Trajectories,
    *,
    mode: Literal["same", "cross"],
    folds: int = 5,
    rng: int | np.random.Generator = 0,
) -> FittedBehaviour:
    """Fit a scikit-learn classifier to the logged actions.

    Parameters
    ----------
    model : classifier
        Any unfitted classifier with ``predict_proba``. If its ``fit`` takes ``groups``, these are the
        trajectories, or the clusters of the log.
    data : Trajectories
        The log.
    mode : {"same", "cross"}
        ``"same"`` fits and predicts on the same trajectories. For importance sampling this has a lower error than
        even the true probabilities, unless the model memorises (Hanna et al. 2019). ``"cross"`` predicts each
        trajectory with a model that was fitted without it: for doubly robust estimators and flexible models. If the
        fitted model exposes ``oof_proba_``, that is used instead of refitting, unless an earlier step of a pipeline
        may have seen the actions.
    folds : int
        Number of folds in mode ``"cross"``; a fold holds whole trajectories and whole clusters.
    rng : int or numpy.random.Generator
        Seed of the folds.

    Returns
    -------
    FittedBehaviour
        A policy, with probabilities for the log and a note on how they were made.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from sklearn.linear_model import LogisticRegression
    >>> fitted = fit_behaviour(LogisticRegression(), ward.simulate(50, rng=0), mode="cross", rng=0)
    >>> fitted.probabilities.shape
    (326, 3)
    """
    _check(model, data, mode, folds)
    groups = data.layout.unit_of_step
    whole = fit_model(model, data.states, data.actions, groups)
    if not hasattr(whole, "predict_proba"):
        raise TypeError(
            f"a behaviour model needs predict_proba, and {type(whole).__name__} has none: use another classifier, or "
            "wrap it in scikit-learn's CalibratedClassifierCV."
        )
    facts: dict[str, Any] = {}
    if mode == "same":
        table, variants = _predict_own_log(whole, data)
    elif (stored := get_out_of_fold(whole)) is not None:
        table = align_columns(whole.classes_, stored, data.n_actions)
        variants = ("own-folds",)
    else:
        table = np.empty((data.n_steps, data.n_actions))
        for fit, held_out in data.folds(folds, rng=rng):
            part = fit_model(model, data.states[fit], data.actions[fit], groups[fit])
            table[held_out] = action_probabilities(part, data.states[held_out], data.n_actions)
        variants, facts = ("cross",), {"folds": folds}
    if ungrouped := find_ungrouped(model):
        variants, facts = (*variants, "ungrouped"), {**facts, "parts": ", ".join(ungrouped)}
    return FittedBehaviour(whole, read_only(table), mode, B102.finding("note", *variants, **facts), data)


def _check(model: Any, data: Trajectories, mode: str, folds: int) -> None:
    if not isinstance(data, Trajectories):
        raise TypeError(f"data must be Trajectories (see read_table), got {type(data).__name__}.")
    if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "get_params")):
        name = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise TypeError(
            f"model must be an unfitted scikit-learn classifier, such as LogisticRegression(), got {name}. Pass a "
            "policy that needs no fitting to gather directly."
        )
    if mode not in ("same", "cross"):
        raise ValueError(f"mode must be 'same' or 'cross', got {mode!r}.")
    if mode == "cross" and (len(data) < 2 or folds < 2):
        raise ValueError(
            f"cross-fitting needs at least 2 trajectories and 2 folds, got {len(data)} and {folds}."
        )


def fit_model(model: Any, x: Float, actions: Int, trajectory: Int) -> Any:
    """Fit a copy; pass the trajectories as ``groups`` where its ``fit``, or that of a last step, takes them.

    If a single action was taken, most classifiers refuse to fit: a constant probability of 1 replaces them.
    """
    if (actions == actions[0]).all():
        return DummyClassifier(strategy="prior").fit(x, actions)
    fresh = clone(model)
    name = groups_name(fresh)
    return fresh.fit(x, actions) if name is None else fresh.fit(x, actions, **{name: trajectory})


def get_out_of_fold(fitted: Any) -> Float | None:
    """Return the out-of-fold probabilities that a model, or the last step of a pipeline, has stored.

    None where an earlier step of the pipeline may have seen the actions of the held-out trajectory.
    """
    if not isinstance(fitted, Pipeline):
        return getattr(fitted, "oof_proba_", None)
    *before, (_, last) = fitted.steps
    return get_out_of_fold(last) if all(ignores_actions(step) for _, step in before) else None


def predict_out_of_fold(model: Any, x: Float, codes: Int, trajectory: Int, fold: Int) -> Float:
    """Predict every row with a model fitted on the other folds, (N, A); codes are 0 to A - 1."""
    table = np.empty((len(x), int(codes.max()) + 1))
    for j in range(int(fold.max()) + 1):
        fit, held_out = np.flatnonzero(fold != j), np.flatnonzero(fold == j)
        fitted = fit_model(model, x[fit], codes[fit], trajectory[fit])
        table[held_out] = action_probabilities(fitted, x[held_out], table.shape[1])
    return table


def number_groups(groups: ArrayLike | None, n: int) -> Int:
    """Number the trajectory of each row from 0, (n,); without groups every row is a trajectory."""
    if groups is None:
        return np.arange(n)
    names = np.asarray(groups)
    if names.shape != (n,):
        raise ValueError(f"groups must name the trajectory of each row, shape ({n},), got {names.shape}.")
    return np.unique(names, return_inverse=True)[1]


def assign_folds(trajectory: Int, k: int, seed: int) -> Int:
    """Assign each row to one of k folds of nearly equal numbers of trajectories, (N,)."""
    n = int(trajectory.max()) + 1
    if not 2 <= k <= n:
        raise ValueError(f"the number of folds must lie between 2 and the {n} trajectories, got {k}.")
    return np.random.default_rng(seed).permutation(np.arange(n) % k)[trajectory]


def _predict_own_log(fitted: Any, data: Trajectories) -> tuple[Float, tuple[str, ...]]:
    """Predict the trajectories of the fit, and name the variants of finding B102 that describe it."""
    last = end_of(fitted)
    if hasattr(last, "predict_own"):
        return align_columns(last.classes_, last.predict_own(), data.n_actions), ("same", last.own)
    inside = any(hasattr(part, "predict_own") for part in parts_of(fitted))
    table = action_probabilities(fitted, data.states, data.n_actions)
    return table, ("same", "nested") if inside else ("same",)


def align_columns(classes: Any, proba: Float, n_actions: int) -> Float:
    """Move each column to the number of its action, with zeros for other actions, (N, n_actions)."""
    table = np.zeros((len(proba), n_actions))
    table[:, np.asarray(classes, dtype=np.int64)] = proba
    return table


# Above this share of duplicate trajectories in a log, states and actions do not identify one.
_MAX_DUPLICATES = 0.05
# Share of the ids in both logs that must belong to the same trajectory in both, or ids are not used.
_MIN_AGREEMENT = 0.95


def match_trajectories(fitted_on: Trajectories, data: Trajectories) -> Int:
    """Find each trajectory of ``data`` in ``fitted_on``: its number there, or -1 for a new one, (n,).

    States and actions identify a trajectory; rewards and the precision of states may differ. Where trajectories are
    hardly ever alike that is enough: for a copy, a selection, and a log with new trajectories.

    In discrete states different trajectories are alike by chance. There the id must agree too, and at least 95% of
    the ids in both logs must belong to the same trajectory: among independent logs numbered 0, 1, ... few do. A log of
    exactly the same trajectories in another order is recognised without ids. A selection with new ids is not.
    """
    known, asked = fitted_on.decision_digests, data.decision_digests
    if known == asked:
        return np.arange(len(fitted_on))
    counts = Counter(known)
    duplicates = 1 - sum(1 for n in counts.values() if n == 1) / len(known)
    identified = duplicates <= _MAX_DUPLICATES or counts == Counter(asked)
    by_content = np.array(_match_in_order(known, asked)) if identified else np.full(len(data), -1)
    by_id = _match_by_id(fitted_on, data)
    return by_content if by_id is None else np.where(by_id >= 0, by_id, by_content)


def _match_by_id(fitted_on: Trajectories, data: Trajectories) -> Int | None:
    """Match by id, states and actions together; None where ids agree no more often than by chance."""
    known, asked = fitted_on.ids.tolist(), data.ids.tolist()
    places = {key: i for i, key in enumerate(zip(known, fitted_on.decision_digests, strict=True))}
    matches = [places.get(key, -1) for key in zip(asked, data.decision_digests, strict=True)]
    agreed = {name for name, i in zip(asked, matches, strict=True) if i >= 0}
    enough = len(agreed) >= max(1, _MIN_AGREEMENT * len(set(known) & set(asked)))
    return np.array(matches) if enough else None


def _match_in_order(known: tuple[bytes, ...], asked: tuple[bytes, ...]) -> list[int]:
    """Match by content; the j-th of several alike gets the j-th place, cyclically."""
    places: dict[bytes, list[int]] = {}
    for i, digest in enumerate(known):
        places.setdefault(digest, []).append(i)
    seen: Counter[bytes] = Counter()
    matches = []
    for digest in asked:
        alike = places.get(digest, [-1])
        matches.append(alike[seen[digest] % len(alike)])
        seen[digest] += 1
    return matches


# Transformers that are fitted to the states alone: they ignore the actions.
_UNSUPERVISED = (
    preprocessing.FunctionTransformer,
    preprocessing.KBinsDiscretizer,
    preprocessing.MaxAbsScaler,
    preprocessing.MinMaxScaler,
    preprocessing.Normalizer,
    preprocessing.OneHotEncoder,
    preprocessing.OrdinalEncoder,
    preprocessing.PolynomialFeatures,
    preprocessing.PowerTransformer,
    preprocessing.QuantileTransformer,
    preprocessing.RobustScaler,
    preprocessing.SplineTransformer,
    preprocessing.StandardScaler,
    decomposition.PCA,
    decomposition.TruncatedSVD,
    feature_selection.VarianceThreshold,
    impute.MissingIndicator,
    impute.SimpleImputer,
)


def ignores_actions(step: Any) -> bool:
    """Whether a step of a pipeline is known to ignore the actions."""
    if isinstance(step, Pipeline):
        return all(ignores_actions(part) for _, part in step.steps)
    return step in (None, "passthrough") or type(step) in _UNSUPERVISED


def end_of(model: Any) -> Any:
    """Return the last step of a pipeline, also of nested ones; any other model itself."""
    return end_of(model.steps[-1][1]) if isinstance(model, Pipeline) else model


def parts_of(model: Any) -> Iterator[Any]:
    """Yield an estimator and all estimators inside it, fitted or not."""
    yield model
    for value in vars(model).values():
        yield from _inside(value)


def _inside(value: Any) -> Iterator[Any]:
    if hasattr(value, "get_params") and not isinstance(value, type):
        yield from parts_of(value)
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _inside(part)


def groups_name(model: Any) -> str | None:
    """Return the name of ``groups`` in ``fit``, ``a__b__groups`` in pipelines; None where it is not taken."""
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        inner = groups_name(last)
        return None if inner is None else f"{name}__{inner}"
    if isinstance(model, BaseSearchCV):
        return "groups" if _splits_by_groups(model.cv) else None
    return "groups" if _takes_groups(model) else None


def find_ungrouped(model: Any) -> list[str]:
    """Name the parts that take ``groups`` but do not get them, because a wrapper does not pass them on."""
    if isinstance(model, Pipeline):
        return find_ungrouped(model.steps[-1][1])
    if isinstance(model, BaseSearchCV):
        by_rows = [] if _splits_by_groups(model.cv) else [type(model).__name__]
        return by_rows + [type(part).__name__ for part in parts_of(model.estimator) if _takes_groups(part)]
    # A model that takes groups passes them on to its parts.
    if _takes_groups(model):
        return []
    return [type(part).__name__ for part in parts_of(model) if _takes_groups(part)]


def _takes_groups(model: Any) -> bool:
    return hasattr(model, "fit") and "groups" in inspect.signature(model.fit).parameters


def _splits_by_groups(cv: Any) -> bool:
    """Whether a splitter uses groups; a plain number of folds does not."""
    if hasattr(cv, "get_metadata_routing"):
        return cv.get_metadata_routing().split.requests.get("groups") is True
    return hasattr(cv, "split")
