r"""Whether practice depends on more than the present state: on the past of a trajectory, or on when it began.

The errors :math:`1\{A = a\} - p(a \mid s)` of a model that is right are uncorrelated with everything that happened
before. Each function of the past is first residualised on functions of the present state and on the predicted
probabilities, so that an ordinary misfit in the present is not taken for a dependence on the past.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from caliope._past import FEATURES, SLOW, WAVES, Order, Past, in_file_order
from caliope._ragged import Bool, Float
from caliope._trajectories import Trajectories
from caliope.checks import B107, B108, Check, Finding

_STEPS = 20_000  # looked at, of whole trajectories spread over the log
_LEVEL = 1e-3  # of all tests of one finding together
_SMALL = 0.01  # mean of error times standardised function, below which nothing is said
_NEW = 0.01  # share of a function's variance that the present must leave unexplained
_CYCLES = 100  # trajectories from which cycles are looked for
_CELLS = 40  # pairs of an action and a function that are tested by trajectory


@dataclass(frozen=True)
class Strongest:
    """The function that the errors of a model follow most.

    Attributes
    ----------
    z : float
        Sum of the products of error and function over trajectories, in standard errors.
    effect : float
        Mean of the product of the error and the standardised function.
    action, function : int
        Which error, and which function.
    tests : int
        How many pairs were looked at.
    """

    z: float
    effect: float
    action: int
    function: int
    tests: int

    @property
    def clear(self) -> bool:
        """Whether chance does not explain it, and it is large enough to matter."""
        return self.tests * 2 * special.ndtr(-abs(self.z)) <= _LEVEL and abs(self.effect) >= _SMALL


@dataclass(frozen=True)
class PastTests:
    """What the errors of a model say of its dependence on the past and on the order of the log.

    Attributes
    ----------
    past, order : Strongest or None
        What they follow most of the past, and of the order; None where there is nothing to test.
    findings : tuple of Finding
        B107 and B108, where they are clear.
    """

    past: Strongest | None
    order: Strongest | None
    findings: tuple[Finding, ...]

    @property
    def largest(self) -> float:
        """The largest z, without its sign."""
        return max((abs(found.z) for found in (self.past, self.order) if found is not None), default=0.0)


def check_past(data: Trajectories, proba: Float, *, sees_more: bool = False) -> PastTests:
    """Test the probabilities of all actions, (N, A), against functions of the past and of the order of the log.

    Those of a model that sees more than the present are no function of the present: nothing is residualised on them.
    """
    which = data.subsample(_STEPS)
    whole = len(which) == len(data)
    proba, data = proba[data.layout.rows_of(which)], data.part(which)
    present = _present(data, proba[:, :0] if sees_more else proba)
    functions, where = order_functions(data)
    order = find_strongest(data, proba, present, functions)
    changes = _report(B108, order, where) or _report_cycle(data, proba, whole=whole)
    if changes:
        # Where practice changes over the log, what happened before tells when it was.
        present = np.concatenate([present, functions], axis=1)
    functions, where = past_functions(data)
    past = find_strongest(data, proba, present, functions)
    return PastTests(past, order, (*_report(B107, past, where), *changes))


def _report_cycle(data: Trajectories, proba: Float, *, whole: bool) -> tuple[Finding, ...]:
    """B108 for practice that changes in a cycle along the order of the log, such as by the day of the week."""
    found = find_cycle(data, proba)
    if found is None:
        return ()
    action, period, power, tests = found
    size = float(np.sqrt(2 * power * (proba[:, action] * (1 - proba[:, action])).mean() / data.n_steps))
    if tests * np.exp(-power) > _LEVEL or size < _SMALL:
        return ()
    place = "file" if in_file_order(data) else "calendar"
    # In a sample of a long log the period is that of the sample.
    cycle = f"a cycle of {period:.3g} {data.units}" if whole else "a cycle"
    where = f"in {cycle} of the {place}"
    facts = {"action": action, "often": "more", "where": where, "z": float(np.sqrt(2 * power))}
    return (B108.finding("issue", **facts, effect=size, tests=tests),)


def find_cycle(data: Trajectories, proba: Float) -> tuple[int, float, float, int] | None:
    r"""Find the frequency that the errors of a model follow most along the order of the log.

    With :math:`u_j` the sum of the errors of an action over trajectory j in that order, the periodogram
    :math:`|\sum_j u_j e^{-2 \pi i k j / n}|^2 / \sum_j u_j^2` is about exponential with mean 1 at each frequency
    k / n, if the trajectories are independent. Slow changes are tested by cosines; clusters hang together anyway.

    Parameters
    ----------
    data : Trajectories
        The log.
    proba : array of shape (N, A)
        Probabilities of all actions.

    Returns
    -------
    action, period, power, tests : tuple or None
        Where the periodogram is largest, how large it is, and how many frequencies and actions there were.
    """
    n = len(data)
    if n < _CYCLES or data.layout.cluster is not None:
        return None
    error = np.eye(proba.shape[1])[data.actions] - proba
    sums = np.stack([data.layout.sum_steps(column) for column in error.T], axis=1)
    sums = sums[np.argsort(data.calendar, kind="stable")]
    total = (sums**2).sum(axis=0)
    # Never less than the model implies: an action that was never taken has small errors alone.
    total = np.maximum(total, (proba * (1 - proba)).sum(axis=0))
    seen = np.flatnonzero(total > 0)
    if not len(seen):
        return None
    power = np.abs(np.fft.rfft(sums[:, seen], axis=0)) ** 2 / total[seen]
    first = WAVES // 2 + 1
    power = power[first:]
    k, a = divmod(int(power.argmax()), len(seen))
    return int(seen[a]), n / (first + k), float(power[k, a]), power.size


def _report(check: Check, found: Strongest | None, where: Sequence[str]) -> tuple[Finding, ...]:
    if found is None or not found.clear:
        return ()
    facts = {
        "action": found.action,
        "often": "more" if found.z > 0 else "less",
        "where": where[found.function],
        "z": found.z,
        "effect": abs(found.effect),
        "tests": found.tests,
    }
    return (check.finding("issue", **facts),)


def find_strongest(data: Trajectories, proba: Float, present: Float, functions: Float) -> Strongest | None:
    """Find the pair of an action and a function with the largest z, of functions residualised on the present."""
    error = np.eye(proba.shape[1])[data.actions] - proba
    m = len(error)
    shared, size = present.T @ functions, np.einsum("ij,ij->j", functions, functions)
    solved = np.linalg.pinv(present.T @ present, hermitian=True, rcond=1e-10) @ shared
    left = np.maximum(size - (shared * solved).sum(axis=0), 0)
    new, noise = np.flatnonzero(left > _NEW * size), np.einsum("ij,ij->j", error, error)
    seen = np.flatnonzero(noise > 0)
    products = error.T @ functions - (error.T @ present) @ solved
    rough = np.abs(products[np.ix_(seen, new)]) / np.sqrt(np.outer(noise[seen], left[new]))
    # Rows of one trajectory hang together: the strongest pairs are tested again by trajectory.
    best = None
    for flat in np.argsort(rough, axis=None)[-_CELLS:]:
        a, f = seen[flat // len(new)], new[flat % len(new)]
        residual = functions[:, f] - present @ solved[:, f]
        z = _clustered(data, error[:, a] * residual, proba[:, a] * (1 - proba[:, a]) * residual**2)
        if best is None or abs(z) > abs(best.z):
            effect = products[a, f] / np.sqrt(m * left[f])
            best = Strongest(z, float(effect), int(a), int(f), rough.size)
    return best


def _clustered(data: Trajectories, product: Float, variance: Float) -> float:
    """Sum over trajectories, or clusters, in standard errors; never smaller ones than the model implies.

    An action that was expected five times and never taken has small errors alone: they would look certain.
    """
    by_unit = data.layout.sum_units(product)
    scale = np.sqrt(max(float((by_unit**2).sum()), float(variance.sum())))
    return float(by_unit.sum() / scale) if scale > 0 else 0.0


def _present(data: Trajectories, proba: Float) -> Float:
    """What is tested elsewhere: constant, time, features and their squares, and the probabilities, (N, k)."""
    x = _standardise(data.states[:, :FEATURES].astype(np.float64))
    time = _standardise(data.layout.time[:, None].astype(np.float64))
    return np.concatenate([np.ones((len(x), 1)), time, x, _standardise(x**2), _standardise(proba)], axis=1)


def past_functions(data: Trajectories) -> tuple[Float, list[str]]:
    """Functions of the past, 0 where there is none, (N, F), and where each of them is large, in words."""
    past = Past(data)
    some = past.some
    actions = _names_of_actions(data)
    names = data.feature_names[:FEATURES]
    first = len(names)
    states = [past.previous_state, past.first_state, past.mean_state]
    far = _squares(past.previous_state[:, :first], some)
    means = np.repeat(data.states[:, : past.paired].mean(axis=0, dtype=np.float64), data.n_actions)
    columns = [
        past.previous_action,
        past.action_before_that,
        past.pairs - means * np.tile(past.previous_action, past.paired),
        past.previous_pairs - means * np.tile(past.previous_action, past.paired),
        past.action_three_back,
        past.action_pairs,
        past.shares,
        *(x[:, :first] for x in states),
        far,
        np.stack([past.previous_reward, past.sum_of_rewards, past.unchanged], axis=1),
    ]
    where = [
        *(f"after action {a}" for a in actions),
        *(f"two steps after action {a}" for a in actions),
        *(f"where {name} is high after action {a}" for name in names[: past.paired] for a in actions),
        *(
            f"where the previous {name} was high, with action {a}"
            for name in names[: past.paired]
            for a in actions
        ),
        *(f"three steps after action {a}" for a in actions),
        *_name_pairs(actions, past.action_pairs.shape[1]),
        *(f"where action {a} was usual before" for a in actions),
        *(f"where the previous {name} was high" for name in names),
        *(f"where the first {name} was high" for name in names),
        *(f"where the mean of {name} so far was high" for name in names),
        *(f"where the previous {name} was far from its mean" for name in names),
        "where the previous reward was high",
        "where the rewards so far were high",
        "long after the action last changed",
    ]
    functions = np.concatenate(columns, axis=1)
    centre = functions[some].mean(axis=0) if some.any() else 0.0
    indicators = (3 + 2 * past.paired) * len(actions) + past.action_pairs.shape[1]
    functions[:, indicators:] = np.where(some[:, None], functions - centre, 0.0)[:, indicators:]
    return functions, where


def _squares(x: Float, some: Bool) -> Float:
    """Squared distances from the mean, where there was something before."""
    if not some.any():
        return np.zeros_like(x)
    centre, spread = x[some].mean(axis=0), x[some].std(axis=0)
    scaled = np.where(spread > 0, (x - centre) / np.where(spread > 0, spread, 1.0), 0.0)
    return np.where(some[:, None], scaled**2, 0.0)


def _name_pairs(actions: Sequence[str], count: int) -> list[str]:
    """The pairs of earlier actions in words, where there are any."""
    steps = ("two", "three") if count else ()
    return [
        f"after action {a}, {back} steps after action {b}" for back in steps for a in actions for b in actions
    ]


def order_functions(data: Trajectories) -> tuple[Float, list[str]]:
    """Cosines of the order of trajectories, alone and times the features, (N, F), and in words."""
    calendar = data.calendar
    owner, place = data.layout.owner, "file" if in_file_order(data) else "calendar"
    waves = -Order.of(calendar).waves(calendar)
    x = _standardise(data.states[:, :FEATURES].astype(np.float64))
    names = data.feature_names[:FEATURES]
    trends = [waves[owner, k : k + 1] * x for k in range(SLOW)]
    where = [
        f"late in the {place}",
        f"in the middle of the {place}",
        *(f"in some parts of the {place}" for _ in range(2, WAVES)),
        *(f"where {name} is high, late in the {place}" for name in names),
        *(f"where {name} is high, in the middle of the {place}" for name in names),
    ]
    return np.concatenate([waves[owner], *trends], axis=1), where


def _names_of_actions(data: Trajectories) -> list[str]:
    if data.action_names is None:
        return [str(a) for a in range(data.n_actions)]
    return [repr(name) for name in data.action_names]


def _standardise(x: Float) -> Float:
    spread = x.std(axis=0)
    return (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
