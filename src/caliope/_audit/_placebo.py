"""The negative control of an audit (placebo): a policy whose value is known, evaluated as if it were not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier

from caliope._formulas import wis
from caliope._gather import gather
from caliope._ragged import Float
from caliope._results import Interval
from caliope._trajectories import Trajectories
from caliope.behaviour._calibrators import Shrinkage
from caliope.behaviour._fit import FittedBehaviour, fit_behaviour
from caliope.behaviour._models import POOL
from caliope.behaviour._recalibration import recalibrate
from caliope.calibration._compare import Comparison
from caliope.checks import P101, P102, P103, Finding, Level
from caliope.checks._audit import mean_of_steps
from caliope.uncertainty._intervals import bootstrap, difference
from caliope.weights import clip_weights, effective_n

CHALLENGER = "a forest"  # the second model where there is no other candidate
_SHARE = (0.5, 0.1)  # of n, that should be left as the effective sample: a caution, an issue
_BETTER = (0.01, 0.03)  # log loss by which a forest beats the only candidate: a caution, an issue


@dataclass(frozen=True)
class Placebo:
    """A negative control: what the weights make of current practice itself, whose value is known.

    Attributes
    ----------
    value : float
        Estimate of a second behaviour model, by weighted importance sampling with capped weights.
    practice : float
        What it should be: the mean return of the log.
    error : Interval
        Confidence interval of the difference.
    effective_n : float
        Effective sample size.
    n : int
        Number of trajectories.
    findings : tuple of Finding
        What was found: the control missed (P101), or few effective trajectories (P102).
    second_model : str
        Name of the second behaviour model.
    """

    value: float
    practice: float
    error: Interval
    effective_n: float
    n: int
    findings: tuple[Finding, ...]
    second_model: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "value": self.value if math.isfinite(self.value) else None,
            "practice": self.practice,
            "error": self.error.to_dict(),
            "effective_n": self.effective_n,
            "n": self.n,
            "second_model": self.second_model,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def run_placebo(
    data: Trajectories,
    second: Any,
    behaviour: Any,
    *,
    gamma: float,
    second_model: str = "",
    n_draws: int = 500,
    rng: int | np.random.Generator,
) -> Placebo:
    """Evaluate a second model of current practice; its value is known to be the mean return.

    A control that fails says that the weights cannot even find what is known. One that passes says nothing about a
    policy that differs from practice.

    Parameters
    ----------
    data : Trajectories
        The log.
    second : Policy, or array of shape (N, A)
        A second behaviour model, of another family and fitted on other folds than ``behaviour``.
    behaviour : Policy, or array of shape (N, A)
        The behaviour model whose weights are put to the test.
    gamma : float
        Discount in [0, 1].
    second_model : str
        Name of the second model.
    n_draws : int
        Bootstrap draws.
    rng : int or Generator
        Seed of the bootstrap.

    Returns
    -------
    Placebo
        The estimate, what it should be, and what was found.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from caliope import TabularPolicy
    >>> practice = TabularPolicy(ward.PRACTICE)
    >>> run_placebo(ward.simulate(50, rng=0), practice, practice, gamma=1.0, n_draws=20, rng=0).findings
    ()
    """
    e = clip_weights(gather(data, second, behaviour, gamma=gamma))
    value, practice = float(wis(e)), float(e.returns.mean())
    error = bootstrap(difference(wis), e, n_draws=n_draws, rng=rng)
    n = effective_n(e)
    se = float(e.returns.std() / np.sqrt(len(e)))
    findings = (*_check_error(value, practice, error, se), *_check_effective(n, len(e)))
    return Placebo(value, practice, error, n, len(e), findings, second_model)


def _check_error(value: float, practice: float, error: Interval, se: float) -> tuple[Finding, ...]:
    """P101: an error that is clear, and larger than the standard error of the mean return."""
    if np.isfinite(value) and 0.0 in error:
        return ()
    if np.isfinite(value) and abs(value - practice) <= se:
        return (P101.finding("note", "near", value=value, practice=practice, se=se),)
    ends = {"low": error.low, "high": error.high}
    return (P101.finding("issue", "failed", value=value, practice=practice, **ends),)


def _check_effective(n: float, total: int) -> tuple[Finding, ...]:
    """P102: two models of the same practice that disagree in many trajectories."""
    share = n / total
    if share >= _SHARE[0]:
        return ()
    return (P102.finding("issue" if share < _SHARE[1] else "caution", share=share, effective_n=n, n=total),)


def fit_second_model(
    comparison: Comparison, fitted: Mapping[str, FittedBehaviour], part: Trajectories, *, rng: int
) -> tuple[str, FittedBehaviour]:
    """Fit the best candidate of another family again on other folds; a forest where there is no other."""
    ranking = () if comparison.choice is None else comparison.choice.ranking
    finite = [
        name
        for name in ranking
        if name != comparison.recommended and np.isfinite(comparison[name].measured.nll)
    ]
    # The pool is made of the others, and takes as long to fit as all of them.
    plain = [name for name in finite if name != POOL]
    name = next(iter(plain or finite), None)
    if name is not None:
        return name, fit_behaviour(clone(fitted[name].model), part, mode="cross", rng=rng + 1)
    trees = ExtraTreesClassifier(50, min_samples_leaf=5, max_features=None, random_state=rng + 1)
    return CHALLENGER, recalibrate(trees, part, Shrinkage(), rng=rng + 1)


def check_underfit(name: str, second: FittedBehaviour, chosen: FittedBehaviour) -> tuple[Finding, ...]:
    """P103: a forest with a clearly higher held-out likelihood than the only candidate."""
    if name != CHALLENGER:
        return ()  # the best of several has been chosen
    data = second.data
    mean, se = mean_of_steps(data, _log_likelihood(second, data) - _log_likelihood(chosen, data))
    if not (mean > _BETTER[0] and mean > 3 * se):
        return ()
    level: Level = "issue" if mean > _BETTER[1] else "caution"
    return (P103.finding(level, gain=mean, se=se),)


def _log_likelihood(behaviour: FittedBehaviour, data: Trajectories) -> Float:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(behaviour.on(data)[np.arange(data.n_steps), data.actions]))
