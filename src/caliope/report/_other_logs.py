"""The section with the answers of other logs of the same decisions: a forest plot and a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from caliope import plots
from caliope._audit._other_logs import OtherLog
from caliope._audit._result import Audit
from caliope._results import Table, percent
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


def other_logs_section(audit: Audit) -> Section:
    """The same question in other logs; empty where none was asked."""
    found, name, title = audit.other_logs, "other-logs", "The same question in other logs"
    if found is None:
        return Section(name, "Other logs", title, ())
    text = (
        "How time is cut into decisions is a choice too, and so is much else between the records and a log. The same "
        "question was asked of other logs of the same decisions, each with models of its own. Compare the differences "
        "from current practice: rewards may add up to other sums where there are more decisions. And a rule that is "
        "followed at every decision is followed more often there."
    )
    return Section(name, "Other logs", title, (Text(text), _picture(audit, found), _table(found)))


def _picture(audit: Audit, found: Table[OtherLog]) -> Any:
    rows = [replace(row.difference, label=row.name) for row in found]
    figure, axis = row_panel(len(rows))
    plots.forest(rows, axis, numbers=False)
    name_rows(axis, [f"{row.label} (effective n {row.effective_n:.0f})" for row in rows])
    name_values(axis, "difference from current practice", audit.settings.about.outcome_unit)
    axis.set_title("", loc="left")  # each interval holds by itself
    caption = (
        f"Difference from current practice in each log, with {percent(audit.settings.level)} intervals. The first is "
        "that of this page. Grey ones are not to be trusted."
    )
    data = grid("Differences by log", [row.record() for row in found])
    return picture("other-logs", figure, label="Difference by log", caption=caption, data=data)


def _table(found: Table[OtherLog]) -> Grid:
    rows = [
        {**shown, "reasons": Codes(tuple(f for f in row.findings if f.level != "note"))}
        for row, shown in zip(found, found.marked_cells(), strict=True)
    ]
    made = grid("The answer of each log", rows)
    return replace(made, note=" ".join([*filter(None, [made.note]), *found.conditions]))
