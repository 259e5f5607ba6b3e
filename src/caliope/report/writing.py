"""An audit as a page, and its numbers beside it."""

from __future__ import annotations

from pathlib import Path

from caliope.auditing import Audit
from caliope.report.blocks import Section
from caliope.report.numbers import numbers_json
from caliope.report.page import render, sections_of


def report_html(audit: Audit) -> str:
    """The page of an audit: one HTML text that needs no other file and no network."""
    return _html(audit, sections_of(audit))


def write_report(audit: Audit, path: str | Path) -> tuple[Path, Path]:
    """Write the page of an audit, and all its numbers as JSON beside it; return both paths.

    The same audit gives the same bytes. The page holds everything in itself: it opens from a disk, without a network,
    and prints. The JSON has the audit and the numbers behind every figure.
    """
    page = Path(path)
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an HTML file: its name must end in .html, got {page.name!r}.")
    numbers = page.with_suffix(".json")
    sections = sections_of(audit)
    figures = {picture.name: picture.data.to_dict() for part in sections for picture in part.pictures}
    _write(page, _html(audit, sections))
    _write(numbers, numbers_json(audit, figures))
    return page, numbers


def _html(audit: Audit, sections: tuple[Section, ...]) -> str:
    about = f"{len(audit.data)} episodes, {audit.data.n_steps} decisions, {audit.data.n_actions} actions"
    return render(sections, title="Audit of a new policy", about=about)


def _write(path: Path, text: str) -> None:
    # Whole or not at all: a reader never meets half a page.
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
