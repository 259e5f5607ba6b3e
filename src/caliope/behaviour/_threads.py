"""Matrix products on one thread: the same sums however many cores there are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread, inside a block or in a decorated function.

    Several split a sum otherwise, so that its last digits depend on their number. With matrices as small as those of
    an audit they also mostly wait for each other.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with one_blas_thread():
    ...     {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}
    {1}
    """
    with _loaded_libraries(len(sys.modules)).limit(limits=1, user_api="blas"):
        yield


@lru_cache(1)
def _loaded_libraries(n_modules: int) -> ThreadpoolController:
    """The libraries to limit, looked for anew when something was imported: that takes longer than many a small fit."""
    return ThreadpoolController()
