"""Work on a cluster of Dask: one that is started here, or one that runs."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import cloudpickle

from caliope.engines._jobs import ATTEMPTS, Item, PartitionError, Task, apply, refuse_deadly

_WAIT, _WAIT_AGAIN = (
    "30s",
    "300s",
)  # for the scheduler to answer; where it did before, it may be starting anew
_PAUSE, _LOOK = 0.05, 5.0  # seconds between looks at what is finished, and at the workers
_NO_WORKER = 120.0  # seconds without any until the job is asked for again


class _NoWorkerError(ConnectionError):
    """All workers are gone, and none has come in their place."""


@dataclass(frozen=True)
class Dask:
    """A cluster of Dask; needs the extra ``dask``.

    Workers read the files themselves: the paths must be the same there. A part whose worker dies is done by another;
    if four die of it the job ends and names it. If the scheduler is started anew, what was not finished is asked for
    again.

    Parameters
    ----------
    scheduler : str, optional
        Address of one that runs, such as ``"tcp://10.0.0.1:8786"``. By default a cluster is started on this machine for
        each job.
    workers : int, optional
        Processes of the cluster that is started, by default one per core.

    Examples
    --------
    >>> from caliope.engines import Dask
    >>> Dask("tcp://10.0.0.1:8786")
    Dask(scheduler='tcp://10.0.0.1:8786', workers=None)
    """

    scheduler: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.scheduler is not None and self.workers is not None:
            raise ValueError(
                "workers is for a cluster that is started here: give scheduler or workers, not both."
            )
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be 1 or more, got {self.workers}.")

    def run(self, task: Task, items: Sequence[Item]) -> Iterator[tuple[int, Any]]:
        """Yield the number of each part and its result, as they are finished."""
        left = {item.number: item for item in items}
        for attempt in range(ATTEMPTS):
            try:
                with self._client(_WAIT_AGAIN if attempt else _WAIT) as client:
                    for number, result in _submit(client, task, list(left.values())):
                        del left[number]
                        yield number, result
                return
            except _lost() as error:
                if attempt == ATTEMPTS - 1:
                    raise _give_up(next(iter(left.values())), error) from error

    @contextmanager
    def _client(self, wait: str) -> Iterator[Any]:
        try:
            from distributed import Client, LocalCluster
        except ModuleNotFoundError:
            raise ModuleNotFoundError(
                "this engine needs Dask: pip install 'caliope[dask]'.", name="distributed"
            ) from None
        if self.scheduler is not None:
            try:
                client = Client(self.scheduler, timeout=wait, set_as_default=False)
            except OSError as error:
                raise ConnectionError(
                    f"no scheduler answers at {self.scheduler} ({error}): start one with 'dask scheduler'."
                ) from error
            with client:
                yield client
            return
        # No page of Dask is wanted; without an address its server would ask for port 8787, which may be taken.
        options = {"n_workers": self.workers, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
        with (
            LocalCluster(processes=True, **options) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client


def _submit(client: Any, task: Task, items: Sequence[Item]) -> Iterator[tuple[int, Any]]:
    from distributed import KilledWorker

    # As bytes that every worker reads: what one worker held would be lost with it.
    read = client.submit(pickle.loads, cloudpickle.dumps(task), pure=False)
    suspects = []
    numbers = {client.submit(apply, read, item, pure=False): item for item in items}
    for future, result in _finished(client, list(numbers)):
        item = numbers.pop(future)
        if future.status == "error" and isinstance(result[1], KilledWorker):
            suspects.append(item)
        else:
            yield item.number, _take(future, result)
    # A worker that is killed takes all with it that it was given. Alone, only a part that kills is blamed.
    for item in suspects:
        for future, result in _finished(client, [client.submit(apply, read, item, pure=False)]):
            if future.status == "error" and isinstance(result[1], KilledWorker):
                raise refuse_deadly(item, ATTEMPTS + 1)
            yield item.number, _take(future, result)


def _take(future: Any, result: Any) -> Any:
    """The result of a future that is finished; its error is raised."""
    if future.status == "error":
        _, error, trace = result
        raise error.with_traceback(trace)
    if isinstance(result, CancelledError):
        raise result
    future.release()
    return result


def _finished(client: Any, futures: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield futures with their results as they arrive; an error where no worker is left for too long.

    A worker that dies while it starts may not be replaced, and Dask would wait for another for ever: for a part that is
    not finished, or for a result that was lost with a worker before it was sent.
    """
    from distributed import as_completed

    finished = as_completed(futures, loop=client.loop, with_results=True, raise_errors=False)
    looked = worked = time.monotonic()
    while finished.count():
        if finished.has_ready():
            yield next(finished)
            continue
        time.sleep(_PAUSE)
        now = time.monotonic()
        if now - looked < _LOOK:
            continue
        looked = now
        if client.scheduler_info()["workers"]:
            worked = now
        elif now - worked > _NO_WORKER:
            raise _NoWorkerError


def _give_up(item: Item, error: BaseException) -> PartitionError:
    """The error for a job that was asked for too often."""
    if isinstance(error, _NoWorkerError):
        what = f"no worker was left for {item.name}. Start workers, with more memory if they were killed"
    else:
        what = (
            f"{item.name}: the scheduler was lost {ATTEMPTS} times ({type(error).__name__}). Start it again"
        )
    return PartitionError(f"{what}; the same command goes on from here.")


def _lost() -> tuple[type[BaseException], ...]:
    """What is raised where the scheduler or all workers are gone."""
    try:
        from distributed.client import FutureCancelledError
        from distributed.comm import CommClosedError
    except ModuleNotFoundError:
        return ()
    return _NoWorkerError, CommClosedError, FutureCancelledError, TimeoutError
