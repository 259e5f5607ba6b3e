"""A zoo of behaviour policies with known probabilities: 25 actions, and a shape that suits one model or another.

Softmax-linear ones suit a logistic regression, threshold protocols a forest, a rough policy on a curved surface
neighbours or a forest; a protocol that is often departed from tempts a flexible model into overconfidence; sites
that nobody wrote down are the hidden variable behind confounding. Which calibration number ranks the models as the
truth does is asked here, because the truth is known.

States do not depend on actions: every trajectory is a stationary autoregression with a standard normal law at each
step, z' = c z + sqrt(1 - c^2) noise, so a single state has the law of independent draws, and c = 0 gives those. The
reward of a step is the sum of the features / sqrt(d), plus a number that rises from -1 for action 0 to 1 for action
24, plus the number of the hidden site, centred.

All constants are in sight below. They were chosen so that the entropy of each policy and its distance from the
marginal are near those of a prototype (mean negative log-likelihood of the truth, total variation between truth and
marginal): linear d=50 1.83 and .59, linear d=10 1.86 and .57, protocol 2.26 and .52, local 1.97 and .61.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories

N_ACTIONS = 25

SLOPE, INTERCEPT = (
    2.0,
    0.9,
)  # linear: standard deviations of a logit over states, and of its mean over actions
RULES, CELL, COMMON = (
    4,
    1.6,
    0.3,
)  # protocol: thresholds; spread of logits within a cell, and common to all cells
BUMPS, WIDTH, HEIGHT = 60, 0.1, 2.4  # local: centres on the surface, width of each, spread of its logits
OFF_SURFACE = 0.1  # local: standard deviation of a state around the surface
FOLLOWED = 0.6  # overconfident: share of the decisions that follow the protocol to the letter
SITES, HABIT = 3, 1.5  # sites: how many, and the spread of the logits that are a site's own

Rule = Callable[[Float], Float]


@dataclass(frozen=True, eq=False)
class ZooPolicy:
    """A policy whose probabilities are known, with the law of the states it is met in.

    Where sites differ, :meth:`predict_proba` is what can be known from a state alone: the mean over the sites.
    """

    name: str
    n_features: int
    rules: tuple[Rule, ...]  # states (N, d) -> probabilities (N, 25); one for each hidden site
    embed: Rule | None = None  # standard normal (N, d) -> states (N, d); None leaves them as they are

    @cached_property
    def classes_(self) -> Int:
        """All actions, 0 to 24."""
        return np.arange(N_ACTIONS)

    def predict_proba(self, X: ArrayLike) -> Float:
        """True probability of every action in every state, (N, 25)."""
        x = self._checked(X)
        return np.mean([rule(x) for rule in self.rules], axis=0)

    def at_site(self, X: ArrayLike, site: Int) -> Float:
        """Probabilities once the hidden site of every row is known, (N, 25)."""
        x = self._checked(X)
        return np.stack([rule(x) for rule in self.rules])[site, np.arange(len(x))]

    def _checked(self, X: ArrayLike) -> Float:
        x = np.asarray(X, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.n_features or not np.isfinite(x).all():
            raise ValueError(
                f"{self.name} needs finite states with {self.n_features} features, got shape {x.shape}"
                f"{'' if np.isfinite(x).all() else ' with entries that are not finite'}."
            )
        return x


def linear(d: int = 50, *, rng: int | np.random.Generator) -> ZooPolicy:
    r"""Softmax of linear scores: what a logistic regression can be.

    .. math:: \pi(a \mid x) \propto \exp(b_a + w_a^\top x),\quad w_a \sim N(0, 2^2 I / d),\ b_a \sim N(0, 0.9^2)
    """
    _check_features(d, 1)
    rng = np.random.default_rng(rng)
    return ZooPolicy(f"linear d={d}", d, (_Softmax(*_weights(d, rng)),))


def protocol(d: int = 20, *, rng: int | np.random.Generator) -> ZooPolicy:
    r"""Thresholds: the signs of the first four features make 16 cells, and each cell has its own distribution.

    Its logits are :math:`N(0, 1.6^2)` and a part common to all cells, :math:`N(0, 0.3^2)`. The other features say
    nothing.
    """
    _check_features(d, RULES)
    rng = np.random.default_rng(rng)
    common = rng.normal(scale=COMMON, size=N_ACTIONS)
    table = softmax(rng.normal(scale=CELL, size=(2**RULES, N_ACTIONS)) + common, axis=1)
    return ZooPolicy(f"protocol d={d}", d, (_Cells(table),))


def local(d: int = 20, *, rng: int | np.random.Generator) -> ZooPolicy:
    r"""Rough on a surface: neighbours are treated alike, and there are two dimensions to be near in.

    Sixty centres :math:`c_k \sim N(0, I_2)` with logits :math:`h_k \sim N(0, 2.4^2 I)`; at a point u of the surface

    .. math:: \pi(\cdot \mid u) = \mathrm{softmax}\Bigl(\sum_k K_k h_k \Bigr),\quad
        K_k \propto \exp(-\lVert u - c_k\rVert^2 / (2 \cdot 0.1^2)),\ \sum_k K_k = 1

    The surface is (u, sin(u f + phase)) in d dimensions, f standard normal, turned at random, with noise of
    standard deviation 0.1 off it.
    """
    _check_features(d, 3)
    rng = np.random.default_rng(rng)
    surface = _Surface(
        rng.normal(size=(2, d - 2)),
        rng.uniform(0, 2 * np.pi, size=d - 2),
        np.linalg.qr(rng.normal(size=(d, d)))[0],
    )
    bumps = _Bumps(
        rng.normal(size=(BUMPS, 2)), rng.normal(scale=HEIGHT, size=(BUMPS, N_ACTIONS)), surface.basis[:, :2]
    )
    return ZooPolicy(f"local d={d}", d, (bumps,), embed=surface)


def overconfident(d: int = 20, *, rng: int | np.random.Generator) -> ZooPolicy:
    r"""A protocol with one right action in each of 16 cells, followed in 60 of 100 decisions.

    The rest are drawn from one distribution whatever the state, softmax of :math:`N(0, 0.9^2)`: noise that a
    flexible model learns by heart, and is then sure of.
    """
    _check_features(d, RULES)
    rng = np.random.default_rng(rng)
    noise = softmax(rng.normal(scale=INTERCEPT, size=N_ACTIONS))
    right = np.eye(N_ACTIONS)[rng.integers(N_ACTIONS, size=2**RULES)]
    return ZooPolicy(f"overconfident d={d}", d, (_Cells(FOLLOWED * right + (1 - FOLLOWED) * noise),))


def sites(d: int = 10, *, rng: int | np.random.Generator) -> ZooPolicy:
    """Three hidden sites with habits of their own: the same slopes, and intercepts that differ by N(0, 1.5^2).

    A trajectory stays at its site, which also shifts the reward: a confounder. Given the state alone the policy
    is the mean over the sites; but steps of a trajectory are then not independent, so tests that take them to be
    will reject even the truth.
    """
    _check_features(d, 1)
    rng = np.random.default_rng(rng)
    slopes, intercept = _weights(d, rng)
    own = rng.normal(scale=HABIT, size=(SITES, N_ACTIONS))
    return ZooPolicy(f"sites d={d}", d, tuple(_Softmax(slopes, intercept + habit) for habit in own))


MEMBERS: tuple[Callable[..., ZooPolicy], ...] = (
    linear,
    partial(linear, 10),
    protocol,
    local,
    overconfident,
)
"""Makers of the policies without a hidden site; each takes ``rng``."""


def simulate(
    policy: ZooPolicy,
    n: int,
    *,
    rng: int | np.random.Generator,
    length: int = 10,
    correlation: float = 0.8,
) -> Trajectories:
    """Log n trajectories of ``length`` steps under a policy of the zoo.

    ``correlation`` is that of a feature between one step and the next. Columns: ``behaviour`` (true probability of
    the logged action, given the site), ``site`` (hidden; 0 where there is one only) and ``time``.

    Examples
    --------
    >>> simulate(linear(10, rng=0), 600, rng=1)
    Trajectories(600 trajectories of 10 steps, 6000 steps, 10 features, 25 actions)
    """
    if n < 1 or length < 1 or not 0 <= correlation < 1:
        raise ValueError(
            "need n >= 1 trajectories, length >= 1 and a correlation from 0 and below 1, "
            f"got n={n}, length={length} and correlation={correlation}."
        )
    rng = np.random.default_rng(rng)
    normal = _autoregression(rng.standard_normal((n, length, policy.n_features)), correlation)
    states = normal if policy.embed is None else policy.embed(normal)
    site = np.repeat(rng.integers(len(policy.rules), size=n), length)
    proba = policy.at_site(states, site)
    actions = rng.multinomial(1, proba).argmax(axis=1)
    return Trajectories(
        states,
        actions,
        _rewards(states, actions, site - (len(policy.rules) - 1) / 2),
        np.arange(0, n * length + 1, length),
        n_actions=N_ACTIONS,
        columns={
            "behaviour": proba[np.arange(len(actions)), actions],
            "site": site,
            "time": np.tile(np.arange(length), n),
        },
    )


def true_probabilities(data: Trajectories, policy: ZooPolicy) -> Float:
    """Probability of every action at every step, given the site where there are several, (N, 25)."""
    return policy.at_site(data.states, data["site"])


def _autoregression(noise: Float, correlation: float) -> Float:
    """Standard normal noise (n, T, d) -> states (n T, d), each standard normal, correlated along T."""
    for t in range(1, noise.shape[1]):
        noise[:, t] = correlation * noise[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
    return noise.reshape(-1, noise.shape[2])


def _rewards(states: Float, actions: Int, shift: Float) -> Float:
    effect = np.linspace(-1, 1, N_ACTIONS)
    return states.sum(axis=1) / np.sqrt(states.shape[1]) + effect[actions] + shift


def _check_features(d: int, least: int) -> None:
    if d < least:
        raise ValueError(f"this policy needs at least {least} feature{'s' * (least > 1)}, got d={d}.")


def _weights(d: int, rng: np.random.Generator) -> tuple[Float, Float]:
    slopes = rng.normal(scale=SLOPE / np.sqrt(d), size=(d, N_ACTIONS))
    return slopes, rng.normal(scale=INTERCEPT, size=N_ACTIONS)


@dataclass(frozen=True, eq=False)
class _Softmax:
    slopes: Float  # (d, A)
    intercept: Float  # (A,)

    def __call__(self, x: Float) -> Float:
        return np.asarray(softmax(x @ self.slopes + self.intercept, axis=1))


@dataclass(frozen=True, eq=False)
class _Cells:
    table: Float  # (2^rules, A)

    def __call__(self, x: Float) -> Float:
        return self.table[(x[:, :RULES] > 0) @ 2 ** np.arange(RULES)]


@dataclass(frozen=True, eq=False)
class _Surface:
    frequencies: Float  # (2, d - 2)
    phases: Float  # (d - 2,)
    basis: Float  # (d, d), orthonormal

    def __call__(self, normal: Float) -> Float:
        curved = np.sin(normal[:, :2] @ self.frequencies + self.phases) + OFF_SURFACE * normal[:, 2:]
        return np.concatenate([normal[:, :2], curved], axis=1) @ self.basis.T


@dataclass(frozen=True, eq=False)
class _Bumps:
    centres: Float  # (K, 2)
    heights: Float  # (K, A)
    plane: Float  # (d, 2): a state times this is its point on the surface

    def __call__(self, x: Float) -> Float:
        squared = ((x @ self.plane)[:, None, :] - self.centres) ** 2
        near = softmax(-squared.sum(axis=2) / (2 * WIDTH**2), axis=1)
        return np.asarray(softmax(near @ self.heights, axis=1))
