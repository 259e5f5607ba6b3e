"""
A ward: three doses, every four hours
=====================================

Patients get no, a low or a high dose every four hours, for at most two days. A new policy treats somewhat sooner. The
ward is simulated, and the true values are known.
"""

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope.domains import ward

data = cal.read_table(
    ward.csv_path(),
    episode="patient",
    time="hour",
    states=["severity"],
    action="dose",
    reward="discharged",
).replace(unit="patient", action_names=list(ward.DOSES))
print(data)

# %%
# The audit fits the behaviour policy, estimates the value of the new one, and judges the number. The three answers are
# what no log tells. Two quick models stand for the default ones here.

audit = cal.audit(
    data,
    cal.TabularPolicy(ward.EARLIER),
    {
        "frequencies": cal.behaviour.TabularFrequencies(),
        "logistic": LogisticRegression(),
    },
    learnt_on="no",
    ended="all",
    recorded_before="all",
    n_draws=200,
    rng=0,
)
for row in (audit.headline, audit.practice, audit.gain):
    print(f"{row.label}: {row.text}, {row.verdict}")
print(f"The truth: {ward.value(ward.EARLIER):.3f} and {ward.value(ward.PRACTICE):.3f}")

# %%
# Every estimator with its interval. The truth is the dashed line.

figure, axis = plt.subplots(figsize=(8, 4))
cal.plots.estimates(audit.table, axis)
axis.axvline(ward.value(ward.EARLIER), linestyle="--", color="black", linewidth=1)
figure.tight_layout()

# %%
# What the new policy does otherwise: it gives the low dose more often.

figure, axis = plt.subplots(figsize=(6, 2.5))
practice, new = audit.behaviour_probs.mean(axis=0), audit.target_probs.mean(axis=0)
cal.plots.action_shares(ward.DOSES, practice, new, axis)
axis.legend()
figure.tight_layout()
