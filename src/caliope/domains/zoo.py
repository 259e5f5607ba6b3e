"""A zoo of behaviour policies with 25 actions and known probabilities, each suited to a different model.

Softmax-linear ones suit a logistic regression, threshold protocols a forest, a rough policy on a curved surface
neighbours or a forest. A protocol that is often not followed makes flexible models overconfident, and hidden sites are
unmeasured confounders. The truth is known, so it shows which calibration number ranks models rightly.

States do not depend on actions: every trajectory is a stationary autoregression with a standard normal law at each
step, z' = c z + sqrt(1 - c^2) noise, so a single state has the law of independent draws, and c = 0 gives those. The
reward of a step is the sum of the features / sqrt(d), plus a number that rises from -1 for action 0 to 1 for action
24, plus the number of the hidden site, centred.

The constants below were chosen so that the entropy of each policy and its distance from the
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

from caliope._ragged import Float, Int, at_actions
from caliope._trajectories import Trajectories

N_ACTIONS = 25

# linear: standard deviations of a logit over states, and of its mean over actions.
SLOPE, INTERCEPT = 2.0, 0.9
# protocol: thresholds; spread of logits within a cell, and common to all cells.
RULES, CELL, COMMON = 4, 1.6, 0.3
# local: centres on the surface, width of each, spread of its logits.
BUMPS, WIDTH, HEIGHT = 60, 0.1, 2.4
# local: standard deviation of a state around the surface.
OFF_SURFACE = 0.1
# overconfident: share of the decisions that follow the protocol exactly.
FOLLOWED = 0.6
# sites: how many, and the spread of the logits that differ between sites.
SITES, HABIT = 3, 1.5

Rule = Callable[[Float], Float]


@dataclass(frozen=True, eq=False)
class ZooPolicy:
    """A policy with known probabilities, and the law of its states.

    Where sites differ, :meth:`predict_proba` is the mean over the sites: what a state alone tells.

    Parameters
    ----------
    name : str
        Name of the policy.
    n_features : int
        Number of features d.
    rules : tuple of callable
        States (N, d) -> probabilities (N, 25), one for each hidden site.
    embed : callable, optional
        Standard normal (N, d) -> states (N, d); by default they stay as they are.

    Examples
    --------
    >>> linear(10, rng=0).predict_proba(np.zeros((2, 10))).shape
    (2, 25)
    """

    name: str
    n_features: int
    rules: tuple[Rule, ...]
    embed: Rule | None = None

    @cached_property
    def classes_(self) -> Int:
        """All actions, 0 to 24."""
        return np.arange(N_ACTIONS)

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the true probability of every action in every state, (N, 25)."""
        x = self._check_states(X)
        return np.mean([rule(x) for rule in self.rules], axis=0)

    def at_site(self, X: ArrayLike, site: Int) -> Float:
        """Return the probabilities given the hidden site of every row, (N, 25)."""
        x = self._check_states(X)
        return np.stack([rule(x) for rule in self.rules])[site, np.arange(len(x))]

    def _check_states(self, X: ArrayLike) -> Float:
        x = np.asarray(X, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.n_features or not np.isfinite(x).all():
            raise ValueError(
                f"{self.name} needs finite states with {self.n_features} features, got shape {x.shape}"
                f"{'' if np.isfinite(x).all() else ' with entries that are not finite'}."
            )
        return x


def linear(d: int = 50, *, rng: int | np.random.Generator) -> ZooPolicy:
    r"""Make a softmax of linear scores, which a logistic regression can represent.

    .. math:: \pi(a \mid x) \propto \exp(b_a + w_a^\top x),\quad w_a \sim N(0, 2^2 I / d),\ b_a \sim N(0, 0.9^2)

    Parameters
    ----------
    d : int
        Number of features.
    rng : int or Generator
        Seed.

    Returns
    -------
    ZooPolicy
        The policy.

    Examples
    --------
    >>> linear(10, rng=0).name
    'linear d=10'
    """
    _check_features(d, 1)
    rng = np.random.default_rng(rng)
    return ZooPolicy(f"linear d={d}", d, (_Softmax(*_weights(d, rng)),))


def protocol(d: int = 20, *, rng: int | np.random.Generator) -> ZooPolicy:
    r"""Make a policy of thresholds: each of 16 cells by the signs of the first four features has its distribution.

    Its logits are :math:`N(0, 1.6^2)` and a part common to all cells, :math:`N(0, 0.3^2)`. The other features do not
    matter.

    Parameters
    ----------
    d : int
        Number of features.
    rng : int or Generator
        Seed.

    Returns
    -------
    ZooPolicy
        The policy.

    Examples
    --------
    >>> protocol(rng=0).name
    'protocol d=20'
    """
    _check_features(d, RULES)
    rng = np.random.default_rng(rng)
    common = rng.normal(scale=COMMON, size=N_ACTIONS)
    table = softmax(rng.normal(scale=CELL, size=(2**RULES, N_ACTIONS)) + common, axis=1)
    return ZooPolicy(f"protocol d={d}", d, (_Cells(table),))


def local(d: int = 20, *, rng: int | np.random.Generator) -> ZooPolicy:
    r"""Make a policy that varies on a two-dimensional surface: near states have similar probabilities.

    Sixty centres :math:`c_k \sim N(0, I_2)` with logits :math:`h_k \sim N(0, 2.4^2 I)`; at a point u of the surface

    .. math:: \pi(\cdot \mid u) = \mathrm{softmax}\Bigl(\sum_k K_k h_k \Bigr),\quad
        K_k \propto \exp(-\lVert u - c_k\rVert^2 / (2 \cdot 0.1^2)),\ \sum_k K_k = 1

    The surface is (u, sin(u f + phase)) in d dimensions, f standard normal, turned at random, with noise of
    standard deviation 0.1 off it.

    Parameters
    ----------
    d : int
        Number of features.
    rng : int or Generator
        Seed.

    Returns
    -------
    ZooPolicy
        The policy.

    Examples
    --------
    >>> local(rng=0).name
    'local d=20'
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
    r"""Make a protocol with one action in each of 16 cells, followed in 60 of 100 decisions.

    The rest are drawn from one distribution whatever the state, softmax of :math:`N(0, 0.9^2)`: noise to which a
    flexible model overfits.

    Parameters
    ----------
    d : int
        Number of features.
    rng : int or Generator
        Seed.

    Returns
    -------
    ZooPolicy
        The policy.

    Examples
    --------
    >>> overconfident(rng=0).name
    'overconfident d=20'
    """
    _check_features(d, RULES)
    rng = np.random.default_rng(rng)
    noise = softmax(rng.normal(scale=INTERCEPT, size=N_ACTIONS))
    right = np.eye(N_ACTIONS)[rng.integers(N_ACTIONS, size=2**RULES)]
    return ZooPolicy(f"overconfident d={d}", d, (_Cells(FOLLOWED * right + (1 - FOLLOWED) * noise),))


def sites(d: int = 10, *, rng: int | np.random.Generator) -> ZooPolicy:
    """Make three hidden sites: softmax of linear scores with intercepts that differ by N(0, 1.5^2).

    A trajectory stays at its site, which also shifts the reward: an unmeasured confounder. Given the state alone the
    policy is the mean over the sites. Steps of a trajectory are then not independent, so tests that assume
    independence reject even the truth.

    Parameters
    ----------
    d : int
        Number of features.
    rng : int or Generator
        Seed.

    Returns
    -------
    ZooPolicy
        The policy.

    Examples
    --------
    >>> len(sites(rng=0).rules)
    3
    """
    _check_features(d, 1)
    rng = np.random.default_rng(rng)
    slopes, intercept = _weights(d, rng)
    own = rng.normal(scale=HABIT, size=(SITES, N_ACTIONS))
    return ZooPolicy(f"sites d={d}", d, tuple(_Softmax(slopes, intercept + habit) for habit in own))


MEMBERS: tuple[Callable[..., ZooPolicy], ...] = (linear, partial(linear, 10), protocol, local, overconfident)
"""Functions that make the policies without hidden sites; each takes ``rng``."""


def simulate(
    policy: ZooPolicy,
    n: int,
    *,
    rng: int | np.random.Generator,
    length: int = 10,
    correlation: float = 0.8,
) -> Trajectories:
    """Simulate a log of a policy of the zoo.

    Parameters
    ----------
    policy : ZooPolicy
        The behaviour policy.
    n : int
        Number of trajectories.
    rng : int or Generator
        Seed.
    length : int
        Steps per trajectory.
    correlation : float
        Correlation of a feature between one step and the next, from 0 and below 1.

    Returns
    -------
    Trajectories
        Columns ``behaviour`` (true probability of the logged action, given the site), ``site`` (hidden; 0 where
        there is only one) and ``time``.

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
    rewards = _rewards(states, actions, site - (len(policy.rules) - 1) / 2)
    offsets, time = np.arange(0, n * length + 1, length), np.tile(np.arange(length), n)
    columns = {"behaviour": at_actions(proba, actions), "site": site, "time": time}
    log = Trajectories(states, actions, rewards, offsets, n_actions=N_ACTIONS, columns=columns)
    return log.replace(terminated=np.ones(n, dtype=bool))


def true_probabilities(data: Trajectories, policy: ZooPolicy) -> Float:
    """Return the true probability of every action at every step, given the hidden site.

    Parameters
    ----------
    data : Trajectories
        A log from :func:`simulate`.
    policy : ZooPolicy
        Its behaviour policy.

    Returns
    -------
    (N, 25)
        Probabilities.

    Examples
    --------
    >>> policy = sites(rng=0)
    >>> data = simulate(policy, 10, rng=1)
    >>> true_probabilities(data, policy).shape
    (100, 25)
    """
    return policy.at_site(data.states, data["site"])


def _autoregression(noise: Float, correlation: float) -> Float:
    """Turn standard normal noise (n, T, d) into states (n T, d): standard normal, correlated along T."""
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
