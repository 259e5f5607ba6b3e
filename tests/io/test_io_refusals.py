"""read_table: what it refuses, and what it says. Bad input never yields a number."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from caliope.io import _csv as csv_files, _source as sources, read_table

ROLES = {"episode": "stay", "action": "dose", "reward": "r", "states": ["sofa", "lactate"], "time": "hour"}
GOOD = {
    "stay": [31, 31, 31, 17, 17, 17, 17],
    "hour": [0, 1, 2, 5, 6, 7, 8],
    "sofa": [4, 5, 6, 7, 8, 9, 10],
    "lactate": [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0],
    "dose": [0, 1, 2, 0, 1, 2, 0],
    "r": [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0],
}


@pytest.fixture(autouse=True)
def tiny_batches(monkeypatch):
    """Counts must be those of the whole table, not of the batch in which the first fault was found."""
    monkeypatch.setattr(sources, "_BATCH_ROWS", 2)


def read(roles=None, **columns):
    return read_table(pl.DataFrame(GOOD | columns, strict=False), **(ROLES | (roles or {})))


def test_the_table_that_the_others_spoil_is_fine():
    assert read().ids.tolist() == [31, 17]


def test_infinite_states_are_refused():
    hole = float("inf")
    with pytest.raises(ValueError, match=r"'lactate': 2 of 7 .* trajectory 17, step 1"):
        read(lactate=[1.0, 1.5, 2.0, 2.5, hole, 3.5, hole])


@pytest.mark.parametrize("hole", [None, float("nan"), float("-inf")])
def test_rewards_without_a_finite_value_are_refused(hole):
    with pytest.raises(
        ValueError, match=r"column 'r': 3 of 7 rows hold no finite reward .* episode 31, step 2\)"
    ):
        read(r=[0.0, 0.0, hole, 0.0, hole, hole, -1.0])


@pytest.mark.parametrize("dose", [None, float("nan"), 1.5, -1, 1e300, float("inf")])
def test_actions_that_are_no_whole_numbers_from_0_are_refused(dose):
    with pytest.raises(
        ValueError, match=r"column 'dose': 2 of 7 rows hold no whole number .* episode 17, step 0\)"
    ):
        read(dose=[0, 1, 2, dose, 1, 2, dose])


def test_the_first_fault_is_the_first_in_the_order_of_time():
    shuffled = pl.DataFrame(GOOD | {"r": [None, 0.0, None, 0.0, 0.0, None, 0.0]})[[5, 2, 1, 0, 3, 4, 6]]
    with pytest.raises(ValueError, match=r"'r': 3 of 7 .* episode 17, step 2\)"):
        read_table(shuffled, **ROLES)


def test_actions_numbered_from_1_are_refused():
    dose = [2, 1, 3, 1, 2, 3, 1]
    with pytest.raises(
        ValueError, match=r"'dose': none of 7 .* 1 to 3 \(first: 2 in episode 31.*subtract 1; .*=4"
    ):
        read(dose=dose)
    with pytest.raises(ValueError, match=r"'dose': none of 7 .* episode 31.*subtract 1\."):
        read({"n_actions": 3}, dose=dose)
    assert read({"n_actions": 4}, dose=dose).n_actions == 4


def test_actions_beyond_their_number_are_refused():
    with pytest.raises(ValueError, match=r"'dose': 2 of 7 .* n_actions=2 \(first: 2 in episode 31, step 2"):
        read({"n_actions": 2})


def test_a_null_episode_is_refused():
    with pytest.raises(ValueError, match=r"'stay': 2 of 7 rows name no episode \(first: row 2\)"):
        read(stay=[31, 31, None, 17, 17, 17, None])
    with pytest.raises(ValueError, match=r"'stay': 1 of 7 rows name no episode \(first: row 2\)"):
        read(stay=[31.0, 31.0, float("nan"), 17.0, 17.0, 17.0, 17.0])


def test_an_episode_in_two_runs_is_never_merged_without_time():
    with pytest.raises(
        ValueError, match=r"'stay': 1 of 2 .* episode 31, from row 0 and again from row 6.*time="
    ):
        read({"time": None}, stay=[31, 31, 31, 17, 17, 17, 31])


@pytest.mark.parametrize("hole", [None, float("nan"), float("inf")])
def test_a_missing_time_is_refused(hole):
    with pytest.raises(ValueError, match=r"'hour': 2 of 7 rows have no time.*episode 17\)"):
        read(hour=[0.0, 1.0, 2.0, hole, 6.0, hole, 8.0])


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5, 6], [6, 3, 0, 2, 5, 1, 4]])
@pytest.mark.parametrize("cast", [pl.Int64, pl.UInt8, pl.Float64])
def test_two_rows_at_one_time_are_refused(order, cast):
    frame = pl.DataFrame(GOOD | {"hour": [0, 1, 2, 5, 6, 6, 6]}).with_columns(pl.col("hour").cast(cast))
    with pytest.raises(
        ValueError, match=r"'hour': 2 rows have the time .*first: 6(\.0)? in episode 17, step 2"
    ):
        read_table(frame[order], **ROLES)


def test_the_message_shows_a_repeated_datetime_as_it_is():
    hours = [datetime(2150, 1, 1, hour) for hour in (0, 1, 2, 5, 6, 7, 7)]
    with pytest.raises(ValueError, match=r"'hour': 1 rows .*2150-01-01 07:00:00 in episode 17, step 3"):
        read(hour=hours)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5, 6], [1, 6, 3, 0, 2, 5, 4]])
@pytest.mark.parametrize("cast", [pl.Int64, pl.UInt8, pl.Int8])
@pytest.mark.parametrize(
    ("hours", "message"),
    [
        ([0, 1, 2, 5, 6, 8, 10], r"steps of 1, but has 2 gaps .*from 6 to 8 in episode 17, step 2"),
        ([0, 4, 8, 4, 8, 16, 20], r"steps of 4, but has 1 gaps .*from 8 to 16 in episode 17, step 2"),
        ([0, 4, 8, 0, 5, 8, 12], r"steps of 3, but has 4 gaps .*from 0 to 4 in episode 31, step 1"),
        ([0, 4, 8, 0, 8, 16, 24], r"steps of 4, but has 3 gaps .*from 0 to 8 in episode 17, step 1"),
    ],
)
def test_gaps_in_a_counter_are_refused(hours, message, order, cast):
    frame = pl.DataFrame(GOOD | {"hour": hours}).with_columns(pl.col("hour").cast(cast))
    with pytest.raises(
        ValueError, match=rf"column 'hour' counts .*{message}.*insert the row.*cast it to float"
    ):
        read_table(frame[order], **ROLES)
    assert len(read_table(frame[order].with_columns(pl.col("hour").cast(pl.Float64)), **ROLES)) == 2


def test_unknown_columns_are_listed_all_at_once_with_close_names():
    with pytest.raises(
        ValueError, match=r"'stays' \(close: 'stay'\), 'sofas' \(close: 'sofa'\).*'lactate', 'dose'"
    ):
        read({"episode": "stays", "states": ["sofas", "lactate"]})


def test_a_column_that_one_file_lacks_is_refused_with_the_file(tmp_path):
    pl.DataFrame(GOOD).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame(GOOD).drop("sofa").write_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"column 'sofa' must be in every file, but 1 of 2 .*b\.parquet"):
        read_table(tmp_path / "*.parquet", **ROLES)


def test_many_columns_are_counted_not_listed():
    with pytest.raises(ValueError, match=r"'sofas'.*There are 106 others"):
        read({"states": "sofas"}, **{f"x{i}": [0] * 7 for i in range(100)})


@pytest.mark.parametrize(
    ("values", "said"),
    [([[1]] * 7, "'sofa' is List"), ([datetime(2150, 1, 1)] * 7, "'sofa' holds dates.*calendar=")],
)
def test_states_that_are_neither_numbers_nor_words_are_refused(values, said):
    with pytest.raises(
        TypeError, match=rf"states must be numbers, categories or booleans, but column {said}"
    ):
        read(sofa=values)


@pytest.mark.parametrize(("role", "column"), [("reward", "r"), ("time", "hour")])
def test_words_for_numbers_are_refused(role, column):
    with pytest.raises(TypeError, match=rf"{role} must be a number.* column '{column}' is String"):
        read(**{column: ["1"] * 7})


@pytest.mark.parametrize(("role", "column"), [("action", "dose"), ("reward", "r"), ("episode", "stay")])
def test_states_must_not_give_the_answer_away(role, column):
    with pytest.raises(ValueError, match=rf"known before the decision, but lists '{column}' \(the {role}\)"):
        read({"states": ["sofa", column]})


def test_one_column_plays_one_part():
    with pytest.raises(ValueError, match=r"column 'r' is given as action and reward"):
        read({"action": "r"})


def test_states_must_be_named_and_named_once():
    with pytest.raises(ValueError, match=r"states is empty"):
        read({"states": []})
    with pytest.raises(ValueError, match=r"states names 'sofa' more than once"):
        read({"states": ["sofa", "lactate", "sofa"]})


def test_a_lone_string_is_one_state():
    assert read({"states": "sofa"}).feature_names == ("sofa",)


def test_an_empty_table_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no rows"):
        read_table(pl.DataFrame(GOOD).clear(), **ROLES)
    (tmp_path / "log.csv").write_text(",".join(GOOD) + "\n")
    with pytest.raises(ValueError, match="no rows"):
        read_table(tmp_path / "log.csv", **ROLES)


def test_rows_after_the_end_of_an_episode_are_refused():
    ended = [False, True, True, True, False, False, True]
    with pytest.raises(
        ValueError, match=r"'ended': 2 of 7 rows end an episode that goes on .*episode 31, step 1"
    ):
        read({"terminated": "ended"}, ended=ended)


@pytest.mark.parametrize("odd", [None, 2])
def test_terminated_must_be_true_or_false(odd):
    with pytest.raises(
        ValueError, match=r"'ended': 2 of 7 rows are neither True nor False .*episode 17, step 0"
    ):
        read({"terminated": "ended"}, ended=[0, 0, 1, odd, 0, 0, odd])


def test_missing_values_that_turn_pandas_booleans_into_objects_are_refused():
    frame = pd.DataFrame(GOOD | {"ended": [False, False, True, None, False, False, True]})
    with pytest.raises(
        ValueError, match=r"'ended': 1 of 7 rows are neither True nor False \(first: nan in episode"
    ):
        read_table(frame, **ROLES, terminated="ended")
    mixed = pd.DataFrame(GOOD | {"ended": [False, False, True, "no", False, False, True]})
    with pytest.raises(TypeError, match=r"column 'ended' is Object.*missing"):
        read_table(mixed, **ROLES, terminated="ended")


def test_missing_values_of_pandas_are_gaps():
    frame = pd.DataFrame(GOOD).astype({"sofa": "Int64"})
    frame.loc[4, "sofa"] = pd.NA
    assert read_table(frame, **ROLES).encoder.columns[0].gaps == 1


def test_a_missing_file_is_named(tmp_path):
    for pattern in (tmp_path / "log.parquet", f"{tmp_path}/*.csv", [f"{tmp_path}/*.csv"]):
        with pytest.raises(FileNotFoundError, match=r"log\.parquet|\*\.csv"):
            read_table(pattern, **ROLES)


def test_unknown_and_mixed_kinds_of_file_are_refused(tmp_path):
    frame = pl.DataFrame(GOOD)
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_csv(tmp_path / "log.csv")
    (tmp_path / "log.json").touch()
    with pytest.raises(
        ValueError,
        match=r"log\.json: unknown kind of file. Save the table as CSV .*\.parquet, \.pq, \.csv, \.csv\.gz",
    ):
        read_table(tmp_path / "log.json", **ROLES)
    with pytest.raises(ValueError, match=r"different kinds .*log\.parquet and .*log\.csv"):
        read_table([tmp_path / "log.parquet", tmp_path / "log.csv"], **ROLES)


@pytest.mark.parametrize("source", [3, {"stay": [1]}, np.zeros((2, 2)), [], pl.Series([1])])
def test_other_sources_are_refused_with_what_is_accepted(source):
    with pytest.raises(TypeError, match=r"glob of Parquet or CSV.*pyarrow Table, got"):
        read_table(source, **ROLES)


def test_a_file_that_cannot_be_parsed_is_named_with_the_place(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_CSV_ROWS", 2)
    (tmp_path / "log.csv").write_text("stay,dose,r,sofa\n1,0,0,1\n1,1,0,2\n1,1,0,much\n")
    roles = {"episode": "stay", "action": "dose", "reward": "r", "states": "sofa"}
    with pytest.raises(ValueError, match=r"log\.csv: column 'sofa' must hold numbers.*'much' in row 3 below"):
        read_table(tmp_path / "log.csv", **roles)
    (tmp_path / "log.parquet").write_text("this is no Parquet file")
    with pytest.raises(ValueError, match=r"log\.parquet could not be read"):
        read_table(tmp_path / "log.parquet", **roles)


@pytest.mark.parametrize(
    "change", [pl.DataFrame.reverse, lambda frame: frame[1:], lambda frame: frame.vstack(frame)]
)
def test_a_query_that_changes_between_the_two_passes_is_refused(change):
    frame, passes = pl.DataFrame(GOOD), []

    def restless(batch: pl.DataFrame) -> pl.DataFrame:
        passes.append(batch)
        return batch if len(passes) == 1 else change(batch)

    query = frame.lazy().map_batches(restless, projection_pushdown=False)
    with pytest.raises(ValueError, match=r"the LazyFrame gave other rows.*collect\(\)"):
        read_table(query, **ROLES)


# -- clusters --


def test_the_cluster_of_a_trajectory_is_read_and_only_kept_if_asked():
    ward = {"ward": ["n", "n", "n", "s", "s", "s", "s"]}
    data = read({"cluster": "ward"}, **ward)
    assert data.cluster.tolist() == ["n", "s"]
    assert not data.columns
    assert read({"cluster": "ward", "keep": ["ward"]}, **ward)["ward"].tolist() == ward["ward"]
    assert read({"cluster": "stay"}).cluster.tolist() == [31, 17]
    assert read({"cluster": "sofa", "states": ["lactate"]}, sofa=[1] * 7).cluster.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            ["n", "n", "n", "s", "s", "t", "t"],
            r"column 'ward' must be constant within a trajectory to be its cluster; in 1 of 2 it changes \(first: "
            r"'s' and 't' in trajectory 17, step 2\)",
        ),
        ([1, 1, 1, 2, None, 2, 2], r"1 of 7 have none \(first: trajectory 17, step 1\)"),
        (["n", "n", "n", None, None, None, None], r"4 of 7 have none \(first: trajectory 17, step 0\)"),
    ],
)
def test_a_cluster_that_changes_or_is_missing_is_refused(values, said):
    with pytest.raises(ValueError, match=said) as caught:
        read({"cluster": "ward"}, ward=values)
    assert "\n" not in str(caught.value)


def test_a_cluster_that_is_not_there_or_is_no_label_is_refused():
    with pytest.raises(ValueError, match=r"not a column of the table .*'wart'"):
        read({"cluster": "wart"}, ward=[1] * 7)
    with pytest.raises(TypeError, match="cluster must name a column by text"):
        read({"cluster": 3})
    with pytest.raises(TypeError, match="clusters must be called by numbers or text"):
        read({"cluster": "ward"}, ward=[[1]] * 7)
