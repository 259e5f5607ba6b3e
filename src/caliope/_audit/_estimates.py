"""The estimates of an audit: the headline with marginalised weights, and others to compare it with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from caliope._audit._basis import Basis, standard_error
from caliope._audit._result import GAIN, HEADLINE, PRACTICE
from caliope._conditions import nothing_worse
from caliope._estimate import estimate
from caliope._evidence import Evidence
from caliope._formulas import dm, monte_carlo, step_wis, wdr, wis
from caliope._ragged import Float
from caliope._results import Estimate, Table
from caliope._traits import Estimator
from caliope.checks import Finding
from caliope.checks._audit import (
    check_agreement,
    check_choices,
    check_unseen,
    check_width,
)
from caliope.checks._bias import Bias, include_bias, include_capping
from caliope.checks._markov import check_markov
from caliope.checks._tails import check_influence
from caliope.estimators import phwdr, phwis
from caliope.uncertainty._dependence import stretch
from caliope.uncertainty._intervals import difference, influence

_FLOOR = 0.01  # share of the trajectories with the smallest return, from which it is the worst that there is


def estimate_all(basis: Basis, *, n_draws: int, level: float, rng: int) -> tuple[Estimate, ...]:
    """All estimates of an audit: the headline, its gain, practice, the same with plain weights, then the others.

    All are resampled alike, so that they can be compared.
    """

    def table(e: Evidence, *estimators: Estimator) -> Table[Estimate]:
        return estimate(e, *estimators, n_draws=n_draws, level=level, rng=rng)

    gain = difference(wdr)
    capped = table(basis.capped, wdr, wis)
    basis.capped.forget()  # of a long log, derived columns of all four together are most of the memory
    raw = table(basis.evidence, monte_carlo, wdr, wis, step_wis, phwis, phwdr, dm)
    basis.evidence.forget()
    markov = check_markov(basis.normalised, basis.marginalised)  # of the value, and so of its difference
    headline = [
        _with_plain_weights(row, estimator, basis, markov)
        for estimator, row in zip((wdr, gain), table(basis.marginalised, wdr, gain), strict=True)
    ]
    named = [
        *(_rename(row, "marginalised") for row in headline),
        raw[PRACTICE],
        *(_rename(capped[f.__name__], "capped") for f in (wdr, wis)),
    ]
    return (*named, *(row for row in raw if row.name != PRACTICE))


def _rename(row: Estimate, how: str) -> Estimate:
    return replace(row, name=f"{row.name}_{how}", label=f"{row.label}, weights {how}")


def _with_plain_weights(row: Estimate, estimator: Estimator, basis: Basis, markov: Finding) -> Estimate:
    """An estimate with marginalised weights, whose error is taken to be at least that of the plain weights.

    The error of the regression of the weights is in no influence function, but plain weights need no regression.
    """
    one, other = (standard_error(estimator, e) for e in (basis.marginalised, basis.normalised))
    factor = max(other / one, 1.0) if one > 0 else 1.0
    found = (
        *row.findings,
        *check_influence(influence(estimator, basis.marginalised), basis.marginalised),
        *((markov.with_facts(factor=factor),) if np.isfinite(row.value) else ()),
    )
    return replace(row, interval=stretch(row.interval, row.value, factor), findings=found)


def include_changes(rows: Sequence[Estimate], marginalised: Evidence) -> tuple[Estimate, ...]:
    """A109 and D119 for each row whose weights were changed: its interval includes the bias of that."""
    values = {row.name: row.value for row in rows}
    capped = {f"{f.__name__}_capped": values[f.__name__] for f in (wdr, wis)}
    # Practice has no weights: the difference is moved as much as the value.
    bias = Bias.of(marginalised, values[HEADLINE] - values[wdr.__name__])
    return tuple(
        include_bias(row, bias)
        if row.name in (HEADLINE, GAIN)
        else include_capping(row, capped[row.name])
        if row.name in capped
        else row
        for row in rows
    )


def include_unseen(rows: Sequence[Estimate], worst: float | None, returns: Float) -> tuple[Estimate, ...]:
    """D116, what an outcome never seen would do: to all rows where the worst return is given, else to the first two.

    A return that many trajectories share looks like the worst that there is. Else that is a condition of the verdict.
    """
    values, least = {row.name: row.value for row in rows}, float(returns.min()) if worst is None else worst
    about = [row.name for row in rows] if worst is not None else [HEADLINE, GAIN]
    clause = () if (returns <= least).mean() >= _FLOOR else (nothing_worse(least),)
    told = [replace(row, conditions=(*row.conditions, *clause)) if row.conditions else row for row in rows]
    return tuple(
        check_unseen(
            row,
            worst=least,
            given=worst is not None,
            at=values[HEADLINE] if row.name == GAIN else None,
        )
        if row.name in about
        else row
        for row in told
    )


def check_estimates(table: Table[Estimate], values: Sequence[float], share: float) -> tuple[Finding, ...]:
    """Whether the estimates agree with each other, and with other choices."""
    best = table[HEADLINE]
    return (
        *check_agreement(best, table[dm.__name__]),
        *check_choices(best, values, share),
        *check_width(table[GAIN]),
    )
