"""Whether several policies are compared as stated: joint coverage, and the picked best before and after its correction.

Run: python -m benchmarks.comparison [--logs 200] [--first 0] [--n 400] [--apart]. Logs of the simulated ward, whose
exact values are known. Three policies of nearly the same value, where picking the largest estimate overstates it most;
with --apart, of different values. Printed: how often all shown intervals contain their truths together, and the mean
and median error of the best policy's difference from practice. Some eight minutes for 200 logs. Exit status 1 where the
intervals cover jointly in less than 93%, or where the corrected value exceeds the truth by two Monte Carlo errors.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import caliope as cal
from caliope.behaviour import TabularFrequencies
from caliope.domains import ward
from caliope.values import TabularRegressor

LEVEL, LEAST, EVERY = 0.95, 0.93, 20
SICK = 3  # severities from here on


def tilted(mild: list[float], sick: list[float]) -> np.ndarray:
    """Current practice with the doses weighted, separately for low and for high severity."""
    table = ward.PRACTICE.copy()
    table[:SICK] *= mild
    table[SICK:] *= sick
    return table / table.sum(axis=1, keepdims=True)


ALIKE = {
    "mild": tilted([1, 1.22, 1], [1, 1, 1]),
    "sick": tilted([1, 1, 1], [1, 1, 3]),
    "high": tilted([1, 1, 2], [1, 1, 2]),
}
APART = {"earlier": ward.EARLIER, "sick": ALIKE["sick"], "less": tilted([1.5, 1, 1], [1.5, 1, 1])}


def one_log(tables: dict[str, np.ndarray], n: int, seed: int) -> tuple[bool, bool, float, float, float]:
    """Whether all intervals cover, jointly and each alone; the errors of the best before and after, and of its end."""
    data = ward.simulate(n, rng=np.random.default_rng([23, seed]))
    found = cal.compare(
        data,
        {name: cal.TabularPolicy(table) for name, table in tables.items()},
        {"frequencies": TabularFrequencies()},
        regressor=TabularRegressor(),
        n_draws=400,
        learnt_on="no",
        recorded_before="all",
        rng=seed,
    )
    practice = ward.value(ward.PRACTICE)
    truth = {name: ward.value(table) - practice for name, table in tables.items()}
    shown = [row for row in found.differences if not row.withheld]
    joint = all(truth[row.label] in row.interval for row in shown)
    for row in found.pairs:
        a, b = row.name.split(" - ")
        joint &= row.withheld or truth[a] - truth[b] in row.interval
    alone = all(truth[row.label] in found.audits[row.label].gain.interval for row in shown)
    if found.best is None:
        return joint, alone, np.nan, np.nan, np.nan
    true = truth[found.best.name]
    end = found.table[found.best.name].difference.interval.low
    return joint, alone, found.best.difference - true, found.best.corrected - true, end - true


def report(rows: np.ndarray) -> bool:
    """Print joint coverage and the errors of the best; whether the intervals hold and the best is not overstated."""
    joint, alone = rows[:, 0].mean(), rows[:, 1].mean()
    error = np.sqrt(LEVEL * (1 - LEVEL) / len(rows))
    print(
        f"all intervals cover together {joint:.3f} (standard error {error:.3f}); those of single audits {alone:.3f}"
    )
    picked = rows[np.isfinite(rows[:, 2])]
    errors = picked[:, 2:].std(axis=0, ddof=1) / np.sqrt(len(picked))
    for what, x, se in zip(("as estimated", "corrected", "lower end"), picked[:, 2:].T, errors, strict=True):
        print(
            f"best {what:13} minus its truth: mean {x.mean():+.4f} (se {se:.4f}), median {np.median(x):+.4f}, "
            f"above it in {np.mean(x > 0):.2f}",
            flush=True,
        )
    return bool(joint >= LEAST and picked[:, 3].mean() <= 2 * errors[1])


def main() -> None:
    """Simulate, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=200, help="how many logs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first log")
    parser.add_argument("--n", type=int, default=400, help="trajectories per log")
    parser.add_argument("--apart", action="store_true", help="policies of different values")
    given = parser.parse_args()
    tables = APART if given.apart else ALIKE
    values = ", ".join(f"{name} {ward.value(table):.3f}" for name, table in tables.items())
    print(f"{given.logs} logs of {given.n} trajectories; practice {ward.value(ward.PRACTICE):.3f}, {values}")
    rows: list[tuple[bool, bool, float, float, float]] = []
    for seed in range(given.first, given.first + given.logs):
        rows.append(one_log(tables, given.n, seed))
        if len(rows) % EVERY == 0 and len(rows) < given.logs:
            print(f"after {len(rows)} logs:", flush=True)
            report(np.array(rows, dtype=float))
    sys.exit(int(not report(np.array(rows, dtype=float))))


if __name__ == "__main__":
    main()
