"""Reliability: how often what was given 30% came true, and whether the importance weights balance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caliope.calibration.nulls import AgainstNull, Imagined, against_draws, check_draws, check_table
from caliope.policies import check_probabilities
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Bins of equal mass: what was predicted in each, and what happened."""

    predicted: Float  # (B,), mean prediction
    observed: Float  # (B,), frequency
    count: Float  # (B,), predictions in the bin


@dataclass(frozen=True, eq=False)
class _Bins:
    """Predictions sorted into bins, once; what was done changes, the bins do not."""

    cell: Int  # (N, C), number of the bin of each prediction
    taken: Int  # (N, C), the action whose probability it is
    predicted: Float  # (B,), sum
    count: Float  # (B,)

    def hits(self, actions: Int) -> Float:
        """How many of the predicted actions were taken, (B,)."""
        return np.bincount(self.cell[self.taken == actions[:, None]], minlength=len(self.count)).astype(float)

    def gaps(self, actions: Int) -> Float:
        """Frequency minus mean prediction, (B,)."""
        return (self.hits(actions) - self.predicted) / self.count


def _binned(p: Float, taken: Int, n_bins: int, *, apart: bool) -> _Bins:
    """Bins of nearly as many predictions each; equal predictions are never parted. ``apart``: a set a column."""
    if not n_bins >= 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}.")
    cell = np.empty(p.shape, dtype=np.int64)
    start = 0
    for j in range(p.shape[1]) if apart else (slice(None),):
        column = p[:, j]
        edges = np.unique(np.quantile(column, np.arange(1, n_bins) / n_bins, method="higher"))
        label = np.unique(np.searchsorted(edges, column, side="right"), return_inverse=True)[1]
        cell[:, j] = start + label.reshape(column.shape)
        start += int(label.max()) + 1
    flat = cell.ravel()
    predicted = np.bincount(flat, weights=p.ravel()).astype(np.float64)
    return _Bins(cell, taken, predicted, np.bincount(flat).astype(np.float64))


def _top(table: Float, n_bins: int) -> _Bins:
    table = check_probabilities(np.asarray(table), "table")
    best = table.argmax(axis=1)[:, None]
    return _binned(np.take_along_axis(table, best, axis=1), best, n_bins, apart=True)


def _every(table: Float, n_bins: int) -> _Bins:
    table = check_probabilities(np.asarray(table), "table")
    actions = np.broadcast_to(np.arange(table.shape[1]), table.shape)
    return _binned(table, actions, n_bins, apart=True)


def reliability_curve(table: Float, actions: Int, *, n_bins: int = 15) -> ReliabilityCurve:
    """All predicted probabilities, whatever the action, in bins of equal mass, against how often they came true."""
    every = np.broadcast_to(np.arange(table.shape[1]), table.shape)
    bins = _binned(table, every, n_bins, apart=False)
    return ReliabilityCurve(bins.predicted / bins.count, bins.hits(actions) / bins.count, bins.count)


def top_label_curve(table: Float, actions: Int, *, n_bins: int = 15) -> ReliabilityCurve:
    """The probability of the likeliest action against how often it was taken."""
    bins = _top(table, n_bins)
    return ReliabilityCurve(bins.predicted / bins.count, bins.hits(actions) / bins.count, bins.count)


@dataclass(frozen=True)
class CalibrationError:
    """An expected calibration error against its null, and without the noise of the bins."""

    ece: AgainstNull
    debiased: (
        float  # root of the mean squared gap, less what chance adds to it; 0 if less than nothing is left
    )


def top_label_error(
    table: Float, actions: Int, *, n_bins: int = 15, n_draws: int = 100, rng: int | np.random.Generator
) -> CalibrationError:
    r"""Expected calibration error of the likeliest action (Guo et al. 2017), in bins of equal mass.

    .. math:: \sum_b \frac{n_b}{n} \Big| \frac{\text{hits}_b - \sum_{i \in b} p_i}{n_b} \Big|

    It looks at one action of many and hardly weighs the rare ones, where importance weights are large. It is above 0
    also for the truth, which is what the null says.
    """
    return _error(_top(table, n_bins), table, actions, n_draws, np.random.default_rng(rng))


def classwise_error(
    table: Float, actions: Int, *, n_bins: int = 15, n_draws: int = 100, rng: int | np.random.Generator
) -> CalibrationError:
    r"""Expected calibration error of every action in turn, averaged over the actions.

    The debiased one subtracts from every squared gap what chance alone adds, :math:`o_b (1 - o_b) / (n_b - 1)` with
    :math:`o_b` the frequency in the bin.

    References
    ----------
    Kumar, Liang & Ma (2019); Kull et al. (2019).
    """
    return _error(_every(table, n_bins), table, actions, n_draws, np.random.default_rng(rng))


def _error(
    bins: _Bins, table: Float, actions: Int, n_draws: int, rng: np.random.Generator
) -> CalibrationError:
    check_draws(n_draws)
    share = bins.count / bins.count.sum()
    imagined = Imagined(table, rng)
    null = np.array([share @ np.abs(bins.gaps(imagined.draw())) for _ in range(n_draws)])
    gaps = bins.gaps(actions)
    observed = bins.hits(actions) / bins.count
    several = bins.count > 1
    chance = np.where(several, observed * (1 - observed) / np.where(several, bins.count - 1, 1), 0.0)
    squared = float(share[several] @ (gaps**2 - chance)[several])
    return CalibrationError(against_draws(share @ np.abs(gaps), null), float(np.sqrt(max(squared, 0.0))))


@dataclass(frozen=True, eq=False)
class RatioReliability:
    """Do actions of a given weight occur as often as the weight supposes? One row a bin, smallest ratios first."""

    ratio: Float  # (B,), mean predicted ratio, by the mass of the target
    mass: Float  # (B,), share of the target's actions in the bin
    observed: Float  # (B,), weighted logged actions over the target's mass: 1 if the model is right
    se: Float  # (B,), what chance alone would make of it, if the model were right
    events: Float  # (B,), logged actions that the model expects in the bin; with few of them z is not normal
    unsupported: float  # share of the target's actions to which the model gives probability 0
    with_target: bool  # else all actions counted alike, and the ratio is 1 / (A * probability)

    @property
    def z(self) -> Float:
        """Distance of ``observed`` from 1 in standard errors, (B,)."""
        return np.divide(self.observed - 1, self.se, out=np.zeros_like(self.se), where=self.se > 0)


def ratio_reliability(
    table: Float, data: Trajectories, target: Float | None = None, *, n_bins: int = 10
) -> RatioReliability:
    r"""A reliability diagram of importance ratios: small probabilities are where the bias of an estimate lives.

    All pairs of a state and an action are sorted by the predicted ratio
    :math:`\lambda = \pi_e(a \mid s) / \hat\pi(a \mid s)` into bins that hold equal shares of the target's actions. In
    every bin

    .. math:: \frac{\sum_t \lambda_{t} 1\{(s_t, a_t) \in B\}}{\sum_t \sum_a \pi_e(a \mid s_t) 1\{(s_t, a) \in B\}}

    has mean 1 if the model is right. Above 1: such actions are commoner than the model says, and their weights are too
    large. Without a target every action counts the same, and the ratio is that of :math:`1 / \hat\pi`.
    """
    table = check_table(table, data)
    n, n_actions = table.shape
    wanted = (
        np.full((n, n_actions), 1 / n_actions) if target is None else np.asarray(target, dtype=np.float64)
    )
    supported = (table > 0) & (wanted > 0)
    pairs = np.flatnonzero(supported)
    ratio, mass = (wanted.ravel()[pairs] / table.ravel()[pairs]), wanted.ravel()[pairs]
    cell = np.full(n * n_actions, -1)
    cell[pairs] = _equal_mass(ratio, mass, n_bins)
    count = int(cell.max(initial=-1)) + 1
    expected = np.bincount(cell[pairs], weights=mass, minlength=count)
    logged = np.arange(n) * n_actions + data.actions
    seen = logged[cell[logged] >= 0]
    observed = np.bincount(cell[seen], weights=wanted.ravel()[seen] / table.ravel()[seen], minlength=count)
    # Given the state, the weight that falls into a bin has the variance sum of ratio * mass less the square of its
    # mean. An estimate from the log itself would be far too small as long as the rarest actions have not occurred.
    row_and_bin = (pairs // n_actions) * count + cell[pairs]
    per_step = np.bincount(row_and_bin, weights=mass, minlength=n * count).reshape(n, count)
    second = np.bincount(cell[pairs], weights=ratio * mass, minlength=count)
    se = np.sqrt(np.maximum(second - (per_step**2).sum(axis=0), 0.0)) / expected
    events = np.bincount(cell[pairs], weights=table.ravel()[pairs], minlength=count).astype(np.float64)
    unsupported = float(np.where(table > 0, 0.0, wanted).sum() / n)
    return RatioReliability(
        second / expected, expected / n, observed / expected, se, events, unsupported, target is not None
    )


def _equal_mass(x: Float, mass: Float, n_bins: int) -> Int:
    """Number of the bin of each x: bins of nearly equal mass, equal x never parted."""
    values, at = np.unique(x, return_inverse=True)
    below = np.cumsum(np.bincount(at, weights=mass))
    # By the middle of a value's own mass, so that one large lump does not drag its neighbours along.
    middle = below - np.bincount(at, weights=mass) / 2
    label = np.minimum((middle / below[-1] * n_bins).astype(np.int64), n_bins - 1) if len(values) else at
    return np.unique(label, return_inverse=True)[1][at]
