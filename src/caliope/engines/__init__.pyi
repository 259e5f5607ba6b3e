from ._dask import (
    Dask as Dask,
)
from ._jobs import (
    Engine as Engine,
    PartitionError as PartitionError,
    run_job as run_job,
)
from ._local import (
    Local as Local,
)
