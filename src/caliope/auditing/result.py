"""The result of an audit: frozen, printable, with everything that a report needs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from caliope.auditing.influence import Influence
from caliope.auditing.multiverse import Universe
from caliope.auditing.panel import GAIN, HEADLINE, PRACTICE
from caliope.auditing.placebo import Placebo
from caliope.auditing.stages import Stage
from caliope.calibration import Comparison
from caliope.confounding import Breakdown
from caliope.evidence import Evidence
from caliope.ragged import Float
from caliope.results import Estimate, Finding, Table, Verdict
from caliope.trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class Audit:
    """What a new policy is worth, whether to believe it, and why."""

    table: Table[Estimate]
    comparison: Comparison
    placebo: Placebo
    others: Table[Universe]
    influence: Influence
    confounded: Breakdown
    evidence: Evidence = field(repr=False)
    data: Trajectories = field(repr=False)
    wanted: Float = field(repr=False)  # (N, A), the target at every step
    acted: Float = field(repr=False)  # (N, A), practice at every step, as the chosen model says
    settings: Mapping[str, Any] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()

    @property
    def headline(self) -> Estimate:
        """The estimate that the audit answers with."""
        return self.table[HEADLINE]

    @property
    def gain(self) -> Estimate:
        """The same, minus current practice, on the same resamples."""
        return self.table[GAIN]

    @property
    def practice(self) -> Estimate:
        """The plain mean return of the log."""
        return self.table[PRACTICE]

    @property
    def verdict(self) -> Verdict:
        """Whether to believe the headline."""
        return self.headline.verdict

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything found about the headline, the gravest first."""
        return Table((self.headline,)).findings

    def __str__(self) -> str:
        best, gain, practice = self.headline, self.gain, self.practice
        lines = [
            f"Verdict: {self.verdict}.",
            f"The new policy: {_with_interval(best)}. Current practice: {_with_interval(practice)}.",
            f"Difference: {_with_interval(gain)}{'' if gain.verdict == best.verdict else f' ({gain.verdict})'}.",
            "",
            self.table.grid(),
            "",
            "What was found about the estimate in the first line:",
            *(f"  {finding}" for finding in self.findings),
            "",
            f"Behaviour: {self.settings['behaviour']}. {self.comparison.choice}",
            f"Placebo: practice is worth {self.placebo.practice:.4g}; a second model of it, told as a new policy, is "
            f"estimated at {self.placebo.value:.4g}, by {self.placebo.effective_n:.0f} effective trajectories of "
            f"{self.placebo.n}.",
            f"Confounding: {self.confounded}.",
        ]
        if self.influence.to_flip is not None:
            lines.append(
                f"Influence: leaving out {self.influence.to_flip} trajectories changes which is better."
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "verdict": self.verdict,
            "headline": self.headline.to_dict(),
            "gain": self.gain.to_dict(),
            "practice": self.practice.to_dict(),
            "estimates": self.table.to_dict(),
            "behaviour": self.comparison.to_dict(),
            "placebo": self.placebo.to_dict(),
            "other_choices": self.others.to_dict(),
            "influence": {
                "trajectories": [str(self.data.ids[i]) for i in self.influence.top],
                "effect": [_finite(x) for x in self.influence.effect],
                "to_flip": self.influence.to_flip,
            },
            "breakdown_gamma": _finite(self.confounded.gamma),
            "settings": dict(self.settings),
            "stages": [{"name": s.name, "seconds": s.seconds, "peak_gb": s.peak_gb} for s in self.stages],
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """Write the audit as JSON; what is not finite becomes null."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def write_html(self, path: str | Path) -> Path:
        """Write the report, one page that needs no other file, and its numbers as JSON beside it (extra report)."""
        # Asked for by name: the report is made of audits, and nothing here is made of it.
        page: Path = import_module("caliope.report").write_report(self, path)[0]
        return page


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def _with_interval(row: Estimate) -> str:
    cells = row.cells()
    interval = next(text for name, text in cells.items() if name.endswith("interval"))
    return f"{cells['value']} {interval}"
