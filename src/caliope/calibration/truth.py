"""Distances to the true policy, where a simulator knows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caliope.calibration.neighbourhoods import total_variation
from caliope.calibration.nulls import row_of
from caliope.ragged import Float, Int


@dataclass(frozen=True, eq=False)
class DistanceToTruth:
    """How far the model is from the policy that acted, step by step."""

    tv: Float  # (N,), total variation
    kl: Float  # (N,), of the truth relative to the model; infinite where the model rules out what is done
    at_logged: Float  # (N,), |pi - pihat| at the logged action: the x axis of the paper's figure 1
    inflation: Float  # (N,), E[pi / pihat]: what a weight of 1 becomes on average at this step; 1 if right


def distance_to_truth(table: Float, truth: Float, actions: Int) -> DistanceToTruth:
    r"""Compare a model with the truth at every step.

    :math:`\delta(\pi, \hat\pi)`, :math:`\sum_a \pi \log(\pi / \hat\pi)`, :math:`|\pi - \hat\pi|` at what was done,
    and :math:`\sum_a \pi^2 / \hat\pi = 1 + \chi^2`, the factor that a weight gains at every step on average.
    """
    acted = truth > 0
    with np.errstate(divide="ignore"):
        ratio = np.where(acted, truth / np.where(acted, table, 1.0), 1.0)
        kl = (truth * np.log(ratio)).sum(axis=1)
    return DistanceToTruth(
        total_variation(table, truth),
        kl,
        np.abs(row_of(table, actions) - row_of(truth, actions)),
        (truth * ratio).sum(axis=1),
    )
