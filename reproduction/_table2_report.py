"""Table 2 as tables and text: the paper's errors beside ours, and whether calibration predicts them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from reproduction._report import Report, ReportTable, column, mean, public_config, se
from reproduction._table2_results import (
    ESTIMATORS,
    NUMBERS,
    PAPER,
    PAPER_AM,
    WEIGHTLESS,
    Found,
    correlate,
    distances,
)
from reproduction.table2 import NAME, NEUTRAL, Config

TITLE = "Table 2: error of off-policy evaluation by behaviour model"
ERRORS = "Mean squared error by model"
PARTS = "Bias and variance"
POLICIES = "Distance between the two policies"
TRUTHS = "The ground truth of each design"
SELECTION = "Selection bias of the intervention split, exact"
RANKS = "Rank correlation of calibration and squared error over models"
EVERYTHING = "Every error"


def make_report(config: Config, results: Mapping[str, Any]) -> Report:
    """Make the tables and the findings."""
    found = Found(config, results)
    distance_columns = ("design", "paper", *config.families, "mean - paper", "exact")
    tables = [
        ReportTable(ERRORS, _error_columns(config), tuple(_error_rows(found)), _note(config)),
        ReportTable(PARTS, _PART_COLUMNS, tuple(_part_rows(found)), _PART_NOTE),
        ReportTable(POLICIES, distance_columns, tuple(distances(found)), _DISTANCE_NOTE),
        ReportTable(TRUTHS, _TRUTH_COLUMNS, tuple(_truth_rows(found))),
        ReportTable(RANKS, _RANK_COLUMNS, tuple(_rank_rows(found)), _rank_note(config)),
        ReportTable(EVERYTHING, _ALL_COLUMNS, tuple(_all_rows(found)), detail=True),
    ]
    if config.data:
        tables = [_drop_exact(table) for table in tables]
    else:
        columns = ("number", "rewards -15, 15", "survival")
        tables.insert(4, ReportTable(SELECTION, columns, tuple(_selection_rows(found))))
    return Report(NAME, TITLE, tuple(tables), tuple(_findings(found)), public_config(config))


_EXACT = (
    "exact",
    "MSE against exact V",
    "exact value of its policy",
    "less the exact value",
    "true TV",
    "true TV se",
)


def _drop_exact(table: ReportTable) -> ReportTable:
    """The table of the user's own data: without the columns that need the truth."""
    kept = [i for i, name in enumerate(table.columns) if name not in _EXACT]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return replace(table, columns=tuple(table.columns[i] for i in kept), rows=rows)


def _note(config: Config) -> str:
    pairs = f"{config.pairs} pairs ({config.value_pairs} for AM and PHWDR)"
    if config.data:
        where = (
            f"Means over {pairs}, each another split of the cohort {Path(config.data).name}: splits share patients, so "
            "standard errors over pairs are too small. Rewards are those of the file, discounted by 0.99."
        )
    else:
        where = (
            "For a deployed policy the truth is its exact value. "
            f"Means over {pairs} of {config.patients} patients each, every pair from a cohort of its own, with "
            "standard errors over pairs; the paper has 17,898 patients, 50 and 10 pairs. Rewards are the outcome "
            "alone, -15 or 15, discounted by 0.99; so PHWIS and step-PHWIS are the same."
        )
    return (
        f"Squared error of {config.n_draws} samples of {config.size} patients of the second log against the truth: for "
        f"a split the mean return of the first log, as in the paper. {where} The target policy is fitted by the same "
        "family as the behaviour policy, as in the paper; fit says whether the behaviour model had seen the patients "
        "that it weighs. mean: mean return of the second log. AM has no behaviour model: the paper gives one number, "
        "and ours differ by the family of the target policy."
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
                where = {"target": "own", "estimator": estimator, "fit": fit}
                ours = {f: found.mse(design, model=f, **where) for f in found.config.families}
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


def _parts(found: Found, design: str, **where: str) -> tuple[Any, ...]:
    """Mean bias, its variance between pairs, the mean variance within, their sum, and the error to the exact value."""
    bias, variance = found.parts(design, **where)
    bias, variance = (x[np.isfinite(bias)] for x in (bias, variance))
    between = float(bias.var()) if len(bias) else None  # of these pairs, so that the parts add up
    total = mean(bias**2 + variance)
    return (mean(bias), between, mean(variance), total, mean(found.exact_mse(design, **where)))


_DISTANCE_NOTE = (
    "Mean total variation between the fitted policies of the two logs, by family. Both fits have noise, which moves "
    "them apart; smoothing moves them together."
)
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
        "policy_value": "value of the policy that they follow",
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
    truth = "" if config.data else ", and for deployed policies against the exact value"
    return (
        "Spearman's correlation over the models that had not seen the patients (each family, with and without "
        "temperature, the marginal, and extremely randomised trees unless they are the target), for one target; mean "
        "over pairs in which all numbers are known, with standard errors over pairs. A number that tells which model "
        f"to use is near 1. The error is against the mean return of the first log in splits{truth}."
    )


def _rank_rows(found: Found) -> list[tuple[Any, ...]]:
    rows = []
    for design in found.pairs:
        for target in (NEUTRAL, "truth"):
            for estimator in [e for e in ESTIMATORS if e not in WEIGHTLESS]:
                each = correlate(found, target, [estimator], [design])
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
            where = dict(zip(names, key, strict=True))
            failed = [x["failed"] for pair in found.errors(design, **where) for x in pair]
            rows.append((design, *key, *_parts(found, design, **where), int(sum(failed))))
    return rows


def _findings(found: Found) -> list[str]:
    """One paragraph per claim of the paper, and one on what it could not know."""
    claims = (_compare_neighbours, _compare_mean, _compare_values, _selection, _calibration)
    return [text for claim in claims if (text := claim(found))]


def _compare_neighbours(found: Found) -> str:
    if not {"neighbours", "network"} <= set(found.config.families):
        return ""
    texts = []
    for design in found.pairs:
        for fit in ("same", "cross"):
            ours, theirs = (
                found.mse(design, target="own", model=model, fit=fit, estimator="PHWIS")
                for model in ("neighbours", "network")
            )
            off, error = mean(ours - theirs), se(ours - theirs)
            if off is not None:
                beside = "" if error is None else f" +- {2 * error:.2f}"
                texts.append(f"{design}, {fit} {mean(ours):.2f} and {mean(theirs):.2f} ({off:+.2f}{beside})")
    return (
        "The paper finds a lower error of PHWIS with neighbours than with the network in both splits (2.48 and 4.04, "
        "2.04 and 4.65). Here, by design and fit, with the difference and two standard errors over pairs: "
        f"{'; '.join(texts)}."
    )


def _family_errors(found: Found, design: str, estimator: str) -> dict[str, float]:
    """Mean squared error of an estimator with each cross-fitted family."""
    where = {"target": "own", "fit": "cross", "estimator": estimator}
    by_model = {model: mean(found.mse(design, model=model, **where)) for model in found.config.families}
    return {model: x for model, x in by_model.items() if x is not None}


def _compare_mean(found: Found) -> str:
    """What it costs to ignore the policy altogether."""
    texts = []
    for design in found.pairs:
        plain = mean(found.mse(design, target=NEUTRAL, model="marginal", estimator="mean"))
        best = min((x, model) for model, x in _family_errors(found, design, "PHWIS").items())
        texts.append(f"{design} {plain:.2f} and {best[0]:.2f} ({best[1]})")
    return (
        "Squared error of the mean return of the second log, which ignores the policy, and of PHWIS with the best "
        f"cross-fitted family: {'; '.join(texts)}."
    )


def _compare_values(found: Found) -> str:
    texts = []
    for design in found.pairs:
        weights, both = (
            list(_family_errors(found, design, estimator).values()) for estimator in ("PHWIS", "PHWDR")
        )
        where = {"target": "own", "fit": "cross", "estimator": "AM"}
        am = mean(np.concatenate([found.mse(design, model=m, **where) for m in found.config.families]))
        if am is not None:
            ratios = [max(x) / min(x) if x and min(x) > 0 else float("nan") for x in (both, weights)]
            texts.append(f"{design} {ratios[0]:.1f} (PHWIS {ratios[1]:.1f}; error of AM alone {am:.2f})")
    if not texts:
        return ""
    return (
        'The paper says: "The results with the PHWDR estimator do not show as clear a dependence on the behaviour '
        'policy", because "OPE is dominated by the AM terms". '
        f"Largest error over the smallest among the families, with PHWDR: {'; '.join(texts)}."
    )


def _selection(found: Found) -> str:
    if found.config.data:
        return ""
    survival, rewards = found.selection["survival"], found.selection["rewards"]
    bias = rewards["mean_return"] - rewards["policy_value"]
    gain = rewards["mean_return"] - rewards["practice_value"]
    return (
        "The intervention split biases its own ground truth. Patients never given vasopressors survive with "
        f"probability {survival['mean_return']:.4f}; the policy that they follow is worth "
        f"{survival['policy_value']:.4f} and the clinicians' {survival['practice_value']:.4f}. On the reward scale: "
        f"{rewards['mean_return']:.2f}, {rewards['policy_value']:.2f} and {rewards['practice_value']:.2f}. So "
        f"{bias / gain:.0%} of the apparent gain is selection, and a perfect estimate of the policy has a squared "
        f"error of {bias**2:.2f}."
    )


def _calibration(found: Found) -> str:
    targets = {NEUTRAL: "extremely randomised trees (own models not ranked)", "truth": "the true policy"}
    texts = []
    for target, words in targets.items():
        each = correlate(found, target, ("PHWIS", "WIS", "PHWDR"), found.pairs)
        if each.cells:
            numbers = ", ".join(_with_error(name, x, each.se[name]) for name, x in each.correlation.items())
            texts.append(f"target {words}: {numbers} ({each.cells} cells of {each.pairs} pairs)")
    return (
        'The paper says that "better calibrated models can result in better OPE". Mean rank correlation over models of '
        "each calibration number with the squared error of PHWIS, WIS and PHWDR, +- one standard error over pairs: "
        f"{'; '.join(texts)}. It is 1 if a number ranks the models as their errors do. Cells are those in which every "
        "number is known."
    )


def _with_error(name: str, x: float | None, error: float | None) -> str:
    return f"{name} {x:+.2f}" + ("" if error is None else f" +- {error:.2f}")


def draw(found: Report) -> Any:
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
