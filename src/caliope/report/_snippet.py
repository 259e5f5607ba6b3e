"""The first screen of a report for a notebook: verdict, numbers, one figure, and the gravest findings."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from caliope import plots
from caliope._audit._comparison import PolicyComparison
from caliope._audit._result import Audit
from caliope.checks._registry import Verdict
from caliope.report._blocks import as_sentence
from caliope.report._comparison import forest_picture, title_of
from caliope.report._verdict import TITLES, answer_figure, condition_text, facts_of

_COLOURS: dict[Verdict, str] = {"trust": "#1a7f37", "caution": "#9a6700", "do not trust": "#cf222e"}
_MOST = 6  # findings


def snippet_html(audit: Audit) -> str:
    """Render the verdict of an audit and its first figure, for a notebook.

    Parameters
    ----------
    audit : Audit
        The result to show; ``write_html`` writes the whole page.

    Returns
    -------
    str
        HTML without script, well under 30 kB.

    Examples
    --------
    >>> html = snippet_html(audit)  # doctest: +SKIP
    """
    colour = _COLOURS[audit.verdict]
    title = f"<p style='font-size: 1.2em; color: {colour}'><b>{escape(TITLES[audit.verdict][0])}</b></p>"
    # What a verdict of trust depends on belongs to it, wherever it is shown.
    conditions = (condition_text(audit), "" if audit.headline.withheld else audit.strength_text())
    title += "".join(f"<p>{escape(text)}</p>" for text in conditions if text)
    question = f"<p>{escape(audit.settings.question)}</p>" if audit.settings.question else ""
    struck = "text-decoration: line-through; " if audit.verdict == "do not trust" else ""
    facts = "".join(
        f"<td style='text-align: left; padding-right: 2em'>{escape(fact.name)}<br><b style='{struck * (i != 1)}"
        f"font-size: 1.4em'>{escape(fact.number)}</b><br>{escape(fact.note)}</td>"
        for i, fact in enumerate(facts_of(audit).items)
    )
    table = f"<table><tr style='background: none'>{facts}</tr></table>"
    found = [finding for finding in audit.findings if finding.level != "note"]
    items = "".join(f"<li><b>{f.code}</b> {escape(as_sentence(f.message))}</li>" for f in found[:_MOST])
    more = f"<li>and {len(found) - _MOST} more</li>" if len(found) > _MOST else ""
    rest = "<p>print(audit) shows all; audit.write_html('report.html') writes the report.</p>"
    content = f"{title}{question}{table}{_figure(answer_figure(audit))}<ul>{items}{more}</ul>{rest}"
    return _framed(content, colour)


def comparison_snippet(found: PolicyComparison, tables: str) -> str:
    """Render the verdict of a comparison, its picture and its tables, for a notebook.

    Parameters
    ----------
    found : PolicyComparison
        The result to show; ``write_html`` writes the whole page.
    tables : str
        HTML of its tables.

    Returns
    -------
    str
        HTML without script, well under 30 kB.

    Examples
    --------
    >>> html = comparison_snippet(found, "")  # doctest: +SKIP
    """
    colour = _COLOURS[found.verdict]
    title = f"<p style='font-size: 1.2em; color: {colour}'><b>{escape(title_of(found))}</b></p>"
    told = found.sentences()[found.verdict != "trust" :]  # the condition of trust stands in the first
    said = "".join(f"<p>{escape(line)}</p>" for line in (*told, *found.restrictions()))
    picture = forest_picture(found)
    drawn = f"{_figure(picture.figure)}<p>{escape(picture.label)}. {escape(picture.caption)}</p>"
    return _framed(f"{title}{said}{drawn}{tables}", colour)


def _framed(content: str, colour: str) -> str:
    return f"<div style='border-left: 6px solid {colour}; padding-left: 1em'>{content}</div>"


def _figure(figure: Any) -> str:
    """The figure without header and metadata, on white: its letters are black."""
    text = plots.svg(figure)
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return f"<div style='background: white; max-width: 30em'>{text}</div>"
