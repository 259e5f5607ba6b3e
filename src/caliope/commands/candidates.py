"""Behaviour models by their names on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from caliope.auditing import candidate_models
from caliope.behaviour import TabularFrequencies, default_models
from caliope.behaviour.models import boosting
from caliope.trajectories import Trajectories


def models_named(names: Sequence[str], data: Trajectories, *, seed: int) -> Mapping[str, Any] | None:
    """The named models, unfitted, in that order; None where none are named, for the audit's own choice."""
    if not names:
        return None
    usual = candidate_models(data, random_state=seed)
    offered = {
        "frequencies": TabularFrequencies(),
        "network": default_models(random_state=seed)["network"],
        "boosting": boosting(random_state=seed),
        **usual,
        "pool": usual["pool and neighbours"],
    }
    odd = [name for name in names if name not in offered]
    if odd:
        raise ValueError(
            f"no behaviour model is called {', '.join(map(repr, odd))}: there are {', '.join(offered)}."
        )
    return {name: offered[name] for name in names}
