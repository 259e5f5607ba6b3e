"""Gradient boosting that stops when it no longer predicts strangers better."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.utils import check_X_y

from caliope.behaviour.network import hold_out


class BoostingPolicy(HistGradientBoostingClassifier):  # type: ignore[misc]
    """scikit-learn's histogram boosting, stopped early on the loss of held-out trajectories.

    Its own early stopping holds out rows, and refuses an action that occurs once. Here a share of the trajectories is
    held out, ``validation_fraction``; where an action occurs in these alone, its rows are learned from instead.
    """

    def fit(self, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None) -> BoostingPolicy:
        """Boost on most trajectories, stop on the others; ``groups`` tells the trajectory of each row."""
        x, actions = check_X_y(X, y, ensure_all_finite="allow-nan")
        apart = hold_out(len(x), groups, self.validation_fraction, self.random_state)
        apart &= np.isin(actions, actions[~apart])
        watched = apart if apart.any() else ~apart
        super().fit(x[~apart], actions[~apart], X_val=x[watched], y_val=actions[watched])
        return self
