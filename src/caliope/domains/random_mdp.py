"""Random decision processes, bandits, and a clinic with a variable that may be hidden.

In ICU-Sepsis the values of policies hardly differ. Here they differ by up to two standard deviations of the return (in
the clinic by a third of one), so that an estimator that returns the mean of the log is clearly wrong. Every
:class:`Problem` has a behaviour policy, target policies of growing distance, and the exact value of each.

A log holds measurements of a state, scattered within a ball around the centre of the state. The balls do not touch, so
the state is a function of the measurements, and policies and values stay exact. Where a variable is hidden, states
that differ only in it share a centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist, pdist
from scipy.special import softmax

from caliope._policies import check_probabilities
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope._validation import check_gamma
from caliope.domains.tabular import TabularMDP

# Number of measurements.
N_FEATURES = 6
# Parameter of the Dirichlet law of transitions: most of the chance goes to a few states.
SPARSITY = 0.3
# Chance to end after a step, uniform from 0 to this for each state and action.
ENDING = 0.1
# Standard deviation of the part of a reward that depends on the next state; the other part has 1.
SURPRISE = 0.5
# Standard deviation of the logits of a random policy.
PREFERENCE = 1.0
# A tilt multiplies odds by exp(-this) for the worst action up to exp(this) for the best.
STRENGTH = 0.5
# Shares of the decisions by the best policy.
MILD, STRONG = 0.2, 0.5

# Numbers of severities and doses in the clinic.
SEVERITIES, DOSES = 5, 3


@dataclass(frozen=True, eq=False)
class Problem:
    """A decision process with its behaviour policy and target policies.

    Tables have one row per state; rows of absorbing states are unused.

    Parameters
    ----------
    name : str
        Name of the problem.
    process : TabularMDP
        Transitions and rewards.
    behaviour : (S, A)
        The behaviour policy.
    best : (S, A)
        The best policy, one action for each centre.
    weights : (S, A)
        Weights of a tilt towards better actions, for each centre.
    unrelated : (S, A)
        A policy drawn at random, for each centre.
    seen : (S,)
        Number of the centre of each state; -1 for absorbing ones.
    centres : (C, d)
        Centres of the measurements.

    Examples
    --------
    >>> problem = random_mdp(horizon=5, rng=0)
    >>> problem.simulate(100, rng=1)
    Trajectories(100 trajectories of 1 to 5 steps, 451 steps, 6 features, 5 actions)
    >>> round(problem.value(problem.behaviour), 3), round(problem.value(problem.best), 3)
    (1.008, 6.511)
    """

    name: str
    process: TabularMDP
    behaviour: Float
    best: Float
    weights: Float
    unrelated: Float
    seen: Int
    centres: Float

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return int(self.behaviour.shape[1])

    def targets(self) -> dict[str, Float]:
        """Return target policies of growing distance from current practice, each (S, A).

        Three can be stated relative to practice: ``mix(practice, problem.reading(problem.best), 0.2)``, the same
        with 0.5, and ``tilt(practice, problem.weigh)``.
        """
        tilted = self.behaviour * self.weights
        return {
            "practice": self.behaviour,
            "mild mix": (1 - MILD) * self.behaviour + MILD * self.best,
            "strong mix": (1 - STRONG) * self.behaviour + STRONG * self.best,
            "tilt": tilted / tilted.sum(axis=1, keepdims=True),
            "unrelated": self.unrelated,
        }

    def value(self, policy: ArrayLike, *, gamma: float = 1.0) -> float:
        """Compute the exact value of a policy.

        Parameters
        ----------
        policy : (S, A)
            Probabilities of the actions in each state.
        gamma : float
            Discount in [0, 1].

        Returns
        -------
        float
            Expected discounted return.
        """
        check_gamma(gamma)
        return self.process.value(self._table(policy), gamma)

    def simulate(
        self, n: int, *, rng: int | np.random.Generator, policy: ArrayLike | None = None
    ) -> Trajectories:
        """Simulate a log of a policy.

        Parameters
        ----------
        n : int
            Number of trajectories.
        rng : int or Generator
            Seed.
        policy : (S, A), optional
            By default the behaviour policy.

        Returns
        -------
        Trajectories
            Columns ``behaviour`` (true probability of the logged action), ``state`` (hidden) and ``time``.
        """
        if n < 1:
            raise ValueError(f"need n >= 1 trajectories, got {n}.")
        rng = np.random.default_rng(rng)
        latent = self.process.simulate(self._table(policy), n, rng=rng)
        state = latent.states[:, 0].astype(np.int64)
        return Trajectories(
            self.centres[self.seen[state]] + self._scatter(len(state), rng),
            latent.actions,
            latent.rewards,
            latent.offsets,
            n_actions=self.n_actions,
            terminated=latent.terminated,
            columns={**latent.columns, "state": state},
        )

    def true_probabilities(self, data: Trajectories, policy: ArrayLike | None = None) -> Float:
        """Return the probability of every action at every step, (N, A), by default of the behaviour policy."""
        return self._table(policy)[data["state"]]

    def reading(self, policy: ArrayLike) -> Reading:
        """Return a policy (S, A) as a policy of measurements; it must not depend on what is hidden."""
        return Reading(self.centres, self._rows(self._table(policy)))

    def weigh(self, X: ArrayLike) -> Float:
        """Return the weights of the tilt at measurements, (N, A)."""
        return Reading(self.centres, self._rows(self.weights)).predict_proba(X)

    def _table(self, policy: ArrayLike | None) -> Float:
        table = self.behaviour if policy is None else np.asarray(policy, dtype=np.float64)
        if table.shape != self.behaviour.shape:
            raise ValueError(
                f"{self.name}: a policy must be a table of shape {self.behaviour.shape}, got {table.shape}."
            )
        return check_probabilities(table, self.name)

    def _rows(self, table: Float) -> Float:
        """Return one row per centre of a table with one row per state."""
        rows, living = np.zeros((len(self.centres), self.n_actions)), self.seen >= 0
        rows[self.seen[living]] = table[living]
        if not np.allclose(rows[self.seen[living]], table[living]):
            raise ValueError(f"{self.name}: this policy differs between states with the same measurements.")
        return rows

    def _scatter(self, n: int, rng: np.random.Generator) -> Float:
        """Draw points in a ball of just less than half the distance of the nearest two centres, (n, d)."""
        d = self.centres.shape[1]
        away = rng.standard_normal((n, d))
        radius = 0.49 * pdist(self.centres).min() * rng.random(n) ** (1 / d)
        return away * (radius / np.sqrt((away**2).sum(axis=1)))[:, None]


@dataclass(frozen=True, eq=False)
class Reading:
    """A policy of measurements: that of the nearest centre.

    Parameters
    ----------
    centres : (C, d)
        Centres of the measurements.
    table : (C, A)
        Probabilities of the actions at each centre.

    Examples
    --------
    >>> Reading(np.array([[0.0], [1.0]]), np.array([[0.9, 0.1], [0.2, 0.8]])).predict_proba([[0.75]]).tolist()
    [[0.2, 0.8]]
    """

    centres: Float
    table: Float

    @cached_property
    def classes_(self) -> Int:
        """All actions."""
        return np.arange(self.table.shape[1])

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the row of the nearest centre, (N, A)."""
        x = np.asarray(X, dtype=np.float64)
        if not np.isfinite(x).all():
            raise ValueError("measurements must be finite.")
        return self.table[cdist(x, self.centres).argmin(axis=1)]


def random_mdp(
    states: int = 20, actions: int = 5, *, horizon: int, rng: int | np.random.Generator
) -> Problem:
    r"""Draw a random decision process; horizon 1 makes it a contextual bandit.

    Transitions are Dirichlet(0.3), the chance to end after a step is uniform from 0 to 0.1 for each state and action,
    rewards are :math:`N(0, 1)` for each state and action plus :math:`N(0, 0.5^2)` for each next state, and the
    behaviour policy and the unrelated one are softmax of :math:`N(0, 1)`. Starts are uniform.

    Parameters
    ----------
    states, actions : int
        Numbers of states and actions, from 2.
    horizon : int
        Largest number of steps.
    rng : int or Generator
        Seed.

    Returns
    -------
    Problem
        The process and its policies.

    Examples
    --------
    >>> random_mdp(horizon=1, rng=0).name
    'bandit, 5 actions'
    """
    if states < 2 or actions < 2 or horizon < 1:
        raise ValueError(
            "need at least 2 states, 2 actions and a horizon of 1, "
            f"got states={states}, actions={actions} and horizon={horizon}."
        )
    rng = np.random.default_rng(rng)
    going = rng.dirichlet(np.full(states, SPARSITY), size=(states, actions))
    ending = rng.uniform(0, ENDING, size=(states, actions, 1))
    transitions = np.zeros((states + 1, actions, states + 1))
    transitions[:states] = np.concatenate([(1 - ending) * going, ending], axis=2)
    rewards = rng.normal(size=(states + 1, actions, 1))
    rewards = rewards + SURPRISE * rng.normal(size=(states + 1, actions, states + 1))
    absorbing = np.arange(states + 1) == states
    process = TabularMDP(np.where(absorbing, 0, 1 / states), transitions, rewards, absorbing, horizon)
    behaviour = softmax(rng.normal(scale=PREFERENCE, size=(states + 1, actions)), axis=1)
    kind = "bandit" if horizon == 1 else f"random, horizon {horizon}"
    seen = np.where(absorbing, -1, np.arange(states + 1))
    return _make_problem(f"{kind}, {actions} actions", process, behaviour, seen, rng)


def clinic(*, hidden: bool, rng: int | np.random.Generator = 0) -> Problem:
    """Make a clinic: patients of five severities, some of them frail, which the log may not say.

    Three doses every four hours, for 12 steps at most. Patients improve with chance 0.34 - 0.06 severity + (0, 0.15,
    0.30) for the doses - 0.08 if frail, and worsen with chance 0.06 + 0.07 severity + (0, 0.01, 0.10) (1 - severity /
    4) - (0, 0.12, 0.25) severity / 4 + 0.08 if frail. Who improves from severity 0 is discharged, +1; who worsens
    from 4 dies, -1. They come with severity 1 (10 of 100), 2, 3 or 4 (30 each), and half are frail. Clinicians give
    more to the sicker and the frail: logits (1.5, 0, -1.5) + (0, 0.3, 0.5) severity + (0, 0.8, 1.6) if frail.

    Parameters
    ----------
    hidden : bool
        True if frailty is an unmeasured confounder.
    rng : int or Generator
        Seed of the centres and of the unrelated policy.

    Returns
    -------
    Problem
        The process and its policies.

    Examples
    --------
    >>> clinic(hidden=True).name
    'clinic, frailty hidden'
    """
    process, severity, frail = _clinic_process()
    gone = process.absorbing
    logits = (
        np.array([1.5, 0.0, -1.5]) + np.outer(severity, [0.0, 0.3, 0.5]) + np.outer(frail, [0.0, 0.8, 1.6])
    )
    alike = severity if hidden else severity + SEVERITIES * frail
    name = f"clinic, frailty {'hidden' if hidden else 'seen'}"
    seen = np.where(gone, -1, alike)
    return _make_problem(name, process, softmax(logits, axis=1), seen, np.random.default_rng(rng))


def suite(*, rng: int | np.random.Generator) -> tuple[Problem, ...]:
    """Make nine problems: five random ones with horizons from 5 to 20, two bandits, the clinic seen and hidden.

    Parameters
    ----------
    rng : int or Generator
        Seed.

    Returns
    -------
    tuple of Problem
        The nine problems.

    Examples
    --------
    >>> [problem.name for problem in suite(rng=0)][-2:]
    ['clinic, frailty seen', 'clinic, frailty hidden']
    """
    rng = np.random.default_rng(rng)
    return (
        *(random_mdp(horizon=horizon, rng=rng) for horizon in (5, 8, 10, 15, 20)),
        random_mdp(20, 5, horizon=1, rng=rng),
        random_mdp(20, 25, horizon=1, rng=rng),
        clinic(hidden=False, rng=rng),
        clinic(hidden=True, rng=rng),
    )


def _clinic_process() -> tuple[TabularMDP, Int, Int]:
    """Make the process of the clinic, and the severity and frailty of its ten states, discharged and dead."""
    severity = np.append(np.tile(np.arange(SEVERITIES), 2), [0, 0])
    frail = np.append(np.repeat([0, 1], SEVERITIES), [0, 0])
    states, discharged, dead = len(severity), len(severity) - 2, len(severity) - 1
    transitions = np.zeros((states, DOSES, states))
    for s in range(discharged):
        level = severity[s] / (SEVERITIES - 1)
        better = 0.34 - 0.06 * severity[s] + np.array([0, 0.15, 0.30]) - 0.08 * frail[s]
        worse = 0.06 + 0.07 * severity[s] + np.array([0, 0.01, 0.10]) * (1 - level) + 0.08 * frail[s]
        worse = worse - np.array([0, 0.12, 0.25]) * level
        transitions[s, :, s - 1 if severity[s] > 0 else discharged] = better
        transitions[s, :, s + 1 if severity[s] < SEVERITIES - 1 else dead] = worse
        transitions[s, :, s] = 1 - better - worse
    number = np.arange(states)
    reward = (number == discharged).astype(float) - (number == dead)
    rewards = np.broadcast_to(reward, transitions.shape)
    initial = np.append(np.tile([0.0, 0.05, 0.15, 0.15, 0.15], 2), [0.0, 0.0])
    return TabularMDP(initial, transitions, rewards, number >= discharged, horizon=12), severity, frail


def _make_problem(
    name: str, process: TabularMDP, behaviour: Float, seen: Int, rng: np.random.Generator
) -> Problem:
    n_centres, n_actions = int(seen.max()) + 1, behaviour.shape[1]
    unrelated = softmax(rng.normal(scale=PREFERENCE, size=(n_centres, n_actions)), axis=1)
    centres = rng.normal(size=(n_centres, N_FEATURES))
    q = _optimal_values(process, seen)
    # From 0 for the worst action in a state to 1 for the best.
    rank = q.argsort(axis=1).argsort(axis=1) / (n_actions - 1)
    return Problem(
        name,
        process,
        behaviour,
        best=np.eye(n_actions)[q.argmax(axis=1)],
        weights=np.exp(STRENGTH * (2 * rank - 1)),
        unrelated=unrelated[seen],
        seen=seen,
        centres=centres,
    )


def _optimal_values(process: TabularMDP, seen: Int) -> Float:
    """Compute optimal undiscounted values, (S, A), averaged over states with the same centre."""
    earned = np.einsum("sau,sau->sa", process.transitions, process.rewards)
    q = earned
    for _ in range(process.horizon - 1):
        q = earned + process.transitions @ np.where(process.absorbing, 0.0, q.max(axis=1))
    alike = seen[:, None] == seen
    return alike @ q / alike.sum(axis=1, keepdims=True)
