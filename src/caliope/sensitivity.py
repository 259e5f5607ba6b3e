r"""Sensitivity of an estimate: unmeasured confounding, influential trajectories, and other choices of the analyst.

:func:`bounds` and :func:`breakdown` ask what an unmeasured confounder could do: the true weight of every whole
trajectory may lie anywhere between :math:`\rho / \Gamma` and :math:`\Gamma \rho`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from caliope._evidence import Evidence, refuse_counts
from caliope._formulas import monte_carlo, require_whole_weights, step_wis, wdr, wis
from caliope._gather import gather
from caliope._policies import SupportError
from caliope._ragged import Float, Int, by_size
from caliope._results import Interval, Table
from caliope._traits import Estimator, label
from caliope._trajectories import Trajectories
from caliope.checks import Finding
from caliope.estimators import phwis
from caliope.uncertainty._intervals import influence
from caliope.weights import calibrate_ratios, clip_weights, effective_n

__all__ = ["Breakdown", "bounds", "breakdown", "find_influential", "try_other_choices"]

_STEPS = 60  # halvings of the logarithm of the factor: beyond the precision of a float
_LARGEST = 1e6  # no confounder is that strong; beyond it nothing would overturn the estimate
_ROUNDING = 1e-12  # of the largest return: a smaller difference has no direction
_TOP = 10  # influential trajectories that are listed
SHRUNK = "shrunk towards current practice"
TREATMENTS: tuple[tuple[str, Callable[[Evidence], Evidence]], ...] = (
    ("as they are", lambda e: e),
    ("capped", clip_weights),
)

# -- unmeasured confounding --


def bounds(e: Evidence, factor: float) -> Interval:
    r"""Bound the weighted estimate if the weight of every trajectory may be off by a factor.

    .. math:: \min_{\rho_i / \Gamma \,\le\, w_i \,\le\, \Gamma \rho_i} \frac{\sum_i w_i G_i}{\sum_i w_i}

    The minimum gives the largest weight to all returns below some threshold and the smallest to all above it, so that
    sorting the returns and trying each threshold finds it. Sampling error is not included: at a factor of 1 both ends
    are the estimate itself.

    When it breaks: a confounder that acts at every step multiplies up. A factor of 1.5 at each of ten decisions is
    :math:`\Gamma = 1.5^{10} = 58` here, and bounds that wide say nothing.

    Parameters
    ----------
    e : Evidence
        Rewards and ratios, without counts.
    factor : float
        :math:`\Gamma`, from 1: how far an unmeasured confounder may move the odds of a whole trajectory.

    Returns
    -------
    Interval
        Lowest and highest :func:`~caliope.estimators.wis` that such weights allow.

    References
    ----------
    Tan (2006) and Zhao, Small & Bhattacharya (2019), the marginal sensitivity model, with a trajectory as the unit.

    Examples
    --------
    >>> e = Evidence([0.0, 1.0], [0.0, 0.0], [0, 1, 2])
    >>> bounds(e, 1.0).low, bounds(e, 2.0).low
    (0.5, 0.2)
    """
    if not 1 <= factor < np.inf:
        raise ValueError(f"factor must be a number from 1, got {factor}.")
    refuse_counts(e)
    weights, returns = _by_return(e)
    low = _lowest(weights, returns, factor)
    high = -_lowest(weights[::-1], -returns[::-1], factor)
    return Interval(low, high, 1.0, f"weights off by up to a factor of {factor:g}")


@dataclass(frozen=True)
class Breakdown:
    """How strong an unmeasured confounder must be to overturn a comparison.

    Attributes
    ----------
    factor : float
        Smallest factor in the weights that changes the sign; infinite if none up to a million does, 1 if there is none.
    estimate : float
        Weighted importance sampling.
    baseline : float
        What it is compared with.

    Examples
    --------
    >>> Breakdown(factor=1.3, estimate=0.6, baseline=0.5).factor
    1.3
    """

    factor: float
    estimate: float
    baseline: float

    def __str__(self) -> str:
        return self.describe()

    def describe(self, unit: str = "trajectory") -> str:
        """Say it in a sentence without capital and full stop, with the word for one trajectory."""
        if np.isnan(self.estimate):
            return f"no {unit} has any weight, so no comparison is possible"
        if self.estimate == self.baseline:
            return "weighted importance sampling finds no difference from current practice, so none can be reversed"
        better = "better" if self.estimate > self.baseline else "worse"
        start = (
            f"weighted importance sampling finds the new policy {better} than current practice ({self.estimate:.4g} "
            f"against {self.baseline:.4g})"
        )
        if not np.isfinite(self.factor):
            return f"{start}, and no factor in the weights changes that"
        return (
            f"{start}; an unmeasured confounder that changes the odds of one {unit} by a factor of "
            f"{self.factor:.2f} would reverse that"
        )


def breakdown(e: Evidence, *, baseline: float | None = None) -> Breakdown:
    r"""Find the smallest factor at which :func:`bounds` reach a baseline.

    Parameters
    ----------
    e : Evidence
        Rewards and ratios, without counts.
    baseline : float, optional
        What the estimate is compared with, by default the mean return of the log.

    Returns
    -------
    Breakdown
        The factor, the estimate and the baseline.

    Examples
    --------
    >>> e = Evidence([0.0, 1.0], [0.0, 0.0], [0, 1, 2])
    >>> round(breakdown(e, baseline=0.2).factor, 6)
    2.0
    """
    refuse_counts(e)
    weights, returns = _by_return(e)
    level = float(e.returns.mean()) if baseline is None else float(baseline)
    value = _lowest(weights, returns, 1.0)
    if abs(value - level) <= _ROUNDING * np.abs(e.returns).max():
        return Breakdown(1.0, level, level)
    # A policy that is worse is turned around: then it is the upper bound that must come down to the baseline.
    sign = 1.0 if value > level else -1.0
    if sign < 0:
        weights, returns = weights[::-1], -returns[::-1]

    def overturns(factor: float) -> bool:
        return _lowest(weights, returns, factor) <= sign * level

    if np.isnan(value) or not overturns(_LARGEST):
        return Breakdown(float("nan") if np.isnan(value) else float("inf"), value, level)
    low, high = 0.0, np.log(_LARGEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if overturns(np.exp(middle)) else (middle, high)
    return Breakdown(float(np.exp(high)), value, level)


def _by_return(e: Evidence) -> tuple[Float, Float]:
    """Weights (up to a common factor) and returns of the trajectories that have weight, by rising return."""
    weights, returns = require_whole_weights(e).final_weight, e.returns
    order = np.argsort(returns, kind="stable")
    order = order[weights[order] > 0]
    return weights[order], returns[order]


def _lowest(weights: Float, returns: Float, factor: float) -> float:
    """The minimum over all thresholds; returns rise."""
    if not len(weights):
        return float("nan")
    mass, value = np.cumsum(weights), np.cumsum(weights * returns)
    up = np.concatenate([[0.0], mass]), np.concatenate([[0.0], value])
    total = mass[-1], value[-1]
    below, above = factor, 1 / factor
    means = (below * up[1] + above * (total[1] - up[1])) / (below * up[0] + above * (total[0] - up[0]))
    return float(means.min())


# -- influential trajectories --


@dataclass(frozen=True, eq=False)
class Influence:
    """The trajectories that move an estimate most, and how many must go for its sign to change.

    Attributes
    ----------
    top : array of int
        Numbers of the most influential trajectories.
    effect : array of float
        What leaving each of them out changes, to first order.
    to_flip : int or None
        How many must be left out for the sign to change; None if no fifth of the log does it.
    share_to_flip : float or None
        The same as a share of the log.
    """

    top: Int
    effect: Float
    to_flip: int | None
    share_to_flip: float | None


def find_influential(estimator: Estimator, e: Evidence, *, most: int | None = None) -> Influence:
    r"""Find the trajectories that hold up the sign of an estimate.

    With :math:`\psi_i` the influence of a trajectory, leaving it out changes the estimate by about
    :math:`-\psi_i / n`. Those with the most positive influence (for a positive estimate) are left out together, and the
    estimate is computed anew: no linear extrapolation.

    Parameters
    ----------
    estimator : callable
        From evidence to a number, usually a difference from current practice.
    e : Evidence
        What it is computed from.
    most : int, optional
        Trajectories to leave out at most, by default a fifth.

    Returns
    -------
    Influence
        The most influential trajectories, and how many of them change the sign.

    References
    ----------
    Broderick, Giordano & Meager (2020), "An automatic finite-sample robustness metric".

    Examples
    --------
    >>> e = Evidence([-1.0] * 9 + [10.0], np.zeros(10), np.arange(11))
    >>> found = find_influential(monte_carlo, e)
    >>> int(found.top[0]), found.to_flip
    (9, 1)
    """
    value = float(np.real(estimator(e)))
    psi = influence(estimator, e)
    loudest = by_size(np.abs(psi))[:_TOP]
    effect = -psi[loudest] / len(e)
    order = by_size(psi * np.sign(value))
    limit = min(len(e) - 2, most or max(1, len(e) // 5))

    def flips(m: int) -> bool:
        kept = np.ones(len(e))
        kept[order[:m]] = 0.0
        without = float(np.real(estimator(e.with_counts(kept))))
        return not np.isfinite(without) or np.sign(without) != np.sign(value)

    if not np.isfinite(value) or value == 0 or limit < 1 or not flips(limit):
        return Influence(loudest, effect, None, None)
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if flips(middle) else (middle, high)
    return Influence(loudest, effect, high, high / len(e))


# -- other choices --


@dataclass(frozen=True)
class OtherChoice:
    """One combination of choices, and what comes out of it.

    Attributes
    ----------
    model : str
        Name of the behaviour model.
    fit : str
        "cross": out of fold; "same": fitted on the log that it weighs; "" for logged probabilities.
    weights : str
        What was done to the weights.
    estimator : str
        Label of the estimator.
    value : float
        The estimate.
    gain : float
        The same minus current practice.
    effective_n : float
        Effective sample size.
    findings : tuple of Finding
        Empty: a table asks its rows for them.
    """

    model: str
    fit: str
    weights: str
    estimator: str
    value: float
    gain: float
    effective_n: float
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """The choices, in words."""
        return f"{self.model}, {self.fit} fit, weights {self.weights}, {self.estimator}"

    def cells(self) -> dict[str, str]:
        """What a printed table shows."""
        return {
            "behaviour model": self.model,
            "fit": self.fit,
            "weights": self.weights,
            "estimator": self.estimator,
            "value": f"{self.value:.4g}",
            "against practice": f"{self.gain:+.3g}",
            "effective n": f"{self.effective_n:.1f}",
        }

    def record(self) -> dict[str, Any]:
        """What a data frame shows."""
        return {name: x for name, x in asdict(self).items() if name != "findings"}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            name: None if isinstance(x, float) and not np.isfinite(x) else x
            for name, x in self.record().items()
        }


def try_other_choices(
    data: Trajectories,
    target: Any,
    behaviours: Mapping[str, Any],
    *,
    gamma: float,
    q: Any = None,
    rng: int = 0,
) -> Table[OtherChoice]:
    """Estimate the same value under other choices of behaviour model, weights and estimator.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The new policy, also stated relative to practice.
    behaviours : mapping from name to behaviour policy
        As for :func:`~caliope.gather`. A model that rules out a logged action has no weights, and gets a row
        of nan.
    gamma : float
        Discount in [0, 1].
    q : optional
        Fitted values, as for :func:`~caliope.gather`.
    rng : int
        Seed of the folds in which ratios are shrunk.

    Returns
    -------
    Table of OtherChoice
        Every model, with weights as they are, capped, or shrunk towards current practice, with every estimator.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from caliope import TabularPolicy, UniformPolicy
    >>> data = ward.simulate(50, rng=0)
    >>> rows = try_other_choices(data, TabularPolicy(ward.EARLIER), {"uniform": UniformPolicy(3)}, gamma=1.0)
    >>> len(rows), rows[0].weights
    (9, 'as they are')
    """
    rows: list[OtherChoice] = []
    for name, behaviour in behaviours.items():
        fit = getattr(behaviour, "mode", "")
        try:
            raw = gather(data, target, behaviour, gamma=gamma, q=q)
        except SupportError:
            rows.append(OtherChoice(name, fit, "none", "none", float("nan"), float("nan"), 0.0))
            continue
        for how, treat in TREATMENTS:
            rows += _estimate_all((name, fit, how), treat(raw))
        if getattr(behaviour, "predict_proba", None) is not None:
            shrunk = calibrate_ratios(data, target, behaviour, gamma=gamma, rng=rng)
            rows += _estimate_all((name, fit, SHRUNK), shrunk)
    return Table(tuple(rows), "The same question under other choices")


def _estimate_all(choices: tuple[str, str, str], e: Evidence) -> list[OtherChoice]:
    estimators: tuple[Estimator, ...] = (wis, phwis, wdr) if e.q is not None else (wis, phwis, step_wis)
    practice, n = float(monte_carlo(e)), effective_n(e)
    values = [(label(f), float(f(e))) for f in estimators]
    return [OtherChoice(*choices, name, value, value - practice, n) for name, value in values]
