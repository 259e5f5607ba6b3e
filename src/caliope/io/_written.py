"""How a column of text writes numbers and dates: marks for thousands, decimal commas, signs, day before month."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

_SIGNS = "€$£¥%"
_SIGNED = re.compile(rf"^([+\u2212-]?)\s*([{_SIGNS}]?)\s*([+\u2212-]?)(\d.*?)\s*([{_SIGNS}]?)$")
# A cell that may be a number.
NUMERIC = rf"^\s*[+\u2212-]?\s*[{_SIGNS}]?\s*[+\u2212-]?\d[\d.,'\u2019\s]*[{_SIGNS}]?\s*$"
_SPACES = "'\u2019 \u00a0\u202f"  # marks for thousands that can be nothing else
_FORMS = {  # marks for thousands, and the decimal mark
    (",", "."): re.compile(r"^(?:[1-9]\d{0,2}(?:,\d{3})+|\d+)(?:\.\d+)?$"),
    (".", ","): re.compile(r"^(?:[1-9]\d{0,2}(?:\.\d{3})+|\d+)(?:,\d+)?$"),
    (_SPACES, "."): re.compile(rf"^(?:[1-9]\d{{0,2}}(?:[{_SPACES}]\d{{3}})+|\d+)(?:\.\d+)?$"),
    (_SPACES, ","): re.compile(rf"^(?:[1-9]\d{{0,2}}(?:[{_SPACES}]\d{{3}})+|\d+)(?:,\d+)?$"),
}
_DATE = r"^(\d{1,2})([./-])(\d{1,2})[./-](\d{4})(?:,? +(\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?)(?: ?([AaPp])\.?[Mm]\.?)?)?$"


@dataclass(frozen=True)
class NumberForm:
    """How all numbers of a column are written.

    Attributes
    ----------
    thousands, decimal : str
        Characters that stand between thousands, if any, and the decimal mark.
    sign : str
        Currency or percent, in every cell; empty without.
    example : str
        One of them.
    """

    thousands: str
    decimal: str
    sign: str
    example: str

    def number(self, text: pl.Expr) -> pl.Expr:
        """The number of each cell; null for an empty one."""
        bare = text.str.replace("\u2212", "-", literal=True).str.replace_all(
            rf"[\s{re.escape(self.sign)}{re.escape(self.thousands)}]", ""
        )
        return bare.str.replace(self.decimal, ".", literal=True).cast(pl.Float64, strict=False)

    @property
    def note(self) -> str:
        """What was found, in words."""
        value = pl.select(self.number(pl.lit(self.example))).item()
        return f"{self.example} is read as {value:.15g}"


def number_form(cells: Sequence[str]) -> NumberForm | None:
    """The one form in which all cells are numbers; None if they are plain numbers, if there is none, or two.

    >>> number_form(["4,560.0", "37"])
    NumberForm(thousands=',', decimal='.', sign='', example='4,560.0')
    >>> number_form(["1,234"]) is None  # a mark for thousands, or for decimals
    True
    """
    parts = [_SIGNED.match(cell.strip()) for cell in cells]
    if not cells or not all(parts):
        return None
    signs = {part[2] or part[5] for part in parts if part}
    if len(signs) > 1 or any(part[2] and part[5] for part in parts if part):
        return None
    bare = [part[4] for part in parts if part]
    fitting = [marks for marks, form in _FORMS.items() if all(map(form.match, bare))]
    # Where no cell has a mark for thousands, forms with the same decimal mark are one.
    used = {
        (marks[0] if any(mark in x for x in bare for mark in marks[0]) else "", marks[1]) for marks in fitting
    }
    if not any(mark in x for x in bare for mark in ".,"):
        used = {(thousands, ".") for thousands, _ in used}
    used = _without_groups(used, bare)
    sign = signs.pop()
    plain = used == {("", ".")} and not sign and not any("\u2212" in cell for cell in cells)
    if len(used) != 1 or plain:
        return None
    thousands, decimal = used.pop()
    return NumberForm(thousands, decimal, sign, max(cells, key=len).strip())


def _without_groups(used: set[tuple[str, str]], bare: Sequence[str]) -> set[tuple[str, str]]:
    """Of 950 and 1,250 the comma stands between thousands: decimals would not all have three digits, or none."""
    for mark, other in ((",", "."), (".", ",")):
        if used == {(mark, other), ("", mark)} and any(x.isdigit() and len(x) == 3 for x in bare):
            return {(mark, other)}
    return used


def looks_grouped(text: pl.Expr, mark: str) -> pl.Expr:
    """Whether a mark may stand between thousands, as in 950 and 1.250: three digits after it everywhere.

    >>> pl.DataFrame({"x": ["950", "1.250"], "y": ["950", "1.25"]}).select(looks_grouped(pl.all(), ".")).row(0)
    (True, False)
    """
    bare = text.filter(text != "").str.strip_chars()
    grouped = rf"^[+-]?(?:[1-9]\d{{0,2}}(?:{re.escape(mark)}\d{{3}})+|\d{{1,3}})$"
    some = bare.str.contains(mark, literal=True).any() & bare.str.contains(r"^[+-]?\d{3}$").any()
    return bare.str.contains(grouped).all() & some


@dataclass(frozen=True)
class DateForm:
    """Dates with a day or a month first, all in the same order."""

    day_first: bool
    example: str

    def iso(self, text: pl.Expr) -> pl.Expr:
        """Each date as 2020-03-01 or 2020-03-01T14:30:00; null for an empty cell."""
        part = text.str.strip_chars().str.extract_groups(_DATE).struct
        day, month = ("1", "3") if self.day_first else ("3", "1")
        hour, rest = (part.field("5").str.extract(form) for form in (r"^(\d+):", r"^\d+(:.*)$"))
        late = part.field("6").str.to_lowercase()
        number = hour.cast(pl.Int64, strict=False)
        number = pl.when(late.is_null()).then(number).otherwise(number % 12 + 12 * (late == "p"))
        clock = pl.format("T{}{}", number.cast(pl.String).str.zfill(2), rest)
        return pl.format(
            "{}-{}-{}{}",
            part.field("4"),
            part.field(month).str.zfill(2),
            part.field(day).str.zfill(2),
            pl.when(hour.is_null()).then(pl.lit("")).otherwise(clock),
        )

    @property
    def note(self) -> str:
        """What was found, in words."""
        return f"{self.example} is read as {pl.select(self.iso(pl.lit(self.example))).item()}"


def date_form(cells: Sequence[str]) -> DateForm | None:
    """Day or month first, where every cell is such a date and one of them decides; with points the day is first."""
    parts = [re.match(_DATE, cell.strip()) for cell in cells]
    found = [part for part in parts if part]
    if not cells or len(found) < len(cells) or len({part[2] for part in found}) > 1:
        return None
    first, second = max(int(part[1]) for part in found), max(int(part[3]) for part in found)
    if max(first, second) > 31 or min(first, second) > 12:
        return None
    if max(first, second) <= 12 and found[0][2] != ".":
        return None
    day_first = first > 12 or (second <= 12)
    telling = max(cells, key=lambda cell: max(int(x) for x in re.findall(r"\d+", cell)[:2]))
    return DateForm(day_first, telling.strip())
