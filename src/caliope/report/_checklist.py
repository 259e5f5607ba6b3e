"""The section with a reporting checklist: what the audit says to each item, and what is left to the authors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from caliope._audit._result import Audit
from caliope.report._blocks import Section, Text, grid


class _Item(NamedTuple):
    """An item of the checklist, in words of our own."""

    topic: str
    guideline: str  # with its number where that is certain
    answer: str
    left: str


def checklist_section(audit: Audit) -> Section:
    """Items of TARGET 2025 and TRIPOD+AI that an audit answers in whole or in part."""
    text = (
        "For a publication: topics of two reporting guidelines, TARGET 2025 (observational studies that emulate a "
        "trial) and TRIPOD+AI (prediction models; here the behaviour models), with what this audit says to each and "
        "what it cannot know. The wording is our own; the guidelines themselves decide what an item asks for."
    )
    items = (*_question(audit), *_data(audit), *_analysis(audit), *_results(audit))
    rows = [
        {"topic": x.topic, "guideline": x.guideline, "this audit": x.answer, "left to you": x.left}
        for x in items
    ]
    title = "Reporting checklist"
    return Section("checklist", "Checklist", title, (Text(text), grid(title, rows)))


def _question(audit: Audit) -> Sequence[_Item]:
    settings, unit = audit.settings, audit.data.unit
    about = settings.about
    gamma = "" if settings.gamma == 1 else f", each step counting {settings.gamma:g} times the one before"
    return (
        _Item("Question", "TARGET; TRIPOD+AI 4", settings.question or "not stated", "why it is asked"),
        _Item(
            "Strategies compared",
            "TARGET",
            f"{about.policy_label} ({settings.target}) against current practice; {audit.data.n_actions} actions",
            "the rule of the new policy in words, and when it could be followed",
        ),
        _Item(
            "Outcome",
            "TARGET; TRIPOD+AI 8a",
            f"{about.value_label(unit)}: the sum of the rewards{gamma}",
            "how and when rewards were measured, and why these",
        ),
        _Item(
            "Causal contrast", "TARGET", f"mean per {unit} under the policy, and minus that of practice", ""
        ),
    )


def _data(audit: Audit) -> Sequence[_Item]:
    found, answers, units = audit.contents, audit.settings.answers, audit.data.units
    gaps = f"{len(found.with_gaps)} of {len(found.columns)} state columns have gaps"
    filled = "; filled from the past alone, with indicators" if found.with_gaps else ""
    size = f"{found.trajectories} {units}, {found.decisions} decisions"
    return (
        _Item("Source and dates", "TARGET; TRIPOD+AI 5", size, "where the log comes from, and its dates"),
        _Item(
            "Eligibility", "TARGET; TRIPOD+AI 6b", "not in a log", f"which {units} were included and left out"
        ),
        _Item(
            "Follow-up",
            "TARGET",
            f"decisions: {found.lengths.text}; ended: {answers.get('trajectories ended', '')}",
            f"what starts and ends one of the {units}",
        ),
        _Item(
            "Predictors",
            "TRIPOD+AI 9a",
            f"state columns: {len(found.columns)}; recorded before the decision: "
            f"{answers.get('states recorded before the decision', '')}",
            "how they were measured",
        ),
        _Item(
            "Data preparation",
            "TRIPOD+AI 7",
            "under Settings: how columns were read" if audit.settings.source else "columns used as they were",
            "what was done before the log was read",
        ),
        _Item("Missing data", "TARGET; TRIPOD+AI 11", gaps + filled, "why values are missing"),
        _Item(
            "Sample size",
            "TRIPOD+AI 10",
            f"effective sample size {audit.headline.effective_n:.0f}",
            "how the size of the log came about",
        ),
    )


def _analysis(audit: Audit) -> Sequence[_Item]:
    settings = audit.settings
    return (
        _Item(
            "Assignment, and confounders adjusted for",
            "TARGET",
            f"current practice: {settings.behaviour}; given the state columns",
            "why these columns suffice",
        ),
        _Item(
            "Assumptions",
            "TARGET",
            "the conditions of the verdict, and under What can and cannot be said",
            "what is known from outside the log about each",
        ),
        _Item(
            "Analysis",
            "TARGET; TRIPOD+AI 12",
            f"{audit.headline.label}; how values were fitted and weights made is under Settings",
            "what was planned beforehand",
        ),
        _Item(
            "Training versus evaluation",
            "TRIPOD+AI 16",
            f"models across folds; policy learnt on these: {settings.answers.get(_LEARNT, '')}",
            "where the new policy was learnt",
        ),
        _Item(
            "Fairness",
            "TRIPOD+AI 14",
            "no strata" if audit.subgroups is None else f"{len(audit.subgroups.table)} strata evaluated",
            "which groups matter, and why",
        ),
        _Item(
            "Open science",
            "TRIPOD+AI 18",
            "settings, seed and versions are on this page",
            "code, data, protocol",
        ),
    )


_LEARNT = "policy learnt on these trajectories"


def _results(audit: Audit) -> Sequence[_Item]:
    row, factor = audit.gain, audit.breakdown.factor
    control = f"behaviour models: calibration and log loss; negative control: z = {audit.placebo.z:.1f}"
    return (
        _Item(
            "Participants",
            "TARGET; TRIPOD+AI 20",
            "under What the log holds",
            "a flow diagram from source to log",
        ),
        _Item("Model performance", "TRIPOD+AI 23", control, ""),
        _Item("Estimates", "TARGET", f"difference {row.text}; value {audit.headline.text}", ""),
        _Item(
            "Sensitivity",
            "TARGET",
            f"{len(audit.others)} other choices; unmeasured confounding: breakdown factor {factor:.2f}",
            "",
        ),
        _Item("Limitations", "TARGET; TRIPOD+AI 26", "under What can and cannot be said", "generalisability"),
        _Item("Ethics, funding, interests", "TARGET; TRIPOD+AI 17, 18", "not in a log", "all of it"),
    )
