"""Figures of an audit: how far the log carries, weights, overlap, actions, other choices, and confounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from caliope._audit._summary import ConfoundingCurve, Overlap
from caliope._conditions import UNMARKED
from caliope._results import Estimate
from caliope.plots._charts import bar_list, grouped_bars
from caliope.plots._figures import (
    COLOURS,
    GREY,
    label_text,
    label_texts,
    own_axis,
    place_legend,
    row_size,
    whole_steps,
)
from caliope.sensitivity import OtherChoice

# The same two colours in every figure.
POLICY, PRACTICE = COLOURS[:2]
_ESTIMATORS = tuple(COLOURS[i] for i in (0, 2, 3, 4))  # not the colour of current practice
_MARKS = ("o", "s", "D", "^", "v", "P")


def weight_means(steps: ArrayLike, mean: ArrayLike, se: ArrayLike, axis: Axes | None = None) -> Axes:
    """Draw the mean weight at every step with two standard errors; it is 1 if the model is right.

    Parameters
    ----------
    steps, mean, se : array-like of shape (T,)
        Numbers of the steps, mean weights and their standard errors.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope import plots
    >>> figure, axes = plots.panels()
    >>> weight_means([1, 2, 3], [1.0, 0.9, 1.2], [0.05, 0.1, 0.3], axes[0, 0]).get_ylabel()
    'mean weight'
    """
    axis = own_axis(axis)
    axis.axhline(1, color=GREY, linewidth=0.8, linestyle="--", zorder=1)
    style = {"color": COLOURS[0], "markersize": 3, "linewidth": 1}
    error = 2 * np.asarray(se, dtype=float)
    axis.errorbar(np.asarray(steps), np.asarray(mean, float), yerr=error, fmt="o-", **style)  # type: ignore[arg-type]
    axis.set(xlabel="step", ylabel="mean weight", ylim=(min(0.0, axis.get_ylim()[0]), None))
    whole_steps(axis)
    return axis


def weight_fan(steps: ArrayLike, levels: Sequence[float], log10: ArrayLike, axis: Axes | None = None) -> Axes:
    """Draw quantiles of the weights over time as nested bands around the median.

    Parameters
    ----------
    steps : array-like of shape (T,)
        Numbers of the steps.
    levels : sequence of float
        Levels of the quantiles, in rising order and symmetric around 0.5.
    log10 : array-like of shape (levels, T)
        Quantiles of the logarithms to base 10; a weight of 0 (-inf) is drawn at the lower edge.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope import plots
    >>> figure, axes = plots.panels()
    >>> axis = weight_fan([1, 2], (0.1, 0.5, 0.9), [[-0.5, -np.inf], [0.0, -0.8], [0.5, 3.0]], axes[0, 0])
    >>> [text.get_text() for text in axis.get_legend().get_texts()]
    ['10 to 90%', 'median']
    """
    own, axis = axis is None, own_axis(axis)
    time, given = np.asarray(steps), np.asarray(log10, dtype=float)
    finite = given[np.isfinite(given)]
    q = np.maximum(given, float(finite.min()) - 0.5 if len(finite) else -1.0)
    for i in range(len(levels) // 2):
        label = f"{100 * levels[i]:g} to {100 * levels[-1 - i]:g}%"
        style = {"color": COLOURS[0], "alpha": 0.2 + 0.15 * i, "linewidth": 0}
        axis.fill_between(time, q[i], q[-1 - i], label=label, **style)  # type: ignore[arg-type]
    if len(levels) % 2:
        middle = q[len(levels) // 2]
        axis.plot(time, middle, "o-", color=COLOURS[0], linewidth=1.5, markersize=2, label="median")
    axis.axhline(0, color=GREY, linewidth=0.8, linestyle="--")
    axis.set(xlabel="step", ylabel="weight, powers of ten")
    whole_steps(axis)
    place_legend(axis, own=own, columns=3)
    return axis


def reach(shares: Sequence[float], rows: Sequence[Estimate], axis: Axes | None = None) -> Axes:
    """Draw the difference from current practice against the share of decisions by the new policy.

    Parameters
    ----------
    shares : sequence of float
        The shares, rising.
    rows : sequence of Estimate
        The difference at each share. Its colour shows the verdict; its interval becomes the band, unless withheld.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope import plots
    >>> from caliope._results import Interval
    >>> figure, axes = plots.panels()
    >>> row = Estimate("share_0.1", "a tenth", 0.2, Interval(0.1, 0.3, 0.95), 100, 90.0)
    >>> reach([0.1], [row], axes[0, 0]).get_xlabel()
    'share of decisions by the new policy'
    """
    own, axis = axis is None, own_axis(axis, width=4.4)
    low, high = ([getattr(row.shown, end) for row in rows] for end in ("low", "high"))
    axis.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    axis.fill_between(shares, low, high, color=COLOURS[0], alpha=0.15, linewidth=0)
    axis.plot(shares, [row.value for row in rows], color=GREY, linewidth=0.8, zorder=2)
    for verdict, (colour, marker) in _VERDICTS.items():
        part = [(share, row.value) for share, row in zip(shares, rows, strict=True) if row.verdict == verdict]
        if part:
            label = UNMARKED if verdict == "trust" else verdict
            axis.plot(*zip(*part, strict=True), marker, color=colour, markersize=5, label=label, zorder=3)
    axis.set(xlabel="share of decisions by the new policy", ylabel="difference from current practice")
    place_legend(axis, own=own, columns=3)
    return axis


# A shape of its own for each verdict: colour alone does not reach every reader.
_VERDICTS = {"trust": (COLOURS[0], "o"), "caution": (COLOURS[1], "s"), "do not trust": (GREY, "x")}


def effective_sizes(steps: ArrayLike, effective: ArrayLike, axis: Axes | None = None) -> Axes:
    """Draw the effective sample size at every step; below 100, the dashed line, intervals are too short.

    Parameters
    ----------
    steps, effective : array-like of shape (T,)
        Numbers of the steps, and effective sample sizes.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> effective_sizes([1, 2, 3], [300, 210, 150]).get_ylabel()
    'effective sample size'
    """
    axis = own_axis(axis)
    axis.plot(
        np.asarray(steps), np.asarray(effective, float), "o-", color=COLOURS[0], markersize=3, linewidth=1
    )
    axis.axhline(100, color=GREY, linewidth=0.8, linestyle="--")
    axis.set(xlabel="step", ylabel="effective sample size", ylim=(0, None))
    whole_steps(axis)
    return axis


def overlap(found: Overlap, axis: Axes | None = None) -> Axes:
    """Draw how much of both policies falls on actions that current practice takes often, seldom or hardly ever.

    Parameters
    ----------
    found : Overlap
        Such as ``audit.summary.overlap``.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> axis = overlap(audit.summary.overlap)  # doctest: +SKIP
    """
    names = overlap_names(found)
    shares = {"new policy": 100 * found.policy, "current practice": 100 * found.practice}
    own, axis = axis is None, grouped_bars(names, shares, axis)
    if not own:
        axis.tick_params(axis="x", rotation=30)
    axis.set(xlabel="how often current practice takes the action", ylabel="% of the decisions")
    return axis


def overlap_names(found: Overlap) -> list[str]:
    """How often practice takes the actions of each bar, in words."""
    return [
        f"{100 * low:g} to {100 * high:g}%" for low, high in zip(found.edges, found.edges[1:], strict=False)
    ]


def action_shares(
    names: Sequence[str], practice: ArrayLike, policy: ArrayLike, axis: Axes | None = None
) -> Axes:
    """Draw how often current practice and the new policy take each action.

    Parameters
    ----------
    names : sequence of str
        Names of the actions.
    practice, policy : array-like of shape (A,)
        Shares of the decisions.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> axis = action_shares(["wait", "treat"], [0.7, 0.3], [0.5, 0.5])
    >>> [label.get_text() for label in axis.get_yticklabels()]
    ['wait', 'treat']
    """
    shares = {
        "new policy": 100 * np.asarray(policy, float),
        "current practice": 100 * np.asarray(practice, float),
    }
    axis = bar_list(shares, axis, names=label_texts(list(names)))
    axis.set(xlabel="% of the decisions")
    return axis


def choices(
    rows: Sequence[OtherChoice],
    axis: Axes | None = None,
    *,
    headline: Estimate | None = None,
    practice: float | None = None,
) -> Axes:
    """Draw the value under other choices: a row per model and treatment of the weights, a mark per estimator.

    Parameters
    ----------
    rows : sequence of OtherChoice
        Such as ``audit.others``; those without a finite value are left out.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    headline : Estimate, optional
        The estimate that the audit answers with; its interval becomes a band, unless withheld.
    practice : float, optional
        The value of current practice, drawn as a line.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> axis = choices(audit.others, headline=audit.headline)  # doctest: +SKIP
    """
    drawn = [row for row in rows if np.isfinite(row.value)]
    places = list(dict.fromkeys((row.model, row.weights) for row in drawn))
    names = label_texts([f"{model}: {weights}" for model, weights in places])
    own, axis = axis is None, own_axis(axis, **row_size([*names, ""]))
    ends = None if headline is None else headline.shown
    if ends is not None and np.isfinite([ends.low, ends.high]).all():
        axis.axvspan(ends.low, ends.high, color=POLICY, alpha=0.12, linewidth=0)
    if practice is not None:
        axis.axvline(practice, color=PRACTICE, linestyle="--", linewidth=0.9, zorder=1)
    for j, name in enumerate(dict.fromkeys(row.estimator for row in drawn)):
        part = [row for row in drawn if row.estimator == name]
        y = [places.index((row.model, row.weights)) for row in part]
        style: dict[str, Any] = {"color": _ESTIMATORS[j % len(_ESTIMATORS)], "markersize": 4.5, "alpha": 0.85}
        axis.plot([row.value for row in part], y, _MARKS[j % len(_MARKS)], label=label_text(name), **style)
    axis.set_yticks(range(len(names)), names)
    axis.set(xlabel="value", ylim=(len(names) - 0.5, -0.5))
    place_legend(axis, own=own)
    return axis


def confounding(
    curve: ConfoundingCurve,
    axis: Axes | None = None,
    *,
    practice: float | None = None,
    breakdown: float | None = None,
) -> Axes:
    """Draw the lowest and highest value if an unmeasured confounder changes weights by up to a factor.

    Parameters
    ----------
    curve : ConfoundingCurve
        Such as ``audit.summary.confounding``.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    practice : float, optional
        The value of current practice, drawn as a line.
    breakdown : float, optional
        The factor from which on both policies cannot be told apart; drawn where it lies on the axis.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> axis = confounding(audit.summary.confounding, practice=0.5)  # doctest: +SKIP
    """
    own, axis = axis is None, own_axis(axis, width=4.6)
    style: dict[str, Any] = {"color": POLICY, "alpha": 0.3, "linewidth": 0}
    axis.fill_between(curve.factor, curve.low, curve.high, label="possible values", **style)
    if practice is not None:
        axis.axhline(practice, color=PRACTICE, linestyle="--", linewidth=1, label="current practice")
    if breakdown is not None and breakdown <= curve.factor[-1]:
        axis.axvline(breakdown, color=COLOURS[3], linewidth=1, label="breakdown point")
    axis.set(xlabel="factor by which weights may be off", ylabel="value")
    place_legend(axis, own=own, columns=3)
    return axis
