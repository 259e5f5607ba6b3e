"""Exact nearest neighbours in PyTorch, for GPUs; needs the extra ``torch``.

Products of half-precision numbers find candidates, whose differences are then computed in float32. That no other
point is nearer is shown for each query, or the query is asked again.

With q and y rounded to q' and y', the triangle inequality gives |q' - y'| <= |q - y| + |q - q'| + |y - y'|. So a point
nearer than the k-th candidate has a product below a known limit. If the last candidate lies beyond that limit,
nothing was missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope._ragged import Float, Int
from caliope.behaviour._devices import import_torch

# Candidates beyond k: at least so many, or k divided by so many.
_SPARE, _PART = 16, 6
# Queries that are not certain are asked again with so many times more candidates, and then point by point.
_MORE = 8
# Points per group, of which the nearest is looked at first.
_GROUP = 32
# Norms after scaling; half precision ends at 65,504, and so do squared distances.
_LARGEST_NORM = 90.0
# Rounding of a sum of n products, as a share of the sum of their sizes: n times this. Tensor cores cut digits off.
_ROUNDING = 2.0**-22
# Rounding to half precision, relative, and absolute near 0, where it has fewer digits.
_HALF, _TINY = 2.0**-11, 2.0**-24
# Slack for distances in float32, relative, in all and per column.
_SLACK, _SLACK_PER_COLUMN = 1e-5, 2.0**-24
# Bytes of the largest temporary array: a share of the memory of a GPU, and so many on the CPU.
_SHARE_OF_MEMORY, _BYTES = 0.04, 1 << 28
# Bytes of candidates that are compared together: they stay in the cache of a GPU.
_CACHED = 1 << 25


class TorchIndex:
    """Points on a device, and the search among them."""

    def __init__(self, points: Float, device: str) -> None:
        self.points, self.device = np.ascontiguousarray(points, dtype=np.float32), device
        self._table: Table | None = None

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_table": None}

    @property
    def table(self) -> Table:
        """The points on the device, from the first search on."""
        if self._table is None:
            self._table = Table.of(to_device(self.points, self.device))
        return self._table

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        """Find the k nearest points: squared distances and ids, nearest first, (Q, k) each; id -1 for none."""
        torch = import_torch()
        found = min(k, len(self.points))
        squared = np.empty((len(queries), k), dtype=np.float32)
        ids = np.empty((len(queries), k), dtype=np.int64)
        squared[:, found:], ids[:, found:] = np.inf, -1
        with torch.inference_mode():
            step = self.table.rows_at_once(found)
            for start in range(0, len(queries), step):
                rows = slice(start, start + step)
                near, near_ids = self.table.nearest(to_device(queries[rows], self.device), found)
                squared[rows, :found] = near.cpu().numpy()
                ids[rows, :found] = near_ids.to(torch.int32).cpu().numpy()
        return squared, ids


def to_device(array: Float, device: str) -> Any:
    """Copy an array to a device."""
    torch, array = import_torch(), np.ascontiguousarray(array, dtype=np.float32)
    # PyTorch warns of memory that it may not write to.
    return torch.as_tensor(array if array.flags.writeable else array.copy(), device=device)


@dataclass(frozen=True, eq=False)
class Table:
    """Points as they are, and scaled and rounded, so that a product is a squared distance.

    ``rounded`` has a row (y', |y'|^2 in two parts, 1, 1) per point, and the query is (-2 q', 1, 1, |q'|^2 in two
    parts). Rows of infinite norm fill up the last group.
    """

    points: Any
    rounded: Any
    scale: float
    error: float  # of rounding: the largest |y - y'|
    limit: int  # bytes of the largest temporary array

    @classmethod
    def of(cls, points: Any) -> Table:
        """Round the points."""
        torch = import_torch()
        n, d = points.shape
        largest = float(_norm(points).max())
        scale = 2.0 ** float(np.floor(np.log2(_LARGEST_NORM / largest))) if largest > 0 else 1.0
        # Rows and columns in multiples of 8, as tensor cores want them.
        shape = (-(-n // (8 * _GROUP)) * 8 * _GROUP, -(-(d + 4) // 8) * 8)
        rounded = torch.zeros(shape, dtype=torch.half, device=points.device)
        scaled = points * scale
        rounded[:n, :d] = scaled.half()
        rounded[:n, d], rounded[:n, d + 1] = _in_two_parts(_norm(rounded[:n, :d]) ** 2)
        rounded[:n, d + 2 : d + 4], rounded[n:, d] = 1, torch.inf
        error = float(_norm(scaled - rounded[:n, :d]).max())
        limit = _BYTES
        if points.is_cuda:
            total = torch.cuda.get_device_properties(points.device).total_memory
            limit = int(_SHARE_OF_MEMORY * total)
        return cls(points, rounded if points.is_cuda else rounded.float(), scale, error, limit)

    def rows_at_once(self, k: int) -> int:
        """Return how many queries fit into memory."""
        return max(1, self.limit // (2 * max(len(self.rounded), _GROUP * self.fetch(k))))

    def fetch(self, k: int) -> int:
        """Return how many candidates are looked at."""
        return min(k + max(_SPARE, k // _PART), len(self.points))

    def nearest(self, queries: Any, k: int) -> tuple[Any, Any]:
        """Find the k nearest points of queries on the device, no more than ``rows_at_once``."""
        fetched = self.fetch(k)
        squared, ids, certain = self.search(queries, k, fetched)
        again = ((self.search, min(_MORE * fetched, len(self.points))), (self.compare_all, fetched))
        for ask, more in again:
            unsure = (~certain).nonzero().ravel()
            if not len(unsure):
                break
            for rows in unsure.split(self.rows_at_once(more)):
                squared[rows], ids[rows], certain[rows] = ask(queries[rows], k, more)
        return squared, ids

    def search(self, queries: Any, k: int, fetched: int) -> tuple[Any, Any, Any]:
        """Find the k nearest among the candidates of a product, and whether nothing else can be nearer."""
        torch = import_torch()
        scaled = queries * self.scale
        rounded = scaled.half()
        last, candidates = self.candidates(rounded, fetched)
        squared, ids = self.rank(queries, candidates, k)
        # A nearer point than the k-th has at most this rounded distance, and so at most that norm.
        reach = squared[:, -1].double().sqrt() * self.scale + _norm(scaled - rounded) + self.error
        reach *= 1 + _SLACK + _SLACK_PER_COLUMN * queries.shape[1]
        rounding = _ROUNDING * (self.rounded.shape[1] + 16) * (2 * _norm(rounded) + reach) ** 2
        beyond = last.double() * (1 - 2 * _HALF) > reach**2 + rounding + _TINY
        # Where numbers exceed half precision, a product is infinite or none.
        return squared, ids, (beyond | (fetched == len(self.points))) & torch.isfinite(last)

    def candidates(self, rounded: Any, fetched: int) -> tuple[Any, Any]:
        """Find the nearest by their products: the product of the last, (Q,), and ids, (Q, fetched).

        The nearest lie in the groups with the nearest members: there need be no more groups than candidates.
        """
        n_groups = len(self.rounded) // _GROUP
        # A group is every n_groups-th point: minima of numbers that lie apart are eight times as fast.
        product = self.multiply(rounded).view(len(rounded), _GROUP, n_groups)
        groups = _smallest(product.amin(dim=1), min(fetched, n_groups)).indices
        n_kept = groups.shape[1]
        members = product.gather(2, groups[:, None, :].expand(-1, _GROUP, -1)).view(len(rounded), -1)
        values, place = _smallest(members, fetched)
        ids = groups.gather(1, place % n_kept) + n_groups * (place // n_kept)
        # Of a query without finite products this may be a row that fills up; it is asked again.
        return values.amax(dim=1), ids.clamp_(max=len(self.points) - 1)

    def multiply(self, rounded: Any) -> Any:
        """Multiply queries with points: squared distances, summed in float32 and rounded to half precision."""
        torch = import_torch()
        d = rounded.shape[1]
        row = torch.zeros((len(rounded), self.rounded.shape[1]), dtype=torch.half, device=rounded.device)
        row[:, :d], row[:, d : d + 2] = -2 * rounded, 1
        row[:, d + 2], row[:, d + 3] = _in_two_parts(_norm(rounded) ** 2)
        if not rounded.is_cuda:
            return (row.float() @ self.rounded.T).half()
        with sums_in_float32():
            return row @ self.rounded.T

    def compare_all(self, queries: Any, k: int, fetched: int) -> tuple[Any, Any, Any]:
        """Find the k nearest by differences from every point, not products: slow, and always certain."""
        torch = import_torch()
        rows = max(1, _BYTES // (8 * len(self.points)))
        parts = [self._compare(part, fetched) for part in queries.split(rows)]
        squared, ids = self.rank(queries, torch.cat(parts), k)
        return squared, ids, torch.ones(len(queries), dtype=torch.bool, device=queries.device)

    def _compare(self, queries: Any, fetched: int) -> Any:
        torch = import_torch()
        distance = torch.cdist(queries, self.points, compute_mode="donot_use_mm_for_euclid_dist")
        ids = torch.arange(len(self.points), device=queries.device).expand(len(queries), -1)
        return _smallest(_keys(distance, ids), fetched).values & _ID

    def rank(self, queries: Any, candidates: Any, k: int) -> tuple[Any, Any]:
        """Rank the candidates by their differences and keep the k nearest; the lower id wins a tie."""
        torch = import_torch()
        rows = max(1, _CACHED // (4 * candidates.shape[1] * self.points.shape[1]))
        parts = zip(queries.split(rows), candidates.split(rows), strict=True)
        squared = torch.cat([self._compare_candidates(*part) for part in parts])
        keys = _keys(squared, candidates).sort(dim=1).values[:, :k]
        return (keys >> 32).to(torch.int32).view(torch.float32), keys & _ID

    def _compare_candidates(self, queries: Any, candidates: Any) -> Any:
        near = self.points.index_select(0, candidates.ravel()).view(*candidates.shape, -1)
        return near.sub_(queries[:, None, :]).square_().sum(dim=2)


_ID = (1 << 32) - 1


def _keys(distance: Any, ids: Any) -> Any:
    """Distance and id as one number: the bits of non-negative floats sort like the floats."""
    torch = import_torch()
    return (distance.view(torch.int32).to(torch.int64) << 32) | ids


def _smallest(x: Any, k: int) -> Any:
    return import_torch().topk(x, k, dim=1, largest=False, sorted=False)


def _norm(x: Any) -> Any:
    torch = import_torch()
    return torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)


def _in_two_parts(x: Any) -> tuple[Any, Any]:
    """Split numbers into two of half precision, with 22 binary digits together."""
    high = x.half()
    return high, (x - high).half()


@contextmanager
def sums_in_float32() -> Iterator[None]:
    """Let products of half-precision numbers be summed in float32 throughout, whatever the caller allows."""
    matmul = import_torch().backends.cuda.matmul
    names = ("allow_fp16_reduced_precision_reduction", "allow_fp16_accumulation")
    before = {name: getattr(matmul, name) for name in names if hasattr(matmul, name)}
    try:
        for name in before:
            setattr(matmul, name, False)
        yield
    finally:
        for name, value in before.items():
            setattr(matmul, name, value)
