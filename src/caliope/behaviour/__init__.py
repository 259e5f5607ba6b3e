"""Models of the behaviour policy: how they are fitted."""

from caliope.behaviour.fitting import FittedBehaviour, fit_behaviour
from caliope.behaviour.neighbours import NeighbourPolicy
from caliope.behaviour.search import Exact, InvertedLists, RandomProjections, load_index, save_index

__all__ = [
    "Exact",
    "FittedBehaviour",
    "InvertedLists",
    "NeighbourPolicy",
    "RandomProjections",
    "fit_behaviour",
    "load_index",
    "save_index",
]
