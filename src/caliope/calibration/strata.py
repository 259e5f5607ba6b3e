"""Strata of a log: ranges of severity, and the states sampled from each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.calibration.rows import ALL
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories


def severity_strata(score: ArrayLike, edges: Sequence[float] = (5, 10, 14)) -> Any:
    """Strata by a severity score, named by their range; by default the paper's ranges of SOFA.

    >>> severity_strata([0, 4.9, 5, 13, 23]).tolist()
    ['0-4', '0-4', '5-9', '10-13', '14+']
    """
    x, cuts = np.asarray(score, dtype=np.float64), np.asarray(edges, dtype=np.float64)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError(
            "a severity score must be one finite number a step; give steps without one a stratum of their own."
        )
    if not len(cuts) or not np.isfinite(cuts).all() or (np.diff(cuts) <= 0).any():
        raise ValueError(f"edges must be finite numbers that rise, at least one, got {list(edges)}.")
    return np.array(_ranges(cuts), dtype=object)[np.searchsorted(cuts, x, side="right")]


def _ranges(cuts: Float) -> list[str]:
    """Names of the ranges between cuts: 5-9 for whole numbers, 2.5 to 5 otherwise."""
    inner = list(pairwise(cuts))
    if (cuts == np.round(cuts)).all() and cuts[0] > 0:
        return [f"0-{cuts[0] - 1:g}", *(f"{a:g}-{b - 1:g}" for a, b in inner), f"{cuts[-1]:g}+"]
    return [f"below {cuts[0]:g}", *(f"{a:g} to {b:g}" for a, b in inner), f"{cuts[-1]:g}+"]


def named_strata(by: ArrayLike | None, data: Trajectories) -> Any:
    """A name for the stratum of every step, or None; refuses steps without one."""
    if by is None:
        return None
    labels = np.asarray(by, dtype=object)
    if labels.shape != (data.n_steps,):
        raise ValueError(
            f"by must name a stratum for each of the {data.n_steps} steps, got shape {labels.shape}."
        )
    names = np.array([str(label) for label in labels], dtype=object)
    bad = np.flatnonzero(np.isin(names.astype(str), [ALL, "None", "nan", "NaN", "NaT", ""]))
    if len(bad):
        raise ValueError(
            f"by must name a stratum for every step; step {bad[0]} has {labels[bad[0]]!r} ({ALL!r} is the whole log). "
            "Give steps without one a name of their own."
        )
    return names


def sampled_rows(strata: Any, log: Trajectories, n_states: int, rng: np.random.Generator) -> Int:
    """At most ``n_states`` rows of every stratum, without repetition, sorted."""
    labels = np.zeros(log.n_steps) if strata is None else strata
    groups = [np.flatnonzero(labels == name) for name in np.unique(labels)]
    return np.sort(
        np.concatenate([rng.choice(rows, min(n_states, len(rows)), replace=False) for rows in groups])
    )


def in_order(name: str) -> tuple[Any, ...]:
    """Sort strata by the number they begin with, where they do."""
    head = str(name).split("-")[0].rstrip("+")
    return (0, float(head), name) if head.replace(".", "", 1).isdigit() else (1, 0.0, name)
