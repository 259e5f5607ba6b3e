"""Calibrators: they make predicted probabilities agree with how often the actions were taken.

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

from caliope._policies import SupportError, check_probabilities
from caliope._ragged import Float, Int, read_only

# The largest temperature: probabilities are nearly uniform there.
_HOTTEST = 20.0
# exp(-690) is 1e-300, with room for the sum over some thousand actions.
_SMALLEST = 690.0


class Calibrator(Protocol):
    """A map of probabilities: fitted once on predictions and logged actions, then applied to any predictions."""

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> Self:
        """Fit to predictions, (N, A), and logged actions, (N,), and return a fitted copy."""

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Recalibrate probabilities, (N, A)."""


@dataclass(frozen=True, eq=False)
class Temperature:
    r"""Temperature scaling: one number makes all probabilities sharper or blunter.

    .. math:: p_a \leftarrow p_a^{1/T} \Big/ \sum_b p_b^{1/T}

    T above 1 corrects an overconfident model. It is sought between 1/20 and 20, and high enough for no logged action to
    underflow. An exact 0 stays 0, so fitting raises :class:`~caliope.SupportError` where a logged action has
    probability 0.

    Parameters
    ----------
    temperature : float, optional
        T; found by :meth:`fit` if not given.

    Examples
    --------
    >>> from caliope.behaviour import Temperature
    >>> Temperature(2.0)([[0.8, 0.2]])  # 0.8 ** 0.5 and 0.2 ** 0.5 are 2 to 1
    array([[0.66666667, 0.33333333]])

    References
    ----------
    Guo et al. (2017). ``CalibratedClassifierCV(method="temperature", ensemble=False)`` finds the same T, but adds a
    small number to zeros and does not return its out-of-fold probabilities.
    """

    temperature: float | None = None

    def __post_init__(self) -> None:
        t = self.temperature
        if t is not None and not (isinstance(t, int | float | np.number) and 0 < t < np.inf):
            raise ValueError(f"temperature must be a positive and finite number, got {t!r}.")

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> Temperature:
        """Find T by maximum likelihood, a convex problem in 1/T."""
        p, logged = _check_pair(probabilities, actions)
        _refuse_zeros(p, logged)

        def nll(log_t: float) -> float:
            return -float(_scale_logs(p, np.exp(-log_t), 0.0)[logged].mean())

        # How far the logged action lies below the most likely one.
        below = np.log(p.max(axis=1)) - np.log(p[logged])
        low = np.log(np.clip(below.max() / _SMALLEST, 1 / _HOTTEST, 1.0))
        span = (low, np.log(_HOTTEST))
        best = minimize_scalar(nll, bounds=span, method="bounded", options={"xatol": 1e-7})
        return Temperature(float(np.exp(min((0.0, float(best.x)), key=nll))))

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Apply :math:`p^{1/T}`."""
        return np.exp(_scale_logs(_check_table(probabilities), 1 / _require_fit(self, self.temperature), 0.0))

    def __str__(self) -> str:
        return f"temperature {_require_fit(self, self.temperature):.3g}"


@dataclass(frozen=True, eq=False)
class VectorScaling:
    r"""Vector scaling: two numbers per action change its sharpness and its frequency.

    .. math:: p_a \leftarrow e^{b_a} p_a^{w_a} \Big/ \sum_b e^{b_b} p_b^{w_b}, \qquad w_a \ge 0

    The NLL is convex in w and b. To its sum over all steps :math:`\frac{\text{ridge}}{2} (\|w - 1\|^2 + \|b\|^2)` is
    added: it keeps an action that was never taken at a small probability, where the likelihood alone would make it 0.
    Exact zeros are treated as by :class:`Temperature`.

    Parameters
    ----------
    ridge : float
        Strength of the penalty, 0 or more.
    tolerance : float
        Relative decrease of the loss at which the optimiser stops.
    weights, biases : array of shape (A,), optional
        w and b; found by :meth:`fit`.

    Examples
    --------
    >>> from caliope.behaviour import VectorScaling
    >>> VectorScaling(ridge=0.1).fit([[0.5, 0.5]] * 4, [0, 0, 0, 1])([[0.5, 0.5]]).round(2)
    array([[0.74, 0.26]])
    """

    ridge: float = 1.0
    tolerance: float = 1e-13
    weights: Float | None = field(default=None, repr=False)
    biases: Float | None = field(default=None, repr=False)

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> VectorScaling:
        """Minimise the NLL and the penalty together, starting from no change."""
        if not 0 <= self.ridge < np.inf:
            raise ValueError(f"ridge must be a finite number, 0 or more, got {self.ridge}.")
        p, logged = _check_pair(probabilities, actions)
        _refuse_zeros(p, logged)
        n, n_actions = p.shape
        unchanged = np.repeat([1.0, 0.0], n_actions)
        log_p = np.log(np.where(p > 0, p, 1.0))

        def loss(theta: Float) -> tuple[float, Float]:
            scaled = _scale_logs(p, theta[:n_actions], theta[n_actions:])
            residual = np.exp(scaled)
            residual[logged] -= 1
            slope = np.concatenate([(residual * log_p).sum(axis=0), residual.sum(axis=0)])
            off = theta - unchanged
            total = -scaled[logged].sum() + self.ridge / 2 * (off @ off)
            return total / n, (slope + self.ridge * off) / n

        bounds = [(0.0, None)] * n_actions + [(None, None)] * n_actions
        options = {"ftol": self.tolerance, "gtol": 1e-8}
        best = minimize(loss, unchanged, jac=True, bounds=bounds, options=options).x
        return replace(self, weights=read_only(best[:n_actions]), biases=read_only(best[n_actions:]))

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Apply the weights and biases."""
        weights, biases = _require_fit(self, self.weights), _require_fit(self, self.biases)
        return np.exp(_scale_logs(_check_table(probabilities, len(weights)), weights, biases))

    def __str__(self) -> str:
        return "vector scaling"


@dataclass(frozen=True, eq=False)
class Shrinkage:
    r"""Shrink every prediction towards the overall frequencies of the actions.

    .. math:: p_a \leftarrow (1 - s)\, p_a + s\, \bar\pi_a

    The share s in [0, 1] is found by maximum likelihood. Where a logged action has probability 0 the share is above 0:
    afterwards no action that was taken has probability 0, as the other calibrators require.

    Parameters
    ----------
    share : float, optional
        s; found by :meth:`fit`.
    marginal : array of shape (A,), optional
        Frequencies of the actions; found by :meth:`fit`.

    Examples
    --------
    >>> from caliope.behaviour import Shrinkage
    >>> Shrinkage().fit([[1.0, 0.0]] * 4, [0, 0, 0, 1])([[1.0, 0.0]])
    array([[0.75, 0.25]])
    """

    share: float | None = None
    marginal: Float | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {self.share}.")

    def fit(self, probabilities: ArrayLike, actions: ArrayLike, *, towards: Float | None = None) -> Shrinkage:
        """Count the actions and find the share by maximum likelihood, a convex problem.

        For the share alone, ``towards`` may hold frequencies of its own for each row, (N, A), such as those without
        the trajectories of its fold.
        """
        p, logged = _check_pair(probabilities, actions)
        marginal = np.bincount(logged[1], minlength=p.shape[1]) / len(p)
        known = marginal[logged[1]] if towards is None else towards[logged]
        return Shrinkage(_find_share(p[logged], known), read_only(marginal))

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Mix with the overall frequencies."""
        share, marginal = _require_fit(self, self.share), _require_fit(self, self.marginal)
        return (1 - share) * _check_table(probabilities, len(marginal)) + share * marginal

    def __str__(self) -> str:
        return f"shrinkage towards the marginal, share {_require_fit(self, self.share):.3g}"


@dataclass(frozen=True, eq=False)
class Steps:
    """An increasing step function: ``values[j]`` from ``starts[j]`` on."""

    starts: Float
    values: Float

    def __call__(self, x: Float) -> Float:
        return self.values[np.maximum(np.searchsorted(self.starts, x, side="right") - 1, 0)]


@dataclass(frozen=True, eq=False)
class Isotonic:
    r"""Isotonic calibration: per action any increasing function of its predicted probability (IC-IPW).

    .. math:: m_a = \text{isotonic regression of } 1\{A = a\} \text{ on } p_a, \text{ but at least }
        \min\{m_a(x_i) : A_i = a\}

    Inverse weights by :meth:`logged` balance exactly where they were fitted: in every level set B of the regression
    that holds an A = a, :math:`\sum_{i \in B} 1\{A_i = a\} / m_a = |B|`. The :math:`m_a` of a row do not sum to 1, and
    scaling them breaks the balance. Calling the object returns distributions,
    :math:`(1 - s)\, p_a + s\, m_a / \sum_b m_b`, with the share s found by maximum likelihood: floor and scaling alone
    could raise the NLL. Needs many steps, ten thousand or more.

    Parameters
    ----------
    share : float, optional
        s; found by :meth:`fit`.
    steps : tuple of step functions, optional
        One :math:`m_a` per action; found by :meth:`fit`.

    Examples
    --------
    >>> from caliope.behaviour import Isotonic
    >>> p = [[0.6, 0.4], [0.6, 0.4], [0.2, 0.8], [0.2, 0.8]]
    >>> Isotonic().fit(p, [0, 0, 0, 1]).logged(p, [0, 0, 0, 1])
    array([1. , 1. , 0.5, 0.5])

    References
    ----------
    van der Laan, Lin, Carone and Luedtke (2025), Stabilized inverse probability weighting via isotonic calibration.
    """

    share: float | None = None
    steps: tuple[Steps, ...] | None = field(default=None, repr=False)

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> Isotonic:
        """Regress each action on its own probability; ties count as one point."""
        p, logged = _check_pair(probabilities, actions)
        steps = tuple(_fit_steps(column, logged[1] == a) for a, column in enumerate(p.T))
        scaled = Isotonic(1.0, steps)(p)
        return Isotonic(_find_share(p[logged], scaled[logged]), steps)

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Recalibrate to rows that sum to 1."""
        p, m = self._levels(probabilities)
        share = _require_fit(self, self.share)
        return (1 - share) * p + share * (m / m.sum(axis=1, keepdims=True))

    def logged(self, probabilities: ArrayLike, actions: ArrayLike) -> Float:
        """Return the probability of each logged action for importance weights, not scaled, (N,).

        Pass it to :func:`~caliope.gather` as ``behaviour``, with ``behaviour_known=False``.
        """
        p, m = self._levels(probabilities)
        return m[_check_pair(p, actions)[1]]

    def _levels(self, probabilities: ArrayLike) -> tuple[Float, Float]:
        steps = _require_fit(self, self.steps)
        p = _check_table(probabilities, len(steps))
        return p, np.stack([step(column) for step, column in zip(steps, p.T, strict=True)], axis=1)

    def __str__(self) -> str:
        return f"isotonic regression of each action, share {_require_fit(self, self.share):.3g}"


def _fit_steps(x: Float, taken: Any) -> Steps:
    """Fit ``taken`` by an increasing function of x; levels of 0 are raised to the lowest level above 0."""
    points, at, count = np.unique(x, return_inverse=True, return_counts=True)
    level = np.asarray(
        isotonic_regression(np.bincount(at, weights=taken) / count, sample_weight=count.astype(np.float64))
    )
    first = np.concatenate([[True], np.diff(level) > 0])
    floor = level[level > 0].min(initial=level[-1])
    return Steps(read_only(points[first]), read_only(np.maximum(level[first], floor)))


@dataclass(frozen=True, eq=False)
class Chain:
    """Several calibrators in a row, each fitted on the output of the one before.

    Parameters
    ----------
    calibrators : tuple of Calibrator
        The calibrators in their order.

    Examples
    --------
    >>> from caliope.behaviour import Chain, Shrinkage, Temperature
    >>> fitted = Chain((Shrinkage(), Temperature())).fit([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0, 1, 1])
    >>> fitted([[1.0, 0.0]]).round(2)
    array([[0.65, 0.35]])
    """

    calibrators: tuple[Calibrator, ...]

    def fit(self, probabilities: ArrayLike, actions: ArrayLike) -> Chain:
        """Fit the calibrators one after the other."""
        fitted: list[Calibrator] = []
        p = _check_table(probabilities)
        for calibrator in self.calibrators:
            fitted.append(calibrator.fit(p, actions))
            p = fitted[-1](p)
        return Chain(tuple(fitted))

    def __call__(self, probabilities: ArrayLike) -> Float:
        """Apply the calibrators one after the other."""
        p = _check_table(probabilities)
        for calibrator in self.calibrators:
            p = calibrator(p)
        return p

    def __str__(self) -> str:
        return ", then ".join(str(calibrator) for calibrator in self.calibrators)


_T = TypeVar("_T")
# Rows and columns of the logged actions in a table.
_Logged = tuple[Int, Int]


def _require_fit(calibrator: object, value: _T | None) -> _T:
    if value is None:
        raise NotFittedError(
            f"this {type(calibrator).__name__} has not been fitted: call fit(probabilities, actions) and use the "
            "calibrator that it returns."
        )
    return value


def _check_table(probabilities: ArrayLike, n_actions: int | None = None) -> Float:
    p = np.asarray(probabilities, dtype=np.float64)
    if p.ndim != 2 or (n_actions is not None and p.shape[1] != n_actions):
        width = "A" if n_actions is None else n_actions
        raise ValueError(f"probabilities must have shape (N, {width}), one column per action, got {p.shape}.")
    return check_probabilities(p, "probabilities")


def _check_pair(probabilities: ArrayLike, actions: ArrayLike) -> tuple[Float, _Logged]:
    p, a = _check_table(probabilities), np.asarray(actions)
    fits = len(p) > 0 and a.shape == (len(p),) and a.dtype.kind in "iu"
    if not fits or a.min() < 0 or a.max() >= p.shape[1]:
        raise ValueError(
            f"actions must be {len(p)} whole numbers from 0 to {p.shape[1] - 1}, one per row of probabilities "
            f"and at least one, got shape {a.shape} of {a.dtype}."
        )
    return p, (np.arange(len(p)), a)


def _refuse_zeros(p: Float, logged: _Logged) -> None:
    zero = np.flatnonzero(p[logged] == 0)
    if len(zero):
        raise SupportError(
            f"the model gives probability 0 to {len(zero)} of {len(p)} logged actions (first: action "
            f"{logged[1][zero[0]]} in row {zero[0]}), and scaling keeps a 0. The model is wrong there, for these "
            "actions were taken. Shrink it first, e.g. Chain((Shrinkage(), Temperature()))."
        )


def _scale_logs(p: Float, weights: Float | float, biases: Float | float) -> Float:
    """Return log softmax(w log p + b) over the actions with p > 0; the others stay at log 0."""
    inside = p > 0
    scaled = weights * np.log(np.where(inside, p, 1.0)) + biases
    return log_softmax(np.where(inside, scaled, -np.inf), axis=1)


def _find_share(before: Float, after: Float) -> float:
    """Find the share s in [0, 1] of highest likelihood for (1 - s) before + s after; 0 unless another is better."""

    def nll(share: float) -> float:
        with np.errstate(divide="ignore"):
            return -float(np.log((1 - share) * before + share * after).mean())

    best = minimize_scalar(nll, bounds=(0, 1), method="bounded", options={"xatol": 1e-9})
    return min((0.0, 1.0, float(best.x)), key=nll)
