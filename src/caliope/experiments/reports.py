"""What an experiment found: tables with the paper's numbers beside ours, and what agrees."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from caliope.experiments.runs import plain, write_atomically

Cell = str | float | int | None


@dataclass(frozen=True)
class ReportTable:
    """A table of numbers and words; numbers keep all their digits, and are printed with ``decimals``."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    decimals: int = 3
    detail: bool = False  # kept in the files of the experiment, and left out of the summary of all

    def __post_init__(self) -> None:
        for i, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {i} of the table {self.title!r} has {len(row)} cells for {len(self.columns)} columns."
                )

    def records(self) -> list[dict[str, Cell]]:
        """A mapping from column to cell for each row."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def to_markdown(self) -> str:
        """The table as Markdown, with its title above and its note below."""
        body = [[self._text(cell) for cell in row] for row in self.rows]
        numeric = [
            all(isinstance(x, int | float | None) or x in ("inf", "-inf") for x in column)
            for column in zip(*self.rows, strict=True)
        ]
        rule = ["--:" if right else "---" for right in numeric or [False] * len(self.columns)]
        lines = [
            "| " + " | ".join(row) + " |" for row in ([_escaped(name) for name in self.columns], rule, *body)
        ]
        return "\n".join([f"**{self.title}**", "", *lines, *(["", self.note] if self.note else [])])

    def _text(self, cell: Cell) -> str:
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return ""
        if isinstance(cell, float):
            text = f"{cell:.{self.decimals}f}" if abs(cell) < 1e5 else f"{cell:.3g}"
            return text.lstrip("-") if math.isfinite(cell) and float(text) == 0 else text
        return _escaped(str(cell))


@dataclass(frozen=True)
class Report:
    """The result of an experiment. The same results make the same bytes: times are kept elsewhere."""

    name: str  # of its files, and of the command: figure1, table1, ...
    title: str
    tables: tuple[ReportTable, ...]
    findings: tuple[
        str, ...
    ]  # paragraphs on what agrees with the paper and what does not, made from the numbers
    config: Mapping[str, Any] = field(default_factory=dict)

    def table(self, title: str) -> ReportTable:
        """The table of that title."""
        found = [table for table in self.tables if table.title == title]
        if len(found) != 1:
            raise KeyError(
                f"{len(found)} tables are called {title!r}; there are {[t.title for t in self.tables]}."
            )
        return found[0]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not a number becomes None."""
        tables = [
            {
                "title": table.title,
                "columns": list(table.columns),
                "rows": [[_in_json(cell) for cell in row] for row in table.rows],
                "note": table.note,
                "decimals": table.decimals,
                "detail": table.detail,
            }
            for table in self.tables
        ]
        return {
            "name": self.name,
            "title": self.title,
            "tables": tables,
            "findings": list(self.findings),
            "config": plain(self.config),
        }

    def to_json(self) -> str:
        """Everything, as JSON."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)

    def to_markdown(self, *, details: bool = True) -> str:
        """Title, findings and tables."""
        tables = [table.to_markdown() for table in self.tables if details or not table.detail]
        return "\n\n".join([f"# {self.title}", *self.findings, *tables])

    def write(self, folder: str | Path, *, figure: Any = None) -> None:
        """Write NAME.json and NAME.md, and NAME.svg where there is a figure."""
        write_atomically(Path(folder) / f"{self.name}.json", self.to_json())
        write_atomically(Path(folder) / f"{self.name}.md", self.to_markdown())
        if figure is not None:
            from caliope.plots import svg

            write_atomically(Path(folder) / f"{self.name}.svg", svg(figure))


def said_of(config: Any) -> dict[str, Any]:
    """A configuration as it is published: of a reader's own file the name, and not where it lies."""
    return {
        key: Path(value).name if key == "data" and value else value for key, value in vars(config).items()
    }


def read_report(path: str | Path) -> Report:
    """Read a report back from its JSON."""
    try:
        return _report_of(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a report as caliope reproduce writes it: make it again ({type(error).__name__}: {error})."
        ) from error


def _report_of(found: Mapping[str, Any]) -> Report:
    tables = tuple(
        ReportTable(
            table["title"],
            tuple(table["columns"]),
            tuple(tuple(row) for row in table["rows"]),
            table["note"],
            table["decimals"],
            table["detail"],
        )
        for table in found["tables"]
    )
    return Report(found["name"], found["title"], tables, tuple(found["findings"]), found["config"])


def _escaped(text: str) -> str:
    """A bar inside a cell is not the end of it."""
    return text.replace("|", "\\|")


def _in_json(cell: Cell) -> Cell:
    """JSON has no word for infinity, and it is a result: a likelihood of 0."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return None if math.isnan(cell) else f"{cell:g}"
    return plain(cell)
