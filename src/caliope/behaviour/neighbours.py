"""A behaviour policy from neighbours: what was done in the states most like this one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope.behaviour.search import Exact, Search
from caliope.ragged import Float, Int

Own = Literal["include", "point", "trajectory"]
STRENGTHS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0)  # tried when shrinkage is "cv"


class NeighbourPolicy(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Probabilities of actions as their frequencies among the k most similar states.

    .. math:: \hat\pi(a \mid s) = \frac{\sum_{j \in N_k(s)} \kappa_j 1\{a_j = a\} + m\, \bar\pi(a)}
        {\sum_{j \in N_k(s)} \kappa_j + m}

    with :math:`\bar\pi` the frequencies in the whole log (or in the stratum of the state) and m the ``shrinkage``.
    Without shrinkage an action that no neighbour took has probability 0, also where it was taken: then weights
    cannot be computed. In many dimensions neighbours are hardly more alike than strangers; standardise the
    features, and prefer a learned metric.

    Parameters
    ----------
    k : int
        Number of neighbours; all points where there are fewer.
    search : Exact, InvertedLists or RandomProjections
        How they are found.
    feature_weights : array-like of shape (d,), optional
        Weights w of the kernel :math:`\sum_i w_i (s_i - s'_i)^2`; the paper has 2 for informative features.
    shrinkage : float, "cv" or None
        Strength m of the pull towards the marginal frequencies, in neighbours. ``"cv"`` chooses it by the
        likelihood of each point without its own trajectory.
    kernel : callable, optional
        Weight :math:`\kappa` of a neighbour from squared distances (Q, k), sorted; by default 1.
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
        shrinkage: float | Literal["cv"] | None = None,
        kernel: Callable[[Float], Float] | None = None,
        own: Own = "trajectory",
    ) -> None:
        self.k = k
        self.search = search
        self.feature_weights = feature_weights
        self.shrinkage = shrinkage
        self.kernel = kernel
        self.own = own

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> NeighbourPolicy:
        """Remember the states and what was done in them; ``groups`` tells the trajectory of each row."""
        x, actions = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(actions)
        if not self.k >= 1:
            raise ValueError(f"k must be at least 1, got {self.k}.")
        if self.own not in ("include", "point", "trajectory"):
            raise ValueError(f"own must be 'include', 'point' or 'trajectory', got {self.own!r}.")
        self.classes_, self.actions_ = np.unique(actions, return_inverse=True)
        self.groups_ = (
            np.arange(len(x)) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
        )
        if len(self.groups_) != len(x):
            raise ValueError(
                f"groups must name the trajectory of each of the {len(x)} rows, got {len(self.groups_)}."
            )
        self.scale_ = _root_weights(self.feature_weights, x.shape[1])
        self.centre_ = x.mean(axis=0)  # distances do not mind, and float32 keeps more digits
        self.points_ = self._scaled(x)
        self.index_ = self.search.build(self.points_)
        self.marginal_ = np.bincount(self.actions_) / len(x)
        self.k_ = min(int(self.k), len(x))
        self.shrinkage_ = self._choose_shrinkage()
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=np.float64, reset=False)
        return self._shrunk(*self._counts(*self.index_.nearest(self._scaled(x), self.k_)), self.shrinkage_)

    def predict(self, X: ArrayLike) -> Any:
        """The most frequent action among the neighbours."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def kneighbors(self, X: ArrayLike) -> tuple[Float, Int]:
        """Distances and row numbers of the neighbours, nearest first, (N, k) each."""
        check_is_fitted(self)
        squared, ids = self.index_.nearest(
            self._scaled(validate_data(self, X, dtype=np.float64, reset=False)), self.k_
        )
        return np.sqrt(squared), ids

    def predict_own(self, own: Own | None = None) -> Float:
        """Probabilities for the points of the log itself, with their own neighbours treated as ``own`` says."""
        check_is_fitted(self)
        return self._shrunk(*self._own_counts(own or self.own), self.shrinkage_)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        # FAISS objects do not travel; the arrays that make them again do.
        return state | {"index_": state["index_"].arrays()} if "index_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "index_" in state:
            state = state | {"index_": state["search"].restore(state["index_"])}
        super().__setstate__(state)

    def _scaled(self, x: Float) -> Float:
        return np.ascontiguousarray((x - self.centre_) * self.scale_, dtype=np.float32)

    def _own_counts(self, own: Own) -> tuple[Float, Float]:
        if own == "include":
            return self._counts(*self.index_.nearest(self.points_, self.k_))
        mine = np.arange(len(self.points_)) if own == "point" else self.groups_
        # At most so many of the nearest can be one's own; fetching as many more makes the exclusion exact.
        extra = 1 if own == "point" else int(np.bincount(self.groups_).max())
        squared, ids = self.index_.nearest(self.points_, min(self.k_ + extra, len(self.points_)))
        owner = np.arange(len(self.points_)) if own == "point" else self.groups_
        foreign = (owner[ids] != mine[:, None]) & (ids >= 0)
        keep = foreign & (foreign.cumsum(axis=1) <= self.k_)
        return self._counts(squared, np.where(keep, ids, -1))

    def _counts(self, squared: Float, ids: Int) -> tuple[Float, Float]:
        """Weight of each action among the neighbours, (N, A), and in all, (N,); id -1 is nobody."""
        weight = (
            np.ones(ids.shape) if self.kernel is None else np.asarray(self.kernel(squared), dtype=np.float64)
        )
        weight = np.where(ids >= 0, weight, 0.0)
        n_actions = len(self.classes_)
        cell = self.actions_[ids] + n_actions * np.arange(len(ids))[:, None]
        counts = np.bincount(cell.ravel(), weights=weight.ravel(), minlength=n_actions * len(ids))
        return counts.reshape(len(ids), n_actions).astype(np.float64), weight.sum(axis=1)

    def _shrunk(self, counts: Float, total: Float, strength: float) -> Float:
        # Where there is nobody at all, nothing but the marginal is known.
        alone = total + strength == 0
        strength_of_row = np.where(alone, 1.0, strength)
        return (counts + strength_of_row[:, None] * self.marginal_) / (total + strength_of_row)[:, None]

    def _choose_shrinkage(self) -> float:
        if self.shrinkage is None:
            return 0.0
        if self.shrinkage != "cv":
            if not float(self.shrinkage) >= 0:
                raise ValueError(f"shrinkage must be a number from 0, 'cv' or None, got {self.shrinkage!r}.")
            return float(self.shrinkage)
        counts, total = self._own_counts("trajectory")
        rows = np.arange(len(counts))
        with np.errstate(divide="ignore"):
            scores = [np.log(self._shrunk(counts, total, m)[rows, self.actions_]).mean() for m in STRENGTHS]
        return STRENGTHS[int(np.argmax(scores))]


def _root_weights(weights: ArrayLike | None, d: int) -> Float:
    if weights is None:
        return np.ones(d)
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (d,) or not (np.isfinite(given) & (given >= 0)).all():
        raise ValueError(
            f"feature_weights must be {d} numbers from 0, one for each feature, got shape {given.shape}."
        )
    return np.sqrt(given)
