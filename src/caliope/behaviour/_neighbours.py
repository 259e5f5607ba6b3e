"""A behaviour policy from nearest neighbours: the frequencies of the actions in similar states."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._policies import action_probabilities
from caliope._ragged import Float, Int, at_actions
from caliope.behaviour._fit import (
    MostLikelyAction,
    assign_folds,
    fit_model,
    get_out_of_fold,
    number_groups,
    predict_out_of_fold,
)
from caliope.behaviour._frequencies import STRENGTHS, is_strength, marginal_without_own, score_logged, shrink
from caliope.behaviour._search import Exact, Search

Own = Literal["include", "point", "trajectory"]
# Squared bandwidths to try, as shares of the spread of distances.
_WIDTHS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
# Points of the log searched at once, and neighbours fetched at once.
_ROWS = 8192
_FETCHED = 1 << 22
# Points of the log that choose shrinkage and bandwidth.
_TUNED = 20_000
# Steps of the own trajectory expected among the nearest; where there are more, more neighbours are fetched.
_SPARE = 32
# The largest squared norm; float32 ends at 3.4e38.
_LARGEST = 1e37


class NeighbourPolicy(MostLikelyAction, BaseEstimator):  # type: ignore[misc]
    r"""Action probabilities as the frequencies of the actions among the k most similar states.

    .. math:: \hat\pi(a \mid s) = \frac{\sum_{j \in N_k(s)} \kappa_j 1\{a_j = a\} + m\, \bar\pi(a \mid s)}
        {\sum_{j \in N_k(s)} \kappa_j + m}

    with :math:`\bar\pi` the ``prior`` and m the ``shrinkage``. Without shrinkage an action that no neighbour took has
    probability 0, and weights cannot be computed where it was taken. In many dimensions neighbours are hardly more
    similar than other points: standardise the features, and use few columns or a learned metric. Of equally near states
    a fixed random choice is taken, not the first in the file.

    Parameters
    ----------
    k : int
        Number of neighbours; all points where there are fewer.
    search : Exact, InvertedLists or RandomProjections
        How neighbours are found.
    feature_weights : array-like of shape (d,), optional
        Weights w of the squared distance :math:`\sum_i w_i (s_i - s'_i)^2`; the paper uses 2 for informative features.
    columns : sequence of int, optional
        The columns in which states are compared, by default all; a prior uses all columns in any case.
    shrinkage : float, "cv" or None
        Strength m of the shrinkage towards the prior, counted in neighbours. ``"cv"`` chooses it on predictions without
        the own trajectory: first the fewest logged actions of probability 0, then the likelihood of the others.
    prior : unfitted classifier, optional
        The probabilities to shrink towards, by default the frequencies in the whole log.
        :class:`~caliope.behaviour.TabularFrequencies` on one column shrinks towards its stratum; with any other model
        the neighbours are a local correction of it.
    bandwidth : float, "cv" or None
        With a number h, a neighbour at squared distance :math:`d^2` has weight
        :math:`\kappa = \exp(-\max(d^2 - d_0^2, 0) / 2 h^2)`, with :math:`d_0` the median distance to the nearest
        point of another trajectory. ``"cv"`` chooses h together with m. None: all k have weight 1.
    own : {"trajectory", "point", "include"}
        Which neighbours count when the log itself is predicted (:meth:`predict_own`): all but the own trajectory, all
        but the point itself, or all. Steps of one trajectory are nearly copies, so leaving out the point alone
        hides overfitting.

    Examples
    --------
    >>> from caliope.behaviour import NeighbourPolicy
    >>> model = NeighbourPolicy(2, shrinkage=1.0).fit([[0.0], [1.0], [5.0], [6.0]], [0, 0, 1, 1])
    >>> model.predict_proba([[0.4], [5.2]]).round(2)
    array([[0.83, 0.17],
           [0.17, 0.83]])

    References
    ----------
    Raghu et al. (2018), section 4 and appendix B.
    """

    def __init__(
        self,
        k: int = 150,
        *,
        search: Search = Exact(),  # noqa: B008
        feature_weights: ArrayLike | None = None,
        columns: ArrayLike | None = None,
        shrinkage: float | Literal["cv"] | None = None,
        prior: Any = None,
        bandwidth: float | Literal["cv"] | None = None,
        own: Own = "trajectory",
    ) -> None:
        self.k = k
        self.search = search
        self.feature_weights = feature_weights
        self.columns = columns
        self.shrinkage = shrinkage
        self.prior = prior
        self.bandwidth = bandwidth
        self.own = own

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> NeighbourPolicy:
        """Index the states and their actions; ``groups`` names the trajectory of each row."""
        x, actions = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(actions)
        self._check_settings()
        self.classes_, self.actions_ = np.unique(actions, return_inverse=True)
        self.groups_ = number_groups(groups, len(x))
        scale = _root_weights(self.feature_weights, x.shape[1])
        self.columns_ = _check_columns(self.columns, scale)
        self.scale_ = scale[self.columns_]
        with np.errstate(over="ignore"):
            # Centring keeps all distances, and more digits of them in float32.
            self.centre_ = x[:, self.columns_].mean(axis=0)
        # Of points equally near the first in the index wins: their order must not be that of the file.
        self.order_ = np.random.default_rng(0).permutation(len(x))
        self.place_ = np.argsort(self.order_)
        self.index_ = self.search.build(self._scale(x)[self.order_])
        self.k_ = min(int(self.k), len(x))
        self.marginal_ = np.bincount(self.actions_) / len(x)
        self._fit_prior(x)
        self._choose_settings()
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        table = np.empty((len(x), len(self.classes_)))
        for rows in _batches(len(x)):
            squared, ids = self._find_nearest(self._scale(x[rows]), self.k_)
            counts = self._count_actions(ids, self._weigh(squared, self.bandwidth_))
            table[rows] = shrink(*counts, self._prior_at(x[rows]), self.shrinkage_)
        return table

    def kneighbors(self, X: ArrayLike) -> tuple[Float, Int]:
        """Return distances and row numbers of the neighbours, nearest first, (N, k) each."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        squared, ids = self._find_nearest(self._scale(x), self.k_)
        return np.sqrt(squared), ids

    def predict_own(self, own: Own | None = None) -> Float:
        """Predict the points of the log itself, with the neighbours that ``own`` admits, (N, A).

        A prior is always out of fold: fitted without the trajectory of the point. The frequencies in the whole log
        leave out what ``own`` leaves out.
        """
        check_is_fitted(self)
        own = self.own if own is None else own
        table = np.empty((len(self.actions_), len(self.classes_)))
        for part in _batches(len(table)):
            rows = np.arange(part.start, part.stop)
            squared, ids = self.neighbours_of(rows, own)
            counts = self._count_actions(ids, self._weigh(squared, self.bandwidth_))
            table[part] = shrink(*counts, self._own_prior(rows, own), self.shrinkage_)
        return table

    @property
    def oof_proba_(self) -> Float:
        """Out-of-fold probabilities for the log: each from other trajectories alone, (N, A)."""
        return self.predict_own("trajectory")

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        # FAISS objects cannot be saved; the arrays that make them again can.
        return state | {"index_": state["index_"].arrays()} if "index_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "index_" in state:
            state = state | {"index_": state["search"].restore(state["index_"])}
        super().__setstate__(state)

    def _check_settings(self) -> None:
        if not isinstance(self.k, int | np.integer) or self.k < 1:
            raise ValueError(f"k must be a whole number, 1 or more, got {self.k!r}.")
        if isinstance(self.search, type) or not hasattr(self.search, "build"):
            raise TypeError(
                f"search must be Exact(), InvertedLists() or RandomProjections(), got {self.search!r}."
            )
        _check_own(self.own)
        if not (self.shrinkage in (None, "cv") or is_strength(self.shrinkage)):
            raise ValueError(
                f"shrinkage must be a finite number, 0 or more, 'cv' or None, got {self.shrinkage!r}."
            )
        if not (
            self.bandwidth in (None, "cv") or (is_strength(self.bandwidth) and float(self.bandwidth) ** 2 > 0)
        ):
            raise ValueError(f"bandwidth must be a positive number, 'cv' or None, got {self.bandwidth!r}.")

    def _scale(self, x: Float) -> Float:
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (x[:, self.columns_] - self.centre_) * self.scale_
        largest = np.abs(scaled).max(axis=0, initial=0)
        fits = largest <= np.sqrt(_LARGEST / len(largest))
        if not fits.all():
            worst = int(self.columns_[np.argmin(fits)])
            name = getattr(self, "feature_names_in_", {worst: worst})[worst]
            raise ValueError(
                f"column {name} reaches {np.abs(x[:, worst]).max():.3g}: distances are float32 and must stay below "
                "1e18. Is it a code for a missing value? Standardise the columns."
            )
        return np.ascontiguousarray(scaled, dtype=np.float32)

    def _find_nearest(self, points: Float, k: int) -> tuple[Float, Int]:
        squared, ids = self.index_.nearest(points, k)
        return squared, np.where(ids >= 0, self.order_[ids], -1)

    def _require_others(self, what: str, own: Own = "trajectory") -> None:
        if self._owner(own).max() == 0:
            raise ValueError(
                f"{what} needs at least 2 trajectories, got one, n_samples = {len(self.groups_)}."
            )

    # -- the prior --

    def _fit_prior(self, x: Float) -> None:
        if self.prior is None:
            return
        self._require_others("a prior")
        self.prior_ = fit_model(self.prior, x, self.actions_, self.groups_)
        stored = get_out_of_fold(self.prior_)
        if stored is None:
            fold = assign_folds(self.groups_, min(5, int(self.groups_.max()) + 1), 0)
            stored = predict_out_of_fold(self.prior, x, self.actions_, self.groups_, fold)
        self.prior_own_ = stored

    def _prior_at(self, x: Float) -> Float:
        if self.prior is None:
            return self.marginal_
        return action_probabilities(self.prior_, x, len(self.classes_))

    def _own_prior(self, rows: Int, own: Own) -> Float:
        if self.prior is not None:
            return self.prior_own_[rows]
        if own == "include":
            return self.marginal_
        return marginal_without_own(self.actions_, self._owner(own), rows)

    # -- the neighbours of points of the log --

    def _owner(self, own: Own) -> Int:
        return np.arange(len(self.actions_)) if own == "point" else self.groups_

    def neighbours_of(self, rows: Int, own: Own) -> tuple[Float, Int]:
        """Find the neighbours of rows of the log: squared distances and ids, nearest first, -1 for none, (N, k)."""
        _check_own(own)
        points = self.index_.arrays()["points"][self.place_[rows]]
        if own == "include":
            return self._find_nearest(points, self.k_)
        self._require_others(f"own={own!r}", own)
        owner = self._owner(own)
        squared = np.full((len(rows), self.k_), np.inf, dtype=np.float32)
        ids = np.full((len(rows), self.k_), -1)
        left, fetched = np.arange(len(rows)), self.k_ + min(_SPARE, int(np.bincount(owner).max()))
        while len(left):
            fetched = min(fetched, len(owner))
            more = np.zeros(len(left), dtype=bool)
            for part in _batches(len(left), max(1, _FETCHED // fetched)):
                these = left[part]
                near, near_ids = self._find_nearest(points[these], fetched)
                squared[these], ids[these] = _drop_own(near, near_ids, owner, owner[rows[these]], self.k_)
                more[part] = near_ids[:, -1] >= 0
            # Points with fewer than k neighbours of other owners fetch more, as long as there are any.
            left = left[more & (ids[left, -1] < 0) & (fetched < len(owner))]
            fetched *= 2
        return squared, ids

    def _weigh(self, squared: Float, bandwidth: float | None) -> Float | None:
        if bandwidth is None:
            return None
        beyond = np.maximum(squared.astype(np.float64) - self.typical_nearest_, 0)
        return np.exp(-beyond / (2 * bandwidth**2))

    def _count_actions(self, ids: Int, kernel: Float | None) -> tuple[Float, Float]:
        """Sum the weights of the neighbours by action, (N, A), and in all, (N,); id -1 is no neighbour."""
        weight = (ids >= 0).astype(np.float64) if kernel is None else np.where(ids >= 0, kernel, 0.0)
        n_actions = len(self.classes_)
        cell = self.actions_[ids] + n_actions * np.arange(len(ids))[:, None]
        counts = np.bincount(cell.ravel(), weights=weight.ravel(), minlength=n_actions * len(ids))
        return counts.reshape(len(ids), n_actions).astype(np.float64), weight.sum(axis=1)

    # -- shrinkage and bandwidth --

    def _choose_settings(self) -> None:
        """Set shrinkage and bandwidth: as given, or of the highest likelihood without the own trajectory."""
        self.typical_nearest_ = 0.0
        self.shrinkage_ = 0.0 if self.shrinkage in (None, "cv") else float(self.shrinkage)
        self.bandwidth_ = None if self.bandwidth in (None, "cv") else float(self.bandwidth)
        if self.shrinkage != "cv" and self.bandwidth is None:
            return
        if "cv" in (self.shrinkage, self.bandwidth):
            self._require_others("'cv'")
        # A random sample of the points is enough.
        n = len(self.actions_)
        rows = np.sort(np.random.default_rng(0).choice(n, min(n, _TUNED), replace=False))
        near = [self.neighbours_of(rows[part], "trajectory") for part in _batches(len(rows))]
        squared, ids = np.concatenate([x for x, _ in near]), np.concatenate([x for _, x in near])
        nearest, farthest = _end_distances(squared, ids >= 0)
        self.typical_nearest_ = float(np.median(nearest)) if len(nearest) else 0.0
        strengths = STRENGTHS if self.shrinkage == "cv" else (self.shrinkage_,)
        best = (-1, -np.inf)
        for bandwidth in (
            _list_bandwidths(nearest, farthest) if self.bandwidth == "cv" else (self.bandwidth_,)
        ):
            tables = self._predict_logged(rows, squared, ids, bandwidth, strengths)
            for strength, logged in zip(strengths, tables, strict=True):
                if (score := score_logged(logged)) > best:
                    best, self.bandwidth_, self.shrinkage_ = score, bandwidth, strength

    def _predict_logged(
        self, rows: Int, squared: Float, ids: Int, bandwidth: float | None, strengths: tuple[float, ...]
    ) -> Float:
        """Predict the logged actions of points of the log, for each strength, (S, N)."""
        logged = np.empty((len(strengths), len(rows)))
        for part in _batches(len(rows)):
            counts = self._count_actions(ids[part], self._weigh(squared[part], bandwidth))
            prior, taken = self._own_prior(rows[part], "trajectory"), self.actions_[rows[part]]
            for i, strength in enumerate(strengths):
                logged[i, part] = at_actions(shrink(*counts, prior, strength), taken)
        return logged


def _end_distances(squared: Float, exists: Any) -> tuple[Float, Float]:
    """Return squared distances to the nearest and the farthest neighbour, of the points that have any."""
    some = exists.any(axis=1)
    first = exists.argmax(axis=1)
    last = exists.shape[1] - 1 - exists[:, ::-1].argmax(axis=1)
    rows = np.arange(len(squared))
    return squared[rows, first][some], squared[rows, last][some]


def _list_bandwidths(nearest: Float, farthest: Float) -> tuple[float | None, ...]:
    """List the bandwidths to try: none, and shares of the distance between the first and the k-th neighbour."""
    spread = float(np.median(farthest - nearest)) if len(nearest) else 0.0
    return (None, *(float(np.sqrt(w * spread)) for w in _WIDTHS)) if spread > 0 else (None,)


def _drop_own(squared: Float, ids: Int, owner: Int, query_owner: Int, k: int) -> tuple[Float, Int]:
    """Keep the first k neighbours of other owners, filled up with -1."""
    own = (ids < 0) | (owner[ids] == query_owner[:, None])
    first = np.argsort(own, axis=1, kind="stable")[:, :k]
    squared, ids, own = (np.take_along_axis(x, first, axis=1) for x in (squared, ids, own))
    return np.where(own, np.inf, squared), np.where(own, -1, ids)


def _batches(n: int, size: int = _ROWS) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _check_own(own: Any) -> None:
    if own not in ("include", "point", "trajectory"):
        raise ValueError(f"own must be 'include', 'point' or 'trajectory', got {own!r}.")


def _root_weights(weights: ArrayLike | None, d: int) -> Float:
    if weights is None:
        return np.ones(d)
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (d,) or not (np.isfinite(w) & (w >= 0)).all():
        raise ValueError(
            f"feature_weights must be {d} finite numbers, 0 or more, one per feature, got shape {w.shape}."
        )
    return np.sqrt(w)


def _check_columns(columns: ArrayLike | None, scale: Float) -> Int:
    """Return the numbers of the columns that distances depend on."""
    d = len(scale)
    chosen = np.arange(d) if columns is None else np.unique(np.asarray(columns))
    if not (len(chosen) and np.issubdtype(chosen.dtype, np.integer) and chosen[0] >= 0 and chosen[-1] < d):
        raise ValueError(f"columns must be whole numbers from 0 to {d - 1}, got {columns!r}.")
    used = chosen[scale[chosen] > 0]
    if not len(used):
        raise ValueError("states cannot be compared: all feature_weights of the chosen columns are 0.")
    return used
