"""CSV files: header, types of the columns, and the meaning of ids and times."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO

import polars as pl

from caliope.io._columns import Roles, refuse_duplicates

# Rows from which the type of a column is inferred.
_CSV_ROWS = 100_000
_ISO = (
    r"^(?<day>\d{4}-\d{2}-\d{2})(?:[T ](?<minute>\d{2}:\d{2})(?::(?<second>\d{2}(?:\.\d+)?))?"
    r" ?(?<zone>Z|[+-]\d{2}:?\d{2})?)?$"
)


def _names(path: Path) -> list[str]:
    """Return the names in the header as written: polars would rename the second of two equal ones."""
    with path.open("rb") as plain:
        packed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        if not packed:
            return _first_line(plain, path)
        try:
            with gzip.open(plain) as file:
                return _first_line(file, path)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(
                f"{path} is packed by gzip, but damaged or cut off ({error}). Copy or pack it again."
            ) from None


def _first_line(file: IO[bytes] | gzip.GzipFile, path: Path) -> list[str]:
    start = file.read(1000)
    if b"\x00" in start or start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(
            f"{path} must be UTF-8 text, but looks like UTF-16 (what Excel calls Unicode text) from its "
            "first bytes on. Save it again as 'CSV UTF-8'."
        )
    file.seek(0)
    with TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as lines:
        try:
            return next((names for names in csv.reader(lines) if names), [])
        except csv.Error as error:
            raise ValueError(f"{path}: the first line must name the columns, but {error}.") from None


def _read_header(path: Path) -> list[str]:
    names = _names(path)
    if not names:
        raise ValueError(f"{path} has no rows and no header. Leave it out, or write it again.")
    other = next((mark for mark in (";", "\t", "|") if mark in names[0]), None)
    if len(names) == 1 and other:
        raise ValueError(
            f"{path} must separate its columns by commas, but has {other!r} in its first line: {names[0][:80]!r}. "
            f"Write it with commas (and points in numbers), or read it by polars.scan_csv(..., "
            f"separator={other!r}) and give read_table the frame."
        )
    return names


@dataclass(frozen=True)
class CsvFile:
    """A CSV file, and the types with which its columns are read."""

    path: Path
    types: Mapping[str, pl.DataType]
    wanted: tuple[str, ...]

    def scan(self) -> pl.LazyFrame:
        """Return the query."""
        return pl.scan_csv(self.path, glob=False, schema=dict(self.types))

    def scan_whole(self) -> pl.LazyFrame:
        """Return a query of every column; those without a role are read as text.

        Only then does polars report a row with a cell too many, which may be shifted.
        """
        kinds = {name: kind if name in self.wanted else pl.String() for name, kind in self.types.items()}
        return pl.scan_csv(self.path, glob=False, schema=kinds)

    def refuse_text(self) -> None:
        """Raise if a cell does not fit the type of its column, and say where."""
        text = pl.scan_csv(self.path, glob=False, schema=dict.fromkeys(self.types, pl.String()))
        for name in self.wanted:
            dtype = self.types.get(name, pl.String())
            if not dtype.is_numeric():
                continue
            value = pl.col("value")
            odd = (value != "") & value.cast(dtype, strict=False).is_null()
            found = text.select(value=pl.col(name), row=pl.int_range(1, pl.len() + 1)).filter(odd).collect()
            if found.height:
                kind = "whole numbers" if dtype.is_integer() else "numbers"
                raise ValueError(
                    f"{self.path}: column {name!r} must hold {kind}, but {found.height} rows do not "
                    f"(first: {found['value'][0]!r} in row {found['row'][0]} below the header). Code words as "
                    "numbers, write 1.5 and not 1,5, and fill in what is missing: NA or NULL is text."
                )


def infer_types(path: Path) -> dict[str, pl.DataType]:
    """Check the header, and infer the types of all columns from their first rows."""
    _read_header(path)
    guessed = pl.scan_csv(path, glob=False, infer_schema_length=_CSV_ROWS, try_parse_dates=False)
    types = dict(guessed.collect_schema())
    if set(types.values()) == {pl.String()} and guessed.head(1).collect().is_empty():
        raise ValueError(f"{path} has no rows below its header. Leave it out, or write it again.")
    return types


def open_csv(path: Path, roles: Roles) -> CsvFile:
    """Check the header, and find the types of the columns by what they are used for."""
    refuse_duplicates(roles, _read_header(path), f"the header of {path}")
    types = infer_types(path)
    # A column that is whole for 100,000 rows may have a fraction in the next. Where the numbers become
    # floats in the end they are read as floats at once; knowing the types also saves guessing on each pass.
    suspects = [name for name in roles.measures if types.get(name) == pl.String()]
    for name in types:
        if name in suspects or (name in roles.floats and types[name].is_integer()):
            types[name] = pl.Float64()
    types |= {roles.episode: pl.String()} if roles.episode in types else {}  # as numbers, 01 would be 1
    if suspects:
        CsvFile(path, types, tuple(suspects)).refuse_text()
    return CsvFile(path, types, roles.names)


def _whole_ids(ids: pl.Series) -> pl.Expr | None:
    """Read ids as whole numbers if all are written like 7, and none like 07 or 7.0."""
    filled = ids.filter(ids != "")
    back = filled.cast(pl.Int64, strict=False).cast(pl.String)
    return pl.col(ids.name).cast(pl.Int64, strict=False) if (back == filled).fill_null(False).all() else None


def _moments(text: pl.Expr, *, zoned: bool) -> pl.Expr:
    part = text.str.extract_groups(_ISO).struct
    clock = pl.concat_str(
        part.field("day"),
        pl.lit("T"),
        part.field("minute").fill_null("00:00"),
        pl.lit(":"),
        part.field("second").fill_null("00"),
        part.field("zone").str.replace("Z", "+00:00", literal=True) if zoned else pl.lit(""),
    )
    kind = pl.Datetime("us", "UTC") if zoned else pl.Datetime("us")
    return clock.str.strptime(kind, "%Y-%m-%dT%H:%M:%S%.f" + "%z" * zoned, strict=False)


def _times(keys: pl.DataFrame, roles: Roles, name: str) -> pl.Expr:
    filled = keys.filter(pl.col(name) != "")
    for number in (pl.Int64(), pl.Float64()):
        if filled[name].cast(number, strict=False).null_count() == 0:  # numbers in quotation marks
            return pl.col(name).cast(number, strict=False)
    numbers = filled[name].cast(pl.Float64, strict=False)
    if numbers.count() > numbers.null_count():
        odd = filled.filter(numbers.is_null())
        raise ValueError(
            f"column {name!r} must hold numbers, or ISO dates throughout, but {odd.height} of {keys.height} rows hold "
            f"no number (first: {odd[name][0]!r} in episode {odd[roles.episode][0]}). Correct them."
        )
    zoned = filled[name].str.contains(r":.*(?:Z|[+-]\d{2}:?\d{2})$").any()
    moments = _moments(pl.col(name), zoned=zoned)
    odd = filled.filter(moments.is_null() | (zoned & ~pl.col(name).str.contains(r":.*[Z+-]")))
    if odd.height:
        zones = " Give all of them a time zone, or none." if zoned else ""
        raise ValueError(
            f"column {name!r} must hold numbers or ISO dates, but {odd.height} of {keys.height} rows do not "
            f"(first: {odd[name][0]!r} in episode {odd[roles.episode][0]}). In other forms day and month cannot be "
            "told apart: write 2020-03-01 or 2020-03-01 14:30:00, or give read_table a frame with real "
            f"datetimes.{zones}"
        )
    return moments


def interpret(keys: pl.DataFrame, roles: Roles) -> dict[str, pl.Expr]:
    """Return expressions that turn the text of ids and times into numbers and datetimes, by column."""
    ids = pl.col(roles.episode)
    whole = _whole_ids(keys[roles.episode])
    found = {roles.episode: pl.when(ids != "").then(ids) if whole is None else whole}
    for name in (roles.time, roles.calendar):
        if name is not None and keys.schema[name] == pl.String():
            found[name] = _times(keys, roles, name)
    return {name: meaning.alias(name) for name, meaning in found.items()}
