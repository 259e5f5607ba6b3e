"""
Several policies on one log
===========================

Four dosing policies are compared on the same 800 patients. The intervals hold together: all differences lie in
them at once with 95%. A policy that the log cannot evaluate takes no part. The ward is simulated, so the truth of
every difference stands beside its estimate.
"""

import matplotlib.pyplot as plt
import numpy as np

import caliope as cal
from caliope.domains import ward

data = ward.simulate(800, rng=0).replace(unit="patient", action_names=list(ward.DOSES))
weights = {"more low doses": [1, 2, 1], "fewer high doses": [1, 1, 0.5]}
targets = {
    "treat earlier": cal.TabularPolicy(ward.EARLIER),
    **{name: cal.tilt(cal.practice, each) for name, each in weights.items()},
    "high dose for everyone": cal.TabularPolicy(ward.HIGH),
}
models = {"frequencies": cal.behaviour.TabularFrequencies()}
found = cal.compare(
    data,
    targets,
    models,
    learnt_on="no",
    ended="all",
    recorded_before="all",
    n_draws=200,
    rng=0,
)
print(found)

# %%
# The truth, which a simulated ward has: black marks. Grey is not to be trusted, and has no interval.


def tilted(factors):
    changed = ward.PRACTICE * factors
    return changed / changed.sum(axis=1, keepdims=True)


tables = [ward.EARLIER, *map(tilted, weights.values()), ward.HIGH]
truth = np.array([ward.value(table) for table in tables]) - ward.value(ward.PRACTICE)
figure, axis = plt.subplots(figsize=(8, 2.8))
cal.plots.forest(found.differences, axis)
axis.plot(truth, range(len(truth)), "k|", markersize=16, markeredgewidth=2)
figure.tight_layout()

# %%
# Which of two policies is better is a question of its own. Both are judged on the same patients, so that most of the
# chance cancels.

figure, axis = plt.subplots(figsize=(8, 2.2))
cal.plots.forest(found.pairs, axis)
axis.set_xlabel("difference of the two policies")
figure.tight_layout()
