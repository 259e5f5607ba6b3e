"""Values at the steps of a log, as estimators need them: of the logged action, and of the target policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from caliope._ragged import Float, at_actions
from caliope._trajectories import Trajectories
from caliope.checks import Finding


@runtime_checkable
class ActionValues(Protocol):
    r"""Fitted values of states and actions under the target policy."""

    def q(self, states: Float, actions: Any) -> Any:
        r""":math:`\hat Q(s, a)` for each row, (N,)."""

    def v(self, states: Float) -> Any:
        r""":math:`\hat V(s)` for each row, (N,)."""


@runtime_checkable
class OnLog(Protocol):
    """A fitted object that keeps its numbers for a log: out of fold where it was cross-fitted."""

    def on(self, data: Trajectories) -> Float:
        """Return a number for every step and action of a log, (N, A)."""


class TargetChunk(NamedTuple):
    """Target probabilities in some rows of the log."""

    at_logged: Float  # (m,), of the logged actions
    all_actions: (
        Any  # (m, A); None beside logged probabilities, where the target is practice or mixed with it
    )
    needs_support: Float  # (m, A), the probabilities that the behaviour policy must support
    mixed_in: tuple[float, Float] | None = (
        None  # share and probabilities, (m, A), of the policy beside practice
    )
    tilted: Float | None = None  # (m,), importance ratios of a tilt


# Rows, their actions and the target probabilities there -> q and v, (m,) each.
Values = Callable[[slice, Any, TargetChunk], tuple[Float, Float]]


def action_values(q: Any, data: Trajectories) -> Values | None:
    """Return what gives the values of the logged actions and of the target in some rows; None without values."""
    if q is None:
        return None
    if isinstance(q, ActionValues) and not isinstance(q, OnLog):
        return _values_from_functions(q, data)
    table = np.asarray(q.on(data) if isinstance(q, OnLog) else q, dtype=np.float64)
    if table.shape != (data.n_steps, data.n_actions):
        raise ValueError(
            f"q as an array must have shape ({data.n_steps}, {data.n_actions}), a value for each step and action, "
            f"got {table.shape}; an object needs methods q(states, actions) and v(states)."
        )

    def values(rows: slice, actions: Any, target: TargetChunk) -> tuple[Float, Float]:
        share, new = (1.0, target.all_actions) if target.mixed_in is None else target.mixed_in
        # First all values in order, which brings them into the cache, then those of the logged actions.
        v = np.vecdot(new, table[rows])
        q = at_actions(table[rows], actions)
        if target.mixed_in is not None:
            return q, (1 - share) * q + share * v
        return q, v if target.tilted is None else v + target.tilted * (q - v)

    return values


def _values_from_functions(q: ActionValues, data: Trajectories) -> Values:
    def values(rows: slice, actions: Any, target: TargetChunk) -> tuple[Float, Float]:
        pair = np.asarray(q.q(data.states[rows], actions)), np.asarray(q.v(data.states[rows]))
        for name, x in zip(("q", "v"), pair, strict=True):
            if x.shape != (len(actions),):
                raise ValueError(
                    f"{name}(...) must return one value per row, shape ({len(actions)},), got {x.shape}."
                )
        return pair

    return values


def value_notes(q: Any, data: Trajectories, gamma: float) -> tuple[Finding, ...]:
    """Return the findings of fitted values; raise where their discount is another."""
    fitted_gamma = getattr(q, "gamma", gamma)
    if fitted_gamma != gamma:
        raise ValueError(
            f"the values were fitted with gamma = {fitted_gamma}, and gather was asked for {gamma}."
        )
    notes_for = getattr(q, "notes_for", None)
    return tuple(notes_for(data)) if callable(notes_for) else ()
