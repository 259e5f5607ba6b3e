"""Other choices of an audit: which models are tried, and which of them the headline should agree with."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from caliope._audit._benchmark import ColumnStrength, benchmark_columns, steps_to_use
from caliope._audit._inputs import target_in_rows
from caliope._audit._levels import name_of, recut_choices
from caliope._audit._result import LOGGED
from caliope._results import Table
from caliope._trajectories import Trajectories
from caliope.calibration._compare import Comparison
from caliope.io._doses import MERGED
from caliope.sensitivity import SHRUNK, OtherChoice, try_other_choices

if TYPE_CHECKING:
    from caliope._audit._basis import Basis
    from caliope._audit._prepare import PreparedAudit

_REFUTED = 2  # standard errors by which the log loss of a model is above the best


def try_others(prepared: PreparedAudit, basis: Basis) -> Table[OtherChoice]:
    """Other choices, in a long log on a sample of it."""
    inputs, which, target, q = prepared.inputs, prepared.looked_at, basis.target, basis.q
    part, rows = prepared.data.part(which), prepared.data.layout.rows_of(which)
    behaviours: dict[str, Any] = {
        name: replace(model, data=part) for name, model in prepared.other_models.items()
    }
    if inputs.logged is not None:
        known = inputs.logged[rows] if inputs.recorded is None else inputs.recorded.part(rows)
        behaviours = {LOGGED: known} | behaviours
    how: dict[str, Any] = {"gamma": inputs.gamma, "rng": inputs.seed}
    found = try_other_choices(part, target_in_rows(target, rows), behaviours, q=q[rows], **how)
    for each in recut_choices(prepared, basis.asked, basis.target_probs):
        named = {name_of(prepared.comparison.recommended, each.recut): each.recut.behaviour}
        more = try_other_choices(each.recut.data, each.target, named, q=each.q, **how)
        found = replace(found, rows=(*found.rows, *more.rows))
    return found


def benchmark(data: Trajectories, target: Any) -> tuple[ColumnStrength, ...]:
    """How strong each recorded column would be as an unmeasured confounder, in a long log on a part of it."""
    which = data.subsample(steps_to_use(data))
    return benchmark_columns(data.part(which), target_in_rows(target, data.layout.rows_of(which)))


def comparable_values(others: Table[OtherChoice], prepared: PreparedAudit) -> list[float]:
    """The values of other choices that the headline should agree with."""
    # What was shrunk towards practice, or may have memorised the log, differs for reasons that are known, and a policy
    # whose levels were merged is another one. Recorded probabilities need no model, and are not held against one.
    kept = [row for row in others if row.weights != SHRUNK and row.fit != "same"]
    kept = [row for row in kept if not row.model.endswith(MERGED)]
    if prepared.logged is not None:
        return [row.value for row in kept if row.model == LOGGED]
    refuted = _refuted_models(prepared.comparison)
    return [row.value for row in kept if not any(_is_variant(row.model, name) for name in refuted)]


def _refuted_models(comparison: Comparison) -> list[str]:
    """Candidates whose held-out log loss is clearly above that of the best: another analyst would not choose them."""
    choice = comparison.choice
    if choice is None:
        return []
    clearly = [name for name in choice.ranking if choice.behind[name] > _REFUTED * choice.se[name]]
    return [name for name in clearly if name != choice.recommended]


def _is_variant(model: str, name: str) -> bool:
    """Whether a model of the other choices is a candidate, or made of it."""
    return model == name or any(
        model.startswith(f"{name}, {how}") for how in ("k = ", "temperature", "same data")
    )
