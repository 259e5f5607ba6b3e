r"""How far a log carries: the new policy in a growing share of the decisions, and where the verdict stops being trust.

A policy that the log cannot evaluate has relatives that it can: current practice with the policy in a share of the
decisions, :math:`(1 - \alpha)\, \pi_b + \alpha\, \pi_e`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np

from caliope._audit._basis import examine_marginalised
from caliope._evidence import Evidence
from caliope._formulas import wdr
from caliope._gather import gather
from caliope._policies import MixWithPractice
from caliope._ragged import Float, Int
from caliope._results import Estimate, Interval, Table
from caliope._support import Support
from caliope._trajectories import Trajectories
from caliope.checks import S101, Finding
from caliope.checks._audit import bias_factor, grade_capping
from caliope.checks._counting import count_once
from caliope.uncertainty._dependence import stretch_for_clusters
from caliope.uncertainty._intervals import difference, influence
from caliope.weights import clip_weights, effective_n, normalise_under_way
from caliope.weights._marginalised import marginalise_all

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_DRAWS = 2000  # multipliers behind the uniform band
_GAIN = difference(wdr)


@dataclass(frozen=True, repr=False)
class Reach:
    """The difference from current practice with the new policy in a growing share of the decisions.

    Attributes
    ----------
    shares : tuple of float
        Shares of the decisions that follow the new policy, rising.
    table : Table of Estimate
        The difference from current practice at each share. The intervals hold for all shares together.
    """

    shares: tuple[float, ...]
    table: Table[Estimate]

    @property
    def largest(self) -> float | None:
        """The largest share up to which every verdict is trust; None where not even the smallest is trusted."""
        return self._up_to("trust")

    @property
    def usable(self) -> float | None:
        """The largest share up to which no verdict is "do not trust"; None where the smallest already is."""
        return self._up_to("trust", "caution")

    def _up_to(self, *verdicts: str) -> float | None:
        found = None
        for share, row in zip(self.shares, self.table, strict=True):
            if row.verdict not in verdicts:
                break
            found = share
        return found

    def at(self, share: float) -> Estimate:
        """The difference at one of the shares."""
        return self.table[self.shares.index(share)]

    def __repr__(self) -> str:
        return f"Reach({len(self.shares)} shares, largest={self.largest}, usable={self.usable})"

    def __str__(self) -> str:
        return self.describe()

    def _repr_html_(self) -> str:
        return f"<p>{escape(self.describe())}.</p>{self.table._repr_html_()}"

    def describe(self, known: str = "") -> str:
        """Say it in a sentence without capital and full stop; ``known`` is a condition that need not be repeated."""
        share = self.usable if self.largest is None else self.largest
        if share is None:
            return "not even in a small share of the decisions can the new policy be evaluated on this log"
        row = self.at(share)
        sign = "+" if row.value > 0 else ""
        how = "trust, under the condition above" if known and row.condition == known else row.verdict_text
        return (
            f"with the new policy in up to {share:.0%} of the decisions, the difference from current practice is "
            f"{sign}{row.text} ({how if self.largest is not None else 'caution'})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        rows = [{"share": share} | row.to_dict() for share, row in zip(self.shares, self.table, strict=True)]
        return {"largest": self.largest, "usable": self.usable, "text": str(self), "rows": rows}


def trace_reach(
    data: Trajectories,
    target_probs: Float,
    behaviour: Any,
    *,
    base: Evidence,
    q: Float,
    level: float,
    whole: Evidence | None = None,
    regressors: Mapping[str, Any] | None = None,
    weighed_on: Int | None = None,
    findings: Sequence[Finding] = (),
    support: Support | None = None,
    conditions: tuple[str, ...] = (),
    widen: float = 1.0,
    scale: float = 1.0,
    shares: Sequence[float] = SHARES,
    rng: np.random.Generator,
) -> Reach:
    r"""Evaluate current practice with the new policy in each of several shares of the decisions.

    With :math:`U_i(\alpha)` the influence of trajectory i on the difference at share :math:`\alpha`, and standard
    normal multipliers :math:`\xi_i`, the critical value c is the quantile of
    :math:`\max_\alpha |\sum_i \xi_i U_i(\alpha)| / (\sum_i U_i(\alpha)^2)^{1/2}`. The band
    :math:`\hat\Delta(\alpha) \pm c\, \mathrm{se}(\alpha)` then holds for all shares at once. Weights are
    marginalised. The standard error is at least that of the plain weights, and the band is widened by what the change
    of weights moves.

    When it breaks: where hardly any trajectory has weight, influences are no normal sums; the verdicts say so.

    Parameters
    ----------
    data : Trajectories
        The log.
    target_probs : array of shape (N, A)
        Probabilities of the new policy at every step.
    behaviour : Policy, or array of shape (N, A) or (N,)
        The behaviour policy.
    base : Evidence
        The evidence of the new policy itself, whose notes on the behaviour policy hold at every share.
    q : array of shape (N, A)
        Fitted values of all actions, of any policy: they help, and cannot harm.
    level : float
        Level of the band.
    whole : Evidence, optional
        The same with marginalised weights. It stands at the last share, so that the curve ends in the audit's answer.
    regressors : mapping from name to regressor, optional
        Of the weights, as for :func:`~caliope.weights.marginalise_weights`.
    weighed_on : array of int, optional
        Numbers of the trajectories that weights are regressed on, by default all.
    findings : sequence of Finding
        What holds at every share: what was found about the log and the behaviour policy.
    support : Support, optional
        Regions without choice; a share of the decisions has that share of their mass.
    conditions : tuple of str
        Conditions of trust.
    widen : float
        Factor of the width of the band.
    scale : float
        Share of the policy in the new policy, where that is itself a mixture with current practice.
    shares : sequence of float
        Shares of the decisions, rising.
    rng : Generator
        Source of the multipliers.

    Returns
    -------
    Reach
        Differences with a uniform band, and a verdict at each share.

    References
    ----------
    Kennedy (2019), nonparametric causal effects based on incremental propensity score interventions, for the band.
    """
    found = [
        _gather_share(data, MixWithPractice(target_probs, scale * share), behaviour, base, q)  # type: ignore[arg-type]
        for share in shares
    ]
    if whole is not None:
        found = [*found[:-1], base]
    parts = found if whole is None else found[:-1]
    marginalised = marginalise_all(parts, data, regressors=regressors, fitted_on=weighed_on, rng=rng)
    marginalised += () if whole is None else (whole,)
    values = np.array([float(_GAIN(e)) for e in marginalised])
    influences = np.array([e.layout.pool(influence(_GAIN, e)) for e in marginalised])
    plain = np.array([e.layout.pool(influence(_GAIN, _plain(e))) for e in found])
    # The error of one share alone, as every other check of an audit has it: at least that of the plain weights.
    own, other = (np.sqrt((u**2).sum(axis=1)) / len(data) for u in (influences, plain))
    se = np.maximum(own, other)
    arm = widen * uniform_arms(influences, level=level, rng=rng) / len(data)
    rows = []
    for i, (share, raw) in enumerate(zip(shares, found, strict=True)):
        moved, e = values[i] - float(_GAIN(raw)), marginalised[i]
        half = arm[i] * (se[i] / own[i] * bias_factor(moved, float(se[i]), level) if own[i] > 0 else 1.0)
        band = Interval(values[i] - half, values[i] + half, level, "uniform band, multiplier bootstrap")
        unsupported = () if support is None else support.scale(share).findings()
        found_here = examine_marginalised(_GAIN, clip_weights(raw), e)
        seen = (*found_here, *grade_capping(moved, float(se[i])), *unsupported, *findings)
        rows.append(
            Estimate(
                f"share_{share:g}",
                f"New policy in {share:.0%} of the decisions, minus current practice",
                values[i],
                stretch_for_clusters(band, _GAIN, e),
                len(data),
                effective_n(e),
                count_once(seen),
                conditions,
            )
        )
    return Reach(tuple(shares), Table(tuple(rows), "How far the log carries"))


def _plain(e: Evidence) -> Evidence:
    """Weights normalised among those under way, and capped."""
    return clip_weights(normalise_under_way(e))


def _gather_share(data: Trajectories, target: Any, behaviour: Any, base: Evidence, q: Float) -> Evidence:
    """Evidence of a share of the decisions; what was found about the behaviour policy is not tested again."""
    e = gather(data, target, behaviour, gamma=base.gamma, q=q, behaviour_known=True)
    kept = tuple(note for note in base.notes if note.check != S101 and note not in e.notes)
    return replace(e, behaviour_known=base.behaviour_known, notes=(*e.notes, *kept))


def uniform_arms(influences: Float, *, level: float, rng: np.random.Generator) -> Float:
    """Half the width, times n, of a band that holds for all values together, (S,); influences are (S, n)."""
    scale = np.sqrt((influences**2).sum(axis=1))
    usable = np.isfinite(scale) & (scale > 0)
    if not usable.any():
        return np.where(scale == 0, 0.0, np.nan)
    scaled = influences[usable] / scale[usable, None]
    largest = np.abs(rng.standard_normal((_DRAWS, influences.shape[1])) @ scaled.T).max(axis=1)
    return float(np.quantile(largest, level)) * np.where(np.isfinite(scale), scale, np.nan)
