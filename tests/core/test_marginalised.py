"""Marginalised weights: formulas against loops, exact limits, what they need and what they say."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import caliope as cal
from caliope import Evidence, Trajectories, dr, wdr, wis
from caliope.checks._estimates import examine
from caliope.checks._markov import check_markov
from caliope.domains.tabular import TabularMDP
from caliope.estimators import weight_factors
from caliope.uncertainty import bootstrap, delta_method, influence, jackknife, leave_one_out
from caliope.values import TabularRegressor
from caliope.weights import (
    clip_ratios,
    clip_weights,
    effective_n,
    marginalise_weights,
    normalise_under_way,
    shrink_weights,
    smooth_weights,
)
from caliope.weights._marginalised import marginalise_all
from tests.support import naive

CELLS = {"cells": TabularRegressor()}
# Three states that go on and one that ends; which action is taken decides where it goes.
MDP = TabularMDP(
    initial=[0.5, 0.3, 0.2, 0.0],
    transitions=[
        [[0.1, 0.6, 0.2, 0.1], [0.5, 0.2, 0.2, 0.1]],
        [[0.3, 0.1, 0.5, 0.1], [0.1, 0.3, 0.2, 0.4]],
        [[0.2, 0.5, 0.2, 0.1], [0.6, 0.1, 0.1, 0.2]],
        [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]],
    ],
    rewards=[[1.0, 0.0], [0.0, 2.0], [-1.0, 3.0], [0.0, 0.0]],
    absorbing=[False, False, False, True],
    horizon=4,
)
LOGGED = np.array([[0.5, 0.5], [0.7, 0.3], [0.4, 0.6], [0.5, 0.5]])
TARGET = np.array([[0.2, 0.8], [0.4, 0.6], [0.7, 0.3], [0.5, 0.5]])
GAMMA = 0.9


def logged(n, rng=0):
    """A log with its evidence; the values are wrong on purpose."""
    data = MDP.simulate(LOGGED, n, rng=rng)
    state = data.states[:, 0].astype(int)
    q = np.random.default_rng(9).normal(size=(len(TARGET), 2))[state]
    return data, cal.gather(data, TARGET[state], LOGGED[state], gamma=GAMMA, q=q, behaviour_known=True)


def by_trajectory(e, x):
    return [x[a:b].tolist() for a, b in zip(e.offsets[:-1], e.offsets[1:], strict=True)]


# -- normalised among those under way -------------------------------------------------------------------


@pytest.mark.parametrize("n", [20, 120, 400])  # steps with fewer than 50 under way: all, some, none
def test_normalising_is_its_loop_and_that_of_the_factors(n):
    _, e = logged(n)
    scaled = normalise_under_way(e)
    expected = naive.normalised_under_way(naive.trajectories(e), 50)
    np.testing.assert_allclose(scaled.rho, np.concatenate(expected), rtol=1e-12)
    np.testing.assert_allclose(scaled.rho, weight_factors(e)[e.layout.time] * e.weight, rtol=1e-12)
    assert scaled.notes[-1].code == "W107"
    assert scaled.notes[-1].level == "note"
    assert scaled.notes[-1].numbers["mean"] == pytest.approx(e.rho[e.layout.last].mean())
    assert scaled.notes[-1].numbers["after"] == pytest.approx(scaled.rho[e.layout.last].mean())


def test_trajectories_under_way_keep_their_weight_also_where_weights_end():
    rng = np.random.default_rng(2)
    log_ratio = rng.normal(0.3, 1.0, 600)
    log_ratio[rng.random(600) < 0.3] = -np.inf
    e = normalise_under_way(Evidence(rng.random(600), log_ratio, np.arange(0, 601, 5)))
    for t in range(5):
        rows = e.layout.time == t
        assert e.rho[rows].sum() == pytest.approx(e.rho_before[rows].sum())
    # Nobody has weight from the second step on: the first is normalised all the same, whether steps are late or not.
    for n in (4, 60):
        gone = np.tile([0.5, -np.inf, 0.2], n)
        gone[0] = 1.0
        found = normalise_under_way(Evidence(np.zeros(3 * n), gone, np.arange(0, 3 * n + 1, 3)))
        assert not np.isnan(found.log_ratio).any()
        assert (found.rho[found.layout.time > 0] == 0).all()
        if n == 60:
            assert found.rho[::3].sum() == pytest.approx(n)


def test_normalising_stands_weights_beyond_the_range_of_a_float():
    rng = np.random.default_rng(1)
    e = Evidence(np.zeros(60_000), rng.normal(2.0, 0.1, 60_000), np.arange(0, 60_001, 1000))
    assert np.isinf(e.rho).any()
    assert normalise_under_way(e).rho[e.layout.last].mean() == pytest.approx(1.0, rel=1e-9)


# -- given weights ---------------------------------------------------------------------------------------


def test_given_weights_are_the_weights():
    data, e = logged(80)
    given = replace(e, log_weight=e.log_rho)
    for f in (wdr, dr, wis, cal.step_wis, cal.phwdr):
        assert float(f(given)) == pytest.approx(float(f(e)), rel=1e-12)
    np.testing.assert_array_equal(influence(wdr, given), influence(wdr, e))
    np.testing.assert_array_equal(leave_one_out(wdr, given), leave_one_out(wdr, e))
    assert jackknife(wdr, given).low == jackknife(wdr, e).low
    assert bootstrap(wdr, given, rng=0, n_draws=50).low == bootstrap(wdr, e, rng=0, n_draws=50).low
    which = np.array([3, 70, 5])
    np.testing.assert_array_equal(given.take(which).log_weight, e.take(which).log_rho)
    np.testing.assert_array_equal(given.log_ratio, e.log_ratio)
    assert "given weights" in repr(given)
    assert len(data) == len(given)


def test_other_weights_than_the_product_are_read_everywhere():
    _, e = logged(80)
    weights = np.random.default_rng(0).random(len(e.rewards))
    given = replace(e, log_weight=np.log(weights))
    np.testing.assert_allclose(given.rho, weights)
    before = np.array([1.0 if t == 0 else weights[i - 1] for i, t in enumerate(e.layout.time)])
    np.testing.assert_allclose(given.rho_before, before)
    assert effective_n(given) == pytest.approx(
        effective_n(Evidence([0] * 80, np.log(weights[e.layout.last]), range(81)))
    )
    per_step = weights * (e.rewards - e.q) + before * e.v
    discount = GAMMA**e.layout.time
    assert float(dr(given)) == pytest.approx((discount * per_step).sum() / 80, rel=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_given_weights_must_be_numbers(bad):
    with pytest.raises(
        ValueError, match=r"log_weight must be finite or -inf; 1 are not \(first: .* at step 1\)\.$"
    ):
        Evidence([0, 0], [0, 0], [0, 1, 2], log_weight=[0, bad])
    with pytest.raises(ValueError, match=r"log_weight must have shape \(2,\)"):
        Evidence([0, 0], [0, 0], [0, 1, 2], log_weight=[0.0])
    assert Evidence([0, 0], [0, 0], [0, 1, 2], log_weight=[0, -np.inf]).rho.tolist() == [1.0, 0.0]


def test_transforms_of_given_weights_give_weights():
    _, e = logged(120)
    given = replace(e, log_weight=e.log_rho)
    for transform in (clip_weights, smooth_weights, normalise_under_way, lambda e: shrink_weights(e, 2.0)):
        plain, other = transform(e), transform(given)
        np.testing.assert_allclose(other.log_weight, plain.log_rho, atol=1e-12)
        np.testing.assert_array_equal(other.log_ratio, e.log_ratio)
        assert other.notes == plain.notes
    with pytest.raises(ValueError, match="clip_ratios needs weights that are products of ratios"):
        clip_ratios(given, 2.0)


def test_what_weights_whole_trajectories_refuses_given_weights():
    _, e = logged(120)
    given = replace(e, log_weight=e.log_rho)
    for refused in (
        lambda: cal.sensitivity.breakdown(given),
        lambda: cal.sensitivity.bounds(given, 2.0),
        lambda: cal.bounds.betting(given, returns_in=(-10, 20), rng=0),
    ):
        with pytest.raises(ValueError, match="needs the weights of whole trajectories"):
            refused()
    one = Evidence([0, 1], [0, 0], [0, 1, 2], log_weight=[0, 0])
    assert cal.sensitivity.breakdown(one, baseline=0.2).factor == pytest.approx(2.0)


# -- marginalised weights --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [25, 90])
def test_the_weights_are_those_of_the_loop(n):
    data, e = logged(n)
    found = marginalise_weights(e, data, regressors=CELLS, rng=3)
    states = by_trajectory(e, data.states[:, 0])
    expected = naive.marginalised(naive.trajectories(e), states, data.fold_of(2, rng=3))
    np.testing.assert_allclose(found.rho, np.concatenate(expected), rtol=1e-10)
    np.testing.assert_array_equal(found.log_ratio, e.log_ratio)


def test_on_single_steps_they_are_the_normalised_capped_weights():
    rng = np.random.default_rng(0)
    data = Trajectories(rng.random((70, 2)), rng.integers(0, 2, 70), rng.random(70), offsets=np.arange(71))
    e = Evidence(data.rewards, rng.normal(0.4, 1.5, 70), data.offsets, q=rng.random(70), v=rng.random(70))
    found, plain = marginalise_weights(e, data, rng=0), clip_weights(normalise_under_way(e))
    np.testing.assert_allclose(found.rho, plain.rho, rtol=1e-12)
    assert float(wdr(found)) == pytest.approx(float(wdr(plain)), rel=1e-12)
    assert found.notes[-1].numbers["changed"] == plain.notes[-1].numbers["changed"] > 0
    assert found.notes[-1].numbers["removed"] == pytest.approx(plain.notes[-1].numbers["removed"])
    assert "nothing was regressed" in found.notes[-1].message
    assert check_markov(plain, found).numbers == {
        "d": 0.0,
        "se": pytest.approx(0, abs=1e-12),
        "z": 0.0,
        "share": plain.notes[-1].numbers["removed"],
    }


def exact_means():
    """E[w_{t-1} | s_t, t] under the logged policy: the probability of the state under each policy, divided."""

    def occupancy(policy):
        at, rows = np.array(MDP.initial), []
        for _ in range(MDP.horizon):
            rows.append(at)
            at = np.einsum("s,sa,sau->u", np.where(MDP.absorbing, 0.0, at), policy, MDP.transitions)
            at = np.where(MDP.absorbing, 0.0, at)
        return np.array(rows)

    living = ~MDP.absorbing
    return np.divide(occupancy(TARGET), occupancy(LOGGED), where=living, out=np.ones((4, 4)))


def test_with_exact_means_and_ratios_the_limit_is_the_value_whatever_the_values():
    paths = list(MDP.paths(LOGGED))
    offsets = np.concatenate([[0], np.cumsum([len(p.states) for p in paths])])
    state, action = (np.concatenate([getattr(p, x) for p in paths]) for x in ("states", "actions"))
    rng = np.random.default_rng(4)
    q = rng.normal(size=(4, 2))
    ratio = TARGET[state, action] / LOGGED[state, action]
    e = Evidence(
        np.concatenate([p.rewards for p in paths]),
        np.log(ratio),
        offsets,
        GAMMA,
        np.array([p.probability for p in paths]),
        q=q[state, action],
        v=(TARGET * q).sum(axis=1)[state],
    )
    exact = replace(e, log_weight=np.log(exact_means()[e.layout.time, state] * ratio))
    assert np.abs(exact.log_weight - e.log_rho).max() > 0.5  # other weights
    for f in (wdr, dr, cal.step_wis):
        assert float(f(exact)) == pytest.approx(MDP.value(TARGET, GAMMA), rel=1e-10)
    # The weight of one step is not that of a whole trajectory.
    assert abs(float(wis(exact)) - MDP.value(TARGET, GAMMA)) > 0.01


def test_in_large_logs_they_tend_to_the_exact_ones_and_vary_less():
    data, e = logged(6000, rng=1)
    found = marginalise_weights(e, data, regressors=CELLS, rng=0)
    state = data.states[:, 0].astype(int)
    exact = exact_means()[e.layout.time, state] * np.exp(e.log_ratio)
    # A cell has at least 100 weights with a standard deviation below 1.5: means within 4 * 0.15, ratios up to 2.
    assert np.abs(found.rho - exact).max() < 4 * 0.15 * 2
    plain = clip_weights(normalise_under_way(e))
    short, long = delta_method(wdr, found), delta_method(wdr, plain)
    assert short.high - short.low < long.high - long.low
    value = MDP.value(TARGET, GAMMA)
    assert abs(float(wdr(found)) - value) < 4 * (short.high - short.low) / 4  # four standard errors
    assert abs(check_markov(plain, found).numbers["z"]) < 4


def test_several_policies_at_once_are_each_alone():
    data, e = logged(150)
    other = replace(e, log_ratio=e.log_ratio * 0.5, notes=())
    linear = {"linear": LinearRegression()}
    together = marginalise_all((e, other), data, regressors=linear, rng=5)
    for one, alone in zip((e, other), together, strict=True):
        expected = marginalise_weights(one, data, regressors=linear, rng=5)
        np.testing.assert_allclose(alone.rho, expected.rho, rtol=1e-9)
    assert len(marginalise_all((e, other), data, rng=5)) == 2
    assert marginalise_all((), data, rng=5) == ()


def test_the_regressor_with_the_least_held_out_error_is_taken():
    data, e = logged(600)

    class Useless(LinearRegression):
        def predict(self, X):
            return 5 * super().predict(X) - 10

    found = marginalise_weights(e, data, regressors={"useless": Useless(), **CELLS}, rng=0)
    note = found.notes[-1]
    assert (note.code, note.level, note.facts["regressor"]) == ("W108", "note", "cells")
    before = clip_weights(normalise_under_way(e)).rho_before
    y = before / (np.bincount(e.layout.time, weights=before) / np.bincount(e.layout.time))[e.layout.time]
    later, predicted = e.layout.time > 0, np.ones(len(y))
    x = np.column_stack([data.states, e.layout.time])
    for fit, held_out in data.folds(2, rng=0):
        fit, held_out = fit[later[fit]], held_out[later[held_out]]
        predicted[held_out] = TabularRegressor().fit(x[fit], y[fit]).predict(x[held_out])
    r2 = 1 - ((y - predicted)[later] ** 2).mean() / y[later].var()
    assert note.numbers["r2"] == pytest.approx(r2, rel=1e-10)


def test_fitted_on_a_sample_every_trajectory_is_predicted_by_the_sample_of_the_other_fold():
    data, e = logged(400)
    which = np.arange(0, 400, 4)
    found = marginalise_weights(e, data, regressors=CELLS, fitted_on=which, rng=0)
    capped = clip_weights(normalise_under_way(e))
    time, before = e.layout.time, capped.rho_before
    mean = np.bincount(time, weights=before) / np.bincount(time)
    y, x = before / mean[time], np.column_stack([data.states, time])
    fold, sampled = data.fold_of(2, rng=0)[e.layout.owner], np.isin(e.layout.owner, which)
    m = np.ones(len(y))
    for j in (0, 1):
        fit, rest = (time > 0) & sampled & (fold != j), (time > 0) & (fold == j)
        m[rest] = np.clip(TabularRegressor().fit(x[fit], y[fit]).predict(x[rest]), y[fit].min(), y[fit].max())
    later = (time > 0) & sampled
    r2 = 1 - ((y - m)[later] ** 2).mean() / y[later].var()
    for t in np.unique(time):  # those under way have the sum of the weights before the step, then that of m
        at = time == t
        m[at] *= before[at].sum() / m[at].sum()
    mu = m * np.exp(e.log_ratio)
    late = np.bincount(time)[time] < 50
    for at in (*(time == t for t in np.unique(time[~late])), *([late] if late.any() else [])):
        mu[at] *= m[at].sum() / mu[at].sum()
    np.testing.assert_allclose(found.rho, np.minimum(mu, 20 / 3), rtol=1e-10)
    note = found.notes[-1]
    assert note.numbers["r2"] == pytest.approx(r2, rel=1e-10)
    assert "fitted on 100 of the trajectories" in note.message


def test_fitted_on_all_of_them_nothing_changes():
    data, e = logged(120)
    every, named = (marginalise_weights(e, data, fitted_on=x, rng=0) for x in (None, np.arange(120)))
    np.testing.assert_array_equal(every.log_weight, named.log_weight)
    assert every.notes == named.notes
    with pytest.raises(ValueError, match="at least one trajectory"):
        marginalise_weights(e, data, fitted_on=np.empty(0, dtype=int), rng=0)


def test_the_same_seed_gives_the_same_weights_and_clusters_stay_together():
    data, e = logged(100)
    np.testing.assert_array_equal(
        marginalise_weights(e, data, rng=1).rho, marginalise_weights(e, data, rng=1).rho
    )
    clustered = replace(data, cluster=np.arange(100) // 50)
    grouped = marginalise_weights(replace(e, cluster=clustered.cluster), clustered, regressors=CELLS, rng=0)
    states = by_trajectory(e, data.states[:, 0])
    expected = naive.marginalised(naive.trajectories(e), states, np.arange(100) // 50)
    np.testing.assert_allclose(grouped.rho, np.concatenate(expected), rtol=1e-10)


def test_what_the_caps_removed_is_in_the_note():
    rng = np.random.default_rng(0)
    data, e = logged(60)
    e = replace(e, log_ratio=rng.normal(0.0, 2.0, len(e.rewards)))
    found, normalised = marginalise_weights(e, data, rng=0), normalise_under_way(e)
    kept = found.rho[e.layout.last].sum() / normalised.rho[e.layout.last].sum()
    numbers = found.notes[-1].numbers
    assert numbers["removed"] == pytest.approx(1 - kept)
    assert numbers["removed"] > 0.1
    assert numbers["total"] == pytest.approx(kept - 1)
    assert numbers["n"] == 60
    assert 0 < numbers["changed"] <= 60
    assert found.rho.max() <= np.sqrt(60) / 3 * (1 + 1e-12)
    levels = {f.code: f.level for f in examine(wdr, found)}
    assert levels["W107"] == "note"
    assert levels["W108"] in ("caution", "note")  # counted with D102, once
    assert "issue" not in (levels["W107"], levels["W108"])


def test_estimators_of_whole_trajectories_are_not_to_be_trusted_with_them():
    data, e = logged(200)
    found = marginalise_weights(e, data, regressors=CELLS, rng=0)
    assert {f.code: f.level for f in examine(wdr, found)}["W108"] == "note"
    (whole,) = (f for f in examine(wis, found) if f.code == "W108")
    assert whole.level == "issue"
    assert "Use one that sums over steps" in whole.message
    assert "W108" not in {f.code for f in examine(cal.monte_carlo, found)}


def test_bad_input_is_refused_in_one_line():
    data, e = logged(60)
    with pytest.raises(ValueError, match=r"must have the same trajectories, got 30 with .* and 60 with"):
        marginalise_weights(e.take(np.arange(30)), data, rng=0)
    with pytest.raises(ValueError, match="needs weights that are products of ratios"):
        marginalise_weights(replace(e, log_weight=e.log_rho), data, rng=0)
    with pytest.raises(ValueError, match="already carries counts"):
        marginalise_weights(e.with_counts(np.ones(60)), data, rng=0)
    with pytest.raises(ValueError, match="at least one regressor"):
        marginalise_weights(e, data, regressors={}, rng=0)
    with pytest.raises(TypeError, match=r"regressors\['x'\] must be an unfitted regressor"):
        marginalise_weights(e, data, regressors={"x": LinearRegression}, rng=0)

    class Broken(LinearRegression):
        def predict(self, X):
            return np.full(len(X), np.nan)

    with pytest.raises(ValueError, match="Broken predicted a weight that is NaN or infinite"):
        marginalise_weights(e, data, regressors={"x": Broken()}, rng=0)


# -- the comparison with plain weights -------------------------------------------------------------------


def shifted(e, by):
    """The same weights; every value raised, so that only wdr of the shifted evidence moves."""
    return replace(e, rewards=e.rewards + by * (e.layout.time == 0))


@pytest.mark.parametrize(
    ("errors", "level"), [(0.0, "note"), (2.9, "note"), (3.1, "caution"), (-3.9, "caution"), (4.1, "issue")]
)
def test_the_level_follows_the_standard_errors_between_the_two(errors, level):
    data, e = logged(300)
    found, plain = marginalise_weights(e, data, regressors=CELLS, rng=0), clip_weights(normalise_under_way(e))
    d = float(wdr(plain) - wdr(found))
    u = influence(wdr, plain) - influence(wdr, found)
    se = np.sqrt((u**2).sum() / (300 * 299))
    finding = check_markov(plain, found)
    assert finding.code == "W106"
    share = plain.notes[-1].numbers["removed"]
    assert finding.numbers == pytest.approx({"d": d, "se": se, "z": d / se, "share": share})
    # A reward that is the same for all moves the estimate and none of the influences.
    moved = check_markov(shifted(plain, errors * se - d), found)
    assert moved.numbers["z"] == pytest.approx(errors, rel=1e-6)
    assert moved.numbers["se"] == pytest.approx(se)
    assert moved.level == level
    assert ("does not carry" in moved.message) == (level != "note")
    assert "A cap removed" not in moved.message
    harder = replace(plain, notes=(plain.notes[-1].with_facts(removed=0.03),))
    told = check_markov(shifted(harder, errors * se - d), found)
    assert ("A cap removed 3.0% of the plain weights" in told.message) == (level != "note")
    assert told.level == level


def test_clusters_widen_the_comparison():
    data, e = logged(100)
    twice = np.repeat(np.arange(100), 2)
    copies = e.take(twice)
    doubled = data[twice]
    labels = np.repeat(np.arange(100), 2)
    one = replace(e, notes=()), marginalise_weights(e, data, regressors=CELLS, rng=0)
    both = tuple(replace(x.take(twice), cluster=labels) for x in one)
    assert len(doubled) == len(copies) == 200
    assert check_markov(*both).numbers["z"] == pytest.approx(check_markov(*one).numbers["z"], rel=1e-9)
    with pytest.raises(ValueError, match="compares weights on one log"):
        check_markov(e, both[1])


def test_a_state_that_forgets_is_found_out():
    """The reward follows the first action, and the state of later steps does not tell it."""
    rng = np.random.default_rng(0)
    n = 2000
    first, second = rng.integers(0, 2, n), rng.integers(0, 2, n)
    actions = np.column_stack([first, second]).ravel()
    rewards = np.column_stack([np.zeros(n), first]).ravel().astype(float)
    probability = np.tile([0.2, 0.8], (2 * n, 1))
    for told, level in ((False, "issue"), (True, "note")):
        states = np.column_stack([np.zeros(n), first if told else np.zeros(n)]).ravel()[:, None]
        data = Trajectories(states, actions, rewards, offsets=np.arange(0, 2 * n + 1, 2))
        e = cal.gather(
            data, probability, np.full((2 * n, 2), 0.5), q=np.zeros((2 * n, 2)), behaviour_known=True
        )
        found = marginalise_weights(e, data, regressors=CELLS, rng=0)
        assert check_markov(clip_weights(normalise_under_way(e)), found).level == level
