r"""Weight transforms: trade a little bias for a lot of variance, and say so.

Each takes evidence and returns evidence whose ratios multiply to the new weights, so that it composes with
every estimator and with the other transforms. What it did is in ``notes``. A threshold that is read off the
data is read once, and held fixed when trajectories are resampled.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from caliope.evidence import Evidence, refuse_counts
from caliope.pareto import smooth_tail
from caliope.ragged import Float
from caliope.results import Finding


def clip_ratios(e: Evidence, at: float) -> Evidence:
    r"""Cap the ratio of every single step, :math:`\lambda_t \leftarrow \min(\lambda_t, c)`.

    The product of capped ratios is not capped: over T steps it may reach :math:`c^T`.
    """
    _check_positive("at", at)
    clipped = int((e.log_ratio > np.log(at)).sum())
    note = Finding(
        "W101",
        "note",
        f"the ratios of {clipped} of {len(e.log_ratio)} steps were capped at {at:g}",
        {"at": at, "clipped": clipped},
    )
    refuse_counts(e)
    return replace(e, log_ratio=np.minimum(e.log_ratio, np.log(at)), notes=(*e.notes, note))


def clip_weights(e: Evidence, at: float | None = None) -> Evidence:
    r"""Cap the cumulative weight at every step, :math:`\rho_t \leftarrow \min(\rho_t, c_t)`.

    By default :math:`c_t = \bar\rho_t \max(\sqrt n / 3, 1)`, a cap relative to the mean weight at that step over
    all trajectories (those that have ended keep their last weight), so that a constant factor in all weights
    changes nothing. The same capped weights serve every term of the doubly robust family.

    The bias of a capped :func:`~caliope.estimators.ois` is at most the weight removed times the largest
    absolute return.

    References
    ----------
    Ionides (2008), truncated importance sampling.
    """
    if at is not None:
        _check_positive("at", at)
        log_cap, numbers = np.full(e.layout.horizon, np.log(at)), {"at": at}
        what = f"{at:g}"
    else:
        multiple = max(np.sqrt(len(e)) / 3, 1.0)
        mean = np.asarray(e.with_counts(None).weight_by_time()) / len(e)
        with np.errstate(divide="ignore"):
            log_cap = e.log_scale + np.log(mean) + np.log(multiple)
        numbers = {"multiple": multiple}
        what = f"{multiple:.3g} times the mean weight of the step"
    capped = np.minimum(e.log_rho, log_cap[e.layout.time])
    return _with_log_rho(e, capped, "W102", f"capped at {what}", **numbers)


def shrink_weights(e: Evidence, strength: float) -> Evidence:
    r"""Shrink large weights, :math:`\rho_t \leftarrow \lambda \rho_t / (\rho_t^2 + \lambda)`.

    A large :math:`\lambda` (``strength``) leaves the weights alone; as it falls, weights beyond
    :math:`\sqrt\lambda` are pulled back towards zero.

    References
    ----------
    Su, Dimakopoulou, Krishnamurthy & Dudik (2020), optimistic shrinkage.
    """
    _check_positive("strength", strength)
    # In logs: log w - log(1 + w^2 / strength), which neither overflows nor meets 0 / 0.
    shrunk = e.log_rho - np.logaddexp(0.0, 2 * e.log_rho - np.log(strength))
    return _with_log_rho(e, shrunk, "W103", f"shrunk with strength {strength:g}")


def smooth_weights(e: Evidence) -> Evidence:
    r"""Pareto smoothing: replace the largest weights of each step by those a fitted tail would give.

    At every t the weights of all trajectories are ranked, those that have ended with their last weight, and the
    tail of those still under way is smoothed. The largest shape :math:`\hat k` is recorded; above about 0.7
    the smoothed weights are not to be trusted either.

    References
    ----------
    Vehtari, Simpson, Gelman, Yao & Gabry (2024), JMLR 25.
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
    return _with_log_rho(e, smoothed, "W104", f"Pareto-smoothed, largest k {worst:.2f}", k=worst)


def _with_log_rho(e: Evidence, log_rho: Float, code: str, how: str, **numbers: float) -> Evidence:
    """Evidence whose ratios multiply to the given weights, with a note on what changed."""
    refuse_counts(e)
    before = np.empty_like(log_rho)
    before[1:] = log_rho[:-1]
    before[e.layout.first] = 0.0
    # Once zero, a weight stays zero: -inf minus -inf would be nan, and any finite ratio keeps it there.
    log_ratio = np.where(np.isneginf(before), 0.0, log_rho - np.where(np.isneginf(before), 0.0, before))
    last, old = log_rho[e.layout.last], e.log_rho[e.layout.last]
    finite = np.isfinite(e.log_rho)
    moved = np.abs(np.where(finite, log_rho, 0.0) - np.where(finite, e.log_rho, 0.0)) > 1e-12
    changed = len(np.unique(e.layout.owner[moved]))
    top = old.max()
    kept = float(np.exp(last - top).sum() / np.exp(old - top).sum()) if top > -np.inf else float("nan")
    note = Finding(
        code,
        "note",
        f"cumulative weights were {how}: {changed} of {len(e)} trajectories changed, {1 - kept:.1%} of their "
        "total weight removed",
        {"changed": changed, "removed": 1 - kept, **numbers},
    )
    return replace(e, log_ratio=log_ratio, notes=(*e.notes, note))


def _check_positive(name: str, x: float) -> None:
    if not x > 0:
        raise ValueError(f"{name} must be positive, got {x}.")
