"""Checks across the parts of an audit: agreement, effective sample sizes, logged probabilities, fragility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from caliope._evidence import Evidence
from caliope._ragged import Float, Int, at_actions, cluster_se
from caliope._results import Estimate
from caliope._trajectories import Trajectories
from caliope.checks import (
    A101,
    A102,
    A103,
    A104,
    A105,
    A106,
    A107,
    A108,
    A110,
    A111,
    A112,
    D109,
    D116,
    S103,
    Finding,
    Level,
)
from caliope.checks._estimates import TESTABLE, TOO_FEW
from caliope.weights import kish

_REACHED = 0.1  # share of the trajectories that get as far as a step for it to matter
_LARGE = 0.1  # share of the trajectories in a stratum for it to matter
_FEW = 0.01  # share of the trajectories that may not decide the sign
_LESS_LIKELY = (
    0.001  # nats per decision by which logged probabilities must be worse than held-out predictions
)
_ILL_SCALED = (0.05, 0.1)  # off a total probability of 1: a caution, an issue
_FITTED = 0.25  # share of the decisions: fitted on that many, intervals were seen to cover
_BEYOND = (0.01, 0.1)  # shares of recommended doses beyond the log, from which on: a caution, an issue
_FRAGILE = 1.2  # a factor in the weights that any unmeasured confounder may have


def check_agreement(best: Estimate, direct: Estimate) -> tuple[Finding, ...]:
    """A101: the headline and the direct method differ by more than either interval."""
    apart = abs(best.value - direct.value)
    if not apart > max(best.interval.width, direct.interval.width):
        return ()
    # Fitted values that the log itself refutes are the ones that are wrong.
    refuted = any(finding.check == D109 and finding.level == "issue" for finding in direct.findings)
    facts = {"apart": apart, "best": best.value, "direct": direct.value}
    return (
        A101.finding("note", "refuted", **facts) if refuted else A101.finding("caution", "open", **facts),
    )


def check_choices(best: Estimate, values: Sequence[float], share: float = 1.0) -> tuple[Finding, ...]:
    """A102: other choices spread over four times the interval.

    ``share`` of the trajectories were used for the other choices; on fewer the values scatter more.
    """
    finite = np.array([x for x in values if np.isfinite(x)])
    if len(finite) < 2 or not np.ptp(finite) > 4 * best.interval.width / np.sqrt(share):
        return ()
    return (A102.finding("caution", low=float(finite.min()), high=float(finite.max())),)


def check_fragility(gain: Estimate, *, to_flip: int | None, factor: float) -> tuple[Finding, ...]:
    """A103, A104: how few trajectories, and how weak an unmeasured confounder, reverse the comparison."""
    found = []
    # A difference that may be 0 has no sign to lose.
    signed = 0.0 not in gain.interval
    if signed and to_flip is not None and to_flip <= max(1, _FEW * gain.n):
        found.append(A103.finding("caution", trajectories=float(to_flip), n=gain.n))
    if signed and factor < _FRAGILE:
        found.append(A104.finding("note", factor=factor))
    return tuple(found)


def check_beyond(found: Sequence[Any]) -> tuple[Finding, ...]:
    """S103: a policy that recommends doses which nobody in the log had, by column."""
    levels: tuple[Level, ...] = ("note", "caution", "issue")
    return tuple(
        S103.finding(levels[int(np.searchsorted(_BEYOND, each.share, side="right"))], **asdict(each))
        for each in found
    )


def check_logged(data: Trajectories, logged: Float, behaviour_probs: Float) -> tuple[Finding, ...]:
    """A105, A110, A111: logged probabilities of the logged actions against fitted ones."""
    model = at_actions(behaviour_probs, data.actions)
    if (finding := check_scale(data, model / logged)) is not None:
        return (finding,)
    with np.errstate(divide="ignore"):
        gain = np.log(logged) - np.log(model)
    mean, se = mean_of_steps(data, gain)
    if mean >= -max(2 * se, _LESS_LIKELY):
        return (A110.finding("note", gain=mean, se=se),)
    return (A105.finding("issue", gain=mean, worse=-mean, se=se),)


def check_scale(data: Trajectories, ratio: Float) -> Finding | None:
    r"""A111: whether :math:`E[\hat\pi(A \mid s) / p] = 1`, as for any :math:`\hat\pi` if p are the true probabilities.

    The mean logarithm of p would not see it: probabilities that are all too large always look more likely.
    """
    by_unit = data.layout.sum_units(ratio - 1)
    off = float(by_unit.sum() / data.n_steps)
    se = float(np.sqrt((by_unit**2).sum()) / data.n_steps)
    if abs(off) < _ILL_SCALED[0] or abs(off) < 4 * se:
        return None
    level: Level = "issue" if abs(off) > _ILL_SCALED[1] else "caution"
    return A111.finding(level, "too-large" if off < 0 else "too-small", off=off, total=1 + off, se=se)


def mean_of_steps(data: Trajectories, values: Float) -> tuple[float, float]:
    """Mean over all steps, and its standard error clustered by trajectory, or by cluster where there are any."""
    totals = data.layout.sum_units(values)
    return float(totals.sum() / data.n_steps), cluster_se(totals, data.layout.pool(data.lengths))


def effective_by_step(e: Evidence) -> tuple[Int, Float]:
    r"""How many trajectories reach each step, and :math:`(\sum \rho_t)^2 / \sum \rho_t^2` of them, (T,) both."""
    total, square = e.sum_by_time(lambda part: part.weight), e.sum_by_time(lambda part: part.weight**2)
    worth = np.divide(total**2, square, out=np.zeros_like(total), where=square > 0)
    return e.layout.under_way, worth


def check_late_steps(e: Evidence) -> tuple[Finding, ...]:
    """A106: a step that a tenth of the trajectories reach, with a small effective sample size."""
    reached, worth = effective_by_step(e)
    matters = reached >= max(_REACHED * len(e), TOO_FEW)
    few = np.flatnonzero(matters & (worth < TESTABLE))
    if not len(few):
        return ()
    worst = int(few[worth[few].argmin()])
    facts = {"step": worst, "effective_n": float(worth[worst]), "reached": int(reached[worst])}
    return (A106.finding("caution", first=int(few[0]), **facts),)


def check_strata(e: Evidence, strata: Any) -> tuple[Finding, ...]:
    """A107: a stratum of the first decisions that is large in the log, with a small effective sample size."""
    if strata is None:
        return ()
    first = np.array([str(x) for x in np.asarray(strata)[e.layout.first]])
    found = []
    for name in np.unique(first):
        members = first == name
        worth = kish(e.final_weight[members])
        if members.mean() >= _LARGE and members.sum() >= TESTABLE > worth:
            found.append(A107.finding("caution", stratum=str(name), n=int(members.sum()), effective_n=worth))
    return tuple(found)


def check_fitted_share(fitted: int, steps: int, gain: float | None = None) -> tuple[Finding, ...]:
    """A112: a behaviour model fitted on so few of the decisions that its error may exceed the interval.

    ``gain`` is by how much the held-out log loss would be lower with all of them, where that is known.
    """
    share = fitted / steps
    if share >= _FITTED:
        return ()
    facts = {"share": share, "fitted": fitted, "steps": steps}
    if gain is None:
        return (A112.finding("caution", **facts),)
    return (A112.finding("caution", "curve", **facts, gain=gain),)


def check_width(gain: Estimate) -> tuple[Finding, ...]:
    """A108: an interval of width 0 although weights differ: fitted values that hold the outcome."""
    if gain.interval.width > 0 or not gain.effective_n < 0.999 * gain.n or not np.isfinite(gain.value):
        return ()
    return (A108.finding("issue"),)


def check_unseen(row: Estimate, *, worst: float, given: bool, at: float | None = None) -> Estimate:
    r"""D116: what an outcome that the log does not show would do to a value; the interval includes it where it can.

    An event that did not occur among n trajectories has a probability of up to :math:`-\log(1 - \mathrm{level}) / n`
    (the rule of three at 95%); with weights n is the effective sample size. With the worst plausible return given, the
    lower end is at most

    .. math:: \hat V + \frac{-\log(1 - \mathrm{level})}{n} (\mathrm{worst} - \hat V)

    Without it the worst return in the log serves, and the finding is a caution where such an event would move the
    value by more than the lower half of the interval. ``at`` is the value of the policy where the row is a difference.
    There only what the weights add counts, :math:`E[(w - 1) 1\{\mathrm{event}\}]`, so that the share is multiplied by
    the standard deviation of the weights, :math:`(n / n_{\mathrm{eff}} - 1)^{1/2}`, where that is below 1.
    """
    n, ends = row.effective_n, row.interval
    if not (n > 0 and np.isfinite([row.value, ends.low]).all()):
        return row
    share = min(1.0, -float(np.log1p(-ends.level)) / n)
    if at is not None:
        spread = round(row.n / n - 1, 9)  # equal weights come out a hair from equal
        share *= min(1.0, float(np.sqrt(max(spread, 0.0))))
    fall = share * max(0.0, (row.value if at is None else at) - worst)
    facts = {"effective_n": n, "share": share, "worst": worst, "fall": fall}
    if given:
        low = min(ends.low, row.value - fall)
        found = D116.finding("note", "given", by=ends.low - low, **facts)
        row = replace(row, interval=replace(ends, low=low))
    elif fall > row.value - ends.low:
        found = D116.finding("caution", "seen", "more", **facts)
    else:
        found = D116.finding("note", "seen", **facts)
    return replace(row, findings=(*row.findings, found))
