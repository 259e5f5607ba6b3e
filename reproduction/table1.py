"""Table 1: total variation between behaviour models and the neighbours of a state, by severity.

Models are fitted on some patients of ICU-Sepsis and measured on others: by the paper's number with its null, by the
neighbourhood-averaged one, by log loss and Brier score, and by the distance to the true behaviour policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from caliope._policies import action_probabilities
from caliope._ragged import Float
from caliope.behaviour import (
    Chain,
    Shrinkage,
    Temperature,
    default_model,
    paper_models,
    present_columns,
    recalibrate,
)
from caliope.calibration import (
    Neighbourhoods,
    brier_loss,
    log_loss,
    neighbourhood_calibration,
    neighbourhoods,
    severity_strata,
    total_variation,
)
from reproduction._cohorts import (
    Cohorts,
    fit_predict,
    ignore_early_stop,
    kernel_weights,
    read_cohorts,
    simulate_cohorts,
)
from reproduction._report import Report, ReportTable, column, mean, public_config, sd
from reproduction._runs import Unit, seed_of

NAME, TITLE = "table1", "Table 1: calibration of behaviour models by severity"
STRATA = ("0-4", "5-9", "10-13", "14+")
PAPER = {
    "logistic": {"0-4": 0.249, "5-9": 0.269, "10-13": 0.309, "14+": 0.356},
    "forest": {"0-4": 0.214, "5-9": 0.254, "10-13": 0.309, "14+": 0.337},
    "network": {"0-4": 0.213, "5-9": 0.246, "10-13": 0.399, "14+": 0.426},
    "neighbours": {"0-4": 0.129, "5-9": 0.152, "10-13": 0.210, "14+": 0.199},
}
"""Raghu et al. (2018), Table 1: LR, RF, NN and approximate kNN; their last stratum is 14-23."""

RAW, RECALIBRATED = "By severity, as fitted", "By severity, recalibrated"
ORDER = "The best model by each number"
REPAIRED_ORDER = f"{ORDER}, recalibrated"
_COLUMNS = (
    "severity", "model", "paper", "ours", "sd", "difference", "null", "z", "averaged excess", "averaged z", "NLL",
    "Brier", "true TV",
)  # fmt: skip
_KEYS = {
    "averaged excess": "averaged_excess",
    "averaged z": "averaged_z",
    "NLL": "nll",
    "Brier": "brier",
    "true TV": "true_tv",
}
# Mean over seeds by variant, model, stratum and number.
Found = dict[str, dict[str, dict[str, dict[str, float | None]]]]


@dataclass(frozen=True)
class Config:
    """Sizes. The paper has 17,898 patients, does not say how they were split, and uses 500 states per stratum."""

    train: int = 1000  # patients
    test: int = 3000
    models: tuple[str, ...] = ("logistic", "forest", "network", "neighbours", "default", "truth")
    seeds: int = 5
    n_states: int = 500
    k: int = 150
    n_draws: int = 100
    folds: int = 3  # of the recalibration
    weigh_lags: bool = True  # the kernel counts informative features of earlier steps twice too
    data: str = ""  # the user's own cohort instead of simulated patients
    digest: str = ""  # of its content


SMOKE = Config(60, 80, ("logistic", "neighbours", "truth"), seeds=2, n_states=40, k=30, n_draws=20, folds=2)
DEFAULT = Config()
FULL = Config(train=8949, test=8949, seeds=20, folds=5)


def units(config: Config) -> list[Unit]:
    """One unit for each model and seed; the user's own data have no truth to measure."""
    sizes = replace(config, seeds=0, models=())  # a longer run has more units, and the same ones
    models = [model for model in config.models if not (config.data and model == "truth")]
    return [
        Unit(f"{model}-seed{seed}", one_model, {"model": model, "seed": seed, "config": sizes})
        for seed in range(config.seeds)
        for model in models
    ]


def one_model(model: str, seed: int, config: Config) -> dict[str, Any]:
    """Fit one model as it is and recalibrated, and measure both in every stratum."""
    logs = read_cohorts(config.data) if config.data else _patients(seed, config)
    strata = severity_strata(logs.sofa)
    rng = seed_of(NAME, seed, "states")
    rows = [np.flatnonzero(strata == stratum) for stratum in STRATA]
    rows = [rng.choice(each, min(config.n_states, len(each)), replace=False) for each in rows]
    weights = kernel_weights(logs.test.feature_names, lags=config.weigh_lags)
    near = neighbourhoods(logs.test, np.sort(np.concatenate(rows)), k=config.k, feature_weights=weights)
    return {
        variant: _measure(table, logs, near, strata, config)
        for variant, table in _tables(model, logs, seed, config).items()
    }


def _patients(seed: int, config: Config) -> Cohorts:
    return simulate_cohorts(config.train, config.test, seed_of(NAME, seed, "patients"))


def _tables(model: str, logs: Cohorts, seed: int, config: Config) -> dict[str, Float]:
    """Probabilities at every step of the test log, as fitted and recalibrated, (N, 25) each."""
    if model == "truth":
        if logs.truth is None:
            raise ValueError("the truth is known for simulated patients only.")
        return {"raw": logs.truth}
    if model == "default":
        present = present_columns(logs.train.feature_names)
        pool = default_model(present=present, random_state=seed)
        return {"raw": fit_predict(pool, logs.train, logs.test.states)}
    calibrator = Chain((Shrinkage(), Temperature()))
    with ignore_early_stop():
        both = recalibrate(
            paper_models(random_state=seed)[model], logs.train, calibrator, folds=config.folds, rng=seed
        )
    raw = action_probabilities(both.model.model, logs.test.states, logs.test.n_actions)
    return {"raw": raw, "recalibrated": both.calibrator(raw)}


def _measure(
    table: Float, logs: Cohorts, near: Neighbourhoods, strata: Any, config: Config
) -> dict[str, dict[str, float]]:
    """Every number for the whole log and for each stratum."""
    around = neighbourhood_calibration(table, near, n_draws=config.n_draws, rng=0)
    losses = {"nll": log_loss(table, logs.test.actions), "brier": brier_loss(table, logs.test.actions)}
    losses["zero_share"] = np.isinf(losses["nll"]).astype(float)
    if logs.truth is not None:
        losses["true_tv"] = total_variation(table, logs.truth)
    found: dict[str, dict[str, float]] = {}
    for stratum in ("all", *STRATA):
        steps = np.flatnonzero((strata == stratum) | (stratum == "all"))
        weights = _state_weights(strata, near, stratum)
        if not weights.any():
            continue
        paper, averaged = around.paper_metric(weights), around.averaged_metric(weights)
        found[stratum] = {
            "states": int((weights > 0).sum()),
            "paper": paper.value,
            "null": paper.null_mean,
            "z": paper.z,
            "averaged_excess": averaged.excess,
            "averaged_z": averaged.z,
        } | {name: float(each[steps].mean()) for name, each in losses.items()}
    return found


def _state_weights(strata: Any, near: Neighbourhoods, stratum: str) -> Float:
    """Equal weights within a stratum; over all strata, each state stands for as many steps as it was drawn from."""
    drawn = strata[near.rows]
    if stratum != "all":
        return (drawn == stratum).astype(np.float64)
    stands_for = {name: (strata == name).sum() / (drawn == name).sum() for name in set(drawn)}
    return np.array([stands_for[name] for name in drawn])


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Tables by severity, the order of the models, and how they compare with the paper."""
    found = _means(config, results)
    raw, repaired = found["raw"], found.get("recalibrated", {})
    tables = [
        ReportTable(RAW, _COLUMNS, _rows(raw, theirs=PAPER), _note(config, raw)),
        _order_table(ORDER, raw),
    ]
    if repaired:
        tables.append(ReportTable(RECALIBRATED, _COLUMNS, _rows(repaired, theirs={})))
        # The default model recalibrates itself.
        own = {model: strata for model, strata in raw.items() if model == "default"}
        tables.append(_order_table(REPAIRED_ORDER, repaired | own))
    return Report(NAME, TITLE, tuple(tables), _findings(found), public_config(config))


def _means(config: Config, results: Mapping[str, Any]) -> Found:
    found: Found = {}
    for model in config.models:
        seeds = [results[key] for seed in range(config.seeds) if (key := f"{model}-seed{seed}") in results]
        for variant in seeds[0] if seeds else ():
            strata = [
                stratum for stratum in seeds[0][variant] if all(stratum in each[variant] for each in seeds)
            ]
            found.setdefault(variant, {})[model] = {
                stratum: _average_seeds([each[variant][stratum] for each in seeds]) for stratum in strata
            }
    return found


def _average_seeds(rows: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    return {key: mean(column(rows, key)) for key in rows[0]} | {"sd": sd(column(rows, "paper"))}


def _strata(models: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [stratum for stratum in next(iter(models.values())) if stratum != "all"] + ["all"]


def _rows(
    models: Mapping[str, Mapping[str, Mapping[str, float | None]]],
    *,
    theirs: Mapping[str, Mapping[str, float]],
) -> tuple[tuple[Any, ...], ...]:
    rows = []
    for stratum in _strata(models):
        for model, strata in models.items():
            x, paper = strata[stratum], theirs.get(model, {}).get(stratum)
            difference = None if paper is None else (x["paper"] or 0.0) - paper
            head = (stratum, model, paper, x["paper"], x["sd"], difference, x["null"], x["z"])
            rows.append((*head, *(x.get(key) for key in _KEYS.values())))
    return tuple(rows)


_ORDER_COLUMNS = (
    "severity", "in the paper", "paper TV", "averaged excess", "NLL", "Brier", "true TV",
    "correlation of paper TV with true TV", "of averaged excess", "of NLL",
)  # fmt: skip


def _order_table(title: str, models: Mapping[str, Mapping[str, Any]]) -> ReportTable:
    note = "Rank correlations over the fitted models; infinite likelihoods tie."
    return ReportTable(title, _ORDER_COLUMNS, tuple(_order(models, s) for s in _strata(models)), note, 2)


def _order(models: Mapping[str, Mapping[str, Any]], stratum: str) -> tuple[Any, ...]:
    """The best fitted model by each number, and how far the numbers order models as the truth does."""
    fitted = {model: strata[stratum] for model, strata in models.items() if model != "truth"}
    theirs = {model: PAPER[model][stratum] for model in fitted if stratum in PAPER.get(model, {})}
    keys = ("paper", "averaged_excess", "nll", "brier", "true_tv")
    best = [_best({model: x.get(key) for model, x in fitted.items()}) for key in keys]
    correlations = [_correlation(fitted, key) for key in ("paper", "averaged_excess", "nll")]
    return (stratum, _best(theirs), *best, *correlations)


def _best(numbers: Mapping[str, float | None]) -> str | None:
    there = {model: x for model, x in numbers.items() if x is not None and np.isfinite(x)}
    return min(there, key=lambda model: there[model]) if there else None


def _correlation(fitted: Mapping[str, Mapping[str, float | None]], key: str) -> float | None:
    pairs = [(x[key], x.get("true_tv")) for x in fitted.values()]
    if len(pairs) < 3 or any(true is None for _, true in pairs):
        return None
    statistic = float(spearmanr([x for x, _ in pairs], [y for _, y in pairs]).statistic)
    return statistic if np.isfinite(statistic) else None


def _note(config: Config, raw: Mapping[str, Any]) -> str:
    patients = (
        f"The cohort {config.data.rsplit('/', 1)[-1]}; its true policy is unknown."
        if config.data
        else f"{config.train} simulated patients to fit on and {config.test} others (the paper: 17,898 real ones)."
    )
    severity = "the SOFA score of the step" if config.data else "the mean SOFA score of the hidden state"
    states = {name: x["states"] for name, x in next(iter(raw.values())).items() if name != "all"}
    few = ", ".join(f"{name}: {n:.0f}" for name, n in states.items() if n < config.n_states)
    return (
        f"{patients} Means over {config.seeds} seeds, sd between them; up to {config.n_states} states per stratum"
        f"{f' (all of them, on average: {few})' if few else ''}. Strata are by {severity}. Neighbours are the "
        f"{config.k} nearest states of other patients, own trajectory left out, by standardised features; informative "
        f"ones {'and their history ' * config.weigh_lags}count twice. "
        "*paper* is Raghu et al. (2018) on MIMIC-III, another population: for comparison, not a target. *null* is the "
        "expected number if the model were right, z the distance from it. *averaged excess* is above its null too."
    )


def _findings(found: Found) -> tuple[str, ...]:
    raw = found["raw"]
    orders = {s: dict(zip(_ORDER_COLUMNS, _order(raw, s), strict=True)) for s in _strata(raw)}
    severities = [stratum for stratum in orders if stratum != "all"]
    best = ", ".join(f"{s}: {orders[s]['paper TV']}" for s in severities)
    same = sum(orders[s]["paper TV"] == orders[s]["in the paper"] for s in severities)
    findings = [
        f"Best model by the paper's number: {best}; the same as in the paper in {same} of {len(severities)} strata."
    ]
    if len(severities) > 1:
        findings.append(_trend(raw, severities[0], severities[-1]))
    if "truth" in raw:
        findings.append(_against_truth(raw, orders["all"]))
    if "recalibrated" in found:
        findings.append(_recalibration(found))
    return tuple(findings)


def _trend(raw: Mapping[str, Any], first: str, last: str) -> str:
    """How the paper's number and its null change from the mildest stratum to the severest."""

    def change(key: str, models: Sequence[str]) -> str:
        return ", ".join(
            f"{m} {raw[m][first][key]:.3f} to {raw[m][last][key]:.3f}" for m in models if m in raw
        )

    return (
        f"From {first} to {last} the paper's number goes: {change('paper', tuple(PAPER))}. Its null over the same "
        f"strata: {change('null', (*PAPER, 'truth'))}."
    )


def _against_truth(raw: Mapping[str, Any], order: Mapping[str, Any]) -> str:
    truth = raw["truth"]["all"]
    whole = {model: strata["all"] for model, strata in raw.items() if model != "truth"}
    better = ", ".join(model for model, x in whole.items() if x["paper"] < truth["paper"])
    distances = ", ".join(f"{model} {x['true_tv']:.3f}" for model, x in whole.items())
    return (
        f"The true policy itself scores {truth['paper']:.3f} by the paper's number (z = {truth['z']:.1f} from its "
        f"null). Fitted models that score better: {better or 'none'}. Total variation to the truth over all steps: "
        f"{distances}. The best model is {order['paper TV']} by the paper's number, {order['averaged excess']} by the "
        f"averaged excess, {order['NLL'] or 'none'} by log loss and {order['true TV']} in truth."
    )


def _recalibration(found: Found) -> str:
    parts, nearer = [], []
    for model, after in found["recalibrated"].items():
        a, b = found["raw"][model]["all"], after["all"]
        text = f"{model} NLL {a['nll']:.3g} to {b['nll']:.3g}"
        before, now = a.get("true_tv"), b.get("true_tv")
        if before is not None and now is not None:
            text += f", true TV {before:.3f} to {now:.3f}"
            nearer += [model] * (now < before)
        parts.append(text)
    known = "truth" in found["raw"]
    return f"Recalibration (shrinkage, then temperature, out of fold): {'; '.join(parts)}." + (
        f" Nearer to the truth than before: {', '.join(nearer) or 'none'}." if known else ""
    )


def figure(found: Report) -> Any:
    """The paper's number with its null by severity, and the truth or the likelihood beside it."""
    from caliope.plots import grouped_bars, panels

    rows = [row for row in found.table(RAW).records() if row["severity"] != "all"]
    known = all(row["true TV"] is not None for row in rows)
    strata = list(dict.fromkeys(str(row["severity"]) for row in rows))
    models = list(dict.fromkeys(str(row["model"]) for row in rows))

    def series(key: str) -> dict[str, Any]:
        return {model: column([row for row in rows if row["model"] == model], key) for model in models}

    drawing, axes = panels(1, 2, width=5.0)
    grouped_bars(strata, series("ours"), axes[0, 0], marks=series("null"))
    axes[0, 0].set(
        xlabel="SOFA", ylabel="total variation to the neighbours", title="the paper's number; lines: its null"
    )
    second = "true TV" if known else "Brier"
    grouped_bars(strata, series(second), axes[0, 1])
    axes[0, 1].set(xlabel="SOFA", ylabel="total variation to the truth" if known else "Brier score")
    return drawing
