"""Work on this machine: one process per core, each with one part of the log at a time."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cloudpickle
import joblib
from joblib.externals.loky.process_executor import BrokenProcessPool

from caliope.engines._jobs import ATTEMPTS, Item, Task, apply, refuse_deadly


@dataclass(frozen=True)
class Local:
    """The machine that runs the command.

    A worker that dies is replaced, and its part is done again. A part whose workers die three times ends the job.

    Parameters
    ----------
    workers : int, optional
        Processes, by default one per core. With one the work is done in this process.

    Examples
    --------
    >>> from caliope.engines import Local
    >>> Local(workers=2)
    Local(workers=2)
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be 1 or more, got {self.workers}.")

    def run(self, task: Task, items: Sequence[Item]) -> Iterator[tuple[int, Any]]:
        """Yield the number of each part and its result, as they are finished."""
        processes = min(joblib.cpu_count() if self.workers is None else self.workers, len(items))
        if processes == 1:
            yield from ((item.number, apply(task, item)) for item in items)
            return
        left = {item.number: item for item in items}
        for _ in range(ATTEMPTS - 1):
            try:
                for number, result in _in_processes(task, list(left.values()), processes):
                    del left[number]
                    yield number, result
            except BrokenProcessPool:
                continue
            return
        # One at a time: then it is known whose worker dies.
        for item in left.values():
            yield item.number, _alone(task, item)


def _in_processes(task: Task, items: Sequence[Item], processes: int) -> Iterator[tuple[int, Any]]:
    with TemporaryDirectory(prefix="caliope-") as folder:
        # Once on disk, and not with every part: fitted models are large.
        path = Path(folder, "task")
        path.write_bytes(cloudpickle.dumps(task))
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            run = joblib.Parallel(
                n_jobs=processes, return_as="generator_unordered", pre_dispatch="n_jobs + 1", batch_size=1
            )
            yield from run(joblib.delayed(_work)(path, item) for item in items)


def _work(path: Path, item: Item) -> tuple[int, Any]:
    return item.number, apply(_read_task(path), item)


@lru_cache(maxsize=1)
def _read_task(path: Path) -> Task:
    task: Task = pickle.loads(path.read_bytes())
    return task


def _alone(task: Task, item: Item) -> Any:
    """One part in a process of its own; two, so that joblib does not do it in this one."""
    for _ in range(ATTEMPTS):
        try:
            return next(iter(_in_processes(task, [item], 2)))[1]
        except BrokenProcessPool:
            continue
    raise refuse_deadly(item, ATTEMPTS)
