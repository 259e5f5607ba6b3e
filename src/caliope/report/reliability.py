"""Whether predicted probabilities come true, and whether the ratios made of them do."""

from __future__ import annotations

from typing import Any

from caliope import plots
from caliope.auditing import Audit
from caliope.auditing.chain import LOGGED
from caliope.calibration import RatioReliability, ReliabilityCurve, ratio_reliability
from caliope.report.blocks import Section, Text, grid
from caliope.report.drawing import panel, picture


def reliability_section(audit: Audit) -> Section:
    """Two diagrams of the model that was taken: its probabilities, and the ratios they make."""
    name = audit.comparison.recommended
    details = audit.comparison.details[name]
    text = (
        f"Of all decisions to which the model ({name}) gave a chance of 30%, about 30 in 100 should have been taken. "
        "Small probabilities matter most, since a weight is the policy's probability divided by them: the second "
        "diagram sorts the actions by that ratio."
    )
    if audit.settings.get("behaviour") == LOGGED:
        text += " This shows the fitted model. The estimate itself is weighed with the probabilities that were logged."
    found = ratio_reliability(audit.acted, audit.data, audit.wanted)
    return Section(
        "reliability",
        "Reliability",
        "Do its probabilities come true?",
        (Text(text), _curve(details.reliability), _ratios(found)),
    )


def _curve(curve: ReliabilityCurve) -> Any:
    figure, axis = panel()
    plots.reliability(curve, axis)
    rows = zip(curve.predicted, curve.observed, curve.count, strict=True)
    data = grid(
        "Predicted against observed",
        [{"predicted": float(p), "observed": float(o), "predictions": int(n)} for p, o, n in rows],
    )
    caption = "What was predicted against how often it was done, in bins of equal size. A right model lies on the line."
    return picture("reliability", figure, label="Reliability diagram", caption=caption, data=data)


def _ratios(found: RatioReliability) -> Any:
    figure, axis = panel()
    plots.ratio_reliability(found, axis)
    nice = [float(f"{digit}e{power}") for power in range(-6, 9) for digit in (1, 2, 5)]
    inside = [x for x in nice if found.ratio.min() / 1.5 <= x <= found.ratio.max() * 1.5]
    axis.set_xticks(inside, [f"{x:g}" for x in inside])
    axis.set_xticks([], minor=True)
    axis.set(xlabel="ratio: policy / practice", ylabel="occurred / expected")
    columns = (found.ratio, found.observed, found.se, found.events)
    data = grid(
        "Reliability of ratios",
        [
            {
                "ratio": float(r),
                "occurred / expected": float(o),
                "standard error": float(s),
                "events": float(n),
            }
            for r, o, s, n in zip(*columns, strict=True)
        ],
    )
    caption = (
        "Actions sorted by how much more often the policy would take them than the model says practice does, with two "
        "standard errors. At 1 they occur as often as the model says; above 1 more often, and their weights are too "
        "large."
    )
    return picture("ratios", figure, label="Reliability of importance ratios", caption=caption, data=data)
