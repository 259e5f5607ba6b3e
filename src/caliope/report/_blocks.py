"""Building blocks of the report: texts, tables, facts, findings, figures and numbers.

Nothing here needs matplotlib or jinja2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from markupsafe import Markup

from caliope import plots
from caliope._cells import shortened
from caliope.checks._registry import Finding, Verdict
from caliope.plots._figures import label_text, label_texts

_NUMBER = re.compile(r"[-+−]?\d[\d,.]*(e[-+]?\d+)?%?")
_MAX_ROWS = 40  # of a table, before it is cut
_SHORT = 24  # characters that need no second line
_LONGEST = 200  # characters of a cell: names come from the data


def as_sentence(text: str) -> str:
    """Begin a text with a capital letter and end it with a full stop.

    >>> as_sentence("two models disagree")
    'Two models disagree.'
    """
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


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
class Explanations:
    """Codes of findings and what they mean; each is the aim of the links from its code."""

    template: ClassVar[str] = "explanations.html.j2"
    checks: tuple[Any, ...]


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
class Codes:
    """A cell with the codes of findings, each a link to its explanation."""

    findings: tuple[Finding, ...]

    @property
    def names(self) -> list[str]:
        """The codes, each once, sorted."""
        return sorted({finding.code for finding in self.findings})

    def __str__(self) -> str:
        return " ".join(self.names)


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

    @property
    def linked(self) -> list[list[tuple[str, list[str]]]]:
        """The cells as text, each with the codes that it links to."""
        return [[(cell_text(x), x.names if isinstance(x, Codes) else []) for x in row] for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """The numbers for JSON."""
        return {"columns": list(self.columns), "rows": [list(row) for row in self.rows]}


def grid(
    caption: str, rows: Sequence[Mapping[str, Any]], *, most: int = _MAX_ROWS, folded: bool = False
) -> Grid:
    """Make a table from rows by column name, cut after ``most`` rows."""
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    cells = tuple(tuple(row.get(name, "") for name in columns) for row in rows[:most])
    note = "" if len(rows) <= most else f"The first {most} of {len(rows)} rows."
    return Grid(caption, columns, cells, note, folded)


@dataclass(frozen=True)
class Picture:
    """A figure with what it shows in words, and the numbers behind it."""

    template: ClassVar[str] = "picture.html.j2"
    name: str
    figure: Any
    label: str  # what a reader who cannot see it is told first
    caption: str
    data: Grid
    small: bool = False  # three beside each other where there is room, not two

    @cached_property  # once: drawn again, matplotlib lays it out anew
    def svg(self) -> Markup:
        """The drawing, as it stands in the page."""
        if hasattr(self.figure, "__html__"):  # drawn before, and read from JSON
            return Markup(self.figure.__html__())
        return themed(plots.svg(self.figure), self.name)


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
    def findings(self) -> Iterator[Finding]:
        """The findings whose codes it shows."""
        for block in self.blocks:
            if isinstance(block, Reasons):
                yield from block.findings
            if isinstance(block, Grid):
                yield from (f for row in block.rows for x in row if isinstance(x, Codes) for f in x.findings)

    @property
    def groups(self) -> list[tuple[Any, ...]]:
        """The blocks, neighbouring pictures and numbers together: they stand beside each other where there is room."""
        found: list[tuple[Any, ...]] = []
        for block in self.blocks:
            beside = found and isinstance(block, Picture | Facts) and isinstance(found[-1][-1], Picture)
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


WIDTH = 3.6  # inches: letters stay readable on a phone, where a figure is about that wide
_ROW = 0.4  # inches of a row of dots
# Colours of the drawings -> those of the page, which has two sets of them.
_THEME = {"#000000": "var(--ink)"} | {
    colour.lower(): f"var(--c{i})" for i, colour in enumerate(plots.COLOURS) if colour != "#000000"
}
_ID = re.compile(r'(\bid="|url\(#|href="#)')


def panel(*, height: float = 3.0, width: float = WIDTH) -> tuple[Any, Any]:
    """Make a figure with one axis and no background of its own."""
    figure, axes = plots.panels(width=width, height=height)
    figure.patch.set_visible(False)
    axes[0, 0].patch.set_visible(False)
    return figure, axes[0, 0]


def row_panel(n_rows: int, *, legend: bool = False) -> tuple[Any, Any]:
    """A panel with room for rows whose names stand above them."""
    return panel(height=_ROW * n_rows + (1.0 if legend else 0.7))


def name_values(axis: Any, what: str, measured: str = "") -> None:
    """Write under an axis what its values are; how they are measured on a second line where one is too short."""
    whole = f"{what} ({measured})" if measured else what
    lines = (
        [what, f"({label_text(measured)})"]
        if label_text(whole) != whole and measured
        else [label_text(whole)]
    )
    axis.set_xlabel("\n".join(lines))


def name_rows(axis: Any, names: Sequence[str]) -> None:
    """Write a name above each row: beside it there is no room on a phone."""
    for i, name in enumerate(label_texts(names)):
        place = {"transform": axis.get_yaxis_transform(), "va": "center", "fontsize": 8}
        axis.text(0, i - 0.32, name, **place).set_gid(f"over-{i}")
    axis.locator_params(
        axis="x", nbins=7
    )  # more would touch each other where they have a sign and two digits
    axis.set_ylim(len(names) - 0.5, -0.65)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)


def legend_above(figure: Any, axis: Any, *, columns: int = 1, size: int = 7) -> None:
    """Put the legend of an axis above it, where it hides nothing."""
    if axis.get_legend() is not None:
        axis.get_legend().remove()
    figure.legend(loc="outside upper left", fontsize=size, frameon=False, ncols=columns)


def picture(name: str, figure: Any, *, label: str, caption: str, data: Grid, small: bool = False) -> Picture:
    """Turn a drawing into a block of the page."""
    return Picture(name, figure, label, caption, data, small)


def themed(svg: str, name: str) -> Markup:
    """Fit SVG into the page: no header, ids prefixed, colours by variables, named by its label."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = _ID.sub(rf"\g<1>{name}-", body)
    for colour, variable in _THEME.items():
        body = body.replace(colour, variable)
    box = re.search(r'viewBox="[^"]*"', body)
    start = f'<svg {box.group() if box else ""} role="img" aria-labelledby="{name}-label" focusable="false"'
    body = re.sub(r"<svg[^>]*?>", f'{start} xmlns:xlink="http://www.w3.org/1999/xlink">', body, count=1)
    return Markup(body.strip())  # matplotlib's own, which escapes every label
