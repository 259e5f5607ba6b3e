"""Columns of evidence that do not depend on counts: cached, and computed a part at a time where the log is long."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

import numpy as np

from caliope._derived import derived
from caliope._in_parts import InParts
from caliope._ragged import Float, Int, column_max

T = TypeVar("T")


class EvidenceColumns(InParts):
    """What is derived of rewards, ratios and values, trajectory by trajectory.

    Columns over steps that a part is asked for are of that part; whoever asks a long log for a whole one has it in
    memory.
    """

    gamma: float

    def once(self, what: Hashable, compute: Callable[[], T]) -> T:
        """What was computed of this evidence, at the first call that names it."""
        known: dict[Hashable, T] = self._derived
        try:
            hash(what)
        except TypeError:
            return compute()
        if what not in known:
            known[what] = compute()
        return known[what]

    def forget(self) -> None:
        """Let go of derived columns, which are computed again when they are asked for; the layout is shared."""
        layout = self.layout
        self._derived.clear()
        self._derived["layout"] = layout

    @derived
    def discount(self) -> Float:
        r""":math:`\gamma^t` for every t up to the longest trajectory, (T,)."""
        return self.gamma ** np.arange(self.layout.horizon, dtype=np.float64)

    @derived
    def returns(self) -> Float:
        r""":math:`G_i = \sum_t \gamma^t r_t`, (n,)."""
        return self.per_trajectory(lambda part: part.sum_steps(part.rewards))

    @derived
    def largest(self) -> float:
        r"""The largest :math:`|G_i|` or :math:`|\hat V_t|`: what rounding is measured by."""
        found = [float(np.abs(self.returns).max())]
        if self.v is not None:
            found += [float(np.abs(np.asarray(part.v)).max()) for part in self.parts()]
        return max(found)

    @derived
    def log_rho(self) -> Float:
        r""":math:`\log \rho_t = \sum_{j \le t} \log \lambda_j`, or ``log_weight`` where that is given, (N,)."""
        if self.log_weight is not None:
            return self.log_weight
        if self._whole is not None:
            return self.entries_of(self._whole.log_rho)
        return self.per_step(lambda part: part.layout.cumulate(part.log_ratio))

    @derived
    def log_last(self) -> Float:
        r""":math:`\log \rho_{T_i - 1}` of each whole trajectory, (n,)."""
        return self.per_trajectory(lambda part: part.log_rho[part.layout.last])

    @derived
    def rho(self) -> Float:
        r""":math:`\rho_t = \prod_{j=0}^{t} \lambda_j`, step t included (the paper's appendix), (N,)."""
        return _exp(self.log_rho)

    @derived
    def rho_before(self) -> Float:
        r""":math:`\rho_{t-1}`, with :math:`\rho_{-1} = 1`, (N,)."""
        return self.layout.before(self.rho, 1.0)

    @derived
    def log_scale(self) -> Float:
        r"""Largest :math:`\log \rho_t` at each t, an ended trajectory keeping its last one, (T,)."""
        if self._whole is not None:
            return np.asarray(self._whole.log_scale[: self.layout.horizon])
        scale = np.full(self.layout.horizon, -np.inf)
        for part in self.parts():
            for group, block in part.layout.blocks(part.log_rho):
                np.maximum(scale[: group.length], column_max(block), out=scale[: group.length])
                scale[group.length :] = np.maximum(scale[group.length :], block[:, -1].max())
        return scale

    @derived
    def weight(self) -> Float:
        r""":math:`\rho_t` divided by the largest at the same t, (N,).

        The divisor cancels in self-normalised ratios; without it a product of hundreds leaves the range of a float.
        """
        if self.layout.equal:
            return exp_difference(self.log_rho.reshape(len(self), -1), self.log_scale).ravel()
        return exp_difference(self.log_rho, self.log_scale[self.layout.time])

    @derived
    def weight_before(self) -> Float:
        """``weight`` of the step before, with 1 before the first, (N,)."""
        return self.layout.before(self.weight, 1.0)

    @derived
    def final_weight(self) -> Float:
        r""":math:`\rho_{T_i - 1}` of each whole trajectory divided by the largest, (n,)."""
        return exp_difference(self.log_last, self.log_last.max())

    @derived
    def first_v(self) -> Float:
        r""":math:`\hat V(s_0)` of each trajectory, (n,)."""
        return self.per_trajectory(lambda part: np.asarray(part.v)[part.layout.first])

    @derived
    def last_rho(self) -> Float:
        r""":math:`\rho_{T_i - 1}` of each whole trajectory, (n,)."""
        return _exp(self.log_last)

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

    @property
    def temporal_difference(self) -> Float:
        r""":math:`r_t + \gamma \hat V_{t+1} - \hat Q_t`, (N,); 0 for what followed a trajectory that was cut off."""
        v = np.zeros(len(self.rewards)) if self.v is None else self.v
        return self.residual + self.gamma * self.layout.after(v, 0.0)

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

    def final_weight_by_length(self) -> Iterator[tuple[Int, Float]]:
        """Yield the trajectories of each length, and their ``final_weight`` relative to the largest among them."""
        order = np.arange(len(self)) if self.layout.order is None else self.layout.order
        for group in self.layout.groups:
            members = order[group.members]
            yield members, exp_difference(self.log_last[members], self.log_last[members].max())


def _exp(x: Float) -> Float:
    """exp(x), infinite where it is too large for a float."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(x))


def exp_difference(x: Float, top: Any) -> Float:
    """exp(x - top) where x <= top, and 0 where both are -inf."""
    difference = x - np.where(np.isneginf(top), 0.0, top)
    return np.exp(difference, out=difference)
