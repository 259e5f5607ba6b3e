"""Policies: the protocol, their probabilities, and policies made of others (mix, tilt, practice).

A policy has ``predict_proba(X)`` and ``classes_``, as every fitted scikit-learn classifier does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caliope._ragged import Float, Int, read_only

# A float32 softmax over 25 actions is off by about 1e-6.
_TOLERANCE = 1e-5
# Sums of rounded probabilities are off by no more than this.
_ROUNDED = 0.02 + 1e-9


class SupportError(ValueError):
    """A policy gives no probability where one is needed."""


@runtime_checkable
class Policy(Protocol):
    """Probabilities of actions given states; any fitted scikit-learn classifier is a policy.

    Examples
    --------
    >>> from sklearn.dummy import DummyClassifier
    >>> isinstance(DummyClassifier().fit([[0], [0]], [0, 1]), Policy)
    True
    """

    @property
    def classes_(self) -> Any:
        """The actions that the columns of ``predict_proba`` stand for."""

    def predict_proba(self, X: Any) -> Any:
        """Probabilities of shape ``(len(X), len(classes_))``."""


def action_probabilities(policy: Policy, states: Any, n_actions: int, *, first_row: int = 0) -> Float:
    """Ask a policy for the probability of every action in every state.

    The one place that maps ``classes_`` to columns. An action that the policy was never fitted on gets
    probability 0; the columns of the others do not move.

    Parameters
    ----------
    policy : Policy
        Object with ``predict_proba`` and ``classes_``.
    states : (N, d), or a frame
        States, one row per decision.
    n_actions : int
        Number of actions A of the log.
    first_row : int
        Number of the first row in the log, for error messages.

    Returns
    -------
    (N, A)
        Probabilities; every row sums to 1.

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
    states = states if hasattr(states, "columns") else np.asarray(states)
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
    """Return the table as float64; raise unless every row is a distribution."""
    table = np.asarray(table, dtype=np.float64)
    lowest, total = table.min(initial=0.0), table @ np.ones(table.shape[1])
    total -= 1
    # Neither condition holds where there is a nan or an infinity.
    if lowest >= 0 and np.abs(total, out=total).max(initial=0.0) <= _TOLERANCE:
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


def rounded_digits(table: Float) -> int | None:
    """To how many digits the probabilities of a table were rounded, where that alone keeps rows from summing to 1.

    None where all rows sum to 1, or where rounding does not explain that some do not. Each of A numbers is off by half
    a unit of the last digit at most, and the sum by no more than 0.02.
    """
    total = table.sum(axis=1)
    off = np.abs(total - 1).max(initial=0.0)
    if not _TOLERANCE < off <= _ROUNDED or table.min(initial=0.0) < 0:
        return None
    for digits in (2, 3, 4):
        unit = 10.0**-digits
        if np.abs(table - np.round(table, digits)).max() < 1e-9 and off <= table.shape[1] * unit / 2 + 1e-9:
            return digits
    return None


@dataclass(frozen=True, eq=False)
class Practice:
    """Current practice: the behaviour policy, as a target; see :data:`practice`."""

    def apply(self, states: Float, behaviour: Float) -> Float:
        """Return the target probabilities from the behaviour probabilities of all actions, (N, A)."""
        return behaviour


practice = Practice()
"""Current practice. ``mix(practice, policy, 0.2)`` and ``tilt(practice, weights)`` state a change to it."""


@dataclass(frozen=True, eq=False)
class MixWithPractice:
    """Current practice with another policy in a share of the decisions; made by :func:`mix`."""

    policy: Policy
    share: float

    def apply(self, states: Float, behaviour: Float) -> Float:
        """Return the target probabilities from the behaviour probabilities of all actions, (N, A)."""
        return self.combine(action_probabilities(self.policy, states, behaviour.shape[1]), behaviour)

    def combine(self, new: Float, behaviour: Float) -> Float:
        """Mix probabilities of the new policy and of the behaviour policy, both (N, A) or both (N,)."""
        return (1 - self.share) * behaviour + self.share * new


Weights = Float | Callable[[Float], ArrayLike]


@dataclass(frozen=True, eq=False)
class TiltOfPractice:
    """Current practice with some actions more often and others less; made by :func:`tilt`."""

    weights: Weights | Mapping[str, float]

    def coded(self, action_names: Sequence[str] | None) -> TiltOfPractice:
        """The same tilt with its weights in the order of the actions, where they were given by name."""
        if not isinstance(self.weights, Mapping):
            return self
        if action_names is None:
            raise ValueError(
                "the weights of the tilt are given by the names of actions, and the actions of the log have none: "
                "give one weight per action, in the order of their codes."
            )
        if odd := [name for name in self.weights if name not in action_names]:
            raise ValueError(
                f"the tilt has a weight for {odd[0]!r}, and the actions of the log are {', '.join(action_names[:12])}."
            )
        return replace(self, weights=_as_weights([self.weights.get(name, 1.0) for name in action_names]))

    def apply(self, states: Float, behaviour: Float) -> Float:
        """Return the target probabilities from the behaviour probabilities of all actions, (N, A)."""
        weights = _weigh(self.weights, states, behaviour.shape[1])
        # Weights relative to the first and rows relative to their own sum: a constant tilt changes nothing at all.
        product = behaviour * (weights / weights[:, :1])
        return product * (behaviour.sum(axis=1, keepdims=True) / product.sum(axis=1, keepdims=True))


def _as_weights(weights: ArrayLike) -> Float:
    return read_only(np.asarray(weights, dtype=np.float64))


def _reweigh(proba: Float, weights: Float) -> Float:
    product = proba * weights
    return product / product.sum(axis=1, keepdims=True)


def _weigh(weights: Any, states: Float, n_actions: int) -> Float:
    values = np.asarray(weights(states) if callable(weights) else weights, dtype=np.float64)
    values = np.broadcast_to(values, (len(states), n_actions)) if values.shape == (n_actions,) else values
    if values.shape != (len(states), n_actions) or not (np.isfinite(values) & (values > 0)).all():
        raise ValueError(
            f"the weights of a tilt must be positive and finite, one for each of the {n_actions} actions (or a "
            f"function of the states that returns them for each row); got shape {values.shape}, smallest "
            f"{values.min(initial=np.inf):.6g}. A weight of 0 forbids an action: state that as a policy of its own."
        )
    return values


Relative = Practice | MixWithPractice | TiltOfPractice


def _refuse_relative(*policies: Any) -> None:
    for policy in policies:
        if isinstance(policy, MixWithPractice | TiltOfPractice):
            raise TypeError(
                "a change to practice cannot be changed again: state the whole of it in one mix or tilt."
            )


def probabilities_on(policy: Any, data: Any) -> Float:
    """Return the probabilities that a policy keeps for a log, or its predictions there, (N, A)."""
    if callable(getattr(policy, "on", None)):
        return np.asarray(policy.on(data))
    return action_probabilities(policy, data.states, data.n_actions)


@dataclass(frozen=True, eq=False)
class MixedPolicy:
    """One policy in a share of the decisions and another in the rest; made by :func:`mix`."""

    policy: Policy
    other: Policy
    share: float

    def on(self, data: Any) -> Float:
        """Return the probabilities at every step of a log, (N, A)."""
        first, second = probabilities_on(self.policy, data), probabilities_on(self.other, data)
        return (1 - self.share) * first + self.share * second

    @property
    def note(self) -> Any:
        """Finding that one of the two carries, if any."""
        return getattr(self.policy, "note", None) or getattr(self.other, "note", None)

    @property
    def classes_(self) -> Int:
        """The actions of either policy."""
        return np.union1d(np.asarray(self.policy.classes_), np.asarray(self.other.classes_))

    def predict_proba(self, X: Any) -> Float:
        """Return the mixed probabilities in each state, (N, len(classes_))."""
        classes = self.classes_
        n_actions = int(classes.max()) + 1
        first = action_probabilities(self.policy, X, n_actions)[:, classes]
        second = action_probabilities(self.other, X, n_actions)[:, classes]
        return (1 - self.share) * first + self.share * second


@overload
def mix(policy: Practice, other: Policy, share: float) -> MixWithPractice: ...
@overload
def mix(policy: Policy, other: Policy, share: float) -> MixedPolicy: ...
def mix(policy: Policy | Practice, other: Policy, share: float) -> MixedPolicy | MixWithPractice:
    r"""Follow ``other`` in a share of the decisions and ``policy`` in the rest.

    .. math:: \pi(a \mid s) = (1 - \alpha)\, \pi_1(a \mid s) + \alpha\, \pi_2(a \mid s)

    With :data:`practice` as the first policy the target is stated relative to current practice. The ratio is
    then :math:`(1 - \alpha) + \alpha\, \pi_2 / \hat\pi_b`: it is bounded below by :math:`1 - \alpha`, and an
    error of the fitted behaviour policy enters it only by the share.

    Parameters
    ----------
    policy : Policy or practice
        Policy of the remaining decisions.
    other : Policy
        Policy of the share.
    share : float
        Share :math:`\alpha` of the decisions, in [0, 1].

    Returns
    -------
    MixedPolicy or MixWithPractice
        A policy, or with ``practice`` a target for :func:`~caliope.gather` and :func:`~caliope.audit`.

    Examples
    --------
    >>> from caliope import TabularPolicy, UniformPolicy
    >>> mix(UniformPolicy(2), TabularPolicy([[1.0, 0.0]]), 0.5).predict_proba([[0]])
    array([[0.75, 0.25]])
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must lie in [0, 1], got {share}.")
    if isinstance(other, Practice):
        raise TypeError("practice comes first: mix(practice, policy, share).")
    _refuse_relative(policy, other)
    return (
        MixWithPractice(other, share) if isinstance(policy, Practice) else MixedPolicy(policy, other, share)
    )


@dataclass(frozen=True, eq=False)
class TiltedPolicy:
    """A policy with some actions more often and others less; made by :func:`tilt`."""

    policy: Policy
    weights: Weights

    @property
    def classes_(self) -> Any:
        """The actions of the policy underneath."""
        return self.policy.classes_

    def on(self, data: Any) -> Float:
        """Return the probabilities at every step of a log, (N, A)."""
        return _reweigh(
            probabilities_on(self.policy, data), _weigh(self.weights, data.states, data.n_actions)
        )

    @property
    def note(self) -> Any:
        """Finding that the policy underneath carries, if any."""
        return getattr(self.policy, "note", None)

    def predict_proba(self, X: Any) -> Float:
        """Return the tilted probabilities in each state, (N, len(classes_))."""
        X = np.asarray(X)
        classes = np.asarray(self.policy.classes_).astype(np.int64)
        weights = np.asarray(self.weights(X) if callable(self.weights) else self.weights, dtype=np.float64)
        n_actions = max(weights.shape[-1] if weights.ndim else 0, int(classes.max()) + 1)
        table = action_probabilities(self.policy, X, n_actions)
        return _reweigh(table, _weigh(weights, X, n_actions))[:, classes]


@overload
def tilt(
    policy: Practice, weights: ArrayLike | Mapping[str, float] | Callable[[Float], ArrayLike]
) -> TiltOfPractice: ...
@overload
def tilt(policy: Policy, weights: ArrayLike | Callable[[Float], ArrayLike]) -> TiltedPolicy: ...
def tilt(
    policy: Policy | Practice, weights: ArrayLike | Mapping[str, float] | Callable[[Float], ArrayLike]
) -> TiltedPolicy | TiltOfPractice:
    r"""Take some actions more often and others less, in proportion to weights.

    .. math:: \pi(a \mid s) = \frac{\pi_1(a \mid s)\, w(a)}{\sum_b \pi_1(b \mid s)\, w(b)}

    With :data:`practice` this is an incremental intervention (Kennedy 2019): "this action 20% less often". It
    never gives probability to an action that the behaviour policy does not take.

    Parameters
    ----------
    policy : Policy or practice
        The policy to change.
    weights : (A,), mapping from name to float, or callable
        One positive weight per action, in the order of their codes; for ``practice`` also by the names of actions of
        the log, where those that are left out keep a weight of 1; or a function from states (N, d) to weights (N, A).

    Returns
    -------
    TiltedPolicy or TiltOfPractice
        A policy, or with ``practice`` a target for :func:`~caliope.gather` and :func:`~caliope.audit`.

    Examples
    --------
    >>> from caliope import UniformPolicy
    >>> tilt(UniformPolicy(2), [1.0, 3.0]).predict_proba([[0]])
    array([[0.25, 0.75]])
    >>> from caliope import practice
    >>> more = tilt(practice, {"discount": 2.0})  # its odds are doubled
    """
    _refuse_relative(policy)
    if isinstance(weights, Mapping):
        if not isinstance(policy, Practice):
            raise TypeError(
                "weights by the names of actions are for tilts of practice: give one weight per action, in the order "
                "of their codes."
            )
        return TiltOfPractice(dict(weights))
    weights = weights if callable(weights) else _as_weights(weights)
    return TiltOfPractice(weights) if isinstance(policy, Practice) else TiltedPolicy(policy, weights)
