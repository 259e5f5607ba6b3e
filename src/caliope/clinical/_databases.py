"""MIMIC-III and MIMIC-IV: the raw tables and columns that the cohort needs, and the dictionaries of their items."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from caliope.clinical._settings import CohortSettings

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class RawTable:
    """A table as the hospital database has it.

    Attributes
    ----------
    name : str
        Name in lower case.
    columns : tuple of str
        Columns that are read; one that begins with ``?`` may be missing.
    required : bool
        Whether a source without the table is refused.
    by_item : bool
        Whether only rows with an item of the dictionaries are read.
    without : str
        What the cohort lacks where an optional table is missing.
    """

    name: str
    columns: tuple[str, ...]
    required: bool = True
    by_item: bool = False
    without: str = ""


@dataclass(frozen=True)
class Database:
    """One database: its name, its raw tables, and the schemas in which PostgreSQL usually has them."""

    name: str
    tables: tuple[RawTable, ...]
    schemas: tuple[str, ...]


def _table(
    name: str, columns: str, *, required: bool = True, by_item: bool = False, without: str = ""
) -> RawTable:
    return RawTable(name, tuple(columns.split()), required, by_item, without)


_ADMISSIONS = _table("admissions", "subject_id hadm_id admittime dischtime ?deathtime hospital_expire_flag")
_MICROBIOLOGY = _table("microbiologyevents", "subject_id hadm_id chartdate charttime")
_INFUSION = "itemid starttime endtime amount amountuom rate rateuom ?statusdescription"
_NO_CODES = "elixhauser is 0 for everyone"

MIMIC3 = Database(
    "mimic3",
    (
        _table("patients", "subject_id gender dob dod"),
        _ADMISSIONS,
        _table("icustays", "subject_id hadm_id icustay_id intime outtime"),
        _table(
            "chartevents",
            "subject_id hadm_id icustay_id itemid charttime value valuenum ?error",
            by_item=True,
        ),
        _table("labevents", "subject_id itemid charttime value valuenum", by_item=True),
        _table("prescriptions", "subject_id hadm_id icustay_id startdate drug ?gsn ?route"),
        _MICROBIOLOGY,
        _table("outputevents", "icustay_id itemid charttime value ?iserror", by_item=True),
        _table(
            "inputevents_mv",
            f"icustay_id {_INFUSION}",
            required=False,
            by_item=True,
            without="no MetaVision fluids and vasopressors",
        ),
        _table(
            "inputevents_cv",
            "icustay_id itemid charttime amount amountuom rate rateuom",
            required=False,
            by_item=True,
            without="no CareVue fluids and vasopressors",
        ),
        _table("diagnoses_icd", "subject_id hadm_id seq_num icd9_code", required=False, without=_NO_CODES),
        _table(
            "procedureevents_mv",
            "icustay_id itemid starttime",
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
        _table("patients", "subject_id gender anchor_age anchor_year dod"),
        _ADMISSIONS,
        _table("icustays", "subject_id hadm_id stay_id intime outtime"),
        _table("chartevents", "subject_id hadm_id stay_id itemid charttime value valuenum", by_item=True),
        _table("labevents", "subject_id itemid charttime ?storetime value valuenum", by_item=True),
        _table("prescriptions", "subject_id hadm_id starttime drug ?gsn ?route"),
        _MICROBIOLOGY,
        _table("outputevents", "stay_id itemid charttime value", by_item=True),
        _table("inputevents", f"stay_id {_INFUSION}", by_item=True),
        _table(
            "diagnoses_icd",
            "subject_id hadm_id seq_num icd_code icd_version",
            required=False,
            without=_NO_CODES,
        ),
        _table(
            "procedureevents",
            "stay_id itemid starttime",
            required=False,
            by_item=True,
            without="no cultures from procedures",
        ),
    ),
    ("mimiciv_hosp", "mimiciv_icu", "mimic_hosp", "mimic_icu", "public"),
)

# What the text of every csv file is, whoever wrote it.
_DIALECT = "delim = ',', quote = '\"', escape = '\"'"
# A guess of types from the first rows would change with them: every column of a hospital's file is text until checked.
CSV_OPTIONS = (
    f"auto_detect = false, {_DIALECT}, ignore_errors = true, store_rejects = true, rejects_limit = 0"
)
_NUMBERS = f"header = true, {_DIALECT}, sample_size = -1"
_TEXT = f"{_NUMBERS}, all_varchar = true"


def quote(text: str) -> str:
    """Write text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def text_columns(names: Iterable[str]) -> str:
    """Columns of a csv file as an option of DuckDB: all of them text."""
    return "columns = {" + ", ".join(f"{quote(name)}: 'VARCHAR'" for name in names) + "}"


def load_dictionaries(connection: DuckDBPyConnection, database: Database, settings: CohortSettings) -> None:
    """Read every dictionary; a line that belongs to a published mistake is used only as the settings say."""
    repeated = "[" + ", ".join(quote(name) for name in settings.as_published.repeated) + "]::VARCHAR[]"

    def whole(file: str, options: str = _NUMBERS) -> str:
        return f"SELECT * FROM read_csv({quote(str(_data_path(file)))}, {options})"

    def selected(file: str) -> str:
        return (
            f"{whole(file)} WHERE as_published IS NULL "
            f"OR list_contains({repeated}, as_published) = (when_published = 1)"
        )

    hold = "CASE WHEN getvariable('potassium_six_days') THEN published_hold_hours ELSE hold_hours END"
    tables = {
        "items": selected(f"items_{database.name}.csv"),
        "fluids": selected("fluids.csv"),
        "vasopressors": selected("vasopressors.csv"),
        "urine_items": selected("urine.csv"),
        "variables": f"SELECT * REPLACE ({hold} AS hold_hours) FROM ({whole('variables.csv')})",
        "devices": whole("devices.csv"),
        "oxygen": whole("oxygen.csv"),
        "ventilator_modes": whole("ventilator_modes.csv"),
        "units": whole("units.csv"),
        "antibiotic_names": whole("antibiotics.csv", _TEXT),
        "antibiotic_gsn": whole("antibiotic_gsn.csv", _TEXT),
        "local_routes": whole("local_routes.csv", _TEXT),
        "elixhauser": f"SELECT * REPLACE (icd_version::INTEGER AS icd_version) FROM ({whole('elixhauser.csv', _TEXT)})",
    }
    for name, query in tables.items():
        connection.execute(f"CREATE OR REPLACE TABLE {name} AS {query}")


def features() -> list[tuple[str, str]]:
    """Names and transforms of the 48 state features, in the order of Raghu et al. (2017)."""
    with _data_path("features.csv").open(encoding="utf-8", newline="") as file:
        return [(row["feature"], row["transform"]) for row in csv.DictReader(file)]


def _data_path(name: str) -> Path:
    return Path(str(files("caliope.clinical").joinpath("data", name)))
