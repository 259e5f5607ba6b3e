"""Fitted Q evaluation backward in time: values that depend on the step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._gather import target_probabilities
from caliope._policies import Policy
from caliope._ragged import Bool, Float
from caliope._trajectories import Trajectories
from caliope._validation import check_gamma
from caliope.checks import Finding
from caliope.values._fqe import check_same_data
from caliope.values._regression import Model, check_finite, make_model


@dataclass(frozen=True, eq=False)
class TimeIndexedQ:
    """Fitted values of all actions that depend on the step: one model per step.

    Parameters
    ----------
    models : tuple of Model
        The fitted regression of each step, T of them.
    gamma : float
        The discount.
    fitted_on : frozenset of bytes
        Digests of the trajectories of the fit.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.domains import ward
    >>> from caliope.values import TabularRegressor, fitted_q_by_time
    >>> data, target = ward.simulate(200, rng=0), TabularPolicy(ward.EARLIER)
    >>> values = fitted_q_by_time(data, target, TabularRegressor(), gamma=1.0)
    >>> len(values.models), values.on(data).shape == (data.n_steps, 3)
    (12, True)
    """

    models: tuple[Model, ...]
    gamma: float
    fitted_on: frozenset[bytes] = field(default=frozenset(), repr=False)

    def q_all(self, states: ArrayLike, t: int) -> Float:
        """Return the values of all actions in each state at step t, (N, A)."""
        if not 0 <= t < len(self.models):
            raise ValueError(f"there are models for the steps 0 to {len(self.models) - 1}, not for {t}.")
        return self.models[t].predict(np.asarray(states))

    def on(self, data: Trajectories, needed: Bool | None = None) -> Float:
        """Return the values of all actions at every step of a log, (N, A), for ``gather(..., q=self)``.

        Steps later than all fitted ones use the last model. Where it is said which are ``needed``, others may be
        anything finite.
        """
        table = np.empty((data.n_steps, data.n_actions))
        time = np.minimum(data.layout.time, len(self.models) - 1)
        for t in range(int(time.max()) + 1):
            rows = np.flatnonzero(time == t)
            table[rows] = self.models[t].predict(data.states[rows], None if needed is None else needed[rows])
        return table

    def notes_for(self, data: Trajectories) -> tuple[Finding, ...]:
        """Return the findings for an estimate from ``data`` with these values."""
        return check_same_data(self.fitted_on, data)

    def check_convergence(self) -> tuple[Finding, ...]:
        """Return no finding: one pass backward is exact."""
        return ()


def fitted_q_by_time(
    data: Trajectories,
    target: Policy | ArrayLike,
    regressor: Any,
    *,
    gamma: float,
    per_action: bool = False,
) -> TimeIndexedQ:
    r"""Fit the value of each action under the target policy per step, backward in time.

    .. math:: Q_t = \arg\min_Q \sum_i \Big( r_t + \gamma \sum_{a'} \pi_e(a' \mid s_{t+1})\, Q_{t+1}(s_{t+1}, a')
        - Q(s_t, a_t) \Big)^2

    One pass is exact, and right where the remaining time matters, as with a maximal length. Late steps are fitted on
    the few trajectories that reach them.

    What follows the last step of a cut-off trajectory is unknown, so that step is not used. The last step with a
    model of its own is the latest at which a trajectory terminated; later steps use its model. It is fitted on the
    trajectories that end there alone. If many are cut off late, these few are not representative: use
    :func:`fitted_q`.

    Parameters
    ----------
    data : Trajectories
        The log; at least one trajectory must have terminated.
    target : Policy, or array of shape (N, A)
        The target policy, or its probabilities at the logged states.
    regressor : scikit-learn regressor
        Any, as in :func:`fitted_q`.
    gamma : float
        Discount in [0, 1].
    per_action : bool
        Fit one model per action, instead of one model with indicator columns for the action.

    Returns
    -------
    TimeIndexedQ
        The values.

    Examples
    --------
    >>> from caliope import TabularPolicy
    >>> from caliope.domains import ward
    >>> from caliope.values import TabularRegressor, fitted_q_by_time
    >>> data, target = ward.simulate(200, rng=0), TabularPolicy(ward.EARLIER)
    >>> values = fitted_q_by_time(data, target, TabularRegressor(), gamma=1.0)
    >>> values.q_all([[2.0]], t=0).shape
    (1, 3)
    """
    check_gamma(gamma)
    proba, layout = target_probabilities(data, target), data.layout
    model, known = make_model(regressor, data.n_actions, per_action=per_action), _find_known(data)
    v, models = np.zeros(data.n_steps), []
    last = int(layout.time[known].max())
    for t in reversed(range(last + 1)):
        here = layout.time == t
        rows, everyone = np.flatnonzero(here & known), np.flatnonzero(here)
        targets = data.rewards[rows] + gamma * data.layout.after(v, 0.0)[rows]
        models.append(model.fit(data.states[rows], data.actions[rows], targets))
        q = check_finite(models[-1].predict(data.states[everyone]), f"step {t}")
        v[everyone] = (proba[everyone] * q).sum(axis=1)
    late = [models[0]] * (layout.horizon - 1 - last)
    return TimeIndexedQ((*models[::-1], *late), gamma, frozenset(data.digests))


def _find_known(data: Trajectories) -> Bool:
    """Mark the steps whose reward and following value are known, (N,)."""
    layout = data.layout
    if not data.terminated.any():
        raise ValueError(
            f"fitted_q_by_time: all {len(data)} trajectories are cut off, so that the value of no last step is known; "
            "no trajectory ends: use fitted_q."
        )
    # Nothing is known of the steps after it.
    last = int(layout.lengths[data.terminated].max()) - 1
    known = layout.time < last
    known[layout.last] = data.terminated
    return known
