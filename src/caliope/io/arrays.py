"""One column of any frame as a NumPy array."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from caliope.io.roles import WIDE
from caliope.ragged import Float


def as_float(column: nw.Series[Any], dtype: type[np.floating[Any]] = np.float64) -> Float:
    """Numbers and booleans as floats; NaN where there is no value."""
    return column.cast(nw.Float32 if dtype is np.float32 else nw.Float64).to_numpy()


def as_array(column: nw.Series[Any]) -> NDArray[Any]:
    """Values as they are: numbers as numbers, with NaN for none; text as objects, with None for none.

    Whole numbers of 128 bits become text: NumPy has none so wide, and a float would merge neighbours.
    """
    if isinstance(column.dtype, nw.Decimal):
        return as_float(column)
    values = (column.cast(nw.String) if column.dtype in WIDE else column).to_numpy()
    if values.dtype.kind not in "OU":
        return values
    objects = values.astype(object)  # fixed-width text would take the longest string for each
    objects[column.is_null().to_numpy()] = None  # frames differ in what stands for no value
    return objects
