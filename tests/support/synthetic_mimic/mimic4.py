"""Synthetic tables of MIMIC-III under the names and columns of MIMIC-IV."""

from __future__ import annotations

import polars as pl

_NAMES = {"icustay_id": "stay_id", "cgid": "caregiver_id", "ethnicity": "race"}
_TABLES = {"inputevents_mv": "inputevents", "procedureevents_mv": "procedureevents"}
_OLDEST = 91  # the age of anyone older than 89


def as_mimic4(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The same rows under the names of MIMIC-IV: an age and a year for a birth, codes with their version."""
    kept = {
        _TABLES.get(name, name): _rename(frame) for name, frame in tables.items() if name != "inputevents_cv"
    }
    changes = {
        "patients": _patients,
        "prescriptions": _prescriptions,
        "microbiologyevents": _microbiology,
        "diagnoses_icd": _diagnoses,
        "labevents": _labs,
        "d_items": _items,
    }
    return {name: changes[name](frame) if name in changes else frame for name, frame in kept.items()}


def _rename(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.rename(_NAMES, strict=False)


def _patients(frame: pl.DataFrame) -> pl.DataFrame:
    age = pl.col("age").floor().cast(pl.Int64)
    return frame.with_columns(
        anchor_age=pl.when(age > 89).then(_OLDEST).otherwise(age),
        anchor_year=pl.col("admitted").dt.year(),
        anchor_year_group=pl.lit("2011 - 2013"),
        dod=pl.col("dod").dt.date(),
    )


def _prescriptions(frame: pl.DataFrame) -> pl.DataFrame:
    number = pl.int_range(1, pl.len() + 1)
    return frame.with_columns(
        stoptime=pl.col("enddate"), pharmacy_id=10_000_000 + number, doses_per_24_hrs=pl.lit(2.0)
    )


def _microbiology(frame: pl.DataFrame) -> pl.DataFrame:
    culture = pl.when(pl.col("spec_itemid") == 70012).then(pl.lit("Blood Culture, Routine"))
    return frame.with_columns(
        micro_specimen_id=1_000_000 + pl.int_range(1, pl.len() + 1),
        test_seq=pl.lit(1),
        test_itemid=pl.lit(90201),
        test_name=culture.otherwise(pl.lit("URINE CULTURE")),
    )


def _diagnoses(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(icd_code=pl.col("icd9_code"), icd_version=pl.lit(9))


def _labs(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(
        specimen_id=1_000_000 + pl.int_range(1, pl.len() + 1),
        storetime=pl.col("charttime") + pl.duration(hours=1),
        priority=pl.lit("ROUTINE"),
    )


def _items(frame: pl.DataFrame) -> pl.DataFrame:
    links = pl.col("linksto").replace(_TABLES)
    return frame.filter(pl.col("dbsource") == "metavision").with_columns(
        linksto=links, abbreviation=pl.col("label"), param_type=pl.lit("Numeric")
    )
