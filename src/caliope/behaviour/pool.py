"""A linear pool of models: each trusted as far as it predicts trajectories that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from caliope.behaviour.calibrators import Chain, Shrinkage, Temperature
from caliope.behaviour.fitting import fit_model, fold_of_groups, group_numbers, out_of_fold
from caliope.behaviour.network import mean_nll
from caliope.policies import action_probabilities
from caliope.ragged import Float


class PooledPolicy(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A weighted mean of several models, sharpened or softened to fit.

    .. math:: \hat\pi(a \mid s) \propto \Big( \sum_m w_m\, \hat\pi_m(a \mid s) \Big)^{1 / T}

    Every trajectory is predicted by models fitted without it; the weights w maximise the likelihood of these
    predictions, then a share of the marginal frequencies, and last the temperature T. What is left in
    ``oof_proba_`` are the pooled predictions of the log itself, each by models that have not seen the trajectory:
    cross-fitted probabilities at no further cost (but for the few weights and T, which have seen the actions and
    no outcome).

    Parameters
    ----------
    members : mapping from name to unfitted classifier
        The models. Those whose ``fit`` takes ``groups`` are told the trajectories.
    folds : int
        Number of folds, by trajectory.
    random_state : int
        Seed of the folds.

    Attributes
    ----------
    weights_, nll_ : dict
        Weight and out-of-fold negative log-likelihood of each member; ``nll_["pool"]`` is that of the whole.
    temperature_ : float
        Above 1: the pool was too sure of itself.
    """

    def __init__(self, members: Mapping[str, Any], *, folds: int = 5, random_state: int = 0) -> None:
        self.members = members
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> PooledPolicy:
        """Fit the members across folds, weigh them, and fit them again on everything."""
        if not isinstance(self.members, Mapping) or not self.members:
            raise ValueError(f"members must map a name to each of some classifiers, got {self.members!r}.")
        x, actions = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(actions)
        self.classes_, codes = np.unique(actions, return_inverse=True)
        trajectory = group_numbers(groups, len(x))
        fold = fold_of_groups(trajectory, self.folds, self.random_state)
        with _one_blas_thread():
            parts = {
                name: out_of_fold(model, x, codes, trajectory, fold) for name, model in self.members.items()
            }
        logged = np.stack([p[np.arange(len(codes)), codes] for p in parts.values()], axis=1)
        weights = pool_weights(logged)
        self.weights_ = dict(zip(parts, weights.tolist(), strict=True))
        pooled = sum(w * p for w, p in zip(weights, parts.values(), strict=True))
        # Shrinkage first: an action that occurs in one fold only has no probability from models of the others.
        shrinkage = Shrinkage().fit(pooled, codes)
        temperature = Temperature().fit(shrinkage(pooled), codes)
        self.calibrator_, self.temperature_ = Chain((shrinkage, temperature)), temperature.temperature
        self.oof_proba_ = self.calibrator_(pooled)
        self.nll_ = {name: mean_nll(p, codes) for name, p in parts.items()} | {
            "pool": mean_nll(self.oof_proba_, codes)
        }
        kept = [name for name in self.members if self.weights_[name] > 0]
        with _one_blas_thread():
            self.models_ = {name: fit_model(self.members[name], x, codes, trajectory) for name in kept}
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        parts = [
            self.weights_[name] * action_probabilities(model, x, len(self.classes_))
            for name, model in self.models_.items()
        ]
        return self.calibrator_(np.sum(parts, axis=0))

    def predict(self, X: ArrayLike) -> Any:
        """The most likely action."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]


def _one_blas_thread() -> Any:
    """For the small matrices of the members: on a busy machine several threads mostly wait for each other."""
    return threadpool_limits(1, user_api="blas")


def pool_weights(logged: Float, *, n_iterations: int = 300) -> Float:
    r"""Weights of a linear pool that maximise :math:`\sum_i \log \sum_m w_m p_{im}`, by EM, (M,).

    ``logged`` holds the probability that each member gave to what was done, (N, M). Members whose weight falls below
    1 in 1000 are dropped; where no member gave any probability at all, they weigh the same.
    """
    weights = np.full(logged.shape[1], 1 / logged.shape[1])
    possible = logged[logged.max(axis=1) > 0]
    for _ in range(n_iterations if len(possible) else 0):
        share = possible * weights
        weights = (share / share.sum(axis=1, keepdims=True)).mean(axis=0)
    weights = np.where(weights < 1e-3, 0.0, weights)
    return weights / weights.sum()
