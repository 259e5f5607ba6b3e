"""Append the states and actions of earlier steps to each state."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories

# actions (N,) -> (N, p)
ActionFeatures = Callable[[Int], Float]


def stack_history(
    data: Trajectories, steps: int, *, action_features: ActionFeatures | None = None
) -> Trajectories:
    """Append to each state the states and actions of the steps before it.

    Decisions often depend on the past; a behaviour policy that does not see it is wrong. Before the first step there
    is no past: the first state is repeated there, with zeros for the action. With 48 features, three steps and two
    columns per action the states have 48 + 3 x (48 + 2) = 198 columns, as in Raghu et al. (2018).

    Parameters
    ----------
    data : Trajectories
        The log.
    steps : int
        How many earlier steps to append, 1 or more.
    action_features : callable, optional
        Turns actions, (N,), into columns, (N, p); by default one indicator per action. For doses on a grid:
        ``lambda a: np.stack([a // 5, a % 5], axis=1)``.

    Returns
    -------
    Trajectories
        The log with wider states; the names of the new columns end in ``_lag1``, ``_lag2``, ...

    Examples
    --------
    >>> from caliope import Trajectories
    >>> from caliope.behaviour import stack_history
    >>> data = Trajectories([[1.0], [2.0]], [1, 0], [0, 0], offsets=[0, 2])
    >>> stack_history(data, 1).states
    array([[1., 1., 0., 0.],
           [2., 1., 0., 1.]])
    """
    _check_arguments(data, steps)
    encoded = _encode_actions(data, action_features)
    time, rows = data.layout.time, np.arange(data.n_steps)
    parts, names = [data.states], list(data.feature_names)
    for lag in range(1, steps + 1):
        before = rows - np.minimum(lag, time)
        parts += [data.states[before], np.where((time >= lag)[:, None], encoded[before], 0)]
        names += [f"{name}_lag{lag}" for name in data.feature_names]
        names += [f"action{j}_lag{lag}" for j in range(encoded.shape[1])]
    return data.replace(states=np.concatenate(parts, axis=1), feature_names=names)


def _check_arguments(data: Trajectories, steps: int) -> None:
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps must be a whole number, 1 or more, got {steps!r}.")
    past = set(range(len(data.feature_names))) - set(present_columns(data.feature_names))
    if past:
        raise ValueError(
            f"these states contain earlier steps already (column {data.feature_names[min(past)]!r}). Start from the "
            "states without them, and stack all steps at once."
        )


def _encode_actions(data: Trajectories, action_features: ActionFeatures | None) -> Float:
    encode = action_features or (lambda a: np.eye(data.n_actions)[a])
    encoded = np.asarray(encode(data.actions), dtype=data.states.dtype)
    if encoded.ndim != 2 or len(encoded) != data.n_steps:
        raise ValueError(
            f"action_features must return one row per action, shape ({data.n_steps}, p), got {encoded.shape}."
        )
    return encoded


def present_columns(names: Sequence[str]) -> tuple[int, ...]:
    """Find the columns that describe the present moment: those whose name does not end in ``_lag`` and a number.

    Parameters
    ----------
    names : sequence of str
        Names of the columns, as in ``Trajectories.feature_names``.

    Returns
    -------
    tuple of int
        Their column numbers.

    Examples
    --------
    >>> from caliope.behaviour import present_columns
    >>> present_columns(["price", "price_lag1", "action0_lag1"])
    (0,)
    """
    return tuple(i for i, name in enumerate(names) if not re.search(r"_lag\d+$", name))
