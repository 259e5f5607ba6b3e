"""The default pipeline of Table 3 beside the previous one: by process, and what each change contributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reproduction._report import ReportTable
from reproduction._table3_cells import WHERE_IT_CAN_BE, Cell, jackknife, relative_error
from reproduction.table3 import (
    ADVISED,
    CHOSEN,
    MEAN,
    OURS,
    PAPER,
    PREVIOUS,
    PREVIOUS_ADVISED,
    PREVIOUS_RELATIVE,
    RELATIVE,
    TRUE,
    Config,
    Pipeline,
)

BEFORE = "The default against the previous one, by process"
STEPS = "From the previous default to this one"
LIMIT = 1.1  # of the previous error, in any process

_BEFORE_COLUMNS = (
    "process", "trajectories", "absolute", "se, absolute", "relative", "se, relative", "as advised", "se, as advised",
    "limit", "met",
)  # fmt: skip
_BEFORE_NOTE = (
    "Ratio of root mean squared errors, geometric mean over the policies of a process; each default stated in the same "
    "way, the previous one relative as a table. se: of the logarithm, by jackknife over replicates. met: absolute and "
    "as advised. The clinic with hidden frailty is judged too."
)


def previous_table(config: Config, found: Sequence[Cell]) -> ReportTable:
    """Compare both defaults in every process."""
    replicates = dict(config.sizes)
    rows: list[tuple[Any, ...]] = []
    for process, n in dict.fromkeys((cell.process, cell.n) for cell in found):
        these = [cell for cell in found if (cell.process, cell.n) == (process, n)]
        stated = [cell for cell in these if cell.relative]
        pairs = (
            (these, OURS, PREVIOUS),
            (stated, RELATIVE, PREVIOUS_RELATIVE),
            (these, ADVISED, PREVIOUS_ADVISED),
        )
        ratios = [_ratio(*pair, replicates[n]) for pair in pairs]
        judged = np.array([ratios[0][0], ratios[2][0]])
        met = ("yes" if (judged <= LIMIT).all() else "no") if np.isfinite(judged).all() else ""
        rows.append((process, n, *(x for pair in ratios for x in pair), LIMIT, met))
    return ReportTable(BEFORE, _BEFORE_COLUMNS, tuple(rows), _BEFORE_NOTE)


def say_worse(table: ReportTable, n: int) -> str:
    """Say in which processes the default is clearly worse than the previous one."""
    rows = [row for row in table.records() if row["trajectories"] == n and row["met"]]
    worse = [
        f"{row['process']} ({row['absolute']:.2f}, {row['as advised']:.2f})"
        for row in rows
        if row["met"] == "no"
    ]
    if not rows:
        return ""
    limit = f"{LIMIT:.2f} of the error of the previous default"
    if not worse:
        return f"In none of {len(rows)} processes has the default over {limit}."
    return f"Over {limit} (absolutely, as advised): {', '.join(worse)}; {len(rows)} processes."


def _ratio(
    these: Sequence[Cell], pipeline: Pipeline, reference: Pipeline, replicates: int
) -> tuple[float, float]:
    def ratio(which: Any) -> float:
        return relative_error(these, pipeline, reference, which)

    return ratio(slice(None)), jackknife(ratio, replicates)


_STEP_COLUMNS = (
    "trajectories", "weights", "values", "a change stated as", "absolute, to the true policy's",
    "advised, to the true policy's", "advised, to the paper's", "advised, to the mean",
)  # fmt: skip
_STEPS = (
    ("clipped WDR", "", "relative"),
    ("clipped WDR", "", "change"),
    ("normalised WDR", "", "change"),
    ("marginalised WDR", "", "change"),
    ("clipped WDR", CHOSEN, "change"),
    ("normalised WDR", CHOSEN, "change"),
    ("marginalised WDR", CHOSEN, "change"),
)
_STEP_NOTE = (
    "With the default behaviour model; geometric mean over policies, then processes. The first row is the previous "
    "default, and the last the default. The true policy has clipped WDR and the problem's own values."
)


def steps_table(found: Sequence[Cell]) -> ReportTable:
    """Change weights, values and the statement of a change one by one."""
    rows: list[tuple[Any, ...]] = []
    for n in dict.fromkeys(cell.n for cell in found):
        these = [cell for cell in found if cell.n == n and not cell.confounded]
        for estimator, values, stated in _STEPS:
            raw = replace(OURS, estimator=estimator + values)
            if not these or not all(raw in cell.errors for cell in these):
                continue
            advised = replace(raw, ratios=f"{stated}{WHERE_IT_CAN_BE}")
            ratios = [relative_error(these, advised, reference) for reference in (TRUE, PAPER, MEAN)]
            about = (estimator.split()[0], "of an audit" if values else "the problem's own")
            way = {"relative": "a table", "change": "a change"}[stated]
            rows.append((n, *about, way, relative_error(these, raw, TRUE), *ratios))
    return ReportTable(STEPS, _STEP_COLUMNS, tuple(rows), _STEP_NOTE)
