"""The result of an audit in the order in which the trajectories were given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from caliope._audit._result import Audit
from caliope._ragged import Int
from caliope._recorded import RecordedSupport
from caliope._support import Support
from caliope._trajectories import Trajectories


def in_given_order(audit: Audit, given: Trajectories) -> Audit:
    """Return what an audit found in the fixed order of a log, in the order in which it was given.

    Parameters
    ----------
    audit : Audit
        An audit of ``given.in_fixed_order()``.
    given : Trajectories
        The log as it was given.

    Returns
    -------
    Audit
        The same numbers; steps and trajectories are where they are in ``given``.
    """
    if audit.data is given:
        return audit
    order = given.fixed_order
    back = np.argsort(order)
    rows = audit.data.layout.rows_of(back)
    return replace(
        audit,
        data=given,
        evidence=replace(audit.evidence.take(back), place=given.place),
        influence=replace(audit.influence, top=order[audit.influence.top]),
        target_probs=audit.target_probs[rows],
        behaviour_probs=audit.behaviour_probs[rows],
        support=_support_of(audit.support, given, rows),
    )


def _support_of(support: Support, given: Trajectories, rows: Int) -> Support:
    states = None if support.states is None else given.states
    if isinstance(support, RecordedSupport) and support.practice is not None:
        return replace(support, states=states, data=given, practice=support.practice.part(rows))
    return replace(support, states=states)
