"""Which stage of an audit runs: one line that is overwritten, in a terminal and in a notebook."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from caliope._audit._settings import Progress

_WIDTH = 79  # columns of the line


@contextmanager
def show_stages(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """Give what to call with the name of each stage: what was given, or a line of our own.

    None shows that line in a terminal and in a notebook, and nothing in a pipe, a script without a terminal or a test.
    True shows it anywhere, False nowhere.
    """
    if callable(progress):
        yield progress
        return
    if not (progress is None or isinstance(progress, bool)):
        raise TypeError(f"progress must be True, False, None or a function of a name, got {progress!r}.")
    if progress is False or (progress is None and not _somebody_looks()):
        yield None
        return
    line = StageLine(sys.stderr)
    try:
        yield line
    finally:
        line.clear()


class StageLine:
    """A line that names the stage under way, with its number and the time since the first one."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.started, self.begun = stream, time.monotonic(), 0

    def __call__(self, name: str) -> None:
        """Begin a stage; the one before it is done."""
        self.begun += 1
        self._write(f"{time.monotonic() - self.started:6.1f} s  {self.begun:>3}  {name} ...")

    def clear(self) -> None:
        """Leave an empty line."""
        self._write("")
        self.stream.write("\r")
        self.stream.flush()

    def _write(self, text: str) -> None:
        self.stream.write(f"\r{text[:_WIDTH]:<{_WIDTH}}")
        self.stream.flush()


def _somebody_looks() -> bool:
    """Whether there is a terminal or a notebook, and no test."""
    if "PYTEST_CURRENT_TEST" in os.environ:
        return False
    return in_notebook() or bool(getattr(sys.stderr, "isatty", lambda: False)())


def in_notebook() -> bool:
    """Whether this runs in the kernel of a notebook; IPython is never imported for it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
