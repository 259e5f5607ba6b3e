"""Calibrated off-policy evaluation when nobody wrote down the probabilities.

data = caliope.read_table("log.parquet", episode=..., action=..., reward=..., states=[...])
print(caliope.audit(data, target, rng=0))

or step by step: fit_behaviour, compare_policies, fitted_q, gather, estimate.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

# Where each name lives. All are imported when they are asked for: numpy and scipy alone take half a second.
_NAMES = {
    # what was logged
    "caliope.trajectories": "Trajectories",
    "caliope.io": "read_d3rlpy read_minari read_obp read_table",
    # who acts: any fitted classifier, or one of these; mix and tilt state a change to practice
    "caliope.policies": (
        "GreedyPolicy Policy SupportError TabularPolicy UniformPolicy action_probabilities mix practice tilt"
    ),
    # who acted: models of the behaviour policy, how they are fitted and repaired, and how honest they are
    "caliope.behaviour": (
        "Exact InvertedLists Isotonic NeighbourPolicy RandomProjections Shrinkage TabularFrequencies "
        "Temperature VectorScaling default_model default_models fit_behaviour load_model paper_models "
        "present_columns recalibrate save_model stack_history"
    ),
    "caliope.calibration": "compare_policies severity_strata",
    # what actions are worth
    "caliope.values": (
        "TabularRegressor cross_fitted_q cross_fitted_q_by_time fitted_q fitted_q_by_time "
        "fitted_q_iteration linear_value marginalised_is more_robust_q"
    ),
    # all that an estimator may look at
    "caliope.evidence": "Evidence",
    "caliope.gathering": "ActionValues gather target_probabilities",
    "caliope.transforms": "clip_ratios clip_weights shrink_weights smooth_weights",
    "caliope.ratio_calibration": "calibrate_ratios",
    # evidence -> value
    "caliope.estimators": (
        "dm dr monte_carlo ois per_horizon phis phwdr phwis step_is step_phwis step_wis wdr wis"
    ),
    "caliope.blending": "magic",
    # how sure
    "caliope.uncertainty": (
        "bayesian bca bootstrap delta_method difference draws influence jackknife leave_one_out "
        "with_replacement without_replacement"
    ),
    "caliope.resampled_error": "ResampledError resampled_mse",
    "caliope.bounds": "betting hcope maurer_pontil",
    "caliope.confounding": "breakdown confounding_bounds",
    # and whether to believe it
    "caliope.diagnostics": "effective_n",
    "caliope.estimation": "estimate",
    "caliope.results": "Estimate Finding Interval Table",
    "caliope.auditing": "Audit audit",
}
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'caliope' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})


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
    from caliope.blending import magic
    from caliope.bounds import betting, hcope, maurer_pontil
    from caliope.calibration import compare_policies, severity_strata
    from caliope.confounding import breakdown, confounding_bounds
    from caliope.diagnostics import effective_n
    from caliope.estimation import estimate
    from caliope.estimators import (
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
    from caliope.evidence import Evidence
    from caliope.gathering import ActionValues, gather, target_probabilities
    from caliope.io import read_d3rlpy, read_minari, read_obp, read_table
    from caliope.policies import (
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
    from caliope.ratio_calibration import calibrate_ratios
    from caliope.resampled_error import ResampledError, resampled_mse
    from caliope.results import Estimate, Finding, Interval, Table
    from caliope.trajectories import Trajectories
    from caliope.transforms import clip_ratios, clip_weights, shrink_weights, smooth_weights
    from caliope.uncertainty import (
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
    "read_d3rlpy",
    "read_minari",
    "read_obp",
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
