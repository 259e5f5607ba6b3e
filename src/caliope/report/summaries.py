"""Numbers that the pictures show and that no other result holds: aggregates, whatever the size of the log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from caliope.auditing.effective import effective_by_step
from caliope.evidence import Evidence
from caliope.ragged import Float, Int

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
_STEPS = 40  # of the time axis
_EDGES = (0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0)  # of practice's probability of an action
RARE = 0.01  # practice chooses the action less often than that


@dataclass(frozen=True, eq=False)
class WeightsOverTime:
    """How the weights of the trajectories spread; one that has ended keeps its last weight."""

    step: Int  # (T,), counted from 1
    under_way: Int  # (T,), trajectories that have not ended
    log10: Float  # (levels, T), quantiles of the logarithm of the weight; -inf where it is 0
    mean: Float  # (T,), should be 1
    se: Float  # (T,)
    effective: Float  # (T,), trajectories
    reaching: Float  # (T,), the same of those that have not ended alone
    without: Float  # (T,), share of the trajectories whose weight is 0


def weights_over_time(e: Evidence) -> WeightsOverTime:
    """Quantiles, mean and effective number of the weights at some forty steps of the log at most."""
    lengths, first = e.layout.lengths, e.layout.first
    steps = np.unique(np.linspace(0, e.layout.horizon - 1, min(e.layout.horizon, _STEPS)).astype(np.int64))
    reaching = effective_by_step(e)[1]
    rows = []
    for t in steps:
        log_rho = e.log_rho[first + np.minimum(t, lengths - 1)]
        top = float(log_rho.max())
        with np.errstate(over="ignore"):
            rho = np.exp(log_rho)
        scaled = np.exp(log_rho - top) if np.isfinite(top) else np.zeros(len(e))
        square = float((scaled**2).sum())
        quantiles = np.quantile(log_rho, LEVELS, method="inverted_cdf") / np.log(10)
        effective = float(scaled.sum()) ** 2 / square if square > 0 else 0.0
        se = rho.std() / np.sqrt(len(e))
        rows.append((*quantiles, rho.mean(), se, effective, reaching[t], np.isneginf(log_rho).mean()))
    table = np.array(rows).T
    under_way = np.array([(lengths > t).sum() for t in steps])
    return WeightsOverTime(steps + 1, under_way, table[:5], *table[5:])


@dataclass(frozen=True, eq=False)
class Overlap:
    """How often practice does what the policy would do: probability mass by practice's probability of the action."""

    edges: tuple[float, ...]  # (B + 1,)
    policy: Float  # (B,), share of the new policy's actions
    practice: Float  # (B,), share of practice's own
    rare: float  # share of the new policy's actions that practice chooses in fewer than 1 of 100 such cases


def overlap(wanted: Float, acted: Float) -> Overlap:
    """Sort all pairs of a step and an action by practice's probability; weigh them by the policy's and practice's.

    Both tables hold the probabilities of all actions at the same steps, (N, A).
    """
    edges = np.array(_EDGES)
    cell = np.clip(np.searchsorted(edges, acted, side="right") - 1, 0, len(edges) - 2).ravel()
    n, bins = len(acted), len(edges) - 1
    policy = np.bincount(cell, weights=wanted.ravel(), minlength=bins) / n
    practice = np.bincount(cell, weights=acted.ravel(), minlength=bins) / n
    return Overlap(_EDGES, policy, practice, float(wanted[acted < RARE].sum() / n))


def weight_shares(e: Evidence) -> dict[int, float]:
    """Share of the weight that the heaviest trajectories hold: the first 1, 10, 100 and so on."""
    weights = np.sort(e.final_weight)[::-1]
    total = float(weights.sum())
    sizes = [10**k for k in range(7) if 10**k < len(weights)]
    return {size: float(weights[:size].sum()) / total if total > 0 else 0.0 for size in sizes}
