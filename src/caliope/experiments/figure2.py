"""Figure 2: predictive distributions of the network and the neighbours where they are at their worst, by a stated rule.

The paper shows examples chosen by hand, for the network only. Here the rule is the same for both models, with the truth
as the reference, or the frequencies among the neighbours of the test log where nobody knows the truth:

- most overconfident: among the states in which model and reference agree on the likeliest action, the one in which the
  model's probability of it is too large by most;
- most wrong: among the states in which they do not agree, the one of largest total variation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope.behaviour import paper_models
from caliope.calibration import neighbourhoods, total_variation
from caliope.experiments.cohorts import from_file, kernel_weights, simulated, unfinished_training
from caliope.experiments.fits import predicted
from caliope.experiments.reports import Report, ReportTable
from caliope.experiments.runs import Unit, seed_of
from caliope.experiments.summaries import column, mean
from caliope.ragged import Float

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
    data: str = ""  # a reader's own cohort instead of simulated patients
    digest: str = ""  # of its content


SMOKE = Config(60, 80, seeds=2, n_states=100, k=30)
DEFAULT = Config()
FULL = Config(train=8949, test=8949, seeds=20)


def units(config: Config) -> list[Unit]:
    """One unit a seed."""
    sizes = replace(config, seeds=0)  # a longer run has more units, and the same ones
    return [Unit(f"seed{seed}", one_seed, {"seed": seed, "config": sizes}) for seed in range(config.seeds)]


def one_seed(seed: int, config: Config) -> dict[str, Any]:
    """Fit both models, and look at them in the same states."""
    rng = seed_of(NAME, seed)
    logs = from_file(config.data) if config.data else simulated(config.train, config.test, rng)
    test = logs.test
    rows = np.sort(rng.choice(test.n_steps, min(config.n_states, test.n_steps), replace=False))
    weights = kernel_weights(test.feature_names, lags=True)
    target = neighbourhoods(test, rows, k=config.k, feature_weights=weights).histograms()
    sources = {"target": target} if logs.truth is None else {"target": target, "truth": logs.truth[rows]}
    with unfinished_training():
        fitted = {
            model: predicted(paper_models(random_state=seed)[model], logs.train, test.states[rows])
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
    """The rows that the two rules choose; where a rule finds no state, the largest of all is taken."""
    best = table.argmax(axis=1)
    agree = best == reference.argmax(axis=1)
    too_sure, off = overconfidence(table, reference), total_variation(table, reference)
    first = np.where(agree, too_sure, -np.inf) if agree.any() else too_sure
    second = np.where(agree, -np.inf, off) if not agree.all() else off
    return int(first.argmax()), int(second.argmax())


def overconfidence(table: Float, reference: Float) -> Float:
    """By how much the model's probability of its likeliest action exceeds that of the reference, a row."""
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
    distributions = tuple(
        (name, source, *example[source])
        for name, example in examples.items()
        for source in example
        if source != "sofa"
    )
    tables = (
        ReportTable(STATES, _STATE_COLUMNS, tuple((m, *states[m].values()) for m in MODELS), _note(config)),
        ReportTable(
            EXAMPLES, _EXAMPLE_COLUMNS, tuple(_example(name, found) for name, found in examples.items())
        ),
        ReportTable(DISTRIBUTIONS, ("example", "source", *map(str, range(25))), distributions, detail=True),
    )
    return Report(NAME, TITLE, tables, (_finding(states),), vars(config))


_STATE_COLUMNS = (
    "model", "mean TV", "largest TV", "mean overconfidence", "its 99% quantile", "largest overconfidence",
    "share of sure states", "right when sure",
)  # fmt: skip
_EXAMPLE_COLUMNS = (
    "chosen for", "SOFA", "likeliest action", "network", "neighbours", "target", "truth", "TV of network",
    "TV of neighbours",
)  # fmt: skip


def _example(name: str, found: Mapping[str, Any]) -> tuple[Any, ...]:
    """Probabilities of the action that the model at fault finds likeliest, and distances to the reference."""
    action = int(np.argmax(found[name.split(",")[0]]))
    reference = np.asarray(found.get("truth", found["target"]))
    shown = [found[source][action] if source in found else None for source in (*MODELS, "target", "truth")]
    off = [float(total_variation(np.asarray(found[model]), reference)) for model in MODELS]
    return (name, found["sofa"], action, *shown, *off)


def _note(config: Config) -> str:
    reference = "frequencies among neighbours" if config.data else "true policy"
    return (
        f"Means over {config.seeds} seeds, {config.n_states} states each; distances and overconfidence are to the "
        f"{reference}. Sure: the likeliest action has a probability above {SURE}."
    )


def _finding(states: Mapping[str, Mapping[str, float | None]]) -> str:
    (more, too_sure), (_, less) = sorted(
        ((model, states[model]["overconfidence"]) for model in MODELS), key=lambda each: -(each[1] or 0.0)
    )
    network, near = (states[model] for model in MODELS)
    nearer = min(MODELS, key=lambda model: states[model]["tv"] or 0.0)
    return (
        f"The more overconfident model is the {more} (in the paper the network): its likeliest action gets "
        f'{too_sure:.3f} too much on average, that of the other {less:.3f}. The paper finds that neighbours "do not '
        'suffer from these issues"; chosen by the same rules as those of the network, their worst state is too sure by '
        f"{near['largest_overconfidence']:.2f} (network {network['largest_overconfidence']:.2f}), and off by a total "
        f"variation of {near['largest_tv']:.2f} (network {network['largest_tv']:.2f}). Nearer on average: the {nearer} "
        f"(neighbours {near['tv']:.3f}, network {network['tv']:.3f})."
    )


def figure(found: Report) -> Any:
    """The chosen states, a row each: both models, the target and the truth as maps of doses."""
    from caliope.plots import action_map, panels

    rows = found.table(DISTRIBUTIONS).records()
    names = list(dict.fromkeys(str(row["example"]) for row in rows))
    sources = list(dict.fromkeys(str(row["source"]) for row in rows))
    drawing, axes = panels(len(names), len(sources), width=2.3, height=2.3)
    for row in rows:
        i, j = names.index(str(row["example"])), sources.index(str(row["source"]))
        action_map(np.array([row[str(a)] for a in range(25)], dtype=float), axes[i, j])
        axes[i, j].set(title=row["source"] if i == 0 else "", ylabel=f"{names[i]}\nfluids" if j == 0 else "")
    return drawing
