"""Figure 1: what an error of the behaviour policy costs, on the two-dimensional map.

Neighbours of varied k and number of training walks model two behaviour policies; the walks that are weighed are
others. How far the model is from the truth at the logged actions stands against the fractional error of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from caliope.behaviour import NeighbourPolicy
from caliope.calibration import distance_to_truth
from caliope.diagnostics import effective_n
from caliope.domains.toy_map import ASTRAY, HEADING, ROAMING, simulate, value, value_error
from caliope.estimators import step_wis, wis
from caliope.experiments.fits import predicted
from caliope.experiments.reports import Report, ReportTable
from caliope.experiments.runs import Unit, seed_of
from caliope.experiments.summaries import column, mean, sd
from caliope.gathering import gather
from caliope.policies import action_probabilities
from caliope.trajectories import Trajectories

NAME, TITLE = "figure1", "Figure 1: the cost of an error in the behaviour policy"
Shrunk = float | Literal["cv"]
BEHAVIOURS = {"roaming": ROAMING, "astray": ASTRAY}
SMALL, LARGE = 0.06, 0.5  # the paper: an error as small as 0.06 can cost over 50% of the value
BINS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.3)
ERRORS = "Fractional error by mean absolute error of the policy"
MODELS = "Every model"
TRUTH = "The true probabilities"


@dataclass(frozen=True)
class Config:
    """Sizes. The paper gives none of them but the horizon of 15."""

    walks: int = 400  # in the log that is weighed
    training: tuple[int, ...] = (20, 60, 200, 500)  # walks that the model is fitted on, 15 points each
    k: tuple[int, ...] = (5, 15, 30, 50, 150)
    # Imaginary neighbours that act like everybody: none as in the paper, one, or as many as predict best.
    shrinkage: tuple[Shrunk, ...] = (0.0, 1.0, "cv")
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
    """Value of the evaluation policy, and how far it may be off."""
    return {"value": value(HEADING), "error": value_error(HEADING)}


def one_log(behaviour: str, seed: int, config: Config) -> dict[str, Any]:
    """Weigh one log with every model, and with the truth."""
    acted = BEHAVIOURS[behaviour]
    log = simulate(config.walks, policy=acted, rng=seed_of(NAME, behaviour, seed, "log"))
    others = simulate(max(config.training), policy=acted, rng=seed_of(NAME, behaviour, seed, "training"))
    truth = action_probabilities(acted, log.states, log.n_actions)
    known = gather(log, HEADING, log["behaviour"])
    models = [
        {
            "walks": n,
            "k": k,
            "shrinkage": m,
            **_weighed(NeighbourPolicy(k, shrinkage=m), others[:n], log, truth),
        }
        for n in config.training
        for k in config.k
        if k < n * others.lengths[0]
        for m in config.shrinkage
    ]
    true = {"wis": float(wis(known)), "step_wis": float(step_wis(known)), "effective_n": effective_n(known)}
    return {"truth": true, "models": models}


def _weighed(model: NeighbourPolicy, train: Trajectories, log: Trajectories, truth: Any) -> dict[str, Any]:
    """Fit on other walks; where a logged action gets probability 0 there is no weight and no estimate."""
    table = predicted(model, train, log.states)
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
    shrinkage: Shrunk
    error: Any
    zero_share: Any
    against_wis: Any  # (V - V_true weights) / V_true weights
    against_step_wis: Any
    against_value: Any  # (V - V exact) / V exact


def _collected(config: Config, results: Mapping[str, Any]) -> list[_Model]:
    exact, models = results["value"]["value"], []
    for name in BEHAVIOURS:
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


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Errors by bin and by model, and whether the paper's sentence holds."""
    models = _collected(config, results)
    bins = tuple(row for name in BEHAVIOURS for row in _binned(name, models))
    tables = (
        ReportTable(ERRORS, _BIN_COLUMNS, bins, _note(config)),
        ReportTable(TRUTH, _TRUE_COLUMNS, tuple(_truth_row(name, config, results) for name in BEHAVIOURS)),
        ReportTable(MODELS, _MODEL_COLUMNS, tuple(_model_row(m) for m in models), detail=True),
    )
    return Report(NAME, TITLE, tables, tuple(_finding(name, models) for name in BEHAVIOURS), vars(config))


_BIN_COLUMNS = (
    "behaviour policy", "mean |pi - pihat|", "models", "estimates", "WIS error", "WIS sd", "WIS |error|",
    "over 50%", "step-WIS error", "step-WIS sd", "error to V", "sd to V",
)  # fmt: skip


def _binned(name: str, models: Sequence[_Model]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for low, high in pairwise(BINS):
        inside = [m for m in models if m.behaviour == name and low <= m.error.mean() < high]
        if inside:
            wis_, step, exact = (
                np.concatenate([getattr(m, kind) for m in inside])
                for kind in ("against_wis", "against_step_wis", "against_value")
            )
            there = np.isfinite(wis_)
            cost = np.abs(wis_[there])
            row = (name, f"{low:g}-{high:g}", len(inside), int(there.sum()), *_mean_sd(wis_), mean(cost))
            rows.append((*row, mean(cost > LARGE), *_mean_sd(step), *_mean_sd(exact)))
    return rows


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
        "imaginary neighbour that acts like everybody, and with as many as predict other walks best. An error is "
        "(estimate - V) / V with V the WIS estimate from the true probabilities, as in the paper, and in the last two "
        "columns the exact value. Plain neighbours that give a logged action probability 0 have no estimate."
    )


def _finding(name: str, models: Sequence[_Model]) -> str:
    """Say whether an average error of 0.06 costs half of the value."""
    mine = [m for m in models if m.behaviour == name and np.isfinite(m.against_wis).any()]
    near = [m for m in mine if m.error.mean() <= SMALL]
    undefined = [m for m in models if m.behaviour == name and not np.isfinite(m.against_wis).all()]
    said = f"Under the behaviour policy *{name}* "
    if not near:
        return (
            said
            + f"no model with an estimate errs by {SMALL} or less, so the paper's sentence was not tested."
        )
    worst = max(near, key=_cost)
    single = np.concatenate([m.against_wis for m in near])
    single = np.abs(single[np.isfinite(single)])
    verdict = "holds" if _cost(worst) > LARGE else "does not hold on average"
    said += (
        f'"an average absolute error of 0.06 can cost over 50% of the value" {verdict}: of the {len(near)} models that '
        f"err by at most {SMALL}, the costliest (error {worst.error.mean():.3f}, {15 * worst.walks} points, "
        f"k = {worst.k}, shrinkage {worst.shrinkage}) is off by {_cost(worst):.0%} of the WIS estimate with the true "
        f"policy on average, and {(single > LARGE).mean():.1%} of single estimates by more than 50%. "
    )
    said += _threshold(mine)
    if undefined:
        said += (
            f"For {len(undefined)} models some or all logs have no estimate at all, because a logged action has "
            "probability 0; the paper does not say what it did there."
        )
    return said.rstrip()


def _threshold(models: Sequence[_Model]) -> str:
    costly = [m for m in models if _cost(m) > LARGE]
    if costly:
        first = min(costly, key=lambda m: float(m.error.mean()))
        return f"The smallest error at which the mean cost exceeds 50% is {first.error.mean():.3f}. "
    top = max(models, key=lambda m: float(m.error.mean()))
    return f"No model costs 50% on average, up to an error of {top.error.mean():.3f} ({_cost(top):.0%}). "


def _cost(m: _Model) -> float:
    return float(np.nanmean(np.abs(m.against_wis)))


def figure(found: Report) -> Any:
    """The paper's figure, against the true weights and against the exact value."""
    from caliope.plots import COLOURS, panels, points

    drawing, axes = panels(1, 2, width=4.5)
    for colour, name in zip(COLOURS, BEHAVIOURS, strict=False):
        rows = [row for row in found.table(MODELS).records() if row["behaviour policy"] == name]
        for axis, kind, spread in zip(
            axes[0], ("WIS error", "error to V"), ("WIS sd", "sd to V"), strict=True
        ):
            there = [row for row in rows if row[kind] is not None]
            x, y, sds = (column(there, each) for each in ("mean |pi - pihat|", kind, spread))
            points(x, y, axis, spread=sds, label=name, colour=colour)
    for axis, title in zip(
        axes[0], ("against WIS with the true policy", "against the exact value"), strict=True
    ):
        axis.axhline(0, color="#999999", linewidth=0.8)
        axis.axhline(-LARGE, color="#999999", linewidth=0.8, linestyle="dotted")
        axis.axvline(SMALL, color="#999999", linewidth=0.8, linestyle="dotted")
        axis.set(xlabel="mean |pi - pihat| at logged actions", ylabel="fractional error of WIS", title=title)
        axis.legend(fontsize=7, frameon=False)
    return drawing
