"""States that were not yet recorded, filled inside the model: by what it was fitted on, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline, make_pipeline

from caliope._ragged import Float
from caliope._trajectories import Trajectories


class FillUnseen(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Replace values that were not yet recorded by the mean of those that were, in the rows of the fit.

    A table has 0 there, which is not learnt from any row, and a feature that says so. For models that measure distances
    or standardise, 0 may lie far from all values. Fitted inside the folds, the mean never comes from held-out rows.

    Parameters
    ----------
    pairs : sequence of (int, int)
        Each feature with gaps, and the feature that is 1 where nothing was recorded yet; ``data.encoder.unseen_pairs``.

    Examples
    --------
    >>> FillUnseen([(0, 1)]).fit_transform([[4.0, 0.0], [6.0, 0.0], [0.0, 1.0]])
    array([[4., 0.],
           [6., 0.],
           [5., 1.]])
    """

    def __init__(self, pairs: Sequence[tuple[int, int]] = ()) -> None:
        self.pairs = pairs

    def fit(self, X: ArrayLike, y: Any = None) -> FillUnseen:
        """Find the means."""
        x = np.asarray(X)
        known = [x[x[:, shown] == 0, column] for column, shown in self.pairs]
        self.means_ = np.array([values.mean() if len(values) else 0.0 for values in known])
        self.n_features_in_ = x.shape[1]
        return self

    def transform(self, X: ArrayLike) -> Float:
        """Return a copy with the means in the gaps."""
        x = np.array(X)
        for (column, shown), mean in zip(self.pairs, self.means_, strict=True):
            x[x[:, shown] != 0, column] = mean
        return x


def fill_unseen(model: Any, data: Trajectories) -> Any:
    """The model behind a step that fills what was not yet recorded; itself where the log has no such gaps."""
    pairs = () if data.encoder is None else data.encoder.unseen_pairs
    if not pairs:
        return model
    steps = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    return make_pipeline(FillUnseen(pairs), *steps)
