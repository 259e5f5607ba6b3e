"""What preceded each decision: the past of its trajectory, and the place of the trajectory in the order of the log."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._ragged import Bool, Float, Int
from caliope._trajectories import Trajectories

WAVES = 6  # cosines of the order: half a period to three periods over the log
SLOW = 2  # so many of them are also multiplied by the features
FEATURES = 50  # of the state, for that
_PAIRS = 100  # of a previous action and a feature, or of two previous actions


@dataclass(frozen=True, eq=False)
class Past:
    """What happened in each trajectory before each of its decisions; 0 where nothing did.

    Attributes
    ----------
    data : Trajectories
        The log.

    Examples
    --------
    >>> log = Trajectories([[1.0], [2.0], [6.0]], [0, 1, 1], [5, 0, 1], offsets=[0, 3])
    >>> past = Past(log)
    >>> past.previous_state.ravel(), past.mean_state.ravel(), past.unchanged
    (array([0., 1., 2.]), array([0. , 1. , 1.5]), array([0., 1., 1.]))
    """

    data: Trajectories

    @cached_property
    def steps(self) -> Float:
        """How many steps there were, (N,)."""
        return self.data.layout.time.astype(np.float64)

    @cached_property
    def some(self) -> Bool:
        """Whether there was a step at all, (N,)."""
        return self.data.layout.time > 0

    @cached_property
    def _taken(self) -> Float:
        return np.eye(self.data.n_actions)[self.data.actions]

    @cached_property
    def _states(self) -> Float:
        return self.data.states.astype(np.float64, copy=False)

    @cached_property
    def previous_action(self) -> Float:
        """An indicator per action, one step back, (N, A)."""
        return self._before(self._taken)

    @cached_property
    def action_before_that(self) -> Float:
        """An indicator per action, two steps back, (N, A)."""
        return self._before(self.previous_action)

    @cached_property
    def action_three_back(self) -> Float:
        """An indicator per action, three steps back, (N, A)."""
        return self._before(self.action_before_that)

    @cached_property
    def action_pairs(self) -> Float:
        """Indicators of the last action together with the one before it, and with the one before that, (N, 2 A A).

        Without columns where there are more than 10 actions.
        """
        n, a = self.data.n_steps, self.data.n_actions
        if a * a > _PAIRS:
            return np.zeros((n, 0))
        earlier = (self.action_before_that, self.action_three_back)
        return np.concatenate(
            [(self.previous_action[:, :, None] * x[:, None, :]).reshape(n, -1) for x in earlier], axis=1
        )

    @cached_property
    def previous_pairs(self) -> Float:
        """The previous features after each action, feature by feature, 0 elsewhere, (N, A * paired)."""
        x = self.previous_state[:, : self.paired]
        return (x[:, :, None] * self.previous_action[:, None, :]).reshape(len(x), -1)

    @cached_property
    def counts(self) -> Float:
        """How often each action was taken so far, (N, A)."""
        return self._sum_before(self._taken)

    @cached_property
    def shares(self) -> Float:
        """Share of each action among the steps so far, (N, A)."""
        return self.counts / np.maximum(self.steps, 1)[:, None]

    @cached_property
    def previous_state(self) -> Float:
        """The state one step back, (N, d)."""
        return self._before(self._states)

    @cached_property
    def first_state(self) -> Float:
        """The state at the first step, (N, d)."""
        layout = self.data.layout
        return self._states[layout.first][layout.owner] * self.some[:, None]

    @cached_property
    def mean_state(self) -> Float:
        """Mean of the states so far, without the present one, (N, d)."""
        return self._sum_before(self._states) / np.maximum(self.steps, 1)[:, None]

    @cached_property
    def pairs(self) -> Float:
        """The present features after each action, feature by feature, 0 elsewhere, (N, A * paired)."""
        x = self._states[:, : self.paired]
        return (x[:, :, None] * self.previous_action[:, None, :]).reshape(len(x), -1)

    @property
    def paired(self) -> int:
        """How many features are paired with the previous action: the first ones, in at most 100 pairs."""
        return min(self.data.states.shape[1], _PAIRS // max(self.data.n_actions, 2))

    @cached_property
    def previous_reward(self) -> Float:
        """The reward one step back, (N,)."""
        return self._before(self.data.rewards)

    @cached_property
    def sum_of_rewards(self) -> Float:
        """Sum of the rewards so far, (N,)."""
        return self._sum_before(self.data.rewards)

    @cached_property
    def unchanged(self) -> Float:
        """For how many steps the previous action had been taken without a change, (N,)."""
        rows, actions = np.arange(self.data.n_steps), self.data.actions
        begins = np.ones(len(rows), dtype=bool)
        begins[1:] = actions[1:] != actions[:-1]
        begins[self.data.layout.first] = True
        return self._before((rows - np.maximum.accumulate(np.where(begins, rows, 0)) + 1).astype(np.float64))

    def _before(self, x: NDArray[Any]) -> Float:
        return self.data.layout.before(x, 0)

    def _sum_before(self, x: Float) -> Float:
        layout = self.data.layout
        before = np.cumsum(x, axis=0) - x
        return before - before[layout.first][layout.owner]


@dataclass(frozen=True, eq=False)
class Order:
    """The order of the trajectories of a log: its calendar, from 0 for the earliest to 1 for the latest.

    Attributes
    ----------
    moments : array of shape (m,)
        The different entries of the calendar, rising.
    ranks : array of shape (m,)
        The share of the trajectories that are earlier, with half of those at the same moment.

    Examples
    --------
    >>> order = Order.of(np.array([3.0, 1.0, 3.0, 7.0]))
    >>> order.at(np.array([1.0, 3.0, 5.0]))
    array([0.125 , 0.5   , 0.6875])
    """

    moments: Float
    ranks: Float

    @classmethod
    def of(cls, calendar: Float) -> Order:
        """The order of a calendar, (n,)."""
        moments, counts = np.unique(calendar, return_counts=True)
        return cls(moments, (np.cumsum(counts) - counts / 2) / len(calendar))

    def at(self, calendar: Float) -> Float:
        """Ranks of the moments of a calendar, between those of its neighbours where it is new, (n,)."""
        return np.interp(calendar, self.moments, self.ranks)

    def waves(self, calendar: Float) -> Float:
        r"""The cosines :math:`\cos(\pi k r)` of the ranks, k from 1 to 6, (n, 6)."""
        return np.cos(np.pi * np.arange(1, WAVES + 1) * self.at(calendar)[:, None])


def in_file_order(data: Trajectories) -> bool:
    """Whether a calendar only counts the trajectories in their order, as it does where none was given."""
    calendar = data.calendar if data.place is None else data.calendar[np.argsort(data.place)]
    whole: Int = calendar.astype(np.int64)
    return bool((whole == calendar).all() and (np.diff(whole) > 0).all())
