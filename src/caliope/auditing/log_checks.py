"""Checks on the log itself, before anything is fitted: what no estimator can repair."""

from __future__ import annotations

import numpy as np

from caliope.ragged import Float, Int
from caliope.results import Finding, Level
from caliope.trajectories import Trajectories

_STEPS = 50_000  # looked at for leaks, of whole trajectories
_BINS = 64  # a feature is cut into these
_GIVEN_AWAY = 0.98  # of the steps, whose action a single feature tells
_FEW_OUTCOMES = 5  # different returns: else those above the median are told from those below
_COMMON = 0.9  # of the steps, with one and the same action: then telling it is no feat


def check_log(data: Trajectories) -> tuple[Finding, ...]:
    """Duplicated episodes, features that hold the action or the outcome, outcomes that are missing, too small logs."""
    checks = (_duplicates, _leak, _outcome_known, _no_outcome, _one_action, _few)
    found = (check(data) for check in checks)
    return tuple(finding for finding in found if finding is not None)


def _duplicates(data: Trajectories) -> Finding | None:
    _, first = np.unique(np.array(data.digests), return_index=True)
    extra = len(data) - len(first)
    if extra == 0:
        return None
    # Episodes of few discrete states are alike by chance; a copy is suspicious where states hardly ever repeat, but in
    # copies.
    rows = data.layout.rows_of(np.sort(first))[:_STEPS]
    if len(np.unique(data.states[rows], axis=0)) < 0.5 * len(rows):
        return None
    message = (
        f"{extra} of {len(data)} episodes are copies of others, to the last digit: the same patient was logged twice, "
        "intervals are too short, and cross-fitting does not keep the copies apart"
    )
    level: Level = "issue" if extra > 0.05 * len(data) else "caution"
    return Finding("L101", level, message, {"copies": extra})


def _leak(data: Trajectories) -> Finding | None:
    share = min(1.0, _STEPS / data.n_steps)
    which = np.unique(np.linspace(0, len(data) - 1, max(2, int(share * len(data)))).astype(np.int64))
    rows = data.layout.rows_of(which)
    actions, owner = data.actions[rows], data.layout.owner[rows]
    if np.bincount(actions).max() > _COMMON * len(actions):
        return None
    told = [told_by(column, actions, owner, data.n_actions) for column in data.states[rows].T]
    message = (
        "the feature {feature!r} alone tells {told:.1%} of the actions: it was recorded after the decision, or is the "
        "decision; leave it out of the state"
    )
    return _given_away("L102", told, data, message)


def told_by(feature: Float, actions: Int, owner: Int, n_actions: int) -> float:
    """Share of the steps whose action is the commonest of other episodes in the same bin of the feature."""
    edges = np.unique(np.quantile(feature, np.arange(1, _BINS) / _BINS))
    place = np.searchsorted(edges, feature, side="right")
    counts = np.zeros((len(edges) + 1, n_actions))
    half = owner % 2 == 0
    right = 0
    for fit in (half, ~half):
        counts[:] = 0
        np.add.at(counts, (place[fit], actions[fit]), 1)
        right += int((counts.argmax(axis=1)[place[~fit]] == actions[~fit]).sum())
    return right / len(actions)


def _outcome_known(data: Trajectories) -> Finding | None:
    """A feature that tells, at the first decision, how the episode will end."""
    returns = data.returns()
    values = np.unique(returns)
    few = len(values) <= _FEW_OUTCOMES
    kind = np.searchsorted(values, returns) if few else (returns > np.median(returns)).astype(np.int64)
    if len(np.unique(kind)) < 2 or np.bincount(kind).max() > _COMMON * len(kind):
        return None
    episodes = np.arange(len(data))
    told = [told_by(x, kind, episodes, int(kind.max()) + 1) for x in data.states[data.layout.first].T]
    message = (
        "the feature {feature!r} alone tells at the first decision how {told:.1%} of the episodes end: it was recorded "
        "afterwards, or is the outcome; leave it out of the state"
    )
    return _given_away("L106", told, data, message)


def _given_away(code: str, told: list[float], data: Trajectories, message: str) -> Finding | None:
    """An issue with the feature that tells most, if that is nearly all."""
    worst = int(np.argmax(told))
    if told[worst] < _GIVEN_AWAY:
        return None
    message = message.format(feature=data.feature_names[worst], told=told[worst])
    return Finding(code, "issue", message, {"told": told[worst], "column": worst})


def _no_outcome(data: Trajectories) -> Finding | None:
    nothing = np.abs(data.layout.sum_steps(np.abs(data.rewards))) == 0
    if nothing.all():
        return Finding("L103", "issue", "every reward in the log is 0: there is nothing to estimate")
    share = float(nothing.mean())
    if (data.lengths[nothing] == data.layout.horizon).all():
        return None  # still there at the longest that an episode lasts: no outcome yet, and none is missing
    last = data.rewards[data.layout.last]
    # Where rewards come at the end alone, an episode without one is an outcome nobody wrote down, or a true 0.
    only_at_the_end = np.count_nonzero(data.rewards) == np.count_nonzero(last)
    signs = {float(x) for x in np.sign(np.unique(last))}
    if not (only_at_the_end and 0 < share < 0.5 and {-1.0, 1.0} <= signs):
        return None
    message = (
        f"{share:.1%} of the episodes end without any reward where the others end in a good or a bad one: outcomes "
        "seem to be missing, and a missing outcome counts as 0"
    )
    return Finding("L103", "issue" if share > 0.02 else "caution", message, {"share": share})


def _one_action(data: Trajectories) -> Finding | None:
    taken = np.unique(data.actions)
    if len(taken) > 1:
        return None
    return Finding(
        "L104", "issue", f"only action {taken[0]} was ever taken: the log says nothing of any other"
    )


def _few(data: Trajectories) -> Finding | None:
    if len(data) >= 100:
        return None
    message = f"only {len(data)} episodes: too few for a behaviour model and an interval both"
    return Finding("L105", "issue" if len(data) < 30 else "caution", message, {"n": len(data)})
