"""The yardstick of recorded columns takes all features of a column together."""

import numpy as np
import polars as pl
from sklearn.linear_model import LinearRegression, LogisticRegression

import caliope as cal
from caliope._audit._benchmark import benchmark_columns


def log(n=3000):
    rng = np.random.default_rng(0)
    ward, noise = rng.choice(["a", "b", "c"], n), rng.normal(size=n)
    chance = 1 / (1 + np.exp(-np.select([ward == "a", ward == "b"], [-1.5, 0.0], 1.5)))
    frame = pl.DataFrame({"ward": ward, "noise": noise, "act": rng.random(n) < chance, "r": rng.random(n)})
    return cal.read_table(frame, episode=None, action="act", reward="r", states=["ward", "noise"])


def test_a_category_is_as_strong_as_all_its_levels_together():
    """Each level alone is a combination of the others, and would seem to tell nothing."""
    data = log()
    target = np.full((data.n_steps, 2), 0.5)
    found = {row.column: row.factor for row in benchmark_columns(data, target)}
    assert list(found) == ["ward", "noise"]
    assert found["noise"] < 1.1
    # The same with the weights computed one by one, and the category replaced by what the noise predicts of it.
    x = (data.states - data.states.mean(axis=0)) / data.states.std(axis=0)
    model = LogisticRegression(max_iter=50).fit(x, data.actions)
    without = x.copy()
    without[:, :3] = LinearRegression().fit(x[:, 3:], x[:, :3]).predict(x[:, 3:])
    change = []
    for row in range(len(x)):
        action = data.actions[row]
        p, q = (model.predict_proba(states[row : row + 1])[0, action] for states in (x, without))
        change.append(max(p / q, q / p))
    np.testing.assert_allclose(found["ward"], np.quantile(change, 0.95), rtol=1e-6)
    assert found["ward"] > 2
