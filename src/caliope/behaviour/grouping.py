"""Who inside a model asks for the trajectories, whom they reach, and who has seen the actions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from sklearn import decomposition, feature_selection, impute, preprocessing
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline

# Steps that are fitted to the states alone, whatever actions they are handed.
_BLIND = (
    preprocessing.FunctionTransformer,
    preprocessing.KBinsDiscretizer,
    preprocessing.MaxAbsScaler,
    preprocessing.MinMaxScaler,
    preprocessing.Normalizer,
    preprocessing.OneHotEncoder,
    preprocessing.OrdinalEncoder,
    preprocessing.PolynomialFeatures,
    preprocessing.PowerTransformer,
    preprocessing.QuantileTransformer,
    preprocessing.RobustScaler,
    preprocessing.SplineTransformer,
    preprocessing.StandardScaler,
    decomposition.PCA,
    decomposition.TruncatedSVD,
    feature_selection.VarianceThreshold,
    impute.MissingIndicator,
    impute.SimpleImputer,
)


def blind_to_actions(step: Any) -> bool:
    """Whether a step of a pipeline is one of those that never look at the actions; an unknown one may."""
    if isinstance(step, Pipeline):
        return all(blind_to_actions(part) for _, part in step.steps)
    return step in (None, "passthrough") or type(step) in _BLIND


def end_of(model: Any) -> Any:
    """The last step of a pipeline, and of a pipeline there; any other model itself."""
    return end_of(model.steps[-1][1]) if isinstance(model, Pipeline) else model


def parts_of(model: Any) -> Iterator[Any]:
    """An estimator, and all that it was given or has fitted inside it."""
    yield model
    for value in vars(model).values():
        yield from _inside(value)


def _inside(value: Any) -> Iterator[Any]:
    if hasattr(value, "get_params") and not isinstance(value, type):
        yield from parts_of(value)
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _inside(part)


def groups_name(model: Any) -> str | None:
    """What ``groups`` is called in ``fit``: ``a__b__groups`` within pipelines; None where nobody there asks."""
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        inner = groups_name(last)
        return None if inner is None else f"{name}__{inner}"
    if isinstance(model, BaseSearchCV):
        return "groups" if _splits_by_groups(model.cv) else None
    return "groups" if _asks(model) else None


def not_told(model: Any) -> list[str]:
    """Names of the parts that should know the trajectories and cannot be told: those inside another's wrapping."""
    if isinstance(model, Pipeline):
        return not_told(model.steps[-1][1])
    if isinstance(model, BaseSearchCV):
        by_rows = [] if _splits_by_groups(model.cv) else [type(model).__name__]
        return by_rows + [type(part).__name__ for part in parts_of(model.estimator) if _asks(part)]
    if _asks(model):
        return []  # and tells its own parts
    return [type(part).__name__ for part in parts_of(model) if _asks(part)]


def _asks(model: Any) -> bool:
    return hasattr(model, "fit") and "groups" in inspect.signature(model.fit).parameters


def _splits_by_groups(cv: Any) -> bool:
    """Whether a splitter asks for groups; a number of folds makes one that does not."""
    if hasattr(cv, "get_metadata_routing"):
        return cv.get_metadata_routing().split.requests.get("groups") is True
    return hasattr(cv, "split")
