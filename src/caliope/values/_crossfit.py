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
from caliope.values._regression import default_regressor

# Rounds of fitted Q at most, and no more than the longest trajectory.
_ROUNDS = 30
# Share of the trajectories as long as the longest, above which lengths are capped.
_AT_THE_CAP = 0.02
# Share of the decisions beyond so many rounds, above which rounds do not reach the end; and one model per step at most.
_BEYOND, _MOST_STEPS = 0.1, 2000
# Divisions into folds that values are averaged over, if they are fitted on so few rows, counted in every round.
_REPEATS, _FEW_ROWS = 3, 30_000


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


def fit_default_values(
    data: Trajectories,
    target_probs: Float,
    regressor: Any = None,
    *,
    gamma: float,
    rng: int,
    fitted_on: Int | None = None,
    work: str | Path | Cache | None = None,
) -> tuple[Float, str]:
    """Fit the values of an audit: across two folds, backward in time where lengths are capped or long.

    In a small log it matters which trajectories are in which fold. There values are the mean of three divisions.

    Parameters
    ----------
    data : Trajectories
        The log.
    target_probs : array of shape (N, A)
        Probabilities of the target policy at every step.
    regressor : scikit-learn regressor, optional
        By default :func:`~caliope.values.default_regressor`.
    gamma : float
        Discount in [0, 1].
    rng : int
        Seed of the folds and of the default regressor.
    fitted_on : array of int, optional
        Sorted numbers of the trajectories that models are fitted on, by default all. The others, which no model has
        seen, are predicted by each model in turn.
    work : path, optional
        A folder of your own that keeps what is done, see :func:`fitted_q`.

    Returns
    -------
    array of shape (N, A)
        Value of each action at every step; no trajectory is predicted by a model that has seen it.
    str
        How they were fitted, in words.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from caliope.values import TabularRegressor
    >>> data = ward.simulate(50, rng=0)
    >>> values, how = fit_default_values(data, np.full((data.n_steps, 3), 1 / 3), TabularRegressor(), gamma=1.0, rng=0)
    >>> values.shape == (data.n_steps, 3)
    True
    """
    which = np.arange(len(data)) if fitted_on is None else fitted_on
    part = data.part(which)
    rows = data.layout.rows_of(which)
    # Probabilities that a forest may have summed on several threads are rounded: the last digit would move splits.
    proba = np.round(target_probs[rows], 12)
    by_step = needs_time(part)
    divisions = divide(part, rng)
    table = np.zeros((data.n_steps, data.n_actions))
    for seed, dealt in divisions:
        chosen = default_regressor(data, random_state=seed) if regressor is None else regressor
        if by_step:
            fitted = cross_fitted_q_by_time(part, proba, chosen, gamma=gamma, folds=2, rng=dealt)
        else:
            fitted = cross_fitted_q(
                part, proba, chosen, gamma=gamma, **rounds_of(part), folds=2, rng=dealt, work=work
            )
        table += predict_others(data, which, fitted) / len(divisions)
    how = "by step" if by_step else say_rounds(part)
    return table, f"{type(chosen).__name__}, {how}, {say_times(divisions)}"


def fit_values_by_fold(
    data: Trajectories,
    fold: Int,
    probs_without: Callable[[int, Int], Float],
    *,
    regressor: Any = None,
    gamma: float,
    rng: int,
    fitted_on: Int,
    work: str | Path | Cache | None = None,
) -> tuple[Float, str]:
    """Fit the values of a policy that differs by fold: those of fold j without it, for the policy learnt without it.

    ``probs_without(j, trajectories)`` are the probabilities of the policy that was learnt without fold j. No outcome of
    fold j reaches its values, neither through the regression nor through a policy that was learnt on it. Otherwise as
    :func:`fit_default_values`: with trees by default, which are not compared with a kernel here.
    """
    chosen = default_regressor(data, random_state=rng) if regressor is None else regressor
    by_step = needs_time(data.part(fitted_on))
    rounds = rounds_of(data.part(fitted_on))
    table = np.empty((data.n_steps, data.n_actions))
    for j in np.unique(fold).tolist():
        others, held_out = fitted_on[fold[fitted_on] != j], np.flatnonzero(fold == j)
        part, proba = data[others], np.round(probs_without(j, others), 12)
        model: FittedQ | TimeIndexedQ
        if by_step:
            model = fitted_q_by_time(part, proba, chosen, gamma=gamma)
        else:
            model = fitted_q(part, proba, chosen, gamma=gamma, **rounds, work=work)
        table[data.layout.rows_of(held_out)] = model.on(data[held_out])
    how = "by step" if by_step else say_rounds(data.part(fitted_on))
    return table, f"{type(chosen).__name__}, {how}, fitted without the fold that they evaluate"


def divide(part: Trajectories, rng: int) -> list[tuple[int, np.random.Generator]]:
    """Seeds of the regressor and the folds, for each division that is averaged over: several if fits are fast."""
    horizon, by_step = part.layout.horizon, needs_time(part)
    rows = part.n_steps * (1 if by_step else min(horizon, _ROUNDS))
    repeats = _REPEATS if rows <= _FEW_ROWS and (horizon <= _ROUNDS or not by_step) else 1
    return [((rng + r) % 2**32, np.random.default_rng([rng, r] if r else rng)) for r in range(repeats)]


def say_times(divisions: list[Any]) -> str:
    """Say over how many divisions values were averaged."""
    return "cross-fitted" if len(divisions) == 1 else f"cross-fitted {len(divisions)} times"


def rounds_of(part: Trajectories) -> dict[str, Any]:
    """Rounds of fitted Q that an audit makes; from the logged returns where trajectories have more steps than that."""
    horizon = part.layout.horizon
    return {"n_iterations": min(horizon, _ROUNDS), "from_returns": horizon > _ROUNDS}


def say_rounds(part: Trajectories) -> str:
    """Say how many rounds those are."""
    made = rounds_of(part)
    later = f", practice after {_ROUNDS} decisions" if made["from_returns"] else ""
    return f"{made['n_iterations']} rounds{later}"


def needs_time(part: Trajectories) -> bool:
    """Whether values are fitted backward in time: where lengths are capped, or rounds would not reach the end.

    Values that do not know the step average over early and late ones, and in long trajectories no number of rounds that
    is affordable corrects that.
    """
    horizon = part.layout.horizon
    if not part.terminated.all() or not 1 < horizon <= _MOST_STEPS:
        return False
    if horizon <= _ROUNDS:
        return bool((part.lengths == horizon).mean() > _AT_THE_CAP)
    return bool((part.layout.time >= _ROUNDS).mean() > _BEYOND)


def predict_others(data: Trajectories, which: Int, fitted: CrossFittedQ) -> Float:
    """The values of the whole log: kept for what was cross-fitted, predicted by each model in turn for the rest."""
    if fitted.data is data:
        return fitted.table
    table = np.empty((data.n_steps, data.n_actions))
    table[data.layout.rows_of(which)] = fitted.table
    new = np.setdiff1d(np.arange(len(data)), which)
    turns = np.arange(len(new)) % len(fitted.models)
    if data.layout.cluster is not None and fitted.fold is not None:
        # By a model that has not seen the cluster, where some of it was fitted on.
        fold_of = dict(zip(data.layout.unit[which].tolist(), fitted.fold.tolist(), strict=True))
        turns = np.array([fold_of.get(c, t) for c, t in zip(data.layout.unit[new], turns, strict=True)])
    for turn, model in enumerate(fitted.models):
        own = new[turns == turn]
        if len(own):
            table[data.layout.rows_of(own)] = model.on(data[own])
    return table
