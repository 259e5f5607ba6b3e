"""The bias that an interval includes: what changing the weights moved, and weights that do not balance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import special, stats

from caliope._evidence import Evidence
from caliope._ragged import Float
from caliope._results import Estimate
from caliope.checks import A109, D119, Finding, Level
from caliope.checks._counting import MOVED, UNBALANCED
from caliope.uncertainty._dependence import stretch

_ROUNDING = 1e-12  # a bias that is no more than that


@dataclass(frozen=True, eq=False)
class Bias:
    r"""What may bias an estimate with marginalised weights, and is in no standard error.

    Ratios average to 1 at every step, whatever was decided before. Where those of a log do not, it does not show some
    decisions of the new policy, or the behaviour probabilities are off. With the normalised weights :math:`\mu_t`, and
    :math:`m_t = \mu_t / \lambda_t` those before the step, the weight that is missing is

    .. math:: \Delta_t = \frac1n \sum_{i: T_i > t} \big( \mu^{(i)}_t - m^{(i)}_t \big)

    and with the root mean square :math:`s_t` of :math:`r_t + \gamma \hat V_{t+1} - \hat Q_t` among those under way the
    bias is taken to be up to :math:`\sum_t \gamma^t |\Delta_t| s_t`: as if fitted values erred as much where weight is
    missing as elsewhere. When it breaks: where they err more, as in regions without any such decision (S102).

    Attributes
    ----------
    moved : float
        By how much changing the weights moved the estimate.
    off : (T,)
        The missing weight :math:`\Delta_t`; negative where the mean ratio is below 1.
    error : (T,)
        The discounted errors of the fitted values, :math:`\gamma^t s_t`.
    ratio : (T,)
        The mean ratio of each step, :math:`\sum \mu_t / \sum m_t`.

    Examples
    --------
    >>> e = Evidence([1, 2, 3, 6], np.log([0.5, 0.5, 1, 2]), np.arange(5), q=[2, 2, 2, 2], v=[2, 2, 2, 2])
    >>> bias = Bias.of(e, moved=-0.5)
    >>> bias.ratio.tolist(), bias.off.tolist(), round(bias.unbalanced, 3), bias.size
    ([1.0], [0.0], 0.0, 0.5)
    """

    moved: float
    off: Float
    error: Float
    ratio: Float

    @classmethod
    def of(cls, e: Evidence, moved: float) -> Bias:
        """The bias of an estimate with the weights of ``e``, whose change moved it by that much."""
        under_way = e.layout.under_way
        # Where the ratio is 0 the weight before the step is not known; it is taken to be the mean of the others.
        number, total = e.sum_by_time(lambda part: np.sign(np.exp(part.log_ratio))), e.sum_by_time(_before)
        before = under_way * np.divide(total, number, out=np.zeros_like(total), where=number > 0)
        after = e.sum_by_time(lambda part: part.rho)
        # Where no trajectory has weight the estimate is undefined, and other findings say so.
        weighty = before > 0
        mean = np.divide(after, before, out=np.ones_like(after), where=weighty)
        square = e.sum_by_time(lambda part: part.temporal_difference**2)
        error = e.discount * np.sqrt(square / under_way)
        return cls(moved, np.where(weighty, after - before, 0.0) / len(e), error, mean)

    @property
    def unbalanced(self) -> float:
        """The largest bias that weights off balance would explain."""
        return float(np.abs(self.off) @ self.error)

    @property
    def size(self) -> float:
        """The larger of the two."""
        return max(abs(self.moved), self.unbalanced)

    def __sub__(self, other: Bias) -> Bias:
        """The bias of the difference between two estimates on one log."""
        farther = np.abs(self.off) >= np.abs(other.off)
        return Bias(
            self.moved - other.moved,
            self.off - other.off,
            np.maximum(self.error, other.error),
            np.where(farther, self.ratio, other.ratio),
        )

    def factor(self, se: float, level: float) -> float:
        """Factor of the width of an interval that includes the bias."""
        return bias_factor(self.size, se, level)

    def findings(self, se: float) -> tuple[Finding, ...]:
        """A109 and D119, as far as they matter beside the standard error."""
        return (*grade_capping(self.moved, se), *self._grade_balance(se))

    def _grade_balance(self, se: float) -> tuple[Finding, ...]:
        bias = self.unbalanced
        if bias <= max(MOVED[0] * se, _ROUNDING):
            return ()
        step = int((np.abs(self.off) * self.error).argmax())
        # An interval of width 0 cannot include a bias.
        level: Level = "issue" if not se > 0 else "caution" if bias > UNBALANCED * se else "note"
        errors = bias / se if se > 0 else np.inf
        facts = {"bias": bias, "se": se, "errors": errors, "ratio": float(self.ratio[step]), "step": step}
        return (D119.finding(level, "included", **facts),)


def _before(e: Evidence) -> Float:
    """Weights before each step, (N,); 0 where the ratio of the step is."""
    ratio = np.exp(e.log_ratio)
    return np.divide(e.rho, ratio, out=np.zeros_like(ratio), where=ratio > 0)


def include_bias(row: Estimate, bias: Bias) -> Estimate:
    """A109, D119: widen an interval by what changing the weights moved, or by weights off balance if that is more."""
    return _include(row, bias.size, bias.findings)


def include_capping(row: Estimate, raw: float) -> Estimate:
    r"""A109: widen an interval by what capping the weights moved, from the value ``raw`` without a cap.

    The shift :math:`b` stands for the bias of the cap. With standard error s the interval of a normal estimate with a
    bias of up to :math:`b` has the half-width :math:`s\, c(b / s)`, where :math:`c(t)` is the quantile of
    :math:`|N(t, 1)|` (Armstrong & Kolesar 2018).
    """
    moved = row.value - raw
    return _include(row, moved, lambda se: grade_capping(moved, se))


def _include(row: Estimate, size: float, grade: Callable[[float], tuple[Finding, ...]]) -> Estimate:
    if not np.isfinite(row.value):  # D100 and D113 say so
        return row
    level = row.interval.level
    se = row.interval.width / (2 * float(special.ndtri((1 + level) / 2)))
    found = grade(se)
    if not found or not se > 0:
        return replace(row, findings=(*row.findings, *found))
    factor = bias_factor(size, se, level)
    told = tuple(
        replace(f, variants=(*f.variants, "factor"), facts={**f.facts, "factor": factor}) for f in found
    )
    wide = stretch(row.interval, row.value, factor)
    return replace(row, interval=wide, findings=(*row.findings, *told))


def bias_factor(bias: float, se: float, level: float) -> float:
    """Half-width of an interval whose estimate may be biased by that much, relative to one without bias."""
    if not se > 0:
        return 1.0
    z = float(special.ndtri((1 + level) / 2))
    return float(stats.foldnorm.ppf(level, abs(bias) / se)) / z


def grade_capping(moved: float, se: float) -> tuple[Finding, ...]:
    """A109 from the shift of an estimate by capping, which its interval includes, and its standard error."""
    if not abs(moved) > MOVED[0] * se or abs(moved) < _ROUNDING:
        return ()
    # An interval of width 0 cannot include a shift.
    level: Level = "issue" if not se > 0 else "caution" if abs(moved) > MOVED[1] * se else "note"
    errors = abs(moved) / se if se > 0 else np.inf
    return (A109.finding(level, "included", moved=moved, se=se, errors=errors),)
