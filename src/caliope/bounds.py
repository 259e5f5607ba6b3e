r"""Distribution-free bounds on the value: Maurer-Pontil, HCOPE, betting.

They hold in samples of any size under three conditions: returns known beforehand to lie in an interval [a, b],
independent trajectories, and exact behaviour probabilities, so that :math:`E[\rho] = 1` and
:math:`E[\rho\,(G - a)] = V - a`. With an estimated behaviour policy the guarantee does not hold, and the result
says so.
"""

from __future__ import annotations

import numpy as np

from caliope._evidence import Evidence, refuse_counts
from caliope._formulas import require_whole_weights
from caliope._ragged import Float
from caliope._results import Interval
from caliope.checks import U101, U104, U105, W101, W102, W103, W104, W105, W107, W108, Finding
from caliope.uncertainty._intervals import check_level

__all__ = ["betting", "hcope", "maurer_pontil"]

# Sums and products of floats may leave their exact range by this much.
_ROUNDING = 1e-9
# Truncation levels tried on the part of the log that is set aside for choosing one.
_GRID = 200


def maurer_pontil(
    e: Evidence, *, returns_in: tuple[float, float], max_weight: float, level: float = 0.95
) -> Interval:
    r"""Compute an empirical Bernstein interval, for weights with a known bound.

    With :math:`X = \rho\,(G - a) \in [0, M]`, :math:`M = \rho_{\max} (b - a)`, and each side at
    :math:`\delta = (1 - \mathrm{level}) / 2`,

    .. math:: V \ge a + \bar X - \sqrt{\frac{2 s^2 \ln(2 / \delta)}{n}} - \frac{7 M \ln(2 / \delta)}{3 (n - 1)}

    and likewise above.

    Parameters
    ----------
    e : Evidence
        The log, without counts.
    returns_in : (float, float)
        Interval [a, b] in which every return is known to lie.
    max_weight : float
        Largest possible weight :math:`\rho_{\max}`. It must come from the two policies, not from the data.
    level : float
        Confidence level.

    Returns
    -------
    Interval
        Both ends, with findings U101 and U104 where a condition fails.

    References
    ----------
    Maurer & Pontil (2009), theorem 4.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> log_ratio = np.log(rng.choice([0.5, 1.5], size=500))
    >>> e = Evidence(rng.random(500), log_ratio, offsets=np.arange(501), behaviour_known=True)
    >>> print(maurer_pontil(e, returns_in=(0, 1), max_weight=1.5))
    [0.45, 0.58] at 95%, Maurer-Pontil
    """
    low, high = _check(e, returns_in, level)
    rho, n = e.rho[e.layout.last], len(e)
    if not max_weight > 0:
        raise ValueError(f"max_weight must be positive, got {max_weight}.")
    if rho.max() > max_weight * (1 + _ROUNDING):
        raise ValueError(f"max_weight is {max_weight:g}, but a trajectory has weight {rho.max():.6g}.")
    log_term = np.log(2 / ((1 - level) / 2))

    def lower(x: Float) -> float:
        arm = np.sqrt(2 * x.var(ddof=1) * log_term / n) + 7 * max_weight * (high - low) * log_term / (
            3 * (n - 1)
        )
        return max(0.0, float(x.mean() - arm))

    # Above by a bound below on rho (b - G), not by one above on rho (G - a): where the target acts without
    # support, weight is missing, and the second would take it for a return of a.
    changed = any(note.check in (W101, W102, W103, W104, W105, W107, W108) for note in e.notes)
    below, above = low + lower(rho * (e.returns - low)), high - lower(rho * (high - e.returns))
    return _interval(
        below, above, (low, high), level, "Maurer-Pontil", _check_assumptions(e, changed=changed)
    )


def hcope(
    e: Evidence,
    *,
    returns_in: tuple[float, float],
    level: float = 0.95,
    share: float = 0.05,
    rng: int | np.random.Generator,
) -> Interval:
    r"""Compute a lower confidence bound from truncated weights; there is no upper bound.

    Truncating :math:`Y = \min(X, c)`, :math:`X = \rho\,(G - a) \ge 0`, can only lower the mean, so a lower
    bound on :math:`E[Y]` is one on :math:`V - a`, however large the weights:

    .. math:: V \ge a + \bar Y - \frac{7 c \ln(2 / \delta)}{3 (n - 1)} - \sqrt{\frac{2 \ln(2 / \delta)\, s_Y^2}{n}}

    The level c is chosen on a random ``share`` of the log, and the bound computed on the rest.

    Parameters
    ----------
    e : Evidence
        The log, without counts.
    returns_in : (float, float)
        Interval [a, b] in which every return is known to lie.
    level : float
        Confidence level.
    share : float
        Share of the trajectories used to choose c, between 0 and 1.
    rng : int or Generator
        Seed of the split.

    Returns
    -------
    Interval
        Lower end; the upper one is infinite. Findings U101 and U104 where a condition fails.

    References
    ----------
    Thomas, Theocharous & Ghavamzadeh (2015), high-confidence off-policy evaluation.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> log_ratio = np.log(rng.choice([0.5, 1.5], size=500))
    >>> e = Evidence(rng.random(500), log_ratio, offsets=np.arange(501), behaviour_known=True)
    >>> print(hcope(e, returns_in=(0, 1), rng=0))
    [0.4613, inf] at 95%, HCOPE lower bound
    """
    low, high = _check(e, returns_in, level)
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share}.")
    x = np.random.default_rng(rng).permutation(e.rho[e.layout.last] * (e.returns - low))
    size = max(2, round(share * len(x)))
    if len(x) - size < 2:
        raise ValueError(f"the bound needs at least 4 trajectories, got {len(x)}.")
    choose, rest = x[:size], x[size:]
    bound = _truncated_bound(rest, _choose_truncation(choose, len(rest), level), len(rest), level)
    below = max(low, low + bound)
    return _interval(below, np.inf, (low, high), level, "HCOPE lower bound", _check_assumptions(e))


def _truncated_bound(x: Float, c: float, n: int, level: float) -> float:
    """Compute the lower bound that n values like x would give when truncated at c."""
    y = np.minimum(x, c)
    log_term = np.log(2 / (1 - level))
    return float(y.mean() - 7 * c * log_term / (3 * (n - 1)) - np.sqrt(2 * log_term * y.var(ddof=1) / n))


def _choose_truncation(x: Float, n: int, level: float) -> float:
    positive = x[x > 0]
    if not len(positive):
        return 1.0
    grid = np.geomspace(positive.min(), positive.max() * len(x), _GRID)
    return float(grid[np.argmax([_truncated_bound(x, c, n, level) for c in grid])])


def betting(
    e: Evidence, *, returns_in: tuple[float, float], level: float = 0.95, rng: int | np.random.Generator
) -> Interval:
    r"""Compute an interval by betting: tight, without a bound on the weights.

    A gambler bets against "the mean of :math:`X = \rho\,(G - a) \ge 0` is m"; capital
    :math:`\prod_t (1 + \lambda_t (X_t - m))` with :math:`0 \le \lambda_t < 1 / m` chosen from the past is a
    martingale if m is the mean, and a value at which it once exceeds :math:`1 / \delta` is rejected. Above,
    the same game is played on :math:`\rho\,(b - G)`, whose mean is b - V. Trajectories are taken in random
    order.

    Parameters
    ----------
    e : Evidence
        The log, without counts.
    returns_in : (float, float)
        Interval [a, b] in which every return is known to lie.
    level : float
        Confidence level.
    rng : int or Generator
        Seed of the order.

    Returns
    -------
    Interval
        Both ends, with findings U101 and U104 where a condition fails.

    References
    ----------
    Waudby-Smith & Ramdas (2024), JRSS B; Waudby-Smith et al. (2022), anytime-valid off-policy inference.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> log_ratio = np.log(rng.choice([0.5, 1.5], size=500))
    >>> e = Evidence(rng.random(500), log_ratio, offsets=np.arange(501), behaviour_known=True)
    >>> print(betting(e, returns_in=(0, 1), rng=0))
    [0.498, 0.537] at 95%, betting
    """
    low, high = _check(e, returns_in, level)
    order = np.random.default_rng(rng).permutation(len(e))
    rho, returns = e.rho[e.layout.last][order], e.returns[order]
    delta = (1 - level) / 2
    below = low + _betting_lower(rho * (returns - low), high - low, delta)
    above = high - _betting_lower(rho * (high - returns), high - low, delta)
    return _interval(below, above, (low, high), level, "betting", _check_assumptions(e))


def _interval(
    below: float,
    above: float,
    returns_in: tuple[float, float],
    level: float,
    method: str,
    findings: tuple[Finding, ...],
) -> Interval:
    """Make the interval, or an undefined one where no value lies between the two ends."""
    low, high = returns_in
    if below <= above and below < high and above > low:
        return Interval(float(below), float(above), level, method, findings)
    empty = U105.finding("issue", low=low, high=high, below=float(below), above=float(above))
    return Interval(np.nan, np.nan, level, method, (*findings, empty))


def _betting_lower(x: Float, scale: float, delta: float) -> float:
    """Compute a lower confidence bound for the mean of independent x >= 0, at most ``scale``."""
    bets = _bets(x, scale, delta)

    def reject(m: float) -> bool:
        capital = np.log1p(np.minimum(bets, 0.5 / m) * (x - m)).cumsum()
        return bool(capital.max() >= np.log(1 / delta))

    # Capital falls in m at every t, so what is rejected is an interval that begins at 0.
    rejected_up_to, open_above = 0.0, scale
    if reject(scale):
        return scale
    for _ in range(60):
        m = (rejected_up_to + open_above) / 2
        rejected_up_to, open_above = (m, open_above) if reject(m) else (rejected_up_to, m)
    return rejected_up_to


def _bets(x: Float, scale: float, delta: float) -> Float:
    """Compute predictable plug-in bets: each depends only on the values before it."""
    n = len(x)
    seen = np.arange(1, n + 1)
    mean = (scale / 2 + np.cumsum(x)) / (seen + 1)
    variance = (scale**2 / 4 + np.cumsum((x - mean) ** 2)) / (seen + 1)
    before = np.concatenate([[scale**2 / 4], variance[:-1]])
    return np.sqrt(2 * np.log(1 / delta) / (n * before))


def _check(e: Evidence, returns_in: tuple[float, float], level: float) -> tuple[float, float]:
    check_level(level)
    low, high = returns_in
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ValueError(f"returns_in must be two finite numbers, low < high, got {returns_in}.")
    refuse_counts(require_whole_weights(e))
    if e.cluster is not None:
        raise ValueError(
            f"a bound needs independent trajectories, and these belong to {e.layout.n_units} clusters: use bootstrap, "
            "or keep one trajectory per cluster."
        )
    if len(e) < 2:
        raise ValueError("a bound needs at least 2 trajectories.")
    if not np.isfinite(e.rho[e.layout.last]).all():
        raise ValueError("the weights leave the range of a float: no bound can be computed. Cap them first.")
    slack = _ROUNDING * (high - low)
    outside = np.flatnonzero((e.returns < low - slack) | (e.returns > high + slack))
    if len(outside):
        raise ValueError(
            f"{len(outside)} returns lie outside returns_in = [{low:g}, {high:g}] "
            f"(first: {e.returns[outside[0]]:.6g}, trajectory {outside[0]})."
        )
    return float(low), float(high)


def _check_assumptions(e: Evidence, *, changed: bool = False) -> tuple[Finding, ...]:
    findings = []
    if not e.behaviour_known:
        findings.append(U101.finding("issue"))
    # Smoothing raises weights; a cap read off the log makes all values depend on each other.
    dependent = (n.check in (W104, W107, W108) or (n.check == W102 and "at" not in n.facts) for n in e.notes)
    if changed or any(dependent):
        findings.append(U104.finding("issue"))
    return tuple(findings)
