r"""Transforms of importance weights: clipping, shrinking, Pareto smoothing, normalising.

Each takes evidence and returns evidence. Where its weights are products of ratios, those of the result multiply to the
new weights; where they are given, the result has given weights too. So transforms compose with each other and with
every estimator. A threshold that depends on the data is held fixed when trajectories are resampled.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from caliope._evidence import Evidence, refuse_counts
from caliope._ragged import Bool, Float, Ragged
from caliope._under_way import FEW_UNDER_WAY
from caliope.checks import W101, W102, W103, W104, W107, Check, Finding
from caliope.weights._pareto import smooth_tail


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
    if e.log_weight is not None:
        raise ValueError(
            "clip_ratios needs weights that are products of ratios, and these were given (log_weight): cap them with "
            "clip_weights, or cap the ratios first."
        )
    clipped = int((e.log_ratio > np.log(at)).sum())
    note = W101.finding("note", at=at, clipped=clipped, steps=len(e.log_ratio))
    refuse_counts(e)
    return e.changed(log_ratio=np.minimum(e.log_ratio, np.log(at)), notes=(*e.notes, note))


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
    capped = e.per_step(lambda part: np.minimum(part.log_rho, log_cap[part.layout.time]))
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
    """Return evidence with other weights, and a finding on what changed."""
    facts |= compare_weights(e, log_rho)
    return set_weights(e, log_rho, check.finding("note", *variants, **facts))


def set_weights(e: Evidence, log_rho: Float, note: Finding) -> Evidence:
    """Return evidence with other weights: given ones stay given, others become ratios that multiply to them."""
    refuse_counts(e)
    if e.log_weight is not None:
        return e.changed(log_weight=log_rho, notes=(*e.notes, note))
    log_ratio = e.per_step(lambda part: _ratios(part.entries_of(log_rho), part.layout))
    return e.changed(log_ratio=log_ratio, notes=(*e.notes, note))


def _ratios(log_rho: Float, layout: Ragged) -> Float:
    """Logarithms of the ratios that multiply to some weights, (N,)."""
    before = layout.before(log_rho, 0.0)
    # Once zero, a weight stays zero: -inf minus -inf would be nan, and any finite ratio keeps it there.
    return np.where(np.isneginf(before), 0.0, log_rho - np.where(np.isneginf(before), 0.0, before))


def compare_weights(e: Evidence, log_rho: Float) -> dict[str, float]:
    """Say how other weights differ: trajectories whose weight changed, and the share of the total removed."""
    last, old = e.per_trajectory(lambda part: part.entries_of(log_rho)[part.layout.last]), e.log_last
    changed = sum(
        part.layout.count_with(_moved(part.log_rho, part.entries_of(log_rho))) for part in e.parts()
    )
    top = old.max()
    kept = float(np.exp(last - top).sum() / np.exp(old - top).sum()) if top > -np.inf else float("nan")
    return {"changed": changed, "removed": 1 - kept, "total": kept - 1, "n": len(e)}


def _moved(old: Float, new: Float) -> Bool:
    finite = np.isfinite(old)
    return np.abs(np.where(finite, new, 0.0) - np.where(finite, old, 0.0)) > 1e-12


def normalise_under_way(e: Evidence) -> Evidence:
    r"""Scale the ratios of each step so that the trajectories still under way keep their weight.

    .. math:: \lambda_t \leftarrow \lambda_t \frac{\sum_{i: T_i > t} w^{(i)}_{t-1}}
        {\sum_{i: T_i > t} w^{(i)}_{t-1} \lambda^{(i)}_t}, \qquad w_t = w_{t-1} \lambda_t, \quad w_{-1} = 1

    Steps that fewer than 50 trajectories reach share one factor. The weights of all trajectories, those that have ended
    with their last weight, then sum to n. These are the weights of :func:`~caliope.estimators.weight_factors` as
    evidence, so that they compose with other transforms. The factors are held fixed when trajectories are resampled;
    :func:`~caliope.estimators.wdr_under_way` computes them anew.

    When it breaks: an error of the ratios that differs among the trajectories under way stays. The mean weight is 1 by
    construction, and no longer shows ratios that are wrong: judge it before.

    Parameters
    ----------
    e : Evidence
        The log.

    Returns
    -------
    Evidence
        The same with scaled ratios, and finding W107 in ``notes``.

    Examples
    --------
    >>> e = Evidence([0, 0], np.log([1, 3]), offsets=[0, 1, 2])
    >>> normalise_under_way(e).rho.round(6).tolist()
    [0.5, 1.5]
    """
    refuse_counts(e)
    log_mean = _mean_ratios(e)
    shift = -np.cumsum(log_mean)
    with np.errstate(over="ignore"):
        facts = {
            "mean": float(np.exp(e.log_last).mean()),
            "after": float(np.exp(e.log_last + shift[e.layout.lengths - 1]).mean()),
            "largest": float(np.exp(np.abs(log_mean).max())),
        }
    notes = (*e.notes, W107.finding("note", **facts))
    if e.log_weight is not None:
        return e.changed(
            log_weight=e.per_step(lambda part: part.log_rho + shift[part.layout.time]), notes=notes
        )
    log_ratio = e.per_step(lambda part: part.log_ratio - log_mean[part.layout.time])
    return e.changed(log_ratio=log_ratio, notes=notes)


def _mean_ratios(e: Evidence) -> Float:
    """Logarithm of the mean ratio of those under way at each step, late steps together; 0 where there is no weight."""
    under_way, had = e.layout.under_way, _log_sum(e, lambda part: part.layout.before(part.log_rho, 0.0))
    known, has = np.isfinite(had), _log_sum(e, lambda part: part.log_rho)
    log_mean = np.where(known, has - np.where(known, had, 0.0), -np.inf)
    late = under_way < FEW_UNDER_WAY
    if (late & known).any():
        size = under_way[late & known]
        log_mean[late] = np.logaddexp.reduce(log_mean[late & known] + np.log(size)) - np.log(size.sum())
    return np.where(np.isfinite(log_mean), log_mean, 0.0)


def _log_sum(e: Evidence, x: Callable[[Evidence], Float]) -> Float:
    """Logarithm of the sum of exp(x) at each step over those under way; -inf where there is nothing to sum."""
    top = np.full(e.layout.horizon, -np.inf)
    for part in e.parts():
        np.maximum.at(top, part.layout.time, x(part))
    top[np.isneginf(top)] = 0.0
    with np.errstate(divide="ignore"):
        return np.asarray(top + np.log(e.sum_by_time(lambda part: np.exp(x(part) - top[part.layout.time]))))


def _check_positive(name: str, x: float) -> None:
    if not x > 0:
        raise ValueError(f"{name} must be positive, got {x}.")
