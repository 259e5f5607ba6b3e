"""Which trajectories carry the conclusion, and how few of them would overturn it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caliope.estimators import Estimator
from caliope.evidence import Evidence
from caliope.ragged import Float, Int
from caliope.uncertainty import influence

_TOP = 10


@dataclass(frozen=True, eq=False)
class Influence:
    """The trajectories that move an estimate most, and how many must go for its sign to change."""

    top: Int  # the most influential trajectories, by number
    effect: Float  # what leaving each of them out changes, to first order
    to_flip: (
        int | None
    )  # how many of the most influential must be left out for the sign to change; None: not found
    share_to_flip: float | None


def most_influential(estimator: Estimator, e: Evidence, *, most: int | None = None) -> Influence:
    r"""Leave out the trajectories that hold up the sign of an estimate, one after the other.

    ``estimator`` is usually a difference from current practice. With :math:`\psi_i` the influence of a trajectory,
    leaving it out changes the estimate by about :math:`-\psi_i / n`; those with the most positive influence (for a
    positive estimate) are left out together, and the estimate is computed anew: no linear extrapolation.

    References
    ----------
    Broderick, Giordano & Meager (2020), "An automatic finite-sample robustness metric".
    """
    value = float(np.real(estimator(e)))
    psi = influence(estimator, e)
    loudest = np.argsort(-np.abs(psi), kind="stable")[:_TOP]
    effect = -psi[loudest] / len(e)
    order = np.argsort(-psi * np.sign(value), kind="stable")
    limit = min(len(e) - 2, most or max(1, len(e) // 5))

    def flipped(m: int) -> bool:
        kept = np.ones(len(e))
        kept[order[:m]] = 0.0
        without = float(np.real(estimator(e.with_counts(kept))))
        return not np.isfinite(without) or np.sign(without) != np.sign(value)

    if not np.isfinite(value) or value == 0 or limit < 1 or not flipped(limit):
        return Influence(loudest, effect, None, None)
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if flipped(middle) else (middle, high)
    return Influence(loudest, effect, high, high / len(e))
