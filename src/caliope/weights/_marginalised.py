r"""Marginalised importance weights: the cumulative weight regressed on state and time, times the ratio of the step.

Where the state is Markov, all that the weight of earlier decisions says about what follows is its mean given the state.
Averaging the rest away removes variance that grows with the length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from caliope._evidence import Evidence, refuse_counts
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope._under_way import FEW_UNDER_WAY
from caliope.checks import W108
from caliope.weights._regressed import (
    Design,
    WeightRegression,
    check_regressors,
    default_regressors,
    regress_columns,
)
from caliope.weights._transforms import clip_weights, compare_weights, normalise_under_way


def marginalise_weights(
    e: Evidence,
    data: Trajectories,
    *,
    regressors: Mapping[str, Any] | None = None,
    folds: int = 2,
    fitted_on: Int | None = None,
    rng: int | np.random.Generator,
) -> Evidence:
    r"""Replace cumulative weights by marginalised ones: their mean given state and time, times the ratio of the step.

    .. math:: \mu_t = m(s_t, t)\, \lambda_t, \qquad m(s, t) = \mathbb E[w_{t-1} \mid s_t = s, t], \quad m(s, 0) = 1

    with w the cumulative weights after :func:`normalise_under_way` and :func:`clip_weights`. The mean is a regression
    of :math:`w_{t-1}`, divided by its mean among the trajectories under way, on the state and t. It is fitted to the
    other folds of trajectories, or of whole clusters, and predictions are kept within the range of its targets. The
    regressor with the least squared error on held-out trajectories is taken. Then m is scaled so that those under
    way at t have the sum of :math:`w_{t-1}`, and :math:`\mu_t` so that they have that of m; steps that fewer than 50
    trajectories reach share this factor. Last, :math:`\mu_t` is capped at :math:`\max(\sqrt n / 3, 1)`, the mean weight
    being 1.

    With these weights :func:`~caliope.estimators.wdr` is the marginalised doubly robust estimator (double
    reinforcement learning). On trajectories of one step nothing is marginalised.

    When it breaks: the state must be Markov. If outcomes depend on earlier decisions in ways that the state does not
    carry, the estimate is biased, and no standard error shows it; finding W106 compares it with the plain weights. At
    long horizons few trajectories have weight, and the regression is poor. A weight describes one step and not
    the whole trajectory: it is for estimators that sum over steps (``wdr``, ``dr``, ``step_wis``), and not for
    ``wis`` or ``ois``.

    Parameters
    ----------
    e : Evidence
        The evidence of the log, with the ratios as they are.
    data : Trajectories
        The same log, for its states and folds.
    regressors : mapping from name to regressor, optional
        Unfitted ones of scikit-learn. By default a constant, extremely randomised trees, and ridge regression on
        100 kernel features with penalties of 1 and 10.
    folds : int
        Number of folds.
    fitted_on : array of int, optional
        Numbers of the trajectories that regressors are fitted to and chosen on, by default all. Every trajectory is
        predicted, by the model of the other folds.
    rng : int or Generator
        Seed of the folds and of the regressors.

    Returns
    -------
    Evidence
        The same with the marginalised weights as ``log_weight``, and findings W107 and W108 in ``notes``.

    References
    ----------
    Kallus & Uehara (2020), double reinforcement learning for efficient off-policy evaluation in Markov decision
    processes. Xie, Ma & Wang (2019), optimal off-policy evaluation with marginalized importance sampling.

    Examples
    --------
    >>> from caliope import TabularPolicy, gather
    >>> from caliope.domains import ward
    >>> data = ward.simulate(200, rng=0)
    >>> e = gather(data, TabularPolicy(ward.EARLIER), TabularPolicy(ward.PRACTICE))
    >>> marginalise_weights(e, data, rng=0).notes[-1].code
    'W108'
    """
    return marginalise_all((e,), data, regressors=regressors, folds=folds, fitted_on=fitted_on, rng=rng)[0]


def marginalise_all(
    evidences: Sequence[Evidence],
    data: Trajectories,
    *,
    regressors: Mapping[str, Any] | None = None,
    folds: int = 2,
    fitted_on: Int | None = None,
    rng: int | np.random.Generator,
) -> tuple[Evidence, ...]:
    """Marginalise the weights of several target policies on one log: one fit of each regressor serves all of them."""
    regressions = regress_weights(
        evidences, data, regressors=regressors, folds=folds, fitted_on=fitted_on, rng=rng
    )
    return tuple(use_regression(*pair) for pair in zip(evidences, regressions, strict=True))


def regress_weights(
    evidences: Sequence[Evidence],
    data: Trajectories,
    *,
    regressors: Mapping[str, Any] | None = None,
    folds: int = 2,
    fitted_on: Int | None = None,
    rng: int | np.random.Generator,
) -> list[WeightRegression]:
    """Regress the weights before each step on state and time, for each of several target policies on one log."""
    for e in evidences:
        _check_log(e, data)
    if not evidences:
        return []
    rng = np.random.default_rng(rng)
    fold = data.fold_of(folds, rng=rng)
    candidates = default_regressors() if regressors is None else regressors
    check_regressors(candidates)
    design = Design.of(data, fold, fitted_on)
    before = np.stack([_normalise(e)[1].rho_before for e in evidences], axis=1)
    return regress_columns(before, design, candidates, seed=int(rng.integers(2**31)))


def _normalise(e: Evidence) -> tuple[Evidence, Evidence]:
    """Weights normalised among those under way, and these capped: what is regressed."""
    normalised = normalise_under_way(e)
    return normalised, clip_weights(normalised)


def use_regression(e: Evidence, regression: WeightRegression) -> Evidence:
    """Multiply predicted weights by the ratio of the step; scale and cap as the formula says."""
    return plain_and_marginalised(e, regression)[1]


def plain_and_marginalised(e: Evidence, regression: WeightRegression) -> tuple[Evidence, Evidence]:
    """Weights normalised among those under way and capped, and the marginalised weights that are made of them."""
    normalised, capped = _normalise(e)
    product = _multiply(e, _scale(capped, regression.predicted))
    n, several = len(e), e.layout.horizon > 1
    cap = max(np.sqrt(n) / 3, 1.0)
    changed = 0
    for one, other in zip(normalised.parts(), capped.parts(), strict=True):
        touched = np.abs(other.rho - one.rho) > 1e-12 * one.rho
        changed += one.layout.count_with(touched | (one.entries_of(product) > cap))
    with np.errstate(divide="ignore"):
        log_weight = e.per_step(lambda part: np.log(np.minimum(part.entries_of(product), cap)))
    facts = compare_weights(normalised, log_weight)
    facts["changed"] = changed
    variants = ["regressed" if several else "single"]
    if regression.n_fitted < n and several:
        variants.append("sampled")
        facts["fitted"] = regression.n_fitted
    note = W108.finding("note", *variants, regressor=regression.name, r2=regression.r2, multiple=cap, **facts)
    return capped, e.changed(log_weight=log_weight, notes=(*normalised.notes, note))


def _scale(capped: Evidence, predicted: Float) -> Float:
    """Scale predictions so that those under way have the sum of the weights before the step, (N,)."""

    def once(part: Evidence) -> Float:
        return np.where(part.layout.time > 0, part.entries_of(predicted), 1.0)

    has, wanted = capped.sum_by_time(once), capped.sum_by_time(lambda part: part.rho_before)
    factor = np.divide(wanted, has, out=np.zeros_like(has), where=has > 0)
    # Where every prediction is 0 and the weights are not, all get their mean.
    mean = np.where(has > 0, 0.0, wanted / capped.layout.under_way)
    return capped.per_step(lambda part: once(part) * factor[part.layout.time] + mean[part.layout.time])


def _multiply(e: Evidence, m: Float) -> Float:
    """Multiply weights before each step by its ratio, and scale them so that those under way keep their sum, (N,).

    Late steps share one factor.
    """

    def once(part: Evidence) -> Float:
        with np.errstate(divide="ignore"):
            return np.exp(np.log(part.entries_of(m)) + part.log_ratio)

    wanted, has = e.sum_by_time(lambda part: part.entries_of(m)), e.sum_by_time(once)
    late = e.layout.under_way < FEW_UNDER_WAY
    wanted[late], has[late] = wanted[late].sum(), has[late].sum()
    factor = np.divide(wanted, has, out=np.ones_like(has), where=has > 0)
    return e.per_step(lambda part: once(part) * factor[part.layout.time])


def _check_log(e: Evidence, data: Trajectories) -> None:
    refuse_counts(e)
    if e.log_weight is not None:
        raise ValueError(
            "marginalise_weights needs weights that are products of ratios, and these were given (log_weight): give "
            "the evidence as gather returns it."
        )
    if not np.array_equal(e.offsets, data.offsets):
        raise ValueError(
            f"the evidence and the log must have the same trajectories, got {len(e)} with {len(e.rewards)} steps and "
            f"{len(data)} with {data.n_steps} steps."
        )
