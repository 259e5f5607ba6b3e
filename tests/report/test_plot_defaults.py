"""Every plot at its defaults: no text is cut off, none lies on another or on the axis it belongs to."""

import inspect
import itertools
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from caliope import plots
from caliope._audit._summary import QUANTILES
from support.report_audits import far_audit, near_audit

LONG = ["a behaviour model with a rather long name", "short", "another one, fitted on the same data"]


@pytest.fixture(scope="module")
def audit():
    return near_audit()


DRAW = {
    "estimates": lambda a: plots.estimates(a.table),
    "differences": lambda a: plots.estimates(a.table, differences=True),
    "likelihoods": lambda a: plots.likelihoods(a.comparison.overall()),
    "paper_distances": lambda a: plots.paper_distances(a.comparison),
    "reliability": lambda a: plots.reliability(a.comparison.details["logistic"].reliability),
    "ratio_reliability": lambda a: plots.ratio_reliability(a.summary.ratios),
    "balance": lambda a: plots.balance(a.comparison.details["logistic"].balance),
    "reach": lambda a: plots.reach(a.reach.shares, a.reach.table),
    "weight_means": lambda a: plots.weight_means(
        a.summary.weights.step, a.summary.weights.mean, a.summary.weights.se
    ),
    "weight_fan": lambda a: plots.weight_fan(a.summary.weights.step, QUANTILES, a.summary.weights.log10),
    "effective_sizes": lambda a: plots.effective_sizes(a.summary.weights.step, a.summary.weights.effective),
    "overlap": lambda a: plots.overlap(a.summary.overlap),
    "action_shares": lambda a: plots.action_shares(LONG, [0.2, 0.3, 0.5], [0.5, 0.3, 0.2]),
    "choices": lambda a: plots.choices(a.others, headline=a.headline, practice=a.practice.value),
    "confounding": lambda a: plots.confounding(a.summary.confounding, practice=0.5, breakdown=1.2),
    "grouped_bars": lambda a: plots.grouped_bars(LONG, {name: [0.1, 0.2, 0.3] for name in LONG}),
    "bar_list": lambda a: plots.bar_list({"new": [1, 2, 3], "old": [3, 2, 1]}, names=LONG),
    "forest": lambda a: plots.forest([replace(a.gain, label=name) for name in LONG], whole=a.gain),
    "points": lambda a: plots.points([1, 2, 3], [0.1, 0.5, 0.3], spread=[0.1, 0.1, 0.1]),
    "cells": lambda a: plots.cells(LONG, LONG, np.linspace(-1, 1, 9).reshape(3, 3)),
    "action_map": lambda a: plots.action_map(np.full((3, 3), 0.1), rows=LONG, columns=["0", "1", "2"]),
}


def boxes(figure):
    """The visible texts of a figure, each with its box in pixels."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    outside = []
    for axis in figure.axes:
        ticks = [*axis.get_xticklabels(), *axis.get_yticklabels()]
        left, right = sorted(axis.get_xlim())
        low, high = sorted(axis.get_ylim())
        outside += [
            label
            for label, value, ends in (
                *((t, t.get_position()[0], (left, right)) for t in axis.get_xticklabels()),
                *((t, t.get_position()[1], (low, high)) for t in axis.get_yticklabels()),
            )
            if not ends[0] <= value <= ends[1]
        ]
        yield from (
            (axis, "label", text, text.get_window_extent(renderer))
            for text in (*ticks, axis.xaxis.label, axis.yaxis.label, axis.title)
            if text.get_visible() and text.get_text() and text not in outside
        )
        yield from ((axis, "inside", text, text.get_window_extent(renderer)) for text in axis.texts)
    for legend in figure.legends:
        yield None, "label", legend, legend.get_window_extent(renderer)


def check(figure):
    assert figure.get_layout_engine() is not None
    found = list(boxes(figure))
    width, height = figure.canvas.get_width_height()
    for _, _, text, box in found:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text
    for axis, kind, text, box in found:
        for other in figure.axes:
            inner = other.get_window_extent()
            over = (
                min(box.x1, inner.x1) - max(box.x0, inner.x0),
                min(box.y1, inner.y1) - max(box.y0, inner.y0),
            )
            assert kind == "inside" or min(over) <= 1, (text, over, axis)
    for (_, _, a, first), (_, _, b, second) in itertools.combinations(found, 2):
        if getattr(a, "get_rotation", lambda: 0)() in (0, 90) and getattr(b, "get_rotation", lambda: 0)() in (
            0,
            90,
        ):
            assert not first.padded(-1.5).overlaps(second.padded(-1.5)), (a, b)


def test_every_public_plot_is_drawn_here_without_an_axis():
    made = {name for name in plots.__all__ if callable(getattr(plots, name))} - {"panels", "svg"}
    assert made == set(DRAW) - {"differences"}
    for name in made:
        assert inspect.signature(getattr(plots, name)).parameters["axis"].default is None, name


@pytest.mark.parametrize("name", DRAW)
def test_no_text_is_cut_off_or_hides_another(audit, name):
    axis = DRAW[name](audit)
    assert axis.get_xlabel() or name in (
        "grouped_bars",
        "bar_list",
        "points",
        "cells",
        "action_map",
        "balance",
    )
    check(axis.figure)


def test_a_second_plot_has_a_figure_of_its_own(audit):
    first, second = (DRAW["reach"](audit) for _ in range(2))
    assert first.figure is not second.figure


def test_values_and_differences_never_share_an_axis(audit):
    values, gains = plots.estimates(audit.table), plots.estimates(audit.table, differences=True)
    assert (values.get_xlabel(), gains.get_xlabel()) == ("value", "difference from current practice")
    names = [[label.get_text() for label in axis.get_yticklabels()] for axis in (values, gains)]
    assert audit.gain.label not in names[0]
    assert names[1] == [audit.gain.label]
    alone = plots.estimates([audit.gain])
    assert [label.get_text() for label in alone.get_yticklabels()] == [audit.gain.label]


def test_a_notebook_shows_a_figure_without_pyplot(audit):
    assert "<svg" in DRAW["reach"](audit).figure._repr_svg_()


@pytest.mark.slow
def test_every_figure_of_the_report_can_be_had(audit, tmp_path):
    files = audit.save_figures(tmp_path / "figures", format="png")
    assert {file.stem for file in files} >= {
        "answer",
        "values",
        "reach",
        "likelihoods",
        "fan",
        "multiverse",
        "bounds",
    }
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    assert audit.plot("values").axes[0].get_xlabel() == "value per trajectory"
    with pytest.raises(ValueError, match="the figures of this audit are answer, reach, values, "):
        audit.plot("nothing")


@pytest.mark.slow
@pytest.mark.parametrize("make", [near_audit, far_audit])
def test_figures_of_the_report_cut_no_text(make):
    found = make()
    from caliope.report import draw_figures

    for name, figure in draw_figures(found).items():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        width, height = canvas.get_width_height()
        for axis, _, text, box in boxes(figure):
            inside = box.x0 >= -1 and box.x1 <= width + 1 and box.y0 >= -1 and box.y1 <= height + 1
            assert inside, (name, axis, text, box, width, height)
