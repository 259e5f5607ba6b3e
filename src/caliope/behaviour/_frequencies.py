"""A behaviour policy for discrete states by counting, with shrinkage towards the marginal frequencies."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._ragged import Float, Int
from caliope.behaviour._fit import MostLikelyAction, number_groups


class TabularFrequencies(MostLikelyAction, BaseEstimator):  # type: ignore[misc]
    r"""Action probabilities as the frequencies of the actions in exactly the same state.

    .. math:: \hat\pi(a \mid s) = \frac{n(s, a) + m\, \bar\pi(a)}{n(s) + m}

    with :math:`\bar\pi` the frequencies in the whole log. With m = 0 it is the maximum likelihood estimate: in every
    state the predicted and the logged frequencies agree exactly. An unseen state gets :math:`\bar\pi`. Continuous
    states hardly ever occur twice: bin them first, for instance by ``KBinsDiscretizer(encode="ordinal")`` of
    scikit-learn, or use :class:`~caliope.behaviour.NeighbourPolicy`.

    Parameters
    ----------
    columns : sequence of int, optional
        The columns that define the state; by default all.
    shrinkage : float, "cv" or None
        Strength m of the shrinkage, counted in visits. ``"cv"`` chooses it by leave-one-trajectory-out predictions:
        first the fewest logged actions of probability 0, then the likelihood of the others.

    Examples
    --------
    >>> from caliope.behaviour import TabularFrequencies
    >>> model = TabularFrequencies(shrinkage=None).fit([[0], [0], [0], [1]], [1, 1, 0, 0])
    >>> model.predict_proba([[0], [1]]).round(2).tolist()
    [[0.33, 0.67], [1.0, 0.0]]
    """

    def __init__(
        self, *, columns: ArrayLike | None = None, shrinkage: float | Literal["cv"] | None = "cv"
    ) -> None:
        self.columns = columns
        self.shrinkage = shrinkage

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> TabularFrequencies:
        """Count the actions in each state; ``groups`` names the trajectory of each row."""
        x, actions = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(actions)
        self.classes_, codes = np.unique(actions, return_inverse=True)
        self.states_, place = np.unique(self._state(x), axis=0, return_inverse=True)
        place = place.ravel()
        self.counts_ = np.zeros((len(self.states_), len(self.classes_)))
        np.add.at(self.counts_, (place, codes), 1.0)
        self.marginal_ = self.counts_.sum(axis=0) / len(x)
        self.shrinkage_ = self._choose_shrinkage(place, codes, number_groups(groups, len(x)))
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = self._state(validate_data(self, X, dtype=np.float64, reset=False))
        # Known states come first in the stack, so that the first occurrence of a state is its number.
        _, first, place = np.unique(
            np.concatenate([self.states_, x]), axis=0, return_index=True, return_inverse=True
        )
        row = first[place.ravel()[len(self.states_) :]]
        known = row < len(self.states_)
        counts = np.where(known[:, None], self.counts_[np.where(known, row, 0)], 0.0)
        return shrink(counts, counts.sum(axis=1), self.marginal_, self.shrinkage_)

    def _state(self, x: Float) -> Float:
        if self.columns is None:
            return x
        columns = np.asarray(self.columns)
        if not (columns.ndim == 1 and len(columns) and np.issubdtype(columns.dtype, np.integer)):
            raise ValueError(f"columns must be a list of whole numbers, got {self.columns!r}.")
        if columns.min() < 0 or columns.max() >= x.shape[1]:
            raise ValueError(f"columns must lie from 0 to {x.shape[1] - 1}, got {self.columns!r}.")
        return x[:, columns]

    def _choose_shrinkage(self, place: Int, codes: Int, trajectory: Int) -> float:
        if self.shrinkage is None:
            return 0.0
        if self.shrinkage != "cv":
            if not is_strength(self.shrinkage):
                raise ValueError(
                    f"shrinkage must be a finite number, 0 or more, 'cv' or None, got {self.shrinkage!r}."
                )
            return float(self.shrinkage)
        if trajectory.max() == 0:
            raise ValueError(
                f"shrinkage='cv' needs at least 2 trajectories, got one, n_samples = {len(codes)}. Give a number, or "
                "name the trajectories in groups."
            )
        there, same, base = self._count_others(place, codes, trajectory)
        with np.errstate(invalid="ignore"):
            scores = [
                score_logged(np.where(there + m > 0, (same + m * base) / (there + m), base))
                for m in STRENGTHS
            ]
        return max(zip(scores, STRENGTHS, strict=True), key=lambda pair: pair[0])[1]

    def _count_others(self, place: Int, codes: Int, trajectory: Int) -> tuple[Float, Float, Float]:
        """Count in all other trajectories, for the state and the action of each step, (N,) each.

        The visits to the state, the visits with the same action, and the share of the action among all steps.
        """
        in_state = trajectory * len(self.states_) + place
        there = self.counts_.sum(axis=1)[place] - _count_repeats(in_state)
        same = self.counts_[place, codes] - _count_repeats(in_state * len(self.classes_) + codes)
        anywhere = self.counts_.sum(axis=0)[codes] - _count_repeats(trajectory * len(self.classes_) + codes)
        return there, same, anywhere / (len(codes) - _count_repeats(trajectory))


def _count_repeats(numbers: Int) -> Int:
    """Count how often each number occurs in the array, (N,)."""
    _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return counts[place]


STRENGTHS = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0)
"""Strengths that ``shrinkage="cv"`` tries."""


def shrink(counts: Float, total: Float, prior: Float, strength: float) -> Float:
    """Shrink frequencies towards a prior that counts as ``strength`` observations, (N, A)."""
    # Without observations and strength the prior alone is known.
    m = np.where(total + strength == 0, 1.0, strength)[:, None]
    return (counts + m * prior) / (total[:, None] + m)


def score_logged(logged: Float) -> tuple[int, float]:
    """Score the predicted probabilities of the logged actions: how many are above 0, then the mean log of these.

    An action that no other trajectory took has probability 0 under all settings; a plain mean would be infinite for
    each of them.
    """
    some = logged[logged > 0]
    return len(some), float(np.log(some).mean()) if len(some) else -np.inf


def marginal_without_own(actions: Int, owner: Int, rows: Int) -> Float:
    """Return for each of some rows the action frequencies in the log without the row's own trajectory, (R, A)."""
    owners, place = np.unique(owner[rows], return_inverse=True)
    at = np.minimum(np.searchsorted(owners, owner), len(owners) - 1)
    counted = owners[at] == owner
    n_actions = int(actions.max()) + 1
    own = np.bincount(at[counted] * n_actions + actions[counted], minlength=len(owners) * n_actions)
    others = np.bincount(actions) - own.reshape(len(owners), n_actions)
    return (others / others.sum(axis=1, keepdims=True))[place]


def frequencies_of_others(actions: Int, fold: Int) -> Float:
    """Return the action frequencies in the log without each fold, (K, A).

    An action that is taken in one fold alone counts as half an observation there: it is known to be possible, and
    nothing else about it is known from the others.
    """
    n_actions = int(actions.max()) + 1
    cells = np.bincount(fold * n_actions + actions, minlength=(int(fold.max()) + 1) * n_actions)
    own = cells.reshape(-1, n_actions)
    others = (own.sum(axis=0) - own).astype(np.float64)
    others[others == 0] = 0.5
    return others / others.sum(axis=1, keepdims=True)


def is_strength(x: Any) -> bool:
    """Whether x is a finite number, 0 or more."""
    return isinstance(x, int | float | np.number) and bool(0 <= x < np.inf)
