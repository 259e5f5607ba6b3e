"""Behaviour policies made of several models: pools, forests, boosting, neighbours of logits."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope._policies import action_probabilities
from caliope._ragged import Float, Int, at_actions
from caliope._trees import FEW_ENTRIES, ExtraTreesClassifier
from caliope.behaviour._calibrators import Chain, Shrinkage, Temperature
from caliope.behaviour._fit import (
    MostLikelyAction,
    assign_folds,
    fit_model,
    number_groups,
    predict_out_of_fold,
)
from caliope.behaviour._frequencies import STRENGTHS, frequencies_of_others, score_logged
from caliope.behaviour._neighbours import NeighbourPolicy
from caliope.behaviour._networks import hold_out, mean_nll
from caliope.behaviour._threads import one_blas_thread


class PooledPolicy(MostLikelyAction, BaseEstimator):  # type: ignore[misc]
    r"""A weighted mean of several models, recalibrated by shrinkage and a temperature.

    .. math:: \hat\pi(a \mid s) \propto \Big( \sum_m w_m\, \hat\pi_m(a \mid s) \Big)^{1 / T}

    Each trajectory is predicted by models fitted without it. The likelihood of these predictions gives the weights w,
    then a share of the marginal frequencies, and last the temperature T.

    Parameters
    ----------
    members : mapping from name to unfitted classifier
        The models. Those whose ``fit`` takes ``groups`` get the trajectories.
    folds : int
        Number of folds, by trajectory.
    random_state : int
        Seed of the folds.

    Attributes
    ----------
    weights_, nll_ : dict
        Weight and out-of-fold negative log-likelihood of each member; ``nll_["pool"]`` is that of the pool.
    temperature_ : float
        Above 1 if the pool was overconfident.
    oof_proba_ : array of shape (N, A)
        Out-of-fold probabilities of the pool for the log, shrunk towards the frequencies in the other folds. Only the
        weights of the members, the share of the shrinkage and T have seen their actions.

    Examples
    --------
    >>> from caliope.behaviour import PooledPolicy, TabularFrequencies
    >>> from caliope.domains import ward
    >>> from sklearn.linear_model import LogisticRegression
    >>> data = ward.simulate(50, rng=0)
    >>> pool = PooledPolicy({"logistic": LogisticRegression(), "counts": TabularFrequencies()})
    >>> list(pool.fit(data.states, data.actions, groups=data.layout.owner).nll_)
    ['logistic', 'counts', 'pool']
    """

    def __init__(self, members: Mapping[str, Any], *, folds: int = 5, random_state: int = 0) -> None:
        self.members = members
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> PooledPolicy:
        """Cross-fit the members, weight them, and fit them again on all rows."""
        if not isinstance(self.members, Mapping) or not self.members:
            raise ValueError(f"members must map names to classifiers, at least one, got {self.members!r}.")
        x, actions = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(actions)
        self.classes_, codes = np.unique(actions, return_inverse=True)
        trajectory = number_groups(groups, len(x))
        fold = assign_folds(trajectory, self.folds, self.random_state)
        with one_blas_thread():
            parts = {
                name: predict_out_of_fold(model, x, codes, trajectory, fold)
                for name, model in self.members.items()
            }
        logged = np.stack([at_actions(p, codes) for p in parts.values()], axis=1)
        weights = pool_weights(logged)
        self.weights_ = dict(zip(parts, weights.tolist(), strict=True))
        pooled = sum(w * p for w, p in zip(weights, parts.values(), strict=True))
        # Shrinkage first: an action that occurs in one fold only has probability 0 in the models of the others.
        others = frequencies_of_others(codes, fold)[fold]
        shrinkage = Shrinkage().fit(pooled, codes, towards=others)
        share = float(shrinkage.share or 0.0)
        shrunk = (1 - share) * pooled + share * others
        temperature = Temperature().fit(shrunk, codes)
        self.calibrator_, self.temperature_ = Chain((shrinkage, temperature)), temperature.temperature
        self.oof_proba_ = temperature(shrunk)
        self.nll_ = {name: mean_nll(p, codes) for name, p in parts.items()} | {
            "pool": mean_nll(self.oof_proba_, codes)
        }
        kept = [name for name in self.members if self.weights_[name] > 0]
        with one_blas_thread():
            self.models_ = {name: fit_model(self.members[name], x, codes, trajectory) for name in kept}
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        parts = [
            self.weights_[name] * action_probabilities(model, x, len(self.classes_))
            for name, model in self.models_.items()
        ]
        return self.calibrator_(np.sum(parts, axis=0))


def pool_weights(logged: Float, *, n_iterations: int = 300) -> Float:
    r"""Find the weights of a linear pool that maximise :math:`\sum_i \log \sum_m w_m p_{im}`, by EM, (M,).

    ``logged`` holds the probability that each member gave to the logged action, (N, M). Members whose weight falls
    below 1 in 1000 are dropped. If all probabilities are 0, the weights are equal.
    """
    weights = np.full(logged.shape[1], 1 / logged.shape[1])
    possible = logged[logged.max(axis=1) > 0]
    for _ in range(n_iterations if len(possible) else 0):
        share = possible * weights
        weights = (share / share.sum(axis=1, keepdims=True)).mean(axis=0)
    weights = np.where(weights < 1e-3, 0.0, weights)
    return weights / weights.sum()


class _OrderedVotes:
    """A forest whose trees vote in a fixed order: cores share the rows, not the trees.

    In scikit-learn cores share the trees and add up votes as they arrive, so that the last digits are random. What is
    optimised over them, such as a temperature, then differs by more than the last digits.
    """

    n_jobs: int | None

    def predict_proba(self, X: Any) -> Float:
        """Return the mean class frequencies of the trees, (N, classes)."""
        # A shallow copy shares the trees.
        alone = copy(self)
        alone.n_jobs = 1
        vote = super(_OrderedVotes, alone).predict_proba  # type: ignore[misc]
        jobs = effective_n_jobs(self.n_jobs)
        if jobs == 1 or not isinstance(X, np.ndarray) or len(X) < jobs or X.size <= FEW_ENTRIES:
            return vote(X)
        parts = Parallel(n_jobs=jobs, require="sharedmem")(
            delayed(vote)(part) for part in np.array_split(X, jobs)
        )
        return np.concatenate(parts)


class OrderedForest(_OrderedVotes, RandomForestClassifier):  # type: ignore[misc]
    """The random forest of scikit-learn, with a fixed order of votes."""


class OrderedExtraTrees(_OrderedVotes, ExtraTreesClassifier):
    """The extremely randomised trees of scikit-learn, with a fixed order of votes."""


class BoostingPolicy(HistGradientBoostingClassifier):  # type: ignore[misc]
    """The histogram boosting of scikit-learn, with early stopping on held-out trajectories.

    In scikit-learn early stopping holds out rows, and refuses an action that occurs once. Here a share of the
    trajectories is held out, ``validation_fraction``; rows of actions that occur in these alone are not.
    """

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> BoostingPolicy:
        """Train on most trajectories, stop on the others; ``groups`` names the trajectory of each row."""
        x, actions = check_X_y(X, y, ensure_all_finite="allow-nan")
        held_out = hold_out(len(x), groups, self.validation_fraction, self.random_state)
        held_out &= np.isin(actions, actions[~held_out])
        scored = held_out if held_out.any() else ~held_out
        super().fit(x[~held_out], actions[~held_out], X_val=x[scored], y_val=actions[scored])
        return self


# Folds that choose the shrinkage, and points of each that are predicted.
_FOLDS = 3
_MAX_POINTS = 7_000


def logistic(c: float) -> Any:
    """Make a logistic regression on standardised features with penalty 1 / c."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=500, tol=1e-3))


class LogitNeighbours(MostLikelyAction, BaseEstimator):  # type: ignore[misc]
    """Nearest neighbours in the logits of a logistic regression.

    In many raw dimensions the nearest neighbours are hardly nearer than other points. In the space of the logits those
    states are near for which the regression predicts the same actions.

    Parameters
    ----------
    k : int
        Number of neighbours.
    c : float
        Inverse penalty of the regression.
    shrinkage : float, "cv" or None
        Strength of the shrinkage towards the marginal frequencies, counted in neighbours. ``"cv"`` chooses it on
        trajectories that neither the neighbours nor the regression have seen: with many columns a regression
        overfits, and neighbours in its logits agree too well on the log itself.
    random_state : int
        Seed of these folds.

    Examples
    --------
    >>> from caliope.behaviour import LogitNeighbours
    >>> from caliope.domains import ward
    >>> data = ward.simulate(20, rng=0)
    >>> model = LogitNeighbours(10, shrinkage=1.0).fit(data.states, data.actions, groups=data.layout.owner)
    >>> model.predict_proba([[0.0], [4.0]]).shape
    (2, 3)
    """

    def __init__(
        self,
        k: int = 50,
        *,
        c: float = 0.03,
        shrinkage: float | Literal["cv"] | None = "cv",
        random_state: int = 0,
    ) -> None:
        self.k = k
        self.c = c
        self.shrinkage = shrinkage
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> LogitNeighbours:
        """Fit the regression and the neighbours in its logits; ``groups`` names the trajectory of each row."""
        x, actions = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(actions)
        self.metric_ = logistic(self.c).fit(x, actions)
        trajectory = number_groups(groups, len(x))
        codes = np.unique(actions, return_inverse=True)[1]
        strength = self._choose_shrinkage(x, codes, trajectory) if self.shrinkage == "cv" else self.shrinkage
        neighbours = NeighbourPolicy(self.k, shrinkage=strength)
        self.neighbours_ = neighbours.fit(self._logits(x), actions, groups=trajectory)
        self.classes_ = self.neighbours_.classes_
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Return the probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        return self.neighbours_.predict_proba(
            self._logits(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))
        )

    def _logits(self, x: Float) -> Float:
        logits = np.asarray(self.metric_.decision_function(x))
        return logits[:, None] if logits.ndim == 1 else logits

    def _choose_shrinkage(self, x: Float, codes: Int, trajectory: Int) -> float:
        """Choose the strength of the highest likelihood in folds that nothing was fitted on."""
        fold = assign_folds(trajectory, min(_FOLDS, int(trajectory.max()) + 1), self.random_state)
        plain, rng = clone(self).set_params(shrinkage=None), np.random.default_rng(self.random_state)
        logged, base = [], []
        for j in range(int(fold.max()) + 1):
            fit, held_out = (
                np.flatnonzero(fold != j),
                rng.permutation(np.flatnonzero(fold == j))[:_MAX_POINTS],
            )
            part = fit_model(plain, x[fit], codes[fit], trajectory[fit])
            table = action_probabilities(part, x[held_out], int(codes.max()) + 1)
            logged.append(at_actions(table, codes[held_out]))
            base.append((np.bincount(codes[fit], minlength=table.shape[1]) / len(fit))[codes[held_out]])
        p, overall = np.concatenate(logged), np.concatenate(base)
        return max(STRENGTHS, key=lambda m: score_logged((self.k * p + m * overall) / (self.k + m)))
