"""The same question asked of other tables of the same decisions, such as cohorts with other windows of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope._conditions import CONDITIONAL
from caliope._digits import number_text
from caliope._results import Estimate, Table, finite, percent
from caliope.checks import A114, Finding, Verdict

HERE = "this log"


@dataclass(frozen=True, repr=False)
class OtherLog:
    """One log, and the answer that it gives.

    Attributes
    ----------
    name : str
        What the log is called.
    n : int
        Its trajectories.
    decisions : float
        Decisions per trajectory, on average.
    practice : Estimate
        The mean return in it.
    value, difference : Estimate
        The value of the new policy, and its difference from practice.
    """

    name: str
    n: int
    decisions: float
    practice: Estimate
    value: Estimate
    difference: Estimate

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found about the difference."""
        return self.difference.findings

    @property
    def verdict(self) -> Verdict:
        """That of the difference."""
        return self.difference.verdict

    @property
    def condition(self) -> str:
        """What must hold for the verdict, "if ..."."""
        return self.difference.condition

    def cells(self) -> dict[str, str]:
        """What a printed table shows of this row."""
        gain, level = self.difference, percent(self.difference.interval.level)
        return {
            "log": self.name,
            "n": str(self.n),
            "decisions each": f"{self.decisions:.1f}",
            "practice": number_text(self.practice.value, self.value.interval.width),
            "value": self.value.value_text,
            f"{level} interval": self.value.interval_text,
            "difference": gain.value_text,
            f"{level} interval of it": gain.interval_text,
            "verdict": CONDITIONAL if gain.verdict_text != gain.verdict else gain.verdict,
        }

    def record(self) -> dict[str, Any]:
        """What a data frame shows of this row."""
        value, gain = self.value.shown, self.difference.shown
        return {
            "log": self.name,
            "n": self.n,
            "decisions": self.decisions,
            "practice": self.practice.value,
            "value": self.value.value,
            "value_low": value.low,
            "value_high": value.high,
            "difference": self.difference.value,
            "low": gain.low,
            "high": gain.high,
            "level": gain.level,
            "verdict": self.verdict,
            "condition": self.condition,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "log": self.name,
            "n": self.n,
            "decisions": finite(self.decisions),
            "practice": self.practice.to_dict(),
            "value": self.value.to_dict(),
            "difference": self.difference.to_dict(),
        }


def put_beside(audit: Any, others: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What of an audit changes where the answers of other logs are put beside it."""
    if not others:
        raise ValueError("give the audits of other logs by name, such as {'windows of 2 hours': audit}.")
    if name in others:
        raise ValueError(f"two logs are called {name!r}: give each a name of its own.")
    for other in others.values():
        _refuse_other_level(audit, other)
    told = _judge(audit.gain, {each: other.gain for each, other in others.items()})
    table = _tell(audit.table, told, but=audit.practice)
    here = replace(audit, table=table)
    rows = tuple(_row(each, found) for each, found in {name: here, **others}.items())
    changed: dict[str, Any] = {"table": table, "other_logs": Table(rows, "The same question in other logs")}
    if audit.reach is not None:
        changed["reach"] = replace(audit.reach, table=_tell(audit.reach.table, told))
    if audit.subgroups is not None:
        strata = (
            replace(x, value=_with(x.value, told), difference=_with(x.difference, told))
            for x in audit.subgroups.table
        )
        changed["subgroups"] = replace(
            audit.subgroups, table=replace(audit.subgroups.table, rows=tuple(strata))
        )
    return changed


def _refuse_other_level(audit: Any, other: Any) -> None:
    if type(other) is not type(audit):
        raise TypeError(f"the answers of other logs are audits, got a {type(other).__name__}.")
    if other.settings.level != audit.settings.level:
        raise ValueError(
            f"the intervals of this audit are at {percent(audit.settings.level)}, and those of another log at "
            f"{percent(other.settings.level)}: use one level."
        )


def _row(name: str, audit: Any) -> OtherLog:
    n, steps = audit.settings.n_trajectories, audit.settings.n_steps
    return OtherLog(name, n, steps / n, audit.practice, audit.headline, audit.gain)


def _judge(here: Estimate, others: Mapping[str, Estimate]) -> Finding:
    """A114: whether a difference is further from the one here than chance explains; those withheld do not count.

    Intervals are taken as independent. Logs of the same decisions agree more often by chance than that.
    """
    usable = {} if here.withheld else {name: row for name, row in others.items() if not row.withheld}
    chance = {
        name: float(np.hypot(row.interval.width, here.interval.width)) / 2 for name, row in usable.items()
    }
    beyond = {name: abs(row.value - here.value) - chance[name] for name, row in usable.items()}
    worst = max(beyond, key=lambda name: beyond[name], default=None)
    facts: dict[str, Any] = {"n": len(others), "unanswered": len(others) - len(usable), "here": here.value}
    variants = ("unanswered",) if facts["unanswered"] else ()
    if worst is None:
        return A114.finding("note", *variants, **facts)
    values = [row.value for row in usable.values()]
    facts |= {"low": min(values), "high": max(values)}
    if beyond[worst] <= 0:
        return A114.finding("note", "agree", *variants, **facts)
    facts |= {"other": usable[worst].value, "name": worst, "chance": chance[worst]}
    return A114.finding("caution", "apart", *variants, **facts)


def _tell(table: Table[Estimate], told: Finding, *, but: Estimate | None = None) -> Table[Estimate]:
    """A table whose rows have the finding, but one: practice is what it is in each log."""
    return replace(table, rows=tuple(row if row is but else _with(row, told) for row in table))


def _with(row: Estimate, told: Finding) -> Estimate:
    return replace(row, findings=(*row.findings, told))
