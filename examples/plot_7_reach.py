"""
How far the log carries
=======================

A policy that differs much from current practice cannot be evaluated, but a step towards it can. Every audit also asks
what happens with the new policy in a growing share of the decisions. Here the truth is known for each share.
"""

import matplotlib.pyplot as plt

import caliope as cal
from caliope.domains import ward

data = ward.simulate(600, rng=0).replace(unit="patient", action_names=list(ward.DOSES))
prepared = cal.prepare_audit(
    data,
    {"frequencies": cal.behaviour.TabularFrequencies()},
    recorded_before="all",
    rng=0,
)
policies = {
    "somewhat earlier": ward.EARLIER,
    "the high dose for everyone": ward.HIGH,
}
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
for axis, (name, table) in zip(axes, policies.items(), strict=True):
    audit = prepared.audit(
        cal.TabularPolicy(table),
        regressor=cal.values.TabularRegressor(),
        learnt_on="no",
        n_draws=200,
    )
    reach = audit.reach
    cal.plots.reach(reach.shares, reach.table, axis)
    mixed = [(1 - share) * ward.PRACTICE + share * table for share in reach.shares]
    truth = [ward.value(policy) - ward.value(ward.PRACTICE) for policy in mixed]
    axis.plot(
        reach.shares, truth, color="black", linewidth=1, linestyle=":", label="truth"
    )
    axis.set_title(name)
    print(f"{name}: {audit.verdict}")
    trusted, usable = reach.largest or 0, reach.usable or 0
    print(f"  trusted up to {trusted:.0%}, with caution up to {usable:.0%}")
axes[0].legend()
figure.tight_layout()

# %%
# The answer in words is part of every audit. Here is that of the second policy.

print(audit.reach)
