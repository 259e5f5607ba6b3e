"""Pareto tails of weights: fitted, smoothed, judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caliope._ragged import Float


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
