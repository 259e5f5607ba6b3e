"""Sections with the verdict, its reasons, and the value by every estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from caliope import plots
from caliope._audit._reach import Reach
from caliope._audit._result import Audit
from caliope._conditions import UNMARKED
from caliope._results import Estimate, Table, percent
from caliope.checks._registry import Finding, Level, Verdict
from caliope.plots._audits import PRACTICE
from caliope.plots._figures import label_text
from caliope.report._blocks import (
    Banner,
    Bullets,
    Codes,
    Fact,
    Facts,
    Grid,
    Picture,
    Reasons,
    Section,
    Text,
    as_sentence,
    grid,
    name_rows,
    panel,
    picture,
    row_panel,
)

TITLES: Mapping[Verdict, tuple[str, str]] = {
    "trust": (
        "Trust, on a condition that no log can show",
        "Every check that this log allows was made, and none failed. Ask those who know the records about the "
        "condition before you use the number.",
    ),
    "caution": (
        "Caution: use with the reservations below",
        "The estimate stands, but not on its own. Take it as a reason to look further, not as the basis of a decision.",
    ),
    "do not trust": (
        "Do not trust this estimate",
        "This log cannot say what the new policy is worth. The numbers are shown so that the reasons can be followed. "
        "Do not quote them. No confidence interval is shown, since it would be too short.",
    ),
}
_LEVELS: Mapping[Level, str] = {
    "issue": "Why it should not be believed",
    "caution": "Reservations",
    "note": "How the number was made",
}
_ANSWER = 1.7  # inches of the height of the first picture
_MORE_DIGITS = 5  # at most, than the intervals deserve


def verdict_section(audit: Audit) -> Section:
    """The question, whether to believe the estimate, one picture and three numbers; then every reason."""
    title, text = TITLES[audit.verdict]
    by_level = {level: tuple(f for f in audit.findings if f.level == level) for level in _LEVELS}
    reasons = [Reasons(_LEVELS[level], found) for level, found in by_level.items() if found]
    question, required = audit.settings.question, tuple(f"Required: {x.text}." for x in audit.requirements)
    blocks = (
        *((Text(f"The question: {question}"),) if question else ()),
        Banner(audit.verdict, title, condition_text(audit) or text),
        Text(_rates(audit) or _means(audit)),
        answer_picture(audit),
        facts_of(audit),
        Text(_meaning(audit)),
        *((Text(" ".join(filter(None, (text, audit.strength_text())))),) if condition_text(audit) else ()),
        *((Bullets(required),) if required else ()),
        *reasons,
    )
    return Section("verdict", "Verdict", "The verdict", blocks)


def condition_text(audit: Audit) -> str:
    """What must hold for an estimate that is trusted, as a sentence; empty for others."""
    return as_sentence(audit.headline.verdict_text) if audit.verdict == "trust" else ""


def answer_picture(audit: Audit) -> Picture:
    """Current practice against the new policy, each with its interval."""
    caption = f"With {percent(audit.headline.interval.level)} confidence intervals."
    if audit.headline.withheld:
        caption = "Grey: not to be believed, and without an interval."
    data = grid("Current practice and the new policy", [_record(row) for row in _both(audit)])
    label = "Current practice against the new policy"
    return picture("answer", answer_figure(audit), label=label, caption=caption, data=data)


def answer_figure(audit: Audit) -> Any:
    """The drawing of it."""
    rows = [row for row in _both(audit) if np.isfinite(row.value)]
    figure, axis = panel(height=_ANSWER)
    axis.axvline(audit.practice.value, color=PRACTICE, linestyle="--", linewidth=0.9, zorder=1)
    plots.estimates(rows, axis, colours={audit.practice.name: PRACTICE})
    name_rows(axis, [row.label for row in rows])
    axis.set(xlabel=label_text(audit.settings.about.value_label(audit.data.unit)))
    return figure


def _both(audit: Audit) -> list[Estimate]:
    """Current practice and the new policy, by the names that a reader knows."""
    names = ("Current practice", audit.settings.about.policy_label)
    return [
        replace(row, label=name) for row, name in zip((audit.practice, audit.headline), names, strict=True)
    ]


def facts_of(audit: Audit) -> Facts:
    """The new policy, current practice and their difference, each with its interval."""
    about = audit.settings.about
    policy, practice, gain = map(about.with_unit, value_texts(audit))
    signs = {1: "above 0", -1: "below 0", 0: "the sign is open", None: "no interval"}
    notes = (
        f"effective sample size {audit.headline.effective_n:.0f}",
        f"mean of {audit.practice.n} {audit.data.units}",
        signs[sign_of_gain(audit)] if _quotable(audit) else "not to be quoted",
    )
    rows = (
        (about.policy_label, policy, audit.headline),
        ("Current practice", practice, audit.practice),
        ("Difference", gain, audit.gain),
    )
    facts = (
        Fact(name, value, f"{interval_text(row)}; {note}")
        for (name, value, row), note in zip(rows, notes, strict=True)
    )
    return Facts(tuple(facts), audit.verdict == "do not trust")


def _quotable(audit: Audit) -> bool:
    return "do not trust" not in (audit.verdict, audit.gain.verdict)


def value_texts(audit: Audit) -> tuple[str, str, str]:
    """The new policy, current practice and their difference, with digits that add up for a reader who checks."""
    rows = (audit.headline, audit.practice, audit.gain)
    plain = (rows[0].value_text, rows[1].value_text, rows[2].value_text)
    known = [row.decimals for row in rows if row.decimals is not None]
    if len(known) < len(rows):
        return plain
    for decimals in range(max(known), max(known) + _MORE_DIGITS):
        policy, practice, gain = (round(row.value * 10**decimals) for row in rows)
        if policy - practice == gain:
            return (_fixed(policy, decimals), _fixed(practice, decimals), _fixed(gain, decimals))
    return plain


def _fixed(whole: int, decimals: int) -> str:
    return f"{whole / 10**decimals:.{decimals}f}"


def interval_text(row: Estimate) -> str:
    """The interval in words."""
    if row.withheld:
        return "no interval: not to be believed"
    low, high = row.interval.ends
    return f"{percent(row.interval.level)} interval {low} to {high}"


def sign_of_gain(audit: Audit) -> int | None:
    """1 or -1 where the interval of the difference has that sign, 0 where it contains 0; None without interval."""
    ends = audit.gain.shown
    if not ends.low <= ends.high:
        return None
    return 1 if ends.low > 0 else -1 if ends.high < 0 else 0


def _meaning(audit: Audit) -> str:
    """What the numbers say about the policy, weaker where the verdict is."""
    if audit.verdict == "do not trust":
        return (
            f"For the reasons below, this says more about the log than about the policy. {audit.range_text()}"
        )
    if not _quotable(audit):
        return "The difference should not be believed, even if the estimate itself may be used."
    meanings = {
        1: "The interval of the difference lies above 0: chance alone hardly explains it.",
        -1: "The interval of the difference lies below 0: the new policy seems to be worse.",
        0: "The interval of the difference contains 0: the log does not show which policy is better.",
        None: "There is no interval for the difference.",
    }
    return meanings[sign_of_gain(audit)]


def _means(audit: Audit) -> str:
    """Practice, estimate and difference in the unit of the outcome."""
    about = audit.settings.about
    policy, practice, gain = map(about.with_unit, value_texts(audit))
    first = f"The {audit.data.units} in this log returned {practice} on average."
    if about.outcome:
        first = f"In this log the {about.outcome} per {audit.data.unit} was {practice} on average."
    return f"{first} For {_named(audit)} the estimate is {policy}, a difference of {gain}."


def _rates(audit: Audit) -> str:
    """The same for outcomes of 0 and 1, per 100 trajectories; empty for others, and where another unit was given."""
    about = audit.settings.about
    texts = [_per_100(text) for text in value_texts(audit)]
    if audit.contents.rate is None or about.outcome_unit or None in texts:
        return ""
    policy, practice, gain = texts
    outcome = f"the outcome 1 ({about.outcome})" if about.outcome else "a return of 1"
    return (
        f"Of 100 {audit.data.units} in this log, {practice} had {outcome}. For {_named(audit)} the estimate is "
        f"{policy} of 100{_ends_per_100(audit.headline)}, a difference of {gain}{_ends_per_100(audit.gain)}."
    )


def _per_100(text: str) -> str | None:
    """A rate as it is printed, per 100; None for what is no plain number."""
    try:
        number = Decimal(text).scaleb(2)
    except InvalidOperation:
        return None
    return f"{number:f}" if number.is_finite() else None


def _ends_per_100(row: Estimate) -> str:
    ends = [_per_100(text) for text in row.interval.ends]
    return "" if row.withheld or None in ends else f" ({ends[0]} to {ends[1]})"


def _named(audit: Audit) -> str:
    name = audit.settings.about.policy
    return f"the new policy ({name})" if name else "the new policy"


def value_section(audit: Audit) -> Section:
    """All estimators with their intervals, as a picture and a table."""
    gamma = audit.settings.gamma
    discount = "" if gamma == 1 else f" Each step counts {gamma:g} times as much as the step before."
    text = (
        f"The value is the sum of the rewards per {audit.data.unit}, on average{_measured(audit)}.{discount} For "
        "current practice it is "
        "the mean of the log and needs no model. Every other row estimates the mean under the new policy in its own "
        "way. Where the rows agree, the answer depends less on the method. Grey rows are not to be trusted, and no "
        "interval is shown for them."
    )
    blocks = (Text(text), _picture(audit), _table(audit.table), _findings(audit.table))
    return Section("value", "Value", "Value against current practice", blocks)


def _measured(audit: Audit) -> str:
    """What the rewards measure, as a clause; empty if nobody said."""
    about = audit.settings.about
    unit = f", in {about.outcome_unit}" if about.outcome_unit else ""
    return f": {about.outcome}{unit}" if about.outcome else unit


def _picture(audit: Audit) -> Any:
    rows = [row for row in audit.table if row.name != audit.gain.name]
    drawn = [row for row in rows if np.isfinite(row.value)]
    figure, axis = row_panel(len(drawn))
    axis.axvline(audit.practice.value, color=PRACTICE, linestyle="--", linewidth=0.9, zorder=1)
    plots.estimates(drawn, axis, colours={audit.practice.name: PRACTICE})
    name_rows(axis, [row.label for row in drawn])
    axis.set(xlabel=label_text(audit.settings.about.value_label(audit.data.unit)))
    caption = (
        f"Each estimate with its {percent(audit.headline.interval.level)} confidence interval. The dashed line is "
        "what current practice achieved."
    )
    data = grid("Estimates and intervals", [_record(row) for row in rows])
    return picture(
        "values", figure, label="Value of the new policy by every estimator", caption=caption, data=data
    )


def _record(row: Estimate) -> dict[str, Any]:
    return {
        "estimator": row.label,
        "value": row.value,
        "verdict": UNMARKED if row.verdict == "trust" else row.verdict,
        "low": row.shown.low,
        "high": row.shown.high,
        "effective n": row.effective_n,
    }


def _table(table: Table[Estimate]) -> Grid:
    rows = [_cells(row, cells) for row, cells in zip(table, table.marked_cells(), strict=True)]
    shown = grid("What the new policy is worth, by every estimator", rows)
    return replace(shown, note=" ".join([*filter(None, [shown.note]), *table.conditions]))


def _cells(row: Estimate, cells: dict[str, str]) -> dict[str, Any]:
    """The verdict and its reasons beside the value, where a narrow screen still shows them."""
    first = {name: cells.pop(name) for name in ("estimator", "value", "verdict")}
    reasons = tuple(f for f in (*row.findings, *row.interval.findings) if f.level != "note")
    return first | {"reasons": Codes(reasons)} | cells


def _findings(table: Table[Estimate]) -> Grid:
    rows = [
        {"code": Codes((f,)), "level": f.level, "finding": f.message, "concerns": _rows_with(f, table)}
        for f in table.findings
    ]
    return grid("All findings, for every estimator", rows, folded=True)


def _rows_with(finding: Finding, table: Table[Estimate]) -> str:
    same = (finding.code, finding.message)
    rows = [
        row for row in table if same in [(f.code, f.message) for f in (*row.findings, *row.interval.findings)]
    ]
    if len(rows) == len(table):
        return "all"
    return "; ".join(row.label for row in rows) if len(rows) < 4 else f"{len(rows)} of {len(table)} rows"


def reach_section(audit: Audit) -> Section:
    """The policy in a growing share of the decisions, as a picture and a table."""
    if audit.reach is None:
        return Section(
            "reach", "Reach", "How far the log carries", (Text("The target is current practice."),)
        )
    found = audit.reach
    text = (
        "A log answers questions near current practice best. Here the new policy is followed in a share of the "
        "decisions, and current practice in the others. The band holds for all shares together. In short: "
        f"{found}.{f' {found.advice}' if found.advice else ''}"
    )
    rows = [{"share": share} | _record(row) for share, row in zip(found.shares, found.table, strict=True)]
    data = grid("Difference from current practice, by share of the decisions", rows)
    caption = (
        "Difference from current practice against the share of the decisions that follow the new policy."
    )
    drawing = picture(
        "reach", reach_figure(found), label="How far the log carries", caption=caption, data=data
    )
    return Section("reach", "Reach", "How far the log carries", (Text(text), drawing))


def reach_figure(found: Reach) -> Any:
    """The difference from current practice by share of the decisions, as a figure."""
    figure, axis = panel(height=2.6)
    plots.reach(found.shares, tuple(found.table), axis)
    return figure
