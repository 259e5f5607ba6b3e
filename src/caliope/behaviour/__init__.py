"""Models of the behaviour policy: what they are, how they are fitted, how they are repaired and kept."""

from caliope.behaviour.calibrators import Chain, Isotonic, Shrinkage, Temperature, VectorScaling
from caliope.behaviour.fitting import FittedBehaviour, fit_behaviour
from caliope.behaviour.frequencies import TabularFrequencies
from caliope.behaviour.history import present_columns, stack_history
from caliope.behaviour.logit_neighbours import LogitNeighbours
from caliope.behaviour.models import (
    boosting,
    default_model,
    default_models,
    paper_models,
)
from caliope.behaviour.neighbours import NeighbourPolicy
from caliope.behaviour.network import NetworkPolicy
from caliope.behaviour.pool import PooledPolicy
from caliope.behaviour.recalibration import (
    Recalibrated,
    RecalibratedBehaviour,
    recalibrate,
    recalibrate_fitted,
)
from caliope.behaviour.saving import UntrustedModelError, load_model, save_model
from caliope.behaviour.search import Exact, InvertedLists, RandomProjections, load_index, save_index

__all__ = [
    "Chain",
    "Exact",
    "FittedBehaviour",
    "InvertedLists",
    "Isotonic",
    "LogitNeighbours",
    "NeighbourPolicy",
    "NetworkPolicy",
    "PooledPolicy",
    "RandomProjections",
    "Recalibrated",
    "RecalibratedBehaviour",
    "Shrinkage",
    "TabularFrequencies",
    "Temperature",
    "UntrustedModelError",
    "VectorScaling",
    "boosting",
    "default_model",
    "default_models",
    "fit_behaviour",
    "load_index",
    "load_model",
    "paper_models",
    "present_columns",
    "recalibrate",
    "recalibrate_fitted",
    "save_index",
    "save_model",
    "stack_history",
]
