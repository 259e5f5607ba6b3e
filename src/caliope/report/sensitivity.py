"""What becomes of the estimate under other choices, and under reasons that nobody recorded."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope import plots
from caliope.auditing import Audit, Universe
from caliope.auditing.chain import LOGGED
from caliope.confounding import confounding_bounds
from caliope.ragged import Float
from caliope.report.blocks import Section, Text, grid
from caliope.report.drawing import POLICY, PRACTICE, label_text, panel, picture, rows_of_dots

_MOST_ROWS, _MOST_DOTS = 36, 300
_ESTIMATORS = tuple(plots.COLOURS[i] for i in (0, 2, 3, 4))  # not that of practice
_MARKS = ("o", "s", "D", "^", "v", "P")


def sensitivity_section(audit: Audit) -> Section:
    """The multiverse: one dot for each combination of choices."""
    values = np.array([row.value for row in audit.others])
    values = values[np.isfinite(values)]
    spread = f" Here they run from {values.min():.4g} to {values.max():.4g}." if len(values) else ""
    text = (
        "Another analyst might have taken another behaviour model, fitted or recalibrated it otherwise, treated large "
        "weights otherwise, or used another estimator. These are the answers to the same question under such choices."
        f"{spread} If they lie wide apart, it is the choice that decides, and not the log. Two choices are there for "
        "comparison alone: a model fitted on the same data may have memorised it, and weights shrunk towards observed "
        "care pull every answer towards practice."
    )
    if audit.settings.get("behaviour") == LOGGED:
        text += (
            " The estimate at the top is weighed with the probabilities that were logged, the first of the rows; the "
            "others show what fitted models would have made of it."
        )
    rows = [row.cells() for row in audit.others]
    table = grid("The same question under other choices", rows, most=80, folded=len(rows) > 12)
    drawn = [row for row in audit.others if np.isfinite(row.value)][:_MOST_DOTS]
    pictures = (_multiverse(audit, drawn),) if drawn else ()
    return Section("sensitivity", "Choices", "Sensitivity to choices", (Text(text), *pictures, table))


def _multiverse(audit: Audit, drawn: list[Universe]) -> Any:
    places = list(dict.fromkeys((row.model, row.weights) for row in drawn))[:_MOST_ROWS]
    estimators = list(dict.fromkeys(row.estimator for row in drawn))
    figure, axis = rows_of_dots(
        [f"{model}: {how.partition(' towards')[0]}" for model, how in places], legend=True
    )
    ends = audit.headline.interval
    if np.isfinite([ends.low, ends.high]).all():
        axis.axvspan(ends.low, ends.high, color=POLICY, alpha=0.12, linewidth=0)
    axis.axvline(audit.practice.value, color=PRACTICE, linestyle="--", linewidth=0.9, zorder=1)
    for j, name in enumerate(estimators):
        points = [
            (row.value, places.index((row.model, row.weights))) for row in drawn if _shown(row, name, places)
        ]
        x, y = zip(*points, strict=True) if points else ((), ())
        style = {
            "color": _ESTIMATORS[j % len(_ESTIMATORS)],
            "marker": _MARKS[j % len(_MARKS)],
            "markersize": 4.5,
            "alpha": 0.85,
        }
        axis.plot(x, y, linestyle="none", label=label_text(name), **style)
    axis.set(xlabel="value of an episode")
    figure.legend(loc="outside upper left", fontsize=7, frameon=False)
    data = grid("Values under other choices", [row.record() for row in audit.others], most=80)
    caption = (
        "Every dot is an answer; the band is the interval of the estimate at the top of the page, the dashed line "
        "current practice."
    )
    return picture("multiverse", figure, label="Values under other choices", caption=caption, data=data)


def _shown(row: Universe, estimator: str, places: list[tuple[str, str]]) -> bool:
    return row.estimator == estimator and (row.model, row.weights) in places


def confounding_section(audit: Audit) -> Section:
    """Bounds under unrecorded reasons, and where they reach practice."""
    text = (
        "Those who decided may have seen something that the log does not hold. Suppose it changes the odds of whole "
        "episodes by up to some factor: how far could the estimate move? The factor at which the policy and practice "
        f"can no longer be told apart is the breakdown point. Here, {audit.confounded}. A factor below about 1.2 is "
        "one that any unrecorded reason may have; a large one would have to be as strong as the reasons that were "
        "recorded."
    )
    if _signs_differ(audit):
        text += (
            " Note the sign: the doubly robust estimate at the top of the page puts the policy on the other side of "
            "practice than weighted importance sampling does here. Which of the two is better is open."
        )
    found = _bounds(audit)
    pictures = () if found is None else (_bounds_picture(audit, *found),)
    return Section(
        "confounding", "Unrecorded reasons", "Reasons that nobody recorded", (Text(text), *pictures)
    )


def _signs_differ(audit: Audit) -> bool:
    return bool((audit.confounded.estimate - audit.confounded.practice) * audit.gain.value < 0)


def _bounds(audit: Audit) -> tuple[Float, Float, Float] | None:
    point = audit.confounded.gamma
    if np.isnan(point):
        return None
    end = float(np.clip(1.5 * point, 2.0, 10.0))
    factors = np.linspace(1.0, end, 25)
    ends = [confounding_bounds(audit.evidence, float(factor)) for factor in factors]
    return factors, np.array([x.low for x in ends]), np.array([x.high for x in ends])


def _bounds_picture(audit: Audit, factors: Float, low: Float, high: Float) -> Any:
    figure, axis = panel()
    axis.fill_between(factors, low, high, color=POLICY, alpha=0.3, linewidth=0, label="possible values")
    axis.axhline(
        audit.confounded.practice, color=PRACTICE, linestyle="--", linewidth=1, label="current practice"
    )
    if audit.confounded.gamma <= factors[-1]:
        axis.axvline(audit.confounded.gamma, color=plots.COLOURS[3], linewidth=1, label="breakdown point")
    axis.set(xlabel="factor by which weights may be off", ylabel="value of an episode")
    figure.legend(loc="outside upper left", fontsize=7, frameon=False, ncols=3)
    rows = [
        {"factor": float(g), "lowest": float(a), "highest": float(b)}
        for g, a, b in zip(factors, low, high, strict=True)
    ]
    caption = "Lowest and highest value if unrecorded reasons change the odds of episodes by up to a factor."
    return picture(
        "bounds", figure, label="Bounds under unrecorded reasons", caption=caption, data=grid("Bounds", rows)
    )
