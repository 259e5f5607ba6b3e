"""Forest plots: differences of several policies, or of one in several strata, each with its interval."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from caliope._results import Estimate, percent
from caliope.plots._figures import COLOURS, GREY, label_texts, own_axis, row_size

_SIZES = (4.0, 9.0)  # points of the smallest and the largest square


def forest(
    rows: Iterable[Estimate],
    axis: Axes | None = None,
    *,
    whole: Estimate | None = None,
    numbers: bool = True,
) -> Axes:
    """Draw differences as a forest plot: a square per row, its interval, and the numbers at the right.

    The side of a square grows with the root of the effective sample size. Rows that are not to be trusted are grey,
    without interval; rows without a finite value are left out.

    Parameters
    ----------
    rows : iterable of Estimate
        Such as ``comparison.differences`` or ``audit.subgroups.table``.
    axis : matplotlib.axes.Axes, optional
        Where to draw; by default a figure of its own.
    whole : Estimate, optional
        The difference in the whole log, drawn as a dashed line, unless it is not to be trusted.
    numbers : bool
        Whether to write each value with its interval at the right.

    Returns
    -------
    Axes
        The axis.

    Examples
    --------
    >>> from caliope import Estimate, Interval
    >>> rows = [Estimate(x, x, 0.1, Interval(0.0, 0.2, 0.95), 400, n) for x, n in (("a", 120.0), ("b", 300.0))]
    >>> axis = forest(rows)
    >>> [label.get_text() for label in axis.get_yticklabels()]
    ['a', 'b']
    """
    drawn = [row for row in rows if np.isfinite(row.value)]
    names = label_texts([row.label for row in drawn])
    texts = [row.text if not row.withheld else "withheld" for row in drawn]
    size = row_size(names)
    axis = own_axis(axis, width=size["width"] + (1.6 if numbers else 0.0), height=size["height"])
    axis.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    if whole is not None and np.isfinite(whole.value) and not whole.withheld:
        axis.axvline(whole.value, color=COLOURS[1], linewidth=0.9, linestyle="--", zorder=1)
    most = max((row.effective_n for row in drawn), default=1.0)
    for i, row in enumerate(drawn):
        colour, ends = GREY if row.withheld else COLOURS[0], row.shown
        if np.isfinite([ends.low, ends.high]).all():
            axis.hlines(i, ends.low, ends.high, color=colour, linewidth=1.5)
        share = float(np.sqrt(row.effective_n / most)) if most > 0 else 0.0
        axis.plot(row.value, i, "s", color=colour, markersize=_SIZES[0] + (_SIZES[1] - _SIZES[0]) * share)
        if numbers:
            place: dict[str, Any] = {"transform": axis.get_yaxis_transform(), "va": "center", "fontsize": 8}
            axis.text(1.02, i, texts[i], **place)
    axis.set_yticks(range(len(names)), names)
    axis.set(ylim=(len(names) - 0.5, -0.5), xlabel="difference from current practice")
    if drawn:
        axis.set_title(f"{percent(drawn[0].interval.level)} intervals, all together", fontsize=9, loc="left")
    return axis
