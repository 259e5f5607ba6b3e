"""The section with values and differences by stratum: a forest plot and a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from caliope import plots
from caliope._audit._result import Audit
from caliope._audit._subgroups import Subgroups
from caliope._results import percent
from caliope.report._blocks import (
    Codes,
    Grid,
    Section,
    Text,
    grid,
    name_rows,
    name_values,
    picture,
    row_panel,
)


def subgroup_section(audit: Audit) -> Section:
    """Strata that can be evaluated, and which cannot; without strata an empty section."""
    found, name, title = audit.subgroups, "subgroups", "By stratum of the first decision"
    if found is None:
        return Section(name, "Strata", title, ())
    text = (
        f"The value of the new policy in each stratum, and its difference from what current practice achieved there. A "
        f"{audit.data.unit} belongs to the stratum of its first decision. All intervals hold together, so that the "
        "best stratum may be picked from them. Fitted models are shared by all strata."
    )
    blocks: list[Any] = [Text(text), *([Text(found.few_text)] if found.few else [])]
    if len(found.table):
        blocks += [_picture(audit, found), _table(found)]
    return Section(name, "Strata", title, tuple(blocks))


def _picture(audit: Audit, found: Subgroups) -> Any:
    rows = list(found.differences)
    figure, axis = row_panel(len(rows))
    plots.forest(rows, axis, whole=audit.gain, numbers=False)
    name_rows(axis, [f"{row.label} (effective n {row.effective_n:.0f})" for row in rows])
    name_values(axis, "difference from current practice", audit.settings.about.outcome_unit)
    axis.set_title("", loc="left")  # the caption says it
    caption = (
        f"Difference from current practice in each stratum, with {percent(audit.settings.level)} intervals that hold "
        "together. The dashed line is the difference in the whole log."
    )
    shown = [
        {
            "stratum": row.label,
            "difference": row.value,
            "low": row.shown.low,
            "high": row.shown.high,
            "effective n": row.effective_n,
        }
        for row in rows
    ]
    data = grid("Difference from current practice, by stratum", shown)
    return picture("subgroups", figure, label="Difference by stratum", caption=caption, data=data)


def _table(found: Subgroups) -> Grid:
    rows = [
        {**shown, "reasons": Codes(tuple(f for f in row.findings if f.level != "note"))}
        for row, shown in zip(found.table, found.table.marked_cells(), strict=True)
    ]
    made = grid("Values and differences by stratum", rows)
    return replace(made, note=" ".join([*filter(None, [made.note]), *found.table.conditions]))
