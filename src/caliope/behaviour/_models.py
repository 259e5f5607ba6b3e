"""Behaviour models by name, unfitted: those of the paper, the default, the candidates of an audit; and variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from caliope._policies import action_probabilities
from caliope._ragged import read_only
from caliope._trajectories import Trajectories
from caliope.behaviour._calibrated import CalibratedPolicy, innermost
from caliope.behaviour._calibrators import Temperature
from caliope.behaviour._ensembles import (
    BoostingPolicy,
    LogitNeighbours,
    OrderedExtraTrees,
    OrderedForest,
    PooledPolicy,
    logistic,
)
from caliope.behaviour._fit import FittedBehaviour, fit_behaviour, match_trajectories
from caliope.behaviour._frequencies import TabularFrequencies
from caliope.behaviour._gaps import fill_unseen
from caliope.behaviour._history import present_columns
from caliope.behaviour._neighbours import NeighbourPolicy
from caliope.behaviour._networks import NetworkPolicy
from caliope.behaviour._recalibration import Recalibrated
from caliope.behaviour._search import RandomProjections

POOL = "pool and neighbours"  # the default model's name among the candidates
_TIMES = (0.5, 2.0)  # as many neighbours, in variants
_FEW_STATES = 200  # distinct ones, up to which states are counted as discrete


def paper_models(*, random_state: int = 0) -> dict[str, Any]:
    """Make the four models of Raghu et al. (2018), unfitted.

    The paper does not say how they were tuned; these are ordinary settings. Features are standardised for all but
    the forest.

    Parameters
    ----------
    random_state : int
        Seed of the forest and the network.

    Returns
    -------
    dict
        Unfitted classifiers by name.

    Examples
    --------
    >>> from caliope.behaviour import paper_models
    >>> list(paper_models())
    ['logistic', 'forest', 'network', 'neighbours']

    References
    ----------
    Raghu et al. (2018), Behaviour policy estimation in off-policy policy evaluation: calibration matters.
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
    """Make the members of the default pool, unfitted; each can be used alone.

    Parameters
    ----------
    random_state : int
        Seed of the members.

    Returns
    -------
    dict
        Unfitted classifiers by name.

    Examples
    --------
    >>> from caliope.behaviour import default_models
    >>> list(default_models())[-3:]
    ['forest', 'network', 'neighbours of logits']
    """
    return {
        "logistic, strong": logistic(0.003),
        "logistic, medium": logistic(0.03),
        "logistic, weak": logistic(0.3),
        # Random split points: faster than a random forest, and as good.
        "forest": OrderedExtraTrees(
            100, min_samples_leaf=10, max_features=0.5, n_jobs=-1, random_state=random_state
        ),
        "network": NetworkPolicy(random_state=random_state),
        "neighbours of logits": LogitNeighbours(random_state=random_state),
    }


def boosting(*, random_state: int = 0) -> Any:
    """Make a gradient boosting model with early stopping on held-out trajectories; slow with many actions.

    Parameters
    ----------
    random_state : int
        Seed of the held-out trajectories.

    Returns
    -------
    BoostingPolicy
        An unfitted classifier.

    Examples
    --------
    >>> from caliope.behaviour import boosting
    >>> boosting().early_stopping
    True
    """
    return BoostingPolicy(
        learning_rate=0.05, max_leaf_nodes=15, early_stopping=True, random_state=random_state
    )


def default_model(*, present: Sequence[int] | None = None, folds: int = 5, random_state: int = 0) -> Pipeline:
    r"""Make the default behaviour model: a pool of several models, corrected by nearest neighbours.

    The pool of :func:`default_models` is cross-fitted by trajectory. Neighbours in other trajectories then correct its
    probabilities, as far as that improves held-out predictions. ``model[-1].prior_`` is the pool, with its
    ``weights_`` and ``nll_``.

    Parameters
    ----------
    present : sequence of int, optional
        The columns in which neighbours are compared; by default all. Where states contain earlier steps, use
        :func:`~caliope.behaviour.present_columns`: with many columns the correction is small.
    folds : int
        Number of folds of the pool.
    random_state : int
        Seed of the pool and its members.

    Returns
    -------
    sklearn.pipeline.Pipeline
        An unfitted classifier.

    Examples
    --------
    >>> from caliope.behaviour import default_model
    >>> [name for name, _ in default_model(folds=3).steps]
    ['standardscaler', 'neighbourpolicy']
    """
    pool = PooledPolicy(default_models(random_state=random_state), folds=folds, random_state=random_state)
    local = NeighbourPolicy(30, columns=present, shrinkage="cv", bandwidth="cv", prior=pool)
    return make_pipeline(StandardScaler(), local)


def candidate_models(data: Trajectories, *, random_state: int = 0) -> Mapping[str, Any]:
    """Return the behaviour models that an audit tries when none are named, unfitted, from simple to complex.

    Parameters
    ----------
    data : Trajectories
        The log: where its states are discrete, counts are among the candidates; where states were not yet recorded,
        models that standardise fill them by the mean of what they are fitted on.
    random_state : int
        Seed of the models.

    Returns
    -------
    mapping from name to classifier
        Counts where states are discrete, logistic regression, neighbours, a forest, and the default model. Regression
        and neighbours are recalibrated where that clearly lowers their held-out log loss.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> list(candidate_models(ward.simulate(50, rng=0)))
    ['frequencies', 'logistic', 'neighbours', 'forest', 'pool and neighbours']
    """
    members = default_models(random_state=random_state)
    first = data.layout.rows_of(data.fixed_order[: 20 * _FEW_STATES])
    sample = data.states[first[: 20 * _FEW_STATES]]
    models: dict[str, Any] = {}
    if len(np.unique(sample, axis=0)) <= _FEW_STATES:
        models["frequencies"] = TabularFrequencies()
    local = make_pipeline(StandardScaler(), NeighbourPolicy(50, shrinkage="cv", bandwidth="cv"))
    # Pools recalibrate themselves already; these two are recalibrated where that clearly helps.
    for name, model in {"logistic": members["logistic, medium"], "neighbours": local}.items():
        models[name] = CalibratedPolicy(fill_unseen(model, data), random_state=random_state)
    # In a pool of its own: a forest rules out what none of its leaves has seen, and the pool shrinks it.
    models["forest"] = PooledPolicy({"forest": members["forest"]}, random_state=random_state)
    pool = default_model(present=present_columns(data.feature_names), random_state=random_state)
    models[POOL] = fill_unseen(pool, data)
    return models


def fit_other_models(
    fitted: Mapping[str, FittedBehaviour], chosen: str, practice: FittedBehaviour, *, rng: int
) -> dict[str, FittedBehaviour]:
    """Fit the behaviour models that another analyst might have chosen, for a sensitivity analysis.

    Parameters
    ----------
    fitted : mapping from name to FittedBehaviour
        The candidates.
    chosen : str
        Name of the one that was chosen.
    practice : FittedBehaviour
        That one, with its probabilities in the log that the others are wanted for. It may be larger than the one they
        were fitted on.
    rng : int
        Seed of the folds.

    Returns
    -------
    dict from name to FittedBehaviour
        The candidates, neighbours with half and twice their k, and the chosen model recalibrated by a temperature and
        fitted on the same data.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> fitted = fit_behaviour(LogisticRegression(), ward.simulate(50, rng=0), mode="cross", rng=0)
    >>> list(fit_other_models({"logistic": fitted}, "logistic", fitted, rng=0))
    ['logistic', 'logistic, temperature', 'logistic, same data']
    """
    data = practice.data
    models = {
        name: practice if name == chosen else each.with_predictions_for(data) for name, each in fitted.items()
    }
    for name, each in fitted.items():
        for k in _other_k(each.model, len(each.data)):
            models[f"{name}, k = {k}"] = _with_k(each, k, rng).with_predictions_for(data)
    models[f"{chosen}, temperature"] = _with_temperature(fitted[chosen], practice)
    models[f"{chosen}, same data"] = _on_its_own_log(fitted[chosen], practice)
    return models


def _other_k(model: Any, most: int) -> list[int]:
    last = innermost(model)
    # A prior of its own is fitted anew with every k, and where it is good the neighbours hardly matter.
    if type(last) is not NeighbourPolicy or last.prior is not None:
        return []
    return [k for times in _TIMES if 1 < (k := round(times * last.k)) < most]


def _with_k(fitted: FittedBehaviour, k: int, rng: int) -> FittedBehaviour:
    model = clone(fitted.model)
    innermost(model).set_params(k=k)
    return fitted.fit_again(lambda log: fit_behaviour(model, log, mode="cross", rng=rng))


def _with_temperature(fitted: FittedBehaviour, practice: FittedBehaviour) -> FittedBehaviour:
    warm = Temperature().fit(fitted.probabilities, fitted.data.actions)
    return replace(
        practice,
        model=Recalibrated(fitted.model, warm, practice.data.n_actions),
        probabilities=read_only(warm(practice.probabilities)),
    )


def _on_its_own_log(fitted: FittedBehaviour, practice: FittedBehaviour) -> FittedBehaviour:
    """The model's predictions for the trajectories that it was fitted on; for others they stay as they were."""
    own = fitted.data
    table = practice.probabilities.copy()
    place = match_trajectories(own, practice.data)
    seen = np.flatnonzero(place >= 0)
    predicted = action_probabilities(fitted.model, fitted.widen(own).states, own.n_actions)
    table[practice.data.layout.rows_of(seen)] = predicted[own.layout.rows_of(place[seen])]
    return replace(practice, probabilities=read_only(table), mode="same")
