"""What may enter: every check on logged arrays, made once, where they come in."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caliope._columns import holds_everywhere
from caliope._ragged import Bool, Float, Int, read_only

_CHUNK = 1 << 22  # entries looked at together, so that checking a large table needs no second one
_DOSES = (
    "If these are doses, cut them into levels: levels=4 takes quantiles of the positive ones with 0 apart, cuts=[0, "
    "50] your own points (read_table; --levels, --cuts)."
)
FEW_ACTIONS = 10  # up to this largest code, gaps say nothing


class ActionCountError(ValueError):
    """The log has other actions than their number says."""


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
        raise TypeError(f"states must be numbers, got {given.dtype}; read_table encodes other columns.")
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


def as_action_names(names: Sequence[str] | None, n_actions: int) -> tuple[str, ...] | None:
    """Return one different name per action, or None where the actions have none."""
    if names is None:
        return None
    if not isinstance(names, list | tuple | np.ndarray) or not all(isinstance(name, str) for name in names):
        raise TypeError(
            f"action_names must be a list of texts in the order of the actions 0, 1, ..., got {names!r}."
        )
    if not all(name.strip() for name in names):
        raise ValueError("action_names must not be empty: give every action a name.")
    if len(names) != n_actions or len(set(names)) != n_actions:
        raise ValueError(
            f"action_names must be {n_actions} different names, one per action, got {len(names)} "
            f"({len(set(names))} different)."
        )
    return tuple(str(name) for name in names)


def as_calendar(calendar: ArrayLike | None, ids: NDArray[Any]) -> Float:
    """Return when each trajectory began as numbers, datetimes as days since 1970; by default 0, 1, ..., (n,)."""
    if calendar is None:
        return np.arange(len(ids), dtype=np.float64)
    given = unmasked("calendar", calendar)
    check_length("calendar", given, len(ids), "trajectories")
    if given.dtype.kind not in "fiubM":
        raise TypeError(
            f"calendar must hold numbers or datetimes, got {given.dtype}: turn its dates into numpy.datetime64."
        )
    if given.dtype.kind == "M":
        moments = (given - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    else:
        moments = given.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(moments))
    if len(bad):
        raise ValueError(
            f"calendar: {len(bad)} of {len(ids)} trajectories have no finite moment (first: trajectory "
            f"{ids[bad[0]]}). Fill in when it began, or leave the calendar out: then the order of the log counts."
        )
    return moments


def as_unit(unit: str) -> str:
    """Return the word for one trajectory."""
    if not isinstance(unit, str):
        raise TypeError(f"unit must be text, such as 'visit', got {type(unit).__name__}.")
    if not unit.strip():
        raise ValueError("unit must be a word for one trajectory, such as 'visit', got an empty text.")
    return singular(unit.strip())


# Words that end like a plural and are none.
_SINGULAR = ("series", "species", "lens", "gas", "atlas", "canvas", "alias", "bias", "news")


def singular(word: str) -> str:
    """Return the singular of a regular English noun, whichever of the two was given.

    >>> [singular(word) for word in ("visits", "visit", "studies", "matches", "process", "bus", "series")]
    ['visit', 'visit', 'study', 'match', 'process', 'bus', 'series']
    """
    if word.lower().endswith((*_SINGULAR, "ss", "us", "is")) or not word.endswith("s"):
        return word
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(("ches", "shes", "sses", "xes", "zes")) else word[:-1]


def as_actions(
    actions: NDArray[Any], n_actions: int | None, where: Callable[[int], str], *, name: str = "actions"
) -> tuple[Int, int]:
    """Return actions as int64 and their number; refuse what is no action code.

    ``where`` names the place of a row and ``name`` the array, for messages.
    """
    codes = as_action_codes(actions, where, name=name)
    low, high = int(codes.min()), int(codes.max())
    count = high + 1 if n_actions is None else _as_count(n_actions)
    if n_actions is None:
        refuse_sparse(codes, where, name=name)
    if low == 1 and n_actions in (None, high):
        unless = "" if n_actions else f"; if action 0 exists and was never taken, say n_actions={high + 1}"
        raise ValueError(
            f"{name}: none of {len(codes)} rows holds action 0, they run from 1 to {high} "
            f"(first: {codes[0]} in {where(0)}). Actions are numbered from 0: subtract 1{unless}.{_as_levels(codes)}"
        )
    refuse_beyond(codes, count, where, name=name)
    return codes, count


def as_action_codes(values: NDArray[Any], where: Callable[[int], str], *, name: str) -> Int:
    """Return action codes as int64; refuse what is no whole number from 0."""
    if values.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must be whole numbers from 0, got {values.dtype}. read_table takes words, and keeps their names."
        )
    # NaN is caught here too: it is not equal to its own floor. Past 2**53 floats skip whole numbers.
    fits = (values >= 0) & (values <= 2**53)
    if values.dtype.kind == "f":
        fits &= values == np.floor(values)
    bad = np.flatnonzero(~fits)
    if len(bad):
        doses = bool((np.isfinite(values[bad]) & (values[bad] != np.floor(values[bad]))).any())
        raise ValueError(
            f"{name}: {len(bad)} of {len(values)} rows hold no whole number from 0 (first: {values[bad[0]]:.15g} in "
            f"{where(int(bad[0]))}). {_DOSES if doses else 'Number the actions 0, 1, 2, ...; none may be missing.'}"
            f"{'' if doses or not np.isfinite(values).all() else _as_levels(values)}"
        )
    return values.astype(np.int64, copy=False)


def _as_levels(codes: NDArray[Any]) -> str:
    """How a table with few codes is read as it is."""
    found = np.unique(codes)
    if not 2 <= len(found) <= FEW_ACTIONS:
        return ""
    points = [f"{x:g}" for x in found[:-1]]
    return f" A table is read as it is with cuts=[{', '.join(points)}] (--cuts={','.join(points)}): a level for each."


def refuse_sparse(codes: Int, where: Callable[[int], str], *, name: str, logged: Int | None = None) -> None:
    """Raise when the largest action looks like a code for something else, such as 999 for a missing one.

    ``logged``: further codes that are known to be actions.
    """
    high = int(codes.max())
    known = codes if logged is None else np.concatenate([codes, logged[logged <= high]])
    # More numbers than twice the rows: fewer than half occur, whatever they are.
    used = len(known) if high >= 2 * len(known) else np.count_nonzero(np.bincount(known))
    if high < FEW_ACTIONS or 2 * used >= high + 1:
        return
    found = np.flatnonzero(codes == high)
    raise ValueError(
        f"{name}: fewer than half of the actions 0 to {high} occur; the largest, {high}, stands in {len(found)} of "
        f"{len(codes)} rows (first: {where(int(found[0]))}). If it is a code, such as 999 for a missing action, "
        f"correct it; if there are so many actions, say n_actions={high + 1}; if they are doses, cut them with levels= "
        "or cuts= (--levels, --cuts)."
    )


def refuse_beyond(codes: Int, count: int, where: Callable[[int], str], *, name: str) -> None:
    """Raise when a code is not below the number of actions."""
    beyond = np.flatnonzero(codes >= count)
    if len(beyond):
        levels = _as_levels(codes) if len(np.unique(codes)) == count else ""
        raise ActionCountError(
            f"{name}: {len(beyond)} of {len(codes)} rows hold an action beyond n_actions={count} (first: "
            f"{codes[beyond[0]]} in {where(int(beyond[0]))}). There are {count} actions, 0 to {count - 1}. "
            f"Correct the column, or the number of actions.{levels}"
        )


def _as_count(n_actions: Any) -> int:
    try:
        return operator.index(n_actions)
    except TypeError:
        raise TypeError(f"n_actions must be a whole number, got {n_actions!r}.") from None


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


def as_step_column(name: str, values: ArrayLike, n_steps: int) -> Float:
    """Return finite numbers, one per step, (N,)."""
    column = np.asarray(unmasked(name, values), dtype=np.float64)
    if column.shape != (n_steps,):
        raise ValueError(f"{name} must have shape ({n_steps},), one for each step, got {column.shape}.")
    if not holds_everywhere(np.isfinite, column):
        bad = np.flatnonzero(~np.isfinite(column))
        raise ValueError(
            f"{name} must be finite; {len(bad)} are not (first: {column[bad[0]]} at step {bad[0]})."
        )
    return read_only(column)


def as_log_ratio(name: str, values: ArrayLike, n_steps: int) -> Float:
    """Return logarithms of ratios or weights, one per step, (N,): finite, or -inf."""
    column = np.asarray(unmasked(name, values), dtype=np.float64)
    if column.shape != (n_steps,):
        raise ValueError(f"{name} must have shape ({n_steps},), one for each step, got {column.shape}.")
    if not holds_everywhere(lambda x: x < np.inf, column):
        bad = np.flatnonzero(~(column < np.inf))
        reason = (
            " +inf or nan means that the behaviour policy gives probability 0 to an action that was taken."
        )
        raise ValueError(
            f"{name} must be finite or -inf; {len(bad)} are not (first: {column[bad[0]]} at step {bad[0]})."
            + (reason if name == "log_ratio" else "")
        )
    return read_only(column)
