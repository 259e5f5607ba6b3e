"""Tables of a PostgreSQL server, streamed into the pipeline: only the columns and items it needs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caliope.clinical.csv_files import CSV_OPTIONS, quoted, text_columns
from caliope.clinical.sources import Opened, SourceError, check_tables
from caliope.clinical.tables import Database, RawTable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_HOST = r"(\[[0-9a-fA-F:.%]+\]|[^@/?#:,\s\[\]]*)(:\d+)?"
_ADDRESS = re.compile(
    rf"postgres(ql)?://([^@/?#:\s]*(:[^@/?#:\s]*)?@)?{_HOST}(,{_HOST})*(/[^@/?#:\s]*)?(\?[^@#\s]*)?"
)
CHUNK_BYTES = 128 * 2**20  # text that lies on disk between the server and DuckDB at a time


def copy_tables(
    connection: DuckDBPyConnection, address: str, database: Database, *, schema: str | None
) -> list[Opened]:
    """Copy the raw tables with ``COPY ... TO STDOUT``: no extension of DuckDB, no rights but to read."""
    try:
        import psycopg
    except ImportError as error:
        raise ImportError("PostgreSQL needs psycopg: pip install 'caliope[clinical]'.") from error
    _check_address(address)
    try:
        server = psycopg.connect(address, autocommit=True)
    except psycopg.Error as error:
        raise SourceError(f"PostgreSQL does not answer: {str(error).splitlines()[0]}") from error
    with server:
        try:
            server.execute("SET datestyle = 'ISO, YMD'")
            found = [_find(server, table, database, schema) for table in database.tables]
            check_tables(found, "PostgreSQL")
            return [_copy(connection, server, opened) if opened.relation else opened for opened in found]
        except psycopg.Error as error:
            raise SourceError(f"PostgreSQL refused: {str(error).splitlines()[0]}") from error


def _check_address(address: str) -> None:
    """Refuse what is no address before anybody quotes it: a misspelt one puts its password into messages."""
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


def _find(server: Any, table: RawTable, database: Database, schema: str | None) -> Opened:
    searched = [schema] if schema else list(database.schemas)
    columns = server.execute(
        "SELECT table_schema, table_name, column_name FROM information_schema.columns "
        "WHERE lower(table_name) = %s AND table_schema = ANY(%s) ORDER BY ordinal_position",
        (table.name, searched),
    ).fetchall()
    if not columns:
        return Opened(table, "")
    place = min({row[0] for row in columns}, key=searched.index)
    here = [row for row in columns if row[0] == place]
    wanted = {c.lstrip("?") for c in table.columns}
    named = ", ".join(f'"{row[2]}" AS {row[2].lower()}' for row in here if row[2].lower() in wanted)
    relation = f'(SELECT {named} FROM "{place}"."{here[0][1]}") t'
    return Opened(table, relation, tuple(row[2].lower() for row in here))


def _copy(connection: DuckDBPyConnection, server: Any, opened: Opened) -> Opened:
    present = [c for c in (c.lstrip("?") for c in opened.table.columns) if c in opened.columns]
    where = f" WHERE itemid IN ({', '.join(map(str, _items(connection)))})" if opened.table.by_item else ""
    copied = f"copied_{opened.table.name}"
    columns = ", ".join(f"{c} VARCHAR" for c in present)
    connection.execute(f"CREATE OR REPLACE TABLE {copied} ({columns})")
    query = f"COPY (SELECT {', '.join(present)} FROM {opened.relation}{where}) TO STDOUT (FORMAT csv)"
    with tempfile.TemporaryDirectory(prefix="caliope-copy-") as folder, server.cursor().copy(query) as stream:
        for path in _chunks(stream, Path(folder)):
            chunk = f"read_csv({quoted(str(path))}, {text_columns(present)}, header = false, {CSV_OPTIONS})"
            connection.execute(f"INSERT INTO {copied} SELECT * FROM {chunk}")
    return Opened(opened.table, copied, tuple(present))


def _items(connection: DuckDBPyConnection) -> list[int]:
    """Every item number that a dictionary names; the server sends no other rows of the large tables."""
    found = connection.execute(
        "SELECT itemid FROM items UNION SELECT itemid FROM fluids UNION SELECT itemid FROM vasopressors "
        "UNION SELECT itemid FROM urine_items ORDER BY itemid"
    ).fetchall()
    return [int(row[0]) for row in found]


def _chunks(stream: Any, folder: Path) -> Iterator[Path]:
    """Files of whole rows: the server sends each row in a message of its own."""
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
