"""The new policy of a study: columns of the log, a saved model, or an object of a module."""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from caliope.commands.reading import numbers_of
from caliope.commands.study import Study
from caliope.io.tables import hardly_used
from caliope.policies import Relative, mix, practice
from caliope.trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class Target:
    """The policy to evaluate on a log that knows all its actions, and the question in words."""

    policy: Any
    data: Trajectories
    question: str
    changed: bool = False  # softened: another question than the one that was given


def target_of(study: Study, data: Trajectories) -> Target:
    """Find the policy of a study; the log is widened if the policy knows actions that were never logged."""
    policy, data, words = _given(study, data)
    if isinstance(policy, Relative) and study.propensity is not None:
        raise ValueError(
            f"{study.policy} is stated relative to practice and needs its probabilities of all actions, while "
            "--propensity holds those of the actions taken: leave --propensity out."
        )
    if study.soften is None:
        return Target(policy, data, f"What would be achieved by following {words}?")
    if isinstance(policy, Relative):
        raise ValueError(f"{study.policy} is stated relative to practice already: leave --soften out.")
    share = 1 - study.soften
    question = (
        f"What would be achieved by following {words} in {share:.4g} of the decisions, and current practice in the "
        f"other {study.soften:.4g}? This is not the value of the policy itself: it was softened, as asked."
    )
    return Target(mix(practice, policy, share), data, question, changed=True)


def _given(study: Study, data: Trajectories) -> tuple[Any, Trajectories, str]:
    if study.target_columns:
        table = [numbers_of(data, name, "probability under the new policy") for name in study.target_columns]
        return (
            np.column_stack(table),
            data,
            f"the probabilities in {_first_to_last(study)}",
        )
    if study.recommended is not None:
        advice = _advice(study.recommended, data)
        wide = with_actions(data, int(advice.max()) + 1)
        return (
            np.eye(wide.n_actions)[advice],
            wide,
            f"the recommendations in {study.recommended!r}",
        )
    if study.model is not None:
        from caliope.behaviour import load_model

        model = load_model(study.model, trees=study.trust_trees)
        return model, with_actions(data, _known(model)), f"the model in {Path(study.model).name}"
    policy = policy_named(str(study.policy))
    if not isinstance(policy, Relative) and not hasattr(policy, "predict_proba"):
        policy = _answer(str(study.policy), policy, data)
    return policy, with_actions(data, _known(policy)), f"the policy {study.policy}"


def _first_to_last(study: Study) -> str:
    return f"columns {study.target_columns[0]!r} to {study.target_columns[-1]!r}"


def _advice(name: str, data: Trajectories) -> Any:
    values = numbers_of(data, name, "recommended action")
    odd = np.flatnonzero((values != np.floor(values)) | (values < 0) | (values > 10_000))
    if len(odd):
        i = data.layout.owner[odd[0]]
        raise ValueError(
            f"column {name!r} must hold recommended actions, whole numbers from 0; {len(odd)} of {len(values)} rows "
            f"do not (first: {values[odd[0]]:g} in episode {data.ids[i]}). Number the actions as in the log."
        )
    advice = values.astype(np.int64)
    _refuse_code(name, advice, data)
    return advice


def _refuse_code(name: str, advice: Any, data: Trajectories) -> None:
    """Raise when the largest recommendation looks like a code for none, such as 999."""
    high = int(advice.max())
    named = len(np.union1d(data.actions, advice))
    if high < data.n_actions or not hardly_used(named, high):
        return
    raise ValueError(
        f"column {name!r}: fewer than half of the actions 0 to {high} were ever taken or recommended; the largest, "
        f"{high}, stands in {int((advice == high).sum())} of {len(advice)} rows. If it is a code, such as 999 for no "
        f"advice, correct it; if there are so many actions, say so with --n-actions {high + 1}."
    )


def _known(policy: Any) -> int:
    """How many actions a policy needs; 0 if it does not say."""
    classes = np.asarray(getattr(policy, "classes_", ()))
    return int(classes.max()) + 1 if classes.size and classes.dtype.kind in "iu" else 0


def with_actions(data: Trajectories, n_actions: int) -> Trajectories:
    """The same log with room for actions that were never taken."""
    if n_actions <= data.n_actions:
        return data
    return Trajectories(
        data.states,
        data.actions,
        data.rewards,
        data.offsets,
        n_actions=n_actions,
        terminated=data.terminated,
        columns=data.columns,
        feature_names=data.feature_names,
        ids=data.ids,
    )


def policy_named(name: str) -> Any:
    """The object called ``module:object``; modules are also looked for in the current folder."""
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
    if not (isinstance(found, Relative) or _has_probabilities(found) or _takes_a_log(found)):
        raise TypeError(f"{name} is {_kind(found)}, and a policy must {_EXPECTED}.")
    return found


_EXPECTED = (
    "be an object with predict_proba and classes_, what mix or tilt makes, or a function of one argument, the log, "
    "that returns probabilities (N, A)"
)


def _has_probabilities(found: Any) -> bool:
    return hasattr(found, "predict_proba") and not isinstance(found, type)


def _takes_a_log(found: Any) -> bool:
    """Whether it is a function with one parameter that must be given: nothing else is called on a guess."""
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


def _kind(found: Any) -> str:
    if isinstance(found, type):
        return f"a class (name an object of it, as in policy = {found.__name__}(...))"
    return f"a {type(found).__name__}"


def _answer(name: str, function: Any, data: Trajectories) -> Any:
    """What a function makes of the log, if these are numbers."""
    try:
        table = np.asarray(function(data))
    except Exception as error:
        raise ValueError(
            f"the policy {name} failed on the log: {type(error).__name__}: {error}. It must {_EXPECTED}."
        ) from error
    if table.dtype.kind not in "fiub" or table.ndim != 2:
        raise TypeError(
            f"the policy {name} returned an array of {table.dtype} and shape {table.shape}; it must {_EXPECTED}."
        )
    return table
