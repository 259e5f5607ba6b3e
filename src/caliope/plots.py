"""Results as pictures: each function draws a result on an axis and computes no number of its own.

The only module that imports matplotlib (extra ``report``). There is no global state: make a figure with
:func:`panels`, draw on its axes, and write it with :func:`svg`, whose bytes depend on what is drawn alone.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from caliope.calibration import (
    BalanceTable,
    CalibrationRow,
    Comparison,
    RatioReliability,
    ReliabilityCurve,
    WeightMoments,
)
from caliope.calibration.rows import ALL
from caliope.results import Estimate, Table

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
_STYLE = {"font.size": 9, "axes.titlesize": 10, "svg.hashsalt": "caliope", "svg.fonttype": "none"}


def panels(rows: int = 1, columns: int = 1, *, width: float = 4.0, height: float = 3.2) -> tuple[Figure, Any]:
    """Make a figure with a grid of axes; sizes in inches, of each panel. The axes come as an array (rows, columns)."""
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def svg(figure: Figure) -> str:
    """The figure as SVG; the same picture has the same bytes."""
    text = io.StringIO()
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def reliability(curve: ReliabilityCurve, axis: Axes, *, label: str = "", colour: str = COLOURS[0]) -> Axes:
    """What was predicted against what happened; a model that is right lies on the diagonal."""
    top = float(max(curve.predicted.max(), curve.observed.max()))
    axis.plot([0, top], [0, top], color="#999999", linewidth=0.8, zorder=1)
    axis.plot(curve.predicted, curve.observed, "o-", color=colour, markersize=3, linewidth=1, label=label)
    axis.set(xlabel="predicted probability", ylabel="how often it was done")
    return axis


def ratio_reliability(
    found: RatioReliability, axis: Axes, *, label: str = "", colour: str = COLOURS[0]
) -> Axes:
    """Weighted occurrences of actions by their importance ratio, with two standard errors; 1 if the model is right."""
    axis.axhline(1, color="#999999", linewidth=0.8, zorder=1)
    style = {"color": colour, "markersize": 3, "linewidth": 1, "label": label}
    axis.errorbar(found.ratio, found.observed, yerr=2 * found.se, fmt="o", **style)  # type: ignore[arg-type]
    axis.set(xscale="log", xlabel="predicted importance ratio", ylabel="weighted occurrences / expected")
    return axis


def balance(table: BalanceTable, axis: Axes, *, most: int = 25) -> Axes:
    """Which errors the state foretells: z of each action with the functions that have the largest ones."""
    order = np.argsort(-np.abs(table.z).max(axis=0), kind="stable")[:most]
    z = table.z[:, order]
    limit = float(max(np.abs(z).max(), 1.0))
    image = axis.imshow(z, cmap="RdBu_r", vmin=-limit, vmax=limit, aspect="auto")
    axis.set_xticks(range(len(order)), [table.functions[i] for i in order], rotation=90, fontsize=6)
    axis.set(ylabel="action", title=f"largest |z| {table.largest.value:.1f}, p = {table.p_value:.3f}")
    _figure_of(axis).colorbar(image, ax=axis, label="z")
    return axis


def paper_distances(comparison: Comparison, axis: Axes) -> Axes:
    """The paper's total variation of each model in each stratum, and what it would be if the model were right."""
    rows = _by_model(comparison)
    strata = [row.stratum for row in next(iter(rows.values()))]
    values = {name: [row.measured.paper_tv.value for row in each] for name, each in rows.items()}
    nulls = {name: [row.measured.paper_tv.null_mean for row in each] for name, each in rows.items()}
    axis = grouped_bars(strata, values, axis, marks=nulls)
    axis.set(xlabel="stratum", ylabel="total variation to the neighbours")
    return axis


def grouped_bars(
    groups: Sequence[str],
    values: Mapping[str, ArrayLike],
    axis: Axes,
    *,
    marks: Mapping[str, ArrayLike] | None = None,
    spread: Mapping[str, ArrayLike] | None = None,
) -> Axes:
    """A bar for each name in each group; ``marks`` are drawn as black lines across the bars."""
    width = 0.8 / len(values)
    for i, (name, heights) in enumerate(values.items()):
        x = np.arange(len(groups)) + (i - (len(values) - 1) / 2) * width
        error = None if spread is None else np.asarray(spread[name], dtype=float)
        style = {"color": COLOURS[i % len(COLOURS)], "label": name}
        axis.bar(x, np.asarray(heights, float), width * 0.9, yerr=error, error_kw={"linewidth": 0.8}, **style)  # type: ignore[arg-type]
        if marks is not None:
            axis.hlines(np.asarray(marks[name], float), x - width * 0.45, x + width * 0.45, color="black")
    axis.set_xticks(range(len(groups)), groups)
    axis.margins(y=0.3)  # room for the legend
    axis.legend(fontsize=7, frameon=False, loc="upper left", ncols=3)
    return axis


def likelihoods(comparison: Comparison, axis: Axes) -> Axes:
    """Negative log-likelihood of each model with its interval, the best on top; models without one are left out."""
    rows = [row for row in comparison.overall() if np.isfinite(row.measured.nll)]
    ends = [row.measured.nll_interval for row in rows]
    _dots([row.model for row in rows], [row.measured.nll for row in rows], ends, axis)
    axis.set(xlabel="mean negative log-likelihood")
    return axis


def estimates(table: Table[Estimate], axis: Axes, *, truth: float | None = None) -> Axes:
    """Each estimate with its interval; those not to be trusted in grey."""
    rows = [row for row in table if np.isfinite(row.value)]
    grey = [row.verdict == "do not trust" for row in rows]
    _dots(
        [row.label for row in rows], [row.value for row in rows], [row.interval for row in rows], axis, grey
    )
    if truth is not None:
        axis.axvline(truth, color=COLOURS[1], linewidth=0.8, zorder=1)
    axis.set(xlabel="value")
    return axis


def weight_means(found: WeightMoments, axis: Axes) -> Axes:
    """Mean weight at every step with two standard errors; 1 if the model is right."""
    time = np.arange(len(found.mean))
    axis.axhline(1, color="#999999", linewidth=0.8, zorder=1)
    axis.errorbar(time, found.mean, yerr=2 * found.se, fmt="o-", color=COLOURS[0], markersize=3, linewidth=1)
    axis.set(xlabel="step", ylabel="mean weight")
    return axis


def weight_fan(levels: Sequence[float], quantiles: ArrayLike, axis: Axes) -> Axes:
    """Quantiles of the weights (levels, steps) over time, as nested bands around the median.

    ``levels`` rise and lie symmetrically around 0.5.
    """
    q = np.asarray(quantiles, dtype=float)
    time = np.arange(q.shape[1])
    for i in range(len(levels) // 2):
        label = f"{100 * levels[i]:g} to {100 * levels[-1 - i]:g}%"
        axis.fill_between(time, q[i], q[-1 - i], color=COLOURS[0], alpha=0.2, linewidth=0, label=label)
    if len(levels) % 2:
        axis.plot(time, q[len(levels) // 2], color=COLOURS[0], linewidth=1, label="median")
    axis.set(xlabel="step", ylabel="weight", yscale="log")
    axis.legend(fontsize=7, frameon=False)
    return axis


def action_map(
    probabilities: ArrayLike, axis: Axes, *, shape: tuple[int, int] = (5, 5), top: float = 1.0
) -> Axes:
    """Probabilities of doses of two drugs: fluids upwards, vasopressors to the right; ``top`` is the darkest."""
    table = np.asarray(probabilities, dtype=float).reshape(shape)
    axis.imshow(table, cmap="Blues", vmin=0, vmax=top, origin="lower")
    for i, j in np.ndindex(*shape):
        if table[i, j] >= 0.005:
            colour = "white" if table[i, j] > 0.6 * top else "black"
            axis.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", fontsize=6, color=colour)
    axis.set_xticks(range(shape[1]))
    axis.set_yticks(range(shape[0]))
    axis.set(xlabel="vasopressors", ylabel="fluids")
    return axis


def points(
    x: ArrayLike,
    y: ArrayLike,
    axis: Axes,
    *,
    spread: ArrayLike | None = None,
    label: str = "",
    colour: str = COLOURS[0],
) -> Axes:
    """Points with their standard deviations."""
    style = {"color": colour, "markersize": 4, "linewidth": 0.8, "capsize": 2, "label": label}
    axis.errorbar(np.asarray(x, float), np.asarray(y, float), yerr=spread, fmt="o", **style)  # type: ignore[arg-type]
    return axis


def cells(rows: Sequence[str], columns: Sequence[str], values: ArrayLike, axis: Axes) -> Axes:
    """Numbers from -1 to 1 as coloured cells, written out; missing ones are left blank."""
    table = np.asarray(values, dtype=float)
    axis.imshow(table, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for i, j in np.ndindex(*table.shape):
        if np.isfinite(table[i, j]):
            colour = "white" if abs(table[i, j]) > 0.7 else "black"
            axis.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", fontsize=7, color=colour)
    axis.set_xticks(range(len(columns)), columns, rotation=30, ha="right", fontsize=7)
    axis.set_yticks(range(len(rows)), rows, fontsize=7)
    return axis


def _dots(
    names: list[str], values: list[float], ends: list[Any], axis: Axes, grey: Sequence[bool] = ()
) -> None:
    for i, (value, interval) in enumerate(zip(values, ends, strict=True)):
        colour = COLOURS[7] if grey and grey[i] else COLOURS[0]
        axis.hlines(i, interval.low, interval.high, color=colour, linewidth=1.5)
        axis.plot(value, i, "o", color=colour, markersize=4)
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)


def _by_model(comparison: Comparison) -> dict[str, list[CalibrationRow]]:
    """The rows of each model: its strata, or the whole log where there are none."""
    names = list(dict.fromkeys(row.model for row in comparison))
    rows = {name: [row for row in comparison if row.model == name] for name in names}
    return {name: [row for row in each if row.stratum != ALL] or each for name, each in rows.items()}


def _figure_of(axis: Axes) -> Figure:
    figure = axis.get_figure(root=True)
    if figure is None:
        raise ValueError("the axis belongs to no figure: make one with panels().")
    return figure
