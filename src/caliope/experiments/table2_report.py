"""Table 2 as tables and words: the paper's errors beside ours, and whether calibration foretells them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from caliope.experiments.pairs import NEUTRAL
from caliope.experiments.reports import Report, ReportTable, said_of
from caliope.experiments.summaries import column, mean, se
from caliope.experiments.table2_findings import findings
from caliope.experiments.table2_results import (
    ESTIMATORS,
    NUMBERS,
    PAPER,
    PAPER_AM,
    WEIGHTLESS,
    Found,
    distances,
    foretold,
)

if TYPE_CHECKING:
    from caliope.experiments.table2 import Config

TITLE = "Table 2: error of off-policy evaluation by behaviour model"
ERRORS = "Mean squared error by model"
PARTS = "Bias and variance"
POLICIES = "Distance between the two policies"
TRUTHS = "The ground truth of each design"
SELECTION = "Selection bias of the intervention split, exact"
RANKS = "Rank correlation of calibration and squared error over models"
EVERYTHING = "Every error"


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Errors, their parts, what the ground truths are worth, and whether calibration foretells errors."""
    found = Found(config, results)
    tables = [
        ReportTable(ERRORS, _error_columns(config), tuple(_error_rows(found)), _note(config)),
        _known(ReportTable(PARTS, _PART_COLUMNS, tuple(_part_rows(found)), _PART_NOTE), config),
        _known(
            ReportTable(
                POLICIES,
                ("design", "paper", *config.families, "mean - paper", "exact"),
                tuple(distances(found)),
            ),
            config,
        ),
        _known(ReportTable(TRUTHS, _TRUTH_COLUMNS, tuple(_truth_rows(found))), config),
        _known(ReportTable(RANKS, _RANK_COLUMNS, tuple(_rank_rows(found)), _rank_note(config)), config),
        _known(ReportTable(EVERYTHING, _ALL_COLUMNS, tuple(_all_rows(found)), detail=True), config),
    ]
    if not config.data:
        columns = ("number", "rewards -15, 15", "survival")
        tables.insert(4, ReportTable(SELECTION, columns, tuple(_selection_rows(found))))
    return Report("table2", TITLE, tuple(tables), tuple(findings(found)), said_of(config))


_EXACT = (
    "exact",
    "MSE against exact V",
    "exact value of its policy",
    "less the exact value",
    "true TV",
    "true TV se",
)


def _known(table: ReportTable, config: Config) -> ReportTable:
    """On a reader's own data, the table without the columns that nobody could fill."""
    kept = [i for i, name in enumerate(table.columns) if not (config.data and name in _EXACT)]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in kept), rows=rows)


def _note(config: Config) -> str:
    pairs = f"{config.pairs} pairs ({config.value_pairs} for AM and PHWDR)"
    where = (
        f"Averaged over {pairs}, each another split of the cohort {Path(config.data).name}: splits share patients, so "
        "standard errors over pairs are too small. Rewards are those of the file, discounted by 0.99."
        if config.data
        else "Where the policy was deployed, the truth is its exact value. Averaged over "
        f"{pairs} of {config.patients} patients each, from a cohort of its own each, with standard errors over pairs; "
        "the paper has 17,898 patients, 50 and 10 pairs. Rewards are the outcome alone, -15 or 15, discounted by 0.99; "
        "so PHWIS and step-PHWIS are the same."
    )
    return (
        f"Squared error of {config.n_draws} samples of {config.size} patients of the second log against the truth: in "
        f"a split the mean return of the first log, as in the paper. {where} The evaluation policy is fitted by the "
        "same family as the behaviour policy, as in the paper; fit says whether the behaviour model had seen the "
        "patients that it weighs. The mean is that of the second log, whatever the policy. AM has no behaviour model: "
        "the paper gives one number, and ours differ by the family of the evaluation policy."
    )


_COMPARED = ("neighbours", "network")


def _error_columns(config: Config) -> tuple[str, ...]:
    return (
        "design", "estimator", "fit", *(f"paper {family}" for family in _COMPARED), "paper, no model", *config.families,
        *(f"{family} se" for family in config.families), *(f"{family} - paper" for family in _COMPARED),
    )  # fmt: skip


def _error_rows(found: Found) -> list[tuple[Any, ...]]:
    rows = []
    for design in found.pairs:
        for estimator in ESTIMATORS:
            for fit in ("cross",) if estimator in WEIGHTLESS else ("same", "cross", "cross + temperature"):
                wanted = {"target": "own", "estimator": estimator, "fit": fit}
                ours = {f: found.mse(design, model=f, **wanted) for f in found.config.families}
                theirs = PAPER.get((design, estimator), {})
                one = PAPER_AM.get(design) if estimator == "AM" else None
                off = [_less(ours.get(f), theirs.get(f, one)) for f in _COMPARED]
                paper = (*(theirs.get(f) for f in _COMPARED), one)
                rows.append(
                    (design, estimator, fit, *paper, *map(mean, ours.values()), *map(se, ours.values()), *off)
                )
    return rows


def _less(ours: Any, theirs: float | None) -> float | None:
    average = None if ours is None else mean(ours)
    return None if average is None or theirs is None else average - theirs


_PART_COLUMNS = (
    "design", "estimator", "fit", "model", "bias", "variance between pairs", "variance", "MSE", "MSE against exact V",
)  # fmt: skip
_PART_NOTE = (
    "Neighbours and network, own family. MSE = bias^2 + variance between pairs (of the bias) + variance (within a "
    "pair, between samples of its patients)."
)


def _part_rows(found: Found) -> list[tuple[Any, ...]]:
    models = [family for family in _COMPARED if family in found.config.families]
    return [
        (design, estimator, fit, model,
         *_parts(found, design, estimator=estimator, fit=fit, model=model, target="own"))
        for design in found.pairs
        for estimator in ESTIMATORS
        for fit in (("cross",) if estimator in WEIGHTLESS else ("same", "cross"))
        for model in models
    ]  # fmt: skip


def _parts(found: Found, design: str, **wanted: str) -> tuple[Any, ...]:
    """Mean bias, its variance between pairs, the mean variance within, their sum, and the error to the exact value."""
    bias, variance = found.parts(design, **wanted)
    bias, variance = (x[np.isfinite(bias)] for x in (bias, variance))
    between = float(bias.var()) if len(bias) else None  # of these pairs, so that the parts add up
    total = mean(bias**2 + variance)
    return (mean(bias), between, mean(variance), total, mean(found.exact_mse(design, **wanted)))


_TRUTH_COLUMNS = (
    "design", "mean return of the first log", "se", "exact value of its policy", "less the exact value",
    "mean return of the second",
)  # fmt: skip


def _truth_rows(found: Found) -> list[tuple[Any, ...]]:
    rows = []
    for design, pairs in found.pairs.items():
        truth, worth = column(pairs, "truth"), found.worth(design)
        off = None if worth is None else float(truth.mean()) - worth
        rows.append((design, mean(truth), se(truth), worth, off, mean(column(pairs, "practice"))))
    return rows


def _selection_rows(found: Found) -> list[tuple[Any, ...]]:
    names = {
        "share": "patients never given vasopressors, share",
        "mean_return": "their mean return, the paper's ground truth",
        "policy_value": "value of the policy that they show",
        "bias": "bias of the ground truth",
        "practice_value": "value of the clinicians",
        "tv_second": "distance of the two policies, over states of the second log",
        "tv_first": "the same over states of the first",
    }
    both = [found.selection[scale] for scale in ("rewards", "survival")]
    both = [{**each, "bias": each["mean_return"] - each["policy_value"]} for each in both]
    return [(words, *(each[name] for each in both)) for name, words in names.items()]


_RANK_COLUMNS = ("design", "target", "estimator", "pairs", *NUMBERS, *(f"{name} se" for name in NUMBERS))


def _rank_note(config: Config) -> str:
    truth = "" if config.data else ", and against the exact value where the policy was deployed"
    return (
        "Spearman's correlation over the models that had not seen the patients (each family, with and without "
        "temperature, and the marginal; extremely randomised trees too, but not where they are the target), in each "
        "pair, averaged over pairs in which all numbers are known, with standard errors over pairs; all evaluate the "
        "same target. A number that tells which model to use is near 1. The error is against the mean return of the "
        f"first log in splits{truth}."
    )


def _rank_rows(found: Found) -> list[tuple[Any, ...]]:
    rows = []
    for design in found.pairs:
        for target in (NEUTRAL, "truth"):
            for estimator in [e for e in ESTIMATORS if e not in WEIGHTLESS]:
                each = foretold(found, target, [estimator], [design])
                if each.cells:
                    numbers = [of.get(name) for of in (each.correlation, each.se) for name in NUMBERS]
                    rows.append((design, target, estimator, each.pairs, *numbers))
    return rows


_ALL_COLUMNS = (
    "design", "target", "model", "fit", "estimator", "bias", "variance between pairs", "variance", "MSE",
    "MSE against exact V", "failed draws",
)  # fmt: skip


def _all_rows(found: Found) -> list[tuple[Any, ...]]:
    rows = []
    names = ("target", "model", "fit", "estimator")
    for design, pairs in found.pairs.items():
        for key in dict.fromkeys(tuple(x[name] for name in names) for pair in pairs for x in pair["errors"]):
            wanted = dict(zip(names, key, strict=True))
            failed = [x["failed"] for pair in found.errors(design, **wanted) for x in pair]
            rows.append((design, *key, *_parts(found, design, **wanted), int(sum(failed))))
    return rows


def figure(found: Report) -> Any:
    """Errors of the four families by design and fit, with PHWIS and WIS."""
    from caliope.plots import grouped_bars, panels

    table = found.table(ERRORS)
    families = list(found.config["families"])
    drawing, axes = panels(2, 1, width=8.0, height=2.8)
    for axis, estimator in zip(axes[:, 0], ("PHWIS", "WIS"), strict=True):
        rows = [
            row
            for row in table.records()
            if row["estimator"] == estimator and row["fit"] in ("same", "cross")
        ]
        labels = [f"{row['design']}\n{row['fit']}" for row in rows]
        grouped_bars(labels, {family: column(rows, family) for family in families}, axis)
        axis.set(ylabel="mean squared error", title=estimator)
    return drawing
