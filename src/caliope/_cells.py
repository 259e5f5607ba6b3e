"""Cells of printed tables: aligned in a terminal, coloured in a notebook, and as Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import wraps
from html import escape
from typing import Any

_NUMERIC = r"-?\d.*|-?inf|nan|"
_LATEX = str.maketrans(
    {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {sign: f"\\{sign}" for sign in "&%$#_{}"}
)

# What Markdown would obey: a tag of HTML, a link or picture, code, emphasis, the end of a cell.
_MARKUP = re.compile(r"[|*`]|\\(?=[|*`\[<])|(?<=\])\(|<(?=[A-Za-z/!?])")

# What a terminal obeys instead of showing it: control characters, and those that turn the direction of a line.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""Text with control characters spelt out: names are somebody's data, and may hold commands to a terminal.

    >>> print(visible("red \x1b[31m"))
    red \x1b[31m
    """
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def inert(method: Callable[[Any], str]) -> Callable[[Any], str]:
    """Let a method return visible text."""

    @wraps(method)
    def shown(self: Any) -> str:
        return visible(method(self))

    return shown


def html_cell(cell: str) -> str:
    """A cell of an HTML table: numbers to the right, verdicts in colour."""
    cell = visible(cell)
    colours = {"trust": "#1a7f37", "caution": "#9a6700", "do not trust": "#cf222e"}
    colour = colours.get(cell.partition(",")[0])  # of "trust, if*" too
    style = "text-align: right" if re.fullmatch(_NUMERIC, cell) else "text-align: left"
    return (
        f"<td style='{style}{f'; color: {colour}; font-weight: bold' if colour else ''}'>{escape(cell)}</td>"
    )


def html_table(header: Sequence[str], body: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table for a notebook."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    rows = "".join("<tr>" + "".join(map(html_cell, line)) + "</tr>" for line in body)
    above = f"<caption>{escape(caption)}</caption>" if caption else ""
    style = "border-spacing: 1em 0"
    return f"<table style='{style}'>{above}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def align(column: Sequence[str]) -> list[str]:
    """Pad header and cells to one width: numbers to the right, words to the left."""
    width = max(len(cell) for cell in column)
    numeric = _is_numeric(column[1:])
    return [cell.rjust(width) if numeric else cell.ljust(width) for cell in column]


def text_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table for a terminal, one per row."""
    lines = [[_in_one_line(cell) for cell in line] for line in (header, *body)]
    columns = [align(column) for column in zip(*lines, strict=True)]
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def markdown_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    r"""A table in Markdown; what would be markup in cells is escaped.

    >>> print(markdown_table(["name", "n"], [["a|b <i>", "3"]]))
    | name | n |
    |---|---:|
    | a\|b \<i> | 3 |
    """
    rules = ["---:" if _is_numeric(column) else "---" for column in zip(*body, strict=True)]
    lines = [[_MARKUP.sub(r"\\\g<0>", _in_one_line(cell)) for cell in line] for line in (header, *body)]
    head, *rows = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, f"|{'|'.join(rules)}|", *rows])


def latex_table(header: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    r"""A table in LaTeX, for the package booktabs.

    >>> print(latex_table(["name", "share"], [["a_b", "3%"]]))
    \begin{tabular}{lr}
    \toprule
    name & share \\
    \midrule
    a\_b & 3\% \\
    \bottomrule
    \end{tabular}
    """
    columns = "".join("r" if _is_numeric(column) else "l" for column in zip(*body, strict=True))
    # A bracket or star at the start of a row would be read as an option of the row before.
    head, *rows = (
        re.sub(r"^[\[*]", r"{\g<0>}", " & ".join(map(latex_text, line))) + r" \\" for line in (header, *body)
    )
    middle = [r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *middle, r"\end{tabular}"])


def latex_text(text: str) -> str:
    """Text with the signs escaped that mean something to LaTeX."""
    return _in_one_line(text).translate(_LATEX)


def _in_one_line(text: str) -> str:
    """Visible text without line ends: a cell is one line of its table."""
    return " ".join(visible(text).splitlines())


def _is_numeric(cells: Sequence[str]) -> bool:
    return all(re.fullmatch(_NUMERIC, cell) for cell in cells)


def shortened(text: str, most: int) -> str:
    """A name that fits, without its middle: names are somebody's data, of any length, and often differ at the end.

    >>> shortened("a very long name, number 12", 16)
    'a very lo…ber 12'
    """
    text = visible(" ".join(text.split()))
    if len(text) <= most:
        return text
    tail = most * 2 // 5
    return f"{text[: most - 1 - tail]}…{text[-tail:]}"
