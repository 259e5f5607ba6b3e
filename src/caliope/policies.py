"""Policies: anything that gives each action a probability in each state.

A policy has ``predict_proba(X)`` and ``classes_``, as every fitted scikit-learn classifier does. A few
plain ones are here, and two ways of stating a new policy relative to what is done now (:data:`practice`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caliope.ragged import Float, Int, read_only

_TOLERANCE = 1e-5  # a float32 softmax over 25 actions is off by about 1e-6


class SupportError(ValueError):
    """A policy gives no probability where one is needed."""


@runtime_checkable
class Policy(Protocol):
    """Probabilities of actions given states; any fitted scikit-learn classifier is one."""

    @property
    def classes_(self) -> Any:
        """The actions that the columns of ``predict_proba`` stand for."""

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of shape (len(X), len(classes_))."""


def action_probabilities(policy: Policy, states: ArrayLike, n_actions: int, *, first_row: int = 0) -> Float:
    """Ask a policy for the probability of every action in every state, (N, n_actions).

    The one place that maps ``classes_`` to columns. An action that the policy was never fitted on gets
    probability 0; the columns of the others do not move.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> seen_only_0_and_2 = DummyClassifier().fit([[0], [0], [0], [0]], [0, 0, 0, 2])
    >>> action_probabilities(seen_only_0_and_2, [[0]], n_actions=3)
    array([[0.75, 0.  , 0.25]])
    """
    if not hasattr(policy, "predict_proba") or not hasattr(policy, "classes_"):
        raise TypeError(
            "a policy needs predict_proba(X) and classes_, as a fitted scikit-learn classifier has; "
            f"got {type(policy).__name__}. Has it been fitted?"
        )
    classes = _as_classes(policy, n_actions)
    states = np.asarray(states)
    proba = np.asarray(policy.predict_proba(states))
    if proba.shape != (len(states), len(classes)):
        raise ValueError(
            f"{type(policy).__name__}.predict_proba must return one column for each of its {len(classes)} "
            f"classes, shape ({len(states)}, {len(classes)}); got {proba.shape}."
        )
    table = np.zeros((len(states), n_actions))
    table[:, classes] = proba
    return check_probabilities(table, type(policy).__name__, first_row=first_row)


def _as_classes(policy: Policy, n_actions: int) -> Int:
    classes = np.asarray(policy.classes_)
    whole = classes.ndim == 1 and classes.dtype.kind in "iubf" and bool((classes == np.floor(classes)).all())
    if not whole or len(np.unique(classes)) != len(classes):
        raise ValueError(
            f"classes_ of {type(policy).__name__} must be different action numbers, got {classes!r}. "
            "Fit it on the integer actions of the trajectories."
        )
    if len(classes) and (classes.min() < 0 or classes.max() >= n_actions):
        raise ValueError(
            f"{type(policy).__name__} knows action {int(classes.max() if classes.min() >= 0 else classes.min())}, "
            f"but the data have the {n_actions} actions 0 to {n_actions - 1}."
        )
    return classes.astype(np.int64)


def check_probabilities(table: NDArray[Any], name: str, *, first_row: int = 0) -> Float:
    """Raise unless every row is a distribution; return it as float64."""
    table = np.asarray(table, dtype=np.float64)
    lowest, total = table.min(initial=0.0), table @ np.ones(table.shape[1])
    if lowest >= 0 and (np.abs(total - 1) <= _TOLERANCE).all():  # neither holds beside a nan or an infinity
        return table
    bad = ~(np.isfinite(table).all(axis=1) & (table >= -_TOLERANCE).all(axis=1))
    off = np.abs(table.sum(axis=1) - 1) > _TOLERANCE
    if (bad | off).any():
        row = int(np.argmax(bad | off))
        raise ValueError(
            f"{name}: every row must hold probabilities that sum to 1; {int((bad | off).sum())} of {len(table)} "
            f"do not (first: row {first_row + row}, sum {table[row].sum():.6g}, smallest {table[row].min():.6g}). "
            "Log-probabilities or scores are not probabilities."
        )
    return np.clip(table, 0.0, None) if (table < 0).any() else table


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """A policy written as a table: row s holds the probabilities in state s.

    The state is the whole number in the first column of X.
    """

    probabilities: Float  # (S, A)

    def __post_init__(self) -> None:
        table = np.asarray(self.probabilities, dtype=np.float64)
        if table.ndim != 2:
            raise ValueError(f"a tabular policy needs a table of shape (states, actions), got {table.shape}.")
        object.__setattr__(self, "probabilities", read_only(check_probabilities(table, "TabularPolicy")))

    @cached_property
    def classes_(self) -> Int:
        """All actions, 0 to A - 1."""
        return np.arange(self.probabilities.shape[1])

    def predict_proba(self, X: ArrayLike) -> Float:
        """Look up the row of each state."""
        state = np.asarray(X)
        state = state[:, 0] if state.ndim == 2 else state
        index = state.astype(np.int64)
        if (index != state).any() or (
            len(index) and (index.min() < 0 or index.max() >= len(self.probabilities))
        ):
            raise ValueError(
                f"the first state column must hold whole numbers from 0 to {len(self.probabilities) - 1}, "
                f"got values from {state.min()} to {state.max()}."
            )
        return self.probabilities[index]


@dataclass(frozen=True)
class UniformPolicy:
    """Every action with the same probability, whatever the state."""

    n_actions: int

    def __post_init__(self) -> None:
        if self.n_actions != int(self.n_actions) or self.n_actions < 1:
            raise ValueError(f"n_actions must be a whole number, 1 or more, got {self.n_actions}.")

    @cached_property
    def classes_(self) -> Int:
        """All actions, 0 to n_actions - 1."""
        return np.arange(self.n_actions)

    def predict_proba(self, X: ArrayLike) -> Float:
        """1 / n_actions everywhere."""
        return np.full((len(np.asarray(X)), self.n_actions), 1 / self.n_actions)


@dataclass(frozen=True, eq=False)
class GreedyPolicy:
    """Always the action that another policy finds most likely; the lowest number wins a tie.

    A deterministic policy gives weight 0 to every trajectory that departs from it once: expect a small
    effective sample, and consider ``mix(practice, GreedyPolicy(...), share)``.
    """

    policy: Policy

    @property
    def classes_(self) -> Any:
        """Those of the policy underneath."""
        return self.policy.classes_

    def predict_proba(self, X: ArrayLike) -> Float:
        """1 for the most likely action, 0 for the others."""
        classes = np.asarray(self.policy.classes_)
        table = action_probabilities(self.policy, X, int(classes.max()) + 1)
        return _greedy(table)[:, classes.astype(np.int64)]

    def on(self, data: Any) -> Float:
        """The same at every step of a log, where the policy underneath keeps probabilities for it."""
        return _greedy(probabilities_on(self.policy, data))


def _greedy(table: Float) -> Float:
    return np.eye(table.shape[1])[table.argmax(axis=1)]


@dataclass(frozen=True, eq=False)
class Practice:
    """What is done now, whatever that is; see :data:`practice`."""

    def given(self, states: Float, behaviour: Float) -> Float:
        """Probabilities of all actions, once those of the behaviour policy are known, (N, A)."""
        return behaviour


practice = Practice()
"""What is done now. ``mix(practice, policy, 0.2)`` and ``tilt(practice, weights)`` state a change to it."""


@dataclass(frozen=True, eq=False)
class MixWithPractice:
    """Another policy in a share of the decisions; made by :func:`mix`."""

    policy: Policy
    share: float

    def given(self, states: Float, behaviour: Float) -> Float:
        """Probabilities of all actions, once those of the behaviour policy are known, (N, A)."""
        return self.mixed(action_probabilities(self.policy, states, behaviour.shape[1]), behaviour)

    def mixed(self, new: Float, behaviour: Float) -> Float:
        """The same from tables of the new policy and of the behaviour policy, or columns of both, (N, A) or (N,)."""
        return (1 - self.share) * behaviour + self.share * new


Weights = Float | Callable[[Float], ArrayLike]


@dataclass(frozen=True, eq=False)
class _TiltOfPractice:
    weights: Weights

    def given(self, states: Float, behaviour: Float) -> Float:
        weights = _weigh(self.weights, states, behaviour.shape[1])
        # Weights relative to the first and rows relative to their own sum: a constant tilt changes nothing at all.
        product = behaviour * (weights / weights[:, :1])
        return product * (behaviour.sum(axis=1, keepdims=True) / product.sum(axis=1, keepdims=True))


def _tilted(proba: Float, weights: Float) -> Float:
    product = proba * weights
    return product / product.sum(axis=1, keepdims=True)


def _weigh(weights: Weights, states: Float, n_actions: int) -> Float:
    values = np.asarray(weights(states) if callable(weights) else weights, dtype=np.float64)
    values = np.broadcast_to(values, (len(states), n_actions)) if values.shape == (n_actions,) else values
    if values.shape != (len(states), n_actions) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"the weights of a tilt must be positive and finite, one for each of the {n_actions} actions (or a "
            f"function of the states that returns them for each row); got shape {values.shape}, smallest "
            f"{values.min(initial=np.inf):.6g}. A weight of 0 forbids an action: state that as a policy of its own."
        )
    return values


Relative = Practice | MixWithPractice | _TiltOfPractice


def _refuse_relative(*policies: Any) -> None:
    for policy in policies:
        if isinstance(policy, MixWithPractice | _TiltOfPractice):
            raise TypeError(
                "a change to practice cannot be changed again: state the whole of it in one mix or tilt."
            )


def probabilities_on(policy: Any, data: Any) -> Float:
    """Probabilities of a policy at every step of a log: those it keeps for it, or predictions, (N, A)."""
    if callable(getattr(policy, "on", None)):
        return np.asarray(policy.on(data))
    return action_probabilities(policy, data.states, data.n_actions)


@dataclass(frozen=True, eq=False)
class _Mixture:
    policy: Policy
    other: Policy
    share: float

    def on(self, data: Any) -> Float:
        return (1 - self.share) * probabilities_on(self.policy, data) + self.share * probabilities_on(
            self.other, data
        )

    @property
    def note(self) -> Any:
        return getattr(self.policy, "note", None) or getattr(self.other, "note", None)

    @property
    def classes_(self) -> Int:
        return np.union1d(np.asarray(self.policy.classes_), np.asarray(self.other.classes_))

    def predict_proba(self, X: Any) -> Float:
        classes = self.classes_
        n_actions = int(classes.max()) + 1
        first = action_probabilities(self.policy, X, n_actions)[:, classes]
        second = action_probabilities(self.other, X, n_actions)[:, classes]
        return (1 - self.share) * first + self.share * second


def mix(policy: Policy | Practice, other: Policy, share: float) -> Any:
    r"""Follow ``other`` in a share of the decisions and ``policy`` in the rest.

    .. math:: \pi(a \mid s) = (1 - \alpha)\, \pi_1(a \mid s) + \alpha\, \pi_2(a \mid s)

    With :data:`practice` as the first policy the question is stated relative to what is done now, and the
    ratio is taken in the relative form :math:`(1 - \alpha) + \alpha\, \pi_2 / \hat\pi_b`: it is bounded
    below by :math:`1 - \alpha`, and an error of the fitted behaviour policy enters it only by the share.

    Examples
    --------
    >>> mix(UniformPolicy(2), TabularPolicy([[1.0, 0.0]]), 0.5).predict_proba([[0]])
    array([[0.75, 0.25]])
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in [0, 1], got {share}.")
    if isinstance(other, Practice):
        raise TypeError("practice comes first: mix(practice, policy, share).")
    _refuse_relative(policy, other)
    return MixWithPractice(other, share) if isinstance(policy, Practice) else _Mixture(policy, other, share)


@dataclass(frozen=True, eq=False)
class _Tilted:
    policy: Policy
    weights: Weights

    @property
    def classes_(self) -> Any:
        return self.policy.classes_

    def on(self, data: Any) -> Float:
        return _tilted(probabilities_on(self.policy, data), _weigh(self.weights, data.states, data.n_actions))

    @property
    def note(self) -> Any:
        return getattr(self.policy, "note", None)

    def predict_proba(self, X: Any) -> Float:
        X = np.asarray(X)
        known = np.asarray(self.policy.classes_).astype(np.int64)
        given = np.asarray(self.weights(X) if callable(self.weights) else self.weights, dtype=np.float64)
        n_actions = max(given.shape[-1] if given.ndim else 0, int(known.max()) + 1)
        table = action_probabilities(self.policy, X, n_actions)
        return _tilted(table, _weigh(given, X, n_actions))[:, known]


def tilt(policy: Policy | Practice, weights: ArrayLike | Callable[[Float], ArrayLike]) -> Any:
    r"""Do some actions more often and others less, in proportion to weights.

    .. math:: \pi(a \mid s) = \frac{\pi_1(a \mid s)\, w(a)}{\sum_b \pi_1(b \mid s)\, w(b)}

    ``weights`` has one positive entry an action, or is a function from states (N, d) to (N, A). With
    :data:`practice` this is an incremental intervention (Kennedy 2019): "vasopressors 20% less often".
    It never asks for an action that nobody takes.

    Examples
    --------
    >>> tilt(UniformPolicy(2), [1.0, 3.0]).predict_proba([[0]])
    array([[0.25, 0.75]])
    """
    _refuse_relative(policy)
    given = weights if callable(weights) else read_only(np.asarray(weights, dtype=np.float64))
    return _TiltOfPractice(given) if isinstance(policy, Practice) else _Tilted(policy, given)
