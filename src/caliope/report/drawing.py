"""Figures for the page: SVG whose colours follow the reader's theme, and whose ids are its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from caliope import plots
from caliope.report.blocks import Grid, Picture, shortened

WIDTH = 3.6  # inches: letters stay readable on a phone, where a figure is about that wide
_ROW = 0.4  # inches of a row of dots
_LETTERS = 44  # of a label
# Colours of the drawings -> those of the page, which has two sets of them.
_THEME = {"#000000": "var(--ink)"} | {
    colour.lower(): f"var(--c{i})" for i, colour in enumerate(plots.COLOURS) if colour != "#000000"
}
GREY = plots.COLOURS[7]
POLICY, PRACTICE = plots.COLOURS[:2]  # in every figure
_ID = re.compile(r'(\bid="|url\(#|href="#)')


def label_text(name: Any, most: int = _LETTERS) -> str:
    r"""A name fit for a label: short, and with no dollar taken for mathematics.

    >>> label_text("price in $")
    'price in \\$'
    """
    return shortened(str(name), most).replace("\\", "/").replace("$", r"\$")


def label_texts(names: Sequence[str], most: int = _LETTERS) -> list[str]:
    """Labels that stay apart: those that shortening has made alike are numbered."""
    short = [label_text(name, most) for name in names]
    return [f"{text} ({i + 1})" if short.count(text) > 1 else text for i, text in enumerate(short)]


def whole_steps(axis: Any) -> None:
    """Ticks at whole numbers: there is no step 2.5."""
    axis.xaxis.get_major_locator().set_params(integer=True)


def panel(*, height: float = 3.0, width: float = WIDTH) -> tuple[Any, Any]:
    """A figure with one axis and no background of its own."""
    figure, axes = plots.panels(width=width, height=height)
    figure.patch.set_visible(False)
    axes[0, 0].patch.set_visible(False)
    return figure, axes[0, 0]


def rows_of_dots(names: Sequence[str], *, legend: bool = False) -> tuple[Any, Any]:
    """A panel with a row for each name, written above its place: beside it there is no room on a phone."""
    figure, axis = panel(height=_ROW * len(names) + (1.0 if legend else 0.7))
    for i, name in enumerate(label_texts(names)):
        place = {"transform": axis.get_yaxis_transform(), "va": "center", "fontsize": 8}
        axis.text(0, i - 0.32, name, **place).set_gid(f"over-{i}")
    axis.set_ylim(len(names) - 0.5, -0.65)
    axis.set_yticks([])
    axis.spines["left"].set_visible(False)
    return figure, axis


def picture(name: str, figure: Any, *, label: str, caption: str, data: Grid, small: bool = False) -> Picture:
    """A drawing as a block of the page."""
    return Picture(name, themed(plots.svg(figure), name), label, caption, data, small)


def themed(svg: str, name: str) -> Markup:
    """SVG to stand inside a page: no header, ids prefixed, colours by variables, described by its caption."""
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
