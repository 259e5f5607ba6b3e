"""Small audits for the tests of the report: near practice, far from it, and one with hostile names.

Each is made once per process, whoever asks: audits do not change.
"""

from functools import cache

import numpy as np
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit import audit
from caliope.behaviour import TabularFrequencies
from caliope.domains import ward

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}} $\\frac$ --> ]]>"


def models():
    return {"logistic": LogisticRegression(), "frequencies": TabularFrequencies()}


@cache
def near_audit():
    log = ward.simulate(300, rng=0)
    by = cal.calibration.severity_strata(log.states[:, 0], (2, 4))
    return audit(log, cal.TabularPolicy(ward.EARLIER), models(), by=by, n_draws=200, rng=0)


@cache
def far_audit():
    return audit(ward.simulate(200, rng=0), cal.TabularPolicy(ward.AGGRESSIVE), models(), n_draws=200, rng=0)


@cache
def strange_audit():
    """A log of 25 actions whose features, episodes, strata and models have names made to break a page."""
    rng, n, length = np.random.default_rng(0), 120, 4
    states = rng.normal(size=(n * length, 3))
    data = cal.Trajectories(
        states,
        rng.integers(0, 25, n * length),
        rng.normal(size=n * length),
        np.arange(n + 1) * length,
        n_actions=25,
        feature_names=[f"{HOSTILE} {i}" for i in range(3)],
        ids=np.array([f"{HOSTILE} {i}" for i in range(n)]),
    )
    by = np.where(states[:, 0] > 0, HOSTILE, "</table>")
    named = {f"{HOSTILE} {i}": LogisticRegression(C=c) for i, c in enumerate((0.01, 1.0))}
    target = np.full((n * length, 25), 0.03)
    target[:, 7] = 1 - 24 * 0.03
    return audit(data, target, named, by=by, gamma=0.9, n_draws=200, rng=0)


@cache
def shop_audit():
    """A shop that shows one of 25 banners in each of a few steps of a visit."""
    rng, n, length = np.random.default_rng(1), 150, 3
    states = rng.normal(size=(n * length, 2))
    data = cal.Trajectories(
        states,
        rng.integers(0, 25, n * length),
        rng.random(n * length),
        np.arange(n + 1) * length,
        feature_names=["age of the account", "items in the basket"],
        action_names=[f"banner {i}" for i in range(25)],
        unit="visit",
    )
    target = np.full((n * length, 25), 0.035)
    target[:, 3] = 1 - 24 * 0.035
    return audit(data, target, models(), n_draws=200, rng=0)
