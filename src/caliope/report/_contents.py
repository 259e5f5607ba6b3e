"""The section with what the log holds: its "table 1"."""

from __future__ import annotations

from typing import Any

from caliope._audit._contents import LogContents, Spread
from caliope._audit._result import Audit
from caliope.report._blocks import Grid, Section, Text, grid

_MOST_COLUMNS = 60  # of the states, before the table is cut
_OPEN = 15  # rows of a table that is shown without being asked for


def contents_section(audit: Audit) -> Section:
    """Size and lengths, outcome, actions, and the columns of the states at the first decision."""
    found, units = audit.contents, audit.data.units
    text = (
        f"What was audited: {found.trajectories} {units} with {found.decisions} decisions. {_ends(found, units)} "
        f"{found.rewarded:.1%} of the decisions have a reward other than 0. {_gaps(found, audit.data.unit)}"
    )
    blocks = (Text(text), _spreads(audit), _actions(found, units), _columns(audit))
    return Section("contents", "The log", "What the log holds", blocks)


def _ends(found: LogContents, units: str) -> str:
    if found.cut_off is None and found.lengths.high == 1:
        return f"All {units} have a single decision."
    if found.cut_off is None:
        return f"Nobody said whether {units} ended or were cut off."
    if not found.cut_off:
        return f"All {units} ended, as stated."
    return f"{found.cut_off} of the {units} were cut off before they ended."


def _gaps(found: LogContents, unit: str) -> str:
    if not found.with_gaps:
        return "No state column has a gap."
    count = f"{len(found.with_gaps)} of {len(found.columns)} state columns have gaps."
    if found.lengths.high == 1:
        return f"{count} Each gap is marked in a column of its own."
    return f"{count} They were filled from the past of the same {unit} alone."


def _spreads(audit: Audit) -> Grid:
    about, found = audit.settings.about, audit.contents
    unit = audit.data.unit
    rows = [
        _spread(f"decisions per {unit}", found.lengths),
        _spread(about.value_label(unit), found.outcome),
    ]
    if found.clusters is not None:
        rows.append({"": "clusters", "mean": found.clusters})
    return grid("Lengths and outcome", rows)


def _spread(name: str, x: Spread) -> dict[str, Any]:
    return {
        "": name,
        "mean": x.mean,
        "standard deviation": x.sd,
        "smallest": x.low,
        "lower quartile": x.quarter,
        "median": x.median,
        "upper quartile": x.three_quarters,
        "largest": x.high,
    }


def _actions(found: LogContents, units: str) -> Grid:
    rows = [
        {
            "action": each.name,
            "decisions": each.decisions,
            "share": f"{each.decisions / found.decisions:.1%}",
            f"{units} with it": each.trajectories,
            f"share of {units}": f"{each.trajectories / found.trajectories:.1%}",
        }
        for each in found.actions
    ]
    return grid("Actions", rows, folded=len(rows) > _OPEN)


def _columns(audit: Audit) -> Grid:
    found, gaps = audit.contents, bool(audit.contents.with_gaps)
    rows = [
        {"column": each.name, "at the first decision": each.text}
        | (_gap_cells(each, found.decisions) if gaps else {})
        for each in found.columns
    ]
    title = f"State columns at the first decision of each {audit.data.unit}"
    return grid(title, rows, most=_MOST_COLUMNS, folded=len(rows) > _OPEN)


def _gap_cells(column: Any, decisions: int) -> dict[str, str]:
    share = f"{column.gaps} ({column.gaps / decisions:.1%})" if column.gaps else "0"
    return {"decisions without a value": share, "filled": column.filled}
