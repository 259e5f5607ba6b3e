"""Cohort rows as trajectories: 48 features on one scale, with earlier steps; and the imputation of the public code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from caliope._ragged import Bool, Float, Int
from caliope._trajectories import Trajectories
from caliope.behaviour._history import stack_history
from caliope.clinical._databases import features
from caliope.io._table import read_table

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

Padding = Literal["repeat", "zeros"]

ACTION_NAMES = tuple(f"fluid {a // 5}, vasopressor {a % 5}" for a in range(25))
_KEPT = (
    "SOFA",
    "iv_level",
    "vaso_level",
    "max_dose_vaso",
    "input_4hourly",
    "never_vasopressor",
    "training",
    "died",
)
# Number of rows among which a neighbour is searched, as in the public code.
_CHUNK = 10_000
# Share of gaps below which a column is interpolated.
_SELDOM_MISSING = 0.05


@dataclass(frozen=True, eq=False)
class Normalisation:
    r"""The three scales of Raghu et al. (2017), fitted on training rows only.

    Binary features become -0.5 and 0.5; most others :math:`(x - m) / s`; those with a long tail (enzymes,
    urine, the time) :math:`(\log(0.1 + x) - m) / s`.
    """

    logarithmic: Bool  # (d,)
    centre: Float  # (d,)
    spread: Float  # (d,)

    @classmethod
    def fit(cls, states: Float, training: Bool) -> Normalisation:
        """Fit centre and spread of each of the 48 features on the rows of training patients."""
        if not training.any():
            raise ValueError("no row belongs to a training patient: raise train_share or change the seed.")
        kinds = np.array([kind for _, kind in features()])
        logarithmic = kinds == "log"
        rows = _take_logs(states[training], logarithmic)
        centre, spread = rows.mean(axis=0), rows.std(axis=0)
        # A feature that is constant in training is centred and not scaled.
        spread = np.where(spread > 0, spread, 1.0)
        binary = kinds == "binary"
        return cls(logarithmic, np.where(binary, 0.5, centre), np.where(binary, 1.0, spread))

    def apply(self, states: Float) -> Float:
        """States on the common scale, (N, d)."""
        scaled: Float = (_take_logs(states, self.logarithmic) - self.centre) / self.spread
        return scaled


def _take_logs(states: Float, logarithmic: Bool) -> Float:
    out = np.array(states, dtype=np.float64)
    out[:, logarithmic] = np.log(0.1 + out[:, logarithmic])
    return out


def _encode_levels(actions: Int) -> Float:
    return np.stack([actions // 5, actions % 5], axis=1).astype(np.float64)


def _encode_nothing(actions: Int) -> Float:
    return np.empty((len(actions), 0))


def to_trajectories(
    rows: pl.DataFrame,
    *,
    history: int = 0,
    past_actions: bool = True,
    normalise: bool = True,
    padding: Padding = "repeat",
) -> Trajectories:
    """Make trajectories of a cohort table: one per stay, with 25 actions and SOFA in points as a column.

    Parameters
    ----------
    rows : polars.DataFrame
        One row per decision, as in ``Cohort.rows``.
    history : int
        Number of earlier steps in every state. With 3 a state has 48 + 3 x (48 + 2) = 198 columns, as in Raghu et al.
        (2018).
    past_actions : bool
        Whether the earlier steps hold the levels of both drugs.
    normalise : bool
        Scale the features as in Raghu et al. (2017), with means and spreads of the training patients.
    padding : {"repeat", "zeros"}
        State before the first step: the first state again, or zeros. After normalisation zero is the mean of the
        training patients.

    Returns
    -------
    Trajectories
        With the columns SOFA, doses, levels, ``training`` and ``died``.

    Examples
    --------
    >>> data = to_trajectories(pl.read_parquet("cohort.parquet"), history=3)  # doctest: +SKIP
    """
    if padding not in ("repeat", "zeros"):
        raise ValueError(f"padding must be repeat or zeros, got {padding!r}.")
    if history < 0:
        raise ValueError(f"history must be 0 or more, got {history}.")
    names = [name for name, _ in features()]
    data = read_table(
        rows.select("icustay_id", *names, *(name for name in _KEPT if name not in names), "action", "reward"),
        episode="icustay_id",
        time="bloc",
        states=names,
        action="action",
        reward="reward",
        keep=_KEPT,
        n_actions=25,
    ).replace(action_names=ACTION_NAMES, unit="stay")
    if normalise:
        scale = Normalisation.fit(data.states, np.asarray(data["training"], dtype=bool))
        data = data.replace(states=scale.apply(data.states))
    if history == 0:
        return data
    stacked = stack_history(
        data, history, action_features=_encode_levels if past_actions else _encode_nothing
    )
    return stacked if padding == "repeat" else _zero_padding(stacked, history)


def _zero_padding(stacked: Trajectories, history: int) -> Trajectories:
    """Replace the repeated first states by zeros."""
    states, n_present = stacked.states.copy(), len(features())
    width = (states.shape[1] - n_present) // history
    for lag in range(1, history + 1):
        start = n_present + (lag - 1) * width
        states[stacked.layout.time < lag, start : start + width] = 0.0
    return stacked.replace(states=states)


def interpolate_down(column: Float) -> Float:
    """Fill gaps on a straight line between the rows above and below, even those of other patients.

    Examples
    --------
    >>> interpolate_down(np.array([np.nan, 1.0, np.nan, 3.0, np.nan]))
    array([nan,  1.,  2.,  3., nan])
    """
    present = np.flatnonzero(np.isfinite(column))
    if len(present) == 0:
        return column
    inside = np.arange(present[0], present[-1] + 1)
    filled = column.copy()
    filled[inside] = np.interp(inside, present, column[present])
    return filled


def fill_from_nearest_row(values: Float) -> Float:
    """Fill each gap from the nearest row that has the value, by Euclidean distance of standardised columns.

    Rows are searched in chunks of 10,000, as in the public code. A column without any value stays empty.
    """
    from sklearn.impute import KNNImputer

    out = values.copy()
    for start in range(0, len(values), _CHUNK):
        part = values[start : start + _CHUNK]
        some = np.isfinite(part).any(axis=0)
        centre = np.nanmean(part[:, some], axis=0)
        spread = np.nanstd(part[:, some], axis=0)
        spread[spread == 0] = 1.0
        filled = KNNImputer(n_neighbors=1).fit_transform((part[:, some] - centre) / spread)
        gaps = ~np.isfinite(part[:, some])
        out[start : start + _CHUNK, some] = np.where(gaps, filled * spread + centre, part[:, some])
    return out


def impute_as_published(connection: DuckDBPyConnection) -> None:
    """Fill the gaps of ``step_states`` as the public code does, for comparison only.

    Columns with few gaps are interpolated; the others are filled from the nearest row. Both use the future and other
    patients.
    """
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
    for j in np.flatnonzero((missing > 0) & (missing < _SELDOM_MISSING)):
        values[:, j] = interpolate_down(values[:, j])
    filled = pl.DataFrame(fill_from_nearest_row(values), schema=measured, nan_to_null=True)
    connection.register("filled_rows", rows.select("icustay_id", "step").hstack(filled))
    merged = ", ".join(f"coalesce(f.{name}, s.{name}) AS {name}" for name in measured)
    connection.execute(
        f"CREATE OR REPLACE TABLE step_states AS SELECT s.icustay_id, s.step, s.mechvent, {merged} "
        "FROM step_states s LEFT JOIN filled_rows f USING (icustay_id, step)"
    )
    connection.unregister("filled_rows")
