"""docs/reproduction.md, written from the JSON files of the results so that it cannot drift from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from caliope.experiments.reports import Report, read_report
from caliope.experiments.runs import write_atomically

_TITLE = "# The paper, reproduced"
_HEAD = """Written by `caliope reproduce docs` from the results; do not edit. Raghu et al. (2018), "Behaviour Policy
Estimation in Off-Policy Policy Evaluation: Calibration Matters", used MIMIC-III, which cannot be shared. {where} Where
the paper has a number it stands beside ours, in the tables with the difference: for comparison, never as a target.

`caliope reproduce all --jobs 2` makes everything again at the usual size, with fewer patients and seeds than the paper,
on two cores; `--full` is the paper's size and may take hours, or days. {took}"""


def write_page(source: Path, target: Path, *, order: Sequence[str]) -> list[str]:
    """Write the page and the pictures beside it; returns the names of the experiments found."""
    names = [name for name in order if (source / f"{name}.json").exists()]
    if not names:
        raise FileNotFoundError(f"{source} holds no results: run caliope reproduce all --out {source} first.")
    reports = {name: read_report(source / f"{name}.json") for name in names}
    times = {name: _times(source / f"{name}.times.json") for name in names}
    pictures = {name: _picture(source / f"{name}.svg", target) for name in names}
    parts = [_TITLE, _head(reports, times), _contents(reports, times)]
    parts += [_section(reports[name], times[name], pictures[name]) for name in names]
    write_atomically(target, "\n\n".join(parts))
    return names


def _times(path: Path) -> dict[str, Any]:
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
        text = f"These runs are on a reader's own cohort ({', '.join(own)}), whose truth nobody knows"
        text += ", but for those that say otherwise." if simulated else "."
    known = [each["seconds"] for each in times.values() if "seconds" in each]
    took = f"What stands here took {_minutes({'seconds': sum(known)})} of work on one core." if known else ""
    paragraphs = _HEAD.format(where=text, took=took).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _picture(path: Path, target: Path) -> str:
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
        f"{_command(times)}: {_minutes(times)} on one core." if times else "Command and time were not kept.",
        *report.findings,
    ]
    if picture:
        parts.append(f"![{report.title}]({picture})")
    parts += [table.to_markdown() for table in report.tables if not table.detail]
    return "\n\n".join([*parts, f"Configuration: {config}."])


def _command(times: dict[str, Any]) -> str:
    return f"`{times['command']}`" if "command" in times else "not kept"


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _minutes(times: dict[str, Any]) -> str:
    seconds = times.get("seconds")
    if seconds is None:
        return "not kept"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
