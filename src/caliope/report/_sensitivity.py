"""Sections of the report on sensitivity, limits, settings and codes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from caliope import plots
from caliope._audit._result import Audit
from caliope._audit._summary import ConfoundingCurve
from caliope.checks._registry import Finding
from caliope.io._doses import CUT, MERGED
from caliope.plots._figures import label_text
from caliope.report._blocks import (
    Bullets,
    Explanations,
    Grid,
    Section,
    Text,
    Words,
    as_sentence,
    grid,
    legend_above,
    name_rows,
    panel,
    picture,
    row_panel,
)
from caliope.report._numbers import versions
from caliope.report._verdict import interval_text, sign_of_gain, value_texts
from caliope.sensitivity import OtherChoice

_MAX_ROWS, _MAX_DOTS, _MAX_SETTINGS = 36, 300, 200


def influence_section(audit: Audit) -> Section:
    """The trajectories that move the difference most, and how few would change its sign."""
    found, n, units = audit.influence, audit.settings.n_trajectories, audit.data.units
    if found.to_flip is None:
        text = (
            f"Leaving out a fifth of the {units}, those that support the present sign most, does not change which "
            "policy is better."
        )
    else:
        text = (
            f"Leaving out {found.to_flip} of {n} {units} ({found.to_flip / n:.1%}) changes which policy is better; "
            f"the {units} that support the result most are left out first. If they are few, inspect each of them: a "
            "mistake in one record could decide the comparison."
        )
    return Section(
        "influence", f"Influential {units}", f"Influential {units}", (Text(text), _influential(audit))
    )


def _influential(audit: Audit) -> Grid:
    rows = [
        {
            audit.data.unit: each.id,
            "steps": each.steps,
            "return": each.discounted_return,
            "share of the final weight": f"{each.weight_share:.2%}"
            if np.isfinite(each.weight_share)
            else "none",
            "change of the difference without it": each.effect,
        }
        for each in audit.summary.influential
    ]
    return grid(f"The most influential {audit.data.units}", rows)


def sensitivity_section(audit: Audit) -> Section:
    """The estimate under other choices, one dot per combination."""
    values = np.array([row.value for row in audit.others])
    values = values[np.isfinite(values)]
    spread = f" They run from {values.min():.4g} to {values.max():.4g}." if len(values) else ""
    text = (
        "Another analyst might choose another behaviour model, way of fitting, treatment of large weights, or "
        f"estimator. These are the answers to the same question under such choices.{spread} If they lie far apart, "
        "the choice decides and not the log. Two choices are shown for comparison only. A model fitted on the same "
        "data may have memorised it. Weights that are shrunk pull every answer towards current practice."
    )
    text += _say_levels([row.model for row in audit.others])
    if audit.settings.propensities_logged:
        text += (
            " The estimate at the top of the page uses the logged probabilities, the first of the rows. The other rows "
            "show what fitted models would give."
        )
    rows = [row.cells() for row in audit.others]
    table = grid("The same question under other choices", rows, most=80, folded=len(rows) > 12)
    drawn = [row for row in audit.others if np.isfinite(row.value)][:_MAX_DOTS]
    pictures = (_choices(audit, drawn),) if drawn else ()
    return Section("sensitivity", "Other choices", "Sensitivity to choices", (Text(text), *pictures, table))


def _say_levels(models: list[str]) -> str:
    """What it means that doses were cut into other levels; empty where none were."""
    if any(model.endswith(MERGED) for model in models):
        return (
            " The policy is stated in levels of doses. In some rows two neighbouring levels are merged, and within "
            "them it doses as current practice does. That is a policy nearer to practice, shown for comparison only."
        )
    if any(CUT in model for model in models):
        return " In some rows the doses, logged and recommended, are cut into one level fewer or one more."
    return ""


def _choices(audit: Audit, drawn: list[OtherChoice]) -> Any:
    places = list(dict.fromkeys((row.model, row.weights) for row in drawn))[:_MAX_ROWS]
    figure, axis = row_panel(len(places), legend=True)
    shown = [row for row in drawn if (row.model, row.weights) in places]
    plots.choices(shown, axis, headline=audit.headline, practice=audit.practice.value)
    name_rows(axis, [f"{model}: {weights}" for model, weights in places])
    axis.set(xlabel=label_text(audit.settings.about.value_label(audit.data.unit)))
    legend_above(figure, axis)
    data = grid("Values under other choices", [row.record() for row in audit.others], most=80)
    band = (
        "" if audit.headline.withheld else "The band is the interval of the estimate at the top of the page. "
    )
    caption = f"Every dot is one answer. {band}The dashed line is current practice."
    return picture("multiverse", figure, label="Values under other choices", caption=caption, data=data)


def confounding_section(audit: Audit) -> Section:
    """Bounds under unmeasured confounding, and where they reach current practice."""
    unit = audit.data.unit
    text = (
        "An unmeasured confounder is something that influenced decisions and outcomes and is not in the log. Suppose "
        f"that it changes the odds of a whole {unit} by up to some factor: how far could the estimate move? The factor "
        "at which the new policy and current practice can no longer be told apart is the breakdown point. "
        f"{as_sentence(audit.breakdown.describe(unit))}"
    )
    text += audit.signs_text()
    strength = audit.strength_text()
    text += f" {strength}" if strength else ""
    curve = audit.summary.confounding
    pictures = () if curve is None else (_bounds(audit, curve),)
    title = "Unmeasured confounding"
    return Section("confounding", title, title, (Text(text), *pictures, *_columns(audit)))


def _columns(audit: Audit) -> tuple[Any, ...]:
    """What each recorded column would do if it were not recorded."""
    if not audit.benchmark:
        return ()
    text = (
        "A factor is easier to judge beside those of the recorded columns. Each row says by which factor the weight of "
        f"a {audit.data.unit} changes when the column is unknown and has to be predicted from the others; 95% of the "
        f"{audit.data.units} change by less."
    )
    rows = [{"column": row.column, "factor": round(row.factor, 2)} for row in audit.benchmark]
    return Text(text), grid("Recorded columns as a yardstick", rows, folded=len(rows) > 12)


def _bounds(audit: Audit, curve: ConfoundingCurve) -> Any:
    figure, axis = panel()
    found = audit.breakdown
    plots.confounding(curve, axis, practice=found.baseline, breakdown=found.factor)
    axis.set(ylabel=label_text(audit.settings.about.value_label(audit.data.unit)))
    legend_above(figure, axis, columns=2)
    rows = [
        {"factor": float(g), "lowest": float(a), "highest": float(b)}
        for g, a, b in zip(curve.factor, curve.low, curve.high, strict=True)
    ]
    caption = (
        f"Lowest and highest value if an unmeasured confounder changes the odds of each {audit.data.unit} by up to "
        "a factor."
    )
    label = "Bounds under unmeasured confounding"
    return picture("bounds", figure, label=label, caption=caption, data=grid("Bounds", rows))


def limits_section(audit: Audit) -> Section:
    """Two lists: what can be said, and what cannot."""
    blocks = (
        Text("What this log supports:"),
        Bullets(_supported(audit)),
        Text("What it does not support, whatever the numbers:"),
        Bullets(_unsupported(audit)),
    )
    return Section("limits", "What can be said", "What can and cannot be said", blocks)


def _supported(audit: Audit) -> tuple[str, ...]:
    policy, practice, _ = value_texts(audit)
    known = f"Current practice achieved {practice} ({interval_text(audit.practice)})."
    if audit.verdict == "do not trust":
        return (known, "The new policy cannot be evaluated on this log as it stands.", *_remedies(audit))
    about = f"{policy} ({interval_text(audit.headline)})"
    first = f"Without unmeasured confounders, the new policy would have achieved about {about}."
    gain = {
        1: "Under the same condition it would have done better than current practice.",
        -1: "Under the same condition it would have done worse than current practice.",
    }.get(sign_of_gain(audit) or 0, "Whether that is better or worse than current practice is open.")
    return (known, first, gain)


def _remedies(audit: Audit) -> list[str]:
    """What to do about each issue, each advice once."""
    issues = [finding for finding in audit.findings if finding.level == "issue"]
    return list(dict.fromkeys(finding.check.remedy for finding in issues))


def _unsupported(audit: Audit) -> tuple[str, ...]:
    unit, units = audit.data.unit, audit.data.units
    return (
        f"That the new policy is safe or good for one given {unit}. The estimate is a mean over the {units} of this "
        "log.",
        f"That the result holds elsewhere or later. Other {units} and other decision makers were not in the log.",
        "That there is no unmeasured confounder. No computation on the log can show this. The section on unmeasured "
        "confounding says how strong one would have to be.",
        f"That the interval covers every error. {_covered(audit)}",
        "Anything about actions that were never taken in such states.",
    )


def _covered(audit: Audit) -> str:
    """What the interval of the estimate includes, and what it does not."""
    fitted = "the values" if audit.settings.propensities_logged else "the behaviour model and the values"
    return (
        "It includes sampling error, at least that of the plain weights, and what marginalising and capping them "
        f"moved. What fitting {fitted} to another log would change is not in it."
    )


def settings_section(audit: Audit) -> Section:
    """All settings with the seed, the features, the versions, and what each stage took."""
    features = audit.data.feature_names
    settings = {**audit.settings.to_dict(), "actions": audit.data.n_actions, "features": len(features)}
    stages = [
        {
            "stage": stage.name,
            "seconds": round(stage.seconds, 2),
            "largest memory so far, GB": round(stage.peak_gb, 2),
        }
        for stage in audit.stages
    ]
    total = sum(stage.seconds for stage in audit.stages)
    intro = f"The same log, settings and versions give the same numbers. The audit took {total:.1f} seconds."
    named = [{"number": i, "feature": name} for i, name in enumerate(features)]
    blocks = (
        Text(intro),
        grid(
            "Settings",
            [{"setting": name, "value": str(value)} for name, value in settings.items()],
            most=_MAX_SETTINGS,
        ),
        grid("Features of the state", named, folded=True),
        grid("Versions", [{"package": name, "version": text} for name, text in versions().items()]),
        grid("Time and memory of each stage", stages),
    )
    return Section("settings", "Settings", "Settings, versions, seeds and times", blocks)


def words_section(audit: Audit) -> Section:
    """The words of the page, explained."""
    unit, units = audit.data.unit, audit.data.units
    words = {
        unit[:1].upper() + unit[1:]: "One course of states, decisions and rewards, step after step.",
        "Policy": "A rule that says how likely each action is in each state.",
        "Current practice": "The policy that produced the log, also called the behaviour policy.",
        "New policy": "The policy that is evaluated, also called the target policy.",
        "Value": f"The sum of the rewards per {unit}, on average. What a reward is was decided when the log was made.",
        "Behaviour model": "An estimate of how likely current practice takes each action in each state.",
        "Weight": f"How much more likely the decisions of one {unit} are under the new policy than in current "
        "practice.",
        "Effective sample size": f"How many equally weighted {units} would be as informative as the weighted ones.",
        "Confidence interval": "At a level of 95% it holds the true value in 95 of 100 such logs, if the weights are "
        "right.",
        "Doubly robust": "Fitted values corrected by weighted outcomes: right if the values or the weights are right.",
        "Direct method": "Fitted values alone, without weights. Nothing in it reveals that the values are wrong.",
        "Log loss (NLL)": "Mean negative log-likelihood of held-out decisions. Lower is better.",
        "Held out": f"Not used for fitting. Predictions for held-out {units} show how good a model is.",
        "Total variation": "How far two sets of probabilities lie apart, from 0 (equal) to 1 (nothing in common). It "
        "is the share of decisions that would have to change.",
        "Null": "What a measure of error would be for a right model. Chance alone makes it larger than 0, so only what "
        "exceeds the null is error.",
        "z": "How far a number lies from what it should be, in standard errors. Within 2 it may be chance; beyond 4 it "
        "hardly is.",
        "Pareto shape (k)": "How heavy the tail of the weights is: how much the largest few can dominate. Below 0.5 "
        "averages settle well, above 0.7 hardly, above 1 not at all.",
        "Negative control": "A value that is known, estimated as if it were not; also called placebo.",
        "Unmeasured confounder": "Something that influenced decisions and outcomes and is not in the log.",
    }
    return Section("words", "Words", "Words used here", (Words(words),))


def codes_section(findings: Iterable[Finding]) -> Section:
    """What each code on the page means, and what to do about it."""
    by_code = {finding.code: finding for finding in findings}
    checks = tuple(by_code[code].check for code in sorted(by_code))
    text = "Every finding has a code. This is what each code on this page means, and what to do about it."
    return Section(
        "codes", "Codes", "What the codes mean", (Text(text), Explanations(checks)) if checks else ()
    )
