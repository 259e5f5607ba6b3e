"""MIMIC-III and MIMIC-IV -> the sepsis cohort; cohorts that others have made; made-up databases. Extra ``clinical``."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from caliope.clinical.cohort import Cohort
from caliope.clinical.pipeline import STAGES, Resources, build_cohort
from caliope.clinical.settings import AsPublished, CohortSettings
from caliope.clinical.sources import SourceError
from caliope.clinical.tables import MIMIC3, MIMIC4

if TYPE_CHECKING:
    from caliope.clinical.foreign import read_cohort
    from caliope.clinical.generated import generate_mimic3, generate_mimic4
    from caliope.clinical.states import to_trajectories

_LAZY = {
    "read_cohort": "caliope.clinical.foreign",
    "generate_mimic3": "caliope.clinical.generated",
    "generate_mimic4": "caliope.clinical.generated",
    "to_trajectories": "caliope.clinical.states",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'caliope.clinical' has no attribute {name!r}")


__all__ = [
    "MIMIC3",
    "MIMIC4",
    "STAGES",
    "AsPublished",
    "Cohort",
    "CohortSettings",
    "Resources",
    "SourceError",
    "build_cohort",
    "generate_mimic3",
    "generate_mimic4",
    "read_cohort",
    "to_trajectories",
]
