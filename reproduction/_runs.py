"""Long experiments in small units of work: each is written when it finishes, and a stopped run resumes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

import caliope
from caliope._cache import source_digest

Record = dict[str, Any]  # what the file of a finished unit holds
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Unit:
    """One piece of work: the most that a kill can lose.

    ``work(**arguments)`` returns numbers that JSON can hold. It is a function of a module, because worker processes
    find it by name. It makes every seed from its arguments (:func:`seed_of`), so that no unit depends on another.
    One that ``keeps`` is also given ``kept``, a folder for fits that outlast the unit.
    """

    key: str  # names its file, e.g. "roaming-k10-n500-seed3"
    work: Callable[..., Mapping[str, Any]]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    keeps: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=+-]*", self.key):
            raise ValueError(
                f"the key of a unit names a file: letters, digits and . _ = + -, got {self.key!r}."
            )
        to_plain(self.arguments)  # arguments that JSON cannot hold could not be recognised after a kill

    @property
    def fingerprint(self) -> str:
        """A digest of what the result depends on: the function, its arguments and the version of the package."""
        parts = [self.work.__module__, self.work.__qualname__, to_plain(self.arguments), caliope.__version__]
        return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=12).hexdigest()


def run_units(
    units: Iterable[Unit], folder: str | Path, *, jobs: int = 1, progress: bool = True
) -> dict[str, dict[str, Any]]:
    """Run all units that are not finished yet, and return the result of each by its key, in the order given.

    Each result is written to ``folder/units/KEY.json``, under its final name only when complete. A unit whose file
    exists is not run again, unless its arguments have changed. A unit of older code is reused too, and a line on the
    standard error says so. Results depend neither on the order, nor on the number of jobs, nor on interruptions:
    each unit runs on one thread and makes its own seeds.

    Parameters
    ----------
    units : iterable of Unit
    folder : path
        Created if it does not exist.
    jobs : int
        Number of processes. With 1, units run in this one.
    progress : bool
        Whether to show progress and the time left on the standard error.

    Returns
    -------
    dict
        The result of every unit, by its key.
    """
    todo = list(units)
    _check_keys(todo)
    code_digest()  # of the code that runs, before anybody edits it
    files = {unit.key: Path(folder) / "units" / f"{unit.key}.json" for unit in todo}
    (Path(folder) / "units").mkdir(parents=True, exist_ok=True)
    done = {unit.key: record for unit in todo if (record := _find_record(unit, files[unit.key])) is not None}
    _report_older_code(done, len(todo), Path(folder) / "units")
    waiting = [unit for unit in todo if unit.key not in done]
    with one_thread(), _show_progress(len(todo), len(done), progress) as advance:
        kept = Path(folder) / "kept"
        for unit, record in _run_here(waiting, kept) if jobs == 1 else _run_in_processes(waiting, jobs, kept):
            write_atomically(files[unit.key], json.dumps(record, indent=1))
            done[unit.key] = record
            advance(unit.key, record["seconds"])
    # As read back from a file, so that new and reused results have the same types.
    return {unit.key: json.loads(json.dumps(done[unit.key]["result"])) for unit in todo}


@dataclass(frozen=True)
class Work:
    """What the finished units took, on one core each, and how many of them were made by other code."""

    seconds: float
    other_code: int


def total_work(units: Iterable[Unit], folder: str | Path) -> Work:
    """Work of all finished units, including those of earlier runs."""
    found = (_find_record(unit, Path(folder) / "units" / f"{unit.key}.json") for unit in units)
    records = [record for record in found if record is not None]
    other = sum(record.get("code") != code_digest() for record in records)
    return Work(float(sum(record["seconds"] for record in records)), other)


def seed_of(*parts: Any) -> np.random.Generator:
    """Make a generator from words and numbers alone, the same in every process.

    >>> seed_of("toy map", 3).integers(100, size=3).tolist()
    [64, 81, 62]
    """
    digest = hashlib.blake2b(json.dumps(to_plain(parts)).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def to_plain(x: Any) -> Any:
    """Convert to lists, dictionaries, text and numbers, for JSON."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        x = {each.name: getattr(x, each.name) for each in dataclasses.fields(x)}
    if isinstance(x, Mapping):
        return {str(key): to_plain(value) for key, value in x.items()}
    if isinstance(x, np.ndarray | np.generic):
        return to_plain(x.tolist())
    if isinstance(x, list | tuple):
        return [to_plain(each) for each in x]
    if x is None or isinstance(x, str | bool | int | float):
        return x
    raise TypeError(
        f"units take and return numbers, text, lists and mappings of these, got {type(x).__name__}."
    )


def write_atomically(path: Path, text: str) -> None:
    """Write a file that is either complete or absent, whenever the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text if text.endswith("\n") else text + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


@cache
def code_digest() -> str:
    """Digest of the code that makes the results: the package, and the modules of this folder."""
    digest = hashlib.blake2b(source_digest().encode(), digest_size=8)
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{path.name}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep numerical libraries, and the processes started meanwhile, to one thread.

    Sums over several threads differ in the last digit from run to run, and a network trained on them in the second.
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def _show_progress(total: int, done: int, show: bool) -> Iterator[Callable[[str, float], None]]:
    """Show a bar with the time left in a terminal, and one line per unit elsewhere."""
    if not show:
        yield lambda key, seconds: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    terminal = sys.stderr.isatty()
    if done and not terminal:
        _say(f"{done} of {total} units were done before")
    # The pace of an hour: units may take minutes.
    with Progress(
        *columns, console=Console(stderr=True), disable=not terminal, speed_estimate_period=3600
    ) as bar:
        task = bar.add_task("", total=total, completed=done)

        def advance(key: str, seconds: float) -> None:
            bar.update(task, advance=1, description=key)
            if not terminal:
                now = bar.tasks[0]
                left = "" if now.time_remaining is None else f"  {timedelta(seconds=now.time_remaining)} left"
                _say(f"{int(now.completed)} of {total}  {key}  {seconds:.1f} s{left}")

        yield advance


def _check_keys(units: Sequence[Unit]) -> None:
    keys = [unit.key for unit in units]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(
            f"every unit needs a key of its own, but {len(twice)} occur twice, first {twice[0]!r}."
        )


def _find_record(unit: Unit, file: Path) -> Record | None:
    """The record of a unit that was finished before with the same arguments."""
    if not file.exists():
        return None
    record = _read_record(file)
    if record is None:
        _say(f"{file} is not a record of a finished unit: the unit runs again.")
        return None
    return record if record["fingerprint"] == unit.fingerprint else None


def _read_record(file: Path) -> Record | None:
    """Read a record; None if the file does not hold a complete one."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:  # neither text nor JSON
        return None
    kinds = {"fingerprint": str, "result": dict, "seconds": int | float}
    sound = isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in kinds.items())
    return record if sound else None


def _report_older_code(done: Mapping[str, Record], total: int, folder: Path) -> None:
    other = sum(record.get("code") != code_digest() for record in done.values())
    if other:
        _say(f"{other} of {total} units were made by other code; delete {folder} to make them again.")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _run(unit: Unit, kept: Path) -> Record:
    from joblib import parallel_config
    from threadpoolctl import threadpool_limits

    start = time.process_time()  # of this process: a busy machine does not make the work more
    folder = {"kept": str(kept)} if unit.keeps else {}
    # Libraries that are loaded already do not read the environment again, and scikit-learn's own workers never do.
    with threadpool_limits(1), parallel_config(backend="sequential"):
        result = to_plain(unit.work(**unit.arguments, **folder))
    return {
        "arguments": to_plain(unit.arguments),
        "code": code_digest(),
        "fingerprint": unit.fingerprint,
        "result": result,
        "seconds": time.process_time() - start,
    }


def _run_here(units: Sequence[Unit], kept: Path) -> Iterator[tuple[Unit, Record]]:
    return ((unit, _run(unit, kept)) for unit in units)


def _run_in_processes(units: Sequence[Unit], jobs: int, kept: Path) -> Iterator[tuple[Unit, Record]]:
    """Use several processes; spawned, because a fork would inherit threads in an unknown state."""
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    with ProcessPoolExecutor(jobs, get_context("spawn"), _end_with_parent) as pool:
        running: dict[Future[Record], Unit] = {pool.submit(_run, unit, kept): unit for unit in units}
        try:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            for future in running:
                future.cancel()


def _end_with_parent() -> None:
    """End this process when its parent is killed; otherwise it would wait for work for ever."""
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=follow, daemon=True).start()
