"""MAGIC: a blend of the direct method and weighted doubly robust, by how far each can be believed."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import optimize, special

from caliope.estimators import wdr_terms
from caliope.evidence import Evidence, OneByOne
from caliope.ragged import Float, Int

_BIAS_LEVEL = 0.5  # of the interval around wdr, the distance from which stands for the bias


def magic(e: Evidence) -> Any:
    r"""MAGIC: model and guided importance sampling combined.

    .. math:: \hat V = x^\top g, \qquad x = \arg\min_{x \in \Delta} x^\top (\Omega + b b^\top) x

    :math:`g^{(j)}` follows the weighted doubly robust estimate for j steps and the fitted values from there on:
    from :func:`~caliope.estimators.dm` (no step) to :func:`~caliope.estimators.wdr` (all). :math:`\Omega` is the
    covariance of these estimates, from the influence of the trajectories, and :math:`b_j` the distance of
    :math:`g^{(j)}` from a 50% interval around wdr (the reference implementation's recommendation once the covariance
    has its factor n; the paper has 10%).

    The blend is chosen from the data and has no derivative: of the intervals only those by resampling work, and
    ``delta_method`` raises.

    References
    ----------
    Thomas & Brunskill (2016), data-efficient off-policy policy evaluation.
    """
    return blend(e, np.arange(-1, e.layout.horizon))


def blend(e: Evidence, steps: Int) -> Any:
    """MAGIC over the partial estimates that follow the log for the named numbers of steps, -1 for none."""
    if isinstance(e.counts, OneByOne):
        rows = np.tile(e.counts.base, (len(e.counts.which), 1))
        if np.iscomplexobj(e.counts.step):
            raise TypeError("magic chooses its blend from the data and has no derivative; use the bootstrap.")
        rows[np.arange(len(rows)), e.counts.which] += e.counts.step
        return blend(e.with_counts(rows), steps)
    if isinstance(e.counts, np.ndarray) and e.counts.ndim == 2:
        return np.array([blend(e.with_counts(row), steps) for row in e.counts])
    g = partial_estimates(e)[steps + 1]
    if not np.isfinite(g).all():
        return float("nan")
    u = _influences(e)
    chosen = u[:, steps + 1]
    omega = chosen.T @ chosen
    whole, se = partial_estimates(e)[-1], float(np.sqrt((u[:, -1] ** 2).sum()))
    arm = special.ndtri((1 + _BIAS_LEVEL) / 2) * se
    bias = np.maximum(np.abs(g - whole) - arm, 0.0) * np.sign(g - whole)
    return float(_simplex_minimum(omega + np.outer(bias, bias)) @ g)


def partial_estimates(e: Evidence) -> Any:
    r"""Estimates :math:`g^{(j)}` for j = -1 (the direct method) to T - 1 (weighted doubly robust), (..., T + 1)."""
    correction, baseline = wdr_terms(e)
    followed = np.cumsum(e.discount * (correction + baseline), axis=-1)
    zero = np.zeros_like(followed[..., :1])
    tail = np.concatenate([e.discount * baseline, zero], axis=-1)
    return np.concatenate([zero, followed], axis=-1) + tail


def _influences(e: Evidence) -> Float:
    """Change of each partial estimate with each trajectory, (n, T + 1): their squares sum to the variance."""
    h, base = 1e-100, np.ones(len(e)) if e.counts is None else e.counts
    one_by_one = OneByOne(np.asarray(base), np.arange(len(e)), np.full(len(e), 1j * h))
    # A trajectory counted c times is c independent ones, each with the influence of one.
    return partial_estimates(e.with_counts(one_by_one)).imag / h * np.sqrt(np.asarray(base))[:, None]


def _simplex_minimum(matrix: Float) -> Float:
    """Minimise x' M x over non-negative x that sum to 1."""
    size, spread = len(matrix), np.sqrt(np.diag(matrix))
    if (spread == 0).any():  # without variance and bias: nothing is better
        return (spread == 0) / (spread == 0).sum()
    # In units of each one's own spread, y = spread * x; the sum becomes a' y.
    values, vectors = np.linalg.eigh(matrix / spread[:, None] / spread)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    a = spread.min() / spread
    # The least y' C y + (a' y - 1)^2 lies on the same ray as the least y' C y with a' y = 1: along a ray on which
    # y' C y / (a' y)^2 = q its minimum is q / (1 + q), which rises with q. So non-negative least squares will do.
    y, _ = optimize.nnls(np.vstack([root, a]), np.append(np.zeros(size), 1.0), maxiter=100 * size)
    x = y / spread
    return x / x.sum()
