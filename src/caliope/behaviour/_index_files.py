"""A search index as arrays in a folder, from where they are memory-mapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from caliope.behaviour._search import Index, Search

# All arrays that an index may consist of.
_ARRAYS = ("centres", "points")


def save_index(index: Index, folder: str | Path) -> None:
    """Write the arrays of an index into a folder, in place of an earlier index.

    Parameters
    ----------
    index : Index
        What ``build`` of a search returned.
    folder : str or Path
        The folder; made if it does not exist.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from caliope.behaviour import Exact, save_index
    >>> with TemporaryDirectory() as folder:
    ...     save_index(Exact().build(np.zeros((5, 2))), folder)
    ...     print([file.name for file in Path(folder).iterdir()])
    ['points.npy']
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name in _ARRAYS:
        (Path(folder) / f"{name}.npy").unlink(missing_ok=True)
    for name, array in index.arrays().items():
        np.save(Path(folder) / f"{name}.npy", array)


def load_index(search: Search, folder: str | Path) -> Index:
    """Open an index that :func:`save_index` wrote; its arrays stay on disk, memory-mapped.

    Parameters
    ----------
    search : Exact, InvertedLists or RandomProjections
        The search that built it.
    folder : str or Path
        The folder.

    Returns
    -------
    Index
        Its ``nearest(queries, k)`` searches the points.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from caliope.behaviour import Exact, load_index, save_index
    >>> with TemporaryDirectory() as folder:
    ...     save_index(Exact().build(np.array([[0.0], [1.0]])), folder)
    ...     print(load_index(Exact(), folder).nearest(np.array([[0.9]], dtype=np.float32), k=1)[1])
    [[1]]
    """
    files = {name: Path(folder) / f"{name}.npy" for name in _ARRAYS}
    if not files["points"].exists():
        raise FileNotFoundError(f"{folder} holds no index: it has no points.npy.")
    arrays = {
        name: np.load(file, mmap_mode="r", allow_pickle=False)
        for name, file in files.items()
        if file.exists()
    }
    shapes = {name: (x.dtype.name, x.ndim, x.shape[-1]) for name, x in arrays.items()}
    if set(shapes.values()) != {("float32", 2, arrays["points"].shape[-1])}:
        kinds = ", ".join(f"{name} {x.dtype} {x.shape}" for name, x in arrays.items())
        raise ValueError(
            f"{folder} holds no index that save_index wrote: its arrays must be float32 tables with equal numbers of "
            f"columns, got {kinds}."
        )
    return search.restore(arrays)
