"""Tables of results: they print in a terminal and in a notebook, and become frames, JSON, Markdown and LaTeX."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from caliope._cells import html_table, inert, latex_table, latex_text, markdown_table, text_table
from caliope._conditions import CONDITIONAL, mark_conditions
from caliope.checks import Finding, Level

if TYPE_CHECKING:
    import polars as pl


class Row(Protocol):
    """What a table asks of its rows."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader must know."""

    def cells(self) -> dict[str, str]:
        """What a printed table shows, by column."""

    def record(self) -> dict[str, Any]:
        """What a data frame shows, by column."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""


R = TypeVar("R", bound=Row)


@dataclass(frozen=True, repr=False)
class Table(Sequence[R], Generic[R]):
    """Rows of results that print as a table, in a terminal and in a notebook.

    ``table[0]`` or ``table["wis"]`` is a row, ``to_frame()`` a polars frame (``.to_pandas()`` from there),
    ``to_json()`` text.

    Attributes
    ----------
    rows : tuple
        The rows, such as :class:`Estimate`.
    title : str
        Printed above them.

    Examples
    --------
    >>> from caliope import Estimate, Interval
    >>> row = Estimate("wis", "Weighted importance sampling", 0.535, Interval(0.48, 0.593, 0.95), 400, 212.3)
    >>> print(Table((row,)))
    estimator                     value  95% interval    n  effective n  verdict
    Weighted importance sampling   0.54  [0.48, 0.59]  400        212.3  trust
    """

    rows: tuple[R, ...]
    title: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[R]:
        return iter(self.rows)

    @overload
    def __getitem__(self, which: int | str) -> R: ...
    @overload
    def __getitem__(self, which: slice) -> Table[R]: ...
    def __getitem__(self, which: int | str | slice) -> R | Table[R]:
        if isinstance(which, slice):
            return Table(self.rows[which], self.title)
        if not isinstance(which, str):
            return self.rows[which]
        found = [row for row in self.rows if getattr(row, "name", None) == which]
        if len(found) != 1:
            names = [getattr(row, "name", "") for row in self.rows]
            raise KeyError(f"{len(found)} rows are called {which!r}; the rows are {names}.")
        return found[0]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything found, each once, the gravest first."""
        seen = {(f.code, f.message): f for row in self.rows for f in _all_findings(row)}
        return tuple(sorted(seen.values(), key=lambda f: ("issue", "caution", "note").index(f.level)))

    def to_frame(self) -> pl.DataFrame:
        """One row a result, as a polars frame."""
        import polars as pl

        return pl.DataFrame([row.record() for row in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {"title": self.title, "rows": [row.to_dict() for row in self.rows]}

    def to_json(self, *, indent: int | None = 2) -> str:
        """Write the table as JSON; what is not finite becomes null."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_markdown(self) -> str:
        """Write the table as Markdown, with the digits and the conditions of the printed one."""
        return "\n".join([markdown_table(*self._cells()), *(f"\n{line}" for line in self.conditions)])

    def to_latex(self) -> str:
        """Write the table as LaTeX (package booktabs), with the digits and the conditions of the printed one."""
        notes = (f"\n{latex_text(line)}" for line in self.conditions)
        return "\n".join([latex_table(*self._cells()), *notes])

    def grid(self) -> str:
        """The rows and the conditions of their verdicts, as text, without title and findings."""
        if not self.rows:
            return "(no rows)"
        notes = (textwrap.fill(line, 118, subsequent_indent="  ") for line in self.conditions)
        return "\n".join([*text_table(*self._cells()), *notes])

    @inert
    def __repr__(self) -> str:
        if not self.rows:
            return f"{type(self).__name__}(no rows)"
        more = len(self.rows) - _SHOWN
        lines = Table(self.rows[:_SHOWN]).grid() + (f"\n... and {more} more" if more > 0 else "")
        return f"{type(self).__name__} of {len(self.rows)} rows; print it for the findings\n{lines}"

    @inert
    def __str__(self) -> str:
        notes = [
            textwrap.fill(
                f"{_MARK[f.level]} {f.code}  {f.message}{self._whose(f)}", 118, subsequent_indent=" " * 9
            )
            for f in self.findings
        ]
        return "\n".join([*([self.title] if self.title and self.rows else []), self.grid(), *notes])

    @inert
    def _repr_html_(self) -> str:
        if not self.rows:
            return "<p>(no rows)</p>"
        notes = "".join(
            f"<li><b>{escape(f.code)}</b> {escape(f.level)}: {escape(f.message)}{escape(self._whose(f))}</li>"
            for f in self.findings
        )
        said = "".join(f"<p>{escape(line)}</p>" for line in self.conditions)
        return html_table(*self._cells(), self.title) + said + (f"<ul>{notes}</ul>" if notes else "")

    @property
    def conditions(self) -> list[str]:
        """What the marks beside "trust, if" mean, a line each."""
        return mark_conditions(self._conditions())[1]

    def marked_cells(self) -> list[dict[str, str]]:
        """What is shown of each row; "trust, if" with the mark of its condition."""
        marks, _ = mark_conditions(self._conditions())
        return [
            {name: x + mark if x == CONDITIONAL else x for name, x in row.cells().items()}
            for row, mark in zip(self.rows, marks, strict=True)
        ]

    def _conditions(self) -> list[str]:
        trusted = (getattr(row, "verdict", "") == "trust" for row in self.rows)
        return [
            getattr(row, "condition", "") if yes else "" for row, yes in zip(self.rows, trusted, strict=True)
        ]

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        cells = self.marked_cells()
        header = list(dict.fromkeys(name for row in cells for name in row))
        return header, [[row.get(name, "") for name in header] for row in cells]

    def _whose(self, finding: Finding) -> str:
        # By what is printed, as in findings: the numbers behind it may differ in the last digit.
        same = [{(f.code, f.message) for f in _all_findings(row)} for row in self.rows]
        whose = (
            row for row, said in zip(self.rows, same, strict=True) if (finding.code, finding.message) in said
        )
        names = [str(getattr(row, "name", "")) for row in whose]
        return "" if len(names) == len(self.rows) else f" [{', '.join(names)}]"


_SHOWN = 12  # rows that the short form of a table shows
_MARK: Mapping[Level, str] = {"issue": "!!", "caution": " !", "note": "  "}


def _all_findings(row: Row) -> tuple[Finding, ...]:
    interval = getattr(row, "interval", None)
    return row.findings + (interval.findings if interval is not None else ())
