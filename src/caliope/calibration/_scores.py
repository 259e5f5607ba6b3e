"""Proper scores, their decomposition, the distance to a known truth, and strata."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from caliope._ragged import Float, Int, at_actions
from caliope._trajectories import Trajectories
from caliope.behaviour._calibrators import Chain, Isotonic, Shrinkage, Temperature, VectorScaling
from caliope.calibration._neighbourhoods import total_variation
from caliope.calibration._null import check_table

# The stratum that is the whole log, and that of steps without a value.
ALL, MISSING = "all", "missing"

# Probabilities (N, A), actions (N,) -> loss of each step (N,).
Loss = Callable[[Float, Int], Float]


def log_loss(table: Float, actions: Int) -> Float:
    r"""Compute the log loss of each step, :math:`-\log \hat\pi(a_t \mid s_t)`; its mean is the NLL.

    Infinite where the model gives a logged action probability 0: no importance weight exists there either.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities.
    actions : (N,)
        Logged actions.

    Returns
    -------
    (N,)
        Loss of each step.

    Examples
    --------
    >>> log_loss(np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([0, 1])).round(3).tolist()
    [0.693, 0.105]
    """
    with np.errstate(divide="ignore"):
        return -np.log(at_actions(table, actions))


def brier_loss(table: Float, actions: Int) -> Float:
    r"""Compute the Brier loss of each step, :math:`\sum_a (\hat\pi(a \mid s_t) - 1\{a = a_t\})^2`.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities.
    actions : (N,)
        Logged actions.

    Returns
    -------
    (N,)
        Loss of each step.

    Examples
    --------
    >>> brier_loss(np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([0, 1])).round(3).tolist()
    [0.5, 0.02]
    """
    return np.asarray(np.vecdot(table, table) - 2 * at_actions(table, actions) + 1)


def marginal_baseline(data: Trajectories) -> Float:
    """Predict the frequency of each action in the other trajectories, whatever the state.

    Parameters
    ----------
    data : Trajectories
        The log.

    Returns
    -------
    (N, A)
        Probabilities at every step.

    Examples
    --------
    >>> data = Trajectories(np.zeros((3, 1)), [0, 1, 1], np.zeros(3), [0, 1, 2, 3])
    >>> marginal_baseline(data)[0].round(3).tolist()
    [0.167, 0.833]
    """
    return _frequencies_of_others(data, np.zeros(data.n_steps, dtype=np.int64))


def repeat_baseline(data: Trajectories) -> Float:
    """Predict how often each action followed the last action in the other trajectories.

    Parameters
    ----------
    data : Trajectories
        The log.

    Returns
    -------
    (N, A)
        Probabilities at every step.

    Examples
    --------
    >>> data = Trajectories(np.zeros((4, 1)), [0, 1, 0, 1], np.zeros(4), [0, 2, 4])
    >>> repeat_baseline(data)[1].tolist()
    [0.25, 0.75]
    """
    last = np.where(data.layout.time > 0, np.roll(data.actions, 1), data.n_actions)
    return _frequencies_of_others(data, last)


def _frequencies_of_others(data: Trajectories, seen: Int) -> Float:
    """Count actions by what was seen, without the own trajectory; one count is spread over all actions."""
    n_actions, kinds = data.n_actions, int(seen.max()) + 1
    total = np.bincount(seen * n_actions + data.actions, minlength=kinds * n_actions).reshape(
        kinds, n_actions
    )
    key, own = np.unique(data.layout.unit_of_step * kinds + seen, return_inverse=True)
    mine = np.bincount(own * n_actions + data.actions, minlength=len(key) * n_actions)
    others = total[seen] - mine.reshape(len(key), n_actions)[own]
    return (others + 1 / n_actions) / (others.sum(axis=1, keepdims=True) + 1)


def skill(loss: float, baseline: float) -> float:
    """Return the share of the baseline's loss that is saved: 1 is perfect, below 0 worse, nan without a baseline."""
    return 1 - loss / baseline if baseline > 0 else float("nan")


@dataclass(frozen=True)
class SplitLoss:
    """A mean loss, split into calibration and refinement.

    Parameters
    ----------
    total : float
        Mean loss.
    refinement : float
        Mean loss after the best recalibration: only a better model could save this part.
    by : str
        Name of that recalibration.

    Examples
    --------
    >>> SplitLoss(1.5, 1.25, "temperature").calibration
    0.25
    """

    total: float
    refinement: float
    by: str

    @property
    def calibration(self) -> float:
        """Loss that the best recalibration saves."""
        return self.total - self.refinement


def split_loss(
    table: Float,
    data: Trajectories,
    loss: Loss = log_loss,
    *,
    max_steps: int = 20_000,
    rng: int | np.random.Generator,
) -> SplitLoss:
    """Split a mean loss into calibration and refinement.

    Several recalibrations are each fitted on one half of the trajectories and scored on the other. The best mean loss,
    or that of no recalibration, is the refinement. When it breaks: with few steps recalibration overfits, and the
    calibration part is too small.

    Parameters
    ----------
    table : (N, A)
        The model's probabilities at every step of the log.
    data : Trajectories
        The log, held out.
    loss : callable
        Loss of each step, from probabilities and actions.
    max_steps : int
        Of a longer log, about this many steps are used for the split; the total is that of all.
    rng : int or Generator
        Seed of the halves.

    Returns
    -------
    SplitLoss
        The total, its refinement, and the best recalibration.

    References
    ----------
    Berta, Bach & Jordan (2025), "Rethinking early stopping: refine, then calibrate".

    Examples
    --------
    >>> from caliope.domains import ward
    >>> data = ward.simulate(100, rng=0)
    >>> truth = ward.PRACTICE[data.states[:, 0].astype(int)]
    >>> overconfident = truth**3 / (truth**3).sum(axis=1, keepdims=True)
    >>> split_loss(overconfident, data, rng=0).by
    'temperature'
    """
    table, rng = check_table(table, data), np.random.default_rng(rng)
    total = float(loss(table, data.actions).mean())
    units = data.layout.n_units
    in_first = np.zeros(units, dtype=bool)
    in_first[rng.permutation(units)[: units // 2]] = True
    side = in_first[data.layout.unit_of_step]
    rows = data.layout.rows_of(np.sort(rng.permutation(len(data))[: data.enough(max_steps)]))
    first, second = rows[side[rows]], rows[~side[rows]]
    if not len(first) or not len(second):
        return SplitLoss(total, total, "nothing")
    actions = data.actions
    plain = _mean_loss(loss, (table[first], actions[first]), (table[second], actions[second]))
    scores = {"nothing": plain}
    for name, calibrator in _recalibrations(zeros=bool((at_actions(table, actions) == 0).any())).items():
        # Each half is recalibrated by what was fitted on the other.
        on_second = calibrator.fit(table[first], actions[first])(table[second])
        on_first = calibrator.fit(table[second], actions[second])(table[first])
        scores[name] = _mean_loss(loss, (on_first, actions[first]), (on_second, actions[second]))
    best = min(scores, key=lambda name: scores[name])
    if not np.isfinite(total):
        return SplitLoss(total, scores[best], best)
    return SplitLoss(total, total - (plain - scores[best]), best)


def _recalibrations(*, zeros: bool) -> dict[str, Chain]:
    # Where a logged action has probability 0 shrinkage comes first: the others need positive probabilities.
    first = (Shrinkage(),) if zeros else ()
    return {
        "shrinkage": Chain((Shrinkage(),)),
        "temperature": Chain((*first, Temperature())),
        "vector scaling": Chain((*first, VectorScaling(tolerance=1e-6))),
        "isotonic regression": Chain((*first, Isotonic())),
    }


def _mean_loss(loss: Loss, *halves: tuple[Float, Int]) -> float:
    return float(np.concatenate([loss(table, actions) for table, actions in halves]).mean())


@dataclass(frozen=True, eq=False)
class DistanceToTruth:
    r"""Distance between a model and the true behaviour policy at every step.

    Parameters
    ----------
    tv : (N,)
        Total variation.
    kl : (N,)
        Kullback-Leibler divergence of the truth relative to the model; infinite where the model gives probability 0.
    at_logged : (N,)
        :math:`|\pi - \hat\pi|` at the logged action: the x axis of the paper's figure 1.
    inflation : (N,)
        :math:`E[\pi / \hat\pi]`, the mean factor by which the step changes a weight; 1 if the model is right.

    Examples
    --------
    >>> one = np.ones(1)
    >>> DistanceToTruth(0.1 * one, 0.02 * one, 0.1 * one, 1.04 * one).tv.tolist()
    [0.1]
    """

    tv: Float
    kl: Float
    at_logged: Float
    inflation: Float


def distance_to_truth(table: Float, truth: Float, actions: Int) -> DistanceToTruth:
    r"""Compare a model with the true behaviour policy at every step.

    :math:`\delta(\pi, \hat\pi)`, :math:`\sum_a \pi \log(\pi / \hat\pi)`, :math:`|\pi - \hat\pi|` at the logged
    action, and :math:`\sum_a \pi^2 / \hat\pi = 1 + \chi^2`, the factor that a weight gains per step on average.

    Parameters
    ----------
    table, truth : (N, A)
        Probabilities of the model and of the true behaviour policy.
    actions : (N,)
        Logged actions.

    Returns
    -------
    DistanceToTruth
        The four distances at every step.

    Examples
    --------
    >>> truth, table = np.array([[0.5, 0.5]]), np.array([[0.75, 0.25]])
    >>> distance_to_truth(table, truth, np.array([0])).tv.tolist()
    [0.25]
    """
    possible = truth > 0
    with np.errstate(divide="ignore"):
        ratio = np.where(possible, truth / np.where(possible, table, 1.0), 1.0)
        kl = (truth * np.log(ratio)).sum(axis=1)
    return DistanceToTruth(
        total_variation(table, truth),
        kl,
        np.abs(at_actions(table, actions) - at_actions(truth, actions)),
        (truth * ratio).sum(axis=1),
    )


def severity_strata(score: ArrayLike, edges: Sequence[float] = (5, 10, 14)) -> Any:
    """Name strata by the range of a score; by default the paper's ranges of severity.

    Parameters
    ----------
    score : (N,)
        Finite score of every step.
    edges : sequence of float
        Rising lower ends of all ranges but the first.

    Returns
    -------
    (N,)
        Names such as ``"5-9"``.

    Examples
    --------
    >>> severity_strata([0, 4.9, 5, 13, 23]).tolist()
    ['0-4', '0-4', '5-9', '10-13', '14+']
    """
    x, cuts = np.asarray(score, dtype=np.float64), np.asarray(edges, dtype=np.float64)
    if x.ndim != 1 or not np.isfinite(x).all():
        raise ValueError(
            "a severity score must be one finite number per step; give steps without one a stratum of their own."
        )
    if not len(cuts) or not np.isfinite(cuts).all() or (np.diff(cuts) <= 0).any():
        raise ValueError(f"edges must be finite numbers that rise, at least one, got {list(edges)}.")
    return np.array(name_ranges(cuts), dtype=object)[np.searchsorted(cuts, x, side="right")]


def name_ranges(cuts: Float, *, counts: bool = True) -> list[str]:
    """Name the ranges between cuts: 5-9 for whole numbers from 0 (``counts``), 2.5 to 5 otherwise."""
    inner = list(pairwise(cuts))
    if counts and (cuts == np.round(cuts)).all() and cuts[0] > 0:
        return [f"0-{cuts[0] - 1:g}", *(f"{a:g}-{b - 1:g}" for a, b in inner), f"{cuts[-1]:g}+"]
    return [f"below {cuts[0]:g}", *(f"{a:g} to {b:g}" for a, b in inner), f"{cuts[-1]:g}+"]


def name_strata(by: ArrayLike | None, data: Trajectories) -> Any:
    """Return the name of the stratum of every step, or None; raise for steps without one."""
    if by is None:
        return None
    labels = np.asarray(by, dtype=object)
    if labels.shape != (data.n_steps,):
        raise ValueError(
            f"by must name a stratum for each of the {data.n_steps} steps, got shape {labels.shape}."
        )
    names = np.array([str(label) for label in labels], dtype=object)
    bad = np.flatnonzero(np.isin(names.astype(str), [ALL, "None", "nan", "NaN", "NaT", ""]))
    if len(bad):
        raise ValueError(
            f"by must name a stratum for every step; step {bad[0]} has {labels[bad[0]]!r} ({ALL!r} is the whole log). "
            "Give steps without one a name of their own."
        )
    return names


def sample_rows(strata: Any, log: Trajectories, n_states: int, rng: np.random.Generator) -> Int:
    """Sample at most ``n_states`` rows of every stratum, without repetition, sorted."""
    labels = np.zeros(log.n_steps) if strata is None else strata
    groups = [np.flatnonzero(labels == name) for name in np.unique(labels)]
    return np.sort(
        np.concatenate([rng.choice(rows, min(n_states, len(rows)), replace=False) for rows in groups])
    )


# A range of numbers, as strata are named: 5-9, 14+, 2.5 to 5, below 3, up to 3, above 3 to 5.
_RANGE = re.compile(r"^(below|up to|above)? ?(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)(?=$|-|\+| to )")


def stratum_key(name: str) -> tuple[Any, ...]:
    """Return the key that sorts strata by the number they begin with, if any; those without a value come last."""
    found = _RANGE.match(str(name))
    if found is None:
        return (2 if name == MISSING else 1, name)
    # What begins with a digit comes before "above" by itself.
    return (0, float(found[2]), found[1] not in ("below", "up to"), name)
