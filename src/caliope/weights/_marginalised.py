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
from caliope._ragged import Bool, Float, Int, as_positions
from caliope._trajectories import Trajectories
from caliope._under_way import FEW_UNDER_WAY
from caliope.checks import W108
from caliope.weights._transforms import clip_weights, compare_weights, normalise_under_way

_ROWS = 1 << 16  # predicted at a time, of what was not fitted on


def marginalise_weights(
    e: Evidence,
    data: Trajectories,
    *,
    regressors: Mapping[str, Any] | None = None,
    folds: int = 2,
    fitted_on: Int | None = None,
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
    fitted_on : array of int, optional
        Numbers of the trajectories that regressors are fitted to and chosen on, by default all. Every trajectory is
        predicted, by the model of the other folds.
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
    return marginalise_all((e,), data, regressors=regressors, folds=folds, fitted_on=fitted_on, rng=rng)[0]


def marginalise_all(
    evidences: Sequence[Evidence],
    data: Trajectories,
    *,
    regressors: Mapping[str, Any] | None = None,
    folds: int = 2,
    fitted_on: Int | None = None,
    rng: int | np.random.Generator,
) -> tuple[Evidence, ...]:
    """Marginalise the weights of several target policies on one log: one fit of each regressor serves all of them."""
    for e in evidences:
        _check_log(e, data)
    if not evidences:
        return ()
    rng = np.random.default_rng(rng)
    fold = data.fold_of(folds, rng=rng)
    candidates = default_regressors() if regressors is None else regressors
    _check_regressors(candidates)
    design = _Design.of(data, fold, fitted_on)
    normalised = [normalise_under_way(e) for e in evidences]
    capped = [clip_weights(e) for e in normalised]
    before = np.stack([e.rho_before for e in capped], axis=1)
    found = _regress(before, design, candidates, seed=int(rng.integers(2**31)))
    columns = zip(evidences, normalised, capped, before.T, found, strict=True)
    return tuple(_apply(*column, n_fitted=design.n_fitted) for column in columns)


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
class _Design:
    """What weights are regressed on: state and time of each row, its fold, and which rows are fitted on."""

    data: Trajectories
    fold: Int  # (n,)
    sampled: Bool  # (n,)

    @classmethod
    def of(cls, data: Trajectories, fold: Int, fitted_on: Int | None) -> _Design:
        sampled = np.full(len(data), fitted_on is None)
        sampled[slice(None) if fitted_on is None else as_positions(fitted_on, len(data))] = True
        if not sampled.any():
            raise ValueError("fitted_on must name at least one trajectory, got none.")
        return cls(data, fold, sampled)

    @property
    def n_fitted(self) -> int:
        return int(self.sampled.sum())

    @property
    def time(self) -> Int:
        return self.data.layout.time

    def rows(self, of: Bool) -> Int:
        """Rows after the first step, of some trajectories."""
        return np.flatnonzero(of[self.data.layout.owner] & (self.time > 0))

    def x(self, rows: Int) -> Float:
        """State and time of some rows."""
        return np.column_stack([self.data.states[rows].astype(np.float64), self.time[rows]])


@dataclass(frozen=True, eq=False)
class _Regression:
    """Predicted weights (N,), relative to the mean at their step; which regressor, and its held-out R2."""

    predicted: Float
    name: str
    r2: float


def _regress(
    before: Float, design: _Design, regressors: Mapping[str, Any], *, seed: int
) -> list[_Regression]:
    """Regress columns of weights before each step, (N, k), on state and time: the best regressor for each."""
    time = design.time
    if not (time > 0).any():
        return [_Regression(np.ones(len(time)), "none", np.nan)] * before.shape[1]
    total = np.stack([np.bincount(time, weights=column) for column in before.T], axis=1)
    mean = total / np.bincount(time)[:, None]
    y = before / np.where(mean > 0, mean, 1.0)[time]
    fits = {name: _HeldOut(model, design, y, seed) for name, model in regressors.items()}
    sample = design.rows(design.sampled)
    errors = {name: ((y[sample] - fit.predicted[sample]) ** 2).mean(axis=0) for name, fit in fits.items()}
    spread, found = y[sample].var(axis=0), []
    best = [min(errors, key=lambda name: errors[name][j]) for j in range(y.shape[1])]
    for name in set(best):
        fits[name].predict_rest()
    for j, name in enumerate(best):
        r2 = 1 - errors[name][j] / spread[j] if spread[j] > 0 else np.nan
        found.append(_Regression(fits[name].predicted[:, j], name, float(r2)))
    return found


class _HeldOut:
    """A regressor fitted without each fold in turn; predictions (N, k) within the range of targets, 1 at first steps.

    What was fitted on is predicted at once, so that regressors can be compared, and the rest only when asked for.
    """

    def __init__(self, model: Any, design: _Design, y: Float, seed: int) -> None:
        self.design, self.predicted = design, np.ones_like(y)
        self.models: dict[int, tuple[Any, Float, Float]] = {}
        for j in np.unique(design.fold).tolist():
            fit = design.rows(design.sampled & (design.fold != j))
            if not len(fit):
                continue  # no other trajectory has a second step: the mean, which is 1
            fitted = _fit_seeded(model, design.x(fit), y[fit, 0] if y.shape[1] == 1 else y[fit], seed)
            self.models[j] = fitted, y[fit].min(axis=0), y[fit].max(axis=0)
            self._predict(j, design.rows(design.sampled & (design.fold == j)))

    def predict_rest(self) -> None:
        """Predict the trajectories that were not fitted on, some rows at a time."""
        for j in self.models:
            rest = self.design.rows(~self.design.sampled & (self.design.fold == j))
            for start in range(0, len(rest), _ROWS):
                self._predict(j, rest[start : start + _ROWS])

    def _predict(self, j: int, rows: Int) -> None:
        if not len(rows):
            return
        model, low, high = self.models[j]
        predicted = np.asarray(model.predict(self.design.x(rows)), dtype=np.float64).reshape(len(rows), -1)
        if not np.isfinite(predicted).all():
            raise ValueError(
                f"{type(model).__name__} predicted a weight that is NaN or infinite: use another regressor."
            )
        self.predicted[rows] = np.clip(predicted, low, high)


def _fit_seeded(model: Any, x: Float, y: Float, seed: int) -> Any:
    from sklearn.base import clone

    with warnings.catch_warnings():
        # Fewer steps than kernel features: then there are fewer features.
        warnings.filterwarnings("ignore", "n_components > n_samples", UserWarning)
        return _seeded(clone(model), seed).fit(x, y)


def _seeded(model: Any, seed: int) -> Any:
    """Give the same seed to every part of a model that has none."""
    names = [
        name for name, x in model.get_params().items() if name.split("__")[-1] == "random_state" and x is None
    ]
    return model.set_params(**dict.fromkeys(names, seed))


def _apply(
    e: Evidence,
    normalised: Evidence,
    capped: Evidence,
    before: Float,
    regression: _Regression,
    *,
    n_fitted: int,
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
    variants = ["regressed" if (time > 0).any() else "single"]
    if n_fitted < n and (time > 0).any():
        variants.append("sampled")
        facts["fitted"] = n_fitted
    note = W108.finding("note", *variants, regressor=regression.name, r2=regression.r2, multiple=cap, **facts)
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
