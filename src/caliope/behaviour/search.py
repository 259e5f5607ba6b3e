"""Nearest neighbours on FAISS, behind one small seam: a search is told the points once, and asked for k of them.

Distances are Euclidean. A weighted kernel is the scaling of columns by the root of their weights, done before the
points come here; so every engine serves every kernel.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol

import faiss
import numpy as np

from caliope.ragged import Float, Int

_QUERIES = 512  # asked at once
# Queries times columns from which FAISS multiplies matrices. Its own limit, 128,000, makes a batch of 8 to 700
# queries of 178 columns up to six times slower than it needs to be.
faiss.cvar.distance_compute_blas_threshold = min(2_000, faiss.cvar.distance_compute_blas_threshold)
_CODES = 16  # a code of four bits; fewer points cannot be coded
_COLUMNS = 16  # with fewer of them codes and signs tell points badly apart
_SPARE = 32  # candidates beyond k that are measured again
_FEW = 4  # columns below which a matrix product hardly ever tells the k nearest for certain
# Error of |x|^2 + |y|^2 - 2xy in float32, as a share of |x|^2 + |y|^2: at most 1e-6 in 4 to 5,000 columns.
_ROUNDING = 2e-6


class Index(Protocol):
    """Points that can be searched."""

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        """Squared distances and ids of the k nearest points, nearest first, (Q, k) each; id -1 where none was found."""

    def arrays(self) -> dict[str, Any]:
        """Flat arrays from which ``Search.restore`` makes the same index again."""


class Search(Protocol):
    """A way of searching: how to build an index, and how to make it again from its arrays."""

    def build(self, points: Float) -> Index:
        """Index points, (N, d) float32."""

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Make an index again from flat arrays, memory-mapped or not."""


@dataclass(frozen=True)
class Exact:
    """Look at every point: one large matrix product, and the best candidates measured again column by column.

    A product of float32 numbers loses small distances between points far from the centre. Where it cannot be sure of
    the k nearest, points are compared one by one: two to five times slower, for discrete states, for columns
    that were not standardised, and always for fewer than four columns. Of points equally far the first in the index
    wins.
    """

    def build(self, points: Float) -> Index:
        """Nothing to build."""
        return _Flat(np.ascontiguousarray(points, dtype=np.float32))

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Search the points where they lie."""
        return _Flat(arrays["points"])


@dataclass(frozen=True, eq=False)
class _Flat:
    points: Float

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        return _batched(lambda part: self._nearest(part, min(k, len(self.points))), queries, k, self.points)

    def _nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        fetched = min(k + _SPARE, len(self.points))
        if self.points.shape[1] < _FEW:
            return self._ranked(queries, self._one_by_one(queries, fetched), k)
        rough, candidates = faiss.knn(queries, self.points, fetched)
        squared, ids = self._ranked(queries, candidates, k)
        if fetched == len(self.points):
            return squared, ids
        # Whoever is as near as the k-th has at most this norm, so that the product can be this wrong about it.
        norm = np.linalg.norm(queries.astype(np.float64), axis=1)
        error = _ROUNDING * (norm**2 + (norm + np.sqrt(squared[:, -1])) ** 2)
        unsure = np.flatnonzero(rough[:, -1] - squared[:, -1] <= error)
        if len(unsure):
            part = np.ascontiguousarray(queries[unsure])
            squared[unsure], ids[unsure] = self._ranked(part, self._one_by_one(part, fetched), k)
        return squared, ids

    def _one_by_one(self, queries: Float, k: int) -> Int:
        """Ids of the k nearest by differences, not by a product: FAISS does so where points are selected."""
        squared = np.empty((len(queries), k), dtype=np.float32)
        ids = np.empty((len(queries), k), dtype=np.int64)
        sizes = queries.shape[1], len(queries), len(self.points), k
        x, y, out, found = map(faiss.swig_ptr, (queries, self.points, squared, ids))
        faiss.knn_L2sqr(x, y, *sizes, out, found, None, faiss.IDSelectorAll())
        return ids

    def _ranked(self, queries: Float, candidates: Int, k: int) -> tuple[Float, Int]:
        """The k nearest of the candidates by their differences; the lower id wins a tie."""
        squared = np.empty(candidates.shape, dtype=np.float32)
        out, x, y, found = map(faiss.swig_ptr, (squared, queries, self.points, candidates))
        by_ids = faiss.fvec_L2sqr_by_idx  # type: ignore[attr-defined]
        by_ids(out, x, y, found, queries.shape[1], *candidates.shape)
        # The bits of floats from 0 are in the order of the floats: one sort of distance and id together.
        keys = np.sort((squared.view(np.int32).astype(np.int64) << 32) | candidates, axis=1)[:, :k]
        return (keys >> 32).astype(np.int32).view(np.float32), keys & 0xFFFFFFFF

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points}


@dataclass(frozen=True)
class InvertedLists:
    """Look only into the lists whose centres are nearest: faster, and a few neighbours are missed.

    ``n_lists`` is by default twice the root of the number of points; ``n_probe`` of them are searched, by codes of
    four bits for every two columns. ``refine`` times k candidates are then re-ranked by their true distance. Below 16
    columns such codes are too coarse, and the search is that of :class:`Exact`.
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
        if len(points) < _CODES or points.shape[1] < _COLUMNS:
            return Exact().build(points)
        n_lists = self.n_lists or max(1, int(2 * np.sqrt(len(points))))
        kmeans = faiss.Kmeans(
            points.shape[1], min(n_lists, len(points)), niter=10, seed=0, min_points_per_centroid=1
        )
        kmeans.train(points)
        return _Lists(points, np.asarray(kmeans.centroids), self.n_probe, self.refine)

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Sort the points into the lists of the centres that were found before."""
        if "centres" not in arrays:
            return _Flat(arrays["points"])
        return _Lists(arrays["points"], arrays["centres"], self.n_probe, self.refine)


class _Lists:
    def __init__(self, points: Float, centres: Float, n_probe: int, refine: int) -> None:
        self.points, self.centres = points, centres
        d = points.shape[1]
        # Codes are of pairs of columns: an odd number of them gets one more, of zeros.
        even = faiss.RemapDimensionsTransform(d, d + d % 2, False)  # type: ignore[arg-type]
        self._quantizer = faiss.IndexFlatL2(even.d_out)
        self._quantizer.add(even.apply(np.ascontiguousarray(centres)))
        lists = faiss.IndexIVFPQFastScan(self._quantizer, even.d_out, len(centres), even.d_out // 2, 4)
        lists.pq.cp.min_points_per_centroid = 1
        lists.nprobe = min(n_probe, len(centres))
        self._index = _refined(faiss.IndexPreTransform(even, lists), points, refine)

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        return _batched(lambda part: self._index.search(part, k), queries, k, self.points)

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points, "centres": self.centres}


@dataclass(frozen=True)
class RandomProjections:
    """Compare signs of random projections, then measure the best candidates: the paper's approximate search.

    ``refine`` times k candidates are chosen by ``n_bits`` signs and re-ranked by their true distance. Slower than
    :class:`Exact` at the paper's size; here for the sake of the paper. Below 16 columns there are too few directions
    to tell points apart (in one column only two), and the search is that of :class:`Exact`.
    """

    n_bits: int = 1024
    refine: int = 4

    def __post_init__(self) -> None:
        _check_counts(n_bits=self.n_bits, refine=self.refine)

    def build(self, points: Float) -> Index:
        """Draw the projections (always the same ones) and take the signs."""
        few = points.shape[1] < _COLUMNS
        return Exact().restore({"points": points}) if few else _Signs(points, self.n_bits, self.refine)

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Take the signs again."""
        return self.build(arrays["points"])


class _Signs:
    def __init__(self, points: Float, n_bits: int, refine: int) -> None:
        self.points = points
        self._signs = faiss.IndexLSH(points.shape[1], n_bits)
        self._index = _refined(self._signs, points, refine)

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        return _batched(lambda part: self._index.search(part, k), queries, k, self.points)

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points}


def _refined(rough: Any, points: Float, refine: int) -> Any:
    """A rough index whose best ``refine`` times k candidates are ranked again by their true distance."""
    index = faiss.IndexRefineFlat(rough)
    index.k_factor = float(refine)
    index.train(np.ascontiguousarray(points))
    index.add(np.ascontiguousarray(points))
    return index


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{name} must be a whole number, 1 or more, got {value!r}.")


def _batched(search: Any, queries: Float, k: int, points: Float) -> tuple[Float, Int]:
    if queries.ndim != 2 or queries.shape[1] != points.shape[1] or not np.isfinite(queries).all():
        raise ValueError(
            f"queries must be finite numbers in the {points.shape[1]} columns of the points, got shape {queries.shape}."
        )
    _check_counts(k=k)
    parts = [slice(start, start + _QUERIES) for start in range(0, len(queries), _QUERIES)]
    distances = np.full((len(queries), k), np.inf, dtype=np.float32)
    ids = np.full((len(queries), k), -1, dtype=np.int64)

    def answer(rows: slice) -> None:
        squared, found = search(np.ascontiguousarray(queries[rows], dtype=np.float32))
        distances[rows, : squared.shape[1]], ids[rows, : found.shape[1]] = squared, found

    if len(parts) == 1:
        answer(parts[0])
    else:
        # A part a core, each on one thread: FAISS's own threads wait for each other at every block of points.
        with ThreadPoolExecutor(faiss.omp_get_max_threads(), initializer=_one_thread) as pool:
            list(pool.map(answer, parts))
    return np.maximum(distances, 0), ids  # rounding can leave a duplicate a little below 0


def _one_thread() -> None:
    faiss.omp_set_num_threads(1)  # of the calling thread alone


_ARRAYS = ("centres", "points")  # all that an index is made of


def save_index(index: Index, folder: str | Path) -> None:
    """Write an index as flat arrays into a folder, in place of one that was there."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in _ARRAYS:
        (Path(folder) / f"{name}.npy").unlink(missing_ok=True)
    for name, array in index.arrays().items():
        np.save(Path(folder) / f"{name}.npy", array)


def load_index(search: Search, folder: str | Path) -> Index:
    """Open an index again; the points stay on disk and are read as they are needed."""
    files = {name: Path(folder) / f"{name}.npy" for name in _ARRAYS}
    if not files["points"].exists():
        raise FileNotFoundError(f"{folder} holds no index: no points.npy is there.")
    arrays = {
        name: np.load(file, mmap_mode="r", allow_pickle=False)
        for name, file in files.items()
        if file.exists()
    }
    shapes = {name: (x.dtype.name, x.ndim, x.shape[-1]) for name, x in arrays.items()}
    if set(shapes.values()) != {("float32", 2, arrays["points"].shape[-1])}:
        found = ", ".join(f"{name} {x.dtype} {x.shape}" for name, x in arrays.items())
        raise ValueError(
            f"{folder} holds no index that save_index wrote: its arrays must be float32 tables of as many columns "
            f"each, got {found}."
        )
    return search.restore(arrays)
