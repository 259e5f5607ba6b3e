"""Behaviour models that see more than the state: the past of a trajectory, and the order of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from caliope._past import FEATURES, SLOW, WAVES, Order, Past, in_file_order
from caliope._ragged import Float
from caliope._trajectories import Trajectories
from caliope.behaviour._fit import FittedBehaviour

_LAST_ACTIONS = ("previous action", "action before that", "share of action", "count of action")


@dataclass(frozen=True, eq=False)
class Extension:
    """Further columns of a log.

    Attributes
    ----------
    past : bool
        Whether they describe the past of the trajectory.
    order : Order or None
        The order of the whole log, if its ranks are among them.
    members : frozenset of bytes or None
        Fingerprints of the trajectories of the log, where the order is only that of a file: others have no place in it.

    Examples
    --------
    >>> log = Trajectories([[1.0], [2.0]], [1, 0], [0, 0], offsets=[0, 2])
    >>> Extension.of(log, past=True, order=False).extend(log).feature_names[:3]
    ('x0', 'steps so far', 'steps without a change')
    """

    past: bool
    order: Order | None = None
    members: frozenset[bytes] | None = None

    @classmethod
    def of(cls, data: Trajectories, *, past: bool, order: bool) -> Extension:
        """The columns for a log and all parts of it; ranks are those in the whole of it."""
        if not order:
            return cls(past)
        by_file = in_file_order(data)
        return cls(past, Order.of(data.calendar), frozenset(data.decision_digests) if by_file else None)

    @property
    def name(self) -> str:
        """What is added, in short: "history", "order", or both."""
        parts = (["history"] if self.past else []) + (["order"] if self.order is not None else [])
        return " and ".join(parts)

    def extend(self, data: Trajectories) -> Trajectories:
        """The log with wider states."""
        parts: list[Float] = [data.states.astype(np.float64, copy=False)]
        names = list(data.feature_names)
        if self.past:
            parts.append(_past_columns(data))
            names += _past_names(data)
        if self.order is not None:
            parts.append(_order_columns(data, self.order))
            names += _order_names(data)
        return data.replace(states=np.concatenate(parts, axis=1), feature_names=names)

    def check(self, data: Trajectories) -> None:
        """Raise for trajectories that have no place in the order of the file."""
        if self.members is None:
            return
        new = [i for i, digest in enumerate(data.decision_digests) if digest not in self.members]
        if new:
            raise ValueError(
                f"the behaviour model depends on the order of its log, and {len(new)} of {len(data)} trajectories are "
                f"not in that log (first: {data.ids[new[0]]}). Read both with calendar=, and fit it again."
            )


def _past_columns(data: Trajectories) -> Float:
    """The past of every step, (N, p); 0 at the first, which the indicators of the previous action tell apart."""
    past = Past(data)
    numbers = [past.steps, past.unchanged, past.previous_reward, past.sum_of_rewards]
    return np.concatenate(
        [
            np.stack(numbers, axis=1),
            past.previous_state,
            past.first_state,
            past.mean_state,
            past.previous_action,
            past.action_before_that,
            past.shares,
            past.counts,
            past.pairs,
            past.previous_state**2,
            past.previous_pairs,
            past.action_three_back,
            past.action_pairs,
        ],
        axis=1,
    )


def _order_columns(data: Trajectories, order: Order) -> Float:
    """Rank of the trajectory of every step, its cosines, and the first of them times the features, (N, p)."""
    owner, waves = data.layout.owner, order.waves(data.calendar)
    ranks, x = order.at(data.calendar)[:, None], data.states[:, :FEATURES]
    slow = [waves[owner, k : k + 1] * x for k in range(SLOW)]
    return np.concatenate([ranks[owner], waves[owner], *slow], axis=1)


def _order_names(data: Trajectories) -> list[str]:
    cosines = [f"cosine {k} of the rank" for k in range(1, WAVES + 1)]
    features = data.feature_names[:FEATURES]
    return ["rank in the log", *cosines, *(f"{wave} x {x}" for wave in cosines[:SLOW] for x in features)]


def _past_names(data: Trajectories) -> list[str]:
    paired = data.feature_names[: Past(data).paired]
    pairs = [f"{name} after action {a}" for name in paired for a in range(data.n_actions)]
    features = [f"{which} {name}" for which in ("previous", "first", "mean") for name in data.feature_names]
    actions = [f"{which} {a}" for which in _LAST_ACTIONS for a in range(data.n_actions)]
    return [
        "steps so far",
        "steps without a change",
        "previous reward",
        "sum of rewards so far",
        *features,
        *actions,
        *pairs,
        *(f"previous {name}, squared" for name in data.feature_names),
        *(f"previous {name} with action {a}" for name in paired for a in range(data.n_actions)),
        *(f"three back {a}" for a in range(data.n_actions)),
        *(f"pair {i} of earlier actions" for i in range(Past(data).action_pairs.shape[1])),
    ]


@dataclass(frozen=True, eq=False, repr=False)
class ExtendedBehaviour(FittedBehaviour):
    """A fitted behaviour policy that also depends on the past of a trajectory, or on the order of the log.

    It gives probabilities for whole trajectories (``on``), and not for states alone.

    Parameters
    ----------
    model, probabilities, mode, note, data
        As for :class:`~caliope.behaviour._fit.FittedBehaviour`. The model takes wider states; ``data`` is the plain
        log.
    extension : Extension
        What it sees beside the state.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from caliope.behaviour import fit_behaviour
    >>> from caliope.domains import ward
    >>> log = ward.simulate(50, rng=0)
    >>> fit = lambda data: fit_behaviour(LogisticRegression(max_iter=1000), data, mode="cross", rng=0)
    >>> fitted = ExtendedBehaviour.fit(fit, log, Extension.of(log, past=True, order=False))
    >>> fitted.added, fitted.on(log[:10]).shape
    ('history', (61, 3))
    """

    extension: Extension

    @classmethod
    def fit(
        cls, fit: Callable[[Trajectories], FittedBehaviour], data: Trajectories, extension: Extension
    ) -> ExtendedBehaviour:
        """Fit on the wider states of a log."""
        found = fit(extension.extend(data))
        return cls(found.model, found.probabilities, found.mode, found.note, data, extension)

    @property
    def added(self) -> str:
        """What the model sees beside the state, in words."""
        return self.extension.name

    def predict_proba(self, X: ArrayLike) -> NoReturn:
        """Raise: a state alone has no past."""
        raise TypeError(
            f"this behaviour model depends on more than the state (added: {self.added}), and states alone do not hold "
            "it: give it whole trajectories, as in model.on(data)."
        )

    def widen(self, data: Trajectories) -> Trajectories:
        """The log with all that the model sees in its states."""
        self.extension.check(data)
        return self.extension.extend(data)

    def fit_again(self, fit: Callable[[Trajectories], FittedBehaviour]) -> FittedBehaviour:
        """Fit another model to what this one sees of its own log."""
        return self.fit(fit, self.data, self.extension)


def extend_name(name: str, extension: Extension) -> str:
    """Name of a model with further columns, such as "forest, with history and order"."""
    return f"{name}, with {extension.name}"
