"""Policies that were fitted on named columns or on actions in words, as policies of a log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from caliope._policies import MixWithPractice, action_probabilities
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories

_LISTED = 12  # names that a message spells out


@dataclass(frozen=True, eq=False)
class NamedPolicy:
    """A policy that gets a frame with the columns that it was fitted on; made by :func:`as_coded`.

    Attributes
    ----------
    policy : object with predict_proba and classes_
        As it was fitted.
    columns : tuple of str or None
        The columns that it was fitted on; None for plain arrays.
    feature_names : tuple of str
        The features of the log.
    classes_ : array of int
        The codes of its actions.
    """

    policy: Any
    columns: tuple[str, ...] | None
    feature_names: tuple[str, ...]
    classes_: Int

    def on(self, data: Trajectories) -> Float:
        """Return the probabilities at every step of a log, (N, A)."""
        coded = _Coded(self.policy, self.classes_)
        return action_probabilities(coded, self._rows(data), data.n_actions)

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities in each state, (N, len(classes_))."""
        if self.columns is None or hasattr(X, "columns"):
            return self.policy.predict_proba(X)
        x = np.asarray(X)
        return self.policy.predict_proba(
            _frame({name: x[:, self.feature_names.index(name)] for name in self.columns})
        )

    def _rows(self, data: Trajectories) -> Any:
        if self.columns is None:
            return data.states
        places = {name: i for i, name in enumerate(data.feature_names)}
        return _frame(
            {name: data.states[:, places[name]] if name in places else data[name] for name in self.columns}
        )


@dataclass(frozen=True, eq=False)
class _Coded:
    policy: Any
    classes_: Int

    def predict_proba(self, X: Any) -> Any:
        return self.policy.predict_proba(X)


def as_coded(policy: Any, data: Trajectories, *, name: str = "target") -> Any:
    """The policy as one of this log: with its columns by name, and its actions as codes; itself where it needs neither.

    Raise where it was fitted on columns that the log does not have, or on words that are no actions of the log.
    """
    if isinstance(policy, MixWithPractice):
        return replace(policy, policy=as_coded(policy.policy, data, name=name))
    if (
        isinstance(policy, NamedPolicy | type)
        or not hasattr(policy, "predict_proba")
        or not hasattr(policy, "classes_")
    ):
        return policy
    columns, classes = _columns(policy, data, name), np.asarray(policy.classes_)
    words = classes.dtype.kind in "UO" or (classes.dtype.kind == "b" and data.action_names is not None)
    if columns is None and not words:
        return policy
    codes = _codes(policy, classes, data, name) if words else classes
    return NamedPolicy(policy, columns, data.feature_names, codes)


def _columns(policy: Any, data: Trajectories, name: str) -> tuple[str, ...] | None:
    fitted = getattr(policy, "feature_names_in_", None)
    unnamed = data.feature_names == tuple(f"x{j}" for j in range(len(data.feature_names)))
    if fitted is None or unnamed:
        return None
    columns = tuple(map(str, fitted))
    lacking = [
        column for column in columns if column not in data.feature_names and column not in data.columns
    ]
    if lacking:
        raise ValueError(
            f"{name} was fitted on the features {list(columns)[:_LISTED]}, and the log has "
            f"{list(data.feature_names)[:_LISTED]}: {lacking[0]!r} is not there. Keep it with keep= of read_table, or "
            "fit the policy on data.states."
        )
    return columns


def _codes(policy: Any, classes: Any, data: Trajectories, name: str) -> Int:
    names = data.action_names or ()
    odd = [str(x) for x in classes if str(x) not in names]
    if odd:
        known = f"are {', '.join(names[:_LISTED])}" if names else "have no names"
        raise ValueError(
            f"{name}: {type(policy).__name__} knows the action {odd[0]!r}, and the actions of the log {known}. Fit it "
            "on the actions of the log."
        )
    return np.array([names.index(str(x)) for x in classes], dtype=np.int64)


def _frame(columns: dict[str, Any]) -> Any:
    """A frame of pandas where it is installed, as most policies were fitted on one; else of polars."""
    kind = "pandas" if find_spec("pandas") is not None else "polars"
    return import_module(kind).DataFrame(columns)
