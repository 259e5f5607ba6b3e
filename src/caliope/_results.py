"""Results: frozen, printable, with their caveats attached. Nothing here computes an estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from caliope._cells import inert
from caliope._conditions import CONDITIONAL, spell_out
from caliope._digits import FURTHER, decimals_of, number_text
from caliope._tables import Row as Row, Table as Table
from caliope.checks import Finding, Verdict, verdict


@dataclass(frozen=True)
class Interval:
    """A confidence interval: its ends, its level, how it was made, and what that method assumes.

    Attributes
    ----------
    low, high : float
        The ends.
    level : float
        How often such intervals contain the value, such as 0.95.
    method : str
        How the interval was made, in words.
    findings : tuple of Finding
        What a reader of the interval must know.

    Examples
    --------
    >>> interval = Interval(0.48, 0.593, 0.95, "bootstrap")
    >>> 0.5 in interval, interval.text
    (True, '[0.48, 0.59]')
    """

    low: float
    high: float
    level: float
    method: str = ""
    findings: tuple[Finding, ...] = ()

    @property
    def width(self) -> float:
        """Distance between the two ends."""
        return self.high - self.low

    @property
    def ends(self) -> tuple[str, str]:
        """Both ends as text, with as many digits as the width deserves.

        There are further digits where an end that is not 0 would read as 0, and hide whether 0 lies inside.
        """
        for further in range(FURTHER):
            low, high = (number_text(x, self.width, further) for x in (self.low, self.high))
            if all(x == 0 or float(text) != 0 for x, text in ((self.low, low), (self.high, high))):
                break
        return low, high

    @property
    def text(self) -> str:
        """Both ends in brackets."""
        return f"[{', '.join(self.ends)}]"

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        text = f"{self.text} at {percent(self.level)}" + (f", {self.method}" if self.method else "")
        return "\n".join([text, *(f"  {finding}" for finding in self.findings)])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "low": finite(self.low),
            "high": finite(self.high),
            "level": self.level,
            "method": self.method,
            "findings": [finding.to_dict() for finding in self.findings],
        }


@dataclass(frozen=True, repr=False)
class Estimate:
    """A value with its confidence interval, sample sizes and findings; one row of a table.

    Attributes
    ----------
    name : str
        Name of the estimator.
    label : str
        What it is called in a table.
    value : float
        The estimate.
    interval : Interval
        Its confidence interval.
    n : int
        Number of trajectories.
    effective_n : float
        Effective sample size.
    findings : tuple of Finding
        What a reader of the value must know.
    conditions : tuple of str
        Clauses that must hold for the value to be right and that no log can show, each to be read after "if".
    effective_clusters : float, optional
        Effective number of clusters, by their weights; None without clusters.

    Examples
    --------
    >>> row = Estimate("wis", "Weighted importance sampling", 0.535, Interval(0.48, 0.593, 0.95), 400, 212.3)
    >>> row.text, row.verdict
    ('0.54 [0.48, 0.59]', 'trust')
    """

    name: str
    label: str
    value: float
    interval: Interval
    n: int
    effective_n: float
    findings: tuple[Finding, ...] = ()
    conditions: tuple[str, ...] = ()
    effective_clusters: float | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst of the findings, those of the interval included."""
        return verdict(self.findings + self.interval.findings)

    @property
    def condition(self) -> str:
        """All conditions, "if ..., and if ..."; empty without any."""
        return spell_out(self.conditions)

    @property
    def verdict_text(self) -> str:
        """The verdict; trust with its condition."""
        conditional = self.verdict == "trust" and self.conditions
        return f"trust, {self.condition}" if conditional else self.verdict

    @property
    def withheld(self) -> bool:
        """Whether no interval is shown: that of a value that should not be believed is known to be too short."""
        return self.verdict == "do not trust"

    @property
    def shown(self) -> Interval:
        """The interval as it is shown: without ends where it is withheld."""
        return replace(self.interval, low=math.nan, high=math.nan) if self.withheld else self.interval

    @property
    def interval_text(self) -> str:
        """Both ends in brackets, or that there are none to show."""
        return "withheld" if self.withheld else self.interval.text

    @property
    def value_text(self) -> str:
        """The value, with as many digits as its interval deserves."""
        return number_text(self.value, self.interval.width)

    @property
    def decimals(self) -> int | None:
        """Decimals of ``value_text``; None where it is no plain decimal number."""
        return decimals_of(self.value, self.interval.width)

    @property
    def text(self) -> str:
        """The value and its interval, or the value and that it should not be believed."""
        if self.withheld:
            return f"{self.value_text} (do not trust; no interval)"
        return f"{self.value_text} {self.interval.text}"

    def __repr__(self) -> str:
        return f"Estimate({self.name!r}: {self.text}, effective n {self.effective_n:.1f}, {self.verdict})"

    def __str__(self) -> str:
        return str(Table((self,)))

    @inert
    def _repr_html_(self) -> str:
        return Table((self,))._repr_html_()

    def cells(self) -> dict[str, str]:
        """What a printed table shows of this row."""
        return {
            "estimator": self.label,
            "value": self.value_text,
            f"{percent(self.interval.level)} interval": self.interval_text,
            "n": str(self.n),
            "effective n": f"{self.effective_n:.1f}",
            **({} if (k := self.effective_clusters) is None else {"effective clusters": f"{k:.1f}"}),
            "verdict": self.verdict if self.verdict_text == self.verdict else CONDITIONAL,
        }

    def record(self) -> dict[str, Any]:
        """What a data frame shows of this row."""
        return {
            "name": self.name,
            "label": self.label,
            "value": self.value,
            "low": self.shown.low,
            "high": self.shown.high,
            "level": self.interval.level,
            "n": self.n,
            "effective_n": self.effective_n,
            **({} if (k := self.effective_clusters) is None else {"effective_clusters": k}),
            "verdict": self.verdict,
            "condition": self.condition,
            "findings": " ".join(sorted({f.code for f in self.findings + self.interval.findings})),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "name": self.name,
            "label": self.label,
            "value": finite(self.value),
            "interval": self.shown.to_dict() | {"withheld": self.withheld},
            "n": self.n,
            "effective_n": finite(self.effective_n),
            "effective_clusters": self.effective_clusters,
            "verdict": self.verdict,
            "condition": self.condition,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def percent(level: float) -> str:
    """Write a level in per cent without rounding: 0.999 is not 100%."""
    return f"{100 * level:g}%"


def finite(x: float) -> float | None:
    """Return a number for JSON; None where it is not finite."""
    return float(x) if math.isfinite(x) else None
