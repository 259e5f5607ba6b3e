"""What identifies a trajectory wherever it stands in a file: fingerprints, and an order that is made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._ragged import Int


def fingerprints(offsets: Int, *columns: NDArray[Any]) -> tuple[bytes, ...]:
    """A digest of what each trajectory holds in per-step columns, n of them."""
    whole = [np.ascontiguousarray(column) for column in columns]
    bounds = zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return tuple(
        blake2b(b"".join(x[a:b].tobytes() for x in whole), digest_size=16).digest() for a, b in bounds
    )


def _text_of(name: Any) -> str:
    """A name as text; 3.0 is 3, as in a table whose numbers were read as floats."""
    return str(int(name)) if isinstance(name, float) and name.is_integer() else str(name)


def order_by_hash(names: Sequence[Any], detail: Callable[[int], Any]) -> Int:
    """Numbers of the trajectories in the order of a hash of their names, (n,): the same in whatever order they come.

    Those of one name are told apart by ``detail`` of their numbers, and do not come side by side. Those that are alike
    in that too stay in the order in which they stand.

    Examples
    --------
    >>> names = ["a", "b", "c", "d", "e"]
    >>> [names[i] for i in order_by_hash(names, lambda i: 0)]
    ['a', 'b', 'e', 'c', 'd']
    >>> [names[::-1][i] for i in order_by_hash(names[::-1], lambda i: 0)]
    ['a', 'b', 'e', 'c', 'd']
    """
    alike: dict[bytes, list[int]] = {}
    for i, name in enumerate(names):
        alike.setdefault(name if isinstance(name, bytes) else _text_of(name).encode(), []).append(i)
    keys = [b""] * len(names)
    for name, members in alike.items():
        hashes = [blake2b(name, digest_size=16, key=k.to_bytes(8)).digest() for k in range(len(members))]
        if len(members) == 1:
            keys[members[0]] = hashes[0]
            continue
        drawn = iter(hashes)
        for _, same in groupby(sorted(members, key=detail), key=detail):
            alike_in_all = list(same)
            for i, key in zip(alike_in_all, sorted(islice(drawn, len(alike_in_all))), strict=True):
                keys[i] = key
    return np.array(sorted(range(len(names)), key=keys.__getitem__), dtype=np.int64)


def hash_names(names: NDArray[Any]) -> NDArray[np.uint64]:
    """Hashes of names as two whole numbers, (n, 2): their order is that of :func:`order_by_hash` where names differ.

    Examples
    --------
    >>> names = np.array(["a", "b", "c", "d", "e"])
    >>> high, low = hash_names(names).T
    >>> names[np.lexsort((low, high))].tolist()
    ['a', 'b', 'e', 'c', 'd']
    """
    key = (0).to_bytes(8)
    found = b"".join(
        blake2b(_text_of(name).encode(), digest_size=16, key=key).digest() for name in names.tolist()
    )
    return np.frombuffer(found, dtype=">u8").reshape(-1, 2).astype(np.uint64)
