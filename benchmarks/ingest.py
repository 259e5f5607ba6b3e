"""read_table against bare polars that does the least: the same columns into one array, unchecked.

Run: python -m benchmarks.ingest [--rows 2000000] [--features 48] [--shuffled]

Each measurement has a process of its own; its peak is the most memory it ever held, less what it held
after the imports, as a multiple of the arrays it returns. What lies beside the arrays hardly grows with the
rows (some row groups in flight), so the multiple falls towards 1. This process imports nothing large,
because a child's peak starts from the memory of its parent.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

DATA = Path("bench-data")
GROUP = 1 << 18  # rows written together
LENGTH = 20  # steps of an episode


def write(path: Path, features: int, *, rows: int, shuffled: bool) -> None:
    """Write a log with standard normal states, one row group at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    order = rng.permutation(rows) if shuffled else np.arange(rows)
    writer = None
    for start in range(0, rows, GROUP):
        row = order[start : start + GROUP]
        columns = {"episode": row // LENGTH, "time": row % LENGTH, "action": rng.integers(0, 25, len(row))}
        columns["reward"] = rng.standard_normal(len(row))
        columns |= {f"x{j}": rng.standard_normal(len(row), dtype=np.float32) for j in range(features)}
        group = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, group.schema, use_dictionary=False)
        writer.write_table(group)
    if writer:
        writer.close()


def read_bare(path: Path, features: int) -> int:
    """Fill arrays by polars alone, and return their size in bytes."""
    import numpy as np
    import polars as pl

    names = [f"x{j}" for j in range(features)]
    query = pl.scan_parquet(path)
    n = query.select(pl.len()).collect().item()
    states, actions, rewards = np.empty((n, features), np.float32), np.empty(n, np.int64), np.empty(n)
    start = 0
    for batch in query.select("action", "reward", *names).collect_batches(chunk_size=1 << 16, lazy=True):
        stop = start + batch.height
        states[start:stop] = batch.select(names).to_numpy()
        actions[start:stop], rewards[start:stop] = batch["action"].to_numpy(), batch["reward"].to_numpy()
        start = stop
    return states.nbytes + actions.nbytes + rewards.nbytes


def read_checked(path: Path, features: int) -> int:
    """Read by read_table, and return the size of its arrays in bytes."""
    from caliope.io import read_table

    names = [f"x{j}" for j in range(features)]
    data = read_table(path, episode="episode", action="action", reward="reward", states=names, time="time")
    return sum(x.nbytes for x in (data.states, data.actions, data.rewards, data.offsets, data.ids))


READERS: dict[str, Callable[[Path, int], int]] = {"bare polars": read_bare, "read_table": read_checked}


def measure(reader: Callable[[Path, int], int], path: Path, *, features: int) -> dict[str, float]:
    import numpy  # noqa: F401 (part of what both hold before they begin)

    import caliope.io  # noqa: F401

    held = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    wall, cpu = time.perf_counter(), time.process_time()
    size = reader(path, features)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - held
    return {"wall": wall, "cpu": cpu, "peak": peak / size, "gigabytes": size / 1e9}


def in_child(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.ingest", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def compare(path: Path, features: int, *, repeats: int) -> None:
    """Print each reader's best time and worst peak, taking turns."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in READERS}
    for _ in range(repeats):
        for name, found in runs.items():
            found.append(json.loads(in_child("--measure", name, str(path), "--features", str(features))))
    print(f"{'':12} {'CPU s':>8} {'wall s':>8} {'peak / arrays':>14} {'beside them, GB':>16}")
    best = {}
    for name, found in runs.items():
        best[name] = [min(run["cpu"] for run in found), min(run["wall"] for run in found)]
        peak = max(run["peak"] for run in found)
        beside = (peak - 1) * found[0]["gigabytes"]
        print(f"{name:12} {best[name][0]:8.2f} {best[name][1]:8.2f} {peak:14.2f} {beside:16.2f}")
    cpu, wall = (a / b for a, b in zip(best["read_table"], best["bare polars"], strict=True))
    print(f"{'ratio':12} {cpu:8.2f} {wall:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=48)
    parser.add_argument("--shuffled", action="store_true", help="rows in random order")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write:
        write(given.write, given.features, rows=given.rows, shuffled=given.shuffled)
    elif given.measure:
        name, path = given.measure
        print(json.dumps(measure(READERS[name], Path(path), features=given.features)))
    else:
        order = "shuffled" if given.shuffled else "sorted"
        path = DATA / f"ingest-{given.rows}x{given.features}-{order}.parquet"
        DATA.mkdir(exist_ok=True)
        if not path.exists():
            flags = ["--rows", str(given.rows), "--features", str(given.features)]
            in_child("--write", str(path) + ".part", *flags, *["--shuffled"] * given.shuffled)
            Path(str(path) + ".part").rename(path)
        print(f"{given.rows:,} {order} rows of {given.features} float32 features")
        compare(path, given.features, repeats=given.repeats)


if __name__ == "__main__":
    main()
