"""Checks of the clusters of an estimate: whether there are any, and whether they are enough."""

from __future__ import annotations

from caliope._evidence import Evidence
from caliope._traits import Traits
from caliope.checks import D115, L109, Finding
from caliope.weights._effective import kish, weigh_trajectories

# Effective clusters: intervals are nominal above, broken below.
ENOUGH, TOO_FEW = 30, 10


def check_clusters(traits: Traits, e: Evidence) -> tuple[Finding, ...]:
    """L109, D115: that whole clusters were resampled, and whether they are too few for the interval to cover.

    Once per estimate: the sides of a difference share their clusters, and the weights of the first decide.
    """
    if e.cluster is None:
        return ()
    note = L109.finding("note", clusters=e.layout.n_units, n=len(e))
    weights = e.layout.pool(weigh_trajectories(traits, e))
    n = round(kish(weights), 6)
    facts = {"effective_clusters": n, "clusters": e.layout.n_units}
    if n < TOO_FEW:
        return note, D115.finding("issue", "too-few", limit=TOO_FEW, **facts)
    if n < ENOUGH:
        return note, D115.finding("caution", "few", limit=ENOUGH, **facts)
    return (note,)
