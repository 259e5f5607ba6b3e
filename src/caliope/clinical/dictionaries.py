"""Item numbers, limits, units and names from the data files beside this module -> tables of the pipeline."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from caliope.clinical.csv_files import quoted
from caliope.clinical.settings import CohortSettings
from caliope.clinical.tables import Database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_NUMBERS = "header = true, delim = ',', quote = '\"', escape = '\"', sample_size = -1"
_TEXT = _NUMBERS + ", all_varchar = true"


def data_path(name: str) -> Path:
    """Where a data file of the package lies."""
    return Path(str(files("caliope.clinical").joinpath("data", name)))


def load_dictionaries(connection: DuckDBPyConnection, database: Database, settings: CohortSettings) -> None:
    """Read every dictionary; a line that belongs to a published mistake enters only as the settings say."""
    repeated = "[" + ", ".join(quoted(name) for name in settings.as_published.repeated) + "]::VARCHAR[]"

    def chosen(file: str) -> str:
        return (
            f"SELECT * FROM read_csv({quoted(str(data_path(file)))}, {_NUMBERS}) WHERE as_published IS NULL "
            f"OR list_contains({repeated}, as_published) = (when_published = 1)"
        )

    def whole(file: str, options: str = _NUMBERS) -> str:
        return f"SELECT * FROM read_csv({quoted(str(data_path(file)))}, {options})"

    hold = "CASE WHEN getvariable('potassium_six_days') THEN published_hold_hours ELSE hold_hours END"
    tables = {
        "items": chosen(f"items_{database.name}.csv"),
        "fluids": chosen("fluids.csv"),
        "vasopressors": chosen("vasopressors.csv"),
        "urine_items": chosen("urine.csv"),
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
    """Names and transforms of the 48 state features, in Raghu's order."""
    import csv

    with data_path("features.csv").open(encoding="utf-8", newline="") as file:
        return [(row["feature"], row["transform"]) for row in csv.DictReader(file)]
