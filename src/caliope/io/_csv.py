"""CSV files: header, types of the columns, and the meaning of ids and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from caliope.io._columns import Roles, refuse_duplicates
from caliope.io._dialect import Dialect, read_dialect, refuse_encoding

# Rows from which the type of a column is inferred.
_CSV_ROWS = 100_000
_ISO = (
    r"^(?<day>\d{4}-\d{2}-\d{2})(?:[T ](?<minute>\d{2}:\d{2})(?::(?<second>\d{2}(?:\.\d+)?))?"
    r" ?(?<zone>Z|[+-]\d{2}:?\d{2})?)?$"
)


@dataclass(frozen=True)
class CsvFile:
    """A CSV file, and the types with which its columns are read."""

    path: Path
    types: Mapping[str, pl.DataType]
    wanted: tuple[str, ...]
    dialect: Dialect
    words: frozenset[str] = frozenset()  # columns that may hold words

    def scan(self) -> pl.LazyFrame:
        """Return the query."""
        return pl.scan_csv(self.path, schema=dict(self.types), **self.dialect.options)

    def scan_whole(self) -> pl.LazyFrame:
        """Return a query of every column; those without a role are read as text.

        Only then does polars report a row with a cell too many, which may be shifted.
        """
        kinds = {name: kind if name in self.wanted else pl.String() for name, kind in self.types.items()}
        return pl.scan_csv(self.path, schema=kinds, **self.dialect.options)

    def refuse_text(self) -> None:
        """Raise if the encoding is wrong, or if a cell does not fit the type of its column; say where."""
        refuse_encoding(self.path)
        text = self._text()
        for name in self.wanted:
            dtype = self.types.get(name, pl.String())
            if not dtype.is_numeric():
                continue
            value = pl.col("value")
            odd = (value != "") & self._as_number(value, dtype).is_null()
            found = text.select(value=pl.col(name), row=pl.int_range(1, pl.len() + 1)).filter(odd).collect()
            if found.height:
                kind = "whole numbers" if dtype.is_integer() else "numbers"
                raise ValueError(
                    f"{self.path}: column {name!r} must hold {kind}, but {found.height} rows do not "
                    f"(first: {found['value'][0]!r} in row {found['row'][0]} below the header). Write numbers "
                    f"as 1.5, and leave gaps empty.{self._of_words(name)}"
                )

    def _text(self) -> pl.LazyFrame:
        return pl.scan_csv(self.path, schema=dict.fromkeys(self.types, pl.String()), **self.dialect.options)

    def _as_number(self, value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
        point = value.str.replace(",", ".", literal=True) if self.dialect.decimal_comma else value
        return point.cast(dtype, strict=False)

    def _of_words(self, name: str) -> str:
        if name in self.words:
            return " A column of words must hold no numbers, or be a categorical of a frame."
        cells = self._text().select(pl.col(name).unique()).filter(pl.col(name) != "").head(3).collect()
        words = cells[name].sort()
        if len(words) == 2 and words.cast(pl.Float64, strict=False).null_count() == 2:
            return f" It holds {words[0]!r} and {words[1]!r}: write 1 for the one that counts, and 0 for the other."
        return ""

    def holds_words(self, name: str) -> bool:
        """Whether the cells of a column of text are words for the most part, and not numbers."""
        cells = self._text().select(pl.col(name)).filter(pl.col(name) != "")
        share = (
            cells.select(self._as_number(pl.col(name), pl.Float64()).is_not_null().mean()).collect().item()
        )
        return share is None or share < 0.5


def infer_types(path: Path, dialect: Dialect | None = None) -> dict[str, pl.DataType]:
    """Check the header, and infer the types of all columns from their first rows."""
    dialect = dialect or read_dialect(path)
    guessed = pl.scan_csv(path, infer_schema_length=_CSV_ROWS, try_parse_dates=False, **dialect.options)
    types = dict(guessed.collect_schema())
    if set(types.values()) == {pl.String()} and guessed.head(1).collect().is_empty():
        raise ValueError(f"{path} has no rows below its header. Leave it out, or write it again.")
    return types


def open_csv(path: Path, roles: Roles) -> CsvFile:
    """Check the header, and find the types of the columns by what they are used for."""
    dialect = read_dialect(path)
    refuse_duplicates(roles, dialect.names, f"the header of {path}")
    types = infer_types(path, dialect)
    suspects = [name for name in roles.measures if types.get(name) == pl.String()]
    file = CsvFile(path, types, tuple(suspects), dialect, roles.may_be_words)
    suspects = [name for name in suspects if name not in roles.may_be_words or not file.holds_words(name)]
    # A column that is whole for 100,000 rows may have a fraction in the next. Where the numbers become
    # floats in the end they are read as floats at once; knowing the types also saves guessing on each pass.
    for name in types:
        if name in suspects or (name in roles.floats and types[name].is_integer()):
            types[name] = pl.Float64()
    types |= {roles.episode: pl.String()} if roles.episode in types else {}  # as numbers, 01 would be 1
    if suspects:
        CsvFile(path, types, tuple(suspects), dialect, roles.may_be_words).refuse_text()
    return CsvFile(path, types, roles.names, dialect, roles.may_be_words)


def _whole_ids(ids: pl.Series) -> pl.Expr | None:
    """Read ids as whole numbers if all are written like 7, and none like 07 or 7.0."""
    filled = ids.filter(ids != "")
    back = filled.cast(pl.Int64, strict=False).cast(pl.String)
    return pl.col(ids.name).cast(pl.Int64, strict=False) if (back == filled).fill_null(False).all() else None


def _moments(text: pl.Expr, *, zoned: bool) -> pl.Expr:
    part = text.str.extract_groups(_ISO).struct
    clock = pl.concat_str(
        part.field("day"),
        pl.lit("T"),
        part.field("minute").fill_null("00:00"),
        pl.lit(":"),
        part.field("second").fill_null("00"),
        part.field("zone").str.replace("Z", "+00:00", literal=True) if zoned else pl.lit(""),
    )
    kind = pl.Datetime("us", "UTC") if zoned else pl.Datetime("us")
    return clock.str.strptime(kind, "%Y-%m-%dT%H:%M:%S%.f" + "%z" * zoned, strict=False)


def _times(keys: pl.DataFrame, roles: Roles, name: str) -> pl.Expr:
    filled = keys.filter(pl.col(name) != "")
    for number in (pl.Int64(), pl.Float64()):
        if filled[name].cast(number, strict=False).null_count() == 0:  # numbers in quotation marks
            return pl.col(name).cast(number, strict=False)
    numbers = filled[name].cast(pl.Float64, strict=False)
    if numbers.count() > numbers.null_count():
        odd = filled.filter(numbers.is_null())
        raise ValueError(
            f"column {name!r} must hold numbers, or ISO dates throughout, but {odd.height} of {keys.height} rows hold "
            f"no number (first: {odd[name][0]!r} {_place(odd, roles)}). Correct them."
        )
    zoned = filled[name].str.contains(r":.*(?:Z|[+-]\d{2}:?\d{2})$").any()
    moments = _moments(pl.col(name), zoned=zoned)
    odd = filled.filter(moments.is_null() | (zoned & ~pl.col(name).str.contains(r":.*[Z+-]")))
    if odd.height:
        zones = " Give all of them a time zone, or none." if zoned else ""
        raise ValueError(
            f"column {name!r} must hold numbers or ISO dates, but {odd.height} of {keys.height} rows do not "
            f"(first: {odd[name][0]!r} {_place(odd, roles)}). In other forms day and month cannot be "
            "told apart: write 2020-03-01 or 2020-03-01 14:30:00, or give read_table a frame with real "
            f"datetimes.{zones}"
        )
    return moments


def _place(odd: pl.DataFrame, roles: Roles) -> str:
    return "" if roles.episode is None else f"in episode {odd[roles.episode][0]}"


def interpret(keys: pl.DataFrame, roles: Roles) -> dict[str, pl.Expr]:
    """Return expressions that turn the text of ids and times into numbers and datetimes, by column."""
    found: dict[str, pl.Expr] = {}
    if roles.episode is not None:
        ids = pl.col(roles.episode)
        whole = _whole_ids(keys[roles.episode])
        found[roles.episode] = pl.when(ids != "").then(ids) if whole is None else whole
    for name in (roles.time, roles.calendar):
        if name is not None and keys.schema[name] == pl.String():
            found[name] = _times(keys, roles, name)
    return {name: meaning.alias(name) for name, meaning in found.items()}
