"""Table 3 as tables and text: errors of pipelines relative to the paper's, the true policy and the plain mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reproduction._report import Report, ReportTable, public_config
from reproduction._table3_cells import DM, WHERE_IT_CAN_BE, Cell, jackknife, make_cells, relative_error
from reproduction._table3_previous import previous_table, say_worse, steps_table
from reproduction.table3 import (
    ADVISED,
    MEAN,
    NAME,
    OURS,
    PAPER,
    PREVIOUS,
    PREVIOUS_ADVISED,
    PREVIOUS_RELATIVE,
    RELATIVE,
    TRUE,
    TRUE_WEIGHTS,
    Config,
    Pipeline,
)

TITLE = "Table 3: whole pipelines against exact values"
GOALS = "The default pipeline against its targets"
PROCESSES = "The default pipeline by process"
RANKING = "The best pipelines, chosen and reported on different replicates"
CELLS = "Root mean squared error by process and target policy"
EVERYTHING = "Every pipeline"
CONTRAST = 0.25  # standard deviations of the return: below it the plain mean is hard to beat and hardly wrong
SHOWN = 12


def make_report(config: Config, results: Mapping[str, Any]) -> Report:
    """Make the tables and the findings."""
    found = make_cells(config, results)
    goals = [row for n, replicates in config.sizes for row in _goal_rows(found, n, replicates)]
    ranked = {n: _ranked(found, n, replicates) for n, replicates in config.sizes}
    before = previous_table(config, found)
    best, every = (tuple(r for rows in ranked.values() for r in rows[:top]) for top in (SHOWN, None))
    tables = (
        ReportTable(GOALS, _GOAL_COLUMNS, tuple(goals), _note(config)),
        ReportTable(PROCESSES, _PROCESS_COLUMNS, tuple(_process_rows(found)), _PROCESS_NOTE),
        before,
        steps_table(found),
        ReportTable(RANKING, _RANK_COLUMNS, best, _RANK_NOTE),
        ReportTable(CELLS, _CELL_COLUMNS, tuple(_cell_row(cell) for cell in found), _CELL_NOTE),
        ReportTable(EVERYTHING, _RANK_COLUMNS, every, detail=True),
    )
    return Report(
        NAME, TITLE, tables, tuple(_findings(config, found, goals, ranked, before)), public_config(config)
    )


@dataclass(frozen=True)
class _Goal:
    words: str
    statement: str  # "absolute", "relative", or "as advised"
    pipeline: Pipeline
    reference: Pipeline
    limit: float | None
    contrasting: bool = False  # only where the target policy differs in value from the behaviour policy
    process: str = ""  # all of them by default

    def applies(self, cell: Cell) -> bool:
        stated = cell.relative or self.statement != "relative"
        here = not self.process or cell.process == self.process
        return here and stated and not cell.confounded and (cell.contrast > CONTRAST or not self.contrasting)


_PATIENTS = "ICU-Sepsis"
# By statement: the limits to the paper's pipeline, the true policy, and the plain mean in ICU-Sepsis.
_STATEMENTS: Mapping[str, tuple[Pipeline, Pipeline, float, float, float | None]] = {
    "absolute": (OURS, PREVIOUS, 0.45, 1.2, 1.3),
    "relative": (RELATIVE, PREVIOUS_RELATIVE, 0.45, 1.2, None),
    "as advised": (ADVISED, PREVIOUS_ADVISED, 0.27, 0.95, 1.0),
}


def _goals() -> list[_Goal]:
    goals = []
    for statement, (pipeline, previous, paper, true, patients) in _STATEMENTS.items():
        goals += [
            _Goal("the paper's pipeline", statement, pipeline, PAPER, paper),
            _Goal("the true policy, clipped WDR", statement, pipeline, TRUE, true),
            _Goal("the true policy, clipped WIS", statement, pipeline, TRUE_WEIGHTS, None),
            _Goal("the plain mean, contrast over 1/4 sd", statement, pipeline, MEAN, 0.25, contrasting=True),
            _Goal("the plain mean, everywhere", statement, pipeline, MEAN, None),
            _Goal("the plain mean, ICU-Sepsis", statement, pipeline, MEAN, patients, process=_PATIENTS),
            _Goal("the previous default", statement, pipeline, previous, None),
        ]
    return goals


_GOAL_COLUMNS = (
    "trajectories", "replicates", "policy stated", "relative to", "processes", "policies", "ratio", "log se", "target",
    "met",
)  # fmt: skip


def _goal_rows(found: Sequence[Cell], n: int, replicates: int) -> list[tuple[Any, ...]]:
    rows = []
    for goal in _goals():
        these = [cell for cell in found if cell.n == n and goal.applies(cell)]
        if not these:
            continue

        def ratio(which: Any, goal: _Goal = goal, these: list[Cell] = these) -> float:
            return relative_error(these, goal.pipeline, goal.reference, which)

        value = ratio(slice(None))
        met = "" if goal.limit is None else "yes" if value <= goal.limit else "no"
        about = (n, replicates, goal.statement, goal.words, len({c.process for c in these}), len(these))
        rows.append((*about, value, jackknife(ratio, replicates), goal.limit, met))
    return rows


_PROCESS_COLUMNS = (
    "process", "trajectories", "to the paper's", "to the true policy's", "to the mean", "relative, to the paper's",
    "relative, to the true policy's", "relative, to the mean", "advised, to the paper's",
    "advised, to the true policy's", "advised, to the mean",
)  # fmt: skip
_PROCESS_NOTE = (
    "Ratio of root mean squared errors, geometric mean over the policies of a process; the true policy with clipped "
    "WDR. 'relative': only policies that are a change to practice, stated as one; 'advised': these stated as one, and "
    "the others absolutely."
)


def _process_rows(found: Sequence[Cell]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for process, n in dict.fromkeys((cell.process, cell.n) for cell in found):
        these = [cell for cell in found if (cell.process, cell.n) == (process, n)]
        stated = [cell for cell in these if cell.relative]
        ratios = [relative_error(these, OURS, reference) for reference in (PAPER, TRUE, MEAN)]
        ratios += [relative_error(stated, RELATIVE, reference) for reference in (PAPER, TRUE, MEAN)]
        ratios += [relative_error(these, ADVISED, reference) for reference in (PAPER, TRUE, MEAN)]
        rows.append((process, n, *map(_or_none, ratios)))
    return rows


_RANK_COLUMNS = (
    "trajectories", "model", "recalibration", "fit", "ratios", "estimator", "to the paper's, choosing",
    "to the paper's, reporting", "to the true policy's, reporting", "to the mean, reporting",
)  # fmt: skip


def _ranked(found: Sequence[Cell], n: int, replicates: int) -> list[tuple[Any, ...]]:
    """Pipelines that answer every question, best first by the choosing replicates."""
    these = [cell for cell in found if cell.n == n and not cell.confounded]
    everywhere = set.intersection(*(set(cell.errors) for cell in these)) if these else set()
    even = np.arange(replicates) % 2 == 0
    rows = []
    for pipeline in sorted(p for p in everywhere if not p.ratios.endswith(WHERE_IT_CAN_BE)):
        chosen = relative_error(these, pipeline, PAPER, even)
        same = pipeline if pipeline in (MEAN, DM) else replace(TRUE, estimator=pipeline.estimator)
        others = (
            [relative_error(these, pipeline, ref, ~even) for ref in (PAPER, same, MEAN)]
            if (~even).any()
            else [float("nan")] * 3
        )
        rows.append((n, *vars(pipeline).values(), chosen, *others))
    return sorted(rows, key=lambda row: (not np.isfinite(row[6]), row[6]))


_NAMED = (PAPER, MEAN, TRUE_WEIGHTS, TRUE, DM, PREVIOUS, PREVIOUS_RELATIVE, OURS, RELATIVE)
_CELL_COLUMNS = (
    "process", "policy", "trajectories", "V", "V of practice", "contrast / sd", "paper", "mean", "true, clipped WIS",
    "true, clipped WDR", "DM", "previous", "previous, relative", "default", "default, relative", "bias of default",
    "loses to",
)  # fmt: skip


def _cell_row(cell: Cell) -> tuple[Any, ...]:
    errors = [_or_none(cell.rmse(pipeline)) for pipeline in _NAMED]
    loses = ", ".join(
        name for name, p in (("paper", PAPER), ("mean", MEAN)) if cell.rmse(OURS) > cell.rmse(p)
    )
    about = (cell.process, cell.question, cell.n, cell.value, cell.worth, cell.contrast)
    return (*about, *errors, float(cell.errors[OURS].mean()), loses)


def _or_none(x: float) -> float | None:
    return x if np.isfinite(x) else None


_RANK_NOTE = (
    "Even replicates choose, odd ones report. Only pipelines that can answer every question: the relative form is in "
    "the first table. All pipelines are in the file of the experiment. 'calibrated' ratios are a sensitivity "
    "analysis: they pull towards the behaviour policy."
)
_CELL_NOTE = (
    "The clinic with hidden frailty is left out of all means: its log lacks a confounder. DM: values alone."
)


def _note(config: Config) -> str:
    sizes = "; ".join(f"{replicates} at {n}" for n, replicates in config.sizes)
    return (
        f"Ratio of root mean squared errors, geometric mean over policies, then processes. Replicates: {sizes} "
        "trajectories. The paper's pipeline: 150 neighbours, found exactly, among the steps of one half of the "
        "trajectories (in a bandit, of one step each), shrunk towards the marginal so that no logged action has "
        "probability 0, and PHWIS on the other half; the paper searches approximately, and does not say what it does "
        f"with zeros. The default: caliope.default_model with {config.folds} folds, cross-fitted, WDR with "
        "marginalised weights, and with the values of an audit: by a kernel or by trees, as the standard error says. "
        "The previous default: WDR with capped weights, and the problem's own values, as for the true policy: by ridge "
        "regression on kernel features, in ICU-Sepsis by extremely randomised trees. 'relative': only policies that "
        "are a change to practice, stated as one, for the default with its own influence function; 'as advised': "
        "relative for these, absolute for the others. What it is compared with is stated absolutely, except the "
        "previous default. The targets as advised, and of ICU-Sepsis, are meant for 2000 trajectories. log se: "
        "jackknife over replicates."
    )


def _findings(
    config: Config,
    found: Sequence[Cell],
    goals: Sequence[tuple[Any, ...]],
    ranked: Mapping[int, Any],
    before: ReportTable,
) -> list[str]:
    texts = [
        " ".join(
            filter(None, (_goals_met(goals, n), say_worse(before, n), _losses(found, n), _choice(ranked[n])))
        )
        for n, _ in config.sizes
    ]
    return [text for text in (*texts, _confounded(found)) if text]


def _goals_met(goals: Sequence[tuple[Any, ...]], n: int) -> str:
    targets = [row for row in goals if row[0] == n and row[8] is not None]
    if not targets:
        return ""
    texts = [
        f"{statement}: "
        + ", ".join(f"{row[6]:.2f} of {row[3]} (target {row[8]})" for row in targets if row[2] == statement)
        for statement in dict.fromkeys(row[2] for row in targets)
    ]
    return f"With {n} trajectories, error of the default pipeline by how the policy is stated, {'; '.join(texts)}."


def _losses(found: Sequence[Cell], n: int) -> str:
    """How often the default, stated absolutely, loses to the paper's pipeline and to the plain mean, and where most."""
    these = [cell for cell in found if cell.n == n and not cell.confounded]
    texts = []
    for name, reference in (("the paper's pipeline", PAPER), ("the plain mean", MEAN)):
        ratios = {cell: cell.rmse(OURS) / cell.rmse(reference) for cell in these}
        lost = [cell for cell, ratio in ratios.items() if ratio > 1]
        worst = max(lost, key=lambda cell: ratios[cell]) if lost else None
        text = f"to {name} in {len(lost)} of {len(these)} cells"
        if worst is not None:
            text += (
                f" (most in {worst.process}, {worst.question}: {ratios[worst]:.2f} times the error, contrast "
            )
            text += f"{worst.contrast:.2f} sd)"
        texts.append(text)
    return f"Stated absolutely, the default loses {' and '.join(texts)}." if these else ""


def _choice(ranked: Sequence[tuple[Any, ...]]) -> str:
    rows = [row for row in ranked if row[1] != "truth"]  # the true policy cannot be chosen
    if not rows or not np.isfinite(rows[0][7]):
        return ""
    place = next(i for i, row in enumerate(rows) if row[1:6] == tuple(vars(OURS).values()))
    best, default = (
        f"{', '.join(str(x) for x in row[1:6] if x != '-')}: {row[6]:.2f} of the paper's error, and {row[7]:.2f} on "
        "the reporting replicates"
        for row in (rows[0], rows[place])
    )
    return (
        f"The choosing replicates prefer {best}. The default is number {place + 1} of {len(rows)}, {default}."
    )


def _confounded(found: Sequence[Cell]) -> str:
    """What is left out of all counts."""
    these = [cell for cell in found if cell.confounded]
    if not these:
        return ""
    names = ", ".join(sorted({cell.process for cell in these}))
    to_paper, to_mean = ([c.rmse(OURS) / c.rmse(p) for c in these] for p in (PAPER, MEAN))
    return (
        f"Not counted, because the log lacks a confounder: {names}. There the default has {min(to_paper):.2f} to "
        f"{max(to_paper):.2f} of the paper's error and {min(to_mean):.2f} to {max(to_mean):.2f} of the mean's, over "
        f"{len(these)} cells."
    )


def draw(found: Report) -> Any:
    """Error of the default and of the paper's pipeline relative to the plain mean, against the contrast."""
    from caliope.plots import COLOURS, panels, points

    rows = found.table(CELLS).records()
    sizes = sorted({row["trajectories"] for row in rows}, key=float)  # type: ignore[arg-type]
    drawing, axes = panels(1, len(sizes), width=4.5)
    for axis, n in zip(axes[0], sizes, strict=True):
        these: list[dict[str, Any]] = [row for row in rows if row["trajectories"] == n]
        for colour, name in zip(COLOURS, ("paper", "default", "default, relative"), strict=False):
            there = [row for row in these if row[name] is not None]
            x = [max(row["contrast / sd"], 0.01) for row in there]
            points(x, [row[name] / row["mean"] for row in there], axis, label=name, colour=colour)
        axis.axhline(1, color="#999999", linewidth=0.8)
        axis.axvline(CONTRAST, color="#999999", linewidth=0.8, linestyle="dotted")
        axis.set(xscale="log", yscale="log", title=f"{n} trajectories")
        axis.set(xlabel="contrast / sd of the return", ylabel="error / error of the plain mean")
        axis.legend(fontsize=7, frameon=False)
    return drawing
