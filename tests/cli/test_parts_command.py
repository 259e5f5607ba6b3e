"""``caliope evaluate --engine``: a folder of Parquet files that is read a part at a time."""

import json
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from caliope.cli import main
from caliope.domains import ward

COLUMNS = ["--episode", "patient", "--time", "hour", "--action", "dose", "--reward", "alive"]
COLUMNS += ["--states", "severity", "--n-actions", "3"]
FAST = ["--models", "frequencies", "--draws", "20", "--quiet", "--json", "--fail-on", "never"]


@pytest.fixture(scope="module")
def log():
    data = ward.simulate(300, rng=0)  # 2,270 decisions
    wanted = ward.EARLIER[data.states[:, 0].astype(int)]
    return pl.DataFrame(
        {
            "patient": data.ids[data.layout.owner],
            "hour": 4 * data.layout.time,
            "severity": data.states[:, 0].astype(int),
            "dose": data.actions,
            "alive": data.rewards,
            **{f"p{a}": wanted[:, a] for a in range(3)},
        }
    )


def write(log, folder, pieces):
    folder.mkdir()
    ends = np.linspace(0, len(log), pieces + 1).astype(int)
    for i, (a, b) in enumerate(pairwise(ends)):
        log[a:b].write_parquet(folder / f"{i}.parquet")
    return folder


def run(*arguments):
    return CliRunner().invoke(main, ["evaluate", *map(str, arguments)], env={"COLUMNS": "200"})


def answer(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    rows = [
        found["headline"],
        found["gain"],
        found["practice"],
        *found["estimates"]["rows"],
        *found["reach"]["rows"],
    ]
    values = [(row["value"], row["interval"]["low"], row["interval"]["high"]) for row in rows]
    said = [
        (row["name"], row["verdict"], [finding["message"] for finding in row["findings"]]) for row in rows
    ]
    return np.array(values), said, found["headline"]


def assert_same(one, other):
    np.testing.assert_allclose(one[0], other[0], rtol=1e-10, atol=1e-10)
    assert one[1] == other[1]


def test_a_folder_is_read_in_parts_and_how_it_is_cut_does_not_matter(log, tmp_path):
    target = ["--target-columns", "p0..p2", "--soften", "0.5", *COLUMNS, *FAST]
    parts = ["--engine", "local", "--workers", "1", "--sample", "1000"]
    one = answer(write(log, tmp_path / "one", 1), *target, *parts)
    assert_same(answer(write(log, tmp_path / "five", 5), *target, *parts), one)
    assert one[2]["n"] == 300
    assert "A113" in {finding["code"] for finding in one[2]["findings"]}


def test_a_log_no_longer_than_the_sample_gives_the_numbers_of_one_in_memory(log, tmp_path):
    folder, rest = write(log, tmp_path / "log", 3), ["--target-columns", "p0..p2", *COLUMNS, *FAST]
    assert_same(answer(folder, *rest, "--engine", "local", "--workers", "1"), answer(folder, *rest))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--workers", "2"], "workers is for a log that is read in parts: add engine"),
        (["--engine", "local", "--scheduler", "tcp://x:1"], "scheduler is for the engine dask"),
        (["--engine", "dask", "--scheduler", "tcp://x:1", "--workers", "1"], "give one of the two"),
        (["--engine", "local", "--by", "severity"], "by needs the log in memory"),
        (["--engine", "local", "--learnt-on", "seen"], "learnt_on of a log in parts is no"),
        (["--engine", "spark"], "engine must be local or dask"),
    ],
)
def test_what_does_not_fit_is_said_at_once(log, tmp_path, options, says):
    result = run(write(log, tmp_path / "log", 1), "--target-columns", "p0..p2", *COLUMNS, *FAST, *options)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_part_that_cannot_be_read_is_named(log, tmp_path):
    folder = write(log, tmp_path / "log", 3)
    odd = pl.read_parquet(folder / "1.parquet").with_columns(pl.col("alive").replace(0.0, None))
    odd.write_parquet(folder / "1.parquet")
    parts = ["--engine", "local", "--workers", "1", "--sample", "1000"]
    result = run(folder, "--target-columns", "p0..p2", *COLUMNS, *FAST, *parts)
    assert result.exit_code == 2
    assert "1.parquet" in result.stderr or "'alive'" in result.stderr
