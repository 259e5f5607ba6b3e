"""Tails of weights: the generalised Pareto fit behind Pareto-smoothed importance sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caliope.ragged import Float


def fit_pareto(excess: Float) -> tuple[float, float]:
    r"""Fit a generalised Pareto distribution to positive excesses; return its shape k and scale :math:`\sigma`.

    Zhang and Stephens' quasi-Bayesian profile estimate, with the weak prior of Vehtari et al. that pulls k
    towards 0.5 with the strength of ten observations.

    References
    ----------
    Zhang & Stephens (2009), Technometrics 51. Vehtari, Simpson, Gelman, Yao & Gabry (2024), JMLR 25, appendix G.
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
    scale = -shape / posterior
    return (n * shape + 10 * 0.5) / (n + 10), scale


def tail_size(n: int) -> int:
    """How many of n weights make the tail: a fifth, at most three times the root."""
    return int(np.ceil(min(0.2 * n, 3 * np.sqrt(n))))


@dataclass(frozen=True)
class Tail:
    """Weights with their tail smoothed, and the shape that was found."""

    weights: Float  # (n,), in the order given
    k: float  # nan where the tail is too short or flat to be fitted


def smooth_tail(weights: Float) -> Tail:
    """Replace the largest weights by the expected order statistics of the Pareto tail fitted to them.

    None is made larger than the largest was. Fewer than five weights in the tail, or a tail without spread,
    leave everything as it is.
    """
    positive = np.flatnonzero(weights > 0)
    size = tail_size(len(positive))
    order = positive[np.argsort(weights[positive], kind="stable")]
    if size < 5:
        return Tail(weights, float("nan"))
    cutoff = weights[order[-size - 1]]
    tail = order[-size:]
    tail = tail[weights[tail] > cutoff]  # what ties with the cut-off has no excess
    if len(tail) < 5:
        return Tail(weights, float("nan"))
    k, sigma = fit_pareto(weights[tail] - cutoff)
    p = (np.arange(1, len(tail) + 1) - 0.5) / len(tail)
    quantile = -np.log1p(-p) * sigma if abs(k) < 1e-12 else np.expm1(-k * np.log1p(-p)) * sigma / k
    smoothed = weights.copy()
    smoothed[tail] = np.minimum(cutoff + quantile, weights[tail[-1]])
    return Tail(smoothed, k)


def khat_threshold(n: int) -> float:
    """Largest k at which n weights still suffice: min(1 - 1 / log10(n), 0.7), Vehtari et al. (2024)."""
    return min(1 - 1 / np.log10(n), 0.7) if n > 10 else 0.0
