"""Frequencies pulled towards what is known without them, and how strong the pull should be."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope.ragged import Float, Int

STRENGTHS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0)  # tried when shrinkage is "cv"


def shrunk(counts: Float, total: Float, prior: Float, strength: float) -> Float:
    """Frequencies pulled towards a prior that counts as much as ``strength`` observations, (N, A)."""
    # Where there is nobody at all, nothing but the prior is known.
    m = np.where(total + strength == 0, 1.0, strength)[:, None]
    return (counts + m * prior) / (total[:, None] + m)


def likelihood(logged: Float) -> tuple[int, float]:
    """How well probabilities of what was done predict it: how many are above 0, then the mean log of these.

    An action that nobody else took has probability 0 whatever the settings; a plain mean could not tell them apart.
    """
    some = logged[logged > 0]
    return len(some), float(np.log(some).mean()) if len(some) else -np.inf


def marginal_of_others(actions: Int, owner: Int, rows: Int) -> Float:
    """Frequencies of the actions in the whole log but for the rows of the same owner, for each of some rows, (R, A)."""
    whose, place = np.unique(owner[rows], return_inverse=True)
    at = np.minimum(np.searchsorted(whose, owner), len(whose) - 1)
    theirs = whose[at] == owner
    n_actions = int(actions.max()) + 1
    mine = np.bincount(at[theirs] * n_actions + actions[theirs], minlength=len(whose) * n_actions)
    others = np.bincount(actions) - mine.reshape(len(whose), n_actions)
    return (others / others.sum(axis=1, keepdims=True))[place]


def is_strength(x: Any) -> bool:
    """Whether something is a finite number from 0."""
    return isinstance(x, int | float | np.number) and bool(0 <= x < np.inf)
