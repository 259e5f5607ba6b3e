"""Findings that read one thing count once, and what an interval includes does not count again.

D102, A109 and weight that was removed read one thing: weights that are off.

The mean weight, the share that a cap removed, and the shift of the estimate by the cap go together. One mild reading of
the three is a note: such intervals cover. Two of them, or one clear reading, are a caution. One finding alone carries
it, with what the others saw in its text. A shift that the interval includes is no reading, and explains what the cap
removed.

An estimate that is judged by the influence of its trajectories (D118) has an interval that includes the error of its
weights, and the bias of weights off balance (D119). Few effective trajectories, heavy tails and large weights then
matter as far as one trajectory dominates the standard error, and small errors of the behaviour model as far as the
corrections by fitted values leave them.

Where practice depends on the past or on the order of the log (B109), regions without choice (S102) are not searched in
these. Weight that is missing is then what practice never did after some of the past, and no interval includes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from caliope.checks import (
    A102,
    A109,
    B104,
    B109,
    D101,
    D102,
    D103,
    D104,
    D118,
    D119,
    P103,
    W108,
    Finding,
    Level,
)

# Share of the weight removed by a transform: a mild reading, a clear one.
REMOVED = (0.02, 0.1)
# Standard errors by which capping moves the estimate: included in the interval, a caution.
MOVED = (0.15, 3.0)
# Standard errors of bias from weights off balance (D119), or from a change of weights in an interval that is judged by
# influences: intervals that include more were seen to miss.
UNBALANCED = 5.0
# Standard errors by which capping moves the estimate where other choices disagree too (A102).
_MOVED_AMONG_CHOICES = 2.0
# Effective trajectories below which an estimate is not judged by influences: they are then too few themselves.
_FEW = 50
# The mean ratio of a step below which, and the standard errors of bias from which, such weight is an issue: the family
# "never the same twice" of docs/honesty.md has less weight, and its intervals mostly miss.
_LACKING = (0.8, 2.0)


def count_once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Give the readings of weights that are off the level that they have together.

    Parameters
    ----------
    findings : sequence of Finding
        About one number.

    Returns
    -------
    tuple of Finding
        The same, in their order. At most one of D102, A109 and the notes of transforms is a caution; issues stay.

    Examples
    --------
    >>> moved = A109.finding("note", moved=0.01, se=0.04, errors=0.25)
    >>> [finding.level for finding in count_once([moved])]
    ['note']
    >>> off = D102.finding("note", "plain", mean=0.93, se=0.03)
    >>> [finding.level for finding in count_once([moved, off])]
    ['caution', 'note']
    """
    if any(finding.check == D118 for finding in findings):
        findings = [finding.at("note") if _is_settled(finding) else finding for finding in findings]
    refuted = [finding for finding in findings if finding.check == A109 and _is_refuted(finding, findings)]
    if refuted:
        findings = [_tell(f, (), "issue", "choices") if f is refuted[0] else f for f in findings]
    if any(finding.check == B109 for finding in findings):
        findings = [_tell(f, (), "issue", "past") if _lacks_weight(f) else f for f in findings]
    included = any(_is_included(finding) for finding in findings)
    readings = [finding for finding in findings if _is_reading(finding, included=included)]
    if included:
        # What the cap removed is in the interval.
        findings = [f.at("note") if removed_weight(f) and f.level == "caution" else f for f in findings]
    if not readings:
        return tuple(findings)
    carrier = next((f for check in (A109, D102) for f in readings if f.check == check), readings[0])
    grave = any(finding.level == "issue" for finding in readings)
    level: Level = "caution" if len(readings) > 1 or readings[0].level == "caution" else "note"
    graded = _tell(carrier, readings, "issue" if carrier.level == "issue" else level)
    if grave and carrier.level != "issue":
        graded = carrier.at("note")  # an issue among the others carries it
    return tuple(
        graded if finding is carrier else finding.at("note") if _is_quieted(finding, readings) else finding
        for finding in findings
    )


def removed_weight(note: Finding) -> float:
    """Share of the weight that a transform removed; only notes of transforms have it."""
    return 0.0 if note.check in (D102, A109) else note.numbers.get("removed", 0.0)


def _is_settled(finding: Finding) -> bool:
    """Whether a finding on weights or the behaviour model is in an interval that is judged by influences."""
    if finding.check == D101:
        return finding.numbers["effective_n"] >= _FEW
    if finding.check in (B104, P103):
        return finding.level == "caution"
    if finding.check == A109:
        return finding.level == "caution" and finding.numbers["errors"] <= UNBALANCED
    return finding.check in (D103, D104) or (finding.check == W108 and finding.level == "caution")


def _is_included(finding: Finding) -> bool:
    """Whether an interval includes what the cap moved."""
    return finding.check == A109 and finding.level == "note" and "included" in finding.variants


def _is_reading(finding: Finding, *, included: bool) -> bool:
    if finding.check in (D102, A109):
        return not _is_included(finding)
    return not included and removed_weight(finding) > REMOVED[0]


def _is_quieted(finding: Finding, readings: Sequence[Finding]) -> bool:
    return finding.level == "caution" and any(finding is reading for reading in readings)


def _is_refuted(moved: Finding, findings: Sequence[Finding]) -> bool:
    """Whether the cap moves the estimate far, and other choices disagree: the choice decides, not the log."""
    return moved.numbers["errors"] >= _MOVED_AMONG_CHOICES and any(
        finding.check == A102 for finding in findings
    )


def _lacks_weight(finding: Finding) -> bool:
    """Whether much weight is missing at a step, and fitted values would have to stand in for it."""
    if finding.check != D119:
        return False
    return finding.numbers["ratio"] < _LACKING[0] and finding.numbers["errors"] >= _LACKING[1]


def _tell(carrier: Finding, readings: Sequence[Finding], level: Level, *further: str) -> Finding:
    """The finding that carries the level, with what the other readings saw."""
    told = carrier
    for other in readings:
        if other.check == D102 and carrier.check != D102:
            told = _add(told, "mean", mean=other.facts["mean"])
        elif removed_weight(other) and carrier.check != D102:  # which names it as a cause where it can be one
            told = _add(told, "removed", removed=removed_weight(other))
    for name in further:
        told = _add(told, name)
    return told.at(level)


def _add(finding: Finding, variant: str, **facts: float) -> Finding:
    """The same with a further text, once; what it already says stays."""
    if variant in finding.variants or variant not in finding.check.texts:
        return finding
    return replace(finding, variants=(*finding.variants, variant), facts={**finding.facts, **facts})
