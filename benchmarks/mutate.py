"""Change the package in one small way at a time, and see whether the tests notice.

Run: make mutate, or python -m benchmarks.mutate [--mutants 650] [--again] [--only checks] [--seconds 12]

A mutant is the package with one comparison, operand, constant, branch or the like changed, in memory: no file is
touched. Which mutants are tried is decided by a hash of their text, so that the sample stays when other code
changes. Tests are collected once. They run once to learn which lines each of them reaches, by itself or through a
fixture that it shares with others; then every mutant meets, in a process forked for it, the tests that reach its
lines, cheapest first. Results are kept in mutation-results/: a run that was stopped goes on where it was; --again
tries those that survived with the tests of today, --afresh all of them, each first with the test that noticed it.
Modules for networks on a GPU take part where torch is installed.
Mutants that no test can tell from the original stand in benchmarks/equivalent_mutants.toml, with the reason.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import resource
import signal
import sys
import time
import tomllib
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType

import pytest

from benchmarks._change import change, functions_in_use
from benchmarks._mutants import ROOT, SOURCE, Mutant, mutants_of
from benchmarks._reach import Shared, digest_of, fails, threads

RESULTS = ROOT / "mutation-results"
EQUIVALENT = ROOT / "benchmarks" / "equivalent_mutants.toml"
SUBJECTS = ["_evidence", "_formulas", "estimators", "_under_way", "uncertainty", "weights", "values"]
SUBJECTS += ["calibration", "behaviour", "checks", "_audit"]
LEFT_OUT = {"__init__", "__main__", "_torch_network", "_progress", "_about"}
FIRST = 1.5  # seconds of the cheapest tests, which are tried before the rest
TESTS = [f"tests/{name}" for name in ["core", "values", "calibration", "behaviour", "checks", "audit"]]


def modules(only: str) -> list[Path]:
    """The files to change."""
    found = [path for name in SUBJECTS for path in sorted((SOURCE / name).glob("*.py"))]
    found += [path for name in SUBJECTS if (path := SOURCE / f"{name}.py").exists()]
    torch = find_spec("torch") is not None  # without it nothing tests these modules
    kept = [path for path in found if path.stem not in LEFT_OUT and (torch or "_torch_" not in path.stem)]
    return [path for path in kept if re.search(only, str(path.relative_to(SOURCE)))]


def sample_of(paths: list[Path], share: float) -> list[Mutant]:
    """Of each module the mutants with the smallest hashes, the same share of each."""
    every = [sorted(mutants_of(path), key=lambda mutant: mutant.order) for path in paths]
    return [mutant for of_one in every for mutant in of_one[: round(share * len(of_one))]]


class Loop:
    """A plugin that tries mutants in place of running the tests once."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.paths = modules("")
        self.reached_file, self.done_file = RESULTS / "reached.jsonl", RESULTS / "results.jsonl"

    def pytest_runtestloop(self, session) -> bool:
        """Trace the tests that are new, then try the mutants."""
        if session.testsfailed:
            raise session.Interrupted(f"{session.testsfailed} files of tests cannot be collected")
        if any(name.startswith("polars-0") for name in threads()):
            raise session.Interrupted("a test uses polars while it is collected: it would wait in every fork")
        for path in self.paths:
            importlib.import_module(".".join(path.relative_to(SOURCE.parent).with_suffix("").parts))
        self.items = {item.nodeid: item for item in session.items}
        self.measure()
        self.functions = functions_in_use()
        self.try_all()
        return True

    def measure(self) -> None:
        """Run the tests that were never traced, in a forked process, so that this one stays clean."""
        traced = {row.get("test"): row for row in rows_of(self.reached_file)}
        new = [
            item
            for nodeid, item in self.items.items()
            if nodeid not in traced or traced[nodeid]["file"] != digest_of(item)
        ]
        if new and not (child := os.fork()):
            shared = Shared(self.paths)
            new[0].config.pluginmanager.register(shared)
            with self.reached_file.open("a") as out:
                for item, after in zip(new, [*new[1:], None], strict=True):
                    row = shared.row(item, after)
                    out.write("".join(json.dumps(each) + "\n" for each in [*shared.made, row]))
                    out.flush()
            os._exit(0)
        if new:
            print(f"tracing {len(new)} tests", flush=True)
            os.waitpid(child, 0)
        rows = rows_of(self.reached_file)
        self.fixtures = {row["fixture"]: row["seconds"] for row in rows if "fixture" in row}
        self.tests = {row["test"]: row for row in rows if "test" in row and row["test"] in self.items}
        users: dict[str, list[str]] = defaultdict(list)
        for test, row in self.tests.items():
            for fixture in row["shared"]:
                users[fixture].append(test)
        self.reach: dict[str, set[str]] = defaultdict(set)
        for row in [*(row for row in rows if "fixture" in row), *self.tests.values()]:
            for line in row["lines"]:
                self.reach[line].update([row["test"]] if "test" in row else users[row["fixture"]])

    def tests_of(self, mutant: Mutant) -> list[pytest.Item]:
        """The tests that reach the lines of a mutant, for as many seconds as are given.

        First those that noticed this mutant or others of its module, then the cheapest, then the rest; both in the
        order of their files, so that the fixtures of a file are made once.
        """
        lines = mutant.lines or [line for line in self.reach if mutant.used_in(line)]
        found = {
            test for line in lines for test in self.reach.get(line, ()) if not self.tests[test]["failed"]
        }
        chosen, costs, total, made = [], {}, 0.0, set[str]()
        for test in sorted(found, key=lambda test: self.cost(test, set())):
            total += self.cost(test, made)
            if total > self.given.seconds and chosen:
                break
            chosen.append(test)
            costs[test] = total
            made.update(self.tests[test]["shared"])
        place = {test: number for number, test in enumerate(self.items)}
        rest = sorted(chosen, key=lambda test: (costs[test] > FIRST, place[test]))
        known = [self.killers.get(mutant.name), *reversed(self.noticed[mutant.module])]
        first = list(dict.fromkeys(test for test in known if test in costs))[:4]
        return [self.items[test] for test in dict.fromkeys([*first, *rest])]

    def cost(self, test: str, made: set[str]) -> float:
        """Seconds of a test, with those of its fixtures that are not made yet."""
        fresh = [self.fixtures.get(name, 0.0) for name in self.tests[test]["shared"] if name not in made]
        return self.tests[test]["seconds"] + sum(fresh)

    def try_all(self) -> None:
        """Try every mutant of the sample that has no result yet."""
        possible = sum(len(list(mutants_of(path))) for path in self.paths)
        sample = sample_of(modules(self.given.only), self.given.mutants / possible)
        done = {row["mutant"]: row for row in rows_of(self.done_file)}
        equal = equivalents()
        self.killers = {name: row["by"] for name, row in done.items() if row["result"] == "killed"}
        self.noticed: dict[str, list[str]] = defaultdict(list)
        lives = {name for name, row in done.items() if row["result"] != "killed" and name not in equal}
        again = done.keys() if self.given.afresh else lives if self.given.again else set()
        left = [mutant for mutant in sample if mutant.name not in done or mutant.name in again]
        print(f"{possible} possible mutants, {len(sample)} sampled, {len(left)} to try", flush=True)
        for number, mutant in enumerate(left):
            started = time.perf_counter()
            row = {"mutant": mutant.name, "module": mutant.module, "kind": mutant.kind} | self.tried(mutant)
            self.noticed[mutant.module].append(row["by"])
            with self.done_file.open("a") as out:
                out.write(json.dumps(row | {"line": mutant.line}) + "\n")
            took = time.perf_counter() - started
            print(f"{number + 1}/{len(left)} {row['result']} {took:.1f} s  {mutant.name}", flush=True)
        print(report(sample, {row["mutant"]: row for row in rows_of(self.done_file)}, equal))

    def tried(self, mutant: Mutant) -> dict[str, str]:
        """What came of one mutant, in a process of its own."""
        tests = self.tests_of(mutant)
        if not tests:
            return {"result": "not reached", "by": ""}
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            most = int(60 + 5 * self.given.seconds)
            resource.setrlimit(resource.RLIMIT_CPU, (most, most))
            signal.alarm(
                20 * most
            )  # where it waits for ever; other work on the machine is no fault of the mutant
            os.write(writer, first_failure(mutant, tests, self.functions).encode()[:4000])
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
        if status or not said:
            return {"result": "killed", "by": f"ended with {status}"}
        return {"result": "survived", "by": ""} if said == "-" else {"result": "killed", "by": said}


def first_failure(mutant: Mutant, tests: list[pytest.Item], functions: list[FunctionType]) -> str:
    """Change the package of this process; the name of the first test that fails, or a dash."""
    try:
        change(mutant, functions)
    except Exception as error:  # the package could not be imported so
        return f"import: {error}"
    for test, after in zip(tests, [*tests[1:], None], strict=True):
        if fails(test, after):
            return test.nodeid
    return "-"


def rows_of(path: Path) -> list[dict]:
    """The rows of a file of results; none where there is no file. The last line may have been cut off."""
    rows = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(row) for row in rows if row.endswith("\n")]


def equivalents() -> dict[str, str]:
    """Mutants that behave as the original does, with the reason."""
    return {
        row["mutant"]: row["reason"] for row in tomllib.loads(EQUIVALENT.read_text()).get("equivalent", [])
    }


def report(sample: list[Mutant], done: dict[str, dict], equal: dict[str, str]) -> str:
    """Score per module, and those that survived."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    alive = []
    for mutant in sample:
        result = done[mutant.name]["result"]
        result = "killed" if result == "killed" else "equivalent" if mutant.name in equal else "survived"
        for name in (mutant.module, "all"):
            counts[name].update([result, "tried"])
        alive += [f"{mutant.module}:{mutant.line}  {mutant.name}"] * (result == "survived")
    rows = [f"{'module':<36}{'tried':>8}{'killed':>8}{'equal':>8}{'alive':>8}{'score':>8}"]
    for name, found in sorted(counts.items(), key=lambda pair: (pair[0] == "all", pair[0])):
        score = found["killed"] / max(1, found["tried"] - found["equivalent"])
        numbers = "".join(f"{found[key]:>8}" for key in ("tried", "killed", "equivalent", "survived"))
        rows.append(f"{name:<36}{numbers}{score:>8.0%}")
    return "\n".join([*rows, "", "survived:", *alive])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=650, help="How many to sample in all.")
    parser.add_argument(
        "--seconds", type=float, default=12, help="Tests per mutant, in seconds without a mutant."
    )
    parser.add_argument("--only", default="", help="A regular expression of the path, e.g. ^checks/.")
    parser.add_argument("--fast", action="store_true", help="Without the tests that are marked slow.")
    parser.add_argument("--again", action="store_true", help="Try the survivors once more.")
    parser.add_argument("--afresh", action="store_true", help="Try every mutant once more.")
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    doctests = [str(path) for path in modules("")]
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", str(RESULTS / "tmp")]
    options += ["-m", "not slow"] if given.fast else []
    sys.exit(pytest.main([*options, *TESTS, *doctests], plugins=[Loop(given)]))


if __name__ == "__main__":
    main()
