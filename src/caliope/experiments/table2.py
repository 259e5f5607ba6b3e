"""Table 2: the error of off-policy evaluation by behaviour model, where the second half of a cohort judges the first.

The paper parts a cohort at random and by an intervention, takes the mean return of the first part for the value of its
policy, and asks estimators to find it on the second part. Beside these two designs stand two whose truth is the truth:
the policy of the first part is deployed in ICU-Sepsis, and its value is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope.calibration import neighbourhoods, total_variation
from caliope.domains import icu_sepsis
from caliope.experiments.cohorts import kernel_weights, read_cohort
from caliope.experiments.pairs import (
    FAMILIES,
    NEUTRAL,
    Pair,
    Resampling,
    behaviour_tables,
    errors,
    evaluation_table,
    fitted_values,
    marginal_table,
    scores,
)
from caliope.experiments.runs import Unit, seed_of
from caliope.experiments.splits import intervention_split, random_split, selection_bias
from caliope.experiments.table2_report import figure as figure
from caliope.experiments.table2_report import report as report
from caliope.ragged import Float

NAME = "table2"
GAMMA = 0.99
SPLITS = {"random": random_split, "intervention": intervention_split}
DEPLOYED = ("deployed", "deployed-far")  # no vasopressors; half of the decisions optimal
LONG = 200  # steps after which in one patient of 10^12 anything goes on


@dataclass(frozen=True)
class Config:
    """Sizes. The paper has 17,898 patients and 50 pairs, 10 for PHWDR."""

    patients: int = 1200  # in both logs together
    pairs: int = 4  # of each design, from a cohort of its own each
    value_pairs: int = 2  # of these, the first so many with fitted values: AM and PHWDR
    families: tuple[str, ...] = FAMILIES
    designs: tuple[str, ...] = (*SPLITS, *DEPLOYED)
    folds: int = 2
    trees: int = 50  # of the fitted values
    n_states: int = 500  # at which the calibration of a model is measured
    k: int = 150
    size: int = 200
    n_draws: int = 500
    data: str = ""  # a reader's own cohort: the two splits only
    digest: str = ""  # of its content


SMOKE = Config(
    patients=60,
    pairs=2,
    value_pairs=1,
    families=("logistic", "neighbours"),
    designs=("random", "intervention", "deployed"),
    trees=5,
    n_states=40,
    k=30,
    size=30,
    n_draws=50,
)
DEFAULT = Config()
FULL = Config(patients=17_898, pairs=50, value_pairs=10)


def units(config: Config) -> list[Unit]:
    """One unit for each design and pair; on simulated patients the exact selection bias too."""
    designs = [each for each in config.designs if each in SPLITS or not config.data]
    # A longer run has more units, and the same ones.
    sizes = replace(config, pairs=0, value_pairs=0, designs=())
    pairs = [
        Unit(
            f"{design}-pair{pair}",
            one_pair,
            {"design": design, "pair": pair, "config": sizes, "values": pair < config.value_pairs},
        )
        for pair in range(config.pairs)
        for design in designs
    ]
    return pairs if config.data else [Unit("selection", exact_selection), *pairs]


def exact_selection() -> dict[str, Any]:
    """The intervention split in the process: on the scale of the experiment, and as chances of survival."""
    return {
        "rewards": vars(selection_bias(gamma=GAMMA)),
        "survival": vars(selection_bias(gamma=1.0, cap=LONG, outcome=(0.0, 1.0))),
    }


def one_pair(design: str, pair: int, config: Config, *, values: bool) -> dict[str, Any]:
    """Evaluate the policy of the first log on the second, by every model and estimator.

    ``values``: fit Q too, for AM and PHWDR.
    """
    rng, seed = seed_of(NAME, design, pair), pair
    logs = _pair(design, config, rng)
    targets = _targets(logs, config, seed)
    tables = _behaviours(logs, config, seed)
    truth = float(logs.first.returns(GAMMA).mean())
    how, found = Resampling(GAMMA, config.size, config.n_draws), []
    for name, target in targets.items():
        q = fitted_values(logs.second, target, gamma=GAMMA, trees=config.trees, seed=seed) if values else None
        for (model, fit), table in tables.items():
            if name in (model, NEUTRAL, "truth"):
                kind = name if name in (NEUTRAL, "truth") else "own"
                these = errors(logs.second, target, table, truth, how, q)
                found += [
                    {"target": kind, "model": model, "fit": fit, "estimator": e, **x}
                    for e, x in these.items()
                ]
    return {
        "truth": truth,
        "worth": logs.worth,
        "practice": float(logs.second.returns(GAMMA).mean()),
        "tv": {f: float(total_variation(targets[f], tables[f, "cross"]).mean()) for f in config.families},
        "exact_tv": _exact_tv(logs),
        "scores": _scores(logs, tables, config, rng),
        "errors": found,
    }


def _pair(design: str, config: Config, rng: np.random.Generator) -> Pair:
    if config.data:
        return Pair(*SPLITS[design](read_cohort(config.data), rng=rng), worth=None)
    if design in DEPLOYED:
        table = _deployed(design)
        first = icu_sepsis.simulate(config.patients // 2, policy=table, rng=rng)
        second = icu_sepsis.simulate(config.patients // 2, rng=rng)
        acted, wanted = (icu_sepsis.true_probabilities(second, each) for each in (None, table))
        return Pair(first, second, icu_sepsis.value(table, gamma=GAMMA), acted, wanted)
    first, second = SPLITS[design](icu_sepsis.simulate(config.patients, rng=rng), rng=rng)
    if (
        design == "intervention"
    ):  # what acted is not a policy of the state: who is in it was chosen by what came later
        return Pair(first, second, None)
    acted = icu_sepsis.true_probabilities(second)
    return Pair(first, second, icu_sepsis.value(gamma=GAMMA), acted, acted)


def _deployed(design: str) -> Float:
    if design == "deployed":
        return icu_sepsis.without_vasopressors()
    return icu_sepsis.evaluation_policies()["half optimal"]


def _targets(logs: Pair, config: Config, seed: int) -> dict[str, Float]:
    """The policy of the first log by each family, by a neutral one, and as it is, (N, A) each."""
    learned = {family: evaluation_table(family, logs, seed=seed) for family in (*config.families, NEUTRAL)}
    return learned if logs.wanted is None else {**learned, "truth": logs.wanted}


def _behaviours(logs: Pair, config: Config, seed: int) -> dict[tuple[str, str], Float]:
    """The policy of the second log by each family and fit, by the marginal, and as it is, (N, A) each."""
    found = {
        (family, fit): table
        for family in (*config.families, NEUTRAL)
        for fit, table in behaviour_tables(family, logs.second, folds=config.folds, seed=seed)
        .by_fit()
        .items()
    }
    found["marginal", "cross"] = marginal_table(logs.second)
    return found if logs.acted is None else {**found, ("truth", "known"): logs.acted}


def _exact_tv(logs: Pair) -> float | None:
    if logs.acted is None or logs.wanted is None:
        return None
    return float(total_variation(logs.acted, logs.wanted).mean())


def _scores(
    logs: Pair, tables: dict[tuple[str, str], Float], config: Config, rng: np.random.Generator
) -> list[dict[str, Any]]:
    """Calibration numbers of every table that was predicted by models of other patients."""
    data = logs.second
    rows = np.sort(rng.choice(data.n_steps, min(config.n_states, data.n_steps), replace=False))
    weights = kernel_weights(data.feature_names, lags=True)
    of = scores(data, neighbourhoods(data, rows, k=config.k, feature_weights=weights), logs.acted)
    return [
        {"model": model, "fit": fit, **of(table)} for (model, fit), table in tables.items() if fit != "same"
    ]
