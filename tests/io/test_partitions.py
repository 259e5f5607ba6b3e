"""A log in files: which trajectory belongs to which part, and what is read of it."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from caliope import read_table
from caliope._cache import Cache
from caliope.engines import Local, run_job
from caliope.io import open_partitions
from caliope.io._inventory import LookAt, take_inventory

COLUMNS = {"episode": "id", "action": "a", "reward": "r", "states": ["x"], "n_actions": 3}


def make_log(n=40, seed=0, ids=None):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 6, n)
    names = np.arange(100, 100 + n) if ids is None else ids(np.arange(n))
    total = lengths.sum()
    return pl.DataFrame(
        {
            "id": np.repeat(names, lengths),
            "t": np.concatenate([np.arange(k) for k in lengths]),
            "x": rng.normal(size=total),
            "a": rng.integers(0, 3, total),
            "r": rng.normal(size=total),
        }
    )


def write(folder, frames):
    for i, frame in enumerate(frames):
        frame.write_parquet(folder / f"{i}.parquet")
    return folder


def cut(frame, pieces):
    ends = np.linspace(0, len(frame), pieces + 1).astype(int)
    return [frame[a:b] for a, b in pairwise(ends)]


def inventory_of(source):
    found = dict(run_job(Local(1), LookAt(source.reading), source.stretches, work=Cache()))
    return take_inventory(source, [found[i] for i in range(len(found))])


def read_all(source):
    """Trajectories of all parts, by id."""
    inventory, found = inventory_of(source), {}
    for part in inventory.parts:
        data = source.reading.trajectories(part.rows(source.reading))
        assert data.ids.tolist() == inventory.ids[part.numbers].tolist()
        assert data.lengths.tolist() == inventory.lengths[part.numbers].tolist()
        for i, name in enumerate(data.ids.tolist()):
            found[name] = (data[i].states.tolist(), data[i].actions.tolist(), data[i].rewards.tolist())
    return inventory, found


@pytest.mark.parametrize("rows", [7, 1000])
@pytest.mark.parametrize("pieces", [1, 3, 9])
@pytest.mark.parametrize(
    "ids", [None, lambda i: np.array([f"visit {k}" for k in i])], ids=["numbers", "text"]
)
def test_every_trajectory_is_read_whole_however_the_files_are_cut(tmp_path, pieces, rows, ids):
    log = make_log(ids=ids)
    whole = read_table(log, **COLUMNS)
    source = open_partitions(write(tmp_path, cut(log, pieces)), rows=rows, **COLUMNS)
    inventory, found = read_all(source)
    assert inventory.ids.tolist() == whole.ids.tolist()  # as they first appear
    assert inventory.ids[inventory.order].tolist() == whole.in_fixed_order().ids.tolist()
    assert found == {
        name: (whole[i].states.tolist(), whole[i].actions.tolist(), whole[i].rewards.tolist())
        for i, name in enumerate(whole.ids.tolist())
    }
    assert source.n_steps == whole.n_steps


def test_with_a_time_the_rows_of_a_trajectory_may_lie_anywhere(tmp_path):
    log = make_log()
    whole = read_table(log, **COLUMNS)
    mixed = log.sample(fraction=1.0, shuffle=True, seed=1)
    source = open_partitions(write(tmp_path, cut(mixed, 4)), rows=11, time="t", **COLUMNS)
    found = read_all(source)[1]
    assert all(found[name][2] == whole[i].rewards.tolist() for i, name in enumerate(whole.ids.tolist()))


def test_without_a_time_a_trajectory_that_goes_on_elsewhere_is_refused_with_both_files(tmp_path):
    first = pl.DataFrame({"id": [1, 1, 2], "x": [0.0] * 3, "a": [0, 1, 0], "r": [0.0] * 3})
    second = pl.DataFrame({"id": [3, 1], "x": [0.0] * 2, "a": [0, 1], "r": [0.0] * 2})
    source = open_partitions(write(tmp_path, [first, second]), **COLUMNS)
    with pytest.raises(ValueError, match=r"trajectory 1 has rows in .*0\.parquet.* and in .*1\.parquet"):
        inventory_of(source)


def test_a_number_has_the_same_type_in_every_part(tmp_path):
    # Int16 alone would become float32, Int64 float64.
    log = make_log().with_columns(pl.lit(3).cast(pl.Int16).alias("x"))
    source = open_partitions(
        write(tmp_path, [log, log.with_columns(pl.col("x").cast(pl.Int64), pl.col("id") + 50)]), **COLUMNS
    )
    parts = inventory_of(source).parts
    assert {source.reading.trajectories(p.rows(source.reading)).states.dtype for p in parts} == {
        np.dtype("float64")
    }


def test_a_file_that_is_no_table_is_named(tmp_path):
    write(tmp_path, [make_log()])
    (tmp_path / "1.parquet").write_bytes(b"PAR1 this is none")
    with pytest.raises(ValueError, match=r"1\.parquet"):
        open_partitions(tmp_path, **COLUMNS)


def test_a_file_that_was_changed_is_named(tmp_path):
    source = open_partitions(write(tmp_path, [make_log()]), **COLUMNS)
    make_log(n=3).write_parquet(tmp_path / "0.parquet")
    with pytest.raises(RuntimeError, match=r"0\.parquet.*changed after it was looked at"):
        inventory_of(source)


def test_a_file_of_as_many_rows_that_was_changed_is_named(tmp_path):
    log = make_log()
    source = open_partitions(write(tmp_path, cut(log, 2)), **COLUMNS)
    parts = inventory_of(source).parts
    cut(log.with_columns(pl.col("r") + 1), 2)[1].write_parquet(tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=r"1\.parquet \(rows .*\) was changed after it was looked at"):
        parts[1].rows(source.reading)


def test_a_file_that_is_gone_is_named(tmp_path):
    source = open_partitions(write(tmp_path, [make_log()]), **COLUMNS)
    (tmp_path / "0.parquet").unlink()
    with pytest.raises(RuntimeError, match=r"0\.parquet.*was changed after it was looked at"):
        inventory_of(source)


def same_as_whole(source, log, **options):
    """The trajectories of all parts are those of one table."""
    whole = read_table(log, **(COLUMNS | options))
    found = read_all(source)[1]
    assert found == {
        name: (whole[i].states.tolist(), whole[i].actions.tolist(), whole[i].rewards.tolist())
        for i, name in enumerate(whole.ids.tolist())
    }


def test_a_trajectory_may_lie_in_three_files_and_a_file_may_be_empty(tmp_path):
    log = make_log(n=3, seed=2)
    assert read_table(log, **COLUMNS).lengths.max() >= 4
    frames = [log[i : i + 1] for i in range(len(log))]  # each row in a file of its own
    same_as_whole(open_partitions(write(tmp_path, [frames[0], log[:0], *frames[1:]]), **COLUMNS), log)


@pytest.mark.parametrize(
    ("change", "together"),
    [
        (lambda x: x.select(x.columns[::-1]), lambda x: x),
        (lambda x: x.with_columns(pl.col("id").cast(pl.String)), lambda x: x.cast({"id": pl.String})),
        (lambda x: x.with_columns(pl.col("id").cast(pl.Float64)), lambda x: x.cast({"id": pl.Float64})),
        # Int64 and UInt64 together are numbers of 128 bits, which NumPy has not: text.
        (lambda x: x.with_columns(pl.col("id").cast(pl.UInt64)), lambda x: x.cast({"id": pl.String})),
        (lambda x: x.with_columns(pl.col("a").cast(pl.Float32), pl.col("x").cast(pl.Float32)), None),
    ],
    ids=["order of columns", "ids in words", "ids with a point", "ids without a sign", "numbers"],
)
def test_files_may_differ_in_the_order_and_types_of_their_columns(tmp_path, change, together):
    log = make_log().with_columns(pl.col("x").round(1).cast(pl.Float32).cast(pl.Float64))
    first, second = cut(log, 2)  # within a trajectory, or between two
    whole = log if together is None else together(log)
    same_as_whole(open_partitions(write(tmp_path, [first, change(second)]), **COLUMNS), whole)


@pytest.mark.parametrize(
    "filled",
    [{"x": [0.5] * 8 + [None] * 8}, {"x": ["mild", "hard"] * 4 + [None] * 8}],
    ids=["numbers", "words"],
)
def test_a_column_without_a_value_in_a_file_has_the_type_of_the_other_files(tmp_path, filled):
    """Such as a measurement that began later: the column has no type in the earlier files."""
    log = pl.DataFrame({"id": np.repeat(np.arange(8), 2), "a": [0, 1] * 8, "r": [1.0] * 16} | filled)
    first, second = log[:8], log[8:].with_columns(pl.lit(None).alias("x"))
    assert second.schema["x"] == pl.Null
    empty = log[:0].with_columns(pl.lit(None).alias(name) for name in log.columns)  # no type at all
    source = open_partitions(write(tmp_path, [empty, first, second]), **COLUMNS)
    assert source.reading.schema["x"] == log.schema["x"]
    whole, table = read_table(log, **COLUMNS), read_table(tmp_path, **COLUMNS)
    assert table.feature_names == whole.feature_names
    np.testing.assert_array_equal(table.states, whole.states)
    assert inventory_of(source).contents.gaps == {"x": 8}


DAYS = pl.date(2020, 1, 1) + pl.duration(days=pl.col("id"))


@pytest.mark.parametrize(
    "ids",
    [
        DAYS,
        DAYS.cast(pl.Datetime("ms")),
        DAYS.cast(pl.Datetime("us")).dt.replace_time_zone("Europe/Berlin"),
        pl.col("id").cast(pl.Decimal(10, 2)),
        pl.col("id").cast(pl.String).cast(pl.Categorical),
    ],
    ids=["days", "moments", "moments of a zone", "decimals", "categories"],
)
def test_ids_may_be_moments_decimals_or_categories(tmp_path, ids):
    log = make_log().with_columns(ids.alias("id"))
    mixed = log.sample(fraction=1.0, shuffle=True, seed=1)
    source = open_partitions(write(tmp_path, cut(mixed, 4)), rows=11, time="t", **COLUMNS)
    whole = read_table(mixed, time="t", **COLUMNS)
    inventory, found = read_all(source)
    assert inventory.ids[inventory.order].tolist() == whole.in_fixed_order().ids.tolist()
    assert found.keys() == set(whole.ids.tolist())
    assert all(found[name][2] == whole[i].rewards.tolist() for i, name in enumerate(whole.ids.tolist()))


def test_files_may_declare_the_same_words_in_another_order(tmp_path):
    words = make_log().with_columns(
        pl.col("a").replace_strict({0: "none", 1: "low", 2: "high"}, return_dtype=pl.String)
    )
    first, second = cut(words, 2)
    orders = (["none", "low", "high"], ["high", "low", "none"])
    frames = [
        x.with_columns(pl.col("a").cast(pl.Enum(o))) for x, o in zip((first, second), orders, strict=True)
    ]
    source = open_partitions(write(tmp_path, frames), **COLUMNS)
    whole = read_table(tmp_path, **COLUMNS)
    found = read_all(source)[1]
    assert whole.action_names == ("none", "low", "high")
    assert found == {
        name: (whole[i].states.tolist(), whole[i].actions.tolist(), whole[i].rewards.tolist())
        for i, name in enumerate(whole.ids.tolist())
    }


def test_a_part_without_any_action_is_named(tmp_path):
    log = make_log()
    empty = log.with_columns(pl.lit(None, dtype=pl.Int64).alias("a"), pl.col("id") + 1000)
    source = open_partitions(write(tmp_path, [log, empty]), **COLUMNS)
    inventory = inventory_of(source)
    assert inventory.contents.codes == {"a": (0.0, 1.0, 2.0)}
    with pytest.raises(ValueError, match="column 'a'"):
        source.reading.trajectories(inventory.parts[-1].rows(source.reading))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"episode": None}, "needs episode="),
        ({"states": ["y"]}, "'y'"),
        ({"rows": 0}, "rows must be 1 or more"),
        ({"sample": 10}, "sample must be 1000 or more"),
    ],
)
def test_what_cannot_be_opened_is_said_at_once(tmp_path, options, says):
    with pytest.raises((TypeError, ValueError), match=says):
        open_partitions(write(tmp_path, [make_log()]), **(COLUMNS | options))


def test_only_parquet_is_read_in_partitions(tmp_path):
    make_log().write_csv(tmp_path / "log.csv")
    with pytest.raises(ValueError, match=r"read from Parquet files, got .*log\.csv"):
        open_partitions(tmp_path / "log.csv", **COLUMNS)


def test_large_ids_with_a_sign_in_one_file_and_without_in_another_stay_apart(tmp_path):
    """Also with a release of Polars that makes decimal numbers of both: 2^53 and 2^53 + 1 are then one."""
    log = make_log(n=2, seed=0)
    ids = log["id"].replace_strict(
        {name: 2**53 + i for i, name in enumerate(log["id"].unique(maintain_order=True))}
    )
    log = log.with_columns(ids.cast(pl.Int64).alias("id"))
    first, second = log.partition_by("id", maintain_order=True)
    paths = write(tmp_path, [first, second.with_columns(pl.col("id").cast(pl.UInt64))])
    assert read_table(paths, **COLUMNS).ids.tolist() == [str(2**53), str(2**53 + 1)]
