"""Which trajectories a log in parts holds, and to which part each belongs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from caliope._clusters import number_clusters
from caliope._identity import hash_names
from caliope._ragged import Int
from caliope.io._partitions import Partitions, Reading, Stretch
from caliope.io._survey import Survey, columns_to_survey, survey, together


@dataclass(frozen=True, eq=False)
class Seen:
    """What is known of a stretch before its trajectories are read: those that have rows in it, as they first appear."""

    ids: NDArray[Any]
    lengths: Int
    first: Int  # the first row of each, counted in the stretch
    last: Int
    contents: Survey
    cluster: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class LookAt:
    """Look at a stretch: whose rows it holds, and what is in its columns."""

    reading: Reading

    def __call__(self, stretch: Stretch) -> Seen:
        """Trajectories of a stretch, with the number and place of their rows in it."""
        options, episode = self.reading.options, self.reading.episode
        cluster = options.get("cluster")
        columns = [episode, *([cluster] if cluster else []), *columns_to_survey(options)]
        rows = self.reading.rows_of(stretch, list(dict.fromkeys(columns))).with_row_index("row")
        if rows[episode].null_count():
            raise ValueError(
                f"column {episode!r} holds rows without a trajectory: fill in the id or drop them."
            )
        label = [pl.col(cluster).first().alias("cluster")] if cluster else []
        place = [
            pl.len().alias("n"),
            pl.col("row").first().alias("first"),
            pl.col("row").last().alias("last"),
        ]
        found = rows.group_by(pl.col(episode).alias("id"), maintain_order=True).agg(*place, *label)
        lengths, first, last = (found[name].to_numpy().astype(np.int64) for name in ("n", "first", "last"))
        labels = found["cluster"].to_numpy() if cluster else None
        contents = survey(rows, options)
        return Seen(found["id"].to_numpy(), lengths, first, last, contents, labels)


@dataclass(frozen=True, eq=False)
class Part:
    """The trajectories that begin in a stretch, with their rows in other stretches.

    Attributes
    ----------
    stretch : Stretch
        Where they begin.
    numbers : array of shape (k,)
        Their numbers in the whole log, as they first appear.
    wanted : array or None
        Ids of those among them that are read; None for all.
    foreign : array
        Ids in the stretch that began elsewhere.
    elsewhere : tuple
        Other stretches with rows of theirs, and the ids of those rows.
    """

    stretch: Stretch
    numbers: Int
    foreign: NDArray[Any]
    elsewhere: tuple[tuple[Stretch, NDArray[Any]], ...] = ()
    wanted: NDArray[Any] | None = None

    @property
    def name(self) -> str:
        """The file and the rows."""
        return str(self.stretch)

    def rows(self, reading: Reading) -> pl.DataFrame:
        """All rows of its trajectories."""
        found = [self._pick(reading, reading.rows_of(self.stretch), self.foreign, without=True)]
        found += [
            self._pick(reading, reading.rows_of(other), ids, without=False) for other, ids in self.elsewhere
        ]
        if self.wanted is not None:
            found = [self._pick(reading, rows, self.wanted, without=False) for rows in found]
        return pl.concat(found)

    @staticmethod
    def _pick(reading: Reading, rows: pl.DataFrame, ids: NDArray[Any], *, without: bool) -> pl.DataFrame:
        if without and not len(ids):
            return rows
        column = reading.episode
        named = _as_series(ids, rows.schema[column])
        chosen = pl.col(column).is_in(named.implode())
        return rows.filter(~chosen if without else chosen)


def _as_series(ids: NDArray[Any], dtype: Any) -> pl.Series:
    """Ids as a column of such a type."""
    if ids.dtype.kind != "M":
        return pl.Series(list(ids), dtype=dtype)
    moments = pl.Series(ids)  # of UTC, where the column has a time zone
    return (moments.dt.replace_time_zone("UTC") if getattr(dtype, "time_zone", None) else moments).cast(dtype)


@dataclass(frozen=True, eq=False)
class Inventory:
    """The trajectories of all parts, numbered as they first appear, and an order of them that no file decides.

    Attributes
    ----------
    ids : array of shape (n,)
        What they are called.
    lengths : array of shape (n,)
        Their steps.
    order : array of shape (n,)
        Their numbers in the order of a hash of their ids: that in which an audit works.
    parts : tuple of Part
        The parts, each with the trajectories that begin in it.
    contents : Survey
        What their columns of states and actions hold.
    cluster : array of shape (n,) or None
        Their clusters.
    """

    ids: NDArray[Any]
    lengths: Int
    order: Int
    parts: tuple[Part, ...]
    contents: Survey
    cluster: NDArray[Any] | None

    @property
    def clusters(self) -> Int | None:
        """Numbers of the clusters in that order, (n,)."""
        return None if self.cluster is None else number_clusters(self.cluster[self.order])

    def choose(self, numbers: Int) -> Iterator[Part]:
        """The parts of some trajectories, with those alone."""
        chosen = np.zeros(len(self.ids), dtype=bool)
        chosen[numbers] = True
        for part in self.parts:
            own = part.numbers[chosen[part.numbers]]
            if len(own) == len(part.numbers):
                yield part
            elif len(own):
                yield replace(part, numbers=own, wanted=self.ids[own])


def take_inventory(partitions: Partitions, seen: Sequence[Seen]) -> Inventory:
    """Number the trajectories of all parts; each belongs to the part in which it first appears.

    Parameters
    ----------
    partitions : Partitions
        The log.
    seen : sequence of Seen
        What :class:`LookAt` found in each stretch, in their order.

    Returns
    -------
    Inventory
        The trajectories and the parts.
    """
    sizes = [len(each.ids) for each in seen]
    at = np.repeat(np.arange(len(seen)), sizes)
    ids = np.concatenate([each.ids for each in seen])
    which, first, order = _number_alike(hash_names(ids))
    home = at[first]
    again = np.flatnonzero(home[which] != at)
    if partitions.reading.options.get("time") is None:
        _refuse_interrupted(partitions, seen, which, at)
    lengths = np.bincount(which, weights=np.concatenate([each.lengths for each in seen])).astype(np.int64)
    parts = []
    begun = np.searchsorted(home, np.arange(len(seen) + 1))
    pairs = zip(_by_group(again, at, len(seen)), _by_group(again, home[which], len(seen)), strict=True)
    for k, (stretch, (inside, outside)) in enumerate(zip(partitions.stretches, pairs, strict=True)):
        others = tuple(
            (partitions.stretches[j], ids[outside[at[outside] == j]]) for j in np.unique(at[outside])
        )
        numbers = np.arange(begun[k], begun[k + 1])
        if len(numbers):
            parts.append(Part(stretch, numbers, ids[inside], others))
    labels = [each.cluster for each in seen if each.cluster is not None]
    contents = together([each.contents for each in seen])
    cluster = np.concatenate(labels)[first] if labels else None
    return Inventory(ids[first], lengths, order, tuple(parts), contents, cluster)


def _by_group(rows: Int, group: Int, n: int) -> list[Int]:
    """Some rows by their group, from 0 to n - 1; sorted once, since there may be as many groups as rows."""
    order = rows[np.argsort(group[rows], kind="stable")]
    return np.split(order, np.searchsorted(group[order], np.arange(1, n)))


def _number_alike(keys: NDArray[np.uint64]) -> tuple[Int, Int, Int]:
    """Numbers of equal keys as they first appear, (m,); the first of each; and the numbers sorted by key, (n,)."""
    by_key = np.lexsort((np.arange(len(keys)), keys[:, 1], keys[:, 0]))
    new = np.concatenate([[True], (keys[by_key][1:] != keys[by_key][:-1]).any(axis=1)])
    heads = by_key[new]  # of each key the first, by rising key
    order = np.empty(len(heads), dtype=np.int64)
    order[np.argsort(heads)] = np.arange(len(heads))
    which = np.empty(len(keys), dtype=np.int64)
    which[by_key] = order[np.cumsum(new) - 1]
    return which, np.sort(heads), order


def _refuse_interrupted(partitions: Partitions, seen: Sequence[Seen], which: Int, at: Int) -> None:
    """Raise if a trajectory is in two parts, and is not the last of the one and the first of the next."""
    order = np.lexsort((at, which))
    same = np.flatnonzero(which[order][1:] == which[order][:-1])
    starts = np.concatenate([[0], np.cumsum([len(each.ids) for each in seen])])
    for one, other in zip(order[same], order[same + 1], strict=True):
        a, b = at[one], at[other]
        ends = seen[a].last[one - starts[a]] == partitions.stretches[a].rows - 1
        if not (b == a + 1 and ends and seen[b].first[other - starts[b]] == 0):
            raise ValueError(
                f"trajectory {seen[a].ids[one - starts[a]]} has rows in {partitions.stretches[a]} and in "
                f"{partitions.stretches[b]}, which do not follow each other. Say with time= which column orders them, "
                "or write each trajectory into one file."
            )
