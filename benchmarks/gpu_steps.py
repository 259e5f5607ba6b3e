"""Ways to compute the steps of the neighbour search on a GPU, each timed and checked.

Run: python -m benchmarks.gpu_steps [--points 250000] [--rows 7000]. Times are for all points as queries.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import traceback
from typing import Any

import torch

from benchmarks.gpu import D, K, make_points, say_where, seconds

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

FETCHED = 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=250_000)
    parser.add_argument("--rows", type=int, default=7_000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    say_where(chosen.device)
    version = triton.__version__ if triton else "none"
    print(f"Triton {version}, compiler {shutil.which('gcc') or shutil.which('cc') or shutil.which('clang')}")
    points = torch.tensor(make_points(chosen.points), device=chosen.device)
    with torch.inference_mode():
        for part in (products, minima, selections, rankings, kernels):
            try:
                part(points, min(chosen.rows, chosen.points), chosen.device)
            except Exception:
                traceback.print_exc(limit=3, file=sys.stdout)
            if chosen.device != "cpu":
                torch.cuda.empty_cache()
    return 0


def show(what: str, call: Any, times: float, device: str) -> None:
    print(f"{what:<58}{times * seconds(call, device):8.4f} s", flush=True)


def rounded(points: Any, columns: int = 200) -> Any:
    out = torch.zeros((len(points), columns), dtype=torch.half, device=points.device)
    out[:, :D] = points.half()
    return out


def multiply(a: Any, b: Any) -> Any:
    if a.is_cuda:
        return torch.mm(a, b.T, out_dtype=torch.float32)
    return a.float() @ b.float().T


def products(points: Any, rows: int, device: str) -> None:
    times = len(points) / rows
    for columns in (200, 208, 224, 256):
        table = rounded(points, columns)
        show(f"product, half, {columns} columns", lambda t=table: multiply(t[:rows], t), times, device)
    for few in (1024, 2048, 4096):
        table = rounded(points)
        scale = len(points) / few
        show(f"product, {few} queries", lambda t=table, f=few: multiply(t[:f], t), scale, device)


def minima(points: Any, rows: int, device: str) -> None:
    times, product = len(points) / rows, multiply(rounded(points)[:rows], rounded(points))
    for group in (16, 32, 40, 64):
        n = len(points) // (4 * group) * (4 * group)
        whole = product[:, :n]
        near = whole.unflatten(1, (n // group, group))
        far = whole.unflatten(1, (group, n // group))
        show(f"minima of {group}, beside each other", lambda x=near: x.amin(dim=2), times, device)
        show(f"minima of {group}, strided", lambda x=far: x.amin(dim=1), times, device)


def selections(points: Any, rows: int, device: str) -> None:
    times, product = len(points) / rows, multiply(rounded(points)[:rows], rounded(points))
    for group in (16, 32, 40, 64):
        n = len(points) // (4 * group) * (4 * group)
        whole = product[:, :n].contiguous()
        near = whole.view(rows, n // group, group).amin(dim=2)
        show(f"{FETCHED} of {n // group} minima", lambda x=near: pick(x, FETCHED), times, device)
        groups = pick(near, FETCHED).indices
        flat = (groups + (n // group) * torch.arange(rows, device=groups.device)[:, None]).ravel()
        table = whole.view(-1, group)
        show(
            f"members of groups of {group}",
            lambda t=table, f=flat: t.index_select(0, f),
            times,
            device,
        )
        members = table.index_select(0, flat).view(rows, -1)
        show(f"{FETCHED} of {members.shape[1]} members", lambda x=members: pick(x, FETCHED), times, device)
        near, far = whole.view(rows, n // group, group), whole.view(rows, group, n // group)
        columns = groups[:, None, :].expand(-1, group, -1)
        show(f"members of strided groups of {group}", lambda x=far, c=columns: x.gather(2, c), times, device)


def pick(x: Any, k: int) -> Any:
    return torch.topk(x, k, dim=1, largest=False, sorted=False)


def rankings(points: Any, rows: int, device: str) -> None:
    times = len(points) / rows
    ids = torch.randint(len(points), (rows, FETCHED), device=device)
    q = points[:rows]
    show("rank: gather", lambda: points[ids], times, device)
    show("rank: index_select", lambda: points.index_select(0, ids.ravel()), times, device)
    y = points[ids]
    show("rank: subtract", lambda: y.sub_(q[:, None]), times, device)
    show("rank: square and sum", lambda: y.square_().sum(dim=2), times, device)
    show("rank: norm", lambda: torch.linalg.vector_norm(y, dim=2), times, device)
    squared = (points[ids] - q[:, None]).square().sum(dim=2)
    keys = (squared.view(torch.int32).to(torch.int64) << 32) | ids
    show("rank: sort keys", lambda: keys.sort(dim=1), times, device)
    show("rank: keys", lambda: (squared.view(torch.int32).to(torch.int64) << 32) | ids, times, device)
    show("rank: topk of float32", lambda: torch.topk(squared, K, dim=1, largest=False), times, device)


def kernels(points: Any, rows: int, device: str) -> None:
    if triton is None or device == "cpu":
        print("no Triton here")
        return
    times, q = len(points) / rows, points[:rows]
    ids = torch.randint(len(points), (rows, FETCHED), device=device)
    squared = (points[ids] - q[:, None]).square().sum(dim=2)
    keys = (squared.view(torch.int32).to(torch.int64) << 32) | ids
    expected = keys.sort(dim=1).values[:, :K]
    for block, warps in ((16, 4), (32, 4), (32, 8), (64, 8)):
        _, near_ids = rank(points, q, ids, block=block, warps=warps)
        same = (near_ids == (expected & 0xFFFFFFFF)).float().mean()
        what = f"Triton rank and sort, {block} columns, {warps} warps, same {same:.5f}"
        show(what, lambda b=block, w=warps: rank(points, q, ids, block=b, warps=w), times, device)
    for columns, bk in ((224, 32), (256, 64)):
        table = rounded(points, columns)
        n = len(table) // 256 * 256
        table = table[:n].contiguous()
        truth = multiply(table[:rows], table)
        for bm, bn, warps, stages in (
            (128, 128, 4, 3),
            (128, 256, 8, 3),
            (128, 256, 8, 4),
            (64, 256, 4, 3),
            (256, 128, 8, 3),
        ):
            for group in (32,):
                try:
                    out, low = product_minima(table[:rows], table, group, (bm, bn, bk, warps, stages))
                    ok = torch.allclose(out, truth, atol=1e-2) and torch.equal(
                        low, out.view(rows, -1, group).amin(dim=2)
                    )
                    what = f"Triton product and minima, {bm} x {bn} x {bk}, {warps} w, {stages} st, {ok}"
                    show(
                        what,
                        lambda t=table, g=group, s=(bm, bn, bk, warps, stages): product_minima(
                            t[:rows], t, g, s
                        ),
                        times,
                        device,
                    )
                except Exception as error:
                    print(f"{bm} x {bn} x {bk}: {type(error).__name__} {str(error)[:200]}")


if triton:

    @triton.jit
    def _rank(
        points,
        queries,
        ids,
        squared,
        out,
        d,
        fetched,
        k,
        COUNT: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        c = tl.arange(0, COUNT)
        i = tl.load(ids + row * fetched + c, mask=c < fetched, other=0)
        total = tl.zeros((COUNT,), dtype=tl.float32)
        for start in range(0, d, BLOCK):
            j = start + tl.arange(0, BLOCK)
            q = tl.load(queries + row * d + j, mask=j < d, other=0.0)
            y = tl.load(points + i[:, None] * d + j[None, :], mask=(j < d)[None, :], other=0.0)
            difference = y - q[None, :]
            total += tl.sum(difference * difference, axis=1)
        keys = (total.to(tl.int32, bitcast=True).to(tl.int64) << 32) | i
        keys = tl.sort(tl.where(c < fetched, keys, 0x7FFFFFFFFFFFFFFF))
        near = (keys >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        tl.store(squared + row * k + c, near, mask=c < k)
        tl.store(out + row * k + c, keys & 0xFFFFFFFF, mask=c < k)

    @triton.jit
    def _product_minima(
        a,
        b,
        out,
        low,
        m,
        n,
        COLUMNS: tl.constexpr,
        BM: tl.constexpr,
        BN: tl.constexpr,
        BK: tl.constexpr,
        GROUP: tl.constexpr,
    ):
        # Blocks of queries run fastest: a block of points stays in the cache.
        blocks = tl.cdiv(m, BM)
        pid = tl.program_id(0)
        i = (pid % blocks) * BM + tl.arange(0, BM)
        j = (pid // blocks) * BN + tl.arange(0, BN)
        c = tl.arange(0, BK)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        rows = tl.where(i < m, i, 0)
        for start in range(0, COLUMNS, BK):
            x = tl.load(a + rows[:, None] * COLUMNS + (start + c)[None, :])
            y = tl.load(b + j[None, :] * COLUMNS + (start + c)[:, None])
            total = tl.dot(x, y, total)
        at = i.to(tl.int64)[:, None] * n + j[None, :]
        tl.store(out + at, total, mask=(i < m)[:, None])
        least = tl.min(tl.reshape(total, (BM, BN // GROUP, GROUP)), axis=2)
        g = (pid // blocks) * (BN // GROUP) + tl.arange(0, BN // GROUP)
        tl.store(low + i.to(tl.int64)[:, None] * (n // GROUP) + g[None, :], least, mask=(i < m)[:, None])


def rank(points: Any, q: Any, ids: Any, *, block: int, warps: int) -> tuple[Any, Any]:
    squared = torch.empty((len(q), K), device=q.device)
    out = torch.empty((len(q), K), dtype=torch.int64, device=q.device)
    count = triton.next_power_of_2(ids.shape[1])
    _rank[(len(q),)](
        points,
        q,
        ids,
        squared,
        out,
        points.shape[1],
        ids.shape[1],
        K,
        COUNT=count,
        BLOCK=block,
        num_warps=warps,
    )
    return squared, out


def product_minima(a: Any, b: Any, group: int, shape: tuple[int, ...]) -> tuple[Any, Any]:
    bm, bn, bk, warps, stages = shape
    out = torch.empty((len(a), len(b)), device=a.device)
    low = torch.empty((len(a), len(b) // group), device=a.device)
    grid = (-(-len(a) // bm) * (len(b) // bn),)
    _product_minima[grid](
        a,
        b,
        out,
        low,
        len(a),
        len(b),
        COLUMNS=a.shape[1],
        BM=bm,
        BN=bn,
        BK=bk,
        GROUP=group,
        num_warps=warps,
        num_stages=stages,
    )
    return out, low


if __name__ == "__main__":
    sys.exit(main())
