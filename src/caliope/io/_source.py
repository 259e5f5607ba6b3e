"""Tables in files or in memory, read in batches."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import narwhals as nw
import numpy as np
import polars as pl
from numpy.typing import NDArray

from caliope._ragged import Float
from caliope.io._columns import WIDE, Roles, Types, types_elsewhere
from caliope.io._csv import interpret, open_csv, scan_all
from caliope.io._frames import as_eager, join, name_shared
from caliope.io._intact import try_reading, watch
from caliope.io._stdin import STDIN, spool

_IN_WORDS = {
    "found more fields than defined in 'Schema'": "a row has more cells than the header has names. Is there a comma "
    "inside a number or a text, or a line above the header?",
    "invalid utf-8 sequence": "it is no UTF-8 text; save it again as 'CSV UTF-8'",
}
# Rows in memory besides the result: enough to be fast, few enough to need little memory.
_BATCH_ROWS = 1 << 16

Frame = nw.DataFrame[Any]


class Source(Protocol):
    """A table that can be read twice, in the same order."""

    @property
    def columns(self) -> Types:
        """Columns that the whole table has, each with its type (or types: files may differ)."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found out about the files and should be said."""

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        """Return the key columns at once, and an iterator over batches of rows in the same order."""


@dataclass(frozen=True)
class _InMemory:
    frame: Frame
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> Types:
        return {name: (dtype,) for name, dtype in self.frame.schema.items()}

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        # Rows first, then columns: pandas shares memory with a slice, but copies a choice of columns.
        starts = range(0, len(self.frame), _BATCH_ROWS)
        batches = (self.frame[start : start + _BATCH_ROWS].select(list(columns)) for start in starts)
        return self.frame.select(list(keys)), batches


@contextmanager
def _reading(label: str, *explain: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, nw.exceptions.NarwhalsError, pl.exceptions.PanicException) as error:
        for clearer in explain:
            # A panic of polars is no Exception.
            with suppress(pl.exceptions.PolarsError, pl.exceptions.PanicException):
                clearer()
        # The other lines name options that read_table does not have.
        what = str(error).split("\n", 1)[0]
        what = _IN_WORDS.get(what, what)
        raise ValueError(
            f"{label} could not be read: {what.rstrip('.')}{'' if what.endswith('?') else '.'} Correct the file; in "
            "Python, a frame that was read with options of your own does as well."
        ) from error


@dataclass
class _Fingerprint:
    """Hash of keys and their order, to compare two readings without keeping them."""

    rows: int = 0
    value: int = 0

    def add(self, keys: pl.DataFrame) -> None:
        position = np.arange(self.rows, self.rows + keys.height, dtype=np.uint64)
        self.value += int((keys.hash_rows().to_numpy() * (2 * position + 1)).sum(dtype=np.uint64))
        self.value %= 2**64
        self.rows += keys.height


@dataclass(frozen=True)
class _Part:
    """A polars query: one file, or a lazy frame."""

    label: str
    query: pl.LazyFrame
    # Raises a clearer error than polars, if it can.
    explain: Callable[[], None] = lambda: None
    # Reads every column, where reading some would hide a fault.
    whole: pl.LazyFrame | None = None
    # What was found out about the file and should be said.
    note: str = ""
    # Raise if the file was written to since it was opened, and if reading these columns would end this process.
    unchanged: Callable[[], None] = lambda: None
    survives: Callable[[Sequence[str]], None] = lambda _: None

    @cached_property
    def types(self) -> nw.Schema:
        """Columns and their types."""
        with _reading(self.label):
            return nw.from_native(self.query).collect_schema()

    def keys(self, names: Sequence[str]) -> tuple[pl.DataFrame, _Fingerprint]:
        query = self.query.select(names)
        if self.whole is not None:
            # Asks for all columns.
            empty = pl.any_horizontal(pl.all().is_null()).alias(f"some of {names} is empty")
            query = self.whole.select(*names, empty)
        with _reading(self.label, self.explain, self.unchanged):
            found = query.collect(engine="streaming").select(names)
        fingerprint = _Fingerprint()
        fingerprint.add(found)
        return found, fingerprint

    def batches(
        self, keys: Sequence[str], columns: Sequence[str], *, expected: _Fingerprint
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows; raise if their keys differ from those of the first reading."""
        found = _Fingerprint()
        # In the table's own order: a query that also reorders columns runs a gigabyte ahead of its reader.
        query = self.query.select([name for name in self.types if name in {*keys, *columns}])
        with _reading(self.label, self.explain, self.unchanged):
            for batch in query.collect_batches(chunk_size=_BATCH_ROWS, lazy=True):
                found.add(batch.select(keys))
                if found.rows > expected.rows:
                    break
                yield batch
        self.unchanged()
        if found != expected:
            raise ValueError(
                f"{self.label} gave other rows, or another order of rows, when it was read a second time. "
                "End a lazy query with a sort, or collect() it first; let a file be written to its end."
            )


def _common(types: Sequence[nw.Schema]) -> Types:
    """Columns that all files have, each with its types."""
    everywhere = [name for name in types[0] if all(name in other for other in types)]
    return {name: tuple(dict.fromkeys(other[name] for other in types)) for name in everywhere}


@dataclass(frozen=True)
class _Scanned:
    """Parts that are read one after the other."""

    parts: tuple[_Part, ...]
    interpret: Callable[[pl.DataFrame], Mapping[str, pl.Expr]] = lambda _: {}  # what text in the keys means
    episode: str | None = None
    said: list[str] = field(default_factory=list)  # while reading

    @property
    def columns(self) -> Types:
        return _common([part.types for part in self.parts])

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*(part.note for part in self.parts if part.note), *self.said]))

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        for part in self.parts:
            part.survives([*keys, *columns])
        frames, fingerprints = zip(*(part.keys(keys) for part in self.parts), strict=True)
        with _reading(", ".join(part.label for part in self.parts)):
            together = join(frames)
        self.said.extend(filter(None, [name_shared(frames, self.episode)]))
        meant = self.interpret(together)
        kept = [expression for name, expression in meant.items() if name in columns]
        batches = (
            nw.from_native(batch.with_columns(kept), eager_only=True)
            for part, fingerprint in zip(self.parts, fingerprints, strict=True)
            for batch in part.batches(keys, columns, expected=fingerprint)
        )
        return nw.from_native(together.with_columns(meant.values()), eager_only=True), batches


def _scan_parquet(path: Path, _: Roles) -> _Part:
    try_reading(path)
    found = pl.scan_parquet(path, glob=False, hive_partitioning=False)
    return _Part(str(path), found, survives=partial(try_reading, path))


def _scan_csv(path: Path, roles: Roles) -> _Part:
    file = open_csv(path, roles)
    return _Part(str(path), file.scan(), file.refuse_text, file.scan_whole(), file.note)


def _read_excel(path: Path) -> pl.DataFrame:
    try:
        return pl.read_excel(path, engine="calamine")
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"reading {path} needs fastexcel: pip install 'caliope[excel]', or save the sheet as 'CSV UTF-8'.",
            name="fastexcel",
        ) from None


def _scan_excel(path: Path, _: Roles) -> _Part:
    return _Part(str(path), _read_excel(path).lazy(), note="the first sheet of the workbook")


_READERS: Mapping[str, Callable[[Path, Roles], _Part]] = {
    ".parquet": _scan_parquet,
    ".pq": _scan_parquet,
    ".csv": _scan_csv,
    ".csv.gz": _scan_csv,
    ".tsv": _scan_csv,
    ".tsv.gz": _scan_csv,
    ".xlsx": _scan_excel,
    ".xls": _scan_excel,
}


def _files_in(folder: Path) -> list[Path]:
    """The Parquet files of a folder; without any, its CSV files."""
    for endings in ((".parquet", ".pq"), (".csv", ".csv.gz"), (".tsv", ".tsv.gz")):
        found = sorted(path for path in folder.iterdir() if path.name.lower().endswith(endings))
        if found:
            return found
    raise ValueError(
        f"{folder} is a directory without Parquet or CSV files: name the files, e.g. '{folder}/**/*.parquet' for those "
        "in its folders."
    )


def _find(pattern: str | os.PathLike[str]) -> list[Path]:
    if not os.fspath(pattern):
        raise ValueError("the path must name a file, but is empty.")
    path = Path(os.path.expanduser(pattern))  # noqa: PTH111 (Path.expanduser fails on a file called ~x.csv)
    if path.is_dir():
        return _files_in(path)
    if path.exists():  # asked before globbing: a file may have brackets in its name
        return [path]
    names = glob.glob(str(path), recursive=True)  # noqa: PTH207 (Path.glob refuses absolute patterns)
    found = sorted(name for name in map(Path, names) if name.is_file())
    if not found:
        raise FileNotFoundError(f"no file matches {str(pattern)!r} (looked from {Path.cwd()}).")
    return found


def _refuse_lacking(parts: Sequence[_Part], roles: Roles) -> None:
    """Raise if some files have a column and others do not; a column that no file has is reported later."""
    for name in roles.names:
        lacking = [part.label for part in parts if name not in part.types]
        if 0 < len(lacking) < len(parts):
            raise ValueError(
                f"column {name!r} must be in every file, but {len(lacking)} of {len(parts)} files lack it "
                f"(first: {lacking[0]}). Add it there, or leave the file out."
            )


def _reader_of(paths: Sequence[Path]) -> Callable[[Path, Roles], _Part]:
    """What reads these files, which must be of one kind."""
    suffixes = [next((s for s in _READERS if path.name.lower().endswith(s)), None) for path in paths]
    if None in suffixes:
        odd = paths[suffixes.index(None)]
        raise ValueError(
            f"{odd}: unknown kind of file. Save the table as CSV or Parquet; files ending in {', '.join(_READERS)} are "
            "read."
        )
    readers = [_READERS[suffix] for suffix in suffixes if suffix]
    if len(set(readers)) > 1:
        other = next(path for path, reader in zip(paths, readers, strict=True) if reader is not readers[0])
        raise ValueError(
            f"the files are of different kinds (first: {paths[0]} and {other}); "
            "files of one table must be of one kind."
        )
    return readers[0]


def _scan(paths: Sequence[Path], roles: Roles) -> _Scanned:
    reader, parts = _reader_of(paths), []
    for path in paths:
        with _reading(str(path)):
            unchanged = watch(path)
            parts.append(replace(reader(path, roles), unchanged=unchanged))
    _refuse_lacking(parts, roles)
    if reader is _scan_csv:
        return _Scanned(tuple(parts), lambda keys: interpret(keys, roles), roles.episode)
    types = types_elsewhere([part.query.collect_schema() for part in parts], roles.names)
    typed = (replace(part, query=part.query.cast(own)) for part, own in zip(parts, types, strict=True))
    return _Scanned(tuple(typed), episode=roles.episode)


def _any_query(path: Path, reader: Callable[[Path, Roles], _Part], rows: int = 0) -> pl.LazyFrame:
    """Every column of a file, with the types of its first rows; so many of them can be read."""
    if reader is _scan_excel:
        return _read_excel(path).lazy()
    if reader is _scan_parquet:
        try_reading(path, None, rows)
        return pl.scan_parquet(path, glob=False, hive_partitioning=False)
    return scan_all(path)


def _types_of(path: Path, reader: Callable[[Path, Roles], _Part]) -> nw.Schema:
    with _reading(str(path)):
        return nw.from_native(_any_query(path, reader)).collect_schema()


def first_rows(source: str | os.PathLike[str] | Sequence[str], rows: int) -> pl.DataFrame:
    """The first rows of a table in files, with every column that its first file has."""
    path = find_files(source)[0]
    with _reading(str(path)):
        return _any_query(path, _reader_of([path]), rows).head(rows).collect()


def column_types(source: str | os.PathLike[str] | Sequence[str]) -> Types:
    """Return the columns that all files of a path, a glob or a directory have, each with its types.

    Types are those of a Parquet file, or inferred from the first rows of a CSV file; files may differ in them.

    Parameters
    ----------
    source : path or list of paths
        Files, globs or directories.

    Returns
    -------
    dict from str to tuple
        Types of each column.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> list(column_types(ward.csv_path()))[1:]
    ['hour', 'severity', 'dose', 'discharged']
    """
    paths = find_files(source)
    reader = _reader_of(paths)
    return _common([_types_of(path, reader) for path in paths])


def find_files(source: str | os.PathLike[str] | Sequence[str]) -> list[Path]:
    several = [source] if isinstance(source, str | os.PathLike) else source
    return [path for pattern in several for path in _find(pattern)]


def open_source(source: object, roles: Roles) -> Source:
    """Open a path, several paths, a glob, a directory, the standard input, or a frame."""
    if isinstance(source, str) and source == STDIN:
        return _scan([spool()], roles)
    if isinstance(source, str | os.PathLike):
        return _scan(_find(source), roles)
    if isinstance(source, list | tuple) and source and all(isinstance(x, str | os.PathLike) for x in source):
        return _scan(find_files(source), roles)
    if isinstance(source, pl.LazyFrame):
        return _Scanned((_Part("the LazyFrame", source),))
    try:
        return _InMemory(as_eager(source, roles))
    except TypeError:
        raise TypeError(
            "read_table takes a path, a list of paths or a glob of Parquet or CSV files, a polars DataFrame "
            f"or LazyFrame, a pandas DataFrame or a pyarrow Table, got {type(source).__name__}."
        ) from None


def as_float(column: nw.Series[Any], dtype: type[np.floating[Any]] = np.float64) -> Float:
    """Return numbers and booleans as floats; NaN where there is no value."""
    return column.cast(nw.Float32 if dtype is np.float32 else nw.Float64).to_numpy()


def as_array(column: nw.Series[Any]) -> NDArray[Any]:
    """Return numbers as numbers, with NaN for a missing value, and text as objects, with None for a missing value.

    Whole numbers of 128 bits become text: NumPy does not have them, and as floats different numbers would be equal.
    """
    if isinstance(column.dtype, nw.Decimal):
        return as_float(column)
    values = (column.cast(nw.String) if column.dtype in WIDE else column).to_numpy()
    if values.dtype.kind not in "OU":
        return values
    objects = values.astype(object)  # fixed-width text would take the longest string for each
    objects[column.is_null().to_numpy()] = None  # frames differ in what stands for no value
    return objects
