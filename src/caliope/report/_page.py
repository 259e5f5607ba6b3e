"""The page of an audit: its sections in order, rendered through the templates and written to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from caliope._audit._result import Audit
from caliope._cells import visible
from caliope._files import written_whole
from caliope.report._behaviour import behaviour_section, placebo_section, reliability_section
from caliope.report._blocks import Section, as_sentence
from caliope.report._checklist import checklist_section
from caliope.report._contents import contents_section
from caliope.report._numbers import numbers_json
from caliope.report._other_logs import other_logs_section
from caliope.report._sensitivity import (
    codes_section,
    confounding_section,
    influence_section,
    limits_section,
    sensitivity_section,
    settings_section,
    words_section,
)
from caliope.report._stored import Page, read_page
from caliope.report._subgroups import subgroup_section
from caliope.report._verdict import reach_section, value_section, verdict_section
from caliope.report._weights import actions_section, overlap_section, weights_section

_SECTIONS: tuple[Callable[[Audit], Section], ...] = (
    verdict_section,
    reach_section,
    value_section,
    subgroup_section,
    limits_section,
    contents_section,
    behaviour_section,
    reliability_section,
    weights_section,
    overlap_section,
    actions_section,
    influence_section,
    sensitivity_section,
    other_logs_section,
    placebo_section,
    confounding_section,
    settings_section,
    words_section,
    checklist_section,
)


def report_html(audit: Audit) -> str:
    """Render the page of an audit.

    Parameters
    ----------
    audit : Audit
        The result to show.

    Returns
    -------
    str
        One HTML text that needs no other file and no network.

    Examples
    --------
    >>> page = report_html(audit)  # doctest: +SKIP
    """
    return render(page_of(audit))


def write_report(audit: Audit, path: str | Path) -> tuple[Path, Path]:
    """Write the page of an audit, and all its numbers as JSON beside it.

    The same audit gives the same bytes. The page holds everything in itself: it opens from a disk, without a network,
    and prints. The JSON has the audit and the numbers behind every figure.

    Parameters
    ----------
    audit : Audit
        The result to show.
    path : str or Path
        Where to write the page; its name must end in .html.

    Returns
    -------
    page, numbers : Path
        Both files.

    Examples
    --------
    >>> page, numbers = write_report(audit, "report.html")  # doctest: +SKIP
    """
    page = Path(path)
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an HTML file: its name must end in .html, got {page.name!r}.")
    numbers = page.with_suffix(".json")
    content = page_of(audit)
    figures = {picture.name: picture.data.to_dict() for part in content.sections for picture in part.pictures}
    write_whole(page, render(content))
    write_whole(numbers, numbers_json(audit, figures, page=content.to_dict()))
    return page, numbers


def draw_again(source: str | Path, path: str | Path | None = None) -> Path:
    """Draw a page again from the JSON that was written beside it; the audit is not needed.

    Parameters
    ----------
    source : str or Path
        The JSON.
    path : str or Path, optional
        Where to write the page; by default beside the JSON, with its name.

    Returns
    -------
    Path
        The page. With the same version it has the same bytes.

    Examples
    --------
    >>> page = draw_again("report.json", "again.html")  # doctest: +SKIP
    """
    page = Path(source).with_suffix(".html") if path is None else Path(path)
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"a report is an HTML file: its name must end in .html, got {page.name!r}.")
    write_whole(page, render(read_page(source)))
    return page


def draw_figures(audit: Audit) -> dict[str, Any]:
    """Draw the figures of the report, by name, as matplotlib draws them.

    Parameters
    ----------
    audit : Audit
        The result to show.

    Returns
    -------
    mapping from name to matplotlib.figure.Figure
        In the order of the page.

    Examples
    --------
    >>> figures = draw_figures(audit)  # doctest: +SKIP
    """
    return {picture.name: picture.figure for section in _sections(audit) for picture in section.pictures}


def _sections(audit: Audit) -> tuple[Section, ...]:
    """Every section of the page, as plain values; the last one explains the codes of all others."""
    sections = tuple(section for make in _SECTIONS if (section := make(audit)).blocks)
    codes = codes_section(finding for section in sections for finding in section.findings)
    return (*sections, codes) if codes.blocks else sections


def page_of(audit: Audit) -> Page:
    """All that the page of an audit is made of."""
    data, names = audit.data, audit.settings.about
    about = f"{len(data)} {data.units}, {data.n_steps} decisions, {data.n_actions} actions"
    title = names.title or (
        f"Audit of a new policy: {names.policy}" if names.policy else "Audit of a new policy"
    )
    author = f"Audit by {names.author}" if names.author else ""
    made = ", ".join(filter(None, [author, str(names.date)]))
    return Page(title, about, made, _sections(audit))


def render(page: Page) -> str:
    """The page as HTML. Everything but our own drawings is escaped."""
    template = _environment().get_template("page.html.j2")
    head = {"title": page.title, "about": page.about, "made": page.made}
    return visible(template.render(**head, sections=page.sections)) + "\n"


def _environment() -> Any:
    made = Environment(
        loader=PackageLoader("caliope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["sentence"] = as_sentence
    return made


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all: a reader never meets half a page."""
    with written_whole(path) as beside:
        beside.write_text(text, encoding="utf-8")
