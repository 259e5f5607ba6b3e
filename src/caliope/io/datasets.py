"""Datasets of other libraries -> Trajectories: Minari, d3rlpy, Open Bandit Pipeline. None of them is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope.trajectories import Trajectories
from caliope.validation import check_length, unmasked

Array = NDArray[Any]


def read_minari(dataset: Any, *, time_limit: bool = False) -> Trajectories:
    """The episodes of a Minari dataset with discrete actions.

    The last observation, after the last action, is not a decision and is left out, and so is an episode without steps.

    Parameters
    ----------
    dataset : minari.MinariDataset
        As ``minari.load_dataset`` gives it. Observations are arrays; of a space of dictionaries or tuples, pick or
        stack what was known (``gymnasium.spaces.flatten`` does it) and make the trajectories yourself.
    time_limit : bool
        Whether the limit belongs to the question: then every episode ended where it stops, and its return is whole.
        By default one that did not terminate at its last step was cut off, and nobody saw the rest.
    """
    if not hasattr(dataset, "iterate_episodes"):
        raise TypeError(
            f"dataset must be a Minari dataset, as minari.load_dataset gives it; got {type(dataset).__name__}."
        )
    space = dataset.action_space
    if type(space).__name__ != "Discrete":
        raise ValueError(
            f"actions must be whole numbers (Discrete), and these are {space}: number their combinations, or cut what "
            "is continuous into bins."
        )
    episodes = [episode for episode in dataset.iterate_episodes() if len(episode.rewards)]
    steps = [len(episode.rewards) for episode in episodes]
    return _joined(
        [_rows(episode.observations)[:n] for episode, n in zip(episodes, steps, strict=True)],
        [np.ravel(episode.actions) - int(space.start) for episode in episodes],
        [episode.rewards for episode in episodes],
        n_actions=int(space.n),
        terminated=[time_limit or bool(episode.terminations[-1]) for episode in episodes],
        ids=[episode.id for episode in episodes],
    )


def read_d3rlpy(dataset: Any, *, time_limit: bool = False) -> Trajectories:
    """The episodes of a d3rlpy ``MDPDataset`` or ``ReplayBuffer`` with discrete actions.

    What d3rlpy itself drops is not in it: an episode of one step that a timeout ended, and a last one without an end.

    Parameters
    ----------
    dataset : d3rlpy.dataset.ReplayBuffer
        Of d3rlpy 2.
    time_limit : bool
        Whether the limit belongs to the question: then an episode that a timeout ended is whole. By default it was cut
        off, and nobody saw the rest.
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
        terminated=[time_limit or bool(episode.terminated) for episode in dataset.episodes],
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
        if _absent(feedback, "pscore")
        else {"pscore": np.array(unmasked("pscore", feedback["pscore"]))},
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
    # d3rlpy gives parts as a list of arrays.
    if isinstance(observations, Mapping | tuple) or (
        isinstance(observations, list) and any(isinstance(part, np.ndarray) for part in observations)
    ):
        raise ValueError(
            "observations must be arrays, and these come in several parts: stack what was known when the decision was "
            "taken into one array a step."
        )
    steps = unmasked("observations", observations)
    if steps.ndim == 0 or len(steps) == 0:
        raise ValueError("observations must hold one row for each step, and there is none.")
    return steps.reshape(len(steps), -1)


def _joined(states: list[Array], actions: list[Array], rewards: Sequence[Any], **about: Any) -> Trajectories:
    if not states:
        raise ValueError("the dataset has no episodes.")
    for what, parts in (("actions", actions), ("rewards", rewards)):
        for i, (part, episode) in enumerate(zip(parts, states, strict=True)):
            if len(part) != len(episode):
                raise ValueError(f"episode {i} has {len(episode)} observations and {len(part)} {what}.")
    offsets = np.concatenate([[0], np.cumsum([len(episode) for episode in states])])
    return Trajectories(
        np.concatenate(states), np.concatenate(actions), np.concatenate(rewards), offsets, **about
    )
