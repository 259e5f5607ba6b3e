"""From raw tables to the sepsis cohort: the stages in their order, each one SQL file; a killed run can resume."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caliope.clinical._cohort import Cohort, read_cohort_tables
from caliope.clinical._databases import MIMIC3, Database, load_dictionaries, quote
from caliope.clinical._postgres import copy_tables
from caliope.clinical._settings import RAGHU_IV_CUTS, RAGHU_VASO_CUTS, CohortSettings
from caliope.clinical._sources import (
    SourceError,
    count_rejected,
    create_notes,
    create_views,
    describe_source,
    find_tables,
    is_address,
    source_files,
)

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
    Stage("windows", "records in windows", ("records", "windows")),
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

Progress = Callable[[Stage, float], None]  # called with each finished stage and its seconds


@dataclass(frozen=True)
class Resources:
    """Memory, threads and disk that the work may use.

    Parameters
    ----------
    memory : str
        Size such as 4GB above which DuckDB works on disk.
    threads : int, optional
        Number of threads; by default all.
    keep_stages : path, optional
        DuckDB file in which every stage is kept; a killed run resumes from it.

    Examples
    --------
    >>> Resources(memory="8GB", threads=2).threads
    2
    """

    memory: str = "4GB"
    threads: int | None = None
    keep_stages: str | Path | None = None

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
    """Build the sepsis cohort of Komorowski et al. (2018) and Raghu et al. (2017) from the raw tables of MIMIC.

    Parameters
    ----------
    source : str or path
        A folder of csv, csv.gz or Parquet files, a DuckDB file, or a ``postgresql://`` address.
    settings : CohortSettings, optional
        Choices that the paper leaves open, and which published mistakes to repeat.
    database : Database
        ``MIMIC3`` or ``MIMIC4``.
    schema : str, optional
        Schema of the tables in PostgreSQL or DuckDB; by default the usual ones are searched.
    resources : Resources, optional
        Memory, threads and disk that the work may use.
    progress : callable, optional
        Called with each finished stage and its seconds.

    Returns
    -------
    Cohort
        The rows, the exclusions, the share of missing values and the corrupt rows.

    Examples
    --------
    >>> cohort = build_cohort("mimic-iii/", settings=CohortSettings(cuts="refit"))  # doctest: +SKIP
    >>> cohort.write("cohort.parquet")  # doctest: +SKIP

    References
    ----------
    Komorowski et al. (2018), Nature Medicine 24; Raghu et al. (2017), arXiv:1705.08422; Singer et al. (2016), JAMA 315.
    """
    chosen = settings or CohortSettings()
    given = resources or Resources()
    job = _fingerprint(source, chosen, database, schema)
    with tempfile.TemporaryDirectory(prefix="caliope-cohort-") as folder, _translate_errors(source):
        path = Path(given.keep_stages) if given.keep_stages else Path(folder) / "stages.duckdb"
        _check_kept_file(path, job)
        with closing(_connect(path, Path(folder), given)) as connection:
            done = _start_job(connection, job)
            _set_variables(connection, chosen)
            _run_script(connection, "macros")
            load_dictionaries(connection, database, chosen)
            if STAGES[0].name not in done:
                _open_source(connection, source, database, schema=schema)
                _run_script(connection, database.name)
            for stage in STAGES:
                if stage.name not in done:
                    _run_stage(connection, stage, chosen, progress)
            return read_cohort_tables(connection, chosen, database.name)


def _open_source(
    connection: DuckDBPyConnection, source: str | Path, database: Database, *, schema: str | None
) -> None:
    create_notes(connection)
    find = copy_tables if is_address(source) else find_tables
    create_views(connection, find(connection, str(source), database, schema=schema))


@contextmanager
def _translate_errors(source: str | Path) -> Iterator[None]:
    """Raise errors of DuckDB as one line about the source, and an interrupted query as KeyboardInterrupt."""
    try:
        import duckdb
    except ImportError as error:
        raise ImportError("the clinical cohort needs DuckDB: pip install 'caliope[clinical]'.") from error
    try:
        yield
    except (duckdb.InterruptException, RuntimeError) as error:
        # This is how DuckDB passes on Ctrl-C.
        if "interrupt" in str(error).lower():
            raise KeyboardInterrupt from error
        raise
    except duckdb.Error as error:
        raise SourceError(f"{describe_source(source)}: {_shorten(str(error))}") from error


def _shorten(message: str) -> str:
    """First line of an error of DuckDB; for a csv file also its name and what to do."""
    first = message.splitlines()[0]
    named = re.search(r"^\s*file = (.+)$", message, re.MULTILINE)
    if named is None:
        return first
    return (
        f"{named[1]}: {first} Its line endings may differ or a quote may be broken: give all lines one ending "
        "(dos2unix does), and check its quotes."
    )


def _connect(path: Path, folder: Path, resources: Resources) -> DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect(str(path))
    connection.execute(f"SET memory_limit = {quote(resources.memory)}")
    connection.execute(f"SET temp_directory = {quote(str(folder / 'spill'))}")
    # No stage depends on the order of rows, and without an order large tables need less memory.
    connection.execute("SET preserve_insertion_order = false")
    if resources.threads is not None:
        connection.execute(f"SET threads = {int(resources.threads)}")
    return connection


def _set_variables(connection: DuckDBPyConnection, settings: CohortSettings) -> None:
    """Set every setting under its own name, for ``getvariable`` in the SQL files."""
    plain = {k: v for k, v in asdict(settings).items() if k != "as_published"}
    record = 80.0 if settings.as_published.wide_windows else settings.hours_before + settings.hours_after
    decisions = int(record // settings.window_hours) - (0 if settings.as_published.same_window_action else 1)
    # A limit on the amount in a window, where the columns are in mL per four hours.
    short = max(4 / settings.window_hours, 1)
    extra: dict[str, Any] = {
        "short_windows": short,
        "iv_cuts": list(RAGHU_IV_CUTS),
        "vaso_cuts": list(RAGHU_VASO_CUTS),
        "full_length": decisions,
    }
    for name, value in (plain | asdict(settings.as_published) | extra).items():
        literal = quote(value) if isinstance(value, str) else str(value)
        connection.execute(f"SET VARIABLE {name} = {literal}")


def _run_script(connection: DuckDBPyConnection, name: str) -> None:
    connection.execute(files("caliope.clinical").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8"))


def _run_stage(
    connection: DuckDBPyConnection,
    stage: Stage,
    settings: CohortSettings,
    progress: Progress | None,
) -> None:
    began = time.perf_counter()
    _run_script(connection, stage.name)
    if stage.name == "complete" and settings.as_published.nearest_row_imputation:
        from caliope.clinical._states import impute_as_published

        impute_as_published(connection)
    if stage.name == "tables":
        count_rejected(connection)
    _record_stage(connection, stage.name)
    if progress is not None:
        progress(stage, time.perf_counter() - began)


def _fingerprint(source: str | Path, settings: CohortSettings, database: Database, schema: str | None) -> str:
    """Identify a job by its source, its settings and the version of the code.

    Each source file enters with its size and the time of its last change; what a PostgreSQL server holds cannot be
    checked. The place enters as a hash, because an address may hold a password.
    """
    place = str(source) if is_address(source) else str(Path(source).resolve())
    read = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in source_files(source, database)]
    parts: list[Any] = [
        _hash(place.encode()),
        read,
        settings.to_dict(),
        database.name,
        schema,
        _identify_code(),
    ]
    return json.dumps(parts, sort_keys=True)


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _identify_code() -> list[str]:
    """The version of the package, and a hash of its SQL files and dictionaries."""
    package = files("caliope.clinical")
    read = [f for folder in ("sql", "data") for f in package.joinpath(folder).iterdir() if f.is_file()]
    content = b"".join(f.name.encode() + f.read_bytes() for f in sorted(read, key=lambda f: f.name))
    return [version("caliope"), _hash(content)]


def _check_kept_file(path: Path, job: str) -> None:
    """Refuse a file that exists, unless it holds the stages of the same job."""
    import duckdb

    if not path.exists():
        return
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            found = connection.execute("SELECT job FROM caliope_job").fetchall()
    except duckdb.Error:
        found = []
    if found != [(job,)]:
        raise FileExistsError(
            f"{path} exists already and does not hold the stages of this job, or the source, the settings or the "
            "program have changed since: choose a new name."
        )


def _start_job(connection: DuckDBPyConnection, job: str) -> set[str]:
    """Record the job, and return which of its stages are done."""
    connection.execute("CREATE TABLE IF NOT EXISTS caliope_job AS SELECT ? AS job", [job])
    connection.execute("CREATE TABLE IF NOT EXISTS stages_done (stage VARCHAR)")
    return {row[0] for row in connection.execute("SELECT stage FROM stages_done").fetchall()}


def _record_stage(connection: DuckDBPyConnection, stage: str) -> None:
    """Record that a stage is done, once its tables are written."""
    connection.execute("INSERT INTO stages_done VALUES (?)", [stage])
