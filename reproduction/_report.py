"""What an experiment found: summary statistics, tables and text, their files, and the page of all results."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from caliope._ragged import Float
from reproduction._runs import to_plain, write_atomically

Cell = str | float | int | None


def column(rows: Iterable[Mapping[str, Any]], name: str) -> Float:
    """One entry of every row; nan where it is None."""
    return np.array([np.nan if row[name] is None else row[name] for row in rows], dtype=np.float64)


def mean(x: Any) -> float | None:
    """Mean of the numbers that are not nan; None if there are none. Infinite ones count."""
    known = _drop_nan(x)
    return float(known.mean()) if len(known) else None


def sd(x: Any) -> float | None:
    """Standard deviation of the numbers that are not nan; None for fewer than two, or if one is infinite."""
    known = _drop_nan(x)
    return float(known.std(ddof=1)) if len(known) > 1 and np.isfinite(known).all() else None


def se(x: Any) -> float | None:
    """Standard error of the mean of the numbers that are not nan."""
    spread = sd(x)
    return None if spread is None else spread / float(np.sqrt(len(_drop_nan(x))))


def clustered_se(x: Any, groups: Sequence[Any]) -> float | None:
    r"""Standard error of the mean of numbers that come in groups; those of one group may depend on each other.

    .. math:: \frac{1}{N} \sqrt{\frac{G}{G - 1} \sum_g \Big(\sum_{i \in g} (x_i - \bar x)\Big)^2}

    Groups of one give the ordinary standard error. None for fewer than two groups, or if a number is infinite.
    """
    given = np.asarray(x, dtype=np.float64).ravel()
    kept = ~np.isnan(given)
    names = sorted({group for group, there in zip(groups, kept, strict=True) if there})
    if len(names) < 2 or not np.isfinite(given[kept]).all():
        return None
    off = given - given[kept].mean()
    sums = [
        sum(d for d, group, there in zip(off, groups, kept, strict=True) if there and group == name)
        for name in names
    ]
    spread = float(np.square(sums).sum()) * len(names) / (len(names) - 1)
    return float(np.sqrt(spread)) / int(kept.sum())


def _drop_nan(x: Any) -> Float:
    given = np.asarray(x, dtype=np.float64).ravel()
    return given[~np.isnan(given)]


@dataclass(frozen=True)
class ReportTable:
    """A table of numbers and words; numbers keep all their digits, and are printed with ``decimals``."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    decimals: int = 3
    detail: bool = False  # in the files of the experiment, but not on the page of all results

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
            "| " + " | ".join(row) + " |" for row in ([_escape(name) for name in self.columns], rule, *body)
        ]
        return "\n".join([f"**{self.title}**", "", *lines, *(["", self.note] if self.note else [])])

    def _text(self, cell: Cell) -> str:
        if cell is None or (isinstance(cell, float) and math.isnan(cell)):
            return ""
        if isinstance(cell, float):
            text = f"{cell:.{self.decimals}f}" if abs(cell) < 1e5 else f"{cell:.3g}"
            return text.lstrip("-") if math.isfinite(cell) and float(text) == 0 else text
        return _escape(str(cell))


@dataclass(frozen=True)
class Report:
    """The result of an experiment. The same results give the same bytes: times are in another file."""

    name: str  # of its files, and of the command: figure1, table1, ...
    title: str
    tables: tuple[ReportTable, ...]
    # Paragraphs on what agrees with the paper and what does not, made from the numbers.
    findings: tuple[str, ...]
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
                "rows": [[_to_json(cell) for cell in row] for row in table.rows],
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
            "config": to_plain(self.config),
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


def public_config(config: Any) -> dict[str, Any]:
    """A configuration as it is published: the name of the user's own file, without its folder."""
    return {
        key: Path(value).name if key == "data" and value else value for key, value in vars(config).items()
    }


def read_report(path: str | Path) -> Report:
    """Read a report back from its JSON."""
    try:
        return _parse_report(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a report of python -m reproduction: make it again ({type(error).__name__}: {error})."
        ) from error


def _parse_report(found: Mapping[str, Any]) -> Report:
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


def _escape(text: str) -> str:
    """Escape bars, which would end the cell."""
    return text.replace("|", "\\|")


def _to_json(cell: Cell) -> Cell:
    """Write infinity as text: JSON has no word for it, and it is a result (a likelihood of 0)."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return None if math.isnan(cell) else f"{cell:g}"
    return to_plain(cell)


_TITLE = "# The paper, reproduced"
_HEAD = """Written by `python -m reproduction docs` from the results; do not edit. Raghu et al. (2018), "Behaviour
Policy Estimation in Off-Policy Policy Evaluation: Calibration Matters", used MIMIC-III, which cannot be shared. {where}
The paper's numbers stand beside ours where there are any, with the difference: for comparison, never as a target.

`python -m reproduction all --jobs 2` (or `make reproduce`, on one core) runs everything again but the gate and
the trial of honesty, at the usual size, with fewer patients and seeds than the paper. `--full` is the paper's size and
may take hours, or days.
{took}"""


def write_page(source: Path, target: Path, *, order: Sequence[str]) -> list[str]:
    """Write the page and the pictures beside it, and return the names of the experiments found."""
    names = [name for name in order if (source / f"{name}.json").exists()]
    if not names:
        raise FileNotFoundError(
            f"{source} holds no results: run python -m reproduction all --out {source} first."
        )
    reports = {name: read_report(source / f"{name}.json") for name in names}
    times = {name: _read_times(source / f"{name}.times.json") for name in names}
    pictures = {name: _copy_picture(source / f"{name}.svg", target) for name in names}
    parts = [_TITLE, _head(reports, times), _contents(reports, times)]
    parts += [_section(reports[name], times[name], pictures[name]) for name in names]
    write_atomically(target, "\n\n".join(parts))
    return names


def _read_times(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} does not hold the time of a run: delete it, or run again ({error})."
        ) from error


def _head(reports: dict[str, Report], times: dict[str, dict[str, Any]]) -> str:
    """What the page is made from, and how long that took."""
    own = sorted({str(report.config["data"]) for report in reports.values() if report.config.get("data")})
    simulated = [report for report in reports.values() if not report.config.get("data")]
    text = "These runs are on domains whose truth is known."
    if own:
        text = f"These runs are on the user's own cohort ({', '.join(own)}), whose truth is unknown"
        text += ", except where a section says otherwise." if simulated else "."
    known = [each["seconds"] for each in times.values() if "seconds" in each]
    took = f"The results below took {_minutes({'seconds': sum(known)})} of work on one core." if known else ""
    paragraphs = _HEAD.format(where=text, took=took).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _copy_picture(path: Path, target: Path) -> str:
    if not path.exists():
        return ""
    folder = target.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, folder / path.name)
    return f"{folder.name}/{path.name}"


def _contents(reports: dict[str, Report], times: dict[str, dict[str, Any]]) -> str:
    lines = ["| experiment | command | work on one core |", "|---|---|--:|"]
    lines += [
        f"| {report.title} | {_command(times[name])} | {_minutes(times[name])} |"
        for name, report in reports.items()
    ]
    return "\n".join(lines)


def _section(report: Report, times: dict[str, Any], picture: str) -> str:
    config = ", ".join(
        f"{key} {_short(value)}" for key, value in report.config.items() if value not in ("", None)
    )
    parts = [
        f"## {report.title}",
        f"{_command(times)}: {_minutes(times)} on one core."
        if times
        else "Command and time were not recorded.",
        *report.findings,
    ]
    if picture:
        parts.append(f"![{report.title}]({picture})")
    parts += [table.to_markdown() for table in report.tables if not table.detail]
    return "\n\n".join([*parts, f"Configuration: {config}."])


def _command(times: dict[str, Any]) -> str:
    return f"`{times['command']}`" if "command" in times else "not recorded"


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _minutes(times: dict[str, Any]) -> str:
    seconds = times.get("seconds")
    if seconds is None:
        return "not recorded"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
