"""Several policies on one log: the result, frozen and printable."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from caliope._audit._reach import Reach
from caliope._audit._result import Audit
from caliope._audit._subgroups import PolicyStrata, several_subgroups
from caliope._audit._written import Reported
from caliope._cells import inert
from caliope._conditions import CONDITIONAL
from caliope._digits import number_text
from caliope._results import Estimate, Table, finite, percent
from caliope.checks import Finding, Verdict

if TYPE_CHECKING:
    import polars as pl

E = TypeVar("E", bound=Estimate)


@dataclass(frozen=True, repr=False)
class ComparedPolicy:
    """One of several policies: its value, its difference from practice, and how far the log carries.

    Attributes
    ----------
    name : str
        What the policy was called.
    value : Estimate
        The headline of its audit, with the interval of that audit alone.
    difference : Estimate
        The difference from current practice. Its interval holds together with all others of the comparison.
    reach : Reach or None
        The policy in a growing share of the decisions; None where it is practice itself.
    """

    name: str
    value: Estimate
    difference: Estimate
    reach: Reach | None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found about the value or the difference."""
        return self.difference.findings

    @property
    def verdict(self) -> Verdict:
        """The worse one of value and difference."""
        return self.difference.verdict

    @property
    def condition(self) -> str:
        """What must hold for the verdict, "if ..."."""
        return self.difference.condition

    @property
    def refused(self) -> bool:
        """Whether the log cannot evaluate the policy, so that it takes no part in picking the best."""
        return self.verdict == "do not trust"

    @property
    def carries(self) -> str:
        """Up to which share of the decisions the log evaluates the policy, with caution or without."""
        if self.reach is None:
            return "is practice"
        trusted, usable = self.reach.largest, self.reach.usable
        if usable is None:
            return "not at all"
        if trusted is None:
            return f"{usable:.0%}, caution"
        return f"{trusted:.0%}" if trusted == usable else f"{trusted:.0%}, {usable:.0%} with caution"

    def cells(self) -> dict[str, str]:
        """What a printed table shows of this row."""
        return {
            "policy": self.name,
            "value": self.value.value_text,
            "difference": self.difference.value_text,
            f"{percent(self.difference.interval.level)} interval": self.difference.interval_text,
            "effective n": f"{self.value.effective_n:.1f}",
            "carries up to": self.carries,
            "verdict": CONDITIONAL if self.difference.verdict_text != self.verdict else self.verdict,
        }

    def record(self) -> dict[str, Any]:
        """What a data frame shows of this row."""
        shown = self.difference.shown
        return {
            "policy": self.name,
            "value": self.value.value,
            "difference": self.difference.value,
            "low": shown.low,
            "high": shown.high,
            "level": shown.level,
            "effective_n": self.value.effective_n,
            "carries": None if self.reach is None else self.reach.usable,
            "verdict": self.verdict,
            "condition": self.condition,
            "findings": " ".join(sorted({f.code for f in self.findings})),
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "policy": self.name,
            "value": self.value.to_dict(),
            "difference": self.difference.to_dict(),
            "reach": None if self.reach is None else self.reach.to_dict(),
            "verdict": self.verdict,
            "condition": self.condition,
        }


class PolicyPair(Estimate):
    """The difference between two policies on the same trajectories."""

    def cells(self) -> dict[str, str]:
        """What a printed table shows of this row."""
        cells = super().cells()
        return {"policies": cells.pop("estimator"), **cells}


@dataclass(frozen=True, repr=False)
class PolicyPairs(Table[PolicyPair]):
    """The differences between policies; they print with what was found about each policy by its name.

    Attributes
    ----------
    rows, title
        As of any table.
    about : mapping from str to tuple of Finding
        Issues and cautions by the policy that they are about.
    """

    about: Mapping[str, tuple[Finding, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join([*([self.title] if self.rows else []), self.grid(), *told_lines(self.about)])


def told_lines(about: Mapping[str, tuple[Finding, ...]]) -> list[str]:
    """Findings with what they are about, as printed lines."""
    lines: list[str] = []
    for whose, told in about.items():
        lines += ["", f"Findings about {whose}:"]
        lines += [textwrap.fill(f"  {f}", 118, subsequent_indent=" " * 9) for f in told]
    return lines


def reasons_of(rows: Sequence[ComparedPolicy]) -> dict[str, tuple[Finding, ...]]:
    """Issues and cautions by what they are about: all policies, or one of them; notes are in the audits."""
    told = {row.name: [f for f in Table((row,)).findings if f.level != "note"] for row in rows}
    texts = [{(f.code, f.level, f.message) for f in each} for each in told.values()]
    shared = set.intersection(*texts)
    first = next(iter(told.values()))
    found = {"all policies": tuple(f for f in first if (f.code, f.level, f.message) in shared)}
    for name, each in told.items():
        found[name] = tuple(f for f in each if (f.code, f.level, f.message) not in shared)
    return {whose: each for whose, each in found.items() if each}


@dataclass(frozen=True)
class PickedPolicy:
    """The policy with the largest difference from practice, among those that the log can evaluate.

    Attributes
    ----------
    name : str
        The policy.
    among : int
        How many policies could have been picked.
    difference : float
        Its difference from practice, as estimated; the largest of several is too large on average.
    corrected : float
        The same, corrected for having been picked.
    above, open : tuple of str
        Those that it is above of, by the intervals of the pairs; those that it cannot be told apart from.
    """

    name: str
    among: int
    difference: float
    corrected: float
    above: tuple[str, ...] = ()
    open: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "policy": self.name,
            "among": self.among,
            "difference": finite(self.difference),
            "corrected": finite(self.corrected),
            "above": list(self.above),
            "open": list(self.open),
        }


@dataclass(frozen=True, eq=False, repr=False)
class PolicyComparison(Reported):
    """Several policies on one log, which of them is the best, and whether to believe that.

    Made by :func:`~caliope.compare`.

    Attributes
    ----------
    table : Table of ComparedPolicy
        A row per policy, in the given order. The intervals of all differences and pairs hold together.
    pairs : PolicyPairs
        The difference between every two policies that the log can evaluate, on the same trajectories.
    best : PickedPolicy or None
        The best of them, corrected for having been picked; None where the log can evaluate none.
    practice : Estimate
        Current practice.
    audits : mapping from name to Audit
        The audit of each policy, as :func:`~caliope.audit` would make it.
    critical : float
        Standard errors to each side of an interval that holds together with all others; 1.96 of one alone at 95%.
    title : str
        Title of the report.
    restricted : mapping from str to str
        Policies that were kept out of regions in which practice leaves no choice, as asked; and what that means.

    Examples
    --------
    >>> import caliope as cal
    >>> from caliope.domains import ward
    >>> models, q = {"frequencies": cal.behaviour.TabularFrequencies()}, cal.values.TabularRegressor()
    >>> targets = {"earlier": cal.TabularPolicy(ward.EARLIER), "practice": cal.practice}
    >>> data = ward.simulate(300, rng=0)
    >>> found = cal.compare(data, targets, models, regressor=q, n_draws=20, rng=0)
    >>> found.best.name, [row.verdict for row in found.table]
    ('earlier', ['caution', 'caution'])
    """

    _writer: ClassVar[str] = "write_comparison"

    table: Table[ComparedPolicy]
    pairs: PolicyPairs
    best: PickedPolicy | None
    practice: Estimate
    audits: Mapping[str, Audit]
    critical: float
    title: str = ""
    restricted: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict:
        """Whether to believe the best policy's difference from practice; "do not trust" where none can be picked."""
        return "do not trust" if self.best is None else self.table[self.best.name].verdict

    @property
    def level(self) -> float:
        """Level at which all intervals hold together."""
        return self.practice.interval.level

    @property
    def differences(self) -> Table[Estimate]:
        """The differences from current practice, a row per policy."""
        return Table(tuple(row.difference for row in self.table), "Difference from current practice")

    @inert
    def __repr__(self) -> str:
        best = None if self.best is None else self.best.name
        return f"PolicyComparison({', '.join(self.audits)}; best={best!r}, verdict={self.verdict!r})"

    def sentences(self) -> list[str]:
        """The result in words: the best policy, corrected, and what it can be told apart from."""
        if self.best is None:
            return [
                "Verdict: do not trust. This log can evaluate none of these policies as a whole; the table says how "
                "far it carries for each."
            ]
        row, best = self.table[self.best.name], self.best
        sign = "+" if best.difference > 0 else ""
        kind = f"Best of the {best.among} policies" if best.among > 1 else "The only policy"
        lines = [
            f"Verdict: {row.difference.verdict_text}.",
            f"{kind} that this log can evaluate: {best.name}, with a difference from current practice of "
            f"{sign}{row.difference.text}.",
        ]
        if best.among > 1:
            text = number_text(best.corrected, row.difference.interval.width)
            lines.append(
                f"The largest of several estimates is too large on average. Corrected for having been picked, it is "
                f"{'+' if best.corrected > 0 else ''}{text}."
            )
            above = f"It is above {', '.join(best.above)}." if best.above else ""
            apart = f"The log does not tell it apart from {', '.join(best.open)}." if best.open else ""
            lines.append(" ".join(filter(None, [above, apart])))
        return lines

    def _level_text(self) -> str:
        return f"All {percent(self.level)} intervals hold together ({self.critical:.2f} standard errors each way)."

    @inert
    def __str__(self) -> str:
        parts = [
            *([self.title] if self.title else []),
            *self.sentences(),
            f"Current practice: {self.practice.text}.",
            "",
            self.table.grid(),
            self._level_text(),
        ]
        parts += [textwrap.fill(line, 118, subsequent_indent="  ") for line in self.restrictions()]
        if len(self.pairs):
            parts += ["", "Differences between policies:", self.pairs.grid()]
        return "\n".join([*parts, *self.strata.lines(), *told_lines(self.reasons())])

    @property
    def strata(self) -> PolicyStrata:
        """Values and differences by policy and stratum, where ``by`` was given; those of one policy hold together."""
        return several_subgroups({name: audit.subgroups for name, audit in self.audits.items()})

    def restrictions(self) -> list[str]:
        """What was restricted, a line per policy."""
        return [f"{name}: {text}" for name, text in self.restricted.items()]

    def reasons(self) -> dict[str, tuple[Finding, ...]]:
        """Issues and cautions by what they are about: all policies, or one of them; notes are in the audits."""
        return reasons_of(self.table)

    @inert
    def _repr_html_(self) -> str:
        rows = tuple(replace(row, difference=_without_notes(row.difference)) for row in self.table)
        pairs = Table(tuple(map(_without_notes, self.pairs)), self.pairs.title)
        tables = Table(rows, self.table.title)._repr_html_() + (pairs._repr_html_() if len(pairs) else "")
        try:
            snippet: str = import_module("caliope.report").comparison_snippet(self, tables)
        except ModuleNotFoundError:  # without the extra report
            lines = (*self.sentences(), self._level_text(), *self.restrictions())
            snippet = "".join(f"<p>{escape(line)}</p>" for line in lines) + tables
        return snippet

    def plot(self, *, pairs: bool = False) -> Any:
        """Draw the differences as a forest plot; ``.savefig("figure.pdf")`` writes it (extra report).

        Parameters
        ----------
        pairs : bool
            Draw the differences between policies instead of those from current practice.

        Returns
        -------
        matplotlib.figure.Figure
            Not known to pyplot.
        """
        axis = import_module("caliope.plots").forest(self.pairs if pairs else self.differences)
        if pairs:
            axis.set_xlabel("difference between policies")
        return axis.figure

    def to_frame(self) -> pl.DataFrame:
        """One row per policy, as a polars frame; ``.to_pandas()`` from there."""
        return self.table.to_frame()

    def to_markdown(self) -> str:
        """The policies as a table in Markdown, as they are printed."""
        return self.table.to_markdown()

    def to_latex(self) -> str:
        """The policies as a table in LaTeX (package booktabs), as they are printed."""
        return self.table.to_latex()

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "verdict": self.verdict,
            "text": self.sentences(),
            "best": None if self.best is None else self.best.to_dict(),
            "practice": self.practice.to_dict(),
            "policies": [row.to_dict() for row in self.table],
            "pairs": [row.to_dict() for row in self.pairs],
            "level": self.level,
            "critical_value": finite(self.critical),
            "restricted": dict(self.restricted),
            "audits": {name: audit.to_dict() for name, audit in self.audits.items()},
        }


def _without_notes(row: E) -> E:
    """A row for a notebook: several policies have many notes."""
    return replace(row, findings=tuple(f for f in row.findings if f.level != "note"))
