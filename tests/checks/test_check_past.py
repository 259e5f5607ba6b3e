"""Practice that depends on the past or on the order of the log is named; practice that does not raises no alarm."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._past import Order, Past, in_file_order
from caliope.checks import _past as past_tests
from caliope.checks._past import (
    Strongest,
    check_past,
    find_cycle,
    find_strongest,
    order_functions,
    past_functions,
)
from caliope.domains import ward


def simulate(n, rng, *, practice=None, steps=5):
    """States of two features and three actions; ``practice(past) -> logits`` beside those of the state."""
    rng = np.random.default_rng(rng)
    x, rows = rng.normal(size=(n, 2)), []
    past = {"action": np.full(n, -1), "before": np.full(n, -1), "state": np.zeros((n, 2))}
    past |= {"reward": np.zeros(n), "when": (np.arange(n) + 0.5) / n}
    for _ in range(steps):
        logits = np.stack([np.zeros(n), x[:, 0], 0.5 * x[:, 1]], axis=1)
        logits += 0 if practice is None else practice(past)
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        a = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
        reward = (a == 1) + 0.5 * x[:, 0] + past["when"] + rng.normal(size=n)
        rows.append((x, a, reward))
        past |= {"before": past["action"], "action": a, "state": x, "reward": reward}
        x = 0.6 * x + 0.3 * (a == 1)[:, None] + 0.7 * rng.normal(size=(n, 2))
    states, actions, rewards = (
        np.stack(part, axis=1).reshape(n * steps, -1) for part in zip(*rows, strict=True)
    )
    return cal.Trajectories(states, actions.ravel(), rewards.ravel(), np.arange(n + 1) * steps, n_actions=3)


def after(action, which, by):
    return by * (action[:, None] == np.arange(3)) * (action[:, None] == which)


HISTORY = {
    "habit": (lambda p: after(p["action"], p["action"][:, None], 1.5), "after action"),
    "never twice": (lambda p: after(p["action"], p["action"][:, None], -20), "after action"),
    "lagged": (lambda p: 1.2 * p["state"][:, :1] * [0, 1, 0], "the previous x0 was high"),
    "two back": (lambda p: after(p["before"], p["before"][:, None], 1.5), "two steps after action"),
    "reward": (lambda p: 0.8 * p["reward"][:, None] * [0, 0, 1], "the previous reward was high"),
}
DRIFT = {
    "linear": (lambda p: 2.5 * p["when"][:, None] * [0, 1, 0], "late in the file"),
    "change": (lambda p: 1.2 * (p["when"] > 0.5)[:, None] * [0, 1, 0], "late in the file"),
    "season": (
        lambda p: 0.8 * np.sin(4 * np.pi * p["when"])[:, None] * [0, 1, 0],
        "in some parts of the file",
    ),
    "slope": (lambda p: 2 * (p["when"] - 0.5)[:, None] * p["state"][:, :1] * [0, 1, 0], "file"),
}


def findings(data, model=None):
    fitted = cal.fit_behaviour(model or LogisticRegression(), data, mode="cross", rng=0)
    return {finding.code: finding for finding in check_past(data, fitted.probabilities).findings}


@pytest.mark.parametrize("kind", HISTORY)
def test_practice_that_follows_the_past_is_named(kind):
    practice, where = HISTORY[kind]
    found = findings(simulate(500, 1, practice=practice))
    assert found.keys() == {"B107"}
    assert found["B107"].level == "issue"
    assert abs(found["B107"].numbers["z"]) > 5
    assert where in found["B107"].message


@pytest.mark.parametrize("kind", ["linear", "change", "season"])
def test_practice_that_changes_over_the_log_is_named(kind):
    practice, where = DRIFT[kind]
    found = findings(simulate(600, 1, practice=practice))
    # The past tells when it was, and is not blamed for that.
    assert found.keys() == {"B108"}
    assert found["B108"].level == "issue"
    assert where in found["B108"].message


def test_a_slope_that_changes_over_the_log_is_named():
    # On average over the states nothing changes.
    rng, n = np.random.default_rng(0), 2000
    x, when = rng.normal(size=n), (np.arange(n) + 0.5) / n
    actions = (rng.random(n) < 1 / (1 + np.exp(-4 * (when - 0.5) * x))).astype(int)
    data = cal.Trajectories(x[:, None], actions, np.zeros(n), np.arange(n + 1), feature_names=["age"])
    found = findings(data)
    assert "where age is high, late in the file" in found["B108"].message


@pytest.mark.slow
def test_right_models_raise_no_alarm():
    for seed in range(20):
        assert findings(simulate(400, 100 + seed)) == {}
        assert findings(ward.simulate(300, rng=100 + seed)) == {}


def test_an_ordinary_misfit_in_the_present_is_not_blamed_on_the_past():
    # A line through a curved practice, with states that persist.
    rng, n, steps = np.random.default_rng(0), 600, 5
    x = np.empty((n, steps))
    x[:, 0] = rng.normal(size=n)
    for t in range(1, steps):
        x[:, t] = 0.8 * x[:, t - 1] + 0.6 * rng.normal(size=n)
    actions = (rng.random(n * steps) < np.where(np.abs(x.ravel()) > 1, 0.7, 0.3)).astype(int)
    data = cal.Trajectories(x.reshape(-1, 1), actions, np.zeros(n * steps), np.arange(n + 1) * steps)
    table = cal.fit_behaviour(LogisticRegression(), data, mode="cross", rng=0)
    evidence = cal.gather(data, cal.practice, table)
    assert {note.code for note in evidence.notes} & {"B104", "B107", "B108"} == {"B104"}


def test_an_estimate_carries_what_the_log_says():
    data = simulate(500, 1, practice=HISTORY["habit"][0])
    fitted = cal.fit_behaviour(LogisticRegression(), data, mode="cross", rng=0)
    evidence = cal.gather(data, cal.practice, fitted)
    assert "B107" in {note.code for note in evidence.notes}
    known = cal.gather(data, cal.practice, fitted, behaviour_known=True)
    assert "B107" not in {note.code for note in known.notes}
    assert cal.estimate(evidence, cal.wis, n_draws=20, rng=0)["wis"].verdict == "do not trust"


def test_the_names_of_actions_are_in_the_text():
    data = simulate(500, 1, practice=HISTORY["habit"][0]).replace(action_names=["wait", "call", "send"])
    assert "after action '" in findings(data)["B107"].message


def test_both_sides_of_the_thresholds():
    p = 1e-3 / 2 / 100  # of one test of a hundred, on both sides
    from scipy.special import ndtri

    assert Strongest(-ndtri(p) + 0.001, 0.011, 0, 0, 100).clear
    assert not Strongest(-ndtri(p) - 0.001, 0.011, 0, 0, 100).clear
    assert not Strongest(-ndtri(p) + 0.001, 0.0099, 0, 0, 100).clear
    assert not Strongest(-ndtri(p) + 0.001, 0.011, 0, 0, 101).clear


@pytest.mark.parametrize(("z", "often"), [(9.0, "more"), (-9.0, "less")])
def test_the_direction_is_that_of_the_errors(z, often):
    found = Strongest(z, np.copysign(0.02, z), 1, 0, 100)
    (finding,) = past_tests._report(cal.checks.B108, found, ["after action 2"])
    assert finding.level == "issue"
    assert f"is taken {often} often than predicted after action 2 (z = {z:.1f}" in finding.message
    assert finding.numbers["effect"] == 0.02


def test_a_rare_action_that_was_never_taken_raises_no_alarm():
    # Expected six times after action 1, seen never: its errors are all small and alike, and look certain.
    n = 300
    actions = np.tile([1, 0], n)
    data = cal.Trajectories(np.zeros((2 * n, 1)), actions, np.zeros(2 * n), np.arange(n + 1) * 2, n_actions=3)
    proba = np.tile([0.5, 0.48, 0.02], (2 * n, 1))
    one = np.ones((2 * n, 1))
    strongest = find_strongest(data, proba, one * 0, (np.arange(2 * n) % 2 == 1)[:, None] * one)
    assert strongest.tests == 3
    z = past_tests._clustered(
        data, -proba[:, 2] * (np.arange(2 * n) % 2), 0.02 * 0.98 * (np.arange(2 * n) % 2)
    )
    assert z == pytest.approx(-6 / np.sqrt(300 * 0.02 * 0.98))


def test_the_statistic_is_that_of_a_plain_regression():
    data = simulate(60, 3)
    fitted = cal.fit_behaviour(LogisticRegression(), data, mode="cross", rng=0)
    proba, functions = fitted.probabilities, past_functions(data)[0]
    present = past_tests._present(data, proba)
    found = find_strongest(data, proba, present, functions)
    best = 0.0
    for f in functions.T:
        left = f - present @ np.linalg.lstsq(present, f, rcond=None)[0]
        for a in range(3):
            error = (data.actions == a) - proba[:, a]
            sums = [(error * left)[data.layout.owner == i].sum() for i in range(len(data))]
            square = max(np.square(sums).sum(), (proba[:, a] * (1 - proba[:, a]) * left**2).sum())
            z = np.sum(sums) / np.sqrt(square)
            best = z if abs(z) > abs(best) else best
    assert found.z == pytest.approx(best)


def test_the_past_is_that_of_a_plain_loop():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 7, size=20)
    n = int(lengths.sum())
    data = cal.Trajectories(
        rng.normal(size=(n, 2)),
        rng.integers(0, 3, n),
        rng.normal(size=n),
        np.r_[0, lengths.cumsum()],
        n_actions=3,
    )
    past = Past(data)
    for i in range(20):
        start = data.offsets[i]
        for t in range(lengths[i]):
            row, before = start + t, slice(start, start + t)
            a, x, r = data.actions[before].tolist(), data.states[before], data.rewards[before]
            assert past.steps[row] == t
            assert past.previous_action[row].tolist() == [float(t > 0 and a[-1] == k) for k in range(3)]
            assert past.action_before_that[row].tolist() == [float(t > 1 and a[-2] == k) for k in range(3)]
            assert past.counts[row].tolist() == [a.count(k) for k in range(3)]
            assert past.shares[row] == pytest.approx([a.count(k) / max(t, 1) for k in range(3)])
            assert past.previous_state[row] == pytest.approx(x[-1] if t else [0, 0])
            assert past.first_state[row] == pytest.approx(x[0] if t else [0, 0])
            assert past.mean_state[row] == pytest.approx(x.mean(axis=0) if t else [0, 0])
            pairs = [data.states[row, j] * (t > 0 and a[-1] == k) for j in range(2) for k in range(3)]
            assert past.pairs[row] == pytest.approx(pairs)
            assert past.previous_reward[row] == (r[-1] if t else 0)
            assert past.sum_of_rewards[row] == pytest.approx(r.sum())
            run = 0
            while run < t and a[-1 - run] == a[-1]:
                run += 1
            assert past.unchanged[row] == run


def test_functions_of_the_past_are_zero_where_there_is_none():
    data = simulate(50, 0)
    functions, where = past_functions(data)
    assert functions.shape == (data.n_steps, len(where))
    assert (functions[data.layout.first] == 0).all()
    bandit = cal.Trajectories(np.zeros((9, 1)), [0, 1, 1] * 3, np.zeros(9), np.arange(10))
    assert (past_functions(bandit)[0] == 0).all()
    assert check_past(bandit, np.full((9, 2), 0.5)).findings == ()


def test_the_order_is_that_of_the_calendar():
    order = Order.of(np.array([30.0, 10.0, 20.0, 10.0]))
    assert order.at(np.array([10.0, 20.0, 30.0])) == pytest.approx([0.25, 0.625, 0.875])
    assert order.waves(np.array([20.0]))[0, 1] == pytest.approx(np.cos(2 * np.pi * 0.625))
    data = simulate(3, 0)
    for calendar, by_file in (([2, 3, 9], True), ([2, 2, 9], False), ([0.5, 1, 2], False), (None, True)):
        dated = data.replace(calendar=calendar)
        assert in_file_order(dated) == in_file_order(dated.in_fixed_order()) == by_file
    assert len(order_functions(simulate(20, 0))[1]) == order_functions(simulate(20, 0))[0].shape[1]


def test_a_calendar_finds_what_the_order_of_the_file_hides():
    data = simulate(600, 1, practice=DRIFT["linear"][0])
    shuffled = np.random.default_rng(0).permutation(600)
    dated = data.replace(calendar=np.arange(600) / 2)[shuffled]
    assert "late in the calendar" in findings(dated)["B108"].message
    assert "B108" not in findings(dated.replace(calendar=None))


def test_features_beyond_those_that_are_paired_do_not_shift_the_names():
    """At most 100 pairs: of 6 features beside 20 actions the first 5, so that every function keeps its own name."""
    rng = np.random.default_rng(0)
    data = cal.Trajectories(
        rng.normal(size=(60, 6)), rng.integers(20, size=60), np.zeros(60), 3 * np.arange(21), n_actions=20
    )
    functions, where = past_functions(data)
    assert functions.shape[1] == len(where)
    assert [
        sum(text.startswith("where x") for text in where),
        "where x5 is high after action 0" in where,
    ] == [100, False]
    assert sum("was high, with action" in text for text in where) == 100
    second = data.layout.first + 1
    first_state = functions[second, where.index("where the first x5 was high")]
    assert np.corrcoef(first_state, data.states[data.layout.first, 5])[0, 1] == pytest.approx(1.0)


def test_units_of_a_feature_do_not_matter():
    """What is tested is what the present does not tell, in milligrams as in kilograms."""
    data = simulate(200, 0)
    proba = np.full((data.n_steps, data.n_actions), 1 / data.n_actions)
    one, other = (check_past(data.replace(states=scale * data.states + 1), proba) for scale in (1.0, 1e5))
    assert one.past.z == pytest.approx(other.past.z, rel=1e-6)
    assert one.order.z == pytest.approx(other.order.z, rel=1e-6)


@pytest.mark.parametrize("n", [99, 100])
def test_cycles_are_looked_for_from_a_hundred_trajectories_on(n):
    """Every second trajectory takes the other action: a period of 2, with a periodogram of n."""
    data = cal.Trajectories(np.zeros((n, 1)), np.arange(n) % 2, np.zeros(n), np.arange(n + 1))
    found = find_cycle(data, np.full((n, 2), 0.5))
    assert (found is None) if n < 100 else (found[1:3] == pytest.approx((2.0, 100.0)))
