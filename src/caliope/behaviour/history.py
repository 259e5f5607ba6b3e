"""States that remember: the steps before, and what was done in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories

ActionFeatures = Callable[[Int], Float]  # actions (N,) -> (N, p)


def stack_history(
    data: Trajectories, steps: int, *, action_features: ActionFeatures | None = None
) -> Trajectories:
    """Append to each state the states and actions of the steps before it.

    A decision often depends on what was seen and done before; a behaviour policy that cannot see it is wrong. With
    48 features, three steps and two numbers an action this makes 48 + 3 x (48 + 2) = 198, the state of Raghu et al.
    Before the first step there is nothing: its own state is repeated there, with zeros for the action.

    ``action_features`` turns actions into columns, by default one for each action; for doses on a grid,
    ``lambda a: np.stack([a // 5, a % 5], axis=1)``.

    Examples
    --------
    >>> data = Trajectories([[1.0], [2.0]], [1, 0], [0, 0], offsets=[0, 2])
    >>> stack_history(data, 1).states
    array([[1., 1., 0., 0.],
           [2., 1., 0., 1.]])
    """
    _check(data, steps)
    done = _encoded(data, action_features)
    time, rows = data.layout.time, np.arange(data.n_steps)
    parts, names = [data.states], list(data.feature_names)
    for lag in range(1, steps + 1):
        before = rows - np.minimum(lag, time)
        parts += [data.states[before], np.where((time >= lag)[:, None], done[before], 0)]
        names += [f"{name}_lag{lag}" for name in data.feature_names]
        names += [f"action{j}_lag{lag}" for j in range(done.shape[1])]
    return Trajectories(
        np.concatenate(parts, axis=1),
        data.actions,
        data.rewards,
        data.offsets,
        n_actions=data.n_actions,
        terminated=data.terminated,
        columns=data.columns,
        feature_names=names,
        ids=data.ids,
    )


def _check(data: Trajectories, steps: int) -> None:
    if not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps must be a whole number, 1 or more, got {steps!r}.")
    past = set(range(len(data.feature_names))) - set(present_columns(data.feature_names))
    if past:
        raise ValueError(
            f"these states carry their history already (column {data.feature_names[min(past)]!r}): stack those "
            "without it, with as many steps as are wanted."
        )


def _encoded(data: Trajectories, action_features: ActionFeatures | None) -> Float:
    encode = action_features or (lambda a: np.eye(data.n_actions)[a])
    done = np.asarray(encode(data.actions), dtype=data.states.dtype)
    if done.ndim != 2 or len(done) != data.n_steps:
        raise ValueError(
            f"action_features must return a row of columns for each of the {data.n_steps} actions, shape "
            f"({data.n_steps}, p), got {done.shape}."
        )
    return done


def present_columns(names: Sequence[str]) -> tuple[int, ...]:
    """Numbers of the columns that describe the present moment: all whose name does not end in _lag and a number.

    >>> present_columns(["heart_rate", "heart_rate_lag1", "action0_lag1"])
    (0,)
    """
    return tuple(i for i, name in enumerate(names) if not re.search(r"_lag\d+$", name))
