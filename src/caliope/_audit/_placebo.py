"""The negative control of an audit (placebo): an answer that is known, estimated as if it were not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from caliope._policies import probabilities_on
from caliope._ragged import Float, at_actions
from caliope._results import Interval, finite
from caliope._trajectories import Trajectories
from caliope._trees import ExtraTreesClassifier, ExtraTreesRegressor
from caliope.behaviour._calibrators import Shrinkage
from caliope.behaviour._fit import FittedBehaviour
from caliope.behaviour._recalibration import recalibrate
from caliope.checks import P101, P103, Finding, Level
from caliope.checks._audit import mean_of_steps
from caliope.values._fqe import returns_to_go

_LEVEL = 0.99  # of the interval, for all policies of the control together
_MATTERS = (0.25, 1.0)  # standard errors of the mean return: a caution, an issue
_ODDS = 2.0  # times as large, of one action
_POWERS = {"decisions more clear-cut than practice": 1.5, "decisions less clear-cut than practice": 2 / 3}
_ACTIONS = 8  # the commonest, each of which is taken more often
_FITTED_ON = 10_000  # steps per fold, of whole trajectories, that predict the return
_FEATURES = 30  # that a split of a tree looks at
_BETTER = (0.01, 0.03)  # log loss by which a forest beats the only candidate: a caution, an issue


@dataclass(frozen=True, repr=False)
class Placebo:
    """A negative control: what reweighting makes of predictions that were known before the decision.

    Reweighting decisions to those of another policy must not change what was known before them. So the mean predicted
    return has to stay what it is, whatever the policy and whatever the prediction, if the behaviour model is right.

    Attributes
    ----------
    value : float
        The mean predicted return, estimated with the weights of the policy that misses it most clearly.
    practice : float
        What it should be: the mean predicted return of the log.
    error : Interval
        Confidence interval of the difference, simultaneous for all policies of the control.
    policy : str
        That policy, in words.
    z : float
        The difference in its own standard errors.
    tests : int
        Number of policies that were tried.
    n : int
        Number of trajectories.
    findings : tuple of Finding
        What was found: the control missed (P101), or nothing.
    """

    value: float
    practice: float
    error: Interval
    policy: str
    z: float
    tests: int
    n: int
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        return f"Placebo(value={self.value:.4g}, practice={self.practice:.4g}, z={self.z:.2f}, tests={self.tests})"

    def __str__(self) -> str:
        return "\n".join([f"Negative control: {self.describe()}.", *map(str, self.findings)])

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in str(self).splitlines())

    def describe(self) -> str:
        """Say it in one sentence."""
        ends = f"{100 * self.error.level:g}% interval {self.error.low:.3g} to {self.error.high:.3g}"
        return (
            f"with {self.policy} the mean predicted return should be {self.practice:.4g}, and is estimated at "
            f"{self.value:.4g} (difference {self.value - self.practice:+.3g}, {ends}). This is the clearest miss of "
            f"{self.tests} policies, and {'none' if 0.0 in self.error else 'it'} is beyond chance"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "value": finite(self.value),
            "practice": self.practice,
            "error": self.error.to_dict(),
            "policy": self.policy,
            "z": finite(self.z),
            "tests": self.tests,
            "n": self.n,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def run_placebo(data: Trajectories, behaviour: Any, *, gamma: float, rng: int) -> Placebo:
    r"""Estimate what is known before each decision with the weights of several other policies.

    .. math:: E[\lambda_t f(s_t)] = E[f(s_t)], \qquad \lambda_t = \pi_2(a_t \mid s_t) / \hat\pi_b(a_t \mid s_t)

    holds for any policy :math:`\pi_2` and any function f if :math:`\hat\pi_b` is the behaviour policy. Here f is the
    return that is predicted from state and time, out of fold, minus its mean at that step: a factor that all weights
    have in common does not count. The policies take one action at twice its odds, or decide more or less clearly than
    practice. What each changes is summed over the decisions of a trajectory, one reweighted at a time. A control that
    passes says nothing about a policy that differs more from practice.

    Parameters
    ----------
    data : Trajectories
        The log.
    behaviour : Policy, or array of shape (N, A)
        The behaviour model whose weights are put to the test.
    gamma : float
        Discount in [0, 1].
    rng : int
        Seed of the folds and trees of the prediction.

    Returns
    -------
    Placebo
        The estimate that misses most clearly, what it should be, and what was found.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from caliope import TabularPolicy
    >>> control = run_placebo(ward.simulate(100, rng=0), TabularPolicy(ward.PRACTICE), gamma=1.0, rng=0)
    >>> control.findings, control.tests
    ((), 5)
    """
    kept = hasattr(behaviour, "predict_proba") or hasattr(behaviour, "on")
    proba = probabilities_on(behaviour, data) if kept else np.asarray(behaviour)
    predicted = _predict_returns(data, gamma=gamma, rng=rng)
    tried = [
        _Miss(name, *_reweigh(data, ratio, predicted, gamma))
        for name, ratio in _policies(data, proba)
        if np.isfinite(ratio).all()  # a probability of 0 is refused where evidence is gathered
    ]
    worst = max(tried, key=lambda miss: abs(miss.z))
    known = float(predicted[data.layout.first].mean())
    half = float(special.ndtri(1 - (1 - _LEVEL) / (2 * len(tried)))) * worst.se
    method = f"normal, simultaneous for {len(tried)} policies"
    error = Interval(worst.miss - half, worst.miss + half, _LEVEL, method)
    se = data.layout.se_of_mean(data.returns(gamma))
    value, findings = known + worst.miss, _check_miss(worst, known, error, se)
    return Placebo(value, known, error, worst.policy, worst.z, len(tried), len(data), findings)


class _Miss(NamedTuple):
    """What reweighting to a policy changes, and its standard error."""

    policy: str
    miss: float
    se: float

    @property
    def z(self) -> float:
        return self.miss / self.se if self.se > 0 else 0.0


def _policies(data: Trajectories, proba: Float) -> Iterator[tuple[str, Float]]:
    """Policies near practice in words, with the importance ratios of the logged actions, (N,)."""
    taken = np.bincount(data.actions, minlength=data.n_actions)
    for action in np.argsort(-taken, kind="stable")[:_ACTIONS]:
        if not taken[action]:
            break
        name = repr(data.action_names[action]) if data.action_names is not None else str(action)
        odds = np.where(data.actions == action, _ODDS, 1.0)
        yield f"action {name} at twice its odds", odds / (1 + (_ODDS - 1) * proba[:, action])
    logged = at_actions(proba, data.actions)
    for name, power in _POWERS.items():
        with np.errstate(divide="ignore"):
            yield name, logged ** (power - 1) / (proba**power).sum(axis=1)


def _reweigh(data: Trajectories, ratio: Float, predicted: Float, gamma: float) -> tuple[float, float]:
    """Mean over trajectories of what reweighting each decision changes in the prediction, and its standard error."""
    time = data.layout.time
    mean = np.bincount(time, weights=predicted) / np.bincount(time)
    change = data.layout.sum_steps(gamma**time * (ratio - 1) * (predicted - mean[time]))
    return float(change.mean()), data.layout.se_of_mean(change)


def _predict_returns(data: Trajectories, *, gamma: float, rng: int) -> Float:
    """Predict the discounted return from each step on, from state and time, across two folds of trajectories, (N,)."""
    layout = data.layout
    x, y = np.column_stack([data.states, layout.time]), returns_to_go(data, gamma)
    predicted, fold = np.empty(data.n_steps), data.fold_of(2, rng=rng)
    trees = ExtraTreesRegressor(
        30, min_samples_leaf=10, max_features=min(_FEATURES, x.shape[1]), random_state=rng
    )
    for j in (0, 1):
        others, held_out = np.flatnonzero(fold != j), layout.rows_of(np.flatnonzero(fold == j))
        sample = others[data.part(others).subsample(_FITTED_ON, rng=np.random.default_rng(rng))]
        rows = layout.rows_of(sample)
        predicted[held_out] = trees.fit(x[rows], y[rows]).predict(x[held_out])
    return predicted


def _check_miss(worst: _Miss, known: float, error: Interval, se: float) -> tuple[Finding, ...]:
    """P101: a difference that is clear, and large beside the standard error of the mean return."""
    if 0.0 in error or worst.se == 0:
        return ()
    errors = abs(worst.miss) / se if se > 0 else np.inf
    facts = {
        "policy": worst.policy,
        "value": known + worst.miss,
        "practice": known,
        "low": error.low,
        "high": error.high,
        "z": worst.z,
        "errors": errors,
    }
    if errors <= _MATTERS[0]:
        return (P101.finding("note", "near", **facts),)
    return (P101.finding("issue" if errors > _MATTERS[1] else "caution", "failed", **facts),)


def fit_challenger(part: Trajectories, *, rng: int) -> FittedBehaviour:
    """Fit a forest, to see whether the only candidate underfits."""
    trees = ExtraTreesClassifier(50, min_samples_leaf=5, max_features=None, random_state=rng + 1)
    return recalibrate(trees, part, Shrinkage(), rng=rng + 1)


def check_underfit(second: FittedBehaviour, chosen: FittedBehaviour) -> tuple[Finding, ...]:
    """P103: a forest with a clearly higher held-out likelihood than the only candidate."""
    data = second.data
    mean, se = mean_of_steps(data, _log_likelihood(second, data) - _log_likelihood(chosen, data))
    if not (mean > _BETTER[0] and mean > 3 * se):
        return ()
    level: Level = "issue" if mean > _BETTER[1] else "caution"
    return (P103.finding(level, gain=mean, se=se),)


def _log_likelihood(behaviour: FittedBehaviour, data: Trajectories) -> Float:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(at_actions(behaviour.on(data), data.actions)))
