from ._ablation import (
    measure_mistakes as measure_mistakes,
)
from ._cohort import (
    Cohort as Cohort,
)
from ._databases import (
    MIMIC3 as MIMIC3,
    MIMIC4 as MIMIC4,
)
from ._foreign import (
    read_cohort as read_cohort,
)
from ._foreign_values import (
    DoseCuts as DoseCuts,
)
from ._pipeline import (
    STAGES as STAGES,
    Resources as Resources,
    build_cohort as build_cohort,
)
from ._settings import (
    AsPublished as AsPublished,
    CohortSettings as CohortSettings,
)
from ._sources import (
    SourceError as SourceError,
)
from ._states import (
    to_trajectories as to_trajectories,
)
