"""Kills, full disks, folders that cannot be written, files that change: a clear line, and nothing of anybody's is lost.

``python -m benchmarks.kills`` kills a hundred times.
"""

import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

import caliope as cal
from caliope._cache import Cache
from caliope._files import written_whole
from caliope.behaviour import TabularFrequencies, save_model
from caliope.cli import main
from caliope.io import _source
from caliope.report._page import write_whole
from support.fuzzing import FAST, REQUESTS, as_csv, as_parquet, base_frame
from support.killing import JOBS, finish, kill_and_finish, moments_of


@contextmanager
def full_after(size):
    """No file of this process may be longer than this: what writes on gets the error of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def read_only(tmp_path):
    """A folder in which nobody may write; to root, who may write everywhere, an immutable one."""
    folder = tmp_path / "locked"
    folder.mkdir()
    if os.geteuid():
        folder.chmod(0o500)
        yield folder
        folder.chmod(0o700)
        return
    if subprocess.run(["chattr", "+i", folder], check=False, capture_output=True).returncode:
        pytest.skip("root writes everywhere, and this file system has no immutable folders")
    yield folder
    subprocess.run(["chattr", "-i", folder], check=True)


def evaluate(path, *more):
    options = [part for pair in REQUESTS["logged"].items() for part in pair]
    return CliRunner().invoke(main, ["evaluate", str(path), *FAST, "--draws", "20", *options, *more])


def one_line(result):
    """The error of a command, which is one line on the standard error and exit code 2."""
    assert result.exit_code == 2, result.output
    assert result.stderr.count("\n") == 1
    assert "unexpected" not in result.stderr
    return result.stderr


# -- kills --


@pytest.mark.slow
@pytest.mark.parametrize("name", ["evaluate", "cohort"])
def test_a_command_killed_twice_ends_in_the_numbers_of_an_undisturbed_one(name, tmp_path):
    pytest.importorskip("duckdb")
    job = JOBS[name]
    whole, seconds, fault = finish(job, tmp_path / "whole")
    assert not fault
    assert set(whole) == set(job.files)
    came = kill_and_finish(job, tmp_path / "killed", moments_of(7, 2), whole=whole, seconds=seconds)
    assert came.faults == ()
    assert came.kills + came.too_late == 2


# -- a full disk --


def as_report(path):
    write_whole(path, "x" * 9000)


def as_model(path):
    model = TabularFrequencies(shrinkage=1.0).fit([[i] for i in range(500)], [i % 2 for i in range(500)])
    save_model(model, path)


def as_table(path):
    with written_whole(path) as beside:
        pl.DataFrame({"x": [0.1 * i for i in range(9000)]}).write_parquet(beside)


@pytest.mark.parametrize("write", [as_report, as_model, as_table])
def test_on_a_full_disk_the_file_of_before_stays(write, tmp_path):
    path = tmp_path / "mine"
    path.write_bytes(b"of before")
    with full_after(4000), pytest.raises(OSError, match="mine could not be written") as caught:
        write(path)
    assert "File too large" in str(caught.value)
    assert "what stood there before is untouched. Make room" in str(caught.value)
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("mine", b"of before")]
    write(path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
    assert path.stat().st_size > 4000


def test_an_interruption_leaves_the_file_of_before(tmp_path):
    path = tmp_path / "mine"
    path.write_text("of before")

    def interrupted():
        with written_whole(path) as beside:
            beside.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("mine", "of before")]


def test_a_link_stays_a_link_and_a_device_is_no_file(tmp_path):
    (tmp_path / "folder").mkdir()
    link, path = tmp_path / "link", tmp_path / "folder" / "mine"
    link.symlink_to(path)
    write_whole(link, "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    with written_whole("/dev/null") as named:
        assert named == Path("/dev/null")


def test_a_stage_that_finds_no_room_says_so_and_those_before_it_are_kept(tmp_path):
    kept = Cache.of(tmp_path)
    assert kept("first", lambda: 1) == 1
    with full_after(500), pytest.raises(OSError, match="folder for work") as caught:
        kept("second", lambda: list(range(9000)))
    assert "(File too large): what was finished before is kept. Make room" in str(caught.value)
    assert len(list(tmp_path.iterdir())) == 1
    assert kept("first", lambda: 2) == 1


@pytest.mark.slow
def test_a_command_on_a_full_disk_says_so_in_one_line(tmp_path):
    path = as_parquet(base_frame(0), tmp_path)
    with full_after(1000):
        said = one_line(evaluate(path, "--work", str(tmp_path / "work")))
    assert "could not be written to the folder for work" in said
    assert not list((tmp_path / "work").iterdir())
    page = tmp_path / "report.html"
    page.write_text("of before")
    with full_after(5000):
        result = evaluate(path, "--out", str(page))
    assert "report.html could not be written (File too large)" in one_line(result)
    assert result.stdout.startswith(
        "{"
    )  # the numbers took the time, and are printed before the page is written
    assert page.read_text() == "of before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log.parquet", "report.html", "work"]


def test_a_full_standard_output_is_one_line():
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "caliope", "explain", "B104"],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
        )
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "Error: No space left on device. Make room, also where temporary files are kept (TMPDIR).\n"
    )


# -- a folder that cannot be written --


@pytest.mark.parametrize(
    ("option", "name", "said"),
    [
        ("--work", "", "cannot be used for work"),
        ("--work", "inside", "cannot be used for work"),
        ("--out", "report.html", "report.html cannot be written"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_before_the_log_is_read(option, name, said, read_only):
    result = evaluate("there is no log", option, str(read_only / name))
    assert said in one_line(result)
    assert not list(read_only.iterdir())


def test_a_simulated_log_and_a_model_say_where_they_cannot_be_written(read_only):
    result = CliRunner().invoke(main, ["simulate", "ward", "--out", str(read_only / "log.csv")])
    assert "log.csv cannot be written" in one_line(result)
    with pytest.raises(OSError, match=r"model\.skops could not be written \(.+\): what stood there"):
        as_model(read_only / "model.skops")


# -- a file that changes while it is read --


# The oldest polars reads ahead, and nobody asks for the error that it finds there.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("write", [as_csv, as_parquet])
@pytest.mark.parametrize("change", ["other rewards", "more rows", "cut off"])
def test_a_file_that_changes_while_it_is_read_is_refused(write, change, tmp_path, monkeypatch):
    """Other rewards beside the same decisions: no key tells that half of the table is of another version."""
    frame = base_frame(0)
    path = write(frame, tmp_path)
    keys = _source._Part.keys

    def keys_then_change(part, names):
        found = keys(part, names)
        if change == "cut off":
            path.write_bytes(path.read_bytes()[:-200])
        else:
            write(
                frame.with_columns(alive=1 - pl.col("alive"))
                if change == "other rewards"
                else pl.concat([frame, frame]),
                tmp_path,
            )
        return found

    monkeypatch.setattr(_source._Part, "keys", keys_then_change)
    with pytest.raises(
        ValueError, match=rf"{path.name} changed while it was read, so that its rows may be of two"
    ):
        cal.read_table(
            path, episode="patient", action="dose", reward="alive", states=["severity"], time="hour"
        )
