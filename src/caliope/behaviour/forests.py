"""Forests whose probabilities are the same to the last digit, on any number of cores."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from caliope.ragged import Float


class _InOrder:
    """Cores share the rows, and in each row the trees vote in their order.

    scikit-learn lets cores share the trees, and adds up votes as they come in: the last digits are then chance, and
    whoever optimises over them (a temperature, a choice) passes on more than the last digits.
    """

    n_jobs: int | None

    def predict_proba(self, X: Any) -> Float:
        """Mean of the trees' class frequencies, (N, classes)."""
        alone = copy(self)  # with the same trees
        alone.n_jobs = 1
        vote = super(_InOrder, alone).predict_proba  # type: ignore[misc]
        jobs = effective_n_jobs(self.n_jobs)
        if jobs == 1 or not isinstance(X, np.ndarray) or len(X) < jobs:
            return vote(X)
        parts = Parallel(n_jobs=jobs, require="sharedmem")(
            delayed(vote)(part) for part in np.array_split(X, jobs)
        )
        return np.concatenate(parts)


class OrderedForest(_InOrder, RandomForestClassifier):  # type: ignore[misc]
    """scikit-learn's random forest, with votes in order."""


class OrderedExtraTrees(_InOrder, ExtraTreesClassifier):  # type: ignore[misc]
    """scikit-learn's extremely randomised trees, with votes in order."""
