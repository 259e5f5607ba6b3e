import subprocess
import sys

import pytest
from click.testing import CliRunner

from caliope.cli import main
from caliope.domains import icu_sepsis


@pytest.mark.slow
def test_the_demo_answers_for_one_policy_and_says_how_far_the_log_carries_for_the_other(tmp_path):
    page = tmp_path / "demo.html"
    result = CliRunner().invoke(main, ["demo", "--quiet", "--out", str(page)])
    assert result.exit_code == 0, result.output
    answered, refused = result.output.split("the high dose for everybody, at every step?", 1)
    assert "Verdict: trust, if" in answered
    # Exact values of treating earlier, of the high dose for everybody, and of the ward as it is.
    assert "the truth is known: 0.536; current practice 0.485." in answered
    assert "the truth is known: 0.499; current practice 0.485." in refused
    assert "Verdict: do not trust" in refused
    assert "of the decisions, the difference from current practice is" in refused
    for written in (page, tmp_path / "demo-second.html"):
        assert written.read_text().lower().startswith("<!doctype html>")
        assert written.with_suffix(".json").exists()


@pytest.mark.slow
def test_the_small_demo_has_300_patients_one_model_and_both_reports(tmp_path):
    page = tmp_path / "demo.html"
    result = CliRunner().invoke(
        main, ["demo", "--small", "--quiet", "--fail-on", "never", "--out", str(page)]
    )
    assert result.exit_code == 0, result.output
    assert "300 patients" in result.output
    assert "the truth is known: 0.536; current practice 0.485." in result.output
    assert "Behaviour policy: logistic" in result.output
    assert "forest" not in result.output
    assert page.exists()
    assert (tmp_path / "demo-second.html").exists()


@pytest.mark.slow
def test_the_demo_of_sepsis_tells_the_truth(tmp_path):
    page = tmp_path / "demo.html"
    arguments = ["demo", "--domain", "icu-sepsis", "--patients", "80", "--quiet", "--out", str(page)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code in (0, 3), result.output
    # Exact values of 5% optimal decisions and of the clinicians, at a discount of 0.99 and a cap of 20 steps.
    assert f"{_true_value(0.05):.3f}; current practice 7.873" in result.output


def _true_value(share):
    mixed = (1 - share) * icu_sepsis.load().expert + share * icu_sepsis.optimal()
    return icu_sepsis.value(mixed, gamma=0.99)


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
    # Before 8.3, click names an option without quotation marks, after a colon.
    assert said.replace("'", "") in result.stderr.replace("'", "").replace("option: ", "option ")
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
