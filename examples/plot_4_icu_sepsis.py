"""
Sepsis, with the truth beside the estimate
==========================================

ICU-Sepsis is a process made from real intensive care, with 716 states and 25 actions. A log drawn from it looks like a
clinical one: noisy measurements instead of states. But the values of policies are exact. That shows what an estimated
behaviour policy costs, and how far a log of a few hundred patients carries.
"""

import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import caliope as cal
from caliope.domains import icu_sepsis

data = icu_sepsis.simulate(500, rng=0, lags=0)
print(data)

# %%
# The new policy follows the best known one in a fifth of the decisions. Three models of the behaviour policy give three
# answers. With the true probabilities, which nobody has in practice, there is a fourth. Each comes with a verdict.

logistic = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
behaviours = {
    "frequencies alone": cal.fit_behaviour(
        cal.behaviour.TabularFrequencies(), data, mode="same"
    ),
    "logistic": cal.fit_behaviour(logistic, data, mode="same"),
    "neighbours": cal.fit_behaviour(
        cal.NeighbourPolicy(k=100, shrinkage="cv"), data, mode="same"
    ),
    "true probabilities": icu_sepsis.true_probabilities(data),
}
table = icu_sepsis.evaluation_policies()["a fifth optimal"]
truth = icu_sepsis.value(table, gamma=1.0)
target = icu_sepsis.true_probabilities(data, table)
figure, axis = plt.subplots(figsize=(7, 2.6))
for i, (name, behaviour) in enumerate(behaviours.items()):
    row = cal.estimate(
        cal.gather(data, target, behaviour), cal.wis, n_draws=200, rng=0
    )[0]
    low, high = row.interval.low, row.interval.high
    axis.plot([low, high], [i, i], color=f"C{i}")
    axis.plot(row.value, i, "o", color=f"C{i}")
    shown = f"{row.value_text} {row.interval_text}, {row.effective_n:.1f} effective"
    print(f"{name}: {shown}, {row.verdict}")
print(f"exact value: {truth:.2f}")
axis.axvline(truth, color="black", linestyle="--", linewidth=1)
axis.set_yticks(range(len(behaviours)), behaviours)
axis.set(
    xlabel="weighted importance sampling; dashed: the exact value", ylim=(3.5, -0.5)
)
figure.tight_layout()

# %%
# Even with the true probabilities a log of this size carries only so far. The policies below follow the best
# known one in growing shares of the decisions; one avoids vasopressors.

figure, axis = plt.subplots(figsize=(7, 2.8))
for i, (name, table) in enumerate(icu_sepsis.evaluation_policies().items()):
    evidence = cal.gather(
        data,
        icu_sepsis.true_probabilities(data, table),
        behaviours["true probabilities"],
    )
    row = cal.estimate(evidence, cal.wis, n_draws=200, rng=0)[0]
    axis.plot([row.interval.low, row.interval.high], [i, i], color="C0")
    axis.plot(row.value, i, "o", color="C0", label="estimate" if i == 0 else None)
    axis.plot(
        icu_sepsis.value(table, gamma=1.0),
        i,
        "k|",
        markersize=14,
        label="exact" if i == 0 else None,
    )
    print(f"{name:26} {row.effective_n:6.1f} effective  {row.verdict}")
axis.set_yticks(range(5), icu_sepsis.evaluation_policies())
axis.set(xlabel="value", ylim=(4.5, -0.5))
axis.legend(loc="lower left")
figure.tight_layout()
