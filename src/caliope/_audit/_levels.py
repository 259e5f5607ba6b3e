"""Doses cut into other levels, among the other choices of an audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator, clone

from caliope._audit._inputs import Question
from caliope._gather import target_probabilities
from caliope._policies import MixWithPractice, Practice
from caliope._ragged import Float
from caliope._trajectories import Trajectories
from caliope.behaviour._fit import FittedBehaviour, fit_behaviour
from caliope.io._doses import OtherLevels, RecommendedDoses, cut_anew, merge_columns, merge_levels
from caliope.values._defaults import fit_default_values

if TYPE_CHECKING:
    from caliope._audit._prepare import PreparedAudit


@dataclass(frozen=True, eq=False)
class Recut:
    """The trajectories that are looked at, with other levels of a dose, and the behaviour policy for these.

    Attributes
    ----------
    levels : OtherLevels
        How the dose is cut.
    data : Trajectories
        With these levels as actions.
    behaviour : FittedBehaviour
        The chosen model, fitted to them.
    """

    levels: OtherLevels
    data: Trajectories
    behaviour: FittedBehaviour


@dataclass(frozen=True, eq=False)
class RecutChoice:
    """What is needed to ask the same question with other levels.

    Attributes
    ----------
    recut : Recut
        The log and its behaviour policy.
    target : Any
        The target policy, with these levels.
    q : array of shape (N, A)
        Fitted values of all actions.
    """

    recut: Recut
    target: Any
    q: Float


def recut_choices(prepared: PreparedAudit, asked: Question, target_probs: Float) -> Iterator[RecutChoice]:
    """The question with the doses cut into other levels.

    A policy that recommends doses is cut anew. Of any other, which is stated in the levels of the log, two levels are
    merged: within them it doses as current practice does. Recorded probabilities belong to the levels of the log, and
    rule out both.
    """
    if prepared.logged is not None or isinstance(asked.target, Practice):
        return
    rows = prepared.data.layout.rows_of(prepared.looked_at)
    anew = in_doses(asked.target)
    for recut in prepared.recut_anew if anew else prepared.recut_merged:
        target = asked.target if anew else _merge(prepared, asked.target, target_probs, recut, rows)
        practice = recut.behaviour.probabilities
        probs = target_probabilities(recut.data, target, practice)
        q, _ = fit_default_values(
            recut.data, probs, asked.regressor, gamma=prepared.inputs.gamma, rng=prepared.inputs.seed
        )
        yield RecutChoice(recut, target, q)


def in_doses(target: Any) -> bool:
    """Whether a target is a policy that recommends doses, also mixed with practice."""
    policy = target.policy if isinstance(target, MixWithPractice) else target
    return isinstance(policy, RecommendedDoses)


def _merge(prepared: PreparedAudit, target: Any, target_probs: Float, recut: Recut, rows: Any) -> Any:
    """A target stated in the levels of the log, with some of them merged; a mixture with practice stays one."""
    if isinstance(target, MixWithPractice):
        table: Any = merge_columns(target_probabilities(prepared.data, target.policy)[rows], recut.levels)
        return replace(target, policy=table)
    return merge_columns(target_probs[rows], recut.levels)


def fit_recuts(prepared: PreparedAudit, *, anew: bool) -> tuple[Recut, ...]:
    """The chosen behaviour model, fitted to doses in other levels: cut anew, or with two of them merged."""
    chosen = prepared.models.recommended
    if not isinstance(chosen.model, BaseEstimator):
        return ()  # a model and its correction were made for the actions of the log
    find = cut_anew if anew else merge_levels
    return tuple(_fit(prepared, chosen, levels) for levels in find(prepared.data))


def _fit(prepared: PreparedAudit, chosen: FittedBehaviour, levels: OtherLevels) -> Recut:
    # What the model sees of the past are the levels of the log, as in the audit.
    wide = levels.cut(chosen.widen(prepared.data))
    part, looked_at = prepared.models.fitted_on, prepared.looked_at
    fitted = fit_behaviour(clone(chosen.model), wide.part(part), mode="cross", rng=prepared.inputs.seed)
    seen = fitted.with_predictions_for(wide.part(looked_at))
    data = levels.cut(prepared.data.part(looked_at))
    return Recut(levels, data, replace(seen, data=data))


def name_of(model: str, recut: Recut) -> str:
    """What such a choice is called."""
    return f"{model}, {recut.levels.name}"
