"""Compare behaviour models: every calibration number for every model and stratum, and which model to take."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope.behaviour import Exact
from caliope.behaviour.search import Search
from caliope.calibration.details import ModelDetails
from caliope.calibration.judging import FEW_TRAJECTORIES, judge, not_held_out, worse_than
from caliope.calibration.kernel import kernel_error
from caliope.calibration.moments import WeightMoments, balance_table, weight_moments
from caliope.calibration.neighbourhoods import Neighbourhoods, neighbourhood_calibration, neighbourhoods
from caliope.calibration.nulls import AgainstNull, check_draws, row_of
from caliope.calibration.reliability import (
    classwise_error,
    ratio_reliability,
    reliability_curve,
    top_label_error,
)
from caliope.calibration.rows import ALL, CalibrationRow, Measured
from caliope.calibration.scores import (
    brier_loss,
    log_loss,
    marginal_baseline,
    repeat_baseline,
    skill,
    split_loss,
)
from caliope.calibration.selection import Choice, choose
from caliope.calibration.strata import in_order, named_strata, sampled_rows
from caliope.calibration.truth import distance_to_truth
from caliope.gathering import gather, target_probabilities
from caliope.policies import SupportError
from caliope.ragged import Float, Int
from caliope.results import Interval, Table
from caliope.trajectories import Trajectories
from caliope.uncertainty import check_level, with_replacement

_LEGEND = (
    "NLL: mean surprise at held-out decisions, less is better; saved: share of the NLL of knowing only how often each "
    "action\nis taken. paper TV: distance to the histogram of neighbours, its null: what it would be if the model were "
    "right. averaged:\ndistance of the model's mean over a neighbourhood to the histogram, above chance. z in standard "
    "deviations of the null.\nMore in to_frame(): calibration errors, balance, kernel error, skill over the last "
    "action, with their nulls."
)


@dataclass(frozen=True)
class Comparison(Table[CalibrationRow]):
    """A table of calibration numbers, a row a model and stratum, with the model that it recommends and why."""

    choice: Choice | None = None
    details: Mapping[str, ModelDetails] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)  # what each part took

    @property
    def recommended(self) -> str:
        """Name of the model to take; empty if there is none."""
        return "" if self.choice is None else self.choice.recommended

    def overall(self) -> Table[CalibrationRow]:
        """The rows of whole models, without strata."""
        return Table(tuple(row for row in self.rows if row.stratum == ALL), self.title)

    def __str__(self) -> str:
        return super().__str__() + f"\n\n{_LEGEND}" + ("" if self.choice is None else f"\n\n{self.choice}")

    def _repr_html_(self) -> str:
        chosen = "" if self.choice is None else f"<pre>{escape(str(self.choice))}</pre>"
        return super()._repr_html_() + chosen

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        chosen = None if self.choice is None else self.choice.to_dict()
        return super().to_dict() | {"choice": chosen, "seconds": dict(self.seconds)}


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
    rng: int | np.random.Generator,
) -> Comparison:
    """Say how well each model predicts decisions that it has not seen, and which of them to use.

    Parameters
    ----------
    models : mapping from name to Policy, FittedBehaviour or array of shape (N, A)
        Fitted on other trajectories than ``data``, or cross-fitted on them; the simpler ones first, for a model
        is preferred to a simpler one only if it is clearly better.
    data : Trajectories
        The held-out log.
    by : array-like of shape (N,), optional
        A stratum for every step, for instance from :func:`severity_strata`.
    truth : Policy or array of shape (N, A), optional
        The policy that acted, where a simulator knows it.
    target : Policy or array of shape (N, A), optional
        The evaluation policy, for the reliability of its importance ratios; otherwise all actions count alike.
    k, n_states, feature_weights, search
        The paper's metric: neighbours, sampled states in every stratum, weights of the kernel and engine.
    n_draws : int
        Imagined logs for every null, and bootstrap draws for the intervals.
    level : float
        Of the intervals, which are percentiles over resampled trajectories; the model is held fixed.
    max_steps : int
        Of a longer log whole trajectories are sampled; the title says so.
    rng : int or Generator
        Seed.

    Returns
    -------
    Comparison
        A table with a row a model for the whole log and one for each stratum. Printed are the main numbers;
        ``to_frame()`` has all, ``details`` the curves behind them, ``choice`` the recommendation. Findings: K101 a
        logged action ruled out, K102 few states, K103 rejected by neighbourhoods, K104 constant, K105 unbalanced,
        K106 rejected by the kernel test, K107 judged on what it was fitted on, K108 recalibration would help, K109
        ratios off, K110 closer than chance.

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
    strata = named_strata(by, data)
    log, kept = _part_of(data, max_steps, rng)
    with _timed(seconds, "predictions"):
        tables = {name: _on(f"model {name!r}", model, log, kept, data) for name, model in models.items()}
        acted = None if truth is None else _on("truth", truth, log, kept, data)
        wanted = None if target is None else _on("target", target, log, kept, data)
    strata = None if strata is None else strata[kept]
    with _timed(seconds, "neighbour search"):
        near = neighbourhoods(
            log, sampled_rows(strata, log, n_states, rng), k=k, feature_weights=feature_weights, search=search
        )
    study = _Study(
        log,
        strata,
        near,
        acted,
        wanted,
        with_replacement(len(log), len(log), n_draws, rng),
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
    remembered = {name: not_held_out(models[name], log) for name in models}
    rows = {name: study.rows(name, found, remembered[name]) for name, found in details.items()}
    losses = {name: log.layout.sum_steps(log_loss(table, log.actions)) for name, table in tables.items()}
    paper = {name: found.near.paper_metric(study.shares()).value for name, found in details.items()}
    barred = tuple(name for name, caveats in remembered.items() if caveats)
    choice = choose(losses, log.lengths, paper, barred=barred)
    title = (
        f"Behaviour models on {len(log)} trajectories, {log.n_steps} steps; {near.k} neighbours of {len(near.rows)} "
        "states"
    )
    if len(log) < len(data):
        title += f" (sampled from {len(data)} trajectories)"
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
    """What is the same for every model: the log, its strata, the neighbourhoods, the draws."""

    data: Trajectories
    strata: Any  # (N,), or None
    near: Neighbourhoods
    acted: Float | None
    wanted: Float | None
    counts: Float  # (R, n), how often each trajectory occurs in each resample
    baselines: dict[str, Float]  # loss of each step, (N,)
    level: float
    feature_weights: ArrayLike | None
    rng: np.random.Generator
    seconds: dict[str, float]

    def details(self, table: Float) -> ModelDetails:
        data, actions, rng, draws = self.data, self.data.actions, self.rng, len(self.counts)
        with _timed(self.seconds, "neighbourhoods and null"):
            near = neighbourhood_calibration(table, self.near, n_draws=draws, rng=rng)
        with _timed(self.seconds, "reliability"):
            curve, ratios = reliability_curve(table, actions), ratio_reliability(table, data, self.wanted)
            top = top_label_error(table, actions, n_draws=draws, rng=rng)
            every = classwise_error(table, actions, n_draws=draws, rng=rng)
        with _timed(self.seconds, "balance"):
            balance = balance_table(table, data, strata=self.strata, n_draws=100, rng=rng)
        with _timed(self.seconds, "recalibration"):
            split = split_loss(table, data, rng=rng)
        truth = None if self.acted is None else distance_to_truth(table, self.acted, actions)
        weights = self._weight_moments(table)
        return ModelDetails(table, near, curve, ratios, balance, top, every, split, weights, truth)

    def _weight_moments(self, table: Float) -> WeightMoments | None:
        if self.wanted is None:
            return None
        try:
            return weight_moments(
                gather(self.data, self.wanted, table), n_draws=len(self.counts), rng=self.rng
            )
        except SupportError:
            return None

    def rows(self, name: str, found: ModelDetails, caveats: Any) -> list[CalibrationRow]:
        with _timed(self.seconds, "kernel error"):
            skce = kernel_error(
                found.table,
                self.data,
                feature_weights=self.feature_weights,
                n_draws=max(len(self.counts), 100),
                rng=self.rng,
            )
        with _timed(self.seconds, "intervals"):
            whole = self._measured(found, np.arange(self.data.n_steps), np.arange(len(self.near.rows)), skce)
            rows = [CalibrationRow(name, ALL, whole, (*judge(found, whole), *caveats))]
            for stratum in (
                [] if self.strata is None else list(dict.fromkeys(sorted(self.strata, key=in_order)))
            ):
                steps = np.flatnonzero(self.strata == stratum)
                states = np.flatnonzero(self.strata[self.near.rows] == stratum)
                part = self._measured(found, steps, states, None)
                new = worse_than(rows[0].findings, judge(found, part, whole=False))
                rows.append(CalibrationRow(name, str(stratum), part, new))
        return rows

    def _measured(self, found: ModelDetails, steps: Int, states: Any, skce: AgainstNull | None) -> Measured:
        data, table = self.data, found.table[steps]
        actions = data.actions[steps]
        nll, brier = log_loss(table, actions), brier_loss(table, actions)
        shares = np.zeros(len(self.near.rows))
        shares[states] = self.shares()[states]
        paper, averaged = found.near.paper_metric(shares), found.near.averaged_metric(shares)
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
            zero_share=float((row_of(table, actions) == 0).mean()),
            paper_tv=paper,
            paper_interval=self._interval(found.near.paper[states], self.near.rows[states], shares[states]),
            noise_floor=float(shares @ found.near.noise / shares.sum()),
            averaged_tv=averaged,
            averaged_interval=self._interval(
                found.near.averaged[states], self.near.rows[states], shares[states]
            ),
            averaged_floor=float(shares @ found.near.floor / shares.sum()),
            calibration_loss=found.nll_split.calibration if whole else None,
            recalibration=found.nll_split.by if whole else "",
            top_label=found.top_label if whole else None,
            classwise=found.classwise if whole else None,
            balance=found.balance.largest if whole else None,
            balance_signs_p=found.balance.signs_p if whole else None,
            weights=found.weights.largest if whole and found.weights is not None else None,
            kernel=skce,
            true_tv=None if found.truth is None else float(found.truth.tv[steps].mean()),
            true_tv_interval=None if found.truth is None else self._interval(found.truth.tv[steps], steps),
            true_kl=None if found.truth is None else float(found.truth.kl[steps].mean()),
            true_at_logged=None if found.truth is None else float(found.truth.at_logged[steps].mean()),
            inflation=None if found.truth is None else float(found.truth.inflation[steps].mean()),
        )

    def shares(self) -> Float:
        """How many steps each sampled state stands for: strata are sampled alike, and are not alike in size, (M,)."""
        if self.strata is None:
            return np.ones(len(self.near.rows))
        steps, sampled = Counter(self.strata), Counter(self.strata[self.near.rows])
        return np.array([steps[name] / sampled[name] for name in self.strata[self.near.rows]])

    def _interval(self, values: Float, steps: Int, weights: Float | None = None) -> Interval:
        """Percentiles of the mean over resampled trajectories; unknown for a few of them."""
        owner = self.data.layout.owner[steps]
        if len(np.unique(owner)) < FEW_TRAJECTORIES:
            return Interval(float("nan"), float("nan"), self.level, "too few trajectories")
        w = np.ones(len(steps)) if weights is None else weights
        total = np.bincount(owner, weights=w * values, minlength=len(self.data))
        number = np.bincount(owner, weights=w, minlength=len(self.data))
        certain = np.isinf(
            total
        )  # a resample with such a trajectory has an infinite mean, one without it has not
        drawn = self.counts @ number
        sums = np.where(
            self.counts[:, certain].any(axis=1), np.inf, self.counts @ np.where(certain, 0.0, total)
        )
        means = sums[drawn > 0] / drawn[drawn > 0]
        ends = [(1 - self.level) / 2, (1 + self.level) / 2]
        low, high = np.quantile(means, ends, method="linear" if np.isfinite(means).all() else "inverted_cdf")
        return Interval(float(low), float(high), self.level, "bootstrap by trajectory")


def _part_of(data: Trajectories, max_steps: int, rng: np.random.Generator) -> tuple[Trajectories, Int]:
    """Whole trajectories with about ``max_steps`` steps, and the rows that they had."""
    which = data.sampled(max_steps, rng=rng)
    return data.part(which), data.layout.rows_of(which)


def _on(name: str, model: Any, log: Trajectories, kept: Int, data: Trajectories) -> Float:
    """Probabilities at the rows of the log; a table of the whole data is cut to them."""
    given = model if hasattr(model, "predict_proba") or hasattr(model, "on") else np.asarray(model)
    if isinstance(given, np.ndarray) and given.shape[:1] == (data.n_steps,):
        given = given[kept]
    try:
        return target_probabilities(log, given)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[part] = seconds.get(part, 0.0) + time.perf_counter() - started
