"""The second half of an audit: values, evidence, estimates and sensitivity of one target policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from caliope._audit._answers import Answers
from caliope._audit._benchmark import ColumnStrength, benchmark_columns, steps_to_use
from caliope._audit._compare import name_facts, random_stream
from caliope._audit._inputs import AuditInputs, Question, check_target
from caliope._audit._learn import (
    FOLDS,
    LearntPolicy,
    check_folds,
    fold_factor,
    learn_across_folds,
    name_of_learner,
)
from caliope._audit._reach import Reach, trace_reach
from caliope._audit._result import GAIN, HEADLINE, LOGGED, PRACTICE, Audit
from caliope._audit._settings import AuditSettings, Stages
from caliope._audit._summary import summarise
from caliope._conditions import nothing_worse
from caliope._estimate import estimate
from caliope._evidence import Evidence
from caliope._formulas import dm, monte_carlo, step_wis, wdr, wis
from caliope._gather import gather, target_probabilities
from caliope._policies import MixWithPractice, Practice, Relative
from caliope._ragged import Float
from caliope._results import Estimate, Table
from caliope._trajectories import Trajectories
from caliope.calibration._compare import Comparison
from caliope.checks import Q101, Finding
from caliope.checks._audit import (
    check_agreement,
    check_capping,
    check_choices,
    check_fragility,
    check_late_steps,
    check_strata,
    check_unseen,
    check_width,
)
from caliope.checks._counting import count_once
from caliope.estimators import phwdr, phwis
from caliope.sensitivity import SHRUNK, OtherChoice, breakdown, find_influential, try_other_choices
from caliope.uncertainty._dependence import stretch
from caliope.uncertainty._intervals import difference
from caliope.values._crossfit import fit_default_values, fit_values_by_fold
from caliope.weights import clip_weights

_FLOOR = 0.01  # share of the trajectories with the smallest return, from which it is the worst that there is

if TYPE_CHECKING:
    from caliope._audit._prepare import PreparedAudit

_REFUTED = 2  # standard errors by which the log loss of a model is above the best


def run_audit(prepared: PreparedAudit, asked: Question, begin: Stages) -> Audit:
    """Evaluate the target policy of a question, which has been validated."""
    inputs, data, chosen = prepared.inputs, prepared.data, prepared.chosen
    learnt = None if asked.learn is None else _learn(inputs, asked, begin)
    if learnt is not None:
        asked = replace(asked, target=learnt.target)
        check_target(data, asked.target, logged=inputs.logged is not None)
    with begin("fitting values"):
        target_probs = target_probabilities(data, asked.target, chosen)
        # An absolute target is asked once; one relative to practice is stated anew for every behaviour model.
        target = asked.target if isinstance(asked.target, Relative) else target_probs
        q, how = (
            _fit_values(prepared, asked, target_probs)
            if learnt is None
            else _fit_values_by_fold(prepared, asked, learnt)
        )
    with begin("gathering evidence"):
        evidence = gather(data, target, prepared.behaviour, gamma=inputs.gamma, q=q)
        capped = clip_weights(evidence)
    with begin("estimating"):
        rows = estimate_all(evidence, capped, n_draws=asked.n_draws, level=inputs.level, rng=inputs.seed)
        rows, by_folds = (rows, ()) if learnt is None else _widen_for_folds(rows, prepared, learnt, capped, q)
        rows = _include_unseen(rows, asked.worst, evidence.returns)
    with begin("other choices"):
        others = _try_others(prepared, target, q)
    with begin("sensitivity of the result"):
        influence = find_influential(difference(wdr), capped)
        confounding = breakdown(capped)
        strength = _benchmark(data, target) if inputs.logged is None else ()
    with begin("summarising"):
        summary = summarise(
            data,
            capped,
            target_probs=target_probs,
            behaviour_probs=chosen.probabilities,
            influence=influence,
            breakdown=confounding,
        )
    table = Table(rows, "What the new policy is worth")
    answers = Answers(asked.learnt_on, inputs.ended, inputs.recorded_before)
    with begin("how far the log carries"):
        conditions = (*table[GAIN].conditions, *answers.conditions)
        reach = _trace(prepared, asked, (target_probs, evidence, q), answers, conditions)
    findings = (
        *prepared.findings,
        *check_late_steps(capped),
        *check_strata(capped, inputs.strata),
        *_check_estimates(table, _comparable(others, prepared), len(prepared.looked_at) / len(data)),
        *check_fragility(table[GAIN], to_flip=influence.to_flip, factor=confounding.factor),
        *_check_question(asked),
        *by_folds,
        *answers.findings,
    )
    return Audit(
        table=replace(table, rows=tuple(_attach(row, findings, answers, data) for row in rows)),
        comparison=prepared.comparison,
        placebo=prepared.placebo,
        others=others,
        influence=influence,
        breakdown=confounding,
        benchmark=strength,
        reach=reach,
        summary=summary,
        evidence=capped,
        data=data,
        target_probs=target_probs,
        behaviour_probs=chosen.probabilities,
        settings=_settings(prepared, asked, how, answers),
        stages=(*prepared.stages, *begin.done),
    )


def _trace(
    prepared: PreparedAudit,
    asked: Question,
    of: tuple[Float, Evidence, Float],
    answers: Answers,
    conditions: tuple[str, ...],
) -> Reach | None:
    """The policy in a growing share of the decisions; practice itself has none."""
    if isinstance(asked.target, Practice):
        return None
    inputs, (target_probs, evidence, q) = prepared.inputs, of
    return trace_reach(
        prepared.data,
        target_probs,
        prepared.behaviour,
        base=evidence,
        q=q,
        level=inputs.level,
        findings=(*prepared.findings, *answers.findings),
        conditions=conditions,
        rng=random_stream(inputs.seed, 7),
    )


def _learn(inputs: AuditInputs, asked: Question, begin: Stages) -> LearntPolicy:
    with begin("learning the policy across folds"):
        rng = random_stream(inputs.seed, 6)
        return learn_across_folds(inputs.data, asked.learn, gamma=inputs.gamma, rng=rng)


def _fit_values(prepared: PreparedAudit, asked: Question, target_probs: Float) -> tuple[Float, str]:
    """Values of all actions under the target, (N, A), and how they were fitted; kept apart from the models."""
    inputs = prepared.inputs
    fitted_on, chosen = prepared.models.fitted_on, prepared.chosen
    # What practice depends on may matter for outcomes too; a regressor of the user's own expects the plain states.
    data = chosen.widen(inputs.data) if asked.regressor is None else inputs.data
    cache = inputs.cache.keyed(
        fitted_on, target_probs, {"of values": asked.regressor}, inputs.gamma, inputs.seed, chosen.added
    )
    found: tuple[Float, str] = cache(
        "values",
        lambda: fit_default_values(
            data,
            target_probs,
            asked.regressor,
            gamma=inputs.gamma,
            rng=inputs.seed,
            fitted_on=fitted_on,
            work=inputs.cache,
        ),
    )
    return found


def _fit_values_by_fold(prepared: PreparedAudit, asked: Question, learnt: LearntPolicy) -> tuple[Float, str]:
    """Values of a learnt policy, (N, A): in each fold for the policy, and from the outcomes, of the other folds."""
    inputs = prepared.inputs
    return fit_values_by_fold(
        inputs.data,
        learnt.fold,
        lambda j, which: learnt.without(j, which, prepared.chosen.probabilities),
        regressor=asked.regressor,
        gamma=inputs.gamma,
        rng=inputs.seed,
        fitted_on=prepared.models.fitted_on,
        work=inputs.cache,
    )


def _widen_for_folds(
    rows: tuple[Estimate, ...], prepared: PreparedAudit, learnt: LearntPolicy, capped: Evidence, q: Float
) -> tuple[tuple[Estimate, ...], tuple[Finding, ...]]:
    """Intervals with the error that folds share, and the finding that says so; practice has none."""
    behaviour, gamma = prepared.behaviour, prepared.inputs.gamma
    other = clip_weights(gather(prepared.data, learnt.other_target, behaviour, gamma=gamma, q=q))
    value, gain = (fold_factor(estimator, capped, other) for estimator in (wdr, difference(wdr)))
    factors = {PRACTICE: 1.0, GAIN: gain}
    wide = tuple(
        replace(row, interval=stretch(row.interval, row.value, factors.get(row.name, value))) for row in rows
    )
    return wide, (check_folds(prepared.data, gain),)


def estimate_all(
    e: Evidence, capped: Evidence, *, n_draws: int, level: float, rng: int
) -> tuple[Estimate, ...]:
    """All estimates of an audit: doubly robust with capped weights, its gain, practice, then the others.

    All are resampled alike, so that they can be compared.
    """
    sure = estimate(capped, wdr, difference(wdr), wis, n_draws=n_draws, level=level, rng=rng)
    raw = estimate(
        e, monte_carlo, wdr, wis, step_wis, phwis, phwdr, dm, n_draws=n_draws, level=level, rng=rng
    )
    named = [replace(row, name=f"{row.name}_capped", label=f"{row.label}, weights capped") for row in sure]
    return (*named[:2], raw[PRACTICE], named[2], *(row for row in raw if row.name != PRACTICE))


def _include_unseen(rows: Sequence[Estimate], worst: float | None, returns: Float) -> tuple[Estimate, ...]:
    """D116, what an outcome never seen would do: to all rows where the worst return is given, else to the first two.

    A return that many trajectories share looks like the worst that there is. Else that is a condition of the verdict.
    """
    values, least = {row.name: row.value for row in rows}, float(returns.min()) if worst is None else worst
    about = [row.name for row in rows] if worst is not None else [HEADLINE, GAIN]
    clause = () if (returns <= least).mean() >= _FLOOR else (nothing_worse(least),)
    told = [replace(row, conditions=(*row.conditions, *clause)) if row.conditions else row for row in rows]
    return tuple(
        check_unseen(
            row,
            worst=least,
            given=worst is not None,
            at=values[HEADLINE] if row.name == GAIN else None,
        )
        if row.name in about
        else row
        for row in told
    )


def _try_others(prepared: PreparedAudit, target: Any, q: Float) -> Table[OtherChoice]:
    """Other choices, in a long log on a sample of it."""
    inputs, which = prepared.inputs, prepared.looked_at
    part, rows = prepared.data.part(which), prepared.data.layout.rows_of(which)
    behaviours: dict[str, Any] = {
        name: replace(model, data=part) for name, model in prepared.other_models.items()
    }
    if inputs.logged is not None:
        behaviours = {LOGGED: inputs.logged[rows]} | behaviours
    return try_other_choices(
        part, _in_rows(target, rows), behaviours, gamma=inputs.gamma, q=q[rows], rng=inputs.seed
    )


def _benchmark(data: Trajectories, target: Any) -> tuple[ColumnStrength, ...]:
    """How strong each recorded column would be as an unmeasured confounder, in a long log on a part of it."""
    which = data.subsample(steps_to_use(data))
    return benchmark_columns(data.part(which), _in_rows(target, data.layout.rows_of(which)))


def _in_rows(target: Any, rows: Any) -> Any:
    """A target for a part of the log: tables are cut, also within a mixture with practice; policies predict."""
    if isinstance(target, MixWithPractice):
        return replace(target, policy=_in_rows(target.policy, rows))
    predicts = hasattr(target, "predict_proba") or hasattr(target, "on") or isinstance(target, Relative)
    return target if predicts else np.asarray(target)[rows]


def _comparable(others: Table[OtherChoice], prepared: PreparedAudit) -> list[float]:
    """The values of other choices that the headline should agree with."""
    # What was shrunk towards practice, or may have memorised the log, differs for reasons that are known. Recorded
    # probabilities need no model, and are not held against one.
    kept = [row for row in others if row.weights != SHRUNK and row.fit != "same"]
    if prepared.logged is not None:
        return [row.value for row in kept if row.model == LOGGED]
    refuted = _refuted_models(prepared.comparison)
    return [row.value for row in kept if not any(_is_variant(row.model, name) for name in refuted)]


def _refuted_models(comparison: Comparison) -> list[str]:
    """Candidates whose held-out log loss is clearly above that of the best: another analyst would not choose them."""
    choice = comparison.choice
    if choice is None:
        return []
    clearly = [name for name in choice.ranking if choice.behind[name] > _REFUTED * choice.se[name]]
    return [name for name in clearly if name != choice.recommended]


def _is_variant(model: str, name: str) -> bool:
    """Whether a model of the other choices is a candidate, or made of it."""
    return model == name or any(
        model.startswith(f"{name}, {how}") for how in ("k = ", "temperature", "same data")
    )


def _check_estimates(table: Table[Estimate], values: Sequence[float], share: float) -> tuple[Finding, ...]:
    """Whether the estimates agree with each other, and with other choices."""
    best = table[HEADLINE]
    return (
        *check_agreement(best, table[dm.__name__]),
        *check_choices(best, values, share),
        *check_width(table[GAIN]),
        *check_capping(best, table[wdr.__name__]),
    )


def _check_question(asked: Question) -> tuple[Finding, ...]:
    """Q101: the value is that of a mixture with practice, and not of the policy that is mixed in."""
    if not asked.text or not isinstance(asked.target, MixWithPractice):
        return ()
    share = float(asked.target.share)
    return (Q101.finding("note", share=share, soften=1 - share),)


def _attach(row: Estimate, findings: Sequence[Finding], answers: Answers, data: Trajectories) -> Estimate:
    """A row with what was found and asserted; the plain mean of practice uses neither weights nor values."""
    conditions = (*row.conditions, *answers.conditions) if row.conditions else ()
    if row.name == PRACTICE:
        findings = [finding for finding in findings if "log" in finding.concerns]
    told = tuple(name_facts(finding, data) for finding in count_once((*row.findings, *findings)))
    interval = replace(row.interval, findings=tuple(name_facts(f, data) for f in row.interval.findings))
    return replace(row, findings=told, interval=interval, conditions=conditions)


def _describe(asked: Question) -> str:
    """The kind of the target policy."""
    if asked.learn is not None:
        return f"learnt across {FOLDS} folds by {name_of_learner(asked.learn)}"
    policy = hasattr(asked.target, "predict_proba") or isinstance(asked.target, Relative)
    return type(asked.target).__name__ if policy else "probabilities, as an array"


def _settings(prepared: PreparedAudit, asked: Question, how: str, answers: Answers) -> AuditSettings:
    inputs, data = prepared.inputs, prepared.data
    logged = inputs.logged is not None
    return AuditSettings(
        gamma=inputs.gamma,
        level=inputs.level,
        n_draws=asked.n_draws,
        seed=inputs.seed,
        n_trajectories=len(data),
        n_steps=data.n_steps,
        n_fitted_on=len(prepared.models.fitted_on),
        n_looked_at=len(prepared.looked_at),
        propensities_logged=logged,
        behaviour=LOGGED if logged else f"{prepared.comparison.recommended}, cross-fitted",
        candidates=tuple(prepared.models.fitted),
        values=how,
        target=_describe(asked),
        strata=() if inputs.strata is None else tuple(sorted({str(x) for x in inputs.strata})),
        question=asked.text,
        worst=asked.worst,
        answers=answers.to_dict(),
        n_clusters=None if data.layout.cluster is None else data.layout.n_units,
        source={} if data.encoder is None else data.encoder.describe(),
    )
