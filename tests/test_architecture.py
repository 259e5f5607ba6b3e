"""Imports go one way, and the core needs nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import caliope

SRC = Path(caliope.__file__).parent
# From the ground up: a module imports only from lines above its own.
LAYERS = [
    ["ragged", "results", "source_digest"],
    ["validation", "pareto"],
    ["trajectories"],
    ["io", "policies"],
    ["evidence", "balance"],
    ["gathering", "transforms", "estimators", "behaviour"],
    ["values", "blending", "ratio_calibration"],
    ["uncertainty"],
    ["bounds", "confounding", "diagnostics", "resampled_error", "calibration"],
    ["estimation"],
    ["auditing"],
    ["domains", "plots"],
    ["report"],
    ["commands"],
    ["clinical"],
    ["experiments"],
    ["cli"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def subject(path):
    """The module or package directly below caliope that a file belongs to."""
    return path.relative_to(SRC).with_suffix("").parts[0]


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("caliope"):
            parts = node.module.split(".")
            yield from ([parts[1]] if len(parts) > 1 else [alias.name for alias in node.names])
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("caliope."))


FILES = [path for path in sorted(SRC.rglob("*.py")) if path.name != "__init__.py" or path.parent != SRC]


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SRC)) for path in FILES])
def test_imports_go_one_way(path):
    here = subject(path)
    assert here in LEVEL, f"{here} has no place in the layers: give it one"
    for name in imports(path):
        assert name == here or LEVEL[name] < LEVEL[here], f"{here} must not import {name}"


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(SRC)) for path in FILES])
def test_a_module_is_short_enough_to_read(path):
    assert path.read_text().count("\n") <= 400


@pytest.mark.parametrize("heavy", ["matplotlib", "torch", "dask", "duckdb", "pandas", "polars", "sklearn"])
def test_the_front_door_imports_nothing_heavy(heavy):
    code = f"import caliope, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there_and_documented():
    for name in caliope.__all__:
        assert getattr(caliope, name).__doc__, name
