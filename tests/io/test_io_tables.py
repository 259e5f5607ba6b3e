"""read_table: the same trajectories from every kind of source, in every order of rows."""

from __future__ import annotations

import gzip
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st

from caliope._trajectories import Trajectories
from caliope.io import _csv as csv_files, _source as sources, column_types, read_table

ROLES = {"episode": "stay", "action": "dose", "reward": "r", "states": ["sofa", "lactate"], "time": "hour"}


def log(n: int = 40, *, seed: int = 0) -> pl.DataFrame:
    """A log of n episodes of 1 to 6 decisions, in order; ids neither sorted nor from 0."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n)
    rows = int(lengths.sum())
    return pl.DataFrame(
        {
            "stay": np.repeat(rng.permutation(n) * 7 + 100, lengths),
            "hour": np.concatenate([np.arange(length) * 4 for length in lengths]),
            "sofa": rng.integers(0, 24, rows),
            "lactate": rng.normal(size=rows).round(3),
            "dose": np.append(rng.integers(0, 5, rows - 1), 0),
            "r": rng.normal(size=rows).round(3),
            "ended": np.concatenate([[False] * (length - 1) + [bool(length % 2)] for length in lengths]),
            "unit": rng.choice(["medical", "surgical", "cardiac"], rows),
            "age": rng.integers(18, 90, rows),
        }
    )


def assert_same(found: Trajectories, expected: Trajectories) -> None:
    for name in ("states", "actions", "rewards", "offsets", "terminated", "ids"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
        assert getattr(found, name).dtype == getattr(expected, name).dtype, name
    assert found.n_actions == expected.n_actions
    assert found.feature_names == expected.feature_names
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def write_parquet(frame: pl.DataFrame, folder: Path) -> Path:
    frame.write_parquet(folder / "log.parquet")
    return folder / "log.parquet"


def write_parts(frame: pl.DataFrame, folder: Path) -> str:
    for start in range(0, frame.height, 50):
        frame[start : start + 50].write_parquet(folder / f"part-{start:04}.pq")
    return str(folder / "part-*.pq")


def write_csv(frame: pl.DataFrame, folder: Path) -> str:
    frame.write_csv(folder / "log.csv")
    return str(folder / "log.csv")


def write_csv_gz(frame: pl.DataFrame, folder: Path) -> list[Path]:
    (folder / "log.csv.gz").write_bytes(gzip.compress(frame.write_csv().encode()))
    return [folder / "log.csv.gz"]


SOURCES = {
    "parquet": write_parquet,
    "several files": write_parts,
    "csv": write_csv,
    "csv.gz": write_csv_gz,
    "polars": lambda frame, folder: frame,
    "lazy": lambda frame, folder: frame.lazy(),
    "pandas": lambda frame, folder: frame.to_pandas(),
    "pandas over arrow": lambda frame, folder: frame.to_pandas(use_pyarrow_extension_array=True),
    "pyarrow": lambda frame, folder: frame.to_arrow(),
}


@pytest.fixture(params=SOURCES)
def opened(request, tmp_path):
    """Turn a polars frame into each kind of source."""
    return lambda frame: SOURCES[request.param](frame, tmp_path)


@pytest.fixture(params=[7, 1 << 16], ids=["tiny batches", "one batch"])
def batch_rows(request, monkeypatch):
    monkeypatch.setattr(sources, "_BATCH_ROWS", request.param)


def test_every_row_is_where_a_loop_puts_it():
    frame = log().sample(fraction=1.0, shuffle=True, seed=3)
    data = read_table(frame, **ROLES, terminated="ended", keep=["unit", "age"])
    stays = list(dict.fromkeys(frame["stay"].to_list()))
    assert data.ids.tolist() == stays
    for i, stay in enumerate(stays):
        rows = sorted(
            (row for row in frame.iter_rows(named=True) if row["stay"] == stay), key=lambda x: x["hour"]
        )
        own = slice(data.offsets[i], data.offsets[i + 1])
        assert data.states[own].tolist() == [[row["sofa"], row["lactate"]] for row in rows]
        assert data.actions[own].tolist() == [row["dose"] for row in rows]
        assert data.rewards[own].tolist() == [row["r"] for row in rows]
        assert data["unit"][own].tolist() == [row["unit"] for row in rows]
        assert data.terminated[i] == rows[-1]["ended"]


@pytest.mark.slow
@pytest.mark.usefixtures("batch_rows")
def test_every_kind_of_source_gives_the_same(opened):
    frame = log()
    expected = read_table(frame, **ROLES, terminated="ended", keep=["unit", "age"])
    assert_same(read_table(opened(frame), **ROLES, terminated="ended", keep=["unit", "age"]), expected)


@pytest.mark.slow
@pytest.mark.usefixtures("batch_rows")
def test_shuffled_rows_give_the_same_as_sorted_ones(opened):
    frame = log()
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    appear = pl.DataFrame({"stay": shuffled["stay"].unique(maintain_order=True)}).with_row_index("appears")
    in_order = shuffled.join(appear, on="stay").sort("appears", "hour")
    expected = read_table(in_order, **ROLES, terminated="ended", keep=["unit", "age"])
    assert_same(read_table(opened(shuffled), **ROLES, terminated="ended", keep=["unit", "age"]), expected)


def test_episodes_interleaved_over_files_are_put_together(tmp_path):
    frame = log()
    for part in range(3):
        frame.filter(pl.int_range(pl.len()) % 3 == part).write_csv(tmp_path / f"{part}.csv")
    files = sorted(tmp_path.iterdir())
    expected = read_table(pl.concat([pl.read_csv(path) for path in files]), **ROLES)
    assert_same(read_table(files, **ROLES), expected)
    assert set(expected.ids) == set(frame["stay"])


@st.composite
def tables(draw):
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=8))
    ids = draw(
        st.one_of(
            st.lists(st.integers(-(2**40), 2**40), unique=True, min_size=8, max_size=8),
            st.lists(st.text(min_size=1, max_size=3), unique=True, min_size=8, max_size=8),
        )
    )
    stride, begin = draw(st.integers(1, 5)), draw(st.integers(-20, 20))
    frame = pl.DataFrame(
        {
            "e": [ids[i] for i, length in enumerate(lengths) for _ in range(length)],
            "t": [begin + i + stride * step for i, length in enumerate(lengths) for step in range(length)],
            "x": np.arange(sum(lengths), dtype=float),
        }
    ).with_columns(a=pl.col("x").cast(pl.Int64) % 3, r=pl.col("x") / 7)
    cast = draw(st.sampled_from([pl.Int64, pl.Float64, pl.Datetime]))
    order = draw(st.permutations(range(frame.height)))
    return frame.with_columns(pl.col("t").cast(cast)), list(order)


@pytest.mark.slow
@settings(deadline=None)
@given(tables())
def test_shuffling_rows_only_changes_the_order_of_episodes(table):
    frame, order = table
    roles = {"episode": "e", "time": "t", "action": "a", "reward": "r", "states": "x", "n_actions": 3}
    expected, found = read_table(frame, **roles), read_table(frame[order], **roles)
    assert found.ids.tolist() == list(dict.fromkeys(frame["e"][order].to_list()))
    position = {label: i for i, label in enumerate(found.ids.tolist())}
    assert_same(found[[position[label] for label in expected.ids.tolist()]], expected)


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(["b7", "a9"])])
def test_ids_may_be_text(dtype, opened):
    frame = pl.DataFrame(
        {"e": ["b7", "b7", "a9"], "x": [1.0, 2.0, 3.0], "a": [0, 1, 0], "r": [0.0, 1.0, 2.0]}
    )
    roles = {"episode": "e", "action": "a", "reward": "r", "states": "x"}
    data = read_table(opened(frame.with_columns(pl.col("e").cast(dtype))), **roles)
    assert data.ids.tolist() == ["b7", "a9"]
    assert data.offsets.tolist() == [0, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(
    "times",
    [
        [datetime(2150, 1, 1, 5), datetime(2150, 1, 1, 3), datetime(2150, 1, 2)],
        [
            datetime(2150, 1, 1, 5, tzinfo=UTC),
            datetime(2150, 1, 1, 3, tzinfo=UTC),
            datetime(2150, 1, 2, tzinfo=UTC),
        ],
        [date(2150, 3, 1), date(2150, 1, 1), date(2150, 12, 1)],
        [2.5, 1.25, 100.0],
    ],
)
def test_clocks_only_order(times, opened):
    frame = pl.DataFrame(
        {"e": [1, 1, 1], "t": times, "x": [2.0, 1.0, 3.0], "a": [0, 1, 0], "r": [0.0, 1.0, 2.0]}
    )
    data = read_table(opened(frame), episode="e", time="t", action="a", reward="r", states="x")
    assert data.states[:, 0].tolist() == [1, 2, 3]


def test_durations_only_order():
    times = [timedelta(hours=2), timedelta(hours=1), timedelta(hours=9)]
    frame = pl.DataFrame(
        {"e": [1, 1, 1], "t": times, "x": [2.0, 1.0, 3.0], "a": [0, 1, 0], "r": [0.0, 1.0, 2.0]}
    )
    data = read_table(frame, episode="e", time="t", action="a", reward="r", states="x")
    assert data.states[:, 0].tolist() == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pl.UInt8, pl.UInt64, pl.Int8])
def test_a_counter_may_have_any_type_of_whole_number(dtype):
    frame = log().with_columns(pl.col("hour").cast(dtype)).sample(fraction=1.0, shuffle=True, seed=2)
    assert_same(read_table(frame, **ROLES), read_table(frame.with_columns(pl.col("hour").cast(int)), **ROLES))


def test_rows_without_time_keep_their_order():
    frame = log().sort(pl.col("stay"), -pl.col("hour"))
    data = read_table(frame, **(ROLES | {"time": None}))
    assert data.rewards.tolist() == frame["r"].to_list()
    assert data.ids.tolist() == frame["stay"].unique(maintain_order=True).to_list()


@pytest.mark.parametrize(
    ("small", "expected"),
    [
        ([pl.Float32, pl.Float32], np.float32),
        ([pl.Int16, pl.Float32], np.float32),
        ([pl.Boolean, pl.UInt8], np.float32),
        ([pl.Int32, pl.Float32], np.float64),
        ([pl.Float64, pl.Float32], np.float64),
    ],
)
def test_states_are_float32_where_that_is_exact(small, expected):
    frame = log().with_columns(pl.col("sofa").cast(small[0]), pl.col("lactate").abs().cast(small[1]))
    data = read_table(frame, **ROLES)
    assert data.states.dtype == expected
    np.testing.assert_array_equal(data.states[:, 0], frame["sofa"].cast(pl.Float64))


def test_files_with_different_types_of_number_are_read_together(tmp_path):
    frame = log()
    frame[:30].with_columns(pl.col("sofa").cast(pl.Int16)).write_parquet(tmp_path / "a.parquet")
    frame[30:].with_columns(pl.col("hour").cast(pl.Int32)).write_parquet(tmp_path / "b.parquet")
    assert_same(read_table(f"{tmp_path}/*.parquet", **ROLES), read_table(frame, **ROLES))


def test_a_csv_column_may_turn_fractional_after_the_rows_that_decide_its_type(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "_CSV_ROWS", 3)
    path = tmp_path / "log.csv"
    path.write_text("e,a,r,x\n" + "1,0,0,0\n" * 10 + "1,1.0,0.5,0.25\n")
    data = read_table(path, episode="e", action="a", reward="r", states="x")
    assert data.rewards[-1] == 0.5
    assert data.states[-1, 0] == 0.25


def test_datetimes_in_csv_are_understood(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("e,t,a,r,x\n1,2150-01-10 00:00:00,1,2,2\n1,2150-01-09 12:30:00,0,1,1\n")
    data = read_table(path, episode="e", time="t", action="a", reward="r", states="x")
    assert data.rewards.tolist() == [1, 2]


def test_a_file_may_have_brackets_in_its_name(tmp_path):
    log().write_parquet(tmp_path / "log[1].parquet")
    assert len(read_table(tmp_path / "log[1].parquet", **ROLES)) == 40


@pytest.mark.parametrize("actions", [[0.0, 1.0, 0.0], [False, True, False]])
def test_actions_may_be_whole_floats_or_booleans(actions):
    frame = pl.DataFrame({"e": [1, 1, 2], "x": [1.0, 2.0, 3.0], "a": actions, "r": [0, 1, 2]})
    data = read_table(frame, episode="e", action="a", reward="r", states="x")
    assert data.actions.tolist() == [0, 1, 0]
    assert data.actions.dtype == np.int64


def test_terminated_may_be_0_and_1_and_defaults_to_all():
    frame = log().with_columns(pl.col("ended").cast(pl.Int8))
    expected = frame.group_by("stay", maintain_order=True).agg(pl.col("ended").last())["ended"]
    assert read_table(frame, **ROLES, terminated="ended").terminated.tolist() == (expected == 1).to_list()
    assert read_table(frame, **ROLES).terminated.all()


def test_kept_numbers_without_a_value_become_nan_even_in_a_late_batch(opened, monkeypatch):
    monkeypatch.setattr(sources, "_BATCH_ROWS", 7)
    row = pl.int_range(pl.len())
    frame = log().with_columns(
        age=pl.when(row != pl.len() - 1).then("age"), unit=pl.when(row != pl.len() - 2).then("unit")
    )
    data = read_table(opened(frame), **ROLES, keep=["age", "unit"])
    assert data["age"][:-1].tolist() == frame["age"].to_list()[:-1]
    assert np.isnan(data["age"][-1])
    assert data["age"].dtype == np.float64
    assert data["unit"].tolist() == frame["unit"].to_list()


def test_a_state_may_also_be_kept_under_its_own_name():
    frame = log()
    data = read_table(frame, **ROLES, keep="sofa")
    assert data["sofa"].tolist() == frame["sofa"].to_list()
    assert data["sofa"].dtype == np.int64


def test_the_number_of_actions_is_passed_on():
    assert read_table(log(), **ROLES, n_actions=9).n_actions == 9


def test_a_pandas_frame_with_an_odd_index_is_read_and_left_alone():
    frame = log().to_pandas().set_index(np.zeros(log().height, dtype=int))
    before = frame.copy(deep=True)
    assert_same(read_table(frame, **ROLES), read_table(log(), **ROLES))
    assert frame.equals(before)


def test_columns_and_their_types_are_those_that_all_files_have(tmp_path):
    pl.DataFrame({"e": ["a"], "x": [1], "y": [0.5]}).write_csv(tmp_path / "1.csv")
    pl.DataFrame({"e": ["b"], "x": [1.5]}).write_csv(tmp_path / "2.csv")
    types = column_types(tmp_path / "*.csv")
    assert {name: [str(kind) for kind in kinds] for name, kinds in types.items()} == {
        "e": ["String"],
        "x": ["Int64", "Float64"],
    }
    pl.DataFrame({"e": [1], "ok": [True]}).write_parquet(tmp_path / "log.parquet")
    assert [*column_types(tmp_path / "log.parquet")] == ["e", "ok"]
    with pytest.raises(FileNotFoundError, match="no file matches"):
        column_types(tmp_path / "none.csv")
