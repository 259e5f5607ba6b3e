"""Whether the tail of the weights, or of what they multiply, is so heavy that averages hardly settle."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from caliope._evidence import Evidence
from caliope._ragged import Float
from caliope._traits import Traits
from caliope.checks import D103, Finding
from caliope.weights._effective import weigh_trajectories
from caliope.weights._pareto import khat_threshold, smooth_tail

# Share of the trajectories with one and the same return, from which the others are looked at alone.
_MOSTLY = 0.5


def check_tail(traits: Traits, e: Evidence) -> Finding | None:
    """D103: a tail so heavy, of the weights or of what they multiply, that averages hardly settle."""
    threshold = khat_threshold(len(e))
    weights = weigh_trajectories(traits, e)
    if not traits.averages_returns or not weights.any():
        return None
    centred = weights * np.abs(e.returns - weights @ e.returns)
    shapes = {"weights": smooth_tail(weights).k, "returns": smooth_tail(centred[_uncommon(e.returns)]).k}
    what, k = max(shapes.items(), key=lambda item: -np.inf if np.isnan(item[1]) else item[1])
    if not k > threshold:
        return None
    return D103.finding("issue" if k > 1 else "caution", what, k=k, threshold=threshold)


def _uncommon(returns: Float) -> NDArray[np.bool_]:
    """Which returns make a tail: where most are one and the same, the others.

    Rare events lie far from the commonest return, all at one distance: a gap, and no tail. Whether they are too few is
    another question (D111).
    """
    _, which, counts = np.unique(returns, return_inverse=True, return_counts=True)
    common = int(counts.argmax())
    if counts[common] <= _MOSTLY * len(returns):
        return np.ones(len(returns), dtype=np.bool_)
    return np.asarray(which != common)
