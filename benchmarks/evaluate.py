"""``caliope evaluate`` on a log of millions of decisions: the time of each stage and the largest memory.

Run: python -m benchmarks.evaluate [--rows 5000000]

Sepsis patients of the ICU-Sepsis process, 43 measurements a decision; the new policy takes a fifth of the decisions,
and its exact value is printed beside what the audit says.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

DATA = Path("bench-data")
GROUP = 20_000  # patients written together
SHARE = 0.2  # of the decisions, that the new policy takes


def write(path: Path, rows: int) -> None:
    """Write a log of about so many decisions, one group of patients at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from caliope.domains import icu_sepsis

    best, done, patients = icu_sepsis.optimal().argmax(axis=1), 0, 0
    writer = None
    while done < rows:
        data = icu_sepsis.simulate(GROUP, rng=patients, lags=0)
        columns = {"episode": data.layout.owner + patients, "time": data.layout.time, "action": data.actions}
        columns |= {"reward": data.rewards, "recommended": best[data["state"]]}
        columns |= {
            name: np.ascontiguousarray(x) for name, x in zip(data.feature_names, data.states.T, strict=False)
        }
        group = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, group.schema)
        writer.write_table(group)
        done, patients = done + data.n_steps, patients + GROUP
    if writer:
        writer.close()


def truth() -> float:
    """Exact value of the new policy."""
    from caliope.domains import icu_sepsis

    table = (1 - SHARE) * icu_sepsis.load().expert + SHARE * icu_sepsis.optimal()
    return icu_sepsis.value(table, gamma=0.99)


def main() -> int:
    """Write the log once, audit it in a process of its own, and print the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    given = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    path = DATA / f"evaluate-{given.rows}.parquet"
    if not path.exists():
        write(path, given.rows)
    command = [sys.executable, "-m", "caliope", "evaluate", str(path), "--recommended", "recommended"]
    command += ["--soften", str(1 - SHARE), "--gamma", "0.99", "--out", str(path.with_suffix(".html"))]
    done = subprocess.run(command, check=False)
    page = path.with_suffix(".html")
    size = f" Page: {page.stat().st_size / 1e6:.1f} MB." if page.exists() else ""
    print(
        f"\nExact value: {truth():.4f}. Exit code {done.returncode}. Log: {path.stat().st_size / 1e6:.0f} MB.{size}"
    )
    return 0 if done.returncode in (0, 3) else 1


if __name__ == "__main__":
    sys.exit(main())
