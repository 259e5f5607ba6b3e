"""The stages of an audit: what each took in time and memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """One stage: its name, its seconds, and the largest memory of the process up to its end."""

    name: str
    seconds: float
    peak_gb: float


@dataclass
class Stages:
    """Call it with a name around each stage; what is done is in ``done``."""

    progress: Progress | None = None
    done: list[Stage] = field(default_factory=list)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Tell the name, run the stage, and keep what it took."""
        if self.progress is not None:
            self.progress(name)
        started = time.perf_counter()
        yield
        self.done.append(Stage(name, time.perf_counter() - started, _peak_gb()))


def _peak_gb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)  # bytes on a Mac, kilobytes elsewhere
