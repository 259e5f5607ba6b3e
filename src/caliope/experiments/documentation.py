"""docs/reproduction.md, written from the JSON files of the results so that it cannot drift from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from caliope.experiments.reports import Report, read_report
from caliope.experiments.runs import write_atomically

_HEAD = """# The paper, reproduced

Written by `caliope reproduce docs` from the results; do not edit. Raghu et al. (2018), "Behaviour Policy Estimation in
Off-Policy Policy Evaluation: Calibration Matters", used MIMIC-III, which cannot be shared; these runs are on domains
whose truth is known. Where the paper has a number it stands beside ours, with the difference: for comparison, never as
a target."""


def write_page(source: Path, target: Path, *, order: Sequence[str]) -> list[str]:
    """Write the page and the pictures beside it; returns the names of the experiments found."""
    names = [name for name in order if (source / f"{name}.json").exists()]
    if not names:
        raise FileNotFoundError(f"{source} holds no results: run caliope reproduce all --out {source} first.")
    reports = {name: read_report(source / f"{name}.json") for name in names}
    times = {name: _times(source / f"{name}.times.json") for name in names}
    pictures = {name: _picture(source / f"{name}.svg", target) for name in names}
    parts = [_HEAD, _contents(reports, times)]
    parts += [_section(reports[name], times[name], pictures[name]) for name in names]
    write_atomically(target, "\n\n".join(parts))
    return names


def _times(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


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
        f"| {report.title} | `{times[name].get('command', '')}` | {_minutes(times[name])} |"
        for name, report in reports.items()
    ]
    return "\n".join(lines)


def _section(report: Report, times: dict[str, Any], picture: str) -> str:
    config = ", ".join(
        f"{key} {_short(value)}" for key, value in report.config.items() if value not in ("", None)
    )
    parts = [
        f"## {report.title}",
        f"`{times.get('command', '')}`: {_minutes(times)} on one core.",
        *report.findings,
    ]
    if picture:
        parts.append(f"![{report.title}]({picture})")
    parts += [table.to_markdown() for table in report.tables if not table.detail]
    return "\n\n".join([*parts, f"Configuration: {config}."])


def _short(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _minutes(times: dict[str, Any]) -> str:
    seconds = times.get("seconds")
    if seconds is None:
        return "time unknown"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"
