"""Open a table wherever it lies, and hand it out in batches."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import narwhals as nw
import numpy as np
import polars as pl

_BATCH_ROWS = 1 << 16  # in memory beside the result: enough to be fast, few enough not to matter
_CSV_ROWS = 100_000  # that decide on the type of a CSV column

Frame = nw.DataFrame[Any]
Types = Mapping[str, tuple[nw.dtypes.DType, ...]]


class Source(Protocol):
    """A table that can be read twice, in the same order."""

    @property
    def columns(self) -> Types:
        """Columns that the whole table has, each with its type (or types: files may differ)."""

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        """Return the key columns at once, and an iterator over batches of rows in the same order."""


@dataclass(frozen=True)
class _InMemory:
    frame: Frame

    @property
    def columns(self) -> Types:
        return {name: (dtype,) for name, dtype in self.frame.schema.items()}

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        # Rows first, then columns: pandas shares memory with a slice, but copies a choice of columns.
        starts = range(0, len(self.frame), _BATCH_ROWS)
        batches = (self.frame[start : start + _BATCH_ROWS].select(list(columns)) for start in starts)
        return self.frame.select(list(keys)), batches


@contextmanager
def _reading(label: str) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, nw.exceptions.NarwhalsError) as error:
        what = str(error).split("\n", 1)[0]  # the rest names options that read_table does not have
        raise ValueError(
            f"read_table could not read {label}: {what}. Mend the file, or read it with options of your own, "
            "e.g. by polars.scan_csv or polars.scan_parquet, and give read_table the frame."
        ) from error


@dataclass
class _Fingerprint:
    """Tells whether the same keys came in the same order, without keeping them."""

    rows: int = 0
    value: int = 0

    def add(self, keys: pl.DataFrame) -> None:
        position = np.arange(self.rows, self.rows + keys.height, dtype=np.uint64)
        self.value += int((keys.hash_rows().to_numpy() * (2 * position + 1)).sum(dtype=np.uint64))
        self.value %= 2**64
        self.rows += keys.height


@dataclass(frozen=True)
class _Part:
    """A polars query: one file, or a frame that the caller has not collected."""

    label: str
    query: pl.LazyFrame

    def types(self) -> nw.Schema:
        with _reading(self.label):
            return nw.from_native(self.query).collect_schema()

    def keys(self, names: Sequence[str]) -> tuple[pl.DataFrame, _Fingerprint]:
        with _reading(self.label):
            found = self.query.select(names).collect(engine="streaming")
        fingerprint = _Fingerprint()
        fingerprint.add(found)
        return found, fingerprint

    def batches(
        self, keys: Sequence[str], columns: Sequence[str], *, expected: _Fingerprint
    ) -> Iterator[Frame]:
        """Yield the rows; raise when their keys are not those that were read before."""
        found = _Fingerprint()
        # In the table's own order: a query that also reorders columns runs a gigabyte ahead of its reader.
        query = self.query.select([name for name in self.types() if name in {*keys, *columns}])
        with _reading(self.label):
            for batch in query.collect_batches(chunk_size=_BATCH_ROWS, lazy=True):
                found.add(batch.select(keys))
                if found.rows > expected.rows:
                    break
                yield nw.from_native(batch, eager_only=True)
        if found != expected:
            raise ValueError(
                f"{self.label} gave other rows, or another order of rows, when it was read a second time. "
                "End a lazy query with a sort, or collect() it first; let a file be written to its end."
            )


@dataclass(frozen=True)
class _Scanned:
    """Parts whose rows follow each other; each is opened when its turn comes."""

    parts: tuple[_Part, ...]

    @property
    def columns(self) -> Types:
        types = [part.types() for part in self.parts]
        everywhere = [name for name in types[0] if all(name in other for other in types)]
        return {name: tuple(dict.fromkeys(other[name] for other in types)) for name in everywhere}

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        frames, fingerprints = zip(*(part.keys(keys) for part in self.parts), strict=True)
        with _reading(", ".join(part.label for part in self.parts)):
            together = pl.concat(frames, how="vertical_relaxed")
        batches = (
            batch
            for part, fingerprint in zip(self.parts, fingerprints, strict=True)
            for batch in part.batches(keys, columns, expected=fingerprint)
        )
        return nw.from_native(together, eager_only=True), batches


def _scan_parquet(path: Path, _: Collection[str]) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def _scan_csv(path: Path, floats: Collection[str]) -> pl.LazyFrame:
    # A column that is whole for 100,000 rows may have a fraction in the next. Where the numbers become
    # floats in the end they are read as floats at once; knowing the types also saves guessing on each pass.
    with _reading(str(path)):
        guessed = pl.scan_csv(
            path, glob=False, infer_schema_length=_CSV_ROWS, try_parse_dates=True
        ).collect_schema()
    types = {
        name: pl.Float64() if name in floats and dtype.is_integer() else dtype
        for name, dtype in guessed.items()
    }
    return pl.scan_csv(path, glob=False, schema=types)


_READERS: Mapping[str, Callable[[Path, Collection[str]], pl.LazyFrame]] = {
    ".parquet": _scan_parquet,
    ".pq": _scan_parquet,
    ".csv": _scan_csv,
    ".csv.gz": _scan_csv,
}


def _find(pattern: str | os.PathLike[str]) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        raise ValueError(f"{path} is a directory: name the files in it, e.g. '{path}/*.parquet'.")
    if path.exists():  # asked before globbing: a file may have brackets in its name
        return [path]
    names = glob.glob(str(path), recursive=True)  # noqa: PTH207 (Path.glob refuses absolute patterns)
    found = sorted(name for name in map(Path, names) if name.is_file())
    if not found:
        raise FileNotFoundError(f"no file matches {str(pattern)!r} (looked from {Path.cwd()}).")
    return found


def _scan(paths: Sequence[Path], floats: Collection[str]) -> _Scanned:
    suffixes = [next((s for s in _READERS if path.name.lower().endswith(s)), None) for path in paths]
    if None in suffixes:
        odd = paths[suffixes.index(None)]
        raise ValueError(f"{odd}: unknown kind of file; read_table knows {', '.join(_READERS)}.")
    readers = [_READERS[suffix] for suffix in suffixes if suffix]
    if len(set(readers)) > 1:
        other = next(path for path, reader in zip(paths, readers, strict=True) if reader is not readers[0])
        raise ValueError(
            f"the files are of different kinds (first: {paths[0]} and {other}); "
            "read_table takes Parquet or CSV, not both at once."
        )
    return _Scanned(tuple(_Part(str(path), readers[0](path, floats)) for path in paths))


def open_source(source: object, *, floats: Collection[str]) -> Source:
    """Open a path, several paths, a glob, or a frame.

    The columns named in `floats` will be used as floating-point numbers.
    """
    if isinstance(source, str | os.PathLike):
        return _scan(_find(source), floats)
    if isinstance(source, list | tuple) and source and all(isinstance(x, str | os.PathLike) for x in source):
        return _scan([path for pattern in source for path in _find(pattern)], floats)
    if isinstance(source, pl.LazyFrame):
        return _Scanned((_Part("the LazyFrame", source),))
    try:
        return _InMemory(nw.from_native(source, eager_only=True))
    except TypeError:
        raise TypeError(
            "read_table takes a path, a list of paths or a glob of Parquet or CSV files, a polars DataFrame "
            f"or LazyFrame, a pandas DataFrame or a pyarrow Table, got {type(source).__name__}."
        ) from None
