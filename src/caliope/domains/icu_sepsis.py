"""The ICU-Sepsis domain: sepsis patients of MIMIC-III as 716 states and 25 actions, with exact values.

The numbers come with the distribution ``icu-sepsis`` (MIT licence, extra ``sepsis``). Only its data file is read:
importing the package would need gym. :func:`simulate` logs noisy measurements of patients and their history;
:func:`value` and :func:`true_probabilities` are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from caliope._ragged import Float, Int, Ragged, read_only
from caliope._trajectories import Trajectories
from caliope._validation import check_gamma
from caliope.domains._sepsis_process import (
    ACTION_NAMES,
    DEATH,
    DOSES,
    FEATURES,
    LEVELS,
    N_ACTIONS,
    OBSERVED,
    SINK,
    SURVIVAL,
    IcuSepsis,
    load,
    observed_centres,
    policy_table,
    survival_chance,
    without_vasopressors,
)
from caliope.domains.tabular import TabularMDP

__all__ = [
    "ACTION_NAMES",
    "DEATH",
    "DOSES",
    "FEATURES",
    "LEVELS",
    "N_ACTIONS",
    "OBSERVED",
    "SINK",
    "SURVIVAL",
]
__all__ += ["Bedside", "IcuSepsis", "evaluation_policies", "load", "optimal", "simulate"]
__all__ += ["true_probabilities", "value", "without_vasopressors"]


# Patients simulated together: their transition rows, 716 numbers each, fit into the cache of the processor.
_PATIENTS = 1024


def simulate(
    n: int,
    *,
    policy: ArrayLike | None = None,
    rng: int | np.random.Generator,
    noise: float = 0.3,
    lags: int = 3,
    cap: int | None = 20,
    shaped: bool = False,
    outcome: tuple[float, float] = (-15.0, 15.0),
) -> Trajectories:
    """Simulate a log of sepsis patients, with one decision every four hours and an outcome.

    A state holds 43 noisy measurements (the features of its hidden state without the doses, which would leak the
    action), and those of the ``lags`` steps before it, each with the two levels given then: 178 columns for three
    lags. Where a patient has no such past, the first measurement is repeated, with levels of 0.

    Parameters
    ----------
    n : int
        Number of patients.
    policy : (716, 25), optional
        The behaviour policy; by default that of the clinicians.
    rng : int or Generator
        Seed.
    noise : float
        Standard deviation of a measurement, in standard deviations of its feature over the states. At 0.3 the
        nearest centre is that of the hidden state in practically every step, at 1 in 85 of 100.
    lags : int
        Steps of history in every state.
    cap : int, optional
        Steps after which the log of a patient stops; None to wait for death or survival. The outcome is then drawn
        from the chance to survive from the next state under the clinicians. So no trajectory is cut off, and values
        stay exact.
    shaped : bool
        Add the intermediate rewards of Raghu et al. (2017) for SOFA and lactate to every step but the last. They
        are computed from the means of the states, with lactate in standard deviations.
    outcome : (float, float)
        Reward of the last step for death and for survival.

    Returns
    -------
    Trajectories
        With float32 states and the columns ``behaviour`` (true probability of the logged action), ``state``
        (hidden: its number), ``sofa`` (hidden: mean score of that state) and ``time``.

    References
    ----------
    Choudhary et al. (2024), "ICU-Sepsis: a benchmark MDP built from real medical data". Raghu et al. (2017),
    "Continuous state-space models for optimal sepsis treatment", for the intermediate rewards. Raghu et al.
    (2018), section 4, for states with three steps of history.

    Examples
    --------
    >>> simulate(100, rng=0)
    Trajectories(100 patients of 1 to 20 steps, 757 steps, 178 features, 25 named actions)
    """
    if n < 1 or lags < 0 or not noise >= 0:
        raise ValueError(f"need n >= 1, lags >= 0 and noise >= 0, got n={n}, lags={lags} and noise={noise}.")
    rng = np.random.default_rng(rng)
    latent = _simulate_states(n, policy_table(policy), _process_until(cap), rng)
    state, layout = latent.states[:, 0].astype(np.int64), latent.layout
    rewards = np.zeros(len(state))
    survived = rng.random(n) < survival_chance()[latent.rewards[layout.last].astype(np.int64)]
    rewards[layout.last] = np.where(survived, outcome[1], outcome[0])
    if shaped:
        rewards += _intermediate_rewards(state, layout)
    measured = _measure(state, noise, rng)
    return Trajectories(
        _with_history(measured, latent.actions, layout, lags=lags),
        latent.actions,
        rewards,
        latent.offsets,
        n_actions=N_ACTIONS,
        terminated=np.ones(len(latent), dtype=bool),
        columns={**latent.columns, "state": state, "sofa": load().sofa[state]},
        feature_names=_feature_names(lags),
        action_names=ACTION_NAMES,
        unit="patient",
    )


def value(
    policy: ArrayLike | None = None,
    *,
    gamma: float,
    cap: int | None = 20,
    shaped: bool = False,
    outcome: tuple[float, float] = (-15.0, 15.0),
) -> float:
    r"""Compute the exact value of a policy in the simulated log: its expected discounted return.

    .. math:: V_t(s) = \sum_{a, s'} \pi(a \mid s) P(s' \mid s, a)
        \begin{cases} o(s') & s' \text{ ends, or } t \text{ is the last step} \\
        c(s, s') + \gamma V_{t+1}(s') \end{cases}

    with :math:`o(s')` the expected outcome from s' under the clinicians, and :math:`c(s, s')` the intermediate
    reward where rewards are ``shaped``, 0 otherwise.

    Parameters
    ----------
    policy : (716, 25), optional
        Probabilities of the actions in each hidden state; by default those of the clinicians.
    gamma : float
        Discount in [0, 1].
    cap, shaped, outcome
        As in :func:`simulate`.

    Returns
    -------
    float
        Expected discounted return.

    Examples
    --------
    >>> round(value(gamma=0.99), 2)
    7.87
    """
    check_gamma(gamma)
    process = _process_until(cap)
    step = np.einsum("sa,sau->su", policy_table(policy), process.transitions)
    expected = outcome[0] + (outcome[1] - outcome[0]) * survival_chance()
    # Intermediate rewards on the way to a further step, (S,).
    earned = np.zeros(len(step))
    if shaped:
        living = np.flatnonzero(~process.absorbing)
        earned[living] = (step[np.ix_(living, living)] * _change(living[:, None], living)).sum(axis=1)
    v = step @ expected
    for _ in range(process.horizon - 1):
        v = earned + step @ np.where(process.absorbing, expected, gamma * v)
    return float(process.initial @ v)


def true_probabilities(data: Trajectories, policy: ArrayLike | None = None) -> Float:
    """Return the true probability of every action at every step, from the hidden states.

    Parameters
    ----------
    data : Trajectories
        A log from :func:`simulate`.
    policy : (716, 25), optional
        Probabilities of the actions in each hidden state; by default those of the clinicians.

    Returns
    -------
    (N, 25)
        Probabilities under the policy.

    Examples
    --------
    >>> data = simulate(10, rng=0)
    >>> true_probabilities(data).shape == (data.n_steps, 25)
    True
    """
    return policy_table(policy)[data["state"]]


@cache
def optimal(
    *, gamma: float = 0.99, least: float = 0.05, outcome: tuple[float, float] = (-15.0, 15.0)
) -> Float:
    """Find the best policy among actions that the clinicians take with at least a chance of ``least``, (716, 25).

    One action per state, by policy iteration for the discounted outcome without a cap. With a cap, a policy that
    counts the steps could do slightly better. Without restriction (``least=0``) 875 of 1,000 patients survive at
    gamma 1, by actions that hardly occur in a log.

    Parameters
    ----------
    gamma : float
        Discount in [0, 1].
    least : float
        Least probability of an action under the clinicians.
    outcome : (float, float)
        Reward of the last step for death and for survival.

    Returns
    -------
    (716, 25)
        1 for the best action in each state, 0 for the others.

    Examples
    --------
    >>> value(optimal(), gamma=0.99) > value(gamma=0.99)
    True
    """
    check_gamma(gamma)
    sepsis = load()
    living, allowed = ~sepsis.process.absorbing, sepsis.expert >= least
    if not allowed[living].any(axis=1).all():
        raise ValueError(f"least must leave an action in every state; {least} does not.")
    ends = np.zeros(len(living))
    ends[[DEATH, SURVIVAL]] = outcome
    rows, choice = np.arange(len(living)), sepsis.expert.argmax(axis=1)
    while True:
        step = sepsis.process.transitions[rows, choice]
        stay = np.eye(living.sum()) - gamma * step[np.ix_(living, living)]
        v = ends.copy()
        v[living] = np.linalg.solve(stay, step[living] @ ends)
        q = sepsis.process.transitions @ np.where(living, gamma * v, ends)
        q = np.where(allowed, q, -np.inf)
        # A rounding error is no improvement.
        better = living & (q.max(axis=1) > q[rows, choice] + 1e-9)
        if not better.any():
            return read_only(np.eye(N_ACTIONS)[choice])
        choice = np.where(better, q.argmax(axis=1), choice)


def evaluation_policies() -> dict[str, Float]:
    """Return target policies for logs of the clinicians, with values from 7.87 to 9.66, each (716, 25).

    The clinicians' own; theirs with half of the decisions without vasopressors; and 20, 50 and 90 of 100 decisions by
    :func:`optimal`. In logs of 20,000 patients the effective sample size with the true probabilities is all, 0.4 to
    0.5, 0.14 to 0.25, 0.006 to 0.02 and 0.001 to 0.01 of them. In the limit, one over the mean squared weight, it is
    only 1, 1e-8, 0.07, 3e-10 and 4e-19: rare actions of the clinicians have huge weights.

    Returns
    -------
    dict
        Name -> probabilities (716, 25).

    Examples
    --------
    >>> len(evaluation_policies())
    5
    """
    expert, best = load().expert, optimal()
    return {
        "clinicians": expert,
        "half without vasopressors": read_only((expert + without_vasopressors()) / 2),
        "a fifth optimal": read_only(0.8 * expert + 0.2 * best),
        "half optimal": read_only(0.5 * expert + 0.5 * best),
        "nine tenths optimal": read_only(0.1 * expert + 0.9 * best),
    }


@dataclass(frozen=True, eq=False)
class Bedside:
    """A policy of the hidden states, applied to measurements: that of the nearest centre.

    With noise of 0.3 the nearest centre is that of the hidden state in practically every step, so that the exact
    :func:`value` of the table is its value too.

    Parameters
    ----------
    table : (716, 25)
        Probabilities of the actions in each hidden state.

    Examples
    --------
    >>> Bedside(load().expert).predict_proba(simulate(2, rng=0).states[:1]).shape
    (1, 25)
    """

    table: Float

    @property
    def classes_(self) -> Int:
        """All 25 actions."""
        return np.arange(N_ACTIONS)

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probability of every action given measurements, (N, 25)."""
        centres, spread = observed_centres()
        living = np.flatnonzero(~load().process.absorbing)
        x = np.asarray(X, dtype=np.float32)[:, : centres.shape[1]] / spread
        points = centres[living] / spread
        nearest = np.argmin((points**2).sum(axis=1) - 2 * x @ points.T, axis=1)
        return policy_table(self.table)[living[nearest]]


@cache
def _process_until(cap: int | None) -> TabularMDP:
    """Return the process up to the cap, with the number of the next state as its reward."""
    process = load().process
    if cap is not None and cap < 1:
        raise ValueError(f"cap must be at least 1 step, or None, got {cap}.")
    numbers = np.broadcast_to(np.arange(float(len(process.initial))), process.transitions.shape)
    return replace(process, rewards=numbers, horizon=cap or process.horizon)


def _simulate_states(n: int, policy: Float, process: TabularMDP, rng: np.random.Generator) -> Trajectories:
    sizes = [min(_PATIENTS, n - start) for start in range(0, n, _PATIENTS)]
    parts = [process.simulate(policy, size, rng=rng) for size in sizes]
    return Trajectories(
        np.concatenate([part.states for part in parts]),
        np.concatenate([part.actions for part in parts]),
        np.concatenate([part.rewards for part in parts]),
        np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))]),
        n_actions=N_ACTIONS,
        columns={name: np.concatenate([part[name] for part in parts]) for name in parts[0].columns},
    )


def _intermediate_rewards(state: Int, layout: Ragged) -> Float:
    """Compute the rewards of Raghu et al. (2017) for the change of SOFA and lactate until the next step, (N,)."""
    following = np.minimum(np.arange(len(state)) + 1, np.repeat(layout.last, layout.lengths))
    change = _change(state, state[following])
    change[layout.last] = 0.0
    return change


def _change(before: Int, after: Int) -> Float:
    """Compute the intermediate reward of a step from one state to another."""
    sepsis = load()
    sofa, lactate = sepsis.sofa, sepsis.centres[:, FEATURES.index("Arterial_lactate")]
    stagnant = (sofa[after] == sofa[before]) & (sofa[after] > 0)
    change = -0.025 * stagnant - 0.125 * (sofa[after] - sofa[before])
    change -= 2 * np.tanh(lactate[after] - lactate[before])
    return np.asarray(change)


def _measure(state: Int, noise: float, rng: np.random.Generator) -> Float:
    """Draw noisy measurements of the 43 observed features, (N, 43)."""
    centres, spread = observed_centres()
    error = rng.standard_normal((len(state), centres.shape[1]), dtype=np.float32)
    return centres[state] + np.float32(noise) * spread * error


def _with_history(measured: Float, actions: Int, layout: Ragged, *, lags: int) -> Float:
    """Join every row with the rows of its past and the levels given then, in the order of ``_feature_names``."""
    width = measured.shape[1]
    stacked = np.empty((len(measured), width + lags * (width + 2)), dtype=np.float32)
    stacked[:, :width] = measured
    levels = np.stack([actions // LEVELS, actions % LEVELS], axis=1)
    rows, first = np.arange(len(measured)), np.repeat(layout.first, layout.lengths)
    for lag in range(1, lags + 1):
        past = np.maximum(rows - lag, first)
        start = width + (lag - 1) * (width + 2)
        stacked[:, start : start + width] = measured[past]
        has_past = (layout.time >= lag)[:, None]
        stacked[:, start + width : start + width + 2] = np.where(has_past, levels[past], 0)
    return stacked


def _feature_names(lags: int) -> list[str]:
    history = [
        f"{name}_lag{lag}" for lag in range(1, lags + 1) for name in (*OBSERVED, "iv_level", "vaso_level")
    ]
    return [*OBSERVED, *history]
