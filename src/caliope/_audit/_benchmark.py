"""A yardstick for unmeasured confounders: by how much weights change when a recorded column is unknown."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from caliope._gather import target_probabilities
from caliope._policies import Relative
from caliope._ragged import Float, at_actions
from caliope._trajectories import Trajectories

_MAX_STEPS = 10_000  # of whole trajectories that the model is fitted on and the factors are computed from
_MAX_CELLS = 12_000_000  # steps times actions times columns: about a second
_QUANTILE = 0.95  # of the trajectories
_SINGULAR = 1e-10  # of the largest eigenvalue
_ROUNDS = 50  # of the optimiser: a yardstick needs no more


@dataclass(frozen=True)
class ColumnStrength:
    """How much one recorded column matters for the weights.

    Attributes
    ----------
    column : str
        Name of the state column.
    factor : float
        Factor by which the weight of a trajectory changes when the column is unknown: 95% change by less.
    """

    column: str
    factor: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"column": self.column, "factor": self.factor}


def benchmark_columns(data: Trajectories, target: Any) -> tuple[ColumnStrength, ...]:
    r"""Measure each recorded column as if it were the unmeasured confounder, the strongest first.

    A multinomial logistic model of practice is fitted on all columns. Then each column in turn is replaced by its
    linear prediction from the others, and the weight of every trajectory is computed again:

    .. math:: \Gamma_j = \mathrm{quantile}_{0.95} \exp \bigl| \log w_i - \log w_i^{(-j)} \bigr|

    A breakdown factor can be held against these: a confounder as strong as column j has a factor of about
    :math:`\Gamma_j`. Where the target is stated in absolute terms its probabilities cancel; one relative to practice
    changes with it.

    Parameters
    ----------
    data : Trajectories
        The log; of a long one, whole trajectories with about 10,000 steps.
    target : array of shape (N, A), or a policy stated relative to practice
        The target policy at every step of ``data``.

    Returns
    -------
    tuple of ColumnStrength
        One per column; empty where only one action was taken or no trajectory has weight.
    """
    if len(np.unique(data.actions)) < 2:
        return ()
    x = _standardise(data.states)
    model = _fit(x, data)
    logits = model.decision_function(x)
    full = _log_weights(data, target, _all_actions(model, _two_sided(logits), data.n_actions))
    weighted = np.isfinite(full)  # the others have weight 0 whatever practice is
    if not weighted.any():
        return ()
    found = []
    groups = _groups(data)
    for name, change in zip(groups, _changes(x, model.coef_, list(groups.values())), strict=True):
        probs = _all_actions(model, _two_sided(logits + change), data.n_actions)
        apart = np.abs(full[weighted] - _log_weights(data, target, probs)[weighted])
        found.append(ColumnStrength(name, float(np.exp(np.quantile(apart, _QUANTILE)))))
    return tuple(sorted(found, key=lambda row: -row.factor))


def steps_to_use(data: Trajectories) -> int:
    """Of how many steps the factors are computed: fewer where there are many columns and actions."""
    return int(np.clip(_MAX_CELLS // (data.n_actions * len(data.feature_names)), 1000, _MAX_STEPS))


def _standardise(states: Float) -> Float:
    x = np.asarray(states, dtype=np.float64)
    scale = x.std(axis=0)
    return np.divide(x - x.mean(axis=0), scale, out=np.zeros_like(x), where=scale > 0)


def _fit(x: Float, data: Trajectories) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(max_iter=_ROUNDS).fit(x, data.actions)


def _groups(data: Trajectories) -> dict[str, list[int]]:
    """The features of each recorded column: several where a category or a gap made more than one of it."""
    encoder = data.encoder
    if encoder is None or encoder.feature_names != data.feature_names:
        return {name: [j] for j, name in enumerate(data.feature_names)}
    ends = np.cumsum([len(column.features) for column in encoder.columns]).tolist()
    starts = [0, *ends[:-1]]
    return {
        column.name: list(range(a, b)) for column, a, b in zip(encoder.columns, starts, ends, strict=True)
    }


def _changes(x: Float, weights: Float, groups: Sequence[list[int]]) -> Iterator[Float]:
    """What the logits change by when each column is replaced by its prediction from the others, (N,) or (N, A)."""
    alone = _residuals(x)
    for group in groups:
        residual = alone[:, group] if len(group) == 1 else _residual_of(x, group)
        change = -residual @ weights[:, group].T
        yield change[:, 0] if len(weights) == 1 else change


def _residual_of(x: Float, group: list[int]) -> Float:
    """What the other columns do not predict of a group of them together, by least squares, (N, k)."""
    others = np.delete(x, group, axis=1)
    return x[:, group] - others @ np.linalg.pinv(others.T @ others, rcond=_SINGULAR) @ (
        others.T @ x[:, group]
    )


def _residuals(x: Float) -> Float:
    r"""What the other columns do not predict of each, by least squares, (N, d); columns have mean 0.

    With :math:`P` the inverse of :math:`X^\top X`, column j of :math:`X P` divided by :math:`P_{jj}`. A column that is
    a combination of others has nothing left.
    """
    values, vectors = np.linalg.eigh(x.T @ x)
    null = values <= _SINGULAR * values[-1]
    combined = (vectors[:, null] ** 2).sum(axis=1) > _SINGULAR
    precision = (vectors[:, ~null] / values[~null]) @ vectors[:, ~null].T
    left = np.zeros_like(x)
    left[:, ~combined] = (x @ precision[:, ~combined]) / np.diag(precision)[~combined]
    return left


def _two_sided(logits: Float) -> Float:
    """Logits of all classes, (N, K): of two classes scikit-learn returns the second one's alone."""
    return logits if logits.ndim == 2 else np.column_stack([np.zeros(len(logits)), logits])


def _all_actions(model: LogisticRegression, logits: Float, n_actions: int) -> Float:
    """Probabilities of all actions, (N, A); an action that was never taken has none."""
    probs = np.zeros((len(logits), n_actions))
    probs[:, model.classes_] = np.exp(log_softmax(logits, axis=1))
    return probs


def _log_weights(data: Trajectories, target: Any, behaviour: Float) -> Float:
    """Logarithm of the weight of every trajectory, (n,)."""
    table = target_probabilities(data, target, behaviour) if isinstance(target, Relative) else target
    with np.errstate(divide="ignore"):
        log_ratio = np.log(at_actions(table, data.actions)) - np.log(at_actions(behaviour, data.actions))
    return data.layout.sum_steps(log_ratio)


def compare_strength(rows: Sequence[ColumnStrength], factor: float) -> str:
    """Hold a breakdown factor against the recorded columns, in a sentence; empty without any or without a factor."""
    if not rows or np.isnan(factor):
        return ""
    best, reached = rows[0], sum(row.factor >= factor for row in rows)
    effect = "would reverse the difference" if reached else "would not reverse the difference"
    text = f"An unmeasured confounder as strong as {best.column} (factor {best.factor:.2f}) {effect}."
    if reached:
        several = f"{reached} of {len(rows)} recorded columns reach it"
        which = "the only recorded column reaches it" if len(rows) == 1 else several
        text += f" A factor of {factor:.2f} is enough; {which}."
    return text
