r"""Estimators of what the evaluation policy is worth: one function for each formula.

Every estimator takes an :class:`~caliope.evidence.Evidence` and returns a value, or one value for each row
of its counts. Throughout, :math:`\rho_t = \prod_{j=0}^{t} \pi_e(a_j \mid s_j) / \pi_b(a_j \mid s_j)`, step t
included: the main text of Raghu et al. (2018) stops at t - 1, its appendix at t, and the appendix is right
(a reward follows its action). Trajectories may differ in length; one that has ended rests in an absorbing
state, earns nothing, and keeps its last weight in every denominator.

A ratio whose weights are all zero is nan: never 0, and never a quotient with an epsilon below.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from caliope.evidence import Evidence


class Estimator(Protocol):
    """A function from evidence to a value, named for tables by ``__name__`` and its first doc line."""

    __name__: str

    def __call__(self, e: Evidence, /) -> Any:
        """Value of the evaluation policy; one for each row of counts where there are several."""


def _ratio(numerator: Any, denominator: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(numerator, denominator)


def monte_carlo(e: Evidence) -> Any:
    r"""Mean return: current practice.

    .. math:: \hat V = \frac{1}{n} \sum_i G_i

    What the logged decisions achieved; it ignores the evaluation policy. The baseline of every comparison.
    """
    return _ratio(e.total(e.returns), e.n)


def ois(e: Evidence) -> Any:
    r"""Importance sampling.

    .. math:: \hat V = \frac{1}{n} \sum_i \rho^{(i)}_{T_i - 1} G_i

    Unbiased when the behaviour probabilities are exact; its variance grows exponentially with the length.

    References
    ----------
    Precup, Sutton & Singh (2000). Raghu et al. (2018), appendix A.
    """
    return _ratio(e.total(e.rho[e.layout.last] * e.returns), e.n)


def step_is(e: Evidence) -> Any:
    r"""Stepwise importance sampling.

    .. math:: \hat V = \frac{1}{n} \sum_i \sum_t \gamma^t \rho^{(i)}_t r^{(i)}_t

    Also called per-decision IS. Unbiased when the behaviour probabilities are exact; a reward is weighted by
    the decisions before it and not by those after.

    References
    ----------
    Precup, Sutton & Singh (2000). Raghu et al. (2018), appendix A.
    """
    return _ratio(e.total(e.sum_steps(e.rho * e.rewards)), e.n)


def wis(e: Evidence) -> Any:
    r"""Weighted importance sampling.

    .. math:: \hat V = \frac{\sum_i \rho^{(i)}_{T_i - 1} G_i}{\sum_i \rho^{(i)}_{T_i - 1}}

    Biased, consistent, never outside the range of the observed returns. With few effective trajectories it
    is close to the mean return of those few.

    References
    ----------
    Precup, Sutton & Singh (2000).
    """
    return _ratio(e.total(e.final_weight * e.returns), e.total(e.final_weight))


def step_wis(e: Evidence) -> Any:
    r"""Stepwise weighted importance sampling.

    .. math:: \hat V = \sum_t \gamma^t \frac{\sum_i \rho^{(i)}_t r^{(i)}_t}{\sum_i \rho^{(i)}_t}

    Biased, consistent, lower variance than :func:`step_is`. The denominator runs over all trajectories, those
    that have ended with their last weight: over the survivors alone the sum tends to something else (10
    instead of 5.5 where half the episodes last 1 step and half 10).

    It breaks on trajectories of unequal length whose reward comes at the end: the steps at which few remain
    are each divided by a small sum, and adding a constant to every final reward does not shift the estimate
    by that constant. :func:`wdr` with any sensible baseline v repairs it.

    References
    ----------
    Thomas (2015), consistent weighted per-decision IS. Raghu et al. (2018), appendix A.
    """
    return (e.discount * _ratio(e.total_by_time(e.weight * e.rewards), e.weight_by_time())).sum(axis=-1)


def dm(e: Evidence) -> Any:
    r"""Direct method: the approximate model.

    .. math:: \hat V = \frac{1}{n} \sum_i \hat V(s^{(i)}_0), \qquad
        \hat V(s) = \sum_a \pi_e(a \mid s)\, \hat Q(s, a)

    The paper's AM. It needs no behaviour policy, and is exactly as good as the fitted values.
    """
    return _ratio(e.total(_values(e)[e.layout.first]), e.n)


def dr(e: Evidence) -> Any:
    r"""Doubly robust.

    .. math:: \hat V = \frac{1}{n} \sum_i \sum_t \gamma^t
        \left[ \rho^{(i)}_t \big( r^{(i)}_t - \hat Q^{(i)}_t \big) + \rho^{(i)}_{t-1} \hat V^{(i)}_t \right]

    with :math:`\rho_{-1} = 1`. Unbiased if either the behaviour probabilities or the values are exact. Where the
    log was cut off, the value of the last state stands for what was not seen.

    References
    ----------
    Jiang & Li (2016); the sum equals their backward recursion.
    """
    per_step = e.rho * e.residual + e.rho_before * _values(e)
    return _ratio(e.total(e.sum_steps(per_step)), e.n)


def wdr(e: Evidence) -> Any:
    r"""Weighted doubly robust.

    .. math:: \hat V = \sum_i \sum_t \gamma^t
        \left[ w^{(i)}_t \big( r^{(i)}_t - \hat Q^{(i)}_t \big) + w^{(i)}_{t-1} \hat V^{(i)}_t \right], \qquad
        w^{(i)}_t = \frac{\rho^{(i)}_t}{\sum_j \rho^{(j)}_t}, \quad w^{(i)}_{-1} = \frac{1}{n}

    Consistent if either the behaviour probabilities or the values are. The paper's appendix has another
    1/n in front: the weights already sum to one, and with it the estimate would be V / n.

    References
    ----------
    Thomas & Brunskill (2016). Raghu et al. (2018), appendix A.
    """
    correction, baseline = wdr_terms(e)
    return (e.discount * (correction + baseline)).sum(axis=-1)


def wdr_terms(e: Evidence) -> tuple[Any, Any]:
    r"""The two parts of :func:`wdr` at each t, (..., T): corrections, and the baseline :math:`\hat V` before them."""
    weight = e.weight_by_time()
    before = np.concatenate([np.asarray(e.n)[..., None], weight[..., :-1]], axis=-1)
    correction = _ratio(e.total_by_time(e.weight * e.residual), weight)
    return correction, _ratio(e.total_by_time(e.weight_before * _values(e)), before)


def _values(e: Evidence) -> Any:
    if e.v is None:
        raise ValueError(
            "this estimator needs action values: give gather(..., q=...) or Evidence(..., q=, v=)."
        )
    return e.v


def per_horizon(
    estimator: Estimator, *, length_weights: Literal["behaviour", "evaluation"] = "behaviour"
) -> Estimator:
    r"""Apply an estimator to the trajectories of each length apart, and average over lengths.

    .. math:: \hat V = \sum_l W_l \hat V_l, \qquad W_l = \frac{n_l}{n}

    ``phwis = per_horizon(wis)``, ``step_phwis = per_horizon(step_wis)``, ``phwdr = per_horizon(wdr)``.

    Plain importance sampling it leaves as it is (``phis`` equals ``ois``). The others tend to
    :math:`\sum_l P_b(L = l)\, E_e[G \mid L = l]`, which is not the value of a policy that changes how long
    episodes last. With ``length_weights="evaluation"``, :math:`W_l = \sum_{i \in l} \rho^{(i)} /
    \sum_i \rho^{(i)}`, ``per_horizon(wis)`` is ``wis`` itself. A length that occurs once contributes that
    trajectory's own return whatever the policy (on-policy leakage); diagnostics report its share.

    A length whose trajectories all have weight zero says nothing: it is left out, the remaining
    :math:`W_l` are scaled up, and diagnostics report the share that was lost.

    References
    ----------
    Doroudi, Thomas & Brunskill (2017). Raghu et al. (2018), appendix A.
    """
    if length_weights not in ("behaviour", "evaluation"):
        raise ValueError(f"length_weights must be 'behaviour' or 'evaluation', got {length_weights!r}.")

    def lifted(e: Evidence) -> Any:
        value: Any = 0.0
        kept: Any = 0.0
        for members, part in e.by_length():
            mass = part.total(e.final_weight[members])
            share = part.n / e.n if length_weights == "behaviour" else _ratio(mass, e.total(e.final_weight))
            estimate = estimator(part)
            lost = np.isnan(estimate) & (mass == 0) | (part.n == 0)
            value = value + np.where(lost, 0.0, share * np.where(lost, 0.0, estimate))
            kept = kept + np.where(lost, 0.0, share)
        return _ratio(value, kept)[()]

    suffix = "" if length_weights == "behaviour" else "_by_evaluation_lengths"
    lengths = "" if length_weights == "behaviour" else ", lengths of the target"
    name = label(estimator)
    lifted.__name__ = f"per_horizon_{name_of(estimator)}{suffix}"
    lifted.__doc__ = f"Per-horizon {name if name[:2].isupper() else name[0].lower() + name[1:]}{lengths}."
    lifted.__wrapped__ = estimator  # type: ignore[attr-defined]
    lifted.length_weights = length_weights  # type: ignore[attr-defined]
    return lifted


def name_of(estimator: Estimator) -> str:
    """What an estimator is called in code; a ``functools.partial`` goes by its function."""
    return str(
        getattr(estimator, "__name__", None)
        or getattr(getattr(estimator, "func", None), "__name__", "estimator")
    )


def label(estimator: Estimator) -> str:
    """What an estimator is called in a table: the first line of its docstring."""
    function = getattr(estimator, "func", estimator)
    return (getattr(function, "__doc__", None) or name_of(estimator)).strip().splitlines()[0].rstrip(".")


def _named(name: str, estimator: Estimator) -> Estimator:
    estimator.__name__ = name
    return estimator


phis = _named("phis", per_horizon(ois))
phwis = _named("phwis", per_horizon(wis))
step_phwis = _named("step_phwis", per_horizon(step_wis))
phwdr = _named("phwdr", per_horizon(wdr))
