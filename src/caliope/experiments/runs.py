"""Long experiments in small units of work: written as they finish, and taken up again after a kill."""

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
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

import caliope
from caliope.experiments.progress import Watcher, watch
from caliope.source_digest import source_digest

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Unit:
    """A piece of work: as much as a kill can lose.

    ``work(**arguments)`` returns numbers that JSON can hold. It is a function of a module (processes have to find
    it by name), and makes every seed from its arguments (:func:`seed_of`), so that no unit depends on another.
    """

    key: str  # names its file, e.g. "roaming-k10-n500-seed3"
    work: Callable[..., Mapping[str, Any]]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=+-]*", self.key):
            raise ValueError(
                f"the key of a unit names a file: letters, digits and . _ = + -, got {self.key!r}."
            )
        plain(self.arguments)  # what cannot be named cannot be recognised after a kill

    @property
    def fingerprint(self) -> str:
        """What the result depends on: the function, its arguments and the version of the package."""
        said = [self.work.__module__, self.work.__qualname__, plain(self.arguments), caliope.__version__]
        return hashlib.blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=12).hexdigest()


def run_units(
    units: Iterable[Unit], folder: str | Path, *, jobs: int = 1, report: Watcher = watch
) -> dict[str, dict[str, Any]]:
    """Do all units that are not done yet, and return the result of each by its key, in the order given.

    Every result is written to ``folder/units/KEY.json`` when it is there, under its final name only when complete.
    A unit whose file exists is not done again, unless its arguments have changed. If the code has changed since, it is
    taken up all the same, and a line on the standard error says so: a long run is not lost by a comment. Whatever the
    order, the number of jobs and the interruptions, results are the same: each unit runs on one thread, and with seeds
    of its own.

    Parameters
    ----------
    units : iterable of Unit
    folder : path
        Made if it is not there.
    jobs : int
        Processes. With 1, units are done in this one.
    report : Watcher
        Told how far it is; by default on the standard error, with the time left.
    """
    todo = list(units)
    _check_keys(todo)
    source_digest()  # of the code that runs, before anybody edits it
    files = {unit.key: Path(folder) / "units" / f"{unit.key}.json" for unit in todo}
    (Path(folder) / "units").mkdir(parents=True, exist_ok=True)
    done = {unit.key: kept for unit in todo if (kept := _kept(unit, files[unit.key])) is not None}
    _say_of_other_code(done, len(todo), Path(folder) / "units")
    waiting = [unit for unit in todo if unit.key not in done]
    with one_thread(), report(len(todo), len(done), jobs) as advance:
        for unit, record in _in_turn(waiting) if jobs == 1 else _beside(waiting, jobs):
            write_atomically(files[unit.key], json.dumps(record, indent=1))
            done[unit.key] = record
            advance(unit.key, record["seconds"])
    # As read back from a file, so that fresh and kept results are of the same types.
    return {unit.key: json.loads(json.dumps(done[unit.key]["result"])) for unit in todo}


@dataclass(frozen=True)
class Spent:
    """What the finished units took, on one core each, and how many of them were made by other code than this."""

    seconds: float
    other_code: int


def spent(units: Iterable[Unit], folder: str | Path) -> Spent:
    """Of all finished units, those that were taken up again included."""
    found = (_kept(unit, Path(folder) / "units" / f"{unit.key}.json") for unit in units)
    records = [record for record in found if record is not None]
    other = sum(record.get("code") != source_digest() for record in records)
    return Spent(float(sum(record["seconds"] for record in records)), other)


def seed_of(*parts: Any) -> np.random.Generator:
    """A generator made from words and numbers alone, the same in every process.

    >>> seed_of("toy map", 3).integers(100, size=3).tolist()
    [64, 81, 62]
    """
    digest = hashlib.blake2b(json.dumps(plain(parts)).encode(), digest_size=16).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def plain(x: Any) -> Any:
    """The same in lists, dictionaries, text and numbers, for JSON."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        x = {each.name: getattr(x, each.name) for each in dataclasses.fields(x)}
    if isinstance(x, Mapping):
        return {str(key): plain(value) for key, value in x.items()}
    if isinstance(x, np.ndarray | np.generic):
        return plain(x.tolist())
    if isinstance(x, list | tuple):
        return [plain(each) for each in x]
    if x is None or isinstance(x, str | bool | int | float):
        return x
    raise TypeError(
        f"units take and return numbers, text, lists and mappings of these, got {type(x).__name__}."
    )


def write_atomically(path: Path, text: str) -> None:
    """Write a file that is either complete or not there at all, whenever the process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text if text.endswith("\n") else text + "\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep numerical libraries, and the processes started meanwhile, to one thread.

    Sums over several threads differ in the last digit from run to run, and a network that is trained on them
    in the second.
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _check_keys(units: Sequence[Unit]) -> None:
    keys = [unit.key for unit in units]
    if twice := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(
            f"every unit needs a key of its own, but {len(twice)} occur twice, first {twice[0]!r}."
        )


def _kept(unit: Unit, file: Path) -> dict[str, Any] | None:
    """The record of a unit that was done before with the same arguments."""
    if not file.exists():
        return None
    record = _read(file)
    if record is None:
        _say(f"{file} is no record of a finished unit: it is done again.")
        return None
    return record if record["fingerprint"] == unit.fingerprint else None


def _read(file: Path) -> dict[str, Any] | None:
    """A record; None if the file holds none, or not all of one."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:  # neither text nor JSON
        return None
    kinds = {"fingerprint": str, "result": dict, "seconds": int | float}
    sound = isinstance(record, dict) and all(isinstance(record.get(key), kind) for key, kind in kinds.items())
    return record if sound else None


def _say_of_other_code(done: Mapping[str, Mapping[str, Any]], total: int, folder: Path) -> None:
    other = sum(record.get("code") != source_digest() for record in done.values())
    if other:
        _say(
            f"{other} of {total} units were made by other code than this; delete {folder} to make them anew."
        )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _do(unit: Unit) -> dict[str, Any]:
    from joblib import parallel_config
    from threadpoolctl import threadpool_limits

    start = time.process_time()  # of this process: a busy machine does not make the work more
    # Libraries that are loaded already do not read the environment again, and scikit-learn's own workers never do.
    with threadpool_limits(1), parallel_config(backend="sequential"):
        result = plain(unit.work(**unit.arguments))
    return {
        "arguments": plain(unit.arguments),
        "code": source_digest(),
        "fingerprint": unit.fingerprint,
        "result": result,
        "seconds": time.process_time() - start,
    }


def _in_turn(units: Sequence[Unit]) -> Iterator[tuple[Unit, dict[str, Any]]]:
    return ((unit, _do(unit)) for unit in units)


def _beside(units: Sequence[Unit], jobs: int) -> Iterator[tuple[Unit, dict[str, Any]]]:
    """Several processes; spawned, for a fork would inherit threads in a state of their own."""
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}.")
    with ProcessPoolExecutor(jobs, get_context("spawn"), _end_with_parent) as pool:
        running: dict[Future[dict[str, Any]], Unit] = {pool.submit(_do, unit): unit for unit in units}
        try:
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        finally:
            for future in running:
                future.cancel()


def _end_with_parent() -> None:
    """A process whose parent was killed would otherwise wait for work for ever."""
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=follow, daemon=True).start()
