"""How much weight each trajectory has, and how many trajectories that is."""

from __future__ import annotations

import numpy as np

from caliope._evidence import Evidence
from caliope._ragged import Float
from caliope._traits import Traits


def effective_n(e: Evidence) -> float:
    r"""Compute the effective sample size of the trajectory weights, :math:`(\sum_i \rho_i)^2 / \sum_i \rho_i^2`.

    It lies between 1 and n. When it breaks: with poor overlap it is too large, because the trajectories that
    would carry the weight were never logged. The mean weight, which should be 1, shows that.

    Parameters
    ----------
    e : Evidence
        The log; its log-ratios alone are read.

    Returns
    -------
    float
        The effective sample size; 0 where there is no weight.

    Examples
    --------
    >>> round(effective_n(Evidence([0, 0], np.log([1, 3]), offsets=[0, 1, 2])), 6)
    1.6
    """
    return kish(e.final_weight)


def kish(weights: Float) -> float:
    r"""Compute Kish's effective sample size of any weights, :math:`(\sum_i w_i)^2 / \sum_i w_i^2`.

    Parameters
    ----------
    weights : (n,)
        Non-negative weights.

    Returns
    -------
    float
        The effective sample size; 0 where there is no weight.

    Examples
    --------
    >>> kish(np.array([1.0, 1.0, 0.0]))
    2.0
    """
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square > 0 else 0.0


def weigh_trajectories(traits: Traits, e: Evidence) -> Float:
    """Compute the weight that an estimator with such traits gives to each whole trajectory, (n,).

    Weights sum to 1, or are 0 where no trajectory has any. Without weights of its own, those of what the
    estimator subtracts are taken.
    """
    if not traits.weighted:
        others = [other for other in traits.against if other.weighted]
        return weigh_trajectories(others[0], e) if others else np.full(len(e), 1 / len(e))
    weights = e.final_weight
    if traits.lengths == "behaviour":
        weights = np.zeros(len(e))
        for members, own in e.final_weight_by_length():
            total = own.sum()
            weights[members] = own / total * len(own) if total > 0 else 0.0
    total = weights.sum()
    return weights / total if total > 0 else weights
