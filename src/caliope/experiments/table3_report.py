"""Table 3 as tables and words: errors of pipelines relative to the paper's, the true policy and the plain mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from caliope.experiments.pipelines import (
    ADVISED,
    DEFAULT,
    MEAN,
    PAPER,
    RELATIVE,
    TRUE,
    TRUE_WEIGHTS,
    Pipeline,
)
from caliope.experiments.reports import Report, ReportTable, said_of
from caliope.ragged import Float

if TYPE_CHECKING:
    from caliope.experiments.table3 import Config

TITLE = "Table 3: whole pipelines against exact values"
GOALS = "The default pipeline against its targets"
PROCESSES = "The default pipeline by process"
RANKING = "The best pipelines, chosen and reported on different replicates"
CELLS = "Root mean squared error by process and evaluation policy"
EVERYTHING = "Every pipeline"
CONTRAST = 0.25  # standard deviations of the return: below it the plain mean is hard to beat and hardly wrong
SHOWN = 12
# Fitted values alone ask for no behaviour model and no ratios, unless the policy is stated as a change to that model.
DM = replace(MEAN, estimator="DM")


@dataclass(frozen=True, eq=False)
class Cell:
    """One evaluation policy on one process at one size: the error of every pipeline in every replicate."""

    arena: str
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


def cells(config: Config, results: Mapping[str, Any]) -> list[Cell]:
    """What was found, by process, evaluation policy and size."""
    found = []
    for n, replicates in config.sizes:
        for name in config.arenas:
            logs = [results[f"{name}-n{n}-seed{seed}"] for seed in range(replicates)]
            spread = float(np.mean([log["spread"] for log in logs]))
            for question, first in logs[0]["questions"].items():
                errors = {
                    _once(Pipeline.of(text)): np.array(
                        [log["questions"][question]["estimates"][text] for log in logs], dtype=np.float64
                    )
                    - first["value"]
                    for text in first["estimates"]
                }
                if DEFAULT in errors:
                    errors[ADVISED] = errors.get(RELATIVE, errors[DEFAULT])
                about = (logs[0]["name"], question, n, first["value"], logs[0]["worth"], spread)
                found.append(Cell(*about, first["relative"], logs[0]["confounded"], errors))
    return found


def _once(pipeline: Pipeline) -> Pipeline:
    """One name for what is the same estimate under many."""
    return DM if pipeline.estimator == "DM" and pipeline.ratios != "relative" else pipeline


def relative_error(
    these: Iterable[Cell], pipeline: Pipeline, reference: Pipeline, which: Any = slice(None)
) -> float:
    """Geometric mean of the ratio of errors: over the policies of a process, then over processes."""
    logs: dict[str, list[float]] = {}
    for cell in these:
        with np.errstate(divide="ignore"):
            ratio = np.log(cell.rmse(pipeline, which)) - np.log(cell.rmse(reference, which))
        logs.setdefault(cell.arena, []).append(float(ratio))
    return float(np.exp(np.mean([np.mean(each) for each in logs.values()]))) if logs else float("nan")


def jackknife(of: Callable[[Any], float], replicates: int) -> float:
    """Standard error of the logarithm of a ratio by leaving out each replicate; nan for a single one."""
    if replicates < 2:
        return float("nan")
    left = np.log([of(np.arange(replicates) != i) for i in range(replicates)])
    return float(np.sqrt((replicates - 1) * np.mean((left - left.mean()) ** 2)))


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """The targets, the best pipelines on replicates that did not choose them, and where the default loses."""
    found = cells(config, results)
    goals = [row for n, replicates in config.sizes for row in _goal_rows(found, n, replicates)]
    ranked = {n: _ranked(found, n, replicates) for n, replicates in config.sizes}
    tables = (
        ReportTable(GOALS, _GOAL_COLUMNS, tuple(goals), _note(config)),
        ReportTable(PROCESSES, _PROCESS_COLUMNS, tuple(_process_rows(found)), _PROCESS_NOTE),
        ReportTable(
            RANKING, _RANK_COLUMNS, tuple(r for rows in ranked.values() for r in rows[:SHOWN]), _RANK_NOTE
        ),
        ReportTable(CELLS, _CELL_COLUMNS, tuple(_cell_row(cell) for cell in found), _CELL_NOTE),
        ReportTable(
            EVERYTHING, _RANK_COLUMNS, tuple(r for rows in ranked.values() for r in rows), detail=True
        ),
    )
    return Report("table3", TITLE, tables, tuple(_findings(config, found, goals, ranked)), said_of(config))


@dataclass(frozen=True)
class _Goal:
    words: str
    statement: str  # "absolute", "relative", or "as advised"
    pipeline: Pipeline
    reference: Pipeline
    limit: float | None
    contrasting: bool = False  # only where the evaluation policy is worth something else than practice

    def applies(self, cell: Cell) -> bool:
        stated = cell.relative or self.statement != "relative"
        return stated and not cell.confounded and (cell.contrast > CONTRAST or not self.contrasting)


def _goals() -> list[_Goal]:
    goals = []
    for statement, pipeline in (("absolute", DEFAULT), ("relative", RELATIVE), ("as advised", ADVISED)):
        goals += [
            _Goal("the paper's pipeline", statement, pipeline, PAPER, 0.45),
            _Goal("the true policy, same estimator", statement, pipeline, TRUE, 1.2),
            _Goal("the true policy, clipped WIS", statement, pipeline, TRUE_WEIGHTS, None),
            _Goal("the plain mean, contrast over 1/4 sd", statement, pipeline, MEAN, 0.25, contrasting=True),
            _Goal("the plain mean, everywhere", statement, pipeline, MEAN, None),
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
        about = (n, replicates, goal.statement, goal.words, len({c.arena for c in these}), len(these))
        rows.append((*about, value, jackknife(ratio, replicates), goal.limit, met))
    return rows


_PROCESS_COLUMNS = (
    "process", "trajectories", "to the paper's", "to the true policy's", "to the mean", "relative, to the paper's",
    "relative, to the true policy's", "relative, to the mean",
)  # fmt: skip
_PROCESS_NOTE = (
    "Ratio of root mean squared errors, geometric mean over the policies of a process; the true policy with the same "
    "estimator. 'relative': policies stated as a change to practice, where they can be."
)


def _process_rows(found: Sequence[Cell]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for arena, n in dict.fromkeys((cell.arena, cell.n) for cell in found):
        these = [cell for cell in found if (cell.arena, cell.n) == (arena, n)]
        stated = [cell for cell in these if cell.relative]
        ratios = [relative_error(these, DEFAULT, reference) for reference in (PAPER, TRUE, MEAN)]
        ratios += [relative_error(stated, RELATIVE, reference) for reference in (PAPER, TRUE, MEAN)]
        rows.append((arena, n, *map(_or_none, ratios)))
    return rows


_RANK_COLUMNS = (
    "trajectories", "model", "recalibration", "fit", "ratios", "estimator", "to the paper's, choosing",
    "to the paper's, reporting", "to the true policy's, reporting", "to the mean, reporting",
)  # fmt: skip


def _ranked(found: Sequence[Cell], n: int, replicates: int) -> list[tuple[Any, ...]]:
    """Pipelines that answer every question, best first by the choosing replicates."""
    these = [cell for cell in found if cell.n == n and not cell.confounded]
    everywhere = set.intersection(*(set(cell.errors) for cell in these)) - {ADVISED} if these else set()
    even = np.arange(replicates) % 2 == 0
    rows = []
    for pipeline in sorted(everywhere):
        chosen = relative_error(these, pipeline, PAPER, even)
        same = pipeline if pipeline in (MEAN, DM) else replace(TRUE, estimator=pipeline.estimator)
        others = (
            [relative_error(these, pipeline, ref, ~even) for ref in (PAPER, same, MEAN)]
            if (~even).any()
            else [float("nan")] * 3
        )
        rows.append((n, *vars(pipeline).values(), chosen, *others))
    return sorted(rows, key=lambda row: (not np.isfinite(row[6]), row[6]))


_NAMED = (PAPER, MEAN, TRUE_WEIGHTS, TRUE, DM, DEFAULT, RELATIVE)
_CELL_COLUMNS = (
    "process", "policy", "trajectories", "V", "V of practice", "contrast / sd", "paper", "mean", "true, clipped WIS",
    "true, clipped WDR", "DM", "default", "default, relative", "bias of default", "loses to",
)  # fmt: skip


def _cell_row(cell: Cell) -> tuple[Any, ...]:
    errors = [_or_none(cell.rmse(pipeline)) for pipeline in _NAMED]
    loses = ", ".join(
        name for name, p in (("paper", PAPER), ("mean", MEAN)) if cell.rmse(DEFAULT) > cell.rmse(p)
    )
    about = (cell.arena, cell.question, cell.n, cell.value, cell.worth, cell.contrast)
    return (*about, *errors, float(cell.errors[DEFAULT].mean()), loses)


def _or_none(x: float) -> float | None:
    return x if np.isfinite(x) else None


_RANK_NOTE = (
    "Even replicates choose, odd ones report. Only pipelines that can answer every question: the relative form is in "
    "the first table. All pipelines are in the file of the experiment. 'calibrated' ratios are a sensitivity: they "
    "pull towards observed care."
)
_CELL_NOTE = (
    "The clinic with hidden frailty is shown and left out of all means: there nothing in the log can be right. "
    "DM: fitted values alone."
)


def _note(config: Config) -> str:
    sizes = "; ".join(f"{replicates} at {n}" for n, replicates in config.sizes)
    return (
        f"Ratio of root mean squared errors, geometric mean over policies, then processes. Replicates: {sizes} "
        "trajectories. The paper's pipeline: 150 neighbours, found exactly, among the steps of one half of the "
        "trajectories (in a bandit, of one step each), shrunk towards the marginal so that no logged action has "
        "probability 0, and PHWIS on the other half; the paper searches approximately, and does not say what it does "
        f"with zeros. The default: caliope.default_model with {config.folds} folds, cross-fitted, raw ratios (or the "
        "relative form), WDR with cross-fitted values and capped weights. 'relative': only policies that are a change "
        "to practice, stated as one; 'as advised': so for these, and absolutely for the others. What it is compared "
        "with is stated absolutely throughout. Values are fitted by ridge regression on kernel features, in ICU-Sepsis "
        "by extremely randomised trees. log se: jackknife over replicates."
    )


def _findings(
    config: Config, found: Sequence[Cell], goals: Sequence[tuple[Any, ...]], ranked: Mapping[int, Any]
) -> list[str]:
    said = []
    for n, _ in config.sizes:
        texts = [
            _met(goals, n),
            *(_losing(found, n, *against) for against in _AGAINST),
            _chosen(ranked[n], n),
        ]
        said.append(" ".join(filter(None, texts)))
    return [text for text in (*said, _hidden(found)) if text]


_AGAINST = (("the paper's pipeline", PAPER), ("the plain mean", MEAN))


def _chosen(ranked: Sequence[tuple[Any, ...]], n: int) -> str:
    rows = [row for row in ranked if row[1] != "truth"]  # nobody can choose what nobody knows
    if not rows or not np.isfinite(rows[0][7]):
        return ""
    best = rows[0]
    place = next(i for i, row in enumerate(rows) if row[1:6] == tuple(vars(DEFAULT).values()))
    return (
        f"The choosing replicates prefer {_name(best)}: {best[6]:.2f} of the paper's error there, {best[7]:.2f} on the "
        f"reporting ones. The default ({_name(rows[place])}) is number {place + 1} of {len(rows)} with "
        f"{rows[place][6]:.2f}, and {rows[place][7]:.2f} on the reporting ones."
    )


def _name(row: tuple[Any, ...]) -> str:
    return ", ".join(str(x) for x in row[1:6] if x != "-")


_STATED = {
    "absolute": "stated absolutely",
    "relative": "stated as a change to practice where it is one, and not asked elsewhere",
    "as advised": "stated as advised, a change as a change and the rest absolutely",
}


def _met(goals: Sequence[tuple[Any, ...]], n: int) -> str:
    targets = [row for row in goals if row[0] == n and row[8] is not None]
    texts = []
    for statement in dict.fromkeys(row[2] for row in targets):
        ratios = [
            f"{row[6]:.2f} of {row[3]} (target {row[8]}: {'met' if row[9] == 'yes' else 'not met'})"
            for row in targets
            if row[2] == statement
        ]
        texts.append(f"{_STATED[statement]}: {', '.join(ratios)}")
    return f"With {n} trajectories the error of the default pipeline, {'; '.join(texts)}." if texts else ""


def _losing(found: Sequence[Cell], n: int, name: str, reference: Pipeline) -> str:
    """Where the default loses, and by how much; what nothing in the log can answer is not counted."""
    these = [cell for cell in found if cell.n == n and not cell.confounded]
    lost = {cell: cell.rmse(DEFAULT) / cell.rmse(reference) for cell in these}
    lost = {cell: ratio for cell, ratio in lost.items() if ratio > 1}
    if not lost:
        return f"Stated absolutely, it loses to {name} nowhere." if these else ""
    texts = [
        f"{cell.arena}: {cell.question} ({ratio:.2f} times the error, contrast {cell.contrast:.2f} sd)"
        for cell, ratio in lost.items()
    ]
    return f"Stated absolutely, it loses to {name} in {len(lost)} of {len(these)} cells: {'; '.join(texts)}."


def _hidden(found: Sequence[Cell]) -> str:
    """What is left out of all counts, named apart."""
    these = [cell for cell in found if cell.confounded]
    if not these:
        return ""
    names = ", ".join(sorted({cell.arena for cell in these}))
    to_paper, to_mean = ([c.rmse(DEFAULT) / c.rmse(p) for c in these] for p in (PAPER, MEAN))
    return (
        f"Not counted, for the log lacks what would be needed: {names}. There the default has {min(to_paper):.2f} to "
        f"{max(to_paper):.2f} of the paper's error and {min(to_mean):.2f} to {max(to_mean):.2f} of the "
        f"mean's, over {len(these)} cells."
    )


def figure(found: Report) -> Any:
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
