"""A table from the standard input: kept in a file of its own, because tables are read twice."""

from __future__ import annotations

import atexit
import sys
from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile

STDIN = "-"


def spool() -> Path:
    """Copy the standard input, CSV or Parquet, to a file that is removed when the process ends."""
    start = sys.stdin.buffer.read(4)
    if not start:
        raise ValueError("the standard input is empty: pipe a table into it, or name a file instead of '-'.")
    suffix = ".parquet" if start == b"PAR1" else ".csv"
    with NamedTemporaryFile(suffix=suffix, prefix="caliope-", delete=False) as file:
        atexit.register(Path(file.name).unlink, missing_ok=True)
        file.write(start)
        copyfileobj(sys.stdin.buffer, file)
    return Path(file.name)
