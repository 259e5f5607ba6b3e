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


def run(*arguments, command="evaluate"):
    return CliRunner().invoke(main, [command, *map(str, arguments)], env={"COLUMNS": "200"})


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


@pytest.mark.slow
def test_a_folder_is_read_in_parts_and_how_it_is_cut_does_not_matter(log, tmp_path):
    target = ["--target-columns", "p0..p2", "--soften", "0.5", *COLUMNS, *FAST]
    parts = ["--engine", "local", "--workers", "1", "--sample", "1000"]
    one = answer(write(log, tmp_path / "one", 1), *target, *parts)
    assert_same(answer(write(log, tmp_path / "five", 5), *target, *parts), one)
    assert one[2]["n"] == 300
    assert "A113" in {finding["code"] for finding in one[2]["findings"]}


@pytest.mark.slow
def test_a_log_no_longer_than_the_sample_gives_the_numbers_of_one_in_memory(log, tmp_path):
    folder, rest = write(log, tmp_path / "log", 3), ["--target-columns", "p0..p2", *COLUMNS, *FAST]
    assert_same(answer(folder, *rest, "--engine", "local", "--workers", "1"), answer(folder, *rest))


PARTS = ["--engine", "local", "--workers", "1", "--sample", "1000"]
TARGETS = ["--target", "earlier=p0..p2", "--target", "mostly=recommended:often"]


@pytest.fixture(scope="module")
def advised(log):
    return log.with_columns((pl.col("severity") // 2).clip(0, 2).alias("often"))


def plain(found):
    """The answer without what the machine took, and without what only one reading says of the files."""
    if isinstance(found, dict):
        return {
            k: plain(x) for k, x in found.items() if k not in ("stages", "seconds", "peak_gb", "log", "file")
        }
    return [plain(x) for x in found] if isinstance(found, list) else found


def flat(x, path=""):
    if isinstance(x, dict | list):
        for k, part in x.items() if isinstance(x, dict) else enumerate(x):
            yield from flat(part, f"{path}/{k}")
    else:
        yield path, x


def assert_same_answer(one, other):
    ours, theirs = (dict(flat(plain(x))) for x in (one, other))
    assert ours.keys() == theirs.keys()
    for path, value in ours.items():
        close = pytest.approx(value, rel=1e-10, abs=1e-10) if isinstance(value, float) else value
        assert theirs[path] == close, path


def compared(*arguments):
    result = run(*arguments, *TARGETS, *COLUMNS, *FAST, command="compare")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_policies_are_compared_in_parts_and_how_the_log_is_cut_does_not_matter(advised, tmp_path):
    one = compared(write(advised, tmp_path / "one", 1), *PARTS)
    assert_same_answer(compared(write(advised, tmp_path / "four", 4), *PARTS), one)
    assert [row["policy"] for row in one["policies"]] == ["earlier", "mostly"]
    assert one["audits"]["earlier"]["headline"]["n"] == one["policies"][0]["value"]["n"] == 300
    assert "A113" in {finding["code"] for finding in one["policies"][0]["difference"]["findings"]}
    alone = run(tmp_path / "four", "--target-columns", "p0..p2", *COLUMNS, *FAST, *PARTS)
    value = json.loads(alone.stdout)["headline"]["value"]
    assert one["policies"][0]["value"]["value"] == pytest.approx(value, abs=1e-12)


@pytest.mark.slow
def test_a_comparison_on_a_log_no_longer_than_the_sample_is_that_of_one_in_memory(advised, tmp_path):
    folder = write(advised, tmp_path / "log", 3)
    assert_same_answer(compared(folder, "--engine", "local", "--workers", "1"), compared(folder))


def calibrated(*arguments):
    models = ["--models", "frequencies,logistic", "--quiet", "--json"]
    result = run(*arguments, *COLUMNS, *models, command="calibrate")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_models_are_compared_on_the_sample_that_an_audit_would_take(log, tmp_path):
    one = calibrated(write(log, tmp_path / "one", 1), *PARTS)
    assert_same_answer(calibrated(write(log, tmp_path / "four", 4), *PARTS), one)
    assert "A113" in {finding["code"] for finding in one["log"]}
    whole = calibrated(tmp_path / "one", "--engine", "local")
    assert_same_answer(whole, calibrated(tmp_path / "one"))
    assert "A113" not in {finding["code"] for finding in whole["log"]}


def test_a_comparison_in_parts_needs_policies_that_are_given(log, tmp_path):
    learnt = ["--target", "a=p0..p2", "--target", "b=learn:own:fit", "--engine", "local"]
    result = run(write(log, tmp_path / "log", 1), *learnt, *COLUMNS, *FAST, command="compare")
    assert result.exit_code == 2
    assert "a policy that is learnt needs the log in memory" in result.stderr


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
