"""Isotonic calibration of the importance ratios: a sensitivity, never a default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

from caliope.evidence import Evidence
from caliope.gathering import gather, target_probabilities
from caliope.policies import practice
from caliope.ragged import Float, Int
from caliope.results import Finding
from caliope.trajectories import Trajectories


def calibrate_ratios(
    data: Trajectories,
    target: Any,
    behaviour: Any,
    *,
    gamma: float = 1.0,
    folds: int = 2,
    rng: int | np.random.Generator,
) -> Evidence:
    r"""What the estimate becomes when ratios are shrunk towards observed care.

    The estimated ratio :math:`x = \pi_e(a \mid s) / \hat\pi_b(a \mid s)` serves as a score only. Of all increasing
    functions g, the one is taken that makes the logged actions weighted by g resemble the actions of the target,

    .. math:: \min_g \sum_t \Big( \tfrac12 g(x_{t, a_t})^2 - \sum_a \pi_e(a \mid s_t)\, g(x_{t, a}) \Big)

    fitted on one part of the trajectories and applied to the other; outcomes are not used.

    When it breaks: with a fitted behaviour policy it recovers only a part of a true contrast, and its intervals cover
    too seldom where the effective sample size looks best. It makes its own diagnostics look good. So whatever is
    estimated from it carries finding W105, "do not trust": if it and the plain ratios disagree, the log does not say.

    Parameters as in :func:`~caliope.gathering.gather`; ``behaviour`` must give the probabilities of all actions, and
    should be cross-fitted.
    """
    evidence = gather(data, target, behaviour, gamma=gamma)
    wanted = target_probabilities(data, target, behaviour)
    acted = target_probabilities(data, practice, behaviour)
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = np.where(wanted > 0, wanted / acted, 0.0)  # infinite where nobody is thought to act so
    # Not exp(log_ratio): a last bit below its own score, a ratio would fall into the cell beneath.
    logged = scores[np.arange(data.n_steps), data.actions]
    ratio = np.empty(data.n_steps)
    for fit, held_out in data.folds(folds, rng=rng):
        levels, values = isotonic_ratio(scores[fit], wanted[fit], logged[fit])
        ratio[held_out] = values[_cell(levels, logged[held_out])]
    note = Finding(
        "W105",
        "issue",
        "the ratios were calibrated by isotonic regression, a sensitivity: it pulls the estimate towards observed "
        "care, and its effective sample size and interval are no evidence",
    )
    with np.errstate(divide="ignore"):
        return replace(evidence, log_ratio=np.log(ratio), notes=(*evidence.notes, note))


def isotonic_ratio(scores: Float, wanted: Float, logged: Float) -> tuple[Float, Float]:
    """The increasing function of the score that best turns logged actions into wanted ones: levels, and values there.

    ``scores`` and ``wanted`` are (N, A), ``logged`` the score of each action taken, (N,). Between two levels the
    lower one holds.
    """
    levels, taken = np.unique(logged, return_counts=True)
    mass = np.bincount(_cell(levels, scores.ravel()), weights=wanted.ravel(), minlength=len(levels))
    # With m logged actions and a wanted mass w in a cell, m g^2 / 2 - w g is least at w / m.
    values = IsotonicRegression().fit_transform(np.arange(len(levels)), mass / taken, sample_weight=taken)
    return levels, np.asarray(values)


def _cell(levels: Float, scores: Float) -> Int:
    """The last level not above each score; the first one for those below them all."""
    return np.maximum(np.searchsorted(levels, scores, side="right") - 1, 0)
