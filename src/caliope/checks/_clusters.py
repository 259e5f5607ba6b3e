"""Checks of the clusters of an estimate: whether there are any, and whether they are enough."""

from __future__ import annotations

from caliope._evidence import Evidence
from caliope._traits import Traits
from caliope.checks import D115, L109, Finding
from caliope.weights import kish, weigh_trajectories

# Effective clusters: intervals are nominal above, broken below.
ENOUGH, TOO_FEW = 30, 10


def check_effective_clusters(traits: Traits, e: Evidence) -> Finding | None:
    """Too few effective clusters for an interval to cover what it says, although it is stretched for them."""
    weights = e.layout.pool(weigh_trajectories(traits, e))
    n = round(kish(weights), 6) if weights.any() else 0.0
    if e.cluster is None or n >= ENOUGH:
        return None
    facts = {"effective_clusters": n, "clusters": e.layout.n_units}
    if n < TOO_FEW:
        return D115.finding("issue", "too-few", limit=TOO_FEW, **facts)
    return D115.finding("caution", "few", limit=ENOUGH, **facts)


def note_clusters(traits: Traits, e: Evidence) -> Finding | None:
    """Note that whole clusters were resampled."""
    return None if e.cluster is None else L109.finding("note", clusters=e.layout.n_units, n=len(e))
