"""What the zoo says: how far each calibration number orders the models as their distance to the truth does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from caliope.experiments.reports import Report, ReportTable, said_of
from caliope.experiments.summaries import clustered_se, mean

HIDDEN = "sites"  # its policy depends on something nobody wrote down: not counted in the means over all
PAPER, AVERAGED, NLL = "paper TV", "averaged excess", "NLL"
METRICS = (
    PAPER, "paper TV, distance from null", AVERAGED, NLL, "Brier", "top-label ECE", "class-wise ECE", "kernel error",
    "largest balance z",
)  # fmt: skip
TRUE = "true TV"
TRUTH = "truth"
FOUR = ("neighbours", "logistic", "forest", "marginal", TRUTH)
FEWER = "The same with four ordinary models and the truth"
SUMMARY = "Every number against the true total variation"
WITH, WITHOUT = (
    "Rank correlation by policy, the truth among the models",
    "Rank correlation by policy, without the truth",
)


@dataclass(frozen=True)
class _Ranking:
    """How one number ranks the models of one log."""

    with_truth: float  # rank correlation with the true total variation
    without_truth: float
    in_order: bool  # all models but the truth, in their true order
    finds_best: bool  # of the models but the truth
    place_of_truth: int  # 1 is best; those that tie with it count as before it


def _ranking(models: Mapping[str, Mapping[str, float]], metric: str) -> _Ranking:
    fitted = [name for name in models if name != TRUTH]
    x, true = ({name: found[key] for name, found in models.items()} for key in (metric, TRUE))
    order = sorted(fitted, key=lambda name: x[name])
    return _Ranking(
        _correlation([x[name] for name in models], [true[name] for name in models]),
        _correlation([x[name] for name in fitted], [true[name] for name in fitted]),
        order == sorted(fitted, key=lambda name: true[name]),
        order[0] == min(fitted, key=lambda name: true[name]),
        1 + sum(x[name] <= x[TRUTH] for name in fitted),
    )


def _correlation(x: list[float], y: list[float]) -> float:
    if len(set(x)) == 1:
        return float("nan")  # a number that is the same for all models orders none
    return float(spearmanr(x, y).statistic)


Rankings = dict[str, dict[str, list[_Ranking]]]  # by number and policy, a seed each


def report(config: Any, results: Mapping[str, Any]) -> Report:
    """Rank correlations, and where each number places the truth."""
    found = _rankings(config, results, tuple(next(iter(results.values()))))
    four = _rankings(config, results, FOUR)
    columns = ("number", *config.members)
    tables = (
        ReportTable(
            SUMMARY, _COLUMNS, tuple(_summary(metric, found) for metric in METRICS), _note(config), 2
        ),
        ReportTable(FEWER, _COLUMNS, tuple(_summary(metric, four) for metric in METRICS), decimals=2),
        ReportTable(WITH, columns, _by_member(found, "with_truth"), decimals=2),
        ReportTable(WITHOUT, columns, _by_member(found, "without_truth"), decimals=2),
        ReportTable(
            "The numbers of every model",
            ("policy", "model", *METRICS, TRUE),
            _means(config, results),
            detail=True,
        ),
    )
    title = "The zoo: which calibration number can be believed?"
    return Report("zoo", title, tables, (*_findings(found), _fewer(four)), said_of(config))


def _rankings(config: Any, results: Mapping[str, Any], models: tuple[str, ...]) -> Rankings:
    return {
        metric: {
            member: [
                _ranking({name: results[f"{member}-seed{seed}"][name] for name in models}, metric)
                for seed in range(config.seeds)
            ]
            for member in config.members
        }
        for metric in METRICS
    }


_COLUMNS = (
    "number", "correlation", "se", "without the truth", "its se", "all in order", "finds the best",
    "place of the truth", "truth first",
)  # fmt: skip


def _summary(metric: str, found: Rankings) -> tuple[Any, ...]:
    counted = [
        (member, each) for member, seeds in found[metric].items() if member != HIDDEN for each in seeds
    ]
    policies, rankings = [member for member, _ in counted], [each for _, each in counted]
    with_truth, without = ([getattr(r, name) for r in rankings] for name in ("with_truth", "without_truth"))
    place = [r.place_of_truth for r in rankings]
    return (
        metric, mean(with_truth), clustered_se(with_truth, policies), mean(without), clustered_se(without, policies),
        mean([r.in_order for r in rankings]), mean([r.finds_best for r in rankings]), mean(place),
        mean([p == 1 for p in place]),
    )  # fmt: skip


def _by_member(found: Rankings, which: str) -> tuple[tuple[Any, ...], ...]:
    return tuple(
        (metric, *(mean([getattr(r, which) for r in seeds]) for seeds in found[metric].values()))
        for metric in METRICS
    )


def _means(config: Any, results: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    rows = []
    for member in config.members:
        logs = [results[f"{member}-seed{seed}"] for seed in range(config.seeds)]
        rows += [
            (member, model, *(mean([log[model][key] for log in logs]) for key in (*METRICS, TRUE)))
            for model in logs[0]
        ]
    return tuple(rows)


def _note(config: Any) -> str:
    counted = len(set(config.members) - {HIDDEN})
    return (
        "Spearman's rank correlation over 8 models (7 without the truth) with their total variation to the truth, "
        f"mean over {counted} policies x {config.seeds} logs of {config.trajectories} trajectories of ten steps, with "
        "the standard error between policies: logs of one policy are alike, and do not count as so many. The policy "
        "with hidden sites is not counted here, but shown below. All in order: share of the logs in which the models "
        "but the truth come in their true order. Place of the truth: 1 is best of 8."
    )


def _findings(found: Rankings) -> tuple[str, ...]:
    rows = {metric: dict(zip(_COLUMNS, _summary(metric, found), strict=True)) for metric in METRICS}
    paper, nll, averaged = rows[PAPER], rows[NLL], rows[AVERAGED]
    best = max(METRICS, key=lambda metric: rows[metric]["correlation"])
    right = min(nll["all in order"], averaged["all in order"])
    better = min(nll["correlation"], averaged["correlation"]) > paper["correlation"]
    verdict = "confirmed" if right == 1 else "too strong" if better else "not confirmed"
    said = "; ".join(_said(metric, rows[metric]) for metric in (PAPER, NLL, AVERAGED))
    return (
        f"Rank correlation with the true total variation: {said}. The paper's metric puts the true policy in place "
        f"{paper['place of the truth']:.1f} of 8 on average. Highest correlation: {best}.",
        "That the likelihood and the neighbourhood-averaged excess rank all models rightly, and the paper's metric "
        f"does not, is {verdict}: all are in order in {nll['all in order']:.0%}, {averaged['all in order']:.0%} and "
        f"{paper['all in order']:.0%} of the logs, and the best fitted model is found in {nll['finds the best']:.0%}, "
        f"{averaged['finds the best']:.0%} and {paper['finds the best']:.0%}.",
    )


def _fewer(found: Rankings) -> str:
    rows = {
        metric: dict(zip(_COLUMNS, _summary(metric, found), strict=True)) for metric in (NLL, AVERAGED, PAPER)
    }
    said = ", ".join(
        f"{metric} {row['correlation']:.2f} (all in order in {row['all in order']:.0%})"
        for metric, row in rows.items()
    )
    return f"With neighbours, logistic regression, forest, marginal and the truth alone, correlations are {said}."


def _said(metric: str, row: Mapping[str, Any]) -> str:
    error = "" if row["se"] is None else f"se {row['se']:.2f}; "
    return (
        f"{metric} {row['correlation']:.2f} ({error}{row['without the truth']:.2f} without the truth), "
        f"the truth first in {row['truth first']:.0%}"
    )


def figure(found: Report) -> Any:
    """Rank correlations as coloured cells."""
    from caliope.plots import cells, panels

    drawing, axes = panels(1, 2, width=5.0, height=3.6)
    for axis, title in zip(axes[0], (WITH, WITHOUT), strict=True):
        table = found.table(title)
        values = np.array([[np.nan if x is None else x for x in row[1:]] for row in table.rows], dtype=float)
        cells([str(row[0]) for row in table.rows], table.columns[1:], values, axis)
        axis.set(title=title.split(", ")[1])
    return drawing
