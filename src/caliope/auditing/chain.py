"""The audit: a log and a policy in; a value, an interval, a verdict and the reasons out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.auditing.candidates import candidate_models
from caliope.auditing.influence import most_influential
from caliope.auditing.log_checks import check_log
from caliope.auditing.multiverse import multiverse
from caliope.auditing.panel import panel
from caliope.auditing.placebo import run_placebo
from caliope.auditing.result import Audit
from caliope.auditing.second import second_model
from caliope.auditing.stages import Progress, Stages
from caliope.auditing.values import values_on
from caliope.auditing.verdicts import agreement, concerning, overturned, propensities
from caliope.behaviour import fit_behaviour
from caliope.calibration import compare_policies
from caliope.confounding import breakdown
from caliope.estimators import wdr
from caliope.gathering import gather, target_probabilities
from caliope.policies import Relative
from caliope.results import Table
from caliope.trajectories import Trajectories, check_gamma
from caliope.transforms import clip_weights
from caliope.uncertainty import difference


def audit(
    data: Trajectories,
    target: Any,
    models: Mapping[str, Any] | None = None,
    *,
    gamma: float = 1.0,
    logged: ArrayLike | None = None,
    by: ArrayLike | None = None,
    regressor: Any = None,
    level: float = 0.95,
    n_draws: int = 1000,
    fit_steps: int = 10_000,
    rng: int,
    progress: Progress | None = None,
) -> Audit:
    """Say what a new policy is worth on a log, and whether the number may be believed.

    The log is checked; candidate models of who acted are cross-fitted by trajectory and compared on decisions that
    they have not seen; values are fitted across folds; every estimator is computed with intervals and checks. A
    placebo asks the same machinery for a value that is known; other choices are tried; and it is asked how strong an
    unrecorded reason, and how few patients, would overturn the conclusion.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, array of shape (N, A), or a policy stated relative to practice (``mix``, ``tilt``)
        The new policy.
    models : mapping from name to unfitted classifier, optional
        Candidates, the simpler ones first; by default :func:`~caliope.auditing.candidate_models`.
    gamma : float
        Discount in [0, 1].
    logged : array-like of shape (N,), optional
        Probabilities with which the logged actions were taken, where somebody wrote them down. They are used, checked
        like any other, and compared with the fitted ones.
    by : array-like of shape (N,), optional
        A stratum for every step.
    regressor : scikit-learn regressor, optional
        For the fitted values; by default extremely randomised trees.
    level, n_draws
        Of the intervals.
    fit_steps : int
        Of a longer log, whole trajectories with about so many steps are sampled for fitting.
    rng : int
        Seed; the same one gives the same audit.
    progress : callable, optional
        Told the name of every stage as it begins.
    """
    if not isinstance(data, Trajectories):
        raise TypeError(f"data must be Trajectories (see read_table), got {type(data).__name__}.")
    check_gamma(gamma)
    known = None if logged is None else np.asarray(logged, dtype=np.float64)
    if known is not None and known.shape != (data.n_steps,):
        raise ValueError(
            f"logged must hold one probability for each of the {data.n_steps} steps, got shape {known.shape}."
        )
    if known is not None and isinstance(target, Relative):
        raise ValueError(
            "a target stated relative to practice needs the probabilities of all actions, which logged does not hold: "
            "leave logged out, or state the target in absolute terms."
        )
    begin = Stages(progress)
    seeds = [np.random.default_rng(child) for child in np.random.SeedSequence(rng).spawn(4)]
    with begin("checking the log"):
        on_log = check_log(data)
        which = data.sampled(fit_steps, rng=seeds[0])
        part = data if len(which) == len(data) else data[which]
    with begin("fitting behaviour models"):
        fitted = {
            name: fit_behaviour(model, part, mode="cross", rng=rng)
            for name, model in (models or candidate_models(data)).items()
        }
    with begin("comparing them"):
        comparison = compare_policies(fitted, data, by=by, level=level, rng=seeds[1])
        if not comparison.recommended:
            raise ValueError(f"no behaviour model can be used: {comparison.choice.reason}.")  # type: ignore[union-attr]
        chosen = fitted[comparison.recommended]
    behaviour = chosen if known is None else known
    with begin("fitting values"):
        wanted = target_probabilities(data, target, chosen)
        q, how = values_on(data, which, wanted, regressor, gamma=gamma, rng=rng)
    with begin("gathering evidence"):
        evidence = gather(data, target, behaviour, gamma=gamma, q=q)
        capped = clip_weights(evidence)
    with begin("estimating"):
        rows = panel(evidence, capped, n_draws=n_draws, level=level, rng=rng)
    with begin("placebo"):
        second = second_model(comparison, fitted, part, rng=rng)
        placebo = run_placebo(data, second, chosen, gamma=gamma, rng=seeds[2])
    with begin("other choices"):
        others = multiverse(data, target, fitted, gamma=gamma, q=q, rng=rng)
    with begin("what would overturn it"):
        influence = most_influential(difference(wdr), capped)
        confounded = breakdown(capped)
    findings = (
        *on_log,
        *(() if known is None else propensities(data, known, chosen)),
        *placebo.findings,
        *agreement(rows, others),
        *overturned(influence, confounded, len(data)),
    )
    return Audit(
        table=Table(tuple(concerning(row, findings) for row in rows), "What the new policy is worth"),
        comparison=comparison,
        placebo=placebo,
        others=others,
        influence=influence,
        confounded=confounded,
        evidence=capped,
        data=data,
        wanted=wanted,
        acted=chosen.on(data),
        settings={
            "gamma": gamma,
            "seed": rng,
            "level": level,
            "draws": n_draws,
            "trajectories": len(data),
            "steps": data.n_steps,
            "trajectories fitted on": len(part),
            "behaviour": "logged probabilities"
            if logged is not None
            else f"{comparison.recommended}, cross-fitted",
            "candidates": ", ".join(fitted),
            "values": how,
            "weights": "capped at the mean times sqrt(n) / 3 where a row says so",
        },
        stages=tuple(begin.done),
    )
