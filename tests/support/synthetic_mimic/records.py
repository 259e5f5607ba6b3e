"""Patients, admissions, diagnoses, antibiotics and cultures of synthetic stays."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from caliope._ragged import Bool, Int
from support.synthetic_mimic.stays import ADMISSIONS, Batch, Moments, clock, hours, is_dated_back

_DAY = np.timedelta64(24 * 60, "m")
# Drug, generic sequence number, route. The first three are on Komorowski's list of antibiotics by that number,
# vancomycin by its name alone, and the others are no antibiotics.
_ANTIBIOTICS = (
    ("CefePIME", "024095", "IV"),
    ("Piperacillin-Tazobactam", "021187", "IV"),
    ("Levofloxacin", "029927", "PO"),
    ("Vancomycin", "043952", "IV"),
)
_OTHER_DRUGS = (
    ("Furosemide", "008205", "IV"),
    ("Acetaminophen", "004489", "PO"),
    ("Insulin", "001723", "SC"),
)
_SEPSIS = ("99591", "99592", "78552")
_COMORBIDITIES = ("4280", "4019", "25000", "5859", "49121", "42731", "5715", "2449", "2859", "27651", "1629")


def _choose(rng: np.random.Generator, words: tuple[str, ...], n: int) -> NDArray[np.str_]:
    return np.array(words)[rng.integers(len(words), size=n)]


def _where(condition: Bool, moments: Moments) -> Moments:
    """Moments, and none where they do not apply."""
    return np.where(condition, moments, np.datetime64("NaT")).astype("datetime64[m]")


def _midnight(moments: Moments) -> Moments:
    return moments.astype("datetime64[D]").astype("datetime64[m]")


def hospital_records(batch: Batch, rng: np.random.Generator) -> dict[str, pl.DataFrame]:
    """Tables with one or a few rows for each patient."""
    n = len(batch.log)
    admitted = batch.arrival - hours(rng, 0.2, 20, n)
    later = batch.departure + hours(rng, 60, 360, n)  # two and a half days to fifteen
    ended = np.where(batch.died_in_unit, batch.departure, later)
    return {
        "patients": _patients(batch, admitted, ended, rng),
        "admissions": _admissions(batch, admitted, ended, rng),
        "icustays": _icustays(batch, rng),
        "diagnoses_icd": _diagnoses(batch, rng),
        **_suspicion(batch, rng),
    }


def _patients(batch: Batch, admitted: Moments, ended: Moments, rng: np.random.Generator) -> pl.DataFrame:
    n = len(batch.log)
    years = np.where(is_dated_back(batch.age), 300.0, batch.age)
    lived = (years * 365.242 * 1440).astype(np.int64).astype("timedelta64[m]")
    # Who comes again is seen at the first stay, and dies, if at all, at the second.
    final = np.minimum(np.arange(n) + np.append(batch.again[1:], False), n - 1)
    died, left = ~batch.survived[final], ended[final]
    # Some survivors are known to have died much later: after the 90 days of any outcome.
    much_later = ~died & (rng.random(n) < 0.2)
    dod = np.where(died, left, left + hours(rng, 24 * 120, 24 * 1500, n))
    return pl.DataFrame(
        {
            "subject_id": batch.keys(np.arange(n))["subject_id"],
            "gender": np.where(batch.first("gender") > 0, "F", "M"),
            "dob": clock(_midnight(admitted - lived)),
            "dod": clock(_where(died | much_later, _midnight(dod))),
            "dod_hosp": clock(_where(died, _midnight(dod))),
            "dod_ssn": clock(_where(much_later, _midnight(dod))),
            "expire_flag": (died | much_later).astype(np.int64),
            "age": batch.age,
            "admitted": clock(admitted),
        }
    ).filter(pl.Series(~batch.again))


def _admissions(batch: Batch, admitted: Moments, ended: Moments, rng: np.random.Generator) -> pl.DataFrame:
    n, died = len(batch.log), ~batch.survived
    this = pl.DataFrame(
        {
            **{k: v for k, v in batch.keys(np.arange(n)).items() if k != "icustay_id"},
            "admittime": clock(admitted),
            "dischtime": clock(ended),
            "deathtime": clock(_where(died, ended)),
            "admission_type": _choose(rng, ("EMERGENCY", "EMERGENCY", "URGENT", "ELECTIVE"), n),
            "admission_location": _choose(rng, ("EMERGENCY ROOM ADMIT", "TRANSFER FROM HOSP/EXTRAM"), n),
            "discharge_location": np.where(died, "DEAD/EXPIRED", "HOME"),
            "insurance": _choose(rng, ("Medicare", "Private", "Medicaid"), n),
            "language": "ENGL",
            "marital_status": _choose(rng, ("MARRIED", "SINGLE", "WIDOWED"), n),
            "ethnicity": "UNKNOWN/NOT SPECIFIED",
            "diagnosis": np.where(batch.infected, "SEPSIS", "CHEST PAIN"),
            "hospital_expire_flag": died.astype(np.int64),
            "has_chartevents_data": 1,
        }
    )
    return pl.concat([_earlier(this, batch, admitted, rng), this], how="vertical_relaxed")


def _earlier(this: pl.DataFrame, batch: Batch, admitted: Moments, rng: np.random.Generator) -> pl.DataFrame:
    """An admission before, without intensive care: it is what makes this one a readmission."""
    before = clock(admitted - hours(rng, 24 * 20, 24 * 300, len(batch.log)))
    return this.with_columns(
        pl.Series("hadm_id", ADMISSIONS + 2 * batch.number + 1),
        pl.Series("admittime", before),
        pl.Series("dischtime", before + np.timedelta64(4, "D")),
        deathtime=pl.lit(None, dtype=pl.Datetime("us")),
        discharge_location=pl.lit("HOME"),
        diagnosis=pl.lit("PNEUMONIA"),
        hospital_expire_flag=pl.lit(0),
        has_chartevents_data=pl.lit(0),
    ).filter(pl.Series((batch.first("re_admission") > 0) & ~batch.again))


def _icustays(batch: Batch, rng: np.random.Generator) -> pl.DataFrame:
    n = len(batch.log)
    unit, ward = _choose(rng, ("MICU", "SICU", "CCU", "TSICU"), n), rng.integers(7, 58, size=n)
    return pl.DataFrame(
        {
            **batch.keys(np.arange(n)),
            "dbsource": np.where(batch.carevue, "carevue", "metavision"),
            "first_careunit": unit,
            "last_careunit": unit,
            "first_wardid": ward,
            "last_wardid": ward,
            "intime": clock(batch.arrival),
            "outtime": clock(batch.departure),
            "los": ((batch.departure - batch.arrival) / _DAY).round(4),
        }
    )


def _diagnoses(batch: Batch, rng: np.random.Generator) -> pl.DataFrame:
    n, most = len(batch.log), 6
    ranks = rng.random((n, len(_COMORBIDITIES))).argsort(axis=1)[:, :most]
    codes = np.array(_COMORBIDITIES)[ranks]
    codes[:, 0] = np.where(batch.infected, _choose(rng, _SEPSIS, n), codes[:, 0])
    many = rng.integers(1, most + 1, size=n)
    stay, place = np.nonzero(np.arange(most) < many[:, None])
    keys = batch.keys(stay)
    return pl.DataFrame(
        {
            "subject_id": keys["subject_id"],
            "hadm_id": keys["hadm_id"],
            "seq_num": place + 1,
            "icd9_code": codes[stay, place],
        }
    )


def _suspicion(batch: Batch, rng: np.random.Generator) -> dict[str, pl.DataFrame]:
    """Antibiotics and cultures: close together around the onset of an infection, else one of them or far apart."""
    n = len(batch.log)
    onset = batch.arrival + batch.onset.astype("timedelta64[m]")
    kind = np.where(
        batch.infected, 4, rng.integers(4, size=n)
    )  # neither, cultures, antibiotics, far apart, both
    cultured, treated = np.isin(kind, (1, 3, 4)), kind >= 2
    first = rng.random(n) < 0.5
    # Culture first: the antibiotic is prescribed from the next midnight on. Antibiotic first: on the same day.
    given = np.where(first, _midnight(onset) + _DAY, _midnight(onset))
    given = np.where(kind == 3, _midnight(onset) + 6 * _DAY, given).astype("datetime64[m]")
    return {
        "prescriptions": _prescriptions(batch, np.flatnonzero(treated), given, onset, rng),
        "microbiologyevents": _cultures(batch, np.flatnonzero(cultured), onset, rng),
    }


def _prescriptions(
    batch: Batch, treated: Int, given: Moments, onset: Moments, rng: np.random.Generator
) -> pl.DataFrame:
    everyone = np.arange(len(batch.log))
    stay = np.concatenate([treated, everyone])
    drug = np.concatenate(
        [rng.integers(len(_ANTIBIOTICS) - 1, size=len(treated)), 4 + rng.integers(3, size=len(everyone))]
    )
    also = treated[rng.random(len(treated)) < 0.4]  # vancomycin beside it
    stay, drug = np.concatenate([stay, also]), np.concatenate([drug, np.full(len(also), 3)])
    names, numbers, routes = (np.array(x)[drug] for x in zip(*_ANTIBIOTICS, *_OTHER_DRUGS, strict=True))
    start = np.where(drug < 4, given[stay], _midnight(batch.arrival[stay])).astype("datetime64[m]")
    # MIMIC-IV knows the hour: with the antibiotic first it is given up to three hours before the culture.
    sooner = (onset[stay] - hours(rng, 0, 3, len(stay))).astype("datetime64[m]")
    hour = np.where(drug < 4, np.where(start > onset[stay], start, sooner), batch.arrival[stay])
    keys = batch.keys(stay)
    linked = rng.random(len(stay)) < 0.7  # a third of the prescriptions do not say to which stay they belong
    return pl.DataFrame(
        {
            **keys,
            "startdate": clock(start),
            "enddate": clock((start + 5 * _DAY).astype("datetime64[m]")),
            "starttime": clock(hour.astype("datetime64[m]")),
            "drug_type": "MAIN",
            "drug": names,
            "drug_name_poe": names,
            "drug_name_generic": names,
            "gsn": numbers,
            "dose_val_rx": "1",
            "dose_unit_rx": "g",
            "route": routes,
        }
    ).with_columns(icustay_id=pl.when(pl.Series(linked)).then("icustay_id"))


def _cultures(batch: Batch, cultured: Int, onset: Moments, rng: np.random.Generator) -> pl.DataFrame:
    n = len(cultured)
    blood, grown = rng.random(n) < 0.7, rng.random(n) < 0.3
    keys = batch.keys(cultured)
    return pl.DataFrame(
        {
            "subject_id": keys["subject_id"],
            "hadm_id": keys["hadm_id"],
            "chartdate": clock(_midnight(onset[cultured])),
            "charttime": clock(_where(rng.random(n) < 0.95, onset[cultured])),  # some know the day alone
            "spec_itemid": np.where(blood, 70012, 70079),
            "spec_type_desc": np.where(blood, "BLOOD CULTURE", "URINE"),
            "org_itemid": np.where(grown, 80002, 0),
            "org_name": "ESCHERICHIA COLI",
        }
    ).with_columns(
        org_itemid=pl.when(pl.col("org_itemid") > 0).then("org_itemid"),
        org_name=pl.when(pl.col("org_itemid") > 0).then("org_name"),
    )
