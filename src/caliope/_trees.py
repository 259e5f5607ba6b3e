"""Extremely randomised trees of scikit-learn, grown one after the other without what their threads cost."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import sklearn.ensemble
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

_Array = NDArray[Any]
_SEEDS = np.iinfo(np.int32).max
# Entries of the table up to which a tree takes less time than its thread, so that other cores do not help.
FEW_ENTRIES = 8_000


class _InSeries:
    """A forest without bootstrap whose trees are the same as in scikit-learn, to the last digit, several times faster.

    Scikit-learn prepares every tree for a thread of its own, which costs more than a tree on few rows: its settings,
    filters of warnings, checks and a new generator. Whatever is not usual is left to scikit-learn.
    """

    _criterion: ClassVar[str]

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Grow the trees."""
        if sample_weight is not None or not self._is_usual(X, y):
            return super().fit(X, y, sample_weight)  # type: ignore[misc]
        self._validate_params()  # type: ignore[attr-defined]
        x, targets = validate_data(self, X, y, dtype=np.float32, multi_output=True)
        targets = self._number(targets)
        self.n_outputs_ = targets.shape[1]
        self._n_samples, self._n_samples_bootstrap, self._sample_weight = len(x), None, None
        kind = type(self.estimator)  # type: ignore[attr-defined]
        self.estimator_ = kind()
        given = {name: getattr(self, name) for name in self.estimator_params}  # type: ignore[attr-defined]
        seeds, shared = check_random_state(self.random_state), np.random.RandomState(0)  # type: ignore[attr-defined]
        self.estimators_ = []
        with config_context(skip_parameter_validation=True):  # they are those of the forest
            for _ in range(self.n_estimators):  # type: ignore[attr-defined]
                seed = seeds.randint(_SEEDS)
                # A generator that is seeded again draws like a new one, which takes as long to make as a small tree.
                shared.seed(seed)
                tree = kind(**given | {"random_state": shared}).fit(x, targets, check_input=False)
                self.estimators_.append(tree)
                tree.random_state = seed
        return self

    def _is_usual(self, x: Any, y: Any) -> bool:
        arrays = isinstance(x, np.ndarray) and isinstance(y, np.ndarray)
        if not arrays or x.dtype.kind not in "fiub" or x.ndim != 2 or y.ndim != self._dimensions(y):
            return False
        with np.errstate(all="ignore"):
            finite = bool(np.isfinite(x.sum()))
        usual = {"criterion": self._criterion, "bootstrap": False, "oob_score": False, "warm_start": False}
        usual |= {"max_samples": None, "verbose": 0}
        return (
            finite
            and all(getattr(self, name) == value for name, value in usual.items())
            and (self.n_jobs in (None, 1) or x.size <= FEW_ENTRIES)  # type: ignore[attr-defined]
            and getattr(self, "class_weight", None) is None
        )

    def _dimensions(self, y: _Array) -> int:
        return 1

    def _number(self, y: _Array) -> _Array:
        raise NotImplementedError

    def _sum_of_trees(self, x: Any) -> _Array:
        """The sum of what the trees predict, (N, outputs or classes), in their order."""
        check_is_fitted(self)
        rows = self._validate_X_predict(x)  # type: ignore[attr-defined]
        first, *others = (tree.tree_ for tree in self.estimators_)
        total: _Array = first.predict(rows).reshape(len(rows), -1) + 0.0  # so that -0.0 is 0.0 there too
        for tree in others:
            total += tree.predict(rows).reshape(len(rows), -1)
        return total


class ExtraTreesRegressor(_InSeries, sklearn.ensemble.ExtraTreesRegressor):  # type: ignore[misc]
    """The extremely randomised trees of scikit-learn, fast on few rows."""

    _criterion = "squared_error"

    def predict(self, X: Any) -> _Array:
        """Return the mean of the trees, (N,) or (N, outputs)."""
        if not isinstance(X, np.ndarray) or self.n_jobs not in (None, 1):
            return np.asarray(super().predict(X))
        mean = self._sum_of_trees(X) / len(self.estimators_)
        return mean[:, 0] if self.n_outputs_ == 1 else mean

    def _dimensions(self, y: _Array) -> int:
        return 2 if y.ndim == 2 and y.shape[1] > 1 else 1

    def _number(self, y: _Array) -> _Array:
        return np.ascontiguousarray(y.reshape(len(y), -1), dtype=np.float64)


class ExtraTreesClassifier(_InSeries, sklearn.ensemble.ExtraTreesClassifier):  # type: ignore[misc]
    """The extremely randomised trees of scikit-learn, fast on few rows."""

    _criterion = "gini"

    def predict_proba(self, X: Any) -> Any:
        """Return the mean class frequencies of the trees, (N, classes)."""
        if (
            not isinstance(X, np.ndarray)
            or self.n_jobs not in (None, 1)
            or getattr(self, "n_outputs_", 1) > 1
        ):
            return super().predict_proba(X)
        return self._sum_of_trees(X) / len(self.estimators_)

    def _number(self, y: _Array) -> _Array:
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.n_classes_ = len(self.classes_)
        return codes.astype(np.float64)[:, None]
