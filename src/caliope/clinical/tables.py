"""Which raw tables and columns the cohort needs, in MIMIC-III and in MIMIC-IV."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RawTable:
    """A table as the hospital database has it; columns behind a ``?`` may be missing."""

    name: str
    columns: tuple[str, ...]
    required: bool = True
    by_item: bool = False  # only rows with an item of the dictionaries are wanted
    without: str = ""  # what is lost where an optional table is missing


@dataclass(frozen=True)
class Database:
    """One database: its name, its raw tables, and the folder of its table views."""

    name: str
    tables: tuple[RawTable, ...]
    schemas: tuple[str, ...]  # where its tables are usually found in PostgreSQL


MIMIC3 = Database(
    "mimic3",
    (
        RawTable("patients", ("subject_id", "gender", "dob", "dod")),
        RawTable(
            "admissions",
            ("subject_id", "hadm_id", "admittime", "dischtime", "?deathtime", "hospital_expire_flag"),
        ),
        RawTable("icustays", ("subject_id", "hadm_id", "icustay_id", "intime", "outtime")),
        RawTable(
            "chartevents",
            ("subject_id", "hadm_id", "icustay_id", "itemid", "charttime", "value", "valuenum", "?error"),
            by_item=True,
        ),
        RawTable("labevents", ("subject_id", "itemid", "charttime", "value", "valuenum"), by_item=True),
        RawTable(
            "prescriptions",
            ("subject_id", "hadm_id", "icustay_id", "startdate", "drug", "?gsn", "?route"),
        ),
        RawTable("microbiologyevents", ("subject_id", "hadm_id", "chartdate", "charttime")),
        RawTable("outputevents", ("icustay_id", "itemid", "charttime", "value", "?iserror"), by_item=True),
        RawTable(
            "inputevents_mv",
            (
                "icustay_id",
                "itemid",
                "starttime",
                "endtime",
                "amount",
                "amountuom",
                "rate",
                "rateuom",
                "?statusdescription",
            ),
            required=False,
            by_item=True,
            without="no MetaVision fluids and vasopressors",
        ),
        RawTable(
            "inputevents_cv",
            ("icustay_id", "itemid", "charttime", "amount", "amountuom", "rate", "rateuom"),
            required=False,
            by_item=True,
            without="no CareVue fluids and vasopressors",
        ),
        RawTable(
            "diagnoses_icd",
            ("subject_id", "hadm_id", "seq_num", "icd9_code"),
            required=False,
            without="elixhauser is 0 for everyone",
        ),
        RawTable(
            "procedureevents_mv",
            ("icustay_id", "itemid", "starttime"),
            required=False,
            by_item=True,
            without="no MetaVision cultures",
        ),
    ),
    ("mimiciii", "mimic3", "public"),
)

MIMIC4 = Database(
    "mimic4",
    (
        RawTable("patients", ("subject_id", "gender", "anchor_age", "anchor_year", "dod")),
        RawTable(
            "admissions",
            ("subject_id", "hadm_id", "admittime", "dischtime", "?deathtime", "hospital_expire_flag"),
        ),
        RawTable("icustays", ("subject_id", "hadm_id", "stay_id", "intime", "outtime")),
        RawTable(
            "chartevents",
            ("subject_id", "hadm_id", "stay_id", "itemid", "charttime", "value", "valuenum"),
            by_item=True,
        ),
        RawTable(
            "labevents",
            ("subject_id", "itemid", "charttime", "?storetime", "value", "valuenum"),
            by_item=True,
        ),
        RawTable("prescriptions", ("subject_id", "hadm_id", "starttime", "drug", "?gsn", "?route")),
        RawTable("microbiologyevents", ("subject_id", "hadm_id", "chartdate", "charttime")),
        RawTable("outputevents", ("stay_id", "itemid", "charttime", "value"), by_item=True),
        RawTable(
            "inputevents",
            (
                "stay_id",
                "itemid",
                "starttime",
                "endtime",
                "amount",
                "amountuom",
                "rate",
                "rateuom",
                "?statusdescription",
            ),
            by_item=True,
        ),
        RawTable(
            "diagnoses_icd",
            ("subject_id", "hadm_id", "seq_num", "icd_code", "icd_version"),
            required=False,
            without="elixhauser is 0 for everyone",
        ),
        RawTable(
            "procedureevents",
            ("stay_id", "itemid", "starttime"),
            required=False,
            by_item=True,
            without="no cultures from procedures",
        ),
    ),
    ("mimiciv_hosp", "mimiciv_icu", "mimic_hosp", "mimic_icu", "public"),
)
