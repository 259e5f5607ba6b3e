"""From trajectories and two policies to evidence: the ratios, and where there is no support for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from caliope.balance import behaviour_findings, sample_of
from caliope.evidence import Evidence
from caliope.policies import (
    MixWithPractice,
    Policy,
    Practice,
    Relative,
    SupportError,
    action_probabilities,
    check_probabilities,
)
from caliope.ragged import Float
from caliope.results import Finding, Level
from caliope.trajectories import Trajectories

_ROWS = 1 << 18  # steps asked of a policy at once: 25 actions in float64 are 52 MB
_UNSUPPORTED_ISSUE = 0.01  # over ten steps, one trajectory in ten would meet an action that has no support


@runtime_checkable
class ActionValues(Protocol):
    r"""Fitted values under the evaluation policy: what a visit to a state, and an action there, is worth."""

    def q(self, states: Float, actions: Any) -> Any:
        r""":math:`\hat Q(s, a)` for each row, (N,)."""

    def v(self, states: Float) -> Any:
        r""":math:`\hat V(s)` for each row, (N,)."""


@runtime_checkable
class OnLog(Protocol):
    """Something fitted that keeps its numbers for a log: out of fold, where it was cross-fitted."""

    def on(self, data: Trajectories) -> Float:
        """A number for every step and action of a log, (N, A)."""


Probabilities = Callable[[slice], Float]  # rows -> (m, A), or (m,) where only logged probabilities exist


def gather(
    data: Trajectories,
    target: Policy | Relative | ArrayLike,
    behaviour: Policy | ArrayLike,
    *,
    gamma: float = 1.0,
    q: ActionValues | ArrayLike | None = None,
    behaviour_known: bool | None = None,
) -> Evidence:
    r"""Compare what was done with what the new policy would have done, step by step.

    .. math:: \lambda_t = \frac{\pi_e(a_t \mid s_t)}{\pi_b(a_t \mid s_t)}

    Parameters
    ----------
    data : Trajectories
        The log.
    target : Policy, or array of shape (N, A)
        The evaluation policy; also :data:`~caliope.policies.practice` and what ``mix`` and ``tilt`` make of it.
    behaviour : Policy, or array of shape (N, A) or (N,)
        The policy that acted: fitted, as probabilities of all actions, or as the logged probabilities of the
        actions taken.
    gamma : float
        Discount in [0, 1].
    q : fitted values, object with ``q(states, actions)`` and ``v(states)``, or array of shape (N, A), optional
        Values under the target. Of fitted values and arrays :math:`\hat V = \sum_a \pi_e \hat Q` is taken here.
    behaviour_known : bool, optional
        Whether the behaviour probabilities are exact. By default only logged ones of shape (N,) are. All others
        are put to the test by the log itself (:mod:`caliope.balance`), and what it finds is in ``notes``.

    Raises
    ------
    SupportError
        If the behaviour policy gives probability 0 to a logged action. The action was taken, so the model is
        wrong: shrink it towards the marginal frequencies. It is never clipped here.

    Examples
    --------
    >>> from caliope.policies import UniformPolicy
    >>> data = Trajectories([[0.0], [0.0]], [0, 1], [1.0, 0.0], offsets=[0, 1, 2])
    >>> gather(data, [[0.8, 0.2], [0.8, 0.2]], UniformPolicy(2)).rho
    array([1.6, 0.4])
    """
    if not isinstance(data, Trajectories):
        raise TypeError(f"data must be Trajectories (see read_table), got {type(data).__name__}.")
    logged = not _is_policy(behaviour) and np.asarray(behaviour).ndim == 1
    known = logged if behaviour_known is None else bool(behaviour_known)
    acted = _logged(behaviour, data) if logged else _probabilities("behaviour", behaviour, data)
    columns = _Columns(data, q is not None, examined=not (known or logged))
    wanted, values = _target(target, data, acted, logged=logged), _action_values(q, data)
    for rows in _chunks(data.n_steps):
        columns.fill(rows, acted(rows), wanted, values)
    columns.complain()
    note = getattr(behaviour, "note", None)
    notes = ((note,) if isinstance(note, Finding) else ()) + columns.notes() + _value_notes(q, data, gamma)
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
    )


class _Columns:
    """The columns of the evidence to be, filled a chunk of steps at a time, and what is noticed on the way."""

    def __init__(self, data: Trajectories, with_values: bool, *, examined: bool) -> None:
        n = data.n_steps
        self.data, self.log_ratio, self.unsupported = data, np.empty(n), np.zeros(n)
        self.q: Float | None = np.empty(n) if with_values else None
        self.v: Float | None = np.empty(n) if with_values else None
        self.never = np.bincount(data.actions, minlength=data.n_actions) == 0
        self.missing = np.zeros(n, dtype=bool)
        self.sample = sample_of(data) if examined else np.empty(0, dtype=np.int64)
        self.sampled: list[Float] = []

    def fill(self, rows: slice, b: Float, wanted: Wanted, values: Values | None) -> None:
        actions = self.data.actions[rows]
        b_logged = b if b.ndim == 1 else b[np.arange(len(actions)), actions]
        self.missing[rows] = b_logged <= 0
        e_logged, e, part = wanted(rows, b, b_logged)
        with np.errstate(divide="ignore"):
            self.log_ratio[rows] = np.log(e_logged) - np.log(np.where(b_logged > 0, b_logged, 1.0))
        self.unsupported[rows] = self._unsupported(b, b_logged, e_logged, part)
        if values is not None and self.q is not None and self.v is not None:
            self.q[rows], self.v[rows] = values(rows, actions, e)
        if b.ndim == 2:
            start, stop = np.searchsorted(self.sample, [rows.start, rows.stop])
            self.sampled.append(b[self.sample[start:stop] - rows.start])

    def _unsupported(self, b: Float, b_logged: Float, e_logged: Float, part: Float) -> Float:
        if b.ndim == 1:
            # A logged probability of 1 leaves none for any other action.
            return np.where(
                b_logged >= 1 - 1e-9, np.maximum(part.sum(axis=1) - e_logged, 0.0), part @ self.never
            )
        # An action that was never taken, and that the model hardly expects in the whole log, has none either.
        return np.vecdot(part, (b == 0) | (self.never & (b < 0.01 / self.data.n_steps)))

    def complain(self) -> None:
        if not self.missing.any():
            return
        first = int(np.argmax(self.missing))
        i = self.data.layout.owner[first]
        raise SupportError(
            f"behaviour gives probability 0 to {int(self.missing.sum())} of {self.data.n_steps} logged actions "
            f"(first: action {self.data.actions[first]} in trajectory {self.data.ids[i]}, step "
            f"{first - self.data.offsets[i]}). They were taken, so the model is wrong there. Shrink it towards the "
            "marginal frequencies, e.g. mix(behaviour, DummyClassifier(strategy='prior').fit(...), 0.05), with the "
            "share chosen by cross-validated log-likelihood."
        )

    def notes(self) -> tuple[Finding, ...]:
        found = _support_notes(self.unsupported)
        if not len(self.sample):
            return found
        return found + behaviour_findings(self.data, self.sample, np.concatenate(self.sampled))


def _value_notes(q: Any, data: Trajectories, gamma: float) -> tuple[Finding, ...]:
    fitted_gamma = getattr(q, "gamma", gamma)
    if fitted_gamma != gamma:
        raise ValueError(
            f"the values were fitted with gamma = {fitted_gamma}, and gather was asked for {gamma}."
        )
    notes_for = getattr(q, "notes_for", None)
    return tuple(notes_for(data)) if callable(notes_for) else ()


def target_probabilities(data: Trajectories, target: Any, behaviour: Any = None) -> Float:
    """Probabilities of all actions under a policy at every step of a log, (N, A).

    A policy stated relative to practice needs the behaviour policy beside it.
    """
    if not isinstance(target, Relative):
        table = _probabilities("target", target, data)
        return np.concatenate([table(rows) for rows in _chunks(data.n_steps)])
    if behaviour is None or (not _is_policy(behaviour) and np.asarray(behaviour).ndim == 1):
        raise TypeError(
            "a target stated relative to practice needs the behaviour probabilities of all actions: give "
            "target_probabilities(data, target, behaviour)."
        )
    acted = _probabilities("behaviour", behaviour, data)
    given = _given(target, data)
    return np.concatenate([given(rows, acted(rows)) for rows in _chunks(data.n_steps)])


def _chunks(n: int) -> Iterator[slice]:
    return (slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS))


def _is_policy(given: object) -> bool:
    return hasattr(given, "predict_proba")


def _probabilities(name: str, given: Any, data: Trajectories) -> Probabilities:
    if isinstance(given, OnLog):
        return _probabilities(name, given.on(data), data)
    if _is_policy(given):
        _check_features(name, given, data)
        return lambda rows: action_probabilities(
            given, data.states[rows], data.n_actions, first_row=rows.start
        )
    table = np.asarray(given)
    if table.dtype.kind not in "fiub":
        raise TypeError(
            f"{name} must be a policy with predict_proba and classes_, or an array of probabilities; "
            f"got {type(given).__name__}."
        )
    if table.shape != (data.n_steps, data.n_actions):
        raise ValueError(
            f"{name} as an array must have shape ({data.n_steps}, {data.n_actions}), a probability for each step "
            f"and action, got {table.shape}."
        )
    checked = check_probabilities(table, name)
    return lambda rows: checked[rows]


def _check_features(name: str, policy: Any, data: Trajectories) -> None:
    fitted = getattr(policy, "feature_names_in_", None)
    unnamed = data.feature_names == tuple(f"x{j}" for j in range(len(data.feature_names)))
    if fitted is not None and not unnamed and tuple(map(str, fitted)) != data.feature_names:
        raise ValueError(
            f"{name} was fitted on the features {list(fitted)}, and the log has {list(data.feature_names)}: fit it on "
            "data.states, or read the log with the features in that order."
        )


def _logged(given: Any, data: Trajectories) -> Probabilities:
    column = np.asarray(given, dtype=np.float64)
    if column.shape != (data.n_steps,):
        raise ValueError(
            f"logged probabilities must have shape ({data.n_steps},), one a step, got {column.shape}."
        )
    bad = np.flatnonzero(~((column >= 0) & (column <= 1)))
    if len(bad):
        raise ValueError(
            f"logged probabilities must lie in [0, 1]; {len(bad)} do not (first: {column[bad[0]]} at step {bad[0]})."
        )
    if (column == 1).all() and len(np.unique(data.actions)) > 1:
        raise SupportError(
            "every logged probability is 1 although different actions were taken. That is a placeholder, or a "
            "policy that never explored; neither supports a comparison. Fit a behaviour policy instead."
        )
    return lambda rows: column[rows]


Wanted = Callable[[slice, Float, Float], tuple[Float, Float | None, Float]]


def _target(target: Any, data: Trajectories, acted: Probabilities, *, logged: bool) -> Wanted:
    """Rows, behaviour there and at the logged action -> target there, for all actions, and what needs support."""
    if isinstance(target, Relative):
        return _relative_to_logged(target, data) if logged else _relative(target, data)
    table = _probabilities("target", target, data)

    def wanted(rows: slice, b: Float, b_logged: Float) -> tuple[Float, Float | None, Float]:
        e = table(rows)
        return e[np.arange(len(e)), data.actions[rows]], e, e

    return wanted


def _given(target: Relative, data: Trajectories) -> Callable[[slice, Float], Float]:
    """Rows and behaviour there -> target there. A policy mixed in gives what it keeps for the log, if anything."""
    if not isinstance(target, MixWithPractice):
        return lambda rows, b: target.given(data.states[rows], b)
    new = _probabilities("target", target.policy, data)
    return lambda rows, b: target.mixed(new(rows), b)


def _relative(target: Relative, data: Trajectories) -> Wanted:
    given = _given(target, data)

    def wanted(rows: slice, b: Float, b_logged: Float) -> tuple[Float, Float | None, Float]:
        e = given(rows, b)
        return e[np.arange(len(e)), data.actions[rows]], e, e

    return wanted


def _relative_to_logged(target: Relative, data: Trajectories) -> Wanted:
    if isinstance(target, Practice):
        return lambda rows, b, b_logged: (b_logged, None, np.zeros((len(b), data.n_actions)))
    if not isinstance(target, MixWithPractice):
        raise TypeError(
            "a tilt of practice needs the behaviour probabilities of all actions, (N, A); only those of the "
            "logged actions, (N,), were given."
        )
    new = _probabilities("target", target.policy, data)

    def wanted(rows: slice, b: Float, b_logged: Float) -> tuple[Float, Float | None, Float]:
        table = new(rows)
        logged = table[np.arange(len(table)), data.actions[rows]]
        return target.mixed(logged, b_logged), None, target.share * table

    return wanted


Values = Callable[[slice, Any, Float | None], tuple[Float, Float]]


def _action_values(q: Any, data: Trajectories) -> Values | None:
    if q is None:
        return None
    if isinstance(q, ActionValues) and not isinstance(q, OnLog):
        return _from_functions(q, data)
    table = np.asarray(q.on(data) if isinstance(q, OnLog) else q, dtype=np.float64)
    if table.shape != (data.n_steps, data.n_actions):
        raise ValueError(
            f"q as an array must have shape ({data.n_steps}, {data.n_actions}), a value for each step and action, "
            f"got {table.shape}; an object needs methods q(states, actions) and v(states)."
        )

    def values(rows: slice, actions: Any, e: Float | None) -> tuple[Float, Float]:
        if e is None:
            raise TypeError("q as an array needs the behaviour probabilities of all actions, (N, A), here.")
        return table[rows][np.arange(len(actions)), actions], np.vecdot(e, table[rows])

    return values


def _from_functions(q: ActionValues, data: Trajectories) -> Values:
    def values(rows: slice, actions: Any, e: Float | None) -> tuple[Float, Float]:
        found = np.asarray(q.q(data.states[rows], actions)), np.asarray(q.v(data.states[rows]))
        for name, x in zip(("q", "v"), found, strict=True):
            if x.shape != (len(actions),):
                raise ValueError(
                    f"{name}(...) must return one value a row, shape ({len(actions)},), got {x.shape}."
                )
        return found

    return values


def _support_notes(unsupported: Float) -> tuple[Finding, ...]:
    mass = float(unsupported.mean())
    steps = int((unsupported > 0).sum())
    if not steps:
        return ()
    message = (
        f"the target puts {mass:.2%} of its probability, in {steps} of {len(unsupported)} steps, on actions that "
        "current practice never takes there; no weighting can tell what they would do"
    )
    level: Level = "issue" if mass > _UNSUPPORTED_ISSUE else "caution"
    return (Finding("S101", level, message, {"mass": mass, "steps": steps}),)
