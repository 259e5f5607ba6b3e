"""Figures without global state: made, sized by what they hold, shown in a notebook, and written as SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from caliope._cells import shortened

# Okabe and Ito's colours, which people with any colour vision can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999")
GREY = COLOURS[7]
_STYLE = {"font.size": 9, "axes.titlesize": 10, "svg.hashsalt": "caliope", "svg.fonttype": "none"}
_LETTER = 0.075  # inches of a letter of a tick label
_LETTERS = 44  # of a label, before it is shortened


class ShownFigure(Figure):
    """A figure that a notebook shows, whether or not pyplot was imported."""

    def _repr_svg_(self) -> str:
        return svg(self)


def panels(rows: int = 1, columns: int = 1, *, width: float = 4.0, height: float = 3.2) -> tuple[Figure, Any]:
    """Make a figure with a grid of axes.

    Parameters
    ----------
    rows, columns : int
        Number of panels in each direction.
    width, height : float
        Size of one panel in inches.

    Returns
    -------
    figure : matplotlib.figure.Figure
        The figure, which no global state of matplotlib refers to; a notebook shows it.
    axes : array of Axes, of shape (rows, columns)
        One axis per panel.

    Examples
    --------
    >>> figure, axes = panels(1, 2)
    >>> axes.shape
    (1, 2)
    """
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = ShownFigure(figsize=(width * columns, height * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def svg(figure: Figure) -> str:
    """Return the figure as SVG; the same picture has the same bytes.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        From :func:`panels`.

    Returns
    -------
    str
        The SVG document, without a date.

    Examples
    --------
    >>> figure, axes = panels()
    >>> svg(figure).startswith("<?xml")
    True
    """
    text = io.StringIO()
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def own_axis(axis: Axes | None, *, width: float = 4.0, height: float = 3.2) -> Axes:
    """The axis that was given, or one of a figure of its own with such a panel."""
    if axis is not None:
        return axis
    made: Axes = panels(width=width, height=height)[1][0, 0]
    return made


def row_size(names: Sequence[str]) -> dict[str, float]:
    """Width and height of a panel whose rows have these names at the left."""
    return {"width": 3.2 + width_of(names), "height": 0.9 + 0.26 * max(len(names), 2)}


def width_of(names: Sequence[str]) -> float:
    """Inches that the longest of some names takes."""
    return _LETTER * max((len(name) for name in names), default=0)


def figure_of(axis: Axes) -> Figure:
    """The figure of an axis; raise if it has none."""
    figure = axis.get_figure(root=True)
    if figure is None:
        raise ValueError("the axis belongs to no figure: make one with panels().")
    return figure


def place_legend(axis: Axes, *, own: bool, columns: int = 1) -> None:
    """A legend above an axis that has its figure for itself, where it hides nothing; inside any other axis."""
    if own:
        style: dict[str, Any] = {"fontsize": 8, "frameon": False, "ncols": columns}
        figure_of(axis).legend(loc="outside upper left", **style)
    else:
        axis.legend(fontsize=7, frameon=False)


def label_text(name: Any, most: int = _LETTERS) -> str:
    r"""Shorten a name for a label, and escape what matplotlib would read as mathematics.

    >>> label_text("price in $")
    'price in \\$'
    """
    return shortened(str(name), most).replace("\\", "/").replace("$", r"\$")


def label_texts(names: Sequence[str], most: int = _LETTERS) -> list[str]:
    """Shorten names for labels; those that become alike are numbered."""
    short = [label_text(name, most) for name in names]
    return [f"{text} ({i + 1})" if short.count(text) > 1 else text for i, text in enumerate(short)]


def whole_steps(axis: Axes) -> None:
    """Put ticks at whole numbers: there is no step 2.5."""
    locator: Any = axis.xaxis.get_major_locator()
    locator.set_params(integer=True)


def plain_ticks(axis: Axes, low: float, high: float) -> None:
    """Ticks of a logarithmic axis at 1, 2, 5, 10, ..., as plain numbers; fewer where the range is wide."""
    for digits in ((1, 2, 5), (1,)):
        nice = [float(f"{digit}e{power}") for power in range(-9, 12) for digit in digits]
        inside = [x for x in nice if low / 1.5 <= x <= high * 1.5]
        if len(inside) <= 8:
            break
    axis.set_xticks(inside, [f"{x:g}" for x in inside])
    axis.set_xticks([], minor=True)
