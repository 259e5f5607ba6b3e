"""Damaged tables through the commands: a number that is right, or one line and exit code 2.

``python -m benchmarks.fuzz --tables 3000`` does the same to thousands.
"""

import gzip
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from support.fuzzed_files import flipped
from support.fuzzed_tables import EVERY, case_of, outcome_of_whole, result_of, spare_models
from support.fuzzing import (
    FAST,
    REQUESTS,
    as_csv,
    as_parquet,
    base_table,
    fault_of,
    outcome,
    right_numbers,
    run,
)

ROUNDS = 2  # tables of each damage


@pytest.fixture(scope="module", autouse=True)
def _spare():
    with pytest.MonkeyPatch.context() as patch:
        spare_models(patch)
        yield


@pytest.mark.slow
@pytest.mark.parametrize("request_", REQUESTS)
def test_the_table_that_the_others_spoil_gives_what_plain_loops_give(request_):
    came = outcome_of_whole(0, request_)
    assert fault_of(base_table(0, request_), came, "right", came) == ""
    assert came.numbers


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(len(EVERY)), ids=[damage.name for damage in EVERY])
def test_a_damaged_table_gives_a_number_that_is_right_or_one_line(turn):
    for number in range(turn, ROUNDS * len(EVERY), len(EVERY)):
        case = case_of(number)
        assert result_of(case).fault == "", f"table {number}: {case.name}"


@pytest.mark.slow
def test_a_wrong_number_would_be_noticed(tmp_path):
    whole, table = outcome_of_whole(0, "logged"), base_table(0)
    assert fault_of(table, whole, "refused", whole).startswith("accepted")
    assert "nobody is told" in fault_of(table, whole, "visible", whole)
    less = replace(table, frame=table.frame.head(table.frame.height - 1))
    came = outcome(less, tmp_path)  # the last decision of the last patient is gone
    assert fault_of(less, came, "right", whole) == ""
    for name in right_numbers(table):
        wrong = replace(whole, numbers={**whole.numbers, name: whole.numbers[name] * (1 + 1e-8)})
        assert fault_of(table, wrong, "right", whole).startswith(f"{name} is ")
        assert fault_of(table, wrong, "same", whole).startswith(f"{name} is ")
    holes = replace(table, frame=table.frame.with_columns(alive=None))
    assert right_numbers(holes) is None
    assert fault_of(holes, whole, "right", whole).startswith("there is no number")


# -- what once went wrong, each with the table that showed it --


def asked(path, *more):
    options = [part for pair in REQUESTS["logged"].items() for part in pair]
    return run([str(path), *FAST, "--draws", "20", *options, *more], "evaluate")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return as_parquet(base_table(0).frame, tmp_path_factory.mktemp("whole"))


def test_a_packed_file_that_was_cut_off_or_damaged_is_refused(tmp_path):
    packed = gzip.compress(base_table(0).frame.write_csv().encode())
    for name, content in {"cut": packed[:100], "damaged": packed[:20] + b"x" * 50 + packed[70:]}.items():
        (tmp_path / f"{name}.csv.gz").write_bytes(content)
        came = asked(tmp_path / f"{name}.csv.gz")
        assert came.fault == ""
        assert "is packed by gzip, but damaged or cut off" in came.said


@pytest.mark.parametrize("seed", [43, 1087])
def test_where_polars_gives_up_on_a_damaged_file_that_is_one_line_too(seed, whole, tmp_path):
    """With these bytes it panics, and raises what is no Exception. What it prints itself we cannot stop."""
    (tmp_path / "log.parquet").write_bytes(flipped(whole.read_bytes(), np.random.default_rng(seed)))
    came = asked(tmp_path / "log.parquet")
    assert came.fault == ""
    assert "could not be read: " in came.said


@pytest.mark.parametrize("name", ["^p.*$", "*", "^alive$"])
@pytest.mark.parametrize(
    ("option", "column"), [("--reward", "alive"), ("--time", "hour"), ("--episode", "patient")]
)
def test_a_name_that_is_a_pattern_to_polars_is_refused(name, option, column, tmp_path):
    """It takes ^p0$ for p0: another column than the one of that name was read."""
    table = base_table(0)
    other = replace(table.having(table.frame.rename({column: name})), options=table.options | {option: name})
    for write in (as_parquet, as_csv):
        came = outcome(replace(other, write=write), tmp_path)
        assert came.fault == ""
        assert "a pattern of several names" in came.said


@pytest.mark.slow
def test_a_range_of_a_hundred_thousand_names_is_refused_at_once_and_briefly(whole):
    came = asked(whole, "--states", "p0..p99999999")
    assert came.fault == ""  # a line of at most 2000 characters
    assert "more. There are 'patient'" in came.said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--states", ","], "states must be a list of names, got ','"),
        (["--target-columns", "p2..p0"], "target_columns must be a list of names, got 'p2..p0'"),
        (["--n-actions", "4"], "n_actions is 4, but target_columns names 3 columns"),
        (["--n-actions", "100000000000"], "n_actions must be a whole number from 1 to 10000"),
        (["--seed", "4294967296"], "seed must be a whole number from 0 to 4294967295"),
        (["--draws", "1000000000000"], "draws must be a whole number from 20 to 1000000"),
        (["--propensity", "unit"], "column 'unit' (logged probability) must hold numbers, but has 'south'"),
    ],
)
def test_what_would_take_forever_or_mean_nothing_is_refused(options, said, whole):
    came = asked(whole, *options)
    assert came.fault == ""
    assert said in came.said


def test_one_episode_and_huge_states_are_refused_with_what_to_do(tmp_path):
    table = base_table(0)
    one = replace(table, frame=table.frame.filter(pl.col("patient") == 100))
    assert "the log holds one trajectory, 100," in outcome(one, tmp_path).said
    huge = replace(table, frame=table.frame.with_columns(pl.col("age") * 1e60))
    assert "age reaches 8" in outcome(huge, tmp_path).said
    assert "too large to compute with (above 1e+38)" in outcome(huge, tmp_path).said


def test_a_row_with_a_cell_too_many_is_refused(tmp_path):
    """A comma for a point shifts all that follows; polars does not notice where some columns are not read."""
    lines = base_table(0).frame.write_csv().strip().split("\n")
    for name, row in {"more": f"{lines[5]},1", "comma": lines[5].replace(".", ",", 1)}.items():
        (tmp_path / f"{name}.csv").write_text("\n".join([*lines[:5], row, *lines[6:]]))
        came = asked(tmp_path / f"{name}.csv")
        assert came.fault == ""
        assert "a row has more cells than the header has names" in came.said


def test_a_time_that_is_no_number_among_numbers_is_pointed_at(tmp_path):
    lines = base_table(0).frame.write_csv().split("\n")
    lines[2] = lines[2].replace(",4,", ",4h,", 1)
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert "1 of 64 rows hold no number (first: '4h' in episode 100)" in asked(tmp_path / "log.csv").said


@pytest.mark.slow
def test_a_study_file_may_have_a_byte_order_mark_and_must_be_utf_8(tmp_path):
    as_parquet(base_table(0).frame, tmp_path)
    lines = [f"{name[2:]} = {json.dumps(x)}" for name, x in REQUESTS["logged"].items()]
    text = "\n".join(["log = 'log.parquet'", *lines])
    study = tmp_path / "study.toml"
    study.write_text(text, encoding="utf-8-sig")
    came = run([str(study), *FAST, "--draws", "20"], "evaluate")
    assert came.numbers == outcome_of_whole(0, "logged").numbers
    study.write_bytes(b"\xff" + text.encode())
    assert "is no TOML file" in run([str(study), *FAST], "evaluate").said


@pytest.mark.slow
def test_an_error_of_the_system_names_the_file_and_not_its_number(whole):
    options = [
        part for name, x in REQUESTS["fitted"].items() for part in (name, x) if name != "--target-columns"
    ]
    came = run([str(whole), *FAST, *options, "--model", "/nowhere/model.skops"], "evaluate")
    assert came.said == "Error: No such file or directory: /nowhere/model.skops. Check the path."


@pytest.mark.slow
def test_ten_thousand_columns(tmp_path):
    table = base_table(0)
    wide = table.frame.with_columns(**{f"x{i}": pl.lit(float(i % 7)) for i in range(10_000)})
    came = outcome(table.having(wide), tmp_path)
    assert fault_of(table, came, "same", outcome_of_whole(0, "logged")) == ""
