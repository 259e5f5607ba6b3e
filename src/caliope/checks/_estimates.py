"""Checks of an estimate on its evidence: weights, lengths, cut-offs, fitted values.

Each check takes the traits of an estimator and its evidence and returns a :class:`~caliope.Finding` or
None; the verdict of an estimate is the worst of them. The thresholds are those at which coverage was seen to break in
simulations with known truth: it is the absolute effective sample that decides, not its share of n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import special

from caliope._evidence import Evidence
from caliope._formulas import dm, wdr
from caliope._ragged import Float, first_of_largest
from caliope._traits import Estimator, Traits, core_of, traits_of
from caliope.checks import (
    B101,
    D100,
    D101,
    D102,
    D104,
    D105,
    D106,
    D107,
    D108,
    D109,
    D110,
    D111,
    D112,
    D113,
    D114,
    D117,
    Finding,
    Level,
)
from caliope.checks._clusters import check_clusters
from caliope.checks._counting import REMOVED, count_once, removed_weight
from caliope.checks._tails import check_tail
from caliope.estimators import per_horizon
from caliope.uncertainty._intervals import difference, influence
from caliope.weights._effective import effective_n, kish, weigh_trajectories

__all__ = ["CHECKS", "TESTABLE", "TOO_FEW", "check_value", "effective_n", "examine", "kish"]

# Effective trajectories: intervals are nominal above, broken below.
ENOUGH, TOO_FEW = 200, 100
# The same for an unweighted mean, which needs no more than the central limit theorem.
UNWEIGHTED = (30, 10)
# Mean weight of whole trajectories; it should be 1.
MEAN_WEIGHT = (0.8, 1.25)
# Standard errors by which it may be off: with known probabilities, with fitted ones, whose own error is about as large.
OFF = (2.5, 4)
# Share of the weight held by one trajectory.
MAX_SHARE = 0.02
# Share of the trajectories in length groups without weight.
LOST = 0.05
# Share of the trajectories in length groups too small to weigh anything: a caution, an issue.
LEAKED = (0.05, 0.2)
# Share of the trajectories above which a truncated return is no return.
CUT_OFF = 0.05
# Effective trajectories whose return is not the commonest one.
FEW_OUTCOMES = 10
# Trajectories of one length.
TINY_GROUP = 5
# Effective trajectories below which a test of the weights means nothing.
TESTABLE = 30


def _may_read_values(traits: Traits, e: Evidence) -> bool:
    """Whether fitted values enter; what declares nothing may read them where there are any."""
    return traits.valued and (traits.declared or e.v is not None)


def _check_effective_n(traits: Traits, e: Evidence) -> Finding | None:
    """Too few effective trajectories for an interval to cover what it says."""
    # 200 equal weights may come out a hair below 200.
    n = round(kish(weigh_trajectories(traits, e)), 6)
    enough, too_few = (ENOUGH, TOO_FEW) if traits.weighted else UNWEIGHTED
    if n >= enough:
        return None
    if n < too_few:
        return D101.finding("issue", "too-few", effective_n=n, n=len(e), limit=too_few)
    # Between the two, intervals of weighted estimates were seen to cover as they should.
    level: Level = "note" if traits.weighted else "caution"
    return D101.finding(level, "few", effective_n=n, n=len(e), limit=enough)


def _check_mean_weight(traits: Traits, e: Evidence) -> Finding | None:
    """Whole-trajectory weights whose mean is not 1: wrong behaviour probabilities, or weight that was never seen.

    Weight that a transform removed explains a mean between 1 minus its share and 1. Given weights belong to one step
    and not to whole trajectories; whether marginalised ones balance is seen at each step (D119).
    """
    if not traits.weighted or e.log_weight is not None:
        return None
    with np.errstate(over="ignore"):
        mean, error = float(e.last_rho.mean()), e.layout.se_of_mean(e.last_rho)
    removed = max(sum(removed_weight(note) for note in e.notes), 0.0)
    off = mean - min(max(mean, 1 - removed), 1.0)
    clear = abs(off) > max(OFF[1] * error, 0.05)
    if not e.behaviour_known and traits.normalised and e.layout.equal:
        # A fitted policy is noisy, and the mean of 1 / p above 1 / p. At equal lengths that is nearly a common factor,
        # which normalising removes; what follows the state is found by the negative control.
        clear &= not MEAN_WEIGHT[0] - 1 <= off <= MEAN_WEIGHT[1] - 1
    # With known probabilities and little overlap, intervals were seen to miss more often from 2.5 standard errors on.
    mild = abs(off) > max(OFF[0] * error, 0.05) or not MEAN_WEIGHT[0] - 1 <= off <= MEAN_WEIGHT[1] - 1
    extreme = not 0.5 <= mean <= 2
    if not mild and not extreme:
        return None
    level: Level = "issue" if extreme else "caution" if clear or e.behaviour_known else "note"
    facts = {"mean": mean, "se": error, "off": off}
    # It explains too little weight, never too much.
    if removed > 0.0005 and mean < 1:
        return D102.finding(level, "removed", removed=removed, **facts)
    return D102.finding(level, "plain", **facts)


def _check_outcomes(traits: Traits, e: Evidence) -> Finding | None:
    """Hardly any trajectory whose return differs from the commonest: resampling does not see what is rare."""
    weights = weigh_trajectories(traits, e)
    if not traits.averages_returns or not weights.any():
        return None
    values, which = np.unique(e.returns, return_inverse=True)
    share = np.bincount(which, weights=weights)
    common = int(share.argmax())
    others = weights[which != common]
    n = round(kish(others), 6)
    if n >= FEW_OUTCOMES:
        return None
    return D111.finding("caution", effective_n=n, common=float(values[common]))


def _check_cut_off(traits: Traits, e: Evidence) -> Finding | None:
    """Trajectories that the log cuts off, counted as if they had ended there."""
    if e.terminated is None or e.terminated.all() or (traits.declared and traits.valued):
        return None
    share = float((~e.terminated).mean())
    return D110.finding("issue" if share > CUT_OFF else "caution", share=share)


def _check_beyond_the_log(traits: Traits, e: Evidence) -> Finding | None:
    r"""Trajectories that the log cuts off, continued by fitted values: what came after was not seen.

    It is an issue where much of the discount is left at the cut, :math:`\sum_i w_i \gamma^{T_i}` over what was cut off.
    """
    if e.terminated is None or e.terminated.all() or not _may_read_values(traits, e):
        return None
    cut = ~e.terminated
    left = float((weigh_trajectories(traits, e) * e.gamma**e.layout.lengths)[cut].sum())
    share = float(cut.mean())
    return D112.finding("issue" if left > CUT_OFF else "caution", share=share, left=left)


def _check_largest_weight(traits: Traits, e: Evidence) -> Finding | None:
    """One trajectory that holds much of the weight."""
    weights = weigh_trajectories(traits, e)
    top = first_of_largest(weights)
    share = float(weights[top])
    if share <= max(MAX_SHARE, 1.01 / len(e)):
        return None
    return D104.finding("caution", share=share, trajectory=top)


def _check_lost_lengths(traits: Traits, e: Evidence) -> Finding | None:
    """Length groups of a per-horizon estimator in which no trajectory has any weight."""
    if traits.lengths != "behaviour" or not e.final_weight.any():
        return None
    lost = sum(len(weights) for _, weights in e.final_weight_by_length() if not weights.any())
    if not lost:
        return None
    share = lost / len(e)
    return D105.finding("issue" if share > LOST else "caution", share=share, lost=lost, n=len(e))


def _check_small_lengths(traits: Traits, e: Evidence) -> Finding | None:
    """Length groups so small that a per-horizon estimator returns what current practice achieved there."""
    if traits.lengths != "behaviour":
        return None
    leaked = sum(
        len(weights)
        for _, weights in e.final_weight_by_length()
        if len(weights) < TINY_GROUP or 0 < kish(weights) < 2
    )
    share = leaked / len(e)
    if share <= LEAKED[0]:
        return None
    return D106.finding("issue" if share > LEAKED[1] else "caution", share=share, size=TINY_GROUP)


def _check_length_law(traits: Traits, e: Evidence) -> Finding | None:
    r"""A target that changes how long trajectories last: per-horizon estimators then tend to another value.

    On trajectories of unequal length this is always a caution, since no test can show that lengths stay as they are.
    It is an issue where the estimate differs from the one with the target's own lengths by more than three standard
    errors. Reported beside: a Wald test of :math:`P_e(L) = P_b(L)` over at most five bins of lengths, with the
    covariance of :math:`\sum_i \rho_i 1\{L_i \in B\} / \sum_i \rho_i - n_B / n` from their influence.
    """
    if traits.lengths != "behaviour" or e.layout.equal:
        return None
    if effective_n(e) < TESTABLE or traits.core is None:
        return D107.finding("caution")
    gap = difference(per_horizon(traits.core), per_horizon(traits.core, length_weights="evaluation"))
    z, size = _standardise(gap, e)
    p = _test_length_law(e)
    facts = {"p": p, "z": z, "difference": size}
    if abs(z) > 3:
        return D107.finding("issue", "tested", "moved", moved=-size, moved_z=-z, **facts)
    return D107.finding("caution", "tested", **facts)


def _standardise(estimator: Estimator, e: Evidence) -> tuple[float, float]:
    """Divide the value of an estimator by its standard error, 0 where it is no more than rounding; and the value."""
    size, u = float(estimator(e)), influence(estimator, e)
    error = float(np.sqrt((e.layout.pool(u) ** 2).sum())) / len(e)
    return (size / error if abs(size) > 1e-9 * e.largest and error > 0 else 0.0), size


def _test_length_law(e: Evidence) -> float:
    ratio = e.final_weight / e.final_weight.mean()
    edges = np.unique(np.quantile(e.layout.lengths, [0.2, 0.4, 0.6, 0.8]))
    inside = np.eye(5)[np.searchsorted(edges, e.layout.lengths, side="left")]
    # Shares sum to one: the last bin says nothing new.
    inside = inside[:, inside.any(axis=0)][:, :-1]
    if not inside.shape[1]:
        return 1.0
    target, logged = (ratio[:, None] * inside).mean(axis=0), inside.mean(axis=0)
    u = ratio[:, None] * (inside - target) - (inside - logged)
    statistic, rank = _test_wald(target - logged, e.layout.pool(u), len(e))
    return float(special.chdtrc(rank, statistic)) if rank else 1.0


def _test_wald(difference: Float, u: Float, n: int) -> tuple[float, int]:
    covariance = np.atleast_2d(np.cov(u, rowvar=False)) * len(u) / n**2
    rank = int(np.linalg.matrix_rank(covariance))
    return float(difference @ np.linalg.pinv(covariance) @ difference), rank


def _check_stepwise_ratio(traits: Traits, e: Evidence) -> Finding | None:
    """Stepwise weighting of trajectories of unequal length, which a constant in the reward can move about."""
    stepwise_ratio = traits.weighted and traits.normalised and traits.by_step and not traits.valued
    if not stepwise_ratio or traits.lengths or e.layout.equal:
        return None
    return D108.finding("caution")


def _check_behaviour(traits: Traits, e: Evidence) -> Finding | None:
    """Note that the behaviour policy was fitted, and that no interval here knows it."""
    if e.behaviour_known or not traits.weighted:
        return None
    return B101.finding("note")


def _check_difference(traits: Traits, e: Evidence) -> Finding | None:
    """Fitted weights minus an unweighted mean: the error of the fit does not cancel, and the interval omits it.

    Fitted values correct it to first order, and so does a target that moves with the fitted practice.
    """
    if e.behaviour_known or e.relative:
        return None
    fitted = any(side.weighted and not side.valued for side in traits.sides)
    plain = any(not side.weighted and not side.valued for side in traits.sides)
    return D117.finding("caution") if fitted and plain else None


def _check_declaration(traits: Traits, e: Evidence) -> Finding | None:
    """An estimator that declares nothing: no check of its construction was made, and it is never trusted."""
    return None if traits.declared else D114.finding("caution")


def _check_values(traits: Traits, e: Evidence) -> Finding | None:
    r"""The direct method, whose interval knows nothing of the error of its values, and whether the log refutes them.

    Two estimates of that error: the weighted corrections of :func:`~caliope.estimators.wdr`, and, needing no weights,
    the mean of :math:`\sum_t \gamma^t (r_t + \gamma \hat V_{t+1} - \hat Q_t)`, which is 0 for right values under
    any behaviour policy. Where one is clearly not 0, and larger than the interval can hold, the values are wrong.
    """
    # What declares nothing may read the values alone.
    if e.v is None or not traits.valued or (traits.weighted and traits.declared):
        return None
    error = e.layout.se_of_mean(e.first_v)
    tests = {"temporal difference": _test_temporal_differences(e)}
    if effective_n(e) >= TESTABLE:
        tests["weighted correction"] = _standardise(difference(wdr, dm), e)
    what, (z, size) = max(tests.items(), key=lambda item: abs(item[1][0]))
    if abs(z) > 3 and abs(size) > 2 * error:
        return D109.finding("issue", "refuted", z=z, correction=size, what=what)
    return D109.finding("caution", "exact", z=z, correction=size)


def _test_temporal_differences(e: Evidence) -> tuple[float, float]:
    u = e.per_trajectory(lambda part: part.sum_steps(part.temporal_difference))
    error = e.layout.se_of_mean(u)
    size = float(u.mean())
    return (size / error if abs(size) > 1e-9 * e.largest and error > 0 else 0.0), size


Check = Callable[[Traits, Evidence], Finding | None]
CHECKS: tuple[Check, ...] = (
    _check_effective_n,
    _check_mean_weight,
    check_tail,
    _check_outcomes,
    _check_cut_off,
    _check_beyond_the_log,
    _check_largest_weight,
    _check_lost_lengths,
    _check_small_lengths,
    _check_length_law,
    _check_stepwise_ratio,
    _check_values,
    _check_behaviour,
    _check_difference,
    _check_declaration,
)


def check_value(value: float, e: Evidence) -> Finding | None:
    """Check that there is a finite value: not so if every weight is 0, or weights left the range of a float.

    Parameters
    ----------
    value : float
        What an estimator made of the evidence.
    e : Evidence
        The log.

    Returns
    -------
    Finding or None
        An issue where the value is not finite.

    Examples
    --------
    >>> check_value(float("nan"), Evidence([1, 1], [-np.inf, -np.inf], offsets=[0, 1, 2])).level
    'issue'
    """
    if np.isfinite(value):
        return None
    return D113.finding("issue") if np.isinf(e.rho).any() else D100.finding("issue")


def examine(estimator: Estimator, e: Evidence) -> tuple[Finding, ...]:
    """Run every check on an estimate, after what was noted when the evidence was gathered.

    The checks read the traits of the estimator and nothing else of it; see :func:`~caliope.estimators.traits_of`.
    Of a difference both sides are examined.

    Parameters
    ----------
    estimator : callable
        A function of evidence.
    e : Evidence
        The log.

    Returns
    -------
    tuple of Finding
        The verdict of an estimate is the worst of them.

    Examples
    --------
    >>> e = Evidence(np.ones(300), np.zeros(300), offsets=np.arange(301), behaviour_known=True)
    >>> [finding.code for finding in examine(wdr, e)]  # every return is 1
    ['D111']
    """
    found: list[Finding] = []
    for side in replace(traits_of(estimator), core=core_of(estimator)).sides:
        notes = [note for n in e.notes if (note := _apply_note(n, side)) is not None]
        notes += [finding for check in CHECKS if (finding := check(side, e)) is not None]
        found += [finding for finding in notes if finding not in found]
    return count_once([*found, *check_clusters(traits_of(estimator), e)])


def _apply_note(note: Finding, traits: Traits) -> Finding | None:
    """Return a note of the evidence as far as it concerns an estimator."""
    if not note.concerns & traits.uses:
        return None
    # Marginalised weights (W108), where there was anything to regress.
    if "regressed" in note.variants and traits.declared and not traits.by_step:
        return replace(note, variants=(*note.variants, "whole")).at("issue")
    removed = removed_weight(note)
    if removed > REMOVED[1] and traits.weighted and not traits.normalised:
        return note.at("issue")
    return note.at("caution") if removed > REMOVED[1] else note
