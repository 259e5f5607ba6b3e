"""How unequal the weights become with time, and who carries them."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope import plots
from caliope.auditing import Audit
from caliope.report.blocks import Grid, Section, Text, grid
from caliope.report.drawing import GREY, panel, picture, whole_steps
from caliope.report.summaries import LEVELS, WeightsOverTime, weight_shares, weights_over_time


def weights_section(audit: Audit) -> Section:
    """Quantiles of the weights at every step, their mean, and the effective number of trajectories."""
    found = weights_over_time(audit.evidence)
    data = _data(found)
    text = (
        "An episode counts more if the new policy would have decided likewise, and less if not: that is its weight. "
        "Weights multiply from step to step, so they spread with time. Few episodes then carry the estimate: the "
        "effective number says to how many equal ones they amount."
    )
    blocks = (Text(text), _fan(found, data), _mean(found, data), _effective(found, data), _shares(audit))
    return Section("weights", "Weights", "Weights over time", blocks)


def _data(w: WeightsOverTime) -> Grid:
    names = [f"{100 * level:g}%" for level in LEVELS]
    rows = [
        {"step": int(w.step[t]), "episodes that reach it": int(w.under_way[t])}
        | {"effective episodes of these": float(w.reaching[t])}
        | {f"log10 weight, {name}": float(w.log10[i, t]) for i, name in enumerate(names)}
        | {"mean weight": float(w.mean[t]), "its standard error": float(w.se[t])}
        | {
            "effective episodes, ended ones included": float(w.effective[t]),
            "share with weight 0": float(w.without[t]),
        }
        for t in range(len(w.step))
    ]
    return grid("Weights at each step, after capping", rows)


def _fan(w: WeightsOverTime, data: Grid) -> Any:
    figure, axis = panel()
    finite = w.log10[np.isfinite(w.log10)]
    floor = float(finite.min()) - 0.5 if len(finite) else -1.0
    q = np.maximum(w.log10, floor)
    for i, alpha in ((0, 0.2), (1, 0.35)):
        label = f"{100 * LEVELS[i]:g} to {100 * LEVELS[-1 - i]:g}% of the episodes"
        axis.fill_between(
            w.step, q[i], q[-1 - i], color=plots.COLOURS[0], alpha=alpha, linewidth=0, label=label
        )
    axis.plot(w.step, q[2], color=plots.COLOURS[0], linewidth=1.5, label="median", marker="o", markersize=2)
    axis.axhline(0, color=GREY, linewidth=0.8, linestyle="--")
    axis.set(xlabel="step", ylabel="weight, powers of ten")
    axis.legend(fontsize=7, frameon=False, loc="best")
    caption = "Spread of the weights: 0 is a weight of one, 1 is ten, -1 a tenth."
    if w.without.any():
        lost = f"{w.without[-1]:.0%} of the episodes have lost all weight"
        caption += f" By the last step {lost}; they lie at the lower edge."
    whole_steps(axis)
    return picture("fan", figure, label="Spread of the weights over time", caption=caption, data=data)


def _mean(w: WeightsOverTime, data: Grid) -> Any:
    figure, axis = panel()
    axis.axhline(1, color=GREY, linewidth=0.8, linestyle="--")
    axis.errorbar(w.step, w.mean, yerr=2 * w.se, fmt="o-", color=plots.COLOURS[0], markersize=3, linewidth=1)
    axis.set(xlabel="step", ylabel="mean weight", ylim=(min(0.0, axis.get_ylim()[0]), None))
    caption = (
        "The mean weight, with two standard errors. It should be 1; below it, the episodes that the policy would "
        "produce are missing from the log, or the behaviour model is off."
    )
    whole_steps(axis)
    return picture("mean-weight", figure, label="Mean weight over time", caption=caption, data=data)


def _effective(w: WeightsOverTime, data: Grid) -> Any:
    figure, axis = panel()
    axis.plot(w.step, w.effective, "o-", color=plots.COLOURS[0], markersize=3, linewidth=1)
    axis.axhline(100, color=GREY, linewidth=0.8, linestyle="--")
    axis.set(xlabel="step", ylabel="effective episodes", ylim=(0, None))
    caption = (
        "To how many equal episodes the weights amount. An episode that has ended keeps its last weight, and is "
        "counted; the numbers below also have it for those alone that reach the step. Below 100, the dashed line, "
        "intervals are too short."
    )
    return picture(
        "effective", figure, label="Effective number of episodes over time", caption=caption, data=data
    )


def _shares(audit: Audit) -> Grid:
    n = len(audit.evidence)
    rows = [
        {"heaviest episodes": size, "of all": f"{size / n:.2%}", "share of the weight": f"{share:.1%}"}
        for size, share in weight_shares(audit.evidence).items()
    ]
    return grid("How much of the weight the heaviest episodes hold", rows)
