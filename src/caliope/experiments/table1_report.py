"""What Table 1 says: the paper's numbers beside ours, and the order in which each number puts the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from caliope.experiments.reports import Report, ReportTable, said_of
from caliope.experiments.summaries import column, mean, sd

PAPER = {
    "logistic": {"0-4": 0.249, "5-9": 0.269, "10-13": 0.309, "14+": 0.356},
    "forest": {"0-4": 0.214, "5-9": 0.254, "10-13": 0.309, "14+": 0.337},
    "network": {"0-4": 0.213, "5-9": 0.246, "10-13": 0.399, "14+": 0.426},
    "neighbours": {"0-4": 0.129, "5-9": 0.152, "10-13": 0.210, "14+": 0.199},
}
"""Raghu et al. (2018), Table 1: LR, RF, NN and approximate kNN; their last stratum is 14-23."""

RAW, RECALIBRATED, ORDER = (
    "By severity, as fitted",
    "By severity, recalibrated",
    "The best model by each number",
)
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
REPAIRED_ORDER = "The best model by each number, recalibrated"
Found = dict[
    str, dict[str, dict[str, dict[str, float | None]]]
]  # variant, model, stratum, number: mean over seeds


def report(config: Any, results: Mapping[str, Any]) -> Report:
    """Tables by severity, the order of the models, and what agrees with the paper."""
    found = _means(config, results)
    raw, repaired = found["raw"], found.get("recalibrated", {})
    tables = [
        ReportTable(RAW, _COLUMNS, _rows(raw, theirs=PAPER), _note(config, raw)),
        _order_table(ORDER, raw),
    ]
    if repaired:
        tables.append(ReportTable(RECALIBRATED, _COLUMNS, _rows(repaired, theirs={})))
        # The default model is recalibrated by its own making.
        own = {model: strata for model, strata in raw.items() if model == "default"}
        tables.append(_order_table(REPAIRED_ORDER, repaired | own))
    title = "Table 1: calibration of behaviour models by severity"
    return Report("table1", title, tuple(tables), _findings(found), said_of(config))


def _means(config: Any, results: Mapping[str, Any]) -> Found:
    found: Found = {}
    for model in config.models:
        seeds = [results[key] for seed in range(config.seeds) if (key := f"{model}-seed{seed}") in results]
        for variant in seeds[0] if seeds else ():
            strata = [
                stratum for stratum in seeds[0][variant] if all(stratum in each[variant] for each in seeds)
            ]
            found.setdefault(variant, {})[model] = {
                stratum: _over_seeds([each[variant][stratum] for each in seeds]) for stratum in strata
            }
    return found


def _over_seeds(rows: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
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


def _note(config: Any, raw: Mapping[str, Any]) -> str:
    who = (
        f"The cohort {config.data.rsplit('/', 1)[-1]}: nobody knows the true policy."
        if config.data
        else f"{config.train} simulated patients to fit on and {config.test} others (the paper: 17,898 real ones)."
    )
    severity = "the SOFA score of the step" if config.data else "the mean SOFA score of the hidden state"
    return (
        f"{who} Means over {config.seeds} seeds, sd between them; up to {config.n_states} states of each stratum"
        f"{_fewer(config, raw)}. Strata are by {severity}. Neighbours are the {config.k} nearest states of other "
        "patients, the own trajectory left out, by features that were standardised; informative ones "
        f"{'and their history ' * config.weigh_lags}count twice. "
        "*paper* is Raghu et al. (2018) on MIMIC-III, another population: for comparison, not a target. *null* is what "
        "the number would be if the model were right, z the distance from it. *averaged excess* is above its null too."
    )


def _fewer(config: Any, raw: Mapping[str, Any]) -> str:
    """Strata that have fewer states than were asked for."""
    states = {name: x["states"] for name, x in next(iter(raw.values())).items() if name != "all"}
    few = [f"{name}: {n:.0f}" for name, n in states.items() if n < config.n_states]
    return f" ({', '.join(few)}, which are all, on average)" if few else ""


def _findings(found: Found) -> tuple[str, ...]:
    raw = found["raw"]
    strata = _strata(raw)
    orders = {stratum: dict(zip(_ORDER_COLUMNS, _order(raw, stratum), strict=True)) for stratum in strata}
    severities = [stratum for stratum in strata if stratum != "all"]
    same = [s for s in severities if orders[s]["paper TV"] == orders[s]["in the paper"]]
    best = ", ".join(f"{s}: {orders[s]['paper TV']}" for s in severities)
    said = [
        f"By the paper's number the best model is the paper's in {len(same)} of {len(severities)} strata ({best}; in "
        f"the paper neighbours throughout). {_trend(raw, severities)}"
    ]
    if "truth" in raw:
        said.append(_against_truth(raw, orders))
    if "recalibrated" in found:
        said.append(_recalibrated(found))
    return tuple(said)


def _trend(raw: Mapping[str, Any], severities: Sequence[str]) -> str:
    """How the paper's number and its null change from the mildest stratum to the severest."""
    if len(severities) < 2:
        return ""
    first, last = severities[0], severities[-1]
    models = [model for model in PAPER if model in raw]

    def change(model: str, key: str) -> str:
        return f"{model} {raw[model][first][key]:.3f} to {raw[model][last][key]:.3f}"

    higher = [
        change(model, "paper") for model in models if raw[model][last]["paper"] > raw[model][first]["paper"]
    ]
    lower = [
        change(model, "paper") for model in models if raw[model][last]["paper"] <= raw[model][first]["paper"]
    ]
    told = [f"{word} for {', '.join(x)}" for word, x in (("rises", higher), ("falls", lower)) if x]
    nulls = ", ".join(change(model, "null") for model in models)
    truth = f"; of the true policy itself: {change('truth', 'null')}" if "truth" in raw else ""
    return f"From {first} to {last} it {' and '.join(told)}. Its null over the same strata: {nulls}{truth}."


def _against_truth(raw: Mapping[str, Any], orders: Mapping[str, Mapping[str, Any]]) -> str:
    whole, order = {model: strata["all"] for model, strata in raw.items()}, orders["all"]
    better = [
        model for model, x in whole.items() if model != "truth" and x["paper"] < whole["truth"]["paper"]
    ]
    place = ", ".join(f"{model} {x['true_tv']:.3f}" for model, x in whole.items() if model != "truth")
    return (
        f"The true policy itself scores {whole['truth']['paper']:.3f} by the paper's number (z = "
        f"{whole['truth']['z']:.1f} from its null), and {len(better)} of the fitted models score better than it"
        f"{': ' + ', '.join(better) if better else ''}. Total variation to the truth over all steps: {place}. The best "
        f"model is {order['paper TV']} by the paper's number, {order['averaged excess']} by the averaged excess, "
        f"{order['NLL']} by likelihood and {order['true TV']} in truth."
    )


def _recalibrated(found: Found) -> str:
    parts, nearer = [], []
    for model, after in found["recalibrated"].items():
        a, b = found["raw"][model]["all"], after["all"]
        said = f"{model} NLL {a['nll']:.3g} to {b['nll']:.3g}"
        true, now = a.get("true_tv"), b.get("true_tv")
        if true is not None and now is not None:
            said += f", true TV {true:.3f} to {now:.3f}"
            nearer += [model] * (now < true)
        parts.append(said)
    known = (
        ""
        if "truth" not in found["raw"]
        else f" Nearer to the truth than before: {', '.join(nearer) or 'none'}."
    )
    return f"Recalibration (shrinkage, then temperature, out of fold): {'; '.join(parts)}.{known}"


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
