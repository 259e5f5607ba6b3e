"""Doses cut into other levels: policies in doses, levels cut anew or merged, and their rows among the other choices."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

import caliope as cal
from caliope._audit._choices import comparable_values
from caliope.behaviour import TabularFrequencies, fit_behaviour
from caliope.checks._audit import check_beyond
from caliope.io import RecommendedDoses
from caliope.io._doses import MERGED, cut_anew, merge_columns, merge_levels
from caliope.values import TabularRegressor, fit_default_values

N = 300
ANSWERS = {"learnt_on": "no", "recorded_before": "all"}
ASK = {"regressor": TabularRegressor(), "n_draws": 100} | ANSWERS | {"rng": 0, "progress": False}


def table(seed=0):
    """Visits with one dose each, which is larger where x is 1; the outcome is better the nearer it is to 60."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, N)
    dose = np.where(rng.random(N) < 0.3, 0.0, np.round(rng.uniform(1, 100, N) * (0.8 + 0.4 * x), 1))
    gain = rng.normal(1 - np.abs(dose - 60) / 60, 0.3)
    columns = {
        "visit": [f"v{i}" for i in range(N)],
        "x": x,
        "dose": dose,
        "advice": np.where(x == 1, 70.0, 45.0),
    }
    return pl.DataFrame(columns | {"drug": np.where(rng.random(N) < 0.5, "a", "b"), "gain": gain})


def read(**cutting):
    roles = {"episode": "visit", "action": "dose", "reward": "gain", "states": "x", "keep": ["advice"]}
    return cal.read_table(table(), **(roles | cutting))


def naive_level(dose, cuts):
    return sum(dose > cut for cut in cuts)


def test_doses_that_were_cut_are_kept_and_recommended_ones_are_cut_alike():
    data = read(levels=3)
    assert data["dose"].tolist() == table()["dose"].to_list()
    cuts = data.encoder.actions[0].cuts
    found = RecommendedDoses("advice").on(data)
    assert found.argmax(axis=1).tolist() == [naive_level(dose, cuts) for dose in table()["advice"]]
    assert (found.sum(axis=1) == 1).all()
    picked = data[[5, 2]]
    assert RecommendedDoses(["advice"]).on(picked).tolist() == found[[5, 2]].tolist()


def test_recommended_doses_need_a_column_for_each_action():
    with pytest.raises(ValueError, match=r"has 1 action columns .* and 2 recommended ones are named"):
        RecommendedDoses(["advice", "dose"]).on(read(levels=2))
    with pytest.raises(ValueError, match="0 action columns"):
        RecommendedDoses("advice").on(read(levels=2).replace(encoder=None))
    with pytest.raises(KeyError, match="no column or feature 'advise'; there are advice"):
        RecommendedDoses("advise").on(read(levels=2))


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_one_level_fewer_and_one_more_are_those_of_reading_the_table_so(levels):
    found = cut_anew(read(levels=levels))
    others = [k for k in (levels - 1, levels + 1) if k >= 1]
    assert len(found) == len(others)
    for other, k in zip(found, others, strict=True):
        again, expected = other.cut(read(levels=levels)), read(levels=k)
        assert other.encoder.actions[0].cuts == expected.encoder.actions[0].cuts
        assert again.actions.tolist() == expected.actions.tolist()
        assert again.action_names == expected.action_names
        assert other.name == f"dose cut at {', '.join(f'{x:.6g}' for x in expected.encoder.actions[0].cuts)}"


def test_of_levels_that_merge_no_dose_stays_apart_and_the_fewest_decisions_change():
    data = read(cuts=[0, 20, 50, 60, 100])
    doses = data["dose"]
    levels = np.array([naive_level(dose, (0, 20, 50, 60, 100)) for dose in doses])
    counts = [int((levels == k).sum()) for k in range(6)]
    pairs = {lower: counts[lower] + counts[lower + 1] for lower in range(1, 5)}
    lower = min(pairs, key=pairs.get)
    (merged,) = merge_levels(data)
    expected = [code - (code > lower) for code in levels]
    assert merged.cut(data).actions.tolist() == expected
    assert merged.merged.tolist() == [k - (k > lower) for k in range(6)]
    assert merged.name.endswith(MERGED)
    probs = np.random.default_rng(0).dirichlet(np.ones(6), size=4)
    by_hand = [[sum(row[k] for k in range(6) if merged.merged[k] == j) for j in range(5)] for row in probs]
    np.testing.assert_allclose(merge_columns(probs, merged), by_hand)


def test_of_two_drugs_each_is_cut_by_itself():
    data = read(action=["drug", "dose"], levels=None, cuts={"dose": [0, 50]})
    (merged,) = merge_levels(data)
    # (a, 0), (a, some), (a, much), (b, 0), (b, some), (b, much): some and much become one.
    assert merged.merged.tolist() == [0, 1, 1, 2, 3, 3]
    assert merged.cut(data).actions.tolist() == [merged.merged[k] for k in data.actions]
    assert merged.cut(data).action_names == (
        "drug a, dose 0",
        "drug a, dose above 0",
        "drug b, dose 0",
        "drug b, dose above 0",
    )
    assert [other.name.partition(" cut")[0] for other in cut_anew(data)] == ["dose", "dose"]


@pytest.mark.parametrize(
    ("cutting", "changes"),
    [
        ({"action": "drug"}, {}),
        ({"levels": 2}, {"columns": {}}),
        ({"levels": 2}, {"n_actions": 7, "action_names": None}),
        ({"levels": 2}, {"encoder": None}),
    ],
)
def test_without_doses_behind_the_levels_there_is_nothing_to_cut(cutting, changes):
    data = read(**cutting).replace(**changes)
    assert cut_anew(data) == merge_levels(data) == ()


@pytest.fixture(scope="module")
def prepared():
    return cal.prepare_audit(
        read(levels=2), {"counts": TabularFrequencies()}, recorded_before="all", rng=0, progress=False
    )


def ask(prepared, target):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return prepared.audit(
            target, regressor=TabularRegressor(), n_draws=100, learnt_on="no", progress=False
        )


def values_of(rows, name):
    return {(row.weights, row.estimator): row.value for row in rows if row.model == name}


def test_a_policy_in_doses_is_evaluated_with_other_levels_as_if_the_table_had_been_read_so(prepared):
    found = ask(prepared, RecommendedDoses("advice"))
    assert found.settings.target == "RecommendedDoses"
    for k in (1, 3):
        data = read(levels=k).in_fixed_order()
        cuts = ", ".join(f"{x:.6g}" for x in data.encoder.actions[0].cuts)
        target = RecommendedDoses("advice").on(data)
        behaviour = fit_behaviour(TabularFrequencies(), data, mode="cross", rng=0)
        q, _ = fit_default_values(data, target, TabularRegressor(), gamma=1.0, rng=0)
        expected = cal.sensitivity.try_other_choices(data, target, {"it": behaviour}, gamma=1.0, q=q, rng=0)
        assert values_of(found.others, f"counts, dose cut at {cuts}") == pytest.approx(
            values_of(expected, "it"), rel=1e-12
        )


def test_levels_cut_anew_count_among_the_other_choices_and_merged_ones_do_not(prepared):
    anew = ask(prepared, RecommendedDoses("advice"))
    names = {row.model for row in anew.others if "cut at" in row.model}
    assert len(names) == 2
    counted = comparable_values(anew.others, prepared)
    assert {row.value for row in anew.others if row.model in names and row.weights == "capped"} <= {*counted}
    probs = np.tile([0.2, 0.2, 0.6], (N, 1))
    merged = ask(prepared, probs)
    rows = [row for row in merged.others if "cut at" in row.model]
    assert rows
    assert all(row.model.endswith(MERGED) for row in rows)
    assert not {row.value for row in rows} & {*comparable_values(merged.others, prepared)}
    # Above 0 is one level: the policy then differs from practice only in how often there is a dose at all.
    data = prepared.data
    table = np.column_stack([np.full(N, 0.2), np.full(N, 0.8)])
    cut = prepared.recut_merged[0].data
    weights = (
        table[np.arange(N), cut.actions]
        / prepared.recut_merged[0].behaviour.probabilities[np.arange(N), cut.actions]
    )
    assert cut.actions.tolist() == (data["dose"] > 0).astype(int).tolist()
    plain = values_of(rows, rows[0].model)[("as they are", "Weighted importance sampling")]
    assert plain == pytest.approx(float(weights @ data.rewards / weights.sum()), rel=1e-10)


def test_a_mixture_with_practice_is_merged_inside_the_mixture(prepared):
    probs = np.tile([0.2, 0.2, 0.6], (N, 1))
    rows = [
        row for row in ask(prepared, cal.mix(cal.practice, probs, 0.0)).others if row.model.endswith(MERGED)
    ]
    # A share of 0 is practice itself: every weight is 1.
    assert [row.value for row in rows] == pytest.approx([float(prepared.data.rewards.mean())] * len(rows))


def test_neither_practice_nor_recorded_probabilities_are_cut_otherwise(prepared):
    assert not [row for row in ask(prepared, cal.practice).others if "cut at" in row.model]
    data = read(levels=2)
    logged = np.full(N, 1 / 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cal.audit(
            data, RecommendedDoses("advice"), {"counts": TabularFrequencies()}, logged=logged, **ASK
        )
    assert not [row for row in found.others if "cut at" in row.model]


@pytest.mark.parametrize(
    ("rows", "advice", "expected"),
    [
        (0, 7000.0, []),
        (2, 7000.0, [("note", 2 / N, 7000.0)]),
        (3, 7000.0, [("caution", 3 / N, 7000.0)]),
        (30, 7000.0, [("issue", 30 / N, 7000.0)]),
        (3, -0.5, [("caution", 3 / N, -0.5)]),  # below 0, where nothing in the log is
        (3, "a tenth", []),
        (3, "more than a tenth", [("caution", 3 / N, None)]),
    ],
)
def test_recommended_doses_beyond_those_of_the_log_are_judged_by_their_share(rows, advice, expected):
    log = table()
    high = float(log["dose"].max())
    if isinstance(advice, str):
        advice = high * (1.1 if advice == "a tenth" else 1.1001)
    changed = log.with_columns(
        advice=pl.when(pl.int_range(N) < rows).then(advice).otherwise(pl.col("advice"))
    )
    data = cal.read_table(
        changed,
        episode="visit",
        action="dose",
        reward="gain",
        states="x",
        keep=["advice"],
        levels=2,
    )
    found = check_beyond(RecommendedDoses("advice").beyond(data))
    assert [(x.level, x.facts["share"], x.facts["worst"]) for x in found] == [
        (level, share, advice if worst is None else worst) for level, share, worst in expected
    ]
    for finding in found:
        assert (finding.facts["low"], finding.facts["high"]) == (0.0, high)


@pytest.mark.slow
def test_an_audit_says_so_of_a_policy_in_doses_and_of_its_mixture():
    log = table().with_columns(advice=pl.lit(7000.0))
    data = cal.read_table(
        log, episode="visit", action="dose", reward="gain", states="x", keep=["advice"], levels=2
    )
    policy = RecommendedDoses("advice")
    for target in (policy, cal.mix(cal.practice, policy, 0.3)):
        found = cal.audit(data, target, {"frequencies": TabularFrequencies()}, **ASK)
        assert ("S103", "issue") in [(x.code, x.level) for x in found.headline.findings]
        assert "S103" not in [x.code for x in found.practice.findings]
