"""How far a long run is: a bar with the time left in a terminal, and a line a unit in a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Advance = Callable[[str, float], None]  # the key of a unit that has finished, and its seconds
Watcher = Callable[[int, int, int], AbstractContextManager[Advance]]  # units in all, done before, processes


@contextmanager
def quiet(total: int, done: int, jobs: int) -> Iterator[Advance]:
    """Say nothing."""
    yield lambda key, seconds: None


@contextmanager
def watch(total: int, done: int, jobs: int) -> Iterator[Advance]:
    """Show progress and the time left on the standard error."""
    if not sys.stderr.isatty():
        yield _Lines(total, done)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task, left = bar.add_task("", total=total, completed=done), _Left(total, done)

        def advance(key: str, seconds: float) -> None:
            bar.update(task, advance=1, description=f"{left.after_one()} [dim]{key}[/dim]")

        yield advance


class _Left:
    """Time left, from the pace of this run: units that were done before took no time."""

    def __init__(self, total: int, done: int) -> None:
        self.total, self.before, self.done, self.start = total, done, done, time.monotonic()

    def after_one(self) -> str:
        self.done += 1
        pace = (time.monotonic() - self.start) / (self.done - self.before)
        return f"about {_duration(pace * (self.total - self.done))} left"


class _Lines:
    def __init__(self, total: int, done: int) -> None:
        self.left = _Left(total, done)
        if done:
            self._say(f"{done} of {total} units were done before")

    def __call__(self, key: str, seconds: float) -> None:
        said = self.left.after_one()
        self._say(f"{self.left.done} of {self.left.total}  {key}  {seconds:.1f} s  {said}")

    def _say(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
