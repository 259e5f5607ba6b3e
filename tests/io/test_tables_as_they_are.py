"""read_table on tables as people have them: words, categories, gaps, doses; and what is never looked at."""

from __future__ import annotations

import pickle
from datetime import date

import numpy as np
import pandas as pd
import polars as pl
import pytest

import caliope as cal
from caliope.io import read_table
from caliope.io._encoder import last_known
from caliope.io._learn import rare_below
from support.raw_tables import HOSPITAL, SHOP, hospital, shop

ROLES = {"episode": "e", "action": "a", "reward": "r", "states": "x"}


def read(roles=None, **columns):
    n = len(next(iter(columns.values())))
    base = {"e": [1] * (n // 2) + [2] * (n - n // 2), "a": [0, 1] * (n // 2) + [0] * (n % 2), "r": [0.0] * n}
    frame = pl.DataFrame(base | {"x": [1.0] * n} | columns, strict=False)
    return read_table(frame, **(ROLES | (roles or {})))


# -- actions --


def test_words_are_actions_in_sorted_order_and_keep_their_names():
    data = read(a=["low", "none", " high", "none"])
    assert data.action_names == ("high", "low", "none")
    assert data.actions.tolist() == [1, 2, 0, 2]
    assert "coded in sorted order: 0 high, 1 low, 2 none" in data.encoder.describe()["action 'a'"]
    assert data.encoder.encode_actions(["none", "high"]).tolist() == [2, 0]
    with pytest.raises(ValueError, match=r"'hgih' \(close: 'high'\) in 1 rows, which was never taken"):
        data.encoder.encode_actions(["hgih"])


def test_one_action_written_in_two_ways_is_named():
    told = read(a=["low", "Low", "high", "low"]).encoder.describe()["action 'a'"]
    assert told.endswith("; Low and low differ in capitals alone, and count as different actions")
    assert "capitals" not in read(a=["low", "high", "low", "low"]).encoder.describe()["action 'a'"]


def test_a_type_that_orders_its_names_decides_the_codes():
    order = ["none", "low", "high"]
    ordered = pl.Series("a", ["low", "none", "low", "none"], dtype=pl.Enum(order))
    data = read(a=ordered)
    assert (data.action_names, data.actions.tolist()) == (tuple(order), [1, 0, 1, 0])
    assert "in the order of their type" in data.encoder.describe()["action 'a'"]
    frame = pd.DataFrame({"e": [1, 1], "r": [0, 1], "x": [1, 2]})
    frame["a"] = pd.Categorical(["low", "none"], categories=order, ordered=True)
    assert read_table(frame, **ROLES).action_names == tuple(order)


def test_booleans_are_actions_with_names_and_numbers_stay_without():
    assert read(a=[True, False, True, True]).action_names == ("False", "True")
    assert read(a=[True, False, True, True]).actions.tolist() == [1, 0, 1, 1]
    assert read(a=[0, 1, 2, 0]).action_names is None
    assert read(a=pl.Series(["10", "9", "9", "10"], dtype=pl.Categorical)).action_names == ("9", "10")


@pytest.mark.parametrize("hole", [None, "", "NA"])
def test_an_action_is_never_filled_in(hole):
    with pytest.raises(ValueError, match=r"'a': 1 of 4 rows hold no action \(first: episode 1, step 1\)"):
        read(a=["low", hole, "low", "none"])


def test_one_odd_cell_does_not_make_a_category_of_numbers():
    with pytest.raises(
        ValueError, match=r"'a' \(action\) is text and holds numbers for the most part, but also 'x'"
    ):
        read(a=["0", "1", "x", "1"])
    with pytest.raises(TypeError, match=r"'x' \(state\) is text that holds numbers, such as '1.5'.*Cast"):
        read(x=["1.5", "2", "2", "3"])


def naive_level(dose, cuts):
    return sum(dose > cut for cut in cuts)


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_doses_are_cut_at_quantiles_of_the_positive_ones_with_zero_apart(levels):
    rng = np.random.default_rng(0)
    doses = np.where(rng.random(300) < 0.3, 0.0, rng.gamma(2.0, 100.0, 300))
    data = read({"levels": levels}, a=doses.tolist())
    cuts = data.encoder.actions[0].cuts
    assert cuts[0] == 0
    assert data.actions.tolist() == [naive_level(dose, cuts) for dose in doses]
    counts = np.bincount(data.actions)
    assert counts[0] == (doses == 0).sum()
    assert np.ptp(counts[1:]) <= 1  # equal shares of the positive ones
    assert data.action_names[0] == "0"
    assert len(data.action_names) == levels + 1
    assert f"{cuts[-1]:.6g}" in data.encoder.describe()["action 'a'"]


def test_doses_are_cut_where_asked_and_recommended_ones_alike():
    data = read({"cuts": [0, 50]}, a=[0.0, 50.0, 50.5, 7])
    assert data.actions.tolist() == [0, 1, 2, 1]
    assert data.action_names == ("0", "above 0 to 50", "above 50")
    assert data.encoder.encode_actions([0.0, 49.9, 1e6]).tolist() == [0, 1, 2]
    assert read({"cuts": [-1.5]}, a=[-2, -1.5, 0, 1]).action_names == ("up to -1.5", "above -1.5")


def test_doses_that_repeat_give_fewer_levels_and_it_is_said():
    data = read({"levels": 4}, a=[0, 100, 100, 100, 100, 200.5])
    assert data.n_actions < 5
    assert "instead of 4, because doses repeat" in data.encoder.describe()["action 'a'"]


@pytest.mark.parametrize(
    ("given", "doses", "said"),
    [
        ({}, [0.0, 12.5, 1.5, 3], r"levels=4 takes quantiles .* cuts=\[0, 50\].*--levels"),
        ({"levels": 2}, [0.0, -1.5, 2, 3], "1 of 4 doses are negative.*--cuts"),
        ({"levels": 2}, [0.0, 0, 0, 0], "no dose is positive"),
        ({"levels": 2}, [0.0, None, 2, 3], "1 of 4 rows hold no finite dose"),
        ({"levels": 0}, [0.0, 1, 2, 3], "levels must be a whole number from 1"),
        ({"levels": 2, "cuts": [1]}, [0.0, 1, 2, 3], "levels or cuts"),
        ({"cuts": [2, 1]}, [0.0, 1, 2, 3], "rising numbers"),
        ({"cuts": {"b": [1]}}, [0.0, 1, 2, 3], "'b', which is no action column"),
    ],
)
def test_doses_that_cannot_be_cut_are_refused(given, doses, said):
    with pytest.raises(ValueError, match=said):
        read(given, a=doses)


def test_two_columns_are_one_action():
    data = read({"action": ["a", "b"], "cuts": {"a": [0]}}, a=[0, 10, 10, 0], b=["x", "y", "x", "y"])
    assert data.action_names == ("a 0, b x", "a 0, b y", "a above 0, b x", "a above 0, b y")
    assert data.actions.tolist() == [0, 3, 2, 1]
    again = data.encoder.encode_actions(pl.DataFrame({"a": [0.0, 5.0], "b": ["y", "y"]}))
    assert again.tolist() == [1, 3]


# -- states --


def test_categories_are_one_feature_per_level_and_two_levels_are_one():
    data = read(
        {"states": ["x", "s", "b"]},
        x=["c", "a", "b", "a"],
        s=["m", "f", "m", "m"],
        b=[True, False, True, True],
    )
    assert data.feature_names == ("x=a", "x=b", "x=c", "s=m", "b")
    expected = [[0, 0, 1, 1, 1], [1, 0, 0, 0, 0], [0, 1, 0, 1, 1], [1, 0, 0, 1, 1]]
    assert data.states.tolist() == expected
    assert data.states.dtype == np.float64


def test_rare_levels_are_pooled_and_it_is_said():
    n = 200
    levels = ["big"] * 100 + ["other"] * 88 + ["r1"] * 5 + ["r2"] * 4 + ["r3"] * 3
    data = read({"episode": None}, x=levels, a=[0, 1] * (n // 2))
    assert rare_below(n) == 10
    assert data.feature_names == ("x=big", "x=other", "x=pooled")
    assert data.states[:, 2].sum() == 12
    assert "3 rare levels pooled into 'pooled'" in data.encoder.describe()["state 'x'"]
    few = read({"episode": None}, x=["big"] * 100 + ["mid"] * 97 + ["r1"] * 2 + ["r2"], a=[0, 1] * 100)
    assert few.feature_names[-1] == "x=other"


def test_a_rule_for_rare_levels():
    assert [rare_below(n) for n in (2, 20, 100, 200, 999, 5000)] == [1, 1, 5, 10, 10, 50]


def test_text_that_never_recurs_is_refused():
    with pytest.raises(
        ValueError, match=r"'x' holds 200 different texts, none of them in 10 .*an id or free text"
    ):
        read({"episode": None}, x=[f"note {i} x" for i in range(200)], a=[0, 1] * 100)


@pytest.mark.parametrize(
    "dates", [["2020-01-02", "2021-01-02"] * 2, ["1.2.2020", "3.4.2020"] * 2, [date(2020, 1, 2)] * 4]
)
def test_dates_as_states_are_refused_with_what_to_do(dates):
    with pytest.raises(TypeError, match=r"column 'x' holds dates.*time='x'.*calendar='x'.*days since"):
        read(x=dates)


def naive_fill(values, owner):
    """Filled values, whether there was a gap, and whether nothing came before it; row by row."""
    rows, last = [], {}
    for value, who in zip(values, owner, strict=True):
        gap = value is None
        if not gap:
            last[who] = value
        rows.append([last.get(who, 0.0), float(gap), float(gap and who not in last)])
    return rows


def test_gaps_are_filled_from_the_past_of_the_trajectory_and_shown():
    rng = np.random.default_rng(1)
    values = [None if rng.random() < 0.4 else float(x) for x in rng.normal(100, 1, 60)]
    data = read(x=values)
    assert data.feature_names == ("x", "x missing", "x not yet recorded")
    assert data.states.tolist() == naive_fill(values, data.layout.owner)
    column = data.encoder.columns[0]
    assert column.gaps == sum(x is None for x in values)
    assert f"{column.gaps} gaps filled" in column.describe()


def test_gaps_in_categories_have_no_level_before_the_first():
    data = read(x=[None, "a", None, "b", "", "c"])
    assert data.feature_names == ("x=a", "x=b", "x=c", "x missing", "x not yet recorded")
    assert data.states.tolist() == [
        [0, 0, 0, 1, 1],
        [1, 0, 0, 0, 0],
        [1, 0, 0, 1, 0],
        [0, 1, 0, 0, 0],
        [0, 1, 0, 1, 0],
        [0, 0, 1, 0, 0],
    ]


def test_a_column_without_any_value_is_refused():
    with pytest.raises(ValueError, match=r"'x' has no value in any row. Leave it out"):
        read(x=pl.Series([None] * 4, dtype=pl.Float64))


def test_gaps_are_filled_in_the_order_of_time_and_not_of_the_file():
    frame = pl.DataFrame(
        {"e": [1, 1, 1], "t": [2.0, 0.0, 1.0], "a": [0, 1, 0], "r": [0, 0, 0], "x": [None, 5.0, None]}
    )
    assert read_table(frame, **ROLES, time="t").states[:, 0].tolist() == [5, 5, 5]


@pytest.mark.parametrize("seed", range(5))
def test_no_later_row_and_no_other_trajectory_changes_a_fill(seed):
    """Change every later row, and every other trajectory: what was filled before stays, to the last bit."""
    rng = np.random.default_rng(seed)
    raw = hospital(30, seed=seed, gaps=0.4).raw
    # Levels and indicators are the same in both, so that features can be compared.
    names, ids = ["lactate", "sodium"], raw["stay"].unique(maintain_order=True).to_list()
    roles = HOSPITAL | {"states": names}
    before = read_table(raw, **roles)
    place = int(rng.integers(len(ids)))
    step = int(rng.integers(1, 5))
    row = pl.int_range(pl.len()).over("stay")
    ours = (pl.col("stay") == ids[place]) & (row < step)
    noise = pl.Series(rng.normal(1000, 1, raw.height))
    changed = raw.with_columns(pl.when(ours).then(pl.col(names)).otherwise(noise).name.keep())
    hidden = changed.with_columns(
        pl.when(ours | (row % 2 == 1)).then(pl.col(names)).otherwise(None).name.keep()
    )
    for other in (changed, hidden):
        after = read_table(other, **roles)
        start = before.offsets[place]
        for name in {*before.feature_names} & {*after.feature_names}:
            old = before.states[start : start + step, before.feature_names.index(name)]
            new = after.states[start : start + step, after.feature_names.index(name)]
            assert old.tolist() == new.tolist(), name


def test_last_known_looks_back_and_never_across_a_border():
    known = np.array([False, True, False, False, True, False])
    assert last_known(known, np.array([0, 0, 0, 3, 3, 3])).tolist() == [-1, 1, 1, -1, 4, 4]


# -- rewards, and rows without an id --


def test_rewards_in_the_last_row_alone_are_0_before_and_it_is_said():
    data = read(r=[None, 1.0, None, 3.0])
    assert data.rewards.tolist() == [0, 1, 0, 3]
    assert "given in the last row" in data.encoder.describe()["reward 'r'"]
    for rewards in ([None, 1.0, 0.0, 3.0], [None, None, None, 3.0], [None, 1.0, float("inf"), 3.0]):
        with pytest.raises(ValueError, match="hold no finite reward"):
            read(r=rewards)


def test_without_an_episode_each_row_is_a_trajectory():
    data = read({"episode": None}, x=[1.0, 2.0, 3.0, 4.0])
    assert (len(data), data.offsets.tolist()) == (4, [0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match=r"each row is a trajectory of its own, and time='x'"):
        read({"episode": None, "time": "x", "states": "r2"}, r2=[1.0] * 4)


def test_an_index_without_a_name_is_no_obstacle(tmp_path):
    frame = pd.DataFrame({"e": [1, 1], "a": ["x", "y"], "r": [0, 1], "x": ["p", "q"]})
    frame.to_csv(tmp_path / "log.csv")
    assert read_table(tmp_path / "log.csv", **ROLES).action_names == ("x", "y")


# -- the encoder --


@pytest.mark.parametrize(
    "to", [lambda f: f, lambda f: f.to_pandas(), lambda f: f.to_arrow(), lambda f: f.lazy()]
)
def test_the_hospital_table_is_read_alike_from_every_kind_of_frame(to, tmp_path):
    raw = hospital(100, seed=3).raw
    data = read_table(to(raw), **HOSPITAL)
    raw.write_csv(tmp_path / "log.csv")
    again = read_table(tmp_path / "log.csv", **HOSPITAL)
    assert data.feature_names == again.feature_names
    np.testing.assert_array_equal(data.states, again.states)
    np.testing.assert_array_equal(data.actions, again.actions)
    assert data.encoder.describe() == again.encoder.describe()


def test_the_encoder_gives_the_states_of_the_log_and_those_of_new_rows():
    raw = hospital(200, seed=3).raw
    data = read_table(raw, **HOSPITAL)
    np.testing.assert_array_equal(data.encoder.transform(raw), data.states)
    new = hospital(50, seed=4).raw
    coded = data.encoder.transform(new.sample(fraction=1, shuffle=True, seed=0).sort("charted"))
    assert coded.shape == (250, len(data.feature_names))
    assert np.isfinite(coded).all()
    assert pickle.loads(pickle.dumps(data)).encoder == data.encoder
    assert data[:3].encoder is data.encoder


def test_new_rows_that_models_know_nothing_of_are_refused():
    data = read({"states": ["x", "s"]}, x=[1.0, 2.0, 3.0, 4.0], s=["f", "m", "f", "m"])
    row = {"e": [1], "x": [1.0], "s": ["f"]}
    with pytest.raises(ValueError, match=r"'s' holds 'd', which the log never had; its levels are 'f', 'm'"):
        data.encoder.transform(pl.DataFrame(row | {"s": ["d"]}))
    with pytest.raises(ValueError, match=r"'x' has 1 gaps, and the log had none there"):
        data.encoder.transform(pl.DataFrame(row | {"x": [None]}, schema_overrides={"x": pl.Float64}))
    with pytest.raises(ValueError, match=r"lacks the columns 's'"):
        data.encoder.transform(pl.DataFrame({"x": [1.0]}))


def test_a_table_of_numbers_is_read_as_before():
    data = read(x=[1.0, 2.0, 3.0, 4.0])
    assert data.encoder.trivial
    assert data.encoder.describe() == {}
    assert not read_table(shop(50).raw, **SHOP).encoder.trivial


@pytest.mark.slow
def test_an_audit_says_how_its_log_was_read():
    from sklearn.linear_model import LogisticRegression

    data = read_table(shop(400).raw, **SHOP)
    found = cal.audit(data, cal.practice, {"logistic": LogisticRegression(max_iter=500)}, n_draws=20, rng=0)
    settings = found.settings.to_dict()
    assert "gaps filled" in settings["state 'basket'"]
    assert settings["action 'offer'"].startswith("coded in sorted order")
    assert data.recorded == tuple(SHOP["states"])
    assert "missing from: device, country, basket, returning, newsletter" in " ".join(
        found.headline.conditions
    )


def test_excel_needs_its_extra_or_is_read(tmp_path):
    path = tmp_path / "log.xlsx"
    path.touch()
    try:
        import fastexcel  # noqa: F401
    except ModuleNotFoundError:
        with pytest.raises(
            ModuleNotFoundError, match=r"needs fastexcel: pip install 'caliope\[excel\]', or save"
        ):
            read_table(path, **ROLES)
        pytest.skip("fastexcel is not installed: what it reads was not looked at")
    pytest.importorskip("xlsxwriter")
    pl.DataFrame({"e": [1, 1], "a": ["x", "y"], "r": [0, 1], "x": [1.5, None]}).write_excel(path)
    assert read_table(path, **ROLES).action_names == ("x", "y")
