"""Properties of evidence that do not depend on counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class derived(Generic[T]):
    """A property that does not depend on counts: cached, and shared with every copy from ``with_counts``.

    What does depend on counts is a ``cached_property``: ``with_counts`` drops all of those.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    def __get__(self, e: Any, owner: type | None = None) -> T:
        if e is None:
            return self  # type: ignore[return-value]
        if self.name not in e._derived:
            e._derived[self.name] = self.compute(e)
        return e._derived[self.name]


def cached_properties(owner: type) -> list[str]:
    """List the properties whose caches depend on counts: every ``cached_property`` of a class."""
    return [k for base in owner.__mro__ for k, x in vars(base).items() if isinstance(x, cached_property)]
