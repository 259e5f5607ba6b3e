"""The placebo: evaluate a policy whose value is known, with the very weights that the real question gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope.diagnostics import effective_n
from caliope.estimators import wis
from caliope.gathering import gather
from caliope.results import Finding, Interval
from caliope.trajectories import Trajectories
from caliope.transforms import clip_weights
from caliope.uncertainty import bootstrap, difference

_SHARE = (0.5, 0.1)  # of n, that should be left as the effective sample: a caution, an issue


@dataclass(frozen=True)
class Placebo:
    """What the estimators make of current practice, told to them as if it were a new policy."""

    value: float  # capped weighted importance sampling
    practice: float  # what it should be: the plain mean return
    error: Interval  # of the difference
    effective_n: float
    n: int
    findings: tuple[Finding, ...]
    family: str = ""  # the second model, by name

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "value": self.value if np.isfinite(self.value) else None,
            "practice": self.practice,
            "error": self.error.to_dict(),
            "effective_n": self.effective_n,
            "n": self.n,
            "second_model": self.family,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def run_placebo(
    data: Trajectories,
    second: Any,
    behaviour: Any,
    *,
    gamma: float,
    family: str = "",
    n_draws: int = 500,
    rng: int | np.random.Generator,
) -> Placebo:
    """Take a second, independently fitted model of practice as the target; its value is the plain mean return.

    ``second`` should be of another family, fitted on other folds than ``behaviour``: a model against itself would be
    trivial. A placebo that fails says that the weights cannot even find what is known. One that passes says nothing
    about a policy that differs from practice.
    """
    e = clip_weights(gather(data, second, behaviour, gamma=gamma))
    value, practice = float(wis(e)), float(e.returns.mean())
    error = bootstrap(difference(wis), e, n_draws=n_draws, rng=rng)
    n = effective_n(e)
    se = float(e.returns.std() / np.sqrt(len(e)))
    findings = (*_missed(value, practice, error, se), *_little_left(n, len(e)))
    return Placebo(value, practice, error, n, len(e), findings, family)


def _missed(value: float, practice: float, error: Interval, se: float) -> tuple[Finding, ...]:
    """An error that is clear, and larger than the standard error of what is to be found."""
    if np.isfinite(value) and 0.0 in error:
        return ()
    if np.isfinite(value) and abs(value - practice) <= se:
        message = (
            f"the placebo is missed by little: current practice is worth {practice:.4g}, and told as a second model of "
            f"itself it is estimated at {value:.4g}, nearer than the standard error of the mean return, {se:.2g}"
        )
        return (Finding("P101", "note", message, {"value": value, "practice": practice}),)
    return (_failed(value, practice, error),)


def _failed(value: float, practice: float, error: Interval) -> Finding:
    message = (
        f"the placebo fails: current practice is worth {practice:.4g}, and told as a second model of itself it is "
        f"estimated at {value:.4g} (difference {error.low:.3g} to {error.high:.3g}); whatever is estimated with "
        "these weights is off"
    )
    return Finding("P101", "issue", message, {"value": value, "practice": practice})


def _little_left(n: float, total: int) -> tuple[Finding, ...]:
    share = n / total
    if share >= _SHARE[0]:
        return ()
    message = (
        f"two models of the same practice disagree so much that {n:.0f} of {total} trajectories are left as the "
        "effective sample of the placebo, where all should be"
    )
    return (Finding("P102", "issue" if share < _SHARE[1] else "caution", message, {"share": share}),)
