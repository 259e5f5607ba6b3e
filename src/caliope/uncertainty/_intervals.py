"""Confidence intervals of any estimator: bootstrap, BCa, jackknife, delta method, paired differences.

The unit is the whole trajectory, or cluster. The estimator is evaluated under other counts, so that every ratio is
recomputed. Weights are held fixed: the error of fitted behaviour is left out. :func:`~caliope.estimate` runs checks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import special

from caliope._counts import LeaveOneOutCounts
from caliope._evidence import Evidence, refuse_counts
from caliope._formulas import monte_carlo
from caliope._ragged import Float
from caliope._results import Interval
from caliope._traced import differentiate
from caliope._traits import Estimator, core_of, label, name_of, traits_of
from caliope.checks import U103, U106, U107, Finding
from caliope.uncertainty._dependence import leave_clusters_out, stretch_for_clusters
from caliope.uncertainty._resampling import (
    CELLS,
    Scheme,
    draws,
    evaluate,
    failed_draws,
    find_dominant,
    scheme_name,
    with_replacement,
)


def bootstrap(
    estimator: Estimator,
    e: Evidence,
    *,
    n_draws: int = 1000,
    level: float = 0.95,
    scheme: Scheme = with_replacement,
    rng: int | np.random.Generator,
) -> Interval:
    """Compute a percentile interval from resampled trajectories.

    When it breaks: coverage is nominal with about 200 effective trajectories of ordinary returns. Below 100, and
    for rare outcomes or heavy tails, the interval is too short. For per-horizon estimators with small length
    groups ``scheme=bayesian`` is the better choice.

    Parameters
    ----------
    estimator : callable
        Function from evidence to a value.
    e : Evidence
        The log, without counts.
    n_draws : int
        Number of resamples.
    level : float
        Confidence level.
    scheme : callable
        How trajectories are resampled: ``with_replacement`` or ``bayesian``.
    rng : int or Generator
        Seed of the resamples.

    Returns
    -------
    Interval
        Quantiles of the draws; undefined (nan) with finding U102 where too many draws failed.

    References
    ----------
    Efron & Tibshirani (1993), chapter 13.

    Examples
    --------
    >>> from caliope import wis
    >>> rng = np.random.default_rng(0)
    >>> log_ratio = np.log(rng.choice([0.5, 1.5], size=200))
    >>> e = Evidence(rng.random(200), log_ratio, offsets=np.arange(201))
    >>> print(bootstrap(wis, e, rng=0))
    [0.495, 0.592] at 95%, bootstrap, percentile
    """
    values = draws(estimator, e, n_draws=n_draws, scheme=scheme, rng=rng)
    method = scheme_name(scheme, clustered=e.cluster is not None)
    return stretch_for_clusters(percentile_interval(values, level=level, method=method), estimator, e)


def percentile_interval(values: Float, *, level: float, method: str) -> Interval:
    """Make the interval between the outer quantiles of draws; undefined draws are counted and reported."""
    check_level(level)
    findings = failed_draws(values)
    if findings and findings[0].level == "issue":
        return Interval(np.nan, np.nan, level, method, findings)
    tail = (1 - level) / 2
    low, high = np.quantile(values[np.isfinite(values)], [tail, 1 - tail])
    if len(values) * tail < 5:
        findings += (U106.finding("caution", draws=len(values), level=level),)
    return Interval(float(low), float(high), level, method, findings)


def bca(
    estimator: Estimator,
    e: Evidence,
    *,
    n_draws: int = 2000,
    level: float = 0.95,
    rng: int | np.random.Generator,
) -> Interval:
    r"""Compute the bias-corrected and accelerated bootstrap interval.

    The quantiles are moved by the median bias :math:`z_0` of the draws and by the acceleration
    :math:`a = \sum_i U_i^3 / 6 (\sum_i U_i^2)^{3/2}` of the leave-one-out values
    :math:`U_i = \bar\theta - \theta_{(i)}`.

    Parameters
    ----------
    estimator : callable
        Function from evidence to a value.
    e : Evidence
        The log, without counts.
    n_draws : int
        Number of resamples.
    level : float
        Confidence level.
    rng : int or Generator
        Seed of the resamples.

    Returns
    -------
    Interval
        Moved quantiles of the draws; undefined (nan) with a finding where they cannot be computed.

    References
    ----------
    Efron (1987). Efron & Tibshirani (1993), chapter 14.

    Examples
    --------
    >>> from caliope import wis
    >>> rng = np.random.default_rng(0)
    >>> log_ratio = np.log(rng.choice([0.5, 1.5], size=200))
    >>> e = Evidence(rng.random(200), log_ratio, offsets=np.arange(201))
    >>> print(bca(wis, e, rng=0))
    [0.499, 0.590] at 95%, bootstrap, BCa
    """
    check_level(level)
    values = draws(estimator, e, n_draws=n_draws, rng=rng)
    method = "bootstrap, BCa"
    findings = failed_draws(values)
    u = leave_one_out(estimator, e) if e.cluster is None else leave_clusters_out(estimator, e)
    u = u.mean() - u
    if (findings and findings[0].level == "issue") or not np.isfinite(u).all():
        return Interval(np.nan, np.nan, level, method, findings or (_undefined_without_one(u),))
    values = values[np.isfinite(values)]
    if np.ptp(values) == 0:
        return Interval(float(values[0]), float(values[0]), level, method, findings)
    point = float(estimator(e))
    below = (np.mean(values < point) + np.mean(values <= point)) / 2
    z0 = special.ndtri(np.clip(below, 1 / (2 * len(values)), 1 - 1 / (2 * len(values))))
    a = (u**3).sum() / (6 * (u**2).sum() ** 1.5)
    z = special.ndtri([(1 - level) / 2, (1 + level) / 2])
    share = special.ndtr(z0 + (z0 + z) / (1 - a * (z0 + z)))
    if not np.isfinite(share).all():
        return Interval(np.nan, np.nan, level, method, (*findings, U107.finding("issue")))
    low, high = np.quantile(values, share)
    return stretch_for_clusters(Interval(float(low), float(high), level, method, findings), estimator, e)


def _undefined_without_one(u: Float) -> Finding:
    bad = int((~np.isfinite(u)).sum())
    return U103.finding("issue", "one" if bad == 1 else "several", trajectories=bad)


def leave_one_out(estimator: Estimator, e: Evidence) -> Float:
    """Evaluate an estimator without each trajectory in turn.

    Parameters
    ----------
    estimator : callable
        Function from evidence to a value.
    e : Evidence
        The log, without counts.

    Returns
    -------
    (n,)
        Value without trajectory i.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.zeros(3), offsets=[0, 1, 2, 3])
    >>> leave_one_out(monte_carlo, e).tolist()
    [4.0, 3.0, 2.0]
    """
    refuse_counts(e)
    if len(e) < 2:
        raise ValueError("leaving one out needs at least 2 trajectories.")
    values = _change_one_by_one(estimator, e, -1.0).real
    # Taking away what dominates a sum leaves rounding errors: it is summed again. One side of a difference may
    # normalise inside each length, and so may what declares nothing.
    traits = traits_of(estimator)
    by_length = traits.core is not None or traits.lengths is not None or not traits.declared
    dominant = find_dominant(e, by_length=by_length)
    for which in np.array_split(dominant, max(1, len(dominant) * len(e) // CELLS)):
        if len(which):
            counts = np.ones((len(which), len(e)))
            counts[np.arange(len(which)), which] = 0.0
            values[which] = evaluate(estimator, e, counts)
    return values


def influence(estimator: Estimator, e: Evidence) -> Float:
    r"""Differentiate the estimate in the count of each trajectory, times n: its influence.

    Computed by a complex step, :math:`\mathrm{Im}\, f(1 + \mathrm i h\, e_i) / h`, exact to rounding. For
    :func:`~caliope.estimators.wis` it is :math:`n \rho_i (G_i - \hat V) / \sum_j \rho_j`.

    Parameters
    ----------
    estimator : callable
        Function from evidence to a value.
    e : Evidence
        The log, without counts.

    Returns
    -------
    (n,)
        Influences; they sum to 0.

    References
    ----------
    Squire & Trapp (1998) for the complex step; Efron (1982), the infinitesimal jackknife.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.zeros(3), offsets=[0, 1, 2, 3])
    >>> influence(monte_carlo, e).tolist()
    [-2.0, 0.0, 2.0]
    """
    refuse_counts(e)
    one_by_one = (
        len(e) * e.layout.horizon <= CELLS
    )  # in a long log that takes as long as the square of its length
    known = e.once(  # intervals, standard errors and checks all ask for the result
        ("influence", estimator),
        lambda: (
            _change_one_by_one(estimator, e, 1e-100j).imag / 1e-100
            if one_by_one
            else differentiate(estimator, e)
        ),
    )
    return np.asarray(known * len(e))


def _change_one_by_one(estimator: Estimator, e: Evidence, step: complex) -> Any:
    rows = max(1, CELLS // e.layout.horizon)
    base, values = np.ones(len(e)), []
    # A sum without its dominant term may be a rounding error; see find_dominant.
    with np.errstate(invalid="ignore"):
        for start in range(0, len(e), rows):
            which = np.arange(start, min(start + rows, len(e)))
            values.append(estimator(e.with_counts(LeaveOneOutCounts(base, which, np.full(len(which), step)))))
    return np.concatenate(values)


def jackknife(estimator: Estimator, e: Evidence, *, level: float = 0.95) -> Interval:
    r"""Compute an interval from the spread of the leave-one-out values (Efron 1982).

    .. math:: \mathrm{se}^2 = \frac{n - 1}{n} \sum_i \big( \theta_{(i)} - \bar\theta \big)^2

    with n - 1 degrees of freedom; n counts clusters where there are any. Deterministic, and wider than the delta
    method where one trajectory has a large weight.

    Parameters
    ----------
    estimator : callable
        Function from evidence to a value.
    e : Evidence
        The log, without counts.
    level : float
        Confidence level.

    Returns
    -------
    Interval
        Interval around the estimate; undefined (nan) with finding U103 where one trajectory has all the weight.

    Examples
    --------
    >>> from caliope import wis
    >>> rng = np.random.default_rng(0)
    >>> log_ratio = np.log(rng.choice([0.5, 1.5], size=200))
    >>> e = Evidence(rng.random(200), log_ratio, offsets=np.arange(201))
    >>> print(jackknife(wis, e))
    [0.497, 0.590] at 95%, jackknife
    """
    values = leave_one_out(estimator, e) if e.cluster is None else leave_clusters_out(estimator, e)
    n = e.layout.n_units
    if not np.isfinite(values).all():
        return Interval(np.nan, np.nan, level, "jackknife", (_undefined_without_one(values),))
    se = np.sqrt((n - 1) / n * ((values - values.mean()) ** 2).sum())
    return _t_interval(float(estimator(e)), float(se), n, level, "jackknife")


def delta_method(estimator: Estimator, e: Evidence, *, level: float = 0.95) -> Interval:
    r"""Compute an interval from the influence of each trajectory: the delta method.

    .. math:: \mathrm{se}^2 = \frac{1}{n(n-1)} \sum_i U_i^2

    with the influences :math:`U_i` of :func:`influence`, which sum to zero; for the mean return it is the
    textbook t-interval. Valid for every estimator here, the self-normalised ones included.

    Parameters
    ----------
    estimator : callable
        Function from evidence to a value.
    e : Evidence
        The log, without counts.
    level : float
        Confidence level.

    Returns
    -------
    Interval
        Interval around the estimate.

    Examples
    --------
    >>> from caliope import wis
    >>> rng = np.random.default_rng(0)
    >>> log_ratio = np.log(rng.choice([0.5, 1.5], size=200))
    >>> e = Evidence(rng.random(200), log_ratio, offsets=np.arange(201))
    >>> print(delta_method(wis, e))
    [0.497, 0.590] at 95%, delta method
    """
    u, n = e.layout.pool(influence(estimator, e)), e.layout.n_units
    if n < 2:
        raise ValueError("a standard error needs at least 2 trajectories, or 2 clusters.")
    se = float(np.sqrt((u**2).sum() * n / (n - 1)) / len(e))
    return _t_interval(float(estimator(e)), se, n, level, "delta method")


def _t_interval(value: float, se: float, n: int, level: float, method: str) -> Interval:
    check_level(level)
    arm = special.stdtrit(n - 1, (1 + level) / 2) * se
    return Interval(float(value - arm), float(value + arm), level, method)


def difference(estimator: Estimator, baseline: Estimator = monte_carlo) -> Estimator:
    r"""Lift an estimator to its difference from current practice, :math:`\hat V_e - \hat V_b`.

    Both are computed on the same trajectories and resampled together, so that what they share cancels:
    ``bootstrap(difference(wis), e, rng=0)`` is the paired interval.

    Parameters
    ----------
    estimator, baseline : callable
        Functions of evidence; the second is subtracted from the first.

    Returns
    -------
    callable
        The difference, an estimator with the traits of both.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3], gamma=0.5)
    >>> float(difference(monte_carlo)(e))
    0.0
    """

    def paired(e: Evidence) -> Any:
        apart = estimator(e) - baseline(e)
        # Practice minus practice is exactly 0, and no rounding error; complex numbers are for derivatives.
        return apart if np.iscomplexobj(apart) else np.where(np.abs(apart) <= 1e-12 * e.largest, 0.0, apart)

    practice = baseline is monte_carlo
    paired.__name__ = f"difference_{name_of(estimator)}" + ("" if practice else f"_{name_of(baseline)}")
    title = f"{label(estimator)}, minus {'current practice' if practice else label(baseline)}"
    paired.__doc__ = f"{title}."
    one, other = traits_of(estimator), traits_of(baseline)
    against = (*one.against, replace(other, core=core_of(baseline), against=()), *other.against)
    paired.traits = replace(  # type: ignore[attr-defined]
        one, label=title, core=core_of(estimator), against=against
    )
    return paired


def check_level(level: Any) -> None:
    """Raise unless the confidence level lies strictly between 0 and 1."""
    if not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
