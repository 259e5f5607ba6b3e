"""What a log holds: trajectories, lengths, outcome, actions and state columns with their gaps; the "table 1"."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from caliope._ragged import Float, Int
from caliope._results import finite
from caliope._trajectories import Trajectories

_LISTED = 6  # levels of a category that are spelt out


@dataclass(frozen=True)
class Spread:
    """How numbers are spread.

    Attributes
    ----------
    mean, sd : float
        Mean and standard deviation.
    low, quarter, median, three_quarters, high : float
        Smallest, quartiles, largest.
    """

    mean: float
    sd: float
    low: float
    quarter: float
    median: float
    three_quarters: float
    high: float

    @classmethod
    def of(cls, values: Any) -> Spread:
        """That of one number or more."""
        x = np.asarray(values, dtype=np.float64)
        return cls(float(x.mean()), float(x.std()), *np.quantile(x, (0, 0.25, 0.5, 0.75, 1)).tolist())

    @property
    def text(self) -> str:
        """Median, quartiles and range, in words."""
        quartiles = f"{self.quarter:.4g} to {self.three_quarters:.4g}"
        return f"median {self.median:.4g} ({quartiles}), range {self.low:.4g} to {self.high:.4g}"

    def to_dict(self) -> dict[str, float | None]:
        """Plain values for JSON; what is not finite becomes None."""
        return {name: finite(x) for name, x in asdict(self).items()}


@dataclass(frozen=True)
class ActionContents:
    """How often an action was taken.

    Attributes
    ----------
    name : str
        The action.
    decisions, trajectories : int
        Decisions that took it, and trajectories with at least one of them.
    """

    name: str
    decisions: int
    trajectories: int


@dataclass(frozen=True)
class ColumnContents:
    """A column of the states, at the first decision of each trajectory.

    Attributes
    ----------
    name : str
        The column.
    spread : Spread or None
        Of its known values; None for a category, and where none is known.
    levels : tuple of (str, float)
        Levels of a category, or 0 and 1, with their share of the known values, the largest first.
    unknown : int
        First decisions without a value.
    gaps, carried : int
        All decisions without a value; those that were filled by the last value before. The others became 0.
    """

    name: str
    spread: Spread | None = None
    levels: tuple[tuple[str, float], ...] = ()
    unknown: int = 0
    gaps: int = 0
    carried: int = 0

    @property
    def text(self) -> str:
        """The values, in words."""
        if self.spread is not None:
            return self.spread.text
        more = len(self.levels) - _LISTED
        shown = ", ".join(f"{name}: {share:.1%}" for name, share in self.levels[:_LISTED])
        return f"{shown}, {more} more" if more > 0 else shown or "none known"

    @property
    def filled(self) -> str:
        """How gaps were filled, in words; empty without any."""
        parts = [f"{self.carried} by the last value before"] * bool(self.carried)
        parts += [f"{self.gaps - self.carried} by 0, with an indicator"] * bool(self.gaps > self.carried)
        return ", ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        spread = None if self.spread is None else self.spread.to_dict()
        return asdict(self) | {"spread": spread, "levels": dict(self.levels)}


@dataclass(frozen=True)
class LogContents:
    """What a log holds; its size does not grow with the log.

    Attributes
    ----------
    trajectories, decisions : int
        How many.
    clusters : int or None
        Groups of trajectories that hang together, where they were named.
    cut_off : int or None
        Trajectories that were cut off before they ended; None where nobody said.
    lengths : Spread
        Of the decisions per trajectory.
    outcome : Spread
        Of the discounted sums of rewards of the trajectories.
    rate : float or None
        The share of trajectories with the outcome 1, where all have 0 or 1.
    rewarded : float
        The share of the decisions with a reward other than 0.
    actions : tuple of ActionContents
        In the order of their codes.
    columns : tuple of ColumnContents
        The recorded columns of the states.
    """

    trajectories: int
    decisions: int
    clusters: int | None
    cut_off: int | None
    lengths: Spread
    outcome: Spread
    rate: float | None
    rewarded: float
    actions: tuple[ActionContents, ...]
    columns: tuple[ColumnContents, ...]

    @property
    def with_gaps(self) -> tuple[ColumnContents, ...]:
        """The columns that have gaps."""
        return tuple(column for column in self.columns if column.gaps)

    def __repr__(self) -> str:
        return (
            f"LogContents({self.trajectories} trajectories, {self.decisions} decisions, {len(self.actions)} actions, "
            f"{len(self.columns)} columns, {len(self.with_gaps)} with gaps)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "trajectories": self.trajectories,
            "decisions": self.decisions,
            "clusters": self.clusters,
            "cut_off": self.cut_off,
            "lengths": self.lengths.to_dict(),
            "outcome": self.outcome.to_dict(),
            "rate": self.rate,
            "rewarded": self.rewarded,
            "actions": [asdict(each) for each in self.actions],
            "columns": [each.to_dict() for each in self.columns],
        }


def describe_log(data: Trajectories, *, gamma: float) -> LogContents:
    """Count what a log holds.

    Parameters
    ----------
    data : Trajectories
        The log.
    gamma : float
        Discount of the rewards.

    Returns
    -------
    LogContents
        The counts.
    """
    returns = data.returns(gamma)
    binary = bool(np.isin(returns, (0.0, 1.0)).all())
    return LogContents(
        trajectories=len(data),
        decisions=data.n_steps,
        clusters=None if data.layout.cluster is None else data.layout.n_units,
        cut_off=int((~data.terminated).sum()) if data.ends_stated else None,
        lengths=Spread.of(data.lengths),
        outcome=Spread.of(returns),
        rate=float(returns.mean()) if binary else None,
        rewarded=float(np.count_nonzero(data.rewards) / data.n_steps),
        actions=_actions(data),
        columns=tuple(_columns(data)),
    )


def _actions(data: Trajectories) -> tuple[ActionContents, ...]:
    decisions = np.bincount(data.actions, minlength=data.n_actions)
    taken = np.zeros((len(data), data.n_actions), dtype=bool)
    taken[np.repeat(np.arange(len(data)), data.lengths), data.actions] = True
    names = data.action_names or [str(code) for code in range(data.n_actions)]
    return tuple(
        ActionContents(str(name), int(steps), int(some))
        for name, steps, some in zip(names, decisions, taken.sum(axis=0), strict=True)
    )


def _columns(data: Trajectories) -> Iterator[ColumnContents]:
    """Each recorded column; of a table that was encoded, from its features."""
    encoder = data.encoder
    if encoder is None or encoder.feature_names != data.feature_names:
        for j, name in enumerate(data.feature_names):
            yield ColumnContents(name, *_summary(data.states[data.offsets[:-1], j]))
        return
    start = 0
    for column in encoder.columns:
        end = start + len(column.features)
        yield _encoded(column, data.states[:, start:end], data.offsets[:-1])
        start = end


def _encoded(column: Any, x: Float, first: Int) -> ColumnContents:
    """A column of the table from its features: values, what says that there is none, and that there was none yet."""
    width = len(column.values)
    beginnings = np.asarray(x[first], dtype=np.float64)
    known = np.ones(len(first), dtype=bool) if width == x.shape[1] else beginnings[:, width] == 0
    values = beginnings[known]
    spread, levels = (None, _levels(values, column)) if column.levels else _summary(values[:, 0])
    gaps, unseen = (int(np.count_nonzero(x[:, j])) if j < x.shape[1] else 0 for j in (width, width + 1))
    if x.shape[1] < width + 2 and column.unseen:
        unseen = gaps  # none of them had a value before
    return ColumnContents(column.name, spread, levels, int((~known).sum()), gaps, gaps - unseen)


def _summary(x: Float) -> tuple[Spread | None, tuple[tuple[str, float], ...]]:
    """The spread of numbers; the shares of 0 and 1 where there is nothing else."""
    if not len(x):
        return None, ()
    if np.isin(x, (0.0, 1.0)).all():
        share = float(x.mean())
        return None, tuple(sorted((("0", 1 - share), ("1", share)), key=lambda row: -row[1]))
    return Spread.of(x), ()


def _levels(x: Float, column: Any) -> tuple[tuple[str, float], ...]:
    """Shares of the levels of a category, from its features; of two levels the first has no feature."""
    if not len(x):
        return ()
    names = [*column.levels, *([column.pool] if column.pooled else [])]
    shares = x[:, : len(column.values)].mean(axis=0).tolist()
    if len(shares) < len(names):
        shares = [1 - sum(shares), *shares]
    return tuple(sorted(zip(names, shares, strict=True), key=lambda row: -row[1]))
