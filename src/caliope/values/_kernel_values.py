"""Values of an audit from a kernel per action: fitted Q with features that are computed once for all rounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from caliope._cache import Cache
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope.values._crossfit import cross_fit
from caliope.values._defaults import (
    AveragedValues,
    add_step,
    divide,
    needs_time,
    rounds_of,
    say_rounds,
    say_times,
)
from caliope.values._fqe import FittedQ, Iteration, fitted_q, returns_to_go, transitions
from caliope.values._kernel import KernelRegressor, ridge_smoother
from caliope.values._regression import ModelPerAction

# Numbers in the features that are kept between rounds: 256 MB.
_ENTRIES = 1 << 25


def fit_kernel_values(
    data: Trajectories,
    target_probs: Float,
    *,
    gamma: float,
    rng: int,
    fitted_on: Int | None = None,
    work: str | Path | Cache | None = None,
) -> tuple[Float, str]:
    """Fit the values of an audit by a kernel per action, in the folds of :func:`~caliope.values.fit_default_values`.

    Where those are backward in time, the step is a feature here. Rounds go to the end of the longest trajectory, or are
    30 from the logged returns. Parameters and returns are those of :func:`~caliope.values.fit_default_values`.
    """
    which = np.arange(len(data)) if fitted_on is None else fitted_on
    fitted = average_kernel_values(data, target_probs, gamma=gamma, rng=rng, fitted_on=which, work=work)
    return fitted.on(data, which), fitted.how


def average_kernel_values(
    data: Trajectories,
    target_probs: Float,
    *,
    gamma: float,
    rng: int,
    fitted_on: Int,
    work: str | Path | Cache | None = None,
) -> AveragedValues:
    """The same with the models, which predict other trajectories."""
    part = data.part(fitted_on)
    if by_step := needs_time(part):
        part = add_step(part)
    proba = np.round(target_probs[data.layout.rows_of(fitted_on)], 12)  # as for trees
    divisions, found = divide(part, rng), []
    for seed, dealt in divisions:
        fit = partial(
            _fit_rounds, KernelRegressor(random_state=seed), work, {"gamma": gamma, **rounds_of(part)}
        )
        found.append(cross_fit(part, proba, fit, gamma, part.fold_of(2, rng=dealt)))
    seen = "KernelRegressor per action" + (" on state and step" if by_step else "")
    return AveragedValues.of(found, f"{seen}, {say_rounds(part)}, {say_times(divisions)}", with_step=by_step)


def _fit_rounds(
    regressor: KernelRegressor, work: Any, options: dict[str, Any], data: Trajectories, proba: Float
) -> FittedQ:
    if data.n_steps * data.n_actions * regressor.n_components <= _ENTRIES:
        return fit_with_kept_features(data, proba, regressor, **options)
    return fitted_q(data, proba, regressor, **options, per_action=True, work=work)


def fit_with_kept_features(
    data: Trajectories,
    proba: Float,
    regressor: KernelRegressor,
    *,
    gamma: float,
    n_iterations: int,
    from_returns: bool = False,
) -> FittedQ:
    """``fitted_q(..., per_action=True)`` in a fraction of the time: only the targets differ between rounds."""
    rows = transitions(data)
    taken = [rows[data.actions[rows] == a] for a in range(data.n_actions)]
    kept = [_Features.of(regressor, data.states, own) if len(own) else None for own in taken]
    v, trace = returns_to_go(data, gamma) if from_returns else np.zeros(data.n_steps), []
    for k in range(1, n_iterations + 1):
        targets = data.rewards + gamma * data.layout.after(v, 0.0)
        q = np.full((data.n_steps, data.n_actions), targets[rows].mean())
        for a, features in enumerate(kept):
            if features is not None:
                q[:, a] = features.regress(targets)
        before, v = v, (proba * q).sum(axis=1)
        change = float(np.sqrt(np.mean((v - before) ** 2)))
        trace.append(Iteration(k, float(v[data.layout.first].mean()), change, float(np.abs(q).max())))
    models = tuple(None if each is None else each.fit_model(regressor, data.states, targets) for each in kept)
    model = ModelPerAction(regressor, data.n_actions, models, float(targets[rows].mean()))
    return FittedQ(model, gamma, tuple(trace), None, fitted_on=frozenset(data.digests))


@dataclass(frozen=True, eq=False)
class _Features:
    """Features of all states around the centres of one action, and what solves for its coefficients."""

    own: Int  # the steps at which the action was taken
    centres: Pipeline
    z: Float  # (N, m)
    smoother: Float  # (m, number of own steps)

    @classmethod
    def of(cls, regressor: KernelRegressor, states: Float, own: Int) -> _Features:
        centres = regressor.draw_centres(states[own])
        z = centres.transform(states)
        return cls(own, centres, z, ridge_smoother(z[own], regressor.alpha))

    def fit_model(self, regressor: KernelRegressor, states: Float, targets: Float) -> KernelRegressor:
        """The regressor itself, for states that are not of the log."""
        return clone(regressor).fit_around(self.centres, states[self.own], targets[self.own])

    def regress(self, targets: Float) -> Float:
        """Fit the targets of the own steps, and predict all, (N,)."""
        y = targets[self.own]
        coefficients = self.smoother @ y
        intercept = y.mean() - self.z[self.own].mean(axis=0) @ coefficients
        return np.clip(intercept + self.z @ coefficients, y.min(), y.max())
