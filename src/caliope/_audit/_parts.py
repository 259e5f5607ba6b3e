"""What is done with each part of a log in partitions: read, and weighed with the models that the sample gave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from caliope._audit._inputs import check_taken
from caliope._gather import target_probabilities, weigh_steps
from caliope._given_policies import as_policy
from caliope._named_policies import as_coded
from caliope._policies import MixWithPractice, Relative, action_probabilities
from caliope._ragged import Bool, Float, Int, at_actions
from caliope._trajectories import Trajectories
from caliope.behaviour._extended import ExtendedBehaviour
from caliope.behaviour._fit import FittedBehaviour
from caliope.behaviour._threads import one_blas_thread
from caliope.checks._copies import content_keys
from caliope.io._inventory import Part
from caliope.io._partitions import Reading
from caliope.values._defaults import AveragedValues
from caliope.weights._regressed import WeightRegression, predict_weights

_FEW = 0.5  # share of the actions up to which values are predicted for those alone


@dataclass(frozen=True, eq=False)
class ReadRows:
    """Read the rows of some trajectories."""

    reading: Reading

    def __call__(self, part: Part) -> pl.DataFrame:
        """The rows of the trajectories of a part."""
        return part.rows(self.reading)


@dataclass(frozen=True, eq=False)
class PartJob:
    """A part, and which model predicts each of its trajectories.

    Attributes
    ----------
    part : Part
        The trajectories to read.
    turns : array of shape (k, divisions)
        The model of the values, in each division into folds.
    weight_turns : array of shape (k,)
        The model of the weights.
    """

    part: Part
    turns: Int
    weight_turns: Int

    @property
    def name(self) -> str:
        """The file and the rows."""
        return self.part.name


class PartColumns(NamedTuple):
    """What estimators need of a part, trajectory after trajectory."""

    rewards: Float  # (M,)
    log_ratio: Float  # (M,)
    q: Float  # (M,)
    v: Float  # (M,)
    before: Float  # (M, k), predicted weights before each step
    terminated: Bool  # (k,)
    keys: NDArray[np.uint64]  # (k,), of what each trajectory holds
    ruled_out: int = 0  # logged actions to which the behaviour model gave probability 0


@dataclass(frozen=True, eq=False)
class WeighPart:
    """Compute what estimators need of the trajectories of a part.

    Attributes
    ----------
    reading : Reading
        How rows become trajectories.
    n_actions : int
        Number of actions of the whole log.
    behaviour : FittedBehaviour
        The behaviour model.
    n_fitted : int
        Decisions that it was fitted on.
    logged : str or None
        The column with the recorded probabilities of the actions taken, which are used instead of the model.
    target : Any
        The target, as it was given.
    values : AveragedValues
        The models of the values.
    values_see_all : bool
        Whether these see what the behaviour model sees beside the states, such as the past.
    regressions : tuple of WeightRegression
        The models of the weights, one per target.
    """

    reading: Reading
    n_actions: int
    behaviour: FittedBehaviour
    n_fitted: int
    logged: str | None
    target: Any
    values: AveragedValues
    values_see_all: bool
    regressions: tuple[WeightRegression, ...]

    @one_blas_thread()
    def __call__(self, job: PartJob) -> PartColumns:
        """The columns of a part."""
        data = self._read(job.part)
        wide = self.behaviour.widen(data)
        behaviour, ruled_out = self._behaviour_on(data, wide)
        target, needed = _ask_target(as_coded(as_policy(self.target, data), data), data)
        q = self.values.predict(wide if self.values_see_all else data, job.turns, needed)
        log_ratio, q_taken, v = weigh_steps(data, target, behaviour, q=q)
        before = predict_weights(self.regressions, data, job.weight_turns)
        keys = content_keys(data)
        return PartColumns(data.rewards, log_ratio, q_taken, v, before, data.terminated, keys, ruled_out)

    def _read(self, part: Part) -> Trajectories:
        data = read_part(self.reading, part.rows(self.reading), part.numbers)
        if len(data) != len(part.numbers):
            raise ValueError(
                f"holds {len(data)} {data.units} now and not {len(part.numbers)}: the file was changed after it was "
                "looked at."
            )
        if data.n_actions > self.n_actions:
            raise ValueError(
                f"holds action {data.n_actions - 1}, and the sample that models were fitted on has {self.n_actions} "
                "actions: say n_actions, or take a larger sample."
            )
        return data if data.n_actions == self.n_actions else data.replace(n_actions=self.n_actions)

    def _behaviour_on(self, data: Trajectories, wide: Trajectories) -> tuple[Float, int]:
        if self.logged is not None:
            known = np.asarray(data[self.logged], dtype=np.float64)
            check_taken(data, known)
            return known, 0
        found = action_probabilities(self.behaviour.model, wide.states, self.n_actions)
        ruled_out = int((at_actions(found, data.actions) == 0).sum())
        return rule_out_nothing(found, self.n_fitted), ruled_out


def rule_out_nothing(probs: Float, n: int) -> Float:
    """Probabilities of actions, (N, A), none of them 0 outside the n decisions that a model was fitted on.

    Where a model rules an action out, each has happened once more in its n decisions (Laplace's rule): what never
    happened there may happen in one of n others. Rows without a 0 stay as they are, and no row asks for the action that
    was taken, so that ratios keep their mean.

    Examples
    --------
    >>> rule_out_nothing(np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]), 97).round(3).tolist()
    [[0.495, 0.495, 0.01], [0.2, 0.3, 0.5]]
    """
    rows = np.flatnonzero((probs == 0).any(axis=1))
    if not len(rows):
        return probs
    whole = np.array(probs)
    whole[rows] = (n * whole[rows] + 1) / (n + whole.shape[1])
    return whole


def _ask_target(target: Any, data: Trajectories) -> tuple[Any, Bool | None]:
    """The target with its probabilities, and at each step the actions whose values matter, (N, A).

    These are the actions that the target may take, and the logged one; None where most are, or the target is practice.
    """
    mixed = isinstance(target, MixWithPractice)
    if isinstance(target, Relative) and not mixed:
        return target, None
    probs = target_probabilities(data, target.policy if mixed else target)
    needed = probs > 0
    needed[np.arange(data.n_steps), data.actions] = True
    asked = replace(target, policy=probs) if mixed else probs
    return asked, (needed if needed.mean() < _FEW else None)


def read_part(reading: Reading, rows: pl.DataFrame, numbers: Int) -> Trajectories:
    """The trajectories of some rows; where no calendar orders them, their numbers in the whole log do."""
    data = reading.trajectories(rows)
    if reading.options.get("calendar") is not None or len(numbers) != len(data):
        return data
    return data.replace(calendar=numbers.astype(np.float64))


def without_log(behaviour: FittedBehaviour) -> FittedBehaviour:
    """A behaviour model without its log, which it needs for trajectories that it was fitted on alone."""
    if isinstance(behaviour, ExtendedBehaviour):
        # Those of the other parts have a place in the order of the log, although they are not in the sample.
        behaviour = replace(behaviour, extension=replace(behaviour.extension, members=None))
    return replace(behaviour, probabilities=behaviour.probabilities[:0], data=behaviour.data[:1])
