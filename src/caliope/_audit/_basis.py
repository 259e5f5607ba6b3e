"""What every number of an audit is computed from: the target on the log, fitted values, and the evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from caliope._audit._compare import random_stream
from caliope._audit._inputs import AuditInputs, Question, check_target, choose_weight_steps
from caliope._audit._learn import LearntPolicy, learn_across_folds
from caliope._audit._settings import Stages
from caliope._evidence import Evidence
from caliope._formulas import wdr
from caliope._gather import gather, target_probabilities
from caliope._policies import Relative
from caliope._ragged import Float, Int
from caliope._traits import Estimator
from caliope._trajectories import Trajectories
from caliope.checks import W108, Finding
from caliope.checks._estimates import examine
from caliope.checks._tails import check_influence
from caliope.uncertainty._intervals import influence
from caliope.values._defaults import AveragedValues, average_default_values, fit_values_by_fold
from caliope.values._kernel_values import average_kernel_values
from caliope.weights import clip_weights
from caliope.weights._marginalised import plain_and_marginalised, regress_weights
from caliope.weights._regressed import WeightRegression, default_regressors

if TYPE_CHECKING:
    from caliope._audit._prepare import PreparedAudit

# Values of all actions, (N, A), and how they were fitted.
Fitted = tuple[Float, str]
# The standard error with trees, as a share of that with a kernel, from which on the kernel is chosen.
_CLEARLY = 0.95
_KERNEL_FEATURES = 50  # with more, distances say little, and trees were always chosen


@dataclass(frozen=True, eq=False)
class Basis:
    """The target policy on the log, with its values and evidence.

    Attributes
    ----------
    asked : Question
        What is asked; a policy given as its learner has been learnt.
    target : Any
        The target: its probabilities, (N, A), or a policy stated relative to practice.
    target_probs : array of shape (N, A)
        Its probabilities; relative to practice as recorded, or else to the chosen behaviour model.
    learnt : LearntPolicy or None
        The policy as it was learnt across folds.
    q : array of shape (N, A)
        Fitted values of all actions.
    how : str
        How they were fitted, in words.
    evidence, capped : Evidence
        The evidence, with weights as they are and capped.
    normalised, marginalised : Evidence
        The same with weights normalised among those under way and capped, and with marginalised weights.
    weighed_on : array of int
        Numbers of the trajectories that weights were regressed on.
    values : AveragedValues or None
        The models of the values; None where the policy was learnt.
    regression : WeightRegression
        The models of the weights.
    fitted_on : array of int
        Numbers of the trajectories that values were fitted on.
    """

    asked: Question
    target: Any
    target_probs: Float
    learnt: LearntPolicy | None
    q: Float
    how: str
    evidence: Evidence
    capped: Evidence
    normalised: Evidence
    marginalised: Evidence
    weighed_on: Int
    values: AveragedValues | None
    regression: WeightRegression
    fitted_on: Int

    @property
    def regressors(self) -> dict[str, Any]:
        """The regressor that was chosen for the weights, unfitted; all of them where there was nothing to choose."""
        every = default_regressors()
        chosen = next(str(f.facts["regressor"]) for f in self.marginalised.notes if f.check == W108)
        return {chosen: every[chosen]} if chosen in every else every


def gather_basis(prepared: PreparedAudit, asked: Question, begin: Stages) -> Basis:
    """Learn the policy where it is given as its learner, fit values, and gather evidence."""
    inputs, data = prepared.inputs, prepared.data
    learnt = None if asked.learn is None else _learn(inputs, asked, begin)
    if learnt is not None:
        asked = replace(asked, target=learnt.target)
        check_target(data, asked.target, logged=inputs.only_taken)
    with begin("fitting values"):
        target_probs = target_probabilities(data, asked.target, prepared.practice)
        # An absolute target is asked once; one relative to practice is stated anew for every behaviour model.
        target = asked.target if isinstance(asked.target, Relative) else target_probs
        seen = _states_of_values(prepared, asked)
        models = _fit_values(prepared, asked, target_probs, seen) if learnt is None else []
        fitted, *other = (
            [(each.on(seen, prepared.models.fitted_on), each.how) for each in models]
            if learnt is None
            else [_fit_values_by_fold(prepared, asked, learnt)]
        )
    with begin("gathering evidence"):

        def with_values(q: Float) -> tuple[Evidence, Evidence]:
            evidence = gather(data, target, prepared.behaviour, gamma=inputs.gamma, q=q)
            return evidence, clip_weights(evidence)

        chosen = choose_values(fitted, other[0], with_values) if other else (*fitted, *with_values(fitted[0]))
        evidence = chosen[2]
    with begin("marginalising weights"):
        which = data.subsample(choose_weight_steps(inputs.fit_steps), rng=random_stream(inputs.seed, 11))
        rng = random_stream(inputs.seed, 8)
        regression = regress_weights((evidence,), data, fitted_on=which, rng=rng)[0]
        normalised, marginalised = plain_and_marginalised(evidence, regression)
    values = next(
        (each for each, (q, _) in zip(models, (fitted, *other), strict=False) if q is chosen[0]), None
    )
    return Basis(
        asked,
        target,
        target_probs,
        learnt,
        *chosen,
        normalised,
        marginalised,
        which,
        values,
        regression,
        prepared.models.fitted_on,
    )


def choose_values(
    trees: Fitted, kernel: Fitted, with_values: Callable[[Float], tuple[Evidence, Evidence]]
) -> tuple[Float, str, Evidence, Evidence]:
    """Choose the kernel, unless the standard error of capped WDR with the trees is clearly smaller.

    Trees shrink differences between actions, which biases the estimate more than it shows in the standard error: they
    have to be clearly better. With many features they are.

    Returns
    -------
    tuple
        The chosen values and how they were fitted, with both standard errors; the evidence, as it is and capped.
    """
    evidence = with_values(trees[0])
    other = with_values(kernel[0])
    se, se_kernel = standard_error(wdr, evidence[1]), standard_error(wdr, other[1])
    # A standard error that cannot be computed chooses nothing: trees extrapolate less.
    if not se < _CLEARLY * se_kernel and np.isfinite(se_kernel):
        name, (q, how), evidence = "kernel", kernel, other
    else:
        name, (q, how) = "trees", trees
    return q, f"{how} ({name} chosen by standard error: trees {se:.4g}, kernel {se_kernel:.4g})", *evidence


def examine_marginalised(estimator: Estimator, e: Evidence) -> tuple[Finding, ...]:
    """What is found about an estimate with marginalised weights."""
    return (*examine(estimator, e), *check_influence(influence(estimator, e), e))


def standard_error(estimator: Estimator, e: Evidence) -> float:
    """The standard error of an estimate by its influence function, summed within clusters; NaN where it has none."""
    u = e.layout.pool(influence(estimator, e))
    return float(np.sqrt((u**2).sum()) / len(e))


def _learn(inputs: AuditInputs, asked: Question, begin: Stages) -> LearntPolicy:
    with begin("learning the policy across folds"):
        rng = random_stream(inputs.seed, 6)
        return learn_across_folds(inputs.data, asked.learn, gamma=inputs.gamma, rng=rng)


def _states_of_values(prepared: PreparedAudit, asked: Question) -> Trajectories:
    """The log as values see it.

    What practice depends on may matter for outcomes too; a regressor of the user's own expects the plain states.
    """
    return prepared.chosen.widen(prepared.data) if asked.regressor is None else prepared.data


def _fit_values(
    prepared: PreparedAudit, asked: Question, target_probs: Float, data: Trajectories
) -> list[AveragedValues]:
    """Values of all actions under the target, by the user's regressor, or by trees and by a kernel.

    They are kept apart from the models.
    """
    inputs = prepared.inputs
    fitted_on, chosen = prepared.models.fitted_on, prepared.chosen
    cache = inputs.cache.keyed(
        fitted_on, target_probs, {"of values": asked.regressor}, inputs.gamma, inputs.seed, chosen.added
    )
    options: dict[str, Any] = {"gamma": inputs.gamma, "rng": inputs.seed, "fitted_on": fitted_on}
    options["work"] = inputs.cache
    found: list[AveragedValues] = [
        cache("values", lambda: average_default_values(data, target_probs, asked.regressor, **options))
    ]
    if asked.regressor is None and data.states.shape[1] <= _KERNEL_FEATURES:
        found.append(cache("kernel values", lambda: average_kernel_values(data, target_probs, **options)))
    return found


def _fit_values_by_fold(prepared: PreparedAudit, asked: Question, learnt: LearntPolicy) -> Fitted:
    """Values of a learnt policy, (N, A): in each fold for the policy, and from the outcomes, of the other folds.

    By trees without a choice: a kernel would have to be fitted for the policy of every fold.
    """
    inputs = prepared.inputs
    return fit_values_by_fold(
        inputs.data,
        learnt.fold,
        lambda j, which: learnt.without(j, which, prepared.practice),
        regressor=asked.regressor,
        gamma=inputs.gamma,
        rng=inputs.seed,
        fitted_on=prepared.models.fitted_on,
        work=inputs.cache,
    )
