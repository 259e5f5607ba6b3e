r"""The map of section 3 of Raghu et al. (2018): a walk in a square, and the value of any policy in it.

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
:data:`HEADING`    evaluation policy           (6, 6)    1.25       5.325
:data:`ROAMING`    behaviour policy            (6, 6)    0.75       2.588
:data:`ASTRAY`     behaviour policy, farther   (6, 4)    0.75       1.575
=================  ==========================  ========  =========  =====

With the true probabilities the effective sample is 0.42 of the walks under ROAMING, and 0.04 under ASTRAY.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, roots_legendre, softmax

from caliope.policies import Policy, action_probabilities
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories, check_gamma

ACTIONS = ("left", "right", "down", "up", "stay")
MOVES = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0], [0.0, 0.0]])

_FINEST = 100  # radius of a disc in standard deviations of the noise, up to which values are computed


@dataclass(frozen=True)
class Map:
    """Where the walk takes place: its constants."""

    size: float = 6.0  # side of the square; (0, 0) is the bottom left corner
    radius: float = 2.0  # of the discs around the top right and the bottom left corner
    noise: float = 0.3  # standard deviation added to each coordinate after each action
    reward: float = 1.0  # for each step that ends within the radius of the top right corner
    penalty: float = -1.0  # for each step that ends within the radius of the bottom left corner
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
        """What the places (N, 2) at the ends of steps earn, (N,)."""
        near_goal = ((arrived - self.size) ** 2).sum(axis=1) <= self.radius**2
        near_trap = (arrived**2).sum(axis=1) <= self.radius**2
        return self.reward * near_goal + self.penalty * near_trap


MAP = Map()


@dataclass(frozen=True)
class Compass:
    """A policy that prefers the moves which point to a goal, the more so the larger ``sharpness``."""

    goal: tuple[float, float]
    sharpness: float

    @cached_property
    def classes_(self) -> Int:
        """The five actions."""
        return np.arange(len(ACTIONS))

    def predict_proba(self, X: ArrayLike) -> Float:
        """Probability of each action at each place, (N, 5)."""
        x = np.asarray(X, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != 2 or not np.isfinite(x).all():
            raise ValueError(f"a place on the map is two finite numbers, got states of shape {x.shape}.")
        away = np.asarray(self.goal) - x
        pull = away / np.sqrt(1 + (away**2).sum(axis=1, keepdims=True))
        return np.asarray(softmax(self.sharpness * pull @ MOVES.T, axis=1))


ROAMING = Compass((6.0, 6.0), 0.75)
"""A behaviour policy not far from the evaluation policy."""

ASTRAY = Compass((6.0, 4.0), 0.75)
"""A behaviour policy farther from it: drawn to a place below the reward."""

HEADING = Compass((6.0, 6.0), 1.25)
"""The evaluation policy."""


def simulate(n: int, *, policy: Policy, rng: int | np.random.Generator, world: Map = MAP) -> Trajectories:
    """Log n walks under a policy; column ``behaviour`` holds the probability of each logged action.

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
        steps.append((place, action, world.rewards(arrived), proba[np.arange(n), action]))
        place = arrived
    # Stacked along time within each walk: (n, T, ...) -> (n T, ...).
    states, actions, rewards, chance = (np.stack(each, axis=1) for each in zip(*steps, strict=True))
    return Trajectories(
        states.reshape(-1, 2),
        actions.ravel(),
        rewards.ravel(),
        np.arange(0, n * world.horizon + 1, world.horizon),
        n_actions=len(ACTIONS),
        columns={"behaviour": chance.ravel(), "time": np.tile(np.arange(world.horizon), n)},
        feature_names=["x", "y"],
    )


def value(policy: Policy, *, gamma: float = 1.0, world: Map = MAP, points: int = 32) -> float:
    r"""Value of a policy on the map, by dynamic programming on a grid of ``points`` a unit.

    .. math:: V_t(s) = \sum_a \pi(a \mid s)\, \mathbb E\bigl[r(s') + \gamma V_{t+1}(s')\bigr],\quad
        s' = \mathrm{clip}(s + m_a + \sigma \varepsilon)

    The expected reward is exact (a one-dimensional quadrature whose integrand is analytic). The expectation of V
    is exact for the bilinear interpolant of its values on the grid, walls included: the interpolation is the
    only error, of second order for a policy that is smooth in the state and of first order for one that jumps
    (a forest). :func:`value_error` measures it.
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
            (proba[:, :, a] * _shifted(ahead, move, points, len(x)) for a, move in enumerate(MOVES)),
            start=np.zeros_like(v),
        )
    return float(v[0, -1])


def value_error(policy: Policy, *, gamma: float = 1.0, world: Map = MAP, points: int = 32) -> float:
    """How far :func:`value` may be from the truth: its distance from the value on a grid twice as coarse.

    That distance is three times the error where the error falls with the square of the spacing, and once the
    error where it falls with the spacing itself.
    """
    if points % 2:
        raise ValueError(f"points must be even to be halved, got {points}.")
    fine, coarse = (value(policy, gamma=gamma, world=world, points=p) for p in (points, points // 2))
    return abs(fine - coarse)


def _grid(world: Map, points: int) -> Float:
    cells = round(world.size * points)
    if points < 1 or not np.isclose(cells, world.size * points):
        raise ValueError(
            f"a grid of {points} points a unit does not end at a wall of a map of size {world.size}."
        )
    return np.arange(cells + 1) / points


def _shifted(ahead: Float, move: Float, points: int, width: int) -> Float:
    """The window of a padded table that lies one move away."""
    i, j = (points + (points * move)).astype(int)
    return ahead[i : i + width, j : j + width]


def _clipped_gaussian(u: Float, x: Float, sd: float) -> Float:
    r"""Weight of the node x_j in the expectation of an interpolant at clip(u + sd * noise), (len(u), len(x)).

    Sums of the weights up to j are :math:`E[\min(1, (x_{j+1} - X)^+ / h)]`, a difference of
    :math:`E[(c - X)^+] = \sigma (z \Phi(z) + \varphi(z))`.
    """
    z = (x - u[:, None]) / sd
    below = sd * (z * ndtr(z) + np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))
    cumulative = np.diff(below, axis=1) / (x[1] - x[0])
    return np.diff(cumulative, axis=1, prepend=0.0, append=1.0)


def _in_disc(u: Float, world: Map) -> Float:
    r"""Chance that clip((u_i, u_j) + noise) is within the radius of the top right corner, (len(u), len(u)).

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
