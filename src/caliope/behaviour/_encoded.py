"""A fitted model together with the encoder of its table, so that it predicts on rows as people have them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope._policies import action_probabilities
from caliope._ragged import Float
from caliope._trajectories import Trajectories
from caliope.io._encoder import Encoder


@dataclass(frozen=True, eq=False)
class EncodedPolicy:
    """A model that takes rows of the table that it was fitted on, words and gaps included.

    Attributes
    ----------
    model : fitted classifier
        Fitted on the states of the log.
    encoder : Encoder
        ``data.encoder`` of that log.

    Examples
    --------
    >>> import polars as pl
    >>> import caliope as cal
    >>> from sklearn.linear_model import LogisticRegression
    >>> log = pl.DataFrame({"id": [1, 2], "from": ["ad", "mail"], "offer": ["no", "yes"], "gain": [0, 1]})
    >>> data = cal.read_table(log, episode="id", action="offer", reward="gain", states="from")
    >>> policy = EncodedPolicy(LogisticRegression().fit(data.states, data.actions), data.encoder)
    >>> policy.predict(pl.DataFrame({"from": ["mail"]})).tolist()
    ['yes']
    """

    model: Any
    encoder: Encoder

    @property
    def classes_(self) -> Any:
        """Codes of the actions."""
        return self.model.classes_

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the actions: of rows of a table, or of states that are encoded already."""
        return self.model.predict_proba(self.encoder.transform(X) if hasattr(X, "columns") else np.asarray(X))

    def predict(self, X: Any) -> Any:
        """Return the most probable action of each row, by its name where it has one."""
        codes = np.asarray(self.classes_)[np.asarray(self.predict_proba(X)).argmax(axis=1)]
        names = self.encoder.action_names
        return codes if names is None else np.array(names)[codes]

    def on(self, data: Trajectories) -> Float:
        """Return the probabilities at every step of a log that was read with the same encoder, (N, A)."""
        if data.feature_names != self.encoder.feature_names or data.action_names != self.encoder.action_names:
            raise ValueError(
                "the model was saved with the encoder of another log, and this one has other features or actions. Read "
                "it with encoder=policy.encoder, so that levels, gaps and doses mean the same."
            )
        return action_probabilities(self.model, data.states, data.n_actions)
