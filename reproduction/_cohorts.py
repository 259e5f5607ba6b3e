"""Sepsis patients: simulated with the truth or read from a cohort file, fitted to, and split into two policies."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from caliope._policies import action_probabilities
from caliope._ragged import Bool, Float
from caliope._trajectories import Trajectories
from caliope.behaviour._fit import fit_model
from caliope.domains import icu_sepsis

LEVELS = icu_sepsis.LEVELS  # action = 5 * level of fluids + level of vasopressors
# The paper's appendix B: these count twice in the distance between patients. It does not say which of the two columns
# of "fluid output" is meant.
INFORMATIVE = (
    "SOFA", "Arterial_lactate", "output_total", "output_4hourly", "MeanBP", "DiaBP", "PaO2_FiO2", "Chloride",
    "Weight_kg", "age",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Cohorts:
    """Two logs without a patient in common."""

    train: Trajectories
    test: Trajectories
    sofa: Float  # (N,), score at every step of the test log
    truth: Float | None  # (N, 25), behaviour policy of the test log; None if unknown


def simulate_cohorts(train: int, test: int, rng: np.random.Generator) -> Cohorts:
    """Simulate patients of ICU-Sepsis, with three steps of history in every state."""
    fit, measure = (icu_sepsis.simulate(n, rng=rng) for n in (train, test))
    return Cohorts(fit, measure, measure["sofa"], icu_sepsis.true_probabilities(measure))


def read_cohorts(path: str | Path) -> Cohorts:
    """Read a Parquet file of ``caliope cohort``, split into training patients and others by its column training."""
    data = read_cohort(path)
    training = np.asarray(data["training"], dtype=bool)[data.layout.first]
    if training.all() or not training.any():
        raise ValueError(
            f"{path} needs training patients and others; column training is {training[0]} in all rows."
        )
    test = data[~training]
    return Cohorts(data[training], test, np.asarray(test["SOFA"], dtype=np.float64), None)


def read_cohort(path: str | Path) -> Trajectories:
    """Read a Parquet file of ``caliope cohort``, with three steps of history in every state."""
    import polars as pl

    from caliope.clinical._states import to_trajectories

    try:
        rows = pl.read_parquet(path)
        return to_trajectories(rows, history=3)
    except pl.exceptions.PolarsError as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{path} is not a cohort file: that is a Parquet file of caliope cohort, one row per four hours of a stay, "
            f"with its 48 features, action, reward and training ({first})."
        ) from error


def digest_of(path: str | Path) -> str:
    """Short digest of the content of a file: results of another content are not reused."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()[:16]


def kernel_weights(names: Sequence[str], *, lags: bool) -> Float:
    """Weight 2 for informative features and 1 for the others; ``lags``: also for their values at earlier steps."""
    present = [re.sub(r"_lag\d+$", "", name) if lags else name for name in names]
    return np.where(np.isin(present, INFORMATIVE), 2.0, 1.0)


@contextmanager
def ignore_early_stop() -> Iterator[None]:
    """Let a network stop after its 100 epochs without a warning: the paper trains no longer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def fit_predict(model: Any, train: Trajectories, states: ArrayLike) -> Float:
    """Fit a copy of a model to a log, and return the probabilities of all actions in some states, (N, A)."""
    fitted = fit_model(model, train.states, train.actions, train.layout.owner)
    return action_probabilities(fitted, states, train.n_actions)


def never_given(data: Trajectories) -> Bool:
    """Whether each patient never received vasopressors, (n,)."""
    return data.layout.sum_steps((data.actions % LEVELS > 0).astype(np.float64)) == 0


def random_split(data: Trajectories, *, rng: int | np.random.Generator) -> tuple[Trajectories, Trajectories]:
    """Half of the patients, and the others: two samples of one policy."""
    return data.split(0.5, rng=rng)


def intervention_split(
    data: Trajectories, *, rng: int | np.random.Generator
) -> tuple[Trajectories, Trajectories]:
    """Half of the patients who never received vasopressors, and everybody else.

    It selects by what happened later: patients who need no vasopressors do well for other reasons too. So the mean
    return of the first part is not the value of its policy (:func:`selection_bias`).
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
    policy_value: float  # of the policy that these patients follow: the truth
    practice_value: float  # of the clinicians
    tv_second: float  # between the policies of the two parts, over the states of the second
    tv_first: float  # the same over the states of the first

    @property
    def bias(self) -> float:
        """How far the paper's ground truth is off."""
        return self.mean_return - self.policy_value


def selection_bias(
    *, gamma: float, cap: int | None = 20, outcome: tuple[float, float] = (-15.0, 15.0)
) -> SelectionBias:
    r"""Exact numbers of the intervention split: the mean return of untreated patients, and the value of their policy.

    With :math:`h_t(s)` the chance to go on without vasopressors to the end, these patients follow the policy

    .. math:: \pi_t(a \mid s) \propto 1\{a \text{ without}\}\; \pi_b(a \mid s) \sum_{s'} P(s' \mid s, a)\, h_{t+1}(s')

    (Doob's transform). Their transitions are conditioned too, :math:`P(s' \mid s, a)\, h_{t+1}(s')` up to a factor,
    which no policy can bring about: the mean return contains both effects, the value of the policy only the first.
    """
    world = _World.of(cap, outcome)
    # After the last step the clinicians decide, and the outcome is that of their policy.
    later, earned, worth = np.ones(world.n), world.expected, world.expected
    ahead = []
    for _ in range(world.steps):
        go_on = world.without * world.arriving(later)
        ahead.append(go_on)
        h, g = go_on.sum(axis=1), world.stay @ earned
        # Where all are treated, the policy of the untreated is unknown; it is taken to be that of the clinicians.
        v = np.where(h > 0, _divide((go_on * world.arriving(worth)).sum(axis=1), h), world.move @ worth)
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
    """The process without vasopressors."""

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


def _divide(x: Float, y: Float) -> Float:
    """Divide, with 0 where y is 0: no untreated patient visits a state in which all are treated."""
    return np.divide(x, y, out=np.zeros_like(x), where=y > 0)


def _total_variation(first: Float, second: Float) -> Float:
    """Distance between the policies of two tables of visits, one number per state."""
    policies = [
        _divide(x, np.repeat(x.sum(axis=1, keepdims=True), x.shape[1], axis=1)) for x in (first, second)
    ]
    return np.asarray(0.5 * np.abs(policies[0] - policies[1]).sum(axis=1))
