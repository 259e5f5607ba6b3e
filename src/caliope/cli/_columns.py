"""From a study to its log: the columns that are read, the states that are inferred, and the strata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from caliope._trajectories import Trajectories
from caliope._validation import ActionCountError
from caliope.behaviour._models import POOL
from caliope.behaviour._saving import load_model
from caliope.calibration._scores import MISSING, name_ranges
from caliope.cli._by_name import in_order_of_actions
from caliope.cli._config import MODELS, Study, show_settings
from caliope.cli._guess import Guess, Known, guess_states, sample_size
from caliope.cli._kinds import ROW, list_names, parse_cuts, split_names
from caliope.cli._targets import each_target
from caliope.io._source import column_types, first_rows
from caliope.io._table import read_table
from caliope.io._written import number_form

ALL, NO = "all", "no"  # answers that name no column
# Above these the squares of rewards are infinite, and trees cannot hold the states.
_HUGE_REWARD, _HUGE_STATE = 1e100, 1e38
_FEW_VALUES = 8  # a numeric column with more is cut into quarters
_MOST_STRATA = 30


@dataclass(frozen=True)
class ReadLog:
    """The log of a study, and how it was read."""

    data: Trajectories
    settings: Mapping[str, str]  # setting -> what was read, in words
    inferred: tuple[str, ...]  # the settings that were not given, and what was found out about the table


def read_log(study: Study, *, quiet: bool = False) -> ReadLog:
    """Read the table of a study with the columns that it names, and infer the others."""
    refuse_models(study)
    named, guess, encoder = name_columns(study, quiet=quiet)
    try:
        data = read_table(files_of(named), **reading_options(named, encoder)).replace(unit=named.unit)
    except ActionCountError as error:
        if named.n_actions is not None or not _columns_per_action(named):
            raise
        named_targets = any(each.target_columns for each in each_target(named).values())
        option = "--target-columns" if named_targets else "--propensity"
        raise ValueError(
            f"{option} names {_columns_per_action(named)} columns, one per action, but the log has more or "
            f"other actions: {error}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{error}{_of_defaults(named, str(error))}") from None
    if named.ended == ALL:
        data = data.replace(terminated=np.ones(len(data), dtype=bool))
    _refuse_single(data)
    _refuse_huge(data)
    notes = inference_notes(study, named, guess) | data.encoder.describe()
    # In the order in which an audit works: it would else make a second copy.
    return ReadLog(data.in_fixed_order(), show_settings(named) | notes, tuple(notes))


# -- which columns --


def refuse_models(study: Study) -> None:
    """Raise for a behaviour model that nobody offers, before the log is read."""
    odd = [name for name in study.models if name not in (*MODELS, POOL)]
    if odd:
        raise ValueError(
            f"no behaviour model is called {', '.join(map(repr, odd))}: there are {', '.join(MODELS)}."
        )


def _of_defaults(study: Study, said: str) -> str:
    """Which options name the columns that are not there, where nobody named them."""
    usual = {"episode": study.episode, "action": study.action, "reward": study.reward}
    mine = [f"--{name}" for name, given in usual.items() if given == name and f" {name!r}" in said]
    return f" Name them with {', '.join(mine)}." if said.startswith("not a column") and mine else ""


def name_columns(study: Study, *, quiet: bool) -> tuple[Study, Guess | None, Any]:
    """The study with all columns named, how they were guessed, and the encoder of a saved policy."""
    models = (target_model(each) for each in each_target(study).values())
    encoder = next((x for model in models if (x := getattr(model, "encoder", None)) is not None), None)
    if encoder is not None and not study.states:
        study = replace(study, states=tuple(column.name for column in encoder.columns))
    return *_infer_columns(study, quiet=quiet), encoder


def files_of(study: Study) -> Any:
    """The files of the log."""
    return list(study.log) if isinstance(study.log, tuple) else study.log


def reading_options(study: Study, encoder: Any) -> dict[str, Any]:
    """How the log is read, as arguments of read_table."""
    actions = _action_columns(study)
    return {
        "episode": _episode_column(study),
        "action": actions,
        "reward": study.reward,
        "states": study.states,
        "time": study.time,
        "terminated": ended_column(study),
        "keep": _kept_columns(study),
        "cluster": study.cluster,
        "n_actions": study.n_actions or _columns_per_action(study) or None,
        "levels": study.levels,
        "cuts": None if study.cuts is None else parse_cuts(study.cuts, actions),
        "calendar": study.calendar,
        "encoder": encoder,
    }


def ended_column(study: Study) -> str | None:
    """The column that says which trajectories ended, under either of its names; None without one."""
    return study.terminated if study.ended in (None, ALL) else study.ended


def learnt_column(study: Study) -> str | None:
    """The column that marks what the target policy was learnt on; None without one."""
    return None if study.learnt_on in (None, NO) else study.learnt_on


def target_model(study: Study) -> Any:
    """The saved model of a study, loaded; None without one."""
    return None if study.model is None else load_model(study.model, trees=study.trust_trees)


def _columns_per_action(study: Study) -> int:
    """How many columns hold the probability of an action each; 0 where none do."""
    named = max(len(each.target_columns) for each in each_target(study).values())
    return named or (len(study.propensity) if len(study.propensity) > 1 else 0)


def _episode_column(study: Study) -> str | None:
    """The column of trajectories; None where each row is one, and no column is called row."""
    return None if study.episode == ROW and ROW not in column_types(study.log) else study.episode


def _action_columns(study: Study) -> tuple[str, ...]:
    """The columns of the action: one, or several separated by commas."""
    if "," not in study.action or study.action in column_types(study.log):
        return (study.action,)
    return split_names(study.action)


def recommended_columns(study: Study, actions: Sequence[str]) -> tuple[str, ...]:
    """The columns of the recommended action: as many as those of the action."""
    if study.recommended is None:
        return ()
    return (study.recommended,) if len(actions) == 1 else split_names(study.recommended)


def _infer_columns(study: Study, *, quiet: bool) -> tuple[Study, Guess | None]:
    """The study with a column of time, if there is one called so, and with states."""
    if study.time is not None and study.states and not study.ignore:
        return study, None
    types = column_types(study.log)
    _check_ignored(study, types)
    named = study
    single = study.episode == ROW and ROW not in types
    if study.time is None and not single and "time" in types and "time" not in (*study.states, *study.ignore):
        named = replace(named, time="time")
    if study.states:
        return named, None
    if quiet:
        raise ValueError(
            "the states are not named, and with --quiet nobody would see which columns are taken for them: name them "
            "with --states, or leave --quiet out."
        )
    guess = _guess(named, types)
    return replace(named, states=guess.states), guess


def _guess(study: Study, types: Mapping[str, Any]) -> Guess:
    actions = _action_columns(study)
    used = {study.episode, *actions, study.reward, study.time, ended_column(study), study.calendar}
    used |= {learnt_column(study), study.cluster, *study.propensity, *study.ignore}
    for each in each_target(study).values():
        used |= {*each.target_columns, *recommended_columns(each, actions)}
    known = Known(study.episode, actions, study.reward, frozenset(name for name in used if name is not None))
    guess = guess_states(first_rows(study.log, sample_size()), list(types), known)
    if not guess.states:
        raise ValueError(
            f"{show_settings(study)['log']} has no column left to describe the state"
            + (f" ({_reasons(guess)})" if guess.left_out else "")
            + ": name its columns with --states."
        )
    return guess


def _reasons(guess: Guess) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in guess.left_out.items():
        by_reason.setdefault(reason, []).append(name or "the one without a name")
    return "; ".join(f"{list_names(names)}: {reason}" for reason, names in by_reason.items())


def inference_notes(study: Study, named: Study, guess: Guess | None) -> dict[str, str]:
    """What was inferred, in words."""
    notes, shown = {}, show_settings(named)
    if study.time is None and study.episode != ROW:
        rows = "rows as they stand in the file"
        notes["time"] = rows if named.time is None else f"{shown['time']}, by its name"
        if guess is not None and guess.rising is not None and named.time is None:
            notes["time"] += f"; {guess.rising!r} rises in every trajectory and may be meant (--time)"
    if guess is not None:
        n = len(named.states)
        which = "the only column" if n == 1 else f"all {n} columns"
        notes["states"] = f"{which} not used otherwise: {shown['states']}"
        if guess.left_out:
            notes["left out of the states"] = _reasons(guess)
    return notes


def _check_ignored(study: Study, types: Mapping[str, Any]) -> None:
    """Raise for a column to be ignored that is not there, or has another role."""
    named = ("episode", "action", "reward", "time", "terminated", "ended", "learnt_on", "cluster")
    roles = {name: getattr(study, name) for name in named}
    for name in study.ignore:
        used = [role for role, column in roles.items() if column == name]
        if used:
            raise ValueError(
                f"column {name!r} is the {used[0]} and cannot be ignored: remove it from --ignore."
            )
        if name not in types:
            close = get_close_matches(name, [*types], n=1)
            hint = f" (close: {close[0]!r})" if close else ""
            raise ValueError(f"--ignore names a column {name!r}{hint} that {study.log} does not have.")


def _kept_columns(study: Study) -> tuple[str, ...]:
    stratum = None if study.by is None else study.by.partition(":")[0]
    names: tuple[str | None, ...] = (*study.propensity, stratum, learnt_column(study))
    for each in each_target(study).values():
        seen = tuple(map(str, getattr(target_model(each), "feature_names_in_", ())))
        there = column_types(study.log) if seen else {}
        names += (*each.target_columns, *(name for name in seen if name in there))  # what a policy looks at
        names = (*recommended_columns(each, _action_columns(study)), *names)
    return tuple(dict.fromkeys(name for name in names if name is not None))


# -- what they hold --


def _refuse_single(data: Trajectories) -> None:
    if len(data) < 2:
        raise ValueError(
            f"the log holds one trajectory, {data.ids[0]}, but models are fitted on some and judged on others: add the "
            "others, or name the column that tells trajectories apart with --episode."
        )


def _refuse_huge(data: Trajectories) -> None:
    """Raise where numbers are so large that nothing can be computed with them."""
    sizes = {"the reward": (float(np.abs(data.rewards).max()), _HUGE_REWARD)}
    states = np.abs(data.states).max(axis=0).tolist()
    sizes |= {name: (x, _HUGE_STATE) for name, x in zip(data.feature_names, states, strict=True)}
    for name, (size, limit) in sizes.items():
        if size > limit:
            raise ValueError(
                f"{name} reaches {size:.3g}, too large to compute with (above {limit:g}). Is it a code for a missing "
                "value, or another unit? Correct or rescale it."
            )


def place_of(data: Trajectories, row: int) -> str:
    """Name the trajectory and step of a row, for messages."""
    i = data.layout.owner[row]
    return f"trajectory {data.ids[i]}, step {row - data.offsets[i]}"


def numbers_of(data: Trajectories, name: str, what: str, *, gaps: bool = False) -> Any:
    """Return a column as finite numbers, (N,), with ``gaps`` also NaN."""
    try:
        values = np.asarray(data[name], dtype=np.float64)
    except (TypeError, ValueError):
        words = [str(x) for x in data[name] if isinstance(x, str)]
        form = number_form(sorted({*words})) if len(words) == data.n_steps else None
        if form is not None:
            return pl.Series(words).to_frame("x").select(form.number(pl.col("x"))).to_series().to_numpy()
        first = next((repr(x) for x in data[name] if not _is_number(x)), str(data[name].dtype))
        raise TypeError(f"column {name!r} ({what}) must hold numbers, but has {first}.") from None
    bad = np.flatnonzero(np.isinf(values) if gaps else ~np.isfinite(values))
    if len(bad):
        raise ValueError(
            f"column {name!r} ({what}): {len(bad)} of {len(values)} rows hold no finite number (first: "
            f"{place_of(data, int(bad[0]))}). Fill in or drop them."
        )
    return values


def propensities_of(study: Study, data: Trajectories) -> Any:
    """Return logged probabilities: of the actions taken, (N,), or of all, (N, A); None where the study names none."""
    if not study.propensity:
        return None
    names: Sequence[str] = study.propensity
    names = in_order_of_actions(names, data, "--propensity") if len(names) > 1 else names
    found = [numbers_of(data, name, "logged probability") for name in names]
    return found[0] if len(found) == 1 else np.column_stack(found)


# -- answers to what no log tells --


def learnt_on_of(study: Study, data: Trajectories) -> Any:
    """What the target policy was learnt on: None, "no", or a mask over trajectories, (n,)."""
    name = learnt_column(study)
    if name is None:
        return study.learnt_on
    values = numbers_of(data, name, "whether the policy was learnt on the row")
    bad = np.flatnonzero((values != 0) & (values != 1))
    if len(bad):
        raise ValueError(
            f"column {name!r} (--learnt-on): {len(bad)} of {len(values)} rows are neither true nor false (first: "
            f"{values[bad[0]]:g} in {place_of(data, int(bad[0]))}). Mark the rows that the policy was learnt on."
        )
    # A trajectory with one such row has shown its course to the learner.
    return data.layout.sum_steps(values) > 0


def recorded_before_of(study: Study) -> Any:
    """The states that were recorded before the decision: None, "all", or their names."""
    given = study.recorded_before
    return ALL if given == (ALL,) else given or None


# -- strata --


def strata_of(study: Study, data: Trajectories) -> Any:
    """Return a stratum per step, (N,): by the given limits, by the values themselves, or by quarters."""
    if study.by is None:
        return None
    name, colon, edges = study.by.partition(":")
    if colon:
        return _cut_at(data, name, _parse_edges(study.by, edges))
    values = np.asarray(data[name])
    if values.dtype.kind in "fiu" and len(np.unique(values)) > _FEW_VALUES:
        return _cut_into_quarters(values.astype(np.float64))
    labels = np.array([_label(x) for x in values], dtype=object)
    several = len(set(labels))
    if several > _MOST_STRATA:
        raise ValueError(
            f"column {name!r} has {several} different values, too many for strata (at most {_MOST_STRATA}): group "
            f"them, or give limits such as --by {name}:5,10."
        )
    return labels


def _cut_at(data: Trajectories, name: str, edges: Sequence[float]) -> Any:
    """Strata by given limits; what has no value is a stratum of its own."""
    values = numbers_of(data, name, "strata", gaps=True)
    known = np.isfinite(values)
    counts = bool((values[known] == np.round(values[known])).all() and (values[known] >= 0).all())
    names = np.array(name_ranges(np.array(edges), counts=counts), dtype=object)
    return np.where(known, names[np.searchsorted(edges, values, side="right")], MISSING)


def _parse_edges(by: str, text: str) -> list[float]:
    try:
        edges = [float(part) for part in text.split(",")]
    except ValueError:
        edges = []
    if not edges or not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise ValueError(f"the limits of strata must be rising numbers, as in --by age:40,65; got --by {by}.")
    return edges


def _cut_into_quarters(values: Any) -> Any:
    known = np.isfinite(values)
    cuts = np.unique(np.quantile(values[known], [0.25, 0.5, 0.75])) if known.any() else np.array([])
    names = [f"up to {cuts[0]:.4g}"] if len(cuts) else []
    names += [f"above {low:.4g} to {high:.4g}" for low, high in pairwise(cuts)]
    names += [f"above {cuts[-1]:.4g}"] if len(cuts) else ["all"]
    place = np.searchsorted(cuts, np.where(known, values, 0.0), side="left")
    return np.where(known, np.array(names, dtype=object)[place], MISSING)


def _label(x: Any) -> str:
    if x is None or (_is_number(x) and not np.isfinite(x)):
        return MISSING
    return f"{x:g}" if _is_number(x) else str(x)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.number) and not isinstance(x, bool | np.bool_)
