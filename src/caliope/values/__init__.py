"""What states and actions are worth under a policy: fitted Q, linear solutions, marginalised weights."""

from caliope.values.checkpoint import Iteration
from caliope.values.crossfit import CrossFittedQ, cross_fitted_q, cross_fitted_q_by_time
from caliope.values.finite import TimeIndexedQ, fitted_q_by_time
from caliope.values.fitted import FittedQ, fitted_q, fitted_q_iteration
from caliope.values.linear import LinearQ, LinearValue, linear_value
from caliope.values.marginal import marginalised_is
from caliope.values.regression import TabularRegressor
from caliope.values.robust import more_robust_q

__all__ = [
    "CrossFittedQ",
    "FittedQ",
    "Iteration",
    "LinearQ",
    "LinearValue",
    "TabularRegressor",
    "TimeIndexedQ",
    "cross_fitted_q",
    "cross_fitted_q_by_time",
    "fitted_q",
    "fitted_q_by_time",
    "fitted_q_iteration",
    "linear_value",
    "marginalised_is",
    "more_robust_q",
]
