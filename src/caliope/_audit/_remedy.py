"""Practice that depends on more than the recorded present: models that also see the past or the order of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from caliope._audit._settings import Stages
from caliope._cache import Cache
from caliope._ragged import Float
from caliope._trajectories import Trajectories
from caliope.behaviour._calibrated import innermost
from caliope.behaviour._extended import ExtendedBehaviour, Extension, extend_name
from caliope.behaviour._fit import FittedBehaviour, fit_behaviour
from caliope.behaviour._frequencies import TabularFrequencies
from caliope.behaviour._neighbours import NeighbourPolicy
from caliope.calibration._compare import Comparison
from caliope.calibration._result import CalibrationRow
from caliope.calibration._scores import ALL
from caliope.checks import B107, B108, B109, Finding
from caliope.checks._log import STEPS, behaviour_findings
from caliope.checks._past import PastTests, check_past

_WORDS = {
    "history": "the past",
    "order": "the order of the log",
    "history and order": "the past and the order",
}


@dataclass(frozen=True, eq=False)
class Trial:
    """Models with further columns, and whether they pass the tests that the recommended one failed.

    Attributes
    ----------
    tests : PastTests
        Of the recommended model, without the columns.
    extension : Extension
        The columns that were added last.
    fitted : mapping from name to ExtendedBehaviour
        The models.
    results : mapping from name to PastTests
        Their tests.
    failed : tuple of str
        Names of those that do not pass.
    """

    tests: PastTests
    extension: Extension
    fitted: Mapping[str, ExtendedBehaviour]
    results: Mapping[str, PastTests]
    failed: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether any of them passes."""
        return len(self.failed) < len(self.fitted)

    @property
    def name(self) -> str:
        """What was added, in short."""
        return self.extension.name

    def report(self, recommended: str) -> Finding:
        """B109: what was added, and whether it suffices."""
        first = max(self.tests.findings, key=lambda finding: abs(finding.numbers["z"]))
        facts = {"what": _WORDS[self.name], "seen": first.facts["where"], "before": first.numbers["z"]}
        if self.passed:
            # A model that was found by search on the log that tests it passes too easily to be trusted for it.
            return B109.finding(
                "caution", "passed", **facts, model=recommended, z=self.results[recommended].largest
            )
        least = min(result.largest for result in self.results.values())
        return B109.finding("note", "failed", **facts, z=least)

    def attach(self, row: CalibrationRow, recommended: str) -> CalibrationRow:
        """A row of the comparison with what was found of its model: the one recommended before, or one of these."""
        tests = {recommended: self.tests, **self.results}.get(row.model)
        if tests is None or row.stratum != ALL:
            return row
        return replace(row, findings=(*row.findings, *tests.findings))


def examine_practice(data: Trajectories, comparison: Comparison, fitted: FittedBehaviour) -> PastTests:
    """Test the recommended model, with the predictions of the comparison where they are of the whole log."""
    which, table = data.subsample(STEPS), comparison.details[comparison.recommended].table
    if len(table) == data.n_steps:
        return check_past(data.part(which), table[data.layout.rows_of(which)])
    return check_past(data.part(which), fitted.on(data.part(which)))


def extend_models(
    data: Trajectories,
    models: Mapping[str, Any],
    part: Trajectories,
    *,
    tests: PastTests,
    seed: int,
    cache: Cache,
    begin: Stages,
) -> Trial:
    """Fit models that see the past, the order of the log, or both, until one passes the tests.

    Parameters
    ----------
    data : Trajectories
        The log, whose order counts.
    models : mapping from name to classifier
        The candidates, unfitted.
    part : Trajectories
        The trajectories that models are fitted on.
    tests : PastTests
        What was found of the recommended model.
    seed, cache, begin
        Of the audit.

    Returns
    -------
    Trial
        All that were fitted.
    """
    log = data.part(data.subsample(STEPS))
    codes = {finding.code for finding in tests.findings}
    past, order = B107.code in codes, B108.code in codes
    trial = Trial(tests, Extension.of(data, past=past, order=order), {}, {}, ())
    for extension in _extensions(data, past=past, order=order):
        for names in _by_cost(models):
            for name in names:
                with begin(f"fitting behaviour models: {extend_name(name, extension)}"):
                    fit = partial(_fit, models[name], part, extension=extension, seed=seed)
                    kept = cache(f"behaviour {extend_name(name, extension)}", fit)
                    trial = _add(trial, extend_name(name, extension), replace(kept, data=part), log)
                    trial = replace(trial, extension=extension)
            if trial.passed:
                return trial
    return trial


def _extensions(data: Trajectories, *, past: bool, order: bool) -> list[Extension]:
    """What the tests ask for, and then both."""
    asked = Extension.of(data, past=past, order=order)
    return [asked] if past and order else [asked, Extension.of(data, past=True, order=True)]


def _by_cost(models: Mapping[str, Any]) -> list[list[str]]:
    """Names of the models that suit many columns: first those that are fitted fast, then neighbours with a prior."""
    ends = {name: innermost(model) for name, model in models.items()}
    local = [name for name, model in ends.items() if isinstance(model, NeighbourPolicy | TabularFrequencies)]
    fast = [name for name in models if name not in local]
    slow = [name for name in local if getattr(ends[name], "prior", None) is not None]
    return [names for names in (fast, slow) if names] or [list(models)]


def _fit(model: Any, part: Trajectories, *, extension: Extension, seed: int) -> ExtendedBehaviour:
    return ExtendedBehaviour.fit(
        lambda log: fit_behaviour(model, log, mode="cross", rng=seed), part, extension
    )


def _add(trial: Trial, name: str, fitted: ExtendedBehaviour, log: Trajectories) -> Trial:
    table: Float = fitted.on(log)
    result = check_past(log, table, sees_more=True)
    found = behaviour_findings(log, np.arange(log.n_steps), table, sees_more=True)
    failed = (name,) if any(finding.level == "issue" for finding in found) else ()
    return replace(
        trial,
        fitted={**trial.fitted, name: fitted},
        results={**trial.results, name: result},
        failed=(*trial.failed, *failed),
    )
