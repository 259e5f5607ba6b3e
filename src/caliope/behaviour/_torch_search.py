"""Exact nearest neighbours in PyTorch, for GPUs; needs the extra ``torch``.

Products of half-precision numbers find candidates, whose differences are then computed in float32. That no other
point is nearer is shown for each query, or the query is asked again.

With q and y rounded to q' and y', the triangle inequality gives |q' - y'| <= |q - y| + |q - q'| + |y - y'|. So a point
nearer than the k-th candidate has a product below a known limit. If the last candidate lies beyond that limit,
nothing was missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope._ragged import Float, Int
from caliope.behaviour._devices import import_torch

# Candidates beyond k: at least so many, and a share of k.
_SPARE, _SHARE = 32, 3
# Queries that are not certain are asked again with so many times more candidates, and then point by point.
_MORE = 8
# Norms after scaling; half precision ends at 65,504.
_LARGEST_NORM = 90.0
# Rounding of a sum of n products, as a share of the sum of their sizes: n times this. Tensor cores cut digits off.
_ROUNDING = 2.0**-22
# Slack for distances and norms in float32, relative.
_SLACK = 1e-5
# Bytes of the largest temporary array: a share of the memory of a GPU, and so many on the CPU.
_SHARE_OF_MEMORY, _BYTES = 0.05, 1 << 28


class TorchIndex:
    """Points on a device, and the search among them."""

    def __init__(self, points: Float, device: str) -> None:
        self.points, self.device = np.ascontiguousarray(points, dtype=np.float32), device
        self._table: _Table | None = None

    def arrays(self) -> dict[str, Any]:
        """Return the points: all that the index consists of."""
        return {"points": self.points}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_table": None}

    def nearest(self, queries: Float, k: int) -> tuple[Float, Int]:
        """Find the k nearest points: squared distances and ids, nearest first, (Q, k) each; id -1 for none."""
        torch = import_torch()
        squared = np.full((len(queries), k), np.inf, dtype=np.float32)
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        found = min(k, len(self.points))
        with torch.inference_mode():
            if self._table is None:
                self._table = _Table.of(_to_device(self.points, self.device))
            for start in range(0, len(queries), step := self._table.rows_at_once(found)):
                part = _to_device(queries[start : start + step], self.device)
                near, near_ids = self.nearest_on_device(part, found)
                squared[start : start + step, :found] = near.cpu().numpy()
                ids[start : start + step, :found] = near_ids.to(torch.int32).cpu().numpy()
        return squared, ids

    def nearest_on_device(self, queries: Any, k: int) -> tuple[Any, Any]:
        """Find the k nearest points of tensors on the device; no more queries than ``rows_at_once``."""
        table = self._table
        if table is None:
            table = self._table = _Table.of(_to_device(self.points, self.device))
        fetched = min(k + max(_SPARE, k // _SHARE), len(table.points))
        squared, ids, certain = table.search(queries, k, fetched)
        again = ((table.search, min(_MORE * fetched, len(table.points))), (table.compare_all, fetched))
        for ask, more in again:
            unsure = (~certain).nonzero().ravel()
            if not len(unsure):
                break
            for rows in unsure.split(table.rows_at_once(more)):
                squared[rows], ids[rows], certain[rows] = ask(queries[rows], k, more)
        return squared, ids


def _to_device(array: Float, device: str) -> Any:
    # A copy: PyTorch warns of memory that it may not write to.
    return import_torch().tensor(np.asarray(array, dtype=np.float32), device=device)


@dataclass(frozen=True, eq=False)
class _Table:
    """Points as they are, and scaled and rounded with their norms, so that a product is a distance.

    ``rounded`` has a row (y', |y'|^2 in two parts) per point, and the query is (-2 q', 1, 1). Rows of infinite norm
    fill up the last group.
    """

    points: Any
    rounded: Any
    scale: float
    error: float  # of rounding: the largest |y - y'|
    group: int
    limit: int  # bytes of the largest temporary array

    @classmethod
    def of(cls, points: Any) -> _Table:
        torch = import_torch()
        (n, d), group = points.shape, _choose_group(len(points))
        largest = float(torch.linalg.vector_norm(points, dim=1, dtype=torch.float64).max())
        scale = 2.0 ** np.floor(np.log2(_LARGEST_NORM / largest)) if largest > 0 else 1.0
        # Rows and columns in multiples of 8, as tensor cores want them.
        rounded = torch.zeros(
            (-(-n // (8 * group)) * 8 * group, -(-(d + 2) // 8) * 8), dtype=torch.half, device=points.device
        )
        scaled = points * scale
        rounded[:n, :d] = scaled.half()
        norm = torch.linalg.vector_norm(rounded[:n, :d], dim=1, dtype=torch.float64) ** 2
        rounded[:n, d] = norm.half()
        rounded[:n, d + 1] = (norm - rounded[:n, d]).half()
        rounded[n:, d] = torch.inf
        error = torch.linalg.vector_norm(scaled - rounded[:n, :d], dim=1, dtype=torch.float64).max()
        multiplied = rounded if _multiplies_halves(points.device) else rounded.float()
        return cls(points, multiplied, float(scale), float(error), group, _limit(points.device))

    def rows_at_once(self, k: int) -> int:
        """Return how many queries fit into memory."""
        fetched = k + max(_SPARE, k // _SHARE)
        widest = max(len(self.rounded), fetched * max(self.group, self.points.shape[1]))
        return max(1, self.limit // (4 * widest))

    def search(self, queries: Any, k: int, fetched: int) -> tuple[Any, Any, Any]:
        """Find the k nearest among the candidates of a product, and whether nothing else can be nearer."""
        torch = import_torch()
        scaled = queries * self.scale
        rounded = scaled.half().float()
        last, candidates = self._candidates(rounded, fetched)
        squared, ids = self._rank(queries, candidates, k)
        norm, error = (
            torch.linalg.vector_norm(x, dim=1, dtype=torch.float64) for x in (rounded, scaled - rounded)
        )
        # A nearer point than the k-th has at most this rounded distance, and so at most that norm.
        reach = (squared[:, -1].double().sqrt() * self.scale + error + self.error) * (1 + _SLACK)
        size = (norm + reach) ** 2 + 2 * norm * (norm + reach)
        rounding = _ROUNDING * (self.rounded.shape[1] + 16) * size
        beyond = (last.double() + norm**2 > reach**2 + rounding) | (fetched == len(self.points))
        # Where numbers exceed half precision, a product is infinite or none.
        return squared, ids, beyond & torch.isfinite(last)

    def _candidates(self, rounded: Any, fetched: int) -> tuple[Any, Any]:
        """Find the nearest by their products: the product of the last, (Q,), and ids, (Q, fetched).

        The nearest lie in the groups with the nearest members: there need be no more groups than candidates.
        """
        torch = import_torch()
        n_groups = len(self.rounded) // self.group
        product = self._multiply(rounded).view(len(rounded), n_groups, self.group)
        groups = torch.topk(
            product.amin(dim=2), min(fetched, n_groups), dim=1, largest=False, sorted=False
        ).indices
        flat = groups + n_groups * torch.arange(len(rounded), device=groups.device)[:, None]
        members = product.view(-1, self.group).index_select(0, flat.ravel()).view(len(rounded), -1)
        values, place = torch.topk(members, fetched, dim=1, largest=False, sorted=False)
        ids = groups.gather(1, place // self.group) * self.group + place % self.group
        # A query without any finite product is asked again.
        return values.amax(dim=1), ids.clamp_(max=len(self.points) - 1)

    def _multiply(self, rounded: Any) -> Any:
        """Multiply queries with points, float32; half-precision numbers are multiplied without rounding."""
        torch = import_torch()
        d = rounded.shape[1]
        row = torch.zeros(
            (len(rounded), self.rounded.shape[1]), dtype=self.rounded.dtype, device=rounded.device
        )
        row[:, :d], row[:, d : d + 2] = -2 * rounded, 1
        if self.rounded.dtype == torch.half:
            return torch.mm(row, self.rounded.T, out_dtype=torch.float32)
        return row @ self.rounded.T

    def compare_all(self, queries: Any, k: int, fetched: int) -> tuple[Any, Any, Any]:
        """Find the k nearest by differences from every point, not products: slow, and always certain."""
        torch = import_torch()
        rows = max(1, _BYTES // (8 * len(self.points)))
        parts = [self._compare(part, fetched) for part in queries.split(rows)]
        squared, ids = self._rank(queries, torch.cat(parts), k)
        return squared, ids, torch.ones(len(queries), dtype=torch.bool, device=queries.device)

    def _compare(self, queries: Any, fetched: int) -> Any:
        torch = import_torch()
        distance = torch.cdist(queries, self.points, compute_mode="donot_use_mm_for_euclid_dist")
        ids = torch.arange(len(self.points), device=queries.device).expand(len(queries), -1)
        return torch.topk(_keys(distance, ids), fetched, dim=1, largest=False, sorted=False).values & _ID

    def _rank(self, queries: Any, candidates: Any, k: int) -> tuple[Any, Any]:
        """Rank the candidates by their differences and keep the k nearest; the lower id wins a tie."""
        torch = import_torch()
        difference = self.points[candidates]
        squared = difference.sub_(queries[:, None, :]).square_().sum(dim=2)
        keys = _keys(squared, candidates).sort(dim=1).values[:, :k]
        return (keys >> 32).to(torch.int32).view(torch.float32), keys & _ID


_ID = (1 << 32) - 1


def _multiplies_halves(device: Any) -> bool:
    """Whether half-precision numbers can be multiplied and summed in float32 there."""
    torch = import_torch()
    if device.type == "cpu" or getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False):
        return False
    few = torch.zeros((8, 8), dtype=torch.half, device=device)
    try:
        torch.mm(few, few, out_dtype=torch.float32)
    except (TypeError, RuntimeError):  # before PyTorch 2.8
        return False
    return True


def _limit(device: Any) -> int:
    if device.type == "cpu":
        return _BYTES
    return int(_SHARE_OF_MEMORY * import_torch().cuda.get_device_properties(device).total_memory)


def _keys(distance: Any, ids: Any) -> Any:
    """Distance and id as one number: the bits of non-negative floats sort like the floats."""
    torch = import_torch()
    return (distance.view(torch.int32).to(torch.int64) << 32) | ids


def _choose_group(n: int) -> int:
    """Return the size of groups: about the root of points per candidate, a multiple of 4."""
    return int(np.clip(4 * round(np.sqrt(n / 150) / 4), 4, 64))
