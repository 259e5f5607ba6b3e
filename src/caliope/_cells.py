"""Cells of printed tables: aligned in a terminal, coloured in a notebook."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

_NUMERIC = r"-?\d.*|-?inf|nan|"


def html_cell(cell: str) -> str:
    """A cell of an HTML table: numbers to the right, verdicts in colour."""
    colours = {"trust": "#1a7f37", "caution": "#9a6700", "do not trust": "#cf222e"}
    colour = colours.get(cell.partition(",")[0])  # of "trust, if*" too
    style = "text-align: right" if re.fullmatch(_NUMERIC, cell) else "text-align: left"
    return (
        f"<td style='{style}{f'; color: {colour}; font-weight: bold' if colour else ''}'>{escape(cell)}</td>"
    )


def align(column: Sequence[str]) -> list[str]:
    """Pad header and cells to one width: numbers to the right, words to the left."""
    width = max(len(cell) for cell in column)
    numeric = all(re.fullmatch(_NUMERIC, cell) for cell in column[1:])
    return [cell.rjust(width) if numeric else cell.ljust(width) for cell in column]
