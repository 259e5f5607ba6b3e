"""Evidence: the columns that an estimator may read, and the sums that estimators are made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from caliope._clusters import as_clusters, number_clusters
from caliope._counts import Counts, LeaveOneOutCounts, as_counts
from caliope._derived import cached_properties, derived
from caliope._ragged import Bool, Float, Int, Ragged, check_offsets, column_max, read_only
from caliope._traced import TracedCounts
from caliope._validation import as_log_ratio, as_step_column, check_gamma, unmasked
from caliope.checks import Finding

T = TypeVar("T")


@dataclass(frozen=True, eq=False, repr=False)
class Evidence:
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
        set_field(self, "_derived", {})
        set_field(self, "offsets", offsets)
        set_field(self, "rewards", as_step_column("rewards", rewards, len(rewards)))
        set_field(self, "log_ratio", as_log_ratio(self.log_ratio, len(rewards)))
        if self.log_weight is not None:
            weight = as_log_ratio(self.log_weight, len(rewards), name="log_weight")
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

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def with_counts(self, counts: ArrayLike | Counts | None) -> Evidence:
        """Return the same evidence with other counts; columns that do not depend on them are shared."""
        if counts is self.counts:
            return self
        other: Evidence = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        for name in cached_properties(type(self)):
            other.__dict__.pop(name, None)
        object.__setattr__(other, "counts", as_counts(counts, len(self)))
        return other

    def changed(self, **columns: Any) -> Evidence:
        """Return the same trajectories with other columns; where their steps lie is worked out once for both."""
        other = replace(self, **columns)
        other._derived["layout"] = self.layout  # type: ignore[attr-defined]
        return other

    def once(self, what: Hashable, compute: Callable[[], T]) -> T:
        """What was computed of this evidence, at the first call that names it."""
        known: dict[Hashable, T] = self._derived  # type: ignore[attr-defined]
        try:
            hash(what)
        except TypeError:
            return compute()
        if what not in known:
            known[what] = compute()
        return known[what]

    def __getstate__(self) -> dict[str, Any]:
        """Without derived columns: what needs them computes them."""
        return {**self.__dict__, "_derived": {}}

    def forget(self) -> None:
        """Let go of derived columns, which are computed again when they are asked for; the layout is shared."""
        layout = self.layout
        self._derived.clear()  # type: ignore[attr-defined]
        self._derived["layout"] = layout  # type: ignore[attr-defined]

    def take(self, which: Int) -> Evidence:
        """Return the evidence of the trajectories numbered ``which``, each counted once."""
        rows = self.layout.rows_of(which)
        return replace(
            self,
            rewards=self.rewards[rows],
            log_ratio=self.log_ratio[rows],
            offsets=np.concatenate([[0], np.cumsum(self.layout.lengths[which])]),
            counts=None,
            q=None if self.q is None else self.q[rows],
            v=None if self.v is None else self.v[rows],
            terminated=None if self.terminated is None else self.terminated[which],
            cluster=None if self.cluster is None else self.cluster[which],
            place=None if self.place is None else self.place[which],
            log_weight=None if self.log_weight is None else self.log_weight[rows],
        )

    # -- derived columns: cached, and independent of the counts -------------------------------------------

    @derived
    def layout(self) -> Ragged:
        """How the steps lie in memory, and which trajectories are independent."""
        return Ragged(self.offsets, self.cluster)

    @derived
    def discount(self) -> Float:
        r""":math:`\gamma^t` for every t up to the longest trajectory, (T,)."""
        return self.gamma ** np.arange(self.layout.horizon, dtype=np.float64)

    @derived
    def returns(self) -> Float:
        r""":math:`G_i = \sum_t \gamma^t r_t`, (n,)."""
        return self.sum_steps(self.rewards)

    @derived
    def log_rho(self) -> Float:
        r""":math:`\log \rho_t = \sum_{j \le t} \log \lambda_j`, or ``log_weight`` where that is given, (N,)."""
        return self.layout.cumulate(self.log_ratio) if self.log_weight is None else self.log_weight

    @derived
    def rho(self) -> Float:
        r""":math:`\rho_t = \prod_{j=0}^{t} \lambda_j`, step t included (the paper's appendix), (N,)."""
        with np.errstate(over="ignore"):
            return np.exp(self.log_rho)

    @derived
    def rho_before(self) -> Float:
        r""":math:`\rho_{t-1}`, with :math:`\rho_{-1} = 1`, (N,)."""
        return self.layout.before(self.rho, 1.0)

    @derived
    def log_scale(self) -> Float:
        r"""Largest :math:`\log \rho_t` at each t, an ended trajectory keeping its last one, (T,)."""
        scale = np.full(self.layout.horizon, -np.inf)
        for group, block in self.layout.blocks(self.log_rho):
            np.maximum(scale[: group.length], column_max(block), out=scale[: group.length])
            scale[group.length :] = np.maximum(scale[group.length :], block[:, -1].max())
        return scale

    @derived
    def weight(self) -> Float:
        r""":math:`\rho_t` divided by the largest at the same t, (N,).

        The divisor cancels in self-normalised ratios; without it a product of hundreds leaves the range of a float.
        """
        if self.layout.equal:
            return _exp_difference(self.log_rho.reshape(len(self), -1), self.log_scale).ravel()
        return _exp_difference(self.log_rho, self.log_scale[self.layout.time])

    @derived
    def weight_before(self) -> Float:
        """``weight`` of the step before, with 1 before the first, (N,)."""
        return self.layout.before(self.weight, 1.0)

    @derived
    def final_weight(self) -> Float:
        r""":math:`\rho_{T_i - 1}` of each whole trajectory divided by the largest, (n,)."""
        last = self.log_rho[self.layout.last]
        return _exp_difference(last, last.max())

    @derived
    def residual(self) -> Float:
        r""":math:`r_t - \hat Q_t`, (N,); 0 at the last step of a trajectory that was cut off."""
        if self.q is None:
            raise ValueError(
                "this estimator needs action values: give gather(..., q=...) or Evidence(..., q=, v=)."
            )
        residual = self.rewards - self.q
        if self.terminated is not None:
            residual[self.layout.last[~self.terminated]] = 0.0
        return residual

    @derived
    def _parts(self) -> tuple[tuple[Int, Evidence], ...]:
        order = np.arange(len(self)) if self.layout.order is None else self.layout.order
        return tuple((order[g.members], self.take(order[g.members])) for g in self.layout.groups)

    def discounted(self, x: Float) -> Float:
        r"""Multiply a per-step column by :math:`\gamma^t`."""
        if self.gamma == 1:
            return x
        if self.layout.equal:
            return (x.reshape(len(self), -1) * self.discount).ravel()
        return x * self.discount[self.layout.time]

    def sum_steps(self, x: Float) -> Float:
        r""":math:`\sum_t \gamma^t x_t` of a per-step column, (n,)."""
        if self.layout.equal:
            return x.reshape(len(self), -1) @ self.discount
        return self.layout.sum_steps(self.discounted(x))

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

    def total_by_time(self, x: Float) -> Any:
        r""":math:`\sum_i c_i x_{it}` of a per-step column for every t, over the trajectories that reach t, (..., T)."""
        if isinstance(self.counts, LeaveOneOutCounts):
            whole = self.with_counts(self.counts.base).total_by_time(x)
            return whole + self.counts.step[:, None] * self.layout.dense(x, self.counts.which)
        if isinstance(self.counts, TracedCounts):
            once = self.with_counts(None)
            return self.counts.take(
                lambda: once.total_by_time(x), lambda slope: self.layout.weigh_steps(x, slope)
            )
        out = np.zeros((*self._leading(), self.layout.horizon))
        for group, block in self.layout.blocks(x):
            out[..., : group.length] += self._sum(group.members, block)
        return out

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
            rows = _exp_difference(self.layout.dense(self.log_rho, which, carry=True), self.log_scale)
            return self.with_counts(self.counts.base).weight_by_time() + self.counts.step[:, None] * rows
        total = self.total_by_time(self.weight)
        if self.layout.equal:
            return total
        log_last = self.log_rho[self.layout.last]
        log_last = log_last if self.layout.order is None else log_last[self.layout.order]
        time, ended, carried = np.arange(self.layout.horizon), [], []
        for group in self.layout.groups[:-1]:
            # Scaled by the group's own largest, so that nothing underflows before its time.
            top = log_last[group.members].max()
            ended.append(self._sum(group.members, _exp_difference(log_last[group.members], top)))
            carried.append(_exp_difference(np.where(time >= group.length, top, -np.inf), self.log_scale))
        return total + np.stack(ended, axis=-1) @ np.stack(carried)

    def _weigh_weights(self, slope: Float) -> Float:
        """Sum the weights of each trajectory over all t with a factor each, those after its end included, (n,)."""
        out = self.layout.weigh_steps(self.weight, slope)
        log_last, time = self.log_rho[self.layout.last], np.arange(self.layout.horizon)
        for group in self.layout.groups[:-1]:
            members = self.layout.members(group)
            top = log_last[members].max()
            carried = _exp_difference(np.where(time >= group.length, top, -np.inf), self.log_scale)
            out[members] += _exp_difference(log_last[members], top) * (carried @ slope)
        return out

    def by_length(self) -> Iterator[tuple[Int, Evidence]]:
        """Yield the trajectories of each length, and their evidence with their counts."""
        for members, part in self._parts:
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


def refuse_counts(e: Evidence) -> None:
    """Raise if the evidence is already a resample."""
    if e.counts is not None:
        raise ValueError(
            "this evidence already carries counts: give the evidence of the log itself, e.with_counts(None)."
        )


def _exp_difference(x: Float, top: Any) -> Float:
    """exp(x - top) where x <= top, and 0 where both are -inf."""
    difference = x - np.where(np.isneginf(top), 0.0, top)
    return np.exp(difference, out=difference)
