"""A second model of practice, as independent of the first as the log allows: for the placebo."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn.base import clone

from caliope.auditing.candidates import POOL
from caliope.behaviour import FittedBehaviour, fit_behaviour
from caliope.calibration import Comparison
from caliope.trajectories import Trajectories


def second_model(
    comparison: Comparison, fitted: Mapping[str, FittedBehaviour], part: Trajectories, *, rng: int
) -> FittedBehaviour:
    """The best candidate of another family, fitted again on other folds; the chosen one where there is no other."""
    finite = [
        name
        for name in comparison.choice.ranking  # type: ignore[union-attr]
        if name != comparison.recommended and np.isfinite(comparison[name].measured.nll)
    ]
    # The pool is made of the others, and takes as long to fit as all of them.
    plain = [name for name in finite if name != POOL]
    name = next(iter(plain or finite), comparison.recommended)
    return fit_behaviour(clone(fitted[name].model), part, mode="cross", rng=rng + 1)
