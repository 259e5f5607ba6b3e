"""The models of the paper, and the default: plain scikit-learn estimators with their settings in sight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from caliope.behaviour.neighbours import NeighbourPolicy
from caliope.behaviour.network import NetworkPolicy
from caliope.behaviour.pool import PooledPolicy
from caliope.behaviour.search import RandomProjections
from caliope.ragged import Float


def paper_models(*, random_state: int = 0) -> dict[str, Any]:
    """The four models of Raghu et al. (2018), unfitted.

    The paper does not say how they were tuned; these are the ordinary settings of their kind. Features are
    standardised for all but the forest.
    """
    return {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "forest": RandomForestClassifier(100, n_jobs=-1, random_state=random_state),
        "network": make_pipeline(
            StandardScaler(), MLPClassifier((64, 64), max_iter=100, random_state=random_state)
        ),
        "neighbours": make_pipeline(StandardScaler(), NeighbourPolicy(150, search=RandomProjections())),
    }


def default_models(*, random_state: int = 0) -> dict[str, Any]:
    """The members of the default pool, unfitted; each is usable alone."""
    return {
        "logistic, strong": logistic(0.003),
        "logistic, medium": logistic(0.03),
        "logistic, weak": logistic(0.3),
        # Split points at random: a quarter of the time of a random forest, and a better likelihood.
        "forest": ExtraTreesClassifier(
            100, min_samples_leaf=10, max_features=0.5, n_jobs=-1, random_state=random_state
        ),
        "network": NetworkPolicy(random_state=random_state),
        "neighbours of logits": LogitNeighbours(random_state=random_state),
    }


def boosting(*, random_state: int = 0) -> Any:
    """Gradient boosting; slow with many actions, and stopped by its own held-out loss."""
    return HistGradientBoostingClassifier(
        learning_rate=0.05, max_leaf_nodes=15, early_stopping=True, random_state=random_state
    )


def default_model(*, present: Sequence[int] | None = None, folds: int = 5, random_state: int = 0) -> Pipeline:
    r"""The default behaviour model: a pool of several models, corrected by the nearest other patients.

    The pool of :func:`default_models` is cross-fitted by trajectory; neighbours then pull its probabilities towards
    what was done in nearly the same state, as far as that predicts other trajectories. ``model[-1].prior_`` is the
    pool, with its ``weights_`` and ``nll_``.

    Parameters
    ----------
    present : sequence of int, optional
        The columns that describe the present moment, where states carry their history too
        (:func:`~caliope.behaviour.present_columns`): neighbours are sought among these. By default all columns, and
        with many of them the correction is small.
    folds, random_state : int
        Of the pool.
    """
    pool = PooledPolicy(default_models(random_state=random_state), folds=folds, random_state=random_state)
    local = NeighbourPolicy(30, columns=present, shrinkage="cv", bandwidth="cv", prior=pool)
    return make_pipeline(StandardScaler(), local)


def logistic(c: float) -> Any:
    """Logistic regression on standardised features with penalty 1 / c."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=500, tol=1e-3))


class LogitNeighbours(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Neighbours under a learned metric: two states are alike if a logistic regression says the same of them.

    In 198 raw dimensions the nearest neighbours are hardly nearer than anyone; in the space of the logits of the
    actions they are those that were treated alike.
    """

    def __init__(self, k: int = 50, *, c: float = 0.03, random_state: int = 0) -> None:
        self.k = k
        self.c = c
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> LogitNeighbours:
        """Fit the regression, and the neighbours in its logits."""
        x, actions = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(actions)
        self.metric_ = logistic(self.c).fit(x, actions)
        self.neighbours_ = NeighbourPolicy(self.k, shrinkage="cv").fit(
            self._logits(x), actions, groups=groups
        )
        self.classes_ = self.neighbours_.classes_
        return self

    def predict_proba(self, X: ArrayLike) -> Float:
        """Probabilities of the actions in ``classes_``, (N, A)."""
        check_is_fitted(self)
        return self.neighbours_.predict_proba(
            self._logits(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))
        )

    def predict(self, X: ArrayLike) -> Any:
        """The most likely action."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def _logits(self, x: Float) -> Float:
        logits = np.asarray(self.metric_.decision_function(x))
        return logits[:, None] if logits.ndim == 1 else logits
