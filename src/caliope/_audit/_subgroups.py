"""Subgroups: what the new policy is worth in each stratum of the trajectories, with intervals that hold together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from typing import Any

import numpy as np

from caliope._audit._basis import Basis, examine_marginalised
from caliope._audit._compare import name_facts
from caliope._audit._simultaneous import correlations, critical_value
from caliope._cells import inert, shortened
from caliope._conditions import CONDITIONAL
from caliope._digits import number_text
from caliope._evidence import Evidence
from caliope._formulas import monte_carlo, wdr
from caliope._ragged import Float, Int
from caliope._results import Estimate, Interval, Table, finite, percent
from caliope._traits import Estimator, traits_of
from caliope._trajectories import Trajectories
from caliope.calibration._scores import stratum_key
from caliope.checks import Finding, Verdict
from caliope.checks._audit import check_unseen
from caliope.checks._bias import Bias
from caliope.checks._counting import count_once
from caliope.checks._estimates import TOO_FEW
from caliope.uncertainty._dependence import effective_clusters, few_clusters_factor
from caliope.uncertainty._intervals import difference, influence
from caliope.weights._effective import kish, weigh_trajectories

_GAIN = difference(wdr)
_LISTED = 12  # strata with too few trajectories that are spelt out
_LONGEST = 40  # letters of a name


@dataclass(frozen=True, repr=False)
class Subgroup:
    """One stratum.

    Attributes
    ----------
    name : str
        The stratum, at the first decision of a trajectory.
    n : int
        Its trajectories.
    effective_n : float
        Their effective sample size.
    practice : float
        The mean return of current practice in it.
    value, difference : Estimate
        The value of the new policy in it, and the difference from its practice.
    """

    name: str
    n: int
    effective_n: float
    practice: float
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
        return {
            "stratum": shortened(self.name, _LONGEST),
            "n": str(self.n),
            "effective n": f"{self.effective_n:.1f}",
            "practice": number_text(self.practice, self.value.interval.width),
            "value": self.value.value_text,
            f"{percent(self.value.interval.level)} interval": self.value.interval_text,
            "difference": self.difference.value_text,
            f"{percent(self.value.interval.level)} interval of it": self.difference.interval_text,
            "verdict": CONDITIONAL if self.difference.verdict_text != self.verdict else self.verdict,
        }

    def record(self) -> dict[str, Any]:
        """What a data frame shows of this row."""
        value, gain = self.value.shown, self.difference.shown
        return {
            "stratum": self.name,
            "n": self.n,
            "effective_n": self.effective_n,
            "practice": self.practice,
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
            "stratum": self.name,
            "n": self.n,
            "effective_n": finite(self.effective_n),
            "practice": finite(self.practice),
            "value": self.value.to_dict(),
            "difference": self.difference.to_dict(),
        }


@dataclass(frozen=True, repr=False)
class PolicyStratum(Subgroup):
    """One stratum under one of several policies."""

    policy: str = ""

    def cells(self) -> dict[str, str]:
        """What a printed table shows of this row."""
        return {"policy": self.policy} | super().cells()

    def record(self) -> dict[str, Any]:
        """What a data frame shows of this row."""
        return {"policy": self.policy} | super().record()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {"policy": self.policy} | super().to_dict()


@dataclass(frozen=True)
class TooFew:
    """A stratum that cannot be evaluated: it has too few effective trajectories."""

    name: str
    n: int
    effective_n: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"stratum": self.name, "n": self.n, "effective_n": finite(self.effective_n)}


@dataclass(frozen=True, repr=False)
class Subgroups:
    """Values and differences by stratum.

    Attributes
    ----------
    table : Table of Subgroup
        The strata that can be evaluated. All intervals of values and differences hold together.
    few : tuple of TooFew
        The others: with fewer effective trajectories than an interval needs.
    critical : float
        Standard errors to each side of an interval.
    """

    table: Table[Subgroup]
    few: tuple[TooFew, ...]
    critical: float

    @property
    def differences(self) -> Table[Estimate]:
        """The difference from current practice in each stratum, for a forest plot."""
        return Table(tuple(row.difference for row in self.table), "Difference from current practice")

    @property
    def few_text(self) -> str:
        """Which strata are not shown, and why; empty where all are."""
        if not self.few:
            return ""
        named = [f"{shortened(x.name, _LONGEST)} ({x.effective_n:.0f} of {x.n})" for x in self.few[:_LISTED]]
        more = f" and {len(self.few) - _LISTED} more" if len(self.few) > _LISTED else ""
        return f"Not shown, with fewer than {TOO_FEW} effective trajectories: {', '.join(named)}{more}."

    @inert
    def __repr__(self) -> str:
        return f"Subgroups({', '.join(row.name for row in self.table)}; {len(self.few)} with too few)"

    @inert
    def __str__(self) -> str:
        shown = [self.table.grid()] if len(self.table) else []
        return "\n".join([*shown, *([self.few_text] if self.few else [])])

    @inert
    def _repr_html_(self) -> str:
        shown = self.table._repr_html_() if len(self.table) else ""
        return f"{shown}<p>{escape(self.few_text)}</p>"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "rows": [row.to_dict() for row in self.table],
            "too_few": [each.to_dict() for each in self.few],
            "critical_value": finite(self.critical),
        }


@dataclass(frozen=True, repr=False)
class PolicyStrata(Table[PolicyStratum]):
    """The strata of several policies.

    Attributes
    ----------
    rows, title
        As of any table.
    few : tuple of str
        By policy, the strata that are not shown.
    """

    few: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The strata as printed lines; none without them."""
        head = "By stratum of the first decision; the intervals of one policy hold together, those of several do not:"
        shown = [self.grid()] if len(self) else []
        return ["", head, *shown, *self.few] if shown or self.few else []


def several_subgroups(found: Mapping[str, Subgroups | None]) -> PolicyStrata:
    """The strata of several policies in one table; empty without strata."""
    given = {policy: strata for policy, strata in found.items() if strata is not None}
    rows = tuple(
        PolicyStratum(**{each.name: getattr(row, each.name) for each in fields(row)}, policy=policy)
        for policy, strata in given.items()
        for row in strata.table
    )
    few = tuple(f"{policy}: {strata.few_text}" for policy, strata in given.items() if strata.few)
    return PolicyStrata(rows, "By policy and stratum of the first decision", few)


def estimate_subgroups(
    basis: Basis,
    data: Trajectories,
    strata: Any,
    *,
    level: float,
    findings: Sequence[Finding] = (),
    conditions: tuple[str, ...] = (),
    widen: float = 1.0,
    worst: float | None = None,
    rng: np.random.Generator,
) -> Subgroups | None:
    r"""Estimate value and difference in each stratum of the first decisions.

    In stratum s the formula of the headline is applied to its trajectories alone, so that weights are normalised within
    it. Fitted models are those of the whole log. With :math:`U_i` the influences in the stratum and n its size, the
    standard error is :math:`(\sum_{i \in s} U_i^2)^{1/2} / n`, at least that of the plain weights. The interval has the
    half-width :math:`c\, \mathrm{se}\, t / z`: c is the critical value of all values and differences together, and t
    the quantile of the t distribution for the effective sample size. It is widened by the bias of changed weights and
    of weights off balance, as that of the headline is. The checks of the headline judge each row: they look at the
    marginalised weights, and at the influence of one trajectory of the stratum (D118).

    When it breaks: below 100 effective trajectories. Such strata are not shown.

    Parameters
    ----------
    basis : Basis
        The target on the log.
    data : Trajectories
        The log, in the same order.
    strata : array of shape (N,), or None
        A stratum for every step; that of the first step of a trajectory counts.
    level : float
        Level at which all intervals hold together.
    findings, conditions
        What holds in every stratum.
    widen : float
        Further factor of the standard errors.
    worst : float, optional
        The worst plausible return, where it was given.
    rng : Generator
        Of the critical value.

    Returns
    -------
    Subgroups or None
        None without strata.
    """
    if strata is None:
        return None
    layout = basis.evidence.layout
    labels = np.array([str(x) for x in np.asarray(strata)[layout.first]])
    parts, few = [], []
    for name in sorted(np.unique(labels), key=stratum_key):
        members = np.flatnonzero(labels == name)
        worth = round(float(kish(weigh_trajectories(traits_of(_GAIN), basis.marginalised.take(members)))), 6)
        if worth < TOO_FEW:
            few.append(TooFew(str(name), len(members), worth))
        else:
            parts.append(_Part.of(str(name), basis, data.part(members), members, worth))
    every = [u for part in parts for u in part.influences]
    z = critical_value(correlations(np.zeros((1, 1))), level=level, rng=rng)
    c = critical_value(correlations(np.array(every)), level=level, rng=rng) if every else z
    least = float(basis.evidence.returns.min()) if worst is None else worst
    rows = tuple(
        _row(
            part,
            c * widen,
            level=level,
            findings=findings,
            conditions=conditions,
            worst=(least, worst is not None),
        )
        for part in parts
    )
    return Subgroups(Table(rows, "By stratum of the first decision"), tuple(few), c)


@dataclass(frozen=True, eq=False)
class _Part:
    """A stratum of the evidence; influences of the whole log's units on its value and difference, over its size."""

    name: str
    effective_n: float
    data: Trajectories
    evidence: Evidence
    marginalised: Evidence
    influences: tuple[Float, Float]
    plain: tuple[Float, Float]

    @classmethod
    def of(cls, name: str, basis: Basis, data: Trajectories, members: Int, worth: float) -> _Part:
        pool = basis.evidence.layout.pool

        def spread(estimator: Estimator, e: Evidence) -> Float:
            among = np.zeros(len(e))
            among[members] = influence(estimator, e.take(members)) / len(members)
            pooled: Float = pool(among)
            return pooled

        own, plain = ((spread(wdr, e), spread(_GAIN, e)) for e in (basis.marginalised, basis.normalised))
        raw, marginalised = (x.take(members) for x in (basis.evidence, basis.marginalised))
        return cls(name, worth, data, raw, marginalised, own, plain)


def _row(
    part: _Part,
    c: float,
    *,
    level: float,
    findings: Sequence[Finding],
    conditions: tuple[str, ...],
    worst: tuple[float, bool],
) -> Subgroup:
    clustered = part.marginalised.cluster is not None
    units = effective_clusters(_GAIN, part.marginalised) if clustered else part.effective_n
    few = few_clusters_factor(units, level)
    found: list[Estimate] = []
    for estimator, own, plain in zip((wdr, _GAIN), part.influences, part.plain, strict=True):
        value, raw = float(estimator(part.marginalised)), float(estimator(part.evidence))
        se = float(max(np.sqrt((u**2).sum()) for u in (own, plain)))
        bias = Bias.of(part.marginalised, value - raw)
        arm = c * se * few * bias.factor(se, level)
        ends = Interval(value - arm, value + arm, level, "influence functions, for all strata together")
        examined = examine_marginalised(estimator, part.marginalised)
        named = (name_facts(f, part.data) for f in examined)
        seen = (*named, *bias.findings(se), *findings)
        name = f"difference_{part.name}" if estimator is _GAIN else part.name
        clusters = units if clustered else None
        row = Estimate(
            name, part.name, value, ends, len(part.evidence), part.effective_n, seen, conditions, clusters
        )
        at = found[0].value if found else None
        row = check_unseen(row, worst=worst[0], given=worst[1], at=at)
        found.append(replace(row, findings=count_once(row.findings)))
    return Subgroup(
        part.name,
        len(part.evidence),
        part.effective_n,
        float(monte_carlo(part.evidence)),
        found[0],
        found[1],
    )
