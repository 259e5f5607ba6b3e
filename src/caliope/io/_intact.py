"""Files that must stay as they are while they are read, and that the reader must survive."""

from __future__ import annotations

from collections.abc import Callable
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
