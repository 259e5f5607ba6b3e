"""Compare behaviour models: every calibration number for every model and stratum, and a recommendation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._gather import gather, target_probabilities
from caliope._policies import SupportError
from caliope._ragged import Float, Int, at_actions
from caliope._results import Interval, Table
from caliope._trajectories import Trajectories
from caliope.behaviour._search import Exact, Search
from caliope.calibration._findings import FEW_TRAJECTORIES, check_held_out, judge, select_worse
from caliope.calibration._neighbourhoods import Neighbourhoods, neighbourhood_calibration, neighbourhoods
from caliope.calibration._null import AgainstNull, check_draws
from caliope.calibration._reliability import (
    classwise_error,
    ratio_reliability,
    reliability_curve,
    top_label_error,
)
from caliope.calibration._result import CalibrationRow, Choice, Measured, ModelDetails, choose
from caliope.calibration._scores import (
    ALL,
    brier_loss,
    distance_to_truth,
    log_loss,
    marginal_baseline,
    name_strata,
    repeat_baseline,
    sample_rows,
    skill,
    split_loss,
    stratum_key,
)
from caliope.calibration._tests import WeightMoments, balance_table, kernel_error, weight_moments
from caliope.uncertainty._intervals import check_level
from caliope.uncertainty._resampling import with_replacement

_LEGEND = (
    "NLL: mean log loss of held-out decisions, lower is better; saved: how much lower, as a share, than with the "
    "overall\nfrequencies of actions. paper TV: distance to the histogram of neighbours, its null: its mean if the "
    "model were\nright. averaged: distance of the model's mean over a neighbourhood to the histogram, above chance. "
    "z in standard\ndeviations of the null. More in to_frame(): calibration errors, balance, kernel error, skill "
    "over the last action."
)


@dataclass(frozen=True, repr=False)
class Comparison(Table[CalibrationRow]):
    """Calibration numbers, one row per model and stratum, with a recommendation.

    Parameters
    ----------
    rows : tuple of CalibrationRow
        One row per model and stratum.
    title : str
        What was compared.
    choice : Choice, optional
        Recommended model, and why.
    details : mapping from name to ModelDetails
        Curves and tables of each model.
    seconds : mapping from str to float
        Time of each part.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> data = ward.simulate(50, rng=0)
    >>> models = {"uniform": np.full((data.n_steps, 3), 1 / 3)}
    >>> compare_policies(models, data, k=20, n_states=50, n_draws=20, rng=0).recommended
    'uniform'
    """

    choice: Choice | None = None
    details: Mapping[str, ModelDetails] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def recommended(self) -> str:
        """Name of the recommended model; empty if there is none."""
        return "" if self.choice is None else self.choice.recommended

    def overall(self) -> Table[CalibrationRow]:
        """Return the rows of the whole log, without strata."""
        return Table(tuple(row for row in self.rows if row.stratum == ALL), self.title)

    def __str__(self) -> str:
        return super().__str__() + f"\n\n{_LEGEND}" + ("" if self.choice is None else f"\n\n{self.choice}")

    def _repr_html_(self) -> str:
        choice = "" if self.choice is None else f"<pre>{escape(str(self.choice))}</pre>"
        return super()._repr_html_() + choice

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; what is not finite becomes None."""
        choice = None if self.choice is None else self.choice.to_dict()
        return super().to_dict() | {"choice": choice, "seconds": dict(self.seconds)}


def compare_policies(
    models: Mapping[str, Any],
    data: Trajectories,
    *,
    by: ArrayLike | None = None,
    truth: Any = None,
    target: Any = None,
    k: int = 150,
    n_states: int = 500,
    feature_weights: ArrayLike | None = None,
    search: Search = Exact(),  # noqa: B008  # frozen
    n_draws: int = 100,
    level: float = 0.95,
    max_steps: int = 100_000,
    ruled_out: Collection[str] = (),
    rng: int | np.random.Generator,
) -> Comparison:
    """Compare how well behaviour models predict held-out decisions, and recommend one.

    Parameters
    ----------
    models : mapping from name to Policy, FittedBehaviour or array of shape (N, A)
        Fitted on other trajectories than ``data``, or cross-fitted on them. Simpler ones first: a model is preferred
        to a simpler one only if it is clearly better.
    data : Trajectories
        The held-out log.
    by : array-like of shape (N,), optional
        A stratum for every step, for instance from :func:`severity_strata`.
    truth : Policy or array of shape (N, A), optional
        The true behaviour policy, where a simulator knows it.
    target : Policy or array of shape (N, A), optional
        The target policy, for the reliability of its importance ratios; otherwise all actions count equally.
    k, n_states : int
        The paper's metric: number of neighbours, and of sampled states in every stratum.
    feature_weights : (d,), optional
        Weights of the features in distances.
    search : Exact, InvertedLists or RandomProjections
        How neighbours are found.
    n_draws : int
        Draws from the model for every null, and bootstrap draws for the intervals.
    level : float
        Confidence level; intervals are percentiles over resampled trajectories, with the model held fixed.
    max_steps : int
        Of a longer log, whole trajectories with about this many steps are sampled; the title says so.
    ruled_out : collection of str
        Names of models that are ranked and never recommended, for reasons of your own.
    rng : int or Generator
        Seed.

    Returns
    -------
    Comparison
        One row per model for the whole log, and one for each stratum. Printed are the main numbers; ``to_frame()``
        has all, ``details`` the curves, ``choice`` the recommendation. Findings K101 to K110 are explained by
        ``caliope explain``.

    Examples
    --------
    >>> from caliope.domains import ward
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> train, test = ward.simulate(200, rng=0), ward.simulate(100, rng=1)
    >>> models = {"marginal": DummyClassifier(), "logistic": LogisticRegression()}
    >>> fitted = {name: model.fit(train.states, train.actions) for name, model in models.items()}
    >>> compare_policies(fitted, test, k=50, n_states=100, n_draws=20, rng=0).recommended
    'logistic'
    """
    _check(models, data, n_draws, n_states, level, max_steps)
    rng = np.random.default_rng(rng)
    seconds: dict[str, float] = {}
    strata = name_strata(by, data)
    log, kept = _sample_log(data, max_steps, rng)
    with _record_time(seconds, "predictions"):
        tables = {
            name: _predict_on(f"model {name!r}", model, log, kept, data) for name, model in models.items()
        }
        behaviour_probs = None if truth is None else _predict_on("truth", truth, log, kept, data)
        target_probs = None if target is None else _predict_on("target", target, log, kept, data)
    strata = None if strata is None else strata[kept]
    with _record_time(seconds, "neighbour search"):
        near = neighbourhoods(
            log, sample_rows(strata, log, n_states, rng), k=k, feature_weights=feature_weights, search=search
        )
    units = log.layout.n_units
    study = _Study(
        log,
        strata,
        near,
        behaviour_probs,
        target_probs,
        with_replacement(units, units, n_draws, rng)[:, log.layout.unit],
        {
            "marginal": log_loss(marginal_baseline(log), log.actions),
            "last action": log_loss(repeat_baseline(log), log.actions),
        },
        level,
        feature_weights,
        rng,
        seconds,
    )
    details = {name: study.details(table) for name, table in tables.items()}
    caveats = {name: check_held_out(models[name], log) for name in models}
    rows = {name: study.rows(name, detail, caveats[name]) for name, detail in details.items()}
    losses = {name: log.layout.sum_units(log_loss(table, log.actions)) for name, table in tables.items()}
    paper = {name: detail.near.paper_metric(study.shares()).value for name, detail in details.items()}
    barred = tuple(name for name in models if caveats[name])
    choice = choose(losses, log.layout.pool(log.lengths), paper, barred=barred, ruled_out=tuple(ruled_out))
    title = (
        f"Behaviour models on {len(log)} {data.units}, {log.n_steps} steps; {near.k} neighbours of {len(near.rows)} "
        "states"
    )
    if len(log) < len(data):
        title += f" (sampled from {len(data)} {data.units})"
    return Comparison(
        tuple(row for name in choice.ranking for row in rows[name]), title, choice, details, seconds
    )


def _check(models: Any, data: Any, n_draws: int, n_states: int, level: float, max_steps: int) -> None:
    if not isinstance(models, Mapping) or not all(isinstance(name, str) for name in models):
        raise TypeError("models must be a mapping from names to policies, such as {'logistic': fitted}.")
    if not models:
        raise ValueError("no models were given: compare_policies needs a mapping from names to policies.")
    if not isinstance(data, Trajectories):
        raise TypeError(f"data must be Trajectories (see read_table), got {type(data).__name__}.")
    check_draws(n_draws)
    check_level(level)
    for name, value in (("n_states", n_states), ("max_steps", max_steps)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number from 1, got {value!r}.")


@dataclass(frozen=True, eq=False)
class _Study:
    """What all models share: the log, its strata, the neighbourhoods, the draws."""

    data: Trajectories
    strata: Any  # (N,), or None
    near: Neighbourhoods
    behaviour_probs: Float | None  # (N, A), of the true behaviour policy
    target_probs: Float | None  # (N, A)
    counts: Float  # (R, n), how often each trajectory occurs in each resample
    baselines: dict[str, Float]  # loss of each step, (N,)
    level: float
    feature_weights: ArrayLike | None
    rng: np.random.Generator
    seconds: dict[str, float]

    def details(self, table: Float) -> ModelDetails:
        data, actions, rng, draws = self.data, self.data.actions, self.rng, len(self.counts)
        with _record_time(self.seconds, "neighbourhoods and null"):
            near = neighbourhood_calibration(table, self.near, n_draws=draws, rng=rng)
        with _record_time(self.seconds, "reliability"):
            curve = reliability_curve(table, actions)
            ratios = ratio_reliability(table, data, self.target_probs)
            top = top_label_error(table, actions, n_draws=draws, rng=rng)
            every = classwise_error(table, actions, n_draws=draws, rng=rng)
        with _record_time(self.seconds, "balance"):
            balance = balance_table(table, data, strata=self.strata, n_draws=100, rng=rng)
        with _record_time(self.seconds, "recalibration"):
            split = split_loss(table, data, rng=rng)
        known = self.behaviour_probs
        truth = None if known is None else distance_to_truth(table, known, actions)
        weights = self._weight_moments(table)
        return ModelDetails(table, near, curve, ratios, balance, top, every, split, weights, truth)

    def _weight_moments(self, table: Float) -> WeightMoments | None:
        if self.target_probs is None:
            return None
        try:
            evidence = gather(self.data, self.target_probs, table)
            return weight_moments(evidence, n_draws=len(self.counts), rng=self.rng)
        except SupportError:
            return None

    def rows(self, name: str, details: ModelDetails, caveats: Any) -> list[CalibrationRow]:
        with _record_time(self.seconds, "kernel error"):
            skce = kernel_error(
                details.table,
                self.data,
                feature_weights=self.feature_weights,
                n_draws=max(len(self.counts), 100),
                rng=self.rng,
            )
        with _record_time(self.seconds, "intervals"):
            steps, states = np.arange(self.data.n_steps), np.arange(len(self.near.rows))
            whole = self._measure(details, steps, states, skce)
            rows = [CalibrationRow(name, ALL, whole, (*judge(details, whole), *caveats))]
            names = [] if self.strata is None else dict.fromkeys(sorted(self.strata, key=stratum_key))
            for stratum in names:
                steps = np.flatnonzero(self.strata == stratum)
                states = np.flatnonzero(self.strata[self.near.rows] == stratum)
                part = self._measure(details, steps, states, None)
                new = select_worse(rows[0].findings, judge(details, part, whole=False))
                rows.append(CalibrationRow(name, str(stratum), part, new))
        return rows

    def _measure(self, details: ModelDetails, steps: Int, states: Any, skce: AgainstNull | None) -> Measured:
        data, table = self.data, details.table[steps]
        actions = data.actions[steps]
        nll, brier = log_loss(table, actions), brier_loss(table, actions)
        shares = np.zeros(len(self.near.rows))
        shares[states] = self.shares()[states]
        paper, averaged = details.near.paper_metric(shares), details.near.averaged_metric(shares)
        whole = len(steps) == data.n_steps
        return Measured(
            n=len(np.unique(data.layout.owner[steps])),
            n_steps=len(steps),
            n_states=len(states),
            nll=float(nll.mean()),
            nll_interval=self._interval(nll, steps),
            brier=float(brier.mean()),
            brier_interval=self._interval(brier, steps),
            skill_marginal=skill(float(nll.mean()), float(self.baselines["marginal"][steps].mean())),
            skill_last_action=skill(float(nll.mean()), float(self.baselines["last action"][steps].mean())),
            zero_share=float((at_actions(table, actions) == 0).mean()),
            paper_tv=paper,
            paper_interval=self._interval(details.near.paper[states], self.near.rows[states], shares[states]),
            noise_floor=float(shares @ details.near.noise / shares.sum()),
            averaged_tv=averaged,
            averaged_interval=self._interval(
                details.near.averaged[states], self.near.rows[states], shares[states]
            ),
            averaged_floor=float(shares @ details.near.floor / shares.sum()),
            calibration_loss=details.nll_split.calibration if whole else None,
            recalibration=details.nll_split.by if whole else "",
            top_label=details.top_label if whole else None,
            classwise=details.classwise if whole else None,
            balance=details.balance.largest if whole else None,
            balance_signs_p=details.balance.signs_p if whole else None,
            weights=details.weights.largest if whole and details.weights is not None else None,
            kernel=skce,
            true_tv=None if details.truth is None else float(details.truth.tv[steps].mean()),
            true_tv_interval=None
            if details.truth is None
            else self._interval(details.truth.tv[steps], steps),
            true_kl=None if details.truth is None else float(details.truth.kl[steps].mean()),
            true_at_logged=None if details.truth is None else float(details.truth.at_logged[steps].mean()),
            inflation=None if details.truth is None else float(details.truth.inflation[steps].mean()),
        )

    def shares(self) -> Float:
        """Return how many steps each sampled state represents, since strata differ in size, (M,)."""
        if self.strata is None:
            return np.ones(len(self.near.rows))
        steps, sampled = Counter(self.strata), Counter(self.strata[self.near.rows])
        return np.array([steps[name] / sampled[name] for name in self.strata[self.near.rows]])

    def _interval(self, values: Float, steps: Int, weights: Float | None = None) -> Interval:
        """Compute percentiles of the mean over resampled trajectories; undefined for few trajectories."""
        owner = self.data.layout.owner[steps]
        if len(np.unique(owner)) < FEW_TRAJECTORIES:
            return Interval(float("nan"), float("nan"), self.level, "too few trajectories")
        w = np.ones(len(steps)) if weights is None else weights
        total = np.bincount(owner, weights=w * values, minlength=len(self.data))
        number = np.bincount(owner, weights=w, minlength=len(self.data))
        # A resample with an infinite trajectory has an infinite mean; one without it has not.
        infinite = np.isinf(total)
        drawn = self.counts @ number
        sums = np.where(
            self.counts[:, infinite].any(axis=1), np.inf, self.counts @ np.where(infinite, 0.0, total)
        )
        means = sums[drawn > 0] / drawn[drawn > 0]
        ends = [(1 - self.level) / 2, (1 + self.level) / 2]
        low, high = np.quantile(means, ends, method="linear" if np.isfinite(means).all() else "inverted_cdf")
        by = "trajectory" if self.data.layout.cluster is None else "cluster"
        return Interval(float(low), float(high), self.level, f"bootstrap by {by}")


def _sample_log(data: Trajectories, max_steps: int, rng: np.random.Generator) -> tuple[Trajectories, Int]:
    """Sample whole trajectories with about ``max_steps`` steps; return them and their rows in the log."""
    which = data.subsample(max_steps, rng=rng)
    return data.part(which), data.layout.rows_of(which)


def _predict_on(name: str, model: Any, log: Trajectories, kept: Int, data: Trajectories) -> Float:
    """Return probabilities at the rows of the log; a table of the whole data is cut to them."""
    policy = model if hasattr(model, "predict_proba") or hasattr(model, "on") else np.asarray(model)
    if isinstance(policy, np.ndarray) and policy.shape[:1] == (data.n_steps,):
        policy = policy[kept]
    try:
        return target_probabilities(log, policy)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


@contextmanager
def _record_time(seconds: dict[str, float], part: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - started
