"""Checks on evidence: what must be known before a number is believed.

Each check takes an estimator and its evidence and returns a :class:`~caliope.results.Finding` or None; the
verdict of an estimate is the worst of them. The thresholds are those at which coverage was seen to break in
simulations with known truth: it is the absolute effective sample that decides, not its share of n.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import special

from caliope.estimators import Estimator, dm, dr, monte_carlo, ois, per_horizon, step_is, step_wis, wdr
from caliope.evidence import Evidence
from caliope.pareto import khat_threshold, smooth_tail
from caliope.ragged import Float, Int
from caliope.results import Finding
from caliope.uncertainty import difference, influence

ENOUGH, TOO_FEW = 200, 100  # effective trajectories: intervals are nominal above, broken below
MEAN_WEIGHT = (0.8, 1.25)  # of whole trajectories; should be 1
MAX_SHARE = 0.02  # of the weight, held by one trajectory
LOST = 0.05  # of the trajectories, in length groups without weight
LEAKED = (0.05, 0.2)  # in length groups too small to weigh anything: a caution, an issue
CUT_OFF = 0.05  # of the trajectories, above which a truncated return is no return
FEW_OUTCOMES = 10  # effective trajectories whose return is not the commonest one
REMOVED = (
    0.02,
    0.1,
)  # of the weight, by a transform: a caution; an issue for estimators that do not renormalise
TINY_GROUP = 5  # trajectories of one length
TESTABLE = 30  # effective trajectories below which a test of the weights means nothing


def effective_n(e: Evidence) -> float:
    r"""Number of equally weighted trajectories worth as much: :math:`(\sum_i \rho_i)^2 / \sum_i \rho_i^2`.

    Kish's effective sample size of the whole-trajectory weights: at least 1, at most n, and indifferent to a
    common factor. A realised value flatters when overlap is poor: the trajectories that would carry the
    weight were never logged. The mean weight, which should be 1, gives that away.
    """
    return kish(e.final_weight)


def kish(weights: Float) -> float:
    r""":math:`(\sum_i w_i)^2 / \sum_i w_i^2`; 0 where there is no weight."""
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square > 0 else 0.0


def implied_weights(estimator: Estimator, e: Evidence) -> Float:
    """Weight that an estimator gives to each whole trajectory, summing to 1, (n,); zeros where it has none."""
    if _unweighted(estimator):
        baseline = getattr(estimator, "baseline", None)
        return np.full(len(e), 1 / len(e)) if baseline is None else implied_weights(baseline, e)
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
    """Whose lengths a per-horizon estimator keeps; None for others, and for is, which per-horizon leaves as it is."""
    if _unwrapped(estimator) is ois:
        return None
    while True:
        if hasattr(estimator, "length_weights"):
            return str(estimator.length_weights)
        if not hasattr(estimator, "__wrapped__"):
            return None
        estimator = estimator.__wrapped__


def _unweighted(estimator: Estimator) -> bool:
    return _unwrapped(estimator) in (monte_carlo, dm)


def few_effective(estimator: Estimator, e: Evidence) -> Finding | None:
    """Too few effective trajectories for an interval to cover what it says."""
    n = round(kish(implied_weights(estimator, e)), 6)  # 200 equal weights may come out a hair below 200
    # An unweighted mean needs no more than the central limit theorem.
    enough, too_few = (30, 10) if _unweighted(estimator) else (ENOUGH, TOO_FEW)
    if n >= enough:
        return None
    message = f"the estimate rests on {n:.1f} effective trajectories of {len(e)}; intervals are "
    message += f"too short below {too_few}" if n < too_few else f"reliable from about {enough}"
    return Finding("D101", "issue" if n < too_few else "caution", message, {"effective_n": n, "n": len(e)})


def mean_weight(estimator: Estimator, e: Evidence) -> Finding | None:
    """Whole-trajectory weights whose mean is not 1: wrong behaviour probabilities, or weight that was never seen."""
    if _unweighted(estimator):
        return None
    with np.errstate(over="ignore"):
        rho = e.rho[e.layout.last]
        mean, error = float(rho.mean()), float(rho.std() / np.sqrt(len(rho)))
    # Two standard errors, although one log in twenty is so by chance: with known probabilities and little overlap the
    # intervals of such logs were seen to miss more often than those of others.
    off = abs(mean - 1) > max(2 * error, 0.05)
    if MEAN_WEIGHT[0] <= mean <= MEAN_WEIGHT[1] and not off:
        return None
    reasons = (
        "the behaviour probabilities are off, or this log has too few, or too many, of the trajectories that the "
        "target would produce"
    )
    removed = sum(note.numbers.get("removed", 0.0) for note in e.notes if note.code.startswith("W"))
    if removed > 0.0005 and mean < 1:  # it explains too little weight, never too much
        reasons = f"{removed:.1%} of it was removed, {reasons}"
    size = f"{mean:.3g} with a standard error of {error:.2g}"
    message = f"the mean weight of the trajectories is {size}, and should be 1: {reasons}"
    return Finding(
        "D102", "issue" if not 0.5 <= mean <= 2 else "caution", message, {"mean": mean, "se": error}
    )


def heavy_tail(estimator: Estimator, e: Evidence) -> Finding | None:
    """A tail so heavy, of the weights or of what they multiply, that averages hardly settle."""
    threshold = khat_threshold(len(e))
    weights = implied_weights(estimator, e)
    if _unwrapped(estimator) is dm or not weights.any():
        return None
    centred = weights * np.abs(e.returns - weights @ e.returns)
    shapes = {"the weights": smooth_tail(weights).k, "weight times return": smooth_tail(centred).k}
    what, k = max(shapes.items(), key=lambda item: -np.inf if np.isnan(item[1]) else item[1])
    if not k > threshold:
        return None
    message = f"the tail of {what} has Pareto shape {k:.2f}; averages settle too slowly above {threshold:.2f}"
    return Finding("D103", "issue" if k > 1 else "caution", message, {"k": k, "threshold": threshold})


def few_outcomes(estimator: Estimator, e: Evidence) -> Finding | None:
    """Hardly any trajectory whose return differs from the commonest: resampling does not see what is rare."""
    weights = implied_weights(estimator, e)
    if _unwrapped(estimator) is dm or not weights.any():
        return None
    values, which = np.unique(e.returns, return_inverse=True)
    share = np.bincount(which, weights=weights)
    common = int(share.argmax())
    others = weights[which != common]
    n = kish(others) if others.any() else 0.0
    if n >= FEW_OUTCOMES:
        return None
    message = f"only {n:.1f} effective trajectories return anything but {values[common]:.4g}; intervals are too short"
    return Finding("D111", "caution", message, {"effective_n": n})


def _uses_values(estimator: Estimator) -> bool:
    return _unwrapped(estimator) in (dm, dr, wdr) or _unwrapped(estimator).__name__ == "magic"


def cut_off(estimator: Estimator, e: Evidence) -> Finding | None:
    """Trajectories that the log cuts off, counted as if they had ended there."""
    if e.terminated is None or e.terminated.all() or _uses_values(estimator):
        return None
    share = float((~e.terminated).mean())
    message = f"{share:.1%} of the trajectories were cut off, and their returns are counted as if they had ended there"
    return Finding("D110", "issue" if share > CUT_OFF else "caution", message, {"share": share})


def beyond_the_log(estimator: Estimator, e: Evidence) -> Finding | None:
    r"""Trajectories that the log cuts off, gone on with by fitted values: nobody saw what came after.

    It is an issue where much of the discount is left at the cut, :math:`\sum_i w_i \gamma^{T_i}` over what was cut off.
    """
    if e.terminated is None or e.terminated.all() or not _uses_values(estimator):
        return None
    cut = ~e.terminated
    left = float((implied_weights(estimator, e) * e.gamma**e.layout.lengths)[cut].sum())
    share = float(cut.mean())
    message = (
        f"{share:.1%} of the trajectories were cut off, and what came after is taken from fitted values: nobody saw "
        "it, and no interval holds its error. Where the time limit belongs to the question, they ended: leave "
        "terminated out"
    )
    return Finding("D112", "issue" if left > CUT_OFF else "caution", message, {"share": share, "left": left})


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
        if len(members) < TINY_GROUP or 0 < kish(part.final_weight) < 2
    )
    share = leaked / len(e)
    if share <= LEAKED[0]:
        return None
    message = (
        f"{share:.1%} of the trajectories are in length groups of fewer than {TINY_GROUP} (or 2 effective) "
        "trajectories, where a per-horizon estimate is hardly more than what current practice achieved"
    )
    return Finding("D106", "issue" if share > LEAKED[1] else "caution", message, {"share": share})


def length_law(estimator: Estimator, e: Evidence) -> Finding | None:
    r"""A target that changes how long episodes last: per-horizon estimators then tend to another value.

    On trajectories of unequal length this is always a caution, since no test can show that lengths stay as they are.
    It is an issue where the estimate differs from the one with the target's own lengths by more than three standard
    errors. Reported beside: a Wald test of :math:`P_e(L) = P_b(L)` over at most five bins of lengths, with the
    covariance of :math:`\sum_i \rho_i 1\{L_i \in B\} / \sum_i \rho_i - n_B / n` from their influence.
    """
    if _by_length(estimator) != "behaviour" or e.layout.equal:
        return None
    message = "per-horizon estimates keep the lengths of the log, and are right only if the target does not change them"
    if effective_n(e) < TESTABLE:
        return Finding("D107", "caution", message)
    inner = _unwrapped(estimator)
    gap = difference(per_horizon(inner), per_horizon(inner, length_weights="evaluation"))
    z, size = _z(gap, e)
    p = _length_law_p(e)
    numbers = {"p": p, "z": z, "difference": size}
    message += f" (test of that: p = {p:.2g})"
    if abs(z) > 3:
        message += f"; with the target's own lengths the estimate moves by {-size:+.3g} (z = {-z:.1f})"
        return Finding("D107", "issue", message, numbers)
    return Finding("D107", "caution", message, numbers)


def _z(estimator: Estimator, e: Evidence) -> tuple[float, float]:
    """Value of an estimator over its standard error, and the value; 0 where it is no more than rounding."""
    size, u = float(estimator(e)), influence(estimator, e)
    error = float(np.sqrt((u**2).sum())) / len(e)
    scale = max(float(np.abs(e.returns).max()), float(np.abs(e.v).max()) if e.v is not None else 0.0)
    return (size / error if abs(size) > 1e-9 * scale and error > 0 else 0.0), size


def _length_law_p(e: Evidence) -> float:
    ratio = e.final_weight / e.final_weight.mean()
    inside = np.eye(5)[_length_bins(e.layout.lengths)]
    inside = inside[:, inside.any(axis=0)][:, :-1]  # shares sum to one: the last bin says nothing new
    if not inside.shape[1]:
        return 1.0
    target, logged = (ratio[:, None] * inside).mean(axis=0), inside.mean(axis=0)
    statistic, rank = _wald(target - logged, ratio[:, None] * (inside - target) - (inside - logged))
    return float(special.chdtrc(rank, statistic)) if rank else 1.0


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

    Two estimates of that error: the weighted corrections of :func:`~caliope.estimators.wdr`, and, needing no weights,
    the mean of :math:`\sum_t \gamma^t (r_t + \gamma \hat V_{t+1} - \hat Q_t)`, which is 0 for right values whoever
    acted. Where one is clearly not 0, and larger than the interval can hold, the values are wrong.
    """
    if _unwrapped(estimator) is not dm or e.v is None:
        return None
    error = float(e.v[e.layout.first].std()) / np.sqrt(len(e))
    tests = {"temporal differences": _temporal_difference(e)}
    if effective_n(e) >= TESTABLE:
        tests["weighted corrections"] = _z(difference(wdr, dm), e)
    what, (z, size) = max(tests.items(), key=lambda item: abs(item[1][0]))
    numbers = {"z": z, "correction": size}
    if abs(z) > 3 and abs(size) > 2 * error:
        message = f"the log refutes the fitted values: {what} of {size:+.3g} (z = {z:.1f}) should be 0"
        return Finding("D109", "issue", message, numbers)
    message = "the interval takes the fitted values as exact: their error is not included"
    return Finding("D109", "caution", message, numbers)


def _temporal_difference(e: Evidence) -> tuple[float, float]:
    v = e.v if e.v is not None else np.zeros(len(e.rewards))
    after = np.zeros(len(v))
    after[:-1] = v[1:]
    after[e.layout.last] = 0.0
    u = e.sum_steps(e.residual + e.gamma * after)
    error = float(u.std()) / np.sqrt(len(u))
    size = float(u.mean())
    return (size / error if abs(size) > 1e-9 * float(np.abs(v).max()) and error > 0 else 0.0), size


Check = Callable[[Estimator, Evidence], Finding | None]
CHECKS: tuple[Check, ...] = (
    few_effective,
    mean_weight,
    heavy_tail,
    few_outcomes,
    cut_off,
    beyond_the_log,
    dominated,
    lost_lengths,
    leaked_lengths,
    length_law,
    ragged_step_wis,
    values_alone,
    estimated_behaviour,
)


def undefined(value: float, e: Evidence) -> Finding | None:
    """No finite value at all: every weight is zero, or the weights left the range of a float."""
    if np.isfinite(value):
        return None
    message = "no value: not one logged trajectory has any weight under the target"
    if np.isinf(e.rho).any():
        message = "no finite value: the weights left the range of a float"
    return Finding("D100", "issue", message)


def examine(estimator: Estimator, e: Evidence) -> tuple[Finding, ...]:
    """Everything that the checks find, after what was noted when the evidence was gathered.

    Of a difference both sides are examined.
    """
    found = [note for n in e.notes if (note := _as_it_concerns(n, estimator)) is not None]
    found += [finding for check in CHECKS if (finding := check(estimator, e)) is not None]
    baseline = getattr(estimator, "baseline", None)
    if baseline is not None:
        found += [finding for finding in examine(baseline, e) if finding not in found]
    return tuple(found)


def _as_it_concerns(note: Finding, estimator: Estimator) -> Finding | None:
    """A note of the evidence, as far as it touches an estimator."""
    inner = _unwrapped(estimator)
    uses_values = inner in (dm, dr, wdr) or inner.__name__ == "magic"
    if (
        inner is monte_carlo
        or (inner is dm and note.code[0] in "BW")
        or (note.code[0] == "V" and not uses_values)
    ):
        return None
    removed = note.numbers.get("removed", 0.0) if note.code[0] == "W" else 0.0
    if removed > REMOVED[1] and inner in (ois, step_is, dr):
        return replace(note, level="issue")
    return replace(note, level="caution") if removed > REMOVED[0] else note
