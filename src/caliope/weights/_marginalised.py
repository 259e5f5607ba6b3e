r"""Marginalised importance weights: the cumulative weight regressed on state and time, times the ratio of the step.

Where the state is Markov, all that the weight of earlier decisions says about what follows is its mean given the state.
Averaging the rest away removes variance that grows with the length.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from caliope._evidence import Evidence, refuse_counts
from caliope._ragged import Float, Int
from caliope._trajectories import Trajectories
from caliope._under_way import FEW_UNDER_WAY
from caliope.checks import W108
from caliope.weights._transforms import clip_weights, compare_weights, normalise_under_way


def marginalise_weights(
    e: Evidence,
    data: Trajectories,
    *,
    regressors: Mapping[str, Any] | None = None,
    folds: int = 2,
    rng: int | np.random.Generator,
) -> Evidence:
    r"""Replace cumulative weights by marginalised ones: their mean given state and time, times the ratio of the step.

    .. math:: \mu_t = m(s_t, t)\, \lambda_t, \qquad m(s, t) = \mathbb E[w_{t-1} \mid s_t = s, t], \quad m(s, 0) = 1

    with w the cumulative weights after :func:`normalise_under_way` and :func:`clip_weights`. The mean is a regression
    of :math:`w_{t-1}`, divided by its mean among the trajectories under way, on the state and t. It is fitted to the
    other folds of trajectories, or of whole clusters, and predictions are kept within the range of its targets. The
    regressor with the least squared error on held-out trajectories is taken. Then m is scaled so that those under
    way at t have the sum of :math:`w_{t-1}`, and :math:`\mu_t` so that they have that of m; steps that fewer than 50
    trajectories reach share this factor. Last, :math:`\mu_t` is capped at :math:`\max(\sqrt n / 3, 1)`, the mean weight
    being 1.

    With these weights :func:`~caliope.estimators.wdr` is the marginalised doubly robust estimator (double
    reinforcement learning). On trajectories of one step nothing is marginalised.

    When it breaks: the state must be Markov. If outcomes depend on earlier decisions in ways that the state does not
    carry, the estimate is biased, and no standard error shows it; finding W106 compares it with the plain weights. At
    long horizons few trajectories have weight, and the regression is poor. A weight describes one step and not
    the whole trajectory: it is for estimators that sum over steps (``wdr``, ``dr``, ``step_wis``), and not for
    ``wis`` or ``ois``.

    Parameters
    ----------
    e : Evidence
        The evidence of the log, with the ratios as they are.
    data : Trajectories
        The same log, for its states and folds.
    regressors : mapping from name to regressor, optional
        Unfitted ones of scikit-learn. By default a constant, extremely randomised trees, and ridge regression on
        100 kernel features with penalties of 1 and 10.
    folds : int
        Number of folds.
    rng : int or Generator
        Seed of the folds and of the regressors.

    Returns
    -------
    Evidence
        The same with the marginalised weights as ``log_weight``, and findings W107 and W108 in ``notes``.

    References
    ----------
    Kallus & Uehara (2020), double reinforcement learning for efficient off-policy evaluation in Markov decision
    processes. Xie, Ma & Wang (2019), optimal off-policy evaluation with marginalized importance sampling.

    Examples
    --------
    >>> from caliope import TabularPolicy, gather
    >>> from caliope.domains import ward
    >>> data = ward.simulate(200, rng=0)
    >>> e = gather(data, TabularPolicy(ward.EARLIER), TabularPolicy(ward.PRACTICE))
    >>> marginalise_weights(e, data, rng=0).notes[-1].code
    'W108'
    """
    return marginalise_all((e,), data, regressors=regressors, folds=folds, rng=rng)[0]


def marginalise_all(
    evidences: Sequence[Evidence],
    data: Trajectories,
    *,
    regressors: Mapping[str, Any] | None = None,
    folds: int = 2,
    rng: int | np.random.Generator,
) -> tuple[Evidence, ...]:
    """Marginalise the weights of several target policies on one log: one fit of each regressor serves all of them."""
    for e in evidences:
        _check_log(e, data)
    if not evidences:
        return ()
    rng = np.random.default_rng(rng)
    fold = data.fold_of(folds, rng=rng)[data.layout.owner]
    candidates = default_regressors() if regressors is None else regressors
    _check_regressors(candidates)
    normalised = [normalise_under_way(e) for e in evidences]
    capped = [clip_weights(e) for e in normalised]
    before = np.stack([e.rho_before for e in capped], axis=1)
    found = _regress(before, data, fold, candidates, seed=int(rng.integers(2**31)))
    columns = zip(evidences, normalised, capped, before.T, found, strict=True)
    return tuple(_apply(*column) for column in columns)


def default_regressors() -> dict[str, Any]:
    """Return the regressors that weights are marginalised with, unfitted.

    A constant where weights do not depend on the state, trees for many measurements, kernels for few. Trees have one
    thread: several sum in the order in which they end.
    """
    from sklearn.dummy import DummyRegressor  # the other transforms need NumPy alone
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def kernel(penalty: float) -> Any:
        return make_pipeline(StandardScaler(), Nystroem(n_components=100), Ridge(penalty))

    trees = ExtraTreesRegressor(50, min_samples_leaf=20, max_features=0.5)
    return {
        "a constant": DummyRegressor(),
        "trees": trees,
        "kernel": kernel(1.0),
        "kernel, penalty 10": kernel(10.0),
    }


@dataclass(frozen=True, eq=False)
class _Regression:
    """Predicted weights (N,), relative to the mean at their step; which regressor, and its held-out R2."""

    predicted: Float
    name: str
    r2: float


def _regress(
    before: Float, data: Trajectories, fold: Int, regressors: Mapping[str, Any], *, seed: int
) -> list[_Regression]:
    """Regress columns of weights before each step, (N, k), on state and time: the best regressor for each."""
    time = data.layout.time
    later = time > 0
    if not later.any():
        return [_Regression(np.ones(len(time)), "none", np.nan)] * before.shape[1]
    x = np.column_stack([data.states.astype(np.float64), time])
    total = np.stack([np.bincount(time, weights=column) for column in before.T], axis=1)
    mean = total / np.bincount(time)[:, None]
    y = before / np.where(mean > 0, mean, 1.0)[time]
    predicted = {
        name: _predict_held_out(model, x, y, later=later, fold=fold, seed=seed)
        for name, model in regressors.items()
    }
    errors = {name: ((y - p)[later] ** 2).mean(axis=0) for name, p in predicted.items()}
    spread, found = y[later].var(axis=0), []
    for j in range(y.shape[1]):
        best = min(errors, key=lambda name: errors[name][j])
        r2 = 1 - errors[best][j] / spread[j] if spread[j] > 0 else np.nan
        found.append(_Regression(predicted[best][:, j], best, float(r2)))
    return found


def _predict_held_out(model: Any, x: Float, y: Float, *, later: Any, fold: Int, seed: int) -> Float:
    """Predict columns (N, k), each row from the other folds, within the range of their targets; 1 at the first step."""
    from sklearn.base import clone

    out = np.ones_like(y)
    for j in np.unique(fold[later]):
        fit, held_out = np.flatnonzero(later & (fold != j)), np.flatnonzero(later & (fold == j))
        if not len(fit):
            continue  # no other trajectory has a second step: the mean, which is 1
        targets = y[fit, 0] if y.shape[1] == 1 else y[fit]
        with warnings.catch_warnings():
            # Fewer steps than kernel features: then there are fewer features.
            warnings.filterwarnings("ignore", "n_components > n_samples", UserWarning)
            fitted = _seeded(clone(model), seed).fit(x[fit], targets)
        predicted = np.asarray(fitted.predict(x[held_out]), dtype=np.float64).reshape(len(held_out), -1)
        if not np.isfinite(predicted).all():
            raise ValueError(
                f"{type(model).__name__} predicted a weight that is NaN or infinite: use another regressor."
            )
        out[held_out] = np.clip(predicted, y[fit].min(axis=0), y[fit].max(axis=0))
    return out


def _seeded(model: Any, seed: int) -> Any:
    """Give the same seed to every part of a model that has none."""
    names = [
        name for name, x in model.get_params().items() if name.split("__")[-1] == "random_state" and x is None
    ]
    return model.set_params(**dict.fromkeys(names, seed))


def _apply(
    e: Evidence, normalised: Evidence, capped: Evidence, before: Float, regression: _Regression
) -> Evidence:
    """Multiply predicted weights by the ratio of the step; scale and cap as the formula says."""
    time, n = e.layout.time, len(e)
    m = _scale(np.where(time > 0, regression.predicted, 1.0), before, time)
    with np.errstate(divide="ignore"):
        mu = np.exp(np.log(m) + e.log_ratio)
        mu *= _factors(m, mu, time)[time]
        cap = max(np.sqrt(n) / 3, 1.0)
        log_weight = np.log(np.minimum(mu, cap))
    touched = np.abs(capped.rho - normalised.rho) > 1e-12 * normalised.rho
    facts = compare_weights(normalised, log_weight)
    facts["changed"] = len(np.unique(e.layout.owner[touched | (mu > cap)]))
    variant = "regressed" if (time > 0).any() else "single"
    note = W108.finding("note", variant, regressor=regression.name, r2=regression.r2, multiple=cap, **facts)
    return replace(e, log_weight=log_weight, notes=(*normalised.notes, note))


def _scale(m: Float, before: Float, time: Int) -> Float:
    """Scale predictions so that those under way have the sum of the weights before the step."""
    has, wanted = np.bincount(time, weights=m), np.bincount(time, weights=before)
    factor = np.divide(wanted, has, out=np.zeros_like(has), where=has > 0)
    # Where every prediction is 0 and the weights are not, all get their mean.
    mean = np.where(has > 0, 0.0, wanted / np.bincount(time))
    return np.asarray(m * factor[time] + mean[time])


def _factors(m: Float, mu: Float, time: Int) -> Float:
    """Factor of each step with which those under way have the sum of m; one for all late steps."""
    wanted, has = np.bincount(time, weights=m), np.bincount(time, weights=mu)
    late = np.bincount(time) < FEW_UNDER_WAY
    wanted[late], has[late] = wanted[late].sum(), has[late].sum()
    return np.divide(wanted, has, out=np.ones_like(has), where=has > 0)


def _check_log(e: Evidence, data: Trajectories) -> None:
    refuse_counts(e)
    if e.log_weight is not None:
        raise ValueError(
            "marginalise_weights needs weights that are products of ratios, and these were given (log_weight): give "
            "the evidence as gather returns it."
        )
    if not np.array_equal(e.offsets, data.offsets):
        raise ValueError(
            f"the evidence and the log must have the same trajectories, got {len(e)} with {len(e.rewards)} steps and "
            f"{len(data)} with {data.n_steps} steps."
        )


def _check_regressors(regressors: Mapping[str, Any]) -> None:
    if not regressors:
        raise ValueError("regressors must name at least one regressor, got an empty mapping.")
    for name, model in regressors.items():
        if isinstance(model, type) or not all(hasattr(model, x) for x in ("fit", "predict", "get_params")):
            raise TypeError(
                f"regressors[{name!r}] must be an unfitted regressor of scikit-learn, got {model!r}."
            )
