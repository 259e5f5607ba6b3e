"""Fit on one log, predict another: all that most experiments ask of a model."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from caliope.behaviour.fitting import fit_model
from caliope.policies import action_probabilities
from caliope.ragged import Float
from caliope.trajectories import Trajectories


def predicted(model: Any, train: Trajectories, states: ArrayLike) -> Float:
    """Probabilities of all actions in some states by a fresh copy of a model that was fitted on a log, (N, A)."""
    fitted = fit_model(model, train.states, train.actions, train.layout.owner)
    return action_probabilities(fitted, states, train.n_actions)
