"""A job: a function is applied to every part of a log, and what it returns is kept. Nothing more."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from caliope._cache import Cache

Task = Callable[[Any], Any]
ATTEMPTS = 3  # of a part whose worker dies

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class PartitionError(RuntimeError):
    """A part of the log could not be worked on; the message names it.

    Examples
    --------
    >>> raise PartitionError("log/7.parquet (rows 0 to 99): the file is damaged")
    Traceback (most recent call last):
    ...
    caliope.engines._jobs.PartitionError: log/7.parquet (rows 0 to 99): the file is damaged
    """


@dataclass(frozen=True, eq=False)
class Item:
    """A part of the log as a job sees it: its number, its name in messages, and what the function is given."""

    number: int
    name: str
    content: Any


class Engine(Protocol):
    """Applies a function to parts, anywhere and in any order.

    Examples
    --------
    An engine of your own, for ``caliope.audit(..., engine=)``: this one works on one part after the other.

    >>> class InTurn:
    ...     def run(self, task, items):
    ...         for item in items:
    ...             yield item.number, task(item.content)
    >>> sorted(run_job(InTurn(), len, ["a", "bcd"], work=Cache()))
    [(0, 1), (1, 3)]
    """

    def run(self, task: Task, items: Sequence[Item]) -> Iterator[tuple[int, Any]]:
        """Yield the number of each part and what the function returned, as they are finished."""


def run_job(engine: Engine, task: Task, contents: Iterable[Any], *, work: Cache) -> Iterator[tuple[int, Any]]:
    """Apply a function to every part, and yield what it returns with the number of the part, as parts are finished.

    What was finished before a stop is not done again.

    Parameters
    ----------
    engine : Engine
        Where the work is done.
    task : callable
        From the content of a part to a result. Both travel to other processes.
    contents : iterable
        What the function is given; each is named by ``str``, or by its ``name``.
    work : Cache
        Keeps results, by the number of the part; keyed by all that they depend on.

    Yields
    ------
    (int, result)
        The number of a part, from 0, and its result.

    Examples
    --------
    >>> from caliope.engines import Local
    >>> sorted(run_job(Local(workers=1), len, ["a", "bcd"], work=Cache()))
    [(0, 1), (1, 3)]
    """
    items = [Item(i, getattr(x, "name", str(x)), x) for i, x in enumerate(contents)]
    left = []
    for item in items:
        kept = work.get(f"part {item.number}", _NOTHING)
        if kept is _NOTHING:
            left.append(item)
        else:
            yield item.number, kept
    for number, result in engine.run(task, left) if left else ():
        _keep(work, items[number], result)
        yield number, result


_NOTHING = object()


def _keep(work: Cache, item: Item, result: Any) -> None:
    try:
        work.put(f"part {item.number}", result)
    except OSError as error:
        # A folder says what happened in its own words, and keeps the system's error as the cause.
        system = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if system.errno not in _FULL:
            raise
        raise PartitionError(
            f"{item.name}: its result could not be kept ({system.strerror}). Make room in the folder of finished work, "
            "or name another: the same command goes on from here."
        ) from error


def apply(task: Task, item: Item) -> Any:
    """The result of one part; an error names the part."""
    try:
        return task(item.content)
    except Exception as error:
        what = " ".join(str(error).split())
        raise PartitionError(
            f"{item.name}: {what if isinstance(error, ValueError) else f'{type(error).__name__}: {what}'}"
        ) from error


def refuse_deadly(item: Item, times: int) -> PartitionError:
    """The error for a part whose workers die."""
    return PartitionError(
        f"{item.name}: its worker was killed {times} times, most often for want of memory. Use fewer workers or "
        "smaller parts; the same command goes on from here."
    )
