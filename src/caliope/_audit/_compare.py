"""Candidate models of the behaviour policy: fitted on a log, and compared on held-out decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caliope._audit._inputs import AuditInputs
from caliope._audit._remedy import examine_practice, extend_models
from caliope._audit._settings import Stage, Stages
from caliope._cache import Cache
from caliope._cells import inert
from caliope._ragged import Int, at_actions
from caliope._trajectories import Trajectories
from caliope.behaviour._calibrated import CalibratedPolicy
from caliope.behaviour._fit import FittedBehaviour, fit_behaviour
from caliope.behaviour._models import candidate_models
from caliope.behaviour._recalibration import shrink_fitted
from caliope.behaviour._threads import one_blas_thread
from caliope.calibration._compare import Comparison, compare_policies
from caliope.calibration._result import CalibrationRow
from caliope.checks import B110, Finding
from caliope.checks._log import check_log


@dataclass(frozen=True, eq=False, repr=False)
class BehaviourModels:
    """Behaviour models of a log, fitted and compared; made by :func:`~caliope._audit._opened.compare_behaviour`.

    Attributes
    ----------
    data : Trajectories
        The log.
    fitted_on : array of int
        Numbers of the trajectories that models were fitted on: all, or of a long log a sample.
    fitted : mapping from name to FittedBehaviour
        The candidates, cross-fitted by trajectory.
    comparison : Comparison
        How well each is calibrated on held-out decisions, and which one to choose.
    findings : tuple of Finding
        What was found about the log itself.
    stages : tuple of Stage
        What each stage took.
    """

    data: Trajectories
    fitted_on: Int
    fitted: Mapping[str, FittedBehaviour]
    comparison: Comparison
    findings: tuple[Finding, ...]
    stages: tuple[Stage, ...] = ()

    @inert
    def __repr__(self) -> str:
        best = self.comparison.recommended or "none"
        return (
            f"BehaviourModels({', '.join(self.fitted)}; recommended: {best}; {len(self.findings)} findings)"
        )

    @inert
    def __str__(self) -> str:
        return "\n".join([str(self.comparison), *map(str, self.findings)])

    @inert
    def _repr_html_(self) -> str:
        found = "".join(f"<li>{escape(str(finding))}</li>" for finding in self.findings)
        return self.comparison._repr_html_() + (f"<ul>{found}</ul>" if found else "")

    @property
    def recommended(self) -> FittedBehaviour:
        """The model that the comparison recommends; raise if it can recommend none."""
        if not self.comparison.recommended:
            reason = "" if self.comparison.choice is None else f": {self.comparison.choice.reason}"
            raise ValueError(f"no behaviour model can be used{reason}.")
        return self.fitted[self.comparison.recommended]

    @property
    def n_steps(self) -> int:
        """Decisions that the models were fitted on."""
        return int(self.data.lengths[self.fitted_on].sum())

    @property
    def candidates(self) -> tuple[str, ...]:
        """Names of the models, with what they were recalibrated by where they were."""
        return tuple(f"{name}{_say_recalibration(each.model)}" for name, each in self.fitted.items())

    @property
    def alike(self) -> dict[str, FittedBehaviour]:
        """The models that see as much as the recommended one: only these are alternatives to it."""
        added = self.recommended.added
        return {name: each for name, each in self.fitted.items() if each.added == added}


def _say_recalibration(model: Any) -> str:
    changed = isinstance(model, CalibratedPolicy) and model.calibrator_ is not None
    return f" (recalibrated: {model.calibrator_})" if changed else ""


@one_blas_thread()
def compare_candidates(inputs: AuditInputs, begin: Stages) -> BehaviourModels:
    """Check a log, and fit and compare models of its behaviour policy; of inputs that have been validated."""
    data, seed = inputs.data, inputs.seed
    with begin("checking the log"):
        findings = tuple(name_facts(finding, data) for finding in check_log(data))
        which = data.subsample(inputs.fit_steps, rng=random_stream(seed, 0))
        part = data.part(which)
    models = inputs.models or candidate_models(data, random_state=seed)
    cache = inputs.cache.keyed(models, inputs.fit_steps, seed)
    fitted = {}
    for name, model in models.items():
        with begin(f"fitting behaviour models: {name}"):
            fit = partial(fit_behaviour, model, part, mode="cross", rng=seed)
            # What was kept has a copy of the log.
            fitted[name] = replace(cache(f"behaviour {name}", fit), data=part)
    with begin("comparing them"):
        comparison = _compare(inputs, fitted, cache, "comparison")
        if not comparison.recommended:
            plain, fitted = fitted, {name: shrink_fitted(each, data) for name, each in fitted.items()}
            comparison = _compare(inputs, fitted, cache, "comparison, shrunk")
            findings = (*findings, *_say_shrinkage(plain, fitted, comparison, data))
        best = comparison.recommended
        tests = (
            None
            if inputs.logged is not None or not best
            else examine_practice(data, comparison, fitted[best])
        )
    if tests is not None and tests.findings:
        trial = extend_models(data, models, part, tests=tests, seed=seed, cache=cache, begin=begin)
        fitted |= trial.fitted
        with begin("comparing them again"):
            ruled_out = (*models, *trial.failed) if trial.passed else ()
            comparison = _compare(inputs, fitted, cache, f"comparison with {trial.name}", ruled_out=ruled_out)
            comparison = replace(comparison, rows=tuple(trial.attach(row, best) for row in comparison))
            findings = (*findings, trial.report(comparison.recommended))
    comparison = replace(comparison, rows=tuple(_name_row(row, data) for row in comparison))
    return BehaviourModels(data, which, fitted, comparison, findings, tuple(begin.done))


def _say_shrinkage(
    plain: Mapping[str, FittedBehaviour],
    shrunk: Mapping[str, FittedBehaviour],
    comparison: Comparison,
    data: Trajectories,
) -> Iterator[Finding]:
    """B110: the models had to be mixed with the overall frequencies, and how far the recommended one was."""
    best = comparison.recommended
    if best and shrunk[best] is not plain[best]:
        zero = int((at_actions(plain[best].on(data), data.actions) == 0).sum())
        share = shrunk[best].model.calibrator.share  # type: ignore[attr-defined]
        yield B110.finding("note", "every", model=best, share=share, zero=zero, steps=data.n_steps)


def _compare(
    inputs: AuditInputs,
    fitted: Mapping[str, FittedBehaviour],
    cache: Cache,
    name: str,
    *,
    ruled_out: tuple[str, ...] = (),
) -> Comparison:
    compare = partial(
        compare_policies,
        fitted,
        inputs.data,
        by=inputs.strata,
        level=inputs.level,
        ruled_out=ruled_out,
        rng=random_stream(inputs.seed, 1),
    )
    found: Comparison = cache.keyed(inputs.strata, inputs.level)(name, compare)
    return found


def random_stream(seed: int, use: int) -> np.random.Generator:
    """One of the independent streams of a seed.

    0 samples the log, 1 compares models, 6 deals folds, 7 multiplies, 8 regresses weights.
    """
    return np.random.default_rng(np.random.SeedSequence(seed).spawn(use + 1)[use])


def _name_row(row: CalibrationRow, data: Trajectories) -> CalibrationRow:
    return replace(row, findings=tuple(name_facts(finding, data) for finding in row.findings))


class Names(NamedTuple):
    """What trajectories are called, and where they stood in the files, (n,) each."""

    ids: NDArray[Any]
    place: Int | None


def name_facts(finding: Finding, data: Trajectories, whole: Names | None = None) -> Finding:
    """A finding in the words of the log: its unit, the ids of its trajectories, the names of its actions.

    ``whole`` are the trajectories that the finding numbers, where those are not the ones of ``data``.
    """
    names: dict[str, Any] = {"unit": data.unit}
    called: Names | Trajectories = data if whole is None else whole
    if "trajectory" in finding.facts and "trajectory_name" not in finding.facts:
        i = int(finding.facts["trajectory"])
        names |= {
            "trajectory": i if called.place is None else int(called.place[i]),
            "trajectory_name": str(called.ids[i]),
        }
    if "action" in finding.facts and data.action_names is not None:
        names["action_name"] = repr(data.action_names[int(finding.facts["action"])])
    return finding.with_facts(**names)
