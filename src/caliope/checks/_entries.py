"""Entries of a log that look like something else: an outcome in every row, a running total, a number for a gap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from caliope._ragged import Float
from caliope._trajectories import Trajectories
from caliope.checks import L110, L111, L112, Finding

_ENOUGH = 10  # trajectories of several decisions, below which nothing is concluded from what they repeat
_MANY = 20  # trajectories of three decisions or more, below which nothing is concluded from rewards that only rise
_MOST = 0.5  # of these trajectories
_STEPS = 200_000  # looked at for numbers that stand for a gap
# What is written for "no value" where a table has no empty cells: below all other values, or above them.
_LOWEST = tuple(-float(10**k - 1) for k in range(1, 7))
_SHORT = 99  # up to which such numbers are also ages and scores, and have to be further away
_HIGHEST = tuple(float(10**k - 1) for k in range(2, 7))


def check_repeats(data: Trajectories) -> Finding | None:
    """L110: every decision of a trajectory has the same reward, which differs between trajectories."""
    low = np.minimum.reduceat(data.rewards, data.offsets[:-1])
    high = np.maximum.reduceat(data.rewards, data.offsets[:-1])
    several = data.lengths > 1
    constant = several & (low == high)
    rewarded = constant & (low != 0)
    if (several & ~constant).any() or rewarded.sum() < _ENOUGH or np.ptp(low[several]) == 0:
        return None
    return L110.finding("caution", n=int(several.sum()))


def check_running_total(data: Trajectories) -> Finding | None:
    """L112: rewards never fall within a trajectory, and rise several times in most."""
    change = np.diff(data.rewards)
    change[data.offsets[1:-1] - 1] = 0.0  # from one trajectory to the next
    several = data.lengths > 2
    if several.sum() < _MANY or (change < 0).any():
        return None
    rises = np.add.reduceat(np.append(change > 0, False).astype(np.int64), data.offsets[:-1])[several]
    rising = float((rises > 1).mean())
    return L112.finding("caution", n=int(several.sum()), rising=rising) if rising > _MOST else None


def check_stand_ins(data: Trajectories) -> tuple[Finding, ...]:
    """L111: a number such as -999, far from all others of its column."""
    found = []
    rewards = _stand_in(data.rewards[:_STEPS])
    if rewards is not None:
        found.append(L111.finding("caution", "reward", name="the reward", value=rewards[0], rows=rewards[1]))
    states = list(_in_states(data))
    if states:
        name, (value, rows) = max(states, key=lambda each: each[1][1])
        more = ("more",) if len(states) > 1 else ()
        facts = {"name": name, "value": value, "rows": rows, "features": len(states) - 1}
        found.append(L111.finding("note", *more, **facts))
    return tuple(found)


def _in_states(data: Trajectories) -> Iterator[tuple[str, tuple[float, int]]]:
    for name, column in zip(data.feature_names, data.states[:_STEPS].T, strict=True):
        found = _stand_in(column)
        if found is not None:
            yield f"feature {name!r}", found


def _stand_in(x: Float) -> tuple[float, int] | None:
    """The number that may stand for a gap, and how often it occurs; None without one.

    It is further from the next value than all others are from each other, or three times as far if it is short.
    """
    low, high = float(x.min()), float(x.max())
    for value, listed in ((low, _LOWEST), (high, _HIGHEST)):
        if value not in listed:
            continue
        others = x[x != value]
        if not len(others):
            continue
        first, last = float(others.min()), float(others.max())
        apart = first - value if value < first else value - last
        far = apart if abs(value) > _SHORT else apart / 3
        if first < last < first + far:
            return value, len(x) - len(others)
    return None
