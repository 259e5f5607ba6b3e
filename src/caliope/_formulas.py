r"""Formulas for the value of the target policy: one estimator each.

Every estimator takes an :class:`~caliope.Evidence` and returns a value, or one value per row of its
counts. Throughout, :math:`\rho_t = \prod_{j=0}^{t} \pi_e(a_j \mid s_j) / \pi_b(a_j \mid s_j)`, step t included:
the main text of Raghu et al. (2018) stops at t - 1, its appendix at t, and the appendix is right (a reward follows
its action). Trajectories may differ in length; one that has ended rests in an absorbing state, earns nothing, and
keeps its last weight in every denominator.

A ratio whose weights are all zero is nan: never 0, and never a quotient with an epsilon below. The examples share
two trajectories, whose weights are 1 and 3 and whose returns are 2.5 and 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope._evidence import Evidence
from caliope._traits import estimator


def ratio(numerator: Any, denominator: Any) -> Any:
    """Divide, and let 0 / 0 be nan without a warning."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(numerator, denominator)


def require_whole_weights(e: Evidence) -> Evidence:
    """Return the evidence, or raise where weights were given for single steps and so weight no whole trajectory."""
    if e.log_weight is not None and e.layout.horizon > 1:
        raise ValueError(
            "this needs the weights of whole trajectories, and these were given for single steps (log_weight), as by "
            "marginalise_weights: use the evidence with its plain weights."
        )
    return e


@estimator(label="Mean return: current practice", uses=set())
def monte_carlo(e: Evidence) -> Any:
    r"""Estimate the value of current practice by the mean return.

    .. math:: \hat V = \frac{1}{n} \sum_i G_i

    What the logged decisions achieved; it ignores the target policy. The baseline of every comparison.

    Parameters
    ----------
    e : Evidence
        The log; its rewards alone are read.

    Returns
    -------
    float or numpy.ndarray
        The value; one per row of counts.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3], gamma=0.5)
    >>> float(monte_carlo(e))
    3.75
    """
    return ratio(e.total(e.returns), e.n)


@estimator(label="Importance sampling", uses={"weights"})
def ois(e: Evidence) -> Any:
    r"""Estimate the value by ordinary importance sampling.

    .. math:: \hat V = \frac{1}{n} \sum_i \rho^{(i)}_{T_i - 1} G_i

    Unbiased when the behaviour probabilities are exact; its variance grows exponentially with the length.

    Parameters
    ----------
    e : Evidence
        Rewards and log-ratios.

    Returns
    -------
    float or numpy.ndarray
        The value; one per row of counts.

    References
    ----------
    Precup, Sutton & Singh (2000). Raghu et al. (2018), appendix A.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3], gamma=0.5)
    >>> float(ois(e))
    8.75
    """
    return ratio(e.total(e.last_rho * e.returns), e.n)


@estimator(label="Stepwise importance sampling", uses={"weights"}, by_step=True)
def step_is(e: Evidence) -> Any:
    r"""Estimate the value by importance sampling per decision.

    .. math:: \hat V = \frac{1}{n} \sum_i \sum_t \gamma^t \rho^{(i)}_t r^{(i)}_t

    Unbiased when the behaviour probabilities are exact; a reward is weighted by the decisions before it and not by
    those after.

    Parameters
    ----------
    e : Evidence
        Rewards and log-ratios.

    Returns
    -------
    float or numpy.ndarray
        The value; one per row of counts.

    References
    ----------
    Precup, Sutton & Singh (2000). Raghu et al. (2018), appendix A.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3], gamma=0.5)
    >>> float(step_is(e))
    9.25
    """
    return ratio(e.total(e.per_trajectory(lambda part: part.sum_steps(part.rho * part.rewards))), e.n)


@estimator(label="Weighted importance sampling", uses={"weights"}, normalised=True)
def wis(e: Evidence) -> Any:
    r"""Estimate the value by weighted (self-normalised) importance sampling.

    .. math:: \hat V = \frac{\sum_i \rho^{(i)}_{T_i - 1} G_i}{\sum_i \rho^{(i)}_{T_i - 1}}

    Biased, consistent, never outside the range of the observed returns. With few effective trajectories it
    is close to the mean return of those few.

    Parameters
    ----------
    e : Evidence
        Rewards and log-ratios.

    Returns
    -------
    float or numpy.ndarray
        The value, nan where every weight is 0; one per row of counts.

    References
    ----------
    Precup, Sutton & Singh (2000).

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3], gamma=0.5)
    >>> float(wis(e))
    4.375
    """
    return ratio(e.total(e.final_weight * e.returns), e.total(e.final_weight))


@estimator(label="Stepwise weighted importance sampling", uses={"weights"}, normalised=True, by_step=True)
def step_wis(e: Evidence) -> Any:
    r"""Estimate the value by weighted importance sampling per decision.

    .. math:: \hat V = \sum_t \gamma^t \frac{\sum_i \rho^{(i)}_t r^{(i)}_t}{\sum_i \rho^{(i)}_t}

    Biased, consistent, lower variance than :func:`step_is`. The denominator runs over all trajectories, those
    that have ended with their last weight: over those under way alone the sum tends to something else (10
    instead of 5.5 where half the trajectories last 1 step and half 10).

    It breaks on trajectories of unequal length whose reward comes at the end: the steps at which few remain
    are each divided by a small sum, and adding a constant to every final reward does not shift the estimate
    by that constant. :func:`wdr` with any sensible baseline v repairs it.

    Parameters
    ----------
    e : Evidence
        Rewards and log-ratios.

    Returns
    -------
    float or numpy.ndarray
        The value, nan where every weight of a step is 0; one per row of counts.

    References
    ----------
    Thomas (2015), consistent weighted per-decision IS. Raghu et al. (2018), appendix A.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3], gamma=0.5)
    >>> round(float(step_wis(e)), 6)
    3.775
    """
    return (e.discount * ratio(e.total_by_time(_weighted_rewards), e.weight_by_time())).sum(axis=-1)


def _weighted_rewards(e: Evidence) -> Any:
    """Rewards with their weights, (N,)."""
    return e.weight * e.rewards


@estimator(label="Direct method: fitted values alone", uses={"values"})
def dm(e: Evidence) -> Any:
    r"""Estimate the value by the direct method: the mean fitted value of the first states.

    .. math:: \hat V = \frac{1}{n} \sum_i \hat V(s^{(i)}_0), \qquad
        \hat V(s) = \sum_a \pi_e(a \mid s)\, \hat Q(s, a)

    The paper's AM. It needs no behaviour policy, and is exactly as good as the fitted values.

    Parameters
    ----------
    e : Evidence
        The log, with ``q`` and ``v``.

    Returns
    -------
    float or numpy.ndarray
        The value; one per row of counts.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    >>> float(dm(e))
    2.0
    """
    require_values(e)
    return ratio(e.total(e.first_v), e.n)


@estimator(label="Doubly robust", uses={"weights", "values"}, by_step=True)
def dr(e: Evidence) -> Any:
    r"""Estimate the value by the doubly robust sum of fitted values and weighted corrections.

    .. math:: \hat V = \frac{1}{n} \sum_i \sum_t \gamma^t
        \left[ \rho^{(i)}_t \big( r^{(i)}_t - \hat Q^{(i)}_t \big) + \rho^{(i)}_{t-1} \hat V^{(i)}_t \right]

    with :math:`\rho_{-1} = 1`. Unbiased if either the behaviour probabilities or the values are exact. Where the
    log was cut off, the value of the last state stands for what was not seen.

    Parameters
    ----------
    e : Evidence
        The log, with ``q`` and ``v``.

    Returns
    -------
    float or numpy.ndarray
        The value; one per row of counts.

    References
    ----------
    Jiang & Li (2016); the sum equals their backward recursion.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    >>> float(dr(e))
    4.75
    """

    def corrected(part: Evidence) -> Any:
        return part.sum_steps(part.rho * part.residual + part.rho_before * require_values(part))

    return ratio(e.total(e.per_trajectory(corrected)), e.n)


@estimator(label="Weighted doubly robust", uses={"weights", "values"}, normalised=True, by_step=True)
def wdr(e: Evidence) -> Any:
    r"""Estimate the value by the doubly robust sum with self-normalised weights.

    .. math:: \hat V = \sum_i \sum_t \gamma^t
        \left[ w^{(i)}_t \big( r^{(i)}_t - \hat Q^{(i)}_t \big) + w^{(i)}_{t-1} \hat V^{(i)}_t \right], \qquad
        w^{(i)}_t = \frac{\rho^{(i)}_t}{\sum_j \rho^{(j)}_t}, \quad w^{(i)}_{-1} = \frac{1}{n}

    Consistent if either the behaviour probabilities or the values are. The paper's appendix has another
    1/n in front: the weights already sum to one, and with it the estimate would be V / n.

    Parameters
    ----------
    e : Evidence
        The log, with ``q`` and ``v``.

    Returns
    -------
    float or numpy.ndarray
        The value, nan where every weight of a step is 0; one per row of counts.

    References
    ----------
    Thomas & Brunskill (2016). Raghu et al. (2018), appendix A.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    >>> float(wdr(e))
    3.125
    """
    correction, baseline = wdr_terms(e)
    return (e.discount * (correction + baseline)).sum(axis=-1)


def wdr_terms(e: Evidence) -> tuple[Any, Any]:
    r"""Split :func:`wdr` into its two parts at each t: corrections, and the baseline :math:`\hat V` before them.

    Parameters
    ----------
    e : Evidence
        The log, with ``q`` and ``v``.

    Returns
    -------
    correction, baseline : numpy.ndarray, (..., T)
        Their discounted sum is :func:`wdr`.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    >>> correction, baseline = wdr_terms(e)
    >>> correction.round(6).tolist(), baseline.round(6).tolist()
    ([0.6, 0.25], [2.0, 0.8])
    """
    weight = e.weight_by_time()
    before = np.concatenate([np.asarray(e.n)[..., None], weight[..., :-1]], axis=-1)
    correction = ratio(e.total_by_time(_weighted_residual), weight)
    return correction, ratio(e.total_by_time(_weighted_values), before)


def _weighted_residual(e: Evidence) -> Any:
    """Corrections of the values at each step, (N,)."""
    return e.weight * e.residual


def _weighted_values(e: Evidence) -> Any:
    """Values before each step, (N,)."""
    return e.weight_before * require_values(e)


def require_values(e: Evidence) -> Any:
    """Return the values of the target policy; raise where there are none."""
    if e.v is None:
        raise ValueError(
            "this estimator needs action values: give gather(..., q=...) or Evidence(..., q=, v=)."
        )
    return e.v
