"""What the policy is worth by every estimator, against current practice."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope.auditing import Audit
from caliope.report.blocks import Grid, Section, Text, grid
from caliope.report.drawing import GREY, POLICY, PRACTICE, picture, rows_of_dots
from caliope.results import Estimate, Finding, Table


def value_section(audit: Audit) -> Section:
    """All estimators with their intervals, as a picture and a table."""
    rows = [row for row in audit.table if row.name != audit.gain.name]
    gamma = float(audit.settings["gamma"])
    later = "" if gamma == 1 else f" (each step later counted at {gamma:g} of the one before)"
    text = (
        f"The value is the sum of the rewards of an episode{later}, on average. Current practice needs no model: it "
        "is the plain mean of the log. Every other row asks in its own way what the mean would have been under the "
        "new policy. Where they agree, the answer depends less on the method; grey rows are not to be trusted."
    )
    return Section(
        "value",
        "Value",
        "Value against current practice",
        (Text(text), _picture(audit, rows), _table(audit), _findings(audit.table)),
    )


def _picture(audit: Audit, rows: list[Estimate]) -> Any:
    drawn = [row for row in rows if np.isfinite(row.value)]
    figure, axis = rows_of_dots([row.label for row in drawn])
    axis.axvline(audit.practice.value, color=PRACTICE, linestyle="--", linewidth=0.9, zorder=1)
    for i, row in enumerate(drawn):
        colour = GREY if row.verdict == "do not trust" else PRACTICE if row is audit.practice else POLICY
        if np.isfinite([row.interval.low, row.interval.high]).all():
            axis.hlines(i, row.interval.low, row.interval.high, color=colour, linewidth=2)
        axis.plot(row.value, i, "o", color=colour, markersize=5)
    axis.set(xlabel="value of an episode")
    caption = (
        f"Each estimate with its {100 * audit.headline.interval.level:g}% interval. The dashed line is what current "
        "practice achieved."
    )
    data = grid("Estimates and intervals", [_record(row) for row in rows])
    return picture(
        "values", figure, label="Value of the policy by every estimator", caption=caption, data=data
    )


def _record(row: Estimate) -> dict[str, Any]:
    return {
        "estimator": row.label,
        "value": row.value,
        "verdict": row.verdict,
        "low": row.interval.low,
        "high": row.interval.high,
        "effective n": row.effective_n,
    }


def _table(audit: Audit) -> Grid:
    return grid("What the new policy is worth, by every estimator", [_cells(row) for row in audit.table])


def _cells(row: Estimate) -> dict[str, str]:
    """The verdict and its reasons beside the value, where a narrow screen still shows them."""
    cells = row.cells()
    first = {name: cells.pop(name) for name in ("estimator", "value", "verdict")}
    return first | {"reasons": _codes(row)} | cells


def _codes(row: Estimate) -> str:
    found = {f.code for f in (*row.findings, *row.interval.findings) if f.level != "note"}
    return " ".join(sorted(found))


def _findings(table: Table[Estimate]) -> Grid:
    rows = [
        {"code": f.code, "level": f.level, "what was found": f.message, "concerns": _concerned(f, table)}
        for f in table.findings
    ]
    return grid("Everything found, for every estimator", rows, folded=True)


def _concerned(finding: Finding, table: Table[Estimate]) -> str:
    said = (finding.code, finding.message)
    rows = [
        row for row in table if said in [(f.code, f.message) for f in (*row.findings, *row.interval.findings)]
    ]
    if len(rows) == len(table):
        return "all"
    return "; ".join(row.label for row in rows) if len(rows) < 4 else f"{len(rows)} of {len(table)} rows"
