"""Which trajectories of a log a model has been fitted on."""

from __future__ import annotations

from collections import Counter

import numpy as np

from caliope.ragged import Int
from caliope.trajectories import Trajectories

_REPEATED = (
    0.05  # share of a log's trajectories with a twin in it, up to which states and actions tell who it is
)
_AGREED = 0.95  # share of the names in common that must stand for the same trajectory


def places_in(own: Trajectories, data: Trajectories) -> Int:
    """Where each trajectory of a log lies in the one that a model was fitted on; -1 where it is a new one, (n,).

    A trajectory is known by its states and actions: rewards and the precision of states may differ. Where
    trajectories hardly ever repeat each other that is enough, for a copy, a selection, and a log with newcomers.

    In discrete states strangers coincide by chance. There a trajectory must also have the id that it had; and at
    least 95% of the ids that the two logs share must stand for the same trajectory, for in an independent log numbered
    0, 1, ... few do. Ids aside, a log of the very same trajectories in another order is known too. A selection that
    lost its ids is not, and is predicted.
    """
    mine, theirs = own.decision_digests, data.decision_digests
    if mine == theirs:
        return np.arange(len(own))
    counts = Counter(mine)
    repeated = 1 - sum(1 for n in counts.values() if n == 1) / len(mine)
    telling = repeated <= _REPEATED or counts == Counter(theirs)
    alike = np.array(_in_order(mine, theirs)) if telling else np.full(len(data), -1)
    named = _by_name(own, data)
    return alike if named is None else np.where(named >= 0, named, alike)


def _by_name(own: Trajectories, data: Trajectories) -> Int | None:
    """The place of whoever is the same by id, states and actions; None where ids agree no more than by chance."""
    mine, theirs = own.ids.tolist(), data.ids.tolist()
    places = {key: i for i, key in enumerate(zip(mine, own.decision_digests, strict=True))}
    found = [places.get(key, -1) for key in zip(theirs, data.decision_digests, strict=True)]
    agreed = {name for name, i in zip(theirs, found, strict=True) if i >= 0}
    return np.array(found) if len(agreed) >= max(1, _AGREED * len(set(mine) & set(theirs))) else None


def _in_order(mine: tuple[bytes, ...], theirs: tuple[bytes, ...]) -> list[int]:
    """The first of several alike for the first of them, the second for the second; and round again."""
    places: dict[bytes, list[int]] = {}
    for i, digest in enumerate(mine):
        places.setdefault(digest, []).append(i)
    seen: Counter[bytes] = Counter()
    found = []
    for digest in theirs:
        alike = places.get(digest, [-1])
        found.append(alike[seen[digest] % len(alike)])
        seen[digest] += 1
    return found
