r"""Dependence between trajectories: intervals for few clusters, and neighbours in the file that hang together.

Influences of independent trajectories are exchangeable: no order of them tells anything. Where clusters stand together
in the file, as visits to one site do, neighbours are alike, and an interval that takes them for independent is
too short by :math:`\big(1 + 2 \sum_l \rho_l\big)^{1/2}` with their autocorrelations :math:`\rho_l`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy import special, stats

from caliope._evidence import Evidence
from caliope._ragged import Float
from caliope._results import Interval
from caliope._traits import Estimator, traits_of
from caliope.uncertainty._resampling import CELLS, evaluate
from caliope.weights._effective import kish, weigh_trajectories

WINDOWS = (1, 3, 10, 30, 100)  # lags; from pairs of neighbours to large clusters
_LONGEST = 0.2  # window, as a share of the units
_FEWEST = 50  # units for the order to tell anything
_SUSPICIOUS = 2.5  # standard errors from which permutations are worth their time
_PERMUTATIONS = 999
_MANY = 20_000  # units from which the normal distribution will do instead
_BLOCK = 1 << 16  # entries permuted together
_CLEAR = 0.005  # share of the permutations that may be as far out


@dataclass(frozen=True)
class Dependence:
    """Whether neighbours in the file hang together.

    Attributes
    ----------
    z : float
        Largest standardised sum of rank autocorrelations over the windows; about normal for independent neighbours.
    p : float
        Share of random orders with so large a value; 1 where that is no more than chance.
    factor : float
        Inflation of the standard error, 1 or more.
    """

    z: float
    p: float
    factor: float

    @property
    def clear(self) -> bool:
        """Whether it is beyond chance, and there is something to widen."""
        return self.p <= _CLEAR and self.factor > 1


def find_dependence(u: Float) -> Dependence:
    r"""Test whether neighbouring entries hang together, and by how much that inflates the error of their mean.

    The test uses ranks, so that heavy tails do not matter, and Bartlett windows of several lengths. With the rank
    autocorrelations :math:`r_l`, the statistic of a window L is :math:`\sum_{l \le L} (1 - l / (L + 1))\, r_l`,
    standardised for a random order. The largest over the windows is compared with that of random permutations.
    The inflation is :math:`\big(1 + 2 \sum_{l \le L} (1 - l / (L + 1))\, \rho_l\big)^{1/2} t / z` with the
    autocorrelations :math:`\rho_l` of the entries themselves; the largest over the windows, and at least 1. A variance
    from a window has about :math:`3 n / 2 L` degrees of freedom, so t is the quantile of that distribution and z the
    normal one, at 95%.

    Parameters
    ----------
    u : (n,)
        Influences of independent units, in the order of the file.

    Returns
    -------
    Dependence
        The statistic, its p-value and the inflation.

    References
    ----------
    Newey & West (1987) for the window; Priestley (1981), section 6.2.4, for its degrees of freedom.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> find_dependence(rng.normal(size=300)).clear
    False
    >>> found = find_dependence(np.repeat(rng.normal(size=60), 5) + rng.normal(size=300))
    >>> found.clear, round(found.factor, 2)
    (True, 1.46)
    """
    n = len(u)
    windows = [length for length in WINDOWS if length <= _LONGEST * n]
    if n < _FEWEST or not np.isfinite(u).all() or np.ptp(u) == 0:
        return Dependence(0.0, 1.0, 1.0)
    ranks = stats.rankdata(u)
    z = float(_statistics(ranks[None], windows)[0])
    if z < _SUSPICIOUS:
        return Dependence(z, 1.0, 1.0)
    return Dependence(z, _p_value(z, ranks, windows), inflation(u, windows))


def _p_value(z: float, ranks: Float, windows: list[int]) -> float:
    n = len(ranks)
    if n > _MANY:
        return float(min(1.0, len(windows) * special.ndtr(-z)))
    rng = np.random.default_rng(0)
    above, rows = 0, max(1, _BLOCK // n)
    for start in range(0, _PERMUTATIONS, rows):
        size = min(rows, _PERMUTATIONS - start)
        shuffled = rng.permuted(np.tile(ranks, (size, 1)), axis=1)
        above += int((_statistics(shuffled, windows) >= z).sum())
        if above > _CLEAR * (1 + _PERMUTATIONS):
            return 1.0  # no more than chance: the rest would only tell how much less
    return (1 + above) / (1 + _PERMUTATIONS)


def inflation(u: Float, windows: list[int]) -> float:
    """By how much neighbours that hang together inflate the standard error of the mean; at least 1."""
    rho = _autocorrelations(u[None], max(windows))[0]
    found = [1.0]
    for m in windows:
        quantile = special.stdtrit(1.5 * len(u) / m, 0.975) / special.ndtri(0.975)
        found.append(float(np.sqrt(max(0.0, 1 + 2 * _bartlett(m) @ rho[:m])) * quantile))
    return max(found)


def _bartlett(length: int) -> Float:
    return 1 - np.arange(1, length + 1) / (length + 1)


def _autocorrelations(x: Float, most: int) -> Float:
    """Autocorrelations at lags 1 to ``most`` of each row, (rows, most)."""
    x = x - x.mean(axis=1, keepdims=True)
    size = 1 << (x.shape[1] + most).bit_length()
    spectrum = np.fft.rfft(x, size)
    products = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, size)[:, : most + 1]
    return products[:, 1:] / (x**2).sum(axis=1, keepdims=True)


def _statistics(ranks: Float, windows: list[int]) -> Float:
    """Largest standardised sum of autocorrelations over the windows, of each row."""
    n, rho = ranks.shape[1], _autocorrelations(ranks, max(windows))
    found = []
    for length in windows:
        w, pairs = _bartlett(length), n - np.arange(1, length + 1)
        # Each product of two different entries of a random order has mean -1 / (n - 1) of the variance.
        centred = rho[:, :length] @ w + (w @ pairs) / (n * (n - 1))
        found.append(centred / np.sqrt(w**2 @ pairs) * n)
    return np.max(found, axis=0)


def stretch(interval: Interval, value: float, factor: float) -> Interval:
    """Stretch an interval around an estimate; its two sides keep their proportion."""
    if factor == 1 or not np.isfinite([interval.low, interval.high, value]).all():
        return interval
    low = value - factor * max(value - interval.low, 0.0)
    high = value + factor * max(interval.high - value, 0.0)
    return replace(interval, low=min(low, interval.low), high=max(high, interval.high))


def few_clusters_factor(clusters: float, level: float) -> float:
    r"""How much too short a resampling interval of G clusters is, :math:`t_{G-1} / z \cdot (G / (G - 1))^{1/2}`.

    G may be an effective number of clusters; below 2 it counts as 2.
    """
    g = max(clusters, 2.0)
    tail = (1 + level) / 2
    return float(special.stdtrit(g - 1, tail) / special.ndtri(tail) * np.sqrt(g / (g - 1)))


def effective_clusters(estimator: Estimator, e: Evidence) -> float:
    """Effective number of clusters, by the weight that an estimator gives to each; nan without clusters."""
    if e.cluster is None:
        return float("nan")
    weights = e.layout.pool(weigh_trajectories(traits_of(estimator), e))
    return kish(weights)


def stretch_for_clusters(interval: Interval, estimator: Estimator, e: Evidence) -> Interval:
    """Stretch a resampling interval by what few clusters make it too short; without clusters it stays."""
    if e.cluster is None:
        return interval
    factor = few_clusters_factor(effective_clusters(estimator, e), interval.level)
    return stretch(interval, float(estimator(e)), factor)


def leave_clusters_out(estimator: Estimator, e: Evidence) -> Float:
    """Evaluate an estimator without each cluster in turn, (n_units,)."""
    unit, n_units = e.layout.unit, e.layout.n_units
    rows = max(1, CELLS // len(e))
    blocks = [np.arange(start, min(start + rows, n_units)) for start in range(0, n_units, rows)]
    return np.concatenate(
        [evaluate(estimator, e, (unit != which[:, None]).astype(float)) for which in blocks]
    )
