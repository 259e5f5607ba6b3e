import subprocess
import sys

import pytest
from click.testing import CliRunner

from caliope.cli import main


def test_the_demo_audits_a_policy_and_tells_the_truth(tmp_path):
    page = tmp_path / "demo.html"
    result = CliRunner().invoke(main, ["demo", "--patients", "80", "--quiet", "--out", str(page)])
    assert result.exit_code == 0, result.output
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
