"""A simulated hospital ward: the example data of the package, and its exact values.

Patients have a severity from 0 to 4 and receive every four hours no treatment, a low dose or a high dose, for
at most two days. They are discharged when they improve from severity 0, and die when they worsen from 4. The
return is 1 for a patient discharged alive within two days. ``ward.csv`` beside this file is
``simulate(1000, rng=0)``, written without the probabilities: as in life. ``caliope simulate ward`` writes it with
those of a new policy, as an example for ``caliope evaluate``.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from caliope._ragged import Float
from caliope._trajectories import Trajectories
from caliope.domains.tabular import TabularMDP

SEVERITIES = 5
DISCHARGED, DEAD = 5, 6
DOSES = ("none", "low", "high")

# Chance to improve and to worsen within four hours: one row per severity, one column per dose.
_BETTER = np.array(
    [[0.34, 0.44, 0.32], [0.24, 0.44, 0.34], [0.15, 0.40, 0.36], [0.09, 0.30, 0.34], [0.05, 0.18, 0.30]]
)
_WORSE = np.array(
    [[0.14, 0.09, 0.18], [0.24, 0.12, 0.18], [0.30, 0.15, 0.18], [0.36, 0.22, 0.20], [0.32, 0.24, 0.20]]
)


def _transitions() -> Float:
    table = np.zeros((SEVERITIES + 2, len(DOSES), SEVERITIES + 2))
    for s in range(SEVERITIES):
        better = s - 1 if s > 0 else DISCHARGED
        worse = s + 1 if s < SEVERITIES - 1 else DEAD
        table[s, :, better] = _BETTER[s]
        table[s, :, worse] = _WORSE[s]
        table[s, :, s] = 1 - _BETTER[s] - _WORSE[s]
    return table


def _softmax_policy(preference: Float) -> Float:
    """Compute the softmax of preferences (severity, dose); the rows of absorbing states are never used."""
    table = np.exp(np.concatenate([preference, np.zeros((2, len(DOSES)))]))
    return table / table.sum(axis=1, keepdims=True)


_LEVEL = np.arange(SEVERITIES)[:, None]

PRACTICE = _softmax_policy(_LEVEL * np.array([0.0, 0.5, 0.9]) + np.array([0.0, -0.7, -1.8]))
"""Current practice, (7, 3): more treatment for sicker patients."""

EARLIER = _softmax_policy(_LEVEL * np.array([0.0, 0.5, 0.9]) + np.array([0.0, 0.0, -1.4]))
"""A policy close to current practice: the same, but somewhat sooner."""

AGGRESSIVE = _softmax_policy(_LEVEL * np.array([0.0, 0.5, 1.6]) + np.array([0.0, 0.5, 2.5]))
"""A policy far from current practice: the high dose for nearly everyone."""

HIGH = np.tile([0.0, 0.0, 1.0], (SEVERITIES + 2, 1))
"""The policy farthest from current practice: the high dose for everyone, at every step."""

WARD = TabularMDP(
    initial=np.array([0.1, 0.25, 0.3, 0.25, 0.1, 0.0, 0.0]),
    transitions=_transitions(),
    rewards=np.broadcast_to(
        np.arange(SEVERITIES + 2) == DISCHARGED, (SEVERITIES + 2, 3, SEVERITIES + 2)
    ).astype(float),
    absorbing=np.arange(SEVERITIES + 2) >= SEVERITIES,
    horizon=12,
)


def simulate(n: int, *, rng: int | np.random.Generator) -> Trajectories:
    """Simulate a log of current practice.

    Parameters
    ----------
    n : int
        Number of patients.
    rng : int or Generator
        Seed.

    Returns
    -------
    Trajectories
        With columns ``behaviour``, the true probability of each logged action, and ``time``.

    Examples
    --------
    >>> simulate(100, rng=0)
    Trajectories(100 trajectories of 1 to 12 steps, 805 steps, 1 feature, 3 actions)
    """
    return WARD.simulate(PRACTICE, n, rng=rng)


def value(policy: ArrayLike, *, gamma: float = 1.0) -> float:
    """Compute the exact value of a policy: without a discount, the chance to be discharged within two days.

    Parameters
    ----------
    policy : (7, 3)
        Probabilities of the doses for each severity, and two rows that are not used.
    gamma : float
        Discount in [0, 1].

    Returns
    -------
    float
        Expected discounted return.

    Examples
    --------
    >>> round(value(PRACTICE), 3), round(value(EARLIER), 3)
    (0.485, 0.536)
    """
    return WARD.value(policy, gamma)


def csv_path() -> Path:
    """Return the path of the log that comes with the package.

    Returns
    -------
    Path
        A CSV file with one row per decision.

    Examples
    --------
    >>> csv_path().name
    'ward.csv'
    """
    return Path(str(files("caliope.domains").joinpath("ward.csv")))
