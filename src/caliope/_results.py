"""Results: frozen, printable, with their caveats attached. Nothing here computes an estimate."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

from caliope._cells import align, html_cell
from caliope._conditions import CONDITIONAL, mark_conditions, spell_out
from caliope._digits import FURTHER, decimals_of, number_text
from caliope.checks import Finding, Level, Verdict, verdict

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Interval:
    """A confidence interval: its ends, its level, how it was made, and what that method assumes.

    Attributes
    ----------
    low, high : float
        The ends.
    level : float
        How often such intervals contain the value, such as 0.95.
    method : str
        How the interval was made, in words.
    findings : tuple of Finding
        What a reader of the interval must know.

    Examples
    --------
    >>> interval = Interval(0.48, 0.593, 0.95, "bootstrap")
    >>> 0.5 in interval, interval.text
    (True, '[0.48, 0.59]')
    """

    low: float
    high: float
    level: float
    method: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def width(self) -> float:
        """Distance between the two ends."""
        return self.high - self.low

    @property
    def ends(self) -> tuple[str, str]:
        """Both ends as text, with as many digits as the width deserves.

        There are further digits where an end that is not 0 would read as 0, and hide whether 0 lies inside.
        """
        for further in range(FURTHER):
            low, high = (number_text(x, self.width, further) for x in (self.low, self.high))
            if all(x == 0 or float(text) != 0 for x, text in ((self.low, low), (self.high, high))):
                break
        return low, high

    @property
    def text(self) -> str:
        """Both ends in brackets."""
        return f"[{', '.join(self.ends)}]"

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        text = f"{self.text} at {percent(self.level)}" + (f", {self.method}" if self.method else "")
        return "\n".join([text, *(f"  {finding}" for finding in self.findings)])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "low": finite(self.low),
            "high": finite(self.high),
            "level": self.level,
            "method": self.method,
            "findings": [finding.to_dict() for finding in self.findings],
        }


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval, sample sizes and findings; one row of a table.

    Attributes
    ----------
    name : str
        Name of the estimator.
    label : str
        What it is called in a table.
    value : float
        The estimate.
    interval : Interval
        Its confidence interval.
    n : int
        Number of trajectories.
    effective_n : float
        Effective sample size.
    findings : tuple of Finding
        What a reader of the value must know.
    conditions : tuple of str
        Clauses that must hold for the value to be right and that no log can show, each to be read after "if".
    effective_clusters : float, optional
        Effective number of clusters, by their weights; None without clusters.

    Examples
    --------
    >>> row = Estimate("wis", "Weighted importance sampling", 0.535, Interval(0.48, 0.593, 0.95), 400, 212.3)
    >>> row.text, row.verdict
    ('0.54 [0.48, 0.59]', 'trust')
    """

    name: str
    label: str
    value: float
    interval: Interval
    n: int
    effective_n: float
    findings: tuple[Finding, ...] = ()
    conditions: tuple[str, ...] = ()
    effective_clusters: float | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst of the findings, those of the interval included."""
        return verdict(self.findings + self.interval.findings)

    @property
    def condition(self) -> str:
        """All conditions, "if ..., and if ..."; empty without any."""
        return spell_out(self.conditions)

    @property
    def verdict_text(self) -> str:
        """The verdict; trust with its condition."""
        conditional = self.verdict == "trust" and self.conditions
        return f"trust, {self.condition}" if conditional else self.verdict

    @property
    def withheld(self) -> bool:
        """Whether no interval is shown: that of a value that should not be believed is known to be too short."""
        return self.verdict == "do not trust"

    @property
    def shown(self) -> Interval:
        """The interval as it is shown: without ends where it is withheld."""
        return replace(self.interval, low=math.nan, high=math.nan) if self.withheld else self.interval

    @property
    def interval_text(self) -> str:
        """Both ends in brackets, or that there are none to show."""
        return "withheld" if self.withheld else self.interval.text

    @property
    def value_text(self) -> str:
        """The value, with as many digits as its interval deserves."""
        return number_text(self.value, self.interval.width)

    @property
    def decimals(self) -> int | None:
        """Decimals of ``value_text``; None where it is no plain decimal number."""
        return decimals_of(self.value, self.interval.width)

    @property
    def text(self) -> str:
        """The value and its interval, or the value and that it should not be believed."""
        if self.withheld:
            return f"{self.value_text} (do not trust; no interval)"
        return f"{self.value_text} {self.interval.text}"

    def __str__(self) -> str:
        return str(Table((self,)))

    def cells(self) -> dict[str, str]:
        """What a printed table shows of this row."""
        return {
            "estimator": self.label,
            "value": self.value_text,
            f"{percent(self.interval.level)} interval": self.interval_text,
            "n": str(self.n),
            "effective n": f"{self.effective_n:.1f}",
            **({} if (k := self.effective_clusters) is None else {"effective clusters": f"{k:.1f}"}),
            "verdict": self.verdict if self.verdict_text == self.verdict else CONDITIONAL,
        }

    def record(self) -> dict[str, Any]:
        """What a data frame shows of this row."""
        return {
            "name": self.name,
            "label": self.label,
            "value": self.value,
            "low": self.shown.low,
            "high": self.shown.high,
            "level": self.interval.level,
            "n": self.n,
            "effective_n": self.effective_n,
            **({} if (k := self.effective_clusters) is None else {"effective_clusters": k}),
            "verdict": self.verdict,
            "condition": self.condition,
            "findings": " ".join(sorted({f.code for f in self.findings + self.interval.findings})),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "name": self.name,
            "label": self.label,
            "value": finite(self.value),
            "interval": self.shown.to_dict() | {"withheld": self.withheld},
            "n": self.n,
            "effective_n": finite(self.effective_n),
            "effective_clusters": self.effective_clusters,
            "verdict": self.verdict,
            "condition": self.condition,
            "findings": [finding.to_dict() for finding in self.findings],
        }


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


@dataclass(frozen=True)
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

    def grid(self) -> str:
        """The rows and the conditions of their verdicts, as text, without title and findings."""
        if not self.rows:
            return "(no rows)"
        header, body = self._cells()
        columns = [align(column) for column in zip(header, *body, strict=True)]
        lines = ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
        return "\n".join(
            [*lines, *(textwrap.fill(line, 118, subsequent_indent="  ") for line in self.conditions)]
        )

    def __str__(self) -> str:
        notes = [
            textwrap.fill(
                f"{_MARK[f.level]} {f.code}  {f.message}{self._whose(f)}", 118, subsequent_indent=" " * 9
            )
            for f in self.findings
        ]
        return "\n".join([*([self.title] if self.title and self.rows else []), self.grid(), *notes])

    def _repr_html_(self) -> str:
        if not self.rows:
            return "<p>(no rows)</p>"
        header, body = self._cells()
        head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        rows = "".join("<tr>" + "".join(map(html_cell, line)) + "</tr>" for line in body)
        notes = "".join(
            f"<li><b>{escape(f.code)}</b> {escape(f.level)}: {escape(f.message)}{escape(self._whose(f))}</li>"
            for f in self.findings
        )
        said = "".join(f"<p>{escape(line)}</p>" for line in self.conditions)
        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        style = "border-spacing: 1em 0"
        table = f"<table style='{style}'>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        return table + said + (f"<ul>{notes}</ul>" if notes else "")

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


_MARK: Mapping[Level, str] = {"issue": "!!", "caution": " !", "note": "  "}


def _all_findings(row: Row) -> tuple[Finding, ...]:
    interval = getattr(row, "interval", None)
    return row.findings + (interval.findings if interval is not None else ())


def percent(level: float) -> str:
    """Write a level in per cent without rounding: 0.999 is not 100%."""
    return f"{100 * level:g}%"


def finite(x: float) -> float | None:
    """Return a number for JSON; None where it is not finite."""
    return float(x) if math.isfinite(x) else None
