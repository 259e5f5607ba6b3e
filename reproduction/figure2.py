"""Figure 2: predictive distributions of the network and the neighbours in the states where they are worst.

The paper shows examples chosen by hand, for the network only. Here one rule serves both models. The reference is the
truth, or the frequencies among the neighbours of the test log where the truth is unknown:

- most overconfident: of the states in which model and reference agree on the likeliest action, the one in which the
  model's probability of it exceeds that of the reference by most;
- most wrong: of the states in which they disagree, the one of largest total variation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope._ragged import Float
from caliope.behaviour import paper_models
from caliope.calibration import neighbourhoods, total_variation
from reproduction._cohorts import (
    fit_predict,
    ignore_early_stop,
    kernel_weights,
    read_cohorts,
    simulate_cohorts,
)
from reproduction._report import Report, ReportTable, column, mean, public_config
from reproduction._runs import Unit, seed_of

NAME, TITLE = "figure2", "Figure 2: where the models are at their worst"
MODELS = ("network", "neighbours")
RULES = ("most overconfident", "most wrong")
SURE = 0.9  # a prediction above this is called sure
STATES, EXAMPLES, DISTRIBUTIONS = "All states looked at", "The states chosen by rule", "Their distributions"


@dataclass(frozen=True)
class Config:
    """Sizes; examples are shown of the first seed, and the numbers are means over all."""

    train: int = 1000  # patients
    test: int = 3000
    seeds: int = 3
    n_states: int = 2000
    k: int = 150
    data: str = ""  # the user's own cohort instead of simulated patients
    digest: str = ""  # of its content


SMOKE = Config(60, 80, seeds=2, n_states=100, k=30)
DEFAULT = Config()
FULL = Config(train=8949, test=8949, seeds=20)


def units(config: Config) -> list[Unit]:
    """One unit per seed."""
    sizes = replace(config, seeds=0)  # a longer run has more units, and the same ones
    return [Unit(f"seed{seed}", one_seed, {"seed": seed, "config": sizes}) for seed in range(config.seeds)]


def one_seed(seed: int, config: Config) -> dict[str, Any]:
    """Fit both models, and look at them in the same states."""
    rng = seed_of(NAME, seed)
    logs = read_cohorts(config.data) if config.data else simulate_cohorts(config.train, config.test, rng)
    test = logs.test
    rows = np.sort(rng.choice(test.n_steps, min(config.n_states, test.n_steps), replace=False))
    weights = kernel_weights(test.feature_names, lags=True)
    target = neighbourhoods(test, rows, k=config.k, feature_weights=weights).histograms()
    sources = {"target": target} if logs.truth is None else {"target": target, "truth": logs.truth[rows]}
    with ignore_early_stop():
        fitted = {
            model: fit_predict(paper_models(random_state=seed)[model], logs.train, test.states[rows])
            for model in MODELS
        }
    reference = sources.get("truth", target)
    chosen = {
        f"{model}, {rule}": {
            "sofa": float(logs.sofa[rows[i]]),
            **{k: v[i] for k, v in (fitted | sources).items()},
        }
        for model in MODELS
        for rule, i in zip(RULES, worst(fitted[model], reference), strict=True)
    }
    states = {model: _spread(table, reference, test.actions[rows]) for model, table in fitted.items()}
    return {"states": states, "examples": chosen}


def worst(table: Float, reference: Float) -> tuple[int, int]:
    """The rows that the two rules choose; if a rule finds no state, it chooses among all."""
    best = table.argmax(axis=1)
    agree = best == reference.argmax(axis=1)
    too_sure, off = overconfidence(table, reference), total_variation(table, reference)
    first = np.where(agree, too_sure, -np.inf) if agree.any() else too_sure
    second = np.where(agree, -np.inf, off) if not agree.all() else off
    return int(first.argmax()), int(second.argmax())


def overconfidence(table: Float, reference: Float) -> Float:
    """By how much the model's probability of its likeliest action exceeds that of the reference, one number per row."""
    best = table.argmax(axis=1)[:, None]
    return np.asarray(np.take_along_axis(table - reference, best, axis=1)[:, 0])


def _spread(table: Float, reference: Float, actions: Any) -> dict[str, float | None]:
    too_sure, off, top = (
        overconfidence(table, reference),
        total_variation(table, reference),
        table.max(axis=1),
    )
    sure = top > SURE
    return {
        "tv": off.mean(),
        "largest_tv": off.max(),
        "overconfidence": too_sure.mean(),
        "overconfidence_99": np.quantile(too_sure, 0.99),
        "largest_overconfidence": too_sure.max(),
        "sure": sure.mean(),
        "right_when_sure": mean((table.argmax(axis=1) == actions)[sure]),
    }


def report(config: Config, results: Mapping[str, Any]) -> Report:
    """The examples, and how common such states are."""
    seeds = [results[f"seed{seed}"] for seed in range(config.seeds)]
    rows = {model: [each["states"][model] for each in seeds] for model in MODELS}
    states = {model: {key: mean(column(rows[model], key)) for key in rows[model][0]} for model in MODELS}
    examples = seeds[0]["examples"]
    chosen = [[_example(name, found) for name, found in each["examples"].items()] for each in seeds]
    distributions = tuple(
        (name, source, *example[source])
        for name, example in examples.items()
        for source in example
        if source != "sofa"
    )
    tables = (
        ReportTable(STATES, _STATE_COLUMNS, tuple((m, *states[m].values()) for m in MODELS), _note(config)),
        ReportTable(EXAMPLES, _EXAMPLE_COLUMNS, tuple(chosen[0]), f"First of {config.seeds} seeds."),
        ReportTable(DISTRIBUTIONS, ("example", "source", *map(str, range(25))), distributions, detail=True),
    )
    findings = (_on_average(states), _at_worst(chosen, config))
    return Report(NAME, TITLE, tables, findings, public_config(config))


_STATE_COLUMNS = (
    "model", "mean TV", "largest TV, mean over seeds", "mean overconfidence", "its 99% quantile",
    "largest overconfidence, mean over seeds", "share of sure states", "right when sure",
)  # fmt: skip
_EXAMPLE_COLUMNS = (
    "chosen for", "SOFA", "likeliest action", "network", "neighbours", "target", "truth", "too sure by",
    "TV of network", "TV of neighbours",
)  # fmt: skip


def _example(name: str, found: Mapping[str, Any]) -> tuple[Any, ...]:
    """Probabilities of the action that the model at fault finds likeliest, and distances to the reference."""
    fault = np.asarray(found[name.split(",")[0]])
    reference = np.asarray(found.get("truth", found["target"]))
    action = int(fault.argmax())
    shown = [found[source][action] if source in found else None for source in (*MODELS, "target", "truth")]
    off = [float(total_variation(np.asarray(found[model]), reference)) for model in MODELS]
    return (name, found["sofa"], action, *shown, float(fault[action] - reference[action]), *off)


def _reference(config: Config) -> str:
    return "frequencies among neighbours" if config.data else "true policy"


def _note(config: Config) -> str:
    return (
        f"Means over {config.seeds} seeds, {config.n_states} states each. Distances and overconfidence are relative to "
        f"the {_reference(config)}, in all states. Sure: the likeliest action has a probability above {SURE}."
    )


def _on_average(states: Mapping[str, Mapping[str, float | None]]) -> str:
    network, neighbours = (states[model] for model in MODELS)
    return (
        "Mean excess of the probability of the likeliest action over the reference: network "
        f"{network['overconfidence']:.3f}, neighbours {neighbours['overconfidence']:.3f} (in the paper the network is "
        f"the overconfident one). Mean total variation: network {network['tv']:.3f}, neighbours {neighbours['tv']:.3f}."
    )


def _at_worst(chosen: Sequence[Sequence[tuple[Any, ...]]], config: Config) -> str:
    """What the rules choose: in the first seed as in the table, and over all seeds."""
    rows = [{row[0]: dict(zip(_EXAMPLE_COLUMNS, row, strict=True)) for row in each} for each in chosen]

    def text(model: str, rule: str, key: str) -> str:
        x = [each[f"{model}, {rule}"][key] for each in rows]
        over = f"; {min(x):.2f} to {max(x):.2f} over {len(x)} seeds" if len(x) > 1 else ""
        return f"{x[0]:.2f} ({model}{over})"

    sure = " and ".join(text(model, RULES[0], "too sure by") for model in MODELS)
    wrong = " and ".join(text(model, RULES[1], f"TV of {model}") for model in MODELS)
    return (
        'The paper says, of examples chosen by hand: "The approximate kNN model does not suffer from these issues." '
        "Here one rule chooses the examples of both models. Most overconfident: of the states in which the model and "
        f"the {_reference(config)} agree on the likeliest action, the one whose probability is too large by most: "
        f"{sure}. Most wrong: of the states in which they disagree, the one of largest total variation: {wrong}. If "
        "there is no such state, the rule chooses among all."
    )


def figure(found: Report) -> Any:
    """The chosen states, one row each: both models, the neighbours' frequencies and the truth as maps of doses."""
    from caliope.plots import action_map, panels

    rows = found.table(DISTRIBUTIONS).records()
    names = list(dict.fromkeys(str(row["example"]) for row in rows))
    sources = list(dict.fromkeys(str(row["source"]) for row in rows))
    drawing, axes = panels(len(names), len(sources), width=2.3, height=2.3)
    for row in rows:
        i, j = names.index(str(row["example"])), sources.index(str(row["source"]))
        shares = np.array([row[str(a)] for a in range(25)], dtype=float).reshape(5, 5)
        action_map(shares, axes[i, j], smallest=0.005)
        # One line of the label is no longer than a panel is high.
        label = names[i].replace(", ", ",\n").replace("most ", "most\n")
        ylabel = f"{label}\n\nfluids" if j == 0 else ""
        axes[i, j].set(title=row["source"] if i == 0 else "", xlabel="vasopressors", ylabel=ylabel)
    return drawing
