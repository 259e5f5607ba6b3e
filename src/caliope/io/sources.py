"""Open a table wherever it lies, and hand it out in batches."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import narwhals as nw
import numpy as np
import polars as pl

from caliope.io.csv_files import interpret, open_csv
from caliope.io.roles import Roles, Types, refuse_duplicates

_IN_WORDS = {
    "found more fields than defined in 'Schema'": "a row has more cells than the header has names; is there a comma "
    "inside a number or a text"
}
_BATCH_ROWS = 1 << 16  # in memory beside the result: enough to be fast, few enough not to matter

Frame = nw.DataFrame[Any]


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
def _reading(label: str, explain: Callable[[], None] = lambda: None) -> Iterator[None]:
    try:
        yield
    except (pl.exceptions.PolarsError, nw.exceptions.NarwhalsError, pl.exceptions.PanicException) as error:
        with suppress(
            pl.exceptions.PolarsError, pl.exceptions.PanicException
        ):  # no Exception: polars gave up
            explain()
        what = str(error).split("\n", 1)[0]  # the rest names options that read_table does not have
        what = _IN_WORDS.get(what, what)
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
    explain: Callable[[], None] = lambda: None  # raises a better error than that of polars, where it can
    whole: pl.LazyFrame | None = (
        None  # the query that reads every column, where reading some would hide a fault
    )

    @cached_property
    def types(self) -> nw.Schema:
        """Columns and their types."""
        with _reading(self.label):
            return nw.from_native(self.query).collect_schema()

    def keys(self, names: Sequence[str]) -> tuple[pl.DataFrame, _Fingerprint]:
        query = self.query.select(names)
        if self.whole is not None:
            empty = pl.any_horizontal(pl.all().is_null()).alias(
                f"some of {names} is empty"
            )  # asks for all columns
            query = self.whole.select(*names, empty)
        with _reading(self.label, self.explain):
            found = query.collect(engine="streaming").select(names)
        fingerprint = _Fingerprint()
        fingerprint.add(found)
        return found, fingerprint

    def batches(
        self, keys: Sequence[str], columns: Sequence[str], *, expected: _Fingerprint
    ) -> Iterator[pl.DataFrame]:
        """Yield the rows; raise when their keys are not those that were read before."""
        found = _Fingerprint()
        # In the table's own order: a query that also reorders columns runs a gigabyte ahead of its reader.
        query = self.query.select([name for name in self.types if name in {*keys, *columns}])
        with _reading(self.label, self.explain):
            for batch in query.collect_batches(chunk_size=_BATCH_ROWS, lazy=True):
                found.add(batch.select(keys))
                if found.rows > expected.rows:
                    break
                yield batch
        if found != expected:
            raise ValueError(
                f"{self.label} gave other rows, or another order of rows, when it was read a second time. "
                "End a lazy query with a sort, or collect() it first; let a file be written to its end."
            )


@dataclass(frozen=True)
class _Scanned:
    """Parts whose rows follow each other; each is opened when its turn comes."""

    parts: tuple[_Part, ...]
    interpret: Callable[[pl.DataFrame], Mapping[str, pl.Expr]] = lambda _: {}  # what text in the keys means

    @property
    def columns(self) -> Types:
        types = [part.types for part in self.parts]
        everywhere = [name for name in types[0] if all(name in other for other in types)]
        return {name: tuple(dict.fromkeys(other[name] for other in types)) for name in everywhere}

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        frames, fingerprints = zip(*(part.keys(keys) for part in self.parts), strict=True)
        with _reading(", ".join(part.label for part in self.parts)):
            together = pl.concat(frames, how="vertical_relaxed")
        meant = self.interpret(together)
        kept = [expression for name, expression in meant.items() if name in columns]
        batches = (
            nw.from_native(batch.with_columns(kept), eager_only=True)
            for part, fingerprint in zip(self.parts, fingerprints, strict=True)
            for batch in part.batches(keys, columns, expected=fingerprint)
        )
        return nw.from_native(together.with_columns(meant.values()), eager_only=True), batches


def _scan_parquet(path: Path, _: Roles) -> _Part:
    return _Part(str(path), pl.scan_parquet(path, glob=False, hive_partitioning=False))


def _scan_csv(path: Path, roles: Roles) -> _Part:
    file = open_csv(path, roles)
    return _Part(str(path), file.scan(), file.refuse_text, file.scan_whole())


_READERS: Mapping[str, Callable[[Path, Roles], _Part]] = {
    ".parquet": _scan_parquet,
    ".pq": _scan_parquet,
    ".csv": _scan_csv,
    ".csv.gz": _scan_csv,
}


def _parquet_in(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".parquet", ".pq"))
    if not found:
        raise ValueError(
            f"{folder} is a directory without Parquet files: name the files, e.g. '{folder}/*.csv', or "
            f"'{folder}/**/*.parquet' for those in its folders."
        )
    return found


def _find(pattern: str | os.PathLike[str]) -> list[Path]:
    if not os.fspath(pattern):
        raise ValueError("the path must name a file, but is empty.")
    path = Path(os.path.expanduser(pattern))  # noqa: PTH111 (Path.expanduser fails on a file called ~x.csv)
    if path.is_dir():
        return _parquet_in(path)
    if path.exists():  # asked before globbing: a file may have brackets in its name
        return [path]
    names = glob.glob(str(path), recursive=True)  # noqa: PTH207 (Path.glob refuses absolute patterns)
    found = sorted(name for name in map(Path, names) if name.is_file())
    if not found:
        raise FileNotFoundError(f"no file matches {str(pattern)!r} (looked from {Path.cwd()}).")
    return found


def _refuse_lacking(parts: Sequence[_Part], roles: Roles) -> None:
    """Raise when some files have a column and others have not; what none has is found missing later."""
    for name in roles.names:
        lacking = [part.label for part in parts if name not in part.types]
        if 0 < len(lacking) < len(parts):
            raise ValueError(
                f"column {name!r} must be in every file, but {len(lacking)} of {len(parts)} files lack it "
                f"(first: {lacking[0]}). Add it there, or leave the file out."
            )


def _scan(paths: Sequence[Path], roles: Roles) -> _Scanned:
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
    parts = []
    for path in paths:
        with _reading(str(path)):
            parts.append(readers[0](path, roles))
    _refuse_lacking(parts, roles)
    if readers[0] is _scan_csv:
        return _Scanned(tuple(parts), lambda keys: interpret(keys, roles))
    return _Scanned(tuple(parts))


def _in_memory(source: Any, roles: Roles) -> _InMemory:
    try:
        return _InMemory(nw.from_native(source, eager_only=True))
    except nw.exceptions.DuplicateError:  # even if we need none of the copies
        is_arrow = hasattr(source, "column_names")
        names = list(source.column_names if is_arrow else source.columns)
        refuse_duplicates(roles, names, f"the {type(source).__name__}")
        single = [i for i, name in enumerate(names) if names.count(name) == 1]
        chosen = source.select(single) if is_arrow else source.iloc[:, single]
        return _InMemory(nw.from_native(chosen, eager_only=True))


def open_source(source: object, roles: Roles) -> Source:
    """Open a path, several paths, a glob, a directory, or a frame."""
    if isinstance(source, str | os.PathLike):
        return _scan(_find(source), roles)
    if isinstance(source, list | tuple) and source and all(isinstance(x, str | os.PathLike) for x in source):
        return _scan([path for pattern in source for path in _find(pattern)], roles)
    if isinstance(source, pl.LazyFrame):
        return _Scanned((_Part("the LazyFrame", source),))
    try:
        return _in_memory(source, roles)
    except TypeError:
        raise TypeError(
            "read_table takes a path, a list of paths or a glob of Parquet or CSV files, a polars DataFrame "
            f"or LazyFrame, a pandas DataFrame or a pyarrow Table, got {type(source).__name__}."
        ) from None
