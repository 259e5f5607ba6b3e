"""Tables of a PostgreSQL server, streamed into the pipeline: only the columns and items that it needs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caliope.clinical._databases import CSV_OPTIONS, Database, RawTable, quote, text_columns
from caliope.clinical._sources import SourceError, SourceTable, check_tables

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_HOST = r"(\[[0-9a-fA-F:.%]+\]|[^@/?#:,\s\[\]]*)(:\d+)?"
_ADDRESS = re.compile(
    rf"postgres(ql)?://([^@/?#:\s]*(:[^@/?#:\s]*)?@)?{_HOST}(,{_HOST})*(/[^@/?#:\s]*)?(\?[^@#\s]*)?"
)
CHUNK_BYTES = 128 * 2**20  # size of the files in which rows pass from the server to DuckDB


def copy_tables(
    connection: DuckDBPyConnection, address: str, database: Database, *, schema: str | None
) -> list[SourceTable]:
    """Copy the raw tables with ``COPY ... TO STDOUT``: needs no DuckDB extension, and only the right to read."""
    try:
        import psycopg
    except ImportError as error:
        raise ImportError("PostgreSQL needs psycopg: pip install 'caliope[clinical]'.") from error
    _check_address(address)
    try:
        server = psycopg.connect(address, autocommit=True)
    except psycopg.Error as error:
        raise SourceError(f"cannot connect to PostgreSQL: {str(error).splitlines()[0]}") from error
    with server:
        try:
            server.execute("SET datestyle = 'ISO, YMD'")
            found = [_find_table(server, table, database, schema) for table in database.tables]
            check_tables(found, "PostgreSQL")
            return [
                _copy_table(connection, server, opened) if opened.relation else opened for opened in found
            ]
        except psycopg.Error as error:
            raise SourceError(f"PostgreSQL reports: {str(error).splitlines()[0]}") from error


def _check_address(address: str) -> None:
    """Refuse a malformed address without quoting it: psycopg would put its password into the message."""
    import psycopg

    try:
        psycopg.conninfo.conninfo_to_dict(address)
        readable = _ADDRESS.fullmatch(address) is not None
    except psycopg.Error:
        readable = False
    if not readable:
        raise SourceError(
            "the address of the PostgreSQL server cannot be read: write postgresql://user:password@host:port/database, "
            "special characters as %40 for @, %3A for :, %2F for /."
        ) from None


def _find_table(server: Any, table: RawTable, database: Database, schema: str | None) -> SourceTable:
    searched = [schema] if schema else list(database.schemas)
    columns = server.execute(
        "SELECT table_schema, table_name, column_name FROM information_schema.columns "
        "WHERE lower(table_name) = %s AND table_schema = ANY(%s) ORDER BY ordinal_position",
        (table.name, searched),
    ).fetchall()
    if not columns:
        return SourceTable(table, "")
    place = min({row[0] for row in columns}, key=searched.index)
    here = [row for row in columns if row[0] == place]
    needed = {c.lstrip("?") for c in table.columns}
    named = ", ".join(f'"{row[2]}" AS {row[2].lower()}' for row in here if row[2].lower() in needed)
    relation = f'(SELECT {named} FROM "{place}"."{here[0][1]}") t'
    return SourceTable(table, relation, tuple(row[2].lower() for row in here))


def _copy_table(connection: DuckDBPyConnection, server: Any, opened: SourceTable) -> SourceTable:
    present = [c for c in (c.lstrip("?") for c in opened.table.columns) if c in opened.columns]
    where = (
        f" WHERE itemid IN ({', '.join(map(str, _list_items(connection)))})" if opened.table.by_item else ""
    )
    copied = f"copied_{opened.table.name}"
    columns = ", ".join(f"{c} VARCHAR" for c in present)
    connection.execute(f"CREATE OR REPLACE TABLE {copied} ({columns})")
    query = f"COPY (SELECT {', '.join(present)} FROM {opened.relation}{where}) TO STDOUT (FORMAT csv)"
    with tempfile.TemporaryDirectory(prefix="caliope-copy-") as folder, server.cursor().copy(query) as stream:
        for path in _write_chunks(stream, Path(folder)):
            chunk = f"read_csv({quote(str(path))}, {text_columns(present)}, header = false, {CSV_OPTIONS})"
            connection.execute(f"INSERT INTO {copied} SELECT * FROM {chunk}")
    return SourceTable(opened.table, copied, tuple(present))


def _list_items(connection: DuckDBPyConnection) -> list[int]:
    """Every item of the dictionaries: of the large tables the server sends no other rows."""
    found = connection.execute(
        "SELECT itemid FROM items UNION SELECT itemid FROM fluids UNION SELECT itemid FROM vasopressors "
        "UNION SELECT itemid FROM urine_items ORDER BY itemid"
    ).fetchall()
    return [int(row[0]) for row in found]


def _write_chunks(stream: Any, folder: Path) -> Iterator[Path]:
    """Write whole rows to one file after another: the server sends each row in its own message."""
    path = folder / "chunk.csv"
    file, size = path.open("wb"), 0
    for data in stream:
        file.write(data)
        size += len(data)
        if size >= CHUNK_BYTES:
            file.close()
            yield path
            file, size = path.open("wb"), 0
    file.close()
    if size:
        yield path
