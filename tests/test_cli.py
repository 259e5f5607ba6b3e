import subprocess
import sys

import pytest
from click.testing import CliRunner

from caliope.cli import main
from caliope.domains import ward


def test_the_demo_answers_one_question_and_refuses_the_other():
    result = CliRunner().invoke(main, ["demo", "--draws", "200"])
    assert result.exit_code == 0, result.output
    first, second = result.output.split("2. The high dose")
    assert "do not trust" not in first
    assert second.count("do not trust") == 3
    assert f"{ward.WARD.value(ward.EARLIER):.3f}" in first
    assert f"{ward.WARD.value(ward.AGGRESSIVE):.3f}" in second


@pytest.mark.parametrize("heavy", ["sklearn", "polars", "scipy.stats", "rich"])
def test_help_does_not_wait_for_heavy_imports(heavy):
    code = f"import sys, caliope.cli; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_a_command_the_help_names_what_there_is():
    result = CliRunner().invoke(main, ["--help"])
    assert "demo" in result.output
