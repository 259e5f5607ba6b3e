"""``caliope cohort``: what it prints, what it writes, and how it fails."""

import json
import signal
import subprocess
import sys

import polars as pl
import pytest
from click.testing import CliRunner

from caliope.cli._cohort import cohort
from support.clinical_tables import typical

pytest.importorskip("duckdb")


def run(*arguments):
    return CliRunner().invoke(cohort, [str(x) for x in arguments])


@pytest.mark.slow
def test_the_command_writes_the_cohort_and_says_who_left(tmp_path):
    source = typical(2).drip(0.2, 6, 9).write(tmp_path / "raw")
    out = tmp_path / "cohort.parquet"
    kept = tmp_path / "stages.duckdb"
    result = run(
        "mimic3", "--source", source, "--out", out, "--as-published", "sofa_gaps", "--as-published", "venous_gases",
        "--terminal-reward", 100, "--keep-stages", kept, "--threads", 1, "--memory", "1GB",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert pl.read_parquet(out).filter("terminated")["reward"].to_list() == [100, 100]
    assert "stays never given a vasopressor" in result.stdout
    assert "SOFA below 2" in result.stdout
    assert result.stderr.count(" s  ") == 14  # a line a stage
    about = json.loads((tmp_path / "cohort.json").read_text())
    assert about["settings"]["as_published"] == ["venous_gases", "sofa_gaps"]
    assert about["summary"]["decisions"] == 22
    assert kept.is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--source", "nowhere"), "neither a folder"),
        (("--source", ".", "--as-published", "nonsense"), "nonsense"),
        (("--source", ".", "--train-share", "2"), "train_share"),
        (("--source", ".", "--memory", "much"), "memory must be a size such as 4GB or 500MB, got 'much'"),
        (("--source", ".", "--threads", "0"), "threads must be 1 or more, got 0"),
        (("--source", ".", "--terminal-reward", "nan"), "terminal_reward must be a number above 0, got nan"),
        (("--source", "postgresql://u:secret@[bad"), "the address of the PostgreSQL server cannot be read"),
    ],
)
def test_errors_are_one_line_and_exit_code_2(tmp_path, arguments, message):
    result = run("mimic3", "--out", tmp_path / "x.parquet", *arguments)
    assert result.exit_code == 2
    error = [line for line in result.stderr.splitlines() if not line.startswith("reading")]
    assert len(error) == 1
    assert message in error[0]
    assert "secret" not in result.output
    assert not (tmp_path / "x.parquet").exists()


def test_stages_are_never_written_over_a_file(tmp_path):
    source = typical().write(tmp_path / "raw")
    precious = tmp_path / "hospital.duckdb"
    precious.write_text("years of work")
    result = run("mimic3", "--source", source, "--out", tmp_path / "x.parquet", "--keep-stages", precious)
    assert result.exit_code == 2
    assert "exists already" in result.stderr
    assert precious.read_text() == "years of work"


def test_what_the_cohort_was_made_from_is_never_replaced(tmp_path):
    source = typical().write(tmp_path / "raw")
    precious = tmp_path / "raw" / "mine.parquet"
    precious.write_text("years of work")
    (tmp_path / "folder.parquet").mkdir()
    kept = tmp_path / "stages.parquet"
    cases = [
        ("mimic3", source, tmp_path / "x.json", (), "must end in .parquet"),
        ("mimic3", source, tmp_path / "x", (), "must end in .parquet"),
        ("mimic3", precious, precious, (), "is the source"),
        (
            "mimic3",
            source,
            tmp_path / "raw" / ".." / "raw" / "mine.parquet",
            (),
            "in the folder of the source",
        ),
        ("mimic3", source, kept, ("--keep-stages", kept), "is the file of the stages too"),
        ("mimic3", source, tmp_path / "folder.parquet", (), "Is a directory"),
        ("mimic3", source, precious / "x.parquet", (), "File exists"),
        ("mistakes", source, tmp_path / "x.parquet", (), "must end in .csv"),
        ("mistakes", tmp_path / "x.csv", tmp_path / "x.csv", (), "is the source"),
    ]
    for command, read, out, more, message in cases:
        result = run(command, "--source", read, "--out", out, *more)
        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1), message
        assert message in result.stderr
    assert precious.read_text() == "years of work"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.parquet", "raw"]


@pytest.mark.slow
def test_stages_are_taken_up_only_where_nothing_has_changed(tmp_path, monkeypatch):
    source, kept = typical().write(tmp_path / "raw"), tmp_path / "stages.duckdb"
    command = ("mimic3", "--source", source, "--out", tmp_path / "x.parquet", "--keep-stages", kept)
    assert "taken from" not in run(*command).output
    monkeypatch.chdir(tmp_path)
    result = run("mimic3", "--source", "raw", *command[3:])  # the same folder by another name
    assert result.exit_code == 0, result.output
    assert f"14 of 14 stages taken from {kept}" in result.stderr
    typical(2).write(source)
    result = run(*command)
    assert result.exit_code == 2
    assert "have changed since" in result.stderr


@pytest.mark.slow
def test_an_interrupted_run_says_so_in_one_line(tmp_path):
    source, out = typical(200).write(tmp_path / "raw"), tmp_path / "x.parquet"
    code = "from caliope.cli._cohort import cohort; cohort()"
    command = [sys.executable, "-c", code, "mimic3", "--source", source, "--out", out]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr.readline() == f"reading {source}\n"
        running.send_signal(signal.SIGINT)
        said = [line for line in running.stderr if " s  " not in line]  # but for the stages that were done
    assert (running.returncode, said) == (130, ["Error: interrupted; nothing was written.\n"])
    assert not out.exists()


@pytest.mark.slow
def test_what_a_mistake_changes(tmp_path):
    source = typical(2).lab(51464, 1, 8.0).write(tmp_path / "raw")  # bilirubin in urine
    result = run(
        "mistakes",
        "--source",
        source,
        "--out",
        tmp_path / "m.csv",
        "--name",
        "urine_bilirubin",
        "--name",
        "sofa_gaps",
    )
    assert result.exit_code == 0, result.output
    table = {row["mistake"]: row for row in pl.read_csv(tmp_path / "m.csv").iter_rows(named=True)}
    # The first of two patients: from the first decision on the false value is held, then carried.
    assert table["urine_bilirubin"]["states_changed"] == 0.5
    assert table["sofa_gaps"]["states_changed"] == 0
    assert (
        table["urine_bilirubin"]["mean_sofa"] == table["none"]["mean_sofa"] + 0.5 * 3
    )  # 8 mg/dL: three points


def test_mimic4_names_the_table_it_misses(tmp_path):
    result = run("mimic4", "--source", typical().write(tmp_path / "raw"), "--out", tmp_path / "x.parquet")
    assert result.exit_code == 2
    assert "inputevents is missing" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("heavy", ["duckdb", "polars", "psycopg", "sklearn"])
def test_help_does_not_wait_for_heavy_imports(heavy):
    code = f"import sys, caliope.cli._cohort; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
