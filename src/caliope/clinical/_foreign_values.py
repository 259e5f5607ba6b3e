"""Values in a sepsis cohort made by others: ages, genders, doses, actions, deaths, rewards, gaps and pairing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from caliope._ragged import Float, Int
from caliope.checks import (
    C102,
    C103,
    C104,
    C105,
    C106,
    C109,
    C110,
    C111,
    C112,
    C113,
    C115,
    Finding,
)
from caliope.clinical._settings import RAGHU_IV_CUTS, RAGHU_VASO_CUTS

# Common names of the columns, whatever the file calls them.
STAY, BLOC, CLOCK = "icustayid", "bloc", "charttime"
FLUID, VASOPRESSOR = "input_4hourly", "max_dose_vaso"

# Columns that may hold death, the most usual first; 1 for death in each of them.
OUTCOMES = ("died", "died_in_hosp", "mortality_90d", "outcome", "died_within_48h_of_out_time")

Rewards = Literal["terminal", "shaped", "file"]

# Length of a window in seconds.
_WINDOW = 4 * 3600
# In years, for the dates of birth that MIMIC-III moves 300 years back.
_HIDDEN_AGE = 91.4


@dataclass(frozen=True)
class DoseCuts:
    """Doses at which the levels 2, 3 and 4 begin; level 0 is no dose, level 1 any dose below the first cut point.

    The defaults are those of Raghu et al. (2017): quartiles of the doses above zero in MIMIC-III.

    Parameters
    ----------
    fluid : (float, float, float)
        In mL of isotonic fluid in four hours.
    vasopressor : (float, float, float)
        In mcg/kg/min of norepinephrine, the largest rate in four hours.

    Examples
    --------
    >>> DoseCuts(fluid=(100.0, 250.0, 500.0)).vasopressor
    (0.08, 0.225, 0.45)
    """

    fluid: tuple[float, float, float] = RAGHU_IV_CUTS
    vasopressor: tuple[float, float, float] = RAGHU_VASO_CUTS

    def __post_init__(self) -> None:
        for name, cuts in (("fluid", self.fluid), ("vasopressor", self.vasopressor)):
            if len(cuts) != 3 or not 0 <= cuts[0] <= cuts[1] <= cuts[2] < np.inf:
                raise ValueError(f"the {name} cut points must be three rising numbers from 0, got {cuts}.")

    @classmethod
    def refit(cls, fluid: Float, vasopressor: Float) -> DoseCuts:
        """Return the quartiles of the doses above zero."""
        return cls(_quartiles(FLUID, fluid), _quartiles(VASOPRESSOR, vasopressor))


def _quartiles(name: str, dose: Float) -> tuple[float, float, float]:
    positive = dose[dose > 0]
    if len(positive) == 0:
        raise ValueError(f"{name} is zero in every row: no cut points can be fitted to it.")
    low, middle, high = np.quantile(positive, [0.25, 0.5, 0.75])
    return float(low), float(middle), float(high)


def is_standardised(frame: pl.DataFrame) -> bool:
    """Whether the features are scaled: no group of patients has a median heart rate below 20."""
    middle = frame["HR"].cast(pl.Float64).median()
    return isinstance(middle, float) and middle < 20


def convert_units(
    frame: pl.DataFrame, names: list[str], *, scaled: bool
) -> tuple[pl.DataFrame, list[Finding]]:
    """Convert age and gender, if they are among the names and not scaled."""
    if scaled:
        return frame, [C111.finding("caution")]
    notes = []
    for name, convert in (("age", _convert_ages), ("gender", _code_gender)):
        if name in names:
            frame, note = convert(frame)
            notes.append(note)
    return frame, notes


def _convert_ages(frame: pl.DataFrame) -> tuple[pl.DataFrame, Finding]:
    """Convert ages to years. A median above 150 means days; then an adult cannot have 150 or less.

    MIMIC-III gives patients above 89 years an age of about 300: they become 91.4, their median.
    """
    age = frame["age"].cast(pl.Float64)
    days = float(age.drop_nulls().median() or 0.0) > 150  # type: ignore[arg-type]
    years = age / 365.25 if days else age
    odd = (years < 0) | (years > 320) | ((age <= 150) & days)
    if odd.any():
        row = int(odd.arg_max() or 0)
        raise ValueError(
            f"ages must all be in years or all in days, and those in {'days' if days else 'years'} by their median "
            f"cannot be {age[row]:g} (first in stay {frame[STAY][row]}, of {int(odd.sum())} rows). Use one unit."
        )
    old = years > 150
    frame = frame.with_columns(age=pl.Series(years).set(old.fill_null(False), _HIDDEN_AGE))
    unit = "days" if days else "years"
    facts = {"median_years": float(frame["age"].median()), "above_150": float(old.sum())}  # type: ignore[arg-type]
    if not old.any():
        return frame, C102.finding("note", unit, **facts)
    return frame, C102.finding("note", unit, "hidden", **facts, hidden_age=_HIDDEN_AGE)


def _code_gender(frame: pl.DataFrame) -> tuple[pl.DataFrame, Finding]:
    """Code gender as 0 for men and 1 for women, from that coding, from 1 and 2, or from letters."""
    found = set(frame["gender"].drop_nulls().unique().to_list())
    if found <= {"M", "F"}:
        change, coding = (pl.col("gender") == "F").cast(pl.Float64), "letters"
    elif found <= {0, 1}:
        change, coding = pl.col("gender").cast(pl.Float64), "zero-one"
    elif found <= {1, 2}:
        change, coding = pl.col("gender").cast(pl.Float64) - 1, "one-two"
    else:
        raise ValueError(
            f"gender must be coded 0 and 1, 1 and 2, or M and F, got {sorted(map(str, found))[:5]}. Recode it, or "
            "leave it out of states."
        )
    return frame.with_columns(gender=change), C103.finding("note", coding)


def dose_levels(dose: Float, cuts: tuple[float, float, float]) -> Int:
    """Level of each dose: 0 for no dose, 1 to 4 by the cut points, each of which begins a level."""
    return np.where(dose > 0, 1 + np.searchsorted(np.array(cuts), dose, side="right"), 0).astype(np.int64)


def find_actions(
    frame: pl.DataFrame, *, cuts: DoseCuts | None, refit: bool, first_action: int | None, scaled: bool
) -> tuple[Int, Finding]:
    """Action 5 * fluid level + vasopressor level of every row, (N,), from actions, levels or doses of the file.

    ``scaled``: the doses are not in their own units, so that no levels follow from them.
    """
    if cuts is None and not refit:
        if "action" in frame.columns:
            return _read_codes(frame["action"].cast(pl.Float64).to_numpy(), first_action)
        if {"iv_input", "vaso_input"} <= set(frame.columns):
            return _combine_levels(frame)
    if scaled:
        raise ValueError(
            f"actions cannot be read from {FLUID} and {VASOPRESSOR}: the file is standardised, its doses are not in "
            "their own units. Read the raw file instead."
        )
    doses = [_read_dose(frame, name) for name in (FLUID, VASOPRESSOR)]
    used = DoseCuts.refit(*doses) if refit else cuts or DoseCuts()
    actions = 5 * dose_levels(doses[0], used.fluid) + dose_levels(doses[1], used.vasopressor)
    origin = "refit" if refit else "given" if cuts else "published"
    names = ("fluid_1", "fluid_2", "fluid_3", "vasopressor_1", "vasopressor_2", "vasopressor_3")
    facts = dict(zip(names, (*used.fluid, *used.vasopressor), strict=True))
    return actions, C104.finding("note", origin, "cuts", **facts)


def _read_dose(frame: pl.DataFrame, name: str) -> Float:
    dose = frame[name].cast(pl.Float64).to_numpy()
    bad = np.flatnonzero(~((dose >= 0) & (dose < np.inf)))
    if len(bad):
        stay = frame[STAY][int(bad[0])]
        raise ValueError(
            f"{name} must hold doses of 0 or more, but {len(bad)} of {len(dose)} rows do not (first: "
            f"{dose[bad[0]]:g} in stay {stay}). If the file is standardised, read the raw file instead."
        )
    return dose


def _read_codes(actions: Float, first_action: int | None) -> tuple[Int, Finding]:
    if not np.isfinite(actions).all():
        raise ValueError(
            f"{int((~np.isfinite(actions)).sum())} of {len(actions)} rows have no action. Drop them."
        )
    broken = np.flatnonzero(actions != np.floor(actions))
    if len(broken):
        raise ValueError(
            f"actions must be whole numbers, got {actions[broken[0]]:g} (first of {len(broken)} rows)."
        )
    low, high = float(actions.min()), float(actions.max())
    first = first_action if first_action is not None else int(low >= 1 and high == 25)
    sure = first_action is not None or low == 0 or high == 25
    if not sure:
        return actions.astype(np.int64), C112.finding("caution", low=low, high=high, first_action=0.0)
    if low < first or high > first + 24:
        raise ValueError(
            f"actions must be whole numbers from {first} to {first + 24}, got {low:g} to {high:g}."
        )
    note = C104.finding("note", "renumbered" if first else "numbered", first_action=float(first))
    return actions.astype(np.int64) - first, note


def _combine_levels(frame: pl.DataFrame) -> tuple[Int, Finding]:
    pair = frame.select("iv_input", "vaso_input").cast(pl.Float64).to_numpy()
    if not np.isin(pair, np.arange(5)).all():
        raise ValueError("iv_input and vaso_input must hold the levels 0 to 4.")
    whole = pair.astype(np.int64)
    return 5 * whole[:, 0] + whole[:, 1], C104.finding("note", "levels")


def add_death(frame: pl.DataFrame, outcome: str | None) -> tuple[pl.DataFrame, Finding]:
    """Add the column ``died``, from the outcome column or from the sign of the last reward."""
    there = [name for name in OUTCOMES if name in frame.columns]
    name = outcome or next(iter(there), None)
    if name is None and "reward" in frame.columns:
        name, there = "a last reward below 0", ["no other outcome"]
        ending = pl.col("reward").cast(pl.Float64).last().over(STAY)
        frame = frame.with_columns((ending < 0).cast(pl.Float64).alias(name))
    if name is None or name not in frame.columns:
        raise ValueError(
            f"no column holds death: expected {outcome or ' or '.join(OUTCOMES)}, found {there}."
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
    note = C109.finding("note", died=share, outcome=name, stays=stays.height, available=", ".join(there))
    return frame.with_columns(died=dead), note


def build_rewards(
    frame: pl.DataFrame, kind: Rewards | None, terminal: tuple[float, float], *, last: Int, scaled: bool
) -> tuple[Float, Finding]:
    """Rewards of every row, (N,): those of the file, or built from death; ``last`` are the last rows of the stays."""
    kind = kind or ("file" if "reward" in frame.columns else "terminal")
    if kind == "file":
        if "reward" not in frame.columns:
            raise ValueError("the file has no rewards: use rewards='terminal' or rewards='shaped'.")
        return frame["reward"].cast(pl.Float64).to_numpy(), C105.finding("note", "file")
    if kind not in ("terminal", "shaped"):
        raise ValueError(f"rewards must be 'terminal', 'shaped' or 'file', got {kind!r}.")
    if kind == "shaped" and scaled:
        raise ValueError(
            "shaped rewards need SOFA in points and lactate in mmol/l, but the file is standardised."
        )
    numbers = _shape_rewards(frame, last) if kind == "shaped" else np.zeros(frame.height)
    dead = frame["died"].to_numpy()[last] == 1
    numbers[last] = np.where(dead, terminal[0], terminal[1])
    variants = ("terminal", "shaped") if kind == "shaped" else ("terminal",)
    return numbers, C105.finding("note", *variants, death=terminal[0], survival=terminal[1])


def _shape_rewards(frame: pl.DataFrame, last: Int) -> Float:
    r"""Rewards for the change from one row to the next, 0 in the last row of a stay, (N,).

    .. math:: -0.025 \, 1[s' = s > 0] - 0.125 (s' - s) - 2 \tanh(l' - l)

    with SOFA s and lactate l in points and mmol/l (Raghu et al. 2017).
    """
    sofa, lactate = (frame[name].cast(pl.Float64).to_numpy() for name in ("SOFA", "Arterial_lactate"))
    change, rise = np.diff(sofa, append=0.0), np.diff(lactate, append=0.0)
    stagnant = (change == 0) & (sofa > 0)
    rewards = -0.025 * stagnant - 0.125 * change - 2 * np.tanh(rise)
    rewards[last] = 0.0
    return rewards


def find_gaps(frame: pl.DataFrame, *, standardised: bool) -> Finding:
    """Count the windows of four hours that are missing between the rows of a stay."""
    same = (frame[STAY] == frame[STAY].shift(1)).fill_null(False).to_numpy()
    if not standardised:
        steps = frame[BLOC].cast(pl.Float64).diff().to_numpy()
    elif CLOCK in frame.columns and frame[CLOCK].dtype.is_numeric():
        steps = frame[CLOCK].cast(pl.Float64).diff().to_numpy() / _WINDOW
    else:
        return C113.finding("caution", bloc=BLOC, clock=CLOCK)
    jumps = same & (np.abs(steps - 1) > 1e-6)
    if not jumps.any():
        return C106.finding("note", "none", gaps=0.0)
    # As text, so that an id does not count as a number of the finding.
    stay = str(frame[STAY][int(np.flatnonzero(jumps)[0])])
    return C106.finding("caution", "found", gaps=float(jumps.sum()), stay=stay)


def pair_rows(frame: pl.DataFrame, *, next_window: bool) -> tuple[pl.DataFrame, Finding]:
    """Pair each state with the action of its own window, or of the next one."""
    if "decided_at" in frame.columns and (frame["decided_at"] > frame[CLOCK]).all():
        if next_window:
            raise ValueError(
                "the states of this file are from before their actions already: leave out next_window."
            )
        return frame, C115.finding("note", "file")
    if not next_window:
        return frame, C110.finding("caution")
    stays = frame[STAY].n_unique()
    # A reward belongs to the change to the next row; the outcome moves to the last decision that is left.
    following = {name: pl.col(name).shift(-1).over(STAY) for name in ("action", "reward")}
    moved = frame.with_columns(following["action"].alias("action"))
    final = pl.int_range(pl.len()).over(STAY) == pl.len().over(STAY) - 2
    moved = moved.with_columns(
        reward=pl.when(final).then(pl.col("reward") + following["reward"]).otherwise("reward")
    ).drop_nulls("action")
    lost = stays - moved[STAY].n_unique()
    return moved, C115.finding("note", "paired", lost_stays=float(lost))
