import subprocess
import sys

import pytest
from click.testing import CliRunner

from caliope.cli import main


@pytest.mark.slow
def test_the_demo_audits_a_policy_and_tells_the_truth(tmp_path):
    page = tmp_path / "demo.html"
    result = CliRunner().invoke(main, ["demo", "--patients", "80", "--quiet", "--out", str(page)])
    distrusted = "Verdict: do not trust" in result.output
    assert result.exit_code == (3 if distrusted else 0), result.output
    assert "Verdict: " in result.output
    # Exact values of a fifth optimal decisions and of the clinicians, at a discount of 0.99 and a cap of 20 steps.
    assert "8.261; current practice 7.873" in result.output
    assert page.read_text().startswith("<!DOCTYPE html>") or page.read_text().startswith("<!doctype html>")
    assert page.with_suffix(".json").exists()


@pytest.mark.parametrize("heavy", ["sklearn", "polars", "scipy.stats", "rich"])
def test_help_does_not_wait_for_heavy_imports(heavy):
    code = f"import sys, caliope.cli; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_a_command_the_help_names_what_there_is():
    result = CliRunner().invoke(main, ["--help"])
    assert "demo" in result.output


@pytest.mark.parametrize(
    ("arguments", "said", "help_of"),
    [
        (["--colour"], "No such option '--colour'", "caliope"),
        (["evalute"], "No such command 'evalute'", "caliope"),
        (["evaluate"], "Missing argument 'LOG...'", "caliope evaluate"),
        (["evaluate", "log.csv", "--gama", "1"], "No such option '--gama'", "caliope evaluate"),
        (["evaluate", "log.csv", "--gamma", "much"], "'much' is not a valid float", "caliope evaluate"),
        (["evaluate", "log.csv", "--gamma"], "Option '--gamma' requires an argument", "the command with"),
        (["calibrate", "log.csv", "--seed", "1.5"], "'1.5' is not a valid integer", "caliope calibrate"),
        (["calibrate", "log.csv", "--quiet=no"], "does not take a value", "the command with"),
        (["cohort", "mimic5"], "No such command 'mimic5'", "caliope cohort"),
        (["cohort", "mimic3"], "Missing option '--source'", "caliope cohort mimic3"),
        (["cohort", "mimic3", "--source", "x", "--out", "y", "--cuts", "z"], "'z' is not one of", "mimic3"),
        (["demo", "--patients", "many"], "'many' is not a valid integer", "caliope demo"),
    ],
)
def test_a_mistake_in_the_options_is_told_in_one_line(arguments, said, help_of):
    result = CliRunner().invoke(main, arguments, prog_name="caliope")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("Error: ")
    assert said in result.stderr
    assert result.stderr.endswith(f"{help_of} --help.\n")


@pytest.mark.parametrize("arguments", [[], ["cohort"]])
def test_asked_for_nothing_it_shows_the_help(arguments):
    result = CliRunner().invoke(main, arguments, prog_name="caliope")
    assert result.output.startswith("Usage: caliope")
    assert "Commands:" in result.output


def test_what_goes_wrong_in_any_command_is_told_in_one_line(tmp_path, monkeypatch):
    log = tmp_path / "log.csv"
    log.write_text("{")
    arguments = ["calibrate", str(log), "--quiet"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1, result.stderr
    monkeypatch.setenv("CALIOPE_TRACEBACK", "1")
    assert isinstance(CliRunner().invoke(main, arguments).exception, ValueError)
