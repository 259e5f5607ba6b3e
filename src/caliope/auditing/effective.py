"""Effective sample sizes where one number hides them: late in the episodes, and in single strata."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope.diagnostics import TESTABLE, TOO_FEW, kish
from caliope.evidence import Evidence
from caliope.ragged import Float, Int
from caliope.results import Finding

_REACHED = 0.1  # of the trajectories, that get as far as a step for it to matter
_LARGE = 0.1  # of the trajectories in a stratum, for it to matter


def effective_by_step(e: Evidence) -> tuple[Int, Float]:
    r"""How many trajectories reach each step, and :math:`(\sum \rho_t)^2 / \sum \rho_t^2` of them, (T,) both."""
    time, weight = e.layout.time, e.weight
    total = np.bincount(time, weights=weight)
    square = np.bincount(time, weights=weight**2)
    worth = np.divide(total**2, square, out=np.zeros_like(total), where=square > 0)
    return np.bincount(time), worth


def few_at_a_step(e: Evidence) -> tuple[Finding, ...]:
    """A step that a tenth of the episodes reach, and that hardly any weight does."""
    reached, worth = effective_by_step(e)
    matters = reached >= max(_REACHED * len(e), TOO_FEW)
    few = np.flatnonzero(matters & (worth < TESTABLE))
    if not len(few):
        return ()
    worst = int(few[worth[few].argmin()])
    message = (
        f"from step {few[0]} on, decisions are weighed by too few effective trajectories: {worth[worst]:.1f} of the "
        f"{reached[worst]} that reach step {worst}"
    )
    numbers = {"step": worst, "effective_n": float(worth[worst]), "reached": int(reached[worst])}
    return (Finding("A106", "caution", message, numbers),)


def few_in_a_stratum(e: Evidence, strata: Any) -> tuple[Finding, ...]:
    """A stratum of the first decisions that is large in the log and has hardly any weight."""
    if strata is None:
        return ()
    first = np.array([str(x) for x in np.asarray(strata)[e.layout.first]])
    found = []
    for name in np.unique(first):
        members = first == name
        worth = kish(e.final_weight[members])
        if members.mean() >= _LARGE and members.sum() >= TESTABLE > worth:
            message = (
                f"of the {int(members.sum())} episodes that begin in the stratum {name}, {worth:.1f} are left as the "
                "effective sample: the estimate says nothing about them apart"
            )
            found.append(Finding("A107", "caution", message, {"effective_n": worth}))
    return tuple(found)
