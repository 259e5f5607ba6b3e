"""Evidence: the columns that an estimator may read, and the sums that estimators are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from caliope._clusters import as_clusters, number_clusters
from caliope._counts import Counts, LeaveOneOutCounts, as_counts
from caliope._derived import derived
from caliope._evidence_columns import EvidenceColumns, exp_difference
from caliope._in_parts import STEP_COLUMNS
from caliope._ragged import Bool, Float, Int, check_offsets, read_only
from caliope._traced import TracedCounts
from caliope._validation import as_log_ratio, as_step_column, check_gamma, unmasked
from caliope.checks import Finding

T = TypeVar("T")
# A per-step column, or what computes it for some of the trajectories.
PerStep: TypeAlias = "Float | Callable[[Evidence], Float]"


@dataclass(frozen=True, eq=False, repr=False)
class Evidence(EvidenceColumns):
    r"""Rewards, log-ratios, values and counts of n trajectories: everything that an estimator reads.

    Estimators are functions of an ``Evidence``. Resampling changes ``counts`` and nothing else, so an
    estimator contains no line for the bootstrap, and a self-normalised ratio is recomputed in every draw.

    Parameters
    ----------
    rewards : (N,)
        Reward of each step, trajectory after trajectory.
    log_ratio : (N,)
        :math:`\log \lambda_t = \log \pi_e(a_t \mid s_t) - \log \pi_b(a_t \mid s_t)` of the logged action;
        ``-inf`` where the target policy never takes it.
    offsets : (n + 1,)
        Trajectory i owns rows ``offsets[i]:offsets[i + 1]``.
    gamma : float
        Discount in [0, 1].
    counts : (n,) or (draws, n), optional
        How often each trajectory occurs; by default once. With a leading axis every estimator returns one
        value per row.
    q, v : (N,), optional
        :math:`\hat Q(s_t, a_t)` and :math:`\hat V(s_t) = \sum_a \pi_e(a \mid s_t)\, \hat Q(s_t, a)` under
        the target policy, for the doubly robust family.
    behaviour_known : bool
        Whether the behaviour probabilities are exactly known, not estimated; bounds with a guarantee need this.
    terminated : (n,), optional
        False where the log was cut off. There the doubly robust family uses the value of the last state
        without a correction, because what followed was not seen. By default all ended.
    notes : tuple of Finding
        Findings so far: transformed weights, missing support.
    features : tuple of str
        Names of the columns that were recorded with the decisions; the condition of a verdict lists them.
    relative : bool
        Whether the target was stated relative to practice: errors of a fitted behaviour policy then cancel in part.
    cluster : (n,), optional
        The cluster of each trajectory, by any label; kept as numbers from 0, and as None where every one is alone.
        Resampling draws whole clusters. By default all trajectories are independent.
    place : (n,), optional
        Where each trajectory stood in the file; by default they are in its order.
    log_weight : (N,), optional
        Logarithms of cumulative weights that are no products of ratios, such as marginalised ones; ``-inf`` for none.
        They are then :math:`\log \rho_t`, and ``log_ratio`` remains that of the single decisions.

    Examples
    --------
    >>> e = Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3], gamma=0.5)
    >>> e
    Evidence(2 trajectories, 3 steps, gamma=0.5)
    >>> e.rho.round(6).tolist(), e.returns.tolist()
    ([2.0, 1.0, 3.0], [2.5, 5.0])
    """

    rewards: Float
    log_ratio: Float
    offsets: Int
    gamma: float = 1.0
    counts: Counts | None = None
    q: Float | None = None
    v: Float | None = None
    behaviour_known: bool = False
    terminated: Bool | None = None
    notes: tuple[Finding, ...] = ()
    features: tuple[str, ...] = ()
    relative: bool = False
    cluster: Int | None = None
    place: Int | None = None
    log_weight: Float | None = None

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        rewards = unmasked("rewards", self.rewards)
        offsets = check_offsets(self.offsets, len(rewards) if rewards.ndim else 0)
        set_field = object.__setattr__
        set_field(self, "offsets", offsets)
        self._begin()
        set_field(self, "rewards", as_step_column("rewards", rewards, len(rewards)))
        set_field(self, "log_ratio", as_log_ratio("log_ratio", self.log_ratio, len(rewards)))
        if self.log_weight is not None:
            weight = as_log_ratio("log_weight", self.log_weight, len(rewards))
            set_field(self, "log_weight", weight)
        set_field(self, "counts", as_counts(self.counts, len(offsets) - 1))
        if self.terminated is not None:
            ended = np.asarray(self.terminated, dtype=bool)
            if ended.shape != (len(offsets) - 1,):
                raise ValueError(f"terminated must have shape ({len(offsets) - 1},), got {ended.shape}.")
            set_field(self, "terminated", read_only(ended))
        labels = as_clusters(self.cluster, len(offsets) - 1, np.arange(len(offsets) - 1))
        set_field(self, "cluster", None if labels is None else number_clusters(labels))
        if (self.q is None) != (self.v is None):
            raise ValueError("q and v go together: give both or neither.")
        if self.q is not None and self.v is not None:
            set_field(self, "q", as_step_column("q", self.q, len(rewards)))
            set_field(self, "v", as_step_column("v", self.v, len(rewards)))

    def __repr__(self) -> str:
        counts = self.counts
        draws = len(counts) if isinstance(counts, np.ndarray) and counts.ndim == 2 else None
        parts = [f"{len(self)} trajectories", f"{len(self.rewards)} steps", f"gamma={self.gamma:g}"]
        parts += [f"{draws} rows of counts"] if draws else []
        parts += ["with given weights"] if self.log_weight is not None else []
        parts += ["with q and v"] if self.q is not None else []
        parts += [f"notes: {' '.join(note.code for note in self.notes)}"] if self.notes else []
        return f"Evidence({', '.join(parts)})"

    def with_counts(self, counts: ArrayLike | Counts | None) -> Evidence:
        """Return the same evidence with other counts; columns that do not depend on them are shared."""
        if counts is self.counts:
            return self
        return self._copy(counts=as_counts(counts, len(self)))

    def changed(self, **columns: Any) -> Evidence:
        """Return the same trajectories with other columns over steps and other notes.

        Where their steps lie is worked out once for both.
        """
        n = len(self.rewards)
        for name in STEP_COLUMNS:
            if columns.get(name) is not None:
                check = as_log_ratio if name.startswith("log") else as_step_column
                columns[name] = check(name, columns[name], n)
        return self._copy(**columns, _derived={"layout": self.layout})

    def __getstate__(self) -> dict[str, Any]:
        """Without derived columns: what needs them computes them."""
        return {**self.__dict__, "_derived": {}}

    def take(self, which: Int) -> Evidence:
        """Return the evidence of the trajectories numbered ``which``, each counted once."""
        own: dict[str, Any] = {**self.rows_of(which)}
        for name in ("terminated", "cluster", "place"):
            column = getattr(self, name)
            own[name] = None if column is None else column[which]
        offsets = np.concatenate([[0], np.cumsum(self.layout.lengths[which])])
        return replace(self, **own, offsets=offsets, counts=None)

    # -- sums over trajectories, each counted as often as counts say --------------------------------------

    @cached_property
    def n(self) -> Any:
        r"""Number of trajectories, counts included: :math:`n = \sum_i c_i`."""
        return self.total(np.ones(len(self)))

    def total(self, x: Float) -> Any:
        r""":math:`\sum_i c_i x_i` of a per-trajectory column; one sum per row of counts."""
        if self.counts is None:
            return x.sum()
        if isinstance(self.counts, LeaveOneOutCounts):
            return self.counts.base @ x + self.counts.step * x[self.counts.which]
        if isinstance(self.counts, TracedCounts):
            return self.counts.take(x.sum, lambda slope: np.where(x == 0, 0.0, slope * x))
        return self.counts @ x

    def total_by_time(self, x: PerStep) -> Any:
        r""":math:`\sum_i c_i x_{it}` of a per-step column for every t, over the trajectories that reach t, (..., T).

        The column may be given as a function that computes it for a part of the trajectories: then a long log needs no
        whole column.
        """
        if callable(x) and self.in_parts and not isinstance(self.counts, LeaveOneOutCounts):
            return self._total_of_parts(x)
        column = x(self.with_counts(None)) if callable(x) else x
        if isinstance(self.counts, LeaveOneOutCounts):
            whole = self.with_counts(self.counts.base).total_by_time(column)
            return whole + self.counts.step[:, None] * self.layout.dense(column, self.counts.which)
        if isinstance(self.counts, TracedCounts):
            once = self.with_counts(None)
            return self.counts.take(
                lambda: once.total_by_time(column), lambda slope: self.layout.weigh_steps(column, slope)
            )
        out = np.zeros((*self._leading(), self.layout.horizon))
        for group, block in self.layout.blocks(column):
            out[..., : group.length] += self._sum(group.members, block)
        return out

    def _total_of_parts(self, x: Callable[[Evidence], Float]) -> Any:
        if isinstance(self.counts, TracedCounts):
            return self.counts.take(lambda: self._sum_once(x), lambda slope: self.weigh_steps(x, slope))
        if not isinstance(self.counts, np.ndarray):
            return self._sum_once(x)
        # Counts change many times, and the column does not.
        column = self.once(("column", x), lambda: self.per_step(x))
        out = np.zeros((*self._leading(), self.layout.horizon))
        for part in self.parts():
            counted = part.with_counts(self.counts[..., part.members])
            out[..., : part.layout.horizon] += counted.total_by_time(part.entries_of(column))
        return out

    def _sum_once(self, x: Callable[[Evidence], Float]) -> Float:
        """The sum by time, computed when it is first asked for: an estimate and its derivative both ask."""
        return self.once(("sum", x), lambda: self.sum_by_time(x))

    def weight_by_time(self) -> Any:
        r""":math:`\sum_i c_i \rho_{it}` for every t over **all** trajectories, (..., T), on the scale of ``weight``.

        A trajectory that has ended rests in an absorbing state and keeps its last weight. Summing only those
        under way would estimate the reward *given* that the trajectory goes on.
        """
        return self._weight_by_time

    @cached_property
    def _weight_by_time(self) -> Any:
        if isinstance(self.counts, TracedCounts):
            return self.counts.take(self.with_counts(None).weight_by_time, self._weigh_weights)
        if isinstance(self.counts, LeaveOneOutCounts):
            which = self.counts.which
            rows = exp_difference(self.layout.dense(self.log_rho, which, carry=True), self.log_scale)
            return self.with_counts(self.counts.base).weight_by_time() + self.counts.step[:, None] * rows
        total = self.total_by_time(_weight)
        if self.layout.equal:
            return total
        log_last = self.log_last if self.layout.order is None else self.log_last[self.layout.order]
        time, ended, carried = np.arange(self.layout.horizon), [], []
        for group in self.layout.groups[:-1]:
            # Scaled by the group's own largest, so that nothing underflows before its time.
            top = log_last[group.members].max()
            ended.append(self._sum(group.members, exp_difference(log_last[group.members], top)))
            carried.append(exp_difference(np.where(time >= group.length, top, -np.inf), self.log_scale))
        return total + np.stack(ended, axis=-1) @ np.stack(carried)

    def _weigh_weights(self, slope: Float) -> Float:
        """Sum the weights of each trajectory over all t with a factor each, those after its end included, (n,)."""
        out, time = self.weigh_steps(_weight, slope), np.arange(self.layout.horizon)
        for group in self.layout.groups[:-1]:
            members = self.layout.members(group)
            top = self.log_last[members].max()
            carried = exp_difference(np.where(time >= group.length, top, -np.inf), self.log_scale)
            out[members] += exp_difference(self.log_last[members], top) * (carried @ slope)
        return out

    @derived
    def _of_length(self) -> tuple[tuple[Int, Evidence], ...]:
        return tuple(self._by_length())

    def _by_length(self) -> Iterator[tuple[Int, Evidence]]:
        order = np.arange(len(self)) if self.layout.order is None else self.layout.order
        return ((order[g.members], self.take(order[g.members])) for g in self.layout.groups)

    def by_length(self) -> Iterator[tuple[Int, Evidence]]:
        """Yield the trajectories of each length, and their evidence with their counts."""
        kept = isinstance(self.counts, np.ndarray) or not self.in_parts  # for other counts
        for members, part in self._of_length if kept else self._by_length():
            if self.counts is None:
                yield members, part
            elif isinstance(self.counts, LeaveOneOutCounts | TracedCounts):
                yield members, part.with_counts(self.counts.restrict_to(members))
            else:
                yield members, part.with_counts(self.counts[..., members])

    def _leading(self) -> tuple[int, ...]:
        return self.counts.shape[:-1] if isinstance(self.counts, np.ndarray) else ()

    @cached_property
    def _sorted_counts(self) -> Float | None:
        if not isinstance(self.counts, np.ndarray) or self.layout.order is None:
            return self.counts if isinstance(self.counts, np.ndarray) else None
        return self.counts[..., self.layout.order]

    def _sum(self, members: slice, block: Float) -> Any:
        counts = self._sorted_counts
        counts = np.ones(len(block)) if counts is None else counts[..., members]
        # Much faster than counts @ block where the block is narrow.
        return (block.T @ counts.T).T


def _weight(e: Evidence) -> Float:
    return e.weight


def refuse_counts(e: Evidence) -> None:
    """Raise if the evidence is already a resample."""
    if e.counts is not None:
        raise ValueError(
            "this evidence already carries counts: give the evidence of the log itself, e.with_counts(None)."
        )
