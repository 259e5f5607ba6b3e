"""Values for a log from models that have not seen the trajectory: what the doubly robust family asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.gathering import target_probabilities
from caliope.policies import Policy
from caliope.ragged import Float, Int, read_only
from caliope.results import Finding
from caliope.trajectories import Trajectories
from caliope.values.finite import TimeIndexedQ, fitted_q_by_time
from caliope.values.fitted import FittedQ, fitted_q


@dataclass(frozen=True, eq=False)
class CrossFittedQ:
    """Values of all actions at every step of one log, each trajectory's by a model fitted without it."""

    table: Float  # (N, A)
    models: tuple[FittedQ | TimeIndexedQ, ...]  # one a fold
    data: Trajectories
    gamma: float

    def on(self, data: Trajectories) -> Float:
        """Return the values kept for the log that was cross-fitted, a copy of it or a selection from it.

        A trajectory is known by its states, actions and rewards; of several alike, by its id.
        """
        if data is self.data:
            return self.table
        whose = [self._places.get((d, i), self._places.get((d, None))) for d, i in _names(data)]
        if None in whose:
            raise ValueError(
                "cross-fitted values belong to the log that they were fitted on; use fitted_q for another. "
                f"{whose.count(None)} of {len(whose)} trajectories are not in it "
                f"(first: trajectory {data.ids[whose.index(None)]})."
            )
        return self.table[self.data.layout.rows_of(np.array(whose))]

    @cached_property
    def _places(self) -> dict[tuple[bytes, Any], int]:
        places: dict[tuple[bytes, Any], int] = {}
        for place, (digest, name) in enumerate(_names(self.data)):
            places.setdefault((digest, name), place)
            places.setdefault((digest, None), place)
        return places

    def notes_for(self, data: Trajectories) -> tuple[Finding, ...]:
        """What a reader of an estimate with these values must know."""
        k = len(self.models)
        message = f"the values were cross-fitted: each trajectory by a model of {k - 1} in {k} others"
        doubts = [note for model in self.models for note in model.doubts()]
        first = {note.code: note for note in reversed(doubts)}  # one of a kind is enough
        return (Finding("V102", "note", message, {"folds": float(k)}), *first.values())


def _names(data: Trajectories) -> list[tuple[bytes, Any]]:
    return list(zip(data.digests, data.ids.tolist(), strict=True))


def cross_fitted_q(
    data: Trajectories,
    target: Policy | ArrayLike,
    regressor: Any,
    *,
    gamma: float,
    n_iterations: int,
    folds: int = 5,
    rng: int | np.random.Generator,
    checkpoint: str | Path | None = None,
    **options: Any,
) -> CrossFittedQ:
    """Fitted Q evaluation across folds of trajectories.

    A flexible regressor explains the very rewards it was fitted on, the correction of a doubly robust
    estimate then vanishes, and its interval is too short. Options go to :func:`fitted_q`; of ``checkpoint`` there
    is one file a fold, ``fit-fold0.npz`` for ``fit.npz``, and to go on from them ``rng`` must be the same number.
    """

    def fit(fold: int, part: Trajectories, proba: Float) -> FittedQ:
        path = None if checkpoint is None else Path(checkpoint)
        own = path and path.with_name(f"{path.stem}-fold{fold}{path.suffix}")
        return fitted_q(
            part, proba, regressor, gamma=gamma, n_iterations=n_iterations, checkpoint=own, **options
        )

    return _across_folds(data, target, fit, gamma, data.fold_of(folds, rng=rng))


def cross_fitted_q_by_time(
    data: Trajectories,
    target: Policy | ArrayLike,
    regressor: Any,
    *,
    gamma: float,
    folds: int = 5,
    rng: int | np.random.Generator,
    per_action: bool = False,
) -> CrossFittedQ:
    """Fitted Q evaluation backward in time across folds of trajectories: :func:`fitted_q_by_time` on each."""

    def fit(fold: int, part: Trajectories, proba: Float) -> TimeIndexedQ:
        return fitted_q_by_time(part, proba, regressor, gamma=gamma, per_action=per_action)

    return _across_folds(data, target, fit, gamma, data.fold_of(folds, rng=rng))


def _across_folds(
    data: Trajectories,
    target: Policy | ArrayLike,
    fit: Callable[[int, Trajectories, Float], FittedQ | TimeIndexedQ],
    gamma: float,
    fold: Int,
) -> CrossFittedQ:
    proba = target_probabilities(data, target)
    table, models = np.empty((data.n_steps, data.n_actions)), []
    for j in range(int(fold.max()) + 1):
        others, held_out = np.flatnonzero(fold != j), np.flatnonzero(fold == j)
        models.append(fit(j, data[others], proba[data.layout.rows_of(others)]))
        table[data.layout.rows_of(held_out)] = models[-1].on(data[held_out])
    return CrossFittedQ(read_only(table), tuple(models), data, gamma)
