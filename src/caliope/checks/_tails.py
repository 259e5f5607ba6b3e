"""Whether averages settle: the tail of the weights, or of what they multiply, and the influence of one trajectory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from caliope._evidence import Evidence
from caliope._ragged import Float, first_of_largest
from caliope._traits import Traits
from caliope.checks import D103, D118, Finding, Level
from caliope.weights._effective import weigh_trajectories
from caliope.weights._pareto import khat_threshold, smooth_tail

# Share of the trajectories with one and the same return, from which the others are looked at alone.
_MOSTLY = 0.5
# Share of the squared standard error that one trajectory makes up: a caution, an issue. Intervals that include the bias
# of weights off balance were seen to be nominal below the first, and to cover nine times in ten above 0.2.
DOMINANT = (0.15, 0.5)


def check_tail(traits: Traits, e: Evidence) -> Finding | None:
    """D103: a tail so heavy, of the weights or of what they multiply, that averages hardly settle."""
    threshold = khat_threshold(len(e))
    weights = weigh_trajectories(traits, e)
    if not traits.averages_returns:
        return None
    centred = weights * np.abs(e.returns - weights @ e.returns)
    shapes = {"weights": smooth_tail(weights).k, "returns": smooth_tail(centred[_uncommon(e.returns)]).k}
    what, k = max(shapes.items(), key=lambda item: -np.inf if np.isnan(item[1]) else item[1])
    if not k > threshold:
        return None
    return D103.finding("issue" if k > 1 else "caution", what, k=k, threshold=threshold)


def check_influence(u: Float, e: Evidence) -> tuple[Finding, ...]:
    r"""D118: the share of the squared standard error that one trajectory, or cluster, makes up.

    .. math:: \max_i u_i^2 / \sum_i u_i^2

    A sum of influences u is nearly normal where this is small (Noether's condition), whatever the weights are.
    """
    square = e.layout.pool(u) ** 2
    total = float(square.sum())
    if not (np.isfinite(total) and total > 0):
        return ()
    share = float(square.max() / total)
    level: Level = "issue" if share >= DOMINANT[1] else "caution" if share >= DOMINANT[0] else "note"
    if e.layout.cluster is not None:
        return (D118.finding(level, "cluster", share=share),)
    return (D118.finding(level, "one", share=share, trajectory=first_of_largest(np.abs(u))),)


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
