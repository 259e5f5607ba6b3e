"""Calibrated off-policy evaluation when nobody wrote down the probabilities.

data = caliope.read_table("log.parquet", episode=..., action=..., reward=..., states=[...])
evidence = caliope.gather(data, target, behaviour)
print(caliope.estimate(evidence, rng=0))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# what was logged
from caliope.trajectories import Trajectories  # isort: skip

# who acts: any fitted classifier, or one of these; mix and tilt state a change to practice
from caliope.policies import (  # isort: skip
    GreedyPolicy,
    Policy,
    SupportError,
    TabularPolicy,
    UniformPolicy,
    action_probabilities,
    mix,
    practice,
    tilt,
)

# all that an estimator may look at
from caliope.evidence import Evidence  # isort: skip
from caliope.gathering import ActionValues, gather  # isort: skip
from caliope.transforms import clip_ratios, clip_weights, shrink_weights, smooth_weights  # isort: skip

# evidence -> value
from caliope.estimators import (  # isort: skip
    dm,
    dr,
    monte_carlo,
    ois,
    per_horizon,
    phis,
    phwdr,
    phwis,
    step_is,
    step_phwis,
    step_wis,
    wdr,
    wis,
)

# how sure
from caliope.uncertainty import (  # isort: skip
    bayesian,
    bca,
    bootstrap,
    delta_method,
    difference,
    draws,
    influence,
    jackknife,
    leave_one_out,
    resampled_mse,
    with_replacement,
    without_replacement,
)
from caliope.bounds import betting, hcope, maurer_pontil  # isort: skip

# and whether to believe it
from caliope.diagnostics import effective_n  # isort: skip
from caliope.estimation import estimate  # isort: skip
from caliope.results import Estimate, Finding, Interval, Table  # isort: skip

if TYPE_CHECKING:
    from caliope.io import read_table

__version__ = "0.1.0.dev0"

_LAZY = {"read_table": "caliope.io"}  # polars takes a while to import, and the arithmetic does not need it


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'caliope' has no attribute {name!r}")


__all__ = [
    "ActionValues",
    "Estimate",
    "Evidence",
    "Finding",
    "GreedyPolicy",
    "Interval",
    "Policy",
    "SupportError",
    "Table",
    "TabularPolicy",
    "Trajectories",
    "UniformPolicy",
    "action_probabilities",
    "bayesian",
    "bca",
    "betting",
    "bootstrap",
    "clip_ratios",
    "clip_weights",
    "delta_method",
    "difference",
    "dm",
    "dr",
    "draws",
    "effective_n",
    "estimate",
    "gather",
    "hcope",
    "influence",
    "jackknife",
    "leave_one_out",
    "maurer_pontil",
    "mix",
    "monte_carlo",
    "ois",
    "per_horizon",
    "phis",
    "phwdr",
    "phwis",
    "practice",
    "read_table",
    "resampled_mse",
    "shrink_weights",
    "smooth_weights",
    "step_is",
    "step_phwis",
    "step_wis",
    "tilt",
    "wdr",
    "wis",
    "with_replacement",
    "without_replacement",
]
