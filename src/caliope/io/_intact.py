"""Files that must stay as they are while they are read, and that the reader must survive."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path


def watch(path: Path) -> Callable[[], None]:
    """What raises, called later, if the file has been written to in between."""
    before = stamp(path)

    def check() -> None:
        if stamp(path) != before:
            raise ValueError(
                f"{path} changed while it was read, so that its rows may be of two versions. Let it be written to its "
                "end, or read a copy."
            )

    return check


def stamp(path: Path) -> tuple[int, int] | None:
    """Size and time of the last change; None where the file is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


# Reads what it is told, line by line, and answers each line; what is only wrong is for others to say.
_READER = """
import json, signal, sys
sys.path[:] = json.loads(sys.argv[1])
import polars as pl
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(flush=True)
for line in sys.stdin:
    path, columns, rows = json.loads(line)
    try:
        query = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        types = query.collect_schema()
        query = query.select(types if columns is None else [name for name in types if name in columns])
        for _ in (query if rows is None else query.head(rows)).collect_batches(lazy=True) if columns != [] else ():
            pass
    except BaseException:
        pass
    print(flush=True)
"""
# Bytes of a file whose reading leaves a process behind that holds memory.
_LARGE = 1 << 24
_lock = threading.Lock()
# By the process that started it: after a fork two must not speak to the same one. None where none could be started.
_readers: dict[int, subprocess.Popen[str] | None] = {}


def try_reading(path: Path, columns: Sequence[str] | None = (), rows: int | None = None) -> None:
    """Let another process read a Parquet file first: some damaged files end the process that reads them.

    Parameters
    ----------
    path : Path
        The file.
    columns : sequence of str, optional
        Columns to read; by default the types alone. None reads all.
    rows : int, optional
        How many rows, by default all.

    Raises
    ------
    ValueError
        If the other process was ended by it. What is wrong in any other way is left to the reader itself.
    """
    asked = json.dumps([str(path.absolute()), columns if columns is None else list(columns), rows])
    with _lock:
        reader = _reader()
        if reader is None:
            return
        answered = _answers(reader, asked)
        if not answered or ((size := stamp(path)) is not None and size[0] > _LARGE):
            _end(_readers.pop(os.getpid()))
    if not answered:
        raise ValueError(
            f"{path} could not be read: it ended the process that read it ({_name(reader.returncode)}). The file is "
            "damaged: write it again, or copy it again."
        )


def _reader() -> subprocess.Popen[str] | None:
    """The process that reads for this one, made when it is first needed."""
    here = os.getpid()
    if here in _readers and ((found := _readers[here]) is None or found.poll() is None):
        return found
    _end(_readers.pop(here, None))  # it ended in between
    _readers[here] = None
    # The program of a bundled application is no Python.
    if sys.executable and not getattr(sys, "frozen", False):
        command = [sys.executable, "-c", _READER, json.dumps(sys.path)]
        pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
        with suppress(OSError):
            made = subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=nowhere)
            if made.stdout is not None and made.stdout.readline():
                _readers[here] = made
            else:  # it has no polars
                _end(made)
    return _readers[here]


def _answers(reader: subprocess.Popen[str], asked: str) -> bool:
    """Whether the other process is still there when it has read."""
    if reader.stdin is None or reader.stdout is None:
        return False
    try:
        reader.stdin.write(asked + "\n")
        reader.stdin.flush()
        return bool(reader.stdout.readline())
    except OSError:
        return False
    except BaseException:  # interrupted: its answer would be taken for that to the next question
        reader.kill()
        raise


def _end(reader: subprocess.Popen[str] | None) -> None:
    """Close its input, after which it ends."""
    if reader is not None:
        with suppress(OSError), reader:
            pass


@atexit.register
def _end_own() -> None:
    _end(_readers.pop(os.getpid(), None))


def _name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"exit code {code}"
