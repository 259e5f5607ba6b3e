"""CSV files: header, types of the columns, and the meaning of ids and times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from caliope.io._columns import Roles, refuse_duplicates
from caliope.io._dialect import Dialect, read_dialect, refuse_encoding
from caliope.io._written import NUMERIC, DateForm, NumberForm, date_form, looks_grouped, number_form

# Rows from which the type of a column is inferred.
_CSV_ROWS = 100_000
_LOOKED_AT = 1000  # rows from which the forms of numbers are found, where the columns are yet to be chosen
_NAMES = 10  # different cells up to which numbers with a sign or with thousands may be names, such as 10% and 20% off
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
    numbers: Mapping[str, NumberForm] = field(default_factory=dict)  # columns of text that are numbers
    dates: Mapping[str, DateForm] = field(default_factory=dict)  # columns of text that are dates

    def scan(self) -> pl.LazyFrame:
        """Return the query."""
        return self._meant(pl.scan_csv(self.path, schema=dict(self.types), **self.dialect.options))

    def _meant(self, query: pl.LazyFrame) -> pl.LazyFrame:
        numbers = [form.number(pl.col(name)).alias(name) for name, form in self.numbers.items()]
        dates = [form.iso(pl.col(name)).alias(name) for name, form in self.dates.items()]
        return query.with_columns(*numbers, *dates)

    @property
    def note(self) -> str:
        """How the file is written, in words, where that is not plain."""
        numbers = [f"{name}: {form.note}" for name, form in self.numbers.items()]
        dates = [f"{name}: {form.note}" for name, form in self.dates.items()]
        return "; ".join(filter(None, [self.dialect.note, *numbers, *dates]))

    def scan_whole(self) -> pl.LazyFrame:
        """Return a query of every column; those without a role are read as text.

        Only then does polars report a row with a cell too many, which may be shifted.
        """
        kinds = {name: kind if name in self.wanted else pl.String() for name, kind in self.types.items()}
        return self._meant(pl.scan_csv(self.path, schema=kinds, **self.dialect.options))

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

    def cells(self, name: str) -> list[str]:
        """The different cells of a column, as written."""
        found = (
            self._text().select(pl.col(name).unique()).filter(pl.col(name) != "").collect(engine="streaming")
        )
        return found[name].sort().to_list()

    def form_of(self, name: str) -> NumberForm | None:
        """How a column of text writes numbers; None for words, as 10% and 20% of a few may be."""
        column = pl.col(name)
        if not self._text().select((column.str.contains(NUMERIC) | (column == "")).all()).collect().item():
            return None
        cells = self.cells(name)
        form = number_form(cells)
        named = form is not None and name in self.words and (form.sign or form.thousands)
        return None if named and len(cells) <= _NAMES else form

    def refuse_groups(self, names: Sequence[str]) -> None:
        """Raise where the mark of decimals may be one for thousands: 1.250 would be read as 1.25."""
        if self.dialect.separator == "," or not names:
            return
        mark = "," if self.dialect.decimal_comma else "."
        found = self._text().select(looks_grouped(pl.col(name), mark).alias(name) for name in names).collect()
        for name in (name for name in names if found[name].item()):
            grouped = self._text().select(name).filter(pl.col(name).str.contains(mark, literal=True))
            first = grouped.head(1).collect().item()
            raise ValueError(
                f"{self.path}: column {name!r} holds {first!r}, and everywhere three digits or none after the mark "
                f"{mark!r}, so that it may stand between thousands. Write {first.replace(mark, '')} if it does, and "
                "other than three decimals if it does not."
            )

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


def scan_all(path: Path) -> pl.LazyFrame:
    """Every column of a file, with the types and the forms of numbers of its first rows."""
    dialect = read_dialect(path)
    types = infer_types(path, dialect)
    query = pl.scan_csv(path, schema=types, **dialect.options)
    worded = (
        query.select(name for name, kind in types.items() if kind == pl.String()).head(_LOOKED_AT).collect()
    )
    file = CsvFile(path, types, (), dialect)
    forms = {each.name: number_form([x for x in each.unique().to_list() if x]) for each in worded}
    return replace(file, numbers={name: form for name, form in forms.items() if form}).scan()


def open_csv(path: Path, roles: Roles) -> CsvFile:
    """Check the header, and find the types of the columns by what they are used for."""
    dialect = read_dialect(path)
    refuse_duplicates(roles, dialect.names, f"the header of {path}")
    types = infer_types(path, dialect)
    suspects = [name for name in roles.measures if types.get(name) == pl.String()]
    file = CsvFile(path, types, tuple(suspects), dialect, roles.may_be_words)
    file.refuse_groups([name for name in types if name in roles.measures and types[name] == pl.Float64()])
    numbers = {name: form for name in suspects if (form := file.form_of(name)) is not None}
    moments = [x for x in (roles.time, roles.calendar) if x is not None and types.get(x) == pl.String()]
    dates = {name: order for name in moments if (order := date_form(file.cells(name))) is not None}
    suspects = [name for name in suspects if name not in numbers]
    suspects = [name for name in suspects if name not in roles.may_be_words or not file.holds_words(name)]
    # A column that is whole for 100,000 rows may have a fraction in the next. Where the numbers become
    # floats in the end they are read as floats at once; knowing the types also saves guessing on each pass.
    for name in types:
        if name in suspects or (name in roles.floats and types[name].is_integer()):
            types[name] = pl.Float64()
    types |= {roles.episode: pl.String()} if roles.episode in types else {}  # as numbers, 01 would be 1
    if suspects:
        CsvFile(path, types, tuple(suspects), dialect, roles.may_be_words).refuse_text()
    return CsvFile(path, types, roles.names, dialect, roles.may_be_words, numbers, dates)


def _whole_ids(ids: pl.Series) -> pl.Expr | None:
    """Read ids as whole numbers if all are written like 7, or all like 7.0 as pandas does after a gap; none like 07."""
    filled = ids.filter(ids != "")
    end = ".0" if len(filled) and filled.str.ends_with(".0").all() else ""
    bare = filled.str.strip_suffix(end)
    back = bare.cast(pl.Int64, strict=False).cast(pl.String)
    if not (back == bare).fill_null(False).all():
        return None
    return pl.col(ids.name).str.strip_suffix(end).cast(pl.Int64, strict=False)


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
            f"(first: {odd[name][0]!r} {_place(odd, roles)}). {_why_no_date(odd[name][0])} Write 2020-03-01 or "
            f"2020-03-01 14:30:00, or give read_table a frame with real datetimes.{zones}"
        )
    return moments


def _why_no_date(cell: str) -> str:
    """What keeps a cell from being a moment."""
    if re.match(r"^\s*\d{1,2}:\d{2}", cell):
        return "A time of day does not order rows across midnight: add the date."
    if re.match(r"^\s*\d{1,2}[./-]\d{1,2}[./-]\d", cell):
        return "Day and month cannot be told apart here, unless a day above 12 says which is which."
    return "Of other texts the order is not known."


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
