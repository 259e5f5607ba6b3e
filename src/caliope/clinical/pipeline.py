"""Raw tables -> sepsis cohort: the stages in their order, each a readable SQL file."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from caliope.clinical.cohort import Cohort, read_cohort_tables
from caliope.clinical.csv_files import quoted
from caliope.clinical.dictionaries import load_dictionaries
from caliope.clinical.resuming import begin, check_kept_file, finish, job_of
from caliope.clinical.settings import RAGHU_IV_CUTS, RAGHU_VASO_CUTS, CohortSettings
from caliope.clinical.sources import SourceError, count_rejected, open_source, plain_name
from caliope.clinical.tables import MIMIC3, Database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline: its name, what it is for, and the tables it makes."""

    name: str
    purpose: str
    tables: tuple[str, ...]


STAGES = (
    Stage(
        "tables",
        "raw tables with types; corrupt rows marked",
        ("icu_stays", "charted", "lab_results", "orders"),
    ),
    Stage("stays", "demographics and comorbidities", ("comorbidities", "stays")),
    Stage(
        "infection", "antibiotics and cultures", ("antibiotics", "cultures", "infection_events", "infections")
    ),
    Stage("windows", "records in windows of four hours", ("records", "windows")),
    Stage("measurements", "vital signs, laboratory, ventilation", ("measurements",)),
    Stage(
        "treatment", "fluids, vasopressors, urine", ("window_fluids", "window_vasopressors", "window_urine")
    ),
    Stage("steps", "means, sample and hold", ("window_means", "window_values", "held")),
    Stage("oxygen", "inspired oxygen from device and flow", ("known",)),
    Stage("complete", "gaps filled", ("fillings", "step_states")),
    Stage("scores", "SOFA, SIRS, shock index", ("urine_totals", "step_scores")),
    Stage("decisions", "states with the doses that followed", ("decisions",)),
    Stage("exclusions", "sepsis and exclusions", ("fates", "flow")),
    Stage("cohort", "actions and rewards", ("cuts", "cohort", "missingness")),
    Stage("quality", "corrupt rows counted", ("quality",)),
)

Progress = Callable[[Stage, float], None]  # a stage that is done, and the seconds it took


@dataclass(frozen=True)
class Resources:
    """What the machine may give to the work."""

    memory: str = "4GB"  # above it DuckDB goes to disk
    threads: int | None = None
    keep_stages: str | Path | None = (
        None  # a DuckDB file in which every stage stays; a killed run goes on from it
    )

    def __post_init__(self) -> None:
        if re.fullmatch(r"\d+(\.\d+)?\s*[KMGT]i?B", self.memory, re.IGNORECASE) is None:
            raise ValueError(f"memory must be a size such as 4GB or 500MB, got {self.memory!r}.")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads must be 1 or more, got {self.threads}.")


def build_cohort(
    source: str | Path,
    *,
    settings: CohortSettings | None = None,
    database: Database = MIMIC3,
    schema: str | None = None,
    resources: Resources | None = None,
    progress: Progress | None = None,
) -> Cohort:
    """Build the sepsis cohort of Komorowski 2018 and Raghu 2017 from the raw tables of MIMIC.

    Parameters
    ----------
    source : str or path
        A folder of csv, csv.gz or Parquet files, a DuckDB file, or a ``postgresql://`` address.
    settings : CohortSettings, optional
        What the paper leaves open, and which published mistakes to repeat.
    database : Database
        ``MIMIC3`` or ``MIMIC4``.
    schema : str, optional
        Schema of the tables in PostgreSQL or DuckDB; by default the usual ones are searched.
    resources : Resources, optional
        Memory above which the work goes to disk, threads, and a file in which to keep every stage.
    progress : callable, optional
        Told of each stage when it is done, with its seconds.

    Returns
    -------
    Cohort
        The table, who was left out and why, how much was missing, which rows were corrupt.

    References
    ----------
    Komorowski et al. 2018, Nature Medicine 24; Raghu et al. 2017, arXiv:1705.08422; Singer et al. 2016, JAMA 315.
    """
    chosen = settings or CohortSettings()
    given = resources or Resources()
    job = job_of(source, chosen, database, schema)
    with tempfile.TemporaryDirectory(prefix="caliope-cohort-") as folder, _plain_errors(source):
        path = Path(given.keep_stages) if given.keep_stages else Path(folder) / "stages.duckdb"
        check_kept_file(path, job)
        with closing(_connect(path, Path(folder), given)) as connection:
            done = begin(connection, job)
            _set_variables(connection, chosen)
            run_script(connection, "macros")
            load_dictionaries(connection, database, chosen)
            if STAGES[0].name not in done:
                open_source(connection, source, database, schema=schema)
                run_script(connection, database.name)
            for stage in STAGES:
                if stage.name not in done:
                    _run_stage(connection, stage, chosen, progress)
            return read_cohort_tables(connection, chosen, database.name)


@contextmanager
def _plain_errors(source: str | Path) -> Iterator[None]:
    """A file that cannot be read is the user's news, in one line; not a traceback of the engine."""
    try:
        import duckdb
    except ImportError as error:
        raise ImportError("the clinical cohort needs DuckDB: pip install 'caliope[clinical]'.") from error
    try:
        yield
    except (duckdb.InterruptException, RuntimeError) as error:
        if "interrupt" in str(error).lower():  # how DuckDB passes on Ctrl-C
            raise KeyboardInterrupt from error
        raise
    except duckdb.Error as error:
        raise SourceError(f"{plain_name(source)}: {_news(str(error))}") from error


def _news(message: str) -> str:
    """The first line of an error of DuckDB; for a csv file also its name and what to do."""
    first = message.splitlines()[0]
    named = re.search(r"^\s*file = (.+)$", message, re.MULTILINE)
    if named is None:
        return first
    return (
        f"{named[1]}: {first} Its lines may end in several ways or its quotes be broken: give all lines one ending "
        "(dos2unix does), and look at its quotes."
    )


def _connect(path: Path, folder: Path, resources: Resources) -> DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(str(path))
    connection.execute(f"SET memory_limit = {quoted(resources.memory)}")
    connection.execute(f"SET temp_directory = {quoted(str(folder / 'spill'))}")
    # Nothing depends on the order of rows, and without this promise large tables stream through.
    connection.execute("SET preserve_insertion_order = false")
    if resources.threads is not None:
        connection.execute(f"SET threads = {int(resources.threads)}")
    return connection


def _set_variables(connection: DuckDBPyConnection, settings: CohortSettings) -> None:
    """Every setting under its own name, for ``getvariable`` in the SQL files."""
    plain = {k: v for k, v in asdict(settings).items() if k != "as_published"}
    record = 80.0 if settings.as_published.wide_windows else settings.hours_before + settings.hours_after
    decisions = int(record // 4) - (0 if settings.as_published.same_window_action else 1)
    extra = {"iv_cuts": list(RAGHU_IV_CUTS), "vaso_cuts": list(RAGHU_VASO_CUTS), "full_length": decisions}
    for name, value in (plain | asdict(settings.as_published) | extra).items():
        literal = quoted(value) if isinstance(value, str) else str(value)
        connection.execute(f"SET VARIABLE {name} = {literal}")


def run_script(connection: DuckDBPyConnection, name: str) -> None:
    """Run one of the SQL files of this package."""
    connection.execute(files("caliope.clinical").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8"))


def _run_stage(
    connection: DuckDBPyConnection,
    stage: Stage,
    settings: CohortSettings,
    progress: Progress | None,
) -> None:
    began = time.perf_counter()
    run_script(connection, stage.name)
    if stage.name == "complete" and settings.as_published.nearest_row_imputation:
        from caliope.clinical.imputation import impute_as_published

        impute_as_published(connection)
    if stage.name == "tables":
        count_rejected(connection)
    finish(connection, stage.name)
    if progress is not None:
        progress(stage, time.perf_counter() - began)
