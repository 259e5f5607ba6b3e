r"""What an unrecorded reason behind the decisions could do to the estimate.

If those who decided saw something that the log does not hold, no behaviour model built from the log is right. Here the
true weight of every whole trajectory may lie anywhere between :math:`\rho / \Gamma` and :math:`\Gamma \rho`; the bounds
are the lowest and the highest :func:`~caliope.estimators.wis` that such weights allow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caliope.evidence import Evidence, refuse_counts
from caliope.ragged import Float
from caliope.results import Interval

_STEPS = 60  # halvings of the logarithm of Gamma: beyond the precision of a float
_LARGEST = 1e6  # no confounder is that strong; beyond it nothing would overturn the estimate


def confounding_bounds(e: Evidence, gamma: float) -> Interval:
    r"""Lowest and highest weighted estimate if every trajectory's weight may be off by a factor up to Gamma.

    .. math:: \min_{\rho_i / \Gamma \,\le\, w_i \,\le\, \Gamma \rho_i} \frac{\sum_i w_i G_i}{\sum_i w_i}

    The minimum gives the largest weight to all returns below some threshold and the smallest to all above it, so that
    sorting the returns and trying each threshold finds it. It says nothing of sampling error: at Gamma = 1 both ends
    are the estimate itself.

    When it breaks: a confounder that acts at every step multiplies up. A factor of 1.5 at each of ten decisions is
    :math:`\Gamma = 1.5^{10} = 58` here, and bounds that wide say nothing.

    References
    ----------
    Tan (2006) and Zhao, Small & Bhattacharya (2019), the marginal sensitivity model, with a trajectory as the unit.
    """
    if not 1 <= gamma < np.inf:
        raise ValueError(f"gamma must be a number from 1, got {gamma}.")
    refuse_counts(e)
    weights, returns = _sorted(e)
    low = _lowest(weights, returns, gamma)
    high = -_lowest(weights[::-1], -returns[::-1], gamma)
    return Interval(low, high, 1.0, f"weights off by up to a factor of {gamma:g}")


@dataclass(frozen=True)
class Breakdown:
    """How strong an unrecorded reason must be to overturn the comparison with current practice."""

    gamma: float  # infinite if nothing within reason does
    estimate: float
    practice: float

    def __str__(self) -> str:
        if np.isnan(self.estimate):
            return "no trajectory has any weight, so that there is nothing to overturn"
        better = "better" if self.estimate > self.practice else "worse"
        start = (
            f"weighted importance sampling finds the policy {better} than practice ({self.estimate:.4g} against "
            f"{self.practice:.4g})"
        )
        if not np.isfinite(self.gamma):
            return f"{start}, and no factor in the weights changes that"
        return (
            f"{start}; that sign is lost if weights are off by a factor of {self.gamma:.2f}: an unrecorded reason that "
            "changes the odds of a whole trajectory that much"
        )


def breakdown(e: Evidence, practice: float | None = None) -> Breakdown:
    r"""Smallest :math:`\Gamma` at which the bounds reach what practice achieves, by default its mean return."""
    refuse_counts(e)
    weights, returns = _sorted(e)
    level = float(e.returns.mean()) if practice is None else float(practice)
    value = _lowest(weights, returns, 1.0)
    # A policy that is worse is turned around: then it is the upper bound that must come down to practice.
    sign = 1.0 if value > level else -1.0
    if sign < 0:
        weights, returns = weights[::-1], -returns[::-1]

    def overturned(gamma: float) -> bool:
        return _lowest(weights, returns, gamma) <= sign * level

    if np.isnan(value) or not overturned(_LARGEST):
        return Breakdown(float("nan") if np.isnan(value) else float("inf"), value, level)
    low, high = 0.0, np.log(_LARGEST)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if overturned(np.exp(middle)) else (middle, high)
    return Breakdown(float(np.exp(high)), value, level)


def _sorted(e: Evidence) -> tuple[Float, Float]:
    """Weights (up to a common factor) and returns of the trajectories that have weight, by rising return."""
    weights, returns = e.final_weight, e.returns
    order = np.argsort(returns, kind="stable")
    order = order[weights[order] > 0]
    return weights[order], returns[order]


def _lowest(weights: Float, returns: Float, gamma: float) -> float:
    """The minimum over all thresholds; returns rise."""
    if not len(weights):
        return float("nan")
    mass, value = np.cumsum(weights), np.cumsum(weights * returns)
    up = np.concatenate([[0.0], mass]), np.concatenate([[0.0], value])
    total = mass[-1], value[-1]
    below, above = gamma, 1 / gamma
    means = (below * up[1] + above * (total[1] - up[1])) / (below * up[0] + above * (total[0] - up[0]))
    return float(means.min())
