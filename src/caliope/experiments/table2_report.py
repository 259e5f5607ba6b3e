"""Table 2 as tables and words: the paper's errors beside ours, and whether calibration foretells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from caliope.experiments.pairs import NEUTRAL
from caliope.experiments.reports import Report, ReportTable
from caliope.experiments.summaries import column, mean, se
from caliope.experiments.table2_findings import findings
from caliope.experiments.table2_results import (
    ESTIMATORS,
    NUMBERS,
    PAPER,
    WEIGHTLESS,
    Found,
    distances,
    ranks,
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
    tables = (
        ReportTable(ERRORS, _error_columns(config), tuple(_error_rows(found)), _note(config)),
        ReportTable(PARTS, _PART_COLUMNS, tuple(_part_rows(found)), "Neighbours and network, own family."),
        ReportTable(POLICIES, ("design", "paper", *config.families, "exact"), tuple(distances(found))),
        ReportTable(TRUTHS, _TRUTH_COLUMNS, tuple(_truth_rows(found))),
        ReportTable(SELECTION, ("number", "rewards -15, 15", "survival"), tuple(_selection_rows(found))),
        ReportTable(RANKS, ("design", "target", "estimator", *NUMBERS), tuple(_rank_rows(found)), _RANK_NOTE),
        ReportTable(EVERYTHING, _ALL_COLUMNS, tuple(_all_rows(found)), detail=True),
    )
    return Report("table2", TITLE, tables, tuple(findings(found)), vars(config))


def _note(config: Config) -> str:
    return (
        f"Squared error of {config.n_draws} samples of {config.size} patients of the second log against the mean "
        f"return of the first, averaged over {config.pairs} pairs ({config.value_pairs} for AM and PHWDR) of "
        f"{config.patients} patients each, from a cohort of its own each; the paper has 17,898 patients, 50 and 10 "
        "pairs. Rewards are the outcome alone, -15 or 15, discounted by 0.99; so PHWIS and step-PHWIS are the same. "
        "The evaluation policy is fitted by the same family as the behaviour policy, as in the paper; fit says whether "
        "the behaviour model had seen the patients that it weighs. The mean is that of the second log, whatever the "
        "policy."
    )


def _error_columns(config: Config) -> tuple[str, ...]:
    return (
        "design", "estimator", "fit", "paper neighbours", "paper network", *config.families,
        *(f"{family} se" for family in config.families),
    )  # fmt: skip


def _error_rows(found: Found) -> list[tuple[Any, ...]]:
    rows = []
    for design in found.pairs:
        for estimator in ESTIMATORS:
            for fit in ("cross",) if estimator in WEIGHTLESS else ("same", "cross", "cross + temperature"):
                wanted = {"target": "own", "estimator": estimator, "fit": fit}
                ours = [found.mse(design, model=family, **wanted) for family in found.config.families]
                theirs = PAPER.get((design, estimator), {})
                row = (design, estimator, fit, theirs.get("neighbours"), theirs.get("network"))
                rows.append((*row, *map(mean, ours), *map(se, ours)))
    return rows


_PART_COLUMNS = ("design", "estimator", "fit", "model", "bias", "variance", "MSE", "MSE against exact V")


def _part_rows(found: Found) -> list[tuple[Any, ...]]:
    rows = []
    for design in found.pairs:
        for estimator in ESTIMATORS:
            for fit in ("cross",) if estimator in WEIGHTLESS else ("same", "cross"):
                for model in [f for f in ("neighbours", "network") if f in found.config.families]:
                    rows.append(
                        (
                            design,
                            estimator,
                            fit,
                            model,
                            *_parts(found, design, estimator=estimator, fit=fit, model=model, target="own"),
                        )
                    )
    return rows


def _parts(found: Found, design: str, **wanted: str) -> tuple[Any, ...]:
    records = [row for pair in found.errors(design, **wanted) for row in pair]
    parts = (mean(column(records, "bias")), mean(column(records, "variance")))
    exact = found.exact_mse(design, **wanted)
    return (*parts, mean(found.mse(design, **wanted)), mean(exact))


_TRUTH_COLUMNS = (
    "design", "mean return of the first log", "se", "exact value of its policy", "difference",
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


_RANK_NOTE = (
    "Spearman's correlation over the models that had not seen the patients (each family, with and without temperature, "
    "extremely randomised trees, the marginal), in each pair, averaged over pairs; all evaluate the same target. A "
    "number that tells which model to use is near 1. The error is against the mean return of the first log in splits, "
    "and against the exact value where the policy was deployed."
)


def _rank_rows(found: Found) -> list[tuple[Any, ...]]:
    rows = []
    for design in found.pairs:
        for target in (NEUTRAL, "truth"):
            for estimator in [e for e in ESTIMATORS if e not in WEIGHTLESS]:
                each = ranks(found, design, target, estimator)
                if each:
                    rows.append(
                        (
                            design,
                            target,
                            estimator,
                            *(mean([x[name] for x in each]) for name in NUMBERS),
                        )
                    )
    return rows


_ALL_COLUMNS = (
    "design", "target", "model", "fit", "estimator", "bias", "variance", "MSE", "MSE against exact V", "failed draws",
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
    families = [name for name in table.columns[5:] if not name.endswith(" se")]
    drawing, axes = panels(1, 2, width=5.5)
    for axis, estimator in zip(axes[0], ("PHWIS", "WIS"), strict=True):
        rows = [
            row
            for row in table.records()
            if row["estimator"] == estimator and row["fit"] in ("same", "cross")
        ]
        labels = [f"{row['design']}\n{row['fit']}" for row in rows]
        grouped_bars(labels, {family: column(rows, family) for family in families}, axis)
        axis.set(ylabel="mean squared error", title=estimator)
    return drawing
