"""Plain policies: a table of probabilities, the uniform policy, the most likely action of another policy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._policies import Policy, action_probabilities, check_probabilities, probabilities_on
from caliope._ragged import Float, Int, read_only


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """A policy written as a table: row s holds the probabilities in state s.

    Parameters
    ----------
    probabilities : (S, A)
        One row per state, one column per action. The state is the whole number in the first column of X.

    Examples
    --------
    >>> TabularPolicy([[0.9, 0.1], [0.5, 0.5]]).predict_proba([[1], [0]])
    array([[0.5, 0.5],
           [0.9, 0.1]])
    """

    probabilities: Float

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
    """Every action with the same probability, whatever the state.

    Parameters
    ----------
    n_actions : int
        Number of actions.

    Examples
    --------
    >>> UniformPolicy(4).predict_proba([[0.0]])
    array([[0.25, 0.25, 0.25, 0.25]])
    """

    n_actions: int

    def __post_init__(self) -> None:
        if self.n_actions != int(self.n_actions) or self.n_actions < 1:
            raise ValueError(f"n_actions must be a whole number, 1 or more, got {self.n_actions}.")

    @cached_property
    def classes_(self) -> Int:
        """All actions, 0 to n_actions - 1."""
        return np.arange(self.n_actions)

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return 1 / n_actions for every action."""
        return np.full((len(np.asarray(X)), self.n_actions), 1 / self.n_actions)


@dataclass(frozen=True, eq=False)
class GreedyPolicy:
    """Always the most likely action of another policy; the lowest number wins a tie.

    A deterministic policy gives weight 0 to every trajectory that departs from it once. Expect a small
    effective sample size, and consider ``mix(practice, GreedyPolicy(...), share)``.

    Parameters
    ----------
    policy : Policy
        The policy whose most likely action is taken.

    Examples
    --------
    >>> GreedyPolicy(TabularPolicy([[0.4, 0.6]])).predict_proba([[0]])
    array([[0., 1.]])
    """

    policy: Policy

    @property
    def classes_(self) -> Any:
        """The actions of the policy underneath."""
        return self.policy.classes_

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return 1 for the most likely action and 0 for the others."""
        classes = np.asarray(self.policy.classes_)
        table = action_probabilities(self.policy, X, int(classes.max()) + 1)
        return _pick_largest(table)[:, classes.astype(np.int64)]

    def on(self, data: Any) -> Float:
        """Return the same at every step of a log, from the probabilities that the policy keeps for it, (N, A)."""
        return _pick_largest(probabilities_on(self.policy, data))


def _pick_largest(table: Float) -> Float:
    return np.eye(table.shape[1])[table.argmax(axis=1)]
