"""Matrix products on one thread: the same sums however many cores there are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


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
    with threadpool_limits(1, user_api="blas"):
        yield
