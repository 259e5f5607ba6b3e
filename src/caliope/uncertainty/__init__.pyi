from ._intervals import (
    bca as bca,
    bootstrap as bootstrap,
    delta_method as delta_method,
    difference as difference,
    influence as influence,
    jackknife as jackknife,
    leave_one_out as leave_one_out,
)
from ._refit import refit as refit
from ._resampling import (
    ResampledError as ResampledError,
    bayesian as bayesian,
    draws as draws,
    resampled_mse as resampled_mse,
    with_replacement as with_replacement,
    without_replacement as without_replacement,
)
