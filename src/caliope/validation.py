"""What may enter: every check on logged arrays, made once, where they come in."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caliope.ragged import Bool, Float, Int, read_only

_CHUNK = 1 << 22  # entries looked at together, so that checking a large table needs no second one


def check_gamma(gamma: Any) -> None:
    """Raise unless the discount lies in [0, 1]."""
    if not isinstance(gamma, int | float | np.number) or not 0 <= gamma <= 1:
        raise ValueError(f"gamma must lie in [0, 1], got {gamma}.")


@dataclass(frozen=True)
class Locator:
    """Finds the trajectory that a row belongs to, for messages."""

    offsets: Int
    ids: NDArray[Any]

    def __call__(self, row: int) -> str:
        """Name the trajectory and step of a row."""
        i = int(np.searchsorted(self.offsets, row, side="right")) - 1
        return f"trajectory {self.ids[i]}, step {row - self.offsets[i]}"


def unmasked(name: str, x: ArrayLike) -> NDArray[Any]:
    """Return an array, or raise for one that hides values behind a mask."""
    if np.ma.is_masked(x):
        raise ValueError(
            f"{name} has masked entries. Impute or drop them before loading; Caliope never guesses."
        )
    return np.asarray(x)


def check_length(name: str, x: NDArray[Any], expected: int, of: str) -> None:
    """Raise unless an array has one entry for each."""
    if x.shape != (expected,):
        raise ValueError(f"{name} must have shape ({expected},), one for each of the {of}, got {x.shape}.")


def check_finite(name: str, x: NDArray[Any], where: Locator) -> None:
    """Raise unless an array holds finite numbers; name the first that is not."""
    if x.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be numbers, got {x.dtype}.")
    bad = np.flatnonzero(~np.isfinite(x))
    if len(bad):
        raise ValueError(
            f"{name}: {len(bad)} of {len(x)} values are NaN or infinite "
            f"(first: {x[bad[0]]} in {where(int(bad[0]))}). "
            "Impute or drop them before loading; Caliope never guesses a missing value."
        )


def check_states(states: Float, names: tuple[str, ...], where: Locator) -> None:
    """Raise unless all features are finite; name the feature and the first value that is not."""
    rows = max(1, _CHUNK // states.shape[1])
    if all(np.isfinite(states[start : start + rows]).all() for start in range(0, len(states), rows)):
        return
    for name, column in zip(names, states.T, strict=True):
        check_finite(f"state feature {name!r}", column, where)


def as_states(states: ArrayLike) -> Float:
    """Return states as a table of floats, (N, d)."""
    given = unmasked("states", states)
    if given.ndim == 1:
        given = given[:, None]
    if given.ndim != 2 or given.shape[1] == 0:
        raise ValueError(f"states must have shape (N, d) with d >= 1, got {given.shape}.")
    if given.dtype.kind not in "fiub":
        raise TypeError(f"states must be numbers, got {given.dtype}; encode other columns first.")
    return given if given.dtype in (np.float32, np.float64) else given.astype(np.float64)


def as_names(names: Iterable[str] | None, d: int) -> tuple[str, ...]:
    """Return d different names for the features."""
    if names is None:
        return tuple(f"x{j}" for j in range(d))
    found = tuple(names)
    if len(found) != d or len(set(found)) != d:
        raise ValueError(
            f"feature_names must be {d} different names, one for each state column, got {found}."
        )
    return found


def as_actions(actions: NDArray[Any], n_actions: int | None, where: Locator) -> tuple[Int, int]:
    """Return actions as int64 and their number; refuse what is no action number."""
    if actions.dtype.kind not in "fiub":
        raise TypeError(
            f"actions must be whole numbers from 0, got {actions.dtype}. Code them first, e.g. with numpy.unique."
        )
    if actions.dtype.kind == "f":
        # NaN is caught here too: it is not equal to its own floor.
        fractional = np.flatnonzero(~(np.isfinite(actions) & (actions == np.floor(actions))))
        _raise_for("actions must be whole numbers", fractional, actions, where)
    low, high = actions.min(), actions.max()
    _raise_for("actions must not be negative", np.flatnonzero(actions < 0), actions, where)
    if high >= 2**31:
        _raise_for(
            "actions must be numbered from 0 without large gaps",
            np.flatnonzero(actions >= 2**31),
            actions,
            where,
        )
    count = int(high) + 1 if n_actions is None else _as_count(n_actions)
    if low == 1 and high == count and n_actions is not None:
        raise ValueError(
            f"actions run from 1 to {int(high)}, but the {count} actions are numbered 0 to {count - 1}: subtract 1."
        )
    if low == 1 and n_actions is None:
        raise ValueError(
            f"no action 0 was logged: actions run from 1 to {int(high)}. If they are numbered from 1, subtract 1; "
            f"if action 0 exists and was never taken, say so with n_actions={int(high) + 1}."
        )
    if n_actions is None and high >= 10 and 2 * len(np.unique(actions)) < count:
        raise ValueError(
            f"actions go up to {int(high)}, but only {len(np.unique(actions))} different ones were logged: is "
            f"{int(high)} a code for something missing? If there are that many, say n_actions={count}."
        )
    beyond = np.flatnonzero(actions >= count)
    _raise_for(f"actions must lie below n_actions={count}", beyond, actions, where)
    return actions.astype(np.int64, copy=False), count


def _as_count(n_actions: Any) -> int:
    try:
        return operator.index(n_actions)
    except TypeError:
        raise TypeError(f"n_actions must be a whole number, got {n_actions!r}.") from None


def _raise_for(rule: str, bad: Int, values: NDArray[Any], where: Locator) -> None:
    if len(bad):
        row = int(bad[0])
        raise ValueError(f"{rule}; {len(bad)} do not fit (first: {values[row]} in {where(row)}).")


def as_terminated(terminated: ArrayLike | None, n: int) -> Bool:
    """Return whether each trajectory ended, (n,); by default all did."""
    if terminated is None:
        return np.ones(n, dtype=bool)
    given = np.asarray(terminated)
    check_length("terminated", given, n, "trajectories")
    if given.dtype != bool and not np.isin(given, (0, 1)).all():
        raise ValueError("terminated must hold True or False for each trajectory.")
    return given.astype(bool, copy=False)


def as_columns(columns: Mapping[str, ArrayLike] | None, n_steps: int) -> Mapping[str, NDArray[Any]]:
    """Return the extra columns as read-only arrays, (N,) each."""
    arrays = {name: np.asarray(column) for name, column in (columns or {}).items()}
    for name, column in arrays.items():
        check_length(f"column {name!r}", column, n_steps, "steps")
    return MappingProxyType({name: read_only(column) for name, column in arrays.items()})
