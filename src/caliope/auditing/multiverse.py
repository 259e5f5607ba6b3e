"""The multiverse: the same question under every reasonable choice, so that one of them does not pass for the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope.diagnostics import effective_n
from caliope.estimators import Estimator, label, monte_carlo, phwis, step_wis, wdr, wis
from caliope.evidence import Evidence
from caliope.gathering import gather
from caliope.policies import SupportError
from caliope.ratio_calibration import calibrate_ratios
from caliope.results import Finding, Table
from caliope.trajectories import Trajectories
from caliope.transforms import clip_weights

TREATMENTS: tuple[tuple[str, Callable[[Evidence], Evidence]], ...] = (
    ("as they are", lambda e: e),
    ("capped", clip_weights),
)
SHRUNK = "shrunk towards observed care"


@dataclass(frozen=True)
class Universe:
    """One combination of choices and what comes out of it."""

    model: str
    fit: str  # "cross": no trajectory by a model that has seen it; "same": fitted on the log that it weighs
    weights: str
    estimator: str
    value: float
    gain: float  # over current practice
    effective_n: float
    findings: tuple[Finding, ...] = ()

    @property
    def name(self) -> str:
        """The choices, in words."""
        return f"{self.model}, {self.fit} fit, weights {self.weights}, {self.estimator}"

    def cells(self) -> dict[str, str]:
        """What a printed table shows."""
        return {
            "behaviour model": self.model,
            "fit": self.fit,
            "weights": self.weights,
            "estimator": self.estimator,
            "value": f"{self.value:.4g}",
            "against practice": f"{self.gain:+.3g}",
            "effective n": f"{self.effective_n:.1f}",
        }

    def record(self) -> dict[str, Any]:
        """What a data frame shows."""
        return {
            "model": self.model,
            "fit": self.fit,
            "weights": self.weights,
            "estimator": self.estimator,
            "value": self.value,
            "gain": self.gain,
            "effective_n": self.effective_n,
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            key: None if isinstance(x, float) and not np.isfinite(x) else x
            for key, x in self.record().items()
        }


def multiverse(
    data: Trajectories,
    target: Any,
    behaviours: Mapping[str, Any],
    *,
    gamma: float,
    q: Any = None,
    rng: int = 0,
) -> Table[Universe]:
    """Every behaviour model, with weights as they are, capped, or shrunk towards observed care, with every estimator.

    A model that rules out a logged action has no weights, and a row of nan says so.
    """
    rows: list[Universe] = []
    for name, behaviour in behaviours.items():
        fit = getattr(behaviour, "mode", "")
        try:
            raw = gather(data, target, behaviour, gamma=gamma, q=q)
        except SupportError:
            rows.append(Universe(name, fit, "none", "none", float("nan"), float("nan"), 0.0))
            continue
        for how, treat in TREATMENTS:
            rows += _estimated((name, fit, how), treat(raw))
        if getattr(behaviour, "predict_proba", None) is not None:
            shrunk = calibrate_ratios(data, target, behaviour, gamma=gamma, rng=rng)
            rows += _estimated((name, fit, SHRUNK), shrunk)
    return Table(tuple(rows), "The same question under other choices")


def _estimated(choices: tuple[str, str, str], e: Evidence) -> list[Universe]:
    estimators: tuple[Estimator, ...] = (wis, phwis, wdr) if e.q is not None else (wis, phwis, step_wis)
    practice, n = float(monte_carlo(e)), effective_n(e)
    values = [(label(f), float(f(e))) for f in estimators]
    return [Universe(*choices, name, value, value - practice, n) for name, value in values]
