from . import (
    behaviour as behaviour,
    bounds as bounds,
    calibration as calibration,
    checks as checks,
    clinical as clinical,
    domains as domains,
    engines as engines,
    estimators as estimators,
    io as io,
    plots as plots,
    report as report,
    sensitivity as sensitivity,
    uncertainty as uncertainty,
    values as values,
    weights as weights,
)
from ._audit._about import (
    About as About,
)
from ._audit._audit import (
    audit as audit,
)
from ._audit._prepare import (
    prepare_audit as prepare_audit,
)
from ._audit._result import (
    Audit as Audit,
)
from ._audit._several import (
    compare as compare,
)
from ._estimate import (
    estimate as estimate,
)
from ._evidence import (
    Evidence as Evidence,
)
from ._gather import (
    gather as gather,
)
from ._policies import (
    Policy as Policy,
    SupportError as SupportError,
    action_probabilities as action_probabilities,
    mix as mix,
    practice as practice,
    tilt as tilt,
)
from ._results import (
    Estimate as Estimate,
    Interval as Interval,
    Table as Table,
)
from ._simple_policies import (
    GreedyPolicy as GreedyPolicy,
    TabularPolicy as TabularPolicy,
    UniformPolicy as UniformPolicy,
)
from ._trajectories import (
    Trajectories as Trajectories,
)
from .behaviour._fit import (
    fit_behaviour as fit_behaviour,
)
from .behaviour._models import (
    default_model as default_model,
)
from .behaviour._neighbours import (
    NeighbourPolicy as NeighbourPolicy,
)
from .behaviour._recalibration import (
    recalibrate as recalibrate,
)
from .calibration._compare import (
    compare_policies as compare_policies,
)
from .checks._registry import (
    Finding as Finding,
)
from .estimators import (
    dm as dm,
    dr as dr,
    monte_carlo as monte_carlo,
    ois as ois,
    per_horizon as per_horizon,
    phis as phis,
    phwdr as phwdr,
    phwis as phwis,
    step_is as step_is,
    step_wis as step_wis,
    wdr as wdr,
    wis as wis,
)
from .io._table import (
    read_table as read_table,
)
from .uncertainty._intervals import (
    bootstrap as bootstrap,
    difference as difference,
)
from .values._crossfit import (
    cross_fitted_q as cross_fitted_q,
)
from .values._fqe import (
    CaliopeWarning as CaliopeWarning,
    fitted_q as fitted_q,
)

__version__: str
__all__: list[str]
