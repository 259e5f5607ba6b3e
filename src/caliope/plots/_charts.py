"""Charts of plain numbers: bars, points, cells and maps of actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from caliope.plots._figures import COLOURS, figure_of, label_texts, own_axis, place_legend, row_size, width_of


def grouped_bars(
    groups: Sequence[str],
    values: Mapping[str, ArrayLike],
    axis: Axes | None = None,
    *,
    marks: Mapping[str, ArrayLike] | None = None,
    spread: Mapping[str, ArrayLike] | None = None,
) -> Axes:
    """Draw one bar per name in each group.

    Parameters
    ----------
    groups : sequence of str
        Labels of the groups.
    values : mapping from name to array-like of shape (groups,)
        Heights of the bars; one colour per name.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    marks : mapping from name to array-like, optional
        Heights of black lines across the bars.
    spread : mapping from name to array-like, optional
        Half lengths of the error bars.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope.plots import panels
    >>> figure, axes = panels()
    >>> axis = grouped_bars(["low", "high"], {"old": [0.2, 0.4], "new": [0.3, 0.1]}, axes[0, 0])
    >>> [float(bar.get_height()) for bar in axis.patches]
    [0.2, 0.4, 0.3, 0.1]
    """
    own, slanted = axis is None, max(map(len, groups), default=0) > 8
    room = max(1.2 + len(groups) * max(0.5, 0.16 * len(values)), 0.9 + width_of([*values]))
    axis = own_axis(axis, width=room, height=3.2 + 0.2 * len(values))
    width = 0.8 / len(values)
    for i, (name, heights) in enumerate(values.items()):
        x = np.arange(len(groups)) + (i - (len(values) - 1) / 2) * width
        error = None if spread is None else np.asarray(spread[name], dtype=float)
        style = {"color": COLOURS[i % len(COLOURS)], "label": name}
        axis.bar(x, np.asarray(heights, float), width * 0.9, yerr=error, error_kw={"linewidth": 0.8}, **style)  # type: ignore[arg-type]
        if marks is not None:
            axis.hlines(np.asarray(marks[name], float), x - width * 0.45, x + width * 0.45, color="black")
    axis.set_xticks(range(len(groups)), groups)
    if own:
        slant = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if slanted else {}
        axis.set_xticks(range(len(groups)), label_texts(groups, 24), **slant)  # type: ignore[arg-type]
        place_legend(axis, own=True)
    else:
        # Leaves room for the legend.
        axis.margins(y=0.3)
        axis.legend(fontsize=7, frameon=False, loc="upper left", ncols=3)
    return axis


def bar_list(
    values: Mapping[str, ArrayLike], axis: Axes | None = None, *, names: Sequence[str] | None = None
) -> Axes:
    """Draw one row of horizontal bars per entry, the first entry on top.

    Parameters
    ----------
    values : mapping from name to array-like of shape (entries,)
        Lengths of the bars; one colour per name.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    names : sequence of str, optional
        Names of the entries; by default their numbers, and none on an axis that was given.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope.plots import panels
    >>> figure, axes = panels()
    >>> axis = bar_list({"new policy": [60, 40], "current practice": [90, 10]}, axes[0, 0])
    >>> [float(bar.get_width()) for bar in axis.patches]
    [60.0, 40.0, 90.0, 10.0]
    """
    own, size = axis is None, max(np.size(lengths) for lengths in values.values())
    shown = [str(i) for i in range(size)] if names is None else list(names)
    axis = own_axis(axis, **row_size([*shown, ""]))
    width = 0.5 / len(values)
    for i, (name, lengths) in enumerate(values.items()):
        y = np.arange(np.size(lengths)) + i * width
        axis.barh(y, np.asarray(lengths, float), width * 0.9, color=COLOURS[i % len(COLOURS)], label=name)
    if own:
        axis.set_ylim(size - 0.4, -0.4)
        place_legend(axis, own=True, columns=2)
    if own or names is not None:
        axis.set_yticks(np.arange(size) + 0.25 - width / 2, shown)
    return axis


def points(
    x: ArrayLike,
    y: ArrayLike,
    axis: Axes | None = None,
    *,
    spread: ArrayLike | None = None,
    label: str = "",
    colour: str = COLOURS[0],
) -> Axes:
    """Draw points with error bars.

    Parameters
    ----------
    x, y : array-like of shape (n,)
        Coordinates.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    spread : array-like of shape (n,), optional
        Half lengths of the error bars.
    label, colour : str
        Entry in the legend, and colour of the points.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope.plots import panels
    >>> figure, axes = panels()
    >>> points([1, 2], [3.0, 4.0], axes[0, 0], spread=[0.5, 0.2]) is axes[0, 0]
    True
    """
    axis = own_axis(axis)
    style = {"color": colour, "markersize": 4, "linewidth": 0.8, "capsize": 2, "label": label}
    axis.errorbar(np.asarray(x, float), np.asarray(y, float), yerr=spread, fmt="o", **style)  # type: ignore[arg-type]
    return axis


def cells(rows: Sequence[str], columns: Sequence[str], values: ArrayLike, axis: Axes | None = None) -> Axes:
    """Draw numbers from -1 to 1 as coloured cells with their values; missing numbers are left blank.

    Parameters
    ----------
    rows, columns : sequence of str
        Labels.
    values : array-like of shape (rows, columns)
        The numbers.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope.plots import panels
    >>> figure, axes = panels()
    >>> axis = cells(["a"], ["x", "y"], [[0.5, np.nan]], axes[0, 0])
    >>> [text.get_text() for text in axis.texts]
    ['0.50']
    """
    table = np.asarray(values, dtype=float)
    room = 1.0 + width_of(rows), 0.8 + 0.7 * width_of(columns)
    axis = own_axis(axis, width=room[0] + 0.45 * len(columns), height=room[1] + 0.3 * len(rows))
    axis.imshow(table, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for i, j in np.ndindex(*table.shape):
        if np.isfinite(table[i, j]):
            colour = "white" if abs(table[i, j]) > 0.7 else "black"
            axis.text(j, i, f"{table[i, j]:.2f}", ha="center", va="center", fontsize=7, color=colour)
    axis.set_xticks(range(len(columns)), columns, rotation=30, ha="right", fontsize=7)
    axis.set_yticks(range(len(rows)), rows, fontsize=7)
    return axis


def action_map(
    table: ArrayLike,
    axis: Axes | None = None,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    limits: tuple[float, float] = (0.0, 1.0),
    colours: str = "Blues",
    text: str = "{:.2f}",
    smallest: float = 0.0,
) -> Axes:
    """Draw shares of actions that combine two factors, the first upwards and the second to the right.

    Parameters
    ----------
    table : array-like of shape (rows, columns)
        The shares.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    rows, columns : sequence of str, optional
        Names of the levels of the first and of the second factor.
    limits : (float, float)
        Values at the ends of the colours.
    colours : str
        Colour map of matplotlib.
    text : str
        Format of the written shares.
    smallest : float
        Shares below it, in absolute value, are not written.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope.plots import panels
    >>> figure, axes = panels()
    >>> axis = action_map([[0.7, 0.0], [0.2, 0.1]], axes[0, 0], smallest=0.005)
    >>> [text.get_text() for text in axis.texts]
    ['0.70', '0.20', '0.10']
    """
    shares = np.asarray(table, dtype=float)
    own, names, above = axis is None, rows or [""], columns or [""]
    axis = own_axis(
        axis,
        width=0.8 + width_of(names) + shares.shape[1] * max(0.45, width_of(above) + 0.1),
        height=0.8 + 0.45 * len(shares),
    )
    if own:
        figure_of(axis).set_layout_engine("compressed")  # made for cells that stay square
    across, up = (np.arange(size + 1) - 0.5 for size in shares.shape[::-1])
    style = {"cmap": colours, "vmin": limits[0], "vmax": limits[1], "edgecolors": "#fefefe", "linewidth": 0.5}
    axis.pcolormesh(across, up, shares, **style)  # type: ignore[arg-type]
    dark = 0.6 * max(map(abs, limits))
    for i, j in np.argwhere(np.abs(shares) >= smallest):
        colour = "#fefefe" if abs(shares[i, j]) > dark else "#111111"
        place = {"ha": "center", "va": "center", "fontsize": 8, "color": colour}
        axis.text(j, i, text.format(shares[i, j]), **place)  # type: ignore[arg-type]
    axis.set_xticks(range(shares.shape[1]), columns)
    axis.set_yticks(range(shares.shape[0]), rows)
    axis.set_aspect("equal")
    return axis
