"""Frames as databases and pandas leave them, and ids that stand in several files."""

import numpy as np
import polars as pl
import pytest

from caliope.io import read_table

N = 60
ROLES = {"episode": "id", "action": "a", "reward": "r", "states": ["x", "sex"]}


def plain():
    pd = pytest.importorskip("pandas")
    x = [None if i % 7 == 0 else i / 2 for i in range(N)]
    columns = {"id": np.repeat(np.arange(N // 3), 3), "x": x, "sex": np.resize(["m", "f"], N)}
    return pd.DataFrame(columns | {"a": np.resize([0, 1, 2, 1], N), "r": np.resize([True, False, True], N)})


def same(frame):
    data, known = read_table(frame, **ROLES), read_table(plain(), **ROLES)
    assert np.array_equal(data.states, known.states)
    assert data.feature_names == known.feature_names
    assert np.array_equal(data.rewards, known.rewards)
    assert np.array_equal(data.actions, known.actions)
    assert data.ids.tolist() == known.ids.tolist()


@pytest.mark.parametrize("columns", [["x"], ["r"], ["a", "id"], ["x", "r", "a", "id", "sex"]])
def test_objects_of_pandas_are_the_numbers_that_they_hold(columns):
    frame = plain()
    kinds = frame.dtypes.to_dict()
    same(frame.astype(dict.fromkeys(columns, object)))
    assert frame.dtypes.to_dict() == kinds  # the user's own frame stays as it was


def test_a_column_in_the_index_of_pandas_is_found():
    same(plain().set_index("id"))
    same(plain().set_index(["id", "sex"]))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_ids_that_stand_in_several_files_are_said(tmp_path, ending):
    frame = pl.DataFrame(
        {"id": np.repeat([1, 2, 3], 2), "t": [0.0, 1.5] * 3, "x": range(6), "a": [0, 1] * 3, "r": [1] * 6}
    )
    for name, part in (("a", frame), ("b", frame.with_columns(pl.col("t") + 9, id=pl.col("id") + 2))):
        getattr(part, f"write_{ending}")(tmp_path / f"{name}.{ending}")
    roles = ROLES | {"states": ["x"], "time": "t"}
    data = read_table([tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"], **roles)
    assert "1 of 5 ids in 'id' have rows in several files (first: 3)" in data.encoder.describe()["file"]
    assert data.lengths.tolist() == [2, 2, 4, 2, 2]
    assert "file" not in read_table(tmp_path / f"a.{ending}", **roles).encoder.describe()
