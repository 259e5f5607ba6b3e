"""
Calibration of behaviour models
===============================

Weights are divided by the probability of the logged action, so that probability has to be right. Here the true
policy is known, and three models of it are compared.
"""

import matplotlib.pyplot as plt
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import caliope as cal
from caliope.domains import zoo

policy = zoo.linear(10, rng=0)
data = zoo.simulate(policy, 300, rng=0)
train, test = data.split(0.6, rng=0)
models = {
    "logistic": LogisticRegression(max_iter=1000),
    "forest": RandomForestClassifier(60, min_samples_leaf=5, random_state=0),
    "naive Bayes": GaussianNB(),
}
fitted = {
    name: cal.fit_behaviour(model, train, mode="same") for name, model in models.items()
}

# %%
# The comparison says which model to use, by the log loss of decisions that no model has seen. The metric of the paper
# stands beside its null: what it would be if the model were right.

comparison = cal.compare_policies(
    fitted, test, truth=zoo.true_probabilities(test, policy), rng=0
)
print(comparison.recommended)
columns = ["model", "nll", "paper_tv", "paper_tv_null", "averaged_tv_z", "true_tv"]
print(comparison.to_frame().select(columns))

# %%
# Reliability: how often actions are taken that a model gives some probability. A right model lies on the diagonal.

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True)
for axis, (name, model) in zip(axes, fitted.items(), strict=True):
    probabilities = cal.action_probabilities(model.model, test.states, test.n_actions)
    cal.plots.reliability(
        cal.calibration.top_label_curve(probabilities, test.actions), axis, label=name
    )
    axis.set_title(name)
figure.tight_layout()
