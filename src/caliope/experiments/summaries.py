"""Means and spreads over seeds; what is missing stays missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from caliope.ragged import Float


def column(rows: Iterable[Mapping[str, Any]], name: str) -> Float:
    """One entry of every row; nan where it is None."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def mean(x: Any) -> float | None:
    """Mean of the numbers that are there; None if there are none. Infinite ones count."""
    given = _there(x)
    return float(given.mean()) if len(given) else None


def sd(x: Any) -> float | None:
    """Standard deviation of the numbers that are there; None for fewer than two, or if one is infinite."""
    given = _there(x)
    return float(given.std(ddof=1)) if len(given) > 1 and np.isfinite(given).all() else None


def se(x: Any) -> float | None:
    """Standard error of the mean of the numbers that are there."""
    spread = sd(x)
    return None if spread is None else spread / float(np.sqrt(len(_there(x))))


def clustered_se(x: Any, groups: Sequence[Any]) -> float | None:
    r"""Standard error of the mean of numbers that come in groups: those of one group do not vary on their own.

    .. math:: \frac{1}{N} \sqrt{\frac{G}{G - 1} \sum_g \Big(\sum_{i \in g} (x_i - \bar x)\Big)^2}

    which for groups of one is the ordinary one. None for fewer than two groups, or if a number is infinite.
    """
    given = np.asarray(x, dtype=np.float64).ravel()
    kept = ~np.isnan(given)
    names = sorted({group for group, there in zip(groups, kept, strict=True) if there})
    if len(names) < 2 or not np.isfinite(given[kept]).all():
        return None
    off = given - given[kept].mean()
    sums = [
        sum(d for d, group, there in zip(off, groups, kept, strict=True) if there and group == name)
        for name in names
    ]
    spread = float(np.square(sums).sum()) * len(names) / (len(names) - 1)
    return float(np.sqrt(spread)) / int(kept.sum())


def _there(x: Any) -> Float:
    given = np.asarray(x, dtype=np.float64).ravel()
    return given[~np.isnan(given)]
