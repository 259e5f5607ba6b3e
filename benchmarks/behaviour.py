"""How close the default behaviour model comes to the truth on the ICU-Sepsis cohort.

Run: python -m benchmarks.behaviour [--patients 250 1000 4000] [--seeds 3]. Held-out negative log-likelihood and total
variation to the true policy on 1,500 other patients, beside the truth's own and those of the pool without its
neighbours.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import caliope as cal
from caliope.behaviour import present_columns
from caliope.domains import icu_sepsis

TARGETS = {250: (1.84, 1.78), 1000: (1.75, 1.68), 4000: (1.70, 1.60)}


def scores(table: np.ndarray, data: cal.Trajectories, truth: np.ndarray) -> tuple[float, float]:
    nll = -np.log(table[np.arange(data.n_steps), data.actions]).mean()
    return float(nll), float(0.5 * np.abs(table - truth).sum(axis=1).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, nargs="+", default=[250, 1000])
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    print("patients  seed   truth NLL | pool NLL    TV | default NLL    TV | fit, s")
    for n in chosen.patients:
        found = []
        for seed in range(chosen.seeds):
            train, test = icu_sepsis.simulate(n, rng=seed), icu_sepsis.simulate(1500, rng=1000 + seed)
            truth = icu_sepsis.true_probabilities(test)
            model = cal.default_model(present=present_columns(train.feature_names))
            started = time.perf_counter()
            fitted = cal.fit_behaviour(model, train, mode="cross").model
            seconds = time.perf_counter() - started
            whole = cal.action_probabilities(fitted, test.states, test.n_actions)
            pool = np.zeros_like(whole)
            pool[:, fitted.classes_] = fitted[-1].prior_.predict_proba(fitted[0].transform(test.states))
            rows = [scores(table, test, truth) for table in (truth, pool, whole)]
            found.append(rows[2][0])
            print(
                f"{n:8d} {seed:5d} {rows[0][0]:11.3f} | {rows[1][0]:8.3f} {rows[1][1]:5.3f} | {rows[2][0]:11.3f} "
                f"{rows[2][1]:5.3f} | {seconds:6.0f}",
                flush=True,
            )
        if n in TARGETS:
            print(f"  mean {np.mean(found):.3f}: to reach {TARGETS[n][0]}, to aim at {TARGETS[n][1]}")


if __name__ == "__main__":
    main()
