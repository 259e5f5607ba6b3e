"""Save and load fitted models without pickle, so that a file cannot run code."""

from __future__ import annotations

import io
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

from caliope._files import written_whole
from caliope._simple_policies import TabularPolicy, UniformPolicy
from caliope.behaviour._calibrated import CalibratedPolicy
from caliope.behaviour._calibrators import Chain, Isotonic, Shrinkage, Steps, Temperature, VectorScaling
from caliope.behaviour._encoded import EncodedPolicy
from caliope.behaviour._ensembles import (
    BoostingPolicy,
    LogitNeighbours,
    OrderedExtraTrees,
    OrderedForest,
    PooledPolicy,
)
from caliope.behaviour._frequencies import TabularFrequencies
from caliope.behaviour._gaps import FillUnseen
from caliope.behaviour._neighbours import NeighbourPolicy
from caliope.behaviour._networks import NetworkPolicy
from caliope.behaviour._recalibration import Recalibrated
from caliope.behaviour._search import Exact, InvertedLists, RandomProjections
from caliope.io._encoder import ActionColumn, Encoder, StateColumn

_POLICIES = (
    BoostingPolicy,
    CalibratedPolicy,
    FillUnseen,
    LogitNeighbours,
    NeighbourPolicy,
    NetworkPolicy,
    OrderedExtraTrees,
    OrderedForest,
    PooledPolicy,
    Recalibrated,
    TabularFrequencies,
    TabularPolicy,
    UniformPolicy,
)
_CALIBRATORS = (Chain, Isotonic, Shrinkage, Steps, Temperature, VectorScaling)
_SEARCHES = (Exact, InvertedLists, RandomProjections)
_TABLES = (ActionColumn, EncodedPolicy, Encoder, StateColumn)
TRUSTED = (
    *(f"{each.__module__}.{each.__qualname__}" for each in (*_POLICIES, *_CALIBRATORS, *_SEARCHES, *_TABLES)),
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.utils._bunch.Bunch",
)
"""Types that a file may contain beside numpy arrays and the public estimators of scikit-learn, which skops knows."""

TREES = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.tree._tree.Tree",
)
"""Types whose content scikit-learn does not check: load them from your own files only."""

# Times its size that a file may unpack to. skops can be told to pack, and arrays seldom shrink so far.
_MOST_PACKED = 100


class UntrustedModelError(ValueError):
    """A file, or a model to be saved, contains a type that is not on the list of trusted types."""


def save_model(model: Any, path: str | Path, *, encoder: Encoder | None = None) -> None:
    """Save a fitted model to a file for :func:`load_model`.

    A model that could not be loaded again is refused now. Save the model itself, such as ``fitted.model``: the result
    of :func:`~caliope.behaviour.fit_behaviour` contains the whole log. A ``NeighbourPolicy`` contains the states that
    it was fitted on, and so does its file. Needs the extra ``persist``.

    Parameters
    ----------
    model : fitted classifier
        A model of this package or of scikit-learn.
    path : str or Path
        The file to write.
    encoder : Encoder, optional
        ``data.encoder`` of the log that the model was fitted on. What is loaded then predicts on rows of the table
        itself, words and gaps included (:class:`~caliope.behaviour.EncodedPolicy`).

    Raises
    ------
    UntrustedModelError
        If the model contains a type that is not on the list, such as a function or class of your own.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from caliope.behaviour import TabularFrequencies, load_model, save_model
    >>> model = TabularFrequencies(shrinkage=1.0).fit([[0], [0], [1]], [1, 1, 0])
    >>> with TemporaryDirectory() as folder:
    ...     save_model(model, Path(folder) / "model.skops")
    ...     again = load_model(Path(folder) / "model.skops")
    >>> again.predict_proba([[0]]).tolist() == model.predict_proba([[0]]).tolist()
    True
    """
    skops = _skops()
    if encoder is not None:
        model = EncodedPolicy(model, encoder)
    try:
        content = skops.dumps(model)
    except (TypeError, AttributeError) as error:
        raise UntrustedModelError(
            f"this {type(model).__name__} cannot be saved: {error} Save the fitted model itself, without functions, "
            "open files or data around it."
        ) from error
    unknown = _list_untrusted(skops.get_untrusted_types(data=content), (*TRUSTED, *TREES))
    if unknown:
        raise UntrustedModelError(
            f"this {type(model).__name__} contains types that load_model would refuse: {', '.join(unknown)}. Nothing "
            "was written. Save the fitted model itself, without functions, classes or data of your own."
        )
    with written_whole(path) as beside:
        beside.write_bytes(content)


def load_model(path: str | Path, *, trees: bool = False) -> Any:
    """Load a model that :func:`save_model` wrote.

    All types in the file are checked against a fixed list before anything is loaded.

    Parameters
    ----------
    path : str or Path
        The file.
    trees : bool
        Load forests and boosted trees too. Do that only with files of your own: scikit-learn does not check the
        numbers in a tree, so that a forged one can crash the process or read other memory.

    Returns
    -------
    fitted classifier
        The model.

    Raises
    ------
    UntrustedModelError
        If the file is not a skops file, such as a pickle, or contains a type that is not on the list.
    ValueError
        If the file is damaged.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from caliope.behaviour import TabularFrequencies, load_model, save_model
    >>> with TemporaryDirectory() as folder:
    ...     save_model(TabularFrequencies(shrinkage=1.0).fit([[0], [1]], [1, 0]), Path(folder) / "model.skops")
    ...     print(load_model(Path(folder) / "model.skops"))
    TabularFrequencies(shrinkage=1.0)
    """
    skops, content = _skops(), Path(path).read_bytes()
    try:
        _check_types(skops, content, path, trees=trees)
        return skops.loads(content, trusted=[*TRUSTED, *(TREES if trees else ())])
    except UntrustedModelError:
        raise
    except Exception as error:  # whatever a file that was tampered with makes of the reader
        raise ValueError(
            f"{path} cannot be read ({type(error).__name__}: {error}): it is damaged, or was written with other "
            "versions of scikit-learn and skops. Copy it again, or fit the model again and save it with save_model."
        ) from error


def _check_types(skops: Any, content: bytes, path: str | Path, *, trees: bool) -> None:
    """Raise unless every type in a file may be loaded; nothing is loaded for that."""
    if not is_zipfile(io.BytesIO(content)) or "schema.json" not in ZipFile(io.BytesIO(content)).namelist():
        raise UntrustedModelError(
            f"{path} was not written by save_model, and has not been opened. Opening a pickle, joblib or torch file "
            "can run any code: never load models from untrusted sources. Fit the model again and save it with "
            "save_model."
        )
    unpacked = sum(part.file_size for part in ZipFile(io.BytesIO(content)).infolist())
    if unpacked > _MOST_PACKED * len(content):
        raise UntrustedModelError(
            f"{path} has {len(content):,} bytes and would unpack to {unpacked:,}. Nothing was loaded: save_model packs "
            "nothing, and such a file may be meant to fill the memory."
        )
    types = skops.get_untrusted_types(data=content)
    unknown = _list_untrusted(types, (*TRUSTED, *TREES))
    if unknown:
        raise UntrustedModelError(
            f"{path} contains types that Caliope does not trust: {', '.join(unknown)}. Nothing was loaded. Never load "
            "models from untrusted sources."
        )
    if not trees and set(types) & set(TREES):
        raise UntrustedModelError(
            f"{path} contains decision trees, and a forged tree can crash the process. Nothing was loaded. If you "
            "wrote the file yourself, load it with trees=True; never load models from untrusted sources."
        )


def _list_untrusted(types: Iterable[str], allowed: tuple[str, ...]) -> list[str]:
    return sorted(set(types) - set(allowed))


def _skops() -> Any:
    try:
        return import_module("skops.io")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "saving and loading models needs skops: pip install 'caliope[persist]'.", name="skops"
        ) from error
