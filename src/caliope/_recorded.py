"""Recorded probabilities of all actions: current practice, known exactly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from caliope._gather import target_probabilities
from caliope._policies import MixWithPractice, Practice, TiltOfPractice, check_probabilities, rounded_digits
from caliope._ragged import Float, Int, at_actions, read_only
from caliope._support import Support
from caliope._trajectories import Trajectories
from caliope.checks import Finding


@dataclass(frozen=True, eq=False)
class RecordedPractice:
    """Probabilities of all actions with which the decisions of a log were taken, as they were recorded.

    Attributes
    ----------
    table : array of shape (N, A)
        One row per step; rows sum to 1.
    digits : int or None
        To how many digits they were rounded, where rows were rescaled for that.
    """

    table: Float = field(repr=False)
    digits: int | None = None
    known: ClassVar[bool] = True  # nothing was fitted

    def on(self, data: Trajectories) -> Float:
        """Return the probabilities at every step of the log, (N, A)."""
        return self.table

    def part(self, rows: Int) -> RecordedPractice:
        """The same for some steps of the log."""
        return replace(self, table=self.table[rows])

    def describe(self, name: str) -> str:
        """What they are, in words."""
        text = f"{name} of all actions"
        return text if self.digits is None else f"{text}, rounded to {self.digits} digits and rescaled"


def as_recorded(data: Trajectories, table: Float) -> RecordedPractice:
    """Check recorded probabilities of all actions, (N, A); rounded rows are rescaled to sum to 1."""
    if table.shape != (data.n_steps, data.n_actions):
        raise ValueError(
            f"logged probabilities of all actions must have shape ({data.n_steps}, {data.n_actions}), one row per step "
            f"and one column per action; got {table.shape}. Give one column for each action, even if never taken."
        )
    digits = rounded_digits(table)
    if digits is not None:
        table = table / table.sum(axis=1, keepdims=True)
    return RecordedPractice(read_only(check_probabilities(table, "logged").copy()), digits)


@dataclass(frozen=True)
class RecordedSupport(Support):
    """What practice leaves no choice about, where its probabilities are recorded: actions of probability 0.

    Attributes
    ----------
    data : Trajectories
        The log.
    practice : RecordedPractice
        Its recorded probabilities.
    """

    data: Trajectories | None = field(default=None, repr=False, compare=False)
    practice: RecordedPractice | None = field(default=None, repr=False, compare=False)

    @property
    def changes(self) -> bool:
        """Whether restricting the policy makes it another one."""
        return self.mass > 0

    def findings(self) -> tuple[Finding, ...]:
        """Nothing: S101 counts what a policy asks of actions without probability."""
        return ()

    @property
    def restriction(self) -> str:
        """What restricting a policy means, for the question that is then asked."""
        return (
            "It takes no action whose recorded probability is 0: it was restricted, as asked. This is not the value of "
            "the policy itself."
        )

    def restrict(self, target: Any) -> Any:
        """Return the policy without the actions of recorded probability 0, as a table, (N, A).

        The probabilities of the other actions are scaled up. Where none is left, it does what practice does.

        Parameters
        ----------
        target : Policy, array of shape (N, A), or a policy stated relative to practice
            The policy to restrict. A tilt of practice has support everywhere and stays as it is.

        Returns
        -------
        array of shape (N, A), or relative policy
            The restricted policy.
        """
        if isinstance(target, Practice | TiltOfPractice) or self.data is None or self.practice is None:
            return target
        if isinstance(target, MixWithPractice):
            return replace(target, policy=self.restrict(target.policy))
        return restrict_to(target_probabilities(self.data, target), self.practice.table)


def restrict_to(table: Float, recorded: Float) -> Float:
    """Probabilities of a policy without the actions of recorded probability 0, (N, A)."""
    kept = np.where(recorded > 0, table, 0.0)
    total = kept.sum(axis=1, keepdims=True)
    scaled = np.divide(kept, total, out=recorded.copy(), where=total > 0)
    return np.where((kept == table).all(axis=1, keepdims=True), table, scaled)


def recorded_support(data: Trajectories, asked: Float, practice: RecordedPractice) -> RecordedSupport:
    """How much a policy asks of actions with recorded probability 0; ``asked`` is (N, A)."""
    mass = float(asked[practice.table == 0].sum() / data.n_steps)
    return RecordedSupport(mass=mass, states=data.states, data=data, practice=practice)


def taken_of(data: Trajectories, practice: RecordedPractice) -> Float:
    """The recorded probabilities of the actions taken, (N,)."""
    return at_actions(practice.table, data.actions)
