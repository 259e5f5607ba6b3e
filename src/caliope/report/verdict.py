"""The verdict and its reasons: the first thing on the page."""

from __future__ import annotations

import re
from collections.abc import Mapping

from caliope.auditing import Audit
from caliope.report.blocks import Banner, Fact, Facts, Reasons, Section, Text
from caliope.results import Estimate, Level, Verdict

TITLES: Mapping[Verdict, tuple[str, str]] = {
    "trust": (
        "Trust: no check speaks against this estimate",
        "The checks that could be made on this log were made, and none of them failed. What no log can show is listed "
        "further down: read it before the number is used.",
    ),
    "caution": (
        "Caution: use with the reservations below",
        "The estimate stands, but not on its own. Treat it as a reason to look further, and not as the ground for a "
        "decision.",
    ),
    "do not trust": (
        "Do not trust this estimate",
        "This log cannot say what the new policy is worth. The numbers are shown so that the reasons can be followed; "
        "they should not be quoted.",
    ),
}
_LEVELS: Mapping[Level, str] = {
    "issue": "Why it should not be believed",
    "caution": "Reservations",
    "note": "How the number was made",
}

_MORE_DIGITS = 5  # at most, than the intervals deserve


def verdict_section(audit: Audit) -> Section:
    """Whether to believe the estimate, the three numbers that matter, and every reason."""
    title, text = TITLES[audit.verdict]
    by_level = {level: tuple(f for f in audit.findings if f.level == level) for level in _LEVELS}
    reasons = [Reasons(_LEVELS[level], found) for level, found in by_level.items() if found]
    doubted = audit.verdict == "do not trust"
    question = audit.settings.get("question")
    policy, practice, gain = value_texts(audit)
    blocks = (
        Banner(audit.verdict, title, text),
        *((Text(f"The question: {question}"),) if question else ()),
        Facts(
            (
                _fact(
                    "New policy",
                    policy,
                    audit.headline,
                    f"{audit.headline.effective_n:.0f} effective episodes",
                ),
                _fact(
                    "Current practice", practice, audit.practice, f"plain mean of {audit.practice.n} episodes"
                ),
                _fact(
                    "Difference",
                    gain,
                    audit.gain,
                    direction(audit) if _quotable(audit) else "not to be quoted",
                ),
            ),
            doubted,
        ),
        Text(sentence(audit)),
        *reasons,
    )
    return Section("verdict", "Verdict", "The verdict", blocks)


def _quotable(audit: Audit) -> bool:
    return "do not trust" not in (audit.verdict, audit.gain.verdict)


def _fact(name: str, value: str, row: Estimate, note: str) -> Fact:
    return Fact(name, value, f"{interval_text(row)}; {note}")


def value_texts(audit: Audit) -> tuple[str, str, str]:
    """The new policy, current practice and their difference, with digits that add up for a reader who checks."""
    rows = (audit.headline, audit.practice, audit.gain)
    texts = [row.cells()["value"] for row in rows]
    if not all(re.fullmatch(r"-?\d+(\.\d+)?", text) for text in texts):
        return texts[0], texts[1], texts[2]
    least = max(len(text.partition(".")[2]) for text in texts)
    for decimals in range(least, least + _MORE_DIGITS):
        policy, practice, gain = (round(row.value * 10**decimals) for row in rows)
        if policy - practice == gain:
            return (_fixed(policy, decimals), _fixed(practice, decimals), _fixed(gain, decimals))
    return texts[0], texts[1], texts[2]


def _fixed(whole: int, decimals: int) -> str:
    return f"{whole / 10**decimals:.{decimals}f}"


def interval_text(row: Estimate) -> str:
    """The interval in words."""
    low, high = row.cells()[f"{100 * row.interval.level:g}% interval"].strip("[]").split(", ")
    return f"{100 * row.interval.level:g}% interval {low} to {high}"


def direction(audit: Audit) -> str:
    """Whether the interval of the difference leaves its sign open."""
    ends = audit.gain.interval
    if not ends.low <= ends.high:
        return "no interval"
    if ends.low > 0:
        return "above 0"
    return "below 0" if ends.high < 0 else "the sign is open"


def sentence(audit: Audit) -> str:
    """The result in one sentence, weaker where the verdict is."""
    policy, practice, gain = value_texts(audit)
    start = (
        f"Episodes in this log returned {practice} on average. Under the new policy the estimate is {policy}, a "
        f"difference of {gain}."
    )
    if audit.verdict == "do not trust":
        return f"{start} For the reasons below this says more about the log than about the policy."
    if not _quotable(audit):
        return f"{start} That difference should not be believed, whatever is said of the estimate itself."
    said = {
        "above 0": "The interval of the difference lies above 0: chance alone hardly explains it.",
        "below 0": "The interval of the difference lies below 0: the new policy seems to be worse.",
        "the sign is open": "The interval of the difference contains 0: the log does not show which is better.",
        "no interval": "There is no interval for the difference.",
    }
    return f"{start} {said[direction(audit)]}"
