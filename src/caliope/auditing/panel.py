"""The panel of estimators that an audit shows, the one it answers with first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from caliope.estimation import estimate
from caliope.estimators import dm, monte_carlo, phwdr, phwis, step_wis, wdr, wis
from caliope.evidence import Evidence
from caliope.results import Estimate
from caliope.uncertainty import difference

HEADLINE = "wdr_capped"
GAIN = "difference_wdr_capped"
PRACTICE = "monte_carlo"


def panel(e: Evidence, capped: Evidence, *, n_draws: int, level: float, rng: int) -> Sequence[Estimate]:
    """Doubly robust with capped weights first; then its gain over practice, practice itself, and all others.

    All are resampled alike, so that they can be compared.
    """
    sure = estimate(capped, wdr, difference(wdr), wis, n_draws=n_draws, level=level, rng=rng)
    raw = estimate(
        e, monte_carlo, wdr, wis, step_wis, phwis, phwdr, dm, n_draws=n_draws, level=level, rng=rng
    )
    named = [replace(row, name=f"{row.name}_capped", label=f"{row.label}, weights capped") for row in sure]
    return (*named[:2], raw["monte_carlo"], named[2], *(row for row in raw if row.name != "monte_carlo"))
