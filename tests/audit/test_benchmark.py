"""Recorded columns as a yardstick for unmeasured confounders: against a loop, and on logs where the answer is known."""

import json
import math

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import caliope as cal
from caliope._audit._benchmark import ColumnStrength, benchmark_columns, compare_strength, steps_to_use
from caliope.behaviour import TabularFrequencies
from caliope.checks._audit import check_fragility
from caliope.domains import ward
from caliope.sensitivity import breakdown
from caliope.values import TabularRegressor


def chosen(logits, rng):
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    return (p.cumsum(axis=1) < rng.random((len(p), 1))).sum(axis=1)


def log(n=300, steps=3, actions=3, strength=(0.0, 0.3, 1.0), seed=0, mixed=0.0):
    """Actions that follow each column as strongly as it says; with ``mixed``, the last is also in the first."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n * steps, len(strength)))
    x[:, 0] = (1 - mixed) * x[:, 0] + mixed * x[:, -1]
    logits = np.outer(x @ np.array(strength), np.linspace(-1, 1, actions))
    names = [f"c{j}" for j in range(len(strength))]
    offsets = np.arange(0, n * steps + 1, steps)
    a = chosen(logits, rng)
    return cal.Trajectories(x, a, rng.normal(size=n * steps), offsets, n_actions=actions, feature_names=names)


def by_loop(data, target):
    """The same, a trajectory, a step and an action at a time."""
    x = (data.states - data.states.mean(axis=0)) / data.states.std(axis=0)
    model = LogisticRegression(max_iter=50).fit(x, data.actions)
    factors = {}
    for j, name in enumerate(data.feature_names):
        others = [k for k in range(x.shape[1]) if k != j]
        without = x.copy()
        without[:, j] = 0.0
        if others:
            without[:, j] = LinearRegression().fit(x[:, others], x[:, j]).predict(x[:, others])
        apart = []
        for i in range(len(data)):
            weights = [1.0, 1.0]
            for t in range(data.offsets[i], data.offsets[i + 1]):
                for side, table in enumerate((x, without)):
                    b = model.predict_proba(table[t : t + 1])[0]
                    weights[side] *= target(t, b)[data.actions[t]] / b[data.actions[t]]
            if weights[0] > 0:
                ratio = weights[0] / weights[1]
                apart.append(max(ratio, 1 / ratio))
        factors[name] = float(np.exp(np.quantile(np.log(apart), 0.95)))
    return factors


@pytest.mark.parametrize(("actions", "mixed"), [(2, 0.0), (3, 0.5)])
def test_the_factors_are_those_of_a_loop(actions, mixed):
    data = log(n=40, actions=actions, mixed=mixed)
    target = np.random.default_rng(1).dirichlet(np.ones(actions), data.n_steps)
    target[::7] = np.eye(actions)[0]  # some trajectories have weight 0
    found = {row.column: row.factor for row in benchmark_columns(data, target)}
    assert found == pytest.approx(by_loop(data, lambda t, b: target[t]), rel=1e-6)


def test_the_factors_of_a_target_relative_to_practice_are_those_of_a_loop():
    data, table = log(n=40), np.random.default_rng(1).dirichlet(np.ones(3), 120)
    mixture = cal.mix(cal.practice, table, 0.3)
    found = {row.column: row.factor for row in benchmark_columns(data, mixture)}
    assert found == pytest.approx(by_loop(data, lambda t, b: 0.7 * b + 0.3 * table[t]), rel=1e-6)
    assert {row.factor for row in benchmark_columns(data, cal.practice)} == {1.0}


def test_what_decides_most_is_strongest_and_what_others_tell_is_not_missed():
    uniform = np.full((900, 3), 1 / 3)
    rows = benchmark_columns(log(), uniform)
    assert [row.column for row in rows] == ["c2", "c1", "c0"]
    factors = {row.column: row.factor for row in rows}
    assert factors["c0"] < 1.3 < factors["c1"] < factors["c2"]
    # A copy of the strongest column: neither is missed alone.
    x = log().states
    twins = log().replace(states=np.column_stack([x, x[:, 2]]), feature_names=["c0", "c1", "c2", "copy"])
    again = {row.column: row.factor for row in benchmark_columns(twins, uniform)}
    assert again["c2"] == pytest.approx(1.0, abs=1e-6)
    constant = log().replace(
        states=np.column_stack([x, np.ones(900)]), feature_names=["c0", "c1", "c2", "one"]
    )
    assert {row.column: row.factor for row in benchmark_columns(constant, uniform)}["one"] == 1.0


def test_a_log_with_one_action_has_no_yardstick():
    data = cal.Trajectories(np.zeros((4, 1)), [0, 0, 0, 0], np.ones(4), [0, 2, 4], n_actions=2)
    assert benchmark_columns(data, np.full((4, 2), 0.5)) == ()


def test_a_breakdown_factor_is_held_against_the_columns():
    rows = (ColumnStrength("severity", 1.45), ColumnStrength("age", 1.05))
    assert compare_strength(rows, 1.1) == (
        "An unmeasured confounder as strong as severity (factor 1.45) would reverse the difference. A factor "
        "of 1.10 is enough; 1 of 2 recorded columns reach it."
    )
    assert compare_strength(rows, 2.0) == (
        "An unmeasured confounder as strong as severity (factor 1.45) would not reverse the difference."
    )
    assert compare_strength(rows, math.inf).endswith("would not reverse the difference.")
    assert compare_strength((), 1.1) == compare_strength(rows, math.nan) == ""


@pytest.mark.slow
def test_the_audit_holds_them():
    data = log(n=600, steps=1, strength=(0.2, 0.8))
    gain = data.replace(rewards=data.actions + 0.2 * data.states[:, 1])
    more = cal.tilt(cal.practice, [1.0, 1.0, 1.5])
    model = {"logistic": LogisticRegression()}
    found = cal.audit(gain, more, model, learnt_on="no", recorded_before="all", n_draws=400, rng=0)
    assert [row.column for row in found.benchmark] == ["c1", "c0"]
    assert json.loads(found.to_json())["benchmark"][0]["factor"] == pytest.approx(found.benchmark[0].factor)
    assert found.gain.interval.low > 0
    assert "An unmeasured confounder as strong as c1 (factor" in str(found)
    none = cal.audit(data, more, model, learnt_on="no", recorded_before="all", n_draws=400, rng=0)
    assert 0.0 in none.gain.interval
    assert "as strong as" not in str(none)  # there is nothing to reverse
    assert "A104" not in {f.code for f in none.findings}


# -- differences that are none --


@pytest.mark.parametrize(("low", "codes"), [(0.01, ["A104"]), (-0.01, [])])
def test_a_weak_confounder_is_a_note_only_where_there_is_a_difference(low, codes):
    gain = cal.Estimate("gain", "Gain", 0.05, cal.Interval(low, 0.1, 0.95), 400, 300.0)
    found = check_fragility(gain, to_flip=None, factor=1.1)
    assert [(f.code, f.level) for f in found] == [(code, "note") for code in codes]
    assert check_fragility(gain, to_flip=None, factor=1.3) == ()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_rounding_has_no_direction(scale):
    returns = scale * np.random.default_rng(0).normal(size=200)
    e = cal.Evidence(returns, np.zeros(200), np.arange(201))
    found = breakdown(e, baseline=float(returns.mean()) + 4e-17 * scale)
    assert found.factor == 1.0
    assert "no difference from current practice" in str(found)
    assert "better" not in str(found)
    shifted = breakdown(e, baseline=float(returns.mean()) + 1e-6 * scale)
    assert "worse" in str(shifted)
    assert 1 < shifted.factor < 1.001


def test_a_wide_log_is_measured_on_fewer_steps():
    assert steps_to_use(log()) == 10_000
    wide = log(n=3, strength=(0.1,) * 178, actions=25)
    assert steps_to_use(wide) == 12_000_000 // (178 * 25)
    assert steps_to_use(log(n=3, strength=(0.1,) * 900, actions=25)) == 1000


@pytest.mark.slow
def test_an_audit_has_the_yardstick_unless_probabilities_were_logged():
    data = ward.simulate(150, rng=0)
    given = {"regressor": TabularRegressor(), "n_draws": 20, "rng": 0, "progress": False}
    target, models = cal.TabularPolicy(ward.EARLIER), {"frequencies": TabularFrequencies()}
    found = cal.audit(data, target, models, **given)
    assert [each.column for each in found.benchmark] == ["state"]
    known = cal.audit(data, target, models, logged=data["behaviour"], **given)
    assert known.benchmark == ()
