"""What may be asked of an audit: told before anything is fitted, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.gathering import OnLog, target_probabilities
from caliope.policies import MixWithPractice, Relative
from caliope.ragged import Float, read_only
from caliope.trajectories import Trajectories, check_gamma
from caliope.uncertainty import check_level
from caliope.validation import unmasked

_FOLDS = 5  # of models and values
_LARGEST_SEED = 2**32 - 1  # that scikit-learn takes


def check_data(data: Any) -> None:
    """Raise unless it is a log."""
    if not isinstance(data, Trajectories):
        raise TypeError(f"data must be Trajectories (see read_table), got {type(data).__name__}.")


def check_groundwork(
    data: Any, models: Any, *, gamma: float, logged: Any, by: Any, level: float, fit_steps: Any, rng: Any
) -> Float | None:
    """Raise unless practice can be learnt from this log, with these settings; the logged probabilities as numbers."""
    check_data(data)
    if len(data) < _FOLDS:
        raise ValueError(
            f"an audit needs {_FOLDS} trajectories at the very least, to weigh some by what is learnt from the others; "
            f"got {len(data)}."
        )
    check_models(models)
    check_gamma(gamma)
    check_level(level)
    check_whole("fit_steps", fit_steps, 100, "decisions to fit on")
    if not _whole(rng) or not 0 <= rng <= _LARGEST_SEED:
        raise TypeError(
            f"rng must be a seed, a whole number from 0 to {_LARGEST_SEED}, so that the same one gives the same audit; "
            f"got {_shown(rng)}."
        )
    check_strata(data, by)
    return check_logged(data, logged)


def check_policy(data: Trajectories, target: Any, regressor: Any, *, logged: Any, n_draws: Any) -> None:
    """Raise unless this target can be asked about, with this regressor and so many resamples."""
    if regressor is not None and (isinstance(regressor, type) or not hasattr(regressor, "predict")):
        raise TypeError(
            "regressor must be an unfitted one of the kind of scikit-learn, such as ExtraTreesRegressor(); got "
            f"{_shown(regressor)}."
        )
    check_whole("n_draws", n_draws, 20, "resamples of the log")
    check_target(data, target, logged)


def check_models(models: Any) -> None:
    """Raise unless models is None, or names classifiers that can be fitted."""
    if models is None:
        return
    if not isinstance(models, Mapping) or not models:
        raise TypeError(
            "models must name its classifiers, e.g. models={'logistic': LogisticRegression()}, or be left out for the "
            f"usual ones; got {_shown(models)}."
        )
    for name, model in models.items():
        if not isinstance(name, str):
            raise TypeError(f"models must be named by words, got {_shown(name)}.")
        wanted = ("fit", "get_params", "predict_proba")
        if isinstance(model, type) or not all(hasattr(model, method) for method in wanted):
            raise TypeError(
                f"models[{name!r}] must be an unfitted classifier of the kind of scikit-learn with predict_proba, such "
                f"as LogisticRegression(); got {_shown(model)}."
            )


def check_target(data: Trajectories, target: Any, logged: Any = None) -> None:
    """Raise unless the target gives probabilities of all actions: an array as a whole, a policy for one episode."""
    if logged is not None and isinstance(target, Relative):
        raise ValueError(
            "a target stated relative to practice needs the probabilities of all actions, which logged does not hold: "
            "leave logged out, or state the target in absolute terms."
        )
    if isinstance(target, type):
        raise TypeError(f"target must be a policy, and {target.__name__} is a class: make one of it.")
    asked = target.policy if isinstance(target, MixWithPractice) else target
    if isinstance(asked, Relative):
        anyone = np.full((data[:1].n_steps, data.n_actions), 1 / data.n_actions)
        target_probabilities(data[:1], asked, anyone)
        return
    if isinstance(asked, OnLog):
        return
    if hasattr(asked, "predict_proba"):
        target_probabilities(data[:1], asked)
    else:
        target_probabilities(data, asked)


def check_logged(data: Trajectories, logged: ArrayLike | None) -> Float | None:
    """The logged probabilities of the actions taken as numbers in (0, 1], (N,); None where there are none."""
    if logged is None:
        return None
    given = unmasked("logged", logged)
    if given.dtype.kind not in "iuf":
        raise TypeError(
            f"logged must hold a probability for each step, such as data['propensity']; got {_shown(logged)}."
        )
    known = read_only(np.array(given, dtype=np.float64))  # a copy: theirs may change between two policies
    if known.shape != (data.n_steps,):
        raise ValueError(
            f"logged must hold one probability for each of the {data.n_steps} steps, got shape {known.shape}."
        )
    bad = np.flatnonzero(~((known > 0) & (known <= 1)))
    if len(bad):
        i = data.layout.owner[bad[0]]
        raise ValueError(
            f"logged probabilities must lie in (0, 1], since the actions were taken; {len(bad)} of {len(known)} do not "
            f"(first: {known[bad[0]]:g} in trajectory {data.ids[i]}, step {bad[0] - data.offsets[i]}). Correct them, "
            "or leave them out: then they are estimated."
        )
    if (known == 1).all() and len(np.unique(data.actions)) > 1:
        raise ValueError(
            "every logged probability is 1 although different actions were taken: a placeholder. Leave them out: then "
            "they are estimated."
        )
    return known


def check_strata(data: Trajectories, by: ArrayLike | None) -> None:
    """Raise unless there is a stratum for every step."""
    if by is not None and np.shape(by) != (data.n_steps,):
        raise ValueError(
            f"by must hold a stratum for each of the {data.n_steps} steps, got shape {np.shape(by)}."
        )


def _whole(x: Any) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, bool)


def check_whole(name: str, x: Any, low: int, what: str) -> None:
    """Raise unless x is a whole number, and not below ``low``."""
    if not _whole(x) or x < low:
        raise ValueError(f"{name} must be a whole number from {low} ({what}), got {_shown(x)}.")


def _shown(x: Any) -> str:
    """A value for a message: short, and in one line."""
    text = " ".join(repr(x).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
