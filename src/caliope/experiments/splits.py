"""The paper's ways to part a cohort into two policies, and what the second of them does to its own truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from caliope.domains import icu_sepsis
from caliope.ragged import Bool, Float
from caliope.trajectories import Trajectories

LEVELS = icu_sepsis.LEVELS  # action = 5 * level of fluids + level of vasopressors


def never_given(data: Trajectories) -> Bool:
    """Who never received vasopressors, (n,)."""
    return data.layout.sum_steps((data.actions % LEVELS > 0).astype(np.float64)) == 0


def random_split(data: Trajectories, *, rng: int | np.random.Generator) -> tuple[Trajectories, Trajectories]:
    """Half of the patients, and the others: two samples of one policy."""
    return data.split(0.5, rng=rng)


def intervention_split(
    data: Trajectories, *, rng: int | np.random.Generator
) -> tuple[Trajectories, Trajectories]:
    """Half of the patients who never received vasopressors, and everybody else.

    It selects by what happened later: who needs no vasopressors did well for other reasons too, so the mean return of
    the first part is not what its policy is worth (:func:`selection_bias`).
    """
    candidates = np.flatnonzero(never_given(data))
    if len(candidates) < 2:
        raise ValueError(
            f"an intervention split needs two patients without vasopressors, got {len(candidates)} of {len(data)}."
        )
    chosen = np.zeros(len(data), dtype=bool)
    chosen[np.random.default_rng(rng).permutation(candidates)[: len(candidates) // 2]] = True
    return data[chosen], data[~chosen]


@dataclass(frozen=True)
class SelectionBias:
    """The intervention split in the ICU-Sepsis process, exactly, in the limit of infinitely many patients."""

    share: float  # of patients who never receive vasopressors
    mean_return: float  # of these patients: the paper's ground truth
    policy_value: float  # of the policy that they show: the truth
    practice_value: float  # of the clinicians
    tv_second: float  # between the policies that the two parts show, over the states of the second
    tv_first: float  # the same over the states of the first

    @property
    def bias(self) -> float:
        """How far the paper's ground truth is off."""
        return self.mean_return - self.policy_value


def selection_bias(
    *, gamma: float, cap: int | None = 20, outcome: tuple[float, float] = (-15.0, 15.0)
) -> SelectionBias:
    r"""Exact numbers of the intervention split: what never-treated patients earn, and what their policy is worth.

    With :math:`h_t(s)` the chance to go on without vasopressors to the end, these patients show the policy

    .. math:: \pi_t(a \mid s) \propto 1\{a \text{ without}\}\; \pi_b(a \mid s) \sum_{s'} P(s' \mid s, a)\, h_{t+1}(s')

    (Doob's transform). Their transitions are conditioned too, :math:`P(s' \mid s, a)\, h_{t+1}(s')` up to a factor,
    and no policy can order those: the mean return has both, the value of the policy only the first.
    """
    world = _World.of(cap, outcome)
    # After the last step the clinicians go on, and what they achieve is the outcome of all.
    later, earned, worth = np.ones(world.n), world.expected, world.expected
    ahead = []
    for _ in range(world.steps):
        go_on = world.without * world.arriving(later)
        ahead.append(go_on)
        h, g = go_on.sum(axis=1), world.stay @ earned
        # Where all are treated, the policy of those who are not is unknown; let it be that of the clinicians.
        v = np.where(h > 0, _divided((go_on * world.arriving(worth)).sum(axis=1), h), world.move @ worth)
        later = np.where(world.living, h, 1.0)
        earned, worth = (np.where(world.living, gamma * x, world.expected) for x in (g, v))
    first, everyone = world.visits(ahead[::-1])
    tv, second = _total_variation(first, everyone - first / 2), everyone - first / 2
    share = float(world.initial @ h)
    return SelectionBias(
        share,
        float(world.initial @ g) / share,
        float(world.initial @ v),
        icu_sepsis.value(gamma=gamma, cap=cap, outcome=outcome),
        float(second.sum(axis=1) @ tv / second.sum()),
        float(first.sum(axis=1) @ tv / first.sum()),
    )


@dataclass(frozen=True, eq=False)
class _World:
    """The process as those see it who give no vasopressors."""

    initial: Float  # (S,)
    living: Bool  # (S,)
    expert: Float  # (S, A)
    without: Float  # (S, 5), the clinicians' probability of each action without vasopressors
    arrive: csr_array  # (5 S, S), the transitions of these; most are 0
    stay: Float  # (S, S), chance to get there without vasopressors
    move: Float  # (S, S), chance to get there
    expected: Float  # (S,), outcome under the clinicians
    steps: int

    @classmethod
    def of(cls, cap: int | None, outcome: tuple[float, float]) -> _World:
        sepsis = icu_sepsis.load()
        process = sepsis.process
        survival = process.state_values(sepsis.expert, 1.0)[0]
        survival[icu_sepsis.SURVIVAL] = 1.0
        arrive = np.ascontiguousarray(process.transitions[:, ::LEVELS])
        return cls(
            process.initial,
            ~process.absorbing,
            sepsis.expert,
            sepsis.expert[:, ::LEVELS],
            csr_array(arrive.reshape(-1, arrive.shape[2])),
            np.einsum("sa,sau->su", sepsis.expert[:, ::LEVELS], arrive),
            np.einsum("sa,sau->su", sepsis.expert, process.transitions),
            outcome[0] + (outcome[1] - outcome[0]) * survival,
            cap or process.horizon,
        )

    @property
    def n(self) -> int:
        return len(self.initial)

    def arriving(self, x: Float) -> Float:
        """Expectation of x after each action without vasopressors, (S, 5)."""
        return np.asarray(self.arrive @ x).reshape(self.without.shape)

    def visits(self, ahead: Sequence[Float]) -> tuple[Float, Float]:
        """Expected visits to each state and action, of those never treated and of everyone, (S, A) each."""
        never, everyone = np.zeros_like(self.expert), np.zeros_like(self.expert)
        so_far, here = self.initial, self.initial
        for go_on in ahead:
            never[:, ::LEVELS] += so_far[:, None] * go_on
            everyone += here[:, None] * self.expert
            so_far, here = (np.where(self.living, x, 0) for x in (so_far @ self.stay, here @ self.move))
        return never, everyone


def _divided(x: Float, y: Float) -> Float:
    """Divide, with 0 where y is 0: where nobody stays untreated, nobody who is never treated comes."""
    return np.divide(x, y, out=np.zeros_like(x), where=y > 0)


def _total_variation(first: Float, second: Float) -> Float:
    """Between the actions that two visit counts show, a state."""
    shown = [
        _divided(x, np.repeat(x.sum(axis=1, keepdims=True), x.shape[1], axis=1)) for x in (first, second)
    ]
    return np.asarray(0.5 * np.abs(shown[0] - shown[1]).sum(axis=1))
