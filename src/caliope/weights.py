r"""Transforms of importance weights: clipping, shrinking, Pareto smoothing, calibrated ratios.

Each takes evidence and returns evidence whose ratios multiply to the new weights, so that it composes with
every estimator and transform. A threshold that depends on the data is held fixed when trajectories are resampled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope._evidence import Evidence, refuse_counts
from caliope._gather import gather, target_probabilities
from caliope._policies import practice
from caliope._ragged import Float, Int, at_actions
from caliope._traits import Traits
from caliope._trajectories import Trajectories
from caliope.checks import W101, W102, W103, W104, W105, Check

__all__ = ["calibrate_ratios", "clip_ratios", "clip_weights", "effective_n", "kish"]
__all__ += ["shrink_weights", "smooth_weights"]


def effective_n(e: Evidence) -> float:
    r"""Compute the effective sample size of the trajectory weights, :math:`(\sum_i \rho_i)^2 / \sum_i \rho_i^2`.

    It lies between 1 and n. When it breaks: with poor overlap it is too large, because the trajectories that
    would carry the weight were never logged. The mean weight, which should be 1, shows that.

    Parameters
    ----------
    e : Evidence
        The log; its log-ratios alone are read.

    Returns
    -------
    float
        The effective sample size; 0 where there is no weight.

    Examples
    --------
    >>> effective_n(Evidence([0, 0], np.log([1, 3]), offsets=[0, 1, 2]))
    1.6
    """
    return kish(e.final_weight)


def kish(weights: Float) -> float:
    r"""Compute Kish's effective sample size of any weights, :math:`(\sum_i w_i)^2 / \sum_i w_i^2`.

    Parameters
    ----------
    weights : (n,)
        Non-negative weights.

    Returns
    -------
    float
        The effective sample size; 0 where there is no weight.

    Examples
    --------
    >>> kish(np.array([1.0, 1.0, 0.0]))
    2.0
    """
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square > 0 else 0.0


def weigh_trajectories(traits: Traits, e: Evidence) -> Float:
    """Compute the weight that an estimator with such traits gives to each whole trajectory, (n,).

    Weights sum to 1, or are 0 where no trajectory has any. Without weights of its own, those of what the
    estimator subtracts are taken.
    """
    if not traits.weighted:
        others = [other for other in traits.against if other.weighted]
        return weigh_trajectories(others[0], e) if others else np.full(len(e), 1 / len(e))
    weights = e.final_weight
    if traits.lengths == "behaviour":
        weights = np.zeros(len(e))
        for members, part in e.by_length():
            total = part.final_weight.sum()
            weights[members] = part.final_weight / total * len(members) if total > 0 else 0.0
    total = weights.sum()
    return weights / total if total > 0 else weights


def clip_ratios(e: Evidence, at: float) -> Evidence:
    r"""Cap the ratio of every single step, :math:`\lambda_t \leftarrow \min(\lambda_t, c)`.

    The product of capped ratios is not capped: over T steps it may reach :math:`c^T`.

    Parameters
    ----------
    e : Evidence
        The log.
    at : float
        Cap c, positive.

    Returns
    -------
    Evidence
        The same with capped ratios, and finding W101 in ``notes``.

    Examples
    --------
    >>> e = Evidence([0, 0], np.log([1, 9]), offsets=[0, 1, 2])
    >>> clip_ratios(e, 3).rho.round(6).tolist()
    [1.0, 3.0]
    """
    _check_positive("at", at)
    clipped = int((e.log_ratio > np.log(at)).sum())
    note = W101.finding("note", at=at, clipped=clipped, steps=len(e.log_ratio))
    refuse_counts(e)
    return replace(e, log_ratio=np.minimum(e.log_ratio, np.log(at)), notes=(*e.notes, note))


def clip_weights(e: Evidence, at: float | None = None) -> Evidence:
    r"""Cap the cumulative weight at every step, :math:`\rho_t \leftarrow \min(\rho_t, c_t)` (Ionides 2008).

    By default :math:`c_t = \bar\rho_t \max(\sqrt n / 3, 1)`, a cap relative to the mean weight at that step over
    all trajectories (those that have ended keep their last weight), so that a constant factor in all weights
    changes nothing. The same capped weights serve every term of the doubly robust family.

    The bias of a capped :func:`~caliope.estimators.ois` is at most the weight removed times the largest
    absolute return.

    Parameters
    ----------
    e : Evidence
        The log.
    at : float, optional
        A fixed cap c for all steps.

    Returns
    -------
    Evidence
        The same with capped weights, and finding W102 in ``notes``.

    Examples
    --------
    >>> e = Evidence([0, 0], np.log([1, 9]), offsets=[0, 1, 2])
    >>> clip_weights(e).rho.round(6).tolist()
    [1.0, 5.0]
    """
    if at is not None:
        _check_positive("at", at)
        log_cap, variant, facts = np.full(e.layout.horizon, np.log(at)), "fixed", {"at": at}
    else:
        multiple = max(np.sqrt(len(e)) / 3, 1.0)
        mean = np.asarray(e.with_counts(None).weight_by_time()) / len(e)
        with np.errstate(divide="ignore"):
            log_cap = e.log_scale + np.log(mean) + np.log(multiple)
        variant, facts = "relative", {"multiple": multiple}
    capped = np.minimum(e.log_rho, log_cap[e.layout.time])
    return _with_log_rho(e, capped, W102, variant, **facts)


def shrink_weights(e: Evidence, strength: float) -> Evidence:
    r"""Shrink large weights, :math:`\rho_t \leftarrow \lambda \rho_t / (\rho_t^2 + \lambda)`.

    A large :math:`\lambda` (``strength``) leaves the weights alone; as it falls, weights beyond
    :math:`\sqrt\lambda` are pulled back towards zero (Su, Dimakopoulou, Krishnamurthy & Dudik 2020).

    Parameters
    ----------
    e : Evidence
        The log.
    strength : float
        :math:`\lambda`, positive.

    Returns
    -------
    Evidence
        The same with smaller weights, and finding W103 in ``notes``.

    Examples
    --------
    >>> e = Evidence([0, 0], np.log([1, 9]), offsets=[0, 1, 2])
    >>> shrink_weights(e, 81).rho.round(3).tolist()
    [0.988, 4.5]
    """
    _check_positive("strength", strength)
    # In logs: log w - log(1 + w^2 / strength), which neither overflows nor meets 0 / 0.
    shrunk = e.log_rho - np.logaddexp(0.0, 2 * e.log_rho - np.log(strength))
    return _with_log_rho(e, shrunk, W103, strength=strength)


def smooth_weights(e: Evidence) -> Evidence:
    r"""Smooth the largest weights of each step by a fitted Pareto tail.

    At every t the weights of all trajectories are ranked, those that have ended with their last weight, and the
    tail of those still under way is smoothed. The largest shape :math:`\hat k` is recorded; above about 0.7
    the smoothed weights are unreliable too (Vehtari, Simpson, Gelman, Yao & Gabry 2024, JMLR 25).

    Parameters
    ----------
    e : Evidence
        The log.

    Returns
    -------
    Evidence
        The same with smoothed weights, and finding W104 in ``notes``.

    Examples
    --------
    >>> log_weights = np.random.default_rng(0).normal(size=100)
    >>> e = Evidence(np.zeros(100), log_weights, offsets=np.arange(101))
    >>> bool(smooth_weights(e).rho.max() <= e.rho.max())
    True
    """
    smoothed = e.log_rho.copy()
    current = np.zeros(len(e))
    shapes = []
    for t in range(e.layout.horizon):
        alive = np.flatnonzero(e.layout.lengths > t)
        rows = e.layout.first[alive] + t
        current[alive] = e.log_rho[rows]
        top = current.max()
        if top == -np.inf:
            break
        weights = np.exp(current - top)
        tail = smooth_tail(weights)
        shapes.append(tail.k)
        # Only what was smoothed: outside the tail a weight may be too small for a float, and is not zero.
        moved = alive[tail.weights[alive] != weights[alive]]
        current[moved] = np.log(tail.weights[moved]) + top
        smoothed[rows] = current[alive]
    worst = float(np.nanmax(shapes)) if np.isfinite(shapes).any() else float("nan")
    return _with_log_rho(e, smoothed, W104, k=worst)


def _with_log_rho(e: Evidence, log_rho: Float, check: Check, *variants: str, **facts: float) -> Evidence:
    """Return evidence whose ratios multiply to the given weights, with a finding on what changed."""
    refuse_counts(e)
    before = e.layout.before(log_rho, 0.0)
    # Once zero, a weight stays zero: -inf minus -inf would be nan, and any finite ratio keeps it there.
    log_ratio = np.where(np.isneginf(before), 0.0, log_rho - np.where(np.isneginf(before), 0.0, before))
    last, old = log_rho[e.layout.last], e.log_rho[e.layout.last]
    finite = np.isfinite(e.log_rho)
    moved = np.abs(np.where(finite, log_rho, 0.0) - np.where(finite, e.log_rho, 0.0)) > 1e-12
    changed = len(np.unique(e.layout.owner[moved]))
    top = old.max()
    kept = float(np.exp(last - top).sum() / np.exp(old - top).sum()) if top > -np.inf else float("nan")
    facts |= {"changed": changed, "removed": 1 - kept, "total": kept - 1, "n": len(e)}
    note = check.finding("note", *variants, **facts)
    return replace(e, log_ratio=log_ratio, notes=(*e.notes, note))


def _check_positive(name: str, x: float) -> None:
    if not x > 0:
        raise ValueError(f"{name} must be positive, got {x}.")


def fit_pareto(excess: Float) -> tuple[float, float]:
    r"""Fit the shape k and scale :math:`\sigma` of a generalised Pareto distribution to positive excesses.

    The quasi-Bayesian profile estimate of Zhang & Stephens (2009), with the weak prior of Vehtari et al. (2024,
    appendix G) that pulls k towards 0.5 with the strength of ten observations.
    """
    x = np.sort(excess)
    n = len(x)
    m = 30 + int(np.sqrt(n))
    quartile = x[int(n / 4 + 0.5) - 1]
    theta = 1 / x[-1] + (1 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3 * quartile)
    k = np.log1p(-theta[:, None] * x).mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        profile = n * (np.log(-theta / k) - k - 1)
    profile = np.where(np.isfinite(profile), profile, -np.inf)
    weight = np.exp(profile - profile.max())
    posterior = float((theta * weight).sum() / weight.sum())
    shape = float(np.log1p(-posterior * x).mean())
    return (n * shape + 10 * 0.5) / (n + 10), -shape / posterior


def tail_size(n: int) -> int:
    """Return how many of n weights make the tail: a fifth, at most three times the root."""
    return int(np.ceil(min(0.2 * n, 3 * np.sqrt(n))))


@dataclass(frozen=True)
class Tail:
    """Weights (n,) with a smoothed tail, and its shape k: nan where it is too short or flat to be fitted."""

    weights: Float
    k: float


def smooth_tail(weights: Float) -> Tail:
    """Replace the largest weights by the expected order statistics of a Pareto tail fitted to them.

    No weight exceeds the largest original one. A tail of fewer than five weights, or without spread, stays.
    """
    positive = np.flatnonzero(weights > 0)
    size = tail_size(len(positive))
    order = positive[np.argsort(weights[positive], kind="stable")]
    if size < 5:
        return Tail(weights, float("nan"))
    cutoff = weights[order[-size - 1]]
    # What ties with the cut-off has no excess.
    tail = order[-size:][weights[order[-size:]] > cutoff]
    if len(tail) < 5:
        return Tail(weights, float("nan"))
    k, sigma = fit_pareto(weights[tail] - cutoff)
    p = (np.arange(1, len(tail) + 1) - 0.5) / len(tail)
    quantile = -np.log1p(-p) * sigma if abs(k) < 1e-12 else np.expm1(-k * np.log1p(-p)) * sigma / k
    smoothed = weights.copy()
    smoothed[tail] = np.minimum(cutoff + quantile, weights[tail[-1]])
    return Tail(smoothed, k)


def khat_threshold(n: int) -> float:
    """Return the largest k at which n weights still suffice: min(1 - 1 / log10(n), 0.7), Vehtari et al. (2024)."""
    return min(1 - 1 / np.log10(n), 0.7) if n > 10 else 0.0


def calibrate_ratios(
    data: Trajectories,
    target: Any,
    behaviour: Any,
    *,
    gamma: float = 1.0,
    folds: int = 2,
    rng: int | np.random.Generator,
) -> Evidence:
    r"""Replace ratios by an increasing function of them that matches the target on held-out trajectories.

    The estimated ratio :math:`x = \pi_e(a \mid s) / \hat\pi_b(a \mid s)` is only a score. The increasing function
    g is fitted so that the logged actions weighted by g resemble the actions of the target,

    .. math:: \min_g \sum_t \Big( \tfrac12 g(x_{t, a_t})^2 - \sum_a \pi_e(a \mid s_t)\, g(x_{t, a}) \Big)

    on one part of the trajectories and applied to the other; rewards are not used.

    When it breaks: with a fitted behaviour policy only a part of a true contrast is recovered, and intervals cover
    too rarely, while diagnostics look good. Estimates from it therefore carry finding W105, "do not trust".

    Parameters
    ----------
    data : Trajectories
        The log.
    target, behaviour : Policy, or array of shape (N, A)
        The two policies, as in :func:`~caliope.gather`. Cross-fit the behaviour policy.
    gamma : float
        Discount in [0, 1].
    folds : int
        Number of parts of the log.
    rng : int or Generator
        Seed of the folds.

    Returns
    -------
    Evidence
        Evidence with calibrated ratios, and finding W105 in ``notes``.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> data = ward.simulate(50, rng=0)
    >>> state = data.states[:, 0].astype(int)
    >>> calibrate_ratios(data, ward.EARLIER[state], ward.PRACTICE[state], rng=0).notes[-1].code
    'W105'
    """
    evidence = gather(data, target, behaviour, gamma=gamma)
    target_probs = target_probabilities(data, target, behaviour)
    behaviour_probs = target_probabilities(data, practice, behaviour)
    # Infinite where the behaviour policy gives probability 0 to an action of the target.
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(target_probs > 0, target_probs / behaviour_probs, 0.0)
    # Not exp(log_ratio): a last bit below its own score, a ratio would fall into the cell beneath.
    logged = at_actions(scores, data.actions)
    ratio = np.empty(data.n_steps)
    for fit, held_out in data.folds(folds, rng=rng):
        levels, values = fit_isotonic_ratio(scores[fit], target_probs[fit], logged[fit])
        ratio[held_out] = values[_cell(levels, logged[held_out])]
    with np.errstate(divide="ignore"):
        return replace(evidence, log_ratio=np.log(ratio), notes=(*evidence.notes, W105.finding("issue")))


def fit_isotonic_ratio(scores: Float, target_probs: Float, logged: Float) -> tuple[Float, Float]:
    """Fit an increasing function of the score, as levels and values; between two levels the lower one holds.

    ``scores`` and ``target_probs`` are (N, A), ``logged`` is the score of each logged action, (N,).
    """
    from sklearn.isotonic import IsotonicRegression  # the rest of the module needs NumPy alone

    levels, counts = np.unique(logged, return_counts=True)
    mass = np.bincount(_cell(levels, scores.ravel()), weights=target_probs.ravel(), minlength=len(levels))
    # With m logged actions and a target mass w in a cell, m g^2 / 2 - w g is least at w / m.
    values = IsotonicRegression().fit_transform(np.arange(len(levels)), mass / counts, sample_weight=counts)
    return levels, np.asarray(values)


def _cell(levels: Float, scores: Float) -> Int:
    """Number the last level not above each score; 0 for scores below all levels."""
    return np.maximum(np.searchsorted(levels, scores, side="right") - 1, 0)
