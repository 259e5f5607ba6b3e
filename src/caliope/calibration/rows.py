"""The numbers of one model, for the whole log or one stratum, and how they are printed."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from caliope.calibration.nulls import AgainstNull
from caliope.calibration.reliability import CalibrationError
from caliope.results import Finding, Interval

ALL = "all"  # the stratum that is the whole log


@dataclass(frozen=True)
class Measured:
    """Every calibration number; what is only computed for a whole log is None in a stratum."""

    n: int  # trajectories
    n_steps: int
    n_states: int  # states whose neighbourhoods were looked at
    nll: float
    nll_interval: Interval
    brier: float
    brier_interval: Interval
    skill_marginal: float  # share of the NLL of the marginal that is saved
    skill_last_action: float  # and of the NLL of what follows the last action
    zero_share: float  # of the logged actions, to which the model gives probability 0
    paper_tv: AgainstNull
    paper_interval: Interval
    noise_floor: float
    averaged_tv: AgainstNull
    averaged_interval: Interval
    averaged_floor: float
    calibration_loss: float | None  # of the NLL, that recalibration could save
    recalibration: str  # which one
    top_label: CalibrationError | None
    classwise: CalibrationError | None
    balance: AgainstNull | None  # the largest |z|
    balance_signs_p: float | None
    weights: AgainstNull | None  # the largest |z| of the mean weights by step; needs a target
    kernel: AgainstNull | None
    true_tv: float | None
    true_tv_interval: Interval | None
    true_kl: float | None
    true_at_logged: float | None
    inflation: float | None


@dataclass(frozen=True)
class CalibrationRow:
    """One model in one stratum."""

    model: str
    stratum: str
    measured: Measured
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """The model, and the stratum unless it is the whole log."""
        return self.model if self.stratum == ALL else f"{self.model} / {self.stratum}"

    def cells(self) -> dict[str, str]:
        """The main numbers: scores, the paper's metric with its null, its repair, and the truth where it is known."""
        m = self.measured
        cells = {
            "model": self.model,
            "stratum": self.stratum,
            "steps": str(m.n_steps),
            "NLL": _text(m.nll),
            f"{100 * m.nll_interval.level:g}% interval": f"[{_text(m.nll_interval.low)}, {_text(m.nll_interval.high)}]",
            "Brier": _text(m.brier),
            "saved": _text(m.skill_marginal, 2),
            "paper TV": _text(m.paper_tv.value),
            "its null": _text(m.paper_tv.null_mean),
            "paper z": _text(m.paper_tv.z, 1),
            "averaged excess": _text(m.averaged_tv.excess),
            "averaged z": _text(m.averaged_tv.z, 1),
        }
        return cells if m.true_tv is None else cells | {"true TV": _text(m.true_tv)}

    def record(self) -> dict[str, Any]:
        """All numbers, flat."""
        codes = " ".join(sorted({finding.code for finding in self.findings}))
        return {"model": self.model, "stratum": self.stratum, **_flat(self.measured), "findings": codes}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        numbers = {
            key: None if isinstance(x, float) and not math.isfinite(x) else x
            for key, x in _flat(self.measured).items()
        }
        found = [finding.to_dict() for finding in self.findings]
        return {"model": self.model, "stratum": self.stratum, **numbers, "findings": found}


def _flat(measured: Measured) -> dict[str, Any]:
    """Fields of the parts beside each other: paper_tv, paper_tv_null_mean, ..."""
    flat: dict[str, Any] = {}
    for part in dataclasses.fields(measured):
        flat |= _flat_part(part.name, getattr(measured, part.name))
    return flat


def _flat_part(name: str, x: Any) -> dict[str, Any]:
    if isinstance(x, AgainstNull):
        return {
            name: x.value,
            f"{name}_null": x.null_mean,
            f"{name}_null_sd": x.null_sd,
            f"{name}_z": x.z,
            f"{name}_p": x.p_value,
        }
    if isinstance(x, CalibrationError):
        return _flat_part(name, x.ece) | {f"{name}_debiased": x.debiased}
    if name.endswith("_interval"):
        stem = name.removesuffix("_interval")
        return {f"{stem}_low": None if x is None else x.low, f"{stem}_high": None if x is None else x.high}
    if x is None and name in _PARTS:
        return dict.fromkeys(_flat_part(name, _PARTS[name]))
    return {name: x}


_NOTHING = AgainstNull(0.0, 0.0, 0.0)
# What a part looks like when it is there, so that a frame has the same columns with and without it.
_PARTS: dict[str, Any] = {
    "top_label": CalibrationError(_NOTHING, 0.0),
    "classwise": CalibrationError(_NOTHING, 0.0),
    "balance": _NOTHING,
    "weights": _NOTHING,
    "kernel": _NOTHING,
}


def _text(x: float, decimals: int = 3) -> str:
    if not math.isfinite(x):
        return f"{x:g}"
    text = f"{x:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text
