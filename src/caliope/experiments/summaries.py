"""Means and spreads over seeds; what is missing stays missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


def _there(x: Any) -> Float:
    given = np.asarray(x, dtype=np.float64).ravel()
    return given[~np.isnan(given)]
