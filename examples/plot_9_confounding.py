"""
How strong would an unmeasured confounder have to be?
=====================================================

No log shows whether something that drove both decisions and outcomes is missing from it. One can ask how strong it
would have to be to turn the result round, and compare that with the columns that were recorded.
"""

import matplotlib.pyplot as plt

import caliope as cal
from caliope.domains import ward

data = ward.simulate(500, rng=0).replace(unit="patient", action_names=list(ward.DOSES))
audit = cal.audit(
    data,
    cal.TabularPolicy(ward.EARLIER),
    {"frequencies": cal.behaviour.TabularFrequencies()},
    regressor=cal.values.TabularRegressor(),
    learnt_on="no",
    recorded_before="all",
    n_draws=200,
    rng=0,
)
print(f"A factor of {audit.breakdown.factor:.2f} would turn the comparison round.")
for column in audit.benchmark:
    print(f"The recorded column {column.column!r} has a factor of {column.factor:.2f}.")

# %%
# The lowest and the highest value, if the weights may be off by a factor.

figure, axis = plt.subplots(figsize=(6, 3.2))
curve, breakdown = audit.summary.confounding, audit.breakdown.factor
cal.plots.confounding(curve, axis, practice=audit.practice.value, breakdown=breakdown)
axis.legend()
figure.tight_layout()

# %%
# How few patients would have to be left out for the difference to change its sign:

print(audit.influence.to_flip)
