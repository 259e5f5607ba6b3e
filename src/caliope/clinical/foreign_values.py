"""What the numbers in somebody else's cohort mean: ages, genders, doses, actions and rewards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from caliope.clinical.foreign_formats import BLOC, CLOCK, FLUID, STAY, VASOPRESSOR
from caliope.clinical.settings import RAGHU_IV_CUTS, RAGHU_VASO_CUTS
from caliope.ragged import Float, Int
from caliope.results import Finding

_WINDOW = 4 * 3600  # seconds
_HIDDEN_AGE = 91.4  # years, for the birth dates of MIMIC-III that were moved 300 years back


@dataclass(frozen=True)
class DoseCuts:
    """Where the levels 2, 3 and 4 of a dose begin; level 0 is no dose, level 1 anything below the first.

    By default those of Raghu et al. (2017): quartiles of the doses above zero of MIMIC-III.
    """

    fluid: tuple[float, float, float] = RAGHU_IV_CUTS  # mL in four hours
    vasopressor: tuple[float, float, float] = RAGHU_VASO_CUTS  # mcg/kg/min, largest rate

    def __post_init__(self) -> None:
        for name, cuts in (("fluid", self.fluid), ("vasopressor", self.vasopressor)):
            if len(cuts) != 3 or not 0 <= cuts[0] <= cuts[1] <= cuts[2] < np.inf:
                raise ValueError(f"the {name} cut points must be three rising numbers from 0, got {cuts}.")

    @classmethod
    def refit(cls, fluid: Float, vasopressor: Float) -> DoseCuts:
        """Quartiles of the doses above zero."""
        return cls(_quartiles(FLUID, fluid), _quartiles(VASOPRESSOR, vasopressor))


def _quartiles(name: str, dose: Float) -> tuple[float, float, float]:
    given = dose[dose > 0]
    if len(given) == 0:
        raise ValueError(f"{name} is zero in every row: no cut points can be fitted to it.")
    low, middle, high = np.quantile(given, [0.25, 0.5, 0.75])
    return float(low), float(middle), float(high)


def is_standardised(frame: pl.DataFrame) -> bool:
    """Whether somebody has scaled the features: no group of patients has a median pulse below 20."""
    middle = frame["HR"].cast(pl.Float64).median()
    return isinstance(middle, float) and middle < 20


def read_ages(frame: pl.DataFrame) -> tuple[pl.DataFrame, Finding]:
    """Ages in years. A median above 150 must be days; then 150 or less cannot be days of an adult.

    MIMIC-III moves the births of those above 89 years back to about 300 years: they become 91.4, their median.
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
    unit = "days and were divided by 365.25" if days else "years"
    hidden = f"; {int(old.sum())} rows above 150 years are set to {_HIDDEN_AGE}" if old.any() else ""
    numbers = {"median_years": float(frame["age"].median()), "above_150": float(old.sum())}  # type: ignore[arg-type]
    return frame, Finding("C102", "note", f"ages are in {unit}{hidden}.", numbers)


def read_gender(frame: pl.DataFrame) -> tuple[pl.DataFrame, Finding]:
    """Gender as 0 for men and 1 for women, from that coding, from 1 and 2, or from letters."""
    found = set(frame["gender"].drop_nulls().unique().to_list())
    if found <= {"M", "F"}:
        change, said = (pl.col("gender") == "F").cast(pl.Float64), "letters: F became 1, M 0"
    elif found <= {0, 1}:
        change, said = pl.col("gender").cast(pl.Float64), "0 and 1, taken for men and women"
    elif found <= {1, 2}:
        change, said = pl.col("gender").cast(pl.Float64) - 1, "1 and 2, taken for men and women, now 0 and 1"
    else:
        raise ValueError(
            f"gender must be coded 0 and 1, 1 and 2, or M and F, got {sorted(map(str, found))[:5]}. Code it anew, "
            "or name other states."
        )
    return frame.with_columns(gender=change), Finding("C103", "note", f"gender is coded {said}.")


def levels(dose: Float, cuts: tuple[float, float, float]) -> Int:
    """0 for no dose; 1 to 4 by the cut points, each of which begins a level."""
    return np.where(dose > 0, 1 + np.searchsorted(np.array(cuts), dose, side="right"), 0).astype(np.int64)


def find_actions(
    frame: pl.DataFrame, *, cuts: DoseCuts | None, refit: bool, first_action: int | None, scaled: bool
) -> tuple[Int, Finding]:
    """Action 5 * fluid level + vasopressor level of every row, (N,), from whatever the file has.

    ``scaled`` says that the doses are on another scale than their own: then they tell no levels.
    """
    if cuts is None and not refit:
        if "action" in frame.columns:
            return _numbered(frame["action"].cast(pl.Float64).to_numpy(), first_action)
        if {"iv_input", "vaso_input"} <= set(frame.columns):
            return _from_levels(frame)
    if scaled:
        raise ValueError(
            f"actions cannot be told from {FLUID} and {VASOPRESSOR}: the file is standardised, its doses are not in "
            "their own units. Read the raw file in its place."
        )
    doses = [_raw_dose(frame, name) for name in (FLUID, VASOPRESSOR)]
    used = DoseCuts.refit(*doses) if refit else cuts or DoseCuts()
    actions = 5 * levels(doses[0], used.fluid) + levels(doses[1], used.vasopressor)
    whose = (
        "fitted to all patients of the file" if refit else "as given" if cuts else "of Raghu et al. (2017)"
    )
    shown = [", ".join(f"{x:g}" for x in pair) for pair in (used.fluid, used.vasopressor)]
    names = ("fluid_1", "fluid_2", "fluid_3", "vasopressor_1", "vasopressor_2", "vasopressor_3")
    return actions, Finding(
        "C104",
        "note",
        f"actions come from the doses, by cut points {whose}: fluid {shown[0]} mL in 4 hours, vasopressor "
        f"{shown[1]} mcg/kg/min.",
        dict(zip(names, (*used.fluid, *used.vasopressor), strict=True)),
    )


def _raw_dose(frame: pl.DataFrame, name: str) -> Float:
    dose = frame[name].cast(pl.Float64).to_numpy()
    bad = np.flatnonzero(~((dose >= 0) & (dose < np.inf)))
    if len(bad):
        stay = frame[STAY][int(bad[0])]
        raise ValueError(
            f"{name} must hold doses from 0 to tell the actions, but {len(bad)} of {len(dose)} rows do not (first: "
            f"{dose[bad[0]]:g} in stay {stay}). If the file is standardised, read the raw one in its place."
        )
    return dose


def _numbered(actions: Float, first_action: int | None) -> tuple[Int, Finding]:
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
        message = (
            f"actions run from {low:g} to {high:g}: whether they are numbered from 0 or from 1 cannot be told. "
            "They are taken to begin at 0; say first_action=1 if not."
        )
        return actions.astype(np.int64), Finding("C104", "caution", message, {"first_action": 0.0})
    if low < first or high > first + 24:
        raise ValueError(
            f"actions must be whole numbers from {first} to {first + 24}, got {low:g} to {high:g}."
        )
    message = f"actions are those of the file, numbered from {first}" + (", now from 0." if first else ".")
    return actions.astype(np.int64) - first, Finding("C104", "note", message, {"first_action": float(first)})


def _from_levels(frame: pl.DataFrame) -> tuple[Int, Finding]:
    pair = frame.select("iv_input", "vaso_input").cast(pl.Float64).to_numpy()
    if not np.isin(pair, np.arange(5)).all():
        raise ValueError("iv_input and vaso_input must hold the levels 0 to 4.")
    whole = pair.astype(np.int64)
    message = "actions are 5 * iv_input + vaso_input, the levels of the file."
    return 5 * whole[:, 0] + whole[:, 1], Finding("C104", "note", message)


def shaped_rewards(frame: pl.DataFrame, last: Int) -> Float:
    r"""Rewards for the way from one row to the next, 0 in the last row of a stay, (N,).

    .. math:: -0.025 \, 1[s' = s > 0] - 0.125 (s' - s) - 2 \tanh(l' - l)

    with SOFA s and lactate l in points and mmol/l (Raghu et al. 2017).
    """
    sofa, lactate = (frame[name].cast(pl.Float64).to_numpy() for name in ("SOFA", "Arterial_lactate"))
    change, rise = np.diff(sofa, append=0.0), np.diff(lactate, append=0.0)
    stagnant = (change == 0) & (sofa > 0)
    rewards = -0.025 * stagnant - 0.125 * change - 2 * np.tanh(rise)
    rewards[last] = 0.0
    return rewards


Rewards = Literal["terminal", "shaped", "file"]


def find_gaps(frame: pl.DataFrame, *, standardised: bool) -> Finding:
    """How many windows of four hours are missing between the rows of a stay."""
    same = (frame[STAY] == frame[STAY].shift(1)).fill_null(False).to_numpy()
    if not standardised:
        steps = frame[BLOC].cast(pl.Float64).diff().to_numpy()
    elif CLOCK in frame.columns and frame[CLOCK].dtype.is_numeric():
        steps = frame[CLOCK].cast(pl.Float64).diff().to_numpy() / _WINDOW
    else:
        return Finding("C106", "caution", f"gaps cannot be told: {BLOC} is scaled, and there is no {CLOCK}.")
    jumps = same & (np.abs(steps - 1) > 1e-6)
    if not jumps.any():
        return Finding(
            "C106", "note", "the rows of every stay follow each other without gaps.", {"gaps": 0.0}
        )
    where = frame[STAY][int(np.flatnonzero(jumps)[0])]
    return Finding(
        "C106",
        "caution",
        f"{int(jumps.sum())} times the next row of a stay is not the next window of four hours (first in stay "
        f"{where}): rows follow each other as if nothing had happened in between.",
        {"gaps": float(jumps.sum())},
    )
