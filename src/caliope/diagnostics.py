"""Checks on evidence: what must be known before a number is believed.

Each check takes an estimator and its evidence and returns a :class:`~caliope.results.Finding` or None; the
verdict of an estimate is the worst of them. The thresholds are those at which coverage was seen to break in
simulations with known truth: it is the absolute effective sample that decides, not its share of n.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import special

from caliope.estimators import Estimator, dm, monte_carlo, step_wis, wdr
from caliope.evidence import Evidence
from caliope.pareto import khat_threshold, smooth_tail
from caliope.ragged import Float, Int
from caliope.results import Finding
from caliope.uncertainty import difference, influence

ENOUGH, TOO_FEW = 200, 100  # effective trajectories: intervals are nominal above, broken below
MEAN_WEIGHT = (0.8, 1.25)  # of whole trajectories; should be 1
MAX_SHARE = 0.02  # of the weight, held by one trajectory
LOST, LEAKED = 0.05, 0.05  # of the trajectories, in length groups without weight, or too small to weigh
TINY_GROUP = 5  # trajectories of one length
TESTABLE = 30  # effective trajectories below which a test of the weights means nothing


def effective_n(e: Evidence) -> float:
    r"""Number of equally weighted trajectories worth as much: :math:`(\sum_i \rho_i)^2 / \sum_i \rho_i^2`.

    Kish's effective sample size of the whole-trajectory weights: at least 1, at most n, and indifferent to a
    common factor. A realised value flatters when overlap is poor: the trajectories that would carry the
    weight were never logged. The mean weight, which should be 1, gives that away.
    """
    return _kish(e.final_weight)


def _kish(weights: Float) -> float:
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square > 0 else 0.0


def implied_weights(estimator: Estimator, e: Evidence) -> Float:
    """Weight that an estimator gives to each whole trajectory, summing to 1, (n,); zeros where it has none."""
    inner = _unwrapped(estimator)
    if inner in (monte_carlo, dm):
        return np.full(len(e), 1 / len(e))
    weights = e.final_weight
    if _by_length(estimator) == "behaviour":
        weights = np.zeros(len(e))
        for members, part in e.by_length():
            total = part.final_weight.sum()
            weights[members] = part.final_weight / total * len(members) if total > 0 else 0.0
    total = weights.sum()
    return weights / total if total > 0 else weights


def _unwrapped(estimator: Estimator) -> Estimator:
    while hasattr(estimator, "__wrapped__"):
        estimator = estimator.__wrapped__
    return estimator


def _by_length(estimator: Estimator) -> str | None:
    while True:
        if hasattr(estimator, "length_weights"):
            return str(estimator.length_weights)
        if not hasattr(estimator, "__wrapped__"):
            return None
        estimator = estimator.__wrapped__


def few_effective(estimator: Estimator, e: Evidence) -> Finding | None:
    """Too few effective trajectories for an interval to cover what it says."""
    n = round(_kish(implied_weights(estimator, e)), 6)  # 200 equal weights may come out a hair below 200
    if n >= ENOUGH:
        return None
    if _unwrapped(estimator) in (monte_carlo, dm) and n >= 30:
        return None  # an unweighted mean needs no more than the central limit theorem
    message = f"the estimate rests on {n:.1f} effective trajectories of {len(e)}; intervals are "
    message += f"too short below {TOO_FEW}" if n < TOO_FEW else f"reliable from about {ENOUGH}"
    return Finding("D101", "issue" if n < TOO_FEW else "caution", message, {"effective_n": n, "n": len(e)})


def mean_weight(estimator: Estimator, e: Evidence) -> Finding | None:
    """Whole-trajectory weights whose mean is not 1: wrong behaviour probabilities, or weight that was never seen."""
    if _unwrapped(estimator) in (monte_carlo, dm):
        return None
    with np.errstate(over="ignore"):
        mean = float(e.rho[e.layout.last].mean())
    if MEAN_WEIGHT[0] <= mean <= MEAN_WEIGHT[1]:
        return None
    message = (
        f"the mean weight of the trajectories is {mean:.3g}, and should be 1: the behaviour probabilities are off, "
        "or the trajectories that the target would produce are missing from the log"
    )
    return Finding("D102", "issue" if not 0.5 <= mean <= 2 else "caution", message, {"mean": mean})


def heavy_tail(estimator: Estimator, e: Evidence) -> Finding | None:
    """A weight distribution with so heavy a tail that averages of it hardly settle."""
    if _unwrapped(estimator) in (monte_carlo, dm):
        return None
    k, threshold = smooth_tail(e.final_weight).k, khat_threshold(len(e))
    if not k > threshold:
        return None
    message = (
        f"the tail of the weights has Pareto shape {k:.2f}; averages settle too slowly above {threshold:.2f}"
    )
    return Finding("D103", "issue" if k > 1 else "caution", message, {"k": k, "threshold": threshold})


def dominated(estimator: Estimator, e: Evidence) -> Finding | None:
    """One trajectory that holds much of the weight."""
    weights = implied_weights(estimator, e)
    top = int(weights.argmax())
    share = float(weights[top])
    if share <= max(MAX_SHARE, 1.01 / len(e)):
        return None
    message = f"one trajectory (number {top}) holds {share:.1%} of the weight"
    return Finding("D104", "caution", message, {"share": share, "trajectory": top})


def lost_lengths(estimator: Estimator, e: Evidence) -> Finding | None:
    """Length groups of a per-horizon estimator in which no trajectory has any weight."""
    if _by_length(estimator) != "behaviour" or not e.final_weight.any():
        return None
    lost = sum(len(members) for members, part in e.by_length() if not part.final_weight.any())
    if not lost:
        return None
    share = lost / len(e)
    message = (
        f"{lost} of {len(e)} trajectories ({share:.1%}) have lengths at which the target has no weight at all; "
        "these lengths are left out"
    )
    return Finding("D105", "issue" if share > LOST else "caution", message, {"share": share})


def leaked_lengths(estimator: Estimator, e: Evidence) -> Finding | None:
    """Length groups so small that a per-horizon estimator returns what current practice achieved there."""
    if _by_length(estimator) != "behaviour":
        return None
    leaked = sum(
        len(members)
        for members, part in e.by_length()
        if len(members) < TINY_GROUP or 0 < _kish(part.final_weight) < 2
    )
    share = leaked / len(e)
    if share <= LEAKED:
        return None
    message = (
        f"{share:.1%} of the trajectories are in length groups of fewer than {TINY_GROUP} (or 2 effective) "
        "trajectories, where a per-horizon estimate is hardly more than what current practice achieved"
    )
    return Finding("D106", "caution", message, {"share": share})


def length_law(estimator: Estimator, e: Evidence) -> Finding | None:
    r"""A target that changes how long episodes last: per-horizon estimators then tend to another value.

    A Wald test of :math:`P_e(L) = P_b(L)` over at most five bins of lengths, with the covariance of the
    differences :math:`\sum_i \rho_i 1\{L_i \in B\} / \sum_i \rho_i - n_B / n` from their influence.
    """
    if _by_length(estimator) != "behaviour" or e.layout.equal or effective_n(e) < TESTABLE:
        return None
    ratio = e.final_weight / e.final_weight.mean()
    inside = np.eye(5)[_length_bins(e.layout.lengths)]
    inside = inside[:, inside.any(axis=0)][:, :-1]  # shares sum to one: the last bin says nothing new
    if not inside.shape[1]:
        return None
    target, logged = (ratio[:, None] * inside).mean(axis=0), inside.mean(axis=0)
    u = ratio[:, None] * (inside - target) - (inside - logged)
    statistic, rank = _wald(target - logged, u)
    p = float(special.chdtrc(rank, statistic)) if rank else 1.0
    if p >= 0.01:
        return None
    shift = float(((ratio - 1) * e.layout.lengths).mean())
    message = (
        f"the target changes how long episodes last (p = {p:.2g}, mean length {shift:+.2f}): per-horizon estimates "
        "then tend to a value that is not the target's"
    )
    return Finding("D107", "caution", message, {"p": p, "mean_length_change": shift})


def _length_bins(lengths: Int) -> Int:
    return np.searchsorted(np.unique(np.quantile(lengths, [0.2, 0.4, 0.6, 0.8])), lengths, side="left")


def _wald(difference: Float, u: Float) -> tuple[float, int]:
    covariance = np.atleast_2d(np.cov(u, rowvar=False)) / len(u)
    rank = int(np.linalg.matrix_rank(covariance))
    return float(difference @ np.linalg.pinv(covariance) @ difference), rank


def ragged_step_wis(estimator: Estimator, e: Evidence) -> Finding | None:
    """Stepwise weighting of trajectories of unequal length, which a constant in the reward can move about."""
    if _unwrapped(estimator) is not step_wis or _by_length(estimator) or e.layout.equal:
        return None
    message = (
        "trajectories differ in length, and step_wis does not shift with a constant added to final rewards; "
        "prefer wdr with a baseline, or wis"
    )
    return Finding("D108", "caution", message)


def estimated_behaviour(estimator: Estimator, e: Evidence) -> Finding | None:
    """Note that the behaviour policy was fitted, and that no interval here knows it."""
    if e.behaviour_known or _unwrapped(estimator) in (monte_carlo, dm):
        return None
    message = "intervals take behaviour probabilities as exact: the error of estimating them is not included"
    return Finding("B101", "note", message)


def values_alone(estimator: Estimator, e: Evidence) -> Finding | None:
    r"""The direct method, whose interval knows nothing of the error of its values, and whether the log refutes them.

    The weighted corrections of :func:`~caliope.estimators.wdr` estimate that error; where they differ from zero by
    more than three standard errors, the values are wrong.
    """
    if _unwrapped(estimator) is not dm:
        return None
    gap = difference(wdr, dm)
    size, u = float(gap(e)), influence(gap, e)
    z = size / float(np.sqrt((u**2).sum()) / len(e)) if u.any() else 0.0
    if np.isfinite(z) and abs(z) > 3 and effective_n(e) >= TESTABLE:
        message = f"the log refutes the fitted values: its corrections move the estimate by {size:+.3g} (z = {z:.1f})"
        return Finding("D109", "issue", message, {"correction": size, "z": z})
    message = "the interval takes the fitted values as exact: their error is not included, and no weight checks them"
    return Finding("D109", "caution", message, {"correction": size, "z": z})


Check = Callable[[Estimator, Evidence], Finding | None]
CHECKS: tuple[Check, ...] = (
    few_effective,
    mean_weight,
    heavy_tail,
    dominated,
    lost_lengths,
    leaked_lengths,
    length_law,
    ragged_step_wis,
    values_alone,
    estimated_behaviour,
)


def undefined(value: float) -> Finding | None:
    """No finite value at all: every weight is zero, or the weights left the range of a float."""
    if np.isfinite(value):
        return None
    message = (
        "no value: not one logged trajectory has any weight under the target"
        if np.isnan(value)
        else "no finite value: the weights left the range of a float"
    )
    return Finding("D100", "issue", message)


def examine(estimator: Estimator, e: Evidence) -> tuple[Finding, ...]:
    """Everything that the checks find, after what was noted when the evidence was gathered."""
    inner = _unwrapped(estimator)
    notes = () if inner is monte_carlo else tuple(n for n in e.notes if inner is not dm or n.code[0] == "S")
    return notes + tuple(finding for check in CHECKS if (finding := check(estimator, e)) is not None)
