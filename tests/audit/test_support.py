"""Regions without choice: found where they are, counted as a loop counts, and kept out of by a restricted policy."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import caliope as cal
from caliope._support import Region, RestrictedPolicy, Side, Support, asked_of_practice, find_support
from caliope.checks._regions import Box, Uses, find_empty, make_grid

STEPS = 4
EFFECT, HARM = 0.3, -4.0  # of the action, elsewhere and where it was never taken


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def in_hole(x):
    return (x[:, 0] > 1.0) & (x[:, 1] > 0.5)


def practice(x, *, hole):
    p = sigmoid(-1 + 0.8 * x[:, 0] + 0.4 * x[:, 1])
    return np.where(in_hole(x), 0.0, p) if hole else p


def log(n=1000, *, seed=0, hole=True):
    """Two actions; with a hole the second was never taken in 4.9% of the states."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n * STEPS, 3))
    a = (rng.random(n * STEPS) < practice(x, hole=hole)).astype(int)
    r = a * np.where(in_hole(x), HARM, EFFECT) + 0.5 * rng.normal(size=n * STEPS)
    names = ["severity", "age", "noise"]
    return cal.Trajectories(
        x,
        a,
        r,
        np.arange(n + 1) * STEPS,
        feature_names=names,
        action_names=["wait", "treat"],
        terminated=np.ones(n, bool),
    )


def smooth(data):
    """What a smooth model makes of it."""
    model = LogisticRegression().fit(data.states, data.actions)
    return model.predict_proba(data.states)


def support_of(data, target=0.5):
    wanted = np.full((data.n_steps, 2), [1 - target, target])
    return find_support(data, wanted, smooth(data), rng=0)


@pytest.fixture(scope="module")
def holed():
    data = log()
    return data, support_of(data)


def test_a_region_is_found_where_it_is_and_counted_as_a_loop_counts(holed):
    data, support = holed
    region = support.regions[0]
    expected, rows, wanted, taken = smooth(data), 0, 0.0, [0, 0]
    total = 0.0
    for t in range(data.n_steps):
        x = data.states[t]
        if all(side.low < x[side.column] <= side.high for side in region.sides):
            rows, wanted, total = rows + 1, wanted + 0.5, total + expected[t, 1]
            taken[data.actions[t]] += 1
    assert (region.action, region.alone, region.rows, region.taken) == (1, False, rows, tuple(taken))
    assert taken[1] == 0
    assert region.target == pytest.approx(wanted)
    assert region.share == pytest.approx(wanted / data.n_steps)
    assert region.expected == pytest.approx(total)
    # Most of the hole, and of other states only what lies at its edges.
    hole, found = in_hole(data.states), region.holds(data.states)
    assert found[hole].mean() > 0.85
    assert found[~hole].mean() < 0.01
    assert region.rule.startswith("severity > 0.9") or region.rule.startswith("severity > 1")
    assert "age >" in region.rule
    assert "noise" not in region.rule


def test_the_mass_counts_every_decision_once(holed):
    _, support = holed
    low = Side(0, "x", low=0.0)
    pair = [
        Region((low,), 1, False, 1, 1.0, 1.0, 0.1, (1, 0, 0)),
        Region((low,), 0, True, 1, 1.0, 1.0, 0.1, (1, 0, 0)),
    ]
    assert [region.missing.tolist() for region in pair] == [[False, True, False], [False, True, True]]
    assert support.mass <= sum(region.share for region in support.regions) + 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_a_smooth_practice_leaves_a_choice(seed):
    assert support_of(log(seed=seed, hole=False)) == Support()


def test_a_model_that_has_learnt_the_hole_does_not_hide_it_in_a_larger_log():
    # With 1,000 trajectories it is found in 40% of such logs, with 2,000 in 95%.
    data = log(4000, seed=3)
    expected = np.column_stack([1 - practice(data.states, hole=True), practice(data.states, hole=True)])
    found = find_support(data, np.full((data.n_steps, 2), 0.5), np.clip(expected, 0.001, 0.999), rng=0)
    assert found.mass > 0.01


def test_where_one_action_stands_alone_and_states_are_few():
    rng = np.random.default_rng(1)
    x = rng.choice(8, size=(3000, 1)).astype(float)
    probs = np.where(x == 5, [[0, 1, 0, 0, 0]], np.full((1, 5), 0.2))
    a = (probs.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1)
    data = cal.Trajectories(x, a, np.zeros(3000), np.arange(0, 3001, 3), n_actions=5, feature_names=["stage"])
    uniform = np.full((3000, 5), 0.2)
    found = find_support(data, uniform, uniform, rng=0)
    assert {region.rule for region in found.regions} == {"stage = 5"}
    first = found.regions[0]
    assert (first.action, first.alone) == (1, True)
    assert found.mass == pytest.approx(0.8 * (x == 5).mean())
    assert found.restrict(cal.UniformPolicy(5)).predict_proba([[5.0], [4.0]]).tolist() == [
        [0, 1, 0, 0, 0],
        [0.2] * 5,
    ]


def test_what_is_usual_and_the_least_that_is_a_choice():
    taken, wanted, expected = (
        np.array([0.0, 1.0, 0.0, 0.0]),
        np.array([0.5, 0.5, 0.1, 0.1]),
        np.array([0.5, 0.0, 0.5, 0]),
    )
    uses = Uses.of(taken, wanted, expected)
    assert uses.usual.tolist() == [0.5, 0.125, 0.5, 0.125]  # never below half of 1 in 4
    assert uses.least.tolist() == pytest.approx([0.1, 0.05, 0.02, 0.02])


def test_an_empty_rectangle_that_others_do_not_confirm_is_chance():
    rng = np.random.default_rng(2)
    x, fold = rng.random((3000, 1)), np.arange(3000) % 3
    taken = (rng.random(3000) < 0.3).astype(float)
    both = np.where(x[:, 0] > 0.9, 0.0, taken)
    one = np.where((x[:, 0] > 0.9) & (fold != 2), 0.0, taken)  # empty where it is searched, once
    expected = np.full(3000, 0.3)
    found = [find_empty(make_grid(x), fold, Uses.of(t, expected, expected), searches=1) for t in (both, one)]
    assert found[1] == ()
    (box,) = found[0]
    assert box.low[0] == pytest.approx(0.9, abs=0.01)
    assert box.high[0] == np.inf
    assert not both[box.holds(x)].any()


def test_a_box_holds_what_lies_above_low_and_at_most_at_high():
    box = Box((0, 1), (0.0, -np.inf), (1.0, 2.0))
    x = np.array([[0.0, 0.0], [0.5, 2.0], [1.0, 2.1], [1.0, -9.0], [1.1, 0.0]])
    assert box.holds(x).tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("mass", "level"),
    [(0.0029, None), (0.003, "caution"), (0.0049, "caution"), (0.005, "issue"), (0.3, "issue")],
)
def test_levels_of_the_finding(mass, level):
    region = Region(
        (Side(0, "severity", low=3.1), Side(1, "age", high=40.0)), 1, False, 80, 20.4, 40.0, mass, (80, 0)
    )
    found = Support((region,), mass).findings()
    assert [(f.code, f.level, f.numbers["mass"]) for f in found] == ([("S102", level, mass)] if level else [])
    if level:
        assert (
            "Where severity > 3.1 and age <= 40, action 1 was never taken in 80 decisions" in found[0].message
        )
        assert "expects it 20 times" in found[0].message
        assert found[0].concerns == {"support", "weights", "values"}


def test_several_regions_are_counted_in_the_text():
    alone = Region((Side(0, "stage", 4.0, 5.0, only=5.0),), 2, True, 50, 30.0, 30.0, 0.01, (0, 0, 50))
    other = Region((Side(0, "stage", high=1.0),), 0, False, 40, 20.0, 20.0, 0.004, (0, 40, 40))
    (found,) = Support((alone, other), 0.014).findings()
    assert "Where stage = 5, action 2 was taken in all 50 decisions" in found.message
    assert "the largest of 2 such regions. They hold 1.40%" in found.message


def restrict_by_loop(table, states, regions):
    out = table.copy()
    for t, row in enumerate(states):
        inside = [r for r in regions if all(s.low < row[s.column] <= s.high for s in r.sides)]
        if not inside:
            continue
        gone = {a for r in inside for a in range(table.shape[1]) if (a == r.action) != r.alone}
        left = [0.0 if a in gone else table[t, a] for a in range(table.shape[1])]
        if sum(left) == 0:
            left = [0.0 if a in gone else sum(r.taken[a] for r in inside) for a in range(table.shape[1])]
        out[t] = np.array(left) / sum(left)
    return out


def test_a_restricted_policy_is_that_of_a_loop():
    rng = np.random.default_rng(4)
    states, table = rng.normal(size=(200, 2)), rng.dirichlet(np.ones(3), 200)
    table[:60] = [0.0, 1.0, 0.0]  # nothing left, where 1 is missing
    regions = (
        Region((Side(0, "x", low=0.0),), 1, False, 9, 1.0, 1.0, 0.1, (6, 0, 3)),
        Region((Side(1, "y", low=-1.0, high=0.5),), 0, True, 4, 1.0, 1.0, 0.1, (4, 0, 0)),
    )
    support = Support(regions, 0.1, states)
    expected = restrict_by_loop(table, states, regions)
    assert support.restrict(table) == pytest.approx(expected)
    assert (expected != table).any(axis=1).sum() > 100

    class Known:
        classes_ = np.arange(3)

        def predict_proba(self, x):
            return table

    policy = support.restrict(Known())
    assert isinstance(policy, RestrictedPolicy)
    assert policy.predict_proba(states) == pytest.approx(expected)
    mixed = support.restrict(cal.mix(cal.practice, Known(), 0.5))
    assert mixed.share == 0.5
    assert mixed.policy.predict_proba(states) == pytest.approx(expected)
    tilted = cal.tilt(cal.practice, [1.0, 2.0, 1.0])
    assert support.restrict(tilted) is tilted
    assert support.restrict(cal.practice) is cal.practice
    with pytest.raises(ValueError, match=r"shape \(200, 3\); got an array of shape \(7, 3\)"):
        support.restrict(table[:7])


def test_a_share_of_the_decisions_has_a_share_of_the_mass():
    region = Region((Side(0, "x", low=0.0),), 1, False, 80, 20.0, 40.0, 0.02, (80, 0))
    whole = Support((region,), 0.02)
    half = whole.scale(0.5)
    assert (half.mass, half.regions[0].share, half.regions[0].target) == (0.01, 0.01, 20.0)
    assert [f.level for x in (0.1, 0.2, 0.3) for f in whole.scale(x).findings()] == ["caution", "issue"]


def test_what_is_asked_of_practice():
    data = log(20)
    table = np.full((80, 2), 0.5)
    assert asked_of_practice(cal.UniformPolicy(2), table, data) is table
    assert asked_of_practice(cal.practice, table, data) is None
    assert asked_of_practice(cal.tilt(cal.practice, [1.0, 2.0]), table, data) is None
    mixed = cal.mix(cal.practice, cal.UniformPolicy(2), 0.4)
    assert asked_of_practice(mixed, table, data) == pytest.approx(0.2)


FAST = {
    "models": {"logistic": LogisticRegression()},
    "regressor": LinearRegression(),
    "n_draws": 20,
    "rng": 0,
}
ANSWERS = {"learnt_on": "no", "recorded_before": "all"}


@pytest.mark.slow
def test_an_audit_refuses_the_policy_and_evaluates_the_restricted_one(tmp_path):
    data, target = log(seed=6), cal.UniformPolicy(2)
    found = cal.audit(data, target, **FAST, **ANSWERS)
    truth = (
        STEPS
        * 0.5
        * (EFFECT + (HARM - EFFECT) * in_hole(np.random.default_rng(0).normal(size=(10**6, 2))).mean())
    )
    assert abs(found.headline.value - truth) > 0.2  # what other states say fills the hole
    (about,) = [f for f in found.findings if f.code == "S102"]
    assert (about.level, found.verdict) == ("issue", "do not trust")
    assert about.numbers["mass"] == found.support.mass > 0.02
    assert "action 'treat' was never taken" in str(found)
    assert found.reach.at(0.5).verdict == "do not trust"
    kept = json.loads(found.to_json())["support"]
    assert kept["regions"][0]["rule"] == found.support.regions[0].rule
    page = found.write_html(tmp_path / "report.html").read_text()
    assert "Where current practice leaves no choice" in page
    restricted = found.support.restrict(target)
    again = cal.audit(data, restricted, **FAST, **ANSWERS)
    assert "S102" not in {f.code for f in again.findings}
    x = np.random.default_rng(1).normal(size=(400_000, 3))
    treated = restricted.predict_proba(x)[:, 1]
    known = STEPS * float((treated * np.where(in_hole(x), HARM, EFFECT)).mean())
    assert again.headline.interval.low < known < again.headline.interval.high
    table = found.support.restrict(np.full((data.n_steps, 2), 0.5))
    assert table == pytest.approx(restricted.predict_proba(data.states))


@pytest.mark.slow
def test_a_comparison_restricts_the_policies_that_it_changes():
    data, half = log(600, seed=6), np.full((2400, 2), 0.5)
    targets = {"half": half, "practice": cal.practice}
    plain, kept_out = (cal.compare(data, targets, **FAST, **ANSWERS, restrict=x) for x in (False, True))
    assert plain.table["half"].verdict == "do not trust"
    assert plain.restricted == {}
    assert set(kept_out.restricted) == {"half"}  # practice does what practice does
    assert "it was restricted, as asked" in " ".join(str(kept_out).split())
    assert "it was restricted, as asked" in kept_out.audits["half"].settings.question
    # The same as an audit of the policy that was restricted by hand.
    alone = plain.audits["half"].support.restrict(half)
    assert kept_out.audits["half"].headline.value == cal.audit(data, alone, **FAST, **ANSWERS).headline.value
    assert json.loads(kept_out.to_json())["restricted"] == dict(kept_out.restricted)


def test_a_learner_cannot_be_restricted():
    with pytest.raises(ValueError, match="restrict needs policies that are given, and not learn"):
        cal.compare(
            log(50),
            {"half": cal.UniformPolicy(2)},
            learn={"own": LogisticRegression()},
            restrict=True,
            **FAST,
        )
    with pytest.raises(ValueError, match="restrict needs behaviour probabilities of all actions"):
        cal.compare(
            log(50), {"a": cal.practice, "b": cal.practice}, logged=np.full(200, 0.5), restrict=True, **FAST
        )
    with pytest.raises(TypeError, match="restrict must be True or False"):
        cal.compare(log(50), {"a": cal.practice, "b": cal.practice}, restrict="a", **FAST)


def test_logged_probabilities_say_themselves_what_had_support():
    data = log(200, hole=False)
    p = practice(data.states, hole=False)
    known = np.where(data.actions == 1, p, 1 - p)
    found = cal.audit(data, cal.UniformPolicy(2), logged=known, **FAST)
    assert found.support == Support()
