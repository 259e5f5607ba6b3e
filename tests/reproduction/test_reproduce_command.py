"""``python -m reproduction``: a kill loses at most one unit, and nothing of the result."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from reproduction.__main__ import main
from support.cohort_files import write_cohort

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FIGURE1 = ["figure1", "--smoke"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that nobody interrupted."""
    folder = tmp_path_factory.mktemp("finished")
    result = CliRunner().invoke(main, [*FIGURE1, "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return folder, result.output


def test_a_run_writes_its_results_and_its_time_apart(finished):
    folder, output = finished
    for suffix in ("json", "md", "svg", "times.json"):
        assert (folder / f"figure1.{suffix}").stat().st_size > 0
    times = json.loads((folder / "figure1.times.json").read_text())
    assert times["units"] == 5
    assert times["units_of_other_code"] == 0
    assert times["command"] == "python -m reproduction figure1 --smoke"
    assert "# Figure 1" in output
    assert "Every model" not in output  # details are in the files


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(finished, tmp_path):
    command = [sys.executable, "-m", "reproduction", *FIGURE1, "--out", str(tmp_path)]
    units = tmp_path / "work" / "figure1" / "units"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        while len(list(units.glob("*.json"))) < 2:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = {path: path.stat().st_mtime_ns for path in units.glob("*.json")}
    assert 2 <= len(kept) < 5
    assert not (tmp_path / "figure1.json").exists()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept  # nothing was done twice
    for suffix in ("json", "md", "svg"):
        assert (tmp_path / f"figure1.{suffix}").read_bytes() == (
            finished[0] / f"figure1.{suffix}"
        ).read_bytes()


def test_the_page_is_written_by_a_command(finished, tmp_path):
    page = tmp_path / "reproduction.md"
    result = CliRunner().invoke(main, ["docs", "--from", str(finished[0]), "--to", str(page)])
    assert result.exit_code == 0, result.output
    assert "## Figure 1" in page.read_text()
    assert (tmp_path / "reproduction" / "figure1.svg").exists()


def test_a_made_up_domain_takes_no_data(tmp_path):
    file = tmp_path / "cohort.parquet"
    file.write_bytes(b"")
    result = CliRunner().invoke(main, [*FIGURE1, "--data", str(file), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "figure1 runs on a domain whose truth is known" in result.output


def test_a_readers_own_cohort_makes_what_can_be_made_of_it(tmp_path):
    file = write_cohort(tmp_path / "mine.parquet")
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["all", "--smoke", "--data", str(file), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert sorted(path.stem for path in out.glob("*.md")) == ["figure2", "table1", "table2"]
    page = tmp_path / "page.md"
    assert CliRunner().invoke(main, ["docs", "--from", str(out), "--to", str(page)]).exit_code == 0
    text = page.read_text()
    # The truth of these patients is unknown, and they were not simulated.
    for words in (
        "exact",
        "The true policy",
        "to the true policy",
        "truth is known",
        "simulated",
        "-15 or 15",
        "ICU-Sepsis",
        "of its own, with",
    ):
        assert words not in text, words
    assert "mine.parquet" in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("name", ["table1", "figure2", "table2"])
def test_a_file_that_is_not_a_cohort_is_refused_in_one_line(tmp_path, name):
    file = tmp_path / "notes.txt"
    file.write_text("a cohort is not a text")
    result = CliRunner().invoke(main, [name, "--smoke", "--data", str(file), "--out", str(tmp_path)])
    assert result.exit_code == 2
    said = [line for line in result.output.splitlines() if "notes.txt" in line]
    assert len(said) == 1
    assert "is not a cohort file: that is a Parquet file of caliope cohort" in said[0]


@pytest.mark.parametrize("command", ["figure1", "all"])
def test_one_size_at_a_time(tmp_path, command):
    result = CliRunner().invoke(main, [command, "--smoke", "--full", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "--smoke and --full exclude each other" in result.output
    assert not list(tmp_path.iterdir())


def test_the_help_names_every_experiment():
    result = CliRunner().invoke(main, ["--help"])
    for name in ("figure1", "table1", "figure2", "table2", "table3", "zoo", "all", "docs"):
        assert f"  {name} " in result.output


@pytest.mark.parametrize("heavy", ["sklearn", "matplotlib", "polars", "rich"])
def test_help_does_not_wait_for_heavy_imports(heavy):
    code = f"import sys, reproduction.__main__; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


def test_several_processes_give_the_same_bytes(finished, tmp_path):
    command = [sys.executable, "-m", "reproduction", *FIGURE1, "--jobs", "2", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    for suffix in ("json", "md", "svg"):
        name = f"figure1.{suffix}"
        assert (tmp_path / name).read_bytes() == (finished[0] / name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table9"], "No such command 'table9'"),
        (["table1", "--times", "0"], "0 is not in the range x>=1"),
        (["table1", "--times", "2"], "table1 has no replicates to add to"),
        (["table1", "--few"], "table1 has no pipelines to leave out"),
        (["table1", "--trajectories", "500"], "table1 has no logs of several sizes"),
        (["table3", "--trajectories", "501"], "trajectories must be 500 or 2000, got 501"),
        (["table1", "--data", "none.parquet"], "does not exist"),
    ],
)
def test_a_mistake_in_the_options_is_told_in_one_line(arguments, words):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1, result.stderr
    assert words in result.stderr


def test_what_goes_wrong_is_told_in_one_line(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "table1.json").write_text("{")
    arguments = ["docs", "--from", str(folder), "--to", str(tmp_path / "page.md")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1, result.stderr
    monkeypatch.setenv("CALIOPE_TRACEBACK", "1")
    assert isinstance(CliRunner().invoke(main, arguments).exception, ValueError)


def test_the_first_replicates_are_the_start_of_a_longer_run(finished, tmp_path):
    folder, _ = finished
    first = CliRunner().invoke(main, [*FIGURE1, "--replicates", "1", "--out", str(tmp_path)])
    assert first.exit_code == 0, first.output
    times = json.loads((tmp_path / "figure1.times.json").read_text())
    assert times["command"] == "python -m reproduction figure1 --smoke --replicates 1"
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "work/figure1/units").glob("*.json")}
    assert 0 < len(kept) == times["units"] < 5
    assert CliRunner().invoke(main, [*FIGURE1, "--out", str(tmp_path)]).exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (tmp_path / "figure1.json").read_bytes() == (folder / "figure1.json").read_bytes()


def test_an_experiment_without_replicates_to_leave_out_says_so():
    refused = CliRunner().invoke(main, ["gate", "--smoke", "--replicates", "1"])
    assert refused.exit_code == 2
    assert "gate has neither seeds nor pairs to take the first of" in refused.output
