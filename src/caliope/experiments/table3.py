"""Table 3, ours: whole pipelines on processes whose values are known, against the paper's pipeline and the plain mean.

Every replicate logs a process under its behaviour policy, fits every behaviour model, and estimates the value of every
evaluation policy by every pipeline. Even replicates choose the best pipeline, odd ones report it; the default was
fixed before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from caliope.experiments.arenas import ARENAS, arena
from caliope.experiments.pipelines import behaviours, estimates
from caliope.experiments.runs import Unit, seed_of
from caliope.experiments.table3_report import figure as figure
from caliope.experiments.table3_report import report as report

NAME = "table3"


@dataclass(frozen=True)
class Config:
    """Sizes: arenas, and replicates at each number of trajectories."""

    arenas: tuple[str, ...] = (
        "sepsis",
        "map-roaming",
        "random-5",
        "random-10",
        "bandit-25",
        "clinic",
        "clinic-hidden",
    )
    sizes: tuple[tuple[int, int], ...] = ((500, 4), (2000, 2))  # trajectories, replicates
    folds: int = 2  # of the behaviour models and of the fitted values

    def longer(self, times: int) -> Config:
        """So many times the replicates; those of the shorter run are among them."""
        return replace(self, sizes=tuple((n, times * replicates) for n, replicates in self.sizes))


SMOKE = Config(("bandit-5", "clinic-hidden"), ((40, 2),))
DEFAULT = Config()
FULL = Config(ARENAS, ((500, 40), (2000, 20)), folds=5)


def units(config: Config) -> list[Unit]:
    """One unit for each arena, size and replicate; the replicates of a shorter run come first."""
    most = max(replicates for _, replicates in config.sizes)
    return [
        Unit(
            f"{name}-n{n}-seed{seed}",
            one_log,
            {"name": name, "n": n, "seed": seed, "folds": config.folds},
        )
        for seed in range(most)
        for n, replicates in config.sizes
        if seed < replicates
        for name in config.arenas
    ]


def one_log(name: str, n: int, seed: int, folds: int) -> dict[str, Any]:
    """Log once, and answer every question by every pipeline."""
    where = arena(name)
    data = where.simulate(n, seed_of(NAME, name, n, seed))
    given = list(behaviours(data, where, folds=folds, seed=seed))
    return {
        "name": where.name,
        "worth": where.worth,
        "confounded": where.confounded,
        "spread": float(data.returns(where.gamma).std(ddof=1)),
        "questions": {
            question.name: {
                "value": question.value,
                "relative": question.relative is not None,
                "estimates": estimates(question, where, given, folds=folds, seed=seed),
            }
            for question in where.questions
        },
    }
