r"""The toy map of section 3 of Raghu et al. (2018): a walk in a square, and the value of any policy in it.

Five actions move one unit left, right, down or up, or stay. Gaussian noise is added after each action, and walls keep
the walker inside. It starts in the top left corner, earns a reward at the end of each step that leads within a
radius of the top right corner, and a penalty within the same radius of the bottom left one. Nothing ends an episode
but the horizon of 15 steps.

The paper gives the shape and the horizon; the other constants are ours: side 6, radius 2, reward +1, penalty -1,
noise of standard deviation 0.3 in each coordinate (:class:`Map`). Policies are compasses: they prefer the moves that
point to a goal,

.. math:: \pi(a \mid s) \propto \exp\Bigl(\kappa\, \frac{m_a \cdot (g - s)}{\sqrt{1 + \lVert g - s \rVert^2}}\Bigr)

with :math:`m_a` the move, :math:`g` the goal and :math:`\kappa` the sharpness. Values are undiscounted:

=================  ==========================  ========  =========  =====
policy             part                        goal      sharpness  value
=================  ==========================  ========  =========  =====
:data:`HEADING`    target policy               (6, 6)    1.25       5.325
:data:`ROAMING`    behaviour policy            (6, 6)    0.75       2.588
:data:`ASTRAY`     behaviour policy, farther   (6, 4)    0.75       1.575
=================  ==========================  ========  =========  =====

With the true probabilities the effective sample size is 0.42 of the walks under ROAMING, and 0.04 under ASTRAY.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, roots_legendre, softmax

from caliope._policies import Policy, action_probabilities
from caliope._ragged import Float, Int, at_actions
from caliope._trajectories import Trajectories
from caliope._validation import check_gamma

ACTIONS = ("left", "right", "down", "up", "stay")
MOVES = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0], [0.0, 0.0]])

# Radius of a disc in standard deviations of the noise, up to which values are computed.
_FINEST = 100


@dataclass(frozen=True)
class Map:
    """The constants of the map.

    Parameters
    ----------
    size : float
        Side of the square; (0, 0) is the bottom left corner.
    radius : float
        Radius of the discs around the top right and the bottom left corner.
    noise : float
        Standard deviation added to each coordinate after each action.
    reward, penalty : float
        For each step that ends within the radius of the top right, or the bottom left, corner.
    horizon : int
        Number of steps.

    Examples
    --------
    >>> Map(noise=0.5).start.tolist()
    [0.0, 6.0]
    """

    size: float = 6.0
    radius: float = 2.0
    noise: float = 0.3
    reward: float = 1.0
    penalty: float = -1.0
    horizon: int = 15

    def __post_init__(self) -> None:
        if not (0 < self.radius < self.size and self.noise > 0 and self.horizon >= 1):
            raise ValueError(
                "a map needs a radius between 0 and its size, noise above 0 and a horizon from 1; "
                f"got radius={self.radius}, size={self.size}, noise={self.noise} and horizon={self.horizon}."
            )

    @property
    def start(self) -> Float:
        """The top left corner."""
        return np.array([0.0, self.size])

    def rewards(self, arrived: Float) -> Float:
        """Return the reward of each place (N, 2) where a step ends, (N,)."""
        near_goal = ((arrived - self.size) ** 2).sum(axis=1) <= self.radius**2
        near_trap = (arrived**2).sum(axis=1) <= self.radius**2
        return self.reward * near_goal + self.penalty * near_trap


MAP = Map()


@dataclass(frozen=True)
class Compass:
    """A policy that prefers moves towards a goal.

    Parameters
    ----------
    goal : (float, float)
        Place on the map.
    sharpness : float
        Strength of the preference; 0 is the uniform policy.

    Examples
    --------
    >>> Compass((6.0, 6.0), 0.0).predict_proba([[0.0, 0.0]]).round(6).tolist()
    [[0.2, 0.2, 0.2, 0.2, 0.2]]
    """

    goal: tuple[float, float]
    sharpness: float

    @cached_property
    def classes_(self) -> Int:
        """The five actions."""
        return np.arange(len(ACTIONS))

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probability of each action at each place, (N, 5)."""
        x = np.asarray(X, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != 2 or not np.isfinite(x).all():
            raise ValueError(f"a place on the map is two finite numbers, got states of shape {x.shape}.")
        away = np.asarray(self.goal) - x
        pull = away / np.sqrt(1 + (away**2).sum(axis=1, keepdims=True))
        return np.asarray(softmax(self.sharpness * pull @ MOVES.T, axis=1))


ROAMING = Compass((6.0, 6.0), 0.75)
"""A behaviour policy close to the target policy."""

ASTRAY = Compass((6.0, 4.0), 0.75)
"""A behaviour policy farther from the target policy: its goal is below the reward."""

HEADING = Compass((6.0, 6.0), 1.25)
"""The target policy."""


def simulate(n: int, *, policy: Policy, rng: int | np.random.Generator, world: Map = MAP) -> Trajectories:
    """Simulate a log of a policy.

    Parameters
    ----------
    n : int
        Number of walks.
    policy : Policy
        The behaviour policy.
    rng : int or Generator
        Seed.
    world : Map
        Constants of the map.

    Returns
    -------
    Trajectories
        With columns ``behaviour``, the probability of each logged action, and ``time``.

    Examples
    --------
    >>> simulate(100, policy=ROAMING, rng=0)
    Trajectories(100 trajectories of 15 steps, 1500 steps, 2 features, 5 actions)
    """
    if n < 1:
        raise ValueError(f"need n >= 1 walks, got {n}.")
    rng = np.random.default_rng(rng)
    place, steps = np.tile(world.start, (n, 1)), []
    for _ in range(world.horizon):
        proba = action_probabilities(policy, place, len(ACTIONS))
        action = rng.multinomial(1, proba / proba.sum(axis=1, keepdims=True)).argmax(axis=1)
        arrived = np.clip(place + MOVES[action] + world.noise * rng.standard_normal((n, 2)), 0, world.size)
        steps.append((place, action, world.rewards(arrived), at_actions(proba, action)))
        place = arrived
    # Stacked along time within each walk: (n, T, ...) -> (n T, ...).
    states, actions, rewards, chance = (np.stack(each, axis=1) for each in zip(*steps, strict=True))
    return Trajectories(
        states.reshape(-1, 2),
        actions.ravel(),
        rewards.ravel(),
        np.arange(0, n * world.horizon + 1, world.horizon),
        n_actions=len(ACTIONS),
        terminated=np.ones(n, dtype=bool),
        columns={"behaviour": chance.ravel(), "time": np.tile(np.arange(world.horizon), n)},
        feature_names=["x", "y"],
    )


def value(policy: Policy, *, gamma: float = 1.0, world: Map = MAP, points: int = 32) -> float:
    r"""Compute the value of a policy on the map, by dynamic programming on a grid.

    .. math:: V_t(s) = \sum_a \pi(a \mid s)\, \mathbb E\bigl[r(s') + \gamma V_{t+1}(s')\bigr],\quad
        s' = \mathrm{clip}(s + m_a + \sigma \varepsilon)

    The expected reward is exact (a one-dimensional quadrature whose integrand is analytic). The expectation of V
    is exact for the bilinear interpolant of its values on the grid, walls included. The interpolation is the
    only error: of second order for a policy that is smooth in the state, of first order for one that jumps
    (a forest). :func:`value_error` measures it.

    Parameters
    ----------
    policy : Policy
        Any policy of places on the map.
    gamma : float
        Discount in [0, 1].
    world : Map
        Constants of the map.
    points : int
        Points of the grid per unit of length.

    Returns
    -------
    float
        Expected discounted return.

    Examples
    --------
    >>> round(value(HEADING, points=16), 2)
    5.32
    """
    check_gamma(gamma)
    if world.radius > _FINEST * world.noise:
        raise ValueError(
            f"values need noise of at least a hundredth of the radius, {world.radius / _FINEST}, to be resolved; "
            f"got {world.noise}."
        )
    x = _grid(world, points)
    u = np.concatenate([x[:points] - 1, x, x[-points:] + 1])  # a unit beyond the walls: where moves point to
    earned = world.reward * _in_disc(u, world) + world.penalty * _in_disc(world.size - u, world)
    kernel = _clipped_gaussian(u, x, world.noise)
    places = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    proba = action_probabilities(policy, places, len(ACTIONS)).reshape(len(x), len(x), len(ACTIONS))
    v = np.zeros((len(x), len(x)))
    for _ in range(world.horizon):
        ahead = earned + gamma * kernel @ v @ kernel.T
        v = sum(
            (proba[:, :, a] * _shift(ahead, move, points, len(x)) for a, move in enumerate(MOVES)),
            start=np.zeros_like(v),
        )
    return float(v[0, -1])


def value_error(policy: Policy, *, gamma: float = 1.0, world: Map = MAP, points: int = 32) -> float:
    """Bound the error of :func:`value` by the difference to a grid twice as coarse.

    The difference is three times the error for a smooth policy, and about the error itself for one that jumps.

    Parameters
    ----------
    policy, gamma, world
        As in :func:`value`.
    points : int
        Points of the finer grid per unit of length; even.

    Returns
    -------
    float
        Absolute difference.

    Examples
    --------
    >>> value_error(HEADING, points=16) < 0.01
    True
    """
    if points % 2:
        raise ValueError(f"points must be even to be halved, got {points}.")
    fine, coarse = (value(policy, gamma=gamma, world=world, points=p) for p in (points, points // 2))
    return abs(fine - coarse)


def _grid(world: Map, points: int) -> Float:
    cells = round(world.size * points)
    if points < 1 or not np.isclose(cells, world.size * points):
        raise ValueError(
            f"a grid of {points} points per unit does not end at a wall of a map of size {world.size}."
        )
    return np.arange(cells + 1) / points


def _shift(ahead: Float, move: Float, points: int, width: int) -> Float:
    """Return the window of a padded table that lies one move away."""
    i, j = (points + (points * move)).astype(int)
    return ahead[i : i + width, j : j + width]


def _clipped_gaussian(u: Float, x: Float, sd: float) -> Float:
    r"""Compute weights of the nodes x_j in the mean of an interpolant at clip(u + sd * noise), (len(u), len(x)).

    Sums of the weights up to j are :math:`E[\min(1, (x_{j+1} - X)^+ / h)]`, a difference of
    :math:`E[(c - X)^+] = \sigma (z \Phi(z) + \varphi(z))`.
    """
    z = (x - u[:, None]) / sd
    below = sd * (z * ndtr(z) + np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))
    cumulative = np.diff(below, axis=1) / (x[1] - x[0])
    return np.diff(cumulative, axis=1, prepend=0.0, append=1.0)


def _in_disc(u: Float, world: Map) -> Float:
    r"""Compute the chance that clip((u_i, u_j) + noise) is within the radius of the top right corner, (len(u), len(u)).

    At the angle :math:`\theta` the disc reaches :math:`r \sin\theta` to the left and :math:`r \cos\theta` down;
    everything beyond the right wall is at the wall.
    """
    # The integrand is a Gaussian whose width is noise / radius: sixteen angles to each width resolve it.
    node, weight = roots_legendre(50 + int(25 * world.radius / world.noise))
    theta, weight = (node + 1) * np.pi / 4, weight * np.pi / 4
    left, down = world.radius * np.sin(theta), world.radius * np.cos(theta)
    z = (world.size - left - u[:, None]) / world.noise
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) / world.noise
    above = ndtr((u[:, None] - world.size + down) / world.noise)
    at_wall = ndtr((u - world.size) / world.noise)[:, None] * ndtr(
        (u - world.size + world.radius) / world.noise
    )
    return (density * weight * down) @ above.T + at_wall
