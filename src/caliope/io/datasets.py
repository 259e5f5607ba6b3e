"""Datasets of other libraries -> Trajectories: Minari, d3rlpy, Open Bandit Pipeline. None of them is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope.trajectories import Trajectories

Array = NDArray[Any]


def read_minari(dataset: Any) -> Trajectories:
    """The episodes of a Minari dataset with discrete actions.

    An episode that did not terminate at its last step counts as cut off, whether or not it says that it was truncated.
    The last observation, after the last action, is not a decision and is left out.

    Parameters
    ----------
    dataset : minari.MinariDataset
        As ``minari.load_dataset`` gives it. Observations are arrays; of a space of dictionaries or tuples, pick or
        stack what was known (``gymnasium.spaces.flatten`` does it) and make the trajectories yourself.
    """
    if not hasattr(dataset, "iterate_episodes"):
        raise TypeError(
            f"dataset must be a Minari dataset, as minari.load_dataset gives it; got {type(dataset).__name__}."
        )
    space = dataset.action_space
    if type(space).__name__ != "Discrete":
        raise ValueError(
            f"only discrete actions can be evaluated, and these are {space}: cut them into bins."
        )
    episodes = list(dataset.iterate_episodes())
    steps = [len(episode.rewards) for episode in episodes]
    return _joined(
        [_rows(episode.observations)[:n] for episode, n in zip(episodes, steps, strict=True)],
        [np.ravel(episode.actions) - int(space.start) for episode in episodes],
        [episode.rewards for episode in episodes],
        n_actions=int(space.n),
        terminated=[bool(episode.terminations[-1]) for episode in episodes],
        ids=[episode.id for episode in episodes],
    )


def read_d3rlpy(dataset: Any) -> Trajectories:
    """The episodes of a d3rlpy ``MDPDataset`` or ``ReplayBuffer`` with discrete actions.

    An episode that ended by a timeout counts as cut off.

    Parameters
    ----------
    dataset : d3rlpy.dataset.ReplayBuffer
        Of d3rlpy 2.
    """
    if not hasattr(dataset, "episodes") or not hasattr(dataset, "dataset_info"):
        raise TypeError(
            f"dataset must be an MDPDataset or a ReplayBuffer of d3rlpy 2; got {type(dataset).__name__}."
        )
    about = dataset.dataset_info
    if about.action_space.name != "DISCRETE":
        raise ValueError(
            "only discrete actions can be evaluated, and these are continuous: cut them into bins, and give them to "
            "MDPDataset as whole numbers."
        )
    return _joined(
        [_rows(episode.observations) for episode in dataset.episodes],
        [np.ravel(episode.actions) for episode in dataset.episodes],
        [np.ravel(episode.rewards) for episode in dataset.episodes],
        n_actions=int(about.action_size),
        terminated=[bool(episode.terminated) for episode in dataset.episodes],
    )


def read_obp(feedback: Mapping[str, Any]) -> Trajectories:
    """Logged bandit feedback of Open Bandit Pipeline: every round is a trajectory of one step.

    Propensities, where there are any, become the column ``pscore``: ``gather(data, target, data["pscore"])`` and
    ``audit(data, target, logged=data["pscore"], rng=0)`` use them. Where rounds differ in the position of the item,
    the position was known when it was chosen, and is added to the states.

    Parameters
    ----------
    feedback : mapping
        As ``obtain_batch_bandit_feedback`` gives it: ``context``, ``action``, ``reward``, and maybe ``n_actions``,
        ``pscore`` and ``position``.
    """
    missing = [name for name in ("context", "action", "reward") if _absent(feedback, name)]
    if missing:
        raise ValueError(
            f"the feedback has no {' and no '.join(map(repr, missing))}; it must hold context, action and reward."
        )
    states = _rows(feedback["context"])
    names = [f"context {i}" for i in range(states.shape[1])]
    if not _absent(feedback, "position"):
        position = np.asarray(feedback["position"])
        if len(np.unique(position)) > 1:
            states, names = np.column_stack([states, position]), [*names, "position"]
    count = feedback.get("n_actions")
    return Trajectories(
        states,
        feedback["action"],
        feedback["reward"],
        np.arange(len(states) + 1),
        n_actions=None if count is None else int(count),
        columns=None if _absent(feedback, "pscore") else {"pscore": feedback["pscore"]},
        feature_names=names,
    )


def _absent(feedback: Mapping[str, Any], name: str) -> bool:
    if not isinstance(feedback, Mapping):
        raise TypeError(
            "feedback must be a mapping, as obtain_batch_bandit_feedback gives it; "
            f"got {type(feedback).__name__}."
        )
    return feedback.get(name) is None


def _rows(observations: Any) -> Array:
    """One row a step: whole numbers become a column, images are laid out flat."""
    if isinstance(observations, Mapping | tuple):
        raise ValueError(
            "observations must be arrays, and these come in several parts: stack what was known when the decision was "
            "taken into one array a step."
        )
    steps = np.asarray(observations)
    return steps.reshape(len(steps), -1) if len(steps) else steps.reshape(0, 1)


def _joined(states: list[Array], actions: list[Array], rewards: Sequence[Any], **about: Any) -> Trajectories:
    if not states:
        raise ValueError("the dataset has no episodes.")
    offsets = np.concatenate([[0], np.cumsum([len(episode) for episode in states])])
    return Trajectories(
        np.concatenate(states), np.concatenate(actions), np.concatenate(rewards), offsets, **about
    )
