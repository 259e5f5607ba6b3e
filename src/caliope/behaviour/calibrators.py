"""Calibrators: changes of predicted probabilities that make them agree with how often the actions were taken.

None of them can raise the negative log-likelihood (NLL) of the predictions that it was fitted on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import isotonic_regression

from caliope.policies import SupportError, check_probabilities
from caliope.ragged import Float, Int, read_only

_HOTTEST = 20.0  # nearly uniform there
_SMALLEST = 690.0  # exp(-690) is 1e-300, with room for the sum over some thousand actions


class Calibrator(Protocol):
    """A change of probabilities: fitted once on predictions and logged actions, then applied to any predictions."""

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> Self:
        """Fit to the predictions (N, A) and the actions that were logged, (N,); returns a fitted copy."""

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Recalibrated probabilities, (N, A)."""


@dataclass(frozen=True, eq=False)
class Temperature:
    r"""Make all probabilities sharper or blunter by one number.

    .. math:: p_a \leftarrow p_a^{1/T} \Big/ \sum_b p_b^{1/T}

    T above 1 blunts a model that is too sure of itself; it is sought between 1/20 and 20, and not so low that a logged
    action would fall below the smallest number there is. An exact 0 stays 0, so fitting raises
    :class:`~caliope.policies.SupportError` where a logged action has probability 0.

    References
    ----------
    Guo et al. (2017). ``CalibratedClassifierCV(method="temperature", ensemble=False)`` finds the same T, but adds a
    small number to zeros and keeps its out-of-fold probabilities to itself.

    Examples
    --------
    >>> Temperature(2.0)([[0.8, 0.2]])  # 0.8 ** 0.5 and 0.2 ** 0.5 are 2 to 1
    array([[0.6667, 0.3333]])
    """

    temperature: float | None = None

    def __post_init__(self) -> None:
        t = self.temperature
        if t is not None and not (isinstance(t, int | float | np.number) and 0 < t < np.inf):
            raise ValueError(f"a temperature must be a number, positive and finite, got {t!r}.")

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> Temperature:
        """Find T by the likelihood, a convex problem in 1/T."""
        p, logged = _pair(probabilities, actions)
        _refuse_zeros(p, logged)

        def nll(log_t: float) -> float:
            return -float(_powers(p, np.exp(-log_t), 0.0)[logged].mean())

        below = np.log(p.max(axis=1)) - np.log(
            p[logged]
        )  # how far what was done lies below the likeliest action
        low = np.log(np.clip(below.max() / _SMALLEST, 1 / _HOTTEST, 1.0))
        span = (low, np.log(_HOTTEST))
        found = minimize_scalar(nll, bounds=span, method="bounded", options={"xatol": 1e-7})
        return Temperature(float(np.exp(min((0.0, float(found.x)), key=nll))))

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Apply :math:`p^{1/T}`."""
        return np.exp(_powers(_table(probabilities), 1 / _fitted(self, self.temperature), 0.0))

    def __str__(self) -> str:
        return f"temperature {_fitted(self, self.temperature):.3g}"


@dataclass(frozen=True, eq=False)
class VectorScaling:
    r"""Make each action sharper or blunter, and more or less frequent, by two numbers of its own.

    .. math:: p_a \leftarrow e^{b_a} p_a^{w_a} \Big/ \sum_b e^{b_b} p_b^{w_b}, \qquad w_a \ge 0

    The NLL is convex in w and b. Beside its sum over all steps stands
    :math:`\frac{\text{ridge}}{2} (\|w - 1\|^2 + \|b\|^2)`, a pull towards no change: it keeps an action that was never
    taken at a small probability, where the likelihood alone would drive it to 0. Exact zeros are treated as by
    :class:`Temperature`.
    """

    ridge: float = 1.0
    tolerance: float = 1e-13  # relative fall of the loss at which the descent stops
    weights: Float | None = field(default=None, repr=False)  # (A,)
    biases: Float | None = field(default=None, repr=False)  # (A,)

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> VectorScaling:
        """Minimise the NLL and the pull together, from no change downhill."""
        if not 0 <= self.ridge < np.inf:
            raise ValueError(f"ridge must be a number from 0, got {self.ridge}.")
        p, logged = _pair(probabilities, actions)
        _refuse_zeros(p, logged)
        n, n_actions = p.shape
        unchanged = np.repeat([1.0, 0.0], n_actions)
        log_p = np.log(np.where(p > 0, p, 1.0))

        def loss(theta: Float) -> tuple[float, Float]:
            scaled = _powers(p, theta[:n_actions], theta[n_actions:])
            residual = np.exp(scaled)
            residual[logged] -= 1
            slope = np.concatenate([(residual * log_p).sum(axis=0), residual.sum(axis=0)])
            off = theta - unchanged
            total = -scaled[logged].sum() + self.ridge / 2 * (off @ off)
            return total / n, (slope + self.ridge * off) / n

        bounds = [(0.0, None)] * n_actions + [(None, None)] * n_actions
        found = minimize(
            loss, unchanged, jac=True, bounds=bounds, options={"ftol": self.tolerance, "gtol": 1e-8}
        )
        return replace(self, weights=read_only(found.x[:n_actions]), biases=read_only(found.x[n_actions:]))

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Apply the weights and biases."""
        weights, biases = _fitted(self, self.weights), _fitted(self, self.biases)
        return np.exp(_powers(_table(probabilities, len(weights)), weights, biases))

    def __str__(self) -> str:
        return "vector scaling"


@dataclass(frozen=True, eq=False)
class Shrinkage:
    r"""Pull every prediction towards how often each action is taken overall.

    .. math:: p_a \leftarrow (1 - s)\, p_a + s\, \bar\pi_a

    The share s in [0, 1] is chosen by the likelihood. Where a logged action has probability 0 the share is above 0,
    and no action that was taken keeps a 0: this is the repair that the other calibrators ask for.
    """

    share: float | None = None
    marginal: Float | None = field(default=None, repr=False)  # (A,)

    def __post_init__(self) -> None:
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {self.share}.")

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> Shrinkage:
        """Count the actions, and find the share by the likelihood, a convex problem."""
        p, logged = _pair(probabilities, actions)
        marginal = np.bincount(logged[1], minlength=p.shape[1]) / len(p)
        return Shrinkage(_best_share(p[logged], marginal[logged[1]]), read_only(marginal))

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Mix with the marginal frequencies."""
        share, marginal = _fitted(self, self.share), _fitted(self, self.marginal)
        return (1 - share) * _table(probabilities, len(marginal)) + share * marginal

    def __str__(self) -> str:
        return f"shrinkage towards the marginal, share {_fitted(self, self.share):.3g}"


@dataclass(frozen=True, eq=False)
class _Steps:
    """A rising step function: ``values[j]`` from ``starts[j]`` on."""

    starts: Float
    values: Float

    def __call__(self, x: Float) -> Float:
        return self.values[np.maximum(np.searchsorted(self.starts, x, side="right") - 1, 0)]


@dataclass(frozen=True, eq=False)
class Isotonic:
    r"""For each action any rising function of its predicted probability: isotonic calibration (IC-IPW).

    .. math:: m_a = \text{isotonic regression of } 1\{A = a\} \text{ on } p_a, \text{ but at least }
        \min\{m_a(x_i) : A_i = a\}

    Inverse weights by :meth:`logged` balance exactly where they were fitted: in every level set B of the regression
    that holds an A = a, :math:`\sum_{i \in B} 1\{A_i = a\} / m_a = |B|`. The :math:`m_a` of a row do not sum to 1, and
    scaling them so breaks the balance. What needs a distribution calls the object and gets
    :math:`(1 - s)\, p_a + s\, m_a / \sum_b m_b`, with the share s chosen by the likelihood: the floor and the scaling
    alone could raise the NLL. Needs many steps, ten thousand or more.

    References
    ----------
    van der Laan, Lin, Carone and Luedtke (2025), Stabilized inverse probability weighting via isotonic calibration.
    """

    share: float | None = None
    steps: tuple[_Steps, ...] | None = field(default=None, repr=False)  # A of them

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> Isotonic:
        """Regress each action on its own probability; ties count as one point."""
        p, logged = _pair(probabilities, actions)
        steps = tuple(_rising_steps(column, logged[1] == a) for a, column in enumerate(p.T))
        scaled = Isotonic(1.0, steps)(p)
        return Isotonic(_best_share(p[logged], scaled[logged]), steps)

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Rows that sum to 1, for reporting and for targets stated relative to practice."""
        p, m = self._levels(probabilities)
        share = _fitted(self, self.share)
        return (1 - share) * p + share * (m / m.sum(axis=1, keepdims=True))

    def logged(self, probabilities: ArrayLike, actions: ArrayLike) -> Float:
        """Probability of each logged action for importance weights, not scaled, (N,).

        Give it to :func:`~caliope.gathering.gather` as ``behaviour``, with ``behaviour_known=False``.
        """
        p, m = self._levels(probabilities)
        return m[_pair(p, actions)[1]]

    def _levels(self, probabilities: ArrayLike) -> tuple[Float, Float]:
        steps = _fitted(self, self.steps)
        p = _table(probabilities, len(steps))
        return p, np.stack([step(column) for step, column in zip(steps, p.T, strict=True)], axis=1)

    def __str__(self) -> str:
        return f"isotonic regression of each action, share {_fitted(self, self.share):.3g}"


def _rising_steps(x: Float, taken: Any) -> _Steps:
    """Isotonic regression of ``taken`` on x; a level that nobody took is raised to the lowest that somebody did."""
    points, at, count = np.unique(x, return_inverse=True, return_counts=True)
    level = np.asarray(
        isotonic_regression(np.bincount(at, weights=taken) / count, sample_weight=count.astype(np.float64))
    )
    first = np.concatenate([[True], np.diff(level) > 0])
    floor = level[level > 0].min(initial=level[-1])
    return _Steps(read_only(points[first]), read_only(np.maximum(level[first], floor)))


@dataclass(frozen=True, eq=False)
class Chain:
    """Several calibrators, each fitted on what the ones before it made: ``Chain((Shrinkage(), Temperature()))``."""

    calibrators: tuple[Calibrator, ...]

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> Chain:
        """Fit one after the other."""
        fitted: list[Calibrator] = []
        p = _table(probabilities)
        for calibrator in self.calibrators:
            fitted.append(calibrator.fit(p, actions))
            p = fitted[-1](p)
        return Chain(tuple(fitted))

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Apply one after the other."""
        p = _table(probabilities)
        for calibrator in self.calibrators:
            p = calibrator(p)
        return p

    def __str__(self) -> str:
        return ", then ".join(str(calibrator) for calibrator in self.calibrators)


_T = TypeVar("_T")
_Logged = tuple[Int, Int]  # rows and columns of the logged actions in a table


def _fitted(calibrator: object, value: _T | None) -> _T:
    if value is None:
        raise NotFittedError(
            f"this {type(calibrator).__name__} has not been fitted: call fit(probabilities, actions) and use what "
            "it returns."
        )
    return value


def _table(probabilities: ArrayLike, n_actions: int | None = None) -> Float:
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or (n_actions is not None and p.shape[1] != n_actions):
        wanted = "A" if n_actions is None else n_actions
        raise ValueError(f"probabilities must have shape (N, {wanted}), a column an action, got {p.shape}.")
    return check_probabilities(p, "probabilities")


def _pair(probabilities: ArrayLike, actions: ArrayLike) -> tuple[Float, _Logged]:
    p, a = _table(probabilities), np.asarray(actions)
    fits = len(p) > 0 and a.shape == (len(p),) and a.dtype.kind in "iu"
    if not fits or a.min() < 0 or a.max() >= p.shape[1]:
        raise ValueError(
            f"actions must be {len(p)} whole numbers from 0 to {p.shape[1] - 1}, one for each row of probabilities "
            f"and at least one, got shape {a.shape} of {a.dtype}."
        )
    return p, (np.arange(len(p)), a)


def _refuse_zeros(p: Float, logged: _Logged) -> None:
    zero = np.flatnonzero(p[logged] == 0)
    if len(zero):
        raise SupportError(
            f"the model gives probability 0 to {len(zero)} of {len(p)} logged actions (first: action "
            f"{logged[1][zero[0]]} in row {zero[0]}), and scaling keeps a 0. They were taken, so the model is wrong "
            "there. Shrink it first, e.g. Chain((Shrinkage(), Temperature()))."
        )


def _powers(p: Float, weights: Float | float, biases: Float | float) -> Float:
    """Logarithm of softmax(w log p + b), taken over the actions with p > 0; the others stay at log 0."""
    inside = p > 0
    scaled = weights * np.log(np.where(inside, p, 1.0)) + biases
    return log_softmax(np.where(inside, scaled, -np.inf), axis=1)


def _best_share(before: Float, after: Float) -> float:
    """Share s in [0, 1] at which (1 - s) before + s after, (N,) each, is most likely; 0 if no other is better."""

    def nll(share: float) -> float:
        with np.errstate(divide="ignore"):
            return -float(np.log((1 - share) * before + share * after).mean())

    found = minimize_scalar(nll, bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
    return min((0.0, 1.0, float(found.x)), key=nll)
