"""Resamples of whole trajectories as counts, values of an estimator on them, and the paper's resampled error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope._evidence import Evidence, refuse_counts
from caliope._ragged import Float, Int, read_only
from caliope._traits import Estimator, name_of
from caliope.checks import U102, Finding

# n, size, n_draws, rng -> counts (n_draws, n).
Scheme = Callable[[int, int, int, np.random.Generator], Float]
# Entries of a block of counts: 16 MB, so that memory does not grow with the draws.
CELLS = 1 << 21
# Share of a denominator above which taking a trajectory away by subtraction loses digits.
_DOMINANT = 0.99
# Entries of counts drawn together: they stay in the cache of the processor.
_CACHED = 1 << 14


def with_replacement(n: int, size: int, n_draws: int, rng: np.random.Generator) -> Float:
    """Draw counts of samples of ``size`` trajectories with replacement: the ordinary bootstrap.

    Parameters
    ----------
    n : int
        Trajectories in the log.
    size : int
        Trajectories per resample.
    n_draws : int
        Number of resamples.
    rng : Generator
        Source of randomness.

    Returns
    -------
    (n_draws, n)
        How often each trajectory occurs in each resample.

    Examples
    --------
    >>> with_replacement(4, 4, 2, np.random.default_rng(0)).sum(axis=1).tolist()
    [4.0, 4.0]
    """
    counts = np.empty((n_draws, n))
    rows = max(1, _CACHED // max(n, size))
    for start in range(0, n_draws, rows):
        block = counts[start : start + rows]
        # 32 bits are drawn three times as fast as 64, and number four thousand million trajectories.
        drawn = rng.integers(n, size=(len(block), size), dtype=np.uint32) + n * np.arange(len(block))[:, None]
        block[:] = np.bincount(drawn.ravel(), minlength=block.size).reshape(block.shape)
    return counts


def without_replacement(n: int, size: int, n_draws: int, rng: np.random.Generator) -> Float:
    """Draw counts of samples of ``size`` different trajectories: for :func:`resampled_mse`, not for intervals.

    Parameters
    ----------
    n : int
        Trajectories in the log.
    size : int
        Trajectories per resample.
    n_draws : int
        Number of resamples.
    rng : Generator
        Source of randomness.

    Returns
    -------
    (n_draws, n)
        How often each trajectory occurs in each resample.

    Examples
    --------
    >>> without_replacement(3, 3, 1, np.random.default_rng(0)).tolist()
    [[1.0, 1.0, 1.0]]
    """
    if size > n:
        raise ValueError(f"{size} different trajectories cannot be drawn from {n}.")
    counts = np.zeros((n_draws, n))
    for row in counts:
        row[rng.choice(n, size=size, replace=False, shuffle=False)] = 1.0
    return counts


def bayesian(n: int, size: int, n_draws: int, rng: np.random.Generator) -> Float:
    """Draw Dirichlet weights that sum to ``size``: the Bayesian bootstrap (Rubin 1981).

    No trajectory ever drops out, so that no length group is empty.

    Parameters
    ----------
    n : int
        Trajectories in the log.
    size : int
        Trajectories per resample.
    n_draws : int
        Number of resamples.
    rng : Generator
        Source of randomness.

    Returns
    -------
    (n_draws, n)
        How often each trajectory occurs in each resample.

    Examples
    --------
    >>> counts = bayesian(4, 4, 2, np.random.default_rng(0))
    >>> counts.sum(axis=1).round(6).tolist(), bool((counts > 0).all())
    ([4.0, 4.0], True)
    """
    weights = rng.standard_exponential((n_draws, n))
    return weights * (size / weights.sum(axis=1, keepdims=True))


def count_blocks(
    n: int,
    n_draws: int,
    *,
    size: int | None = None,
    scheme: Scheme = with_replacement,
    cluster: Int | None = None,
    rng: np.random.Generator,
) -> Iterator[Float]:
    """Yield the counts of n_draws resamples in blocks; the size of the blocks does not affect the numbers.

    With clusters, whole clusters are resampled, and each trajectory is counted as often as its cluster.
    """
    if n_draws < 1:
        raise ValueError(f"n_draws must be at least 1, got {n_draws}.")
    units = n if cluster is None else int(cluster.max()) + 1
    drawn = units if size is None else max(1, round(size * units / n))
    rows = max(1, CELLS // n)
    for start in range(0, n_draws, rows):
        counts = scheme(units, drawn, min(rows, n_draws - start), rng)
        yield read_only(counts if cluster is None else counts[:, cluster])


def draws(
    estimator: Estimator,
    e: Evidence,
    *,
    n_draws: int = 1000,
    size: int | None = None,
    scheme: Scheme = with_replacement,
    rng: int | np.random.Generator,
) -> Float:
    """Evaluate an estimator on resamples of whole trajectories, or of whole clusters where the evidence has them.

    Parameters
    ----------
    estimator : callable
        Function from evidence to a value.
    e : Evidence
        The log, without counts.
    n_draws : int
        Number of resamples.
    size : int, optional
        Trajectories per resample; by default as many as in the log. Of clusters, about so many trajectories.
    scheme : callable
        How trajectories are resampled: ``with_replacement`` or ``bayesian``.
    rng : int or Generator
        Seed of the resamples.

    Returns
    -------
    (n_draws,)
        Values; nan where an estimate is undefined.

    Examples
    --------
    >>> from caliope import monte_carlo
    >>> e = Evidence([1, 3, 5], np.zeros(3), offsets=[0, 1, 2, 3])
    >>> draws(monte_carlo, e, n_draws=4, rng=0).round(3).tolist()
    [3.667, 1.0, 1.0, 4.333]
    """
    refuse_counts(e)
    generator = np.random.default_rng(rng)
    blocks = count_blocks(len(e), n_draws, size=size, scheme=scheme, cluster=e.cluster, rng=generator)
    return np.concatenate([evaluate(estimator, e, counts) for counts in blocks])


def evaluate(estimator: Estimator, e: Evidence, counts: Float) -> Float:
    """Evaluate an estimator under each row of counts, (rows,).

    Weights are kept relative to the largest. Where they spread beyond the range of a float, a row without the
    largest would have weights of 0 only: then each row is evaluated separately.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if _log_spread(e) < 650:
            return _check_one_per_row(estimator(e.with_counts(counts)), counts, estimator)
        present = [np.flatnonzero(row) for row in counts]
        return np.array(
            [
                estimator(e.take(kept).with_counts(row[kept]))
                for kept, row in zip(present, counts, strict=True)
            ]
        )


def _check_one_per_row(values: Any, counts: Float, estimator: Estimator) -> Float:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (len(counts),):
        raise ValueError(
            f"{name_of(estimator)} must return one value for each of the {len(counts)} rows of counts, got shape "
            f"{array.shape}. Use the sums of Evidence (total, total_by_time), which count trajectories."
        )
    return array


def _log_spread(e: Evidence) -> float:
    low, high = e.log_rho.min(initial=0.0, where=np.isfinite(e.log_rho)), e.log_rho.max()
    return float(high - low)


def scheme_name(scheme: Scheme, *, clustered: bool = False) -> str:
    """Name the percentile interval of a resampling scheme."""
    if clustered:
        return f"{scheme_name(scheme)}, whole clusters"
    names: dict[Scheme, str] = {with_replacement: "bootstrap, percentile", bayesian: "Bayesian bootstrap"}
    return names.get(scheme, f"percentiles of {getattr(scheme, '__name__', 'draws')}")


def failed_draws(values: Float) -> tuple[Finding, ...]:
    """Report draws without a finite value: a caution, and an issue above 5%."""
    failed = int((~np.isfinite(values)).sum())
    if not failed:
        return ()
    share = failed / len(values)
    facts = {"share": share, "failed": failed, "draws": len(values)}
    return (U102.finding(*(("issue", "none") if share > 0.05 else ("caution", "some")), **facts),)


def find_dominant(e: Evidence, *, by_length: bool) -> Int:
    """Find trajectories with nearly all the weight of some denominator, by time or inside their length."""
    by_group = [np.empty(0, dtype=np.int64)]
    for members, part in e.by_length() if by_length else ():
        for _, block in part.layout.blocks(part.weight):
            by_group.append(members[(block > _DOMINANT * block.sum(axis=0)).any(axis=1)])
    total = e.weight_by_time()
    share = e.weight > _DOMINANT * total[e.layout.time]
    final = e.final_weight > _DOMINANT * e.final_weight.sum()
    return np.unique(np.concatenate([*by_group, e.layout.owner[share], np.flatnonzero(final)]))


@dataclass(frozen=True)
class ResampledError:
    """Mean squared error of an estimator over resamples, with its parts.

    Parameters
    ----------
    name : str
        Name of the estimator.
    truth : float
        Known value.
    mse, bias, variance : float
        Mean squared error, and its parts: mse = bias^2 + variance.
    mse_se : float
        Monte Carlo standard error of ``mse``.
    size, n_draws : int
        Trajectories per resample, and number of resamples.
    failed : int
        Resamples without a finite value, left out of the rest.

    Examples
    --------
    >>> print(ResampledError("wis", 1.0, 0.05, 0.1, 0.04, 0.002, 200, 500, 0))
    wis: mse 0.05 (+- 0.002) = bias^2 0.01 + variance 0.04; 500 samples of 200 trajectories, truth 1
    """

    name: str
    truth: float
    mse: float
    bias: float
    variance: float
    mse_se: float
    size: int
    n_draws: int
    failed: int

    def __str__(self) -> str:
        text = (
            f"{self.name}: mse {self.mse:.4g} (+- {self.mse_se:.2g}) = bias^2 {self.bias**2:.4g} + variance "
            f"{self.variance:.4g}; {self.n_draws} samples of {self.size} trajectories, truth {self.truth:.4g}"
        )
        return text + (f"; {self.failed} samples had no finite value" if self.failed else "")


def resampled_mse(
    estimator: Estimator,
    e: Evidence,
    truth: float,
    *,
    size: int = 200,
    n_draws: int = 500,
    scheme: Scheme = with_replacement,
    rng: int | np.random.Generator,
) -> ResampledError:
    r"""Compute the mean squared error against a known value over samples of the log: the paper's protocol.

    .. math:: \mathrm{MSE} = \frac{1}{B} \sum_b \big( \hat V_b - V \big)^2 = \mathrm{bias}^2 + \mathrm{variance}

    Raghu et al. (2018) draw n = 200 trajectories of D2, 500 times, and do not say whether with replacement. All
    samples come from one log, so the bias includes the difference between that log and the truth.

    Parameters
    ----------
    estimator : callable
        Function from evidence to a value.
    e : Evidence
        The log, without counts.
    truth : float
        Known value V.
    size : int
        Trajectories per sample.
    n_draws : int
        Number of samples B.
    scheme : callable
        ``with_replacement`` or ``without_replacement``.
    rng : int or Generator
        Seed of the samples.

    Returns
    -------
    ResampledError
        Mean squared error, bias and variance.

    Examples
    --------
    >>> from caliope import monte_carlo
    >>> e = Evidence([1, 3, 5], np.zeros(3), offsets=[0, 1, 2, 3])
    >>> round(resampled_mse(monte_carlo, e, 3.0, size=3, rng=0).mse, 2)
    0.88
    """
    values = draws(estimator, e, n_draws=n_draws, size=size, scheme=scheme, rng=rng)
    finite = values[np.isfinite(values)]
    if not len(finite):
        nan = float("nan")
        return ResampledError(name_of(estimator), truth, nan, nan, nan, nan, size, n_draws, n_draws)
    squared = (finite - truth) ** 2
    return ResampledError(
        name_of(estimator),
        truth,
        mse=float(squared.mean()),
        bias=float(finite.mean() - truth),
        variance=float(finite.var()),
        mse_se=float(squared.std() / np.sqrt(len(finite))),
        size=size,
        n_draws=n_draws,
        failed=len(values) - len(finite),
    )
