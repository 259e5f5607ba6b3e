"""Behaviour models that another analyst might have taken: other neighbours, recalibrated, or fitted on the same log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from caliope.behaviour import FittedBehaviour, NeighbourPolicy, Temperature, fit_behaviour
from caliope.behaviour.grouping import end_of
from caliope.behaviour.recalibration import Recalibrated
from caliope.behaviour.recognition import places_in
from caliope.policies import action_probabilities
from caliope.ragged import read_only

_TIMES = (0.5, 2.0)  # as many neighbours


def other_behaviours(
    fitted: Mapping[str, FittedBehaviour], chosen: str, practice: FittedBehaviour, *, seed: int
) -> dict[str, FittedBehaviour]:
    """The candidates, neighbours with half and twice their k, and the chosen model with a temperature and same-data.

    Each with its probabilities in the log of ``practice``, which is the chosen one there; a part of that log may be
    what they were fitted on.
    """
    data = practice.data
    found = {name: practice if name == chosen else each.everywhere(data) for name, each in fitted.items()}
    for name, each in fitted.items():
        for k in _other_k(each.model, len(each.data)):
            found[f"{name}, k = {k}"] = _with_k(each, k, seed).everywhere(data)
    found[f"{chosen}, temperature"] = _with_temperature(fitted[chosen], practice)
    found[f"{chosen}, same data"] = _on_its_own_log(fitted[chosen], practice)
    return found


def _other_k(model: Any, most: int) -> list[int]:
    last = end_of(model)
    # A prior of its own is fitted anew with every k, and where it is good the neighbours hardly matter.
    if type(last) is not NeighbourPolicy or last.prior is not None:
        return []
    return [k for times in _TIMES if 1 < (k := round(times * last.k)) < most]


def _with_k(fitted: FittedBehaviour, k: int, seed: int) -> FittedBehaviour:
    model = clone(fitted.model)
    end_of(model).set_params(k=k)
    return fit_behaviour(model, fitted.data, mode="cross", rng=seed)


def _with_temperature(fitted: FittedBehaviour, known: FittedBehaviour) -> FittedBehaviour:
    warm = Temperature().fit(fitted.probabilities, fitted.data.actions)
    return replace(
        known,
        model=Recalibrated(fitted.model, warm, known.data.n_actions),
        probabilities=read_only(warm(known.probabilities)),
    )


def _on_its_own_log(fitted: FittedBehaviour, known: FittedBehaviour) -> FittedBehaviour:
    """What the model says of the trajectories that it was fitted on; of others it says what it said."""
    own = fitted.data
    table = known.probabilities.copy()
    place = places_in(own, known.data)
    seen = np.flatnonzero(place >= 0)
    said = action_probabilities(fitted.model, own.states, own.n_actions)
    table[known.data.layout.rows_of(seen)] = said[own.layout.rows_of(place[seen])]
    return replace(known, probabilities=read_only(table), mode="same")
