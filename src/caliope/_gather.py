"""Make evidence from trajectories and two policies: importance ratios, values, missing support."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._action_values import ActionValues, OnLog, TargetChunk, Values, action_values, value_notes
from caliope._evidence import Evidence
from caliope._named_policies import as_coded
from caliope._policies import (
    MixWithPractice,
    Policy,
    Practice,
    Relative,
    SupportError,
    TiltOfPractice,
    action_probabilities,
    check_probabilities,
)
from caliope._ragged import Float, at_actions
from caliope._table_order import refuse_table_order
from caliope._trajectories import Trajectories
from caliope.checks import S101, Finding, Level
from caliope.checks._log import STEPS, behaviour_findings

# Steps predicted together: 25 actions in float64 are 52 MB.
_ROWS = 1 << 18
# Entries of a table read together: they stay in the cache of the processor, and are read from memory once.
_CACHED = 1 << 19
# Over ten steps, one trajectory in ten would meet an action without support.
_UNSUPPORTED_ISSUE = 0.01


# Rows -> probabilities (m, A), or (m,) where only logged probabilities exist.
Probabilities = Callable[[slice], Float]


def gather(
    data: Trajectories,
    target: Policy | Relative | ArrayLike,
    behaviour: Policy | ArrayLike,
    *,
    gamma: float = 1.0,
    q: ActionValues | ArrayLike | None = None,
    behaviour_known: bool | None = None,
) -> Evidence:
    r"""Compute the importance ratio of every logged action, and collect what estimators need.

    .. math:: \lambda_t = \frac{\pi_e(a_t \mid s_t)}{\pi_b(a_t \mid s_t)}

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The target policy; also :data:`~caliope.practice` and what ``mix`` and ``tilt`` make of it.
    behaviour : Policy, or array of shape (N, A) or (N,)
        The behaviour policy: fitted, as probabilities of all actions, or as the logged probabilities of the
        actions taken.
    gamma : float
        Discount in [0, 1].
    q : fitted values, object with ``q(states, actions)`` and ``v(states)``, or array of shape (N, A), optional
        Values under the target. For fitted values and arrays, :math:`\hat V = \sum_a \pi_e \hat Q`, plus what the
        influence function of a target relative to practice adds; see Notes.
    behaviour_known : bool, optional
        Whether the behaviour probabilities are exact. By default only logged ones of shape (N,) are; say True for
        recorded ones of all actions, (N, A). All others are tested on the log (:mod:`caliope.checks`), and the
        findings are in ``notes``.

    Returns
    -------
    Evidence
        Rewards, log-ratios, values where given, and findings.

    Notes
    -----
    A target stated relative to practice moves with the fitted behaviour policy, and its error would enter
    :math:`\hat V`. Its own influence function (Kennedy 2019) takes the part of practice from the logged actions:
    :math:`(1 - \alpha) \hat Q(s, a) + \alpha \sum_b \pi_2(b) \hat Q(s, b)` for a mixture, and
    :math:`\hat V + \lambda (\hat Q(s, a) - \hat V)` for a tilt. Practice itself, and any target whose ratios are all 1,
    then gives exactly the mean return, whatever the values.

    Raises
    ------
    SupportError
        If the behaviour policy gives probability 0 to a logged action. The action was taken, so the model is
        wrong: shrink it towards the marginal frequencies. It is never clipped here.

    Examples
    --------
    >>> from caliope import UniformPolicy
    >>> data = Trajectories([[0.0], [0.0]], [0, 1], [1.0, 0.0], offsets=[0, 1, 2])
    >>> gather(data, [[0.8, 0.2], [0.8, 0.2]], UniformPolicy(2)).rho
    array([1.6, 0.4])
    """
    if not isinstance(data, Trajectories):
        raise TypeError(f"data must be Trajectories (see read_table), got {type(data).__name__}.")
    logged = not _is_policy(behaviour) and np.asarray(behaviour).ndim == 1
    exact = logged or bool(getattr(behaviour, "known", False))
    known = exact if behaviour_known is None else bool(behaviour_known)
    read = _logged_probabilities if logged else _all_probabilities
    behaviour_probs = read("behaviour", behaviour, data)
    columns = _Columns(data, q is not None, examined=not (known or logged))
    target_probs, values = _target_probs(target, data, logged=logged), action_values(q, data)
    predicted = any(_is_live(x) for x in (target, behaviour, q))
    for rows in _chunks(data.n_steps, _ROWS if predicted else max(1, _CACHED // data.n_actions)):
        columns.fill(rows, behaviour_probs(rows), target_probs, values)
    columns.check_support()
    columns.take_logs()
    if columns.v is not None:
        columns.v = settle(columns.log_ratio, columns.q, columns.v)
    note = getattr(behaviour, "note", None)
    found = columns.notes(sees_more=bool(getattr(behaviour, "added", "")))
    notes = ((note,) if isinstance(note, Finding) else ()) + found + value_notes(q, data, gamma)
    return Evidence(
        data.rewards,
        columns.log_ratio,
        data.offsets,
        gamma,
        q=columns.q,
        v=columns.v,
        behaviour_known=known,
        terminated=None if data.terminated.all() else data.terminated,
        notes=notes,
        features=data.recorded,
        relative=isinstance(target, Relative),
        cluster=data.cluster,
        place=data.place,
    )


class _Columns:
    """Columns of the evidence, filled in chunks of steps, with what the findings need."""

    def __init__(self, data: Trajectories, with_values: bool, *, examined: bool) -> None:
        n = data.n_steps
        self.data, self.log_ratio, self.unsupported = data, np.empty(n), np.zeros(n)
        self.behaviour = np.empty(n)
        self.q: Float | None = np.empty(n) if with_values else None
        self.v: Float | None = np.empty(n) if with_values else None
        self.never = np.bincount(data.actions, minlength=data.n_actions) == 0
        self.sample = data.layout.rows_of(data.subsample(STEPS)) if examined else np.empty(0, dtype=np.int64)
        self.sampled: list[Float] = []

    def fill(self, rows: slice, b: Float, target_probs: TargetProbs, values: Values | None) -> None:
        actions = self.data.actions[rows]
        b_logged = b if b.ndim == 1 else at_actions(b, actions)
        target = target_probs(rows, b, b_logged)
        # Their logarithms are taken at the end, all at once.
        self.behaviour[rows], self.log_ratio[rows] = b_logged, target.at_logged
        self.unsupported[rows] = self._unsupported_mass(b, b_logged, target)
        if values is not None and self.q is not None and self.v is not None:
            self.q[rows], self.v[rows] = values(rows, actions, target)
        if b.ndim == 2:
            start, stop = np.searchsorted(self.sample, [rows.start, rows.stop])
            self.sampled.append(b[self.sample[start:stop] - rows.start])

    def _unsupported_mass(self, b: Float, b_logged: Float, target: TargetChunk) -> Float:
        """Sum the target probabilities of actions without support, (m,)."""
        part = target.needs_support
        if b.ndim == 1:
            # Where every action was taken there is nothing to sum.
            mass = part @ self.never.astype(np.float64) if self.never.any() else np.zeros(len(part))
            # A logged probability of 1 leaves none for any other action.
            sure = np.flatnonzero(b_logged >= 1 - 1e-9)
            mass[sure] = np.maximum(part[sure].sum(axis=1) - target.at_logged[sure], 0.0)
            return mass
        # An action that was never taken, and that the model hardly expects in the whole log, has none either.
        return np.vecdot(part, (b == 0) | (self.never & (b < 0.01 / self.data.n_steps)))

    def check_support(self) -> None:
        """Raise if a logged action has behaviour probability 0."""
        missing = self.behaviour <= 0
        if not missing.any():
            return
        first = int(np.argmax(missing))
        i = self.data.layout.owner[first]
        raise SupportError(
            f"behaviour gives probability 0 to {int(missing.sum())} of {self.data.n_steps} logged actions "
            f"(first: action {self.data.actions[first]} in trajectory {self.data.ids[i]}, step "
            f"{first - self.data.offsets[i]}). They were taken, so the model is wrong there. Shrink it towards the "
            "marginal frequencies, e.g. mix(behaviour, DummyClassifier(strategy='prior').fit(...), 0.05), with the "
            "share chosen by cross-validated log-likelihood."
        )

    def take_logs(self) -> None:
        """From ratios to their logarithms."""
        with np.errstate(divide="ignore"):
            np.log(self.log_ratio, out=self.log_ratio)
        self.log_ratio -= np.log(self.behaviour)

    def notes(self, *, sees_more: bool) -> tuple[Finding, ...]:
        support = _support_notes(self.unsupported)
        if not len(self.sample):
            return support
        proba = np.concatenate(self.sampled)
        return support + behaviour_findings(self.data, self.sample, proba, sees_more=sees_more)


def settle(log_ratio: Float, q: Any, v: Float) -> Float:
    """The values of the target: those of the logged action where the target is practice, with every ratio 1."""
    return q.copy() if not log_ratio.any() and np.isfinite(v).all() else v


def weigh_steps(data: Trajectories, target: Any, behaviour: Float, *, q: Float) -> tuple[Float, Float, Float]:
    """Log-ratios and values q and v at every step of a part of a log, (N,) each, without findings.

    ``behaviour`` are probabilities of all actions, (N, A), or of those taken, (N,).
    """
    logged = behaviour.ndim == 1
    columns, values = _Columns(data, True, examined=False), action_values(q, data)
    target_probs = _target_probs(target, data, logged=logged)
    for rows in _chunks(data.n_steps, _ROWS):
        columns.fill(rows, behaviour[rows], target_probs, values)
    columns.check_support()
    columns.take_logs()
    return columns.log_ratio, columns.q, columns.v  # type: ignore[return-value]


def target_probabilities(data: Trajectories, target: Any, behaviour: Any = None) -> Float:
    """Compute the probabilities of all actions under a policy at every step of a log, (N, A).

    A policy stated relative to practice needs the behaviour policy too.
    """
    if not isinstance(target, Relative):
        target_probs = _all_probabilities("target", target, data)
        return np.concatenate([target_probs(rows) for rows in _chunks(data.n_steps)])
    if behaviour is None or (not _is_policy(behaviour) and np.asarray(behaviour).ndim == 1):
        raise TypeError(
            "a target stated relative to practice needs the behaviour probabilities of all actions: give "
            "target_probabilities(data, target, behaviour)."
        )
    behaviour_probs = _all_probabilities("behaviour", behaviour, data)
    probs = _all_target_probs(target, data)
    return np.concatenate([probs(rows, behaviour_probs(rows)) for rows in _chunks(data.n_steps)])


def _chunks(n: int, size: int = _ROWS) -> Iterator[slice]:
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _is_live(x: object) -> bool:
    """Whether it is asked for its numbers, and has them at hand neither as an array nor for the log."""
    return not (x is None or isinstance(x, OnLog | np.ndarray | list | tuple))


def _is_policy(x: object) -> bool:
    return hasattr(x, "predict_proba")


def _all_probabilities(name: str, policy: Any, data: Trajectories) -> Probabilities:
    policy = as_coded(policy, data, name=name)
    if isinstance(policy, OnLog):
        return _all_probabilities(name, policy.on(data), data)
    if _is_policy(policy):
        return lambda rows: action_probabilities(
            policy, data.states[rows], data.n_actions, first_row=rows.start
        )
    table = np.asarray(policy)
    if table.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must be a policy with predict_proba and classes_, or an array of probabilities; "
            f"got {type(policy).__name__}."
        )
    if table.shape != (data.n_steps, data.n_actions):
        raise ValueError(
            f"{name} as an array must have shape ({data.n_steps}, {data.n_actions}), one probability per step "
            f"and action, got {table.shape}."
        )
    refuse_table_order(table, data, name=name)
    return lambda rows: _check_rows(table, name, rows)


def _check_rows(table: Any, name: str, rows: slice) -> Float:
    try:
        return check_probabilities(table[rows], name)
    except ValueError:
        # Says how many of all rows are wrong.
        return check_probabilities(table, name)[rows]


def _logged_probabilities(name: str, column: Any, data: Trajectories) -> Probabilities:
    column = np.asarray(column, dtype=np.float64)
    if column.shape != (data.n_steps,):
        raise ValueError(
            f"{name}: logged probabilities must have shape ({data.n_steps},), one per step, got {column.shape}."
        )
    bad = np.flatnonzero(~((column >= 0) & (column <= 1)))
    if len(bad):
        raise ValueError(
            f"{name}: logged probabilities must lie in [0, 1]; {len(bad)} do not (first: {column[bad[0]]} at step "
            f"{bad[0]})."
        )
    if (column == 1).all() and len(np.unique(data.actions)) > 1:
        raise SupportError(
            "every logged probability is 1 although different actions were taken. That is a placeholder, or a "
            "policy that never explored; neither supports a comparison. Fit a behaviour policy instead."
        )
    return lambda rows: column[rows]


# Rows, and the behaviour probabilities there and at the logged action.
TargetProbs = Callable[[slice, Float, Float], TargetChunk]


def _target_probs(target: Any, data: Trajectories, *, logged: bool) -> TargetProbs:
    if isinstance(target, Relative) and logged:
        return _relative_to_logged(target, data)
    if isinstance(target, MixWithPractice):
        return _mixture(target, data)
    probs = _all_target_probs(target, data)

    def chunk(rows: slice, b: Float, b_logged: Float) -> TargetChunk:
        e = probs(rows, b)
        at_logged = at_actions(e, data.actions[rows])
        if not isinstance(target, TiltOfPractice):
            return TargetChunk(at_logged, e, e)
        # A probability of 0 is reported when all rows have been looked at.
        ratio = np.divide(at_logged, b_logged, out=np.ones_like(at_logged), where=b_logged > 0)
        return TargetChunk(at_logged, e, e, tilted=ratio)

    return chunk


def _mixture(target: MixWithPractice, data: Trajectories) -> TargetProbs:
    # A policy mixed in gives what it keeps for the log, if anything.
    new = _all_probabilities("target", target.policy, data)

    def chunk(rows: slice, b: Float, b_logged: Float) -> TargetChunk:
        table = new(rows)
        e = target.combine(table, b)
        return TargetChunk(at_actions(e, data.actions[rows]), e, e, mixed_in=(target.share, table))

    return chunk


def _all_target_probs(target: Any, data: Trajectories) -> Callable[[slice, Float], Float]:
    """Rows and behaviour probabilities there -> target probabilities of all actions, (m, A)."""
    if not isinstance(target, Relative):
        table = _all_probabilities("target", target, data)
        return lambda rows, b: table(rows)
    if isinstance(target, TiltOfPractice):
        target = target.coded(data.action_names)
    if not isinstance(target, MixWithPractice):
        return lambda rows, b: target.apply(data.states[rows], b)
    # A policy mixed in gives what it keeps for the log, if anything.
    new = _all_probabilities("target", target.policy, data)
    return lambda rows, b: target.combine(new(rows), b)


def _relative_to_logged(target: Relative, data: Trajectories) -> TargetProbs:
    if isinstance(target, Practice):
        nothing = np.zeros((1, data.n_actions))
        return lambda rows, b, b_logged: TargetChunk(
            b_logged, None, np.repeat(nothing, len(b), axis=0), mixed_in=(0.0, nothing)
        )
    if not isinstance(target, MixWithPractice):
        raise TypeError(
            "a tilt of practice needs the behaviour probabilities of all actions, (N, A); only those of the "
            "logged actions, (N,), were given."
        )
    new = _all_probabilities("target", target.policy, data)

    def chunk(rows: slice, b: Float, b_logged: Float) -> TargetChunk:
        table = new(rows)
        at_logged = target.combine(at_actions(table, data.actions[rows]), b_logged)
        return TargetChunk(at_logged, None, target.share * table, mixed_in=(target.share, table))

    return chunk


def _support_notes(unsupported: Float) -> tuple[Finding, ...]:
    mass = float(unsupported.mean())
    steps = int((unsupported > 0).sum())
    if not steps:
        return ()
    level: Level = "issue" if mass > _UNSUPPORTED_ISSUE else "caution"
    return (S101.finding(level, mass=mass, steps=steps, total=len(unsupported)),)
