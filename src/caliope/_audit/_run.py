"""The second half of an audit: values, evidence, estimates and sensitivity of one target policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from caliope._audit._answers import Answers
from caliope._audit._basis import Basis, gather_basis
from caliope._audit._choices import benchmark, comparable_values, try_others
from caliope._audit._compare import Names, name_facts, random_stream
from caliope._audit._contents import describe_log
from caliope._audit._estimates import check_estimates, estimate_all, include_changes, include_unseen
from caliope._audit._given_order import in_given_order
from caliope._audit._inputs import Question
from caliope._audit._learn import (
    FOLDS,
    check_folds,
    fold_factor,
    name_of_learner,
)
from caliope._audit._reach import SHARES, Known, Reach, judge_shares, trace_reach
from caliope._audit._result import GAIN, LOGGED, PRACTICE, Audit
from caliope._audit._settings import AuditSettings, Stages
from caliope._audit._subgroups import Subgroups, estimate_subgroups
from caliope._audit._summary import summarise
from caliope._conditions import independent
from caliope._evidence import Evidence
from caliope._formulas import wdr
from caliope._gather import gather, target_probabilities
from caliope._named_policies import NamedPolicy
from caliope._policies import MixWithPractice, Practice, Relative
from caliope._ragged import Float
from caliope._recorded import recorded_support
from caliope._results import Estimate, Table
from caliope._support import Support, asked_of_practice, find_support
from caliope._trajectories import Trajectories
from caliope.behaviour._threads import one_blas_thread
from caliope.calibration._scores import stratum_key
from caliope.checks import L101, L108, Q101, W106, Finding
from caliope.checks._audit import (
    check_beyond,
    check_fragility,
    check_late_steps,
    check_strata,
    check_unseen,
)
from caliope.checks._counting import count_once
from caliope.io._doses import RecommendedDoses
from caliope.sensitivity import breakdown, find_influential
from caliope.uncertainty._dependence import stretch
from caliope.uncertainty._intervals import difference
from caliope.weights import clip_weights

if TYPE_CHECKING:
    from caliope._audit._prepare import PreparedAudit


def restrict_question(prepared: PreparedAudit, basis: Basis, asked: Question) -> Question | None:
    """The same question about the policy without what practice never did; None where that changes nothing."""
    support = _find_support(prepared, basis)
    if not support.changes:
        return None
    question = f"{asked.about.question} {support.restriction}".strip()
    about = replace(asked.about, question=question)
    return replace(asked, target=support.restrict(asked.target), about=about)


def run_audit(prepared: PreparedAudit, asked: Question, begin: Stages) -> Audit:
    """Evaluate the target policy of a question, which has been validated."""
    return audit_with_basis(prepared, asked, begin)[0]


@one_blas_thread()
def audit_with_basis(prepared: PreparedAudit, asked: Question, begin: Stages) -> tuple[Audit, Basis]:
    """The audit of a question, and what its numbers were computed from, in the fixed order of the log.

    Where the log that was prepared is a sample of a larger one, all numbers come from the evidence of the whole of it,
    and what needs states from the sample.
    """
    inputs, data, extend = prepared.inputs, prepared.data, prepared.extend
    basis = gather_basis(prepared, asked, begin)
    whole = Whole(basis, Names(data.ids, data.place)) if extend is None else extend(prepared, basis, begin)
    asked, capped = basis.asked, whole.basis.capped
    support = _find_support(prepared, basis)
    answers = Answers(asked.learnt_on, inputs.ended, inputs.recorded_before)
    answers = answers if extend is None else answers.about(len(capped))
    with begin("estimating"):
        table, by_folds = _estimate(prepared, basis, whole)
    with begin("other choices"):
        others = try_others(prepared, basis)
    with begin("sensitivity of the result"):
        influence = find_influential(difference(wdr), whole.basis.marginalised)
        confounding = breakdown(capped)
        strength = benchmark(data, basis.target) if inputs.logged is None else ()
    with begin("summarising"):
        contents = describe_log(data, gamma=inputs.gamma)
        summary = summarise(
            data,
            capped,
            target_probs=basis.target_probs,
            behaviour_probs=prepared.practice,
            influence=influence,
            breakdown=confounding,
            ids=whole.names.ids,
        )
    with begin("how far the log carries"):
        reach = _trace(prepared, whole, support, table[GAIN], answers)
    about = (*_about_log(prepared, whole), *support.findings())
    looked_at = len(prepared.looked_at) / len(capped)
    agreeing = check_estimates(table, comparable_values(others, prepared), looked_at)
    asked_for = (*_check_question(asked, data), *by_folds, *answers.findings)
    findings = (
        *about,
        *check_late_steps(whole.basis.marginalised),
        *check_strata(capped, inputs.strata),
        *agreeing,
        *check_fragility(table[GAIN], to_flip=influence.to_flip, factor=confounding.factor),
        *asked_for,
    )
    settings = _settings(prepared, asked, basis.how, answers)
    found = Audit(
        table=replace(table, rows=tuple(_attach(row, findings, answers, data, whole.names) for row in table)),
        comparison=prepared.comparison,
        placebo=prepared.placebo,
        others=others,
        influence=influence,
        breakdown=confounding,
        benchmark=strength,
        contents=contents,
        summary=summary,
        reach=reach,
        subgroups=_subgroups(prepared, basis, table[GAIN], (*about, *agreeing, *asked_for), answers),
        support=support,
        evidence=capped,
        data=data,
        target_probs=basis.target_probs,
        behaviour_probs=prepared.practice,
        settings=replace(settings, n_trajectories=len(capped), n_steps=len(capped.rewards)),
        stages=(*prepared.stages, *begin.done),
    )
    return in_given_order(found, inputs.given), whole.basis


def _estimate(
    prepared: PreparedAudit, basis: Basis, whole: Whole
) -> tuple[Table[Estimate], tuple[Finding, ...]]:
    """The table of estimates, whose intervals include what is known to be missing, and what was found on the way."""
    asked, inputs = basis.asked, prepared.inputs
    rows = estimate_all(whole.basis, n_draws=asked.n_draws, level=inputs.level, rng=inputs.seed)
    rows, by_folds = _widen_for_folds(rows, prepared, basis)
    rows = include_changes(rows, whole.basis.marginalised)
    rows = include_unseen(rows, asked.worst, whole.basis.capped.returns)
    for e in (whole.basis.evidence, whole.basis.normalised):
        e.forget()  # of a long log, derived columns are most of the memory
    return Table(rows, "What the new policy is worth"), by_folds


@dataclass(frozen=True, eq=False)
class Whole:
    """The evidence that numbers come from.

    Attributes
    ----------
    basis : Basis
        With the evidence of the whole log.
    names : Names
        What its trajectories are called.
    shares : callable, optional
        What yields the evidence of each share of the decisions: as it is, plain and marginalised. By default it is made
        of the log that was prepared.
    findings : tuple of Finding
        What was found where the models of a sample met the rest of the log.
    """

    basis: Basis
    names: Names
    shares: Callable[[], Iterator[tuple[Evidence, Evidence, Evidence]]] | None = None
    findings: tuple[Finding, ...] = ()


Extend = Callable[["PreparedAudit", Basis, Stages], Whole]


def mixed_in(prepared: PreparedAudit, basis: Basis) -> tuple[Float, Any, float]:
    """What is mixed with practice, its probabilities (N, A); practice; and the share of the whole of it."""
    target = basis.asked.target
    if not isinstance(target, MixWithPractice):
        return basis.target_probs, prepared.behaviour, 1.0
    # Not the mixture: with logged probabilities its part of practice is known at those alone.
    return target_probabilities(prepared.data, target.policy), prepared.behaviour, float(target.share)


def _find_support(prepared: PreparedAudit, basis: Basis) -> Support:
    """Regions without choice; recorded probabilities say themselves what had support."""
    data, inputs = prepared.data, prepared.inputs
    asked = asked_of_practice(basis.asked.target, basis.target_probs, data)
    if asked is not None and inputs.recorded is not None:
        return recorded_support(data, asked, inputs.recorded)
    if inputs.logged is not None or asked is None:
        return Support()
    return find_support(data, asked, prepared.chosen.probabilities, rng=inputs.seed)


def _trace(
    prepared: PreparedAudit, whole: Whole, support: Support, gain: Estimate, answers: Answers
) -> Reach | None:
    """The policy in a growing share of the decisions; practice itself has none."""
    basis = whole.basis
    if isinstance(basis.asked.target, Practice):
        return None
    about = Known(
        # Neighbours that hang together do so at every share.
        (
            *prepared.findings,
            *whole.findings,
            *answers.findings,
            *(f for f in gain.findings if f.check == L108),
        ),
        support,
        (*gain.conditions, *answers.conditions, _independence(prepared.data)),
    )
    level = prepared.inputs.level
    if whole.shares is not None:
        found = judge_shares(
            SHARES, whole.shares(), about, level=level, rng=random_stream(prepared.inputs.seed, 13)
        )
    else:
        found = trace_reach(
            prepared.data,
            *mixed_in(prepared, basis),
            base=basis.evidence,
            q=basis.q,
            whole=(basis.normalised, basis.marginalised),
            regressors=basis.regressors,
            weighed_on=basis.weighed_on,
            level=level,
            about=about,
            # What folds of a learner share widens an interval by a factor of at most the square root of 2.
            widen=1.0 if basis.learnt is None else math.sqrt(2),
            rng=random_stream(prepared.inputs.seed, 7),
        )
    if isinstance(basis.asked.target, MixWithPractice):
        found = replace(found, asked=float(basis.asked.target.share))
    elif isinstance(basis.asked.target, Relative):
        found = replace(found, softens=False)
    rows = [_named(row, prepared.data, whole.names) for row in found.table]
    worst, practice = basis.asked.worst, float(basis.evidence.returns.mean())
    if worst is not None:
        rows = [check_unseen(row, worst=worst, given=True, at=row.value + practice) for row in rows]
    return replace(found, table=replace(found.table, rows=tuple(rows)))


def _named(row: Estimate, data: Trajectories, names: Names) -> Estimate:
    """A row whose findings are in the words of the log."""
    return replace(row, findings=tuple(name_facts(finding, data, names) for finding in row.findings))


def _about_log(prepared: PreparedAudit, whole: Whole) -> tuple[Finding, ...]:
    """What was found about the log; of a sample and of the whole of it, copies are counted in the whole."""
    counted = L101 in [each.check for each in whole.findings]
    kept = [each for each in prepared.findings if not (counted and each.check == L101)]
    return (*kept, *(name_facts(each, prepared.data) for each in whole.findings))


def _subgroups(
    prepared: PreparedAudit, basis: Basis, gain: Estimate, findings: Sequence[Finding], answers: Answers
) -> Subgroups | None:
    """Values and differences by stratum; what holds of the whole log holds in each."""
    dependent = [f for f in gain.findings if f.check == L108]
    factor = max((float(f.facts["factor"]) for f in dependent), default=1.0)
    shared = (*dependent, *(f for f in gain.findings if f.check == W106 and f.level != "note"))
    told = tuple(name_facts(f, prepared.data) for f in (*findings, *shared))
    return estimate_subgroups(
        basis,
        prepared.data,
        prepared.inputs.strata,
        level=prepared.inputs.level,
        findings=told,
        conditions=(*gain.conditions, *answers.conditions, _independence(prepared.data)),
        widen=factor * (1.0 if basis.learnt is None else math.sqrt(2)),
        worst=basis.asked.worst,
        rng=random_stream(prepared.inputs.seed, 10),
    )


def _widen_for_folds(
    rows: tuple[Estimate, ...], prepared: PreparedAudit, basis: Basis
) -> tuple[tuple[Estimate, ...], tuple[Finding, ...]]:
    """Intervals with the error that the folds of a learner share, and the finding that says so; practice has none."""
    if basis.learnt is None:
        return rows, ()
    behaviour, gamma = prepared.behaviour, prepared.inputs.gamma
    other = clip_weights(gather(prepared.data, basis.learnt.other_target, behaviour, gamma=gamma, q=basis.q))
    value, gain = (fold_factor(estimator, basis.capped, other) for estimator in (wdr, difference(wdr)))
    factors = {PRACTICE: 1.0, GAIN: gain}
    wide = tuple(
        replace(row, interval=stretch(row.interval, row.value, factors.get(row.name, value))) for row in rows
    )
    return wide, (check_folds(prepared.data, gain),)


def _check_question(asked: Question, data: Trajectories) -> tuple[Finding, ...]:
    """Q101: the value is that of a mixture with practice, and not of the policy that is mixed in; S103."""
    mixed = isinstance(asked.target, MixWithPractice)
    policy = asked.target.policy if mixed else asked.target
    found = check_beyond(policy.beyond(data)) if isinstance(policy, RecommendedDoses) else ()
    if not asked.text or not mixed:
        return found
    share = float(asked.target.share)
    return (*found, Q101.finding("note", share=share, soften=1 - share))


def _independence(data: Trajectories) -> str:
    """The condition that no log shows where what hangs together is not named, as a clause after "if"."""
    return independent(data.units if data.layout.cluster is None else "clusters")


def _attach(
    row: Estimate, findings: Sequence[Finding], answers: Answers, data: Trajectories, names: Names
) -> Estimate:
    """A row with what was found and asserted; the plain mean of practice uses neither weights nor values."""
    if row.conditions:
        conditions = (*row.conditions, *answers.conditions, _independence(data))
    else:
        # The mean of practice uses no weights, but the returns as they were logged.
        conditions = (*([answers.ended.clause] if answers.ended.clause else []), _independence(data))
    if row.name == PRACTICE:
        findings = [finding for finding in findings if "log" in finding.concerns]
    told = tuple(name_facts(finding, data, names) for finding in count_once((*row.findings, *findings)))
    interval = replace(
        row.interval, findings=tuple(name_facts(f, data, names) for f in row.interval.findings)
    )
    return replace(row, findings=told, interval=interval, conditions=conditions)


def _describe(asked: Question) -> str:
    """The kind of the target policy."""
    if asked.learn is not None:
        return f"learnt across {FOLDS} folds by {name_of_learner(asked.learn)}"
    if asked.form:
        return asked.form
    policy = hasattr(asked.target, "predict_proba") or isinstance(asked.target, Relative | RecommendedDoses)
    target = asked.target.policy if isinstance(asked.target, NamedPolicy) else asked.target
    return type(target).__name__ if policy else "probabilities, as an array"


def _settings(prepared: PreparedAudit, asked: Question, how: str, answers: Answers) -> AuditSettings:
    inputs, data = prepared.inputs, prepared.data
    logged = inputs.logged is not None
    known = LOGGED if inputs.recorded is None else inputs.recorded.describe(LOGGED)
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
        all_recorded=inputs.recorded is not None,
        behaviour=known if logged else f"{prepared.comparison.recommended}, cross-fitted",
        candidates=prepared.models.candidates,
        learning="" if prepared.curve is None else str(prepared.curve),
        values=how,
        target=_describe(asked),
        strata=()
        if inputs.strata is None
        else tuple(sorted({str(x) for x in inputs.strata}, key=stratum_key)),
        about=asked.about,
        worst=asked.worst,
        answers=answers.to_dict(),
        n_clusters=None if data.layout.cluster is None else data.layout.n_units,
        source={} if data.encoder is None else data.encoder.describe(),
    )
