"""Reliability curves, expected calibration errors, and the reliability of importance ratios."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caliope._policies import check_probabilities
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope.calibration._null import AgainstNull, ModelDraws, against_draws, check_draws, check_table


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Predictions in bins of equal mass, against observed frequencies.

    Parameters
    ----------
    predicted, observed : (B,)
        Mean prediction and frequency in each bin.
    count : (B,)
        Predictions in each bin.

    Examples
    --------
    >>> curve = ReliabilityCurve(np.array([0.2, 0.8]), np.array([0.25, 0.75]), np.array([4.0, 4.0]))
    >>> (curve.observed - curve.predicted).round(2).tolist()
    [0.05, -0.05]
    """

    predicted: Float
    observed: Float
    count: Float


@dataclass(frozen=True, eq=False)
class _Bins:
    """Predictions sorted into bins, once for all draws of actions."""

    cell: Int  # (N, C), number of the bin of each prediction
    taken: Int  # (N, C), the action whose probability it is
    predicted: Float  # (B,), sum
    count: Float  # (B,)

    def hits(self, actions: Int) -> Float:
        """Count the predicted actions that were taken, (B,)."""
        return np.bincount(self.cell[self.taken == actions[:, None]], minlength=len(self.count)).astype(float)

    def gaps(self, actions: Int) -> Float:
        """Return frequency minus mean prediction, (B,)."""
        return (self.hits(actions) - self.predicted) / self.count


def _make_bins(p: Float, taken: Int, n_bins: int, *, by_column: bool) -> _Bins:
    """Make bins of nearly equal size, for all predictions or by column; equal predictions share a bin."""
    if not n_bins >= 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}.")
    cell = np.empty(p.shape, dtype=np.int64)
    start = 0
    for j in range(p.shape[1]) if by_column else (slice(None),):
        column = p[:, j]
        edges = np.unique(np.quantile(column, np.arange(1, n_bins) / n_bins, method="higher"))
        label = np.unique(np.searchsorted(edges, column, side="right"), return_inverse=True)[1]
        cell[:, j] = start + label.reshape(column.shape)
        start += int(label.max()) + 1
    flat = cell.ravel()
    predicted = np.bincount(flat, weights=p.ravel()).astype(np.float64)
    return _Bins(cell, taken, predicted, np.bincount(flat).astype(np.float64))


def _top_label_bins(table: Float, n_bins: int) -> _Bins:
    table = check_probabilities(np.asarray(table), "table")
    best = table.argmax(axis=1)[:, None]
    return _make_bins(np.take_along_axis(table, best, axis=1), best, n_bins, by_column=True)


def _classwise_bins(table: Float, n_bins: int) -> _Bins:
    table = check_probabilities(np.asarray(table), "table")
    actions = np.broadcast_to(np.arange(table.shape[1]), table.shape)
    return _make_bins(table, actions, n_bins, by_column=True)


def reliability_curve(table: Float, actions: Int, *, n_bins: int = 15) -> ReliabilityCurve:
    """Compare all predicted probabilities, whatever the action, with frequencies in bins of equal mass.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities.
    actions : (N,)
        Logged actions.
    n_bins : int
        Number of bins.

    Returns
    -------
    ReliabilityCurve
        Mean prediction, frequency and size of each bin.

    Examples
    --------
    >>> table, actions = np.array([[0.75, 0.25]] * 8), np.array([0, 0, 0, 0, 0, 0, 1, 1])
    >>> reliability_curve(table, actions).observed.tolist()
    [0.25, 0.75]
    """
    every = np.broadcast_to(np.arange(table.shape[1]), table.shape)
    bins = _make_bins(table, every, n_bins, by_column=False)
    return ReliabilityCurve(bins.predicted / bins.count, bins.hits(actions) / bins.count, bins.count)


def top_label_curve(table: Float, actions: Int, *, n_bins: int = 15) -> ReliabilityCurve:
    """Compare the probability of the most likely action with how often it was taken.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities.
    actions : (N,)
        Logged actions.
    n_bins : int
        Number of bins.

    Returns
    -------
    ReliabilityCurve
        Mean prediction, frequency and size of each bin.

    Examples
    --------
    >>> table, actions = np.array([[0.75, 0.25]] * 8), np.array([0, 0, 0, 0, 0, 0, 1, 1])
    >>> top_label_curve(table, actions).observed.tolist()
    [0.75]
    """
    bins = _top_label_bins(table, n_bins)
    return ReliabilityCurve(bins.predicted / bins.count, bins.hits(actions) / bins.count, bins.count)


@dataclass(frozen=True)
class CalibrationError:
    """An expected calibration error with its null, and a debiased one.

    Parameters
    ----------
    ece : AgainstNull
        Expected calibration error.
    debiased : float
        Root of the mean squared gap minus what chance adds to it, or 0 if that is negative.

    Examples
    --------
    >>> CalibrationError(AgainstNull(0.05, 0.04, 0.01), 0.0).ece.value
    0.05
    """

    ece: AgainstNull
    debiased: float


def top_label_error(
    table: Float, actions: Int, *, n_bins: int = 15, n_draws: int = 100, rng: int | np.random.Generator
) -> CalibrationError:
    r"""Compute the expected calibration error of the most likely action, in bins of equal mass.

    .. math:: \sum_b \frac{n_b}{n} \Big| \frac{\text{hits}_b - \sum_{i \in b} p_i}{n_b} \Big|

    When it breaks: it uses one action of many, and rare actions, which have the large importance weights, hardly
    count. It is above 0 even for the truth: compare it with its null.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities.
    actions : (N,)
        Logged actions.
    n_bins : int
        Number of bins.
    n_draws : int
        Draws from the model, for the null.
    rng : int or Generator
        Seed.

    Returns
    -------
    CalibrationError
        The error with its null, and the debiased one.

    References
    ----------
    Guo, Pleiss, Sun & Weinberger (2017), "On calibration of modern neural networks".

    Examples
    --------
    >>> table, actions = np.array([[0.75, 0.25]] * 8), np.array([0, 0, 0, 0, 0, 0, 1, 1])
    >>> top_label_error(table, actions, rng=0).ece.value
    0.0
    """
    return _calibration_error(
        _top_label_bins(table, n_bins), table, actions, n_draws, np.random.default_rng(rng)
    )


def classwise_error(
    table: Float, actions: Int, *, n_bins: int = 15, n_draws: int = 100, rng: int | np.random.Generator
) -> CalibrationError:
    r"""Compute the expected calibration error of every action, averaged over the actions.

    The debiased error subtracts from every squared gap what chance alone adds, :math:`o_b (1 - o_b) / (n_b - 1)` with
    :math:`o_b` the frequency in the bin.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities.
    actions : (N,)
        Logged actions.
    n_bins : int
        Number of bins.
    n_draws : int
        Draws from the model, for the null.
    rng : int or Generator
        Seed.

    Returns
    -------
    CalibrationError
        The error with its null, and the debiased one.

    References
    ----------
    Kumar, Liang & Ma (2019); Kull et al. (2019).

    Examples
    --------
    >>> table, actions = np.array([[0.75, 0.25]] * 8), np.array([0, 0, 0, 0, 0, 0, 1, 1])
    >>> classwise_error(table, actions, rng=0).ece.value
    0.0
    """
    return _calibration_error(
        _classwise_bins(table, n_bins), table, actions, n_draws, np.random.default_rng(rng)
    )


def _calibration_error(
    bins: _Bins, table: Float, actions: Int, n_draws: int, rng: np.random.Generator
) -> CalibrationError:
    check_draws(n_draws)
    share = bins.count / bins.count.sum()
    model = ModelDraws(table, rng)
    null = np.array([share @ np.abs(bins.gaps(model.draw())) for _ in range(n_draws)])
    gaps = bins.gaps(actions)
    observed = bins.hits(actions) / bins.count
    several = bins.count > 1
    chance = np.where(several, observed * (1 - observed) / np.where(several, bins.count - 1, 1), 0.0)
    squared = float(share[several] @ (gaps**2 - chance)[several])
    return CalibrationError(against_draws(share @ np.abs(gaps), null), float(np.sqrt(max(squared, 0.0))))


@dataclass(frozen=True, eq=False)
class RatioReliability:
    """Reliability of importance ratios: bins of the ratio, smallest first.

    Parameters
    ----------
    ratio : (B,)
        Mean predicted ratio, weighted by the mass of the target.
    mass : (B,)
        Share of the target's actions in the bin.
    observed : (B,)
        Weighted logged actions over the target's mass: 1 if the model is right.
    se : (B,)
        Standard error of ``observed`` if the model is right.
    events : (B,)
        Logged actions that the model expects in the bin; with few of them z is not normal.
    unsupported : float
        Share of the target's actions to which the model gives probability 0.
    with_target : bool
        False where all actions count equally and the ratio is 1 / (A * probability).

    Examples
    --------
    >>> one = np.array([1.0])
    >>> RatioReliability(one, one, np.array([1.5]), np.array([0.25]), 40 * one, 0.0, True).z.tolist()
    [2.0]
    """

    ratio: Float
    mass: Float
    observed: Float
    se: Float
    events: Float
    unsupported: float
    with_target: bool

    @property
    def z(self) -> Float:
        """Distance of ``observed`` from 1 in standard errors, (B,)."""
        return np.divide(self.observed - 1, self.se, out=np.zeros_like(self.se), where=self.se > 0)


def ratio_reliability(
    table: Float, data: Trajectories, target: Float | None = None, *, n_bins: int = 10
) -> RatioReliability:
    r"""Compute a reliability curve of importance ratios: errors in small probabilities bias an estimate most.

    All pairs of a state and an action are sorted by the predicted ratio
    :math:`\lambda = \pi_e(a \mid s) / \hat\pi(a \mid s)` into bins that hold equal shares of the target's actions. In
    every bin

    .. math:: \frac{\sum_t \lambda_{t} 1\{(s_t, a_t) \in B\}}{\sum_t \sum_a \pi_e(a \mid s_t) 1\{(s_t, a) \in B\}}

    has mean 1 if the model is right. Above 1, such actions are more common than the model says, and their weights are
    too large. Without a target every action counts equally, and the ratio is that of :math:`1 / \hat\pi`.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities at every step of the log.
    data : Trajectories
        The log, held out.
    target : (N, A), optional
        Probabilities of the target policy.
    n_bins : int
        Number of bins.

    Returns
    -------
    RatioReliability
        Ratio, mass and observed factor of each bin.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> data = ward.simulate(200, rng=0)
    >>> truth = ward.PRACTICE[data.states[:, 0].astype(int)]
    >>> bool(np.abs(ratio_reliability(truth, data).z).max() < 4)
    True
    """
    table = check_table(table, data)
    n, n_actions = table.shape
    uniform = np.full((n, n_actions), 1 / n_actions)
    target_probs = uniform if target is None else np.asarray(target, dtype=np.float64)
    supported = (table > 0) & (target_probs > 0)
    pairs = np.flatnonzero(supported)
    mass = target_probs.ravel()[pairs]
    ratio = mass / table.ravel()[pairs]
    cell = np.full(n * n_actions, -1)
    cell[pairs] = _equal_mass_bins(ratio, mass, n_bins)
    count = int(cell.max(initial=-1)) + 1
    expected = np.bincount(cell[pairs], weights=mass, minlength=count)
    logged = np.arange(n) * n_actions + data.actions
    seen = logged[cell[logged] >= 0]
    seen_ratio = target_probs.ravel()[seen] / table.ravel()[seen]
    observed = np.bincount(cell[seen], weights=seen_ratio, minlength=count)
    # Given the state, the weight in a bin has the variance sum of ratio * mass minus the square of its mean.
    # An estimate from the log would be far too small as long as the rarest actions have not occurred.
    row_and_bin = (pairs // n_actions) * count + cell[pairs]
    per_step = np.bincount(row_and_bin, weights=mass, minlength=n * count).reshape(n, count)
    second = np.bincount(cell[pairs], weights=ratio * mass, minlength=count)
    se = np.sqrt(np.maximum(second - (per_step**2).sum(axis=0), 0.0)) / expected
    events = np.bincount(cell[pairs], weights=table.ravel()[pairs], minlength=count).astype(np.float64)
    unsupported = float(np.where(table > 0, 0.0, target_probs).sum() / n)
    return RatioReliability(
        second / expected, expected / n, observed / expected, se, events, unsupported, target is not None
    )


def _equal_mass_bins(x: Float, mass: Float, n_bins: int) -> Int:
    """Number the bin of each x: bins of nearly equal mass; equal x share a bin."""
    values, at = np.unique(x, return_inverse=True)
    below = np.cumsum(np.bincount(at, weights=mass))
    # By the middle of a value's own mass, so that one large lump does not drag its neighbours along.
    middle = below - np.bincount(at, weights=mass) / 2
    label = np.minimum((middle / below[-1] * n_bins).astype(np.int64), n_bins - 1) if len(values) else at
    return np.unique(label, return_inverse=True)[1][at]
