"""What a page is made of: sections of text, tables, pictures and lists, as plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from caliope.results import Finding, Verdict

_NUMBER = re.compile(r"[-+−]?\d[\d,.]*(e[-+]?\d+)?%?")
MOST_ROWS = 40  # of a table, before it is cut
_SHORT = 24  # characters that need no second line
_LONGEST = 200  # characters of a cell: names come from the data


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    template: ClassVar[str] = "text.html.j2"
    text: str


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    template: ClassVar[str] = "bullets.html.j2"
    items: tuple[str, ...]


@dataclass(frozen=True)
class Words:
    """Words and what they mean."""

    template: ClassVar[str] = "words.html.j2"
    items: Mapping[str, str]


@dataclass(frozen=True)
class Banner:
    """The verdict, in large letters."""

    template: ClassVar[str] = "banner.html.j2"
    verdict: Verdict
    title: str
    text: str


@dataclass(frozen=True)
class Fact:
    """A number, with what it is and what to know about it."""

    name: str
    number: str
    note: str


@dataclass(frozen=True)
class Facts:
    """A few numbers, large."""

    template: ClassVar[str] = "facts.html.j2"
    items: tuple[Fact, ...]
    doubted: bool = False  # not to be quoted, and shown so


@dataclass(frozen=True)
class Reasons:
    """Findings of one level, under a heading."""

    template: ClassVar[str] = "reasons.html.j2"
    title: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Grid:
    """A table; the first column names the rows. A long one is cut, and says so."""

    template: ClassVar[str] = "grid.html.j2"
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    note: str = ""
    folded: bool = False  # shown when asked for

    @property
    def shown(self) -> list[list[str]]:
        """The cells as text."""
        return [[cell_text(cell) for cell in row] for row in self.rows]

    @property
    def classes(self) -> list[str]:
        """How each column is set: numbers (n) to the right, short ones (s) unbroken, text (t) with room."""
        columns = list(zip(*self.shown, strict=True)) or [()] * len(self.columns)
        return [_class(column) for column in columns]

    def to_dict(self) -> dict[str, Any]:
        """The numbers for JSON."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}


def grid(
    caption: str, rows: Sequence[Mapping[str, Any]], *, most: int = MOST_ROWS, folded: bool = False
) -> Grid:
    """A table from rows by column name; what is beyond ``most`` is left to the JSON file."""
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    cells = tuple(tuple(row.get(name, "") for name in columns) for row in rows[:most])
    note = "" if len(rows) <= most else f"The first {most} of {len(rows)} rows."
    return Grid(caption, columns, cells, note, folded)


@dataclass(frozen=True)
class Picture:
    """A figure with what it shows in words, and the numbers behind it."""

    template: ClassVar[str] = "picture.html.j2"
    name: str
    svg: str
    label: str  # what a reader who cannot see it is told first
    caption: str
    data: Grid
    small: bool = False  # three beside each other where there is room, instead of two


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    name: str
    short: str  # in the list of sections
    title: str
    blocks: tuple[Any, ...] = field(default=())

    @property
    def pictures(self) -> list[Picture]:
        """The figures in it."""
        return [block for block in self.blocks if isinstance(block, Picture)]

    @property
    def groups(self) -> list[tuple[Any, ...]]:
        """The blocks, neighbouring pictures together: they stand beside each other where there is room."""
        found: list[tuple[Any, ...]] = []
        for block in self.blocks:
            beside = found and isinstance(block, Picture) and isinstance(found[-1][-1], Picture)
            if beside:
                found[-1] = (*found[-1], block)
            else:
                found.append((block,))
        return found


def _class(column: Sequence[str]) -> str:
    if column and all(_NUMBER.fullmatch(cell) or cell in ("", "none") for cell in column):
        return "n"
    return "s" if max(map(len, column), default=0) <= _SHORT else "t"


def cell_text(x: Any) -> str:
    """A cell as a reader sees it: four digits of a number, long names shortened."""
    if x is None:
        return ""
    if isinstance(x, float):
        return f"{x:.4g}" if math.isfinite(x) else ("none" if math.isnan(x) else f"{x:g}")
    return shortened(str(x), _LONGEST)


def shortened(text: str, most: int) -> str:
    """A name that fits, without its middle: names are somebody's data, of any length, and often differ at the end.

    >>> shortened("a very long name, number 12", 16)
    'a very lo…ber 12'
    """
    text = " ".join(text.split())
    if len(text) <= most:
        return text
    tail = most * 2 // 5
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"
