"""Synthetic ICU stays: hidden paths of the ICU-Sepsis process, and the patients' own features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from caliope._ragged import Bool, Float, Int
from caliope._trajectories import Trajectories
from caliope.domains import icu_sepsis
from support.synthetic_mimic.writing import read_data

Moments = NDArray[np.datetime64]

STEP = 240  # minutes between two decisions
_FIRST_DAY = np.datetime64("2110-01-01T00:00", "m")  # MIMIC moves all dates into the 22nd century
_DAYS = 70 * 365
_CENTENARIAN = 89.0  # MIMIC-III moves the birth of anyone older to 300 years before admission
# Of MIMIC-III are subjects below 100,000, admissions from there and stays from 200,000.
SUBJECTS, ADMISSIONS, STAYS = 1, 100_000, 200_000


@dataclass(frozen=True)
class Hospital:
    """Whom a synthetic hospital admits, and how it keeps its records.

    Parameters
    ----------
    carevue : float
        Share of stays recorded in the older CareVue system (``inputevents_cv`` and other item ids).
    uninfected : float
        Share of stays without suspected infection: nothing, cultures alone, antibiotics alone, or both far apart.
    children : float
        Share of patients younger than 18.
    returning : float
        Share of stays that are the second of their patient, months after a first one that was survived; about.
    dying_in_unit : float
        Share of those who die that do so in the unit, as the record ends; the others die days later on a ward. The
        rules of Komorowski et al. exclude the former.
    noise : float
        Standard deviation of a measurement of the hidden state, as in :func:`caliope.domains.icu_sepsis.simulate`.
    delay_hours : int
        Hours between the window in which a state is charted and the window in which its doses run: 4 so that the
        state is known before the decision; 0 for both in the same four hours, as the published cohorts pair them.
    """

    carevue: float = 0.4
    uninfected: float = 0.25
    children: float = 0.05
    returning: float = 0.05
    dying_in_unit: float = 0.3
    noise: float = 0.3
    delay_hours: int = 4

    def __post_init__(self) -> None:
        for name in ("carevue", "uninfected", "children", "returning", "dying_in_unit"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share and must lie in [0, 1], got {getattr(self, name)}.")
        if self.delay_hours < 0:
            raise ValueError(f"delay_hours must not be negative, got {self.delay_hours}.")


@dataclass(frozen=True, eq=False)
class Batch:
    """Some stays; arrays of shape (n,) by stay or (N,) by four-hour step."""

    log: Trajectories  # hidden state, action, true probability; rewards are 0 and, at the end, 1 for survival
    number: Int  # (n,) from 0, over all batches
    again: Bool  # (n,) whether the stay is a second one of the patient of the stay before it
    arrival: Moments  # (n,) in minutes
    departure: Moments  # (n,) from the unit
    onset: Int  # (n,) minutes from arrival to the suspicion of infection
    infected: Bool  # (n,)
    carevue: Bool  # (n,)
    age: Float  # (n,) years
    died_in_unit: Bool  # (n,)
    values: dict[str, Float]  # measured features in clinical units, (N,) each
    delay: int  # minutes from a state to its doses

    @property
    def owner(self) -> Int:
        """Stay of every step, (N,)."""
        return self.log.layout.owner

    @property
    def survived(self) -> Bool:
        """Whether the patient lives three months later, (n,)."""
        return self.log.rewards[self.log.layout.last] > 0

    def first(self, feature: str) -> Float:
        """A feature at the first step of every stay, (n,): for what does not change."""
        return self.values[feature][self.log.layout.first]

    def keys(self, stay: Int) -> dict[str, Int]:
        """The three numbers by which MIMIC-III names a stay."""
        number = self.number[stay]
        return {
            "subject_id": SUBJECTS + number - self.again[stay],
            "hadm_id": ADMISSIONS + 2 * number,
            "icustay_id": STAYS + number,
        }

    def moment(self, step: Int, minute: ArrayLike) -> Moments:
        """When it was some minutes after the beginning of a step."""
        passed = STEP * self.log.layout.time[step] + np.asarray(minute)
        return self.arrival[self.owner[step]] + passed.astype("timedelta64[m]")

    def events(self, step: Int, minute: ArrayLike, **columns: Any) -> pl.DataFrame:
        """Rows of an event table: whose, when, and what."""
        at = self.moment(step, minute)
        return pl.DataFrame(self.keys(self.owner[step]) | {"charttime": clock(at)} | columns)


def clock(moments: Moments) -> NDArray[np.datetime64]:
    """Minutes as polars takes them."""
    return moments.astype("datetime64[us]")


def hours(rng: np.random.Generator, low: float, high: float, size: int) -> NDArray[np.timedelta64]:
    """Random times between two numbers of hours, in whole minutes."""
    return (60 * rng.uniform(low, high, size)).astype(np.int64).astype("timedelta64[m]")


def make_batch(
    numbers: Int, hospital: Hospital, *, policy: ArrayLike | None, rng: np.random.Generator
) -> Batch:
    """Draw the hidden paths of some patients, and everything about them that is not an event."""
    n = len(numbers)
    log = icu_sepsis.simulate(n, policy=policy, rng=rng, noise=hospital.noise, lags=0, outcome=(0.0, 1.0))
    stayed = STEP * log.lengths + 60 * hospital.delay_hours
    values = clinical_values(log, rng)
    child = rng.random(n) < hospital.children
    age = np.where(child, rng.uniform(1, 17.5, n), values["age"][log.layout.first])
    survived = log.rewards[log.layout.last] > 0
    again = _second_stays(survived & ~child, ~child, share=hospital.returning, rng=rng)
    arrival = _FIRST_DAY + rng.integers(_DAYS * 24 * 60, size=n).astype("timedelta64[m]")
    _continue(again, arrival, age, values, log=log, gap=hours(rng, 24 * 130, 24 * 400, n))
    return Batch(
        log,
        numbers,
        again,
        arrival,
        arrival + stayed.astype("timedelta64[m]"),
        # Suspected from half a day before arrival to 18 hours after it: the record begins inside the window.
        rng.uniform(-720, np.minimum(1080, stayed)).astype(np.int64),
        rng.random(n) >= hospital.uninfected,
        rng.random(n) < hospital.carevue,
        age,
        ~survived & (rng.random(n) < hospital.dying_in_unit),
        values,
        60 * hospital.delay_hours,
    )


def _continue(
    again: Bool,
    arrival: Moments,
    age: Float,
    values: dict[str, Float],
    *,
    log: Trajectories,
    gap: NDArray[np.timedelta64],
) -> None:
    """Make second stays those of the patient before, in place: later than 90 days, so that outcomes are their own."""
    second, before = np.flatnonzero(again), np.flatnonzero(again) - 1
    arrival[second] = arrival[before] + gap[second]
    age[second] = age[before] + gap[second] / np.timedelta64(365 * 24 * 60, "m")
    rows, first = log.layout.rows_of(second), log.layout.first[before]
    values["gender"][rows] = np.repeat(values["gender"][first], log.lengths[second])
    values["re_admission"][rows] = 1.0


def _second_stays(can: Bool, may: Bool, *, share: float, rng: np.random.Generator) -> Bool:
    """Which stays are second ones: every other stay may be, if the one before it allows it."""
    odd = np.arange(len(can)) % 2 == 1
    return odd & may & np.concatenate([[False], can[:-1]]) & (rng.random(len(can)) < min(1.0, 2 * share))


def clinical_values(log: Trajectories, rng: np.random.Generator) -> dict[str, Float]:
    r"""Measured features in clinical units, by name, (N,) each; NaN where a feature does not apply.

    .. math:: x = m + s z \quad \text{or} \quad x = m e^{s z}

    cut to the limits of ``features.csv``, which also holds m and s. What the process does not know
    (albumin, ionised calcium) is drawn around m.
    """
    known = {name: log.states[:, j].astype(np.float64) for j, name in enumerate(log.feature_names)}
    values: dict[str, Float] = {}
    for row in read_data("features.csv").iter_rows(named=True):
        if row["scale"] == "derived":
            continue
        z = known[row["name"]] if row["name"] in known else rng.standard_normal(log.n_steps)
        raw = row["mean"] * np.exp(row["sd"] * z) if row["scale"] == "log" else row["mean"] + row["sd"] * z
        values[row["name"]] = np.clip(raw, row["low"], row["high"])
    first, owner = log.layout.first, log.layout.owner
    # Binary features were shifted by -0.5 before they were averaged, and readmission by 0.6 afterwards.
    for name, shift in (("gender", 0.5), ("re_admission", -0.1)):
        values[name] = (rng.random(log.n_steps) < known[name] + shift).astype(np.float64)
    for name in ("gender", "re_admission", "age", "Weight_kg"):  # do not change within days
        values[name] = values[name][first][owner]
    values["mechvent"] = (known["mechvent"] > 0).astype(np.float64)
    return values | _derived(values, rng.random(len(log))[owner])


def _derived(values: dict[str, Float], habit: Float) -> dict[str, Float]:
    """What is charted in place of a feature; ``habit`` is a number in [0, 1) of each stay."""
    gcs = np.round(values["GCS"])
    eye, verbal = np.round(1 + (gcs - 3) / 4), np.round(1 + (gcs - 3) / 3)
    on = np.where(values["mechvent"] > 0, 1.0, np.nan)
    tidal = 6 * values["Weight_kg"] * on
    # The scores of a RASS of -5 to 0 (Komorowski et al.), read backwards.
    rass = np.searchsorted([6, 11, 12, 14, 15], gcs, side="right") - 5.0
    fahrenheit = np.where(habit < 0.6, 1.0, np.nan)
    return {
        "GCS": gcs,
        "GCS_eye": eye,
        "GCS_verbal": verbal,
        "GCS_motor": gcs - eye - verbal,
        "RASS": rass,
        "Temp_F": (32 + 1.8 * values["Temp_C"]) * fahrenheit,
        "Temp_C": np.where(np.isnan(fahrenheit), values["Temp_C"], np.nan),
        "FiO2_percent": 100 * values["FiO2_1"],
        "PEEP": np.round(5 + 7 * habit) * on,
        "TidalVolume": np.clip(tidal, 100, 1000),
        "MinuteVolume": tidal * values["RR"] / 1000,
        "MeanBP": np.clip(values["MeanBP"], values["DiaBP"], np.maximum(values["SysBP"], values["DiaBP"])),
    }


def is_dated_back(age: Float) -> Bool:
    """Whether MIMIC-III hides an age by a birth 300 years before admission, (n,)."""
    return age > _CENTENARIAN
