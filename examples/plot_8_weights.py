"""
Weights and effective sample size
=================================

Every trajectory counts by how much more likely the new policy makes it. The weights are products over time, so they
spread as trajectories get longer. The effective sample size says how many trajectories are left.
"""

import matplotlib.pyplot as plt
import numpy as np

import caliope as cal
from caliope.domains import ward

data = ward.simulate(500, rng=0)
behaviour = cal.fit_behaviour(cal.behaviour.TabularFrequencies(), data, mode="same")
policies = {
    "practice, a tenth new": cal.mix(
        cal.practice, cal.TabularPolicy(ward.AGGRESSIVE), 0.1
    ),
    "somewhat earlier": cal.TabularPolicy(ward.EARLIER),
    "the high dose for nearly everyone": cal.TabularPolicy(ward.AGGRESSIVE),
}

# %%
# The weights at the end, sorted. The steeper the curve, the fewer trajectories decide.

figure, axis = plt.subplots(figsize=(6.5, 3.4))
for name, policy in policies.items():
    evidence = cal.gather(data, policy, behaviour)
    last = evidence.rho[evidence.layout.last]
    share = np.cumsum(np.sort(last)[::-1]) / last.sum()
    axis.plot(
        np.arange(1, len(share) + 1),
        share,
        label=f"{name}: {cal.weights.kish(last):.0f} effective",
    )
axis.set(
    xlabel="trajectories, the heaviest first",
    ylabel="share of the weight",
    xscale="log",
    ylim=(0, 1.02),
)
axis.legend()
figure.tight_layout()

# %%
# What can be done: cap the weights, which costs a bias that is reported, or average them over trajectories that are in
# the same state at the same time. Each is a function from evidence to evidence, and goes with every estimator.

evidence = cal.gather(data, policies["somewhat earlier"], behaviour)
changes = {
    "as they are": evidence,
    "capped": cal.weights.clip_weights(evidence, 10.0),
    "averaged": cal.weights.marginalise_weights(evidence, data, rng=0),
}
for name, changed in changes.items():
    print(f"{name:12} value {float(cal.step_wis(changed)):.3f}")
print(f"the truth          {ward.value(ward.EARLIER):.3f}")
