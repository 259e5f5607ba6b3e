"""Proper scores: losses that the true policy, and no other, makes smallest in the long run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from caliope.behaviour import Chain, Isotonic, Shrinkage, Temperature, VectorScaling
from caliope.calibration.nulls import check_table, row_of
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories

Loss = Callable[[Float, Int], Float]  # probabilities (N, A), actions (N,) -> loss of each step (N,)


def log_loss(table: Float, actions: Int) -> Float:
    r"""How surprised the model was, :math:`-\log \hat\pi(a_t \mid s_t)`, a step; its mean is the NLL.

    Infinite where the model gives a logged action probability 0: no importance weight exists there either.
    """
    with np.errstate(divide="ignore"):
        return -np.log(row_of(table, actions))


def brier_loss(table: Float, actions: Int) -> Float:
    r"""Squared distance to what was done, :math:`\sum_a (\hat\pi(a \mid s_t) - 1\{a = a_t\})^2`, a step."""
    return np.asarray(np.vecdot(table, table) - 2 * row_of(table, actions) + 1)


def marginal_baseline(data: Trajectories) -> Float:
    """What one knows without looking at the patient: how often other trajectories took each action, (N, A)."""
    return _frequencies_of_others(data, np.zeros(data.n_steps, dtype=np.int64))


def repeat_baseline(data: Trajectories) -> Float:
    """What one knows from the last action alone: how often each action followed it in other trajectories, (N, A)."""
    last = np.where(data.layout.time > 0, np.roll(data.actions, 1), data.n_actions)
    return _frequencies_of_others(data, last)


def _frequencies_of_others(data: Trajectories, seen: Int) -> Float:
    """Frequency of each action given what was seen, the own trajectory left out; one count is spread over all."""
    n_actions, kinds = data.n_actions, int(seen.max()) + 1
    total = np.bincount(seen * n_actions + data.actions, minlength=kinds * n_actions).reshape(
        kinds, n_actions
    )
    key, own = np.unique(data.layout.owner * kinds + seen, return_inverse=True)
    mine = np.bincount(own * n_actions + data.actions, minlength=len(key) * n_actions)
    others = total[seen] - mine.reshape(len(key), n_actions)[own]
    return (others + 1 / n_actions) / (others.sum(axis=1, keepdims=True) + 1)


def skill(loss: float, baseline: float) -> float:
    """Share of the baseline's loss that is saved; 0 is no better, 1 perfect, below 0 worse. nan if there is none."""
    return 1 - loss / baseline if baseline > 0 else float("nan")


@dataclass(frozen=True)
class SplitLoss:
    """A loss as what recalibration could save, and what only a better model could."""

    total: float
    refinement: float
    by: str  # the recalibration that saves most

    @property
    def calibration(self) -> float:
        """Loss that the best recalibration takes away."""
        return self.total - self.refinement


def split_loss(
    table: Float,
    data: Trajectories,
    loss: Loss = log_loss,
    *,
    max_steps: int = 20_000,
    rng: int | np.random.Generator,
) -> SplitLoss:
    """Part a mean loss into calibration and refinement.

    Several recalibrations are each fitted on one half of the trajectories and scored on the other; the best mean loss,
    or that of no recalibration at all, is the refinement. With few steps recalibration overfits, and the calibration
    part is an underestimate. Of a longer log a share of ``max_steps`` is looked at; the total is that of all.

    References
    ----------
    Berta, Bach & Jordan (2025), "Rethinking early stopping: refine, then calibrate".
    """
    table, rng = check_table(table, data), np.random.default_rng(rng)
    total = float(loss(table, data.actions).mean())
    half = np.zeros(len(data), dtype=bool)
    half[rng.permutation(len(data))[: len(data) // 2]] = True
    side = half[data.layout.owner]
    looked = data.layout.rows_of(np.sort(rng.permutation(len(data))[: _enough(data, max_steps)]))
    parts = [looked[side[looked]], looked[~side[looked]]]
    if not all(len(part) for part in parts):
        return SplitLoss(total, total, "nothing")
    plain = _mean_loss(loss, [table[part] for part in parts], parts, data)
    scores = {"nothing": plain} | {
        name: _mean_loss(
            loss,
            [c.fit(table[a], data.actions[a])(table[b]) for a, b in (parts, parts[::-1])][::-1],
            parts,
            data,
        )
        for name, c in _recalibrations(zeros=bool((row_of(table, data.actions) == 0).any())).items()
    }
    best = min(scores, key=lambda name: scores[name])
    if not np.isfinite(total):
        return SplitLoss(total, scores[best], best)
    return SplitLoss(total, total - (plain - scores[best]), best)


def _recalibrations(*, zeros: bool) -> dict[str, Chain]:
    # Where the model rules out what was done shrinkage comes first: the others need a positive probability.
    first = (Shrinkage(),) if zeros else ()
    return {
        "shrinkage": Chain((Shrinkage(),)),
        "temperature": Chain((*first, Temperature())),
        "vector scaling": Chain((*first, VectorScaling(tolerance=1e-6))),
        "isotonic regression": Chain((*first, Isotonic())),
    }


def _mean_loss(loss: Loss, tables: list[Float], parts: list[Int], data: Trajectories) -> float:
    losses = [loss(table, data.actions[part]) for table, part in zip(tables, parts, strict=True)]
    return float(np.concatenate(losses).mean())


def _enough(data: Trajectories, max_steps: int) -> int:
    return max(2, min(len(data), int(len(data) * max_steps / data.n_steps)))
