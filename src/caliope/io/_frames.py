"""Frames in memory, and what several frames of one table have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import polars as pl

from caliope.io._columns import Roles, refuse_duplicates


def as_eager(source: Any, roles: Roles) -> nw.DataFrame[Any]:
    """A frame of any library; in pandas, objects that are numbers or booleans become such."""
    try:
        return nw.from_native(_without_objects(source, roles), eager_only=True)
    except nw.exceptions.DuplicateError:  # even if we need none of the copies
        is_arrow = hasattr(source, "column_names")
        names = list(source.column_names if is_arrow else source.columns)
        refuse_duplicates(roles, names, f"the {type(source).__name__}")
        single = [i for i, name in enumerate(names) if names.count(name) == 1]
        chosen = source.select(single) if is_arrow else source.iloc[:, single]
        return nw.from_native(_without_objects(chosen, roles), eager_only=True)


def _without_objects(frame: Any, roles: Roles) -> Any:
    """A frame of pandas without objects that are numbers or booleans, and without columns in its index."""
    if not hasattr(frame, "convert_dtypes") or not frame.columns.is_unique:
        return frame
    inside = [name for name in roles.names if name in frame.index.names and name not in frame.columns]
    frame = frame.reset_index(level=inside) if inside else frame
    objects = [name for name in roles.names if name in frame.columns and frame[name].dtype == object]
    better = {name: frame[name].convert_dtypes() for name in objects}
    better = {name: column for name, column in better.items() if column.dtype.kind in "iufb"}
    if not better:
        return frame
    changed = frame.copy(deep=False)
    for name, column in better.items():
        changed[name] = column
    return changed


def join(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """One below the other, each column with the type that holds the values of all frames.

    Whole numbers with a sign and those of 64 bits without one have 128 bits together. Older versions of Polars made
    decimal numbers of them, which tell large ids no longer apart.
    """
    types = {name: [frame.schema[name] for frame in frames] for name in frames[0].columns}
    mixed = [
        name for name, each in types.items() if pl.UInt64 in each and any(x.is_signed_integer() for x in each)
    ]
    wide = [frame.cast(dict.fromkeys(mixed, pl.Int128)) for frame in frames] if mixed else frames
    return pl.concat(wide, how="vertical_relaxed")


def name_shared(frames: Sequence[pl.DataFrame], episode: str | None) -> str:
    """How many episodes have rows in several files, in words: ids of two sites may be alike; empty if none has."""
    if episode is None or len(frames) < 2:
        return ""
    ids = pl.concat([frame.select(pl.col(episode).cast(pl.String).unique()) for frame in frames])[
        episode
    ].drop_nulls()
    several = ids.value_counts().filter(pl.col("count") > 1)
    if not several.height:
        return ""
    return (
        f"{several.height} of {ids.n_unique()} ids in {episode!r} have rows in several files (first: "
        f"{several[episode].sort()[0]}), and each is one trajectory; if not, as with two sites, make them different"
    )
