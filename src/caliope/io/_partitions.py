"""A log in Parquet files that is read a part at a time, with every trajectory whole in one part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from caliope._trajectories import Trajectories
from caliope.io._columns import Roles, as_names, check_present, check_roles, check_types
from caliope.io._frames import join
from caliope.io._intact import stamp, try_reading
from caliope.io._source import find_files, open_source
from caliope.io._table import read_table

ROWS = 100_000  # of a part, by default: of 50 columns about 40 MB
SAMPLE = 200_000  # decisions that are looked at whole


class Stretch(NamedTuple):
    """Some rows of a file, with its size and time when the log was opened."""

    path: str
    start: int
    rows: int
    stamp: tuple[int, int] | None = None

    def check_unchanged(self) -> None:
        """Raise if the file is another one now."""
        if stamp(Path(self.path)) != self.stamp:
            raise ValueError(
                f"{self} was changed after it was looked at, so that numbers would be of two versions. Start again "
                "when it is written to its end. Where workers have copies of the files, copy them with their times."
            )

    def __str__(self) -> str:
        return f"{self.path} (rows {self.start} to {self.start + self.rows - 1})"


@dataclass(frozen=True, eq=False)
class Reading:
    """How rows become trajectories, the same in every part.

    Attributes
    ----------
    options : mapping
        Arguments of :func:`~caliope.read_table`.
    schema : mapping from str to polars type
        Columns that are read, each with the type that it has in all files together.
    unit : str
        What one trajectory is called.
    """

    options: Mapping[str, Any]
    schema: Mapping[str, Any]
    unit: str = "trajectory"

    @property
    def episode(self) -> str:
        """The column of the trajectory."""
        return str(self.options["episode"])

    def rows_of(self, stretch: Stretch, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Rows of a stretch, as their types are in all files together."""
        names = list(self.schema) if columns is None else list(columns)
        query = pl.scan_parquet(stretch.path, glob=False, hive_partitioning=False)
        try:
            found = query.select(names).slice(stretch.start, stretch.rows).collect()
        except (pl.exceptions.PolarsError, OSError):
            stretch.check_unchanged()
            raise
        stretch.check_unchanged()
        return found.cast({name: self.schema[name] for name in names})

    def counting(self, n_actions: int | None) -> Reading:
        """The same with so many actions."""
        return replace(self, options={**self.options, "n_actions": n_actions})

    def meaning(self, encoder: Any, n_actions: int | None = None) -> Reading:
        """The same with levels, gaps and doses that mean what they meant in a log that was read before."""
        meant: dict[str, Any] = {"encoder": encoder, "levels": None, "cuts": None}
        if n_actions is not None and encoder.action_names is None:
            meant["n_actions"] = n_actions
        return replace(self, options={**self.options, **meant})

    def trajectories(self, rows: pl.DataFrame) -> Trajectories:
        """The trajectories of some rows, in the order in which they first appear."""
        return read_table(rows, **self.options).replace(unit=self.unit)


@dataclass(frozen=True, eq=False, repr=False)
class Partitions:
    """A log in files that is not held in memory; made by :func:`open_partitions`.

    Attributes
    ----------
    reading : Reading
        How rows are read.
    stretches : tuple of Stretch
        The rows of the files, cut into parts.
    digest : tuple
        Names, sizes and times of the files: what finished work is found by.
    sample : int
        Decisions on which models are fitted and the log is checked.

    Examples
    --------
    >>> import tempfile, polars as pl
    >>> from pathlib import Path
    >>> log = pl.DataFrame({"user": [7, 7, 9], "age": [40, 41, 23], "offer": [0, 1, 0], "gain": [0, 1, 1]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log.write_parquet(Path(folder, "1.parquet"))
    ...     open_partitions(folder, episode="user", action="offer", reward="gain", states=["age"]).n_steps
    3
    """

    reading: Reading
    stretches: tuple[Stretch, ...]
    digest: tuple[Any, ...] = field(repr=False)
    sample: int = SAMPLE

    def __repr__(self) -> str:
        files = len({each.path for each in self.stretches})
        return f"Partitions({self.n_steps} steps in {files} files, {len(self.stretches)} parts)"

    @property
    def n_steps(self) -> int:
        """Number of steps of all parts together."""
        return sum(each.rows for each in self.stretches)


def open_partitions(
    source: Any,
    *,
    episode: str,
    rows: int = ROWS,
    sample: int = SAMPLE,
    unit: str = "trajectory",
    **options: Any,
) -> Partitions:
    """Open a log in Parquet files without reading it: for :func:`~caliope.audit` with an engine.

    Every trajectory is read whole, also where its rows lie in several files. Without ``time`` they must then follow
    each other, from the end of a file to the beginning of the next; else both files are named.

    Parameters
    ----------
    source : path, list of paths, glob or directory
        Parquet files with the same columns.
    episode : str
        Column with the id of the trajectory.
    rows : int
        Rows of a part; larger files are cut. Memory per worker grows with it, and nothing else depends on it.
    sample : int
        Decisions, in whole trajectories, on which an audit fits its models and checks the log. A log that is no longer
        than that is audited as one table is.
    unit : str
        What one trajectory is in your own words.
    **options
        ``action``, ``reward``, ``states`` and the other arguments of :func:`~caliope.read_table`. Levels of categories
        and doses are learnt on the sample that an audit fits its models on.

    Returns
    -------
    Partitions
        What is needed to read the log.

    Examples
    --------
    >>> import tempfile, polars as pl
    >>> from pathlib import Path
    >>> log = pl.DataFrame({"user": [7, 7, 9], "age": [40, 41, 23], "offer": [0, 1, 0], "gain": [0, 1, 1]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log[:1].write_parquet(Path(folder, "1.parquet"))
    ...     log[1:].write_parquet(Path(folder, "2.parquet"))
    ...     open_partitions(folder, episode="user", action="offer", reward="gain", states=["age"])
    Partitions(3 steps in 2 files, 2 parts)
    """
    if not isinstance(episode, str):
        raise TypeError(
            f"a log in partitions needs episode=, the column that tells trajectories apart, got {episode!r}."
        )
    for name, number, least in (("rows", rows, 1), ("sample", sample, 1000)):
        if number < least:
            raise ValueError(f"{name} must be {least} or more, got {number}.")
    action = options["action"]
    actions = tuple(action) if isinstance(action, list | tuple) else (action,)
    named: dict[str, Any] = {
        name: options.get(name) for name in ("time", "terminated", "calendar", "cluster")
    }
    named |= {
        "states": as_names("states", options["states"]),
        "keep": as_names("keep", options.get("keep", ())),
    }
    roles = Roles(episode=episode, actions=actions, reward=options["reward"], **named)
    check_roles(roles)
    paths = find_files(source)
    odd = [path for path in paths if path.suffix.lower() not in (".parquet", ".pq")]
    if odd:
        raise ValueError(f"a log in partitions is read from Parquet files, got {odd[0]}. Save it as Parquet.")
    types = open_source([str(path) for path in paths], roles).columns
    check_present(roles, types)
    check_types(roles, types)
    for path in paths:
        try_reading(path, roles.names)
    stamps = {str(path): stamp(path) for path in paths}  # before they are looked at
    stretches = tuple(_cut(paths, rows, stamps))
    if not stretches:
        raise ValueError("the files have no rows.")
    reading = Reading({"episode": episode, **options}, _common_types(paths, roles), unit)
    return Partitions(reading, stretches, (*stamps.items(), rows), sample)


def _cut(paths: Sequence[Path], rows: int, stamps: Mapping[str, Any]) -> Iterator[Stretch]:
    for path in paths:
        total = pl.scan_parquet(path, glob=False, hive_partitioning=False).select(pl.len()).collect().item()
        pieces = -(-total // rows)
        ends = [total * k // pieces for k in range(pieces + 1)] if pieces else []
        yield from (Stretch(str(path), a, b - a, stamps[str(path)]) for a, b in pairwise(ends))


def _common_types(paths: Sequence[Path], roles: Roles) -> dict[str, Any]:
    """The type of each column that is read, in all files together."""
    names = list(dict.fromkeys(name for name in roles.names))
    empty = [
        pl.scan_parquet(x, glob=False, hive_partitioning=False).select(names).head(0).collect() for x in paths
    ]
    orders = {name: _order_of(x.schema[name] for x in empty) for name in names}
    empty = [x.cast({name: order for name, order in orders.items() if order is not None}) for x in empty]
    types = dict(join(empty).schema)
    # As read_table names them: NumPy has neither numbers of 128 bits nor decimal ones.
    for name in (roles.episode, roles.cluster):
        if name is not None and types[name] in (pl.Int128, pl.UInt128):
            types[name] = pl.String()
        elif name is not None and isinstance(types[name], pl.Decimal):
            types[name] = pl.Float64()
    return types


def _order_of(types: Iterable[Any]) -> pl.Enum | None:
    """One order of the words of a column, where every file declares its own, as read_table joins them."""
    declared = [
        each for each in types if each != pl.Null
    ]  # without a value in a file, a column has no type there
    if not declared or not all(isinstance(each, pl.Enum) for each in declared):
        return None
    return pl.Enum(list(dict.fromkeys(word for each in declared for word in each.categories.to_list())))
