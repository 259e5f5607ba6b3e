"""The audit and its first half: behaviour models fitted and compared, and the negative control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._audit._about import About
from caliope._audit._compare import BehaviourModels, compare_candidates, name_facts
from caliope._audit._curve import LearningCurve, trace_curve_of
from caliope._audit._inputs import AuditInputs, check_question
from caliope._audit._levels import Recut, fit_recuts
from caliope._audit._opened import Models, OpenedLog, open_log
from caliope._audit._placebo import Placebo, check_underfit, fit_challenger, run_placebo
from caliope._audit._progress import show_stages
from caliope._audit._result import Audit
from caliope._audit._run import Extend, run_audit
from caliope._audit._settings import Progress, Stage, Stages
from caliope._cache import Cache
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope.behaviour._fit import FittedBehaviour
from caliope.behaviour._models import fit_other_models
from caliope.behaviour._threads import one_blas_thread
from caliope.calibration._compare import Comparison
from caliope.checks import Finding
from caliope.checks._audit import check_fitted_share, check_logged
from caliope.engines._jobs import Engine
from caliope.io._partitions import Partitions

# Steps of whole trajectories on which the negative control and other choices are tried, in a longer log.
LOOKED_AT = 50_000


@dataclass(frozen=True, eq=False, repr=False)
class PreparedAudit:
    """What is known of a log before any target policy; made by :func:`prepare_audit`.

    Attributes
    ----------
    inputs : AuditInputs
        The log and the settings, validated. The log is in a fixed order, ``data``, in which everything here is; what
        :meth:`audit` returns is in the order that was given.
    models : BehaviourModels
        The candidates, fitted and compared.
    chosen : FittedBehaviour
        The recommended one, with its probabilities at every step of the log.
    other_models : mapping from name to FittedBehaviour
        The candidates and variants of them, for the trajectories that are looked at.
    looked_at : array of int
        Numbers of the trajectories of the negative control and of the other choices.
    placebo : Placebo
        The negative control.
    findings : tuple of Finding
        What was found about the log and its behaviour policy.
    stages : tuple of Stage
        What each stage took.
    curve : LearningCurve or None
        Whether fitting on more decisions would help, where models were fitted on a sample.
    extend : callable or None
        What makes the evidence of the whole log, where this one is a sample of one in files.
    """

    inputs: AuditInputs
    models: BehaviourModels
    chosen: FittedBehaviour = field(repr=False)
    other_models: Mapping[str, FittedBehaviour] = field(repr=False)
    looked_at: Int
    placebo: Placebo
    findings: tuple[Finding, ...]
    stages: tuple[Stage, ...] = ()
    curve: LearningCurve | None = None
    extend: Extend | None = None

    def __repr__(self) -> str:
        return f"PreparedAudit({self.data!r}, behaviour: {self.comparison.recommended})"

    @property
    def data(self) -> Trajectories:
        """The log, in an order that does not depend on that of the file."""
        return self.inputs.data

    @property
    def comparison(self) -> Comparison:
        """The behaviour models, compared on held-out decisions."""
        return self.models.comparison

    @property
    def logged(self) -> Float | None:
        """The logged probabilities of the actions taken, (N,), where there are any."""
        return self.inputs.logged

    @property
    def behaviour(self) -> Any:
        """What weights are made of: logged probabilities where there are any, else the chosen model."""
        recorded = self.logged if self.inputs.recorded is None else self.inputs.recorded
        return self.chosen if recorded is None else recorded

    @property
    def practice(self) -> Float:
        """Probabilities of all actions in current practice, (N, A): recorded, else those of the chosen model."""
        return self.chosen.probabilities if self.inputs.recorded is None else self.inputs.recorded.table

    @cached_property
    def recut_anew(self) -> tuple[Recut, ...]:
        """Doses cut into one level fewer and one more, with the chosen behaviour model; when they are first needed."""
        return fit_recuts(self, anew=True)

    @cached_property
    def recut_merged(self) -> tuple[Recut, ...]:
        """The same with two of the levels merged."""
        return fit_recuts(self, anew=False)

    def audit(
        self,
        target: Any = None,
        *,
        learn: Any = None,
        regressor: Any = None,
        n_draws: int = 1000,
        about: About | None = None,
        learnt_on: Any = None,
        worst: float | None = None,
        progress: Progress | bool | None = None,
    ) -> Audit:
        """Evaluate one target policy; what is known of the log is shared by all of them.

        Parameters
        ----------
        target : Policy, array, function, module, or a policy stated relative to practice (``mix``, ``tilt``)
            The target policy, as for :func:`~caliope.audit`.
        learn : callable, classifier or regressor, optional
            In place of a target its learner, as for :func:`~caliope.audit`.
        regressor : scikit-learn regressor, optional
            For the fitted values; by default a kernel per action or extremely randomised trees, as the settings say.
        n_draws : int
            Bootstrap draws, from 20.
        about : About, optional
            Names for the report, as for :func:`~caliope.audit`; those of unit and actions belong to the log.
        learnt_on : "no", ids, or mask, optional
            What the target was learnt on, as for :func:`~caliope.audit`.
        worst : float, optional
            The worst plausible return of a trajectory, as for :func:`~caliope.audit`.
        progress : callable or bool, optional
            As for :func:`~caliope.audit`.

        Returns
        -------
        Audit
            The same as :func:`~caliope.audit` returns.
        """
        asked = check_question(
            self.inputs,
            target,
            regressor=regressor,
            n_draws=n_draws,
            about=about,
            learnt_on=learnt_on,
            worst=worst,
            learn=learn,
        )
        with show_stages(progress) as tell:
            return run_audit(self, asked, Stages(tell))


def prepare_audit(
    data: Trajectories | Partitions,
    models: Models = None,
    *,
    gamma: float = 1.0,
    logged: ArrayLike | None = None,
    by: ArrayLike | None = None,
    cluster: ArrayLike | str | None = None,
    level: float = 0.95,
    fit_steps: int | None = None,
    ended: Any = None,
    recorded_before: Any = None,
    rng: int,
    progress: Progress | bool | None = None,
    work: str | Path | Cache | None = None,
    engine: Engine | None = None,
) -> PreparedAudit:
    """Fit and compare behaviour models and run the negative control; reusable for several target policies.

    ``audit(data, target, rng=0)`` and ``prepare_audit(data, rng=0).audit(target)`` are the same. Where probabilities
    were logged they are used, and a negative control that fails speaks against the fitted models alone.

    Parameters
    ----------
    data : Trajectories or Partitions
        The log, in memory or in files.
    models, gamma, logged, by, cluster, level, fit_steps, ended, recorded_before, rng, progress, work, engine
        As for :func:`~caliope.audit`.

    Returns
    -------
    PreparedAudit
        Its method ``audit(target)`` evaluates one target policy.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from caliope.behaviour import TabularFrequencies
    >>> from caliope.domains import ward
    >>> from caliope import TabularPolicy
    >>> from caliope.values import TabularRegressor
    >>> models = {"frequencies": TabularFrequencies(), "logistic": LogisticRegression()}
    >>> prepared = prepare_audit(ward.simulate(300, rng=0), models, rng=0)
    >>> policies = [TabularPolicy(ward.EARLIER), TabularPolicy(ward.AGGRESSIVE)]
    >>> [prepared.audit(x, regressor=TabularRegressor(), n_draws=20).verdict for x in policies]
    ['caution', 'do not trust']
    """
    prepare = {
        "gamma": gamma,
        "logged": logged,
        "by": by,
        "cluster": cluster,
        "level": level,
        "fit_steps": fit_steps,
        "ended": ended,
        "recorded_before": recorded_before,
        "rng": rng,
    }
    with show_stages(progress) as tell:
        begin = Stages(tell)
        opened = open_log(data, models, engine=engine, about=About(), prepare=prepare, work=work, begin=begin)
        return prepare_opened(opened, begin)


def prepare_opened(opened: OpenedLog, begin: Stages) -> PreparedAudit:
    """The first half of an audit, of a log that was opened."""
    prepared = prepare_inputs(opened.inputs, begin)
    return replace(prepared, findings=(*prepared.findings, *opened.findings), extend=opened.extend)


@one_blas_thread()
def prepare_inputs(inputs: AuditInputs, begin: Stages) -> PreparedAudit:
    """The first half of an audit, of inputs that have been validated."""
    data, seed = inputs.data, inputs.seed
    models = compare_candidates(inputs, begin)
    with begin("predicting the logged actions"):
        chosen = models.recommended.with_predictions_for(data)
    looked_at = data.subsample(LOOKED_AT, rng=np.random.default_rng(seed))
    table = chosen.probabilities[data.layout.rows_of(looked_at)]
    practice = replace(chosen, probabilities=table, data=data.part(looked_at))
    cache = inputs.cache.keyed(
        inputs.models or {}, inputs.fit_steps, seed, inputs.strata, inputs.level, LOOKED_AT
    )
    with begin("negative control"):
        placebo, about = _run_control(inputs, models, practice, cache)
    with begin("fitting other models"):
        name = models.comparison.recommended
        others = cache("other models", lambda: fit_other_models(models.alike, name, practice, rng=seed))
    curve = None
    if inputs.logged is None:
        curve = trace_curve_of(models, chosen, cache, begin, seed=seed, total=inputs.total_steps)
        gain = None if curve is None else curve.gain
        about = (*about, *check_fitted_share(models.n_steps, inputs.total_steps, gain))
    else:
        # Weights are made of the logged probabilities: the control speaks of the fitted models alone.
        logged = check_logged(data, inputs.logged, chosen.probabilities)
        about = (*logged, *(finding.at("note") for finding in about))
    findings, done = (*models.findings, *about), tuple(begin.done)
    return PreparedAudit(inputs, models, chosen, others, looked_at, placebo, findings, done, curve)


def _run_control(
    inputs: AuditInputs, models: BehaviourModels, practice: FittedBehaviour, cache: Cache
) -> tuple[Placebo, tuple[Finding, ...]]:
    """The negative control, and what was found; a forest challenges a candidate that is the only one."""
    seed = inputs.seed
    placebo = run_placebo(practice.data, practice, gamma=inputs.gamma, rng=seed)
    placebo = replace(placebo, findings=tuple(name_facts(f, inputs.data) for f in placebo.findings))
    if len(models.alike) > 1:
        return placebo, placebo.findings
    forest = cache("challenger", lambda: models.recommended.fit_again(partial(fit_challenger, rng=seed)))
    return placebo, (*placebo.findings, *check_underfit(forest, models.recommended))
