"""Clusters: trajectories that hang together, such as those of one site, and stay together in folds and samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._ragged import Bool, Int, read_only

# Whole clusters are sampled from a long log only if at least so many fit: a few would not represent the others.
_ENOUGH = 30


def as_clusters(labels: Any, n: int, ids: NDArray[Any]) -> NDArray[Any] | None:
    """Return one label per trajectory, (n,), as given; refuse another number of them, and missing ones."""
    if labels is None:
        return None
    given = _as_labels(labels)
    if given.shape != (n,):
        raise ValueError(
            f"cluster must hold one label for each of the {n} trajectories, got shape {given.shape}. Name each one's "
            "cluster, such as its site."
        )
    missing = _missing(given)
    if missing.any():
        first = int(missing.argmax())
        raise ValueError(
            f"cluster must hold a label for every trajectory; {int(missing.sum())} of {n} have none (first: trajectory "
            f"{ids[first]}). Give each of them a label of its own, if it belongs to no other."
        )
    return read_only(given)


def clusters_of_steps(values: Any, offsets: Int, ids: NDArray[Any], *, name: str) -> NDArray[Any]:
    """Return the label of each trajectory, (n,), from one per step, (N,); refuse a trajectory in two clusters."""
    given = _as_labels(values)
    if (missing := _missing(given)).any():
        row = int(missing.argmax())
        i = int(np.searchsorted(offsets, row, side="right")) - 1
        raise ValueError(
            f"column {name!r} must hold a cluster in every row; {int(missing.sum())} of {len(given)} have none (first: "
            f"trajectory {ids[i]}, step {row - offsets[i]}). Give each of them a label of its own, if it belongs to no "
            "other."
        )
    first = np.repeat(offsets[:-1], np.diff(offsets))
    same = np.array([x == y for x, y in zip(given.tolist(), given[first].tolist(), strict=True)], dtype=bool)
    if not same.all():
        row = int(same.argmin())
        i = int(np.searchsorted(offsets, row, side="right")) - 1
        parted = len(np.unique(np.searchsorted(offsets, np.flatnonzero(~same), side="right")))
        raise ValueError(
            f"column {name!r} must be constant within a trajectory to be its cluster; in {parted} of {len(ids)} it "
            f"changes (first: {given.tolist()[offsets[i]]!r} and {given.tolist()[row]!r} in trajectory {ids[i]}, step "
            f"{row - offsets[i]}). Name a column that stays the same, or correct it."
        )
    return given[offsets[:-1]]


def _as_labels(labels: Any) -> NDArray[Any]:
    if isinstance(labels, np.ndarray):
        return labels
    try:
        given = np.asarray(labels)
    except ValueError:  # tuples of unequal length
        given = np.empty(0)
    plain = isinstance(labels, list | tuple)
    # Of a list that mixes kinds, NumPy would make text of numbers; of tuples, a table.
    if plain and (given.ndim != 1 or given.dtype.kind in "US"):
        given = np.empty(len(labels), dtype=object)
        given[:] = list(labels)
    return given


def _missing(labels: NDArray[Any]) -> Bool:
    if labels.dtype.kind in "iubUS":
        return np.zeros(labels.shape, dtype=bool)
    return np.array([x is None or x != x or str(x) in ("NaT", "<NA>") for x in labels.tolist()], dtype=bool)


def number_clusters(labels: NDArray[Any]) -> Int | None:
    """Number the clusters from 0 in the order of their first trajectory, (n,); None where every one is alone."""
    if labels.dtype.kind in "iu":
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        place = np.empty(len(first), dtype=np.int64)
        place[np.argsort(first)] = np.arange(len(first))
        return None if len(first) == len(labels) else read_only(place[inverse])
    names: dict[Any, int] = {}
    try:
        codes = np.array([names.setdefault(x, len(names)) for x in labels.tolist()], dtype=np.int64)
    except TypeError:
        raise TypeError("cluster must hold labels that can be compared, such as numbers or text.") from None
    return None if len(names) == len(codes) else read_only(codes)


def deal_folds(cluster: Int, k: int, rng: np.random.Generator) -> Int:
    """Deal whole clusters into k folds, the largest first and each to the smallest fold: the fold of each, (n,)."""
    sizes = np.bincount(cluster)
    shuffled = rng.permutation(len(sizes))
    fold, filled = np.empty(len(sizes), dtype=np.int64), np.zeros(k, dtype=np.int64)
    for c in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold[c] = filled.argmin()
        filled[fold[c]] += sizes[c]
    return fold[cluster]


def sample_clusters(cluster: Int, size: int, rng: np.random.Generator) -> Int:
    """Numbers of about ``size`` trajectories, sorted: of whole clusters, or a share of each where those are few."""
    shuffled = rng.permutation(int(cluster.max()) + 1)
    held = np.cumsum(np.bincount(cluster)[shuffled])
    whole = max(2, int(np.searchsorted(held, size, side="right")))
    if whole >= _ENOUGH:
        return np.flatnonzero(np.isin(cluster, shuffled[:whole]))
    # Sorted by cluster, every so many-th: each cluster keeps its share.
    order = rng.permutation(len(cluster))
    order = order[np.argsort(cluster[order], kind="stable")]
    return np.sort(order[np.unique(np.linspace(0, len(order) - 1, size).astype(np.int64))])


def take_turns(n: int, models: int, fold: Int, known: Int | None, unit: Int) -> Int:
    """The model, of one per fold, that predicts each of n new trajectories, (n,): each in turn.

    Where clusters are named, ``known`` are those of the trajectories that were fitted on, in their ``fold``, and
    ``unit`` those of the new ones: then it is the model that has not seen the cluster.

    Examples
    --------
    >>> take_turns(3, 2, np.array([1, 0]), np.array([5, 6]), np.array([5, 5, 7])).tolist()
    [1, 1, 0]
    """
    turns = np.arange(n) % models
    if known is None:
        return turns
    fold_of = dict(zip(known.tolist(), fold.tolist(), strict=True))
    return np.array(
        [fold_of.get(c, t) for c, t in zip(unit.tolist(), turns.tolist(), strict=True)], dtype=np.int64
    )
