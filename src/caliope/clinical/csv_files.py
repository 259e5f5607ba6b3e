"""How the csv files of a hospital are read: every column is text, and nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterable

# A guess from the first rows would change with them. Every column is text until it is checked.
CSV_OPTIONS = (
    "auto_detect = false, delim = ',', quote = '\"', escape = '\"', "
    "ignore_errors = true, store_rejects = true, rejects_limit = 0"
)


def quoted(text: str) -> str:
    """Text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def text_columns(names: Iterable[str]) -> str:
    """Columns of a csv file as an option of DuckDB: all of them text."""
    return "columns = {" + ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names) + "}"
