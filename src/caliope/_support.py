"""Where current practice leaves no choice: regions of the states, and policies restricted to the rest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from caliope._policies import (
    MixWithPractice,
    Policy,
    Practice,
    Relative,
    TiltOfPractice,
    action_probabilities,
    probabilities_on,
)
from caliope._ragged import Bool, Float, Int
from caliope._trajectories import Trajectories
from caliope.checks import S102, Finding, Level
from caliope.checks._regions import FOLDS, Box, Grid, Uses, find_empty, make_grid

STEPS = 50_000  # looked at, of whole trajectories spread over the log
_ACTIONS, _OTHERS = (
    8,
    4,
)  # that are searched for: those a policy asks for most, and those that may stand alone
_LISTED = 3  # regions that are printed
_CAUTION, _ISSUE = 0.003, 0.005  # shares of the new policy's decisions


@dataclass(frozen=True)
class Side:
    """What a region says of one column: above ``low``, and at most ``high``."""

    column: int
    name: str
    low: float = -np.inf
    high: float = np.inf
    only: float | None = None  # the one value of the column between them

    def holds(self, states: Float) -> Bool:
        """Which rows fit, (N,)."""
        x = states[:, self.column]
        return (x > self.low) & (x <= self.high)

    def __str__(self) -> str:
        if self.only is not None:
            return f"{self.name} = {self.only:.4g}"
        low = [f"{self.name} > {self.low:.4g}"] if np.isfinite(self.low) else []
        high = [f"{self.name} <= {self.high:.4g}"] if np.isfinite(self.high) else []
        return " and ".join(low + high)


@dataclass(frozen=True)
class Region:
    """A part of the states in which practice never took an action, or took one action alone.

    Attributes
    ----------
    sides : tuple of Side
        The rule.
    action : int
        The action that was never taken; with ``alone`` the one that always was.
    alone : bool
        Whether it is the only action that was taken.
    rows : int
        Decisions of the log in the region.
    expected : float
        How often the behaviour model expected what never happened.
    target : float
        How often the new policy would do it.
    share : float
        The same as a share of all its decisions.
    taken : tuple of int
        How often each action was taken there.
    """

    sides: tuple[Side, ...]
    action: int
    alone: bool
    rows: int
    expected: float
    target: float
    share: float
    taken: tuple[int, ...]

    @property
    def rule(self) -> str:
        """The region in words, such as ``severity > 3.1 and age <= 40``."""
        return " and ".join(map(str, self.sides)) or "anything"

    def holds(self, states: Float) -> Bool:
        """Which rows lie in the region, (N,)."""
        inside = np.ones(len(states), dtype=bool)
        for side in self.sides:
            inside &= side.holds(states)
        return inside

    def seen_text(self, names: tuple[str, ...] | None) -> str:
        """What practice did there, in words."""
        name = self.action if names is None else repr(names[self.action])
        return f"only action {name} was taken" if self.alone else f"action {name} was never taken"

    @property
    def missing(self) -> Bool:
        """Which actions are not to be taken there, (A,)."""
        named = np.arange(len(self.taken)) == self.action
        return ~named if self.alone else named

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        names = ("action", "alone", "rows", "expected", "target", "share")
        return {"rule": self.rule} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Support:
    """Regions of the states without choice, and how much of the new policy lies in them.

    Attributes
    ----------
    regions : tuple of Region
        Those that were found, the one with the largest share first.
    mass : float
        Share of the new policy's decisions that they hold together.
    states : array of shape (N, d), or None
        States of the log, for targets that are tables.

    Examples
    --------
    >>> from caliope import UniformPolicy
    >>> side = Side(0, "severity", low=3.0)
    >>> support = Support((Region((side,), 1, False, 80, 20.0, 40.0, 0.01, (80, 0)),), 0.01)
    >>> support.restrict(UniformPolicy(2)).predict_proba([[2.0], [4.0]])
    array([[0.5, 0.5],
           [1. , 0. ]])
    """

    regions: tuple[Region, ...] = ()
    mass: float = 0.0
    states: Float | None = field(default=None, repr=False, compare=False)

    def restrict(self, target: Any) -> Any:
        """Return a policy that never takes an action in a region where practice never did.

        Its probabilities there are scaled up over the other actions. Where none is left, it does what was done in the
        region. It is another policy, with a value of its own.

        Parameters
        ----------
        target : Policy, array of shape (N, A), or a policy stated relative to practice
            The policy to restrict. A tilt of practice has support everywhere and stays as it is.

        Returns
        -------
        Policy, array or relative policy
            Of the same kind as the target.
        """
        if isinstance(target, Practice | TiltOfPractice) or not self.regions:
            return target
        if isinstance(target, MixWithPractice):
            return replace(target, policy=self.restrict(target.policy))
        if hasattr(target, "predict_proba") or hasattr(target, "on"):
            return RestrictedPolicy(target, self.regions)
        table = np.asarray(target, dtype=np.float64)
        shape = None if self.states is None else (len(self.states), len(self.regions[0].taken))
        if self.states is None or table.shape != shape:
            raise ValueError(
                f"target must be a policy, or a table with one row per step of the audited log, shape {shape}; got an "
                f"array of shape {table.shape}."
            )
        return _restrict(table, self.states, self.regions)

    @property
    def changes(self) -> bool:
        """Whether restricting the policy makes it another one."""
        return bool(self.regions)

    def scale(self, share: float) -> Support:
        """The same for a policy that is followed in a share of the decisions, and practice in the others."""
        regions = (replace(x, target=share * x.target, share=share * x.share) for x in self.regions)
        return replace(self, regions=tuple(regions), mass=share * self.mass)

    def findings(self) -> tuple[Finding, ...]:
        """S102: actions of the new policy where practice leaves no choice."""
        if self.mass < _CAUTION:
            return ()
        first = self.regions[0]
        level: Level = "issue" if self.mass >= _ISSUE else "caution"
        facts = {"rule": first.rule, "action": first.action, "rows": first.rows, "expected": first.expected}
        variants = ("alone" if first.alone else "never", "several" if len(self.regions) > 1 else "one")
        return (
            S102.finding(
                level, *variants, mass=self.mass, regions=len(self.regions), largest=first.share, **facts
            ),
        )

    @property
    def restriction(self) -> str:
        """What restricting a policy means, for the question that is then asked."""
        rules = "; ".join(f"where {region.rule}" for region in self.regions)
        return (
            f"It takes no action where practice never did ({rules}): it was restricted, as asked. This is not the "
            "value of the policy itself."
        )

    def describe(self, names: tuple[str, ...] | None) -> list[str]:
        """The regions in words, one line each; the largest three."""
        return [
            f"No choice: where {region.rule}, {region.seen_text(names)} in {region.rows} decisions; "
            f"{region.share:.2%} of the new policy's decisions."
            for region in self.regions[:_LISTED]
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"mass": self.mass, "regions": [region.to_dict() for region in self.regions]}


@dataclass(frozen=True, eq=False)
class RestrictedPolicy:
    """A policy that takes no action where practice never did; made by :meth:`Support.restrict`."""

    policy: Policy
    regions: tuple[Region, ...]

    @property
    def classes_(self) -> Int:
        """All actions of the log."""
        return np.arange(len(self.regions[0].taken))

    def predict_proba(self, X: Any) -> Float:
        """Return the probabilities in each state, (N, A)."""
        states = np.asarray(X)
        return _restrict(action_probabilities(self.policy, X, len(self.classes_)), states, self.regions)

    def on(self, data: Any) -> Float:
        """Return the probabilities at every step of a log, (N, A)."""
        return _restrict(probabilities_on(self.policy, data), data.states, self.regions)


def _restrict(table: Float, states: Float, regions: Iterable[Region]) -> Float:
    missing, local = np.zeros(table.shape, dtype=bool), np.zeros(table.shape)
    for region in regions:
        inside = region.holds(states)
        missing[inside] |= region.missing
        local[inside] += region.taken
    kept = np.where(missing, 0.0, table)
    # Where the policy has nothing left it does what was done there, and where that is nothing either it stays.
    for other in (np.where(missing, 0.0, local), table):
        lost = kept.sum(axis=1) <= 0
        kept[lost] = other[lost]
    changed = missing.any(axis=1, keepdims=True)
    return np.where(changed, kept / kept.sum(axis=1, keepdims=True), table)


def asked_of_practice(target: Any, target_probs: Float, data: Trajectories) -> Float | None:
    """The probabilities that practice must support, (N, A); None where the target is practice reweighted."""
    if not isinstance(target, Relative):
        return target_probs
    if not isinstance(target, MixWithPractice):
        return None
    policy = target.policy
    known = hasattr(policy, "predict_proba") or hasattr(policy, "on")
    table = probabilities_on(policy, data) if known else np.asarray(policy, dtype=np.float64)
    return target.share * table


def find_support(data: Trajectories, target: Float, expected: Float, *, rng: int) -> Support:
    """Search a log for regions without choice that a policy needs.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : array of shape (N, A)
        Probabilities of the target policy that practice must support.
    expected : array of shape (N, A)
        Probabilities of the behaviour model, cross-fitted.
    rng : int
        Seed of the folds.

    Returns
    -------
    Support
        The regions.
    """
    part = data.subsample(STEPS)
    rows = data.layout.rows_of(part)
    log = data.part(part)
    if len(log) < FOLDS:
        return Support()
    fold = log.fold_of(FOLDS, rng=rng)[log.layout.owner]
    search = _Search(log, make_grid(log.states), fold, target[rows], expected[rows])
    found = sorted(search.regions(), key=lambda region: -region.share)
    missing = np.zeros(search.target.shape, dtype=bool)
    for region in found:
        missing[region.holds(log.states)] |= region.missing
    return Support(tuple(found), float(search.target[missing].sum() / len(rows)), data.states)


@dataclass(frozen=True, eq=False)
class _Search:
    """One log, with the probabilities of the target policy and of the behaviour model, (N, A) both."""

    data: Trajectories
    grid: Grid
    fold: Int
    target: Float
    expected: Float

    def regions(self) -> list[Region]:
        """All regions: where an action was never taken, and where one was always."""
        n_actions = self.data.n_actions
        often = np.bincount(self.data.actions, minlength=n_actions)
        asked = np.minimum(self.target, np.maximum(self.expected, often / len(self.fold) / 2)).sum(axis=0)
        single = [(int(a), False) for a in np.argsort(-asked, kind="stable")[:_ACTIONS]]
        # Of two actions, one is never taken where the other always is.
        alone = [(int(a), True) for a in np.argsort(-often, kind="stable")[:_OTHERS]] if n_actions > 2 else []
        searches = [*single, *alone]
        return [region for x in searches for region in self._regions(*x, searches=len(searches))]

    def _regions(self, action: int, alone: bool, *, searches: int) -> list[Region]:
        taken = (self.data.actions == action).astype(np.float64)
        target, expected = self.target[:, action], self.expected[:, action]
        if alone:
            taken, target, expected = 1 - taken, self.target.sum(axis=1) - target, 1 - expected
        boxes = find_empty(self.grid, self.fold, Uses.of(taken, target, expected), searches=searches)
        return [self._describe(box, action, alone, target, expected) for box in boxes]

    def _describe(self, box: Box, action: int, alone: bool, target: Float, expected: Float) -> Region:
        inside = box.holds(self.data.states)
        counts = np.bincount(self.data.actions[inside], minlength=self.data.n_actions)
        return Region(
            sides=self._sides(box),
            action=action,
            alone=alone,
            rows=int(inside.sum()),
            expected=float(expected[inside].sum()),
            target=float(target[inside].sum()),
            share=float(target[inside].sum() / len(inside)),
            taken=tuple(counts.tolist()),
        )

    def _sides(self, box: Box) -> tuple[Side, ...]:
        found = []
        for column, low, high in zip(box.columns, box.low, box.high, strict=True):
            if np.isfinite(low) or np.isfinite(high):
                side = Side(column, self.data.feature_names[column], low, high)
                values = np.unique(self.data.states[side.holds(self.data.states), column])
                found.append(replace(side, only=float(values[0])) if len(values) == 1 else side)
        return tuple(found)
