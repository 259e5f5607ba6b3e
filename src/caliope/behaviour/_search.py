"""Nearest-neighbour search with FAISS, exact and approximate, behind one interface.

Distances are Euclidean. For weighted distances the caller scales the columns by the roots of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from threading import Lock
from typing import Any, Protocol

import faiss
import numpy as np

from caliope._ragged import Float, Int
from caliope.behaviour._devices import choose_device, import_torch
from caliope.behaviour._torch_search import TorchIndex

# Queries per call of FAISS.
_QUERIES = 512
# Queries times columns from which FAISS multiplies matrices. Its default, 128,000, makes a batch of 8 to 700 queries
# of 178 columns up to six times slower than it needs to be.
_BLAS_THRESHOLD = 2_000
# Codes of four bits need this many points; with fewer columns, codes and signs do not separate points well.
_MIN_POINTS = _MIN_COLUMNS = 16
# Candidates beyond k that are measured again.
_SPARE = 32
# With fewer points a GPU gains less time than its start takes.
_MIN_GPU_POINTS = 10_000
# With fewer columns a matrix product hardly ever identifies the k nearest for certain.
_MIN_PRODUCT_COLUMNS = 4
# Error of |x|^2 + |y|^2 - 2xy in float32, as a share of |x|^2 + |y|^2: at most 1e-6 in 4 to 5,000 columns.
_ROUNDING = 2e-6


class _BlasThreshold:
    """FAISS's global threshold for matrix products, lowered while calls are under way and then restored."""

    def __init__(self) -> None:
        self._lock, self._calls, self._before = Lock(), 0, 0

    @contextmanager
    def lower(self) -> Iterator[None]:
        with self._lock:
            if self._calls == 0:
                self._before = faiss.cvar.distance_compute_blas_threshold
                faiss.cvar.distance_compute_blas_threshold = min(_BLAS_THRESHOLD, self._before)
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                if self._calls == 0:
                    faiss.cvar.distance_compute_blas_threshold = self._before


_threshold = _BlasThreshold()


class Index(Protocol):
    """A set of points that can be searched."""

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        """Find the k nearest points: squared distances and ids, nearest first, (Q, k) each; id -1 for none."""

    def arrays(self) -> dict[str, Any]:
        """Return the arrays from which ``Search.restore`` makes the same index again."""


class Search(Protocol):
    """A search method: it builds an index from points, or again from the arrays of an index."""

    def build(self, points: Float) -> Index:
        """Build an index of points, (N, d) float32."""

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Make an index again from its arrays, memory-mapped or not."""


@dataclass(frozen=True)
class Exact:
    """Exact search: matrix products find candidates, whose distances are then computed column by column.

    A product of float32 numbers loses small distances between points far from the centre. Where the k nearest are
    uncertain, points are compared one by one, two to five times slower: for discrete states, for columns that were not
    standardised, and always for fewer than four columns. Of points equally far the first in the index wins.

    On a GPU the same is done by PyTorch, with the extra ``torch``. Distances then agree to 1e-6, relative, and points
    whose distances differ by less may change places.

    Parameters
    ----------
    device : str, optional
        ``"cpu"``, ``"cuda"``, ``"cuda:1"`` and so on. By default a GPU where PyTorch finds one and there are at least
        10,000 points of four columns or more, else the CPU.

    Examples
    --------
    >>> import numpy as np
    >>> from caliope.behaviour import Exact
    >>> index = Exact().build(np.array([[0.0], [1.0], [3.0]], dtype=np.float32))
    >>> index.nearest(np.array([[0.9]], dtype=np.float32), k=2)[1]
    array([[1, 0]])
    """

    device: str | None = None

    def build(self, points: Float) -> Index:
        """Build an index: only the points are kept."""
        return self.restore({"points": np.ascontiguousarray(points, dtype=np.float32)})

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Make an index of points that may be memory-mapped."""
        points = arrays["points"]
        small = len(points) < _MIN_GPU_POINTS or points.shape[1] < _MIN_PRODUCT_COLUMNS
        device = "cpu" if self.device is None and small else choose_device(self.device)
        if device == "cpu":
            return _Flat(points)
        return _OnDevice(TorchIndex(points, device), _Flat(points) if self.device is None else None)


@dataclass(frozen=True, eq=False)
class _Flat:
    points: Float

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        return _search_batches(
            lambda part: self._nearest(part, min(k, len(self.points))), queries, k, self.points
        )

    def _nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        fetched = min(k + _SPARE, len(self.points))
        if self.points.shape[1] < _MIN_PRODUCT_COLUMNS:
            return self._rank(queries, self._compare_one_by_one(queries, fetched), k)
        rough, candidates = faiss.knn(queries, self.points, fetched)
        squared, ids = self._rank(queries, candidates, k)
        if fetched == len(self.points):
            return squared, ids
        # A point as near as the k-th has at most this norm, which bounds the error of the product.
        norm = np.linalg.norm(queries.astype(np.float64), axis=1)
        error = _ROUNDING * (norm**2 + (norm + np.sqrt(squared[:, -1])) ** 2)
        unsure = np.flatnonzero(rough[:, -1] - squared[:, -1] <= error)
        if len(unsure):
            part = np.ascontiguousarray(queries[unsure])
            squared[unsure], ids[unsure] = self._rank(part, self._compare_one_by_one(part, fetched), k)
        return squared, ids

    def _compare_one_by_one(self, queries: Float, k: int) -> Int:
        """Find ids of the k nearest by differences, not products: FAISS does so when given a selector."""
        squared = np.empty((len(queries), k), dtype=np.float32)
        ids = np.empty((len(queries), k), dtype=np.int64)
        sizes = queries.shape[1], len(queries), len(self.points), k
        x, y, out, out_ids = map(faiss.swig_ptr, (queries, self.points, squared, ids))
        faiss.knn_L2sqr(x, y, *sizes, out, out_ids, None, faiss.IDSelectorAll())
        return ids

    def _rank(self, queries: Float, candidates: Int, k: int) -> tuple[Float, Int]:
        """Rank the candidates by their differences and keep the k nearest; the lower id wins a tie."""
        squared = np.empty(candidates.shape, dtype=np.float32)
        out, x, y, in_ids = map(faiss.swig_ptr, (squared, queries, self.points, candidates))
        by_ids = faiss.fvec_L2sqr_by_idx  # type: ignore[attr-defined]
        by_ids(out, x, y, in_ids, queries.shape[1], *candidates.shape)
        # The bits of non-negative floats sort like the floats: one sort of distance and id together.
        keys = np.sort((squared.view(np.int32).astype(np.int64) << 32) | candidates, axis=1)[:, :k]
        return (keys >> 32).astype(np.int32).view(np.float32), keys & 0xFFFFFFFF

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points}


@dataclass(frozen=True, eq=False)
class _OnDevice:
    index: TorchIndex
    otherwise: _Flat | None  # asked where the memory of a GPU that nobody asked for is full

    @property
    def points(self) -> Float:
        return self.index.points

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        _check_queries(queries, k, self.points)
        try:
            return self.index.nearest(queries, k)
        except import_torch().cuda.OutOfMemoryError:
            if self.otherwise is None:
                raise
            return self.otherwise.nearest(queries, k)

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points}


@dataclass(frozen=True)
class InvertedLists:
    """Approximate search in the lists whose centres are nearest: faster, and a few neighbours are missed.

    Candidates are found by codes of four bits for every two columns, and ranked by their true distance. With fewer than
    16 columns such codes are too coarse, and the search is that of :class:`Exact`.

    Parameters
    ----------
    n_lists : int, optional
        Number of lists; by default twice the square root of the number of points.
    n_probe : int
        Number of lists that are searched.
    refine : int
        Times k candidates are ranked by their true distance.

    Examples
    --------
    >>> from caliope.behaviour import InvertedLists, NeighbourPolicy
    >>> NeighbourPolicy(50, search=InvertedLists(n_probe=32)).search
    InvertedLists(n_lists=None, n_probe=32, refine=4)
    """

    n_lists: int | None = None
    n_probe: int = 64
    refine: int = 4

    def __post_init__(self) -> None:
        _check_counts(
            n_lists=1 if self.n_lists is None else self.n_lists, n_probe=self.n_probe, refine=self.refine
        )

    def build(self, points: Float) -> Index:
        """Find the centres by k-means and sort the points into lists."""
        if len(points) < _MIN_POINTS or points.shape[1] < _MIN_COLUMNS:
            return Exact().build(points)
        n_lists = self.n_lists or max(1, int(2 * np.sqrt(len(points))))
        kmeans = faiss.Kmeans(
            points.shape[1], min(n_lists, len(points)), niter=10, seed=0, min_points_per_centroid=1
        )
        with _threshold.lower():
            kmeans.train(points)
        return _Lists(points, np.asarray(kmeans.centroids), self.n_probe, self.refine)

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Sort the points into the lists of the stored centres."""
        if "centres" not in arrays:
            return _Flat(arrays["points"])
        return _Lists(arrays["points"], arrays["centres"], self.n_probe, self.refine)


class _Lists:
    def __init__(self, points: Float, centres: Float, n_probe: int, refine: int) -> None:
        self.points, self.centres = points, centres
        d = points.shape[1]
        # Codes are of pairs of columns: an odd number of columns gets one more, of zeros.
        even = faiss.RemapDimensionsTransform(d, d + d % 2, False)  # type: ignore[arg-type]
        self._quantizer = faiss.IndexFlatL2(even.d_out)
        self._quantizer.add(even.apply(np.ascontiguousarray(centres)))
        lists = faiss.IndexIVFPQFastScan(self._quantizer, even.d_out, len(centres), even.d_out // 2, 4)
        lists.pq.cp.min_points_per_centroid = 1
        lists.nprobe = min(n_probe, len(centres))
        self._index = _refine_index(faiss.IndexPreTransform(even, lists), points, refine)

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        return _search_batches(lambda part: self._index.search(part, k), queries, k, self.points)

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points, "centres": self.centres}


@dataclass(frozen=True)
class RandomProjections:
    """Approximate search by the signs of random projections, as in the paper.

    Candidates are found by their signs and ranked by their true distance. At the paper's size it is slower than
    :class:`Exact`. With fewer than 16 columns the projections do not separate points, and the search is that of
    :class:`Exact`.

    Parameters
    ----------
    n_bits : int
        Number of projections.
    refine : int
        Times k candidates are ranked by their true distance.

    Examples
    --------
    >>> from caliope.behaviour import NeighbourPolicy, RandomProjections
    >>> NeighbourPolicy(50, search=RandomProjections(256)).search
    RandomProjections(n_bits=256, refine=4)
    """

    n_bits: int = 1024
    refine: int = 4

    def __post_init__(self) -> None:
        _check_counts(n_bits=self.n_bits, refine=self.refine)

    def build(self, points: Float) -> Index:
        """Draw the projections, always the same ones, and take the signs."""
        few = points.shape[1] < _MIN_COLUMNS
        return Exact().restore({"points": points}) if few else _Signs(points, self.n_bits, self.refine)

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Take the signs again."""
        return self.build(arrays["points"])


class _Signs:
    def __init__(self, points: Float, n_bits: int, refine: int) -> None:
        self.points = points
        self._signs = faiss.IndexLSH(points.shape[1], n_bits)
        self._index = _refine_index(self._signs, points, refine)

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        return _search_batches(lambda part: self._index.search(part, k), queries, k, self.points)

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points}


def _refine_index(rough: Any, points: Float, refine: int) -> Any:
    """Wrap a rough index: its best ``refine`` times k candidates are ranked by their true distance."""
    index = faiss.IndexRefineFlat(rough)
    index.k_factor = float(refine)
    with _threshold.lower():
        index.train(np.ascontiguousarray(points))
        index.add(np.ascontiguousarray(points))
    return index


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number, 1 or more, got {value!r}.")


def _check_queries(queries: Float, k: int, points: Float) -> None:
    if queries.ndim != 2 or queries.shape[1] != points.shape[1] or not np.isfinite(queries).all():
        raise ValueError(
            f"queries must be finite numbers in the {points.shape[1]} columns of the points, got shape {queries.shape}."
        )
    _check_counts(k=k)


def _search_batches(search: Any, queries: Float, k: int, points: Float) -> tuple[Float, Int]:
    _check_queries(queries, k, points)
    parts = [slice(start, start + _QUERIES) for start in range(0, len(queries), _QUERIES)]
    distances = np.full((len(queries), k), np.inf, dtype=np.float32)
    ids = np.full((len(queries), k), -1, dtype=np.int64)

    def answer(rows: slice) -> None:
        squared, near = search(np.ascontiguousarray(queries[rows], dtype=np.float32))
        distances[rows, : squared.shape[1]], ids[rows, : near.shape[1]] = squared, near

    with _threshold.lower():
        if len(parts) == 1:
            answer(parts[0])
        else:
            # One part per core, each on one thread: FAISS's own threads wait for each other at every block of points.
            with ThreadPoolExecutor(faiss.omp_get_max_threads(), initializer=_use_one_thread) as pool:
                list(pool.map(answer, parts))
    # Rounding can leave the distance of a duplicate slightly below 0.
    return np.maximum(distances, 0), ids


def _use_one_thread() -> None:
    # In FAISS this concerns the calling thread alone.
    faiss.omp_set_num_threads(1)
