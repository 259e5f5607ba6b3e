"""Sepsis cohorts that others have made: read by the names of their columns, with every decision told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from caliope.clinical.foreign_formats import (
    BLOC,
    CLOCK,
    DOSES,
    FEATURES,
    HINDSIGHT,
    OUTCOMES,
    STAY,
    Opened,
    open_file,
)
from caliope.clinical.foreign_values import (
    DoseCuts,
    Rewards,
    find_actions,
    find_gaps,
    is_standardised,
    read_ages,
    read_gender,
    shaped_rewards,
)
from caliope.io import read_table
from caliope.ragged import Float, Int
from caliope.results import Finding
from caliope.trajectories import Trajectories

N_ACTIONS = 25


@dataclass(frozen=True, eq=False)
class ForeignCohort:
    """A cohort that somebody else has made, and what had to be decided to read it."""

    data: Trajectories
    notes: tuple[Finding, ...]
    format: str

    def __str__(self) -> str:
        return "\n".join([f"{self.format}: {self.data!r}", *(f"  {note}" for note in self.notes)])


def read_cohort(
    path: str | Path,
    *,
    states: Sequence[str] | None = None,
    keep_doses: bool = False,
    outcome: str | None = None,
    rewards: Rewards | None = None,
    terminal: tuple[float, float] = (-15.0, 15.0),
    cuts: DoseCuts | None = None,
    refit_cuts: bool = False,
    first_action: int | None = None,
    next_window: bool = False,
) -> ForeignCohort:
    """Read a sepsis cohort in one of the forms in which it is passed around.

    Known are ``MIMICtable.csv`` of the AI Clinician (also with the older names ending in _tev), ``sepsis_final_data``
    of microsoft/mimic_sepsis (raw and standardised), ``mimic_dataset.csv``, ``MIMICraw.csv`` and ``MIMICzs.csv`` of
    cmudig/AI-Clinician-MIMICIV, of Raghu et al. ``discretised_input_data.csv``, ``rl_*_set_*`` and
    ``rl_*_data_final_cont.csv``, and the cohorts of :mod:`caliope.clinical`. They are told apart by the names of
    their columns, and columns are selected by name. Older names become the newer ones, and ``input_step``
    becomes ``input_4hourly``.

    Parameters
    ----------
    path : path
        CSV or Parquet.
    states : sequence of str, optional
        Columns that make the state, by their common names. By default those of the 48 of Raghu et al. (2017) that
        the file has; none of them is a dose.
    keep_doses : bool
        Add the dose columns of the file to the default state. They hold what was given in the very window whose
        action is to be predicted: a behaviour model will then look certain, and be useless.
    outcome : str, optional
        Column that is 1 for those who died; by default the first of died_in_hosp, mortality_90d, outcome and
        died_within_48h_of_out_time that the file has.
    rewards : {"terminal", "shaped", "file"}, optional
        Only the outcome; the outcome and Raghu's rewards for the change of SOFA and lactate (raw values only); or
        those of the file, which is the default where it has some.
    terminal : (float, float)
        Reward of the last row for death and for survival.
    cuts : DoseCuts, optional
        Cut points of the doses. By default the actions of the file, and where it has none, Raghu's cut points.
    refit_cuts : bool
        Use the quartiles of the doses above zero in this file. They know all of its patients.
    first_action : int, optional
        Number of the first action, where the file has actions and it cannot be told from them.
    next_window : bool
        Pair the state of a row with the action of the next one, so that the state is known before the decision; the
        last row of every stay is lost. By default both are of the same four hours, as in the published work.

    Returns
    -------
    ForeignCohort
        ``data`` with the columns ``died``, ``sofa`` where there is one, ``fluid_level`` and ``vasopressor_level``;
        ``notes`` with codes C101 to C110; and the name of the format.
    """
    opened = open_file(Path(path))
    frame, order_notes = _in_order(opened)
    scaled = is_standardised(frame)
    actions, action_note = find_actions(
        frame, cuts=cuts, refit=refit_cuts, first_action=first_action, scaled=scaled and not opened.raw_doses
    )
    frame, died_note = _with_death(frame, outcome)
    last = np.flatnonzero((frame[STAY] != frame[STAY].shift(-1)).fill_null(True).to_numpy())
    numbers, reward_note = _rewards(frame, rewards, terminal, last=last, scaled=scaled)
    gaps = find_gaps(frame, standardised=scaled)
    chosen, state_notes = _states(frame, states, keep_doses=keep_doses)
    frame, value_notes = _meanings(frame, chosen, scaled=scaled)
    frame, rows_note = _paired(
        frame.with_columns(action=pl.Series(actions), reward=pl.Series(numbers)), next_window=next_window
    )
    notes = (*order_notes, *value_notes, action_note, died_note, reward_note, gaps, *state_notes, rows_note)
    return ForeignCohort(_assemble(frame, chosen), tuple(sorted(notes, key=lambda f: f.code)), opened.format)


def _in_order(opened: Opened) -> tuple[pl.DataFrame, list[Finding]]:
    """Rows by stay and window, stays as they first appear."""
    frame = opened.frame
    keys = frame.select(STAY, BLOC)
    if keys.null_count().sum_horizontal().item():
        raise ValueError(
            f"{STAY} and {BLOC} must be there in every row: {keys.null_count().row(0)} are missing."
        )
    twice = keys.filter(keys.is_duplicated())
    if twice.height:
        raise ValueError(
            f"{twice.height} rows share their {STAY} and {BLOC} with another (first: stay {twice[STAY][0]}, {BLOC} "
            f"{twice[BLOC][0]}). Drop the copies."
        )
    if frame[STAY].dtype.is_float() and (frame[STAY] == frame[STAY].floor()).all():
        frame = frame.with_columns(
            pl.col(STAY).cast(pl.Int64)
        )  # as pandas writes ids when one was missing once
    place = "row of the file"
    frame = frame.with_row_index(place).sort(pl.col(place).min().over(STAY), BLOC).drop(place)
    said = "; ".join([f"the file was recognised as {opened.format} by its columns", *opened.remarks])
    return frame, [Finding("C101", "note", f"{said}.", {"rows": float(frame.height)})]


def _with_death(frame: pl.DataFrame, outcome: str | None) -> tuple[pl.DataFrame, Finding]:
    there = [name for name in OUTCOMES if name in frame.columns]
    name = outcome or next(iter(there), None)
    if name is None and "reward" in frame.columns:
        name, there = "a last reward below 0", ["no other outcome"]
        ending = pl.col("reward").cast(pl.Float64).last().over(STAY)
        frame = frame.with_columns((ending < 0).cast(pl.Float64).alias(name))
    if name is None or name not in frame.columns:
        raise ValueError(
            f"no column tells who died: wanted {outcome or ' or '.join(OUTCOMES)}, found {there}."
        )
    dead = frame[name].cast(pl.Float64)
    if not set(dead.unique().to_list()) <= {0.0, 1.0}:
        raise ValueError(
            f"{name} must be 1 for those who died and 0 for the others, got {dead.unique()[:4].to_list()}."
        )
    per_stay = frame.group_by(STAY).agg(pl.col(name).n_unique())
    changing = per_stay.filter(pl.col(name) > 1)
    if changing.height:
        first = changing.sort(STAY)[STAY][0]
        raise ValueError(f"{name} changes within {changing.height} stays (first: {first}).")
    stays = frame.unique(STAY)
    share = float(stays[name].cast(pl.Float64).mean() or 0.0)  # type: ignore[arg-type]
    message = f"death is {name}: {share:.1%} of {stays.height} stays; the file has {', '.join(there)}."
    return frame.with_columns(died=dead), Finding("C109", "note", message, {"died": share})


def _rewards(
    frame: pl.DataFrame, kind: Rewards | None, terminal: tuple[float, float], *, last: Int, scaled: bool
) -> tuple[Float, Finding]:
    wanted = kind or ("file" if "reward" in frame.columns else "terminal")
    if wanted == "file":
        if "reward" not in frame.columns:
            raise ValueError("the file has no rewards: say rewards='terminal' or rewards='shaped'.")
        return frame["reward"].cast(pl.Float64).to_numpy(), Finding(
            "C105", "note", "rewards are those of the file."
        )
    if wanted not in ("terminal", "shaped"):
        raise ValueError(f"rewards must be 'terminal', 'shaped' or 'file', got {wanted!r}.")
    if wanted == "shaped" and scaled:
        raise ValueError(
            "shaped rewards need SOFA in points and lactate in mmol/l, but the file is standardised."
        )
    numbers = shaped_rewards(frame, last) if wanted == "shaped" else np.zeros(frame.height)
    dead = frame["died"].to_numpy()[last] == 1
    numbers[last] = np.where(dead, terminal[0], terminal[1])
    also = ", and Raghu's rewards for the change of SOFA and lactate before it" if wanted == "shaped" else ""
    message = f"the last row of a stay has {terminal[0]:g} for death and {terminal[1]:g} for survival{also}."
    return numbers, Finding("C105", "note", message, {"death": terminal[0], "survival": terminal[1]})


def _states(
    frame: pl.DataFrame, states: Sequence[str] | None, *, keep_doses: bool
) -> tuple[list[str], list[Finding]]:
    doses = [name for name in DOSES if name in frame.columns]
    if states is None:
        chosen = [name for name in FEATURES if name in frame.columns] + (doses if keep_doses else [])
    else:
        chosen = list(states)
        unknown = [name for name in chosen if name not in frame.columns]
        if unknown:
            raise ValueError(
                f"no column is called {unknown[0]!r}; there are {', '.join(sorted(frame.columns))}."
            )
        known_later = [name for name in chosen if name in HINDSIGHT]
        if known_later:
            raise ValueError(f"{known_later[0]!r} is known only afterwards: it cannot be part of a state.")
    lacking = [name for name in FEATURES if name not in frame.columns]
    leaking = [name for name in chosen if name in DOSES]
    if leaking:
        leak = Finding(
            "C107",
            "caution",
            f"the state holds {', '.join(leaking)}: doses of the very window whose action they predict. A behaviour "
            "model will read the action off them.",
            {"doses": float(len(leaking))},
        )
    else:
        leak = Finding(
            "C107", "note", f"dose columns were left out of the state: {', '.join(doses) or 'none'}."
        )
    missing = f"of the 48 features of Raghu et al. (2017) the file lacks {', '.join(lacking) or 'none'}."
    return chosen, [leak, Finding("C108", "note", f"the state has {len(chosen)} columns; {missing}")]


def _meanings(frame: pl.DataFrame, chosen: list[str], *, scaled: bool) -> tuple[pl.DataFrame, list[Finding]]:
    if scaled:
        message = (
            "the features are standardised, by whoever made the file and over whichever patients: ages, genders and "
            "SOFA are not in their own units, and what is held out may have been used."
        )
        return frame, [Finding("C102", "caution", message)]
    notes = []
    for name, read in (("age", read_ages), ("gender", read_gender)):
        if name in chosen:
            frame, note = read(frame)
            notes.append(note)
    return frame, notes


def _paired(frame: pl.DataFrame, *, next_window: bool) -> tuple[pl.DataFrame, Finding]:
    if "decided_at" in frame.columns and (frame["decided_at"] > frame[CLOCK]).all():
        if next_window:
            raise ValueError(
                "the states of this file are already from before their actions: next_window is of no use."
            )
        return frame, Finding(
            "C110", "note", "states are of the four hours before the decision, actions after it."
        )
    if not next_window:
        message = (
            "state and action are of the same four hours, as published: the state may show what the action did. Say "
            "next_window=True for the action of the next four hours."
        )
        return frame, Finding("C110", "caution", message)
    stays = frame[STAY].n_unique()
    # The reward of a row belongs to the way to the next row, and the outcome to the last decision that is left.
    following = {name: pl.col(name).shift(-1).over(STAY) for name in ("action", "reward")}
    moved = frame.with_columns(following["action"].alias("action"))
    final = pl.int_range(pl.len()).over(STAY) == pl.len().over(STAY) - 2
    moved = moved.with_columns(
        reward=pl.when(final).then(pl.col("reward") + following["reward"]).otherwise("reward")
    ).drop_nulls("action")
    lost = stays - moved[STAY].n_unique()
    message = (
        f"states are paired with the action of the next window; {lost} stays with a single row are lost."
    )
    return moved, Finding("C110", "note", message, {"lost_stays": float(lost)})


def _assemble(frame: pl.DataFrame, chosen: list[str]) -> Trajectories:
    frame = frame.with_columns(
        fluid_level=pl.col("action") // 5, vasopressor_level=pl.col("action") % 5
    ).with_columns(pl.col(name).cast(pl.Float64) for name in chosen)
    if "SOFA" in frame.columns:
        frame = frame.with_columns(sofa=pl.col("SOFA"))
    kept = [
        name
        for name in ("died", "sofa", "fluid_level", "vasopressor_level", "training")
        if name in frame.columns
    ]
    return read_table(
        frame, episode=STAY, action="action", reward="reward", states=chosen, keep=kept, n_actions=N_ACTIONS
    )
