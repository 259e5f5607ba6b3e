"""How close the default behaviour model comes to the truth on the ICU-Sepsis cohort.

Run: python -m benchmarks.behaviour [--patients 250 1000 4000] [--seeds 3]. Held-out negative log-likelihood and total
variation to the true policy on 1,500 other patients, beside the truth's own and those of the pool without its
neighbours. First what it is worth to fit on the very trajectories that are weighed: mean squared errors of weighted
importance sampling in a process of 5 states, 3 actions and 8 steps.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import caliope as cal
from caliope.behaviour import present_columns
from caliope.domains import icu_sepsis
from caliope.domains.tabular import TabularMDP

FLOOR = 1e-3
TARGETS = {250: (1.84, 1.78), 1000: (1.75, 1.68), 4000: (1.70, 1.60)}


def scores(table: np.ndarray, data: cal.Trajectories, truth: np.ndarray) -> tuple[float, float]:
    # An action that no patient of the training log ever got has probability 0; it counts as 1 in 1000.
    nll = -np.log(np.maximum(table[np.arange(data.n_steps), data.actions], FLOOR)).mean()
    return float(nll), float(0.5 * np.abs(table - truth).sum(axis=1).mean())


def same_data(n: int = 100, replicates: int = 400) -> None:
    rng = np.random.default_rng(1)
    initial = rng.dirichlet(np.ones(5))
    transitions = rng.dirichlet(0.5 * np.ones(5), size=(5, 3))
    rewards = rng.normal(size=(5, 3))
    logged = rng.dirichlet(2 * np.ones(3), size=5)
    target = 0.5 * rng.dirichlet(2 * np.ones(3), size=5) + 0.5 * logged
    mdp = TabularMDP(initial, transitions, rewards, np.zeros(5, dtype=bool), horizon=8)
    policy, model = cal.TabularPolicy(target), cal.behaviour.TabularFrequencies(shrinkage=1.0)
    found = []
    for seed in np.random.SeedSequence(6).spawn(replicates):
        rng = np.random.default_rng(seed)
        data, other = (mdp.simulate(logged, n, rng=rng) for _ in range(2))
        behaviours = [
            data["behaviour"],
            *(cal.fit_behaviour(model, log, mode="same") for log in (data, other)),
        ]
        found.append([cal.wis(cal.gather(data, policy, behaviour)) for behaviour in behaviours])
    known, same, independent = ((np.array(found) - mdp.value(target)) ** 2).mean(axis=0)
    print(
        f"WIS, {n} trajectories: true policy {known:.3f}, fitted on the same {same:.3f} ({same / known:.2f} of it), ",
        end="",
    )
    print(f"on others {independent:.3f} ({independent / known:.2f})\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, nargs="+", default=[250, 1000])
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    same_data()
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
                f"{rows[2][1]:5.3f} | {seconds:6.0f}"
                + ("" if len(fitted.classes_) == 25 else "  (an action never seen)"),
                flush=True,
            )
        if n in TARGETS:
            print(f"  mean {np.mean(found):.3f}: to reach {TARGETS[n][0]}, to aim at {TARGETS[n][1]}")


if __name__ == "__main__":
    main()
