"""What the documents promise: the README runs (as a doctest), its commands exist, its numbers are today's."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from caliope.domains import ward

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_make_target_that_the_readme_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert named >= {"demo", "test", "check", "bench", "bench-peers"}
    assert named <= targets


def test_the_example_of_the_shop_tells_the_audit_and_the_truth():
    found = subprocess.run(
        [sys.executable, ROOT / "examples" / "shop.py", "400"], capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith("Verdict: ")
    assert found.stdout.endswith("0.329 now, 0.324 with fewer discounts.\n")
    assert found.stderr == ""


def test_the_true_values_in_the_readme_are_those_of_the_simulator():
    text = " ".join(README.split())
    truth, now = re.search(
        r"`ward\.WARD\.value\(ward\.EARLIER\)` is ([\d.]+), and ([\d.]+) is what", text
    ).groups()
    assert float(truth) == pytest.approx(ward.WARD.value(ward.EARLIER), abs=5e-4)
    assert float(now) == pytest.approx(ward.WARD.value(ward.PRACTICE), abs=5e-4)


def test_the_example_of_the_readme_runs_as_it_stands(tmp_path):
    block = README.split("## Your own log")[1].split("```")[1]
    activate, write, evaluate = block.strip().replace("\\\n", " ").splitlines()
    assert activate == "source .venv/bin/activate"  # where make demo has put the commands
    python, flag, module, arrow, file = shlex.split(write, comments=True)
    assert (python, flag, arrow) == ("python", "-m", ">")
    written = subprocess.run([sys.executable, flag, module], capture_output=True, text=True, check=True)
    (tmp_path / file).write_text(written.stdout)
    command, *arguments = shlex.split(evaluate)
    assert command == "caliope"
    # With one model and few draws: the default ones take a minute.
    given = [*arguments, "--models", "frequencies", "--draws", "200", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "caliope.cli", *given],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
    found = json.loads(done.stdout)["headline"]["interval"]
    assert found["low"] <= ward.WARD.value(ward.EARLIER) <= found["high"]


def test_ci_calls_the_targets_that_a_contributor_calls():
    assert re.findall(r"^make (\w+)", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE) == [
        "check",
        "test",
    ]
