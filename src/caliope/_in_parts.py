"""Columns of trajectories that are computed a part at a time: a long log has no room for whole ones of everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np

from caliope._columns import empty_column, is_long, let_go
from caliope._derived import cached_properties, derived
from caliope._ragged import Bool, Float, Int, Ragged

# Columns over steps, and over trajectories.
STEP_COLUMNS = ("rewards", "log_ratio", "q", "v", "log_weight")
_TRAJECTORY_COLUMNS = ("terminated", "place")


class InParts:
    """Columns of n trajectories with N steps, whole or as some neighbouring trajectories after the other.

    Attributes
    ----------
    members, steps : slice
        Which trajectories and steps of the whole these are, where they are a part.
    """

    offsets: Int
    rewards: Float
    log_ratio: Float
    q: Float | None
    v: Float | None
    log_weight: Float | None
    terminated: Bool | None
    cluster: Int | None
    place: Int | None
    members: slice
    steps: slice
    _whole: Self | None  # of a part
    _derived: dict[Any, Any]
    _read: list[Float]  # of columns of the whole, by a part

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def _begin(self) -> None:
        """Nothing is derived yet, and this is no part."""
        whole = {"members": slice(0, len(self)), "steps": slice(0, int(self.offsets[-1]))}
        self.__dict__.update(whole, _whole=None, _derived={})

    def _copy(self, **own: Any) -> Self:
        """The same with other attributes, which are not looked at again."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name in cached_properties(type(self)):
            other.__dict__.pop(name, None)
        other.__dict__.update(own)
        return other

    @derived
    def layout(self) -> Ragged:
        """How the steps lie in memory, and which trajectories are independent."""
        layout = Ragged(self.offsets, self.cluster)
        if self.in_parts:
            time = empty_column(len(self.rewards)).view(np.int64)
            for members in layout.stretches:
                time[layout.steps_of(members)] = layout.part(members).time
                let_go(time[layout.steps_of(members)])
            layout.__dict__["time"] = time
        return layout

    @property
    def in_parts(self) -> bool:
        """Whether this is worked on in several parts."""
        return self._whole is None and is_long(len(self.rewards))

    def parts(self) -> Iterator[Self]:
        """Yield some neighbouring trajectories after the other, each counted once; those of a short log as one part.

        Weights of a part are on the scale of the whole.
        """
        once = self._copy(counts=None) if self.__dict__.get("counts") is not None else self
        if not self.in_parts:
            yield once
            return
        for members in self.layout.stretches:
            part = once._part(members)
            yield part
            for column in (*(getattr(part, name) for name in STEP_COLUMNS), part.layout.time, *part._read):
                if column is not None:
                    let_go(column)

    def entries_of(self, column: Float) -> Float:
        """What belongs to this part of a per-step column of the whole."""
        if self._whole is None:
            return column
        self._read.append(column[self.steps])
        return self._read[-1]

    def _part(self, members: slice) -> Self:
        layout, steps = self.layout.part(members), self.layout.steps_of(members)
        layout.__dict__["time"] = self.layout.time[steps]
        own: dict[str, Any] = {}
        for names, place in ((STEP_COLUMNS, steps), (_TRAJECTORY_COLUMNS, members)):
            own |= {x: None if getattr(self, x) is None else getattr(self, x)[place] for x in names}
        own |= {"offsets": layout.offsets, "cluster": None, "members": members, "steps": steps}
        return self._copy(**own, _whole=self, _derived={"layout": layout}, _read=[])

    def per_step(self, compute: Callable[[Self], Float]) -> Float:
        """Compute a per-step column part by part, (N,)."""
        if not self.in_parts:
            return compute(next(self.parts()))
        out = empty_column(len(self.rewards))
        for part in self.parts():
            out[part.steps] = compute(part)
            let_go(out[part.steps])
        return out

    def per_trajectory(self, compute: Callable[[Self], Float]) -> Float:
        """Compute a per-trajectory column part by part, (n,)."""
        found = [compute(part) for part in self.parts()]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def sum_by_time(self, x: Callable[[Self], Float]) -> Float:
        r""":math:`\sum_i x_{it}` of a per-step column for every t, each trajectory counted once, (T,)."""
        total = np.zeros(self.layout.horizon)
        for part in self.parts():
            total[: part.layout.horizon] += part.layout.sum_by_time(x(part))
        return total

    def weigh_steps(self, x: Callable[[Self], Float], factor: Float) -> Float:
        """Sum a per-step column over the steps of each trajectory with a factor for every t, (n,)."""
        return self.per_trajectory(
            lambda part: part.layout.weigh_steps(x(part), factor[: part.layout.horizon])
        )

    def rows_of(self, which: Int) -> dict[str, Float | None]:
        """The steps of some trajectories, one after the other, in each column."""
        lengths, stop = self.layout.lengths[which], 0
        columns = {name: getattr(self, name) for name in STEP_COLUMNS if getattr(self, name) is not None}
        found = {name: empty_column(int(lengths.sum())) for name in columns}
        for some in self.layout.divide(which):
            rows = self.layout.rows_of(some)
            start, stop = stop, stop + len(rows)
            for name, column in columns.items():
                found[name][start:stop] = column[rows]
        return {name: found.get(name) for name in STEP_COLUMNS}
