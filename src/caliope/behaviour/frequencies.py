"""A behaviour policy for discrete states: how often each action was taken in each of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope.behaviour.fitting import group_numbers
from caliope.behaviour.shrinking import STRENGTHS, is_strength, likelihood, shrunk
from caliope.ragged import Float, Int


class TabularFrequencies(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Probabilities of actions as their frequencies in the very same state.

    .. math:: \hat\pi(a \mid s) = \frac{n(s, a) + m\, \bar\pi(a)}{n(s) + m}

    with :math:`\bar\pi` the frequencies in the whole log. With m = 0 it is the maximum likelihood estimate: in every
    state the predicted and the taken actions balance exactly. A state that was never seen has the frequencies of the
    whole log. States of continuous measurements hardly occur twice: bin them first, for instance by scikit-learn's
    ``KBinsDiscretizer(encode="ordinal")``, or use :class:`~caliope.behaviour.NeighbourPolicy`.

    Parameters
    ----------
    columns : sequence of int, optional
        The columns that make the state; by default all.
    shrinkage : float, "cv" or None
        Strength m of the pull towards the frequencies of the whole log, in visits. ``"cv"`` chooses it by the
        likelihood of each step given the other trajectories: first the fewest actions of probability 0, then the
        likelihood of the others.
    """

    def __init__(
        self, *, columns: ArrayLike | None = None, shrinkage: float | Literal["cv"] | None = "cv"
    ) -> None:
        self.columns = columns
        self.shrinkage = shrinkage

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> TabularFrequencies:
        """Count; ``groups`` tells the trajectory of each row."""
        x, actions = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(actions)
        self.classes_, codes = np.unique(actions, return_inverse=True)
        self.states_, place = np.unique(self._state(x), axis=0, return_inverse=True)
        place = place.ravel()
        self.counts_ = np.zeros((len(self.states_), len(self.classes_)))
        np.add.at(self.counts_, (place, codes), 1.0)
        self.marginal_ = self.counts_.sum(axis=0) / len(x)
        self.shrinkage_ = self._choose(place, codes, group_numbers(groups, len(x)))
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = self._state(validate_data(self, X, dtype=np.float64, reset=False))
        # Ask for each distinct state once; the known ones stand first in the stack, so each finds its own number.
        _, first, place = np.unique(
            np.concatenate([self.states_, x]), axis=0, return_index=True, return_inverse=True
        )
        row = first[place.ravel()[len(self.states_) :]]
        known = row < len(self.states_)
        counts = np.where(known[:, None], self.counts_[np.where(known, row, 0)], 0.0)
        return shrunk(counts, counts.sum(axis=1), self.marginal_, self.shrinkage_)

    def predict(self, X: ArrayLike) -> Any:
        """The most likely action."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def _state(self, x: Float) -> Float:
        if self.columns is None:
            return x
        given = np.asarray(self.columns)
        if not (given.ndim == 1 and len(given) and np.issubdtype(given.dtype, np.integer)):
            raise ValueError(f"columns must be a list of whole numbers, got {self.columns!r}.")
        if given.min() < 0 or given.max() >= x.shape[1]:
            raise ValueError(f"columns must lie from 0 to {x.shape[1] - 1}, got {self.columns!r}.")
        return x[:, given]

    def _choose(self, place: Int, codes: Int, trajectory: Int) -> float:
        if self.shrinkage is None:
            return 0.0
        if self.shrinkage != "cv":
            if not is_strength(self.shrinkage):
                raise ValueError(f"shrinkage must be a number from 0, 'cv' or None, got {self.shrinkage!r}.")
            return float(self.shrinkage)
        if trajectory.max() == 0:
            raise ValueError(
                "shrinkage='cv' asks what other trajectories did, and needs at least 2; got one, n_samples = "
                f"{len(codes)}. Give a number."
            )
        there, same, base = self._of_others(place, codes, trajectory)
        with np.errstate(invalid="ignore"):
            scores = [
                likelihood(np.where(there + m > 0, (same + m * base) / (there + m), base)) for m in STRENGTHS
            ]
        return max(zip(scores, STRENGTHS, strict=True), key=lambda pair: pair[0])[1]

    def _of_others(self, place: Int, codes: Int, trajectory: Int) -> tuple[Float, Float, Float]:
        """What others did, (N,) each.

        How often they came to the state of each step, how often they did there what was done, and the share of that
        action in all that they did.
        """
        in_state = trajectory * len(self.states_) + place
        there = self.counts_.sum(axis=1)[place] - _repeats(in_state)
        same = self.counts_[place, codes] - _repeats(in_state * len(self.classes_) + codes)
        anywhere = self.counts_.sum(axis=0)[codes] - _repeats(trajectory * len(self.classes_) + codes)
        return there, same, anywhere / (len(codes) - _repeats(trajectory))


def _repeats(numbers: Int) -> Int:
    """How often each of the numbers occurs among them, (N,)."""
    _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    return counts[place]
