"""The placebo: the machinery asked for a value that is known."""

from __future__ import annotations

from caliope.auditing import Audit
from caliope.auditing.chain import LOGGED
from caliope.report.blocks import Reasons, Section, Text, grid
from caliope.results import Finding

_ABOUT_THE_ANSWER = ("P101", "P102")  # other findings compare the two models


def placebo_section(audit: Audit) -> Section:
    """What the estimator makes of current practice, told to it as if it were a new policy."""
    found = audit.placebo
    # As the audit weighs them: what speaks against a model is no more than a note where logged probabilities weigh.
    concerned = tuple(finding for finding in audit.findings if finding.code[0] == "P")
    text = (
        f"A second model of current practice, {_second(audit)}, is handed to the estimator as if it were a new policy. "
        "Its value is known: it is what practice achieved. An estimator that misses it cannot be believed on the real "
        "question. One that finds it has shown little, for practice is the easiest policy to evaluate."
    )
    ends = found.error
    rows = [
        {
            "what": "second model of practice, estimated",
            "value": found.value,
            "effective episodes": found.effective_n,
        },
        {"what": "current practice, known", "value": found.practice, "effective episodes": float(found.n)},
        {
            "what": "difference",
            "value": found.value - found.practice,
            "effective episodes": "",
            f"{100 * ends.level:g}% interval": f"[{ends.low:.3g}, {ends.high:.3g}]",
        },
    ]
    blocks = (
        Text(text),
        Text(_said(audit, concerned)),
        grid("The placebo", rows),
        *((Reasons("What was found", concerned),) if concerned else ()),
    )
    return Section("placebo", "Placebo", "Placebo: a question whose answer is known", blocks)


def _second(audit: Audit) -> str:
    family, taken = getattr(audit.placebo, "family", ""), audit.comparison.recommended
    if family == taken:
        return (
            f"of the same kind as the one that was taken ({taken}), since there was no other, on other folds"
        )
    return f"of another kind{family and f' ({family})'} and fitted on its own"


def _said(audit: Audit, concerned: tuple[Finding, ...]) -> str:
    """Whether the placebo was found, and what that means for the estimate."""
    levels = {finding.level for finding in concerned if finding.code in _ABOUT_THE_ANSWER}
    if not levels:
        said = "The placebo was found."
    elif "issue" in levels:
        said = "The placebo was missed."
    elif "caution" in levels:
        said = "The placebo was found with reservations."
    elif audit.settings.get("behaviour") == LOGGED:
        said = "The placebo was not found as it should be, and this does not count against the estimate."
    else:
        said = "The placebo was found, as nearly as matters."
    if audit.settings.get("behaviour") != LOGGED:
        return said
    return (
        f"{said} It was asked with the weights of a fitted model, while the estimate is made with the probabilities "
        "that were logged: it tells how good the models are, and not how good the estimate is."
    )
