"""How well the models of who acted are calibrated, by stratum, and which one was taken."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope import plots
from caliope.auditing import Audit
from caliope.calibration import CalibrationRow
from caliope.calibration.rows import ALL
from caliope.report.blocks import Reasons, Section, Text, grid
from caliope.report.drawing import label_texts, panel, picture, rows_of_dots

_MOST_BARS = 40


def behaviour_section(audit: Audit) -> Section:
    """The comparison of behaviour models: likelihood, the paper's metric beside its null, and the choice."""
    comparison = audit.comparison
    intro = (
        "Nobody wrote down how likely each decision was, so it is estimated: a behaviour model predicts, from the "
        "state, what was done. Every model here is judged on decisions of patients it had not seen. NLL measures how "
        "surprised it was by what was done; lower is better."
    )
    if audit.settings.get("behaviour") == "logged probabilities":
        intro = (
            "The log holds the probabilities with which its actions were taken, and they are used. The models below "
            "were fitted nevertheless, to check them."
        )
    overall = comparison.overall()
    found = comparison[comparison.recommended].findings
    blocks = (
        Text(intro),
        Text(_chosen(audit)),
        _likelihoods(list(overall)),
        _distances(list(comparison)),
        grid("Behaviour models on decisions they had not seen", [row.cells() for row in comparison]),
        *((Reasons("What was found about the model that was taken", found),) if found else ()),
    )
    return Section("behaviour", "Behaviour models", "Who acted: calibration of the behaviour models", blocks)


def _chosen(audit: Audit) -> str:
    choice = audit.comparison.choice
    if choice is None:
        return ""
    said = f"Taken: {choice.recommended}, {choice.reason}."
    if choice.by_paper == choice.recommended:
        return f"{said} The metric of Raghu et al. (2018) would have chosen the same model."
    return (
        f"{said} The metric of Raghu et al. (2018), total variation to the neighbours, is lowest for "
        f"{choice.by_paper}. The two need not agree: that metric compares a model with averages over similar patients, "
        "and on small samples it favours smooth models. It is shown below beside what it would be for a right model."
    )


def _likelihoods(rows: list[CalibrationRow]) -> Any:
    drawn = [row for row in rows if np.isfinite(row.measured.nll)][:_MOST_BARS]
    figure, axis = rows_of_dots([row.model for row in drawn])
    for i, row in enumerate(drawn):
        ends = row.measured.nll_interval
        axis.hlines(i, ends.low, ends.high, color=plots.COLOURS[0], linewidth=2)
        axis.plot(row.measured.nll, i, "o", color=plots.COLOURS[0], markersize=5)
    axis.set(xlabel="NLL on unseen decisions (lower is better)")
    data = grid(
        "Negative log-likelihood",
        [
            {
                "model": row.model,
                "NLL": row.measured.nll,
                "low": row.measured.nll_interval.low,
                "high": row.measured.nll_interval.high,
                "skill": row.measured.skill_marginal,
            }
            for row in rows
        ],
    )
    caption = "How surprised each model is by unseen decisions, with intervals; the best on top."
    return picture(
        "likelihoods", figure, label="Likelihood of each behaviour model", caption=caption, data=data
    )


def _distances(rows: list[CalibrationRow]) -> Any:
    drawn = _by_stratum(rows)
    strata, models = (
        list(dict.fromkeys(getattr(row, part) for row in drawn)) for part in ("stratum", "model")
    )
    strata = strata[: max(1, _MOST_BARS // max(1, len(models)))]
    figure, axis = panel(height=2.9 + 0.15 * len(models))
    at = {(row.model, row.stratum): row.measured.paper_tv for row in drawn}
    shown = dict(zip(models, label_texts(models, 24), strict=True))
    plots.grouped_bars(
        label_texts(strata, 14),
        {shown[m]: [at[m, s].value for s in strata] for m in models},
        axis,
        marks={shown[m]: [at[m, s].null_mean for s in strata] for m in models},
    )
    if max(map(len, strata)) > 6:
        axis.tick_params(axis="x", rotation=25)
    axis.set(ylabel="total variation", ylim=(0, axis.get_ylim()[1]))
    axis.get_legend().remove()
    figure.legend(loc="outside upper left", fontsize=7, frameon=False)
    data = grid(
        "Total variation to the neighbours",
        [
            {
                "model": row.model,
                "stratum": row.stratum,
                "distance": row.measured.paper_tv.value,
                "if it were right": row.measured.paper_tv.null_mean,
                "z": row.measured.paper_tv.z,
            }
            for row in drawn
        ],
    )
    caption = (
        "The paper's metric: distance between a model and what was done to similar patients, by stratum. The line "
        "across a bar is what the distance would be if the model were exactly right; only what lies above it is error."
    )
    return picture("distances", figure, label="Calibration by stratum", caption=caption, data=data)


def _by_stratum(rows: list[CalibrationRow]) -> list[CalibrationRow]:
    return [row for row in rows if row.stratum != ALL] or rows
