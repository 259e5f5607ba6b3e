from ._by_time import (
    TimeIndexedQ as TimeIndexedQ,
    fitted_q_by_time as fitted_q_by_time,
)
from ._crossfit import (
    CrossFittedQ as CrossFittedQ,
    cross_fitted_q as cross_fitted_q,
    cross_fitted_q_by_time as cross_fitted_q_by_time,
)
from ._defaults import (
    fit_default_values as fit_default_values,
)
from ._fqe import (
    FittedQ as FittedQ,
    Iteration as Iteration,
    fitted_q as fitted_q,
    fitted_q_iteration as fitted_q_iteration,
)
from ._kernel import (
    KernelRegressor as KernelRegressor,
)
from ._linear import (
    LinearQ as LinearQ,
    LinearValue as LinearValue,
    linear_value as linear_value,
    more_robust_q as more_robust_q,
)
from ._marginal import (
    marginalised_is as marginalised_is,
)
from ._regression import (
    TabularRegressor as TabularRegressor,
    default_regressor as default_regressor,
)
from ._torch_regression import (
    TorchNetworkRegressor as TorchNetworkRegressor,
)
