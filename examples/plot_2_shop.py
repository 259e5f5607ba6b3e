"""
A shop: one decision per visit
==============================

A shop shows each visitor one of three banners, and considers fewer discounts for loyal visitors. This is a contextual
bandit: every trajectory has one decision. The probability of each banner was not logged.
"""

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression

import caliope as cal

BANNERS = ["news", "discount", "bundle"]


def banner_probabilities(loyal, basket):
    """Return how the shop chooses a banner; this is not in the log."""
    return softmax(
        np.stack([0.2 * loyal, 0.4 + 0.8 * loyal, 0.6 * basket], axis=1), axis=1
    )


def sale_probabilities(loyal, basket):
    """Return the chance of a sale with each banner."""
    return expit(
        np.stack([-1.2 + loyal, -0.6 + 0.3 * loyal, -1.0 + 0.7 * basket], axis=1)
    )


rng = np.random.default_rng(0)
loyal, basket = rng.normal(size=(2, 1500))
shown = (
    banner_probabilities(loyal, basket).cumsum(axis=1) < rng.random((1500, 1))
).sum(axis=1)
bought = rng.random(1500) < sale_probabilities(loyal, basket)[np.arange(1500), shown]
log = pl.DataFrame(
    {
        "visit": np.arange(1500),
        "loyal": loyal,
        "basket": basket,
        "banner": np.array(BANNERS)[shown],
        "bought": bought.astype(float),
    }
)
print(log.head(3))

# %%
# The change is stated relative to what the shop does now: for a loyal visitor the odds of a discount are a third.


def fewer_discounts(states):
    weights = np.ones((len(states), 3))
    weights[states[:, 0] > 0, data.action_names.index("discount")] = 1 / 3
    return weights


data = cal.read_table(
    log, episode="visit", states=["loyal", "basket"], action="banner", reward="bought"
)
audit = cal.audit(
    data.replace(unit="visit"),
    cal.tilt(cal.practice, fewer_discounts),
    {"logistic": LogisticRegression()},
    learnt_on="no",
    recorded_before="all",
    n_draws=200,
    rng=0,
)
gain = audit.gain
print(f"Difference: {gain.text}, {gain.verdict}")

# %%
# The truth is a mean over many simulated visitors.

many = rng.normal(size=(2, 500_000))
now, sells = banner_probabilities(*many), sale_probabilities(*many)
weights = np.ones_like(now)
weights[many[0] > 0, BANNERS.index("discount")] = 1 / 3
new = now * weights / (now * weights).sum(axis=1, keepdims=True)
truth = ((new - now) * sells).sum(axis=1).mean()
print(f"The truth: {truth:.4f}")

# %%
# Which banners are shown, now and with the change.

figure, axis = plt.subplots(figsize=(6, 2.5))
now, new = audit.behaviour_probs.mean(axis=0), audit.target_probs.mean(axis=0)
cal.plots.action_shares(data.action_names, now, new, axis)
axis.legend()
figure.tight_layout()
