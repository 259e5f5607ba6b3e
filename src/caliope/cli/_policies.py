"""The target policy and the behaviour models that a study names."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from caliope._audit._learn import check_learner, soften
from caliope._given_policies import FORMS, as_policy
from caliope._policies import Relative, TiltOfPractice, mix, practice, rounded_digits
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope._validation import as_action_codes, refuse_beyond, refuse_sparse
from caliope.behaviour._frequencies import TabularFrequencies
from caliope.behaviour._gaps import fill_unseen
from caliope.behaviour._models import POOL, boosting, candidate_models, default_models
from caliope.cli._by_name import in_order_of_actions, pairing
from caliope.cli._columns import numbers_of, place_of, recommended_columns, target_model
from caliope.cli._config import MOST_ACTIONS, Study
from caliope.io import RecommendedDoses

# -- behaviour models --


def behaviour_models(study: Study, data: Trajectories) -> Mapping[str, Any]:
    """Return the behaviour models that a study names, unfitted and in that order; by default those of an audit."""
    usual = candidate_models(data, random_state=study.seed)
    if not study.models:
        return usual
    offered = {
        "frequencies": TabularFrequencies(),
        "network": fill_unseen(default_models(random_state=study.seed)["network"], data),
        "boosting": boosting(random_state=study.seed),
        **usual,
        "pool": usual[POOL],
    }
    return {name: offered[name] for name in study.models}


# -- the target policy --


@dataclass(frozen=True, eq=False)
class Target:
    """The policy to evaluate, the log with room for all its actions, and the question in words."""

    policy: Any
    data: Trajectories
    question: str
    learn: Any = None  # in place of a policy
    notes: Mapping[str, str] = field(default_factory=dict)  # setting -> what was taken for granted


def target_of(study: Study, data: Trajectories) -> Target:
    """Find the policy of a study; the log is widened if the policy knows actions that were never logged."""
    if study.learn is not None:
        return _learner_of(study, study.learn, data)
    policy, data, words = _named_policy(study, data)
    policy, notes = _rescaled(policy)
    if isinstance(policy, TiltOfPractice) and len(study.propensity) == 1:
        raise ValueError(
            f"{study.policy} is a tilt of practice and needs the behaviour policy's probabilities of all "
            "actions, but --propensity holds those of the actions taken: name one column per action, or leave "
            "--propensity out."
        )
    policy, question = softened(study, policy, words)
    return Target(policy, data, question, notes=pairing(study.target_columns, data) | notes)


def softened(study: Study, policy: Any, words: str) -> tuple[Any, str]:
    """The policy, mixed with practice where the study says so, and the question in words."""
    if study.soften is None:
        return policy, f"What would be achieved by following {words}?"
    if isinstance(policy, Relative):
        raise ValueError(f"{study.policy} is stated relative to practice already: leave --soften out.")
    share = 1 - study.soften
    return mix(practice, policy, share), _softened_question(words, share, study.soften)


def _rescaled(policy: Any) -> tuple[Any, dict[str, str]]:
    """Probabilities that were rounded sum to 1 again; and what was done, in words."""
    if not isinstance(policy, np.ndarray):
        return policy, {}
    said = []
    if _in_percent(policy):
        policy, said = policy / 100, ["in percent, divided by 100"]
    digits = rounded_digits(policy)
    if digits is not None:
        policy = policy / policy.sum(axis=1, keepdims=True)
        said.append(f"rounded to {digits} digits, rescaled to sum to 1 in every row")
    return policy, {"target probabilities": "; ".join(said)} if said else {}


def _in_percent(policy: Float) -> bool:
    """Whether every row sums to 100, but for rounding to whole numbers."""
    off = np.abs(policy.sum(axis=1) - 100).max(initial=0.0)
    return bool(policy.min(initial=0.0) >= 0 and off <= min(2.0, policy.shape[1] / 2) + 1e-6)


def _learner_of(study: Study, name: str, data: Trajectories) -> Target:
    """The learner of a study; softened, its policy is followed in a share of the decisions."""
    learner = import_object(name)
    check_learner(learner)
    words = f"a policy learnt by {name}"
    if study.soften is None:
        return Target(None, data, f"What would be achieved by following {words}?", learner)
    share = 1 - study.soften
    question = _softened_question(words, share, study.soften)
    return Target(None, data, question, soften(learner, share, study.gamma))


def _softened_question(words: str, share: float, rest: float) -> str:
    return (
        f"What would be achieved by following {words} in {share:.4g} of the decisions, and current practice in the "
        f"other {rest:.4g}? This is not the value of the policy itself: it was softened, as asked."
    )


def _named_policy(study: Study, data: Trajectories) -> tuple[Any, Trajectories, str]:
    """The policy, the log with room for its actions, and the words for it."""
    if study.target_columns:
        names = in_order_of_actions(study.target_columns, data, "--target-columns")
        probs = [numbers_of(data, name, "probability under the target policy") for name in names]
        return np.column_stack(probs), data, words_for(study, names)
    if study.recommended is not None:
        if any(each.cuts for each in data.encoder.actions):
            return _recommended_doses(study, data), data, words_for(study)
        if data.action_names is None:
            codes = _recommended_actions(study.recommended, data)
        else:
            codes = _recommended_names(study, data)
        wide = with_actions(data, int(codes.max()) + 1)
        return np.eye(wide.n_actions)[codes], wide, words_for(study)
    if study.model is not None:
        model = target_model(study)
        return model, with_actions(data, _largest_class(model)), words_for(study)
    name = str(study.policy)
    policy = find_policy(name)
    if not isinstance(policy, Relative) and not hasattr(policy, "predict_proba"):
        policy = _call_policy(name, policy, data)
    return policy, with_actions(data, _largest_class(policy)), words_for(study)


def words_for(study: Study, columns: Sequence[str] = ()) -> str:
    """The words for the policy of a study, with its columns in the order of the actions."""
    if study.target_columns:
        names = columns or study.target_columns
        return f"the probabilities in columns {names[0]!r} to {names[-1]!r}"
    if study.recommended is not None:
        return f"the recommendations in {study.recommended!r}"
    return f"the policy {study.policy}" if study.model is None else f"the model in {Path(study.model).name}"


def _recommended_doses(study: Study, data: Trajectories) -> RecommendedDoses:
    """The recommended doses as a policy; raise unless they can be cut like the logged ones."""
    actions = data.encoder.actions
    columns = _columns_of(study, actions)
    for name, each in zip(columns, actions, strict=True):
        if each.cuts:
            numbers_of(data, name, "recommended dose")
    policy = RecommendedDoses(columns)
    policy.on(data)
    return policy


def _columns_of(study: Study, actions: Sequence[Any]) -> tuple[str, ...]:
    """The recommended columns: as many as those of the action."""
    columns = recommended_columns(study, [each.name for each in actions])
    if len(columns) != len(actions):
        raise ValueError(
            f"the action has the {len(actions)} columns {', '.join(each.name for each in actions)}, and --recommended "
            f"names {len(columns)}: name one for each, in the same order."
        )
    return columns


def _recommended_names(study: Study, data: Trajectories) -> Int:
    """Recommended words as codes, like the logged ones."""
    actions = data.encoder.actions
    names = _columns_of(study, actions)
    series = [pl.Series(name, data[name], strict=False) for name in names]
    frame = pl.DataFrame({each.name: column for each, column in zip(actions, series, strict=True)})
    try:
        return data.encoder.encode_actions(frame)
    except ValueError as error:
        said = str(error)
        for name, each in zip(names, actions, strict=True):
            said = said.replace(f"column {each.name!r} ", f"column {name!r} ")  # where the word stands
        raise ValueError(said) from None


def _recommended_actions(column: str, data: Trajectories) -> Int:
    values = numbers_of(data, column, "recommended action")
    name, where = f"column {column!r} (recommended action)", partial(place_of, data)
    codes = as_action_codes(values, where, name=name)
    if codes.max() >= data.n_actions:
        refuse_sparse(codes, where, name=name, logged=data.actions)
    refuse_beyond(codes, MOST_ACTIONS, where, name=name)
    return codes


def _largest_class(policy: Any) -> int:
    """How many actions a policy needs; 0 if it does not say."""
    classes = np.asarray(getattr(policy, "classes_", ()))
    return int(classes.max()) + 1 if classes.size and classes.dtype.kind in "iu" else 0


def with_actions(data: Trajectories, n_actions: int) -> Trajectories:
    """Return the same log with room for actions that were never taken."""
    if n_actions <= data.n_actions:
        return data
    return data.replace(n_actions=n_actions, action_names=None)


# -- policies of Python modules --

_EXPECTED = f"be {FORMS}"


def import_object(name: str) -> Any:
    """Import the object called ``module:object``; modules are also looked for in the current folder."""
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise ValueError(f"a policy is named as module:object, e.g. my_policies:cautious; got {name!r}.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{name} cannot be found: {error}. Run the command in the folder of the module, or install it."
        ) from None
    return found


def find_policy(name: str) -> Any:
    """Import a policy; raise unless it is one."""
    found = import_object(name)
    if not (isinstance(found, Relative) or _has_method(found) or _takes_a_log(found)):
        raise TypeError(f"{name} is {_describe(found)}, and a policy must {_EXPECTED}.")
    return found


def _has_method(found: Any) -> bool:
    """Whether it is an object that predicts, or a network."""
    methods = ("predict_proba", "predict", "forward")
    return not isinstance(found, type) and any(callable(getattr(found, x, None)) for x in methods)


def _takes_a_log(found: Any) -> bool:
    """Whether it is a function with exactly one required parameter; nothing else is called."""
    if isinstance(found, type) or inspect.isbuiltin(found) or not callable(found):
        return False
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return False
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return len(needed) == 1 and needed[0].kind is not needed[0].KEYWORD_ONLY


def _describe(found: Any) -> str:
    if isinstance(found, type):
        return f"a class (name an object of it, as in policy = {found.__name__}(...))"
    return f"a {type(found).__name__}"


def _call_policy(name: str, policy: Any, data: Trajectories) -> Any:
    """The probabilities of a function, module or algorithm on the log."""
    whose = f"the policy {name}"
    try:
        return as_policy(policy, data, name=whose)
    except (TypeError, ValueError) as error:
        if str(error).startswith(whose):
            raise
        failed = f"{whose} failed on the log: {type(error).__name__}: {error}"
    except Exception as error:
        failed = f"{whose} failed on the log: {type(error).__name__}: {error}"
    raise ValueError(f"{failed}. It must {_EXPECTED}.")
