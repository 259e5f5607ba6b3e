"""Fitted Q at the size of the paper's cohort: 60,000 transitions x 198 features x 25 actions.

Run: python -m benchmarks.values [--full]. Without --full a few rounds are timed and 30 are extrapolated from them.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

import caliope as cal

STEPS, FEATURES, ACTIONS, LENGTH, ROUNDS = 60_000, 198, 25, 10, 30
BUDGET_MINUTES = 10.0


def cohort(rng: np.random.Generator) -> cal.Trajectories:
    states = rng.normal(size=(STEPS, FEATURES)).astype(np.float32)
    actions = rng.integers(ACTIONS, size=STEPS)
    offsets = np.arange(STEPS // LENGTH + 1) * LENGTH
    rewards = np.zeros(STEPS)
    last = offsets[1:] - 1
    rewards[last] = np.where(states[last, 0] + 0.1 * actions[last] > 1, 15.0, -15.0)
    return cal.Trajectories(states, actions, rewards, offsets, n_actions=ACTIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="run all 30 rounds")
    rounds = ROUNDS if parser.parse_args().full else 3
    data = cohort(np.random.default_rng(0))
    regressor = ExtraTreesRegressor(50, min_samples_leaf=20, max_features="sqrt", n_jobs=2, random_state=0)
    target = np.full((STEPS, ACTIONS), 1 / ACTIONS)
    print(f"fitted_q: {STEPS} transitions x {FEATURES} features x {ACTIONS} actions, {regressor}")
    started = time.perf_counter()
    cal.fitted_q(
        data,
        target,
        regressor,
        gamma=0.99,
        n_iterations=rounds,
        progress=lambda x: print(
            f"  round {x.number}: V {x.value:7.3f}  change {x.change:.3f}  {time.perf_counter() - started:6.1f} s"
        ),
    )
    minutes = (time.perf_counter() - started) / rounds * ROUNDS / 60
    how = "took" if rounds == ROUNDS else "would take, at this pace,"
    print(f"  {ROUNDS} rounds {how} {minutes:.1f} minutes; budget {BUDGET_MINUTES:.0f}")


if __name__ == "__main__":
    main()
