"""Policies in the forms that people have them: functions, recommended actions, networks, learnt algorithms."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from caliope._policies import MixWithPractice, Relative, TiltOfPractice
from caliope._ragged import Float, Int
from caliope._table_order import refuse_table_order
from caliope._trajectories import Trajectories
from caliope._validation import as_action_codes

FORMS = (
    "a policy with predict_proba and classes_, probabilities (N, A), recommended actions (N,), a function of the log "
    "or of its states that returns one of these, a torch module that returns probabilities, an algorithm with "
    "predict(states), or a result of mix or tilt"
)


def as_policy(target: Any, data: Trajectories, *, name: str = "target") -> Any:
    """The target in a form that is evaluated: itself, or its probabilities (N, A) at the decisions of the log.

    A list or array of one action per decision is a policy that recommends these. A function is called with the log, and
    if that fails with its states. A torch module is called with the states and must return probabilities. What has
    ``predict`` alone, as algorithms of d3rlpy and stable-baselines3 have, is followed in every state.
    """
    if isinstance(target, MixWithPractice):
        return replace(target, policy=as_policy(target.policy, data, name=name))
    if isinstance(target, TiltOfPractice):
        return target.coded(data.action_names)
    known = isinstance(target, Relative | type) or hasattr(target, "predict_proba")
    if known or callable(getattr(target, "on", None)) or target is None or isinstance(target, str):
        return target
    if _is_module(target):
        return _probabilities(_call_module(target, data.states), target, data, name)
    if callable(getattr(target, "predict", None)):
        return _recommended(_predict(target, data, name), data, name)
    if callable(target):
        return _call_function(target, data, name)
    return _from_numbers(target, data, name)


def _from_numbers(target: Any, data: Trajectories, name: str) -> Any:
    """Recommended actions as probabilities; any other array as it is."""
    given = np.asarray(target)
    refuse_table_order(given, data, name=name)
    if given.ndim == 1 and len(given) == data.n_steps:
        return _recommended(given, data, name)
    return target


def _recommended(given: Any, data: Trajectories, name: str) -> Float:
    """Probabilities (N, A) of a policy that takes one action in each decision; words are those of the log."""
    actions = np.asarray(given)
    if actions.ndim == 2 and actions.shape[1] == 1:
        actions = actions[:, 0]
    if actions.shape != (data.n_steps,):
        raise ValueError(
            f"{name} must recommend one action for each of the {data.n_steps} decisions, got shape {actions.shape}."
        )
    codes = _codes_of(actions, data, name)
    if codes.max(initial=0) >= data.n_actions:
        row = int(codes.argmax())
        raise ValueError(
            f"{name} recommends action {codes[row]} (first: {_place(data, row)}), and the log has the "
            f"{data.n_actions} actions 0 to {data.n_actions - 1}. If there are more, say so with n_actions="
            f"{int(codes.max()) + 1} of Trajectories or read_table."
        )
    return np.eye(data.n_actions)[codes]


def _codes_of(actions: Any, data: Trajectories, name: str) -> Int:
    if actions.dtype.kind not in "UO" or data.action_names is None:
        return as_action_codes(actions, lambda row: _place(data, row), name=f"{name} (recommended actions)")
    known = {word: code for code, word in enumerate(data.action_names)}
    words = [str(x) for x in actions]
    odd = [row for row, word in enumerate(words) if word not in known]
    if odd:
        raise ValueError(
            f"{name} recommends {words[odd[0]]!r} ({len(odd)} rows, first: {_place(data, odd[0])}), and the actions of "
            f"the log are {', '.join(data.action_names[:12])}."
        )
    return np.array([known[word] for word in words], dtype=np.int64)


def _place(data: Trajectories, row: int) -> str:
    owner = int(data.layout.owner[row])
    return f"trajectory {data.ids[owner]}, step {row - int(data.offsets[owner])}"


def _call_function(function: Callable[[Any], Any], data: Trajectories, name: str) -> Any:
    """What a function returns for the log, or, where it does not take one, for its states."""
    said = []
    for what, given in (("the log", data), ("its states", data.states)):
        try:
            found = np.asarray(function(given))
        except Exception as error:
            said.append(
                f"with {what} it failed ({type(error).__name__}: {' '.join(str(error).split())[:120]})"
            )
            continue
        if found.shape == (data.n_steps,) or found.shape == (data.n_steps, data.n_actions):
            return found if found.ndim == 2 else _recommended(found, data, name)
        said.append(f"with {what} it returned shape {found.shape}")
    raise TypeError(
        f"{name} is a function, and must return probabilities ({data.n_steps}, {data.n_actions}) or actions "
        f"({data.n_steps},) for the log or for its states: {'; '.join(said)}."
    )


def _predict(target: Any, data: Trajectories, name: str) -> Any:
    """The actions of what has predict alone; of a regressor the output is no action."""
    tags = getattr(target, "__sklearn_tags__", lambda: None)()
    if getattr(tags, "estimator_type", "") == "regressor":
        raise TypeError(
            f"{name} is a regressor, {type(target).__name__}, whose predictions are no actions. Give {FORMS}."
        )
    # Networks behind algorithms of reinforcement learning take single precision.
    network = callable(getattr(target, "predict_value", None)) or hasattr(target, "policy")
    found = target.predict(data.states.astype(np.float32) if network else data.states)
    return found[0] if isinstance(found, tuple) else found  # stable-baselines3 gives (actions, memory)


def _is_module(target: Any) -> bool:
    """Whether it is a torch module, by what it has: torch is never imported."""
    return all(callable(getattr(target, x, None)) for x in ("forward", "parameters", "state_dict", "eval"))


def _call_module(module: Any, states: Float) -> Any:
    """Call a torch module in evaluation mode on its own device; its mode is what it was afterwards."""
    torch = sys.modules["torch"]
    first = next(iter(module.parameters()), None)
    kind = {} if first is None else {"dtype": first.dtype, "device": first.device}
    training = bool(getattr(module, "training", False))
    module.eval()
    try:
        with torch.no_grad():
            out = module(torch.as_tensor(np.require(states, requirements="W"), **kind))
    finally:
        module.train(training)
    out = getattr(out, "probs", out)  # of a categorical distribution
    return np.asarray(out.detach().cpu().numpy(), dtype=np.float64)


def _probabilities(table: Any, module: Any, data: Trajectories, name: str) -> Float:
    """The output of a module, if it is probabilities; scores may be of either kind, and are refused."""
    if table.shape == (data.n_steps, data.n_actions) and table.min(initial=0.0) >= 0:
        total = table.sum(axis=1, keepdims=True)
        if np.abs(total - 1).max(initial=0.0) < 1e-4:  # single precision
            return np.asarray(table / total)
    raise ValueError(
        f"{name}: the module {type(module).__name__} must return probabilities of the {data.n_actions} actions, shape "
        f"({data.n_steps}, {data.n_actions}); it returned shape {table.shape}"
        + (f", first row sums to {table[0].sum():.4g}" if table.ndim == 2 else "")
        + ". Scores may be logits or values: apply softmax to logits; of values give argmax(1), an array of actions."
    )


def describe_form(target: Any) -> str:
    """What was given, in words, where the policy that is made of it does not tell; empty where it does."""
    if hasattr(target, "predict_proba") or isinstance(target, Relative | type) or hasattr(target, "on"):
        return ""
    if _is_module(target) or callable(getattr(target, "predict", None)):
        return type(target).__name__
    if callable(target):
        return f"function {getattr(target, '__name__', type(target).__name__)}"
    return "recommended actions" if np.ndim(target) == 1 else ""
