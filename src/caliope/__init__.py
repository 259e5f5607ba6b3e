"""Calibrated off-policy evaluation when nobody wrote down the probabilities.

data = caliope.read_table("log.parquet", episode=..., action=..., reward=..., states=[...])
print(caliope.audit(data, target, rng=0))

or step by step: fit_behaviour, compare_policies, fitted_q, gather, estimate. More lives in the namespaces behaviour,
values, calibration, estimators, weights, uncertainty, bounds, sensitivity, checks, io, engines, plots, report, domains.
"""

import lazy_loader

__version__ = "0.1.0"

# Names and namespaces are imported when they are asked for: numpy and scipy alone take half a second.
__getattr__, __dir__, _all = lazy_loader.attach_stub(__name__, __file__)
_NAMESPACES = {
    *("behaviour", "bounds", "calibration", "checks", "clinical", "domains", "engines", "estimators", "io"),
    *("plots", "report", "sensitivity", "uncertainty", "values", "weights"),
}
__all__ = [name for name in _all if name not in _NAMESPACES]
