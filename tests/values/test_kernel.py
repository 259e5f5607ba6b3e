"""Kernel regression, and the values of an audit that come from it."""

import warnings

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import caliope as cal
from caliope.values import KernelRegressor, _kernel_values as module, cross_fitted_q, fitted_q
from caliope.values._kernel_values import fit_kernel_values, fit_with_kept_features


@parametrize_with_checks(
    [KernelRegressor()], expected_failed_checks=lambda _: {"check_array_api_input": "no"}
)
def test_conventions_of_scikit_learn(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_it_is_the_ridge_of_scikit_learn_inside_the_range_of_the_targets():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3)) * [1, 10, 0.1] + [0, 5, 9]
    y = np.sin(x[:, 0]) + x[:, 1] + rng.normal(size=300)
    new = rng.normal(size=(200, 3)) * [2, 20, 0.2] + [0, 5, 9]
    plain = make_pipeline(StandardScaler(), Nystroem(n_components=50, random_state=3), Ridge(0.3)).fit(x, y)
    found = KernelRegressor(random_state=3).fit(x, y).predict(new)
    assert found == pytest.approx(np.clip(plain.predict(new), y.min(), y.max()))
    steep = KernelRegressor(alpha=1e-6).fit([[0.0], [1.0], [2.0]], [0.0, 0.0, 1.0])
    outside = steep.features_.transform([[0.5], [2.4]]) @ steep.coef_ + steep.intercept_
    assert outside.min() < 0
    assert steep.predict([[0.5], [2.4]]).min() == 0


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [
        (np.ones((1, 2)), [3.0], 3.0),
        (np.ones((60, 2)), np.arange(60.0), 29.5),  # nothing but constant columns
        (np.arange(6.0).reshape(3, 2), [2.0, 2.0, 2.0], 2.0),  # constant targets, fewer rows than components
    ],
)
def test_little_to_learn_from_gives_the_mean_without_a_warning(x, y, expected):
    # Warnings are errors here.
    assert KernelRegressor().fit(x, y).predict([[1.0, 1.0], [50.0, -3.0]]) == pytest.approx(expected)


def some_log(n=60, horizon=4, actions=3, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, horizon + 1, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    steps = int(offsets[-1])
    states = rng.normal(size=(steps, 2))
    # One action is never taken.
    taken = rng.integers(0, actions - 1, steps)
    data = cal.Trajectories(states, taken, states[:, 0] + taken, offsets, n_actions=actions)
    return data, rng.dirichlet(np.ones(actions), size=steps)


def cross_fitted(data, proba, **rounds):
    """The mean of the divisions into folds, plainly: those of the trees."""
    tables = []
    for r in range(3):
        dealt, kernel = np.random.default_rng([5, r] if r else 5), KernelRegressor(random_state=5 + r)
        options = {"gamma": 0.9, "folds": 2, "rng": dealt, "per_action": True, **rounds}
        tables.append(cross_fitted_q(data, proba, kernel, **options).table)
    return np.mean(tables, axis=0)


@pytest.mark.parametrize("horizon", [1, 4])
def test_kept_features_give_the_values_of_plain_rounds(horizon):
    data, proba = some_log(horizon=horizon)
    kernel, options = KernelRegressor(random_state=2), {"gamma": 0.9, "n_iterations": horizon}
    fast = fit_with_kept_features(data, proba, kernel, **options)
    plain = fitted_q(data, proba, kernel, per_action=True, **options)
    assert fast.on(data) == pytest.approx(plain.on(data))
    for mine, other in zip(fast.trace, plain.trace, strict=True):
        assert vars(mine) == pytest.approx(vars(other))
    assert fast.fitted_on == plain.fitted_on


@pytest.mark.parametrize("entries", [0, 1 << 25])
@pytest.mark.parametrize("horizon", [1, 4])
def test_kernel_values_are_cross_fitted_per_action_up_to_the_horizon(monkeypatch, entries, horizon):
    monkeypatch.setattr(module, "_ENTRIES", entries)
    data, proba = some_log(horizon=horizon)
    values, how = fit_kernel_values(data, proba, gamma=0.9, rng=5)
    # A quarter of the trajectories is as long as the longest: lengths are capped, and the step matters.
    step, seen = data.layout.time[:, None], " on state and step"
    seen_states = np.hstack([data.states, step]) if horizon > 1 else data.states
    expected = cross_fitted(data.replace(states=seen_states, feature_names=None), proba, n_iterations=horizon)
    assert values == pytest.approx(expected)
    name = f"KernelRegressor per action{seen if horizon > 1 else ''}"
    assert how == f"{name}, {horizon} rounds, cross-fitted 3 times"
    # The action that nobody took has one value for each half, in three divisions.
    assert len(np.unique(values[:, 2].round(12))) <= 8


def test_kernel_values_are_the_same_again_and_predict_what_was_not_fitted():
    data, proba = some_log()
    which = np.arange(0, 60, 2)
    first, again = (fit_kernel_values(data, proba, gamma=1.0, rng=0, fitted_on=which)[0] for _ in range(2))
    assert (first == again).all()
    assert np.isfinite(first).all()
    # Nothing that was not fitted on moves the values of what was.
    rows = data.layout.rows_of(which)
    alone = fit_kernel_values(data.part(which), proba[rows], gamma=1.0, rng=0)[0]
    assert (first[rows] == alone).all()


@pytest.mark.slow
@pytest.mark.parametrize("entries", [0, 1 << 25])
def test_thirty_rounds_from_the_logged_returns_beyond_thirty_steps(monkeypatch, entries):
    monkeypatch.setattr(module, "_ENTRIES", entries)
    data, proba = some_log(n=12, horizon=40)
    assert data.layout.horizon > 30
    values, how = fit_kernel_values(data, proba, gamma=0.9, rng=5)
    assert values == pytest.approx(cross_fitted(data, proba, n_iterations=30, from_returns=True))
    assert how == "KernelRegressor per action, 30 rounds, practice after 30 decisions, cross-fitted 3 times"


def test_direct_values_are_right_where_lengths_are_capped():
    # Each of six decisions earns 1 whatever is done, and nothing but the step tells how many are left.
    rng, n = np.random.default_rng(0), 600
    data = cal.Trajectories(rng.normal(size=n), rng.integers(0, 2, n), np.ones(n), np.arange(0, n + 1, 6))
    values = fit_kernel_values(data, np.full((n, 2), 0.5), gamma=1.0, rng=0)[0]
    # Without the step all would be valued alike, 1.5 off on average.
    assert abs(values - (6 - data.layout.time)[:, None]).mean() < 0.3
