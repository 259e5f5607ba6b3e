"""Out-of-fold values for a log, for doubly robust estimators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._cache import Cache
from caliope._gather import target_probabilities
from caliope._policies import Policy
from caliope._ragged import Float, Int, read_only
from caliope._trajectories import Trajectories
from caliope.checks import V106, Finding
from caliope.values._by_time import TimeIndexedQ, fitted_q_by_time
from caliope.values._fqe import FittedQ, fitted_q


@dataclass(frozen=True, eq=False)
class CrossFittedQ:
    """Out-of-fold values of all actions at every step of a log.

    Parameters
    ----------
    table : array of shape (N, A)
        The values; those of each trajectory are from a model fitted without it.
    models : tuple of FittedQ or TimeIndexedQ
        The model of each fold.
    data : Trajectories
        The log.
    gamma : float
        The discount.
    fold : array of shape (n,), optional
        The fold of each trajectory.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.domains import ward
    >>> from caliope.values import TabularRegressor, cross_fitted_q_by_time
    >>> data, target = ward.simulate(50, rng=0), TabularPolicy(ward.EARLIER)
    >>> values = cross_fitted_q_by_time(data, target, TabularRegressor(), gamma=1.0, rng=0)
    >>> values.table.shape == (data.n_steps, 3), len(values.models)
    (True, 5)
    """

    table: Float
    models: tuple[FittedQ | TimeIndexedQ, ...]
    data: Trajectories
    gamma: float
    fold: Int | None = None

    def on(self, data: Trajectories) -> Float:
        """Return the values for the log that was cross-fitted, a copy of it or a selection from it, (N, A).

        States, actions and rewards identify a trajectory; of several alike, the id.
        """
        if data is self.data:
            return self.table
        places = [self._places.get((d, i), self._places.get((d, None))) for d, i in _list_keys(data)]
        if None in places:
            raise ValueError(
                "cross-fitted values belong to the log that they were fitted on; use fitted_q for another. "
                f"{places.count(None)} of {len(places)} trajectories are not in it "
                f"(first: trajectory {data.ids[places.index(None)]})."
            )
        return self.table[self.data.layout.rows_of(np.array(places))]

    @cached_property
    def _places(self) -> dict[tuple[bytes, Any], int]:
        places: dict[tuple[bytes, Any], int] = {}
        for place, (digest, name) in enumerate(_list_keys(self.data)):
            places.setdefault((digest, name), place)
            places.setdefault((digest, None), place)
        return places

    def notes_for(self, data: Trajectories) -> tuple[Finding, ...]:
        """Return the findings for an estimate with these values."""
        k = len(self.models)
        doubts = [note for model in self.models for note in model.check_convergence()]
        # The first of each kind is enough.
        first = {note.code: note for note in reversed(doubts)}
        return (V106.finding("note", folds=float(k)), *first.values())


def _list_keys(data: Trajectories) -> list[tuple[bytes, Any]]:
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
    work: str | Path | Cache | None = None,
    **options: Any,
) -> CrossFittedQ:
    """Cross-fit the value of each action under the target policy, by folds of trajectories.

    A flexible regressor explains the very rewards that it was fitted on. The correction of a doubly robust estimate
    then vanishes, and its confidence interval is too short. Cross-fitting avoids that.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The target policy, or its probabilities at the logged states.
    regressor : scikit-learn regressor
        Any, as in :func:`fitted_q`.
    gamma : float
        Discount in [0, 1].
    n_iterations : int
        Rounds of regression.
    folds : int
        Number of folds; a fold holds whole trajectories.
    rng : int or numpy.random.Generator
        Seed of the folds.
    work : path, optional
        As in :func:`fitted_q`. To continue from what is kept there, ``rng`` must be the same number.
    **options : Any
        Further arguments of :func:`fitted_q`.

    Returns
    -------
    CrossFittedQ
        The values at every step of the log, for ``gather(..., q=...)``.

    Examples
    --------
    >>> import caliope as cal
    >>> from caliope.domains import ward
    >>> from caliope.values import TabularRegressor, cross_fitted_q
    >>> data, target = ward.simulate(50, rng=0), cal.TabularPolicy(ward.EARLIER)
    >>> q = cross_fitted_q(data, target, TabularRegressor(), gamma=1.0, n_iterations=12, rng=0)
    >>> evidence = cal.gather(data, target, cal.TabularPolicy(ward.PRACTICE), q=q)
    >>> print(f"{cal.wdr(evidence):.2f}")
    0.59
    """
    cache = Cache.of(work)

    def fit(part: Trajectories, proba: Float) -> FittedQ:
        return fitted_q(part, proba, regressor, gamma=gamma, n_iterations=n_iterations, work=cache, **options)

    return cross_fit(data, target, fit, gamma, data.fold_of(folds, rng=rng))


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
    """Cross-fit the value of each action per step: :func:`fitted_q_by_time` by folds of trajectories.

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The target policy, or its probabilities at the logged states.
    regressor : scikit-learn regressor
        Any, as in :func:`fitted_q`.
    gamma : float
        Discount in [0, 1].
    folds : int
        Number of folds; a fold holds whole trajectories.
    rng : int or numpy.random.Generator
        Seed of the folds.
    per_action : bool
        Fit one model per action.

    Returns
    -------
    CrossFittedQ
        The values at every step of the log, for ``gather(..., q=...)``.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.domains import ward
    >>> from caliope.values import TabularRegressor, cross_fitted_q_by_time
    >>> data, target = ward.simulate(50, rng=0), TabularPolicy(ward.EARLIER)
    >>> values = cross_fitted_q_by_time(data, target, TabularRegressor(), gamma=1.0, rng=0)
    >>> values.on(data[:10]).shape == (data[:10].n_steps, 3)
    True
    """

    def fit(part: Trajectories, proba: Float) -> TimeIndexedQ:
        return fitted_q_by_time(part, proba, regressor, gamma=gamma, per_action=per_action)

    return cross_fit(data, target, fit, gamma, data.fold_of(folds, rng=rng))


def cross_fit(
    data: Trajectories,
    target: Policy | ArrayLike,
    fit: Callable[[Trajectories, Float], FittedQ | TimeIndexedQ],
    gamma: float,
    fold: Int,
) -> CrossFittedQ:
    """Fit without each fold in turn, and predict it."""
    proba = target_probabilities(data, target)
    table, models = np.empty((data.n_steps, data.n_actions)), []
    for j in range(int(fold.max()) + 1):
        others, held_out = np.flatnonzero(fold != j), np.flatnonzero(fold == j)
        models.append(fit(data[others], proba[data.layout.rows_of(others)]))
        table[data.layout.rows_of(held_out)] = models[-1].on(data[held_out])
    return CrossFittedQ(read_only(table), tuple(models), data, gamma, read_only(fold))
