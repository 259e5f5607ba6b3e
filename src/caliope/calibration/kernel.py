"""Kernel calibration error: a test that only the true policy passes, given enough data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from caliope.calibration.nulls import AgainstNull, against_draws, check_draws, check_table
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories


def kernel_error(
    table: Float,
    data: Trajectories,
    *,
    n_rows: int = 2000,
    n_draws: int = 200,
    feature_weights: ArrayLike | None = None,
    rng: int | np.random.Generator,
) -> AgainstNull:
    r"""Squared kernel calibration error with a kernel on predictions and states; 0 if and only if the model is right.

    .. math:: \frac{1}{|P|} \sum_{(i, j) \in P} (e_{a_i} - p_i)^\top (e_{a_j} - p_j)\; k_{ij},\qquad
        k_{ij} = \exp(-\delta(p_i, p_j)) \exp\Big(-\frac{\lVert s_i - s_j \rVert^2}{2 h^2}\Big)

    over the pairs P of steps of different trajectories, e being unit vectors and :math:`\delta` total variation. States
    are standardised and :math:`h^2` is half the median squared distance. It needs neither bins nor neighbours. Its
    null has mean 0, and its spread is that under random signs, one for each trajectory (a wild bootstrap). It is
    skewed: judge by the p-value, for z exceeds 3 in one or two of a hundred logs of the true policy.

    When it breaks: at most ``n_rows`` steps are looked at, drawn at random; in many dimensions all states are about
    as far apart, and an error confined to a small region goes unseen.

    References
    ----------
    Widmann, Lindsten & Zachariah (2019), "Calibration tests in multi-class classification", with the kernel on states
    added.
    """
    check_draws(n_draws)
    table = check_table(table, data)
    rng = np.random.default_rng(rng)
    rows = np.sort(rng.choice(data.n_steps, min(n_rows, data.n_steps), replace=False))
    p, owner = table[rows], data.layout.owner[rows]
    error = np.eye(table.shape[1])[data.actions[rows]] - p
    apart = owner[:, None] != owner
    if not apart.any():
        return AgainstNull(float("nan"), 0.0, float("nan"))
    kernel = np.exp(-_total_variations(p)) * _state_kernel(data.states[rows], feature_weights, apart)
    pairs = np.where(apart, (error @ error.T) * kernel, 0.0)
    count = int(apart.sum())
    # A sign a trajectory: sum the pairs by trajectory first, then a draw is one quadratic form.
    names, at = np.unique(owner, return_inverse=True)
    summed = _block_sums(pairs, at, len(names))
    signs = rng.choice([-1.0, 1.0], size=(n_draws, len(names)))
    drawn = np.einsum("ri,ri->r", signs @ summed, signs) / count
    value = float(pairs.sum() / count)
    return replace(against_draws(value, drawn), null_mean=0.0)  # known, while the draws have it up to noise


def _total_variations(p: Float) -> Float:
    """Between all pairs of rows, (m, m)."""
    result = np.zeros((len(p), len(p)))
    for column in p.T:
        result += np.abs(column[:, None] - column)
    return 0.5 * result


def _state_kernel(states: Float, feature_weights: ArrayLike | None, apart: Float) -> Float:
    x = states.astype(np.float64)
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if feature_weights is not None:
        x = x * np.sqrt(np.asarray(feature_weights, dtype=np.float64))
    norm = np.vecdot(x, x)
    squared = np.maximum(norm[:, None] + norm - 2 * x @ x.T, 0.0)
    middle = float(np.median(squared[apart]))
    # exp(-d^2 / 2h^2) with h^2 half the median; states that are all alike are all near.
    return np.exp(-squared / middle) if middle > 0 else (squared == 0).astype(float)


def _block_sums(pairs: Float, at: Int, n: int) -> Float:
    """Sums over the rows and columns of each trajectory, (n, n); ``at`` is sorted."""
    starts = np.searchsorted(at, np.arange(n))
    return np.asarray(np.add.reduceat(np.add.reduceat(pairs, starts, axis=0), starts, axis=1))
