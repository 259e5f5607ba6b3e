"""Which lines of the package each test reaches, by itself or through a fixture that it shares with others."""

from __future__ import annotations

import hashlib
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from types import CodeType

import pytest

from benchmarks._mutants import SOURCE

ENOUGH = 50  # calls of a function without a new line, after which a test is no longer traced in it


class Tracer:
    """Which lines of the package one test runs, relative to the first line of their function."""

    def __init__(self, paths: list[Path]) -> None:
        self.files = {str(path): str(path.relative_to(SOURCE)) for path in paths}
        self.lines: dict[CodeType, set[int]] = defaultdict(set)
        self.stale: Counter[CodeType] = Counter()

    def __call__(self, frame, event, _):
        code = frame.f_code
        if code.co_filename not in self.files or self.stale[code] > ENOUGH:
            return None
        self.stale[code] += 1
        return self.line

    def line(self, frame, event, _):
        """Note a line; the same function again for the lines after it."""
        code, lines = frame.f_code, self.lines[frame.f_code]
        if event == "line" and frame.f_lineno not in lines:
            lines.add(frame.f_lineno)
            self.stale[code] = 0
        return self.line

    def found(self) -> list[str]:
        """The lines as file:function:offset."""
        return [
            f"{self.files[code.co_filename]}:{code.co_qualname}:{line - code.co_firstlineno}"
            for code, lines in self.lines.items()
            for line in lines
        ]


class Shared:
    """A plugin that traces the fixtures of a file or of the session apart: they run for the first test alone."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.made: list[dict] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """Note the lines of a fixture under its own name, not under that of the test that runs."""
        before = sys.gettrace()
        if fixturedef.scope == "function" or before is None:
            return (yield)
        tracer, started = Tracer(self.paths), time.process_time()
        sys.settrace(tracer)
        try:
            return (yield)
        finally:
            sys.settrace(before)
            took = time.process_time() - started
            self.made.append({"fixture": name_of(fixturedef), "seconds": took, "lines": tracer.found()})

    def row(self, item: pytest.Item, after: pytest.Item | None) -> dict:
        """Run a test: its time and its lines without those of the fixtures that it shares, and which they are."""
        self.made, tracer, started = [], Tracer(self.paths), time.process_time()
        sys.settrace(tracer)
        failed = fails(item, after)
        sys.settrace(None)
        took = time.process_time() - started - sum(made["seconds"] for made in self.made)
        shared = {made["fixture"] for made in self.made} | shared_by(item)
        row = {"test": item.nodeid, "file": digest_of(item), "seconds": max(0.0, took), "failed": failed}
        return row | {"shared": sorted(shared), "lines": tracer.found()}


def name_of(fixturedef) -> str:
    return f"{fixturedef.baseid}::{fixturedef.argname}"


def shared_by(item: pytest.Item) -> set[str]:
    """The fixtures of a test that live longer than it."""
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    return {name_of(found[-1]) for found in known.values() if found[-1].scope != "function"}


def digest_of(item: pytest.Item) -> str:
    """A changed file of tests is traced again."""
    return hashlib.sha256(item.path.read_bytes()).hexdigest()[:12]


def fails(item: pytest.Item, after: pytest.Item | None) -> bool:
    """Whether a test fails."""
    from _pytest.runner import runtestprotocol

    return any(report.failed for report in runtestprotocol(item, log=False, nextitem=after))


def threads() -> list[str]:
    """Names of the threads of this process, where Linux tells them: none of them lives on in a fork."""
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
