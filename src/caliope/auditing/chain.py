"""The audit: a log and a policy in; a value, an interval, a verdict and the reasons out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.auditing.checking import check_groundwork, check_policy
from caliope.auditing.effective import few_at_a_step, few_in_a_stratum
from caliope.auditing.groundwork import Groundwork, lay_groundwork
from caliope.auditing.influence import most_influential
from caliope.auditing.keeping import Keep, Keeping, fingerprint_of, forget
from caliope.auditing.multiverse import Universe, multiverse
from caliope.auditing.panel import panel
from caliope.auditing.result import Audit
from caliope.auditing.stages import Progress, Stages
from caliope.auditing.values import values_on
from caliope.auditing.verdicts import agreement, concerning, moved_by_capping, nothing_varies, overturned
from caliope.confounding import breakdown
from caliope.estimators import wdr
from caliope.gathering import gather, target_probabilities
from caliope.policies import MixWithPractice, Relative
from caliope.ragged import Int
from caliope.results import Estimate, Finding, Table
from caliope.trajectories import Trajectories
from caliope.transforms import clip_weights
from caliope.uncertainty import difference

_LISTED = 12  # strata that the settings spell out
LOGGED = "logged probabilities"  # as a behaviour, among settings and other choices


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
    work: str | Path | None = None,
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
    work : path, optional
        A folder of your own that keeps the fits: an audit that was stopped, called again, goes on where it was.
    """
    settings: dict[str, Any] = {
        "gamma": gamma,
        "logged": logged,
        "by": by,
        "level": level,
        "fit_steps": fit_steps,
        "rng": rng,
    }
    check_groundwork(data, models, **settings)
    check_policy(data, target, regressor, logged=logged, n_draws=n_draws)
    keep: Keep = forget
    if work is not None:
        keep = Keeping.of(work, fingerprint_of(data, models, settings))
        keep.for_policy(None, regressor)  # told now if it cannot be kept, and not after the fits
    groundwork = lay_groundwork(data, models, **settings, progress=progress, keep=keep)
    return audit_policy(
        groundwork, target, regressor=regressor, n_draws=n_draws, progress=progress, keep=keep
    )


def audit_policy(
    groundwork: Groundwork,
    target: Any,
    *,
    regressor: Any = None,
    n_draws: int = 1000,
    progress: Progress | None = None,
    keep: Keep = forget,
) -> Audit:
    """The second half of an audit, for one policy; what is known of the log is shared by all of them."""
    if not isinstance(groundwork, Groundwork):
        raise TypeError(
            f"groundwork must come from lay_groundwork(data, rng=...), got {type(groundwork).__name__}."
        )
    data, chosen, gamma, rng = groundwork.data, groundwork.chosen, groundwork.gamma, groundwork.seed
    check_policy(data, target, regressor, logged=groundwork.logged, n_draws=n_draws)
    begin = Stages(progress)
    with begin("fitting values"):
        wanted = target_probabilities(data, target, chosen)
        if isinstance(keep, Keeping):
            keep = keep.for_policy(wanted, regressor)
        q, how = keep(
            "values",
            lambda: values_on(data, groundwork.fitted_on, wanted, regressor, gamma=gamma, rng=rng),
        )
    with begin("gathering evidence"):
        evidence = gather(data, target, groundwork.behaviour, gamma=gamma, q=q)
        capped = clip_weights(evidence)
    with begin("estimating"):
        rows = panel(evidence, capped, n_draws=n_draws, level=groundwork.level, rng=rng)
    with begin("other choices"):
        others = _other_choices(groundwork, target, q)
    with begin("what would overturn it"):
        influence = most_influential(difference(wdr), capped)
        confounded = breakdown(capped)
    findings = (
        *groundwork.findings,
        *few_at_a_step(capped),
        *few_in_a_stratum(capped, groundwork.strata),
        *agreement(rows, others, len(groundwork.looked_at) / len(data)),
        *nothing_varies(rows[1]),
        *moved_by_capping(rows),
        *overturned(rows[1], influence, confounded, len(data)),
    )
    return Audit(
        table=Table(
            tuple(_by_id(concerning(row, findings), data) for row in rows), "What the new policy is worth"
        ),
        comparison=groundwork.comparison,
        placebo=groundwork.placebo,
        others=others,
        influence=influence,
        confounded=confounded,
        evidence=capped,
        data=data,
        wanted=wanted,
        acted=chosen.probabilities,
        settings=_settings(groundwork, target, n_draws, how),
        stages=(*groundwork.stages, *begin.done),
    )


def _other_choices(groundwork: Groundwork, target: Any, q: Any) -> Table[Universe]:
    """The multiverse, in a long log on a sample of it."""
    data, which = groundwork.data, groundwork.looked_at
    part = data.part(which)
    rows = data.layout.rows_of(which)
    asked = _in_rows(target, rows)
    given: dict[str, Any] = {name: replace(each, data=part) for name, each in groundwork.others.items()}
    if groundwork.logged is not None:
        given = {LOGGED: groundwork.logged[rows]} | given
    return multiverse(part, asked, given, gamma=groundwork.gamma, q=q[rows], rng=groundwork.seed)


def _in_rows(target: Any, rows: Int) -> Any:
    """A target for a part of the log: tables are cut, a change to practice by a table too; policies predict."""
    if isinstance(target, MixWithPractice):
        return replace(target, policy=_in_rows(target.policy, rows))
    predicts = hasattr(target, "predict_proba") or hasattr(target, "on") or isinstance(target, Relative)
    return target if predicts else np.asarray(target)[rows]


def _by_id(row: Estimate, data: Trajectories) -> Estimate:
    """A row whose findings call a trajectory by its own name, and not by its place in the log."""
    findings = tuple(_named(finding, data) for finding in row.findings)
    return replace(row, findings=findings)


def _named(finding: Finding, data: Trajectories) -> Finding:
    place = finding.numbers.get("trajectory")
    if place is None:
        return finding
    called = f"id {data.ids[int(place)]}"
    return replace(finding, message=finding.message.replace(f"number {int(place)}", called))


def _settings(groundwork: Groundwork, target: Any, n_draws: int, how: str) -> dict[str, Any]:
    data, recommended = groundwork.data, groundwork.comparison.recommended
    logged = groundwork.logged is not None
    return {
        "gamma": groundwork.gamma,
        "seed": groundwork.seed,
        "level": groundwork.level,
        "draws": n_draws,
        "trajectories": len(data),
        "steps": data.n_steps,
        "trajectories fitted on": len(groundwork.fitted_on),
        "trajectories of the placebo and of other choices": len(groundwork.looked_at),
        "target": _kind(target),
        "strata": "none" if groundwork.strata is None else _strata(groundwork.strata),
        "behaviour": LOGGED if logged else f"{recommended}, cross-fitted",
        "candidates": ", ".join(groundwork.fitted),
        "values": how,
        "weights": "capped at the mean times sqrt(n) / 3 where a row says so",
    }


def _kind(target: Any) -> str:
    policy = hasattr(target, "predict_proba") or isinstance(target, Relative)
    return type(target).__name__ if policy else "probabilities, as an array"


def _strata(strata: Any) -> str:
    names = sorted({str(x) for x in np.asarray(strata)})
    shown = ", ".join(names[:_LISTED])
    return shown if len(names) <= _LISTED else f"{shown} and {len(names) - _LISTED} more"
