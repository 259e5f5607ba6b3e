"""Commands that are killed at random moments and started again: jobs, kills, and whether the end is the same.

``python -m benchmarks.kills`` does it a hundred times; tests/cli/test_faults.py a few.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import caliope
from caliope.domains import ward

ROOT = Path(__file__).parents[2]
_COLUMNS = ["--episode", "patient", "--time", "hour", "--action", "dose", "--reward", "discharged"]
_FIT = ["--states", "severity", "--models", "logistic", "--draws", "20", "--gamma", "1", "--fail-on", "never"]

_HERE = "support.killing"
_BOTH = ["--target", f"earlier=policy:{_HERE}:EARLIER", "--target", f"more=policy:{_HERE}:MORE"]


@dataclass(frozen=True)
class Job:
    """A command, what it writes, and what of that must not depend on kills."""

    name: str
    command: Callable[[Path], list[str]]  # run in this folder, of which the numbers may not depend
    files: tuple[str, ...]  # results, whole or not there at all
    read: Callable[[bytes], Any]  # of such a file


@dataclass(frozen=True)
class Came:
    """What came of a job that was killed several times and then let alone."""

    kills: int
    too_late: int  # kills that met a finished command
    faults: tuple[str, ...]


def environment() -> dict[str, str]:
    """The code under test, whether installed or on the path of this process; one thread."""
    path = [
        str(Path(caliope.__file__).parents[1]),
        str(ROOT),
        str(ROOT / "tests"),
        os.environ.get("PYTHONPATH", ""),
    ]
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return os.environ | threads | {"PYTHONPATH": os.pathsep.join(path)}


def _audit(command: str, *target: str) -> Callable[[Path], list[str]]:
    def made(folder: Path) -> list[str]:
        files = ["--work", "work", "--out", "report.html"]
        log = folder / "log.csv"
        if not log.exists():  # the first 40 patients
            rows = ward.csv_path().read_text().splitlines(keepends=True)
            log.write_text(
                "".join(row for row in rows if not row[0].isdigit() or int(row.split(",")[0]) <= 40)
            )
        return ["caliope", command, log.name, *_COLUMNS, *target, *_FIT, *files, "--quiet"]

    return made


def _cohort(folder: Path) -> list[str]:
    from support.clinical_tables import typical

    raw = folder / "raw"
    if not raw.exists():
        typical(4).write(raw)
    out = ["--keep-stages", "stages.duckdb", "--out", "cohort.parquet"]
    return ["caliope", "cohort", "mimic3", "--source", raw.name, *out]


def numbers_of(content: bytes) -> Any:
    """The numbers of an audit, without what it took, and without the page, which says that too."""
    return _timeless(json.loads(content))


def _timeless(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _timeless(x) for name, x in found.items() if name not in ("stages", "seconds", "page")}
    return [_timeless(x) for x in found] if isinstance(found, list) else found


JOBS = {
    job.name: job
    for job in (
        Job("evaluate", _audit("evaluate", "--policy", f"{_HERE}:EARLIER"), ("report.json",), numbers_of),
        Job("compare", _audit("compare", *_BOTH), ("report.json",), numbers_of),
        Job(
            "reproduce",
            lambda folder: ["reproduction", "figure1", "--smoke", "--out", "."],
            ("figure1.json", "figure1.md", "figure1.svg"),
            bytes,
        ),
        Job("cohort", _cohort, ("cohort.parquet",), bytes),
    )
}
EARLIER = caliope.TabularPolicy(ward.EARLIER)
MORE = caliope.mix(caliope.practice, EARLIER, 0.5)


def start(job: Job, folder: Path) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", *job.command(folder)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment(), cwd=folder, **quiet)


def finish(job: Job, folder: Path) -> tuple[dict[str, Any], float, str]:
    """Let the command run to its end: what it wrote, its seconds, and what went wrong."""
    began = time.perf_counter()
    process = start(job, folder)
    said = process.communicate()[1].decode(errors="replace").strip()
    fault = f"ended with {process.returncode}: {said[-500:]}" if process.returncode else ""
    return results_of(job, folder), time.perf_counter() - began, fault


def results_of(job: Job, folder: Path) -> dict[str, Any]:
    """Every result that is there; one that cannot be read raises."""
    return {name: job.read((folder / name).read_bytes()) for name in job.files if (folder / name).exists()}


def kill_and_finish(
    job: Job, folder: Path, moments: list[float], *, whole: dict[str, Any], seconds: float
) -> Came:
    """Kill a command at these shares of its whole time, one start after the other; then let it end.

    Half a result is a fault at once; other numbers than those of the undisturbed run are one at the end.
    """
    faults, too_late = [], 0
    for moment in moments:
        process, began = start(job, folder), time.perf_counter()
        try:
            process.communicate(timeout=moment * seconds)
            too_late += 1
            seconds = time.perf_counter() - began  # the machine has become faster, or little was left to do
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        try:
            found = results_of(job, folder)
        except (ValueError, OSError) as error:
            faults.append(f"{job.name}, killed at {moment:.3f}: half a result, {error}")
            continue
        wrong = [name for name, x in found.items() if x != whole[name]]
        faults += [f"{job.name}, killed at {moment:.3f}: {name} is another" for name in wrong]
    came, _, fault = finish(job, folder)
    faults += [f"{job.name}, killed at {moments}: {fault}"] if fault else []
    faults += [f"{job.name}, killed at {moments}: other numbers"] if came != whole else []
    return Came(len(moments) - too_late, too_late, tuple(faults))


def moments_of(seed: int, count: int) -> list[float]:
    """Shares of the whole time, of a fixed seed."""
    return np.random.default_rng([20, seed]).uniform(0.05, 0.95, count).tolist()
