"""Figures of estimates, weights, and the calibration of behaviour models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from caliope._conditions import UNMARKED
from caliope._results import Estimate
from caliope.calibration._reliability import RatioReliability, ReliabilityCurve
from caliope.calibration._result import CalibrationRow
from caliope.calibration._scores import ALL
from caliope.calibration._tests import BalanceTable
from caliope.plots._charts import COLOURS, GREY, grouped_bars


def reliability(curve: ReliabilityCurve, axis: Axes, *, label: str = "", colour: str = COLOURS[0]) -> Axes:
    """Draw observed frequencies against predicted probabilities; a right model lies on the diagonal.

    Parameters
    ----------
    curve : ReliabilityCurve
        From :func:`caliope.calibration.reliability_curve`.
    axis : matplotlib.axes.Axes
        Where to draw.
    label, colour : str
        Entry in the legend, and colour of the curve.

    Returns
    -------
    Axes
        The same axis.

    Examples
    --------
    >>> from caliope import plots
    >>> from caliope.calibration import reliability_curve
    >>> figure, axes = plots.panels()
    >>> curve = reliability_curve(np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 1]), n_bins=2)
    >>> reliability(curve, axes[0, 0]).get_ylabel()
    'observed frequency'
    """
    top = float(max(curve.predicted.max(), curve.observed.max()))
    axis.plot([0, top], [0, top], color=GREY, linewidth=0.8, zorder=1)
    axis.plot(curve.predicted, curve.observed, "o-", color=colour, markersize=3, linewidth=1, label=label)
    axis.set(xlabel="predicted probability", ylabel="observed frequency")
    return axis


def ratio_reliability(
    ratios: RatioReliability, axis: Axes, *, label: str = "", colour: str = COLOURS[0]
) -> Axes:
    """Draw weighted over expected occurrences of actions by importance ratio; they are 1 if the model is right.

    Parameters
    ----------
    ratios : RatioReliability
        From :func:`caliope.calibration.ratio_reliability`; bars are two standard errors.
    axis : matplotlib.axes.Axes
        Where to draw.
    label, colour : str
        Entry in the legend, and colour of the points.

    Returns
    -------
    Axes
        The same axis.

    Examples
    --------
    >>> from caliope import calibration, plots
    >>> from caliope.domains import ward
    >>> data = ward.simulate(50, rng=0)
    >>> ratios = calibration.ratio_reliability(np.full((data.n_steps, 3), 1 / 3), data)
    >>> figure, axes = plots.panels()
    >>> ratio_reliability(ratios, axes[0, 0]).get_xscale()
    'log'
    """
    axis.axhline(1, color=GREY, linewidth=0.8, zorder=1)
    style = {"color": colour, "markersize": 3, "linewidth": 1, "label": label}
    axis.errorbar(ratios.ratio, ratios.observed, yerr=2 * ratios.se, fmt="o", **style)  # type: ignore[arg-type]
    axis.set(xscale="log", xlabel="predicted importance ratio", ylabel="weighted occurrences / expected")
    return axis


def balance(table: BalanceTable, axis: Axes, *, most: int = 25) -> Axes:
    """Draw the correlation of a model's residuals with functions of the state, as z per action and function.

    Parameters
    ----------
    table : BalanceTable
        From :func:`caliope.calibration.balance_table`.
    axis : matplotlib.axes.Axes
        Where to draw; it must belong to a figure, which gets a colour bar.
    most : int
        Number of functions to draw, those with the largest absolute z.

    Returns
    -------
    Axes
        The same axis.

    Examples
    --------
    >>> from caliope import calibration, plots
    >>> from caliope.domains import ward
    >>> data = ward.simulate(50, rng=0)
    >>> table = calibration.balance_table(np.full((data.n_steps, 3), 1 / 3), data, n_draws=20, rng=0)
    >>> figure, axes = plots.panels()
    >>> balance(table, axes[0, 0], most=2).get_ylabel()
    'action'
    """
    order = np.argsort(-np.abs(table.z).max(axis=0), kind="stable")[:most]
    z = table.z[:, order]
    limit = float(max(np.abs(z).max(), 1.0))
    image = axis.imshow(z, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    axis.set_xticks(range(len(order)), [table.functions[i] for i in order], rotation=90, fontsize=6)
    axis.set(ylabel="action", title=f"largest |z| {table.largest.value:.1f}, p = {table.p_value:.3f}")
    _figure_of(axis).colorbar(image, ax=axis, label="z")
    return axis


def paper_distances(rows: Iterable[CalibrationRow], axis: Axes) -> Axes:
    """Draw the total variation of each model per stratum as in Raghu et al. (2018); lines show that of a right model.

    Parameters
    ----------
    rows : iterable of CalibrationRow
        A :class:`caliope.calibration.Comparison`, or some of its rows. Without strata the whole log is drawn.
    axis : matplotlib.axes.Axes
        Where to draw.

    Returns
    -------
    Axes
        The same axis.

    Examples
    --------
    >>> import caliope as cal
    >>> from caliope import calibration, plots
    >>> from caliope.domains import ward
    >>> data, models = ward.simulate(40, rng=0), {"uniform": cal.UniformPolicy(3)}
    >>> rows = calibration.compare_policies(models, data, k=10, n_states=10, n_draws=20, rng=0)
    >>> figure, axes = plots.panels()
    >>> len(paper_distances(rows, axes[0, 0]).patches)
    1
    """
    drawn = list(rows)
    drawn = [row for row in drawn if row.stratum != ALL] or drawn
    strata = list(dict.fromkeys(row.stratum for row in drawn))
    distances = {(row.model, row.stratum): row.measured.paper_tv for row in drawn}
    models = list(dict.fromkeys(row.model for row in drawn))
    values = {name: [distances[name, stratum].value for stratum in strata] for name in models}
    nulls = {name: [distances[name, stratum].null_mean for stratum in strata] for name in models}
    axis = grouped_bars(strata, values, axis, marks=nulls)
    axis.set(xlabel="stratum", ylabel="total variation to the neighbours")
    return axis


def likelihoods(rows: Iterable[CalibrationRow], axis: Axes) -> Axes:
    """Draw the log loss of each model with its confidence interval, in the given order.

    Parameters
    ----------
    rows : iterable of CalibrationRow
        One row per model, such as ``comparison.overall()``; rows without a finite log loss are left out.
    axis : matplotlib.axes.Axes
        Where to draw.

    Returns
    -------
    Axes
        The same axis.

    Examples
    --------
    >>> import caliope as cal
    >>> from caliope import calibration, plots
    >>> from caliope.domains import ward
    >>> data, models = ward.simulate(40, rng=0), {"uniform": cal.UniformPolicy(3)}
    >>> rows = calibration.compare_policies(models, data, k=10, n_states=10, n_draws=20, rng=0)
    >>> figure, axes = plots.panels()
    >>> likelihoods(rows.overall(), axes[0, 0]).get_xlabel()
    'log loss'
    """
    drawn = [row for row in rows if np.isfinite(row.measured.nll)]
    ends = [row.measured.nll_interval for row in drawn]
    _dots([row.model for row in drawn], [row.measured.nll for row in drawn], ends, axis)
    axis.set(xlabel="log loss")
    return axis


def estimates(
    rows: Iterable[Estimate],
    axis: Axes,
    *,
    truth: float | None = None,
    colours: Mapping[str, str] | None = None,
) -> Axes:
    """Draw each estimate with its confidence interval; those not to be trusted are grey, without one.

    Parameters
    ----------
    rows : iterable of Estimate
        The table of :func:`caliope.estimate`, or some of its rows; those without a finite value are left out.
    axis : matplotlib.axes.Axes
        Where to draw.
    truth : float, optional
        The true value, drawn as a line.
    colours : mapping from name to colour, optional
        Colours of single estimates.

    Returns
    -------
    Axes
        The same axis.

    Examples
    --------
    >>> import caliope as cal
    >>> from caliope import plots
    >>> from caliope.domains import ward
    >>> data = ward.simulate(100, rng=0)
    >>> evidence = cal.gather(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"])
    >>> table = cal.estimate(evidence, cal.monte_carlo, cal.wis, n_draws=50, rng=0)
    >>> figure, axes = plots.panels()
    >>> len(estimates(table, axes[0, 0], truth=0.5).lines)
    3
    """
    drawn = [row for row in rows if np.isfinite(row.value)]
    shown = [
        GREY if row.verdict == "do not trust" else (colours or {}).get(row.name, COLOURS[0]) for row in drawn
    ]
    values, ends = [row.value for row in drawn], [row.shown for row in drawn]
    _dots([row.label for row in drawn], values, ends, axis, shown)
    if truth is not None:
        axis.axvline(truth, color=COLOURS[1], linewidth=0.9, linestyle="--", zorder=1)
    axis.set(xlabel="value")
    return axis


def weight_means(steps: ArrayLike, mean: ArrayLike, se: ArrayLike, axis: Axes) -> Axes:
    """Draw the mean weight at every step with two standard errors; it is 1 if the model is right.

    Parameters
    ----------
    steps, mean, se : array-like of shape (T,)
        Numbers of the steps, mean weights and their standard errors.
    axis : matplotlib.axes.Axes
        Where to draw.

    Returns
    -------
    Axes
        The same axis.

    Examples
    --------
    >>> from caliope import plots
    >>> figure, axes = plots.panels()
    >>> weight_means([1, 2, 3], [1.0, 0.9, 1.2], [0.05, 0.1, 0.3], axes[0, 0]).get_ylabel()
    'mean weight'
    """
    axis.axhline(1, color=GREY, linewidth=0.8, linestyle="--", zorder=1)
    style = {"color": COLOURS[0], "markersize": 3, "linewidth": 1}
    error = 2 * np.asarray(se, dtype=float)
    axis.errorbar(np.asarray(steps), np.asarray(mean, float), yerr=error, fmt="o-", **style)  # type: ignore[arg-type]
    axis.set(xlabel="step", ylabel="mean weight", ylim=(min(0.0, axis.get_ylim()[0]), None))
    return axis


def weight_fan(steps: ArrayLike, levels: Sequence[float], log10: ArrayLike, axis: Axes) -> Axes:
    """Draw quantiles of the weights over time as nested bands around the median.

    Parameters
    ----------
    steps : array-like of shape (T,)
        Numbers of the steps.
    levels : sequence of float
        Levels of the quantiles, in rising order and symmetric around 0.5.
    log10 : array-like of shape (levels, T)
        Quantiles of the logarithms to base 10; a weight of 0 (-inf) is drawn at the lower edge.
    axis : matplotlib.axes.Axes
        Where to draw.

    Returns
    -------
    Axes
        The same axis.

    Examples
    --------
    >>> from caliope import plots
    >>> figure, axes = plots.panels()
    >>> axis = weight_fan([1, 2], (0.1, 0.5, 0.9), [[-0.5, -np.inf], [0.0, -0.8], [0.5, 3.0]], axes[0, 0])
    >>> [text.get_text() for text in axis.get_legend().get_texts()]
    ['10 to 90%', 'median']
    """
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
    axis.legend(fontsize=7, frameon=False, loc="best")
    return axis


def _dots(
    names: list[str], values: list[float], ends: list[Any], axis: Axes, colours: Sequence[str] = ()
) -> None:
    for i, (value, interval) in enumerate(zip(values, ends, strict=True)):
        colour = colours[i] if colours else COLOURS[0]
        if np.isfinite([interval.low, interval.high]).all():
            axis.hlines(i, interval.low, interval.high, color=colour, linewidth=2)
        axis.plot(value, i, "o", color=colour, markersize=5)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)


def _figure_of(axis: Axes) -> Figure:
    figure = axis.get_figure(root=True)
    if figure is None:
        raise ValueError("the axis belongs to no figure: make one with panels().")
    return figure


def reach(shares: Sequence[float], rows: Sequence[Estimate], axis: Axes) -> Axes:
    """Draw the difference from current practice against the share of the decisions that follow the new policy.

    Parameters
    ----------
    shares : sequence of float
        The shares, rising.
    rows : sequence of Estimate
        The difference at each share. Its colour shows the verdict; its interval becomes the band, unless withheld.
    axis : matplotlib.axes.Axes
        Where to draw.

    Returns
    -------
    Axes
        The same axis.

    Examples
    --------
    >>> from caliope import plots
    >>> from caliope._results import Interval
    >>> figure, axes = plots.panels()
    >>> row = Estimate("share_0.1", "a tenth", 0.2, Interval(0.1, 0.3, 0.95), 100, 90.0)
    >>> reach([0.1], [row], axes[0, 0]).get_xlabel()
    'share of the decisions that follow the new policy'
    """
    low, high = ([getattr(row.shown, end) for row in rows] for end in ("low", "high"))
    axis.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    axis.fill_between(shares, low, high, color=COLOURS[0], alpha=0.15, linewidth=0)
    axis.plot(shares, [row.value for row in rows], color=GREY, linewidth=0.8, zorder=2)
    for verdict, (colour, marker) in _VERDICTS.items():
        part = [(share, row.value) for share, row in zip(shares, rows, strict=True) if row.verdict == verdict]
        if part:
            label = UNMARKED if verdict == "trust" else verdict
            axis.plot(*zip(*part, strict=True), marker, color=colour, markersize=5, label=label, zorder=3)
    axis.set(
        xlabel="share of the decisions that follow the new policy", ylabel="difference from current practice"
    )
    axis.legend(fontsize=7, frameon=False)
    return axis


# A shape of its own for each verdict: colour alone does not reach every reader.
_VERDICTS = {"trust": (COLOURS[0], "o"), "caution": (COLOURS[1], "s"), "do not trust": (GREY, "x")}
