"""The full comparison of six models on 50,000 held-out steps of the ICU-Sepsis cohort, with the share of each part.

Run: python -m benchmarks.calibration [--steps 50000]. Fitting the models is not counted, predicting with them is.
"""

from __future__ import annotations

import argparse
import time

from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier

import caliope as cal
from caliope.behaviour import NeighbourPolicy, NetworkPolicy
from caliope.behaviour._ensembles import LogitNeighbours, logistic
from caliope.domains import icu_sepsis

BUDGET = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50_000)
    steps = parser.parse_args().steps
    train = icu_sepsis.simulate(500, rng=1, lags=4)
    test = icu_sepsis.simulate(int(steps / 8), rng=2, lags=4)
    models = {
        "marginal": DummyClassifier(),
        "logistic": logistic(0.01),
        "forest": RandomForestClassifier(50, min_samples_leaf=10, n_jobs=2, random_state=0),
        "network": NetworkPolicy(),
        "neighbours": NeighbourPolicy(150, shrinkage="cv"),
        "neighbours of logits": LogitNeighbours(),
    }
    fitted = {name: model.fit(train.states, train.actions) for name, model in models.items()}
    started = time.perf_counter()
    found = cal.compare_policies(
        fitted,
        test,
        by=cal.calibration.severity_strata(test["sofa"]),
        truth=icu_sepsis.true_probabilities(test),
        rng=0,
    )
    seconds = time.perf_counter() - started
    print(found)
    print(
        f"\n{test.n_steps} steps x {test.states.shape[1]} features, {len(models)} models: {seconds:.0f} s, budget "
        f"{BUDGET:.0f}"
    )
    for part, took in sorted(found.seconds.items(), key=lambda item: -item[1]):
        print(f"  {part:25s} {took:6.1f} s  {took / seconds:5.1%}")


if __name__ == "__main__":
    main()
