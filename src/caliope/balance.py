r"""Is the behaviour model right about what was done? Quick tests on the log itself.

If :math:`\hat\pi` is the policy that acted, then :math:`E[(1\{A = a\} - \hat\pi(a \mid s))\, f(s)] = 0` for every
function f: nobody can predict where the model errs. Here f runs over a constant, the time, the features and their
squares, and the model's own predictions. The tests are blind to errors that none of these follow.
"""

from __future__ import annotations

import numpy as np
from scipy import special

from caliope.ragged import Float, Int, Ragged
from caliope.results import Finding, Level
from caliope.trajectories import Trajectories

_STEPS = 50_000  # looked at, of whole trajectories spread over the log
_FEATURES = 50  # and so many of the features
_CLEAR, _LARGE = 0.01, 0.05  # mean of error times standardised f: worth a word, and too much
_CERTAIN = (0.2, 0.5)  # shares of logged actions with probability above 0.99: a caution, an issue


def sample_of(data: Trajectories) -> Int:
    """Rows of whole trajectories, spread evenly over the log, at most some tens of thousands."""
    share = min(1.0, _STEPS / data.n_steps)
    which = np.unique(np.linspace(0, len(data) - 1, max(1, int(share * len(data)))).astype(np.int64))
    return data.layout.rows_of(which)


def behaviour_findings(data: Trajectories, rows: Int, proba: Float) -> tuple[Finding, ...]:
    """What the log says against a model that gives the probabilities ``proba`` in the named rows, (m, A)."""
    actions = data.actions[rows]
    taken = np.eye(proba.shape[1])[actions]
    error = taken - proba
    owner = data.layout.owner[rows]
    layout = Ragged(np.concatenate([[0], np.flatnonzero(np.diff(owner)) + 1, [len(rows)]]))
    found = (
        _unbalanced(error, *_functions(data, rows), layout),
        _over_or_under_confident(error, proba, layout),
        _certain(proba[np.arange(len(rows)), actions], actions),
    )
    return tuple(finding for finding in found if finding is not None)


def _functions(data: Trajectories, rows: Int) -> tuple[Float, list[str]]:
    """Standardised functions of the state, (m, F), and where each of them is large, in words."""
    x = _standardised(data.states[rows, :_FEATURES].astype(np.float64))
    names = list(data.feature_names[:_FEATURES])
    time = _standardised(data.layout.time[rows, None].astype(np.float64))
    columns = np.concatenate([np.ones((len(rows), 1)), time, x, _standardised(x**2)], axis=1)
    where = ["overall", "late in the episode", *(f"where {name} is high" for name in names)]
    return columns, [*where, *(f"where {name} is far from its mean" for name in names)]


def _standardised(x: Float) -> Float:
    spread = x.std(axis=0)
    return np.where(spread > 0, (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0), 0.0)


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
    message = (
        f"the behaviour model is off: action {a} was taken {often} often than it says {where[f]} (z = {z:.1f}, the "
        f"worst of {cells} comparisons); weights built on it are biased"
    )
    level: Level = "issue" if size > _LARGE else "caution"
    return Finding("B104", level, message, {"z": z, "effect": size, "action": a})


def _over_or_under_confident(error: Float, proba: Float, layout: Ragged) -> Finding | None:
    u = (error * proba).sum(axis=1)
    z, size = _clustered(u, layout), float(u.mean())
    if abs(z) < 4 or abs(size) < 2 * _CLEAR:
        return None
    said = "knows the logged actions better than it claims, as one that has memorised them does"
    if size < 0:
        said = "claims to know the logged actions better than it does"
    message = f"the behaviour model {said} (by {abs(size):.2f}, z = {z:.1f}); recalibrate or cross-fit it"
    return Finding("B105", "issue" if abs(size) > _LARGE else "caution", message, {"z": z, "effect": size})


def _certain(logged: Float, actions: Int) -> Finding | None:
    share = float((logged > 0.99).mean())
    if share <= _CERTAIN[0] or len(np.unique(actions)) < 2:
        return None
    message = (
        f"the behaviour model is certain of {share:.0%} of the logged actions: a feature gives the action away, the "
        "model has memorised the log, or practice left no choice there"
    )
    return Finding("B106", "issue" if share > _CERTAIN[1] else "caution", message, {"share": share})


def _clustered(u: Float, layout: Ragged) -> float:
    by_trajectory = layout.sum_steps(u)
    scale = float(np.sqrt((by_trajectory**2).sum()))
    return float(by_trajectory.sum()) / scale if scale > 0 else 0.0
