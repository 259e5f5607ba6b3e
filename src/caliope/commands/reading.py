"""From a study to a log: which columns are states, what else is carried along, and what was chosen on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import numpy as np

from caliope.calibration import severity_strata
from caliope.commands.study import Study
from caliope.io.roles import Roles
from caliope.io.sources import open_source
from caliope.io.tables import read_table
from caliope.trajectories import Trajectories

_HUGE_REWARD, _HUGE_STATE = (
    1e100,
    1e38,
)  # above, squares of rewards are infinite, and trees cannot hold states
_LISTED = 12  # names that a note spells out
_FEW_VALUES = 8  # a numeric column with more is cut into quarters
_MOST_STRATA = 30


@dataclass(frozen=True)
class ReadLog:
    """The log of a study, and how it was read."""

    data: Trajectories
    settings: Mapping[str, str]  # setting -> what was taken, in words
    guessed: tuple[str, ...]  # those of the settings that nobody gave


def read_log(study: Study) -> ReadLog:
    """Read the table of a study with the columns that it names, or those that it leaves to the table."""
    time, states = study.time, study.states
    if time is None or not states or study.ignore:
        types = _columns(study)
        _check_ignored(study, types)
        if time is None and "time" in types and "time" not in (*states, *study.ignore):
            time = "time"
        if not states:
            states = _numeric(study, types, time)
    data = read_table(
        study.log,
        episode=study.episode,
        action=study.action,
        reward=study.reward,
        states=states,
        time=time,
        terminated=study.terminated,
        keep=_kept(study),
        n_actions=study.n_actions or len(study.target_columns) or None,
    )
    _refuse_alone(data)
    _refuse_huge(data)
    guessed = {"order of the decisions": study.time is None, "states": not study.states}
    return ReadLog(data, _settings(study, time, states), tuple(name for name, so in guessed.items() if so))


def _settings(study: Study, time: str | None, states: tuple[str, ...]) -> dict[str, str]:
    """What was read as what, in words."""
    order = "the rows as they stand in the file" if time is None else f"column {time!r}"
    if study.time is None and time is not None:
        order += ", by its name"
    found = "" if study.states else f"all {len(states)} numeric columns not used otherwise: "
    said = {
        "log": study.log,
        "episode": f"column {study.episode!r}",
        "action": f"column {study.action!r}",
        "reward": f"column {study.reward!r}",
        "order of the decisions": order,
        "states": f"{found}{_listed(states)}",
        "ignored": _listed(study.ignore),
        "terminated": study.terminated and f"column {study.terminated!r}",
        "target": _target(study),
        "softened": study.soften and f"{study.soften:.4g} of the decisions are left to practice",
        "propensity": study.propensity and f"column {study.propensity!r}",
        "by": study.by,
    }
    return {name: text for name, text in said.items() if text}


def _target(study: Study) -> str | None:
    if study.target_columns:
        return f"columns {_listed(study.target_columns)}"
    if study.recommended is not None:
        return f"column {study.recommended!r}, one action a row"
    if study.model is not None:
        return f"model {study.model}"
    return study.policy and f"policy {study.policy}"


def _check_ignored(study: Study, types: Mapping[str, Any]) -> None:
    """Raise for a column to be ignored that is not there, or plays another part."""
    parts = {name: getattr(study, name) for name in ("episode", "action", "reward", "time", "terminated")}
    for name in study.ignore:
        used = [part for part, column in parts.items() if column == name]
        if used:
            raise ValueError(f"column {name!r} is the {used[0]} and cannot be ignored: take it off --ignore.")
        if name not in types:
            close = get_close_matches(name, [*types], n=1)
            hint = f" (close: {close[0]!r})" if close else ""
            raise ValueError(f"--ignore names a column {name!r}{hint} that {study.log} does not have.")


def _refuse_alone(data: Trajectories) -> None:
    if len(data) < 2:
        raise ValueError(
            f"the log holds one episode, {data.ids[0]}, and models are fitted on some and judged on others: bring the "
            "others, or name the column that tells the episodes apart with --episode."
        )


def _refuse_huge(data: Trajectories) -> None:
    """Raise where numbers are so large that nothing can be computed with them."""
    sizes = {"the reward": (float(np.abs(data.rewards).max()), _HUGE_REWARD)}
    states = np.abs(data.states).max(axis=0).tolist()
    sizes |= {name: (x, _HUGE_STATE) for name, x in zip(data.feature_names, states, strict=True)}
    for name, (size, limit) in sizes.items():
        if size > limit:
            raise ValueError(
                f"{name} reaches {size:.3g}, too large to compute with (above {limit:g}): a code for a missing value, "
                "or another unit? Correct or rescale it."
            )


def _columns(study: Study) -> Mapping[str, Any]:
    roles = Roles(study.episode, study.action, study.reward, (), None, None, ())
    return open_source(study.log, roles).columns


def _numeric(study: Study, types: Mapping[str, Any], time: str | None) -> tuple[str, ...]:
    used = {
        study.episode,
        study.action,
        study.reward,
        time,
        study.terminated,
        study.recommended,
        study.propensity,
    }
    used |= {*study.target_columns, *study.ignore}
    fit = [
        name
        for name, kinds in types.items()
        if name not in used and all(kind.is_numeric() or str(kind) == "Boolean" for kind in kinds)
    ]
    if not fit:
        raise ValueError(
            f"{study.log} has no numeric column left to describe the state: name its columns with --states, and code "
            "words as numbers."
        )
    return tuple(fit)


def _kept(study: Study) -> tuple[str, ...]:
    names = (study.recommended, study.propensity, stratum_column(study), *study.target_columns)
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"


def numbers_of(data: Trajectories, name: str, what: str) -> Any:
    """A column as finite numbers, (N,)."""
    try:
        values = np.asarray(data[name], dtype=np.float64)
    except (TypeError, ValueError):
        first = next((repr(x) for x in data[name] if not _is_number(x)), str(data[name].dtype))
        raise TypeError(
            f"column {name!r} ({what}) must hold numbers, but has {first}: code its words as numbers."
        ) from None
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        i = data.layout.owner[bad[0]]
        raise ValueError(
            f"column {name!r} ({what}): {len(bad)} of {len(values)} rows hold no finite number (first: episode "
            f"{data.ids[i]}, step {bad[0] - data.offsets[i]}). Fill in or drop them."
        )
    return values


def stratum_column(study: Study) -> str | None:
    """The column that parts the decisions into strata."""
    return None if study.by is None else study.by.partition(":")[0]


def strata_of(study: Study, data: Trajectories) -> Any:
    """A stratum for every step, (N,): by the given limits, by the values themselves, or by quarters."""
    if study.by is None:
        return None
    name, colon, edges = study.by.partition(":")
    if colon:
        return severity_strata(numbers_of(data, name, "strata"), _edges(study.by, edges))
    values = np.asarray(data[name])
    if values.dtype.kind in "fiu" and len(np.unique(values)) > _FEW_VALUES:
        return _quarters(values.astype(np.float64))
    labels = np.array(
        ["missing" if _missing(x) else f"{x:g}" if _is_number(x) else str(x) for x in values], dtype=object
    )
    several = len(set(labels))
    if several > _MOST_STRATA:
        raise ValueError(
            f"column {name!r} has {several} different values, too many for strata (at most {_MOST_STRATA}): group "
            "them, or give limits such as --by sofa:5,10,14."
        )
    return labels


def _edges(by: str, text: str) -> list[float]:
    try:
        edges = [float(part) for part in text.split(",")]
    except ValueError:
        edges = []
    if not edges or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise ValueError(
            f"the limits of strata must be rising numbers, as in --by sofa:5,10,14; got --by {by}."
        )
    return edges


def _quarters(values: Any) -> Any:
    known = np.isfinite(values)
    cuts = np.unique(np.quantile(values[known], [0.25, 0.5, 0.75])) if known.any() else np.array([])
    names = [f"up to {cuts[0]:.4g}"] if len(cuts) else []
    names += [f"above {low:.4g} to {high:.4g}" for low, high in pairwise(cuts)]
    names += [f"above {cuts[-1]:.4g}"] if len(cuts) else ["all"]
    place = np.searchsorted(cuts, np.where(known, values, 0.0), side="left")
    return np.where(known, np.array(names, dtype=object)[place], "missing")


def _missing(x: Any) -> bool:
    return x is None or (_is_number(x) and not np.isfinite(x))


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.number) and not isinstance(x, bool | np.bool_)
