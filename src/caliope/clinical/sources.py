"""Raw tables from a folder of files, a DuckDB file or PostgreSQL -> views that every later stage reads alike."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from caliope.clinical.csv_files import CSV_OPTIONS, quoted, text_columns
from caliope.clinical.swallowed import count_swallowed
from caliope.clinical.tables import Database, RawTable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_ENDINGS = (".parquet", ".csv", ".csv.gz")


class SourceError(ValueError):
    """The source lacks something that no cohort can do without."""


@dataclass(frozen=True)
class Opened:
    """What was found of one raw table."""

    table: RawTable
    relation: str  # SQL that reads it; empty where the table is missing
    columns: tuple[str, ...] = ()  # in lower case


def open_source(
    connection: DuckDBPyConnection, source: str | Path, database: Database, *, schema: str | None
) -> None:
    """Make ``source_<table>`` for every table of the database: text columns with lower-case names.

    A missing optional column is NULL, a missing optional table empty and noted in ``missing_tables``. A missing
    required one is refused with its name.
    """
    text = str(source)
    connection.execute("CREATE OR REPLACE TABLE missing_tables (source_table VARCHAR, without VARCHAR)")
    connection.execute("CREATE OR REPLACE TABLE swallowed (source_table VARCHAR, lines BIGINT)")
    if is_address(text):
        from caliope.clinical.postgres import copy_tables

        found = copy_tables(connection, text, database, schema=schema)
    elif Path(text).is_dir():
        found = _files(connection, Path(text), database)
    elif Path(text).is_file():
        found = _attached(connection, Path(text), database, schema=schema)
    else:
        raise SourceError(
            f"the source {plain_name(source)!r} is neither a folder of csv or Parquet files, nor a DuckDB file, nor a "
            "postgresql:// address."
        )
    check_tables(found, plain_name(source))
    for opened in found:
        _make_view(connection, opened)


def check_tables(found: Iterable[Opened], source: str) -> None:
    """Refuse a source without a required table or column; say which."""
    absent = [o.table.name for o in found if not o.relation and o.table.required]
    if absent:
        raise SourceError(f"{source}: the table {absent[0]} is missing ({', '.join(absent)} are required).")
    for opened in found:
        needed = [c for c in opened.table.columns if not c.startswith("?")]
        lacking = [c for c in needed if c not in opened.columns]
        if opened.relation and lacking:
            raise SourceError(f"{source}: the table {opened.table.name} has no column {lacking[0]}.")
    inputs = [o for o in found if o.table.name.startswith("inputevents")]
    if not any(o.relation for o in inputs):
        names = " and ".join(o.table.name for o in inputs)
        raise SourceError(f"{source}: {names} are missing: without treatment there are no actions.")


def plain_name(source: str | Path) -> str:
    """What to call a source in a message: an address, even a misspelt one, may hold a password."""
    text = str(source)
    return "PostgreSQL" if "://" in text or text.strip().lower().startswith("postgres") else text


def is_address(source: str | Path) -> bool:
    """Whether the source is a PostgreSQL server."""
    return str(source).startswith(("postgresql://", "postgres://"))


def source_files(source: str | Path, database: Database) -> list[Path]:
    """Every file that will be read; none where the source is a server or does not exist."""
    place = Path(source)
    if is_address(source) or not place.exists():
        return []
    return [place] if place.is_file() else [p for t in database.tables for p in _paths_of(place, t.name)]


def count_rejected(connection: DuckDBPyConnection) -> None:
    """Count in ``rejected`` the lines of csv files that are no rows: too few columns, too many, a broken quote."""
    connection.execute(
        "CREATE OR REPLACE TABLE rejected AS SELECT source_table, "
        "'line that is no row: within the quotes of another' AS problem, lines AS rows FROM swallowed"
    )
    there = connection.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'reject_errors'"
    ).fetchone()
    if there is not None and there[0]:
        connection.execute(
            "INSERT INTO rejected SELECT regexp_extract(lower(s.file_path), '([^/\\\\]+?)(\\.csv.*)?$', 1), "
            "'line that is no row: ' || lower(e.error_type::VARCHAR), count(DISTINCT (e.file_id, e.line)) "
            "FROM reject_errors e JOIN reject_scans s USING (scan_id, file_id) GROUP BY ALL"
        )


def _make_view(connection: DuckDBPyConnection, opened: Opened) -> None:
    table, columns = opened.table, [c.lstrip("?") for c in opened.table.columns]
    if not opened.relation:
        empty = ", ".join(f"NULL::VARCHAR AS {c}" for c in columns)
        connection.execute(f"CREATE OR REPLACE VIEW source_{table.name} AS SELECT {empty} WHERE false")
        connection.execute("INSERT INTO missing_tables VALUES (?, ?)", [table.name, table.without])
        return
    # What other programs write for "nothing": an empty text, or a number that is none.
    chosen = ", ".join(
        f"nullif(nullif(CAST(\"{c}\" AS VARCHAR), ''), 'nan') AS {c}"
        if c in opened.columns
        else f"NULL::VARCHAR AS {c}"
        for c in columns
    )
    # A large table is read once, by the stage that filters it; a small one is kept, because several read it.
    kind = "VIEW" if table.by_item else "TABLE"
    connection.execute(
        f"CREATE OR REPLACE {kind} source_{table.name} AS SELECT {chosen} FROM {opened.relation}"
    )


def _columns(connection: DuckDBPyConnection, relation: str) -> tuple[str, ...]:
    described = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return tuple(str(row[0]).lower() for row in described)


def _files(connection: DuckDBPyConnection, folder: Path, database: Database) -> list[Opened]:
    found = []
    for table in database.tables:
        paths = _paths_of(folder, table.name)
        if not paths:
            found.append(Opened(table, ""))
            continue
        listed = "[" + ", ".join(quoted(str(path)) for path in paths) + "]"
        if paths[0].name.lower().endswith(".parquet"):
            relation = f"read_parquet({listed})"
            found.append(Opened(table, relation, _columns(connection, relation)))
        else:
            names = _header(paths)
            _note_swallowed(connection, table.name, paths, names)
            relation = f"read_csv({listed}, {text_columns(names)}, header = true, {CSV_OPTIONS})"
            found.append(Opened(table, relation, names))
    return found


def _note_swallowed(
    connection: DuckDBPyConnection, table: str, paths: list[Path], names: tuple[str, ...]
) -> None:
    for path in paths:
        try:
            lines = count_swallowed(connection, path, names)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{path} cannot be read: {error}.") from error
        if lines:
            connection.execute("INSERT INTO swallowed VALUES (?, ?)", [table, lines])


def _header(paths: list[Path]) -> tuple[str, ...]:
    """Names of the columns, in lower case; the parts of a table must agree."""
    found = {}
    for path in paths:
        try:
            with gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb") as file:
                first = file.readline().decode("utf-8-sig")
            found[path] = tuple(name.strip().lower() for name in next(csv.reader([first]), []))
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{path} is no UTF-8 text: {error}. Convert it, for instance with iconv."
            ) from error
        except (OSError, EOFError, zlib.error, csv.Error) as error:
            raise SourceError(f"{path} cannot be read: {error}.") from error
        if found[path] != found[paths[0]]:
            raise SourceError(f"{path} has other columns than {paths[0].name}.")
    names = found[paths[0]]
    if not names or len(set(names)) < len(names) or "" in names:
        raise SourceError(f"{paths[0]} has no header of distinct names in its first line.")
    return names


def _paths_of(folder: Path, name: str) -> list[Path]:
    """Files of a table: ``NAME.csv.gz`` in the folder or one below it, or the parts in a folder ``NAME``."""
    everything = sorted(p for p in (*folder.glob("*"), *folder.glob("*/*")) if p.is_file())
    single = [p for p in everything if p.name.lower() in {name + ending for ending in _ENDINGS}]
    parts = [
        p
        for p in everything
        if p.parent.name.lower() in {name, f"{name}.parquet"} and _ending(p) is not None and p not in single
    ]
    # Which of two copies is meant nobody can tell, and they need not agree.
    copies = [*single, *sorted({p.parent for p in parts})]
    if len(copies) > 1:
        raise SourceError(f"the table {name} is there twice, as {copies[0]} and as {copies[1]}: keep one.")
    kinds = {_ending(p) for p in parts}
    if len(kinds) > 1:
        raise SourceError(f"{parts[0].parent} holds files of several kinds; give one kind.")
    return single or parts


def _ending(path: Path) -> int | None:
    matching = [i for i, ending in enumerate(_ENDINGS) if path.name.lower().endswith(ending)]
    return matching[0] if matching else None


def _attached(
    connection: DuckDBPyConnection, path: Path, database: Database, *, schema: str | None
) -> list[Opened]:
    import duckdb

    try:
        connection.execute(f"ATTACH {quoted(str(path))} AS source_file (READ_ONLY)")
    except duckdb.Error as error:
        raise SourceError(f"{path} is no DuckDB file: {str(error).splitlines()[0]}") from error
    listed = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'source_file' "
        "UNION SELECT schema_name, view_name FROM duckdb_views() "
        "WHERE database_name = 'source_file' AND NOT internal ORDER BY ALL"
    ).fetchall()
    order = [schema] if schema else [*database.schemas, "main"]
    found = []
    for table in database.tables:
        places = [(s, t) for s, t in listed if t.lower() == table.name and (s in order or not schema)]
        if not places:
            found.append(Opened(table, ""))
            continue
        place = min(places, key=lambda p: (order.index(p[0]) if p[0] in order else len(order), p))
        relation = f'source_file."{place[0]}"."{place[1]}"'
        found.append(Opened(table, relation, _columns(connection, relation)))
    return found
