"""The models of the paper, and the default: plain scikit-learn estimators with their settings in sight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope.behaviour.boosting import BoostingPolicy
from caliope.behaviour.forests import OrderedExtraTrees, OrderedForest
from caliope.behaviour.logit_neighbours import LogitNeighbours, logistic
from caliope.behaviour.neighbours import NeighbourPolicy
from caliope.behaviour.network import NetworkPolicy
from caliope.behaviour.pool import PooledPolicy
from caliope.behaviour.search import RandomProjections


def paper_models(*, random_state: int = 0) -> dict[str, Any]:
    """The four models of Raghu et al. (2018), unfitted.

    The paper does not say how they were tuned; these are the ordinary settings of their kind. Features are
    standardised for all but the forest.
    """
    return {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "forest": OrderedForest(100, n_jobs=-1, random_state=random_state),
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
        # Split points at random: faster than a random forest, and no worse.
        "forest": OrderedExtraTrees(
            100, min_samples_leaf=10, max_features=0.5, n_jobs=-1, random_state=random_state
        ),
        "network": NetworkPolicy(random_state=random_state),
        "neighbours of logits": LogitNeighbours(random_state=random_state),
    }


def boosting(*, random_state: int = 0) -> Any:
    """Gradient boosting; slow with many actions, and stopped by its loss on held-out trajectories."""
    return BoostingPolicy(
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
