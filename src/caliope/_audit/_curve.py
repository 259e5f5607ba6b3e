"""Whether fitting on more decisions would help: the learning curve of the behaviour model of a log that was sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope._audit._compare import BehaviourModels, random_stream
from caliope._audit._settings import Stages
from caliope._cache import Cache
from caliope._policies import action_probabilities
from caliope._ragged import Float, Int, at_actions
from caliope._trajectories import Trajectories
from caliope.behaviour._fit import FittedBehaviour, fit_model

# Of the trajectories that the model was fitted on; the model itself is the last point. More would take too long.
_SHARES = (1 / 8,)
_HELD_OUT = 5_000  # decisions at most, of trajectories that no model has seen
_FEWEST = 20  # trajectories of the smallest fit, and held out
_WORTH = 0.0005  # gain from which more decisions are advised


@dataclass(frozen=True)
class LearningCurve:
    """Held-out log loss of a behaviour model by the number of decisions that it was fitted on.

    Attributes
    ----------
    steps : tuple of int
        Decisions of each fit, rising.
    losses : tuple of float
        Mean log loss on the same held-out decisions.
    total : int
        Decisions of the log.
    gain : float
        By how much the loss would be lower with all of them, extrapolated.
    """

    steps: tuple[int, ...]
    losses: tuple[float, ...]
    total: int
    gain: float

    def __str__(self) -> str:
        points = ", ".join(f"{loss:.4f} on {n}" for n, loss in zip(self.steps, self.losses, strict=True))
        text = (
            f"held-out log loss by decisions fitted on: {points}; on all {self.total} about {self.gain:.2g} "
        )
        return f"{text}lower" + (f" (fit_steps={self.total})" if self.gain >= _WORTH else ", hardly worth it")


def trace_curve(
    data: Trajectories,
    chosen: FittedBehaviour,
    fitted_on: Int,
    *,
    rng: np.random.Generator,
    total: int | None = None,
) -> LearningCurve | None:
    r"""Fit a model on parts of its sample, and extrapolate its held-out log loss to the whole log.

    The excess of the loss over its limit is taken to fall as :math:`b\, m^{-1/2}` with the number m of decisions,
    slower than for a parametric model that is right. The gain is a rough number: on simulated logs up to about twice
    too large for forests and pools, and several times too large or half of it for regressions.

    Parameters
    ----------
    data : Trajectories
        The log.
    chosen : FittedBehaviour
        The model, with its probabilities in the log.
    fitted_on : array of int
        Numbers of the trajectories that it was fitted on.
    rng : Generator
        Chooses the parts.
    total : int, optional
        Decisions of the whole log, where this one is a sample of it.

    Returns
    -------
    LearningCurve or None
        None where nothing was held out, or too little for a curve.
    """
    held_out = _hold_out(data, fitted_on, rng)
    if len(held_out) < _FEWEST or _SHARES[0] * len(fitted_on) < _FEWEST:
        return None
    rows, order = data.layout.rows_of(held_out), rng.permutation(fitted_on)
    wide, taken = chosen.widen(data), data.actions[rows]
    parts = [data.layout.rows_of(np.sort(order[: int(share * len(order))])) for share in _SHARES]
    logged = [at_actions(_predict(chosen.model, wide, part, rows), taken) for part in parts]
    logged.append(at_actions(chosen.probabilities[rows], taken))
    # An action that the smallest part lacks says how rare it is, and nothing about the model.
    usable = np.min(logged, axis=0) > 0
    if not usable.any():
        return None
    steps = (*map(len, parts), int(data.lengths[fitted_on].sum()))
    losses = tuple(-float(np.log(p[usable]).mean()) for p in logged)
    total = data.n_steps if total is None else total
    return LearningCurve(steps, losses, total, extrapolate(steps, losses, total))


def trace_curve_of(
    models: BehaviourModels,
    chosen: FittedBehaviour,
    cache: Cache,
    begin: Stages,
    *,
    seed: int,
    total: int,
) -> LearningCurve | None:
    """The learning curve of the recommended model where it was fitted on a sample; None where on the whole log."""
    if len(models.fitted_on) == len(models.data):
        return None
    rng = random_stream(seed, 9)
    with begin("learning curve"):
        found: LearningCurve | None = cache(
            f"learning curve to {total}",
            lambda: trace_curve(models.data, chosen, models.fitted_on, total=total, rng=rng),
        )
    return found


def _hold_out(data: Trajectories, fitted_on: Int, rng: np.random.Generator) -> Int:
    """Trajectories of clusters that were not fitted on, sorted; about 5,000 decisions of them."""
    seen = np.isin(data.layout.unit, data.layout.unit[fitted_on])
    shuffled = rng.permutation(np.flatnonzero(~seen))
    return np.sort(shuffled[: 1 + np.searchsorted(np.cumsum(data.lengths[shuffled]), _HELD_OUT)])


def _predict(model: Any, wide: Trajectories, part: Int, rows: Int) -> Float:
    fitted = fit_model(model, wide.states[part], wide.actions[part], wide.layout.unit_of_step[part])
    return action_probabilities(fitted, wide.states[rows], wide.n_actions)


def extrapolate(steps: tuple[int, ...], losses: tuple[float, ...], total: int) -> float:
    """By how much the loss is lower with ``total`` decisions than with the last of ``steps``; never below 0.

    Examples
    --------
    >>> round(extrapolate((100, 400, 1600), (1.1, 1.05, 1.025), 6400), 6)
    0.0125
    """
    x = np.asarray(steps, dtype=np.float64) ** -0.5
    slope = float(np.polyfit(x, losses, 1)[0])
    return max(slope, 0.0) * float(x[-1] - total**-0.5)
