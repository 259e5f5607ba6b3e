"""Several target policies on one log: one preparation, joint intervals, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from caliope._audit._about import About, as_about
from caliope._audit._basis import Basis
from caliope._audit._compare import random_stream
from caliope._audit._comparison import (
    ComparedPolicy,
    PickedPolicy,
    PolicyComparison,
    PolicyPair,
    PolicyPairs,
    reasons_of,
)
from caliope._audit._inputs import AuditInputs, Question, check_question
from caliope._audit._opened import Models, open_log
from caliope._audit._prepare import prepare_opened
from caliope._audit._progress import show_stages
from caliope._audit._result import Audit
from caliope._audit._run import audit_with_basis, restrict_question
from caliope._audit._settings import Progress, Stages
from caliope._audit._simultaneous import correlations, critical_value, picked_value
from caliope._cache import Cache
from caliope._formulas import wdr
from caliope._ragged import Float
from caliope._results import Estimate, Interval, Table
from caliope._trajectories import Trajectories
from caliope.behaviour._threads import one_blas_thread
from caliope.checks import D116, L108, Finding
from caliope.checks._bias import Bias
from caliope.checks._counting import count_once
from caliope.engines._jobs import Engine
from caliope.io._partitions import Partitions
from caliope.uncertainty._dependence import few_clusters_factor, stretch
from caliope.uncertainty._intervals import difference, influence

_GAIN = difference(wdr)
_METHOD = "for all differences together"


def compare(
    data: Trajectories | Partitions,
    targets: Mapping[str, Any],
    models: Models = None,
    *,
    learn: Mapping[str, Any] | None = None,
    gamma: float = 1.0,
    logged: ArrayLike | None = None,
    by: ArrayLike | None = None,
    cluster: ArrayLike | str | None = None,
    regressor: Any = None,
    level: float = 0.95,
    n_draws: int = 1000,
    fit_steps: int | None = None,
    about: About | None = None,
    learnt_on: Any = None,
    ended: Any = None,
    recorded_before: Any = None,
    worst: float | None = None,
    restrict: bool = False,
    rng: int,
    progress: Progress | bool | None = None,
    work: str | Path | Cache | None = None,
    engine: Engine | None = None,
) -> PolicyComparison:
    """Compare several target policies on one log: with current practice, and with each other.

    Behaviour models are fitted once, and each policy is audited as by :func:`~caliope.audit`. All of them are estimated
    on the same trajectories, so that differences between them are paired. The intervals of all differences, from
    practice and between policies, hold together. The best policy's difference is also given corrected for having been
    picked. Policies that the log cannot evaluate are not picked, and the table says how far it carries for them.

    Parameters
    ----------
    data : Trajectories or Partitions
        The log, in memory or in files, as for :func:`~caliope.audit`; one in files is read once per policy.
    targets : mapping from name to target
        The target policies, each as for :func:`~caliope.audit`; with ``learn`` at least two in all.
    models : mapping from name to unfitted classifier, optional
        Candidates for the behaviour policy, as for :func:`~caliope.audit`.
    learn : mapping from name to learner, optional
        Further policies, given as their learners; each as for :func:`~caliope.audit`.
    gamma, logged, by, cluster, regressor, level, n_draws, fit_steps, about
        As for :func:`~caliope.audit`, and the same for all policies. The name of a policy is its name here.
    learnt_on : "no", array of ids, mask, or mapping from name to one of these, optional
        What the targets were learnt on, as for :func:`~caliope.audit`.
    ended, recorded_before, worst
        As for :func:`~caliope.audit`.
    restrict : bool
        Keep each policy out of regions of the states in which practice leaves no choice, as ``audit.support.restrict``
        does. A policy that this changes is another one, and the result says so. Not with ``learn``, nor with a log in
        files.
    rng, progress, work, engine
        As for :func:`~caliope.audit`.

    Returns
    -------
    PolicyComparison
        A row per policy, the differences between them, the best one, and all audits.

    Examples
    --------
    >>> import caliope as cal
    >>> from caliope.domains import ward
    >>> models, q = {"frequencies": cal.behaviour.TabularFrequencies()}, cal.values.TabularRegressor()
    >>> targets = {"earlier": cal.TabularPolicy(ward.EARLIER), "more": cal.tilt(cal.practice, [1, 2, 1])}
    >>> data = ward.simulate(400, rng=0)
    >>> found = compare(data, targets, models, regressor=q, n_draws=100, rng=0)
    >>> found.best.name, found.best.corrected < found.best.difference
    ('earlier', True)
    """
    names = as_about(about)
    check_named(targets, learn)
    prepare: dict[str, Any] = {"gamma": gamma, "logged": logged, "by": by, "cluster": cluster, "level": level}
    prepare |= {"fit_steps": fit_steps, "ended": ended, "recorded_before": recorded_before, "rng": rng}
    given = {name: {"target": x, "learn": None} for name, x in targets.items()}
    given |= {name: {"target": None, "learn": x} for name, x in (learn or {}).items()}
    common = {"regressor": regressor, "n_draws": n_draws, "worst": worst}
    with show_stages(progress) as tell:
        begin = Stages(tell)
        log = open_log(data, models, engine=engine, about=names, prepare=prepare, work=work, begin=begin)
        check_restrict(restrict, learn, log.inputs)
        # Before anything is fitted: a policy that cannot be evaluated is reported at once.
        asked = {
            name: _ask(log.inputs, name, **each, **common, about=names, learnt_on=learnt_on)
            for name, each in given.items()
        }
        prepared = prepare_opened(log, begin)
        found, changed = {}, {}
        for name, question in asked.items():
            begin = Stages(None if tell is None else _named(tell, name))
            audit, basis = audit_with_basis(prepared, question, begin)
            narrower = restrict_question(prepared, basis, question) if restrict else None
            if narrower is not None:
                changed[name] = audit.support.restriction
                audit, basis = audit_with_basis(prepared, narrower, begin)
            found[name] = Candidate.of(audit, basis)
    result = combine(found, title=names.title, rng=random_stream(log.inputs.seed, 9))
    return replace(result, restricted=changed)


def check_named(targets: Any, learn: Any) -> None:
    """Raise unless there are two policies or more, each with a name of its own."""
    for what, given in {"targets": targets, "learn": {} if learn is None else learn}.items():
        if not isinstance(given, Mapping):
            raise TypeError(
                f"{what} must name its policies, e.g. {{'earlier': policy, 'later': other}}; got "
                f"{type(given).__name__}."
            )
        for name in given:
            if not isinstance(name, str) or not name.strip():
                raise TypeError(f"{what} must name its policies by words, got {name!r}.")
    both = [name for name in targets if name in (learn or {})]
    if both:
        raise ValueError(f"targets and learn both name {both[0]!r}: give each policy a name of its own.")
    if (n := len(targets) + len(learn or {})) < 2:
        raise ValueError(f"a comparison needs two policies at the very least, got {n}: audit evaluates one.")


def check_restrict(restrict: Any, learn: Any, inputs: AuditInputs) -> None:
    """Raise unless policies can be restricted, where that is asked for."""
    if not isinstance(restrict, bool):
        raise TypeError(f"restrict must be True or False, got {restrict!r}.")
    if restrict and inputs.whole_steps is not None:
        raise TypeError("restrict needs the log in memory: read it with read_table, or leave it out.")
    if restrict and (learn or inputs.only_taken):
        what = "policies that are given, and not learn" if learn else "behaviour probabilities of all actions"
        raise ValueError(f"restrict needs {what}: leave it out, or audit the restricted policy by itself.")


def _ask(inputs: AuditInputs, name: str, *, about: About, learnt_on: Any, **given: Any) -> Question:
    """A validated question; what is wrong says which policy it is about."""
    answer = learnt_on.get(name) if isinstance(learnt_on, Mapping) else learnt_on
    try:
        return check_question(
            inputs,
            about=replace(about, policy=name),
            learnt_on=answer if given["learn"] is None else None,
            **given,
        )
    except ValueError as error:
        raise ValueError(f"policy {name!r}: {error}") from error
    except TypeError as error:
        raise TypeError(f"policy {name!r}: {error}") from error


def _named(tell: Progress, name: str) -> Progress:
    return lambda stage: tell(f"{name}: {stage}")


# -- one policy --


@dataclass(frozen=True, eq=False)
class Candidate:
    """What one policy brings to a comparison.

    Attributes
    ----------
    audit : Audit
        Its audit.
    marginalised, plain : array of shape (n_units,)
        Influences of independent units on its difference from practice, with the weights of the headline and with the
        plain ones, whose error is at least taken.
    bias : Bias
        What may bias that difference.
    widen : float
        Further factor of its standard error: what the folds of a learner share.
    """

    audit: Audit
    marginalised: Float
    plain: Float
    bias: Bias
    widen: float = 1.0

    @classmethod
    def of(cls, audit: Audit, basis: Basis) -> Candidate:
        """The influences of an audit, from what it was computed from."""
        pool = basis.evidence.layout.pool
        moved = float(_GAIN(basis.marginalised)) - float(_GAIN(basis.evidence))
        bias = Bias.of(basis.marginalised, moved)
        return cls(
            audit,
            pool(influence(_GAIN, basis.marginalised)),
            pool(influence(_GAIN, basis.normalised)),
            bias,
            # What folds of a learner share widens an interval by a factor of at most the square root of 2.
            1.0 if basis.learnt is None else math.sqrt(2),
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found about its value or its difference from practice, each once."""
        rows = (self.audit.gain, self.audit.headline)
        seen = {(f.code, f.message): f for row in rows for f in (*row.findings, *row.interval.findings)}
        return tuple(seen.values())

    @property
    def refused(self) -> bool:
        """Whether the log cannot evaluate it."""
        return "do not trust" in (self.audit.verdict, self.audit.gain.verdict)


# -- all of them --


@one_blas_thread()
def combine(found: Mapping[str, Candidate], *, title: str = "", rng: np.random.Generator) -> PolicyComparison:
    r"""Put audits of one log side by side, with intervals that hold together.

    The critical value c is that of all differences from practice and between policies that the log can evaluate. The
    interval of an audit is stretched :math:`c / z` times, with z the normal quantile. That of a pair is
    :math:`c` times its standard error, at least that of the plain weights, widened as the headline is.
    """
    usable = {name: each for name, each in found.items() if not each.refused}
    pairs = list(combinations(usable, 2))
    every = [each.marginalised for each in usable.values()]
    every += [usable[a].marginalised - usable[b].marginalised for a, b in pairs]
    any_audit = next(iter(found.values())).audit
    level = any_audit.settings.level
    z = float(special.ndtri((1 + level) / 2))
    c = critical_value(correlations(np.array(every)), level=level, rng=rng) if every else z
    rows = tuple(_row(name, each, c / z) for name, each in found.items())
    between = tuple(_pair(a, b, usable[a], usable[b], c) for a, b in pairs)
    told = _told([row for row in rows if row.name in usable], between)
    return PolicyComparison(
        Table(rows, "Policies on one log"),
        PolicyPairs(between, "Differences between policies", told),
        _pick(usable, between, rng),
        any_audit.practice,
        {name: each.audit for name, each in found.items()},
        c,
        title,
    )


def _told(rows: Sequence[ComparedPolicy], pairs: Sequence[PolicyPair]) -> dict[str, tuple[Finding, ...]]:
    """Issues and cautions by the policy that they are about, then by the pair where they are about the two alone."""
    found = reasons_of(rows) if rows else {}
    known = {(f.code, f.level, f.message) for row in rows for f in row.findings}
    for pair in pairs:
        own = [f for f in pair.findings if f.level != "note" and (f.code, f.level, f.message) not in known]
        found |= {pair.label: tuple(own)} if own else {}
    return found


def _row(name: str, each: Candidate, factor: float) -> ComparedPolicy:
    gain = each.audit.gain
    wide = stretch(gain.interval, gain.value, factor)
    wide = replace(wide, method=f"{wide.method}, {_METHOD}", findings=())
    row = replace(gain, name=f"difference_{name}", label=name, interval=wide, findings=each.findings)
    return ComparedPolicy(name, each.audit.headline, row, each.audit.reach)


def _pair(a: str, b: str, one: Candidate, other: Candidate, c: float) -> PolicyPair:
    """The difference between two policies, on the same trajectories."""
    first, second = one.audit.gain, other.audit.gain
    n, level, value = first.n, first.interval.level, first.value - second.value
    own, plain = (
        float(np.sqrt((u**2).sum())) / n
        for u in (one.marginalised - other.marginalised, one.plain - other.plain)
    )
    se = max(own, plain) * _widening(one, other, level)
    bias = one.bias - other.bias
    arm = c * se * bias.factor(se, level)
    low, high = _unseen(first, value, arm, -1), _unseen(second, value, arm, 1)
    seen = {(f.code, f.message): f for f in (*one.findings, *other.findings)}
    clusters = [x.effective_clusters for x in (first, second) if x.effective_clusters is not None]
    return PolicyPair(
        f"{a} - {b}",
        f"{a} minus {b}",
        value,
        Interval(low, high, level, f"influence functions, {_METHOD}"),
        n,
        min(first.effective_n, second.effective_n),
        count_once((*seen.values(), *bias.findings(se))),
        tuple(dict.fromkeys((*first.conditions, *second.conditions))),
        min(clusters) if clusters else None,
    )


def _widening(one: Candidate, other: Candidate, level: float) -> float:
    """By how much few clusters, neighbours that hang together, and the folds of a learner inflate an error."""
    gains = (one.audit.gain, other.audit.gain)
    dependent = [float(f.facts["factor"]) for row in gains for f in row.findings if f.check == L108]
    clusters = [row.effective_clusters for row in gains if row.effective_clusters is not None]
    few = few_clusters_factor(min(clusters), level) if clusters else 1.0
    return max(one.widen, other.widen) * max(dependent, default=1.0) * few


def _unseen(row: Estimate, value: float, arm: float, side: int) -> float:
    """An end of an interval; at least as far as a worst return that was given would move one of the two policies."""
    falls = [float(f.facts["fall"]) for f in row.findings if f.check == D116 and "given" in f.variants]
    return value + side * max([arm, *falls])


def _pick(
    usable: Mapping[str, Candidate], pairs: Sequence[Estimate], rng: np.random.Generator
) -> PickedPolicy | None:
    """The largest difference from practice, corrected, and what the policy is told apart from."""
    if not usable:
        return None
    names = list(usable)
    values = np.array([each.audit.gain.value for each in usable.values()])
    # How much the estimates themselves scatter decides what is picked, and not what their intervals allow for besides.
    scaled = np.array([each.widen * each.marginalised for each in usable.values()])
    scaled /= next(iter(usable.values())).audit.gain.n
    j = int(values.argmax())
    corrected = picked_value(values, scaled @ scaled.T, rng=rng)
    above: list[str] = []
    apart: list[str] = []
    for (a, b), row in zip(combinations(names, 2), pairs, strict=True):
        if names[j] not in (a, b):
            continue
        clear = not row.withheld and (row.interval.low > 0 if a == names[j] else row.interval.high < 0)
        (above if clear else apart).append(b if a == names[j] else a)
    return PickedPolicy(names[j], len(names), float(values[j]), corrected, tuple(above), tuple(apart))
