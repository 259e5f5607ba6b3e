"""The paper's yardstick, its null and its repair: predictions against what was done in similar states.

The frequencies among the k nearest states of the test log stand for the truth in the paper. They are noisy, and
smoothed over everything a neighbourhood holds; a model that smooths in the same way agrees with them however wrong
it is, and the true policy does not. So the number comes with what it would be if the model were right
(:func:`neighbourhood_calibration`, ``null``), and with a second one that smooths the model too: there the truth
scores the floor and nothing else does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from caliope.behaviour import Exact, NeighbourPolicy
from caliope.behaviour.search import Search
from caliope.calibration.nulls import AgainstNull, Imagined, against_draws, check_draws
from caliope.ragged import Float, Int
from caliope.trajectories import Trajectories

_JITTER = 1e-3  # standard deviations; breaks ties between states that are alike
_CELLS = 4_000_000  # neighbours times actions, looked up at once


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """States of a log, and the rows of the log that are nearest to each: made once, used for every model."""

    rows: Int  # (M,)
    ids: Int  # (M, k)
    actions: Int  # (N,), what was done in every row of the log
    n_actions: int

    @property
    def k(self) -> int:
        """How many neighbours each state has."""
        return int(self.ids.shape[1])

    def histograms(self, actions: Int | None = None) -> Float:
        """How often each action was taken in each neighbourhood, (M, A); also for imagined actions, (N,)."""
        done = (self.actions if actions is None else actions)[self.ids]
        cell = done + self.n_actions * np.arange(len(self.ids))[:, None]
        counts = np.bincount(cell.ravel(), minlength=self.n_actions * len(self.ids))
        return counts.reshape(len(self.ids), self.n_actions) / self.k

    def mean_of(self, table: Float) -> Float:
        """Mean of each column over each neighbourhood, (M, A)."""
        result = np.empty((len(self.ids), table.shape[1]))
        size = max(1, _CELLS // (self.k * table.shape[1]))
        for start in range(0, len(result), size):
            part = slice(start, start + size)
            result[part] = table[self.ids[part]].mean(axis=1)
        return result


def neighbourhoods(
    data: Trajectories,
    rows: ArrayLike | None = None,
    *,
    k: int = 150,
    feature_weights: ArrayLike | None = None,
    search: Search = Exact(),  # noqa: B008  # frozen
    own: Literal["include", "trajectory"] = "trajectory",
) -> Neighbourhoods:
    """Find the k nearest states of the same log for each of some states of it.

    Columns are standardised first. ``feature_weights`` is the kernel: the paper counts informative features twice.
    By default a state's own trajectory is not among its neighbours: its next states carry the memory of its action.
    Where others than the own trajectory are fewer than k, all of them are taken. Ties between equal states are broken
    at random, for each state anew.
    """
    asked = np.arange(data.n_steps) if rows is None else np.asarray(rows)
    if asked.dtype.kind not in "iu" or not len(asked) or asked.min() < 0 or asked.max() >= data.n_steps:
        raise ValueError(f"rows must be numbers of steps from 0 to {data.n_steps - 1}, at least one.")
    x = data.states.astype(np.float64)
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if len(np.unique(data.states[: 1 << 14], axis=0)) < 0.99 * min(data.n_steps, 1 << 14):
        # States that are alike would all have the same neighbours, and a few rows would stand for the whole log.
        x += _JITTER * np.random.default_rng(0).standard_normal(x.shape)
    others = data.n_steps - (int(data.lengths.max()) if own == "trajectory" else 0)
    if others < 1:
        raise ValueError("a log of one trajectory has no neighbours beyond it: give more trajectories.")
    finder = NeighbourPolicy(min(k, others), search=search, feature_weights=feature_weights)
    finder.fit(x, data.actions, groups=data.layout.owner)
    _, ids = finder.neighbours_of(asked, own)
    # Those left out stand as -1 among the others; move them to the end and cut.
    first = np.argsort(ids < 0, axis=1, kind="stable")[:, : finder.k_]
    kept = np.take_along_axis(ids, first, axis=1)
    if (kept < 0).any():
        raise ValueError(f"{search} did not find {finder.k_} neighbours for every state; use Exact().")
    return Neighbourhoods(asked, kept, data.actions, data.n_actions)


@dataclass(frozen=True, eq=False)
class NeighbourhoodCalibration:
    """Total variation between each neighbourhood and a model, state by state, and in R imagined logs."""

    paper: Float  # (M,), to the prediction in the state itself
    averaged: Float  # (M,), to the mean prediction over the neighbourhood
    null_paper: Float  # (R, M)
    null_averaged: Float  # (R, M)
    noise: Float  # (M,), exact floor of a perfect model whose neighbours are all alike
    floor: Float  # (M,), floor of the averaged one, in closed form

    def paper_metric(self, weights: Float | None = None) -> AgainstNull:
        """The paper's number, a mean over the states or a weighted one, against its null."""
        w = self._shares(weights)
        return against_draws(w @ self.paper, self.null_paper @ w)

    def averaged_metric(self, weights: Float | None = None) -> AgainstNull:
        """The neighbourhood-averaged number, a mean over the states or a weighted one, against its null."""
        w = self._shares(weights)
        return against_draws(w @ self.averaged, self.null_averaged @ w)

    def _shares(self, weights: Float | None) -> Float:
        return np.full(len(self.paper), 1 / len(self.paper)) if weights is None else weights / weights.sum()


def neighbourhood_calibration(
    table: Float, near: Neighbourhoods, *, n_draws: int = 100, rng: int | np.random.Generator
) -> NeighbourhoodCalibration:
    r"""Compare a model with what was done around each state, as the paper does and as it should be done.

    With h the frequencies of the actions among the k neighbours N(s),

    .. math:: \text{paper: } \delta(h_s, \hat\pi(\cdot \mid s)), \qquad
        \text{averaged: } \delta\Big(h_s, \frac1k \sum_{j \in N(s)} \hat\pi(\cdot \mid s_j)\Big)

    :math:`\delta` being total variation. The null keeps the neighbours and draws every action anew from the model.

    When it breaks: the paper's number is circular, it rewards smoothing like a neighbourhood. The averaged one cannot
    see errors that cancel inside a neighbourhood, so that a neighbour model is still judged too kindly: look at the
    log-likelihood beside it. The null takes decisions as independent given the states; where a hidden habit ties those
    of a trajectory together, even the best model of the state exceeds it.

    Parameters
    ----------
    table : array of shape (N, A)
        The model's probabilities at every row of the log.
    near : Neighbourhoods
        From :func:`neighbourhoods`.
    n_draws : int
        Imagined logs.
    rng : int or Generator
        Seed.

    References
    ----------
    Raghu et al. (2018), appendix B, for the first number.
    """
    check_draws(n_draws)
    here, around = table[near.rows], near.mean_of(table)
    imagined = Imagined(table, np.random.default_rng(rng))
    null = np.empty((2, n_draws, len(near.rows)))
    for r in range(n_draws):
        h = near.histograms(imagined.draw())
        null[0, r], null[1, r] = total_variation(h, here), total_variation(h, around)
    h = near.histograms()
    return NeighbourhoodCalibration(
        total_variation(h, here),
        total_variation(h, around),
        null[0],
        null[1],
        noise_floor(here, near.k),
        averaged_floor(table, near),
    )


def total_variation(p: Float, q: Float) -> Float:
    r"""Half the sum of absolute differences, :math:`\delta(p, q) = \frac12 \sum_a |p_a - q_a|`, a row."""
    return np.asarray(0.5 * np.abs(p - q).sum(axis=-1))


def noise_floor(table: Float, k: int) -> Float:
    r"""Expected total variation between probabilities and the frequencies in k draws from them, a row; exact.

    .. math:: E|X/k - p| = \frac{2}{k} (m + 1) \binom{k}{m + 1} p^{m+1} (1 - p)^{k - m},\qquad m = \lfloor kp \rfloor

    Even a perfect model scores this much: 0.157 for 25 equally likely actions and 150 neighbours.

    References
    ----------
    De Moivre (1730), the mean absolute deviation of a binomial.
    """
    p = np.asarray(table, dtype=np.float64)
    m = np.minimum(np.floor(k * p), k - 1)
    inside = (p > 0) & (p < 1)
    safe = np.where(inside, p, 0.5)
    log = (
        np.log(2 * (m + 1) / k)
        + gammaln(k + 1) - gammaln(m + 2) - gammaln(k - m)
        + (m + 1) * np.log(safe)
        + (k - m) * np.log1p(-safe)
    )  # fmt: skip
    return np.asarray(0.5 * np.where(inside, np.exp(log), 0.0).sum(axis=1))


def averaged_floor(table: Float, near: Neighbourhoods) -> Float:
    r"""Expected value of the averaged number for a model that is right, in closed form, a state.

    .. math:: \frac{1}{2k} \sum_a \sqrt{\frac2\pi \sum_{j \in N(s)} \hat\pi(a \mid s_j)(1 - \hat\pi(a \mid s_j))}

    The frequencies are taken to be normal: good to a thousandth with 150 neighbours and actions that are not rare, less
    so where most expected counts are below one.
    """
    variance = near.mean_of(table * (1 - table)) * near.k
    return np.asarray(0.5 * np.sqrt(2 / np.pi * variance).sum(axis=1) / near.k)
