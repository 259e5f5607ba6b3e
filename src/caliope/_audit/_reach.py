r"""How far a log carries: the new policy in a growing share of the decisions, and where the verdict stops being trust.

A policy that the log cannot evaluate has relatives that it can: current practice with the policy in a share of the
decisions, :math:`(1 - \alpha)\, \pi_b + \alpha\, \pi_e`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import chain
from typing import Any

import numpy as np

from caliope._audit._basis import examine_marginalised
from caliope._evidence import Evidence
from caliope._formulas import wdr
from caliope._gather import gather
from caliope._policies import MixWithPractice
from caliope._ragged import STRETCH, Float, Int
from caliope._results import Estimate, Interval, Table
from caliope._support import Support
from caliope._trajectories import Trajectories
from caliope.checks import S101, Finding
from caliope.checks._bias import Bias
from caliope.checks._counting import count_once
from caliope.uncertainty._dependence import effective_clusters, few_clusters_factor, stretch
from caliope.uncertainty._intervals import difference, influence
from caliope.weights import effective_n
from caliope.weights._marginalised import plain_and_marginalised, regress_weights

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_DRAWS = 2000  # multipliers behind the uniform band
_MULTIPLIED = 50_000  # units with a multiplier of their own in each draw; of more the sums are drawn
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
    asked : float
        Share of the decisions in which the new policy, as asked, follows another one (:func:`~caliope.mix`); else 1.
    softens : bool
        Whether the new policy can be mixed with current practice: not one that is stated relative to it, as a tilt.
    """

    shares: tuple[float, ...]
    table: Table[Estimate]
    asked: float = 1.0
    softens: bool = True

    @property
    def largest(self) -> float | None:
        """The largest share up to which every verdict is trust, or all where the policy itself has it; else None."""
        return self._up_to("trust")

    @property
    def usable(self) -> float | None:
        """The same with verdicts that are not "do not trust"."""
        return self._up_to("trust", "caution")

    def _up_to(self, *verdicts: str) -> float | None:
        if self.table.rows[-1].verdict == "trust":
            return self.shares[-1]  # the policy itself, whatever is said of smaller shares
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
        # Of a policy softened to a fifth, all of it is still a fifth.
        of = "" if self.asked == 1 else f"the {100 * self.asked:.3g}% of "
        which = "" if self.asked == 1 else " that were asked for"
        return (
            f"with the new policy in up to {share:.0%} of {of}the decisions{which}, the difference from current "
            f"practice is {sign}{row.text} ({how if self.largest is not None else 'caution'})"
        )

    @property
    def advice(self) -> str:
        """How to ask for the share up to which the log carries; empty where that is all of it, or nothing."""
        share = self.usable if self.largest is None else self.largest
        if share is None or share == 1 or not self.softens:
            return ""
        part = share * self.asked
        return f"To ask for that: --soften {1 - part:.4g}, in Python mix(practice, target, {part:.4g})."

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        rows = [{"share": share} | row.to_dict() for share, row in zip(self.shares, self.table, strict=True)]
        return {"largest": self.largest, "usable": self.usable, "text": str(self), "rows": rows}


@dataclass(frozen=True)
class Known:
    """What holds at every share.

    Attributes
    ----------
    findings : tuple of Finding
        What was found about the log and the behaviour policy.
    support : Support or None
        Regions without choice; a share of the decisions has that share of their mass.
    conditions : tuple of str
        Conditions of trust.
    """

    findings: tuple[Finding, ...] = ()
    support: Support | None = None
    conditions: tuple[str, ...] = ()


def trace_reach(
    data: Trajectories,
    target_probs: Float,
    behaviour: Any,
    scale: float = 1.0,
    *,
    base: Evidence,
    q: Float,
    level: float,
    whole: tuple[Evidence, Evidence] | None = None,
    regressors: Mapping[str, Any] | None = None,
    weighed_on: Int | None = None,
    about: Known | None = None,
    widen: float = 1.0,
    shares: Sequence[float] = SHARES,
    rng: np.random.Generator,
) -> Reach:
    r"""Evaluate current practice with the new policy in each of several shares of the decisions.

    With :math:`U_i(\alpha)` the influence of trajectory i on the difference at share :math:`\alpha`, and standard
    normal multipliers :math:`\xi_i`, the critical value c is the quantile of
    :math:`\max_\alpha |\sum_i \xi_i U_i(\alpha)| / (\sum_i U_i(\alpha)^2)^{1/2}`. The band
    :math:`\hat\Delta(\alpha) \pm c\, \mathrm{se}(\alpha)` then holds for all shares at once. Weights are
    marginalised. The standard error is at least that of the plain weights, and the band is widened by what the change
    of weights moves, or by the bias of weights off balance (D119) where that is larger.

    When it breaks: where hardly any trajectory has weight, influences are no normal sums; the verdicts say so.

    Parameters
    ----------
    data : Trajectories
        The log.
    target_probs : array of shape (N, A)
        Probabilities of the new policy at every step.
    behaviour : Policy, or array of shape (N, A) or (N,)
        The behaviour policy.
    scale : float
        Share of the policy in the new policy, where that is itself a mixture with current practice.
    base : Evidence
        The evidence of the new policy itself, whose notes on the behaviour policy hold at every share.
    q : array of shape (N, A)
        Fitted values of all actions, of any policy: they help, and cannot harm.
    level : float
        Level of the band.
    whole : (Evidence, Evidence), optional
        The same with plain weights, normalised and capped, and with marginalised ones. They stand at the last share,
        so that the curve ends in the audit's answer.
    regressors : mapping from name to regressor, optional
        Of the weights, as for :func:`~caliope.weights.marginalise_weights`.
    weighed_on : array of int, optional
        Numbers of the trajectories that weights are regressed on, by default all.
    about : Known, optional
        What holds at every share.
    widen : float
        Factor of the width of the band.
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
    found = gather_shares(data, target_probs, behaviour, scale, base=base, q=q, shares=shares)
    if whole is not None:
        found = [*found[:-1], base]
    parts = found if whole is None else found[:-1]
    regressions = regress_weights(parts, data, regressors=regressors, fitted_on=weighed_on, rng=rng)
    changed = (plain_and_marginalised(*pair) for pair in zip(parts, regressions, strict=True))
    last = () if whole is None else (whole,)
    evidences = ((raw, *pair) for raw, pair in zip(found, chain(changed, last), strict=True))
    return judge_shares(tuple(shares), evidences, about or Known(), level=level, widen=widen, rng=rng)


def gather_shares(
    data: Trajectories,
    target_probs: Float,
    behaviour: Any,
    scale: float,
    *,
    base: Evidence,
    q: Float,
    shares: Sequence[float] = SHARES,
) -> list[Evidence]:
    """Evidence of the policy in each share of the decisions; parameters as for :func:`trace_reach`."""
    return [
        _gather_share(data, MixWithPractice(target_probs, scale * share), behaviour, base, q)  # type: ignore[arg-type]
        for share in shares
    ]


@dataclass(frozen=True, eq=False)
class _Share:
    """What is kept of the evidence of a share: a column over trajectories and a few numbers."""

    value: float
    bias: Bias
    influence: Float  # (units,)
    plain: float  # standard error with the plain weights, times n
    findings: tuple[Finding, ...]
    effective_n: float
    clusters: float | None  # effective number of them

    @classmethod
    def of(cls, raw: Evidence, plain: Evidence, e: Evidence) -> _Share:
        value = float(_GAIN(e))
        found = cls(
            value,
            Bias.of(e, value - float(_GAIN(raw))),
            e.layout.pool(influence(_GAIN, e)),
            _norm(e.layout.pool(influence(_GAIN, plain))),
            examine_marginalised(_GAIN, e),
            effective_n(e),
            None if e.cluster is None else effective_clusters(_GAIN, e),
        )
        for each in (raw, plain, e):
            each.forget()
        return found

    def stretch(self, band: Interval) -> Interval:
        """Stretch the band by what few clusters make it too short."""
        if self.clusters is None:
            return band
        return stretch(band, self.value, few_clusters_factor(self.clusters, band.level))


def judge_shares(
    shares: tuple[float, ...],
    evidences: Iterable[tuple[Evidence, Evidence, Evidence]],
    about: Known,
    *,
    level: float,
    widen: float = 1.0,
    rng: np.random.Generator,
) -> Reach:
    """The band and the verdicts from the evidence of each share, one after the other.

    Each is given three times: as it is, with weights normalised among those under way and capped, and marginalised.
    """
    found, n = [], 0
    for raw, plain, e in evidences:
        found.append(_Share.of(raw, plain, e))
        n = len(e)
    # The error of one share alone, as every other check of an audit has it: at least that of the plain weights.
    own = np.array([_norm(each.influence) for each in found]) / n
    se = np.maximum(own, [each.plain / n for each in found])
    arm = widen * uniform_arms([each.influence for each in found], level=level, rng=rng) / n
    rows = []
    for i, (share, each) in enumerate(zip(shares, found, strict=True)):
        half = arm[i] * (se[i] / own[i] * each.bias.factor(float(se[i]), level) if own[i] > 0 else 1.0)
        band = Interval(each.value - half, each.value + half, level, "uniform band, multiplier bootstrap")
        unsupported = () if about.support is None else about.support.scale(share).findings()
        seen = (*each.findings, *each.bias.findings(float(se[i])), *unsupported, *about.findings)
        rows.append(
            Estimate(
                f"share_{share:g}",
                f"New policy in {share:.0%} of the decisions, minus current practice",
                each.value,
                each.stretch(band),
                n,
                each.effective_n,
                count_once(seen),
                about.conditions,
            )
        )
    return Reach(shares, Table(tuple(rows), "How far the log carries"))


def _gather_share(data: Trajectories, target: Any, behaviour: Any, base: Evidence, q: Float) -> Evidence:
    """Evidence of a share of the decisions; what was found about the behaviour policy is not tested again."""
    e = gather(data, target, behaviour, gamma=base.gamma, q=q, behaviour_known=True)
    kept = tuple(note for note in base.notes if note.check != S101 and note not in e.notes)
    return replace(e, behaviour_known=base.behaviour_known, notes=(*e.notes, *kept))


def uniform_arms(influences: Sequence[Float], *, level: float, rng: np.random.Generator) -> Float:
    """Half the width, times n, of a band that holds for all values together, (S,); influences are (n,) each."""
    scale = np.array([_norm(u) for u in influences])
    usable = np.isfinite(scale) & (scale > 0)
    if not usable.any():
        return np.where(scale == 0, 0.0, np.nan)
    used = [u for u, such in zip(influences, usable, strict=True) if such]
    n = len(used[0])
    if n <= _MULTIPLIED:
        scaled = np.array(used) / scale[usable, None]
        largest = np.abs(rng.standard_normal((_DRAWS, n)) @ scaled.T).max(axis=1)
    else:
        # The sums are normal, with this covariance: drawn at once.
        values, vectors = np.linalg.eigh(_products(used) / np.outer(scale[usable], scale[usable]))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        largest = np.abs(rng.standard_normal((_DRAWS, len(root))) @ root.T).max(axis=1)
    return float(np.quantile(largest, level)) * np.where(np.isfinite(scale), scale, np.nan)


def _norm(u: Float) -> float:
    return float(np.sqrt((u**2).sum()))


def _products(rows: Sequence[Float]) -> Float:
    """The sum of products of each two rows, (S, S), a stretch at a time."""
    total = np.zeros((len(rows), len(rows)))
    for start in range(0, len(rows[0]), STRETCH):
        some = np.array([row[start : start + STRETCH] for row in rows])
        total += some @ some.T
    return total
