"""The negative control: reweighting decisions must not change what was known before them."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit import prepare_audit, run_placebo
from caliope._audit._placebo import _policies, _predict_returns
from caliope._trees import ExtraTreesRegressor
from caliope.behaviour import fit_behaviour
from caliope.domains import ward
from caliope.values._fqe import returns_to_go


def draw(n, seed, *, steps=4, product=0.0):
    """Three actions, logistic in the state and, where asked, in a product; states and outcomes follow them."""
    rng = np.random.default_rng(seed)
    x, kept = rng.normal(size=(n, 3)), []
    for _ in range(steps):
        logits = x @ np.array([[0, 1, -1], [0, 0.5, 0.5], [0, -0.5, 1.0]])
        logits += product * np.outer(x[:, 0] * x[:, 1], [0, 1, -0.5])
        p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        a = (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1)
        kept.append((x, a, x[:, 0] + 0.5 * x[:, 0] * x[:, 1] + 0.3 * rng.normal(size=n), p))
        x = 0.7 * x + 0.3 * (a[:, None] - 1) * np.array([1, -0.5, 0.2]) + 0.6 * rng.normal(size=(n, 3))
    x, a, r, p = (np.stack(column, axis=1) for column in zip(*kept, strict=True))
    rows = n * steps
    data = cal.Trajectories(x.reshape(rows, 3), a.ravel(), r.ravel(), np.arange(0, rows + 1, steps))
    return data, p.reshape(rows, 3)


def heat(p, temperature):
    powered = p ** (1 / temperature)
    return powered / powered.sum(axis=1, keepdims=True)


def test_the_control_is_the_loop_that_it_says():
    data, gamma = ward.simulate(40, rng=0), 0.9
    p = cal.action_probabilities(cal.TabularPolicy(ward.PRACTICE), data.states, 3)
    found = run_placebo(data, p, gamma=gamma, rng=3)
    f = _predict_returns(data, gamma=gamma, rng=3)
    others = {
        f"action {a} at twice its odds": [q / q.sum() for q in (row * (1 + np.eye(3)[a]) for row in p)]
        for a in range(3)
    }
    others["decisions more clear-cut than practice"] = [row**1.5 / (row**1.5).sum() for row in p]
    others["decisions less clear-cut than practice"] = [row ** (2 / 3) / (row ** (2 / 3)).sum() for row in p]
    tried = {}
    for name, q in others.items():
        changes = []
        for i in range(len(data)):
            change = 0.0
            for t in range(data.lengths[i]):
                row = data.offsets[i] + t
                alive = [f[data.offsets[j] + t] for j in range(len(data)) if data.lengths[j] > t]
                ratio = q[row][data.actions[row]] / p[row][data.actions[row]]
                change += gamma**t * (ratio - 1) * (f[row] - sum(alive) / len(alive))
            changes.append(change)
        tried[name] = np.mean(changes), np.std(changes) / np.sqrt(len(changes))
    worst = max(tried, key=lambda name: abs(tried[name][0] / tried[name][1]))
    assert found.policy == worst
    assert found.tests == 5
    assert found.value - found.practice == pytest.approx(tried[worst][0], abs=1e-12)
    assert found.z == pytest.approx(tried[worst][0] / tried[worst][1])
    assert found.practice == pytest.approx(np.mean([f[o] for o in data.offsets[:-1]]))
    # 1 - 0.01 / (2 * 5) of a normal: 3.0902 standard errors on either side.
    assert found.error.width == pytest.approx(2 * 3.0902 * tried[worst][1], rel=1e-4)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_returns_to_go_are_sums_to_the_end_of_the_trajectory(gamma):
    data = ward.simulate(15, rng=1)
    by_hand = []
    for i in range(len(data)):
        rewards = data.rewards[data.offsets[i] : data.offsets[i + 1]]
        by_hand += [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]
    assert returns_to_go(data, gamma) == pytest.approx(np.array(by_hand))


def test_predictions_are_of_other_trajectories():
    data = ward.simulate(30, rng=0)
    before = _predict_returns(data, gamma=1.0, rng=0)
    rewards = data.rewards.copy()
    rewards[data.layout.rows_of(np.array([4]))] += 100.0
    after = _predict_returns(data.replace(rewards=rewards), gamma=1.0, rng=0)
    own = data.layout.rows_of(np.array([4]))
    assert (before[own] == after[own]).all()
    assert (before != after).any()


def test_the_ratios_of_every_policy_have_mean_one_in_every_state():
    data, p = draw(50, 0, steps=1)
    for action in range(3):
        taken = cal.Trajectories(data.states, np.full(50, action), data.rewards, data.offsets, n_actions=3)
        ratios = dict(_policies(taken, p))
        name = f"action {action} at twice its odds"
        assert ratios[name] == pytest.approx(2 / (1 + p[:, action]))
    every = [
        dict(
            _policies(
                cal.Trajectories(data.states, np.full(50, a), data.rewards, data.offsets, n_actions=3), p
            )
        )
        for a in range(3)
    ]
    for name in ("decisions more clear-cut than practice", "decisions less clear-cut than practice"):
        mean = sum(p[:, a] * every[a][name] for a in range(3))
        assert mean == pytest.approx(np.ones(50))


@pytest.mark.slow
def test_the_true_probabilities_pass_and_wrong_ones_do_not():
    levels = {"true": [], 0.7: [], 1.4: []}
    for seed in range(5):
        data, p = draw(1000, seed)
        for kind in levels:
            given = p if kind == "true" else heat(p, kind)
            levels[kind] += [x.level for x in run_placebo(data, given, gamma=1.0, rng=0).findings]
    assert levels["true"] == []  # at most 1 in 100 each
    assert len(levels[0.7]) == len(levels[1.4]) == 5
    assert {"caution", "issue"} >= set(levels[0.7] + levels[1.4])
    assert "issue" in levels[0.7]


def test_an_interaction_that_the_model_misses_is_found():
    data, _ = draw(2000, 1, product=1.0)
    linear = fit_behaviour(LogisticRegression(), data, mode="cross", rng=0)
    (finding,) = run_placebo(data, linear, gamma=1.0, rng=0).findings
    assert (finding.code, finding.level) == ("P101", "issue")
    assert finding.numbers["errors"] > 1
    assert abs(finding.numbers["z"]) > 3.09
    right, _ = draw(2000, 1)
    assert (
        run_placebo(
            right, fit_behaviour(LogisticRegression(), right, mode="cross", rng=0), gamma=1.0, rng=0
        ).findings
        == ()
    )


def test_a_clear_but_small_miss_is_a_note_and_a_larger_one_a_caution():
    # The more noise in the outcomes, the less the same wrong temperature matters beside their standard error.
    n, rng = 60_000, np.random.default_rng(0)
    x = rng.normal(size=(n, 1))
    p = 1 / (1 + np.exp(-x[:, 0]))
    a = (rng.random(n) < p).astype(int)
    wrong = heat(np.column_stack([1 - p, p]), 0.9)
    for noise, level, low, high in (
        (0.5, "issue", 1, 9),
        (2.0, "caution", 0.25, 1),
        (8.0, "note", 0, 0.25),
    ):
        data = cal.Trajectories(x, a, x[:, 0] + noise * rng.normal(size=n), np.arange(n + 1))
        (finding,) = run_placebo(data, wrong, gamma=1.0, rng=0).findings
        assert finding.level == level
        assert low < finding.numbers["errors"] <= high


def test_a_common_factor_and_constant_outcomes_miss_nothing():
    data, p = draw(200, 3)
    constant = data.replace(rewards=np.ones(data.n_steps))
    control = run_placebo(constant, heat(p, 0.3), gamma=1.0, rng=0)
    assert control.findings == ()
    assert control.value == pytest.approx(control.practice)


def test_a_forest_challenges_only_a_single_candidate(monkeypatch):
    log = ward.simulate(60, rng=0)
    called = []
    monkeypatch.setattr(
        "caliope._audit._prepare.fit_challenger", lambda part, rng: called.append(part) or _fitted(part)
    )
    prepare_audit(log, {"a": LogisticRegression(), "b": LogisticRegression(C=0.1)}, rng=0)
    assert not called
    prepare_audit(log, {"a": LogisticRegression()}, rng=0)
    assert len(called) == 1


def _fitted(part):
    return fit_behaviour(LogisticRegression(), part, mode="cross", rng=0)


def test_the_control_is_printed_and_kept():
    control = prepare_audit(ward.simulate(60, rng=0), {"a": LogisticRegression()}, rng=0).placebo
    assert "the mean predicted return should be" in control.describe()
    kept = control.to_dict()
    assert set(kept) == {"value", "practice", "error", "policy", "z", "tests", "n", "findings"}
    assert kept["error"]["level"] == 0.99


def test_the_prediction_uses_at_most_so_many_steps(monkeypatch):
    sizes = []
    fit = ExtraTreesRegressor.fit
    monkeypatch.setattr(
        ExtraTreesRegressor, "fit", lambda self, x, y: sizes.append(len(x)) or fit(self, x, y)
    )
    monkeypatch.setattr("caliope._audit._placebo._FITTED_ON", 100)
    data, _ = draw(200, 0)
    _predict_returns(data, gamma=1.0, rng=0)
    assert sizes == [100, 100]


def test_a_policy_that_a_probability_of_zero_cannot_weigh_is_left_out():
    data = ward.simulate(200, rng=0)
    p = cal.TabularPolicy(ward.PRACTICE).predict_proba(data.states)
    assert run_placebo(data, p, gamma=1.0, rng=0).tests == 5
    p[0], p[0, data.actions[0]] = 0.5, 0.0
    found = run_placebo(data, p, gamma=1.0, rng=0)
    assert found.tests == 4  # decisions less clear-cut than practice would divide by 0
    assert np.isfinite([found.value, found.z, found.error.low, found.error.high]).all()
