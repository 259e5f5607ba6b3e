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
from caliope.gathering import ActionValues, gather, target_probabilities  # isort: skip
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

from caliope.blending import magic  # isort: skip

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
    with_replacement,
    without_replacement,
)
from caliope.resampled_error import ResampledError, resampled_mse  # isort: skip
from caliope.bounds import betting, hcope, maurer_pontil  # isort: skip
from caliope.confounding import breakdown, confounding_bounds  # isort: skip

# and whether to believe it
from caliope.diagnostics import effective_n  # isort: skip
from caliope.estimation import estimate  # isort: skip
from caliope.results import Estimate, Finding, Interval, Table  # isort: skip

if TYPE_CHECKING:
    from caliope.auditing import Audit, audit
    from caliope.behaviour import (
        Exact,
        InvertedLists,
        Isotonic,
        NeighbourPolicy,
        RandomProjections,
        Shrinkage,
        TabularFrequencies,
        Temperature,
        VectorScaling,
        default_model,
        default_models,
        fit_behaviour,
        load_model,
        paper_models,
        present_columns,
        recalibrate,
        save_model,
        stack_history,
    )
    from caliope.calibration import compare_policies, severity_strata
    from caliope.io import read_table
    from caliope.ratio_calibration import calibrate_ratios
    from caliope.values import (
        TabularRegressor,
        cross_fitted_q,
        cross_fitted_q_by_time,
        fitted_q,
        fitted_q_by_time,
        fitted_q_iteration,
        linear_value,
        marginalised_is,
        more_robust_q,
    )

__version__ = "0.1.0.dev0"

# polars and scikit-learn take a while to import, and the arithmetic does not need them
_LAZY = {
    "Audit": "caliope.auditing",
    "audit": "caliope.auditing",
    "read_table": "caliope.io",
    "calibrate_ratios": "caliope.ratio_calibration",
    "compare_policies": "caliope.calibration",
    "severity_strata": "caliope.calibration",
    "fit_behaviour": "caliope.behaviour",
    "Exact": "caliope.behaviour",
    "InvertedLists": "caliope.behaviour",
    "NeighbourPolicy": "caliope.behaviour",
    "RandomProjections": "caliope.behaviour",
    "TabularFrequencies": "caliope.behaviour",
    "Isotonic": "caliope.behaviour",
    "Shrinkage": "caliope.behaviour",
    "Temperature": "caliope.behaviour",
    "VectorScaling": "caliope.behaviour",
    "load_model": "caliope.behaviour",
    "save_model": "caliope.behaviour",
    "default_model": "caliope.behaviour",
    "default_models": "caliope.behaviour",
    "paper_models": "caliope.behaviour",
    "present_columns": "caliope.behaviour",
    "recalibrate": "caliope.behaviour",
    "stack_history": "caliope.behaviour",
    "cross_fitted_q": "caliope.values",
    "cross_fitted_q_by_time": "caliope.values",
    "fitted_q": "caliope.values",
    "fitted_q_by_time": "caliope.values",
    "fitted_q_iteration": "caliope.values",
    "linear_value": "caliope.values",
    "marginalised_is": "caliope.values",
    "more_robust_q": "caliope.values",
    "TabularRegressor": "caliope.values",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'caliope' has no attribute {name!r}")


__all__ = [
    "ActionValues",
    "Audit",
    "Estimate",
    "Evidence",
    "Exact",
    "Finding",
    "GreedyPolicy",
    "Interval",
    "InvertedLists",
    "Isotonic",
    "NeighbourPolicy",
    "Policy",
    "RandomProjections",
    "ResampledError",
    "Shrinkage",
    "SupportError",
    "Table",
    "TabularFrequencies",
    "TabularPolicy",
    "TabularRegressor",
    "Temperature",
    "Trajectories",
    "UniformPolicy",
    "VectorScaling",
    "action_probabilities",
    "audit",
    "bayesian",
    "bca",
    "betting",
    "bootstrap",
    "breakdown",
    "calibrate_ratios",
    "clip_ratios",
    "clip_weights",
    "compare_policies",
    "confounding_bounds",
    "cross_fitted_q",
    "cross_fitted_q_by_time",
    "default_model",
    "default_models",
    "delta_method",
    "difference",
    "dm",
    "dr",
    "draws",
    "effective_n",
    "estimate",
    "fit_behaviour",
    "fitted_q",
    "fitted_q_by_time",
    "fitted_q_iteration",
    "gather",
    "hcope",
    "influence",
    "jackknife",
    "leave_one_out",
    "linear_value",
    "load_model",
    "magic",
    "marginalised_is",
    "maurer_pontil",
    "mix",
    "monte_carlo",
    "more_robust_q",
    "ois",
    "paper_models",
    "per_horizon",
    "phis",
    "phwdr",
    "phwis",
    "practice",
    "present_columns",
    "read_table",
    "recalibrate",
    "resampled_mse",
    "save_model",
    "severity_strata",
    "shrink_weights",
    "smooth_weights",
    "stack_history",
    "step_is",
    "step_phwis",
    "step_wis",
    "target_probabilities",
    "tilt",
    "wdr",
    "wis",
    "with_replacement",
    "without_replacement",
]
