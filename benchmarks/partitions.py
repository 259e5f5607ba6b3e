"""An audit of a log in files: processor time of each stage, wall time, and the largest memory of every process.

Run: python -m benchmarks.partitions [--rows 1000000] [--workers 2] [--engine local] [--models logistic]
     python -m benchmarks.partitions --predict 1000000000
     python -m benchmarks.partitions --rows 50000 --sample 5000 --overhead

Sepsis patients of the ICU-Sepsis process, 43 measurements per decision, written a file at a time; the new policy takes
a fifth of the decisions. Wall time depends on what else the machine does: processor time is the better number.

Every run is kept beside the logs. ``--predict`` makes a model of those with as many workers and as large a sample: each
stage costs so much once, and so much per decision. It prints what a log of so many decisions would take.

``--overhead`` works on one small log with every engine, asks whether the results are identical, and prints what
each engine takes beside one process. Exit status 1 means that they differ.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.evaluate import DATA, SHARE, truth

KEPT = DATA / "partitions.jsonl"  # one run per line

GROUP = 10_000  # patients of a file
RUN = "--run"  # in the process that is measured


def write(folder: Path, rows: int) -> None:
    """Write a log of about so many decisions, one file at a time."""
    import numpy as np
    import polars as pl

    from caliope.domains import icu_sepsis

    folder.mkdir(parents=True, exist_ok=True)
    best, done, patients = icu_sepsis.optimal().argmax(axis=1), 0, 0
    while done < rows:
        data = icu_sepsis.simulate(GROUP, rng=patients, lags=0)
        columns = {"episode": data.layout.owner + patients, "time": data.layout.time, "action": data.actions}
        columns |= {"reward": data.rewards, "recommended": best[data["state"]]}
        columns |= {
            name: np.ascontiguousarray(x) for name, x in zip(data.feature_names, data.states.T, strict=False)
        }
        pl.DataFrame(columns).write_parquet(folder / f"{patients // GROUP:05d}.parquet")
        done, patients = done + data.n_steps, patients + GROUP


def recommended(log):  # type: ignore[no-untyped-def]
    """The recommendations of a part of the log as probabilities."""
    import numpy as np

    return np.eye(log.n_actions)[log["recommended"].astype(int)]


def run(folder: Path, engine_name: str, workers: int, models: list[str], sample: int) -> None:
    """Audit the log, and print what it found and what its stages took."""
    from caliope.engines import Dask, Local

    engine = Local(workers) if engine_name == "local" else Dask(workers=workers)
    source, watch = opened(folder, sample), Stopwatch()
    found = audited(source, engine, models, watch)
    watch("")
    print(found.headline, f"\nreach: {found.reach}\nbehaviour: {found.comparison.recommended}")
    print(f"{found.settings.n_steps} decisions, {found.settings.n_trajectories} trajectories, {source}")
    print("processor   wall   memory so far of this process")
    for stage in found.stages:
        used = watch.used.get(stage.name, 0.0)
        print(f"{used:9.1f}{stage.seconds:7.1f} s {stage.peak_gb:7.2f} GB  {stage.name}")
    kept = {"rows": found.settings.n_steps, "sample": sample, "workers": workers, "engine": engine_name}
    kept |= {"models": models, "stages": watch.used, "peak": max(x.peak_gb for x in found.stages)}
    with KEPT.open("a") as file:
        file.write(json.dumps(kept) + "\n")


def opened(folder: Path, sample: int):  # type: ignore[no-untyped-def]
    """The log in its files."""
    import polars as pl

    from caliope.io import open_partitions

    return open_partitions(
        folder,
        episode="episode",
        time="time",
        action="action",
        reward="reward",
        states=pl.scan_parquet(folder / "00000.parquet").collect_schema().names()[5:],
        keep=["recommended"],
        n_actions=25,
        sample=sample,
    )


def audited(source, engine, models: list[str], watch=None):  # type: ignore[no-untyped-def]
    """The audit of the log."""
    import caliope as cal
    from caliope.behaviour import candidate_models
    from caliope.domains import icu_sepsis

    usual = candidate_models(icu_sepsis.simulate(20, rng=0, lags=0), random_state=0)
    target = cal.mix(cal.practice, Recommended(), SHARE)
    chosen = {name: usual[name] for name in models} if models else None
    return cal.audit(source, target, chosen, gamma=0.99, engine=engine, rng=0, progress=watch)


def overhead(folder: Path, models: list[str], sample: int) -> int:
    """Print what every engine takes for one log, and whether all find the same."""
    from caliope.engines import Dask, Local

    first, differ = None, 0
    print(f"{'wall':>7}{'processor':>11}   engine")
    for engine in (Local(1), Local(2), Dask(workers=1), Dask(workers=2), Dask(workers=4)):
        wall, used = time.perf_counter(), processor_time(os.getpid())
        found = audited(opened(folder, sample), engine, models).to_dict()
        wall, used = time.perf_counter() - wall, processor_time(os.getpid()) - used
        del found["stages"], found["behaviour"]["seconds"]
        first = json.dumps(found, default=str) if first is None else first
        same = json.dumps(found, default=str) == first
        differ += not same
        print(f"{wall:7.1f}{used:9.1f} s   {engine}: {'identical' if same else 'DIFFERENT'}", flush=True)
    return int(differ > 0)


class Stopwatch:
    """Processor time of each stage, of this process and all that it started."""

    def __init__(self) -> None:
        self.name, self.before, self.used = "", processor_time(os.getpid()), {}

    def __call__(self, name: str) -> None:
        """Begin a stage; the one before it is done."""
        now = processor_time(os.getpid())
        if self.name:
            self.used[self.name] = self.used.get(self.name, 0.0) + now - self.before
        self.name, self.before = name, now


def processor_time(pid: int) -> float:
    """Seconds of processor time of a process, of those that it started, and of those of them that have ended."""
    total, tick = 0, os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and _descends(int(path.name), pid):
            try:
                fields = (path / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            total += sum(int(x) for x in fields[11:15])
    return total / tick


def predict(rows: int, engine: str, workers: int, sample: int) -> None:
    """Print what a log of so many decisions would take, by a line through the kept runs for each stage."""
    import numpy as np

    runs = [json.loads(line) for line in KEPT.read_text().splitlines()]
    runs = [x for x in runs if (x["engine"], x["workers"], x["sample"]) == (engine, workers, sample)]
    sizes = np.array([x["rows"] for x in runs], dtype=float)
    if len(set(sizes)) < 2:
        raise SystemExit(f"needs runs of two sizes with {workers} workers and a sample of {sample}: {KEPT}")
    print(f"runs of {', '.join(f'{x:,.0f}' for x in sizes)} decisions; seconds of processor time\n")
    print(f"{'once':>8} {'per million':>12}  stage")
    totals = {"in parts": np.zeros(2), "in the first process": np.zeros(2)}
    for name in runs[-1]["stages"]:
        slope, once = _line(sizes, [x["stages"].get(name, 0.0) for x in runs])
        totals["in parts" if name in IN_PARTS else "in the first process"] += (once, slope)
        print(f"{once:8.1f} {slope * 1e6:12.2f}  {name}")
    slope, once = _line(sizes, [x["peak"] for x in runs])
    print(f"\nmemory of the first process: {once:.2f} GB + {slope * 1e9:.0f} bytes per decision")
    print(f"{rows:,} decisions: {once + slope * rows:,.0f} GB there")
    for cores in (2, 16, 160):
        split = (totals["in parts"] @ (1, rows)) / cores + totals["in the first process"] @ (1, rows)
        print(f"{cores:>4} cores: {split / 3600:.1f} hours")


IN_PARTS = ("looking at the files", "reading the sample", "weighing the other trajectories")


def _line(x, y):  # type: ignore[no-untyped-def]
    """Slope and intercept, neither below 0."""
    import numpy as np
    from scipy.optimize import nnls

    (slope, once), _ = nnls(np.column_stack([x / x.max(), np.ones(len(x))]), np.asarray(y, dtype=float))
    return slope / x.max(), once


class Recommended:
    """The recommended action, as a policy that reads a column of the log."""

    def on(self, data):  # type: ignore[no-untyped-def]
        """Probabilities of all actions at every step."""
        return recommended(data)


def peaks(pid: int) -> Iterator[tuple[int, float]]:
    """The largest memory so far of a process and of all that it started, in GB."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and _descends(int(path.name), pid):
            try:
                status = (path / "status").read_text()
            except OSError:
                continue
            high = next((x for x in status.splitlines() if x.startswith("VmHWM")), None)
            if high is not None:
                yield int(path.name), int(high.split()[1]) / 1e6


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            return False
    return False


def measure(command: list[str]) -> int:
    """Run a command; print wall and processor time and the largest memory of each of its processes."""
    started, highest = time.perf_counter(), {}
    process = subprocess.Popen(command)
    while process.poll() is None:
        highest |= {pid: max(peak, highest.get(pid, 0.0)) for pid, peak in peaks(process.pid)}
        time.sleep(0.5)
    wall, used = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    own = highest.pop(process.pid, 0.0)
    workers = sorted((x for x in highest.values() if x > 0.1), reverse=True)
    print(f"wall {wall:.0f} s, processor {used.ru_utime + used.ru_stime:.0f} s, {os.cpu_count()} cores")
    print(f"largest memory: {own:.2f} GB, workers {', '.join(f'{x:.2f}' for x in workers) or 'none'} GB")
    return process.returncode


def main() -> int:
    """Write the log once, audit it in a process of its own, and print the truth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engine", choices=["local", "dask"], default="local")
    parser.add_argument("--models", nargs="*", default=["logistic"], help="none: the usual ones")
    parser.add_argument("--sample", type=int, default=200_000)
    parser.add_argument("--predict", type=int, metavar="ROWS")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument(RUN, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder = DATA / f"partitions-{given.rows}"
    if given.predict:
        predict(given.predict, given.engine, given.workers, given.sample)
        return 0
    if given.run:
        run(folder, given.engine, given.workers, given.models, given.sample)
        return 0
    if not folder.exists():
        write(folder, given.rows)
    if given.overhead:
        return overhead(folder, given.models, given.sample)
    code = measure([sys.executable, "-m", "benchmarks.partitions", RUN, *sys.argv[1:]])
    print(f"exact value: {truth():.4f}")
    return code


if __name__ == "__main__":
    sys.exit(main())
