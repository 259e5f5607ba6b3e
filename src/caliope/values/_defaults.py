"""Values of an audit: by default models, averaged over several divisions of trajectories into folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from caliope._cache import Cache
from caliope._clusters import take_turns
from caliope._ragged import Bool, Float, Int, read_only
from caliope._trajectories import Trajectories
from caliope.values._by_time import TimeIndexedQ, fitted_q_by_time
from caliope.values._crossfit import CrossFittedQ, cross_fitted_q, cross_fitted_q_by_time
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
class AveragedValues:
    """Values of all actions, averaged over several divisions of trajectories into folds.

    Attributes
    ----------
    table : array of shape (N, A)
        Those of the trajectories that were fitted on; no trajectory is predicted by a model that has seen it.
    models : tuple of tuples of FittedQ or TimeIndexedQ
        The models of each division, one per fold.
    fold : tuple of arrays of shape (n,)
        The fold of each trajectory in each division.
    how : str
        How they were fitted, in words.
    with_step : bool
        Whether the step is a feature of the models.
    """

    table: Float
    models: tuple[tuple[FittedQ | TimeIndexedQ, ...], ...]
    fold: tuple[Int, ...]
    how: str
    with_step: bool = False

    @classmethod
    def of(cls, fitted: Sequence[CrossFittedQ], how: str, *, with_step: bool = False) -> AveragedValues:
        """The average of several divisions."""
        table = np.zeros_like(fitted[0].table)
        for each in fitted:
            table += each.table / len(fitted)
        folds = tuple(each.fold for each in fitted if each.fold is not None)
        # Digests of what was fitted on are no longer needed, and large.
        models = tuple(
            tuple(replace(model, fitted_on=frozenset()) for model in each.models) for each in fitted
        )
        return cls(read_only(table), models, folds, how, with_step)

    def without_table(self) -> AveragedValues:
        """The models alone."""
        return replace(self, table=self.table[:0], fold=())

    def on(self, data: Trajectories, fitted_on: Int) -> Float:
        """Values at every step of a log, (N, A): kept for what was fitted on, and predicted for the rest."""
        if len(fitted_on) == len(data):
            return np.array(self.table)
        table, new = np.empty((data.n_steps, data.n_actions)), np.setdiff1d(np.arange(len(data)), fitted_on)
        table[data.layout.rows_of(fitted_on)] = self.table
        clustered = data.layout.cluster is not None
        unit = data.layout.unit
        turns = self.take_turns(len(new), unit[fitted_on] if clustered else None, unit[new])
        table[data.layout.rows_of(new)] = self.predict(data[new], turns)
        return table

    def take_turns(self, n: int, fitted_unit: Int | None, unit: Int) -> Int:
        """The model of each division that predicts each of n new trajectories, (n, divisions).

        Each in turn; where clusters are named and some of one was fitted on, the model that has not seen it.
        """
        pairs = zip(self.models, self.fold, strict=True)
        return np.stack([take_turns(n, len(x), fold, fitted_unit, unit) for x, fold in pairs], axis=1)

    def predict(self, data: Trajectories, turns: Int, needed: Bool | None = None) -> Float:
        """Values at every step of new trajectories, (N, A), by the models whose turn it is.

        Where it is said which are ``needed``, (N, A), others may be anything finite: most targets choose among few of
        many actions.
        """
        seen = add_step(data) if self.with_step else data
        table = np.zeros((data.n_steps, data.n_actions))
        for models, turn in zip(self.models, turns.T, strict=True):
            for j, model in enumerate(models):
                own = np.flatnonzero(turn == j)
                if len(own):
                    rows = data.layout.rows_of(own)
                    wanted = () if needed is None else (needed[rows],)
                    table[rows] += model.on(seen[own], *wanted) / len(self.models)
        return table


def add_step(data: Trajectories) -> Trajectories:
    """The log with the step as a further feature."""
    return data.replace(states=np.column_stack([data.states, data.layout.time]), feature_names=None)


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
    fitted = average_default_values(
        data, target_probs, regressor, gamma=gamma, rng=rng, fitted_on=which, work=work
    )
    return fitted.on(data, which), fitted.how


def average_default_values(
    data: Trajectories,
    target_probs: Float,
    regressor: Any = None,
    *,
    gamma: float,
    rng: int,
    fitted_on: Int,
    work: str | Path | Cache | None = None,
) -> AveragedValues:
    """The same with the models, which predict other trajectories."""
    part = data.part(fitted_on)
    # Probabilities that a forest may have summed on several threads are rounded: the last digit would move splits.
    proba = np.round(target_probs[data.layout.rows_of(fitted_on)], 12)
    by_step = needs_time(part)
    divisions, found = divide(part, rng), []
    for seed, dealt in divisions:
        chosen = default_regressor(data, random_state=seed) if regressor is None else regressor
        if by_step:
            fitted = cross_fitted_q_by_time(part, proba, chosen, gamma=gamma, folds=2, rng=dealt)
        else:
            fitted = cross_fitted_q(
                part, proba, chosen, gamma=gamma, **rounds_of(part), folds=2, rng=dealt, work=work
            )
        found.append(fitted)
    how = "by step" if by_step else say_rounds(part)
    return AveragedValues.of(found, f"{type(chosen).__name__}, {how}, {say_times(divisions)}")


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
