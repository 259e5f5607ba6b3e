"""Raw tables in a folder of files or in a DuckDB file, as views that every later stage reads alike."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from caliope.clinical._databases import CSV_OPTIONS, Database, RawTable, quote, text_columns

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BLOCK = 16 * 2**20  # bytes that are searched for lines and quotes together
_BLANK = (b"", b"\r")
_ENDINGS = (".parquet", ".csv", ".csv.gz")


class SourceError(ValueError):
    """The source cannot be read, or lacks a table or column that the cohort requires."""


@dataclass(frozen=True)
class SourceTable:
    """What the source has of one raw table: SQL that reads it (empty if missing), and its columns in lower case."""

    table: RawTable
    relation: str
    columns: tuple[str, ...] = ()


def find_tables(
    connection: DuckDBPyConnection, source: str | Path, database: Database, *, schema: str | None
) -> list[SourceTable]:
    """Find every table of the database in a folder of csv or Parquet files, or in a DuckDB file."""
    place = Path(source)
    if place.is_dir():
        found = _find_files(connection, place, database)
    elif place.is_file():
        found = _attach(connection, place, database, schema=schema)
    else:
        raise SourceError(
            f"the source {describe_source(source)!r} is neither a folder of csv or Parquet files, nor a DuckDB file, "
            "nor a postgresql:// address."
        )
    check_tables(found, describe_source(source))
    return found


def create_notes(connection: DuckDBPyConnection) -> None:
    """Create the tables in which missing tables and csv lines lost in quotes are noted."""
    connection.execute("CREATE OR REPLACE TABLE missing_tables (source_table VARCHAR, without VARCHAR)")
    connection.execute("CREATE OR REPLACE TABLE swallowed (source_table VARCHAR, lines BIGINT)")


def create_views(connection: DuckDBPyConnection, found: Iterable[SourceTable]) -> None:
    """Create ``source_<table>`` for every table: text columns with lower-case names.

    A missing optional column is NULL; a missing optional table is empty and noted in ``missing_tables``.
    """
    for table in found:
        _create_view(connection, table)


def check_tables(found: Sequence[SourceTable], source: str) -> None:
    """Refuse a source without a required table or column, and name it."""
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


def describe_source(source: str | Path) -> str:
    """Name a source in a message, without the password that an address, even a misspelt one, may hold."""
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
    return [place] if place.is_file() else [p for t in database.tables for p in _find_paths(place, t.name)]


def count_rejected(connection: DuckDBPyConnection) -> None:
    """Count in ``rejected`` the csv lines that are not rows: too few or too many columns, or a broken quote."""
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


def _create_view(connection: DuckDBPyConnection, opened: SourceTable) -> None:
    table, columns = opened.table, [c.lstrip("?") for c in opened.table.columns]
    if not opened.relation:
        empty = ", ".join(f"NULL::VARCHAR AS {c}" for c in columns)
        connection.execute(f"CREATE OR REPLACE VIEW source_{table.name} AS SELECT {empty} WHERE false")
        connection.execute("INSERT INTO missing_tables VALUES (?, ?)", [table.name, table.without])
        return
    # Other programs write a missing value as an empty text or as nan.
    chosen = ", ".join(
        f"nullif(nullif(CAST(\"{c}\" AS VARCHAR), ''), 'nan') AS {c}"
        if c in opened.columns
        else f"NULL::VARCHAR AS {c}"
        for c in columns
    )
    # A large table is read once, by the stage that filters it; a small one is kept for the several that read it.
    kind = "VIEW" if table.by_item else "TABLE"
    connection.execute(
        f"CREATE OR REPLACE {kind} source_{table.name} AS SELECT {chosen} FROM {opened.relation}"
    )


def _read_columns(connection: DuckDBPyConnection, relation: str) -> tuple[str, ...]:
    described = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    return tuple(str(row[0]).lower() for row in described)


def _find_files(connection: DuckDBPyConnection, folder: Path, database: Database) -> list[SourceTable]:
    found = []
    for table in database.tables:
        paths = _find_paths(folder, table.name)
        if not paths:
            found.append(SourceTable(table, ""))
            continue
        listed = "[" + ", ".join(quote(str(path)) for path in paths) + "]"
        if paths[0].name.lower().endswith(".parquet"):
            relation = f"read_parquet({listed})"
            found.append(SourceTable(table, relation, _read_columns(connection, relation)))
        else:
            names = _read_header(paths)
            _note_lost_lines(connection, table.name, paths, names)
            relation = f"read_csv({listed}, {text_columns(names)}, header = true, {CSV_OPTIONS})"
            found.append(SourceTable(table, relation, names))
    return found


def _note_lost_lines(
    connection: DuckDBPyConnection, table: str, paths: list[Path], names: tuple[str, ...]
) -> None:
    for path in paths:
        try:
            lines = _count_lost_lines(connection, path, names)
        except (OSError, EOFError, zlib.error) as error:
            raise SourceError(f"{path} cannot be read: {error}.") from error
        if lines:
            connection.execute("INSERT INTO swallowed VALUES (?, ?)", [table, lines])


def _count_lost_lines(connection: DuckDBPyConnection, path: Path, names: tuple[str, ...]) -> int:
    """Count the lines below the header that are neither a row, nor a rejected line, nor blank.

    A stray quote turns all lines up to the next quote into text of one row. Only a file with quotes can lose lines
    that way; it is read once more to count them.
    """
    lines, quotes = _count_lines(path)
    if not quotes:
        return 0
    rejects = "rejects_scan = 'counted_scans', rejects_table = 'counted_errors'"
    rows = connection.execute(
        f"SELECT count(*) FROM read_csv({quote(str(path))}, {text_columns(names)}, header = true, {CSV_OPTIONS}, "
        f"{rejects})"
    ).fetchall()[0][0]
    refused = connection.execute("SELECT count(DISTINCT line) FROM counted_errors").fetchall()[0][0]
    connection.execute("DROP TABLE counted_errors")
    connection.execute("DROP TABLE counted_scans")
    return max(0, lines - int(rows) - int(refused))


def _count_lines(path: Path) -> tuple[int, bool]:
    """Number of non-blank lines below the first one, and whether any of them has a quote."""
    with _open_bytes(path) as file:
        file.readline()
        lines, quotes, rest = 0, False, b""
        while block := file.read(_BLOCK):
            quotes = quotes or b'"' in block
            *whole, rest = (rest + block).split(b"\n")
            lines += len(whole) - sum(whole.count(blank) for blank in _BLANK)
        return lines + (rest not in _BLANK), quotes


def _open_bytes(path: Path) -> BinaryIO:
    return cast("BinaryIO", gzip.open(path) if path.name.lower().endswith(".gz") else path.open("rb"))


def _read_header(paths: list[Path]) -> tuple[str, ...]:
    """Column names in lower case; the parts of a table must agree."""
    found = {}
    for path in paths:
        try:
            with _open_bytes(path) as file:
                first = file.readline().decode("utf-8-sig")
            found[path] = tuple(name.strip().lower() for name in next(csv.reader([first]), []))
        except UnicodeDecodeError as error:
            raise SourceError(
                f"{path} is not UTF-8 text: {error}. Convert it, for instance with iconv."
            ) from error
        except (OSError, EOFError, zlib.error, csv.Error) as error:
            raise SourceError(f"{path} cannot be read: {error}.") from error
        if found[path] != found[paths[0]]:
            raise SourceError(f"{path} and {paths[0].name} have different columns.")
    names = found[paths[0]]
    if not names or len(set(names)) < len(names) or "" in names:
        raise SourceError(f"the first line of {paths[0]} is not a header of distinct column names.")
    return names


def _find_paths(folder: Path, name: str) -> list[Path]:
    """Files of a table: ``NAME.csv.gz`` in the folder or one below it, or the parts in a folder ``NAME``."""
    everything = sorted(p for p in (*folder.glob("*"), *folder.glob("*/*")) if p.is_file())
    single = [p for p in everything if p.name.lower() in {name + ending for ending in _ENDINGS}]
    parts = [
        p
        for p in everything
        if p.parent.name.lower() in {name, f"{name}.parquet"}
        and _find_ending(p) is not None
        and p not in single
    ]
    # Two copies of a table need not agree.
    copies = [*single, *sorted({p.parent for p in parts})]
    if len(copies) > 1:
        raise SourceError(f"the table {name} exists twice, as {copies[0]} and as {copies[1]}: keep one.")
    kinds = {_find_ending(p) for p in parts}
    if len(kinds) > 1:
        raise SourceError(f"{parts[0].parent} holds files of several types: keep one type.")
    return single or parts


def _find_ending(path: Path) -> int | None:
    matching = [i for i, ending in enumerate(_ENDINGS) if path.name.lower().endswith(ending)]
    return matching[0] if matching else None


def _attach(
    connection: DuckDBPyConnection, path: Path, database: Database, *, schema: str | None
) -> list[SourceTable]:
    import duckdb

    try:
        connection.execute(f"ATTACH {quote(str(path))} AS source_file (READ_ONLY)")
    except duckdb.Error as error:
        raise SourceError(f"{path} is not a DuckDB file: {str(error).splitlines()[0]}") from error
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
            found.append(SourceTable(table, ""))
            continue
        place = min(places, key=lambda p: (order.index(p[0]) if p[0] in order else len(order), p))
        relation = f'source_file."{place[0]}"."{place[1]}"'
        found.append(SourceTable(table, relation, _read_columns(connection, relation)))
    return found
