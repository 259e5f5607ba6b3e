"""Read datasets of other libraries as Trajectories: Minari, d3rlpy, Open Bandit Pipeline.

None of these libraries is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._trajectories import Trajectories
from caliope._validation import check_length, unmasked

Array = NDArray[Any]


def read_minari(dataset: Any, *, time_limit: bool = False) -> Trajectories:
    """Read the episodes of a Minari dataset with discrete actions, one trajectory per episode.

    The observation after the last action is not a decision and is left out, and so are episodes without steps.

    Parameters
    ----------
    dataset : minari.MinariDataset
        As ``minari.load_dataset`` returns it. Observations must be arrays: flatten dictionaries and tuples first
        (``gymnasium.spaces.flatten``) and make the trajectories yourself.
    time_limit : bool
        True if the time limit is part of the problem: every episode then counts as complete. By default an episode
        that did not terminate at its last step was cut off.

    Returns
    -------
    Trajectories
        One trajectory per episode.

    Examples
    --------
    >>> from types import SimpleNamespace as Part
    >>> import numpy as np
    >>> class Discrete:
    ...     n, start = 2, 0
    >>> episode = Part(id=0, observations=np.zeros((3, 4)), actions=[0, 1], rewards=[0, 1], terminations=[False, True])
    >>> read_minari(Part(action_space=Discrete(), iterate_episodes=lambda: [episode]))
    Trajectories(1 trajectories of 2 steps, 2 steps, 4 features, 2 actions)
    """
    if not hasattr(dataset, "iterate_episodes"):
        raise TypeError(
            f"dataset must be a Minari dataset, from minari.load_dataset; got {type(dataset).__name__}."
        )
    space = dataset.action_space
    if type(space).__name__ != "Discrete":
        raise ValueError(
            f"actions must be whole numbers (Discrete), but these are {space}: number their combinations, or divide "
            "continuous actions into bins."
        )
    episodes = [episode for episode in dataset.iterate_episodes() if len(episode.rewards)]
    steps = [len(episode.rewards) for episode in episodes]
    return _join_episodes(
        [_as_rows(episode.observations)[:n] for episode, n in zip(episodes, steps, strict=True)],
        [np.ravel(episode.actions) - int(space.start) for episode in episodes],
        [episode.rewards for episode in episodes],
        n_actions=int(space.n),
        terminated=[time_limit or bool(episode.terminations[-1]) for episode in episodes],
        ids=[episode.id for episode in episodes],
    )


def read_d3rlpy(dataset: Any, *, time_limit: bool = False) -> Trajectories:
    """Read the episodes of a d3rlpy ``MDPDataset`` or ``ReplayBuffer`` with discrete actions.

    d3rlpy itself drops an episode of one step that a timeout ended, and a last episode without an end.

    Parameters
    ----------
    dataset : d3rlpy.dataset.ReplayBuffer
        A dataset of d3rlpy 2.
    time_limit : bool
        True if the time limit is part of the problem: an episode that a timeout ended then counts as complete. By
        default it was cut off.

    Returns
    -------
    Trajectories
        One trajectory per episode.

    Examples
    --------
    >>> from types import SimpleNamespace as Part
    >>> import numpy as np
    >>> episode = Part(observations=np.zeros((2, 4)), actions=[[0], [1]], rewards=[[0.0], [1.0]], terminated=True)
    >>> about = Part(action_space=Part(name="DISCRETE"), action_size=2)
    >>> read_d3rlpy(Part(episodes=[episode], dataset_info=about))
    Trajectories(1 trajectories of 2 steps, 2 steps, 4 features, 2 actions)
    """
    if not hasattr(dataset, "episodes") or not hasattr(dataset, "dataset_info"):
        raise TypeError(
            f"dataset must be an MDPDataset or a ReplayBuffer of d3rlpy 2; got {type(dataset).__name__}."
        )
    info = dataset.dataset_info
    if info.action_space.name != "DISCRETE":
        raise ValueError(
            "only discrete actions can be evaluated, but these are continuous: divide them into bins, and give them to "
            "MDPDataset as whole numbers."
        )
    return _join_episodes(
        [_as_rows(episode.observations) for episode in dataset.episodes],
        [np.ravel(episode.actions) for episode in dataset.episodes],
        [np.ravel(episode.rewards) for episode in dataset.episodes],
        n_actions=int(info.action_size),
        terminated=[time_limit or bool(episode.terminated) for episode in dataset.episodes],
    )


def read_obp(feedback: Mapping[str, Any]) -> Trajectories:
    """Read logged bandit feedback of Open Bandit Pipeline: every round is a trajectory of one step.

    Propensities become the column ``pscore``: use them by ``gather(data, target, data["pscore"])`` or
    ``audit(data, target, logged=data["pscore"], rng=0)``. Where rounds differ in the position of the item, the
    position is added to the states.

    Parameters
    ----------
    feedback : mapping
        As ``obtain_batch_bandit_feedback`` returns it: ``context``, ``action``, ``reward``, and optionally
        ``n_actions``, ``pscore`` and ``position``.

    Returns
    -------
    Trajectories
        One trajectory of one step per round.

    Examples
    --------
    >>> read_obp({"context": [[0.0], [1.0]], "action": [0, 1], "reward": [1, 0], "pscore": [0.5, 0.5]})
    Trajectories(2 trajectories of 1 step, 2 steps, 1 feature, 2 actions)
    """
    missing = [name for name in ("context", "action", "reward") if _is_absent(feedback, name)]
    if missing:
        raise ValueError(
            f"the feedback has no {' and no '.join(map(repr, missing))}; it must hold context, action and reward."
        )
    states = _as_rows(feedback["context"])
    names = [f"context {i}" for i in range(states.shape[1])]
    if not _is_absent(feedback, "position"):
        position = unmasked("position", feedback["position"])
        check_length("position", position, len(states), "rounds")
        if position.dtype.kind not in "iuf":
            raise ValueError(f"position must hold numbers, got {position.dtype}.")
        if len(np.unique(position)) > 1:
            states, names = np.column_stack([states, position]), [*names, "position"]
    count = feedback.get("n_actions")
    if not (count is None or (isinstance(count, int | np.integer) and not isinstance(count, bool))):
        raise ValueError(f"n_actions must be a whole number, got {count!r}.")
    return Trajectories(
        states,
        feedback["action"],
        feedback["reward"],
        np.arange(len(states) + 1),
        n_actions=None if count is None else int(count),
        columns=None
        if _is_absent(feedback, "pscore")
        else {"pscore": np.array(unmasked("pscore", feedback["pscore"]))},
        feature_names=names,
    )


def _is_absent(feedback: Mapping[str, Any], name: str) -> bool:
    if not isinstance(feedback, Mapping):
        raise TypeError(
            f"feedback must be a mapping, from obtain_batch_bandit_feedback; got {type(feedback).__name__}."
        )
    return feedback.get(name) is None


def _as_rows(observations: Any) -> Array:
    """Return one row per step: whole numbers become one column, images are flattened."""
    # d3rlpy gives parts as a list of arrays.
    if isinstance(observations, Mapping | tuple) or (
        isinstance(observations, list) and any(isinstance(part, np.ndarray) for part in observations)
    ):
        raise ValueError(
            "observations must be arrays, and these come in several parts: stack what was known when the decision was "
            "taken into one array per step."
        )
    steps = unmasked("observations", observations)
    if steps.ndim == 0 or len(steps) == 0:
        raise ValueError("observations must hold one row per step, but there is none.")
    return steps.reshape(len(steps), -1)


def _join_episodes(
    states: list[Array], actions: list[Array], rewards: Sequence[Any], **fields: Any
) -> Trajectories:
    if not states:
        raise ValueError("the dataset has no episodes.")
    for what, parts in (("actions", actions), ("rewards", rewards)):
        for i, (part, episode) in enumerate(zip(parts, states, strict=True)):
            if len(part) != len(episode):
                raise ValueError(f"episode {i} has {len(episode)} observations and {len(part)} {what}.")
    offsets = np.concatenate([[0], np.cumsum([len(episode) for episode in states])])
    return Trajectories(
        np.concatenate(states), np.concatenate(actions), np.concatenate(rewards), offsets, **fields
    )
