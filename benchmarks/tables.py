"""Whether a table as people have it is evaluated as well as the same log coded by hand.

Run: python -m benchmarks.tables [--logs 100] [--model logistic] [--only hospital]. Made-up tables of a hospital (400
stays of five decisions about the doses of two drugs) and of a shop (1,500 visits): words, rare categories, booleans,
dates, 15% gaps. Each log is audited twice, read as it is and coded by hand without gaps, with one behaviour model.
Printed: how often the 95% intervals of the value and of its difference from practice contain the truth, which is that
of a large simulation, and how wide they are. Half an hour for 100 logs of both. Exit status 1 where the raw table
covers clearly less often than the coded one: by two standard errors of the paired difference.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import caliope as cal
from caliope.behaviour import candidate_models

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.raw_tables import (
    HOSPITAL,
    HOSPITAL_POLICY,
    SHOP,
    SHOP_POLICY,
    hospital,
    hospital_value,
    shop,
    shop_value,
)

LEVEL, EVERY = 0.95, 20
_ROLES = {"action": "action", "reward": "reward"}


@dataclass(frozen=True)
class Kind:
    """A made-up table: how it is made, read and coded, the columns of its policy, and its truth."""

    n: int
    make: Callable[..., Any]
    value: Callable[..., float]
    roles: dict[str, Any]
    policy: Sequence[str]
    coded: dict[str, Any]


KINDS = {
    "hospital": Kind(
        400,
        hospital,
        hospital_value,
        HOSPITAL,
        HOSPITAL_POLICY,
        _ROLES | {"episode": "stay", "time": "step"},
    ),
    "shop": Kind(1500, shop, shop_value, SHOP, SHOP_POLICY, _ROLES | {"episode": "row"}),
}


def read_raw(kind: Kind, raw: pl.DataFrame) -> tuple[cal.Trajectories, np.ndarray]:
    """The table as it is, and the probabilities of the new policy."""
    data = cal.read_table(raw, **kind.roles, keep=list(kind.policy))
    return data, np.column_stack([data[name] for name in kind.policy])


def read_coded(kind: Kind, numeric: pl.DataFrame) -> tuple[cal.Trajectories, np.ndarray]:
    """The same log, coded by hand."""
    names = [f"p{i}" for i in range(len(kind.policy))]
    other = {*names, *(x for x in kind.coded.values())}
    states = [name for name in numeric.columns if name not in other]
    data = cal.read_table(numeric, **kind.coded, states=states, keep=names, n_actions=len(names))
    return data, np.column_stack([data[name] for name in names])


def audit_once(data: cal.Trajectories, target: np.ndarray, model: str, seed: int) -> cal.Audit:
    """The audit with one behaviour model."""
    models = {model: candidate_models(data)[model]}
    answers: dict[str, Any] = {"learnt_on": "no", "ended": "all", "recorded_before": "all"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cal.audit(data, target, models, n_draws=100, rng=seed, progress=False, **answers)


def both(kind: Kind, model: str, seed: int, truth: tuple[float, float]) -> list[list[float]]:
    """Of the raw and of the coded table: whether value and difference are covered, their widths, and distrust."""
    log = kind.make(kind.n, seed=seed)
    rows = []
    for data, target in (read_raw(kind, log.raw), read_coded(kind, log.numeric)):
        found = audit_once(data, target, model, seed)
        value, gain = found.headline.interval, found.gain.interval
        covered = [truth[0] in value, truth[1] in gain]
        rows.append([*covered, value.high - value.low, gain.high - gain.low, found.verdict == "do not trust"])
    return rows


def report(name: str, rows: np.ndarray) -> bool:
    """Print coverage and widths of both tables; whether the raw one covers clearly less often."""
    error = np.sqrt(LEVEL * (1 - LEVEL) / len(rows))
    clearly = False
    for what, j in (("value", 0), ("difference", 1)):
        raw, coded = rows[:, 0, j], rows[:, 1, j]
        apart = raw - coded
        se = apart.std(ddof=1) / np.sqrt(len(rows)) if len(rows) > 1 else np.nan
        clearly |= bool(apart.mean() < -2 * se)
        widths = rows[:, :, 2 + j].mean(axis=0)
        print(
            f"{name:9} {what:11} covered: raw {raw.mean():.3f}, coded {coded.mean():.3f} (Monte Carlo {error:.3f}; "
            f"paired difference {apart.mean():+.3f}, se {se:.3f}); width raw {widths[0]:.3f}, coded {widths[1]:.3f}",
            flush=True,
        )
    refused = rows[:, :, 4].mean(axis=0)
    print(f"{name:9} not to be trusted: raw {refused[0]:.2f}, coded {refused[1]:.2f}")
    return clearly


def main() -> None:
    """Simulate, audit, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=100, help="how many logs of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first log")
    parser.add_argument("--model", default="logistic", help="behaviour model, as in candidate_models")
    parser.add_argument("--only", choices=list(KINDS), help="one kind of table")
    given = parser.parse_args()
    clearly = False
    for name in [given.only] if given.only else list(KINDS):
        kind = KINDS[name]
        new, practice = kind.value(new=True), kind.value(new=False)
        print(
            f"{name}: {given.logs} logs of {kind.n}; practice {practice:.4f}, new policy {new:.4f}",
            flush=True,
        )
        rows: list[list[list[float]]] = []
        for seed in range(given.first, given.first + given.logs):
            rows.append(both(kind, given.model, seed, (new, new - practice)))
            if len(rows) % EVERY == 0 and len(rows) < given.logs:
                print(f"after {len(rows)} logs:", flush=True)
                report(name, np.array(rows, dtype=float))
        clearly |= report(name, np.array(rows, dtype=float))
    sys.exit(int(clearly))


if __name__ == "__main__":
    main()
