"""Moment tests: nobody should be able to predict where the model errs, and weights should have mean 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from caliope.calibration.nulls import AgainstNull, Imagined, against_draws, check_draws, check_table
from caliope.evidence import Evidence
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories


@dataclass(frozen=True, eq=False)
class BalanceTable:
    """How far the errors of a model follow each function of the state: a row an action, a column a function."""

    z: Float  # (A, F), in standard deviations under the model
    effect: Float  # (A, F), mean of error times standardised function
    functions: tuple[str, ...]
    largest: AgainstNull  # the largest |z|, against logs in which the model itself acts
    signs_p: float  # p-value of the largest |z| under random signs of whole trajectories

    @property
    def p_value(self) -> float:
        """Of the largest |z|, for all comparisons together."""
        return self.largest.p_value

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
    n_draws: int = 100,
    max_steps: int = 20_000,
    rng: int | np.random.Generator,
) -> BalanceTable:
    r"""Test whether the model errs in a way that the state foretells.

    If :math:`\hat\pi` is the policy that acted, then for every function f of the state
    :math:`E[(1\{A = a\} - \hat\pi(a \mid s)) f(s)] = 0`. Here f runs over a constant, the time, every feature and the
    indicator of every stratum, and the sums are compared with their spread under the model,

    .. math:: z_{af} = \frac{\sum_t (1\{a_t = a\} - \hat\pi(a \mid s_t)) f(s_t)}
        {\sqrt{\sum_t \hat\pi(a \mid s_t)(1 - \hat\pi(a \mid s_t)) f(s_t)^2}}

    The largest \|z\| of them all is compared with that in logs in which the model itself acts. Beside it stands a
    multiplier bootstrap, random signs of the errors of whole trajectories: it allows for steps of a trajectory that
    hang together, but with rare actions it rejects the truth too often and a model that is too sure of itself too
    seldom. Of a longer log whole trajectories with ``max_steps`` steps are looked at.

    When it breaks: errors that none of these functions follow are not seen. Where a hidden habit of the ward or the
    doctor ties the decisions of a trajectory together, the first test rejects also the best model of the state.
    """
    check_draws(n_draws)
    rng = np.random.default_rng(rng)
    table = check_table(table, data)
    rows, owner = _some(data, max_steps, rng)
    functions, names = _functions(data, rows, strata)
    q = table[rows]
    error = np.eye(q.shape[1])[data.actions[rows]] - q
    scale = np.sqrt((q * (1 - q)).T @ functions**2)
    scale = np.where(scale > 0, scale, np.inf)  # the model leaves no choice: nothing to compare
    z = error.T @ functions / scale
    top = float(np.abs(z).max())
    imagined = _under_the_model(q, functions, scale, n_draws, rng)
    signs = _under_random_signs(error, functions, scale, owner, n_draws, rng)
    return BalanceTable(
        z,
        error.T @ functions / len(rows),
        names,
        against_draws(top, imagined),
        against_draws(top, signs).p_value,
    )


def _some(data: Trajectories, max_steps: int, rng: np.random.Generator) -> tuple[Int, Int]:
    """Rows of whole trajectories, and to which of them each belongs, numbered from 0."""
    which = data.sampled(max_steps, rng=rng)
    return data.layout.rows_of(which), np.repeat(np.arange(len(which)), data.lengths[which])


def _under_the_model(
    q: Float, functions: Float, scale: Float, n_draws: int, rng: np.random.Generator
) -> Float:
    """The largest |z| when the model itself acts, (R,)."""
    imagined, expected = Imagined(q, rng), q.T @ functions
    rows, f = np.arange(len(q)), np.ascontiguousarray(functions, dtype=np.float32)
    largest = np.empty(n_draws)
    for r in range(n_draws):
        # A sparse matrix with one entry a step sums the functions over the steps of each action.
        taken = csr_array((np.ones(len(q), dtype=np.float32), (imagined.draw(), rows)), shape=q.shape[::-1])
        largest[r] = np.abs((taken @ f - expected) / scale).max()
    return largest


def _under_random_signs(
    error: Float, functions: Float, scale: Float, owner: Int, n_draws: int, rng: np.random.Generator
) -> Float:
    """The largest |z| when the errors of each trajectory get a random sign, (R,)."""
    size = int(owner[-1]) + 1
    by_trajectory = csr_array((np.ones(len(owner)), (owner, np.arange(len(owner)))), shape=(size, len(owner)))
    signs = rng.choice([-1.0, 1.0], size=(n_draws, size))
    largest = np.zeros(n_draws)
    for column, spread in zip(error.T, scale, strict=True):
        u = by_trajectory @ (column[:, None] * functions)
        largest = np.maximum(largest, np.abs(signs @ u / spread).max(axis=1))
    return largest


def _functions(data: Trajectories, rows: Int, strata: Sequence[str] | None) -> tuple[Float, tuple[str, ...]]:
    """Functions of the state, standardised but for the constant and the strata, (m, F), with their names."""
    x = np.concatenate([data.layout.time[rows, None], data.states[rows]], axis=1).astype(np.float64)
    spread = x.std(axis=0)
    keep = spread > 0
    x = (x[:, keep] - x[:, keep].mean(axis=0)) / spread[keep]
    named = np.array(["time", *data.feature_names], dtype=object)[keep]
    columns, names = [np.ones((len(rows), 1)), x], ["constant", *named]
    if strata is not None:
        levels, at = np.unique(np.asarray(strata)[rows], return_inverse=True)
        columns.append(np.eye(len(levels))[at])
        names += [f"stratum {level}" for level in levels]
    return np.concatenate(columns, axis=1), tuple(map(str, names))


@dataclass(frozen=True, eq=False)
class WeightMoments:
    """Mean weight at every step, which should be 1."""

    mean: Float  # (T,)
    se: Float  # (T,)
    largest: AgainstNull  # the largest |z|, against random signs of the trajectories

    @property
    def p_value(self) -> float:
        """Of the largest |z|, for all steps together; nan where nothing can be said."""
        return self.largest.p_value

    @property
    def z(self) -> Float:
        """Distance from 1 in standard errors, (T,)."""
        return np.divide(self.mean - 1, self.se, out=np.zeros_like(self.se), where=self.se > 0)


def weight_moments(e: Evidence, *, n_draws: int = 500, rng: int | np.random.Generator) -> WeightMoments:
    r"""Test whether the weights have mean 1 at every step, :math:`E[\rho_t] = 1`.

    A trajectory that has ended keeps its last weight. The test is by step and not by length: given the length, which
    depends on what was done, weights do not have mean 1 even if the model is right.

    When it breaks: weights have heavy tails. While the few largest have not yet occurred the mean is below 1 and its
    standard error too small, so that a small p-value says only "the model, or too few trajectories": with 20
    trajectories the truth is rejected at the 5% level in about one case of five.
    """
    check_draws(n_draws)
    n, rng = len(e), np.random.default_rng(rng)
    weights = np.exp(e.layout.dense(e.log_rho, np.arange(n), carry=True))
    mean = weights.mean(axis=0)
    off = weights - mean
    se = off.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(e.layout.horizon, np.nan)
    usable = se > 0
    if not usable.any():
        certain = np.isfinite(se).all() and bool((np.abs(mean - 1) < 1e-9).all())
        return WeightMoments(mean, se, AgainstNull(0.0, 0.0, 0.0, 1.0) if certain else _UNKNOWN)
    scaled = off[:, usable] / n / se[usable]
    largest = np.array([np.abs(rng.choice([-1.0, 1.0], size=n) @ scaled).max() for _ in range(n_draws)])
    return WeightMoments(mean, se, against_draws(np.abs((mean[usable] - 1) / se[usable]).max(), largest))


_UNKNOWN = AgainstNull(
    float("nan"), float("nan"), float("nan")
)  # one trajectory, or weights all alike and not 1
