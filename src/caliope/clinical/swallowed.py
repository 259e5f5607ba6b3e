"""Lines of a csv file that never became rows, because a stray quote took them for text."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from caliope.clinical.csv_files import CSV_OPTIONS, quoted, text_columns

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BLOCK = 16 * 2**20  # bytes looked at together
_BLANK = (b"", b"\r")


def count_swallowed(connection: DuckDBPyConnection, path: Path, names: tuple[str, ...]) -> int:
    """Count the lines below the header that are neither a row, nor a line that was refused, nor blank.

    A quote that is never closed, or closed many lines later, makes text of all lines in between. A file without any
    quote cannot hide a line; one with quotes is read once more to be counted.
    """
    lines, quotes = _lines_below_header(path)
    if not quotes:
        return 0
    rejects = "rejects_scan = 'counted_scans', rejects_table = 'counted_errors'"
    rows = connection.execute(
        f"SELECT count(*) FROM read_csv({quoted(str(path))}, {text_columns(names)}, header = true, {CSV_OPTIONS}, "
        f"{rejects})"
    ).fetchall()[0][0]
    refused = connection.execute("SELECT count(DISTINCT line) FROM counted_errors").fetchall()[0][0]
    connection.execute("DROP TABLE counted_errors")
    connection.execute("DROP TABLE counted_scans")
    return max(0, lines - int(rows) - int(refused))


def _lines_below_header(path: Path) -> tuple[int, bool]:
    """How many lines follow the first one, blank ones left out, and whether any of them has a quote."""
    compressed = path.name.lower().endswith(".gz")
    with cast("BinaryIO", gzip.open(path) if compressed else path.open("rb")) as file:
        file.readline()
        lines, quotes, rest = 0, False, b""
        while block := file.read(_BLOCK):
            quotes = quotes or b'"' in block
            *whole, rest = (rest + block).split(b"\n")
            lines += len(whole) - sum(whole.count(blank) for blank in _BLANK)
        return lines + (rest not in _BLANK), quotes
