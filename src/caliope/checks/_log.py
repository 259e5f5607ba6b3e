r"""Checks on the log itself, and of a behaviour model on the log, before any policy is evaluated."""

from __future__ import annotations

import numpy as np
from scipy import special

from caliope._ragged import Float, Int, Ragged, at_actions
from caliope._trajectories import Trajectories
from caliope.checks import B104, B105, B106, L102, L103, L104, L105, L106, L107, Check, Finding, Level
from caliope.checks._copies import check_copies
from caliope.checks._entries import check_repeats, check_running_total, check_stand_ins
from caliope.checks._past import check_past

# Looked at for leaks, of whole trajectories.
_STEPS = 50_000
# A feature is cut into these.
_BINS = 64
# Of the steps, whose action a single feature tells.
_REVEALED = 0.98
# Different returns: else those above the median are told from those below.
_FEW_OUTCOMES = 5
# Of the steps, with one and the same action: then telling it is no feat.
_COMMON = 0.9


def check_log(data: Trajectories) -> tuple[Finding, ...]:
    """Check a log for copies, features that hold the action or the outcome, missing outcomes, and its size."""
    checks = (
        check_copies,
        _check_action_leak,
        _check_outcome_leak,
        _check_outcomes,
        check_repeats,
        check_running_total,
        _check_actions,
        _check_size,
    )
    found = (check(data) for check in checks)
    return (*(finding for finding in found if finding is not None), *check_stand_ins(data))


def _check_action_leak(data: Trajectories) -> Finding | None:
    rows = data.layout.rows_of(data.subsample(_STEPS))
    actions, owner = data.actions[rows], data.layout.unit_of_step[rows]
    if np.bincount(actions).max() > _COMMON * len(actions):
        return None
    told = [predict_by(column, actions, owner, data.n_actions) for column in data.states[rows].T]
    return _report_leak(L102, told, data)


def predict_by(feature: Float, actions: Int, owner: Int, n_actions: int) -> float:
    """Share of the steps whose action is the commonest of other trajectories in the same bin of the feature."""
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


def _check_outcome_leak(data: Trajectories) -> Finding | None:
    """A feature that tells, at the first decision, how the trajectory will end."""
    returns = data.returns()
    values = np.unique(returns)
    few = len(values) <= _FEW_OUTCOMES
    kind = np.searchsorted(values, returns) if few else (returns > np.median(returns)).astype(np.int64)
    if len(np.unique(kind)) < 2 or np.bincount(kind).max() > _COMMON * len(kind):
        return None
    owner = data.layout.unit
    told = [predict_by(x, kind, owner, int(kind.max()) + 1) for x in data.states[data.layout.first].T]
    return _report_leak(L106, told, data)


def _report_leak(check: Check, told: list[float], data: Trajectories) -> Finding | None:
    """An issue with the feature that tells most, if that is nearly all."""
    worst = int(np.argmax(told))
    if told[worst] < _REVEALED:
        return None
    return check.finding("issue", feature=data.feature_names[worst], told=told[worst], column=worst)


def _check_outcomes(data: Trajectories) -> Finding | None:
    nothing = data.layout.sum_steps(np.abs(data.rewards)) == 0
    if nothing.all():
        return L107.finding("issue")
    share = float(nothing.mean())
    if (data.lengths[nothing] == data.layout.horizon).all():
        return None  # still there at the longest that a trajectory lasts: no outcome yet, and none is missing
    last = data.rewards[data.layout.last]
    # Where rewards come at the end alone, a trajectory without one is an outcome nobody wrote down, or a true 0.
    only_at_the_end = np.count_nonzero(data.rewards) == np.count_nonzero(last)
    signs = {float(x) for x in np.sign(np.unique(last))}
    if not (only_at_the_end and 0 < share < 0.5 and {-1.0, 1.0} <= signs):
        return None
    return L103.finding("issue" if share > 0.02 else "caution", share=share)


def _check_actions(data: Trajectories) -> Finding | None:
    taken = np.unique(data.actions)
    if len(taken) > 1:
        return None
    return L104.finding("issue", action=int(taken[0]))


def _check_size(data: Trajectories) -> Finding | None:
    if len(data) >= 100:
        return None
    return L105.finding("issue" if len(data) < 30 else "caution", n=len(data))


STEPS = 50_000  # looked at, of whole trajectories spread over the log
_FEATURES = 50  # and so many of the features
_CLEAR, _LARGE = 0.01, 0.05  # mean of error times standardised f: worth a word, and too much
_CERTAIN = (0.2, 0.5)  # shares of logged actions with probability above 0.99: a caution, an issue


def behaviour_findings(
    data: Trajectories, rows: Int, proba: Float, *, sees_more: bool = False
) -> tuple[Finding, ...]:
    """What the log says against a model that gives the probabilities ``proba`` in the named rows, (m, A).

    ``sees_more``: it depends on more than the present state.
    """
    actions = data.actions[rows]
    taken = np.eye(proba.shape[1])[actions]
    error = taken - proba
    owner = data.layout.owner[rows]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(owner)) + 1, [len(rows)]])
    units = np.unique(data.layout.unit[owner[starts[:-1]]], return_inverse=True)[1]
    layout = Ragged(starts, None if data.layout.cluster is None else units)
    found = (
        _unbalanced(error, *_functions(data, rows), layout),
        _over_or_under_confident(error, proba, layout),
        _certain(at_actions(proba, actions), actions),
    )
    past = check_past(data.part(np.unique(owner)), proba, sees_more=sees_more)
    return (*(finding for finding in found if finding is not None), *past.findings)


def _functions(data: Trajectories, rows: Int) -> tuple[Float, list[str]]:
    """Standardised functions of the state, (m, F), and where each of them is large, in words."""
    x = _standardised(data.states[rows, :_FEATURES].astype(np.float64))
    names = list(data.feature_names[:_FEATURES])
    time = _standardised(data.layout.time[rows, None].astype(np.float64))
    columns = np.concatenate([np.ones((len(rows), 1)), time, x, _standardised(x**2)], axis=1)
    where = ["overall", "at late steps", *(f"where {name} is high" for name in names)]
    return columns, [*where, *(f"where {name} is far from its mean" for name in names)]


def _standardised(x: Float) -> Float:
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


def _unbalanced(error: Float, functions: Float, where: list[str], layout: Ragged) -> Finding | None:
    m = len(error)
    effect = error.T @ functions / m
    spread = np.sqrt((error**2).T @ functions**2) / m
    rough = np.divide(np.abs(effect), spread, out=np.zeros_like(effect), where=spread > 0)
    cells, worst = int((spread > 0).sum()), None
    # Rows of one trajectory hang together: the few worst cells are tested again by trajectory.
    for flat in np.argsort(rough, axis=None)[-8:]:
        a, f = np.unravel_index(flat, rough.shape)
        z = _clustered(error[:, a] * functions[:, f], layout)
        if worst is None or abs(z) > abs(worst[0]):
            worst = (z, int(a), int(f))
    if worst is None:
        return None
    z, a, f = worst
    size = float(abs(effect[a, f]))
    if cells * 2 * special.ndtr(-abs(z)) > 1e-3 or size < _CLEAR:
        return None
    often = "more" if z > 0 else "less"
    level: Level = "issue" if size > _LARGE else "caution"
    return B104.finding(level, action=a, z=z, effect=size, often=often, where=where[f], tests=cells)


def _over_or_under_confident(error: Float, proba: Float, layout: Ragged) -> Finding | None:
    u = (error * proba).sum(axis=1)
    z, size = _clustered(u, layout), float(u.mean())
    if abs(z) < 4 or abs(size) < 2 * _CLEAR:
        return None
    level: Level = "issue" if abs(size) > _LARGE else "caution"
    return B105.finding(level, "over" if size < 0 else "under", z=z, effect=size, by=abs(size))


def _certain(logged: Float, actions: Int) -> Finding | None:
    share = float((logged > 0.99).mean())
    if share <= _CERTAIN[0] or len(np.unique(actions)) < 2:
        return None
    return B106.finding("issue" if share > _CERTAIN[1] else "caution", share=share)


def _clustered(u: Float, layout: Ragged) -> float:
    by_unit = layout.sum_units(u)
    scale = float(np.sqrt((by_unit**2).sum()))
    return float(by_unit.sum()) / scale if scale > 0 else 0.0
