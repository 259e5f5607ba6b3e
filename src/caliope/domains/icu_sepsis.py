"""The ICU-Sepsis decision process: sepsis patients of MIMIC-III as 716 states and 25 actions, with exact values.

The numbers come with the distribution ``icu-sepsis`` (MIT licence, extra ``sepsis``). Only its data file is read:
importing the package would need gym. :func:`simulate` logs patients as a hospital would see them, by noisy
measurements and their history; :func:`value` and :func:`true_probabilities` know the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from caliope.domains.tabular import TabularMDP
from caliope.ragged import Float, Int, Ragged, read_only
from caliope.trajectories import Trajectories, check_gamma

DEATH, SURVIVAL, SINK = 713, 714, 715
N_ACTIONS, LEVELS = 25, 5  # action = 5 * level of fluids + level of vasopressors, each level from 0 to 4

# What the columns of the centres are. Komorowski's transforms: binary ones shifted, the rest z-scored, from SpO2 on
# after a logarithm.
FEATURES = (
    *("gender", "mechvent", "max_dose_vaso", "re_admission", "age", "Weight_kg", "GCS", "HR", "SysBP"),
    *("MeanBP", "DiaBP", "RR", "Temp_C", "FiO2_1", "Potassium", "Sodium", "Chloride", "Glucose", "Magnesium"),
    *("Calcium", "Hb", "WBC_count", "Platelets_count", "PTT", "PT", "Arterial_pH", "paO2", "paCO2"),
    *("Arterial_BE", "HCO3", "Arterial_lactate", "SOFA", "SIRS", "Shock_Index", "PaO2_FiO2"),
    *("cumulated_balance", "SpO2", "BUN", "Creatinine", "SGOT", "SGPT", "Total_bili", "INR"),
    *("input_total", "input_4hourly", "output_total", "output_4hourly"),
)
# Columns 2, 35, 43 and 44 hold what is given in the very window whose action is to be predicted: they leak it. The
# mean of input_4hourly in a state correlates 0.99 with the mean level of fluids there.
DOSES = ("max_dose_vaso", "cumulated_balance", "input_total", "input_4hourly")
OBSERVED = tuple(name for name in FEATURES if name not in DOSES)

_PATIENTS = 1024  # simulated together: their transition rows, 716 numbers each, fit into the cache


@dataclass(frozen=True, eq=False)
class IcuSepsis:
    """The process, the clinicians' policy in it, and what is known of each state."""

    process: TabularMDP
    expert: Float  # (716, 25); rows of absorbing states, which nobody acts in, are uniform
    sofa: Float  # (716,), mean SOFA score
    centres: Float  # (716, 47), mean of each of FEATURES


@cache
def load(horizon: int = 500) -> IcuSepsis:
    """Read the process from the installed distribution.

    Episodes end in death or survival; 13 decisions suffice for three patients in four, and a horizon of 500
    leaves nothing out that a float can hold.
    """
    with np.load(_dynamics()) as found:
        arrays = {name: found[name] for name in found}
    absorbing = np.isin(np.arange(len(arrays["d_0"])), (DEATH, SURVIVAL, SINK))
    process = TabularMDP(arrays["d_0"], arrays["tx_mat"], arrays["r_mat"], absorbing, horizon)
    expert = np.where(absorbing[:, None], 1 / arrays["expert_policy"].shape[1], arrays["expert_policy"])
    sofa, centres = arrays["sofa_scores"], arrays["state_cluster_centers"]
    return IcuSepsis(process, read_only(expert), read_only(sofa), read_only(centres))


def _dynamics() -> Path:
    try:
        listed = metadata.files("icu-sepsis") or []
    except metadata.PackageNotFoundError:
        raise ModuleNotFoundError(
            "the ICU-Sepsis process is not installed: pip install 'caliope[sepsis]'."
        ) from None
    return next(Path(str(file.locate())) for file in listed if file.name == "dynamics.npz")


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
    """Log n sepsis patients, a decision every four hours, each with an outcome.

    A step is seen as 43 noisy measurements (the features of its state without the doses, which would leak the
    action), followed by those of the ``lags`` steps before it, each with the two levels that were given then: 178
    columns for three lags. Where a patient has no such past, the first measurement is repeated, with levels of 0.

    Parameters
    ----------
    n : int
        Number of patients.
    policy : array-like of shape (716, 25), optional
        Who decides; by default the clinicians.
    rng : int or Generator
        Seed.
    noise : float
        Standard deviation of a measurement, in standard deviations of its feature over the states. At 0.3 the
        nearest centre is that of the hidden state in practically every step, at 1 in 85 of 100.
    lags : int
        Steps of history in every state.
    cap : int, optional
        Steps after which the log of a patient stops; None to wait for death or survival. The outcome is then drawn
        from the chance to survive from the next state under the clinicians, whoever decided before: nobody is
        censored, and values stay exact.
    shaped : bool
        Add the intermediate rewards of Raghu et al. (2017) for SOFA and lactate to every step but the last. They
        are computed on the means of the states; lactate is in standard deviations, for the process does not keep
        mmol/l, and SOFA stays equal only where the state does.
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
    """
    if n < 1 or lags < 0 or not noise >= 0:
        raise ValueError(f"need n >= 1, lags >= 0 and noise >= 0, got n={n}, lags={lags} and noise={noise}.")
    rng = np.random.default_rng(rng)
    latent = _latent(n, _table(policy), _arriving(cap), rng)
    state, layout = latent.states[:, 0].astype(np.int64), latent.layout
    rewards = np.zeros(len(state))
    survived = rng.random(n) < _survival()[latent.rewards[layout.last].astype(np.int64)]
    rewards[layout.last] = np.where(survived, outcome[1], outcome[0])
    if shaped:
        rewards += _intermediate(state, layout)
    measured = _measure(state, noise, rng)
    return Trajectories(
        _with_history(measured, latent.actions, layout, lags=lags),
        latent.actions,
        rewards,
        latent.offsets,
        n_actions=N_ACTIONS,
        columns={**latent.columns, "state": state, "sofa": load().sofa[state]},
        feature_names=_names(lags),
    )


def value(
    policy: ArrayLike | None = None,
    *,
    gamma: float,
    cap: int | None = 20,
    shaped: bool = False,
    outcome: tuple[float, float] = (-15.0, 15.0),
) -> float:
    r"""Exact value of a policy in the simulated log: the expected discounted rewards.

    .. math:: V_t(s) = \sum_{a, s'} \pi(a \mid s) P(s' \mid s, a)
        \begin{cases} o(s') & s' \text{ ends, or } t \text{ is the last step} \\
        c(s, s') + \gamma V_{t+1}(s') \end{cases}

    with :math:`o(s')` the outcome to be expected from s' under the clinicians, and :math:`c(s, s')` the intermediate
    reward where rewards are ``shaped``, 0 otherwise. Parameters as in :func:`simulate`.
    """
    check_gamma(gamma)
    process = _arriving(cap)
    step = np.einsum("sa,sau->su", _table(policy), process.transitions)
    expected = outcome[0] + (outcome[1] - outcome[0]) * _survival()
    earned = np.zeros(len(step))  # on the way to a further step, (S,)
    if shaped:
        living = np.flatnonzero(~process.absorbing)
        earned[living] = (step[np.ix_(living, living)] * _change(living[:, None], living)).sum(axis=1)
    v = step @ expected
    for _ in range(process.horizon - 1):
        v = earned + step @ np.where(process.absorbing, expected, gamma * v)
    return float(process.initial @ v)


def true_probabilities(data: Trajectories, policy: ArrayLike | None = None) -> Float:
    """Probability of every action at every step under a policy (the clinicians'), from hidden states, (N, 25)."""
    return _table(policy)[data["state"]]


def without_vasopressors() -> Float:
    """The clinicians without vasopressors: their actions of level 0, scaled up, (716, 25).

    In the one state where they always give some, they go on as they do.
    """
    expert = load().expert
    kept = np.where(np.arange(N_ACTIONS) % LEVELS == 0, expert, 0.0)
    share = kept.sum(axis=1, keepdims=True)
    return read_only(np.where(share > 0, kept / np.where(share > 0, share, 1.0), expert))


@cache
def optimal(
    *, gamma: float = 0.99, least: float = 0.05, outcome: tuple[float, float] = (-15.0, 15.0)
) -> Float:
    """The best policy that takes no action which the clinicians take with less than a chance of ``least``, (716, 25).

    One action a state, found by policy iteration for the discounted outcome without a cap: the same at every
    step, though with a cap a policy that counts the steps could do slightly better. The best of all actions
    (``least=0``) survives in 875 of 1,000 cases, at gamma 1, but does what is hardly ever seen.
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
        better = living & (q.max(axis=1) > q[rows, choice] + 1e-9)  # a rounding error is no improvement
        if not better.any():
            return read_only(np.eye(N_ACTIONS)[choice])
        choice = np.where(better, q.argmax(axis=1), choice)


def evaluation_policies() -> dict[str, Float]:
    """Policies to be evaluated on a log of the clinicians, with values from 7.87 to 9.66, each (716, 25).

    Theirs; theirs with half of the decisions without vasopressors; and 20, 50 and 90 of 100 decisions by
    :func:`optimal`. In logs of 20,000 patients the effective sample with the true probabilities is all, 0.4 to 0.5,
    0.14 to 0.25, 0.006 to 0.02 and 0.001 to 0.01 of them. That flatters: in the limit, one over the mean squared
    weight, it is 1, 1e-8, 0.07, 3e-10 and 4e-19, because what the clinicians hardly ever do weighs so much.
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
    """A policy of the hidden states as it is followed by who sees the measurements: that of the nearest centre.

    At the usual noise the nearest centre is that of the hidden state in practically every step, so that the exact
    :func:`value` of the table is its value too.
    """

    table: Float  # (716, 25)

    @property
    def classes_(self) -> Int:
        """All 25 actions."""
        return np.arange(N_ACTIONS)

    def predict_proba(self, X: ArrayLike) -> Float:
        """Probability of every action given measurements, the present ones first, (N, 25)."""
        centres, spread = _observed_centres()
        living = np.flatnonzero(~load().process.absorbing)
        x = np.asarray(X, dtype=np.float32)[:, : centres.shape[1]] / spread
        points = centres[living] / spread
        nearest = np.argmin((points**2).sum(axis=1) - 2 * x @ points.T, axis=1)
        return _table(self.table)[living[nearest]]


def _table(policy: ArrayLike | None) -> Float:
    sepsis = load()
    if policy is None:
        return sepsis.expert
    given = np.asarray(policy, dtype=np.float64)
    if given.shape != sepsis.expert.shape:
        raise ValueError(f"policy must be a table of shape {sepsis.expert.shape}, got {given.shape}.")
    living = given[~sepsis.process.absorbing]
    if not ((living >= 0).all() and np.allclose(living.sum(axis=1), 1)):
        raise ValueError("policy must hold probabilities: in every living state from 0, with a sum of 1.")
    return given


@cache
def _arriving(cap: int | None) -> TabularMDP:
    """The process up to the cap, its reward being the number of the state one arrives in."""
    process = load().process
    if cap is not None and cap < 1:
        raise ValueError(f"cap must be at least 1 step, or None, got {cap}.")
    numbers = np.broadcast_to(np.arange(float(len(process.initial))), process.transitions.shape)
    return replace(process, rewards=numbers, horizon=cap or process.horizon)


@cache
def _survival() -> Float:
    """Chance to survive from every state while the clinicians decide, (716,)."""
    sepsis = load()
    living = ~sepsis.process.absorbing
    step = np.einsum("sa,sau->su", sepsis.expert, sepsis.process.transitions)
    chance = (np.arange(len(living)) == SURVIVAL).astype(np.float64)
    stay = np.eye(living.sum()) - step[np.ix_(living, living)]
    chance[living] = np.linalg.solve(stay, step[living, SURVIVAL])
    return read_only(chance)


def _latent(n: int, policy: Float, process: TabularMDP, rng: np.random.Generator) -> Trajectories:
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


def _intermediate(state: Int, layout: Ragged) -> Float:
    """Rewards of Raghu et al. (2017) for the change of SOFA and lactate on the way to the next step, (N,)."""
    following = np.minimum(np.arange(len(state)) + 1, np.repeat(layout.last, layout.lengths))
    change = _change(state, state[following])
    change[layout.last] = 0.0
    return change


def _change(before: Int, after: Int) -> Float:
    """The intermediate reward of a step from one state to another."""
    sepsis = load()
    sofa, lactate = sepsis.sofa, sepsis.centres[:, FEATURES.index("Arterial_lactate")]
    stagnant = (sofa[after] == sofa[before]) & (sofa[after] > 0)
    change = -0.025 * stagnant - 0.125 * (sofa[after] - sofa[before])
    change -= 2 * np.tanh(lactate[after] - lactate[before])
    return np.asarray(change)


def _measure(state: Int, noise: float, rng: np.random.Generator) -> Float:
    """Noisy measurements of the 43 observed features, (N, 43)."""
    centres, spread = _observed_centres()
    error = rng.standard_normal((len(state), centres.shape[1]), dtype=np.float32)
    return centres[state] + np.float32(noise) * spread * error


def _observed_centres() -> tuple[Float, Float]:
    """Means of the observed features in every state, (716, 43), and their spread over the states, (43,)."""
    sepsis = load()
    centres = sepsis.centres[:, [FEATURES.index(name) for name in OBSERVED]].astype(np.float32)
    return centres, centres[~sepsis.process.absorbing].std(axis=0)


def _with_history(measured: Float, actions: Int, layout: Ragged, *, lags: int) -> Float:
    """Every row beside the rows of its past and the levels given then, in the order of ``_names``."""
    width = measured.shape[1]
    stacked = np.empty((len(measured), width + lags * (width + 2)), dtype=np.float32)
    stacked[:, :width] = measured
    levels = np.stack([actions // LEVELS, actions % LEVELS], axis=1)
    rows, first = np.arange(len(measured)), np.repeat(layout.first, layout.lengths)
    for lag in range(1, lags + 1):
        past = np.maximum(rows - lag, first)
        start = width + (lag - 1) * (width + 2)
        stacked[:, start : start + width] = measured[past]
        known = (layout.time >= lag)[:, None]
        stacked[:, start + width : start + width + 2] = np.where(known, levels[past], 0)
    return stacked


def _names(lags: int) -> list[str]:
    history = [
        f"{name}_lag{lag}" for lag in range(1, lags + 1) for name in (*OBSERVED, "iv_level", "vaso_level")
    ]
    return [*OBSERVED, *history]
