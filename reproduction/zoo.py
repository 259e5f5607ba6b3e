"""The zoo: how far each calibration number ranks behaviour models as their distance to the truth does.

Eight models, the true policy among them, are measured on held-out trajectories by every number, and by their total
variation to the truth, which is unknown for a real log. A number is good if it puts the models in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from caliope._ragged import Float
from caliope._trajectories import Trajectories
from caliope.behaviour import NeighbourPolicy, NetworkPolicy, Shrinkage, Temperature, recalibrate
from caliope.calibration import (
    Neighbourhoods,
    balance_table,
    brier_loss,
    classwise_error,
    kernel_error,
    log_loss,
    neighbourhood_calibration,
    neighbourhoods,
    top_label_error,
    total_variation,
)
from caliope.domains import zoo
from reproduction._cohorts import fit_predict
from reproduction._report import Report, ReportTable, clustered_se, mean, public_config
from reproduction._runs import Unit, seed_of

NAME, TITLE = "zoo", "The zoo: which calibration number can be believed?"
HIDDEN = "sites"  # its policy depends on an unmeasured variable: not counted in the means over all
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
WITH = "Rank correlation by policy, the truth among the models"
WITHOUT = "Rank correlation by policy, without the truth"
MEMBERS = {
    "linear-50": zoo.MEMBERS[0],
    "linear-10": zoo.MEMBERS[1],
    "protocol": zoo.MEMBERS[2],
    "local": zoo.MEMBERS[3],
    "overconfident": zoo.MEMBERS[4],
    "sites": zoo.sites,
}


@dataclass(frozen=True)
class Config:
    """Sizes; a trajectory has ten steps, and the training log is as large as the test log."""

    members: tuple[str, ...] = tuple(MEMBERS)
    trajectories: int = 600
    seeds: int = 10
    k: int = 150
    n_states: int = 1000
    n_draws: int = 50
    trees: int = 50


SMOKE = Config(("protocol", "sites"), trajectories=60, seeds=2, k=30, n_states=100, n_draws=20, trees=10)
DEFAULT = Config()
FULL = Config(trajectories=2000, seeds=20, n_states=5000, n_draws=200, trees=100)


def units(config: Config) -> list[Unit]:
    """One unit for each policy of the zoo and seed."""
    sizes = replace(config, seeds=0, members=())  # a longer run has more units, and the same ones
    return [
        Unit(f"{member}-seed{seed}", one_log, {"member": member, "seed": seed, "config": sizes})
        for seed in range(config.seeds)
        for member in config.members
    ]


def one_log(member: str, seed: int, config: Config) -> dict[str, Any]:
    """Fit every model on one log, and measure it on another."""
    policy = MEMBERS[member](rng=seed_of(NAME, member, seed, "policy"))
    train, test = (
        zoo.simulate(policy, config.trajectories, rng=seed_of(NAME, member, seed, part))
        for part in ("train", "test")
    )
    truth = policy.predict_proba(test.states)
    rows = seed_of(NAME, member, seed, "states").choice(
        test.n_steps, min(config.n_states, test.n_steps), False
    )
    near = neighbourhoods(test, np.sort(rows), k=config.k)
    tables = _models(train, test, seed, config) | {TRUTH: truth}
    return {
        name: _measure(table, test, near, config) | {TRUE: total_variation(table, truth).mean()}
        for name, table in tables.items()
    }


def _models(train: Trajectories, test: Trajectories, seed: int, config: Config) -> dict[str, Float]:
    """Probabilities of each model at every step of the test log, (N, 25)."""
    forest = RandomForestClassifier(config.trees, min_samples_leaf=5, random_state=seed)
    logistic = fit_predict(LogisticRegression(max_iter=1000), train, test.states)
    marginal = np.bincount(train.actions, minlength=train.n_actions) / train.n_steps
    tables = {
        "neighbours": fit_predict(NeighbourPolicy(config.k, shrinkage="cv"), train, test.states),
        "logistic": logistic,
        "forest": recalibrate(forest, train, Shrinkage(), folds=2, rng=seed).on(test),
        "network": fit_predict(NetworkPolicy(random_state=seed), train, test.states),
        "marginal": np.tile(marginal, (test.n_steps, 1)),
        "logistic, too sure": Temperature(0.5)(logistic),
        "logistic, too unsure": Temperature(2.0)(logistic),
    }
    return {name: _add_one_step(table, train) for name, table in tables.items()}


def _add_one_step(table: Float, train: Trajectories) -> Float:
    """Spread one pseudo-step over all actions, so that an action not seen in training is not ruled out."""
    n = train.n_steps
    return (n * table + 1 / train.n_actions) / (n + 1)


def _measure(table: Float, test: Trajectories, near: Neighbourhoods, config: Config) -> dict[str, float]:
    """Every number of one model; the smaller the better."""
    draws = config.n_draws
    around = neighbourhood_calibration(table, near, n_draws=draws, rng=0)
    paper = around.paper_metric()
    values = (
        paper.value,
        abs(paper.excess),
        around.averaged_metric().excess,
        log_loss(table, test.actions).mean(),
        brier_loss(table, test.actions).mean(),
        top_label_error(table, test.actions, n_draws=20, rng=0).ece.value,
        classwise_error(table, test.actions, n_draws=20, rng=0).ece.value,
        kernel_error(table, test, n_rows=1000, n_draws=20, rng=0).value,
        balance_table(table, test, n_draws=20, rng=0).largest.value,
    )
    return dict(zip(METRICS, map(float, values), strict=True))


@dataclass(frozen=True)
class _Ranking:
    """How one number ranks the models of one log."""

    with_truth: float  # rank correlation with the true total variation
    without_truth: float
    in_order: bool  # all models but the truth, in their true order
    finds_best: bool  # of the models but the truth
    place_of_truth: int  # 1 is best; ties count as before it


def _rank(models: Mapping[str, Mapping[str, float]], metric: str) -> _Ranking:
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


Rankings = dict[str, dict[str, list[_Ranking]]]  # by number and policy, one per seed


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """Rank correlations, and where each number places the truth."""
    found = _rankings(config, results, tuple(next(iter(results.values()))))
    four = _rankings(config, results, FOUR)
    columns = ("number", *config.members)
    every = ("policy", "model", *METRICS, TRUE)
    tables = (
        ReportTable(SUMMARY, _COLUMNS, tuple(_summary(m, found) for m in METRICS), _note(config), 2),
        ReportTable(FEWER, _COLUMNS, tuple(_summary(m, four) for m in METRICS), decimals=2),
        ReportTable(WITH, columns, _by_member(found, "with_truth"), decimals=2),
        ReportTable(WITHOUT, columns, _by_member(found, "without_truth"), decimals=2),
        ReportTable("The numbers of every model", every, _means(config, results), detail=True),
    )
    findings = (
        _finding("All eight models", found),
        _finding("Neighbours, logistic regression, forest, marginal and the truth alone", four),
    )
    return Report(NAME, TITLE, tables, findings, public_config(config))


def _rankings(config: Config, results: Mapping[str, Any], models: tuple[str, ...]) -> Rankings:
    return {
        metric: {
            member: [
                _rank({name: results[f"{member}-seed{seed}"][name] for name in models}, metric)
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


def _means(config: Config, results: Mapping[str, Any]) -> tuple[tuple[Any, ...], ...]:
    rows = []
    for member in config.members:
        logs = [results[f"{member}-seed{seed}"] for seed in range(config.seeds)]
        rows += [
            (member, model, *(mean([log[model][key] for log in logs]) for key in (*METRICS, TRUE)))
            for model in logs[0]
        ]
    return tuple(rows)


def _note(config: Config) -> str:
    counted = len(set(config.members) - {HIDDEN})
    return (
        "Spearman's rank correlation over 8 models (7 without the truth) with their total variation to the truth, "
        f"mean over {counted} policies x {config.seeds} logs of {config.trajectories} trajectories of ten steps, with "
        "the standard error between policies, because logs of one policy are alike. The policy with hidden sites is "
        "not counted here, but shown below. All in order: share of the logs in which the models without the truth come "
        "in their true order. Place of the truth: 1 is best of 8."
    )


def _finding(models: str, found: Rankings) -> str:
    texts = []
    for metric in (PAPER, NLL, AVERAGED):
        row = dict(zip(_COLUMNS, _summary(metric, found), strict=True))
        error = "" if row["se"] is None else f" (se {row['se']:.2f})"
        texts.append(
            f"{metric} {row['correlation']:.2f}{error}, {row['without the truth']:.2f} without the truth, all in order "
            f"in {row['all in order']:.0%}, the best fitted model found in {row['finds the best']:.0%}, the truth "
            f"first in {row['truth first']:.0%}"
        )
    return f"{models}: rank correlation with the true total variation, and share of the logs. {'; '.join(texts)}."


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
