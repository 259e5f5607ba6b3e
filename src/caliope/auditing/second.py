"""A second model of practice, as independent of the first as the log allows: for the placebo."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier

from caliope.auditing.candidates import POOL
from caliope.behaviour import FittedBehaviour, Shrinkage, fit_behaviour, recalibrate
from caliope.calibration import Comparison
from caliope.ragged import Float
from caliope.results import Finding, Level
from caliope.trajectories import Trajectories

CHALLENGER = "a forest"  # the second model where there is no other candidate
_BETTER = (
    0.01,
    0.03,
)  # nats a decision, by which a forest knows more than the only candidate: a caution, an issue


def second_model(
    comparison: Comparison, fitted: Mapping[str, FittedBehaviour], part: Trajectories, *, rng: int
) -> tuple[str, FittedBehaviour]:
    """The best candidate of another family, fitted again on other folds; a forest where there is no other."""
    finite = [
        name
        for name in comparison.choice.ranking  # type: ignore[union-attr]
        if name != comparison.recommended and np.isfinite(comparison[name].measured.nll)
    ]
    # The pool is made of the others, and takes as long to fit as all of them.
    plain = [name for name in finite if name != POOL]
    name = next(iter(plain or finite), None)
    if name is not None:
        return name, fit_behaviour(clone(fitted[name].model), part, mode="cross", rng=rng + 1)
    trees = ExtraTreesClassifier(50, min_samples_leaf=5, max_features=None, random_state=rng + 1)
    return CHALLENGER, recalibrate(trees, part, Shrinkage(), rng=rng + 1)


def challenged(name: str, second: FittedBehaviour, chosen: FittedBehaviour) -> tuple[Finding, ...]:
    """Whether a forest knows more of held-out decisions than the only candidate does: then that one is wrong."""
    if name != CHALLENGER:
        return ()  # the best of several has been chosen
    data = second.data
    mean, se = mean_of_steps(data, _log_of(second, data) - _log_of(chosen, data))
    if not (mean > _BETTER[0] and mean > 3 * se):
        return ()
    message = (
        "the behaviour model misses what a forest finds: the forest predicts decisions that it has not seen better, "
        f"by {mean:.3f} nats each (standard error {se:.3f}); try other models"
    )
    level: Level = "issue" if mean > _BETTER[1] else "caution"
    return (Finding("P103", level, message, {"gain": mean, "se": se}),)


def mean_of_steps(data: Trajectories, values: Float) -> tuple[float, float]:
    """Mean over all steps, and its standard error by trajectory."""
    total = data.layout.sum_steps(values)
    mean = float(total.sum() / data.n_steps)
    return mean, float(np.sqrt(((total - mean * data.lengths) ** 2).sum()) / data.n_steps)


def _log_of(behaviour: FittedBehaviour, data: Trajectories) -> Float:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(behaviour.on(data)[np.arange(data.n_steps), data.actions]))
