"""The sepsis pipeline on many chart rows: seconds and peak memory of each stage.

Run: python -m benchmarks.clinical [--chart-rows 7500000] [--patients 5000] [--memory 4GB] [--source FOLDER]
                                   [--keep FOLDER] [--limit 24]

The tables are synthetic (extra ``sepsis``): patients of the ICU-Sepsis process, whose vital signs are charted as often
as the requested number of rows needs. Every row has an item that the pipeline needs, so nothing is thrown away on
reading; of the real chartevents less than half has. Peak memory is that of the whole process, counted anew for each
stage (Linux); CPU seconds count all threads, and tell more than seconds on a busy machine. The exit status is 1 if
the peak exceeds --limit.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from caliope.clinical import STAGES, Resources, build_cohort
from caliope.clinical._pipeline import Stage

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.synthetic_mimic import generate_mimic3

_ROWS_PER_PATIENT = 226  # of chartevents with one charting of each vital sign, seen in 300 synthetic patients
_GIGA = 1e9


def reset_peak() -> None:
    """Let the kernel count the peak anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak() -> float:
    """Largest resident memory since the last reset, in GB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 / _GIGA for line in lines if line.startswith("VmHWM"))


def make_tables(folder: Path, *, patients: int, chart_rows: int) -> None:
    """Write the synthetic tables and say how many rows they have."""
    began = time.perf_counter()
    copies = max(1, round(chart_rows / (patients * _ROWS_PER_PATIENT)))
    made = generate_mimic3(folder, patients, rng=0, chart_copies=copies)
    size = sum(path.stat().st_size for path in folder.iterdir()) / _GIGA
    seconds = time.perf_counter() - began
    rows = made.rows["chartevents"]
    print(f"made in {seconds:.0f} s: {rows:,} chart rows of {patients:,} patients, {size:.2f} GB of csv.gz")


def run(source: Path, resources: Resources) -> float:
    """Run the pipeline, print one line per stage, and return the largest peak."""
    peaks, spent = [peak()], [time.process_time()]
    print(f"{'stage':<14}{'seconds':>9}{'CPU s':>9}{'peak GB':>9}")

    def progress(stage: Stage, seconds: float) -> None:
        peaks.append(peak())
        spent.append(time.process_time())
        print(f"{stage.name:<14}{seconds:>9.1f}{spent[-1] - spent[-2]:>9.1f}{peaks[-1]:>9.2f}", flush=True)
        reset_peak()

    began = time.perf_counter()
    reset_peak()
    cohort = build_cohort(source, resources=resources, progress=progress)
    peaks.append(peak())
    cpu = time.process_time() - spent[0]
    print(f"{'in all':<14}{time.perf_counter() - began:>9.1f}{cpu:>9.1f}{max(peaks):>9.2f}")
    print(f"{cohort!r}: {len(STAGES)} stages, {os.cpu_count()} cores, memory limit {resources.memory}")
    return max(peaks)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chart-rows", type=int, default=7_500_000)
    parser.add_argument("--patients", type=int, default=5_000)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--limit", type=float, default=24.0, help="GB of peak memory that may be reached")
    parser.add_argument("--source", type=Path, help="existing tables")
    parser.add_argument("--keep", type=Path, help="folder in which the synthetic tables stay")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="caliope-bench-") as folder:
        source = given.source or given.keep or Path(folder)
        if given.source is None:
            make_tables(source, patients=given.patients, chart_rows=given.chart_rows)
        return int(run(source, Resources(memory=given.memory)) > given.limit)


if __name__ == "__main__":
    sys.exit(main())
