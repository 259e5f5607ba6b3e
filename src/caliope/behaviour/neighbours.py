"""A behaviour policy from neighbours: what was done in the states most like this one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope.behaviour.fitting import fit_model, fold_of_groups, group_numbers, kept_out_of_fold, out_of_fold
from caliope.behaviour.search import Exact, Search
from caliope.behaviour.shrinking import STRENGTHS, is_strength, likelihood, marginal_of_others, shrunk
from caliope.policies import action_probabilities
from caliope.ragged import Float, Int

Own = Literal["include", "point", "trajectory"]
WIDTHS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # squared bandwidths tried, see _bandwidths
_ROWS = 8192  # points of the log asked at once
_FETCHED = 1 << 22  # neighbours of them fetched at once
_TUNED = 20_000  # points of the log that choose shrinkage and bandwidth
_SPARE = 32  # own steps that are expected among the nearest; where there are more, more is fetched
_LARGEST = 1e37  # squared norms; float32 ends at 3.4e38


class NeighbourPolicy(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Probabilities of actions as their frequencies among the k most similar states.

    .. math:: \hat\pi(a \mid s) = \frac{\sum_{j \in N_k(s)} \kappa_j 1\{a_j = a\} + m\, \bar\pi(a \mid s)}
        {\sum_{j \in N_k(s)} \kappa_j + m}

    with :math:`\bar\pi` a ``prior``, by default the frequencies in the whole log, and m the ``shrinkage``. Without
    shrinkage an action that no neighbour took has probability 0, also where it was taken: then weights cannot be
    computed. In many dimensions neighbours are hardly more alike than strangers; standardise the features, and
    prefer few columns or a learned metric. Where more than k states are equally near, as discrete ones are, k of them
    are taken as if at random, the same ones every time, and not the first of the file.

    Parameters
    ----------
    k : int
        Number of neighbours; all points where there are fewer.
    search : Exact, InvertedLists or RandomProjections
        How they are found.
    feature_weights : array-like of shape (d,), optional
        Weights w of the kernel :math:`\sum_i w_i (s_i - s'_i)^2`; the paper has 2 for informative features.
    columns : sequence of int, optional
        The columns in which states are compared, by default all; a prior sees all of them in any case.
    shrinkage : float, "cv" or None
        Strength m of the pull towards the prior, in neighbours. ``"cv"`` chooses it by the likelihood of each point
        without its own trajectory: first the fewest actions of probability 0, then the likelihood of the others.
    prior : unfitted classifier, optional
        What to believe where neighbours are few. :class:`~caliope.behaviour.TabularFrequencies` on the column of a
        stratum shrinks towards that stratum; any other model makes of the neighbours a local correction of it.
    bandwidth : float, "cv" or None
        With a number h, a neighbour at squared distance :math:`d^2` counts
        :math:`\kappa = \exp(-\max(d^2 - d_0^2, 0) / 2 h^2)`, :math:`d_0` being the median distance of a point to the
        nearest of another trajectory; ``"cv"`` chooses h together with m. None: all k count the same.
    own : "include", "point" or "trajectory"
        What a point of the log may find when the log itself is asked for (:meth:`predict_own`): itself too,
        all but itself, or nothing of its own trajectory. Neighbouring steps of a patient are near copies, so
        that leaving out the point alone hides most of what one wants to see.

    References
    ----------
    Raghu et al. (2018), sections 4 and appendix B.
    """

    def __init__(
        self,
        k: int = 150,
        *,
        search: Search = Exact(),  # noqa: B008  # frozen
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
        """Remember the states and what was done in them; ``groups`` tells the trajectory of each row."""
        x, actions = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(actions)
        self._check_settings()
        self.classes_, self.actions_ = np.unique(actions, return_inverse=True)
        self.groups_ = group_numbers(groups, len(x))
        scale = _root_weights(self.feature_weights, x.shape[1])
        self.columns_ = _compared(self.columns, scale)
        self.scale_ = scale[self.columns_]
        with np.errstate(over="ignore"):
            # Distances do not mind, and float32 keeps more digits.
            self.centre_ = x[:, self.columns_].mean(axis=0)
        # Of points equally near the first in the index is taken: their order must not be that of the file.
        self.order_ = np.random.default_rng(0).permutation(len(x))
        self.place_ = np.argsort(self.order_)
        self.index_ = self.search.build(self._scaled(x)[self.order_])
        self.k_ = min(int(self.k), len(x))
        self.marginal_ = np.bincount(self.actions_) / len(x)
        self._fit_prior(x)
        self._choose()
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        table = np.empty((len(x), len(self.classes_)))
        for rows in _parts(len(x)):
            squared, ids = self._nearest(self._scaled(x[rows]), self.k_)
            counts = self._counts(ids, self._kernel(squared, self.bandwidth_))
            table[rows] = shrunk(*counts, self._prior_at(x[rows]), self.shrinkage_)
        return table

    def predict(self, X: ArrayLike) -> Any:
        """The most likely action."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def kneighbors(self, X: ArrayLike) -> tuple[Float, Int]:
        """Distances and row numbers of the neighbours, nearest first, (N, k) each."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        squared, ids = self._nearest(self._scaled(x), self.k_)
        return np.sqrt(squared), ids

    def predict_own(self, own: Own | None = None) -> Float:
        """Probabilities for the points of the log itself, with their own neighbours treated as ``own`` says.

        A prior is asked as it was cross-fitted: without the trajectory of the point. The frequencies in the whole
        log leave out what ``own`` leaves out.
        """
        check_is_fitted(self)
        treated = self.own if own is None else own
        table = np.empty((len(self.actions_), len(self.classes_)))
        for part in _parts(len(table)):
            rows = np.arange(part.start, part.stop)
            squared, ids = self.neighbours_of(rows, treated)
            counts = self._counts(ids, self._kernel(squared, self.bandwidth_))
            table[part] = shrunk(*counts, self._own_prior(rows, treated), self.shrinkage_)
        return table

    @property
    def oof_proba_(self) -> Float:
        """Probabilities for the log itself from other trajectories alone: cross-fitted without any refitting."""
        return self.predict_own("trajectory")

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        # FAISS objects do not travel; the arrays that make them again do.
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
            raise ValueError(f"shrinkage must be a number from 0, 'cv' or None, got {self.shrinkage!r}.")
        if not (
            self.bandwidth in (None, "cv") or (is_strength(self.bandwidth) and float(self.bandwidth) ** 2 > 0)
        ):
            raise ValueError(f"bandwidth must be a positive number, 'cv' or None, got {self.bandwidth!r}.")

    def _scaled(self, x: Float) -> Float:
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (x[:, self.columns_] - self.centre_) * self.scale_
        largest = np.abs(scaled).max(axis=0, initial=0)
        fits = largest <= np.sqrt(_LARGEST / len(largest))
        if not fits.all():
            worst = int(self.columns_[np.argmin(fits)])
            name = getattr(self, "feature_names_in_", {worst: worst})[worst]
            raise ValueError(
                f"column {name} reaches {np.abs(x[:, worst]).max():.3g}: distances must stay below 1e18, for they are "
                "taken in float32. Is it a code for a missing value? Standardise the columns."
            )
        return np.ascontiguousarray(scaled, dtype=np.float32)

    def _nearest(self, points: Float, k: int) -> tuple[Float, Int]:
        squared, ids = self.index_.nearest(points, k)
        return squared, np.where(ids >= 0, self.order_[ids], -1)

    def _need_others(self, what: str, own: Own = "trajectory") -> None:
        if self._owner(own).max() == 0:
            raise ValueError(
                f"{what} asks what others did, and needs at least 2 trajectories; got one, n_samples = "
                f"{len(self.groups_)}."
            )

    # -- the prior --

    def _fit_prior(self, x: Float) -> None:
        if self.prior is None:
            return
        self._need_others("a prior")
        self.prior_ = fit_model(self.prior, x, self.actions_, self.groups_)
        kept = kept_out_of_fold(self.prior_)
        if kept is None:
            fold = fold_of_groups(self.groups_, min(5, int(self.groups_.max()) + 1), 0)
            kept = out_of_fold(self.prior, x, self.actions_, self.groups_, fold)
        self.prior_own_ = kept

    def _prior_at(self, x: Float) -> Float:
        if self.prior is None:
            return self.marginal_
        return action_probabilities(self.prior_, x, len(self.classes_))

    def _own_prior(self, rows: Int, own: Own) -> Float:
        if self.prior is not None:
            return self.prior_own_[rows]
        if own == "include":
            return self.marginal_
        return marginal_of_others(self.actions_, self._owner(own), rows)

    # -- the neighbours of points of the log --

    def _owner(self, own: Own) -> Int:
        return np.arange(len(self.actions_)) if own == "point" else self.groups_

    def neighbours_of(self, rows: Int, own: Own) -> tuple[Float, Int]:
        """Squared distances and ids of up to k, nearest first, (N, k) each; -1 where ``own`` leaves no more."""
        _check_own(own)
        points = self.index_.arrays()["points"][self.place_[rows]]
        if own == "include":
            return self._nearest(points, self.k_)
        self._need_others(f"own={own!r}", own)
        owner = self._owner(own)
        squared = np.full((len(rows), self.k_), np.inf, dtype=np.float32)
        ids = np.full((len(rows), self.k_), -1)
        left, fetched = np.arange(len(rows)), self.k_ + min(_SPARE, int(np.bincount(owner).max()))
        while len(left):
            fetched = min(fetched, len(owner))
            more = np.zeros(len(left), dtype=bool)
            for part in _parts(len(left), max(1, _FETCHED // fetched)):
                these = left[part]
                near, found = self._nearest(points[these], fetched)
                squared[these], ids[these] = _foreign(near, found, owner, owner[rows[these]], self.k_)
                more[part] = found[:, -1] >= 0
            # Who has too few that are not his own looks further, as long as there is anyone further.
            left = left[more & (ids[left, -1] < 0) & (fetched < len(owner))]
            fetched *= 2
        return squared, ids

    def _kernel(self, squared: Float, bandwidth: float | None) -> Float | None:
        if bandwidth is None:
            return None
        beyond = np.maximum(squared.astype(np.float64) - self.usual_, 0)
        return np.exp(-beyond / (2 * bandwidth**2))

    def _counts(self, ids: Int, kernel: Float | None) -> tuple[Float, Float]:
        """Weight of each action among the neighbours, (N, A), and in all, (N,); id -1 is nobody."""
        weight = (ids >= 0).astype(np.float64) if kernel is None else np.where(ids >= 0, kernel, 0.0)
        n_actions = len(self.classes_)
        cell = self.actions_[ids] + n_actions * np.arange(len(ids))[:, None]
        counts = np.bincount(cell.ravel(), weights=weight.ravel(), minlength=n_actions * len(ids))
        return counts.reshape(len(ids), n_actions).astype(np.float64), weight.sum(axis=1)

    # -- how far to trust them --

    def _choose(self) -> None:
        """Shrinkage and bandwidth: as given, or of highest likelihood without the own trajectory."""
        self.usual_ = 0.0
        self.shrinkage_ = 0.0 if self.shrinkage in (None, "cv") else float(self.shrinkage)
        self.bandwidth_ = None if self.bandwidth in (None, "cv") else float(self.bandwidth)
        if self.shrinkage != "cv" and self.bandwidth is None:
            return
        if "cv" in (self.shrinkage, self.bandwidth):
            self._need_others("'cv'")
        # A share of the points, drawn at random, says it as well.
        n = len(self.actions_)
        rows = np.sort(np.random.default_rng(0).choice(n, min(n, _TUNED), replace=False))
        near = [self.neighbours_of(rows[part], "trajectory") for part in _parts(len(rows))]
        squared, ids = np.concatenate([x for x, _ in near]), np.concatenate([x for _, x in near])
        nearest, farthest = _ends(squared, ids >= 0)
        self.usual_ = float(np.median(nearest)) if len(nearest) else 0.0
        strengths = STRENGTHS if self.shrinkage == "cv" else (self.shrinkage_,)
        best = (-1, -np.inf)
        for bandwidth in _bandwidths(nearest, farthest) if self.bandwidth == "cv" else (self.bandwidth_,):
            for strength, logged in zip(
                strengths, self._logged(rows, squared, ids, bandwidth, strengths), strict=True
            ):
                if (score := likelihood(logged)) > best:
                    best, self.bandwidth_, self.shrinkage_ = score, bandwidth, strength

    def _logged(
        self, rows: Int, squared: Float, ids: Int, bandwidth: float | None, strengths: tuple[float, ...]
    ) -> Float:
        """Probability of what was done in points of the log, for each strength, (S, N)."""
        logged = np.empty((len(strengths), len(rows)))
        for part in _parts(len(rows)):
            counts = self._counts(ids[part], self._kernel(squared[part], bandwidth))
            prior, done = self._own_prior(rows[part], "trajectory"), self.actions_[rows[part]]
            for i, strength in enumerate(strengths):
                logged[i, part] = shrunk(*counts, prior, strength)[np.arange(len(done)), done]
        return logged


def _ends(squared: Float, found: Any) -> tuple[Float, Float]:
    """Squared distances to the nearest and the farthest neighbour, of the points that have any."""
    some = found.any(axis=1)
    first = found.argmax(axis=1)
    last = found.shape[1] - 1 - found[:, ::-1].argmax(axis=1)
    rows = np.arange(len(squared))
    return squared[rows, first][some], squared[rows, last][some]


def _bandwidths(nearest: Float, farthest: Float) -> tuple[float | None, ...]:
    """Bandwidths to try: shares of how much farther the k-th neighbour is than the first; and none."""
    spread = float(np.median(farthest - nearest)) if len(nearest) else 0.0
    return (None, *(float(np.sqrt(w * spread)) for w in WIDTHS)) if spread > 0 else (None,)


def _foreign(squared: Float, ids: Int, owner: Int, whose: Int, k: int) -> tuple[Float, Int]:
    """The first k of those found that are not one's own, moved to the front; then -1."""
    own = (ids < 0) | (owner[ids] == whose[:, None])
    first = np.argsort(own, axis=1, kind="stable")[:, :k]
    squared, ids, own = (np.take_along_axis(x, first, axis=1) for x in (squared, ids, own))
    return np.where(own, np.inf, squared), np.where(own, -1, ids)


def _parts(n: int, size: int = _ROWS) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _check_own(own: Any) -> None:
    if own not in ("include", "point", "trajectory"):
        raise ValueError(f"own must be 'include', 'point' or 'trajectory', got {own!r}.")


def _root_weights(weights: ArrayLike | None, d: int) -> Float:
    if weights is None:
        return np.ones(d)
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (d,) or not (np.isfinite(given) & (given >= 0)).all():
        raise ValueError(
            f"feature_weights must be {d} numbers from 0, one for each feature, got shape {given.shape}."
        )
    return np.sqrt(given)


def _compared(columns: ArrayLike | None, scale: Float) -> Int:
    """Numbers of the columns that distances depend on."""
    d = len(scale)
    given = np.arange(d) if columns is None else np.unique(np.asarray(columns))
    if not (len(given) and np.issubdtype(given.dtype, np.integer) and given[0] >= 0 and given[-1] < d):
        raise ValueError(f"columns must be whole numbers from 0 to {d - 1}, got {columns!r}.")
    used = given[scale[given] > 0]
    if not len(used):
        raise ValueError("no column is left to compare states in: all feature_weights there are 0.")
    return used
