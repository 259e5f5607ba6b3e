"""Whether the intervals of the README and of the guide on estimators cover, on simulated logs of the same ward.

Run: python -m benchmarks.readme_coverage [--logs 500]. Every log has 1,000 trajectories, as the README's has. Printed:
how often each 95% interval contains the exact value, with the Monte Carlo standard error of that share, and how often
the row was marked "trust". Some four minutes for 500 logs. Exit status 1 where a share is three such errors below 95%.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope.domains import ward

N, LEVEL = 1000, 0.95
WEIGHTS = np.array([1.0, 2.0, 1.5])  # the change in the quick start


def truths() -> tuple[float, float, float]:
    """Exact values of current practice, of the change to it, and of the policy stated as probabilities."""
    changed = ward.PRACTICE * WEIGHTS
    changed /= changed.sum(axis=1, keepdims=True)
    return ward.WARD.value(ward.PRACTICE), ward.WARD.value(changed), ward.WARD.value(ward.EARLIER)


def quick_start(data: cal.Trajectories) -> Iterator[tuple[str, float, cal.Estimate]]:
    """The quick start: a change to current practice."""
    practice, changed, _ = truths()
    behaviour = LogisticRegression().fit(data.states, data.actions)
    evidence = cal.gather(data, cal.tilt(cal.practice, WEIGHTS), behaviour)
    table = cal.estimate(evidence, cal.monte_carlo, cal.wis, cal.difference(cal.wis), rng=0)
    for row, truth in zip(table, (practice, changed, changed - practice), strict=True):
        yield f"quick start: {row.name}", truth, row


def refitted(data: cal.Trajectories, seed: int) -> Iterator[tuple[str, float, cal.Interval]]:
    """The difference for a policy stated as probabilities, with the model fitted again in every resample."""
    practice, _, earlier = truths()
    target, difference = cal.TabularPolicy(ward.EARLIER), cal.difference(cal.wis)
    (interval,) = cal.uncertainty.refit(data, LogisticRegression(), difference, target=target, rng=seed)
    yield "refitted: difference_wis", earlier - practice, interval


def doubly_robust(data: cal.Trajectories) -> Iterator[tuple[str, float, cal.Estimate]]:
    """Doubly robust, with a policy stated as probabilities."""
    target = cal.TabularPolicy(ward.EARLIER)
    behaviour = cal.fit_behaviour(LogisticRegression(), data, mode="cross", rng=0)
    q = cal.cross_fitted_q(data, target, cal.values.TabularRegressor(), gamma=1.0, n_iterations=12, rng=0)
    table = cal.estimate(cal.gather(data, target, behaviour, q=q), cal.wdr, rng=0)
    yield "doubly robust: wdr", truths()[2], table["wdr"]


def main() -> None:
    """Simulate, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=500, help="how many logs")
    logs = parser.parse_args().logs
    covers: dict[str, list[bool]] = {}
    trusted: dict[str, list[bool]] = {}
    for seed in range(logs):
        data = ward.simulate(N, rng=np.random.default_rng([7, seed]))
        for name, truth, row in (*quick_start(data), *doubly_robust(data)):
            covers.setdefault(name, []).append(truth in row.interval)
            trusted.setdefault(name, []).append(row.verdict == "trust")
        for name, truth, interval in refitted(data, seed):
            covers.setdefault(name, []).append(truth in interval)
    error = np.sqrt(LEVEL * (1 - LEVEL) / logs)
    print(f"{logs} logs of {N} trajectories; 95% intervals, standard error of a share {error:.3f}")
    for name, found in covers.items():
        verdict = f"   trust {np.mean(trusted[name]):.3f}" if name in trusted else ""
        print(f"{name:40} covers {np.mean(found):.3f}{verdict}")
    sys.exit(int(min(np.mean(found) for found in covers.values()) < LEVEL - 3 * error))


if __name__ == "__main__":
    main()
