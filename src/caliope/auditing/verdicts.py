"""Checks across the parts of an audit: what no single estimate can know of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import special

from caliope.auditing.influence import Influence
from caliope.auditing.multiverse import SHRUNK, Universe
from caliope.auditing.panel import HEADLINE, PRACTICE
from caliope.auditing.second import mean_of_steps
from caliope.behaviour import FittedBehaviour
from caliope.confounding import Breakdown
from caliope.ragged import Float
from caliope.results import Estimate, Finding, Level, Table
from caliope.trajectories import Trajectories

_FEW = 0.01  # of the trajectories, that may not decide the sign
_ILL_SCALED = (0.05, 0.1)  # of a total probability of 1: a caution, an issue
_MOVED = 0.15  # standard errors, by which capping may move the estimate
_FRAGILE = 1.2  # a factor in the weights that any unrecorded reason has


def concerning(row: Estimate, findings: Sequence[Finding]) -> Estimate:
    """A row with what was found about the whole audit; the plain mean of practice needs no weights and no values."""
    if row.name == PRACTICE:
        findings = [finding for finding in findings if finding.code[0] == "L"]
    return replace(row, findings=(*row.findings, *findings))


def agreement(rows: Sequence[Estimate], others: Table[Universe], share: float = 1.0) -> tuple[Finding, ...]:
    """Disagreement between estimators that lean on weights and on values, and between reasonable choices.

    ``share``: of the trajectories, on which the other choices were tried; fewer scatter more.
    """
    named = {row.name: row for row in rows}
    best, direct = named[HEADLINE], named["dm"]
    found = []
    apart = abs(best.value - direct.value)
    if not apart <= max(best.interval.width, direct.interval.width):
        message = (
            f"what leans on weights ({best.value:.4g}) and what leans on fitted values alone ({direct.value:.4g}) "
            "disagree by more than either interval: "
        )
        # Fitted values that the log itself refutes are the ones that are wrong.
        refuted = any(finding.code == "D109" and finding.level == "issue" for finding in direct.findings)
        message += "the log refutes the fitted values" if refuted else "at least one of them is wrong"
        found.append(Finding("A101", "note" if refuted else "caution", message, {"apart": apart}))
    # What was shrunk towards practice, or may have memorised the log, differs for reasons that are known.
    raw = np.array([row.value for row in others if row.weights != SHRUNK and row.fit != "same"])
    raw = raw[np.isfinite(raw)]
    if len(raw) > 1 and np.ptp(raw) > 4 * best.interval.width / np.sqrt(share):
        message = (
            f"other choices of behaviour model, weights and estimator give {raw.min():.4g} to {raw.max():.4g}, four "
            "times the interval of the estimate or more: the choice decides, not the log"
        )
        found.append(Finding("A102", "caution", message, {"low": float(raw.min()), "high": float(raw.max())}))
    return tuple(found)


def overturned(gain: Estimate, influence: Influence, confounded: Breakdown, n: int) -> tuple[Finding, ...]:
    """How few trajectories, and how weak an unrecorded reason, would change the sign against practice."""
    found = []
    # A difference that may be 0 has no sign to lose.
    signed = 0.0 not in gain.interval
    if signed and influence.to_flip is not None and influence.to_flip <= max(1, _FEW * n):
        message = f"leaving out {influence.to_flip} of {n} trajectories changes which is better, the policy or practice"
        found.append(Finding("A103", "caution", message, {"trajectories": float(influence.to_flip)}))
    if confounded.gamma < _FRAGILE:
        message = (
            f"an unrecorded reason that changes the odds of a trajectory by a factor of {confounded.gamma:.2f} would "
            "overturn the comparison with practice"
        )
        found.append(Finding("A104", "note", message, {"gamma": confounded.gamma}))
    return tuple(found)


def propensities(data: Trajectories, logged: Float, fitted: FittedBehaviour) -> tuple[Finding, ...]:
    """Logged probabilities against fitted ones: both are probabilities of what was done."""
    model = fitted.on(data)[np.arange(data.n_steps), data.actions]
    if (finding := _ill_scaled(data, model / logged)) is not None:
        return (finding,)
    with np.errstate(divide="ignore"):
        gain = np.log(logged) - np.log(model)
    mean, se = mean_of_steps(data, gain)
    message = f"logged probabilities beat the fitted ones by {mean:.3f} nats a step (standard error {se:.3f})"
    if mean >= -2 * se:
        return (Finding("A105", "note", message, {"gain": mean, "se": se}),)
    message = (
        f"the logged probabilities predict the logged actions worse than a model fitted to them does, by {-mean:.3f} "
        f"nats a step (standard error {se:.3f}): they are not the probabilities with which these actions were taken"
    )
    return (Finding("A105", "issue", message, {"gain": mean, "se": se}),)


def _ill_scaled(data: Trajectories, ratio: Float) -> Finding | None:
    r"""Whether :math:`E[\hat\pi(A \mid s) / p] = 1`, as for any :math:`\hat\pi` if p are the probabilities that acted.

    The mean logarithm of p would not see it: probabilities that are all too large always look more likely.
    """
    by_trajectory = data.layout.sum_steps(ratio - 1)
    off = float(by_trajectory.sum() / data.n_steps)
    se = float(np.sqrt((by_trajectory**2).sum()) / data.n_steps)
    if abs(off) < _ILL_SCALED[0] or abs(off) < 4 * se:
        return None
    often = "too large" if off < 0 else "too small"
    message = (
        f"the logged probabilities are {often}: a fitted policy, weighted by them, has total probability {1 + off:.3f} "
        f"(standard error {se:.3f}) where it must have 1; they are not the probabilities with which these actions were "
        "taken"
    )
    level: Level = "issue" if abs(off) > _ILL_SCALED[1] else "caution"
    return Finding("A105", level, message, {"off": off, "se": se})


def nothing_varies(gain: Estimate) -> tuple[Finding, ...]:
    """An interval without width although weights differ: fitted values that hold the outcome."""
    if gain.interval.width > 0 or not gain.effective_n < 0.999 * gain.n:
        return ()
    message = (
        "the difference from practice has an interval without any width although trajectories differ in weight: the "
        "fitted values explain every outcome, as they do where a feature holds it"
    )
    return (Finding("A108", "issue", message),)


def moved_by_capping(rows: Sequence[Estimate]) -> tuple[Finding, ...]:
    """Capped weights that move the estimate: what they took away was not noise alone."""
    named = {row.name: row for row in rows}
    best, raw = named[HEADLINE], named["wdr"]
    se = best.interval.width / (2 * float(special.ndtri((1 + best.interval.level) / 2)))
    moved = best.value - raw.value
    if not abs(moved) > _MOVED * se:
        return ()
    message = (
        f"capping the weights moves the estimate by {moved:+.3g}, {abs(moved) / se:.1f} standard errors: the interval "
        "does not know of that"
    )
    return (Finding("A109", "caution", message, {"moved": moved, "se": se}),)
