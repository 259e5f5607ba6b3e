"""How a CSV file is written: packing, encoding, separator, and the mark in its numbers."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import IO, Any

from caliope.io._encoder import GAPS

_LOOKED_AT = 1000  # lines from which separator and decimal mark are found
_START = 1 << 20  # bytes whose encoding is checked at once
_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_COMMA, _POINT = re.compile(r"^\s*[+-]?\d+,\d+\s*$"), re.compile(r"^\s*[+-]?\d+\.\d+\s*$")


@dataclass(frozen=True)
class Dialect:
    """The header of a CSV file as written, its separator, and whether numbers have decimal commas."""

    names: tuple[str, ...]
    separator: str = ","
    decimal_comma: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What polars must be told."""
        found: dict[str, Any] = {"glob": False, "null_values": [word for word in GAPS if word]}
        if self.separator != ",":
            found |= {"separator": self.separator, "decimal_comma": self.decimal_comma}
        return found

    @property
    def note(self) -> str:
        """What was found, in words; empty for commas."""
        if self.separator == ",":
            return ""
        return (
            f"columns separated by {_MARKS[self.separator]}"
            + ", numbers with decimal commas" * self.decimal_comma
        )


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes] | gzip.GzipFile]:
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if not packed:
            yield plain
            return
        try:
            with gzip.open(plain) as file:
                yield file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is packed by gzip, but damaged or cut off ({error}). Copy or pack it again."
            ) from None


def refuse_encoding(path: Path, *, most: int | None = None) -> None:
    """Raise where the first ``most`` bytes, by default all, are not UTF-8; say which line, and what to do."""
    decoder, line, seen = getincrementaldecoder("utf-8")(), 1, 0
    with _opened(path) as file:
        while (most is None or seen < most) and (chunk := file.read(_START)):
            if not seen and (b"\x00" in chunk[:1000] or chunk[:2] in (b"\xff\xfe", b"\xfe\xff")):
                raise ValueError(
                    f"{path} must be UTF-8 text, but looks like UTF-16 (what Excel calls Unicode text) from its "
                    "first bytes on. Save it again as 'CSV UTF-8'."
                )
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError as error:
                at = max(0, error.start - 12)
                shown = error.object[at : error.end + 8].split(b"\n")
                before = error.object[: error.start]
                near = (shown[before[at:].count(b"\n")]).decode("cp1252", errors="replace").strip()
                raise ValueError(
                    f"{path} must be UTF-8 text, but line {line + before.count(10)} is not (near {near!r}): it looks "
                    "like Latin-1 or Windows-1252. Save it again as 'CSV UTF-8', or convert it with iconv -f "
                    "WINDOWS-1252 -t UTF-8."
                ) from None
            line, seen = line + chunk.count(b"\n"), seen + len(chunk)


def _cells(path: Path, separator: str) -> list[list[str]]:
    with (
        _opened(path) as file,
        TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as lines,
    ):
        found = []
        try:
            for cells in islice(csv.reader(lines, delimiter=separator), _LOOKED_AT):
                found += [cells] if cells else []
        except csv.Error as error:
            if not found:
                raise ValueError(f"{path}: the first line must name the columns, but {error}.") from None
        return found


def read_dialect(path: Path) -> Dialect:
    """Find how a CSV file is written; the header stays as written, though polars would rename."""
    refuse_encoding(path, most=_START)
    if path.name.lower().endswith((".tsv", ".tsv.gz")):
        return _with_numbers(path, "\t", _cells(path, "\t"))
    by_mark = {mark: _cells(path, mark) for mark in _MARKS}
    if not by_mark[","]:
        raise ValueError(f"{path} has no rows and no header. Leave it out, or write it again.")
    widths = {mark: len(rows[0]) for mark, rows in by_mark.items() if rows}
    # A separator gives every line as many cells as there are names; of several such, the one with most.
    fitting = [m for m, w in widths.items() if w > 1 and all(len(row) == w for row in by_mark[m])]
    if not fitting and widths[","] == 1:
        fitting = [m for m, w in widths.items() if w > 1]
    mark = max(fitting, key=widths.__getitem__) if fitting else ","
    return _with_numbers(path, mark, by_mark[mark])


def _with_numbers(path: Path, mark: str, rows: list[list[str]]) -> Dialect:
    if not rows:
        raise ValueError(f"{path} has no rows and no header. Leave it out, or write it again.")
    names = tuple(rows[0])
    if mark == ",":
        return Dialect(names)
    commas, points = (
        next((cell for row in rows[1:] for cell in row if form.match(cell)), None)
        for form in (_COMMA, _POINT)
    )
    if commas and points:
        raise ValueError(
            f"{path} writes numbers both as {commas.strip()!r} and as {points.strip()!r}: with separator {mark!r} "
            "either may be a decimal mark. Write all of them with points, or all with commas."
        )
    return Dialect(names, mark, commas is not None)
