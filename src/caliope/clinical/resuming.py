"""A kept file of stages: a run that was killed goes on where it stopped, and no other file is ever touched."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from caliope.clinical.settings import CohortSettings
from caliope.clinical.tables import Database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def job_of(source: str | Path, settings: CohortSettings, database: Database, schema: str | None) -> str:
    """A fingerprint of what was asked for; the source enters as a hash, for it may hold a password."""
    place = blake2b(str(source).encode(), digest_size=16).hexdigest()
    return json.dumps([place, settings.to_dict(), database.name, schema], sort_keys=True)


def check_kept_file(path: Path, job: str) -> None:
    """Refuse a file that exists, unless it holds the stages of this very job."""
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
            f"{path} exists already and holds something else than the stages of this job: give a new name."
        )


def begin(connection: DuckDBPyConnection, job: str) -> set[str]:
    """Note the job, and tell which of its stages are done."""
    connection.execute("CREATE TABLE IF NOT EXISTS caliope_job AS SELECT ? AS job", [job])
    connection.execute("CREATE TABLE IF NOT EXISTS stages_done (stage VARCHAR)")
    return {row[0] for row in connection.execute("SELECT stage FROM stages_done").fetchall()}


def finish(connection: DuckDBPyConnection, stage: str) -> None:
    """Note that a stage is done, once its tables are safe."""
    connection.execute("INSERT INTO stages_done VALUES (?)", [stage])
