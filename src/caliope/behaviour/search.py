"""Nearest neighbours on FAISS, behind one small seam: a search is told the points once, and asked for k of them.

Distances are Euclidean. A weighted kernel is the scaling of columns by the root of their weights, done before the
points come here; so every engine serves every kernel.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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
    """Look at every point: one large matrix product."""

    def build(self, points: Float) -> Index:
        """Nothing to build."""
        return _Flat(points)

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Search the points where they lie."""
        return _Flat(arrays["points"])


@dataclass(frozen=True, eq=False)
class _Flat:
    points: Float

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        return _batched(lambda part: faiss.knn(part, self.points, k), queries, k)

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points}


@dataclass(frozen=True)
class InvertedLists:
    """Look only into the lists whose centres are nearest: faster, and a few neighbours are missed.

    ``n_lists`` is by default twice the root of the number of points; ``n_probe`` of them are searched, by codes of
    four bits for every two columns. ``refine`` times k candidates are then re-ranked by their true distance.
    """

    n_lists: int | None = None
    n_probe: int = 64
    refine: int = 4

    def build(self, points: Float) -> Index:
        """Find the centres by k-means and sort the points into lists."""
        if len(points) < _CODES:
            return _Flat(points)
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
        return _batched(lambda part: self._index.search(part, k), queries, k)

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points, "centres": self.centres}


@dataclass(frozen=True)
class RandomProjections:
    """Compare signs of random projections, then measure the best candidates: the paper's approximate search.

    ``refine`` times k candidates are chosen by ``n_bits`` signs and re-ranked by their true distance. Slower than
    :class:`Exact` at the paper's size; here for the sake of the paper.
    """

    n_bits: int = 1024
    refine: int = 4

    def build(self, points: Float) -> Index:
        """Draw the projections (always the same ones) and take the signs."""
        return _Signs(points, self.n_bits, self.refine)

    def restore(self, arrays: dict[str, Any]) -> Index:
        """Take the signs again."""
        return _Signs(arrays["points"], self.n_bits, self.refine)


class _Signs:
    def __init__(self, points: Float, n_bits: int, refine: int) -> None:
        self.points = points
        self._signs = faiss.IndexLSH(points.shape[1], n_bits)
        self._index = _refined(self._signs, points, refine)

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        return _batched(lambda part: self._index.search(part, k), queries, k)

    def arrays(self) -> dict[str, Any]:
        return {"points": self.points}


def _refined(rough: Any, points: Float, refine: int) -> Any:
    """A rough index whose best ``refine`` times k candidates are ranked again by their true distance."""
    index = faiss.IndexRefineFlat(rough)
    index.k_factor = float(refine)
    index.train(np.ascontiguousarray(points))
    index.add(np.ascontiguousarray(points))
    return index


def _batched(search: Any, queries: Float, k: int) -> tuple[Float, Int]:
    parts = [slice(start, start + _QUERIES) for start in range(0, len(queries), _QUERIES)]
    distances = np.empty((len(queries), k), dtype=np.float32)
    ids = np.empty((len(queries), k), dtype=np.int64)

    def answer(rows: slice) -> None:
        distances[rows], ids[rows] = search(np.ascontiguousarray(queries[rows]))

    if len(parts) == 1:
        answer(parts[0])
    else:
        # A part a core, each on one thread: FAISS's own threads wait for each other at every block of points.
        with ThreadPoolExecutor(faiss.omp_get_max_threads(), initializer=_one_thread) as pool:
            list(pool.map(answer, parts))
    return np.maximum(distances, 0), ids  # rounding can leave a duplicate a little below 0


def _one_thread() -> None:
    faiss.omp_set_num_threads(1)  # of the calling thread alone


def save_index(index: Index, folder: str | Path) -> None:
    """Write an index as flat arrays into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, array in index.arrays().items():
        np.save(Path(folder) / f"{name}.npy", array)


def load_index(search: Search, folder: str | Path) -> Index:
    """Open an index again; the points stay on disk and are read as they are needed."""
    files = sorted(Path(folder).glob("*.npy"))
    if not files:
        raise FileNotFoundError(f"{folder} holds no index: no .npy file is there.")
    return search.restore({file.stem: np.load(file, mmap_mode="r", allow_pickle=False) for file in files})
