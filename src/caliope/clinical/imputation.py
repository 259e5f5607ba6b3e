"""Gaps filled as in the public code, for comparison only: it looks into the future and at other patients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from caliope.ragged import Float

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CHUNK = 10_000  # rows that are searched for a neighbour together
SELDOM_MISSING = 0.05  # below this share gaps are interpolated


def interpolate_down(column: Float) -> Float:
    """Fill gaps on a straight line between the rows above and below, whosever they are.

    Examples
    --------
    >>> interpolate_down(np.array([np.nan, 1.0, np.nan, 3.0, np.nan]))
    array([nan,  1.,  2.,  3., nan])
    """
    there = np.flatnonzero(np.isfinite(column))
    if len(there) == 0:
        return column
    inside = np.arange(there[0], there[-1] + 1)
    filled = column.copy()
    filled[inside] = np.interp(inside, there, column[there])
    return filled


def from_nearest_row(values: Float) -> Float:
    """Fill each gap from the nearest row that has the value, by Euclidean distance of standardised columns.

    Rows are searched in chunks of 10,000, as in the public code. A column without any value stays empty.
    """
    from sklearn.impute import KNNImputer

    out = values.copy()
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK]
        some = np.isfinite(part).any(axis=0)
        centre = np.nanmean(part[:, some], axis=0)
        spread = np.nanstd(part[:, some], axis=0)
        spread[spread == 0] = 1.0
        filled = KNNImputer(n_neighbors=1).fit_transform((part[:, some] - centre) / spread)
        gaps = ~np.isfinite(part[:, some])
        out[start : start + CHUNK, some] = np.where(gaps, filled * spread + centre, part[:, some])
    return out


def impute_as_published(connection: DuckDBPyConnection) -> None:
    """Replace the filled gaps of ``step_states``: interpolation where few are missing, else the nearest row."""
    import polars as pl

    names = [row[0] for row in connection.execute("DESCRIBE step_states").fetchall()]
    measured = [name for name in names if name not in ("icustay_id", "step", "mechvent")]
    listed = ", ".join(f"max(value) FILTER (variable = '{name}') AS {name}" for name in measured)
    rows = connection.sql(
        f"SELECT k.icustay_id, k.step, {listed} FROM known k JOIN windows w USING (icustay_id, step) "
        "WHERE w.recorded OR w.scored GROUP BY k.icustay_id, k.step ORDER BY k.icustay_id, k.step"
    ).pl()
    if len(rows) == 0:
        return
    values = rows.select(pl.col(measured).fill_null(float("nan"))).to_numpy().astype(np.float64)
    missing = np.isnan(values).mean(axis=0)
    for j in np.flatnonzero((missing > 0) & (missing < SELDOM_MISSING)):
        values[:, j] = interpolate_down(values[:, j])
    filled = pl.DataFrame(from_nearest_row(values), schema=measured, nan_to_null=True)
    connection.register("filled_rows", rows.select("icustay_id", "step").hstack(filled))
    chosen = ", ".join(f"coalesce(f.{name}, s.{name}) AS {name}" for name in measured)
    connection.execute(
        f"CREATE OR REPLACE TABLE step_states AS SELECT s.icustay_id, s.step, s.mechvent, {chosen} "
        "FROM step_states s LEFT JOIN filled_rows f USING (icustay_id, step)"
    )
    connection.unregister("filled_rows")
