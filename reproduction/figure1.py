"""Figure 1: what an error of the behaviour policy costs, on the two-dimensional map.

Neighbours of varied k and number of training walks model two behaviour policies, and weigh other walks. The distance
of the model from the truth at the logged actions stands against the fractional error of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from caliope._formulas import step_wis, wis
from caliope._gather import gather
from caliope._policies import action_probabilities
from caliope._trajectories import Trajectories
from caliope.behaviour import NeighbourPolicy
from caliope.calibration import distance_to_truth
from caliope.domains.toy_map import ASTRAY, HEADING, ROAMING, simulate, value, value_error
from caliope.weights import effective_n
from reproduction._cohorts import fit_predict
from reproduction._report import Report, ReportTable, column, mean, public_config, sd, se
from reproduction._runs import Unit, seed_of

NAME, TITLE = "figure1", "Figure 1: the cost of an error in the behaviour policy"
ERRORS = "Fractional error by mean absolute error of the policy"
TRUTH, MODELS = "The true probabilities", "Every model"
BEHAVIOURS = {"roaming": ROAMING, "astray": ASTRAY}
SMALL, LARGE = 0.06, 0.5  # the paper: an error as small as 0.06 can cost over 50% of the value
NEAR = (0.055, 0.065)  # what counts as an error of 0.06; one of the bins
BINS = (0.0, 0.02, 0.03, 0.04, 0.055, 0.065, 0.08, 0.1, 0.15, 0.3)


@dataclass(frozen=True)
class Config:
    """Sizes. The paper gives none of them but the horizon of 15."""

    walks: int = 400  # in the log that is weighed
    training: tuple[int, ...] = (20, 60, 200, 500)  # walks that the model is fitted on, 15 points each
    k: tuple[int, ...] = (5, 15, 30, 50, 150)
    # Pseudo-neighbours that act like the marginal: none as in the paper, one, or as many as predict best.
    shrinkage: tuple[float | Literal["cv"], ...] = (0.0, 1.0, "cv")
    seeds: int = 20


SMOKE = Config(walks=60, training=(20, 60), k=(15, 150), seeds=2)
DEFAULT = Config()
FULL = Config(walks=1000, training=(20, 60, 200, 500, 1000), k=(5, 15, 30, 50, 150, 500), seeds=50)


def units(config: Config) -> list[Unit]:
    """The exact value, and one unit for each behaviour policy and seed."""
    sizes = replace(config, seeds=0)  # a longer run has more units, and the same ones
    logs = [
        Unit(f"{name}-seed{seed}", one_log, {"behaviour": name, "seed": seed, "config": sizes})
        for seed in range(config.seeds)
        for name in BEHAVIOURS
    ]
    return [Unit("value", exact_value), *logs]


def exact_value() -> dict[str, float]:
    """Value of the target policy, and its numerical error."""
    return {"value": value(HEADING), "error": value_error(HEADING)}


def one_log(behaviour: str, seed: int, config: Config) -> dict[str, Any]:
    """Weigh one log with every model, and with the truth."""
    policy = BEHAVIOURS[behaviour]
    log = simulate(config.walks, policy=policy, rng=seed_of(NAME, behaviour, seed, "log"))
    others = simulate(max(config.training), policy=policy, rng=seed_of(NAME, behaviour, seed, "training"))
    truth = action_probabilities(policy, log.states, log.n_actions)
    known = gather(log, HEADING, log["behaviour"])
    models = [
        {"walks": n, "k": k, "shrinkage": m} | _weigh(NeighbourPolicy(k, shrinkage=m), others[:n], log, truth)
        for n in config.training
        for k in config.k
        if k < n * others.lengths[0]
        for m in config.shrinkage
    ]
    true = {"wis": float(wis(known)), "step_wis": float(step_wis(known)), "effective_n": effective_n(known)}
    return {"truth": true, "models": models}


def _weigh(model: NeighbourPolicy, train: Trajectories, log: Trajectories, truth: Any) -> dict[str, Any]:
    """Fit on other walks; if a logged action gets probability 0 there is no weight and no estimate."""
    table = fit_predict(model, train, log.states)
    off = distance_to_truth(table, truth, log.actions)
    zero = float((table[np.arange(log.n_steps), log.actions] == 0).mean())
    found = {"error": float(off.at_logged.mean()), "tv": float(off.tv.mean()), "zero_share": zero}
    if zero:
        return found | {"wis": None, "step_wis": None}
    e = gather(log, HEADING, table, behaviour_known=False)
    return found | {"wis": float(wis(e)), "step_wis": float(step_wis(e))}


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


def _collect(config: Config, results: Mapping[str, Any]) -> list[_Model]:
    exact, models = results["value"]["value"], []
    for name in BEHAVIOURS:
        seeds = [results[f"{name}-seed{seed}"] for seed in range(config.seeds)]
        true = column([each["truth"] for each in seeds], "wis")
        true_step = column([each["truth"] for each in seeds], "step_wis")
        for i, first in enumerate(seeds[0]["models"]):
            found = [each["models"][i] for each in seeds]
            v, step = column(found, "wis"), column(found, "step_wis")
            about = (name, first["walks"], first["k"], first["shrinkage"])
            measured = (column(found, "error"), column(found, "zero_share"))
            costs = ((v - true) / true, (step - true_step) / true_step, (v - exact) / exact)
            models.append(_Model(*about, *measured, *costs))
    return models


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Errors by bin and by model, and what an error of 0.06 costs."""
    models = _collect(config, results)
    bins = tuple(row for name in BEHAVIOURS for row in _bin_rows(name, models))
    tables = (
        ReportTable(ERRORS, _BIN_COLUMNS, bins, _note(config)),
        ReportTable(TRUTH, _TRUE_COLUMNS, tuple(_truth_row(name, config, results) for name in BEHAVIOURS)),
        ReportTable(MODELS, _MODEL_COLUMNS, tuple(_model_row(m) for m in models), detail=True),
    )
    findings = (_CLAIM, *(_finding(name, models) for name in BEHAVIOURS))
    return Report(NAME, TITLE, tables, findings, public_config(config))


_BIN_COLUMNS = (
    "behaviour policy", "mean |pi - pihat|", "models", "with estimates", "estimates", "WIS error", "WIS sd",
    "WIS |error|", "over 50%", "step-WIS error", "step-WIS sd", "error to V", "sd to V",
)  # fmt: skip


def _bin_rows(name: str, models: Sequence[_Model]) -> list[tuple[Any, ...]]:
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


def _truth_row(name: str, config: Config, results: Mapping[str, Any]) -> tuple[Any, ...]:
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


def _note(config: Config) -> str:
    return (
        f"{config.seeds} logs of {config.walks} walks for each behaviour policy; models fitted on "
        f"{', '.join(map(str, config.training))} other walks with k = {', '.join(map(str, config.k))}, plain, with one "
        "pseudo-neighbour that acts like the marginal, and with as many as predict other walks best. An error is "
        "(estimate - V) / V with V the WIS estimate from the true probabilities, as in the paper, and in the last two "
        "columns the exact value. Plain neighbours that give a logged action probability 0 have no estimate. Over 50%: "
        "share of the estimates, each of one model on one log. The figure shows every model as a dot, and mean and "
        "standard deviation over the estimates of each row of this table."
    )


_CLAIM = (
    'The paper says: "Average absolute errors in behaviour policy models of as small as 0.06 can incur errors of up '
    'over 50% in the estimated value." Errors of WIS below are relative to WIS with the true policy. Plain neighbours '
    "that give a logged action probability 0 have no estimate; the paper does not say what it did there."
)


def _finding(name: str, models: Sequence[_Model]) -> str:
    """What errors of about 0.06 and less cost, and the smallest error that costs half of the value."""
    every = [m for m in models if m.behaviour == name]
    known = [m for m in every if np.isfinite(m.against_wis).any()]
    near = [m for m in known if _inside(m, *NEAR)]
    of = sum(_inside(m, *NEAR) for m in every)
    missing = sum(int(np.isnan(m.against_wis).sum()) for m in every)
    return (
        f"Behaviour policy *{name}*, models with an error of {NEAR[0]:g} to {NEAR[1]:g} ({len(near)} of {of} have "
        f"estimates): {_costs(near)}. Models with an error below 0.04: "
        f"{_costs([m for m in known if m.error.mean() < 0.04])}. {_threshold(known)}{missing} of "
        f"{sum(len(m.against_wis) for m in every)} estimates do not exist."
    )


def _costs(models: Sequence[_Model]) -> str:
    each = np.concatenate([m.against_wis for m in models]) if models else np.empty(0)
    signed = each[np.isfinite(each)]
    if not len(signed):
        return "no estimates"
    cost = np.abs(signed)
    return (
        f"mean absolute error of WIS {cost.mean():.0%} (signed {signed.mean():+.0%}), over 50% in "
        f"{(cost > LARGE).mean():.0%} of {len(cost)} estimates"
    )


def _threshold(models: Sequence[_Model]) -> str:
    """The smallest error whose cost exceeds half of the value by two standard errors, or the costliest model."""
    often = [m for m in models if np.isfinite(m.against_wis).mean() >= 0.5]
    if not often:
        return ""
    costly = [m for m in often if _cost(m)[0] - 2 * _cost(m)[1] > LARGE]
    first = (
        min(costly, key=lambda m: float(m.error.mean())) if costly else max(often, key=lambda m: _cost(m)[0])
    )
    what = "the smallest error that costs" if costly else "none costs"
    which = "" if costly else "the costliest model has an error of "
    cost, error = _cost(first)
    return (
        f"Among models with an estimate in at least half of the logs, {what} more than 50% by two standard errors"
        f"{' is ' if costly else '; '}{which}{first.error.mean():.3f} (cost {cost:.0%}, standard error {error:.0%}). "
    )


def _cost(m: _Model) -> tuple[float, float]:
    """Mean absolute cost of a model over its logs, and the standard error; infinite for a single log."""
    cost = np.abs(m.against_wis)
    error = se(cost)
    return float(np.nanmean(cost)), np.inf if error is None else error


def figure(found: Report) -> Any:
    """The paper's figure, against the true weights and against the exact value."""
    from caliope.plots import COLOURS, panels, points

    drawing, axes = panels(1, 2, width=4.5)
    for i, (colour, name) in enumerate(zip(COLOURS, BEHAVIOURS, strict=False)):
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
    titles = ("against WIS with the true policy", "against the exact value")
    for axis, title in zip(axes[0], titles, strict=True):
        axis.axhline(0, color="#999999", linewidth=0.8)
        axis.axhline(-LARGE, color="#999999", linewidth=0.8, linestyle="dotted")
        axis.axvline(SMALL, color="#999999", linewidth=0.8, linestyle="dotted")
        axis.set(xlabel="mean |pi - pihat| at logged actions", ylabel="fractional error of WIS", title=title)
        axis.legend(fontsize=7, frameon=False)
    return drawing


def _middle(row: Mapping[str, Any], errors: Any) -> float:
    low, high = map(float, str(row["mean |pi - pihat|"]).split("-"))
    return float(errors[(errors >= low) & (errors < high)].mean())
