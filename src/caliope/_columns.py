"""Columns over the steps of a log: in memory, and of a long log in temporary files, worked on a stretch at a time.

What is mapped from a file can leave memory whenever the system needs room, and comes back from the file.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from math import prod
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._ragged import STRETCH, Bool, Float

LONG = 1_000_000  # steps from which a column lies in a file, and is worked on a stretch at a time
_FLOAT = 8  # bytes


def is_long(n_steps: int) -> bool:
    """Whether columns of so many steps are worked on a stretch at a time."""
    return n_steps >= LONG


def empty_column(n_steps: int, *width: int) -> Float:
    """A column to be filled, (n_steps,) or (n_steps, width): of a long log in a temporary file.

    The file has no name and goes with the column, however the process ends. Where the folder of temporary files
    (``TMPDIR``) has no room the column is in memory.

    Examples
    --------
    >>> empty_column(3, 2).shape
    (3, 2)
    """
    shape = (n_steps, *width)
    if not is_long(n_steps):
        return np.empty(shape)
    size = _FLOAT * prod(shape)
    try:
        with TemporaryFile(prefix="caliope-") as file:
            _reserve(file.fileno(), size)
            mapped = mmap.mmap(file.fileno(), size)
    except OSError:
        return np.empty(shape)
    return np.frombuffer(mapped, dtype=np.float64).reshape(shape)


def _reserve(file: int, size: int) -> None:
    """Make room for a file, or raise: writing into one that finds none later would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:  # not on every system
        os.ftruncate(file, size)


def holds_everywhere(test: Callable[[Float], Bool], column: Float) -> bool:
    """Whether all entries of a column pass a test, a stretch at a time.

    Examples
    --------
    >>> holds_everywhere(np.isfinite, np.array([1.0, np.nan]))
    False
    """
    for start in range(0, len(column), STRETCH):
        part = column[start : start + STRETCH]
        if not test(part).all():
            return False
        let_go(part)
    return True


def let_go(column: NDArray[Any]) -> None:
    """Let a column, or a stretch of it, leave memory where it lies in a file; its entries stay.

    Examples
    --------
    >>> column = empty_column(3)
    >>> column[:] = 1.0
    >>> let_go(column)
    >>> column.tolist()
    [1.0, 1.0, 1.0]
    """
    whole: Any = column
    while isinstance(whole, np.ndarray):
        whole = whole.base
    mapped = whole.obj if isinstance(whole, memoryview) else None
    if not isinstance(mapped, mmap.mmap) or not column.size or not hasattr(mmap, "MADV_DONTNEED"):
        return
    at = column.ctypes.data - np.frombuffer(mapped, dtype=np.uint8).ctypes.data
    start = at // mmap.PAGESIZE * mmap.PAGESIZE
    mapped.madvise(mmap.MADV_DONTNEED, start, at + column.nbytes - start)
