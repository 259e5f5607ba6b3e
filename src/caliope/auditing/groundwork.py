"""Who acted, before any new policy is asked about: the first half of an audit, shared by all policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.auditing.candidates import candidate_models
from caliope.auditing.checking import check_groundwork
from caliope.auditing.keeping import Keep, forget
from caliope.auditing.log_checks import check_log
from caliope.auditing.placebo import Placebo, run_placebo
from caliope.auditing.second import challenged, second_model
from caliope.auditing.stages import Progress, Stage, Stages
from caliope.auditing.variants import other_behaviours
from caliope.auditing.verdicts import propensities
from caliope.behaviour import FittedBehaviour, fit_behaviour
from caliope.calibration import Comparison, compare_policies
from caliope.ragged import Float, Int
from caliope.results import Finding
from caliope.trajectories import Trajectories

LOOKED_AT = (
    50_000  # steps of whole trajectories, on which the placebo and other choices are tried in a longer log
)


@dataclass(frozen=True, eq=False)
class Groundwork:
    """What is known of a log before any policy: models of who acted, how they compare, whether the placebo holds."""

    data: Trajectories
    fitted_on: Int  # numbers of the trajectories that models are fitted on: all, or of a long log a sample
    looked_at: Int  # and of those on which the placebo and other choices are tried
    fitted: Mapping[str, FittedBehaviour]
    others: Mapping[
        str, FittedBehaviour
    ]  # these and their variants, with probabilities for what is looked at
    comparison: Comparison
    chosen: FittedBehaviour  # the recommended one, with its probabilities at every step of the log
    placebo: Placebo
    logged: Float | None  # (N,), where somebody wrote the probabilities down
    strata: Any  # (N,), or None
    findings: tuple[Finding, ...]
    gamma: float
    level: float
    seed: int
    stages: tuple[Stage, ...]

    @property
    def behaviour(self) -> Any:
        """What weighs: logged probabilities where there are any, else the chosen model."""
        return self.chosen if self.logged is None else self.logged


def lay_groundwork(
    data: Trajectories,
    models: Mapping[str, Any] | None = None,
    *,
    gamma: float = 1.0,
    logged: ArrayLike | None = None,
    by: ArrayLike | None = None,
    level: float = 0.95,
    fit_steps: int = 10_000,
    rng: int,
    progress: Progress | None = None,
    keep: Keep = forget,
) -> Groundwork:
    """Check a log, fit and compare models of who acted, and ask the placebo: all that no new policy is needed for.

    Where probabilities were logged they weigh, and a placebo that fails speaks against the fitted models alone.

    With the result several policies can be audited on one log, each by :func:`~caliope.auditing.audit_policy`. For
    the parameters see :func:`~caliope.auditing.audit`.
    """
    known = check_groundwork(
        data, models, gamma=gamma, logged=logged, by=by, level=level, fit_steps=fit_steps, rng=rng
    )
    rng, begin = int(rng), Stages(progress)
    seeds = [np.random.default_rng(child) for child in np.random.SeedSequence(rng).spawn(3)]
    with begin("checking the log"):
        findings = check_log(data)
        which = data.sampled(fit_steps, rng=seeds[0])
        part = data.part(which)
    fitted = _fitted(models or candidate_models(data), part, begin, keep, rng)
    with begin("comparing them"):
        comparison = keep(
            "comparison", lambda: compare_policies(fitted, data, by=by, level=level, rng=seeds[1])
        )
        if not comparison.recommended:
            raise ValueError(f"no behaviour model can be used: {comparison.choice.reason}.")
    with begin("predicting practice"):
        chosen = fitted[comparison.recommended].everywhere(data)
    looked_at = data.sampled(LOOKED_AT, rng=np.random.default_rng(rng))
    some = data.part(looked_at)
    practice = replace(chosen, probabilities=chosen.probabilities[data.layout.rows_of(looked_at)], data=some)
    with begin("placebo"):
        family, second = keep("second model", lambda: second_model(comparison, fitted, part, rng=rng))
        against = challenged(family, second, fitted[comparison.recommended])
        placebo = run_placebo(some, second, practice, gamma=gamma, family=family, rng=seeds[2])
    with begin("fitting other models"):
        others = keep(
            "other models",
            lambda: other_behaviours(fitted, comparison.recommended, practice, seed=rng),
        )
    about = () if known is None else propensities(data, known, chosen)
    aside = (*placebo.findings, *against)
    if known is not None:
        aside = tuple(replace(finding, level="note") for finding in aside)
    return Groundwork(
        data=data,
        fitted_on=which,
        looked_at=looked_at,
        fitted=fitted,
        others=others,
        comparison=comparison,
        chosen=chosen,
        placebo=placebo,
        logged=known,
        strata=None if by is None else np.asarray(by),
        findings=(*findings, *about, *aside),
        gamma=gamma,
        level=level,
        seed=rng,
        stages=tuple(begin.done),
    )


def _fitted(
    models: Mapping[str, Any], part: Trajectories, begin: Stages, keep: Keep, rng: int
) -> dict[str, FittedBehaviour]:
    fitted = {}
    for name, model in models.items():
        with begin(f"fitting behaviour models: {name}"):
            fit = partial(fit_behaviour, model, part, mode="cross", rng=rng)
            fitted[name] = replace(keep(f"behaviour {name}", fit), data=part)  # as kept, it has a copy
    return fitted
