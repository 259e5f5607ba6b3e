"""A kept file of stages: a run that was killed goes on where it stopped, and no other file is ever touched."""

from __future__ import annotations

import json
from hashlib import blake2b
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caliope.clinical.settings import CohortSettings
from caliope.clinical.sources import is_address, source_files
from caliope.clinical.tables import Database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def job_of(source: str | Path, settings: CohortSettings, database: Database, schema: str | None) -> str:
    """A fingerprint of what was asked for, from what, and by which code.

    Each source file enters with its size and the time of its last change; what a PostgreSQL server holds cannot be
    checked. The place enters as a hash, for an address may hold a password.
    """
    place = str(source) if is_address(source) else str(Path(source).resolve())
    read = [(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in source_files(source, database)]
    parts: list[Any] = [_hash(place.encode()), read, settings.to_dict(), database.name, schema, _code()]
    return json.dumps(parts, sort_keys=True)


def _hash(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _code() -> list[str]:
    """The version of the package, and what its SQL files and dictionaries hold."""
    package = files("caliope.clinical")
    read = [f for folder in ("sql", "data") for f in package.joinpath(folder).iterdir() if f.is_file()]
    content = b"".join(f.name.encode() + f.read_bytes() for f in sorted(read, key=lambda f: f.name))
    return [version("caliope"), _hash(content)]


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
            f"{path} exists already and holds something else than the stages of this job (or the source, the settings "
            "or the program have changed since): give a new name."
        )


def begin(connection: DuckDBPyConnection, job: str) -> set[str]:
    """Note the job, and tell which of its stages are done."""
    connection.execute("CREATE TABLE IF NOT EXISTS caliope_job AS SELECT ? AS job", [job])
    connection.execute("CREATE TABLE IF NOT EXISTS stages_done (stage VARCHAR)")
    return {row[0] for row in connection.execute("SELECT stage FROM stages_done").fetchall()}


def finish(connection: DuckDBPyConnection, stage: str) -> None:
    """Note that a stage is done, once its tables are safe."""
    connection.execute("INSERT INTO stages_done VALUES (?)", [stage])
