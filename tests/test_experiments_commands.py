"""The command line of the experiments: a kill loses at most a unit, and nothing of the result."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from caliope.cli import main

FIGURE1 = ["reproduce", "figure1", "--smoke"]


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
    assert times["command"] == "caliope reproduce figure1 --smoke"
    assert "# Figure 1" in output
    assert "Every model" not in output  # details are in the files


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(finished, tmp_path):
    command = [sys.executable, "-m", "caliope.cli", *FIGURE1, "--out", str(tmp_path)]
    units = tmp_path / "work" / "figure1" / "units"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    subprocess.run(command, check=True, capture_output=True, env=os.environ)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept  # nothing was done twice
    for suffix in ("json", "md", "svg"):
        assert (tmp_path / f"figure1.{suffix}").read_bytes() == (
            finished[0] / f"figure1.{suffix}"
        ).read_bytes()


def test_the_page_is_written_by_a_command(finished, tmp_path):
    page = tmp_path / "reproduction.md"
    result = CliRunner().invoke(main, ["reproduce", "docs", "--from", str(finished[0]), "--to", str(page)])
    assert result.exit_code == 0, result.output
    assert "## Figure 1" in page.read_text()
    assert (tmp_path / "reproduction" / "figure1.svg").exists()


def test_a_made_up_domain_takes_no_data(tmp_path):
    file = tmp_path / "cohort.parquet"
    file.write_bytes(b"")
    result = CliRunner().invoke(main, [*FIGURE1, "--data", str(file), "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "figure1 is made on a domain whose truth is known" in result.output


def test_the_help_names_every_experiment():
    result = CliRunner().invoke(main, ["reproduce", "--help"])
    for name in ("figure1", "table1", "figure2", "table2", "table3", "zoo", "all", "docs"):
        assert f"  {name} " in result.output


@pytest.mark.parametrize("heavy", ["sklearn", "matplotlib", "polars", "rich"])
def test_help_does_not_wait_for_heavy_imports(heavy):
    code = f"import sys, caliope.experiments.commands; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
