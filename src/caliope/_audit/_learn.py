"""A policy given as its learner: learnt across folds, so that no trajectory evaluates what was learnt on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor

from caliope._action_values import OnLog
from caliope._audit._answers import Answer
from caliope._evidence import Evidence
from caliope._gather import target_probabilities
from caliope._policies import MixWithPractice, Policy, Relative
from caliope._ragged import Float, Int
from caliope._traits import Estimator
from caliope._trajectories import Trajectories
from caliope.checks import Q106, Finding
from caliope.uncertainty._intervals import influence
from caliope.values._defaults import rounds_of
from caliope.values._fqe import fitted_q_iteration

FOLDS = 5
Learner = Callable[[Trajectories], Any]
_NEEDED = (
    "learn must be a function from a log to a policy, or an unfitted classifier or regressor of the kind of "
    "scikit-learn"
)


@dataclass(frozen=True, eq=False)
class LearntPolicy:
    """Policies that were learnt across folds by trajectory: each evaluates the fold that it has not seen.

    Attributes
    ----------
    data : Trajectories
        The log.
    fold : array of shape (n,)
        Fold of each trajectory.
    policies : tuple
        The policy that was learnt without each fold.
    share : float or None
        Share of the decisions that the policy takes, where the learner returns a mixture with practice.
    """

    data: Trajectories
    fold: Int
    policies: tuple[Any, ...]
    share: float | None

    @property
    def target(self) -> Any:
        """The target policy: at every step the probabilities of the policy that has not seen the trajectory."""
        return self._assemble(0)

    @property
    def other_target(self) -> Any:
        """The same with the policy learnt without the next fold: their difference shows how far learning is chance."""
        return self._assemble(1)

    def _assemble(self, ahead: int) -> Any:
        table: Any = np.empty((self.data.n_steps, self.data.n_actions))
        for j in range(len(self.policies)):
            own = np.flatnonzero(self.fold == j)
            table[self.data.layout.rows_of(own)] = self.without((j + ahead) % len(self.policies), own)
        return table if self.share is None else MixWithPractice(table, self.share)

    def without(self, j: int, which: Int, behaviour: Float | None = None) -> Float:
        """Probabilities of the policy learnt without fold j, at the steps of some trajectories; mixed with practice."""
        probs = probabilities_of(self.policies[j], self.data[which])
        if self.share is None or behaviour is None:
            return probs
        return (1 - self.share) * behaviour[self.data.layout.rows_of(which)] + self.share * probs


def check_learner(learn: Any) -> None:
    """Raise unless it can learn a policy from a log."""
    if isinstance(learn, type):
        raise TypeError(f"{_NEEDED}; {learn.__name__} is a class: make an object of it.")
    if not (callable(learn) or (hasattr(learn, "fit") and (is_classifier(learn) or is_regressor(learn)))):
        what = (
            "a fitted policy: give it as target" if hasattr(learn, "predict_proba") else type(learn).__name__
        )
        raise TypeError(f"{_NEEDED}; got {what}.")


def name_of_learner(learn: Any) -> str:
    """What the settings call it."""
    return str(getattr(learn, "__name__", type(learn).__name__))


def as_function(learn: Any, gamma: float) -> Learner:
    """The learner as a function from a log to a policy."""
    if not hasattr(learn, "fit"):
        return learn
    if is_classifier(learn):
        return lambda part: clone(learn).fit(part.states, part.actions)
    return lambda part: fitted_q_iteration(
        part, learn, gamma=gamma, n_iterations=rounds_of(part)["n_iterations"]
    ).greedy()


def learn_across_folds(
    data: Trajectories, learn: Any, *, gamma: float, rng: np.random.Generator
) -> LearntPolicy:
    """Learn a policy without each fold of trajectories in turn.

    Parameters
    ----------
    data : Trajectories
        The log.
    learn : callable, classifier or regressor
        A function from a log to a policy; a classifier imitates practice; a regressor makes the greedy policy of fitted
        Q iteration.
    gamma : float
        Discount of fitted Q iteration.
    rng : Generator
        Deals the trajectories into folds.

    Returns
    -------
    LearntPolicy
        One policy per fold.
    """
    fold, function = data.fold_of(FOLDS, rng=rng), as_function(learn, gamma)
    policies = tuple(_learn(function, data[fold != j], j) for j in range(FOLDS))
    shares = {policy.share if isinstance(policy, MixWithPractice) else None for policy in policies}
    if len(shares) > 1:
        raise ValueError(
            "learn must leave the same share of the decisions to practice in every fold, got the shares "
            f"{sorted(map(str, shares))}: fix the share."
        )
    plain = tuple(policy.policy if isinstance(policy, MixWithPractice) else policy for policy in policies)
    _refuse_fixed(plain)
    return LearntPolicy(data, fold, plain, shares.pop())


def _refuse_fixed(policies: tuple[Any, ...]) -> None:
    """Raise if every fold returned one and the same policy: it was learnt elsewhere, perhaps on the whole log."""
    if all(policy is policies[0] for policy in policies):
        raise ValueError(
            f"learn returned the same {type(policies[0]).__name__} for every fold: it does not learn from the log that "
            "it is given. Fit a new policy in it, or give the policy as target and say with learnt_on what it was "
            "learnt on."
        )


def _learn(function: Learner, part: Trajectories, j: int) -> Any:
    try:
        policy = function(part)
    except Exception as error:
        raise ValueError(
            f"learn failed on {len(part)} {part.units}, those without fold {j + 1} of {FOLDS}: "
            f"{type(error).__name__}: {error}."
        ) from error
    inner = policy.policy if isinstance(policy, MixWithPractice) else policy
    if isinstance(inner, Relative) or not (isinstance(inner, Policy | OnLog) or callable(inner)):
        raise TypeError(
            "learn must return a policy with predict_proba and classes_, a mixture of one with practice, or a function "
            f"from a log to probabilities (N, A); got {type(policy).__name__}."
        )
    return policy


def probabilities_of(policy: Any, part: Trajectories) -> Float:
    """Probabilities of all actions under a learnt policy, (N, A)."""
    known = isinstance(policy, Policy | OnLog)
    return target_probabilities(part, policy if known else np.asarray(policy(part)))


def answer_by_folds(data: Trajectories) -> Answer:
    """What the policy was learnt on, by construction: never on the trajectories that evaluate it."""
    text = f"no: learnt across {FOLDS} folds, each time on the other {data.units}"
    return Answer(text, "the learner used nothing but the trajectories that it was given")


def fold_factor(estimator: Estimator, own: Evidence, other: Evidence) -> float:
    r"""By how much the errors of folds that share trajectories widen an interval, from 1 to :math:`\sqrt 2`.

    An outcome that is high by chance moves the policies of other folds, and theirs move its own: both errors have
    the same sign. No estimator of that covariance is unbiased (Bengio & Grandvalet 2004). To second order it is at most
    the variance of the part that depends on the policy, which is measured by what another fold's policy changes:

    .. math:: \Bigl(1 + \min\Bigl(1, \frac{\sum_i (\psi_i - \psi_i')^2}{\sum_i \psi_i^2}\Bigr)\Bigr)^{1/2}

    Parameters
    ----------
    estimator : callable
        An estimator.
    own, other : Evidence
        With the policy that has not seen the trajectory, and with that of the next fold.

    Returns
    -------
    float
        The factor.
    """
    psi, changed = (e.layout.pool(influence(estimator, e)) for e in (own, other))
    total = float((psi**2).sum())
    moved = float(((psi - changed) ** 2).sum())
    return float(np.sqrt(1 + min(1.0, moved / total))) if total > 0 else 1.0


def check_folds(data: Trajectories, factor: float) -> Finding:
    """Q106: what the value of a learner is, and by how much the interval of the difference was widened."""
    return Q106.finding("note", folds=FOLDS, share=1 - 1 / FOLDS, factor=factor, unit=data.unit)


def soften(learn: Any, share: float, gamma: float) -> Learner:
    """A learner whose policy is followed in a share of the decisions, and practice in the others."""
    function = as_function(learn, gamma)

    def softened(part: Trajectories) -> MixWithPractice:
        policy = function(part)
        if isinstance(policy, Relative):
            raise TypeError("the learner returns a mixture with practice already: leave --soften out")
        return MixWithPractice(policy, share)

    softened.__name__ = name_of_learner(learn)
    return softened
