"""Tables on disk with the columns of MIMIC: csv.gz or Parquet, batch by batch, the same bytes for the same rows."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import BinaryIO, Literal

import polars as pl

FileType = Literal["csv.gz", "parquet"]
Layout = Literal["mimic3", "mimic4"]

_ROW_GROUP = 250_000  # fixed, so that the bytes do not depend on the number of threads
_TYPES: dict[str, pl.DataType] = {
    "row": pl.Int64(),
    "int": pl.Int64(),
    "float": pl.Float64(),
    "text": pl.String(),
    "time": pl.Datetime("us"),
    "date": pl.Date(),
}


def read_data(name: str) -> pl.DataFrame:
    """One of the data files beside this module."""
    return pl.read_csv(Path(__file__).with_name(name))


@dataclass(frozen=True)
class Schema:
    """A table of a database: where it lies, its columns in order with their types, and which one counts rows."""

    file: str
    columns: dict[str, pl.DataType]
    counter: str | None

    def conform(self, frame: pl.DataFrame, *, first: int) -> pl.DataFrame:
        """These columns, in this order: what the frame lacks is empty, what the table does not have is left out."""
        numbers = pl.int_range(first, first + pl.len(), dtype=pl.Int64)
        return frame.select(
            (
                numbers
                if name == self.counter
                else pl.col(name).cast(dtype)
                if name in frame.columns
                else pl.lit(None, dtype=dtype)
            ).alias(name)
            for name, dtype in self.columns.items()
        )


@cache
def schemas(layout: Layout) -> dict[str, Schema]:
    """Tables of a database by name, from ``schema.csv``.

    MIMIC-III as in its demo, version 1.4; MIMIC-IV as in version 2.2.
    """
    found = {}
    for row in read_data("schema.csv").filter(layout=layout).iter_rows(named=True):
        pairs = [pair.split(":") for pair in row["columns"].split()]
        counter = next((name for name, kind in pairs if kind == "row"), None)
        found[row["table"]] = Schema(row["file"], {name: _TYPES[kind] for name, kind in pairs}, counter)
    return found


@dataclass
class Writer:
    """Appends frames to the tables of one database and counts their rows.

    Text goes straight into a compressed stream without a time stamp. Parquet cannot grow, so every frame
    becomes a part, and :func:`writing` joins the parts in the end without holding them in memory.
    """

    folder: Path
    layout: Layout
    file_type: FileType
    rows: dict[str, int] = field(default_factory=dict)
    _streams: dict[str, BinaryIO] = field(default_factory=dict)
    _parts: dict[str, int] = field(default_factory=dict)

    def add(self, table: str, frame: pl.DataFrame) -> None:
        """Append rows, with the columns of the table and their types."""
        schema = schemas(self.layout)[table]
        self._append(table, schema.conform(frame, first=self.rows.get(table, 0) + 1))

    def add_text(self, table: str, frame: pl.DataFrame) -> None:
        """Append rows as they are written, whatever their type: for what no clean table holds."""
        if self.file_type != "csv.gz":
            raise ValueError("text can stand in place of a number in csv.gz only: Parquet keeps the types.")
        if frame.columns != list(schemas(self.layout)[table].columns):
            raise ValueError(
                f"the text of {table} must have its columns in their order, got {frame.columns}."
            )
        self._append(table, frame)

    def _append(self, table: str, frame: pl.DataFrame) -> None:
        if self.file_type == "parquet":
            part = self._parts_of(table) / f"{self._parts.get(table, 0):06d}.parquet"
            part.parent.mkdir(parents=True, exist_ok=True)
            frame.write_parquet(part)
            self._parts[table] = self._parts.get(table, 0) + 1
        else:
            frame.write_csv(
                self._stream(table),
                include_header=table not in self.rows,
                datetime_format="%Y-%m-%d %H:%M:%S",
            )
        self.rows[table] = self.rows.get(table, 0) + frame.height

    def _file(self, table: str) -> Path:
        path = self.folder / f"{schemas(self.layout)[table].file}.{self.file_type}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _parts_of(self, table: str) -> Path:
        return self.folder / f".parts-{table}"

    def _stream(self, table: str) -> BinaryIO:
        if table not in self._streams:
            # No name and no time in the header of the file: the same rows are the same bytes.
            packed = gzip.GzipFile("", "wb", compresslevel=4, fileobj=self._file(table).open("wb"), mtime=0)
            self._streams[table] = packed  # type: ignore[assignment]
        return self._streams[table]

    def close(self) -> None:
        """Finish every file."""
        for stream in self._streams.values():
            raw: BinaryIO = stream.fileobj  # type: ignore[attr-defined]
            stream.close()
            raw.close()
        for table, count in self._parts.items():
            parts = [self._parts_of(table) / f"{i:06d}.parquet" for i in range(count)]
            pl.scan_parquet(parts, glob=False).sink_parquet(
                self._file(table),
                maintain_order=True,
                row_group_size=_ROW_GROUP,
            )
            shutil.rmtree(self._parts_of(table))


@contextmanager
def writing(folder: Path, layout: Layout, file_type: FileType) -> Iterator[Writer]:
    """Open the tables of a database, every one of them, and finish them in the end."""
    if file_type not in ("csv.gz", "parquet"):
        raise ValueError(f"file_type must be 'csv.gz' or 'parquet', got {file_type!r}.")
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(folder, layout, file_type)
    try:
        for table, schema in schemas(layout).items():  # a table without rows has a header at least
            writer.add(table, pl.DataFrame(schema=schema.columns))
        yield writer
    finally:
        writer.close()
