from ._datasets import (
    read_d3rlpy as read_d3rlpy,
    read_minari as read_minari,
    read_obp as read_obp,
)
from ._doses import (
    RecommendedDoses as RecommendedDoses,
)
from ._encoder import (
    ActionColumn as ActionColumn,
    Encoder as Encoder,
    StateColumn as StateColumn,
)
from ._partitions import (
    Partitions as Partitions,
    open_partitions as open_partitions,
)
from ._source import (
    column_types as column_types,
)
from ._table import (
    read_table as read_table,
)
