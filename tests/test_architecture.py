"""Imports go one way, inside packages too, and the core needs nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import caliope

SRC = Path(caliope.__file__).parent
MODULES = {
    ".".join(path.relative_to(SRC.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SRC.rglob("*.py"))
}
# From the ground up: a module imports only from lines above its own, or from its own package. What checks declares
# lies at the bottom, the checks themselves beside what they check.
LAYERS = [
    ["_cells"],
    ["checks", "_ragged", "_digits", "_conditions", "_files"],
    ["_derived", "_traced", "_columns"],
    ["_in_parts"],
    ["_evidence_columns"],
    ["_clusters", "_counts", "_identity", "_tables", "_trees"],
    ["_results"],
    ["_validation"],
    ["_trajectories"],
    ["_cache", "io", "_policies", "_past", "_table_order"],
    ["engines"],
    ["checks._past", "checks._copies", "checks._entries", "checks._regions"],
    ["checks._log"],
    ["_simple_policies", "_named_policies", "_given_policies", "_support"],
    ["_evidence", "_action_values"],
    ["_gather", "_traits"],
    ["_formulas", "_recorded"],
    ["_under_way"],
    ["estimators", "behaviour"],
    ["weights", "values"],
    ["uncertainty", "checks._clusters", "checks._tails"],
    ["bounds", "calibration", "checks._estimates", "checks._markov", "checks._bias"],
    ["_estimate", "checks._audit"],
    ["sensitivity"],
    ["_audit"],
    ["domains", "plots"],
    ["report"],
    ["clinical"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(name):
    """Modules of the package that a module imports when it runs, wherever in its code."""
    for node in _running(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("caliope"):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from [module for module in inner if module in MODULES] or [node.module]
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("caliope"))


def _running(node):
    """Every node but those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield child
            yield from _running(child)


def subject(name):
    """The line that a module stands in: its own, or that of the package directly below caliope."""
    parts = name.split(".")[1:]
    return next((x for x in (".".join(parts[:2]), parts[0]) if x in LEVEL), parts[0]) if parts else None


@pytest.mark.slow
def test_imports_go_one_way():
    wrong = []
    for name in MODULES:
        here = subject(name)
        for other in imports(name):
            there = subject(other)
            if None not in (here, there) and here != there and LEVEL[there] >= LEVEL[here]:
                wrong.append(f"{name} imports {other}")
    assert not wrong


def test_no_module_reaches_itself():
    """Not even inside a package."""
    graph = {name: set(imports(name)) - {name, "caliope"} for name in MODULES}
    done, path = set(), []

    def visit(name):
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name in done:
            return
        path.append(name)
        for other in sorted(graph.get(name, ())):
            visit(other)
        path.pop()
        done.add(name)

    for name in graph:
        visit(name)


def test_modules_are_short_enough_to_read():
    long = {name: n for name, path in MODULES.items() if (n := path.read_text().count("\n")) > 400}
    assert not long


@pytest.mark.slow
def test_nobody_else_reaches_into_a_module_for_private_names():
    """``from caliope.x import _name`` is for no one: what is shared has a name without an underscore."""
    found = []
    for name in MODULES:
        for node in _running(ast.parse(MODULES[name].read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("caliope"):
                private = [a.name for a in node.names if a.name.startswith("_")]
                found += [f"{name}: {each}" for each in private if f"{node.module}.{each}" not in MODULES]
    assert not found


@pytest.mark.slow
@pytest.mark.parametrize(
    "heavy", ["matplotlib", "torch", "dask", "duckdb", "pandas", "polars", "sklearn", "numpy"]
)
def test_the_front_door_imports_nothing_heavy(heavy):
    code = f"import caliope, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("heavy", ["matplotlib", "torch", "dask", "duckdb", "pandas", "polars", "sklearn"])
def test_the_core_needs_numpy_and_scipy_alone(heavy):
    names = "Trajectories, Evidence, gather, wdr, per_horizon, bootstrap, estimate, TabularPolicy"
    code = f"import sys, caliope.bounds; from caliope import {names}, weights; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_front_door_is_narrow_and_every_name_is_there_and_documented():
    assert len(caliope.__all__) <= 45
    for name in caliope.__all__:
        assert getattr(caliope, name).__doc__, name


@pytest.mark.slow
def test_the_numbers_of_a_report_need_no_extra():
    code = """
import sys
for name in ("matplotlib", "jinja2", "markupsafe", "resource"):
    sys.modules[name] = None
from caliope.report import numbers_json
import caliope.cli, caliope._audit
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
