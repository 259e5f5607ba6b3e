"""The audit of one target policy on a log, in memory or in partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from caliope._audit._about import About, as_about
from caliope._audit._inputs import check_question, refuse_in_parts
from caliope._audit._opened import Models, open_log
from caliope._audit._prepare import prepare_opened
from caliope._audit._progress import show_stages
from caliope._audit._result import Audit
from caliope._audit._run import run_audit
from caliope._audit._settings import Progress, Stages
from caliope._cache import Cache
from caliope._trajectories import Trajectories
from caliope.engines._jobs import Engine
from caliope.io._partitions import Partitions


def audit(
    data: Trajectories | Partitions,
    target: Any = None,
    models: Models = None,
    *,
    learn: Any = None,
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
    rng: int,
    progress: Progress | bool | None = None,
    work: str | Path | Cache | None = None,
    engine: Engine | None = None,
) -> Audit:
    """Estimate what a target policy is worth on a log, and whether the number may be believed.

    The log is checked. Candidate models of the behaviour policy are cross-fitted by trajectory and compared on held-out
    decisions. Values are fitted across folds, and every estimator is computed with confidence intervals and checks. A
    negative control estimates a value that is known, and other choices are tried. At last it is asked how strong an
    unmeasured confounder, and how few trajectories, would reverse the result.

    Parameters
    ----------
    data : Trajectories or Partitions
        The log, in memory or in files (:func:`~caliope.io.open_partitions`). Of one in files, models are fitted and
        checks are made on a sample of its trajectories, and numbers come from all of them. Then ``target`` is a policy
        or a function of the log, ``logged`` the name of a column, and ``learn``, ``by`` and tilts are refused.
    target : Policy, array, function, module, or a policy stated relative to practice (``mix``, ``tilt``)
        The target policy: a classifier, probabilities of shape (N, A), or recommended actions of shape (N,), in words
        where those of the log are. Also a function of the log or of its states that returns one of these, a torch
        module that returns probabilities, or what has ``predict(states)``, such as an algorithm of d3rlpy.
    models : mapping from name to unfitted classifier, optional
        Candidates for the behaviour policy, the simpler ones first; by default
        :func:`~caliope.behaviour.candidate_models`. Also a function of the log that returns them.
    learn : callable, unfitted classifier or unfitted regressor, optional
        In place of a target its learner. It is fitted across 5 folds, and each trajectory is evaluated with the
        policy that has not seen it. A function takes a log and returns a policy, a mixture of one with practice, or
        a function from a log to probabilities (N, A). A classifier imitates the actions of the log. A regressor makes
        the greedy policy of :func:`~caliope.values.fitted_q_iteration`.
    gamma : float
        Discount in [0, 1].
    logged : array-like of shape (N,) or (N, A), optional
        Probabilities with which the logged actions were taken, where they were recorded, or those of all actions. They
        are used, checked, and compared with the fitted ones. A tilt of practice needs those of all actions. Rows that
        were rounded are rescaled to sum to 1, as the settings say.
    by : array-like of shape (N,), optional
        A stratum for every step, for calibration. Values and differences are by that of the first step.
    cluster : array-like of shape (n,), or str, optional
        The cluster of every trajectory, such as its site, or the name of a column of ``data``; by default that of
        ``data``. Folds, resamples and standard errors then keep clusters together.
    regressor : scikit-learn regressor, optional
        For the fitted values; by default a kernel per action or extremely randomised trees, as the settings say.
    level : float
        Level of the confidence intervals.
    n_draws : int
        Bootstrap draws, from 20.
    fit_steps : int, optional
        Decisions that models are fitted on, in whole trajectories. By default all up to 10,000, and half of a larger
        log up to 100,000. A finding says where they are few for the log (A112).
    about : About, optional
        Title, question, names of the policy, outcome, unit and actions, author and date, for the report.
    learnt_on : "no", array of ids, or mask of shape (n,), optional
        What no log tells is asked, and without an answer the verdict is "caution" at best. Here: on which trajectories
        the target was learnt. Those of this log must not evaluate it.
    ended : "all", or array of bool of shape (n,), optional
        Whether the trajectories ended, or were cut off or lost. Not asked if ``data`` was made with ``terminated``, nor
        where each has one step.
    recorded_before : "all", or sequence of str, optional
        State columns that were recorded before the decision of their row.
    worst : float, optional
        The worst plausible return of a trajectory, seen or not. The lower ends of intervals then include such an
        outcome as often as it could happen and not be seen (finding D116). It must not exceed the smallest return in
        the log.
    rng : int
        Seed; the same one gives the same audit.
    progress : callable or bool, optional
        Called with the name of every stage as it begins. By default a line names the stage in a terminal and in a
        notebook; True shows it anywhere, False nowhere.
    work : path, optional
        A folder of your own that keeps finished stages: an audit that was stopped, called again, goes on where it was.
        It holds pickles; never use one from somebody else.
    engine : Engine, optional
        Where the parts of a log in files are worked on: :class:`~caliope.engines.Local`, the default, or
        :class:`~caliope.engines.Dask`. The result does not depend on it.

    Returns
    -------
    Audit
        Estimates, verdict, findings, and everything that a report needs.

    See Also
    --------
    prepare_audit : The first half, for several target policies on one log.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from caliope.behaviour import TabularFrequencies
    >>> from caliope.domains import ward
    >>> from caliope import TabularPolicy
    >>> from caliope.values import TabularRegressor
    >>> data, policy = ward.simulate(300, rng=0), TabularPolicy(ward.EARLIER)
    >>> models = {"frequencies": TabularFrequencies(), "logistic": LogisticRegression()}
    >>> result = audit(data, policy, models, regressor=TabularRegressor(), n_draws=20, rng=0)
    >>> round(result.headline.value, 2), result.verdict
    (0.54, 'caution')
    """
    prepare: dict[str, Any] = {"gamma": gamma, "logged": logged, "by": by, "cluster": cluster, "level": level}
    prepare |= {"fit_steps": fit_steps, "ended": ended, "recorded_before": recorded_before, "rng": rng}
    ask: dict[str, Any] = {"learn": learn, "regressor": regressor, "n_draws": n_draws, "about": about}
    ask |= {"learnt_on": learnt_on, "worst": worst}
    if isinstance(data, Partitions):
        refuse_in_parts(target, learn, learnt_on)  # before the files are looked at
    with show_stages(progress) as tell:
        begin = Stages(tell)
        names = as_about(about)
        log = open_log(data, models, engine=engine, about=names, prepare=prepare, work=work, begin=begin)
        # Before anything is fitted: a target that cannot be evaluated is reported at once.
        asked = check_question(log.inputs, target, **ask)
        return run_audit(prepare_opened(log, begin), asked, Stages(tell))
