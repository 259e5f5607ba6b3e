"""Neighbourhood calibration: the paper's metric, its null, and the neighbourhood-averaged metric.

The paper compares a model with action frequencies among the k nearest states of the test log. These are noisy and
smoothed over the neighbourhood: a model that smooths in the same way agrees with them however wrong it is, and the
true policy does not. So the metric comes with its null, what it would be if the model were right, and with a second
metric that averages the model over the neighbourhood too: there the true policy scores the floor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope.behaviour._neighbours import NeighbourPolicy
from caliope.behaviour._search import Exact, Search
from caliope.calibration._null import AgainstNull, ModelDraws, against_draws, check_draws

# In standard deviations; breaks ties between equal states.
_JITTER = 1e-3
# Neighbours times actions, looked up together.
_CELLS = 4_000_000


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """States of a log with their nearest neighbours: found once, used for every model.

    Parameters
    ----------
    rows : (M,)
        Steps whose neighbours were found.
    ids : (M, k)
        Steps of the log that are nearest to each.
    actions : (N,)
        Logged action of every step.
    n_actions : int
        Number of actions A.

    Examples
    --------
    >>> near = Neighbourhoods(np.array([0]), np.array([[1, 2, 3, 4]]), np.array([0, 1, 1, 0, 1]), 2)
    >>> near.histograms().tolist()
    [[0.25, 0.75]]
    """

    rows: Int
    ids: Int
    actions: Int
    n_actions: int

    @property
    def k(self) -> int:
        """Number of neighbours of each state."""
        return int(self.ids.shape[1])

    def histograms(self, actions: Int | None = None) -> Float:
        """Return the frequency of each action in each neighbourhood, (M, A), of the log or of other actions (N,)."""
        done = (self.actions if actions is None else actions)[self.ids]
        cell = done + self.n_actions * np.arange(len(self.ids))[:, None]
        counts = np.bincount(cell.ravel(), minlength=self.n_actions * len(self.ids))
        return counts.reshape(len(self.ids), self.n_actions) / self.k

    def mean_of(self, table: Float) -> Float:
        """Average each column over each neighbourhood, (M, A)."""
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
    """Find the k nearest states of the same log for some of its states.

    Features are standardised first. Ties between equal states are broken at random, separately for each state.

    Parameters
    ----------
    data : Trajectories
        The log.
    rows : (M,), optional
        Steps whose neighbours to find; by default all.
    k : int
        Number of neighbours; fewer where the log has fewer.
    feature_weights : (d,), optional
        Weight of each feature in the distance; the paper counts informative features twice.
    search : Exact, InvertedLists or RandomProjections
        How neighbours are found.
    own : {"trajectory", "include"}
        By default the own trajectory is left out: its next states depend on the action.

    Returns
    -------
    Neighbourhoods
        The steps and their neighbours.

    Examples
    --------
    >>> from caliope.domains import zoo
    >>> data = zoo.simulate(zoo.linear(10, rng=0), 50, rng=1)
    >>> neighbourhoods(data, [0, 10], k=20).ids.shape
    (2, 20)
    """
    states = np.arange(data.n_steps) if rows is None else np.asarray(rows)
    if states.dtype.kind not in "iu" or not len(states) or states.min() < 0 or states.max() >= data.n_steps:
        raise ValueError(f"rows must be numbers of steps from 0 to {data.n_steps - 1}, at least one.")
    x = data.states.astype(np.float64)
    spread = x.std(axis=0)
    x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    if len(np.unique(data.states[: 1 << 14], axis=0)) < 0.99 * min(data.n_steps, 1 << 14):
        # Equal states would all have the same neighbours, and a few rows would represent the whole log.
        x += _JITTER * np.random.default_rng(0).standard_normal(x.shape)
    largest = int(data.layout.pool(data.lengths).max())
    others = data.n_steps - (largest if own == "trajectory" else 0)
    if others < 1:
        raise ValueError("a log of one trajectory has no neighbours beyond it: give more trajectories.")
    finder = NeighbourPolicy(min(k, others), search=search, feature_weights=feature_weights)
    finder.fit(x, data.actions, groups=data.layout.unit_of_step)
    _, ids = finder.neighbours_of(states, own)
    # Rows left out are -1: move them to the end and cut.
    first = np.argsort(ids < 0, axis=1, kind="stable")[:, : finder.k_]
    kept = np.take_along_axis(ids, first, axis=1)
    if (kept < 0).any():
        raise ValueError(f"{search} did not find {finder.k_} neighbours for every state; use Exact().")
    return Neighbourhoods(states, kept, data.actions, data.n_actions)


@dataclass(frozen=True, eq=False)
class NeighbourhoodCalibration:
    """Total variation between each neighbourhood and a model, per state, with R draws from the model.

    Parameters
    ----------
    paper, averaged : (M,)
        Distance to the prediction in the state itself, and to the mean prediction over the neighbourhood.
    null_paper, null_averaged : (R, M)
        The same in draws from the model.
    noise : (M,)
        Exact floor of a perfect model where all neighbours have the same probabilities.
    floor : (M,)
        Floor of ``averaged``, in closed form.

    Examples
    --------
    >>> one, draws = np.array([0.25]), np.array([[0.125], [0.25]])
    >>> NeighbourhoodCalibration(one, one, draws, draws, one, one).paper_metric().excess
    0.0625
    """

    paper: Float
    averaged: Float
    null_paper: Float
    null_averaged: Float
    noise: Float
    floor: Float

    def paper_metric(self, weights: Float | None = None) -> AgainstNull:
        """Average the paper's metric over the states, plain or weighted, and compare it with its null."""
        w = self._shares(weights)
        return against_draws(w @ self.paper, self.null_paper @ w)

    def averaged_metric(self, weights: Float | None = None) -> AgainstNull:
        """Average the second metric over the states, plain or weighted, and compare it with its null."""
        w = self._shares(weights)
        return against_draws(w @ self.averaged, self.null_averaged @ w)

    def _shares(self, weights: Float | None) -> Float:
        return np.full(len(self.paper), 1 / len(self.paper)) if weights is None else weights / weights.sum()


def neighbourhood_calibration(
    table: Float, near: Neighbourhoods, *, n_draws: int = 100, rng: int | np.random.Generator
) -> NeighbourhoodCalibration:
    r"""Compare a model with the action frequencies around each state, by the paper's metric and the averaged one.

    With h the frequencies of the actions among the k neighbours N(s),

    .. math:: \text{paper: } \delta(h_s, \hat\pi(\cdot \mid s)), \qquad
        \text{averaged: } \delta\Big(h_s, \frac1k \sum_{j \in N(s)} \hat\pi(\cdot \mid s_j)\Big)

    :math:`\delta` being total variation. The null keeps the neighbours and draws every action anew from the model.

    When it breaks: the paper's metric is circular, because it rewards smoothing over neighbourhoods. The averaged one
    misses errors that cancel inside a neighbourhood, so that neighbour models look too good: compare the log loss.
    The null takes decisions as independent given the states. Where an unmeasured cause ties the decisions of a
    trajectory together, even the best model of the state exceeds it.

    Parameters
    ----------
    table : array of shape (N, A)
        The model's probabilities at every row of the log.
    near : Neighbourhoods
        From :func:`neighbourhoods`.
    n_draws : int
        Draws from the model.
    rng : int or Generator
        Seed.

    Returns
    -------
    NeighbourhoodCalibration
        Both metrics for each state, with their nulls and floors.

    References
    ----------
    Raghu et al. (2018), appendix B, for the first metric.

    Examples
    --------
    >>> from caliope.domains import zoo
    >>> policy = zoo.linear(10, rng=0)
    >>> data = zoo.simulate(policy, 50, rng=1)
    >>> near = neighbourhoods(data, k=50)
    >>> result = neighbourhood_calibration(policy.predict_proba(data.states), near, rng=0)
    >>> abs(result.averaged_metric().z) < 3
    True
    """
    check_draws(n_draws)
    here, around = table[near.rows], near.mean_of(table)
    model = ModelDraws(table, np.random.default_rng(rng))
    null = np.empty((2, n_draws, len(near.rows)))
    for r in range(n_draws):
        h = near.histograms(model.draw())
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
    r"""Compute the total variation of each row, :math:`\delta(p, q) = \frac12 \sum_a |p_a - q_a|`.

    Parameters
    ----------
    p, q : (..., A)
        Probabilities of the actions.

    Returns
    -------
    (...)
        Distances between 0 and 1.

    Examples
    --------
    >>> total_variation(np.array([[0.5, 0.5]]), np.array([[0.75, 0.25]])).tolist()
    [0.25]
    """
    return np.asarray(0.5 * np.abs(p - q).sum(axis=-1))


def noise_floor(table: Float, k: int) -> Float:
    r"""Compute the expected total variation between probabilities and frequencies in k draws; exact.

    .. math:: E|X/k - p| = \frac{2}{k} (m + 1) \binom{k}{m + 1} p^{m+1} (1 - p)^{k - m},\qquad m = \lfloor kp \rfloor

    Even a perfect model scores this much: 0.157 for 25 equally likely actions and 150 neighbours.

    Parameters
    ----------
    table : (N, A)
        Probabilities.
    k : int
        Number of draws.

    Returns
    -------
    (N,)
        Expected distance of each row.

    References
    ----------
    De Moivre (1730), the mean absolute deviation of a binomial.

    Examples
    --------
    >>> noise_floor(np.full((1, 25), 1 / 25), 150).round(3).tolist()
    [0.157]
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
    r"""Compute the expected averaged metric of a model that is right, in closed form.

    .. math:: \frac{1}{2k} \sum_a \sqrt{\frac2\pi \sum_{j \in N(s)} \hat\pi(a \mid s_j)(1 - \hat\pi(a \mid s_j))}

    The frequencies are approximated as normal. The error is about a thousandth with 150 neighbours and no rare
    actions, and larger where most expected counts are below one.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities at every row of the log.
    near : Neighbourhoods
        From :func:`neighbourhoods`.

    Returns
    -------
    (M,)
        Floor for each state.

    Examples
    --------
    >>> near = Neighbourhoods(np.array([0]), np.arange(1, 101)[None], np.zeros(101, dtype=int), 2)
    >>> averaged_floor(np.full((101, 2), 0.5), near).round(3).tolist()
    [0.04]
    """
    variance = near.mean_of(table * (1 - table)) * near.k
    return np.asarray(0.5 * np.sqrt(2 / np.pi * variance).sum(axis=1) / near.k)
