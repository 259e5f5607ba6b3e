"""Open a table wherever it lies, and hand it out in batches."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import narwhals as nw
import numpy as np
import polars as pl

from caliope.ragged import Float

_BATCH_ROWS = 1 << 16  # rows in memory beside the result: large enough to be fast, small enough not to matter

Frame = nw.DataFrame[Any]


class Source(Protocol):
    """A table that can be read twice, in the same order."""

    @property
    def columns(self) -> Mapping[str, tuple[nw.dtypes.DType, ...]]:
        """Columns of the table, each with the types it has (files may differ)."""

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        """Return the key columns at once, and an iterator over batches of rows in the same order."""


@dataclass(frozen=True)
class _InMemory:
    frame: Frame

    @property
    def columns(self) -> Mapping[str, tuple[nw.dtypes.DType, ...]]:
        return {name: (dtype,) for name, dtype in self.frame.schema.items()}

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        chosen = self.frame.select(list(columns))
        starts = range(0, len(chosen), _BATCH_ROWS)
        return self.frame.select(list(keys)), (chosen[start : start + _BATCH_ROWS] for start in starts)


def _fingerprint(keys: pl.DataFrame, start: int) -> int:
    """Number that changes with the keys and with their order; those of successive batches add up."""
    position = np.arange(start, start + keys.height, dtype=np.uint64)
    return int((keys.hash_rows().to_numpy() * (2 * position + 1)).sum(dtype=np.uint64))


@contextmanager
def _reading(label: str) -> Iterator[None]:
    try:
        yield
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"read_table could not read {label}: {error}") from error


@dataclass(frozen=True)
class _Scans:
    """Polars queries, one a file, whose rows follow each other."""

    parts: Mapping[str, pl.LazyFrame]  # by the name that messages use

    @property
    def columns(self) -> Mapping[str, tuple[nw.dtypes.DType, ...]]:
        schemas = []
        for label, part in self.parts.items():
            with _reading(label):
                schemas.append(nw.from_native(part).collect_schema())
        everywhere = [name for name in schemas[0] if all(name in schema for schema in schemas)]
        return {name: tuple(dict.fromkeys(schema[name] for schema in schemas)) for name in everywhere}

    def read(self, keys: Sequence[str], columns: Sequence[str]) -> tuple[Frame, Iterator[Frame]]:
        found = []
        for label, part in self.parts.items():
            with _reading(label):
                found.append(part.select(keys).collect(engine="streaming"))
        with _reading(", ".join(self.parts)):
            together = pl.concat(found, how="vertical_relaxed")
        sizes = {label: frame.height for label, frame in zip(self.parts, found, strict=True)}
        prints = {label: _fingerprint(frame, 0) for label, frame in zip(self.parts, found, strict=True)}
        return nw.from_native(together, eager_only=True), self._batches(keys, columns, sizes, prints)

    def _batches(
        self, keys: Sequence[str], columns: Sequence[str], sizes: Mapping[str, int], prints: Mapping[str, int]
    ) -> Iterator[Frame]:
        wanted = list(dict.fromkeys([*keys, *columns]))
        for label, part in self.parts.items():
            start = seen = 0
            with _reading(label):
                for batch in part.select(wanted).collect_batches(chunk_size=_BATCH_ROWS, lazy=True):
                    seen += _fingerprint(batch.select(keys), start)
                    start += batch.height
                    if start > sizes[label]:
                        break
                    yield nw.from_native(batch, eager_only=True)
            if start != sizes[label] or seen % 2**64 != prints[label]:
                raise ValueError(
                    f"{label} gave other rows, or another order, when it was read a second time. If it is a lazy "
                    "query, end it with a sort or collect() it first; if it is a file, wait until it is written."
                )


def _scan_parquet(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False, hive_partitioning=False)


def _scan_csv(path: Path) -> pl.LazyFrame:
    # All rows decide on the type of a column: a column whole at first may be fractional in its last row.
    return pl.scan_csv(path, glob=False, infer_schema_length=None, try_parse_dates=True)


_READERS: Mapping[str, Callable[[Path], pl.LazyFrame]] = {
    ".parquet": _scan_parquet,
    ".pq": _scan_parquet,
    ".csv": _scan_csv,
    ".csv.gz": _scan_csv,
}


def _find(pattern: str | os.PathLike[str]) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        raise ValueError(f"{path} is a directory: name the files in it, e.g. '{path}/*.parquet'.")
    if path.exists():  # before globbing: a file may have brackets in its name
        return [path]
    found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 (absolute patterns)
    if not found:
        raise FileNotFoundError(f"no file matches {str(pattern)!r} (looked from {Path.cwd()}).")
    return found


def _scan(paths: Iterable[Path]) -> _Scans:
    readers = {}
    for path in paths:
        suffix = next((known for known in _READERS if path.name.lower().endswith(known)), None)
        if suffix is None:
            raise ValueError(f"{path}: unknown kind of file; read_table knows {', '.join(_READERS)}.")
        readers[path] = _READERS[suffix]
    if len(set(readers.values())) > 1:
        raise ValueError(
            f"the {len(readers)} files are of different kinds (first: {next(iter(readers))}); "
            "read_table takes Parquet or CSV, not both at once."
        )
    return _Scans({str(path): reader(path) for path, reader in readers.items()})


def open_source(source: object) -> Source:
    """Open a path, several paths, a glob, or a frame."""
    if isinstance(source, str | os.PathLike):
        return _scan(_find(source))
    if isinstance(source, list | tuple) and source and all(isinstance(x, str | os.PathLike) for x in source):
        return _scan(path for pattern in source for path in _find(pattern))
    if isinstance(source, pl.LazyFrame):
        return _Scans({"the LazyFrame": source})
    try:
        return _InMemory(nw.from_native(source, eager_only=True))  # type: ignore[call-overload]
    except TypeError:
        raise TypeError(
            "read_table takes a path, a list of paths or a glob of Parquet or CSV files, a polars DataFrame or "
            f"LazyFrame, a pandas DataFrame or a pyarrow Table, got {type(source).__name__}."
        ) from None


def as_float(column: nw.Series[Any], dtype: type[np.floating[Any]] = np.float64) -> Float:
    """Numbers of a column, with NaN where the table has none."""
    return column.cast(nw.Float32 if dtype is np.float32 else nw.Float64).to_numpy()
