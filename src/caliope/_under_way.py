r"""Weights normalised among the trajectories still under way, and the estimators that use them.

A fitted behaviour policy often has a mean ratio above 1 at every step. The mean weight then grows with the length, and
long trajectories count too much. Dividing by the sum over all trajectories cannot repair that, since ended ones keep
their last weight. Here the ratios of each step are scaled so that the trajectories under way keep the weight that they
had before it:

.. math:: \lambda_t \leftarrow \lambda_t \frac{\sum_{i: T_i > t} w^{(i)}_{t-1}}
    {\sum_{i: T_i > t} w^{(i)}_{t-1} \lambda^{(i)}_t}, \qquad w_t = w_{t-1} \lambda_t, \quad w_{-1} = 1

Where ratios are right the factor tends to 1. On trajectories of equal length nothing changes but the usual
self-normalisation. The weights of all trajectories, ended ones included, sum to n at every step, but for late steps
that share a factor; the estimators divide by that sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope._evidence import Evidence
from caliope._formulas import ratio, require_values
from caliope._traits import estimator

FEW_UNDER_WAY = 50  # trajectories: steps that fewer reach share one factor


def weight_factors(e: Evidence, *, few: int = FEW_UNDER_WAY) -> Any:
    r"""Compute the factor of the weights at each step, :math:`F_t = \prod_{j \le t} f_j`, on the scale of ``weight``.

    With :math:`\bar\lambda_t = \sum \rho_t / \sum \rho_{t-1}` over the trajectories under way at t,
    :math:`f_t = 1 / \bar\lambda_t`. Steps that fewer than ``few`` trajectories of the log reach share the mean of
    their :math:`\bar\lambda_t`, by the number under way: alone, a few trajectories would be normalised to themselves.

    Parameters
    ----------
    e : Evidence
        Rewards and log-ratios.
    few : int
        Trajectories under way below which steps are pooled; 0 pools none.

    Returns
    -------
    (..., T)
        ``F_t`` times the divisor of ``Evidence.weight``, so that ``factor[..., t] * e.weight`` are the weights.

    Examples
    --------
    >>> e = Evidence([0, 0, 0], np.log([2, 0.5, 3]), offsets=[0, 2, 3])
    >>> weight_factors(e, few=0).round(6).tolist()  # mean ratios of 2.5 and 0.5, weights divided by 3 and 3
    [1.2, 2.4]
    """
    under_way = e.total_by_time(np.ones(len(e.rewards)))
    # On the scale of weight: the mean ratio times exp(log_scale_{t-1} - log_scale_t).
    scaled = ratio(e.total_by_time(e.weight), e.total_by_time(e.weight_before))
    late = e.layout.under_way < few
    if late.any():
        with np.errstate(invalid="ignore"):  # both are -inf where no trajectory has weight
            step = np.exp(np.diff(e.log_scale, prepend=0.0)[late])
        mean = scaled[..., late] * step
        pooled = ratio((under_way[..., late] * mean).sum(axis=-1), under_way[..., late].sum(axis=-1))
        scaled = scaled.copy()
        scaled[..., late] = pooled[..., None] / step
    return np.cumprod(ratio(1.0, scaled), axis=-1)


def _total_weight(e: Evidence, factor: Any) -> Any:
    """Sum the weights of all trajectories at each step, (..., T); one that has ended keeps its last weight."""
    last = np.zeros(len(e.rewards))
    last[e.layout.last] = 1.0
    ended = np.cumsum(factor * e.total_by_time(e.weight * last), axis=-1)
    before = np.concatenate([np.zeros_like(ended[..., :1]), ended[..., :-1]], axis=-1)
    return factor * e.total_by_time(e.weight) + before


@estimator(
    label="Weighted importance sampling, normalised among those under way", uses={"weights"}, normalised=True
)
def wis_under_way(e: Evidence) -> Any:
    r"""Estimate the value by importance sampling with weights normalised among the trajectories under way.

    .. math:: \hat V = \frac{\sum_i w^{(i)}_{T_i - 1} G_i}{\sum_i w^{(i)}_{T_i - 1}}

    with the weights of :func:`~caliope.estimators.weight_factors`, which are computed anew for every row of counts.
    Where trajectories have equal lengths it is :func:`~caliope.estimators.wis`.

    When it breaks: it is consistent where the ratios are right. Where they are not, it removes the part of the error
    that is common to all trajectories under way at a step, and no other.

    Parameters
    ----------
    e : Evidence
        Rewards and log-ratios.

    Returns
    -------
    float or numpy.ndarray
        The value, nan where every weight of a step is 0; one per row of counts.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3], gamma=0.5)
    >>> float(wis_under_way(e)) < 5
    True
    """
    returns = np.zeros(len(e.rewards))
    returns[e.layout.last] = e.returns
    factor = weight_factors(e)
    numerator = (factor * e.total_by_time(e.weight * returns)).sum(axis=-1)
    return ratio(numerator, _total_weight(e, factor)[..., -1])


@estimator(
    label="Weighted doubly robust, normalised among those under way",
    uses={"weights", "values"},
    normalised=True,
    by_step=True,
)
def wdr_under_way(e: Evidence) -> Any:
    r"""Estimate the value by the doubly robust sum with weights normalised among the trajectories under way.

    .. math:: \hat V = \sum_t \gamma^t \left[
        \frac{\sum_i w^{(i)}_t \big( r^{(i)}_t - \hat Q^{(i)}_t \big)}{\sum_i w^{(i)}_t}
        + \frac{\sum_i w^{(i)}_{t-1} \hat V^{(i)}_t}{\sum_i w^{(i)}_{t-1}} \right]

    with the weights of :func:`~caliope.estimators.weight_factors`, which are computed anew for every row of counts.
    Where trajectories have equal lengths it is :func:`~caliope.estimators.wdr`.

    Parameters
    ----------
    e : Evidence
        The log, with ``q`` and ``v``.

    Returns
    -------
    float or numpy.ndarray
        The value, nan where every weight of a step is 0; one per row of counts.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    >>> bool(np.isfinite(wdr_under_way(e)))
    True
    """
    values = require_values(e)
    factor = weight_factors(e)
    total = _total_weight(e, factor)
    before = np.concatenate([np.ones_like(factor[..., :1]), factor[..., :-1]], axis=-1)
    total_before = np.concatenate([np.asarray(e.n)[..., None], total[..., :-1]], axis=-1)
    correction = ratio(factor * e.total_by_time(e.weight * e.residual), total)
    baseline = ratio(before * e.total_by_time(e.weight_before * values), total_before)
    return (e.discount * (correction + baseline)).sum(axis=-1)
