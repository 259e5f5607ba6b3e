"""The page: sections in their order, through the templates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from caliope.auditing import Audit
from caliope.report.actions import actions_section, overlap_section
from caliope.report.behaviour import behaviour_section
from caliope.report.blocks import Section
from caliope.report.influence import influence_section
from caliope.report.limits import limits_section, words_section
from caliope.report.placebo import placebo_section
from caliope.report.reliability import reliability_section
from caliope.report.sensitivity import confounding_section, sensitivity_section
from caliope.report.settings import settings_section
from caliope.report.value import value_section
from caliope.report.verdict import verdict_section
from caliope.report.weights import weights_section

SECTIONS: tuple[Callable[[Audit], Section], ...] = (
    verdict_section,
    value_section,
    limits_section,
    behaviour_section,
    reliability_section,
    weights_section,
    overlap_section,
    actions_section,
    influence_section,
    sensitivity_section,
    placebo_section,
    confounding_section,
    settings_section,
    words_section,
)


def sections_of(audit: Audit) -> tuple[Section, ...]:
    """Every section of the page, as plain values."""
    return tuple(make(audit) for make in SECTIONS)


def render(sections: tuple[Section, ...], *, title: str, about: str) -> str:
    """The page as HTML. Everything but our own drawings is escaped."""
    return (
        _environment().get_template("page.html.j2").render(title=title, about=about, sections=sections) + "\n"
    )


def _environment() -> Any:
    made = Environment(
        loader=PackageLoader("caliope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["capitalised"] = lambda text: text[:1].upper() + text[1:]
    return made
