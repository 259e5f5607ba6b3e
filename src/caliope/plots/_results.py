"""Figures of estimates, weights, and the calibration of behaviour models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from caliope._results import Estimate
from caliope.calibration._reliability import RatioReliability, ReliabilityCurve
from caliope.calibration._result import CalibrationRow
from caliope.calibration._scores import ALL
from caliope.calibration._tests import BalanceTable
from caliope.plots._charts import grouped_bars
from caliope.plots._figures import (
    COLOURS,
    GREY,
    figure_of,
    label_texts,
    own_axis,
    plain_ticks,
    row_size,
    width_of,
)


def reliability(
    curve: ReliabilityCurve, axis: Axes | None = None, *, label: str = "", colour: str = COLOURS[0]
) -> Axes:
    """Draw observed frequencies against predicted probabilities; a right model lies on the diagonal.

    Parameters
    ----------
    curve : ReliabilityCurve
        From :func:`caliope.calibration.reliability_curve`.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    label, colour : str
        Entry in the legend, and colour of the curve.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope import plots
    >>> from caliope.calibration import reliability_curve
    >>> figure, axes = plots.panels()
    >>> curve = reliability_curve(np.array([[0.8, 0.2], [0.4, 0.6]]), np.array([0, 1]), n_bins=2)
    >>> reliability(curve, axes[0, 0]).get_ylabel()
    'observed frequency'
    """
    axis = own_axis(axis)
    top = float(max(curve.predicted.max(), curve.observed.max()))
    axis.plot([0, top], [0, top], color=GREY, linewidth=0.8, zorder=1)
    axis.plot(curve.predicted, curve.observed, "o-", color=colour, markersize=3, linewidth=1, label=label)
    axis.set(xlabel="predicted probability", ylabel="observed frequency")
    return axis


def ratio_reliability(
    ratios: RatioReliability, axis: Axes | None = None, *, label: str = "", colour: str = COLOURS[0]
) -> Axes:
    """Draw weighted over expected occurrences of actions by importance ratio; they are 1 if the model is right.

    Parameters
    ----------
    ratios : RatioReliability
        From :func:`caliope.calibration.ratio_reliability`; bars are two standard errors.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    label, colour : str
        Entry in the legend, and colour of the points.

    Returns
    -------
    Axes
        The axis.

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
    axis = own_axis(axis)
    axis.axhline(1, color=GREY, linewidth=0.8, zorder=1)
    style = {"color": colour, "markersize": 3, "linewidth": 1, "label": label}
    axis.errorbar(ratios.ratio, ratios.observed, yerr=2 * ratios.se, fmt="o", **style)  # type: ignore[arg-type]
    axis.set(xscale="log", xlabel="predicted importance ratio", ylabel="weighted occurrences / expected")
    if len(ratios.ratio):
        plain_ticks(axis, float(ratios.ratio.min()), float(ratios.ratio.max()))
    return axis


def balance(table: BalanceTable, axis: Axes | None = None, *, most: int = 25) -> Axes:
    """Draw the correlation of a model's residuals with functions of the state, as z per action and function.

    Parameters
    ----------
    table : BalanceTable
        From :func:`caliope.calibration.balance_table`.
    axis : matplotlib.axes.Axes, optional
        Where to draw, in a figure that gets a colour bar; by default a figure of its own.
    most : int
        Number of functions to draw, those with the largest absolute z.

    Returns
    -------
    Axes
        The axis.

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
    z, names = table.z[:, order], [table.functions[i] for i in order]
    axis = own_axis(axis, width=2.2 + 0.2 * len(order), height=1.2 + 0.25 * len(z) + width_of(names))
    limit = float(max(np.abs(z).max(), 1.0))
    image = axis.imshow(z, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    axis.set_xticks(range(len(order)), label_texts(names), rotation=90, fontsize=7)
    axis.set_yticks(range(len(z)))
    axis.set(ylabel="action", title=f"largest |z| {table.largest.value:.1f}, p = {table.p_value:.3f}")
    figure_of(axis).colorbar(image, ax=axis, label="z")
    return axis


def paper_distances(rows: Iterable[CalibrationRow], axis: Axes | None = None) -> Axes:
    """Draw the total variation of each model per stratum as in Raghu et al. (2018); lines show that of a right model.

    Parameters
    ----------
    rows : iterable of CalibrationRow
        A :class:`caliope.calibration.Comparison`, or some of its rows. Without strata the whole log is drawn.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    Axes
        The axis.

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


def likelihoods(rows: Iterable[CalibrationRow], axis: Axes | None = None) -> Axes:
    """Draw the log loss of each model with its confidence interval, in the given order.

    Parameters
    ----------
    rows : iterable of CalibrationRow
        One row per model, such as ``comparison.overall()``; rows without a finite log loss are left out.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    Axes
        The axis.

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
    axis = own_axis(axis, **row_size([row.model for row in drawn]))
    _dots([row.model for row in drawn], [row.measured.nll for row in drawn], ends, axis)
    axis.set(xlabel="log loss")
    return axis


def estimates(
    rows: Iterable[Estimate],
    axis: Axes | None = None,
    *,
    truth: float | None = None,
    colours: Mapping[str, str] | None = None,
    differences: bool = False,
) -> Axes:
    """Draw each estimate with its confidence interval; those not to be trusted are grey, without one.

    Values and differences are never drawn on one axis.

    Parameters
    ----------
    rows : iterable of Estimate
        The table of :func:`caliope.estimate`, or some of its rows; those without a finite value are left out.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    truth : float, optional
        The true value, drawn as a line.
    colours : mapping from name to colour, optional
        Colours of single estimates.
    differences : bool
        Whether to draw the differences from current practice instead of the values, where there are both.

    Returns
    -------
    Axes
        The axis.

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
    drawn, about = _of_one_kind([row for row in rows if np.isfinite(row.value)], differences)
    axis = own_axis(axis, **row_size([row.label for row in drawn]))
    shown = [
        GREY if row.verdict == "do not trust" else (colours or {}).get(row.name, COLOURS[0]) for row in drawn
    ]
    values, ends = [row.value for row in drawn], [row.shown for row in drawn]
    _dots([row.label for row in drawn], values, ends, axis, shown)
    if truth is not None:
        axis.axvline(truth, color=COLOURS[1], linewidth=0.9, linestyle="--", zorder=1)
    if about != "value":
        axis.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    axis.set(xlabel=about)
    return axis


def _of_one_kind(rows: list[Estimate], differences: bool) -> tuple[list[Estimate], str]:
    """Values or differences among estimates, and what their axis shows; the only kind where there is one."""
    gains = [row for row in rows if row.name.startswith("difference_")]
    values = [row for row in rows if not row.name.startswith("difference_")]
    if gains and (differences or not values):
        return gains, "difference from current practice"
    return values, "value"


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
