"""The placebo: the machinery asked for a value that is known."""

from __future__ import annotations

from caliope.auditing import Audit
from caliope.report.blocks import Reasons, Section, Text, grid


def placebo_section(audit: Audit) -> Section:
    """What the estimator makes of current practice, told to it as if it were a new policy."""
    found = audit.placebo
    text = (
        "A second model of current practice, of another kind and fitted on its own, is handed to the estimator as if "
        "it were a new policy. Its value is known: it is what practice achieved. An estimator that misses it cannot "
        "be believed on the real question. One that finds it has shown little, for practice is the easiest policy to "
        "evaluate."
    )
    passed = not any(f.level == "issue" for f in found.findings)
    said = "The placebo was found." if passed else "The placebo was missed."
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
        Text(said),
        grid("The placebo", rows),
        *((Reasons("What was found", found.findings),) if found.findings else ()),
    )
    return Section("placebo", "Placebo", "Placebo: a question whose answer is known", blocks)
