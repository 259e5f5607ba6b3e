"""Arrays in the order of a table whose rows were put in order when it was read: found out by the states."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope._ragged import Float
from caliope._trajectories import Trajectories

_ROWS = 20_000  # looked at
_PER_TERM = 8  # rows for each term that is fitted
_BETTER = 0.8  # of what the states leave unexplained, or less, in the other order


def refuse_table_order(given: Any, data: Trajectories, *, name: str = "target") -> None:
    """Raise where the states explain an array clearly better in the order of the table's rows than in that of the log.

    Nothing says in which order an array is. But a policy is a function of what is known, so that in the wrong order the
    states explain less of it. Where they explain nothing in either order, or nothing was reordered, all is well.

    Parameters
    ----------
    given : array of shape (N,) or (N, A)
        Recommended actions, or probabilities.
    data : Trajectories
        The log.
    name : str
        What the array is called in the message.
    """
    if data.row_places is None or len(np.shape(given)) not in (1, 2) or len(given) != data.n_steps:
        return
    values = np.asarray(given)
    if values.ndim == 1:
        values = (values[:, None] == np.unique(values)[None, :20]).astype(np.float64)
    chosen = np.unique(np.linspace(0, data.n_steps - 1, _ROWS).astype(np.int64))
    powers = next((k for k in (3, 1) if (k * data.states.shape[1] + 1) * _PER_TERM <= len(chosen)), 0)
    if not powers or values.dtype.kind not in "fiu" or not np.isfinite(values).all():
        return
    terms = _terms(data.states[chosen], powers)
    moved = np.empty_like(values)
    moved[data.row_places] = values
    here, there = (_unexplained(x[chosen], terms) for x in (values, moved))
    if there < _BETTER * here:
        raise ValueError(
            f"{name} is an array, and seems to be in the order of the table's rows: the states explain "
            f"{1 - there:.0%} of it in that order, and {1 - here:.0%} in the order of the log, whose rows were sorted "
            "when they were read. Keep its columns with keep=[...] and take data['column'], or compute it from "
            "data.states."
        )


def _terms(states: Float, powers: int) -> Float:
    """Ranks of each feature with their powers, and 1."""
    ranks = [np.unique(x, return_inverse=True)[1] for x in states.T]
    scaled = [2 * x / max(1, x.max()) - 1 for x in ranks]
    return np.column_stack([np.ones(len(states)), *(x**k for x in scaled for k in range(1, powers + 1))])


def _unexplained(values: Float, terms: Float) -> float:
    """The share of the squares that a linear fit leaves."""
    centred = values - values.mean(axis=0)
    total = float((centred**2).sum())
    left = centred - terms @ np.linalg.lstsq(terms, centred, rcond=None)[0]
    return float((left**2).sum()) / total if total > 0 else 1.0
