"""Ratios calibrated by isotonic regression on held-out trajectories."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from caliope._evidence import Evidence
from caliope._gather import gather, target_probabilities
from caliope._policies import practice
from caliope._ragged import Float, Int, at_actions
from caliope._trajectories import Trajectories
from caliope.checks import W105


def calibrate_ratios(
    data: Trajectories,
    target: Any,
    behaviour: Any,
    *,
    gamma: float = 1.0,
    folds: int = 2,
    rng: int | np.random.Generator,
) -> Evidence:
    r"""Replace ratios by an increasing function of them that matches the target on held-out trajectories.

    The estimated ratio :math:`x = \pi_e(a \mid s) / \hat\pi_b(a \mid s)` is only a score. The increasing function
    g is fitted so that the logged actions weighted by g resemble the actions of the target,

    .. math:: \min_g \sum_t \Big( \tfrac12 g(x_{t, a_t})^2 - \sum_a \pi_e(a \mid s_t)\, g(x_{t, a}) \Big)

    on one part of the trajectories and applied to the other; rewards are not used.

    When it breaks: with a fitted behaviour policy only a part of a true contrast is recovered, and intervals cover
    too rarely, while diagnostics look good. Estimates from it therefore carry finding W105, "do not trust".

    Parameters
    ----------
    data : Trajectories
        The log.
    target, behaviour : Policy, or array of shape (N, A)
        The two policies, as in :func:`~caliope.gather`. Cross-fit the behaviour policy.
    gamma : float
        Discount in [0, 1].
    folds : int
        Number of parts of the log.
    rng : int or Generator
        Seed of the folds.

    Returns
    -------
    Evidence
        Evidence with calibrated ratios, and finding W105 in ``notes``.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> data = ward.simulate(50, rng=0)
    >>> state = data.states[:, 0].astype(int)
    >>> calibrate_ratios(data, ward.EARLIER[state], ward.PRACTICE[state], rng=0).notes[-1].code
    'W105'
    """
    evidence = gather(data, target, behaviour, gamma=gamma)
    target_probs = target_probabilities(data, target, behaviour)
    behaviour_probs = target_probabilities(data, practice, behaviour)
    # Infinite where the behaviour policy gives probability 0 to an action of the target.
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(target_probs > 0, target_probs / behaviour_probs, 0.0)
    # Not exp(log_ratio): a last bit below its own score, a ratio would fall into the cell beneath.
    logged = at_actions(scores, data.actions)
    ratio = np.empty(data.n_steps)
    for fit, held_out in data.folds(folds, rng=rng):
        levels, values = fit_isotonic_ratio(scores[fit], target_probs[fit], logged[fit])
        ratio[held_out] = values[_cell(levels, logged[held_out])]
    with np.errstate(divide="ignore"):
        return replace(evidence, log_ratio=np.log(ratio), notes=(*evidence.notes, W105.finding("issue")))


def fit_isotonic_ratio(scores: Float, target_probs: Float, logged: Float) -> tuple[Float, Float]:
    """Fit an increasing function of the score, as levels and values; between two levels the lower one holds.

    ``scores`` and ``target_probs`` are (N, A), ``logged`` is the score of each logged action, (N,).
    """
    from sklearn.isotonic import IsotonicRegression  # the rest of the module needs NumPy alone

    levels, counts = np.unique(logged, return_counts=True)
    mass = np.bincount(_cell(levels, scores.ravel()), weights=target_probs.ravel(), minlength=len(levels))
    # With m logged actions and a target mass w in a cell, m g^2 / 2 - w g is least at w / m.
    values = IsotonicRegression().fit_transform(np.arange(len(levels)), mass / counts, sample_weight=counts)
    return levels, np.asarray(values)


def _cell(levels: Float, scores: Float) -> Int:
    """Number the last level not above each score; 0 for scores below all levels."""
    return np.maximum(np.searchsorted(levels, scores, side="right") - 1, 0)
