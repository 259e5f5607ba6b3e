"""Aggregates of an audit that its report shows: weights over time, overlap, actions, ratios, confounding bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._evidence import Evidence
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope.calibration._reliability import RatioReliability, ratio_reliability
from caliope.checks._audit import effective_by_step
from caliope.sensitivity import Breakdown, Influence, bounds

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_MAX_STEPS = 40  # on the time axis
_EDGES = (0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0)  # of the behaviour policy's probability of an action
_RARE = 0.01  # the behaviour policy takes the action less often than that
_FACTORS = 25  # points of the confounding curve


@dataclass(frozen=True, eq=False)
class WeightsOverTime:
    """Importance weights at some steps of the log; a trajectory that has ended keeps its last weight.

    Attributes
    ----------
    step : array of shape (T,)
        The steps, counted from 1.
    under_way : array of shape (T,)
        Trajectories that reach the step.
    log10 : array of shape (5, T)
        The ``QUANTILES`` of the logarithm of the weight to base 10; -inf for a weight of 0.
    mean, se : arrays of shape (T,)
        Mean weight, which should be 1, and its standard error.
    effective : array of shape (T,)
        Effective sample size of all trajectories.
    reaching : array of shape (T,)
        Effective sample size of the trajectories that reach the step.
    without : array of shape (T,)
        Share of the trajectories with a weight of 0.
    """

    step: Int
    under_way: Int
    log10: Float
    mean: Float
    se: Float
    effective: Float
    reaching: Float
    without: Float


@dataclass(frozen=True, eq=False)
class Overlap:
    """Actions of both policies by how likely the behaviour policy takes them.

    Attributes
    ----------
    edges : tuple of B + 1 floats
        Bins of the behaviour policy's probability.
    policy, practice : arrays of shape (B,)
        Share of the actions of the target policy, and of the behaviour policy itself, in each bin.
    rare : float
        Share of the target policy's actions that the behaviour policy takes in fewer than 1 of 100 such states.
    """

    edges: tuple[float, ...]
    policy: Float
    practice: Float
    rare: float


@dataclass(frozen=True, eq=False)
class ConfoundingCurve:
    """Bounds of the estimate under unmeasured confounding.

    Attributes
    ----------
    factor : array of shape (F,)
        By how much the weight of every trajectory may be off.
    low, high : arrays of shape (F,)
        Lowest and highest estimate that such weights allow.
    """

    factor: Float
    low: Float
    high: Float


@dataclass(frozen=True)
class InfluentialTrajectory:
    """A trajectory whose removal changes the difference from the behaviour policy most.

    Attributes
    ----------
    id : str
        What the log calls it.
    steps : int
        Its length.
    discounted_return : float
        What it returned.
    weight_share : float
        Its share of the final weights; nan if no trajectory has weight.
    effect : float
        By how much the difference changes without it, to first order.
    """

    id: str
    steps: int
    discounted_return: float
    weight_share: float
    effect: float


@dataclass(frozen=True, eq=False, repr=False)
class AuditSummary:
    """What a report shows of an audit and no other result holds; its size does not grow with the log.

    Attributes
    ----------
    weights : WeightsOverTime
        Spread, mean and effective sample size of the weights.
    heaviest : mapping from int to float
        Share of the final weights that the heaviest 1, 10, 100, ... trajectories hold.
    overlap : Overlap
        How often the behaviour policy takes the actions of the target policy.
    behaviour_shares, target_shares : arrays of shape (A,)
        How often each action was taken, and would be taken in the same states.
    ratios : RatioReliability
        Whether actions of a given importance ratio occur as often as the behaviour model says.
    confounding : ConfoundingCurve or None
        Bounds under unmeasured confounding; None if no trajectory has weight.
    influential : tuple of InfluentialTrajectory
        The most influential trajectories, the first one most.
    """

    weights: WeightsOverTime
    heaviest: Mapping[int, float]
    overlap: Overlap
    behaviour_shares: Float
    target_shares: Float
    ratios: RatioReliability
    confounding: ConfoundingCurve | None
    influential: tuple[InfluentialTrajectory, ...]

    def __repr__(self) -> str:
        return f"AuditSummary({', '.join(each.name for each in fields(self))})"


def summarise(
    data: Trajectories,
    e: Evidence,
    *,
    target_probs: Float,
    behaviour_probs: Float,
    influence: Influence,
    breakdown: Breakdown,
    ids: NDArray[Any] | None = None,
) -> AuditSummary:
    """Aggregate what a report of an audit shows.

    Parameters
    ----------
    data : Trajectories
        The log.
    e : Evidence
        Its evidence, with the weights that the estimate uses.
    target_probs, behaviour_probs : arrays of shape (N, A)
        Probabilities of all actions at every step.
    influence, breakdown
        Parts of the audit.
    ids : array of shape (n,), optional
        What the trajectories of the evidence are called, where ``data`` is a sample of them.

    Returns
    -------
    AuditSummary
        The aggregates.
    """
    return AuditSummary(
        weights=weights_over_time(e),
        heaviest=weight_shares(e),
        overlap=overlap(target_probs, behaviour_probs),
        behaviour_shares=np.bincount(data.actions, minlength=data.n_actions) / data.n_steps,
        target_shares=target_probs.mean(axis=0),
        ratios=ratio_reliability(behaviour_probs, data, target_probs),
        confounding=_confounding(e, breakdown),
        influential=_influential(data.ids if ids is None else ids, e, influence),
    )


def weights_over_time(e: Evidence) -> WeightsOverTime:
    """Summarise the weights at up to 40 steps of the log."""
    lengths, first = e.layout.lengths, e.layout.first
    count = min(e.layout.horizon, _MAX_STEPS)
    steps = np.unique(np.linspace(0, e.layout.horizon - 1, count).astype(np.int64))
    reaching = effective_by_step(e)[1]
    rows = []
    for t in steps:
        log_rho = e.log_rho[first + np.minimum(t, lengths - 1)]
        top = float(log_rho.max())
        with np.errstate(over="ignore"):
            rho = np.exp(log_rho)
        scaled = np.exp(log_rho - top) if np.isfinite(top) else np.zeros(len(e))
        square = float((scaled**2).sum())
        quantiles = np.quantile(log_rho, QUANTILES, method="inverted_cdf") / np.log(10)
        effective = float(scaled.sum()) ** 2 / square if square > 0 else 0.0
        se = e.layout.se_of_mean(rho)
        rows.append((*quantiles, rho.mean(), se, effective, reaching[t], np.isneginf(log_rho).mean()))
    table = np.array(rows).T
    under_way = np.array([(lengths > t).sum() for t in steps])
    return WeightsOverTime(steps + 1, under_way, table[:5], *table[5:])


def weight_shares(e: Evidence) -> dict[int, float]:
    """Share of the final weights that the heaviest 1, 10, 100, ... trajectories hold."""
    weights = np.sort(e.final_weight)[::-1]
    total = float(weights.sum())
    sizes = [10**k for k in range(7) if 10**k < len(weights)]
    return {size: float(weights[:size].sum()) / total if total > 0 else 0.0 for size in sizes}


def overlap(target_probs: Float, behaviour_probs: Float) -> Overlap:
    """Sort all pairs of a step and an action by the behaviour policy's probability, both (N, A)."""
    edges = np.array(_EDGES)
    found = np.searchsorted(edges, behaviour_probs, side="right") - 1
    cell = np.clip(found, 0, len(edges) - 2).ravel()
    n, bins = len(behaviour_probs), len(edges) - 1
    policy = np.bincount(cell, weights=target_probs.ravel(), minlength=bins) / n
    practice = np.bincount(cell, weights=behaviour_probs.ravel(), minlength=bins) / n
    return Overlap(_EDGES, policy, practice, float(target_probs[behaviour_probs < _RARE].sum() / n))


def _confounding(e: Evidence, breakdown: Breakdown) -> ConfoundingCurve | None:
    """Bounds from a factor of 1 to one and a half times the breakdown point, within 2 and 10."""
    if np.isnan(breakdown.factor):
        return None
    factors = np.linspace(1.0, float(np.clip(1.5 * breakdown.factor, 2.0, 10.0)), _FACTORS)
    ends = [bounds(e, float(factor)) for factor in factors]
    return ConfoundingCurve(factors, np.array([x.low for x in ends]), np.array([x.high for x in ends]))


def _influential(ids: NDArray[Any], e: Evidence, influence: Influence) -> tuple[InfluentialTrajectory, ...]:
    total = float(e.final_weight.sum())
    return tuple(
        InfluentialTrajectory(
            str(ids[i]),
            int(e.layout.lengths[i]),
            float(e.returns[i]),
            float(e.final_weight[i] / total) if total > 0 else float("nan"),
            float(effect),
        )
        for i, effect in zip(influence.top, influence.effect, strict=True)
    )
