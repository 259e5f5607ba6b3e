"""Results of a comparison of behaviour models: rows, details, and the choice of a model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from caliope._cells import inert
from caliope._ragged import Float, Int, cluster_se
from caliope._results import Interval
from caliope.calibration._neighbourhoods import NeighbourhoodCalibration
from caliope.calibration._null import AgainstNull
from caliope.calibration._reliability import CalibrationError, RatioReliability, ReliabilityCurve
from caliope.calibration._scores import ALL, DistanceToTruth, SplitLoss
from caliope.calibration._tests import BalanceTable, WeightMoments
from caliope.checks import Finding


@dataclass(frozen=True)
class Measured:
    """All calibration numbers of a model; those for a whole log only are None in a stratum.

    Parameters
    ----------
    n, n_steps, n_states : int
        Trajectories, steps, and states whose neighbourhoods were used.
    nll : float
        Mean log loss.
    nll_interval : Interval
        Confidence interval of ``nll``, by trajectory.
    brier : float
        Mean Brier loss.
    brier_interval : Interval
        Confidence interval of ``brier``, by trajectory.
    skill_marginal, skill_last_action : float
        Share of the NLL saved over the marginal frequencies, and over those given the last action.
    zero_share : float
        Share of the logged actions to which the model gives probability 0.
    paper_tv : AgainstNull
        The paper's metric.
    paper_interval : Interval
        Confidence interval of ``paper_tv``, by trajectory.
    noise_floor : float
        What a perfect model scores in it.
    averaged_tv : AgainstNull
        The neighbourhood-averaged metric.
    averaged_interval : Interval
        Confidence interval of ``averaged_tv``, by trajectory.
    averaged_floor : float
        What a perfect model scores in it.
    calibration_loss : float or None
        Part of the NLL that recalibration could save.
    recalibration : str
        Name of that recalibration.
    top_label, classwise : CalibrationError or None
        Expected calibration errors.
    balance : AgainstNull or None
        The largest ``|z|`` of the balance table.
    balance_signs_p : float or None
        Its p-value under random signs.
    weights : AgainstNull or None
        The largest ``|z|`` of the mean weights by step; needs a target.
    kernel : AgainstNull or None
        Kernel calibration error.
    true_tv : float or None
        Mean total variation to the true behaviour policy, where it is known.
    true_tv_interval : Interval or None
        Confidence interval of ``true_tv``, by trajectory.
    true_kl, true_at_logged, inflation : float or None
        The other distances of :class:`DistanceToTruth`, averaged.

    Examples
    --------
    >>> from caliope import compare_policies
    >>> from caliope.domains import ward
    >>> data = ward.simulate(50, rng=0)
    >>> models = {"uniform": np.full((data.n_steps, 3), 1 / 3)}
    >>> comparison = compare_policies(models, data, k=20, n_states=50, n_draws=20, rng=0)
    >>> round(comparison.rows[0].measured.nll, 3)
    1.099
    """

    n: int
    n_steps: int
    n_states: int
    nll: float
    nll_interval: Interval
    brier: float
    brier_interval: Interval
    skill_marginal: float
    skill_last_action: float
    zero_share: float
    paper_tv: AgainstNull
    paper_interval: Interval
    noise_floor: float
    averaged_tv: AgainstNull
    averaged_interval: Interval
    averaged_floor: float
    calibration_loss: float | None
    recalibration: str
    top_label: CalibrationError | None
    classwise: CalibrationError | None
    balance: AgainstNull | None
    balance_signs_p: float | None
    weights: AgainstNull | None
    kernel: AgainstNull | None
    true_tv: float | None
    true_tv_interval: Interval | None
    true_kl: float | None
    true_at_logged: float | None
    inflation: float | None


@dataclass(frozen=True, repr=False)
class CalibrationRow:
    """Calibration numbers of one model in one stratum.

    Parameters
    ----------
    model, stratum : str
        Names; the whole log is the stratum ``"all"``.
    measured : Measured
        All numbers.
    findings : tuple of Finding
        What to know before using them.

    Examples
    --------
    >>> from caliope import compare_policies
    >>> from caliope.domains import ward
    >>> data = ward.simulate(50, rng=0)
    >>> models = {"uniform": np.full((data.n_steps, 3), 1 / 3)}
    >>> row = compare_policies(models, data, k=20, n_states=50, n_draws=20, rng=0).rows[0]
    >>> row.name, row.cells()["NLL"]
    ('uniform', '1.099')
    """

    model: str
    stratum: str
    measured: Measured
    findings: tuple[Finding, ...] = ()

    def __repr__(self) -> str:
        found = sum(finding.level != "note" for finding in self.findings)
        return f"CalibrationRow({self.name!r}: NLL {_format(self.measured.nll)}, {found} findings)"

    @property
    def name(self) -> str:
        """Name of the model, and of the stratum unless it is the whole log."""
        return self.model if self.stratum == ALL else f"{self.model} / {self.stratum}"

    def cells(self) -> dict[str, str]:
        """Return the main numbers as text: scores, both metrics with their nulls, and the distance to the truth."""
        m = self.measured
        low, high = _format(m.nll_interval.low), _format(m.nll_interval.high)
        cells = {
            "model": self.model,
            "stratum": self.stratum,
            "steps": str(m.n_steps),
            "NLL": _format(m.nll),
            f"{100 * m.nll_interval.level:g}% interval": f"[{low}, {high}]",
            "Brier": _format(m.brier),
            "saved": _format(m.skill_marginal, 2),
            "paper TV": _format(m.paper_tv.value),
            "its null": _format(m.paper_tv.null_mean),
            "paper z": _format(m.paper_tv.z, 1),
            "averaged excess": _format(m.averaged_tv.excess),
            "averaged z": _format(m.averaged_tv.z, 1),
        }
        return cells if m.true_tv is None else cells | {"true TV": _format(m.true_tv)}

    def record(self) -> dict[str, Any]:
        """Return all numbers in one flat mapping."""
        codes = " ".join(sorted({finding.code for finding in self.findings}))
        return {"model": self.model, "stratum": self.stratum, **_flatten(self.measured), "findings": codes}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not finite becomes None."""
        numbers = {
            key: None if isinstance(x, float) and not math.isfinite(x) else x
            for key, x in _flatten(self.measured).items()
        }
        findings = [finding.to_dict() for finding in self.findings]
        return {"model": self.model, "stratum": self.stratum, **numbers, "findings": findings}


def _flatten(measured: Measured) -> dict[str, Any]:
    """Put the fields of all parts into one mapping: paper_tv, paper_tv_null, ..."""
    flat: dict[str, Any] = {}
    for part in dataclasses.fields(measured):
        flat |= _flatten_part(part.name, getattr(measured, part.name))
    return flat


def _flatten_part(name: str, x: Any) -> dict[str, Any]:
    if isinstance(x, AgainstNull):
        return {
            name: x.value,
            f"{name}_null": x.null_mean,
            f"{name}_null_sd": x.null_sd,
            f"{name}_z": x.z,
            f"{name}_p": x.p_value,
        }
    if isinstance(x, CalibrationError):
        return _flatten_part(name, x.ece) | {f"{name}_debiased": x.debiased}
    if name.endswith("_interval"):
        stem = name.removesuffix("_interval")
        return {f"{stem}_low": None if x is None else x.low, f"{stem}_high": None if x is None else x.high}
    if x is None and name in _PARTS:
        return dict.fromkeys(_flatten_part(name, _PARTS[name]))
    return {name: x}


_NOTHING = AgainstNull(0.0, 0.0, 0.0)
# The shape of each part, so that a frame has the same columns where the part is None.
_PARTS: dict[str, Any] = {
    "top_label": CalibrationError(_NOTHING, 0.0),
    "classwise": CalibrationError(_NOTHING, 0.0),
    "balance": _NOTHING,
    "weights": _NOTHING,
    "kernel": _NOTHING,
}


def _format(x: float, decimals: int = 3) -> str:
    if not math.isfinite(x):
        return f"{x:g}"
    text = f"{x:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text


@dataclass(frozen=True, eq=False, repr=False)
class ModelDetails:
    """Curves and tables of one model, for plots and details."""

    table: Float  # (N, A)
    near: NeighbourhoodCalibration
    reliability: ReliabilityCurve
    ratios: RatioReliability
    balance: BalanceTable
    top_label: CalibrationError
    classwise: CalibrationError
    nll_split: SplitLoss
    weights: WeightMoments | None  # of the target's weights
    truth: DistanceToTruth | None

    def __repr__(self) -> str:
        return f"ModelDetails({', '.join(each.name for each in fields(self))})"


@dataclass(frozen=True)
class Choice:
    """The recommended model, the ranking, and the model that the paper's metric would have chosen.

    Parameters
    ----------
    recommended, reason : str
        Name of the model, and why; the name is empty if there is none.
    ranking : tuple of str
        All models by NLL, best first.
    behind, se : mapping from name to float
        NLL above the best, and the standard error of that difference by trajectory.
    by_paper : str
        Model with the best value of the paper's metric.
    barred : tuple of str
        Models fitted on the trajectories that judge them: ranked, never recommended.
    ruled_out : tuple of str
        Models that the caller does not want: ranked, never recommended.

    Examples
    --------
    >>> print(Choice("a", "lowest held-out log loss, 0.9", ("a",), {"a": 0.0}, {"a": 0.0}, by_paper="a"))
    Recommended: a, lowest held-out log loss, 0.9.
      1. a: log loss best
    """

    recommended: str
    reason: str
    ranking: tuple[str, ...]
    behind: Mapping[str, float]
    se: Mapping[str, float]
    by_paper: str
    barred: tuple[str, ...] = ()
    ruled_out: tuple[str, ...] = ()

    @inert
    def __str__(self) -> str:
        lines = [f"Recommended: {self.recommended or 'none'}, {self.reason}."]
        if self.recommended and self.by_paper != self.recommended:
            lines.append(
                f"The paper's metric would choose {self.by_paper}. It favours smooth models, right or wrong."
            )
        for place, name in enumerate(self.ranking, 1):
            text = "best" if self.behind[name] == 0 else f"{self.behind[name]:+.4f} (se {self.se[name]:.4f})"
            text += ", but judged on what it was fitted on" if name in self.barred else ""
            text += ", but ruled out by the tests of practice" if name in self.ruled_out else ""
            lines.append(f"  {place}. {name}: log loss {text}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not finite becomes None."""
        finite = {name: x if np.isfinite(x) else None for name, x in self.behind.items()}
        return {
            "recommended": self.recommended,
            "reason": self.reason,
            "ranking": list(self.ranking),
            "behind": finite,
            "se": {name: x if np.isfinite(x) else None for name, x in self.se.items()},
            "by_paper": self.by_paper,
        }


def choose(
    losses: Mapping[str, Float],
    lengths: Int,
    paper: Mapping[str, float],
    *,
    barred: tuple[str, ...] = (),
    ruled_out: tuple[str, ...] = (),
) -> Choice:
    """Choose the first model whose mean loss is within one standard error of the best.

    The standard error is that of the difference to the best model on the same trajectories.

    Parameters
    ----------
    losses : mapping from name to (n,)
        Sum of the losses of each trajectory; models from simple to complex.
    lengths : (n,)
        Steps of each trajectory.
    paper : mapping from name to float
        The paper's metric of each model.
    barred : tuple of str
        Models fitted on the same trajectories: ranked, never recommended.
    ruled_out : tuple of str
        Models that the caller does not want: ranked, never recommended.

    Returns
    -------
    Choice
        The recommended model and the ranking.

    Examples
    --------
    >>> losses = {"simple": np.array([2.0, 2.0, 2.0]), "complex": np.array([1.0, 1.1, 0.9])}
    >>> choose(losses, np.array([1, 1, 1]), {"simple": 0.1, "complex": 0.2}).recommended
    'complex'
    """
    if any(np.isnan(loss).any() for loss in losses.values()):
        raise ValueError("a loss is not a number: every model must give probabilities at every step.")
    steps = lengths.sum()
    means = {name: float(loss.sum() / steps) for name, loss in losses.items()}
    # Among models with an infinite loss, fewer trajectories with such a step are better.
    ruined = {name: int(np.isinf(loss).sum()) for name, loss in losses.items()}
    ranking = tuple(sorted(means, key=lambda name: (means[name], ruined[name], list(losses).index(name))))
    eligible = [name for name in ranking if name not in (*barred, *ruled_out)]
    best = eligible[0] if eligible else ranking[0]
    certain = np.isfinite(means[best])
    behind = {name: means[name] - means[best] if certain else means[name] for name in losses}
    se = {
        name: cluster_se(losses[name] - losses[best], lengths, ddof=1)
        if np.isfinite(behind[name])
        else np.inf
        for name in losses
    }
    close = [
        name
        for name in losses
        if name in eligible and (name == best or 0 <= behind[name] <= se[name] < np.inf)
    ]
    recommended = close[0] if close and certain else ""
    if not eligible:
        reason = "every model was fitted on the trajectories that judge it"
    elif not certain:
        reason = (
            "every model gives probability 0 to some logged action; shrink them towards the marginal first"
        )
    elif recommended == best:
        reason = f"lowest held-out log loss, {means[best]:.4f}"
    else:
        reason = (
            f"simpler than {best}, and its held-out log loss is higher by {behind[recommended]:.4f} only, within one "
            f"standard error ({se[recommended]:.4f})"
        )
    by_paper = min(paper, key=lambda name: paper[name])
    return Choice(recommended, reason, ranking, behind, se, by_paper, barred, ruled_out)
