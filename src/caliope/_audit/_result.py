"""The result of an audit: values, verdict and findings, frozen and printable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from caliope._audit._benchmark import ColumnStrength, compare_strength
from caliope._audit._contents import LogContents
from caliope._audit._other_logs import HERE, OtherLog, put_beside
from caliope._audit._placebo import Placebo
from caliope._audit._reach import Reach
from caliope._audit._requirements import Requirement, check_requirements
from caliope._audit._settings import AuditSettings, Stage
from caliope._audit._subgroups import Subgroups
from caliope._audit._summary import AuditSummary
from caliope._audit._written import Reported
from caliope._cells import inert
from caliope._evidence import Evidence
from caliope._ragged import Float
from caliope._results import Estimate, Table, finite
from caliope._support import Support
from caliope._trajectories import Trajectories
from caliope.calibration._compare import Comparison
from caliope.checks import Finding, Verdict
from caliope.sensitivity import Breakdown, Influence, OtherChoice

if TYPE_CHECKING:
    import polars as pl

HEADLINE = "wdr_marginalised"  # the row that an audit answers with
GAIN = "difference_wdr_marginalised"  # the same minus current practice
PRACTICE = "monte_carlo"  # current practice
SUBGROUPS = "By stratum of the first decision; all intervals hold together"
OTHER_LOGS = "The same question in other logs of the same decisions"
LOGGED = "logged probabilities"  # as a behaviour policy, among settings and other choices


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Reported):
    """What a new policy is worth, whether to believe it, and why; made by :func:`~caliope.audit`.

    Attributes
    ----------
    table : Table of Estimate
        Every estimate with its interval, findings and verdict.
    comparison : Comparison
        The behaviour models, compared on decisions that they have not seen.
    placebo : Placebo
        The negative control.
    others : Table of OtherChoice
        The same question under other choices of model, weights and estimator.
    influence : Influence
        The trajectories that move the difference from practice most.
    breakdown : Breakdown
        How strong an unmeasured confounder would have to be to reverse that difference.
    benchmark : tuple of ColumnStrength
        How strong each recorded column would be as such a confounder, the strongest first; empty with logged
        probabilities.
    reach : Reach or None
        The difference with the policy in a growing share of the decisions; None where the target is practice itself.
    support : Support
        Regions of the states in which practice leaves no choice; ``support.restrict(target)`` keeps out of them.
    contents : LogContents
        What the log holds: trajectories, lengths, outcome, actions, and state columns with their gaps.
    summary : AuditSummary
        Weights over time, overlap, actions, ratios and confounding bounds, for the report.
    evidence : Evidence
        Rewards, capped ratios and values that the headline is computed from.
    data : Trajectories
        The log; of one in partitions the sample that models were fitted to.
    target_probs : array of shape (N, A)
        Probabilities of the target policy at every step.
    behaviour_probs : array of shape (N, A)
        Probabilities of current practice at every step: recorded, or else those of the chosen behaviour model.
    settings : AuditSettings
        How the audit was made.
    stages : tuple of Stage
        What each stage took.
    requirements : tuple of Requirement
        Conditions of the user's own, from :meth:`require`.
    subgroups : Subgroups or None
        Values and differences by stratum; None without ``by``.
    other_logs : Table of OtherLog or None
        The same question in other logs, after :meth:`beside`.

    Examples
    --------
    >>> import caliope as cal
    >>> from caliope.domains import ward
    >>> models, q = {"frequencies": cal.behaviour.TabularFrequencies()}, cal.values.TabularRegressor()
    >>> data, target = ward.simulate(300, rng=0), cal.TabularPolicy(ward.EARLIER)
    >>> found = cal.audit(data, target, models, regressor=q, n_draws=20, rng=0)
    >>> round(found.practice.value, 2), found.settings.n_trajectories
    (0.5, 300)
    """

    _writer: ClassVar[str] = "write_report"

    table: Table[Estimate]
    comparison: Comparison
    placebo: Placebo
    others: Table[OtherChoice]
    influence: Influence
    breakdown: Breakdown
    benchmark: tuple[ColumnStrength, ...]
    reach: Reach | None
    contents: LogContents
    summary: AuditSummary
    evidence: Evidence
    data: Trajectories
    target_probs: Float
    behaviour_probs: Float
    settings: AuditSettings
    stages: tuple[Stage, ...] = ()
    support: Support = field(default_factory=Support)
    requirements: tuple[Requirement, ...] = ()
    subgroups: Subgroups | None = None
    other_logs: Table[OtherLog] | None = None

    @property
    def headline(self) -> Estimate:
        """The estimate that the audit answers with."""
        return self.table[HEADLINE]

    @property
    def gain(self) -> Estimate:
        """The headline minus current practice, on the same resamples."""
        return self.table[GAIN]

    @property
    def practice(self) -> Estimate:
        """The mean return of the log."""
        return self.table[PRACTICE]

    @property
    def verdict(self) -> Verdict:
        """Whether to believe the headline: "trust", "caution" or "do not trust"."""
        return self.headline.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything found about the headline, the gravest first."""
        return Table((self.headline,)).findings

    @inert
    def __repr__(self) -> str:
        return f"Audit(verdict={self.verdict!r}, value={self.headline.text!r}, difference={self.gain.text!r})"

    @inert
    def __str__(self) -> str:
        return "\n".join(
            [
                *self._summary(),
                "",
                self.table.grid(),
                "",
                *([] if self.subgroups is None else [f"{SUBGROUPS}:", str(self.subgroups), ""]),
                *([] if self.other_logs is None else [f"{OTHER_LOGS}:", self.other_logs.grid(), ""]),
                f"Findings about the first row ({self.headline.label}):",
                *(f"  {finding}" for finding in self.findings),
                "",
                *self._background(),
            ]
        )

    def _summary(self) -> list[str]:
        """The verdict and the three numbers that matter."""
        best, gain = self.headline, self.gain
        other = "" if gain.verdict == best.verdict or gain.withheld else f" ({gain.verdict_text})"
        level = f"In brackets: {100 * self.settings.level:g}% confidence intervals"
        about = self.settings.about
        title = f"{about.title or 'Audit'} ({about.made})" if about.made else about.title
        measured = f" ({about.value_label(self.data.unit)})" if about.outcome or about.outcome_unit else ""
        return [
            *([title] if title else []),
            f"Verdict: {best.verdict_text}.",
            *([self.strength_text()] if not best.withheld and self.strength_text() else []),
            *([f"Question: {about.question}"] if about.question else []),
            f"{about.policy_label}: {best.text}. Current practice: {self.practice.text}.",
            f"Difference: {gain.text}{other}{measured}. ({level})",
            *([self.range_text()] if best.withheld else []),
            *self._reach_text(),
            *(f"Required: {each.text}." for each in self.requirements),
        ]

    def _reach_text(self) -> list[str]:
        """How far the log carries; a condition that stands above is not repeated."""
        if self.reach is None:
            return []
        known = self.headline.condition if self.verdict == "trust" else ""
        advice = f" {self.reach.advice}" if self.headline.withheld and self.reach.advice else ""
        return [f"How far the log carries: {self.reach.describe(known)}.{advice}"]

    def strength_text(self) -> str:
        """Whether a confounder as strong as a recorded column would reverse the difference; empty if that may be 0."""
        signed = 0.0 not in self.gain.interval
        return compare_strength(self.benchmark, self.breakdown.factor) if signed else ""

    def signs_text(self) -> str:
        """Whether headline and weighted importance sampling lie on two sides of practice; empty if they do not."""
        if not (self.breakdown.estimate - self.breakdown.baseline) * self.gain.value < 0:
            return ""
        return (
            " Note the sign: the doubly robust estimate at the top lies on the other side of current practice. Which "
            "policy is better is open."
        )

    def range_text(self) -> str:
        """The range of the returns in the log, in words: where there is no interval, it is what the log shows."""
        low, high = self.evidence.returns.min(), self.evidence.returns.max()
        returns = f"The returns in the log run from {low:.4g} to {high:.4g}."
        return f"{returns} The log gives no narrower range for the new policy."

    def _background(self) -> list[str]:
        """How current practice was modelled, the negative control, and what would overturn the result."""
        flip = self.influence.to_flip
        lines = [
            f"Behaviour policy: {self.settings.behaviour}.",
            *_ranking(self.comparison),
            *([f"Learning curve: {self.settings.learning}."] if self.settings.learning else []),
            "Negative control: reweighting decisions must not change what was known before them; "
            f"{self.placebo.describe()}.",
            f"Unmeasured confounding: {self.breakdown.describe(self.data.unit)}.{self.signs_text()}",
            *self.support.describe(self.data.action_names),
        ]
        if flip is not None:
            lines.append(
                f"Influence: leaving out {flip} of {len(self.evidence)} {self.data.units} changes the sign."
            )
        return lines

    @inert
    def _repr_html_(self) -> str:
        try:
            snippet: str = import_module("caliope.report").snippet_html(self)
        except ModuleNotFoundError:  # without the extra report
            summary = "".join(f"<p>{escape(line)}</p>" for line in self._summary())
            snippet = summary + self.table[:3]._repr_html_()
        return snippet

    def plot(self, name: str = "values") -> Any:
        """Draw one figure of the report; a notebook shows it, and ``.savefig("figure.pdf")`` writes it (extra report).

        Parameters
        ----------
        name : str
            Name of the figure, as in the JSON: "values", "reach", "likelihoods", "fan", ...; a wrong one lists them.

        Returns
        -------
        matplotlib.figure.Figure
            Not known to pyplot.
        """
        figures = import_module("caliope.report").draw_figures(self)
        if name not in figures:
            raise ValueError(f"the figures of this audit are {', '.join(figures)}; got {name!r}.")
        return figures[name]

    def save_figures(self, folder: str | Path, *, format: str = "pdf") -> list[Path]:
        """Write all figures of the report to a folder, which is made if need be (extra report).

        Parameters
        ----------
        folder : path
            Where to write them.
        format : str
            What matplotlib writes: "pdf", "png", "svg".

        Returns
        -------
        list of Path
            One file per figure, by its name.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        files = []
        for name, figure in import_module("caliope.report").draw_figures(self).items():
            figure.patch.set_visible(True)  # a page has a background of its own, a file has not
            files.append(place / f"{name}.{format}")
            figure.savefig(files[-1], dpi=200)
        return files

    def to_frame(self) -> pl.DataFrame:
        """All estimates, one per row, as a polars frame; ``.to_pandas()`` from there."""
        return self.table.to_frame()

    def to_markdown(self) -> str:
        """All estimates as a table in Markdown, as they are printed."""
        return self.table.to_markdown()

    def to_latex(self) -> str:
        """All estimates as a table in LaTeX (package booktabs), as they are printed."""
        return self.table.to_latex()

    def require(self, **limits: float) -> Audit:
        """Return the same audit with conditions of your own, each checked; they are printed, and in the JSON.

        Parameters
        ----------
        **limits : float
            At least so many ``trajectories``, such an ``effective_n``, lower end of the interval of the ``value`` or of
            the ``difference``, or ``breakdown`` factor. At most such a ``width`` of the interval of the value, or
            ``difference_width``. An interval that is withheld meets no condition.

        Returns
        -------
        Audit
            With one requirement per condition.
        """
        return replace(self, requirements=check_requirements(self, limits))

    def beside(self, others: Mapping[str, Audit], *, name: str = HERE) -> Audit:
        """Return the same audit with the answers of other logs beside its own, as one more of the other choices.

        Such as cohorts with other windows of time, each audited with the same policy and reward. Compared are
        differences from practice, since rewards may add up to other sums. One that is further away than chance explains
        is a caution (finding A114). Trajectories may be in several of the logs.

        Parameters
        ----------
        others : mapping from name to Audit
            Audits of the other logs, by what they are called.
        name : str
            What the log of this audit is called.

        Returns
        -------
        Audit
            With ``other_logs``, and the finding in its rows.
        """
        return replace(self, **put_beside(self, others, name))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "verdict": self.verdict,
            "condition": self.headline.condition,
            "headline": self.headline.to_dict(),
            "gain": self.gain.to_dict(),
            "practice": self.practice.to_dict(),
            "contents": self.contents.to_dict(),
            "estimates": self.table.to_dict(),
            "behaviour": self.comparison.to_dict(),
            "placebo": self.placebo.to_dict(),
            "other_choices": self.others.to_dict(),
            "influence": {
                "trajectories": [each.id for each in self.summary.influential],
                "effect": [finite(x) for x in self.influence.effect],
                "to_flip": self.influence.to_flip,
            },
            "breakdown_factor": finite(self.breakdown.factor),
            "benchmark": [row.to_dict() for row in self.benchmark],
            "reach": None if self.reach is None else self.reach.to_dict(),
            "subgroups": None if self.subgroups is None else self.subgroups.to_dict(),
            "other_logs": None if self.other_logs is None else self.other_logs.to_dict(),
            "support": self.support.to_dict(),
            "requirements": [each.to_dict() for each in self.requirements],
            "about": self.settings.about.to_dict(),
            "settings": self.settings.to_dict(),
            "stages": [stage.to_dict() for stage in self.stages],
        }


def _ranking(comparison: Comparison) -> list[str]:
    """Why a fitted behaviour model is the best, and how far the others are behind."""
    choice = comparison.choice
    if choice is None:
        return []
    best = f"Best fitted model: {choice.recommended} ({choice.reason})."
    behind = ", ".join(
        f"{name} +{choice.behind[name]:.4f} (standard error {choice.se[name]:.4f})"
        for name in choice.ranking
        if choice.behind[name] > 0
    )
    return [best, *([f"Log loss above the best: {behind}."] if behind else [])]
