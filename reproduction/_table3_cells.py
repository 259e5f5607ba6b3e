"""Errors of Table 3 by process, target policy and size, and their ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope._ragged import Float
from reproduction.table3 import MEAN, OURS, Config, Pipeline

WHERE_IT_CAN_BE = " where it can be"
# Fitted values alone need no behaviour model and no ratios, unless the policy is stated as a change to that model.
DM = replace(MEAN, estimator="DM")


@dataclass(frozen=True, eq=False)
class Cell:
    """One target policy on one process at one size: the error of every pipeline in every replicate."""

    process: str
    question: str
    n: int
    value: float
    worth: float  # of the behaviour policy
    spread: float  # standard deviation of the return
    relative: bool  # can be stated as a change to practice
    confounded: bool
    errors: Mapping[Pipeline, Float]  # (replicates,) each

    @property
    def contrast(self) -> float:
        """Distance from practice in standard deviations of the return."""
        return abs(self.value - self.worth) / self.spread

    def rmse(self, pipeline: Pipeline, which: Any = slice(None)) -> float:
        """Root mean squared error over some replicates; nan where the pipeline has no estimate."""
        if pipeline not in self.errors:
            return float("nan")
        return float(np.sqrt(np.mean(self.errors[pipeline][which] ** 2)))


def make_cells(config: Config, results: Mapping[str, Any]) -> list[Cell]:
    """Errors by process, target policy and size."""
    found = []
    for n, replicates in config.sizes:
        for name in config.problems:
            logs = [results[config.key(name, n, seed)] for seed in range(replicates)]
            spread = float(np.mean([log["spread"] for log in logs]))
            for question, first in logs[0]["questions"].items():
                errors = {
                    _merge_name(Pipeline.of(text)): np.array(
                        [log["questions"][question]["estimates"][text] for log in logs], dtype=np.float64
                    )
                    - first["value"]
                    for text in first["estimates"]
                }
                errors |= _advised(errors)
                about = (logs[0]["name"], question, n, first["value"], logs[0]["worth"], spread)
                found.append(Cell(*about, first["relative"], logs[0]["confounded"], errors))
    return found


def _advised(errors: Mapping[Pipeline, Float]) -> dict[Pipeline, Float]:
    """Errors of the default's behaviour model where a policy is stated as a change if it can be."""
    raw = [pipeline for pipeline in errors if replace(pipeline, estimator=OURS.estimator) == OURS]
    return {
        replace(pipeline, ratios=f"{stated}{WHERE_IT_CAN_BE}"): errors.get(
            replace(pipeline, ratios=stated), errors[pipeline]
        )
        for pipeline in raw
        for stated in ("change", "relative")
    }


def _merge_name(pipeline: Pipeline) -> Pipeline:
    """Give the same estimate one name: fitted values alone do not depend on the behaviour model."""
    return DM if pipeline.estimator == "DM" and pipeline.ratios != "relative" else pipeline


def relative_error(
    these: Iterable[Cell], pipeline: Pipeline, reference: Pipeline, which: Any = slice(None)
) -> float:
    """Geometric mean of the ratio of errors: over the policies of a process, then over processes."""
    logs: dict[str, list[float]] = {}
    for cell in these:
        with np.errstate(divide="ignore"):
            ratio = np.log(cell.rmse(pipeline, which)) - np.log(cell.rmse(reference, which))
        logs.setdefault(cell.process, []).append(float(ratio))
    return float(np.exp(np.mean([np.mean(each) for each in logs.values()]))) if logs else float("nan")


def jackknife(of: Callable[[Any], float], replicates: int) -> float:
    """Standard error of the logarithm of a ratio by leaving out each replicate; nan for a single one."""
    if replicates < 2:
        return float("nan")
    left = np.log([of(np.arange(replicates) != i) for i in range(replicates)])
    return float(np.sqrt((replicates - 1) * np.mean((left - left.mean()) ** 2)))
