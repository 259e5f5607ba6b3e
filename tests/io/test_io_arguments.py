"""read_table: what the arguments and the frame must be before anything is read, and codes among actions."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from caliope.io import read_table

ROLES = {"episode": "e", "action": "a", "reward": "r", "states": "x"}
ROW = {"e": [5, 5], "a": [0, 1], "r": [0.0, 1.0], "x": [1.0, 2.0]}


@pytest.mark.parametrize("part", ["states", "keep"])
@pytest.mark.parametrize("given", [None, 3])
def test_names_that_are_none_are_refused(part, given):
    with pytest.raises(
        TypeError, match=rf"{part} must be the name of a column or a list .* got {given}: name"
    ):
        read_table("no such file.csv", **(ROLES | {part: given}))


@pytest.mark.parametrize("part", ["episode", "action", "reward", "terminated", "time"])
def test_a_column_named_by_a_number_is_refused(part):
    with pytest.raises(TypeError, match=rf"{part} must name a column by text, got 0 \(int\).*rename"):
        read_table(pd.DataFrame([[1, 0, 0, 1]]), **(ROLES | {part: 0}))


def test_states_named_by_numbers_are_refused():
    with pytest.raises(TypeError, match=r"states must name a column by text, got 3 \(int\)"):
        read_table(pd.DataFrame([[1, 0, 0, 1]]), **(ROLES | {"states": [3]}))


def test_columns_called_by_numbers_are_not_taken_for_text():
    frame = pd.DataFrame(ROW).rename(columns={"x": 0})
    with pytest.raises(ValueError, match=r"not a column.*'0'.*1 columns have names .*not text \(first: 0\)"):
        read_table(frame, **(ROLES | {"states": "0"}))
    assert len(read_table(frame.assign(x=1.0), **ROLES)) == 1


@pytest.mark.parametrize("count", [2.0, "2", True, [2]])
def test_a_number_of_actions_that_is_not_whole_is_refused_before_reading(count):
    with pytest.raises(TypeError, match=r"n_actions must be a whole number, got"):
        read_table("no such file.csv", **ROLES, n_actions=count)


@pytest.mark.parametrize("count", [0, -1])
def test_a_number_of_actions_below_1_is_refused_before_reading(count):
    with pytest.raises(ValueError, match=rf"n_actions must be 1 or more, got {count}"):
        read_table("no such file.csv", **ROLES, n_actions=count)


def twice(name):
    frame = pd.DataFrame(ROW | {"other": [1, 2]})
    return pd.concat([frame, frame[[name]]], axis=1)


def as_arrow(frame):
    arrays = [pa.array(frame.iloc[:, i]) for i in range(frame.shape[1])]
    return pa.table(arrays, names=list(frame.columns))


@pytest.mark.parametrize("turn", [pd.DataFrame, as_arrow])
def test_a_needed_column_that_is_there_twice_is_refused(turn):
    with pytest.raises(ValueError, match=r"'x' must be there once, but the \w+ names 2 .*columns 4 and 6\)"):
        read_table(turn(twice("x")), **ROLES)
    assert read_table(turn(twice("other")), **ROLES).states[:, 0].tolist() == [1, 2]


@pytest.mark.parametrize("big", [2**63, 2**64, 2**100])
def test_ids_too_large_for_64_bits_tell_episodes_apart(big):
    data = read_table(pl.DataFrame(ROW | {"e": [big, big + 1]}), **ROLES, keep="e")
    assert [int(x) for x in data.ids] == [big, big + 1]
    assert [int(x) for x in data["e"]] == [big, big + 1]


def test_times_of_128_bits_are_refused():
    frame = pl.DataFrame(ROW | {"t": [2**70, 2**71]})
    with pytest.raises(TypeError, match=r"time must be a number of at most 64 bits.*'t' is Int128"):
        read_table(frame, **ROLES, time="t")


def coded(actions):
    n = len(actions)
    return pl.DataFrame({"e": range(n), "a": actions, "r": [0.0] * n, "x": [1.0] * n})


def test_a_code_among_the_actions_is_refused():
    frame = coded([0, 1, 2, 999, 1, 999])
    with pytest.raises(
        ValueError,
        match=r"'a': fewer than half .* 0 to 999 .*999, stands in 2 of 6 .*episode 3.*n_actions=1000",
    ):
        read_table(frame, **ROLES)
    assert read_table(frame, **ROLES, n_actions=1000).n_actions == 1000


@pytest.mark.parametrize(
    ("actions", "fine"),
    [
        ([0, 9], True),  # too few actions to tell
        ([0, 1, 2, 3, 10], False),  # 5 of 11
        ([0, 1, 2, 3, 4, 10], True),  # 6 of 11
        ([0, 1, 2, 3, 4, 11], True),  # 6 of 12
        ([1, 1, 2, 99], False),
        ([0, 2**40], False),
    ],
)
def test_half_of_the_actions_must_have_been_logged(actions, fine):
    if fine:
        assert read_table(coded(actions), **ROLES).n_actions == max(actions) + 1
    else:
        with pytest.raises(ValueError, match=r"'a': fewer than half of the actions"):
            read_table(coded(actions), **ROLES)
