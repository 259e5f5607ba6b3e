"""Estimators of the value of the target policy: the formulas, their averages over lengths, and MAGIC.

Every estimator takes an :class:`~caliope.Evidence` and returns a value, or one value per row of its counts.
Its traits say what it relies on; declare those of your own with :func:`estimator`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import optimize, special

from caliope._counts import LeaveOneOutCounts
from caliope._evidence import Evidence
from caliope._formulas import dm, dr, monte_carlo, ois, ratio, step_is, step_wis, wdr, wdr_terms, wis
from caliope._ragged import Float, Int
from caliope._traced import TracedCounts, differentiate
from caliope._traits import Estimator, Lengths, Traits, core_of, estimator, label, name_of, traits_of
from caliope._under_way import wdr_under_way, weight_factors, wis_under_way

__all__ = [
    "Estimator",
    "Traits",
    "dm",
    "dr",
    "estimator",
    "label",
    "magic",
    "monte_carlo",
    "name_of",
    "ois",
    "per_horizon",
    "phis",
    "phwdr",
    "phwis",
    "step_is",
    "step_phwis",
    "step_wis",
    "traits_of",
    "wdr",
    "wdr_under_way",
    "weight_factors",
    "wis",
    "wis_under_way",
]

# Level of the interval around wdr, the distance from which stands for the bias.
_BIAS_LEVEL = 0.5


def per_horizon(estimator: Estimator, *, length_weights: Lengths = "behaviour") -> Estimator:
    r"""Apply an estimator to the trajectories of each length apart, and average over lengths.

    .. math:: \hat V = \sum_l W_l \hat V_l, \qquad W_l = \frac{n_l}{n}

    ``phwis = per_horizon(wis)``, ``step_phwis = per_horizon(step_wis)``, ``phwdr = per_horizon(wdr)``.

    Plain importance sampling it leaves as it is (``phis`` equals ``ois``). The others tend to
    :math:`\sum_l P_b(L = l)\, E_e[G \mid L = l]`, which is not the value of a policy that changes how long
    trajectories last. With ``length_weights="evaluation"``, :math:`W_l = \sum_{i \in l} \rho^{(i)} /
    \sum_i \rho^{(i)}`, ``per_horizon(wis)`` is ``wis`` itself. A length that occurs once contributes that
    trajectory's own return whatever the policy (on-policy leakage); diagnostics report its share.

    A length whose trajectories all have weight zero says nothing: it is left out, the remaining
    :math:`W_l` are scaled up, and diagnostics report the share that was lost.

    Parameters
    ----------
    estimator : callable
        A function of evidence, one of these or your own.
    length_weights : {"behaviour", "evaluation"}
        Whether lengths are averaged as the behaviour policy or as the target policy produces them.

    Returns
    -------
    callable
        The average, an estimator with the traits of the one inside.

    References
    ----------
    Doroudi, Thomas & Brunskill (2017). Raghu et al. (2018), appendix A.

    Examples
    --------
    >>> e = Evidence([1, 2, 5], np.log([1, 3, 3]), offsets=[0, 1, 2, 3])
    >>> float(per_horizon(wis)(e)) == float(wis(e))  # all of one length
    True
    """
    if length_weights not in ("behaviour", "evaluation"):
        raise ValueError(f"length_weights must be 'behaviour' or 'evaluation', got {length_weights!r}.")

    def average(e: Evidence) -> Any:
        value: Any = 0.0
        kept: Any = 0.0
        for members, part in e.by_length():
            mass = part.total(e.final_weight[members])
            share = part.n / e.n if length_weights == "behaviour" else ratio(mass, e.total(e.final_weight))
            estimate = _within(estimator, part)
            lost = np.isnan(estimate) & (mass == 0) | (part.n == 0)
            value = value + np.where(lost, 0.0, share * np.where(lost, 0.0, estimate))
            kept = kept + np.where(lost, 0.0, share)
        return ratio(value, kept)[()]

    suffix = "" if length_weights == "behaviour" else "_by_evaluation_lengths"
    lengths = "" if length_weights == "behaviour" else ", lengths of the target"
    name = label(estimator)
    title = f"Per-horizon {name if name[:2].isupper() else name[0].lower() + name[1:]}{lengths}"
    average.__name__ = f"per_horizon_{name_of(estimator)}{suffix}"
    average.__doc__ = f"{title}."
    inner = replace(traits_of(estimator), label=title, core=core_of(estimator))
    average.traits = _average_lengths(inner, length_weights)  # type: ignore[attr-defined]
    return average


def _within(estimator: Estimator, part: Evidence) -> Any:
    """Value among the trajectories of one length; rows of counts that change none of them share one value."""
    counts = part.counts
    if isinstance(counts, TracedCounts):
        once = part.with_counts(None)
        return counts.take(lambda: estimator(once), lambda slope: slope * differentiate(estimator, once))
    if not isinstance(counts, LeaveOneOutCounts):
        return estimator(part)
    changed = np.flatnonzero(counts.step)
    same = estimator(part.with_counts(counts.base))
    values = np.full(len(counts.step), same, dtype=np.result_type(counts.step, np.float64))
    if len(changed):
        rows = LeaveOneOutCounts(counts.base, counts.which[changed], counts.step[changed])
        values[changed] = estimator(part.with_counts(rows))
    return values


def _average_lengths(traits: Traits, lengths: Lengths) -> Traits:
    # The mean of weighted returns is the mean of its means by length: nothing depends on the lengths.
    mean = traits.declared and traits.uses == {"weights"} and not (traits.normalised or traits.by_step)
    against = tuple(_average_lengths(other, lengths) for other in traits.against)
    return replace(traits, lengths=None if mean else lengths, against=against)


def _define(name: str, estimator: Estimator, meaning: str, *, value: float) -> Estimator:
    """Give an average over lengths a name of its own and a docstring, with its value in the example."""
    estimator.__name__ = name  # type: ignore[attr-defined]
    estimator.__doc__ = f"""{label(estimator)}.

    {meaning} See :func:`per_horizon`.

    Parameters
    ----------
    e : Evidence
        Rewards and log-ratios, and ``q`` and ``v`` where the estimator inside needs values.

    Returns
    -------
    float or numpy.ndarray
        The value, nan where every weight is 0; one per row of counts.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 3, 4]), [0, 1, 2, 3], q=[1, 2, 4], v=[1, 2, 3])
    >>> round(float({name}(e)), 3)
    {value}
    """
    return estimator


phis = _define("phis", per_horizon(ois), "The same number as :func:`ois`.", value=10.333)
phwis = _define("phwis", per_horizon(wis), "One :func:`wis` per length.", value=3.444)
step_phwis = _define("step_phwis", per_horizon(step_wis), "One :func:`step_wis` per length.", value=3.444)
phwdr = _define("phwdr", per_horizon(wdr), "One :func:`wdr` per length.", value=2.778)


@estimator(
    label="MAGIC: blend of direct and doubly robust",
    uses={"weights", "values"},
    normalised=True,
    by_step=True,
)
def magic(e: Evidence) -> Any:
    r"""Blend the direct method and weighted doubly robust by how far each can be believed.

    .. math:: \hat V = x^\top g, \qquad x = \arg\min_{x \in \Delta} x^\top (\Omega + b b^\top) x

    :math:`g^{(j)}` follows the weighted doubly robust estimate for j steps and the fitted values from there on:
    from :func:`dm` (no step) to :func:`wdr` (all). :math:`\Omega` is the covariance of these estimates, from the
    influence of the trajectories, and :math:`b_j` the distance of :math:`g^{(j)}` from a 50% interval around wdr
    (the reference implementation's recommendation once the covariance has its factor n; the paper has 10%).

    The blend is chosen from the data and has no derivative: of the intervals only those by resampling work, and
    ``delta_method`` raises.

    Parameters
    ----------
    e : Evidence
        The log, with ``q`` and ``v``.

    Returns
    -------
    float or numpy.ndarray
        The value, nan where one of the partial estimates is; one per row of counts.

    References
    ----------
    Thomas & Brunskill (2016), data-efficient off-policy policy evaluation.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    >>> bool(dm(e) <= magic(e) <= wdr(e))
    True
    """
    return blend(e, np.arange(-1, e.layout.horizon))


def blend(e: Evidence, steps: Int) -> Any:
    """Blend the partial estimates that follow the log for the named numbers of steps, as :func:`magic` does.

    Parameters
    ----------
    e : Evidence
        The log, with ``q`` and ``v``.
    steps : numpy.ndarray of int
        Last step of each partial estimate, from 0; -1 for none, which is the direct method.

    Returns
    -------
    float or numpy.ndarray
        The value; one per row of counts.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    >>> blend(e, np.array([-1])) == float(dm(e))
    True
    """
    if isinstance(e.counts, TracedCounts):
        raise TypeError("magic chooses its blend from the data and has no derivative; use the bootstrap.")
    if isinstance(e.counts, LeaveOneOutCounts):
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
    u = _differentiate(e)
    chosen = u[:, steps + 1]
    omega = chosen.T @ chosen
    whole, se = partial_estimates(e)[-1], float(np.sqrt((u[:, -1] ** 2).sum()))
    arm = special.ndtri((1 + _BIAS_LEVEL) / 2) * se
    bias = np.maximum(np.abs(g - whole) - arm, 0.0) * np.sign(g - whole)
    return float(_minimise_on_simplex(omega + np.outer(bias, bias)) @ g)


def partial_estimates(e: Evidence) -> Any:
    r"""Compute the estimates :math:`g^{(j)}` between the direct method and weighted doubly robust.

    Parameters
    ----------
    e : Evidence
        The log, with ``q`` and ``v``.

    Returns
    -------
    numpy.ndarray, (..., T + 1)
        From j = -1 (the direct method) to j = T - 1 (weighted doubly robust).

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), [0, 2, 3], gamma=0.5, q=[1, 2, 4], v=[1, 2, 3])
    >>> partial_estimates(e).tolist()
    [2.0, 3.0, 3.125]
    """
    correction, baseline = wdr_terms(e)
    followed = np.cumsum(e.discount * (correction + baseline), axis=-1)
    zero = np.zeros_like(followed[..., :1])
    tail = np.concatenate([e.discount * baseline, zero], axis=-1)
    return np.concatenate([zero, followed], axis=-1) + tail


def _differentiate(e: Evidence) -> Float:
    """Differentiate each partial estimate in each trajectory, (n, T + 1): the squares sum to the variance."""
    h, base = 1e-100, np.ones(len(e)) if e.counts is None else e.counts
    counts = LeaveOneOutCounts(np.asarray(base), np.arange(len(e)), np.full(len(e), 1j * h))
    # A trajectory counted c times is c independent ones, each with the influence of one.
    return partial_estimates(e.with_counts(counts)).imag / h * np.sqrt(np.asarray(base))[:, None]


def _minimise_on_simplex(matrix: Float) -> Float:
    """Minimise x' M x over non-negative x that sum to 1."""
    size, spread = len(matrix), np.sqrt(np.diag(matrix))
    # Without variance and bias: nothing is better.
    if (spread == 0).any():
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
