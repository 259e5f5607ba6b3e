"""What Figure 1 says: errors of the value by errors of the policy, and whether the paper's sentence holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from caliope.experiments.reports import Report, ReportTable, said_of
from caliope.experiments.summaries import column, mean, sd, se

POLICIES = ("roaming", "astray")
SMALL, LARGE = 0.06, 0.5  # the paper: an error as small as 0.06 can cost over 50% of the value
NEAR = (0.055, 0.065)  # what counts as an error of 0.06; one of the bins
OFTEN = 0.05  # share of single estimates from which it is said to happen
BINS = (0.0, 0.02, 0.03, 0.04, 0.055, 0.065, 0.08, 0.1, 0.15, 0.3)
ERRORS, MODELS, TRUTH = (
    "Fractional error by mean absolute error of the policy",
    "Every model",
    "The true probabilities",
)


@dataclass(frozen=True)
class _Model:
    """One model over the seeds: its error and what it costs, (S,) each; nan where there is no estimate."""

    behaviour: str
    walks: int
    k: int
    shrinkage: Any
    error: Any
    zero_share: Any
    against_wis: Any  # (V - V_true weights) / V_true weights
    against_step_wis: Any
    against_value: Any  # (V - V exact) / V exact


def _collected(config: Any, results: Mapping[str, Any]) -> list[_Model]:
    exact, models = results["value"]["value"], []
    for name in POLICIES:
        seeds = [results[f"{name}-seed{seed}"] for seed in range(config.seeds)]
        true = column([each["truth"] for each in seeds], "wis")
        true_step = column([each["truth"] for each in seeds], "step_wis")
        for i, first in enumerate(seeds[0]["models"]):
            found = [each["models"][i] for each in seeds]
            v, step = column(found, "wis"), column(found, "step_wis")
            models.append(
                _Model(
                    name,
                    first["walks"],
                    first["k"],
                    first["shrinkage"],
                    column(found, "error"),
                    column(found, "zero_share"),
                    (v - true) / true,
                    (step - true_step) / true_step,
                    (v - exact) / exact,
                )
            )
    return models


def report(config: Any, results: Mapping[str, Any]) -> Report:
    """Errors by bin and by model, and whether the paper's sentence holds."""
    models = _collected(config, results)
    bins = tuple(row for name in POLICIES for row in _binned(name, models))
    tables = (
        ReportTable(ERRORS, _BIN_COLUMNS, bins, _note(config)),
        ReportTable(TRUTH, _TRUE_COLUMNS, tuple(_truth_row(name, config, results) for name in POLICIES)),
        ReportTable(MODELS, _MODEL_COLUMNS, tuple(_model_row(m) for m in models), detail=True),
    )
    title = "Figure 1: the cost of an error in the behaviour policy"
    return Report(
        "figure1", title, tables, tuple(_finding(name, models) for name in POLICIES), said_of(config)
    )


_BIN_COLUMNS = (
    "behaviour policy", "mean |pi - pihat|", "models", "with estimates", "estimates", "WIS error", "WIS sd",
    "WIS |error|", "over 50%", "step-WIS error", "step-WIS sd", "error to V", "sd to V",
)  # fmt: skip


def _binned(name: str, models: Sequence[_Model]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for low, high in pairwise(BINS):
        inside = [m for m in models if m.behaviour == name and _inside(m, low, high)]
        if inside:
            wis_, step, exact = (
                np.concatenate([getattr(m, kind) for m in inside])
                for kind in ("against_wis", "against_step_wis", "against_value")
            )
            there = np.isfinite(wis_)
            cost = np.abs(wis_[there])
            answer = sum(bool(np.isfinite(m.against_wis).any()) for m in inside)
            counts = (len(inside), answer, int(there.sum()))
            row = (name, f"{low:g}-{high:g}", *counts, *_mean_sd(wis_), mean(cost))
            rows.append((*row, mean(cost > LARGE), *_mean_sd(step), *_mean_sd(exact)))
    return rows


def _inside(m: _Model, low: float, high: float) -> bool:
    return low <= float(m.error.mean()) < high


_TRUE_COLUMNS = (
    "behaviour policy", "walks", "effective walks", "exact V", "WIS error to V", "WIS sd", "WIS |error|",
    "step-WIS error to V", "step-WIS sd",
)  # fmt: skip


def _truth_row(name: str, config: Any, results: Mapping[str, Any]) -> tuple[Any, ...]:
    """What weights cost even when the policy is known."""
    exact = results["value"]["value"]
    true = [results[f"{name}-seed{seed}"]["truth"] for seed in range(config.seeds)]
    off, step = (column(true, kind) / exact - 1 for kind in ("wis", "step_wis"))
    effective = mean(column(true, "effective_n"))
    return (name, config.walks, effective, exact, *_mean_sd(off), mean(np.abs(off)), *_mean_sd(step))


_MODEL_COLUMNS = (
    "behaviour policy", "training points", "k", "shrinkage", "mean |pi - pihat|", "share of zeros", "WIS error",
    "WIS sd", "WIS |error|", "over 50%", "step-WIS error", "step-WIS sd", "error to V", "sd to V",
)  # fmt: skip


def _model_row(m: _Model) -> tuple[Any, ...]:
    cost = np.abs(m.against_wis[np.isfinite(m.against_wis)])
    named = (m.behaviour, 15 * m.walks, m.k, str(m.shrinkage), mean(m.error), mean(m.zero_share))
    costs = (*_mean_sd(m.against_wis), mean(cost), mean(cost > LARGE))
    return (*named, *costs, *_mean_sd(m.against_step_wis), *_mean_sd(m.against_value))


def _mean_sd(x: Any) -> tuple[float | None, float | None]:
    return mean(x), sd(x)


def _note(config: Any) -> str:
    return (
        f"{config.seeds} logs of {config.walks} walks for each behaviour policy; models fitted on "
        f"{', '.join(map(str, config.training))} other walks with k = {', '.join(map(str, config.k))}, plain, with one "
        "imaginary neighbour that acts like everybody, and with as many as predict other walks best. An error is "
        "(estimate - V) / V with V the WIS estimate from the true probabilities, as in the paper, and in the last two "
        "columns the exact value. Plain neighbours that give a logged action probability 0 have no estimate. Over 50%: "
        "share of the estimates, each of one model on one log. The picture shows every model as a dot, and mean and "
        "standard deviation over the estimates of each row of this table."
    )


def _finding(name: str, models: Sequence[_Model]) -> str:
    """Say whether an average error of 0.06 costs half of the value."""
    every = [m for m in models if m.behaviour == name]
    mine = [m for m in every if np.isfinite(m.against_wis).any()]
    near = [m for m in mine if _inside(m, *NEAR)]
    said = f"Under the behaviour policy *{name}*, "
    if not near:
        return said + f"no model with an estimate errs by {SMALL}, so the paper's sentence was not tested."
    signed = _estimates(near)
    cost, often = np.abs(signed), float((np.abs(signed) > LARGE).mean())
    verdict = (
        "holds on average" if cost.mean() > LARGE
        else "holds for single estimates and not on average" if often > OFTEN
        else "does not hold"
    )  # fmt: skip
    of = sum(_inside(m, *NEAR) for m in every)
    return (
        f'{said}"Average absolute errors in behaviour policy models of as small as 0.06 can incur errors of up over '
        f'50% in the estimated value" {verdict}: with an error of {NEAR[0]:g} to {NEAR[1]:g} ({len(near)} of {of} '
        f"models have {len(cost)} estimates, one a log) WIS is off by {cost.mean():.0%} of the estimate with the true "
        f"policy on average ({signed.mean():+.0%} with its sign), and by more than 50% in {often:.0%} of the "
        f"estimates. {_threshold(mine)}{_below(mine)}{_undefined(every)}"
    )


def _estimates(models: Sequence[_Model]) -> Any:
    """Fractional errors of every single estimate that there is."""
    each = np.concatenate([m.against_wis for m in models]) if models else np.empty(0)
    return each[np.isfinite(each)]


def _below(models: Sequence[_Model]) -> str:
    small = np.abs(_estimates([m for m in models if m.error.mean() < 0.04]))
    if not len(small):
        return ""
    often = (small > LARGE).mean()
    return f"Below an error of 0.04 the mean cost is {small.mean():.0%}, and over 50% in {often:.0%} of the estimates. "


def _undefined(models: Sequence[_Model]) -> str:
    missing = sum(int(np.isnan(m.against_wis).sum()) for m in models)
    every = sum(len(m.against_wis) for m in models)
    return (
        f"{missing} of {every} estimates do not exist, because plain neighbours give a logged action probability 0; "
        "the paper does not say what it did there."
    )


def _threshold(models: Sequence[_Model]) -> str:
    """The smallest error that is known to cost half of the value: not a lucky draw, nor a few logs of many."""
    often = [m for m in models if np.isfinite(m.against_wis).mean() >= 0.5]
    costly = [m for m in often if _cost(m)[0] - 2 * _cost(m)[1] > LARGE]
    who = "Among models that have an estimate in at least half of the logs, "
    if costly:
        first = min(costly, key=lambda m: float(m.error.mean()))
        cost, error = _cost(first)
        return (
            f"{who}the smallest error with a mean cost above 50% by two standard errors is {first.error.mean():.3f} "
            f"(cost {cost:.0%}, standard error {error:.0%}). "
        )
    if not often:
        return ""
    top = max(often, key=lambda m: _cost(m)[0])
    cost, error = _cost(top)
    return (
        f"{who}none costs more than 50% on average by two standard errors; the costliest has an error of "
        f"{top.error.mean():.3f} (cost {cost:.0%}, standard error {error:.0%}). "
    )


def _cost(m: _Model) -> tuple[float, float]:
    """Mean absolute cost of a model over its logs, and the standard error; infinite where there is but one."""
    cost = np.abs(m.against_wis)
    error = se(cost)
    return float(np.nanmean(cost)), np.inf if error is None else error


def figure(found: Report) -> Any:
    """The paper's figure, against the true weights and against the exact value."""
    from caliope.plots import COLOURS, panels, points

    drawing, axes = panels(1, 2, width=4.5)
    for i, (colour, name) in enumerate(zip(COLOURS, POLICIES, strict=False)):
        models = [row for row in found.table(MODELS).records() if row["behaviour policy"] == name]
        bins = [row for row in found.table(ERRORS).records() if row["behaviour policy"] == name]
        for axis, kind, spread in zip(
            axes[0], ("WIS error", "error to V"), ("WIS sd", "sd to V"), strict=True
        ):
            x, y = (column(models, each) for each in ("mean |pi - pihat|", kind))
            axis.plot(x, y, ".", color=colour, markersize=3, alpha=0.35)
            # Bars stand at the middle of the models in a bin, those of the two policies beside each other.
            there = [row for row in bins if row[kind] is not None]
            middle = [_middle(row, x[np.isfinite(y)]) + (2 * i - 1) * 0.001 for row in there]
            points(middle, column(there, kind), axis, spread=column(there, spread), label=name, colour=colour)
    for axis, title in zip(
        axes[0], ("against WIS with the true policy", "against the exact value"), strict=True
    ):
        axis.axhline(0, color="#999999", linewidth=0.8)
        axis.axhline(-LARGE, color="#999999", linewidth=0.8, linestyle="dotted")
        axis.axvline(SMALL, color="#999999", linewidth=0.8, linestyle="dotted")
        axis.set(xlabel="mean |pi - pihat| at logged actions", ylabel="fractional error of WIS", title=title)
        axis.legend(fontsize=7, frameon=False)
    return drawing


def _middle(row: Mapping[str, Any], errors: Any) -> float:
    low, high = map(float, str(row["mean |pi - pihat|"]).split("-"))
    return float(errors[(errors >= low) & (errors < high)].mean())
