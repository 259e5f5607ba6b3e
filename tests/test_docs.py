"""What the documents promise: the README runs (as a doctest), its commands exist, its numbers are today's."""

import re
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


def test_the_true_values_in_the_readme_are_those_of_the_simulator():
    text = " ".join(README.split())
    truth, now = re.search(
        r"`ward\.WARD\.value\(ward\.EARLIER\)` is ([\d.]+), and ([\d.]+) is what", text
    ).groups()
    assert float(truth) == pytest.approx(ward.WARD.value(ward.EARLIER), abs=5e-4)
    assert float(now) == pytest.approx(ward.WARD.value(ward.PRACTICE), abs=5e-4)


def test_ci_calls_the_targets_that_a_contributor_calls():
    assert re.findall(r"^make (\w+)", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE) == [
        "check",
        "test",
    ]
