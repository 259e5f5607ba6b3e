"""Sections about the behaviour model: comparison of models, reliability, and the negative control."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from caliope import plots
from caliope._audit._result import Audit
from caliope._results import percent
from caliope.calibration._reliability import RatioReliability, ReliabilityCurve
from caliope.calibration._result import CalibrationRow
from caliope.calibration._scores import ALL
from caliope.checks._registry import Finding
from caliope.plots._figures import label_texts
from caliope.report._blocks import (
    Grid,
    Reasons,
    Section,
    Text,
    grid,
    legend_above,
    name_rows,
    panel,
    picture,
    row_panel,
)

_MAX_BARS = 40


def behaviour_section(audit: Audit) -> Section:
    """The comparison of behaviour models: log loss, the paper's metric beside its null, and the choice."""
    comparison = audit.comparison
    intro = (
        "The log does not say how likely each decision was, so a behaviour model estimates it from the state. Every "
        f"model is judged on held-out {audit.data.units}. Its log loss (NLL) says how badly it predicts their "
        "decisions; lower is better."
    )
    if audit.settings.propensities_logged:
        intro = (
            "The log holds the probabilities with which its actions were taken, and the estimate uses them. The models "
            "below were fitted to check them."
        )
    found = comparison[comparison.recommended].findings
    blocks = (
        Text(intro),
        Text(_describe_choice(audit)),
        _likelihoods(list(comparison.overall())),
        _distances(list(comparison)),
        grid("Behaviour models on held-out decisions", [row.cells() for row in comparison]),
        *((Reasons("Findings about the chosen model", found),) if found else ()),
    )
    return Section("behaviour", "Behaviour models", "Calibration of the behaviour models", blocks)


def _describe_choice(audit: Audit) -> str:
    choice = audit.comparison.choice
    if choice is None:
        return ""
    text = f"Chosen model: {choice.recommended}, {choice.reason}."
    if choice.by_paper == choice.recommended:
        return f"{text} The metric of Raghu et al. (2018) would have chosen the same model."
    return (
        f"{text} The metric of Raghu et al. (2018), total variation to the neighbours, is lowest for "
        f"{choice.by_paper}. The two need not agree: that metric compares a model with averages over similar states, "
        "and on small samples it favours smooth models. It is shown below beside its null, the value for a right model."
    )


def _likelihoods(rows: list[CalibrationRow]) -> Any:
    drawn = [row for row in rows if np.isfinite(row.measured.nll)][:_MAX_BARS]
    figure, axis = row_panel(len(drawn))
    plots.likelihoods(drawn, axis)
    name_rows(axis, [row.model for row in drawn])
    axis.set(xlabel="log loss, held out (lower is better)")
    data = [
        {
            "model": row.model,
            "NLL": row.measured.nll,
            "low": row.measured.nll_interval.low,
            "high": row.measured.nll_interval.high,
            "skill": row.measured.skill_marginal,
        }
        for row in rows
    ]
    return picture(
        "likelihoods",
        figure,
        label="Log loss of each behaviour model",
        caption="Log loss of each model on held-out decisions, with confidence intervals; the best on top.",
        data=grid("Negative log-likelihood", data),
    )


def _distances(rows: list[CalibrationRow]) -> Any:
    drawn = [row for row in rows if row.stratum != ALL] or rows
    models, strata = _names(drawn, "model", 24), _names(drawn, "stratum", 14)
    shown = list(strata)[: max(1, _MAX_BARS // max(1, len(models)))]
    figure, axis = panel(height=2.9 + 0.15 * len(models))
    plots.paper_distances(
        [
            replace(row, model=models[row.model], stratum=strata[row.stratum])
            for row in drawn
            if row.stratum in shown
        ],
        axis,
    )
    if max(map(len, shown)) > 6:
        axis.tick_params(axis="x", rotation=25)
    axis.set(xlabel="", ylabel="total variation", ylim=(0, axis.get_ylim()[1]))
    legend_above(figure, axis)
    caption = (
        "The metric of Raghu et al. (2018): distance between a model and what was done in similar states, by stratum. "
        "The line across a bar is the null, the distance of a right model. Only what lies above it is error."
    )
    return picture(
        "distances", figure, label="Calibration by stratum", caption=caption, data=_distance_data(drawn)
    )


def _names(rows: list[CalibrationRow], part: str, most: int) -> dict[str, str]:
    """The models or strata of the rows, each with its label."""
    names = list(dict.fromkeys(getattr(row, part) for row in rows))
    return dict(zip(names, label_texts(names, most), strict=True))


def _distance_data(rows: list[CalibrationRow]) -> Grid:
    return grid(
        "Total variation to the neighbours",
        [
            {
                "model": row.model,
                "stratum": row.stratum,
                "distance": row.measured.paper_tv.value,
                "if it were right": row.measured.paper_tv.null_mean,
                "z": row.measured.paper_tv.z,
            }
            for row in rows
        ],
    )


def reliability_section(audit: Audit) -> Section:
    """Two diagrams of the chosen model: its probabilities, and the importance ratios they make."""
    name = audit.comparison.recommended
    text = (
        f"Of the actions to which the model ({name}) gives a chance of 30%, about 30 in 100 should have been taken. "
        "Small probabilities matter most, since the importance ratio divides by them. The second diagram sorts the "
        "actions by that ratio."
    )
    if audit.settings.propensities_logged:
        shown = "The first diagram shows" if audit.settings.all_recorded else "Both diagrams show"
        text += f" {shown} the fitted model; the estimate itself uses the logged probabilities."
    curve = audit.comparison.details[name].reliability
    ratios = audit.summary.ratios
    blocks = (Text(text), _curve(curve), *((_ratios(ratios),) if len(ratios.ratio) else ()))
    return Section("reliability", "Reliability", "Are its probabilities right?", blocks)


def _curve(curve: ReliabilityCurve) -> Any:
    figure, axis = panel()
    plots.reliability(curve, axis)
    rows = zip(curve.predicted, curve.observed, curve.count, strict=True)
    data = grid(
        "Predicted against observed",
        [{"predicted": float(p), "observed": float(o), "predictions": int(n)} for p, o, n in rows],
    )
    caption = "Predicted probability against observed frequency, in bins of equal size. A right model lies on the line."
    return picture("reliability", figure, label="Reliability diagram", caption=caption, data=data)


def _ratios(found: RatioReliability) -> Any:
    figure, axis = panel()
    plots.ratio_reliability(found, axis)
    axis.set(xlabel="ratio: new policy / practice", ylabel="observed / expected")
    columns = zip(found.ratio, found.observed, found.se, found.events, strict=True)
    data = [
        {"ratio": float(r), "occurred / expected": float(o), "standard error": float(s), "events": float(n)}
        for r, o, s, n in columns
    ]
    caption = (
        "Actions sorted by importance ratio: the probability under the new policy over that of the model. Bars are "
        "two standard errors. Above 1, actions occur more often than the model says, and their weights are too large."
    )
    return picture(
        "ratios",
        figure,
        label="Reliability of importance ratios",
        caption=caption,
        data=grid("Reliability of ratios", data),
    )


def placebo_section(audit: Audit) -> Section:
    """The negative control: the estimate of a value that is known."""
    text = (
        "Reweighting decisions must not change what was known before them. A return is predicted from the state before "
        f"each decision. Decisions are then reweighted to {audit.placebo.tests} policies near current practice, one "
        "decision at a time. If the behaviour model is right, the mean prediction stays the same under each of them. "
        f"The policy that misses most clearly is shown: {audit.placebo.policy}. Passing proves nothing about a policy "
        "that differs from practice."
    )
    concerned = _placebo_findings(audit)
    blocks = (
        Text(text),
        Text(_placebo_result(audit, concerned)),
        _placebo_table(audit),
        *((Reasons("Findings", concerned),) if concerned else ()),
    )
    return Section(
        "placebo", "Negative control", "Negative control: a question whose answer is known", blocks
    )


def _placebo_findings(audit: Audit) -> tuple[Finding, ...]:
    """Findings of the negative control at the level that the audit gives them: a note where propensities are logged."""
    codes = {finding.code for finding in audit.placebo.findings}
    return tuple(finding for finding in audit.findings if finding.code in codes)


def _placebo_result(audit: Audit, concerned: tuple[Finding, ...]) -> str:
    """Whether the known value was found, and what that means for the estimate."""
    logged = audit.settings.propensities_logged
    levels = {finding.level for finding in concerned}
    if not levels:
        text = "The negative control passed."
    elif "issue" in levels:
        text = "The negative control failed."
    elif "caution" in levels:
        text = "The negative control passed with reservations."
    elif logged:
        text = "The negative control did not pass, but this does not count against the estimate."
    else:
        text = "The negative control passed, as nearly as matters."
    if not logged:
        return text
    return (
        f"{text} It uses the weights of a fitted model, while the estimate uses the logged probabilities. It therefore "
        "says how good the models are, not how good the estimate is."
    )


def _placebo_table(audit: Audit) -> Grid:
    found = audit.placebo
    ends = found.error
    rows = [
        {"what": f"mean predicted return, with {found.policy}, estimated", "value": found.value},
        {"what": "mean predicted return, known", "value": found.practice},
        {
            "what": "difference",
            "value": found.value - found.practice,
            f"{percent(ends.level)} interval": f"[{ends.low:.3g}, {ends.high:.3g}]",
        },
    ]
    return grid("The negative control", rows)
