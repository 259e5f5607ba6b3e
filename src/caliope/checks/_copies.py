"""Copies of trajectories, told from trajectories that merely coincide."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope.checks import L101, Finding, Level

Keys = NDArray[np.uint64]

_STEPS = 50_000  # of distinct trajectories, in which states are counted
_MANY = 20  # different trajectories: so many numbers of copies are not all even by chance
_NEVER_REPEATS = 0.95  # share of distinct values, from which a column does not repeat by chance
_OFTEN = 10  # times on average: copies of so few are all made equally often
_TRAJECTORIES = 20_000  # at most, whose pairs are counted
_COLUMNS = 20  # at most, in which pairs may differ
_NEAR_PAIRS = 20  # from which they tell how often the rest coincides
_AT_MOST = 0.95  # of the pairs with one state that coincide wholly by chance, where too few others tell
_SLACK = 0.03  # a share that is not worth a word


def check_copies(data: Trajectories, whole: Keys | None = None) -> Finding | None:
    """L101: trajectories that agree in every number, more often than chance makes discrete ones agree.

    ``whole`` are the :func:`content_keys` of all trajectories, (n,), where ``data`` are a sample of them: few copies
    are in a sample together with what they copy.
    """
    own = content_keys(data)
    keys = own if whole is None else whole
    distinct, counts = np.unique(keys, return_counts=True)
    extra = len(keys) - len(distinct)
    if extra == 0:
        return None
    # Each of many as often as the others, or a multiple of that: the log holds itself again.
    equally = int(np.gcd.reduce(counts)) > 1
    if len(distinct) < _MANY and not equally and len(keys) >= _OFTEN * len(distinct):
        return None  # a few courses, each common in its own way: states, actions and rewards of few values
    if not (equally and len(distinct) >= _MANY) and _repeat_by_chance(
        data, np.sort(np.unique(own, return_index=True)[1])
    ):
        return None
    level: Level = "issue" if extra > 0.05 * len(keys) else "caution"
    return L101.finding(level, copies=extra, n=len(keys))


def content_keys(data: Trajectories) -> Keys:
    """A number for what each trajectory holds, rewards included, (n,): equal for copies."""
    return np.frombuffer(b"".join(each[:8] for each in data.digests), dtype="<u8").astype(np.uint64)


def _repeat_by_chance(data: Trajectories, distinct: Int) -> bool:
    """Whether states are so discrete that trajectories are alike without being copies."""
    rows = data.layout.rows_of(distinct)[:_STEPS]
    states = data.states[rows]
    if len(np.unique(states, axis=0)) < 0.5 * len(rows):
        return True
    never = any(len(np.unique(column)) >= _NEVER_REPEATS * len(rows) for column in states.T)
    return not never and _coincide_by_chance(data)


class Pairs(NamedTuple):
    """Numbers of pairs of trajectories."""

    one_state: int  # that begin in the same state
    alike: int  # of these, that agree in everything
    near: int  # that begin in states which differ in a certain column alone
    near_alike: int  # of these, that agree in everything but that column


def _coincide_by_chance(data: Trajectories) -> bool:
    r"""Whether so many trajectories may agree although none is a copy.

    Pairs that begin in states which differ in one column are no copies. Of these a share :math:`\kappa` agrees in
    everything else: what actions, rewards and later states do by chance. Of the pairs that begin in one and the same
    state, about as many agree by chance; the column that matters least for the rest tells most.
    """
    counted = count_pairs(data)
    total = counted[0]
    known = [pairs for pairs in counted if pairs.near >= _NEAR_PAIRS]
    chance = max(
        (p.near_alike / p.near + 3 * np.sqrt(p.near_alike) / p.near for p in known), default=_AT_MOST
    )
    expected = total.one_state * min(chance + (_SLACK if known else 0.0), 1.0)
    return total.alike <= expected + 3 * np.sqrt(expected + 1)


def count_pairs(data: Trajectories) -> list[Pairs]:
    """Count pairs of trajectories that agree, once for each column in which near ones may differ."""
    sample = np.sort(np.random.default_rng(0).permutation(len(data))[:_TRAJECTORIES])
    part = data.part(sample)
    rng = np.random.default_rng(2)
    starts = [_numbers(column, rng) for column in part.states[part.layout.first].T]
    columns = [*part.states.T.astype(np.float64), part.actions.astype(np.float64), part.rewards]
    courses = [_numbers(_fingerprint(part, column), rng) for column in columns]
    start, course = np.sum(starts, axis=0), np.sum(courses, axis=0)
    one_state, alike = _pairs(start), _pairs(start + course)
    found = []
    for j in range(min(len(starts), _COLUMNS)):
        other_start, other_course = start - starts[j], course - courses[j]
        near = _pairs(other_start) - one_state
        near_alike = _pairs(other_start + other_course) - _pairs(start + other_course)
        found.append(Pairs(one_state, alike, near, near_alike))
    return found


def _fingerprint(data: Trajectories, column: Float) -> Float:
    """One number per trajectory for the whole course of a column: equal for equal courses, (n,)."""
    weight = np.random.default_rng(1).uniform(1.0, 2.0, data.layout.horizon)
    # Of different lengths that end in zeros only the length differs.
    return data.layout.sum_steps((column + np.pi) * weight[data.layout.time])


def _numbers(values: Any, rng: np.random.Generator) -> Keys:
    """A random number for each distinct value: sums of them are equal where all values are."""
    _, place = np.unique(values, return_inverse=True)
    drawn = rng.integers(0, 2**64, size=int(place.max()) + 1, dtype=np.uint64)
    return np.asarray(drawn[place])


def _pairs(keys: Any) -> int:
    _, counts = np.unique(keys, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())
