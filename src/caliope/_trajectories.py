"""Logged trajectories: what was seen, what was done, what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caliope._cells import inert
from caliope._clusters import as_clusters, deal_folds, number_clusters, sample_clusters
from caliope._identity import fingerprints, order_by_hash
from caliope._ragged import Bool, Float, Int, Ragged, as_positions, check_offsets, read_only
from caliope._validation import (
    Locator,
    as_action_names,
    as_actions,
    as_calendar,
    as_columns,
    as_names,
    as_states,
    as_terminated,
    as_unit,
    check_finite,
    check_gamma as check_gamma,
    check_length,
    check_states,
    unmasked,
)
from caliope.checks import plural


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Trajectories:
    """Logged decisions of n trajectories of unequal length, N steps in all.

    Trajectory i owns the rows ``offsets[i]:offsets[i + 1]`` of every per-step array, in the order of time.
    Everything is checked once, on entry; afterwards the arrays are read-only views (yours stay writeable).

    Parameters
    ----------
    states : array-like of shape (N, d)
        What was known when the decision was taken. float32 stays float32.
    actions : array-like of shape (N,)
        What was done, whole numbers from 0.
    rewards : array-like of shape (N,)
        What followed the decision.
    offsets : array-like of shape (n + 1,)
        Where each trajectory begins; the last entry is N.
    n_actions : int, optional
        How many actions there are. By default one more than the largest one logged.
    terminated : array-like of shape (n,), optional
        False where the log was cut off before the episode ended (censored), so that a value function may
        look past the last step. Without it all are taken to have ended, and an audit asks whether they did.
    columns : mapping from name to array-like of shape (N,), optional
        Further per-step columns, such as a severity score; ``data["sofa"]`` reads one (or a feature).
    feature_names : sequence of str, optional
        Names of the d state columns.
    ids : array-like of shape (n,), optional
        What the trajectories are called in your own files; used in messages, and in place of the order of the file
        where chance decides (:meth:`in_fixed_order`).
    calendar : array-like of shape (n,), optional
        When each trajectory began: numbers or datetimes, which become days since 1970. By default the order of the log.
        Practice that changes over time is looked for along it.
    action_names : sequence of str, optional
        What the actions are called, one different name per action; a report shows them. Without ``n_actions`` there
        are as many actions as names.
    unit : str
        What one trajectory is in your own words, such as ``"visit"``; a report uses it.
    cluster : array-like of shape (n,), optional
        The cluster of each trajectory, by any label: its site, or the person behind several visits. Trajectories of
        one cluster stay together in folds and resamples. By default all trajectories are independent.
    encoder : caliope.io.Encoder, optional
        What the columns of the table became; :func:`~caliope.read_table` makes it.

    Examples
    --------
    >>> data = Trajectories([[0.0], [1.0], [0.0]], [0, 1, 1], [0, 1, 5], offsets=[0, 2, 3])
    >>> data
    Trajectories(2 trajectories of 1 to 2 steps, 3 steps, 1 feature, 2 actions)
    >>> data.returns(gamma=0.5)
    array([0.5, 5. ])
    """

    states: Float  # (N, d)
    actions: Int  # (N,)
    rewards: Float  # (N,)
    offsets: Int  # (n + 1,)
    n_actions: int
    terminated: Bool  # (n,)
    columns: Mapping[str, NDArray[Any]]  # each (N,)
    feature_names: tuple[str, ...]  # d of them
    ids: NDArray[Any]  # (n,)
    calendar: Float  # (n,)
    action_names: tuple[str, ...] | None  # n_actions of them
    unit: str
    encoder: Any  # of caliope.io; None where no table was read
    ends_stated: bool = field(default=False, init=False)  # whether terminated was given
    cluster: NDArray[Any] | None = None  # (n,)
    ids_given: bool = field(default=False, init=False)
    place: Int | None = field(default=None, init=False)  # (n,), in the file; None where that is the order
    row_places: Int | None = field(default=None, init=False)  # (N,) of the table's rows; None where in order

    def __init__(
        self,
        states: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        offsets: ArrayLike,
        *,
        n_actions: int | None = None,
        terminated: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
        feature_names: Iterable[str] | None = None,
        ids: ArrayLike | None = None,
        calendar: ArrayLike | None = None,
        action_names: Sequence[str] | None = None,
        unit: str = "trajectory",
        cluster: ArrayLike | None = None,
        encoder: Any = None,
    ) -> None:
        x = as_states(states)
        starts = check_offsets(offsets, len(x))
        n, n_steps = len(starts) - 1, len(x)
        called = np.arange(n) if ids is None else np.asarray(ids)
        check_length("ids", called, n, "trajectories")
        names = as_names(feature_names, x.shape[1])
        where = Locator(starts, called)
        r = unmasked("rewards", rewards)
        check_length("rewards", r, n_steps, "steps")
        check_finite("rewards", r, where)
        check_states(x, names, where)
        a = unmasked("actions", actions)
        check_length("actions", a, n_steps, "steps")
        if n_actions is None and isinstance(action_names, list | tuple | np.ndarray) and len(action_names):
            n_actions = len(action_names)
        a, count = as_actions(a, n_actions, where)
        checked = {
            "states": read_only(x),
            "actions": read_only(a),
            "rewards": read_only(np.asarray(r, dtype=np.float64)),
            "offsets": starts,
            "n_actions": count,
            "terminated": read_only(as_terminated(terminated, n)),
            "columns": as_columns(columns, n_steps),
            "feature_names": names,
            "ids": read_only(called),
            "calendar": read_only(as_calendar(calendar, called)),
            "action_names": as_action_names(action_names, count),
            "unit": as_unit(unit),
            "encoder": encoder,
            "ends_stated": terminated is not None,
            "cluster": as_clusters(cluster, n, called),
            "ids_given": ids is not None,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @inert
    def __repr__(self) -> str:
        short, long = int(self.lengths.min()), int(self.lengths.max())
        spread = f"{short}" if short == long else f"{short} to {long}"
        named = "" if self.action_names is None else "named "
        return (
            f"Trajectories({len(self)} {self.units} of {spread} step{'s' * (long != 1)}, {self.n_steps} steps, "
            f"{self.states.shape[1]} feature{'s' * (self.states.shape[1] != 1)}, {self.n_actions} {named}actions)"
        )

    @overload
    def __getitem__(self, which: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, which: int | slice | Sequence[int] | Int | Bool) -> Trajectories: ...
    def __getitem__(self, which: Any) -> Any:
        """Trajectories by position, list, mask or slice; or an extra column, or a feature of the states, by name.

        A slice of neighbours shares memory with the whole; a list or mask copies the rows it names.
        """
        if isinstance(which, str):
            found = dict(zip(self.feature_names, self.states.T, strict=True)) | dict(self.columns)
            if which not in found:
                raise KeyError(f"no column or feature {which!r}; there are {', '.join(sorted(found))}.")
            return found[which]
        chosen = as_positions(which, len(self))
        if len(chosen) == 0:
            raise ValueError("the selection is empty: it names no trajectory.")
        if (np.diff(chosen) == 1).all():
            rows: slice | Int = slice(self.offsets[chosen[0]], self.offsets[chosen[-1] + 1])
        else:
            rows = self.layout.rows_of(chosen)
        return self._part(chosen, rows)

    def _part(self, chosen: Int, rows: slice | Int) -> Trajectories:
        part = object.__new__(Trajectories)  # nothing to validate: every row has been seen before
        run = slice(chosen[0], chosen[-1] + 1) if isinstance(rows, slice) else chosen
        values = {f.name: getattr(self, f.name) for f in fields(self)} | {
            "states": read_only(self.states[rows]),
            "actions": read_only(self.actions[rows]),
            "rewards": read_only(self.rewards[rows]),
            "offsets": read_only(np.concatenate([[0], np.cumsum(self.lengths[chosen])])),
            "terminated": read_only(self.terminated[run]),
            "columns": MappingProxyType({k: read_only(x[rows]) for k, x in self.columns.items()}),
            "ids": read_only(self.ids[run]),
            "calendar": read_only(self.calendar[run]),
            "cluster": None if self.cluster is None else read_only(self.cluster[run]),
            "place": None if self.place is None else read_only(self.place[run]),
            "row_places": None,
        }
        for name, value in values.items():
            object.__setattr__(part, name, value)
        return part

    def __getstate__(self) -> dict[str, Any]:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        return state | {"columns": dict(self.columns)}  # a mappingproxy cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        # An unpickled array is writeable: neither pickle nor deepcopy keeps the flag.
        frozen = {k: read_only(x) if isinstance(x, np.ndarray) else x for k, x in state.items()}
        columns = MappingProxyType({k: read_only(x) for k, x in state["columns"].items()})
        self.__dict__.update(frozen | {"columns": columns})

    @cached_property
    def layout(self) -> Ragged:
        """How the steps lie in memory, and which trajectories are independent."""
        return Ragged(self.offsets, None if self.cluster is None else number_clusters(self.cluster))

    @property
    def n_steps(self) -> int:
        """Number of steps N of all trajectories together."""
        return int(self.offsets[-1])

    @property
    def units(self) -> str:
        """The plural of ``unit``."""
        return plural(self.unit)

    @property
    def _independent(self) -> str:
        return "trajectories" if self.layout.cluster is None else "clusters"

    @property
    def recorded(self) -> tuple[str, ...]:
        """Names of the columns that the features were made of."""
        known = self.encoder is not None and self.encoder.feature_names == self.feature_names
        return tuple(column.name for column in self.encoder.columns) if known else self.feature_names

    @property
    def lengths(self) -> Int:
        """Number of steps of each trajectory, (n,)."""
        return self.layout.lengths

    @cached_property
    def digests(self) -> tuple[bytes, ...]:
        """A fingerprint of what each trajectory holds, rewards included: the same in every selection."""
        return fingerprints(self.offsets, self._states_as_float32(), self.actions, self.rewards)

    @cached_property
    def decision_digests(self) -> tuple[bytes, ...]:
        """A fingerprint of the states and actions of each trajectory: the same whatever the rewards are counted in."""
        return fingerprints(self.offsets, self._states_as_float32(), self.actions)

    @cached_property
    def fixed_order(self) -> Int:
        """Numbers of the trajectories in the order of a hash, (n,): of the id, or of the content without ids."""
        rewards = np.split(self.rewards, self.offsets[1:-1])
        return order_by_hash(
            self.ids.tolist() if self.ids_given else self.decision_digests,
            lambda i: (self.decision_digests[i], rewards[i].tolist(), bool(self.terminated[i])),
        )

    def in_fixed_order(self) -> Trajectories:
        """The same trajectories in an order that depends on their ids, or contents, and not on that of the file."""
        order = self.fixed_order
        if (np.diff(order) > 0).all():
            return self
        moved = self[order]
        object.__setattr__(moved, "place", read_only(order if self.place is None else self.place[order]))
        return moved

    def _states_as_float32(self) -> NDArray[Any]:
        # As float32 a copy in either precision has the same bytes; adding 0 turns -0.0 into 0.0.
        with np.errstate(over="ignore"):
            return self.states.astype(np.float32) + np.float32(0)

    def subsample(self, max_steps: int, *, rng: np.random.Generator | None = None) -> Int:
        """Numbers of whole trajectories with about ``max_steps`` steps, sorted; of all where the log is shorter.

        Drawn at random, or, without ``rng``, spread evenly over the log. What is drawn are whole clusters, if there
        are any; a share of each, where fewer than 30 of them would be drawn.
        """
        if self.n_steps <= max_steps:
            return np.arange(len(self))
        size = self.enough(max_steps)
        if rng is None:
            return np.unique(np.linspace(0, len(self) - 1, size).astype(np.int64))
        if self.layout.cluster is not None:
            return sample_clusters(self.layout.cluster, size, rng)
        return np.sort(rng.choice(len(self), size, replace=False))

    def enough(self, max_steps: int) -> int:
        """How many trajectories have about ``max_steps`` steps: at least two, if there are so many."""
        return min(len(self), max(2, int(len(self) * max_steps / self.n_steps)))

    def part(self, which: Int) -> Trajectories:
        """The trajectories of these numbers, sorted; the log itself where they are all of it."""
        return self if len(which) == len(self) else self[which]

    def replace(self, **changes: Any) -> Trajectories:
        """Copy with some fields changed, checked like any other log.

        Parameters
        ----------
        **changes
            New values of parameters of :class:`Trajectories`; the others stay.

        Returns
        -------
        Trajectories
            The copy.

        Examples
        --------
        >>> data = Trajectories([[0.0], [1.0]], [0, 1], [0, 1], offsets=[0, 2])
        >>> data.replace(rewards=[2, 3]).rewards
        array([2., 3.])
        """
        names = [each.name for each in fields(self) if each.init]
        unknown = set(changes) - set(names)
        if unknown:
            known = ", ".join(names)
            raise TypeError(f"a log has no field {sorted(unknown)[0]!r}; the fields are {known}.")
        # What was derived from the old values does not bind the new ones.
        derived: dict[str, Any] = {} if self.ends_stated else {"terminated": None}
        if "states" in changes and np.shape(changes["states"])[1:] != self.states.shape[1:]:
            derived |= {"feature_names": None, "encoder": None}
        if changes.get("action_names") is not None:
            derived["n_actions"] = None
        changed = replace(self, **derived | changes)
        rows = self.row_places if changed.n_steps == self.n_steps else None
        changed.__dict__.update(
            ids_given="ids" in changes or self.ids_given, place=self.place, row_places=rows
        )
        return changed

    def returns(self, gamma: float = 1.0) -> Float:
        r"""Discounted return of each trajectory, :math:`G_i = \sum_t \gamma^t r_t`, (n,)."""
        check_gamma(gamma)
        return self.layout.sum_steps(
            self.rewards * (gamma ** np.arange(self.layout.horizon))[self.layout.time]
        )

    def split(self, share: float, *, rng: int | np.random.Generator) -> tuple[Trajectories, Trajectories]:
        """Part the trajectories at random: a share of them, and the rest. No trajectory or cluster is in both.

        Examples
        --------
        >>> data = Trajectories(np.zeros((6, 1)), [0, 1] * 3, np.ones(6), offsets=[0, 1, 3, 4, 6])
        >>> [len(part) for part in data.split(0.5, rng=0)]
        [2, 2]
        """
        if not 0 < share < 1:
            raise ValueError(f"share must lie between 0 and 1, got {share}.")
        units, unit = self.layout.n_units, self.layout.unit
        size = round(share * units)
        if size in (0, units):
            raise ValueError(f"a share of {share} of {units} {self._independent} leaves one part empty.")
        first = np.isin(unit, np.random.default_rng(rng).permutation(units)[:size])
        return self[first], self[~first]

    def fold_of(self, k: int, *, rng: int | np.random.Generator) -> Int:
        """Deal the trajectories, or whole clusters, into k folds of about equal size: the fold of each, (n,)."""
        units = self.layout.n_units
        if not 2 <= k <= units:
            raise ValueError(
                f"the number of folds must lie between 2 and the {units} {self._independent}, got {k}."
            )
        if self.layout.cluster is not None:
            return deal_folds(self.layout.cluster, k, np.random.default_rng(rng))
        return np.random.default_rng(rng).permutation(np.arange(len(self)) % k)

    def folds(self, k: int, *, rng: int | np.random.Generator) -> list[tuple[Int, Int]]:
        """Step indices (fit, held out) of k folds that never part a trajectory or a cluster.

        They serve as ``cv=`` for anything in scikit-learn: the rows of a trajectory are near copies of each other.

        Examples
        --------
        >>> data = Trajectories(np.zeros((6, 1)), [0, 1] * 3, np.ones(6), offsets=[0, 1, 3, 4, 6])
        >>> sorted(np.concatenate([held_out for _, held_out in data.folds(4, rng=0)]).tolist())
        [0, 1, 2, 3, 4, 5]
        """
        fold = self.fold_of(k, rng=rng)[self.layout.owner]
        return [(np.flatnonzero(fold != j), np.flatnonzero(fold == j)) for j in range(k)]
