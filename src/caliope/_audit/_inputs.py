"""Inputs of an audit, validated once, before anything is fitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._action_values import OnLog
from caliope._audit._about import About, as_about
from caliope._audit._answers import Answer, answer_ended, answer_learnt_on, answer_recorded_before
from caliope._audit._learn import answer_by_folds, check_learner
from caliope._cache import Cache
from caliope._clusters import clusters_of_steps
from caliope._gather import target_probabilities
from caliope._given_policies import as_policy, describe_form
from caliope._named_policies import as_coded
from caliope._policies import MixWithPractice, Relative, TiltOfPractice
from caliope._ragged import Float, Int, read_only
from caliope._recorded import RecordedPractice, as_recorded, taken_of
from caliope._trajectories import Trajectories
from caliope._validation import check_gamma, unmasked
from caliope.uncertainty._intervals import check_level

_FOLDS = 5  # of models and values
_LARGEST_SEED = 2**32 - 1  # that scikit-learn takes
_FIT_WHOLE, _FIT_MOST = 10_000, 100_000  # decisions: fitted on whole up to here, and never on more by default
_METHODS = ("fit", "get_params", "predict_proba")  # of a behaviour model


@dataclass(frozen=True, eq=False)
class AuditInputs:
    """What an audit is made of before any target policy: the log, the candidates, and the settings.

    An audit works on the trajectories in a fixed order. So folds, samples, resamples and fits are the same in whatever
    order they were given.
    """

    data: Trajectories  # in the fixed order
    models: Mapping[str, Any] | None
    gamma: float
    logged: Float | None  # (N,), read-only copy
    strata: Any  # (N,), or None
    level: float
    fit_steps: int
    seed: int
    ended: Answer
    recorded_before: Answer
    cache: Cache = field(repr=False)  # for what depends on the log
    given: Trajectories  # in the order of the file
    recorded: RecordedPractice | None = None  # the probabilities of all actions, where they were recorded
    whole_steps: int | None = None  # decisions of the log that this one is a sample of

    @property
    def total_steps(self) -> int:
        """Decisions of the whole log."""
        return self.data.n_steps if self.whole_steps is None else self.whole_steps

    @property
    def only_taken(self) -> bool:
        """Whether the probabilities of the actions taken were recorded, and no others."""
        return self.logged is not None and self.recorded is None


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a prepared audit: the target policy, in words too, and how it is evaluated."""

    target: Any
    regressor: Any
    n_draws: int
    learnt_on: Answer
    worst: float | None
    learn: Any = None  # in place of a target
    form: str = ""  # what was given as the target, in words, where the target does not tell
    about: About = field(default_factory=About)
    given: Any = None  # the target as it was given

    @property
    def text(self) -> str:
        """The question, in words."""
        return self.about.question


def check_inputs(
    data: Any,
    models: Any,
    *,
    gamma: Any,
    logged: Any,
    by: Any,
    level: Any,
    fit_steps: Any,
    rng: Any,
    work: str | Path | Cache | None,
    ended: Any = None,
    recorded_before: Any = None,
    cluster: Any = None,
    whole_steps: int | None = None,
) -> AuditInputs:
    """Validate everything but the target policy; raise in one line, with what to do."""
    check_data(data)
    data = with_cluster(data, cluster)
    if data.layout.n_units < _FOLDS:
        what = "trajectories" if data.layout.cluster is None else "clusters"
        raise ValueError(
            f"an audit needs {_FOLDS} {what} at the very least, to weigh some by what is learnt from the others; "
            f"got {data.layout.n_units}."
        )
    check_models(models)
    check_gamma(gamma)
    check_level(level)
    steps = choose_fit_steps(data.n_steps) if fit_steps is None else fit_steps
    check_whole("fit_steps", steps, 100, "decisions to fit on")
    seed = check_seed(rng)
    strata, (known, recorded) = as_strata(data, by), as_logged(data, logged)
    data, ends = answer_ended(data, ended)
    before = answer_recorded_before(data, recorded_before)
    fixed = data.in_fixed_order()
    if fixed is not data:
        rows = data.layout.rows_of(data.fixed_order)
        strata = None if strata is None else strata[rows]
        known = None if known is None else read_only(known[rows])
        recorded = None if recorded is None else recorded.part(rows)
    cache = Cache.of(work).keyed(fixed)
    cache.keyed(models or {})  # raised now if a model cannot be kept, and not after the fits
    return AuditInputs(
        fixed,
        models,
        gamma,
        known,
        strata,
        level,
        steps,
        seed,
        ends,
        before,
        cache,
        data,
        recorded,
        whole_steps,
    )


def check_seed(rng: Any) -> int:
    """The seed; raise unless it is a whole number that all libraries take."""
    if not _is_whole(rng) or not 0 <= rng <= _LARGEST_SEED:
        raise TypeError(
            f"rng must be a seed, a whole number from 0 to {_LARGEST_SEED}, so that the same one gives the same audit; "
            f"got {_short(rng)}."
        )
    return int(rng)


def check_question(
    inputs: AuditInputs,
    target: Any,
    *,
    regressor: Any,
    n_draws: Any,
    about: Any,
    learnt_on: Any,
    worst: Any,
    learn: Any,
) -> Question:
    """Validate a target policy and how it is evaluated."""
    if regressor is not None and (isinstance(regressor, type) or not hasattr(regressor, "predict")):
        raise TypeError(
            "regressor must be an unfitted one of the kind of scikit-learn, such as ExtraTreesRegressor(); got "
            f"{_short(regressor)}."
        )
    check_whole("n_draws", n_draws, 20, "resamples of the log")
    about = as_about(about)
    about.check_named(inputs.given)
    least = as_worst(inputs.data, worst, inputs.gamma)
    inputs.cache.keyed({"of values": regressor})
    if inputs.whole_steps is not None:
        refuse_in_parts(target, learn, learnt_on)
    given = target
    if (target is None) == (learn is None):
        raise TypeError(
            f"give a target policy or learn, one of the two; got {'none' if learn is None else 'both'}."
        )
    if learn is None:
        form = describe_form(target)
        target = as_coded(as_policy(target, inputs.given), inputs.given)
        check_target(inputs.given, target, logged=inputs.only_taken)
        answer = answer_learnt_on(inputs.given, learnt_on, target)
        if inputs.given is not inputs.data:
            target = target_in_rows(target, inputs.given.layout.rows_of(inputs.given.fixed_order))
    else:
        check_learner(learn)
        if learnt_on is not None:
            raise TypeError(
                "learnt_on is answered by learn, which never sees what it is evaluated on: leave it out."
            )
        form, answer = "", answer_by_folds(inputs.data)
    return Question(target, regressor, n_draws, answer, least, learn, form, about, given)


def refuse_in_parts(target: Any, learn: Any, learnt_on: Any) -> None:
    """Raise for a question that needs the whole log in memory."""
    if learn is not None:
        raise TypeError(
            "a learner needs the log in memory: read it with read_table, or give the policy itself."
        )
    if isinstance(target, TiltOfPractice):
        raise TypeError(
            "a tilt of practice needs the log in memory: read it with read_table, or give a mixture."
        )
    if isinstance(target, np.ndarray | list | tuple):
        raise TypeError(
            "for a log in partitions the target must be a policy or a function of the log, got an array: keep its "
            "columns, and give e.g. lambda log: np.column_stack([log['p0'], log['p1']])."
        )
    if not isinstance(learnt_on, str | None):
        raise TypeError(
            f"for a log in partitions learnt_on must be 'no' or nothing, got {type(learnt_on).__name__}."
        )


def choose_fit_steps(n_steps: int) -> int:
    """How many decisions to fit on: a small log whole, half of a larger one, and of a very large one a limited number.

    The interval shrinks with the log, and the error of the fit must shrink with it. On a fixed number of decisions it
    exceeds the standard error of the difference from practice in a log of 160,000; on half of them it is a third.

    Examples
    --------
    >>> [choose_fit_steps(n) for n in (500, 8_000, 26_000, 1_000_000)]
    [500, 8000, 13000, 100000]
    """
    return max(100, min(n_steps, max(_FIT_WHOLE, n_steps // 2), _FIT_MOST))


def choose_weight_steps(fit_steps: int) -> int:
    """How many decisions to fit weights on: up to a limit the whole log, whatever the models are fitted on.

    Examples
    --------
    >>> [choose_weight_steps(n) for n in (500, 100_000, 300_000)]
    [100000, 100000, 300000]
    """
    return max(fit_steps, _FIT_MOST)


def check_data(data: Any) -> None:
    """Raise unless it is a log."""
    if not isinstance(data, Trajectories):
        raise TypeError(f"data must be Trajectories (see read_table), got {type(data).__name__}.")


def check_models(models: Any) -> None:
    """Raise unless models is None, or names classifiers that can be fitted."""
    if models is None:
        return
    if not isinstance(models, Mapping) or not models:
        raise TypeError(
            "models must name its classifiers, e.g. models={'logistic': LogisticRegression()}, or be left out for the "
            f"usual ones; got {_short(models)}."
        )
    for name, model in models.items():
        if not isinstance(name, str):
            raise TypeError(f"models must be named by words, got {_short(name)}.")
        if isinstance(model, type) or not all(hasattr(model, method) for method in _METHODS):
            raise TypeError(
                f"models[{name!r}] must be an unfitted classifier of the kind of scikit-learn with predict_proba, such "
                f"as LogisticRegression(); got {_short(model)}."
            )


def check_target(data: Trajectories, target: Any, *, logged: bool) -> None:
    """Raise unless the target gives probabilities of all actions: an array throughout, a policy for one trajectory."""
    if logged and isinstance(target, TiltOfPractice):
        raise ValueError(
            "a tilt of practice needs the probabilities of all actions, which logged does not hold: give them as a "
            "table with one column per action, or leave logged out."
        )
    if isinstance(target, type):
        raise TypeError(f"target must be a policy, and {target.__name__} is a class: make one of it.")
    policy = target.policy if isinstance(target, MixWithPractice) else target
    if isinstance(policy, OnLog):
        return
    first = data[:1]
    if isinstance(policy, Relative):
        uniform = np.full((first.n_steps, data.n_actions), 1 / data.n_actions)
        target_probabilities(first, policy, uniform)
    elif hasattr(policy, "predict_proba"):
        target_probabilities(first, policy)
    else:
        target_probabilities(data, policy)


def target_in_rows(target: Any, rows: Int) -> Any:
    """A target for a part of the log: tables are cut, also within a mixture with practice; policies predict."""
    if isinstance(target, MixWithPractice):
        return replace(target, policy=target_in_rows(target.policy, rows))
    predicts = hasattr(target, "predict_proba") or hasattr(target, "on") or isinstance(target, Relative)
    return target if predicts else np.asarray(target)[rows]


def as_logged(data: Trajectories, logged: ArrayLike | None) -> tuple[Float | None, RecordedPractice | None]:
    """Logged probabilities of the actions taken, in (0, 1], (N,), and of all actions; None where there are none."""
    if logged is None:
        return None, None
    given = unmasked("logged", logged)
    if given.dtype.kind not in "iuf":
        raise TypeError(
            f"logged must hold a probability for each step, such as data['propensity']; got {_short(logged)}."
        )
    known = read_only(np.array(given, dtype=np.float64))  # a copy: theirs may change between two policies
    recorded = as_recorded(data, known) if known.ndim == 2 else None
    if recorded is not None:
        known = read_only(taken_of(data, recorded))
    if known.shape != (data.n_steps,):
        raise ValueError(
            f"logged must hold one probability for each of the {data.n_steps} steps, or a row with those of all "
            f"{data.n_actions} actions; got shape {known.shape}."
        )
    check_taken(data, known)
    if (known == 1).all() and len(np.unique(data.actions)) > 1:
        raise ValueError(
            "every logged probability is 1 although different actions were taken: a placeholder. Leave them out: then "
            "they are estimated."
        )
    return known, recorded


def check_taken(data: Trajectories, known: Float) -> None:
    """Raise unless the actions taken, (N,), had a probability in (0, 1]."""
    bad = np.flatnonzero(~((known > 0) & (known <= 1)))
    if len(bad):
        i = data.layout.owner[bad[0]]
        raise ValueError(
            f"logged probabilities must lie in (0, 1], since the actions were taken; {len(bad)} of {len(known)} do not "
            f"(first: {known[bad[0]]:g} in trajectory {data.ids[i]}, step {bad[0] - data.offsets[i]}). Correct them, "
            "or leave them out: then they are estimated."
        )


def as_worst(data: Trajectories, worst: Any, gamma: float) -> float | None:
    """The worst plausible return of a trajectory as a number; None where it was not given."""
    if worst is None:
        return None
    if isinstance(worst, bool) or not isinstance(worst, int | float | np.number) or not np.isfinite(worst):
        raise TypeError(f"worst must be a finite number, the worst plausible return; got {_short(worst)}.")
    returns = data.returns(gamma)
    lowest = int(returns.argmin())
    if worst > returns[lowest]:
        raise ValueError(
            f"worst must not exceed the smallest return in the log, {returns[lowest]:.6g} (trajectory "
            f"{data.ids[lowest]}); got {worst:g}. Give a return at most that large, or leave worst out."
        )
    return float(worst)


def with_cluster(data: Trajectories, cluster: Any) -> Trajectories:
    """The log with clusters: labels of its trajectories, or the name of a column that is constant in each."""
    if cluster is None:
        return data
    if not isinstance(cluster, str):
        return data.replace(cluster=cluster)
    if cluster not in data.columns:
        raise ValueError(
            f"cluster names the column {cluster!r}, which the log does not keep; there are {sorted(data.columns)}. "
            f"Read it with read_table(..., cluster={cluster!r})."
        )
    labels = clusters_of_steps(data[cluster], data.offsets, data.ids, name=cluster)
    return data.replace(cluster=labels)


def as_strata(data: Trajectories, by: ArrayLike | None) -> Any:
    """A stratum for every step, (N,), or None."""
    if by is not None and np.shape(by) != (data.n_steps,):
        raise ValueError(
            f"by must hold a stratum for each of the {data.n_steps} steps, got shape {np.shape(by)}."
        )
    return None if by is None else np.asarray(by)


def _is_whole(x: Any) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


def check_whole(name: str, x: Any, low: int, what: str) -> None:
    """Raise unless x is a whole number, and not below ``low``."""
    if not _is_whole(x) or x < low:
        raise ValueError(f"{name} must be a whole number from {low} ({what}), got {_short(x)}.")


def _short(x: Any) -> str:
    """A value for a message: short, and in one line."""
    text = " ".join(repr(x).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
