"""Small processes with large contrasts: random ones, bandits, and a clinic with a variable that may be hidden.

ICU-Sepsis has policies whose values hardly differ; in the random processes here they differ by up to two standard
deviations of the return, in the clinic by a third of one, so that an estimator which merely repeats what was done is
found out. Every :class:`Problem` has a behaviour policy,
evaluation policies of growing distance, and the exact value of each.

What is logged is not the number of a state but measurements of it, scattered within a ball around the centre of the
state. The balls do not touch: the state is a function of the measurements, so that policies and values stay exact,
while a behaviour model has something to fit. Where a variable is hidden, states that differ only in it share a centre.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist, pdist
from scipy.special import softmax

from caliope.domains.tabular import TabularMDP
from caliope.policies import check_probabilities
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories, check_gamma

N_FEATURES = 6  # of the measurements
SPARSITY = 0.3  # of the Dirichlet law of transitions: most of the chance goes to a few states
ENDING = 0.1  # chance to end after a step, uniform from 0 to this for each state and action
SURPRISE = (
    0.5  # standard deviation of the part of a reward that depends on the next state; the other part has 1
)
PREFERENCE = 1.0  # standard deviation of the logits of a random policy
STRENGTH = 0.5  # a tilt multiplies odds by exp(-this) for the worst action up to exp(this) for the best
MILD, STRONG = 0.2, 0.5  # shares of the decisions that the best policy takes over

SEVERITIES, DOSES = 5, 3  # of the clinic


@dataclass(frozen=True, eq=False)
class Problem:
    """A process, who acts in it, and who might.

    Tables have a row for each state, those of absorbing states unused.
    """

    name: str
    process: TabularMDP
    behaviour: Float  # (S, A)
    best: Float  # (S, A), one action for each centre
    weights: Float  # (S, A), of a tilt towards the better actions, for each centre
    unrelated: Float  # (S, A), drawn at random for each centre
    seen: Int  # (S,), the centre each state is seen at; -1 for absorbing ones
    centres: Float  # (C, d)

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return int(self.behaviour.shape[1])

    def targets(self) -> dict[str, Float]:
        """Evaluation policies from practice away, each (S, A).

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
        """Exact value of a policy (S, A)."""
        check_gamma(gamma)
        return self.process.value(self._table(policy), gamma)

    def simulate(
        self, n: int, *, rng: int | np.random.Generator, policy: ArrayLike | None = None
    ) -> Trajectories:
        """Log n episodes of a policy (S, A), by default the behaviour policy.

        Columns: ``behaviour`` (true probability of the logged action), ``state`` (its number, hidden) and ``time``.
        """
        if n < 1:
            raise ValueError(f"need n >= 1 episodes, got {n}.")
        rng = np.random.default_rng(rng)
        latent = self.process.simulate(self._table(policy), n, rng=rng)
        state = latent.states[:, 0].astype(np.int64)
        return Trajectories(
            self.centres[self.seen[state]] + self._scatter(len(state), rng),
            latent.actions,
            latent.rewards,
            latent.offsets,
            n_actions=self.n_actions,
            columns={**latent.columns, "state": state},
        )

    def true_probabilities(self, data: Trajectories, policy: ArrayLike | None = None) -> Float:
        """Probability of every action at every step under a policy (S, A), the behaviour's by default, (N, A)."""
        return self._table(policy)[data["state"]]

    def reading(self, policy: ArrayLike) -> Reading:
        """A policy (S, A) as one of measurements; it must not depend on what is hidden."""
        return Reading(self.centres, self._rows(self._table(policy)))

    def weigh(self, X: ArrayLike) -> Float:
        """Weights of the tilt at measurements, (N, A)."""
        return Reading(self.centres, self._rows(self.weights)).predict_proba(X)

    def _table(self, policy: ArrayLike | None) -> Float:
        given = self.behaviour if policy is None else np.asarray(policy, dtype=np.float64)
        if given.shape != self.behaviour.shape:
            raise ValueError(
                f"{self.name}: a policy is a table of shape {self.behaviour.shape}, got {given.shape}."
            )
        return check_probabilities(given, self.name)

    def _rows(self, table: Float) -> Float:
        """A row for each centre of a table with one for each state."""
        rows, living = np.zeros((len(self.centres), self.n_actions)), self.seen >= 0
        rows[self.seen[living]] = table[living]
        if not np.allclose(rows[self.seen[living]], table[living]):
            raise ValueError(f"{self.name}: this policy treats states differently that look alike.")
        return rows

    def _scatter(self, n: int, rng: np.random.Generator) -> Float:
        """Points uniform in a ball just smaller than half of the way between the nearest two centres, (n, d)."""
        d = self.centres.shape[1]
        away = rng.standard_normal((n, d))
        radius = 0.49 * pdist(self.centres).min() * rng.random(n) ** (1 / d)
        return away * (radius / np.sqrt((away**2).sum(axis=1)))[:, None]


@dataclass(frozen=True, eq=False)
class Reading:
    """A policy that reads the state off its measurements: the nearest centre."""

    centres: Float  # (C, d)
    table: Float  # (C, A)

    @cached_property
    def classes_(self) -> Int:
        """All actions."""
        return np.arange(self.table.shape[1])

    def predict_proba(self, X: ArrayLike) -> Float:
        """The row of the nearest centre, (N, A)."""
        x = np.asarray(X, dtype=np.float64)
        if not np.isfinite(x).all():
            raise ValueError("measurements must be finite.")
        return self.table[cdist(x, self.centres).argmin(axis=1)]


def random_mdp(
    states: int = 20, actions: int = 5, *, horizon: int, rng: int | np.random.Generator
) -> Problem:
    r"""A process drawn at random; horizon 1 makes it a contextual bandit.

    Transitions are Dirichlet(0.3), the chance to end after a step is uniform from 0 to 0.1 for each state and action,
    rewards are :math:`N(0, 1)` for each state and action plus :math:`N(0, 0.5^2)` for each next state, and the
    behaviour policy and the unrelated one are softmax of :math:`N(0, 1)`. Starts are uniform.
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
    return _problem(f"{kind}, {actions} actions", process, behaviour, seen, rng)


def clinic(*, hidden: bool, rng: int | np.random.Generator = 0) -> Problem:
    """Patients of five severities, some of them frail; the clinicians know who, and the log may not.

    Three doses every four hours, for 12 steps at most. Patients improve with chance 0.34 - 0.06 severity + (0, 0.15,
    0.30) for the doses - 0.08 if frail, and worsen with chance 0.06 + 0.07 severity + (0, 0.01, 0.10) (1 - severity /
    4) - (0, 0.12, 0.25) severity / 4 + 0.08 if frail. Who improves from severity 0 is discharged, +1; who worsens
    from 4 dies, -1. They come with severity 1 (10 of 100), 2, 3 or 4 (30 each), and half are frail. Clinicians give
    more to the sicker and the frail: logits (1.5, 0, -1.5) + (0, 0.3, 0.5) severity + (0, 0.8, 1.6) if frail. ``rng``
    places the centres and draws the unrelated policy.
    """
    process, severity, frail = _clinic()
    gone = process.absorbing
    logits = (
        np.array([1.5, 0.0, -1.5]) + np.outer(severity, [0.0, 0.3, 0.5]) + np.outer(frail, [0.0, 0.8, 1.6])
    )
    alike = severity if hidden else severity + SEVERITIES * frail
    name = f"clinic, frailty {'hidden' if hidden else 'seen'}"
    seen = np.where(gone, -1, alike)
    return _problem(name, process, softmax(logits, axis=1), seen, np.random.default_rng(rng))


def suite(*, rng: int | np.random.Generator) -> tuple[Problem, ...]:
    """Nine problems: five random ones with horizons from 5 to 20, two bandits, and the clinic seen and hidden."""
    rng = np.random.default_rng(rng)
    return (
        *(random_mdp(horizon=horizon, rng=rng) for horizon in (5, 8, 10, 15, 20)),
        random_mdp(20, 5, horizon=1, rng=rng),
        random_mdp(20, 25, horizon=1, rng=rng),
        clinic(hidden=False, rng=rng),
        clinic(hidden=True, rng=rng),
    )


def _clinic() -> tuple[TabularMDP, Int, Int]:
    """The process of the clinic, and the severity and frailty of its states: ten, then discharged, then dead."""
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


def _problem(
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
    """Undiscounted values of the first action if all others are optimal, (S, A); averaged where states look alike."""
    earned = np.einsum("sau,sau->sa", process.transitions, process.rewards)
    q = earned
    for _ in range(process.horizon - 1):
        q = earned + process.transitions @ np.where(process.absorbing, 0.0, q.max(axis=1))
    alike = seen[:, None] == seen
    return alike @ q / alike.sum(axis=1, keepdims=True)
