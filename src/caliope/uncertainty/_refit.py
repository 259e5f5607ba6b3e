"""Intervals that include the error of the fitted behaviour policy: it is fitted again on every resample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from scipy import special
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter

from caliope._evidence import Evidence
from caliope._gather import gather, target_probabilities
from caliope._policies import Relative, action_probabilities
from caliope._ragged import Float, Int, at_actions
from caliope._results import Interval
from caliope._traits import Estimator
from caliope._trajectories import Trajectories
from caliope.behaviour._fit import (
    align_columns,
    end_of,
    fit_behaviour,
    fit_model,
    get_out_of_fold,
    groups_name,
)
from caliope.uncertainty._dependence import stretch_for_clusters
from caliope.uncertainty._intervals import check_level
from caliope.uncertainty._resampling import evaluate, failed_draws, with_replacement

_FEWEST = 5  # refits


def refit(
    data: Trajectories,
    model: Any,
    *estimators: Estimator,
    target: Any,
    mode: Literal["same", "cross"] = "same",
    folds: int = 5,
    gamma: float = 1.0,
    q: Any = None,
    n_refits: int = 20,
    level: float = 0.95,
    rng: int | np.random.Generator,
) -> tuple[Interval, ...]:
    r"""Compute intervals with the behaviour policy fitted again on every resample of trajectories.

    Other intervals hold the fitted weights fixed. That is nearly right for a value. It is wrong for the difference of
    a weighted mean from practice where the target is near practice: there most of the error is that of the fit. With
    the estimate :math:`\hat\psi` and those of B resamples, each with its own fit, the cheap bootstrap is

    .. math:: \hat\psi \pm t_{B,\, (1 + \mathrm{level}) / 2}
        \sqrt{\frac 1 B \sum_{b=1}^{B} \big( \hat\psi^*_b - \hat\psi \big)^2}

    with a quantile of Student's t with B degrees of freedom. It is valid for any B; more refits make it shorter and
    less random. When it breaks: a model that memorises the log sees copies of trajectories in a resample.

    Parameters
    ----------
    data : Trajectories
        The log.
    model : classifier
        An unfitted one with ``predict_proba``, as for :func:`~caliope.fit_behaviour`. Resamples are weights where its
        ``fit`` takes ``sample_weight``, else repeated rows; copies of a trajectory stay in one fold.
    *estimators : callable
        Functions of evidence, such as ``cal.wis`` and ``cal.difference(cal.wis)``.
    target : Policy, array of shape (N, A), or a policy stated relative to practice
        The target policy. One relative to practice moves with every fit.
    mode : {"same", "cross"}
        How the behaviour policy is fitted.
    folds : int
        Number of folds in mode ``"cross"``; they are drawn anew in every refit.
    gamma : float
        Discount in [0, 1].
    q : fitted values, or array of shape (N, A), optional
        Values under the target; they are not fitted again.
    n_refits : int
        Number B of refits, from 5.
    level : float
        Confidence level.
    rng : int or numpy.random.Generator
        Seed of the resamples.

    Returns
    -------
    tuple of Interval
        One per estimator, in their order.

    References
    ----------
    Lam (2022), "A cheap bootstrap method for fast inference", arXiv:2202.00090.

    Examples
    --------
    >>> import caliope as cal
    >>> from caliope.domains import ward
    >>> from sklearn.linear_model import LogisticRegression
    >>> data, target = ward.simulate(300, rng=0), cal.TabularPolicy(ward.EARLIER)
    >>> (found,) = refit(data, LogisticRegression(), cal.difference(cal.wis), target=target, rng=0)
    >>> found.method
    'cheap bootstrap, 20 refits of LogisticRegression'
    """
    check_level(level)
    if n_refits < _FEWEST:
        raise ValueError(f"n_refits must be at least {_FEWEST}, got {n_refits}.")
    if not estimators:
        raise TypeError(
            "refit needs estimators, such as cal.wis: refit(data, model, cal.wis, target=..., rng=0)."
        )
    rng = np.random.default_rng(rng)
    fitted = fit_behaviour(model, data, mode=mode, folds=folds, rng=rng)
    table = np.asarray(q.on(data)) if hasattr(q, "on") else q
    e = gather(data, target, fitted.probabilities, gamma=gamma, q=table)
    stated = target if isinstance(target, Relative) else target_probabilities(data, target)
    drawn, units = [], data.layout.n_units
    for _ in range(n_refits):
        counts = with_replacement(units, units, 1, rng)[0][data.layout.unit]
        behaviour = _fit_again(model, data, counts, mode=mode, folds=folds, rng=rng)
        drawn.append(_evaluate(estimators, e, data, counts, target=stated, behaviour=behaviour, q=table))
    method = f"cheap bootstrap, {n_refits} refits of {type(end_of(model)).__name__}"
    values = [float(estimator(e)) for estimator in estimators]
    columns = np.array(drawn).T
    found = [_cheap_interval(x, y, level, method) for x, y in zip(values, columns, strict=True)]
    return tuple(stretch_for_clusters(x, f, e) for x, f in zip(found, estimators, strict=True))


def _cheap_interval(value: float, drawn: Float, level: float, method: str) -> Interval:
    findings = failed_draws(drawn)
    drawn = drawn[np.isfinite(drawn)]
    if not np.isfinite(value) or (findings and findings[0].level == "issue"):
        return Interval(np.nan, np.nan, level, method, findings)
    arm = special.stdtrit(len(drawn), (1 + level) / 2) * np.sqrt(((drawn - value) ** 2).mean())
    return Interval(float(value - arm), float(value + arm), level, method, findings)


def _evaluate(
    estimators: tuple[Estimator, ...],
    e: Evidence,
    data: Trajectories,
    counts: Float,
    *,
    target: Any,
    behaviour: Float,
    q: Any,
) -> list[float]:
    """Values of a resample, from the trajectories in it and the ratios that its own behaviour probabilities give."""
    which = np.flatnonzero(counts)
    probs, b = target_probabilities(data, target, behaviour), at_actions(behaviour, data.actions)
    if not b[data.layout.rows_of(which)].all():
        return [np.nan] * len(estimators)  # an action of the resample has probability 0: it has no weights
    with np.errstate(divide="ignore"):
        log_ratio = np.log(at_actions(probs, data.actions)) - np.log(np.where(b > 0, b, 1.0))
    v = np.vecdot(probs, q) if isinstance(q, np.ndarray) else e.v
    part = replace(e, log_ratio=log_ratio, v=v).take(which)
    return [float(evaluate(estimator, part, counts[None, which])[0]) for estimator in estimators]


def _fit_again(
    model: Any, data: Trajectories, counts: Float, *, mode: str, folds: int, rng: np.random.Generator
) -> Float:
    """Fit to a resample as to a log, and predict all actions in its trajectories, (N, A)."""
    everything = np.arange(data.n_steps)
    table = np.full((data.n_steps, data.n_actions), 1 / data.n_actions)
    whole, rows = _fit(model, data, everything, counts)
    stored = get_out_of_fold(whole) if mode == "cross" else _own(whole)
    if stored is not None:
        # Copies of a trajectory share a fold, and so their predictions.
        table[rows] = align_columns(end_of(whole).classes_, stored, data.n_actions)
    elif mode == "same":
        table[rows] = action_probabilities(whole, data.states[rows], data.n_actions)
    else:
        for fit, held_out in data.folds(folds, rng=rng):
            part, _ = _fit(model, data, fit, counts)
            table[held_out] = action_probabilities(part, data.states[held_out], data.n_actions)
    return table


def _own(fitted: Any) -> Float | None:
    """What a model of neighbours predicts for its own rows."""
    last = end_of(fitted)
    own: Float | None = last.predict_own() if hasattr(last, "predict_own") else None
    return own


def _fit(model: Any, data: Trajectories, rows: Int, counts: Float) -> tuple[Any, Int]:
    """Fit to rows, each as often as its trajectory was drawn; and the rows as they were given to the model."""
    times = counts[data.layout.owner[rows]].astype(np.int64)  # with clusters, as often as its cluster
    name = _weight_name(model)
    rows = np.repeat(rows, times) if name is None else rows[times > 0]
    x, actions, unit = data.states[rows], data.actions[rows], data.layout.unit_of_step[rows]
    if name is None or (actions == actions[0]).all():
        return fit_model(model, x, actions, unit), rows
    groups = groups_name(model)
    given = {name: counts[data.layout.owner[rows]]} | ({} if groups is None else {groups: unit})
    return clone(model).fit(x, actions, **given), rows


def _weight_name(model: Any) -> str | None:
    """Name of ``sample_weight`` in ``fit``, ``a__sample_weight`` in pipelines; None where it is not taken."""
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        # Steps before the last would not see the weights; that matters if they learn from actions.
        inner = _weight_name(last)
        return None if inner is None else f"{name}__{inner}"
    return "sample_weight" if has_fit_parameter(model, "sample_weight") else None
