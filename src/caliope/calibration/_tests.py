"""Calibration tests: balance of moments, mean weights, kernel calibration error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from caliope._evidence import Evidence
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope.calibration._null import AgainstNull, ModelDraws, against_draws, check_draws, check_table


@dataclass(frozen=True, eq=False)
class BalanceTable:
    """Correlation of the errors of a model with functions of the state: (A, F), one row per action.

    Parameters
    ----------
    z : (A, F)
        Sum of error times function, in standard deviations under the model.
    effect : (A, F)
        Mean of error times standardised function.
    functions : tuple of str
        Names of the functions.
    largest : AgainstNull
        The largest ``|z|``, against draws from the model.
    signs_p : float
        P-value of the largest ``|z|`` under random signs of whole trajectories.

    Examples
    --------
    >>> table = BalanceTable(np.array([[1.0, -3.0]]), np.zeros((1, 2)), ("constant", "age"), AgainstNull(3, 1, 1), 0.1)
    >>> table.worst
    (0, 'age')
    """

    z: Float
    effect: Float
    functions: tuple[str, ...]
    largest: AgainstNull
    signs_p: float

    @property
    def p_value(self) -> float:
        """P-value of the largest ``|z|``, for all comparisons together."""
        return self.largest.p_value

    @property
    def worst(self) -> tuple[int, str]:
        """The action and the function with the largest ``|z|``."""
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
    r"""Test whether the errors of a model are correlated with functions of the state.

    If :math:`\hat\pi` is the behaviour policy, then for every function f of the state
    :math:`E[(1\{A = a\} - \hat\pi(a \mid s)) f(s)] = 0`. Here f runs over a constant, the time, every feature and the
    indicator of every stratum. The sums are compared with their spread under the model,

    .. math:: z_{af} = \frac{\sum_t (1\{a_t = a\} - \hat\pi(a \mid s_t)) f(s_t)}
        {\sqrt{\sum_t \hat\pi(a \mid s_t)(1 - \hat\pi(a \mid s_t)) f(s_t)^2}}

    The largest \|z\| is compared with that in draws from the model, and with a multiplier bootstrap (random signs of
    the errors of whole trajectories). The second allows for correlated steps, but with rare actions it rejects the
    truth too often, and an overconfident model too rarely.

    When it breaks: errors that none of these functions follow are not seen. Where an unmeasured cause ties the
    decisions of a trajectory together, the first test rejects even the best model of the state.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities at every step of the log.
    data : Trajectories
        The log, held out.
    strata : sequence of str, optional
        Stratum of every step, (N,).
    n_draws : int
        Draws for either null.
    max_steps : int
        Of a longer log, whole trajectories with about this many steps are used.
    rng : int or Generator
        Seed.

    Returns
    -------
    BalanceTable
        z of every action and function, and the test of the largest.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> data = ward.simulate(100, rng=0)
    >>> uniform = np.full((data.n_steps, 3), 1 / 3)
    >>> balance_table(uniform, data, rng=0).worst
    (0, 'state')
    """
    check_draws(n_draws)
    rng = np.random.default_rng(rng)
    table = check_table(table, data)
    rows, owner = _sample_rows(data, max_steps, rng)
    functions, names = _state_functions(data, rows, strata)
    q = table[rows]
    error = np.eye(q.shape[1])[data.actions[rows]] - q
    scale = np.sqrt((q * (1 - q)).T @ functions**2)
    # Where the model is certain there is nothing to compare.
    scale = np.where(scale > 0, scale, np.inf)
    z = error.T @ functions / scale
    top = float(np.abs(z).max())
    null = _draw_from_model(q, functions, scale, n_draws, rng)
    signs = _draw_signs(error, functions, scale, owner, n_draws, rng)
    return BalanceTable(
        z,
        error.T @ functions / len(rows),
        names,
        against_draws(top, null),
        against_draws(top, signs).p_value,
    )


def _sample_rows(data: Trajectories, max_steps: int, rng: np.random.Generator) -> tuple[Int, Int]:
    """Sample whole trajectories: their rows, and the number from 0 of the trajectory of each row."""
    which = data.subsample(max_steps, rng=rng)
    return data.layout.rows_of(which), np.repeat(np.arange(len(which)), data.lengths[which])


def _draw_from_model(
    q: Float, functions: Float, scale: Float, n_draws: int, rng: np.random.Generator
) -> Float:
    """Draw the largest ``|z|`` when actions come from the model, (R,)."""
    model, expected = ModelDraws(q, rng), q.T @ functions
    rows, f = np.arange(len(q)), np.ascontiguousarray(functions, dtype=np.float32)
    largest = np.empty(n_draws)
    for r in range(n_draws):
        # A sparse matrix with one entry per step sums the functions over the steps of each action.
        taken = csr_array((np.ones(len(q), dtype=np.float32), (model.draw(), rows)), shape=q.shape[::-1])
        largest[r] = np.abs((taken @ f - expected) / scale).max()
    return largest


def _draw_signs(
    error: Float, functions: Float, scale: Float, owner: Int, n_draws: int, rng: np.random.Generator
) -> Float:
    """Draw the largest ``|z|`` when the errors of each trajectory get a random sign, (R,)."""
    size = int(owner[-1]) + 1
    by_trajectory = csr_array((np.ones(len(owner)), (owner, np.arange(len(owner)))), shape=(size, len(owner)))
    signs = rng.choice([-1.0, 1.0], size=(n_draws, size))
    largest = np.zeros(n_draws)
    for column, spread in zip(error.T, scale, strict=True):
        u = by_trajectory @ (column[:, None] * functions)
        largest = np.maximum(largest, np.abs(signs @ u / spread).max(axis=1))
    return largest


def _state_functions(
    data: Trajectories, rows: Int, strata: Sequence[str] | None
) -> tuple[Float, tuple[str, ...]]:
    """Compute functions of the state, (m, F), and their names; time and features are standardised."""
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
    """Mean weight at every step, which should be 1.

    Parameters
    ----------
    mean, se : (T,)
        Mean weight at each step, and its standard error.
    largest : AgainstNull
        The largest ``|z|``, against random signs of the trajectories.

    Examples
    --------
    >>> WeightMoments(np.array([1.0, 1.2]), np.array([0.1, 0.1]), AgainstNull(2, 1, 0.5)).z.round(6).tolist()
    [0.0, 2.0]
    """

    mean: Float
    se: Float
    largest: AgainstNull

    @property
    def p_value(self) -> float:
        """P-value of the largest ``|z|``, for all steps together; nan where it is unknown."""
        return self.largest.p_value

    @property
    def z(self) -> Float:
        """Distance from 1 in standard errors, (T,)."""
        return np.divide(self.mean - 1, self.se, out=np.zeros_like(self.se), where=self.se > 0)


def weight_moments(e: Evidence, *, n_draws: int = 500, rng: int | np.random.Generator) -> WeightMoments:
    r"""Test whether the weights have mean 1 at every step, :math:`E[\rho_t] = 1`.

    A trajectory that has ended keeps its last weight. The test is by step and not by length: given the length, which
    depends on the actions, weights do not have mean 1 even if the model is right.

    When it breaks: weights have heavy tails. If the few largest did not occur, the mean is below 1 and its standard
    error too small. A small p-value then means a wrong model or too few trajectories: with 20 trajectories the truth
    is rejected at the 5% level in about one case of five.

    Parameters
    ----------
    e : Evidence
        The log.
    n_draws : int
        Draws of random signs.
    rng : int or Generator
        Seed.

    Returns
    -------
    WeightMoments
        Mean weights, and the test of the largest deviation.

    Examples
    --------
    >>> e = Evidence(np.zeros(4), np.zeros(4), offsets=[0, 2, 4])
    >>> weight_moments(e, rng=0).mean.tolist()
    [1.0, 1.0]
    """
    check_draws(n_draws)
    n, rng = len(e), np.random.default_rng(rng)
    weights = np.exp(e.layout.dense(e.log_rho, np.arange(n), carry=True))
    mean = weights.mean(axis=0)
    off = weights - mean
    units = e.layout.n_units
    off = e.layout.pool(off)
    spread = np.sqrt((off**2).sum(axis=0) * (units / (units - 1))) if units > 1 else None
    se = np.full(e.layout.horizon, np.nan) if spread is None else spread / n
    usable = se > 0
    if not usable.any():
        certain = np.isfinite(se).all() and bool((np.abs(mean - 1) < 1e-9).all())
        return WeightMoments(mean, se, AgainstNull(0.0, 0.0, 0.0, 1.0) if certain else _UNKNOWN)
    scaled = off[:, usable] / n / se[usable]
    largest = np.array([np.abs(rng.choice([-1.0, 1.0], size=units) @ scaled).max() for _ in range(n_draws)])
    return WeightMoments(mean, se, against_draws(np.abs((mean[usable] - 1) / se[usable]).max(), largest))


# One trajectory, or weights all equal and not 1.
_UNKNOWN = AgainstNull(float("nan"), float("nan"), float("nan"))


def kernel_error(
    table: Float,
    data: Trajectories,
    *,
    n_rows: int = 2000,
    n_draws: int = 200,
    feature_weights: ArrayLike | None = None,
    rng: int | np.random.Generator,
) -> AgainstNull:
    r"""Compute the squared kernel calibration error on predictions and states; 0 only if the model is right.

    .. math:: \frac{1}{|P|} \sum_{(i, j) \in P} (e_{a_i} - p_i)^\top (e_{a_j} - p_j)\; k_{ij},\qquad
        k_{ij} = \exp(-\delta(p_i, p_j)) \exp\Big(-\frac{\lVert s_i - s_j \rVert^2}{2 h^2}\Big)

    over the pairs P of steps of different trajectories, e being unit vectors and :math:`\delta` total variation. States
    are standardised and :math:`h^2` is half the median squared distance. The null has mean 0 and the spread under
    random signs, one per trajectory (a wild bootstrap). It is skewed, so use the p-value: z exceeds 3 in one or two of
    a hundred logs of the true policy.

    When it breaks: in many dimensions all states are about equally far apart, and an error confined to a small region
    is not seen.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities at every step of the log.
    data : Trajectories
        The log, held out.
    n_rows : int
        Largest number of steps used, drawn at random.
    n_draws : int
        Draws of random signs.
    feature_weights : (d,), optional
        Weight of each squared feature difference.
    rng : int or Generator
        Seed.

    Returns
    -------
    AgainstNull
        The error, and its null.

    References
    ----------
    Widmann, Lindsten & Zachariah (2019), "Calibration tests in multi-class classification"; the kernel on states is
    added here.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> data = ward.simulate(100, rng=0)
    >>> uniform = np.full((data.n_steps, 3), 1 / 3)
    >>> kernel_error(uniform, data, rng=0).p_value < 0.05
    True
    """
    check_draws(n_draws)
    table = check_table(table, data)
    rng = np.random.default_rng(rng)
    rows = np.sort(rng.choice(data.n_steps, min(n_rows, data.n_steps), replace=False))
    if data.layout.cluster is not None:  # those of one cluster side by side
        rows = rows[np.argsort(data.layout.unit_of_step[rows], kind="stable")]
    p, owner = table[rows], data.layout.unit_of_step[rows]
    error = np.eye(table.shape[1])[data.actions[rows]] - p
    apart = owner[:, None] != owner
    if not apart.any():
        return AgainstNull(float("nan"), 0.0, float("nan"))
    # Tables of all pairs are most of the memory: each is changed in its place.
    pairs = _state_kernel(data.states[rows], feature_weights, apart)
    pairs *= _action_kernel(p)
    pairs *= error @ error.T
    pairs[~apart] = 0.0
    count = int(apart.sum())
    # One sign per trajectory: sum the pairs by trajectory first, then a draw is one quadratic form.
    names, at = np.unique(owner, return_inverse=True)
    summed = _block_sums(pairs, at, len(names))
    signs = rng.choice([-1.0, 1.0], size=(n_draws, len(names)))
    drawn = np.einsum("ri,ri->r", signs @ summed, signs) / count
    value = float(pairs.sum() / count)
    # The mean of the null is known; that of the draws is noisy.
    return replace(against_draws(value, drawn), null_mean=0.0)


def _action_kernel(p: Float) -> Float:
    """exp(-total variation) between all pairs of rows, (m, m)."""
    result, apart = np.zeros((len(p), len(p))), np.empty((len(p), len(p)))
    for column in p.T:
        np.subtract(column[:, None], column, out=apart)
        result += np.abs(apart, out=apart)
    result *= -0.5
    return np.exp(result, out=result)


def _state_kernel(states: Float, feature_weights: ArrayLike | None, apart: Float) -> Float:
    """exp(-d^2 / 2h^2) between all pairs of states, with h^2 half the median of d^2; (m, m)."""
    x = states.astype(np.float64)
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if feature_weights is not None:
        x = x * np.sqrt(np.asarray(feature_weights, dtype=np.float64))
    norm = np.vecdot(x, x)
    squared = np.add.outer(norm, norm)
    squared -= 2 * x @ x.T
    np.maximum(squared, 0.0, out=squared)
    middle = float(np.median(squared[apart], overwrite_input=True))
    if middle == 0:  # equal states have a kernel of 1
        return (squared == 0).astype(float)
    squared /= -middle
    return np.exp(squared, out=squared)


def _block_sums(pairs: Float, at: Int, n: int) -> Float:
    """Sum over the rows and columns of each trajectory, (n, n); ``at`` is sorted."""
    starts = np.searchsorted(at, np.arange(n))
    return np.asarray(np.add.reduceat(np.add.reduceat(pairs, starts, axis=0), starts, axis=1))
