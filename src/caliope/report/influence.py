"""Which episodes carry the conclusion."""

from __future__ import annotations

from caliope.auditing import Audit
from caliope.report.blocks import Grid, Section, Text, grid


def influence_section(audit: Audit) -> Section:
    """The episodes that move the difference from practice most, and how few would turn it around."""
    found, n = audit.influence, len(audit.data)
    if found.to_flip is None:
        text = (
            "Leaving out a fifth of the episodes, those that speak loudest for the present sign, does not change "
            "which of the two is better."
        )
    else:
        text = (
            f"Leaving out {found.to_flip} of {n} episodes ({found.to_flip / n:.1%}), chosen to speak against the "
            "result, changes which of the two is better. If that is a handful, look at these patients one by one: a "
            "mistake in one record could decide the comparison."
        )
    return Section("influence", "Episodes", "Influential episodes", (Text(text), _table(audit)))


def _table(audit: Audit) -> Grid:
    e, found = audit.evidence, audit.influence
    total = float(e.final_weight.sum())
    rows = [
        {
            "episode": str(audit.data.ids[i]),
            "steps": int(audit.data.lengths[i]),
            "return": float(e.returns[i]),
            "share of the final weight": f"{e.final_weight[i] / total:.2%}" if total > 0 else "none",
            "without it the difference moves by": float(effect),
        }
        for i, effect in zip(found.top, found.effect, strict=True)
    ]
    return grid("The most influential episodes", rows)
