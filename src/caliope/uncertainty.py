"""Uncertainty of any estimator: change the counts, look again.

The unit is always the whole trajectory. None of these functions knows a formula of an estimator, and every
self-normalised ratio is recomputed on each resample, so that its interval moves with the data as the estimate
does. What they measure is the sampling of trajectories with the weights held fixed; they do not see that a
behaviour policy was fitted, and they judge nothing: :func:`~caliope.estimation.estimate` adds the checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import special

from caliope.estimators import Estimator, label, monte_carlo, name_of
from caliope.evidence import Evidence, OneByOne, refuse_counts
from caliope.ragged import Float, Int, read_only
from caliope.results import Finding, Interval

Scheme = Callable[[int, int, int, np.random.Generator], Float]  # n, size, n_draws, rng -> (n_draws, n)
_CELLS = 1 << 21  # entries of a block of counts: 16 MB, so that memory does not grow with the draws
_CACHED = 1 << 14  # entries of counts made at once: they stay in the cache
_DOMINANT = 0.99  # share of a denominator above which taking a trajectory away by subtraction loses digits


def with_replacement(n: int, size: int, n_draws: int, rng: np.random.Generator) -> Float:
    """Counts of samples of ``size`` trajectories drawn with replacement: the ordinary bootstrap."""
    counts = np.empty((n_draws, n))
    rows = max(1, _CACHED // max(n, size))
    for start in range(0, n_draws, rows):
        block = counts[start : start + rows]
        # 32 bits are drawn three times as fast as 64, and number four thousand million trajectories.
        drawn = rng.integers(n, size=(len(block), size), dtype=np.uint32) + n * np.arange(len(block))[:, None]
        block[:] = np.bincount(drawn.ravel(), minlength=block.size).reshape(block.shape)
    return counts


def without_replacement(n: int, size: int, n_draws: int, rng: np.random.Generator) -> Float:
    """Counts of samples of ``size`` different trajectories: for :func:`resampled_mse`, not for intervals."""
    if size > n:
        raise ValueError(f"{size} different trajectories cannot be drawn from {n}.")
    counts = np.zeros((n_draws, n))
    for row in counts:
        row[rng.choice(n, size=size, replace=False, shuffle=False)] = 1.0
    return counts


def bayesian(n: int, size: int, n_draws: int, rng: np.random.Generator) -> Float:
    """Dirichlet weights that sum to ``size``: the Bayesian bootstrap (Rubin 1981).

    No trajectory ever drops out, so that no length group runs empty and no neighbour becomes its own double.
    """
    weights = rng.standard_exponential((n_draws, n))
    return weights * (size / weights.sum(axis=1, keepdims=True))


def count_blocks(
    n: int,
    n_draws: int,
    *,
    size: int | None = None,
    scheme: Scheme = with_replacement,
    rng: np.random.Generator,
) -> Iterator[Float]:
    """Yield the counts of n_draws resamples, a block at a time; the blocks do not affect the numbers."""
    if n_draws < 1:
        raise ValueError(f"n_draws must be at least 1, got {n_draws}.")
    rows = max(1, _CELLS // n)
    for start in range(0, n_draws, rows):
        yield read_only(scheme(n, n if size is None else size, min(rows, n_draws - start), rng))


def draws(
    estimator: Estimator,
    e: Evidence,
    *,
    n_draws: int = 1000,
    size: int | None = None,
    scheme: Scheme = with_replacement,
    rng: int | np.random.Generator,
) -> Float:
    """Values of an estimator on resamples of whole trajectories, (n_draws,)."""
    refuse_counts(e)
    blocks = count_blocks(len(e), n_draws, size=size, scheme=scheme, rng=np.random.default_rng(rng))
    return np.concatenate([evaluate(estimator, e, counts) for counts in blocks])


def evaluate(estimator: Estimator, e: Evidence, counts: Float) -> Float:
    """Values of an estimator under each row of counts.

    Weights are kept relative to the largest. A row that misses a trajectory which outweighs the rest by more than a
    float can hold would find the rest vanished: where weights spread so far, each row is evaluated by itself.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if _spread(e) < 650:
            return _one_a_row(estimator(e.with_counts(counts)), counts, estimator)
        present = [np.flatnonzero(row) for row in counts]
        return np.array(
            [estimator(e.take(who).with_counts(row[who])) for who, row in zip(present, counts, strict=True)]
        )


def _one_a_row(values: Any, counts: Float, estimator: Estimator) -> Float:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (len(counts),):
        raise ValueError(
            f"{name_of(estimator)} must return one value for each of the {len(counts)} rows of counts, got shape "
            f"{array.shape}. Use the sums of Evidence (total, total_by_time), which count trajectories."
        )
    return array


def _spread(e: Evidence) -> float:
    low, high = e.log_rho.min(initial=0.0, where=np.isfinite(e.log_rho)), e.log_rho.max()
    return float(high - low)


def bootstrap(
    estimator: Estimator,
    e: Evidence,
    *,
    n_draws: int = 1000,
    level: float = 0.95,
    scheme: Scheme = with_replacement,
    rng: int | np.random.Generator,
) -> Interval:
    """Percentile interval from resampled trajectories.

    ``scheme=bayesian`` for the Bayesian bootstrap, the better choice for per-horizon estimators with small
    length groups. Nominal with some 200 effective trajectories of ordinary returns; below 100, and for rare outcomes
    or heavy tails, it is too short.

    References
    ----------
    Efron & Tibshirani (1993), chapter 13.
    """
    values = draws(estimator, e, n_draws=n_draws, scheme=scheme, rng=rng)
    return percentile_interval(values, level=level, method=scheme_name(scheme))


def scheme_name(scheme: Scheme) -> str:
    """What a result calls the percentile interval of a resampling scheme."""
    names: dict[Scheme, str] = {with_replacement: "bootstrap, percentile", bayesian: "Bayesian bootstrap"}
    return names.get(scheme, f"percentiles of {getattr(scheme, '__name__', 'draws')}")


def percentile_interval(values: Float, *, level: float, method: str) -> Interval:
    """Interval between the outer quantiles of draws; undefined draws are counted and reported."""
    check_level(level)
    findings = _failed_draws(values)
    if findings and findings[0].level == "issue":
        return Interval(np.nan, np.nan, level, method, findings)
    tail = (1 - level) / 2
    low, high = np.quantile(values[np.isfinite(values)], [tail, 1 - tail])
    if len(values) * tail < 5:
        message = f"{len(values)} draws hold fewer than 5 beyond each end at level {level:g}: draw more"
        findings += (Finding("U106", "caution", message, {"draws": len(values)}),)
    return Interval(float(low), float(high), level, method, findings)


def _failed_draws(values: Float) -> tuple[Finding, ...]:
    failed = int((~np.isfinite(values)).sum())
    if not failed:
        return ()
    share = failed / len(values)
    message = f"{failed} of {len(values)} resamples have no finite value, because none of the weight was left in them"
    if share > 0.05:
        return (Finding("U102", "issue", message + "; no interval is given", {"share": share}),)
    return (Finding("U102", "caution", message + "; the interval describes the others", {"share": share}),)


def bca(
    estimator: Estimator,
    e: Evidence,
    *,
    n_draws: int = 2000,
    level: float = 0.95,
    rng: int | np.random.Generator,
) -> Interval:
    r"""Bias-corrected and accelerated bootstrap interval.

    The quantiles are moved by the median bias :math:`z_0` of the draws and by the acceleration
    :math:`a = \sum_i U_i^3 / 6 (\sum_i U_i^2)^{3/2}` of the leave-one-out values
    :math:`U_i = \bar\theta - \theta_{(i)}`.

    References
    ----------
    Efron (1987). Efron & Tibshirani (1993), chapter 14.
    """
    check_level(level)
    values = draws(estimator, e, n_draws=n_draws, rng=rng)
    method = "bootstrap, BCa"
    findings = _failed_draws(values)
    u = leave_one_out(estimator, e)
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
        return Interval(np.nan, np.nan, level, method, (*findings, _undefined_without_one(share)))
    low, high = np.quantile(values, share)
    return Interval(float(low), float(high), level, method, findings)


def _undefined_without_one(u: Float) -> Finding:
    bad = int((~np.isfinite(u)).sum())
    return Finding(
        "U103",
        "issue",
        f"without {'one trajectory' if bad == 1 else f'any one of {bad} trajectories'} the estimate is not defined: "
        "all the weight rests on it; no interval is given",
        {"trajectories": bad},
    )


def leave_one_out(estimator: Estimator, e: Evidence) -> Float:
    """Value of an estimator without each trajectory in turn, (n,)."""
    refuse_counts(e)
    if len(e) < 2:
        raise ValueError("leaving one out needs at least 2 trajectories.")
    values = _one_by_one(estimator, e, -1.0).real
    # Taking a trajectory away from a sum that it dominates leaves rounding; those few are summed afresh.
    dominant = _dominant(e, by_length=hasattr(estimator, "__wrapped__"))
    for which in np.array_split(dominant, max(1, len(dominant) * len(e) // _CELLS)):
        if len(which):
            counts = np.ones((len(which), len(e)))
            counts[np.arange(len(which)), which] = 0.0
            values[which] = evaluate(estimator, e, counts)
    return values


def _dominant(e: Evidence, *, by_length: bool) -> Int:
    """Trajectories that hold nearly all the weight of some denominator, by time or inside their length."""
    found = [np.empty(0, dtype=np.int64)]
    for members, part in e.by_length() if by_length else ():
        for _, block in part.layout.blocks(part.weight):
            found.append(members[(block > _DOMINANT * block.sum(axis=0)).any(axis=1)])
    total = e.weight_by_time()
    share = e.weight > _DOMINANT * total[e.layout.time]
    final = e.final_weight > _DOMINANT * e.final_weight.sum()
    return np.unique(np.concatenate([*found, e.layout.owner[share], np.flatnonzero(final)]))


def influence(estimator: Estimator, e: Evidence) -> Float:
    r"""Derivative of the estimate in the count of each trajectory, times n: its influence, (n,).

    Taken by a complex step, :math:`\mathrm{Im}\, f(1 + \mathrm i h\, e_i) / h`, which is exact to rounding and
    needs no derivation. For :func:`~caliope.estimators.wis` it is
    :math:`n \rho_i (G_i - \hat V) / \sum_j \rho_j`.

    References
    ----------
    Squire & Trapp (1998) for the complex step; Efron (1982), the infinitesimal jackknife.
    """
    refuse_counts(e)
    h = 1e-100
    return _one_by_one(estimator, e, 1j * h).imag / h * len(e)


def _one_by_one(estimator: Estimator, e: Evidence, step: complex) -> Any:
    rows = max(1, _CELLS // e.layout.horizon)
    base, values = np.ones(len(e)), []
    with np.errstate(invalid="ignore"):  # a sum without its dominant term may be rounding; see _dominant
        for start in range(0, len(e), rows):
            which = np.arange(start, min(start + rows, len(e)))
            values.append(estimator(e.with_counts(OneByOne(base, which, np.full(len(which), step)))))
    return np.concatenate(values)


def jackknife(estimator: Estimator, e: Evidence, *, level: float = 0.95) -> Interval:
    r"""Interval from the spread of the leave-one-out values.

    .. math:: \mathrm{se}^2 = \frac{n - 1}{n} \sum_i \big( \theta_{(i)} - \bar\theta \big)^2

    with n - 1 degrees of freedom. Deterministic, and more careful than the delta method where one trajectory
    weighs much.

    References
    ----------
    Efron (1982).
    """
    values, n = leave_one_out(estimator, e), len(e)
    if not np.isfinite(values).all():
        return Interval(np.nan, np.nan, level, "jackknife", (_undefined_without_one(values),))
    se = np.sqrt((n - 1) / n * ((values - values.mean()) ** 2).sum())
    return _t_interval(float(estimator(e)), float(se), n, level, "jackknife")


def delta_method(estimator: Estimator, e: Evidence, *, level: float = 0.95) -> Interval:
    r"""Interval from the influence of each trajectory: the delta method.

    .. math:: \mathrm{se}^2 = \frac{1}{n(n-1)} \sum_i U_i^2

    with the influences :math:`U_i` of :func:`influence`, which sum to zero; for the mean return it is the
    textbook t-interval. Valid for every estimator here, the self-normalised ones included.
    """
    u, n = influence(estimator, e), len(e)
    if n < 2:
        raise ValueError("a standard error needs at least 2 trajectories.")
    return _t_interval(
        float(estimator(e)), float(np.sqrt((u**2).sum() / (n * (n - 1)))), n, level, "delta method"
    )


def _t_interval(value: float, se: float, n: int, level: float, method: str) -> Interval:
    check_level(level)
    arm = special.stdtrit(n - 1, (1 + level) / 2) * se
    return Interval(float(value - arm), float(value + arm), level, method)


def difference(estimator: Estimator, baseline: Estimator = monte_carlo) -> Estimator:
    r"""Lift an estimator to its difference from current practice, :math:`\hat V_e - \hat V_b`.

    Is it better than what we do? Both are computed on the same trajectories and resampled together, so what
    they share cancels: ``bootstrap(difference(wis), e, rng=0)`` is the paired interval.
    """

    def paired(e: Evidence) -> Any:
        return estimator(e) - baseline(e)

    practice = baseline is monte_carlo
    paired.__name__ = f"difference_{name_of(estimator)}" + ("" if practice else f"_{name_of(baseline)}")
    paired.__doc__ = f"{label(estimator)}, minus {'current practice' if practice else label(baseline)}."
    paired.__wrapped__ = estimator  # type: ignore[attr-defined]
    paired.baseline = baseline  # type: ignore[attr-defined]
    return paired


def check_level(level: Any) -> None:
    """Raise unless the confidence level lies strictly between 0 and 1."""
    if not isinstance(level, int | float | np.number) or not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
