"""Parquet files that end the process that reads them: each is one clear line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from caliope.io import _intact, read_table
from caliope.io._partitions import open_partitions

ROLES = {"episode": "stay", "action": "dose", "reward": "alive", "states": ["age"]}
LOG = pl.DataFrame(
    {
        "stay": [1, 1, 2, 2],
        "hour": [0, 1, 0, 1],
        "dose": [0, 1, 1, 0],
        "alive": [0, 1, 0, 0],
        "age": [40, None, 50, 51],
        "unused": [7, None, 7, 8],
    }
)


def damaged(folder, column):
    """The log with a column that says it has minus four values, in a page that has gaps."""
    path = folder / "log.parquet"
    LOG.select("stay", "dose", "alive", "hour", column).write_parquet(
        path, compression="uncompressed", statistics=False
    )
    content = path.read_bytes()
    at = content.rindex(b",\x15\x08\x15")  # of the header of the last page: 8 stands for 4, and 7 for -4
    path.write_bytes(content[: at + 2] + b"\x07" + content[at + 3 :])
    return path


def test_the_damage_ends_a_process_that_reads_it(tmp_path):
    """Else the other tests show nothing; where the reader says what is wrong, they need no other process."""
    code = "import sys, polars as pl\npl.scan_parquet(sys.argv[1]).collect(engine='streaming')"
    done = subprocess.run(
        [sys.executable, "-c", code, damaged(tmp_path, "age")], check=False, capture_output=True
    )
    assert done.returncode in (-signal.SIGABRT, 1)


def test_a_file_that_ends_the_reader_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"log\.parquet could not be read"):
        read_table(damaged(tmp_path, "age"), **ROLES)
    with pytest.raises(ValueError, match=r"log\.parquet could not be read"):
        open_partitions(damaged(tmp_path, "age"), **ROLES)
    good = tmp_path / "good.parquet"
    LOG.with_columns(age=pl.lit(5)).write_parquet(good)
    assert read_table(good, **ROLES).n_steps == 4


@pytest.mark.slow
def test_the_command_says_it_in_one_line(tmp_path):
    named = {"episode": "stay", "action": "dose", "reward": "alive", "states": "age", "policy": "0"}
    options = [part for name, column in named.items() for part in (f"--{name}", column)]
    done = subprocess.run(
        [sys.executable, "-m", "caliope", "evaluate", str(damaged(tmp_path, "age")), *options, "--quiet"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
    assert "could not be read" in done.stderr


def test_a_column_that_nobody_reads_may_be_damaged(tmp_path):
    path = damaged(tmp_path, "unused")
    assert read_table(path, **(ROLES | {"states": ["hour"]})).n_steps == 4


@pytest.fixture
def fresh(monkeypatch):
    """No reader yet, and none left behind."""
    monkeypatch.setattr(_intact, "_readers", {})
    yield
    _intact._end_own()


@pytest.fixture
def reading(fresh, monkeypatch):
    """A reader that ends itself at files of a name, and otherwise answers."""
    monkeypatch.setattr(
        _intact,
        "_READER",
        "import os, sys\nprint(flush=True)\n"
        "for line in sys.stdin:\n    os.abort() if 'bad' in line else print(flush=True)",
    )


@pytest.mark.usefixtures("reading")
def test_after_a_file_that_ended_it_another_reader_is_started(tmp_path):
    good, bad = tmp_path / "good.parquet", tmp_path / "bad.parquet"
    _intact.try_reading(good)
    first = _intact._readers[os.getpid()].pid
    _intact.try_reading(good)
    assert _intact._readers[os.getpid()].pid == first
    with pytest.raises(
        ValueError, match=r"bad\.parquet could not be read: it ended the process .*\(SIGABRT\)"
    ):
        _intact.try_reading(bad)
    _intact.try_reading(good)
    assert _intact._readers[os.getpid()].pid != first


@pytest.mark.usefixtures("reading")
def test_a_reader_that_somebody_ended_in_between_blames_no_file(tmp_path):
    _intact.try_reading(tmp_path / "good.parquet")
    _intact._readers[os.getpid()].kill()
    _intact._readers[os.getpid()].wait()
    _intact.try_reading(tmp_path / "good.parquet")


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("given", ["raise SystemExit(1)", "no Python at all"])
def test_where_no_reader_can_be_started_files_are_read_without(given, tmp_path, monkeypatch):
    monkeypatch.setattr(_intact, "_READER", given)
    _intact.try_reading(tmp_path / "bad.parquet")
    assert _intact._readers == {os.getpid(): None}


@pytest.mark.usefixtures("fresh")
def test_a_large_file_leaves_no_process_that_holds_memory(tmp_path, monkeypatch):
    path = tmp_path / "log.parquet"
    LOG.write_parquet(path)
    monkeypatch.setattr(_intact, "_LARGE", path.stat().st_size)
    _intact.try_reading(path, None)
    assert os.getpid() in _intact._readers
    monkeypatch.setattr(_intact, "_LARGE", path.stat().st_size - 1)
    _intact.try_reading(path, None)
    assert os.getpid() not in _intact._readers


def test_a_relative_path_is_that_of_this_process(tmp_path, monkeypatch):
    """The other process was started elsewhere."""
    _intact.try_reading(Path("anything.parquet"))
    damaged(tmp_path, "age")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="could not be read"):
        read_table("log.parquet", **ROLES)
