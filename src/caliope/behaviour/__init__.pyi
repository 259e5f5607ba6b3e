from ._calibrators import (
    Chain as Chain,
    Isotonic as Isotonic,
    Shrinkage as Shrinkage,
    Temperature as Temperature,
    VectorScaling as VectorScaling,
)
from ._encoded import (
    EncodedPolicy as EncodedPolicy,
)
from ._ensembles import (
    LogitNeighbours as LogitNeighbours,
    PooledPolicy as PooledPolicy,
)
from ._fit import (
    FittedBehaviour as FittedBehaviour,
    fit_behaviour as fit_behaviour,
)
from ._frequencies import (
    TabularFrequencies as TabularFrequencies,
)
from ._history import (
    present_columns as present_columns,
    stack_history as stack_history,
)
from ._index_files import (
    load_index as load_index,
    save_index as save_index,
)
from ._models import (
    boosting as boosting,
    candidate_models as candidate_models,
    default_model as default_model,
    default_models as default_models,
    fit_other_models as fit_other_models,
    paper_models as paper_models,
)
from ._neighbours import (
    NeighbourPolicy as NeighbourPolicy,
)
from ._networks import (
    NetworkPolicy as NetworkPolicy,
)
from ._recalibration import (
    Recalibrated as Recalibrated,
    RecalibratedBehaviour as RecalibratedBehaviour,
    recalibrate as recalibrate,
    recalibrate_fitted as recalibrate_fitted,
)
from ._saving import (
    UntrustedModelError as UntrustedModelError,
    load_model as load_model,
    save_model as save_model,
)
from ._search import (
    Exact as Exact,
    InvertedLists as InvertedLists,
    RandomProjections as RandomProjections,
)
from ._torch_network import (
    TorchNetworkPolicy as TorchNetworkPolicy,
)
