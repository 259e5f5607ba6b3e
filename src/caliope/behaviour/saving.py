"""Save fitted models and load them again, without pickle: a file cannot bring code of its own."""

from __future__ import annotations

import io
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

_HERE = "caliope.behaviour"
TRUSTED = (
    f"{_HERE}.boosting.BoostingPolicy",
    f"{_HERE}.calibrators.Chain",
    f"{_HERE}.calibrators.Isotonic",
    f"{_HERE}.calibrators.Shrinkage",
    f"{_HERE}.calibrators.Temperature",
    f"{_HERE}.calibrators.VectorScaling",
    f"{_HERE}.calibrators._Steps",
    f"{_HERE}.forests.OrderedExtraTrees",
    f"{_HERE}.forests.OrderedForest",
    f"{_HERE}.frequencies.TabularFrequencies",
    f"{_HERE}.logit_neighbours.LogitNeighbours",
    f"{_HERE}.neighbours.NeighbourPolicy",
    f"{_HERE}.network.NetworkPolicy",
    f"{_HERE}.pool.PooledPolicy",
    f"{_HERE}.recalibration.Recalibrated",
    f"{_HERE}.search.Exact",
    f"{_HERE}.search.InvertedLists",
    f"{_HERE}.search.RandomProjections",
    "caliope.policies.TabularPolicy",
    "caliope.policies.UniformPolicy",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
)
"""Types that a file may hold beside numpy arrays and scikit-learn's public estimators, which skops knows."""

TREES = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
)
"""Types that scikit-learn follows without checking where they lead: only from files of your own."""


class UntrustedModelError(ValueError):
    """A file, or a model about to become one, holds something that is not on the fixed list."""


def save_model(model: Any, path: str | Path) -> None:
    """Write a fitted model to a file that :func:`load_model` can open again.

    A model that could not be loaded is refused now rather than then. Save the model itself, such as ``fitted.model``:
    what :func:`~caliope.behaviour.fit_behaviour` returns carries the whole log. Mind that a ``NeighbourPolicy`` is
    made of the states it was fitted on, and its file holds them.

    Raises
    ------
    UntrustedModelError
        If the model holds anything that is not on the fixed list, such as a function or class of your own.
    """
    skops = _skops()
    try:
        content = skops.dumps(model)
    except (TypeError, AttributeError) as error:
        raise UntrustedModelError(
            f"this {type(model).__name__} cannot be saved: {error} Save the fitted model itself, without functions, "
            "open files or data around it."
        ) from error
    unknown = _others(skops.get_untrusted_types(data=content), (*TRUSTED, *TREES))
    if unknown:
        raise UntrustedModelError(
            f"this {type(model).__name__} holds types that load_model would refuse: {', '.join(unknown)}. Nothing was "
            "written. Save the fitted model itself, without functions, classes or data of your own."
        )
    Path(path).write_bytes(content)


def load_model(path: str | Path, *, trees: bool = False) -> Any:
    """Load a model that :func:`save_model` wrote.

    Only types on a fixed list are made, and nothing is made before all have been checked. With ``trees`` forests
    and boosted trees are loaded too. Do that only with files of your own: scikit-learn follows the numbers in a tree
    blindly, so that a forged one can crash the process or read memory that it should not.

    Raises
    ------
    UntrustedModelError
        If the file is no skops file, such as a pickle, or holds anything that is not on the list.
    """
    skops = _skops()
    content = Path(path).read_bytes()
    if not is_zipfile(io.BytesIO(content)) or "schema.json" not in ZipFile(io.BytesIO(content)).namelist():
        raise UntrustedModelError(
            f"{path} was not written by save_model, and has not been opened. If it is a pickle, joblib or torch file, "
            "opening it can run any code: never load models from strangers. Fit the model again and save it with "
            "save_model."
        )
    found = skops.get_untrusted_types(data=content)
    unknown = _others(found, (*TRUSTED, *TREES))
    if unknown:
        raise UntrustedModelError(
            f"{path} holds types that Caliope does not trust: {', '.join(unknown)}. Nothing was loaded. Never load "
            "models from strangers; a model of your own with such parts cannot be saved."
        )
    if not trees and set(found) & set(TREES):
        raise UntrustedModelError(
            f"{path} holds decision trees, and a forged tree can crash the process. Nothing was loaded. If you wrote "
            "the file yourself, load it with trees=True; never load models from strangers."
        )
    return skops.loads(content, trusted=[*TRUSTED, *(TREES if trees else ())])


def _others(found: Iterable[str], allowed: tuple[str, ...]) -> list[str]:
    return sorted(set(found) - set(allowed))


def _skops() -> Any:
    try:
        return import_module("skops.io")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "saving and loading models needs skops: pip install 'caliope[persist]'.", name="skops"
        ) from error
