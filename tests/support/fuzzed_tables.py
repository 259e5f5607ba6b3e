"""A damaged table for every number: one damage or two, what they do to it, and whether the answer is as it must be."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import BaseEstimator
from sklearn.ensemble._forest import BaseForest

from caliope._audit import _basis
from caliope.values import TabularRegressor
from support.fuzzed_columns import DAMAGES
from support.fuzzed_files import ASKED, FILES
from support.fuzzing import REQUESTS, Damage, Outcome, Table, base_table, close, fault_of, outcome, strictest

EVERY = (*DAMAGES, *FILES, *ASKED)
_SHARES = (0.45, 0.2, 0.1, 0.1, 0.15)  # of the requests, in their order


@dataclass(frozen=True)
class Case:
    """A damaged table, the undamaged one, and what must come of it."""

    damages: tuple[Damage, ...]
    table: Table
    whole: tuple[int, str]  # what makes the undamaged table again

    @property
    def expected(self) -> str:
        """What must come of all damages together."""
        return strictest([damage.expected for damage in self.damages])

    @property
    def name(self) -> str:
        """The damages in words."""
        return " + ".join(damage.name for damage in self.damages)


@dataclass(frozen=True)
class Result:
    """What came of a damaged table."""

    came: Outcome
    same: bool  # whether the answer is that of the undamaged table
    fault: str


def case_of(number: int) -> Case:
    """The table of a number. All damages take their turns; two of three tables have a second one."""
    rng = np.random.default_rng([number, 20])
    whole = number, list(REQUESTS)[int(rng.choice(len(REQUESTS), p=_SHARES))]
    first, table = EVERY[number % len(EVERY)], base_table(*whole)
    damages = [first]
    if rng.random() < 2 / 3:
        others = DAMAGES if first not in DAMAGES or rng.random() < 0.5 else (*FILES, *ASKED)
        damages.append(others[int(rng.integers(len(others)))])
    damages.sort(key=EVERY.index)  # files are written when the table is as it will be
    happened = []
    for damage in damages:
        try:
            table = damage.change(table, rng)
        except pl.exceptions.PolarsError:  # the column that it would change is gone already
            continue
        happened.append(damage)
    return Case(tuple(happened), table, whole)


@cache
def outcome_of_whole(base: int, request: str) -> Outcome:
    """What comes of an undamaged table."""
    with tempfile.TemporaryDirectory() as folder:
        return outcome(base_table(base, request), Path(folder))


def result_of(case: Case) -> Result:
    """Put a damaged table to the command, and judge the answer."""
    before = outcome_of_whole(case.whole[0] % 5, case.whole[1])
    with tempfile.TemporaryDirectory() as folder:
        came = outcome(case.table, Path(folder))
    name = next(iter(before.numbers or {}))
    same = came.numbers is not None and close(came.numbers.get(name), (before.numbers or {})[name])
    return Result(came, same, fault_of(case.table, came, case.expected, before))


def spare_models(patch: pytest.MonkeyPatch, trees: int = 5) -> None:
    """Let forests have so many trees at most, values be means by state, and names of parameters be looked up once.

    What is tried is the reading, of damaged and undamaged tables alike.
    """
    fit, names, values = BaseForest.fit, BaseEstimator._get_param_names.__func__, _basis._fit_values

    def fit_few(self: Any, *given: Any, **more: Any) -> Any:
        self.n_estimators = min(self.n_estimators, trees)
        return fit(self, *given, **more)

    def fit_means(prepared: Any, asked: Any, *given: Any) -> Any:
        return values(prepared, replace(asked, regressor=TabularRegressor()), *given)

    patch.setattr(_basis, "_fit_values", fit_means)
    patch.setattr(BaseForest, "fit", fit_few)
    patch.setattr(BaseEstimator, "_get_param_names", classmethod(cache(names)))
