"""
An app for learners: one decision per day
=========================================

An app decides every day whether to stay silent, to send a reminder, or to send a tip. A learner has one of four levels
of motivation. The return is the number of lessons done in two weeks. Too many reminders annoy: what pays today may cost
tomorrow, so that one has to follow learners over time.
"""

import matplotlib.pyplot as plt
import numpy as np

import caliope as cal
from caliope.domains.tabular import TabularMDP

ACTIONS = ["silent", "reminder", "tip"]
# The chance of a lesson.
DONE = np.array(
    [[0.1, 0.3, 0.2], [0.25, 0.45, 0.4], [0.45, 0.6, 0.6], [0.7, 0.75, 0.8]]
)
UP = np.array(
    [[0.1, 0.05, 0.25], [0.15, 0.05, 0.3], [0.15, 0.05, 0.25], [0.0, 0.0, 0.0]]
)
DOWN = np.array([[0.0, 0.0, 0.0], [0.1, 0.3, 0.1], [0.1, 0.3, 0.1], [0.1, 0.35, 0.1]])

# %%
# The process is small enough to be written down, and so its values are exact. A state is the motivation; the reward is
# the chance of a lesson.

transitions = np.zeros((4, 3, 4))
for level in range(4):
    transitions[level, :, min(level + 1, 3)] += UP[level]
    transitions[level, :, max(level - 1, 0)] += DOWN[level]
    transitions[level, :, level] += 1 - UP[level] - DOWN[level]
learners = TabularMDP(
    initial=np.array([0.3, 0.4, 0.2, 0.1]),
    transitions=transitions,
    rewards=np.repeat(DONE[:, :, None], 4, axis=2),
    absorbing=np.zeros(4, dtype=bool),
    horizon=14,
)
practice = np.array(
    [[0.3, 0.5, 0.2], [0.35, 0.45, 0.2], [0.5, 0.3, 0.2], [0.6, 0.2, 0.2]]
)
fewer = practice * [1.0, 0.7, 1.3]  # some reminders become tips
fewer /= fewer.sum(axis=1, keepdims=True)
data = learners.simulate(practice, 600, rng=0).replace(
    unit="learner", action_names=ACTIONS
)
print(data)

# %%
# Stated as a change to practice, the policy can be evaluated over all fourteen days.

audit = cal.audit(
    data,
    cal.tilt(cal.practice, {"reminder": 0.7, "tip": 1.3}),
    {"frequencies": cal.behaviour.TabularFrequencies()},
    regressor=cal.values.TabularRegressor(),
    learnt_on="no",
    ended="all",
    recorded_before="all",
    n_draws=200,
    rng=0,
)
truth = learners.value(fewer, 1.0) - learners.value(practice, 1.0)
gain = audit.gain
print(f"More lessons: {gain.text}, {gain.verdict}")
print(f"The truth: {truth:.2f}")

# %%
# Weights of whole trajectories spread over the days, and the effective sample size falls.

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2))
weights = audit.summary.weights
cal.plots.weight_fan(
    weights.step, (0.05, 0.25, 0.5, 0.75, 0.95), weights.log10, axes[0]
)
cal.plots.effective_sizes(weights.step, weights.effective, axes[1])
figure.tight_layout()
