"""Table of several estimators on one log, with intervals, findings and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from caliope._conditions import DRAWN, TAKEN_TOO, nothing_missing
from caliope._evidence import Evidence, refuse_counts
from caliope._formulas import dm, monte_carlo, wdr, wis
from caliope._ragged import Float
from caliope._results import Estimate, Interval, Table
from caliope._traits import Estimator, Traits, label, name_of, traits_of
from caliope.checks import L108, Finding
from caliope.checks._estimates import check_value, examine
from caliope.estimators import phwdr, phwis
from caliope.uncertainty._dependence import (
    effective_clusters,
    find_dependence,
    stretch,
    stretch_for_clusters,
)
from caliope.uncertainty._intervals import check_level, delta_method, influence, percentile_interval
from caliope.uncertainty._resampling import Scheme, count_blocks, evaluate, scheme_name, with_replacement
from caliope.weights._effective import weigh_trajectories

# Independent trajectories, or clusters, from which on resampling tells no more than influences do.
MOST_RESAMPLED = 100_000


def estimate(
    evidence: Evidence,
    *estimators: Estimator,
    n_draws: int = 1000,
    level: float = 0.95,
    scheme: Scheme = with_replacement,
    rng: int | np.random.Generator,
) -> Table[Estimate]:
    """Estimate the value of the target policy, with intervals and a verdict on each.

    All rows share one set of resampled trajectories, so that they can be compared. Where the evidence has clusters,
    whole clusters are resampled. Where it has none and neighbouring trajectories hang together, the interval is widened
    by that, with finding L108. In a log of more than 100,000 trajectories (or clusters) intervals come from influence
    functions: the delta method, which needs the data once.

    Parameters
    ----------
    evidence : Evidence
        What :func:`~caliope.gather` returns, without counts.
    *estimators : callable
        Functions of evidence: those of :mod:`caliope.estimators`, or your own, ``functools.partial`` and lambdas
        included. Declare the traits of your own with :func:`~caliope.estimators.estimator`: without, the verdict
        is a cautious one. By default the mean return of current practice, :func:`~caliope.estimators.wis` and
        :func:`~caliope.estimators.phwis`, and the direct and doubly robust ones where values are at hand.
    n_draws : int
        Number of resamples behind each interval.
    level : float
        Confidence level.
    scheme : callable
        How trajectories are resampled, such as :func:`~caliope.uncertainty.bayesian`.
    rng : int or numpy.random.Generator
        Seed of the resamples.

    Returns
    -------
    Table of Estimate
        One row per estimator, in their order; ``table["wis"]`` finds a row by name. Of several with one name the
        second is called ``"wis (2)"``.

    Examples
    --------
    >>> e = Evidence([1.0, 0.0, 1.0, 1.0], np.log([0.5, 1.5, 1.0, 1.0]), offsets=[0, 1, 2, 3, 4])
    >>> estimate(e, wis, rng=0)["wis"].value
    0.625
    >>> estimate(e, lambda e: 2 * wis(e), rng=0)[0].value
    1.25
    """
    if not isinstance(evidence, Evidence):
        raise TypeError(f"estimate needs Evidence (see gather), got {type(evidence).__name__}.")
    for estimator in estimators:
        if not callable(estimator):
            raise TypeError(f"estimators are functions such as cal.wis, got {estimator!r}.")
    check_level(level)
    refuse_counts(evidence)
    if not estimators:
        estimators = (monte_carlo, wis, phwis)
        estimators += (dm, wdr, phwdr) if evidence.q is not None else ()
    if evidence.layout.n_units > MOST_RESAMPLED and all(traits_of(f).declared for f in estimators):
        intervals = [delta_method(f, evidence, level=level) for f in estimators]
    else:
        options: dict[str, Any] = {"n_draws": n_draws, "level": level, "scheme": scheme, "rng": rng}
        intervals = _resample(evidence, estimators, **options)
    return Table(_numbered([_row(f, evidence, x) for f, x in zip(estimators, intervals, strict=True)]))


def _numbered(rows: Sequence[Estimate]) -> tuple[Estimate, ...]:
    """Rows of one name, told apart by a number: ``table["lambda"]`` and ``table["lambda (2)"]``."""
    found: list[Estimate] = []
    for row in rows:
        before = sum(other.name == row.name for other in rows[: len(found)])
        number = f" ({before + 1})" if before else ""
        found.append(replace(row, name=row.name + number, label=row.label + number))
    return tuple(found)


def _resample(
    e: Evidence,
    estimators: Sequence[Estimator],
    *,
    n_draws: int,
    level: float,
    scheme: Scheme,
    rng: int | np.random.Generator,
) -> list[Interval]:
    """Percentile intervals of all estimators, on the same resamples."""
    drawn = []
    generator, cluster = np.random.default_rng(rng), e.cluster
    for counts in count_blocks(len(e), n_draws, scheme=scheme, cluster=cluster, rng=generator):
        resampled = e.with_counts(counts)  # one for all, so that they share its sums
        drawn.append([evaluate(estimator, resampled, counts) for estimator in estimators])
    method = scheme_name(scheme, clustered=cluster is not None)
    return [
        percentile_interval(np.concatenate(x), level=level, method=method) for x in zip(*drawn, strict=True)
    ]


def _row(estimator: Estimator, e: Evidence, interval: Interval) -> Estimate:
    value = float(estimator(e))
    nothing = check_value(value, e)
    found = examine(estimator, e)
    if nothing is not None:  # and notes about weights that are not there add no number
        found = (nothing, *(each for each in found if np.isfinite([*each.numbers.values()]).all()))
    interval, dependent = _widen(estimator, e, interval, value)
    traits = traits_of(estimator)
    weights = weigh_trajectories(traits, e)
    square = float((weights**2).sum())
    return Estimate(
        name=name_of(estimator),
        label=label(estimator),
        value=value,
        interval=interval,
        n=len(e),
        effective_n=1 / square if square else 0.0,
        findings=found + dependent,
        effective_clusters=None if e.cluster is None else effective_clusters(estimator, e),
        conditions=_conditions(traits, e),
    )


def _widen(
    estimator: Estimator, e: Evidence, interval: Interval, value: float
) -> tuple[Interval, tuple[Finding, ...]]:
    """Stretch an interval for few clusters, and by the dependence between neighbouring units of the file."""
    interval = stretch_for_clusters(interval, estimator, e)
    found = find_dependence(_in_file_order(e, e.layout.pool(_influence(estimator, e))))
    if not found.clear:
        return interval, ()
    method = f"{interval.method}, widened {found.factor:.2f} times"
    facts = {"factor": found.factor, "z": found.z, "units_tested": e.layout.n_units}
    variant = "trajectories" if e.cluster is None else "clusters"
    return replace(stretch(interval, value, found.factor), method=method), (
        L108.finding("caution", variant, **facts),
    )


def _in_file_order(e: Evidence, pooled: Float) -> Float:
    """What independent units have, in the order in which the first trajectory of each stood in the file."""
    if e.place is None:
        return pooled
    first = np.full(e.layout.n_units, len(e))
    np.minimum.at(first, e.layout.unit, np.argsort(np.argsort(e.place)))
    return pooled[np.argsort(first)]


def _influence(estimator: Estimator, e: Evidence) -> Float:
    """Influence of each trajectory; of practice where an estimator has none, as one that chooses from the data."""
    if not traits_of(estimator).declared:
        return influence(monte_carlo, e)
    try:
        return influence(estimator, e)
    except TypeError:
        return influence(monte_carlo, e)


def _conditions(traits: Traits, e: Evidence) -> tuple[str, ...]:
    """What no log can show: that the weights, or the values, had all columns and all actions that they need."""
    if not any(side.uses for side in traits.sides):
        return ()
    return DRAWN if e.behaviour_known and traits.weighted else nothing_missing(e.features), TAKEN_TOO
