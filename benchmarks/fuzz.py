"""Thousands of damaged tables through ``caliope evaluate`` and ``caliope calibrate``.

Run: python -m benchmarks.fuzz [--tables 3000] [--seed 0] [--trees 5] [--show]

Every table has one damage or two, of the kinds in fuzzed_columns.py and fuzzed_files.py of tests/support. What may
come of it is a number that is right (for harmless damage that of the undamaged table, to 1e-9; else that of plain
loops over the damaged one), or one line and exit code 2. Anything else is a failure, and the exit code is 1. What is
tried is the reading: forests have few trees and values are means by state, for damaged and undamaged tables alike.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.fuzzed_tables import EVERY, Case, Result, case_of, result_of, spare_models

COLUMNS = ("tables", "refused", "same number", "other number", "failures")


def counted(counts: Counter[str], result: Result) -> None:
    """Add one table to the counts of its damage."""
    answer = "refused" if result.came.numbers is None else "same number" if result.same else "other number"
    counts.update(["tables", answer, *["failures"] * bool(result.fault)])


def table_of(counts: dict[str, Counter[str]]) -> str:
    """The counts by damage; a table with two damages counts for both."""
    rows = [f"{'damage':<42}{'must be':<11}" + "".join(f"{name:>14}" for name in COLUMNS)]
    kinds = {damage.name: damage.expected for damage in EVERY}
    for name, found in counts.items():
        rows.append(f"{name:<42}{kinds.get(name, ''):<11}" + "".join(f"{found[x]:>14}" for x in COLUMNS))
    return "\n".join(rows)


def told(number: int, case: Case, result: Result) -> str:
    """A failure in one line."""
    return f"table {number}, {case.whole[1]}, {case.name}: {result.fault}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0, help="Number of the first table.")
    parser.add_argument("--show", action="store_true", help="Print every table and its answer.")
    parser.add_argument("--trees", type=int, default=5, help="Trees of a forest, at most.")
    given = parser.parse_args()
    spare_models(pytest.MonkeyPatch(), given.trees)
    counts: dict[str, Counter[str]] = defaultdict(Counter, {damage.name: Counter() for damage in EVERY})
    started, total, failures = time.perf_counter(), Counter[str](), []
    for number in range(given.seed, given.seed + given.tables):
        case = case_of(number)
        result = result_of(case)
        for counter in [total, *(counts[damage.name] for damage in case.damages)]:
            counted(counter, result)
        if result.fault:
            failures.append(told(number, case, result))
            print(failures[-1], file=sys.stderr, flush=True)
        if sys.stderr.isatty() and number % 20 == 0:
            print(f"{number - given.seed} of {given.tables}", end="\r", file=sys.stderr)
        if given.show:
            print(f"{number}  {case.whole[1]}  {case.name}  ->  {result.came.said or result.came.numbers}")
    print(table_of(counts | {"all": total}))
    print(f"\n{given.tables} tables in {time.perf_counter() - started:.0f} s, {len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
