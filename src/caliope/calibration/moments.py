"""Moment tests: nobody should be able to predict where the model errs, and weights should have mean 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from caliope.calibration.nulls import AgainstNull
from caliope.evidence import Evidence
from caliope.ragged import Float
from caliope.trajectories import Trajectories

_CELLS = 40_000_000  # sums by trajectory held at once


@dataclass(frozen=True, eq=False)
class BalanceTable:
    """How far the errors of a model follow each function of the state: a row an action, a column a function."""

    z: Float  # (A, F), in standard deviations under the model
    effect: Float  # (A, F), mean of error times standardised function
    functions: tuple[str, ...]
    largest: AgainstNull  # the largest |z|, against multiplier draws
    p_value: float  # of the largest |z|, for all comparisons together

    @property
    def worst(self) -> tuple[int, str]:
        """The action and the function with the largest |z|."""
        a, f = np.unravel_index(np.argmax(np.abs(self.z)), self.z.shape)
        return int(a), self.functions[int(f)]


def balance_table(
    table: Float,
    data: Trajectories,
    *,
    strata: Sequence[str] | None = None,
    n_draws: int = 200,
    rng: int | np.random.Generator,
) -> BalanceTable:
    r"""Test whether the model errs in a way that the state foretells.

    If :math:`\hat\pi` is the policy that acted, then for every function f of the state
    :math:`E[(1\{A = a\} - \hat\pi(a \mid s)) f(s)] = 0`. Here f runs over a constant, the time, every feature and the
    indicator of every stratum, and the sums are compared with their spread under the model,

    .. math:: z_{af} = \frac{\sum_t (1\{a_t = a\} - \hat\pi(a \mid s_t)) f(s_t)}
        {\sqrt{\sum_t \hat\pi(a \mid s_t)(1 - \hat\pi(a \mid s_t)) f(s_t)^2}}

    The largest \|z\| of them all is compared with what random signs of whole trajectories give (a multiplier
    bootstrap): steps of a trajectory hang together, and comparisons with each other.

    When it breaks: errors that none of these functions follow are not seen. The z of an action that the model hardly
    ever expects is not normal; random signs know that, a table of the normal distribution does not.
    """
    functions, names = _functions(data, strata)
    error = np.eye(table.shape[1])[data.actions] - table
    total = error.T @ functions
    scale = np.sqrt((table * (1 - table)).T @ functions**2)
    scale = np.where(scale > 0, scale, np.inf)  # the model leaves no choice: nothing to compare
    z = total / scale
    top = float(np.abs(z).max())
    largest = _under_random_signs(error, functions, scale, data, n_draws, np.random.default_rng(rng))
    p = (1 + int((largest >= top).sum())) / (n_draws + 1)
    null = AgainstNull(top, float(largest.mean()), float(largest.std(ddof=1)))
    return BalanceTable(z, total / data.n_steps, names, null, p)


def _under_random_signs(
    error: Float, functions: Float, scale: Float, data: Trajectories, n_draws: int, rng: np.random.Generator
) -> Float:
    """The largest |z| when the errors of each trajectory get a random sign, (R,)."""
    e, f = error.astype(np.float32), functions.astype(np.float32)  # these are only compared with each other
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=(n_draws, len(data)))
    largest = np.zeros(n_draws)
    size = max(1, _CELLS // (len(data) * e.shape[1]))
    for start in range(0, f.shape[1], size):
        part = slice(start, start + size)
        u = _by_trajectory(e, f[:, part], data) / scale[:, part].astype(np.float32)
        largest = np.maximum(largest, np.abs(signs @ u.reshape(len(data), -1)).max(axis=1))
    return largest


def _by_trajectory(error: Float, functions: Float, data: Trajectories) -> Float:
    """Sums of error times function over each trajectory, (n, A, F): one stack of matrix products a length."""
    u = np.empty((len(data), error.shape[1], functions.shape[1]), dtype=error.dtype)
    for length in np.unique(data.lengths):
        which = np.flatnonzero(data.lengths == length)
        rows = data.offsets[which][:, None] + np.arange(length)
        u[which] = error[rows].swapaxes(1, 2) @ functions[rows]
    return u


def _functions(data: Trajectories, strata: Sequence[str] | None) -> tuple[Float, tuple[str, ...]]:
    """Functions of the state, standardised but for the constant and the strata, (N, F), with their names."""
    x = np.concatenate([data.layout.time[:, None], data.states], axis=1).astype(np.float64)
    spread = x.std(axis=0)
    keep = spread > 0
    x = (x[:, keep] - x[:, keep].mean(axis=0)) / spread[keep]
    named = np.array(["time", *data.feature_names], dtype=object)[keep]
    columns, names = [np.ones((data.n_steps, 1)), x], ["constant", *named]
    if strata is not None:
        levels, at = np.unique(np.asarray(strata), return_inverse=True)
        columns.append(np.eye(len(levels))[at])
        names += [f"stratum {level}" for level in levels]
    return np.concatenate(columns, axis=1), tuple(map(str, names))


@dataclass(frozen=True, eq=False)
class WeightMoments:
    """Mean weight at every step, which should be 1."""

    mean: Float  # (T,)
    se: Float  # (T,)
    largest: AgainstNull  # the largest |z|, against multiplier draws
    p_value: float  # of the largest |z|, for all steps together

    @property
    def z(self) -> Float:
        """Distance from 1 in standard errors, (T,)."""
        return np.divide(self.mean - 1, self.se, out=np.zeros_like(self.se), where=self.se > 0)


def weight_moments(e: Evidence, *, n_draws: int = 500, rng: int | np.random.Generator) -> WeightMoments:
    r"""Test whether the weights have mean 1 at every step, :math:`E[\rho_t] = 1`.

    A trajectory that has ended keeps its last weight. The test is by step and not by length: given the length, which
    depends on what was done, weights do not have mean 1 even if the model is right.

    When it breaks: weights have heavy tails. While the few largest have not yet occurred the mean is below 1 and its
    standard error too small, so that a small p-value says only "the model, or too few trajectories".
    """
    n, rng = len(e), np.random.default_rng(rng)
    weights = np.exp(e.layout.dense(e.log_rho, np.arange(n), carry=True))
    mean = weights.mean(axis=0)
    off = weights - mean
    se = off.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(e.layout.horizon)
    usable = se > 0
    if not usable.any():
        return WeightMoments(mean, se, AgainstNull(0.0, 0.0, 0.0), 1.0)
    scaled = off[:, usable] / n / se[usable]
    largest = np.array([np.abs(rng.choice([-1.0, 1.0], size=n) @ scaled).max() for _ in range(n_draws)])
    top = float(np.abs((mean[usable] - 1) / se[usable]).max())
    p = (1 + int((largest >= top).sum())) / (n_draws + 1)
    return WeightMoments(mean, se, AgainstNull(top, float(largest.mean()), float(largest.std(ddof=1))), p)
