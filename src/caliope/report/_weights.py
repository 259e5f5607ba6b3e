"""Sections about importance weights, overlap, and the actions of both policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from caliope import plots
from caliope._audit._result import Audit
from caliope._audit._summary import QUANTILES, Overlap, WeightsOverTime
from caliope._ragged import Float, Int
from caliope.plots._audits import overlap_names
from caliope.plots._figures import label_text, label_texts
from caliope.report._blocks import (
    Grid,
    Section,
    Text,
    grid,
    legend_above,
    name_rows,
    panel,
    picture,
    row_panel,
)

_MAX_BARS = 20  # actions in a list
_MAX_LEVELS = 8  # of a factor, for a map that can be read
_SEPARATORS = (" / ", ", ")  # between the two factors in the name of an action


def weights_section(audit: Audit) -> Section:
    """Quantiles of the weights, their mean, and the effective sample size; over time if there are several steps."""
    unit, units = audit.data.unit, audit.data.units
    w = audit.summary.weights
    if len(w.step) == 1:
        return _single_step(audit)
    data = _weight_data(w)
    text = (
        f"The weight of one {unit} says how much more likely its decisions are under the new policy than in current "
        f"practice. Weights multiply from step to step, so they spread with time and few {units} carry the estimate. "
        f"The effective sample size says how many equally weighted {units} would be as informative."
    )
    pictures = (_fan(w, units, data), _mean(w, data), _effective(w, units, data))
    return Section("weights", "Weights", "Weights over time", (Text(text), *pictures, _heaviest(audit)))


def _single_step(audit: Audit) -> Section:
    """The same in a table: of a single step no picture over time can be drawn."""
    w, unit, units = audit.summary.weights, audit.data.unit, audit.data.units
    text = (
        f"The weight of one {unit} says how much more likely its decision is under the new policy than in current "
        f"practice. Where weights differ much, few {units} carry the estimate. The effective sample size says how many "
        f"equally weighted {units} would be as informative. The mean weight should be 1. If it is lower, overlap with "
        "the new policy is poor or the behaviour model is wrong."
    )
    row: dict[str, Any] = {"mean weight": float(w.mean[0]), "its standard error": float(w.se[0])}
    row |= {"effective sample size": float(w.effective[0]), "share with weight 0": f"{w.without[0]:.1%}"}
    row |= {f"{100 * level:g}%": float(10.0 ** w.log10[i, 0]) for i, level in enumerate(QUANTILES)}
    made = grid(f"Weights of the {units}, after capping; percentages are quantiles", [row])
    return Section("weights", "Weights", "Weights", (Text(text), made, _heaviest(audit)))


def _weight_data(w: WeightsOverTime) -> Grid:
    names = [f"{100 * level:g}%" for level in QUANTILES]
    rows = [
        {"step": int(w.step[t]), "number that reach it": int(w.under_way[t])}
        | {"effective sample size of these": float(w.reaching[t])}
        | {f"log10 weight, {name}": float(w.log10[i, t]) for i, name in enumerate(names)}
        | {"mean weight": float(w.mean[t]), "its standard error": float(w.se[t])}
        | {
            "effective sample size, ended ones included": float(w.effective[t]),
            "share with weight 0": float(w.without[t]),
        }
        for t in range(len(w.step))
    ]
    return grid("Weights at each step, after capping", rows)


def _fan(w: WeightsOverTime, units: str, data: Grid) -> Any:
    figure, axis = panel()
    plots.weight_fan(w.step, QUANTILES, w.log10, axis)
    caption = (
        f"Bands hold the stated share of the {units}. On the vertical axis 0 is a weight of one, 1 is ten, -1 is a "
        "tenth."
    )
    if w.without.any():
        caption += (
            f" At the last step {w.without[-1]:.0%} of the {units} have weight 0; they lie at the lower edge."
        )
    return picture("fan", figure, label="Spread of the weights over time", caption=caption, data=data)


def _mean(w: WeightsOverTime, data: Grid) -> Any:
    figure, axis = panel()
    plots.weight_means(w.step, w.mean, w.se, axis)
    caption = (
        "The mean weight with two standard errors; it should be 1. If it is lower, overlap with the new policy is poor "
        "or the behaviour model is wrong."
    )
    return picture("mean-weight", figure, label="Mean weight over time", caption=caption, data=data)


def _effective(w: WeightsOverTime, units: str, data: Grid) -> Any:
    figure, axis = panel()
    plots.effective_sizes(w.step, w.effective, axis)
    caption = (
        f"Effective sample size at each step. The {units} that have ended keep their last weight and are counted; the "
        "table below also has the number without them. Below 100, the dashed line, intervals are too short."
    )
    return picture("effective", figure, label="Effective sample size over time", caption=caption, data=data)


def _heaviest(audit: Audit) -> Grid:
    n, units = audit.settings.n_trajectories, audit.data.units
    rows = [
        {f"heaviest {units}": size, "of all": f"{size / n:.2%}", "share of the weight": f"{share:.1%}"}
        for size, share in audit.summary.heaviest.items()
    ]
    return grid(f"How much of the weight the heaviest {units} hold", rows)


def overlap_section(audit: Audit) -> Section:
    """How often current practice does what the new policy would do."""
    found = audit.summary.overlap
    text = (
        "Weights cannot tell the effect of an action that is never taken. This section shows how much of the new "
        "policy falls on actions that current practice takes often, seldom or hardly ever in the same state. "
        f"{found.rare:.1%} of it falls on actions that current practice takes in fewer than 1 of 100 such cases."
    )
    title = "Overlap: does current practice do what the new policy would?"
    return Section("overlap", "Overlap", title, (Text(text), _overlap_picture(found), *_regions(audit)))


def _regions(audit: Audit) -> tuple[Text | Grid, ...]:
    """The regions of the states without choice, if there are any."""
    found, names = audit.support, audit.data.action_names
    if not found.regions:
        return ()
    text = (
        f"In some states current practice leaves no choice, and the new policy would act otherwise. "
        f"{found.mass:.2%} of its decisions are of this kind. The log does not show what they achieve."
    )
    rows = [
        {"where": region.rule, "seen": region.seen_text(names), "rows": region.rows}
        | {"expected otherwise": f"{region.expected:.1f}", "share of the new policy": f"{region.share:.2%}"}
        for region in found.regions
    ]
    return Text(text), grid("Where current practice leaves no choice", rows)


def _overlap_picture(found: Overlap) -> Any:
    figure, axis = panel(height=3.4)
    names = overlap_names(found)
    plots.overlap(found, axis)
    axis.legend(fontsize=8, frameon=False, loc="upper left")
    rows = [
        {"practice takes it in": name, "share of the new policy": float(p), "share of practice": float(b)}
        for name, p, b in zip(names, found.policy, found.practice, strict=True)
    ]
    return picture(
        "overlap-bars",
        figure,
        label="Overlap of the new policy and current practice",
        caption="Bars on the left are decisions of which the log holds few or none.",
        data=grid("Overlap", rows),
    )


def actions_section(audit: Audit) -> Section:
    """How often each action was taken, and would be taken in the states of the log."""
    text = (
        "How often each action was taken, and how often the new policy would take it in the same states. A policy that "
        "acts differently would later reach other states; this is not shown."
    )
    names = audit.data.action_names
    practice, policy = audit.summary.behaviour_shares, audit.summary.target_shares
    data = _action_data(names or tuple(range(len(practice))), practice, policy)
    factors = None if names is None else factor_names(names)
    if factors is not None:
        drawn = _maps(factors, practice, policy, data)
    else:
        shown = names or [f"action {i}" for i in range(len(practice))]
        drawn = (_bars(shown, practice, policy, data),)
    return Section("actions", "Actions", "Actions: current practice and new policy", (Text(text), *drawn))


def _action_data(names: Sequence[Any], practice: Float, policy: Float) -> Grid:
    rows = [
        {"action": name, "practice": float(b), "new policy": float(e), "difference": float(e - b)}
        for name, b, e in zip(names, practice, policy, strict=True)
    ]
    return grid("Share of the decisions by action", rows)


def _bars(names: Sequence[str], practice: Float, policy: Float, data: Grid) -> Any:
    order = np.sort(np.argsort(-np.abs(policy - practice), kind="stable")[:_MAX_BARS])
    figure, axis = row_panel(len(order), legend=True)
    plots.action_shares([names[i] for i in order], practice[order], policy[order], axis)
    name_rows(axis, [names[i] for i in order])
    legend_above(figure, axis, columns=2, size=8)
    caption = "How often each action is taken."
    if len(practice) > _MAX_BARS:
        caption += f" Of {len(practice)} actions, the {_MAX_BARS} in which the two differ most."
    return picture(
        "action-bars",
        figure,
        label="Actions of current practice and new policy",
        caption=caption,
        data=data,
    )


@dataclass(frozen=True, eq=False)
class Factors:
    """Two factors that together make up the actions, and the action of each pair of levels."""

    names: tuple[str, str]  # of the factors; empty where their levels share no word
    rows: tuple[str, ...]  # levels of the first one
    columns: tuple[str, ...]  # and of the second one
    action: Int  # (rows, columns)


def factor_names(names: Sequence[str]) -> Factors | None:
    """Read two factors from the names of actions, or None if they are not made of two.

    Every name must be two parts with one separator (" / " or ", ") between them, and every first part must stand
    beside every second part once. Words that all parts begin with are the name of the factor.

    >>> factor_names(["price 0 / colour red", "price 0 / colour blue", "price 1 / colour red", "price 1 / colour blue"])
    Factors(names=('price', 'colour'), rows=('0', '1'), columns=('red', 'blue'), action=array([[0, 1],
           [2, 3]]))
    >>> factor_names(["left", "right"]) is None
    True
    """
    for separator in _SEPARATORS:
        pairs = [tuple(name.split(separator)) for name in names]
        if any(len(pair) != 2 for pair in pairs):
            continue
        rows, columns = (list(dict.fromkeys(pair[i] for pair in pairs)) for i in (0, 1))
        whole = len(rows) * len(columns) == len(names) == len(set(pairs))
        if not whole or not all(2 <= len(levels) <= _MAX_LEVELS for levels in (rows, columns)):
            continue
        action = np.array([[pairs.index((row, column)) for column in columns] for row in rows])
        (first, up), (second, across) = _common(rows), _common(columns)
        return Factors((first, second), up, across, action)
    return None


def _common(levels: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The words that all levels begin with, and what is left of each."""
    words = [level.split() for level in levels]
    count = 0
    while all(len(each) > count + 1 for each in words) and len({each[count] for each in words}) == 1:
        count += 1
    return " ".join(words[0][:count]), tuple(" ".join(each[count:]) for each in words)


def _maps(factors: Factors, practice: Float, policy: Float, data: Grid) -> tuple[Any, ...]:
    top = float(max(practice.max(), policy.max()))
    apart = policy - practice
    far = float(max(np.abs(apart).max(), 1e-3))
    more = " Violet: the new policy takes it more often. Orange: current practice does."
    return (
        _map("map-practice", "Current practice", factors, (practice, "Oranges", 0.0, top), data),
        _map("map-policy", "New policy", factors, (policy, "Blues", 0.0, top), data),
        _map("map-difference", "New policy minus practice", factors, (apart, "PuOr", -far, far), data, more),
    )


def _map(
    name: str,
    title: str,
    factors: Factors,
    drawn: tuple[Float, str, float, float],
    data: Grid,
    more: str = "",
) -> Any:
    """One map: ``drawn`` are the shares by action, the colours, and the shares at their two ends."""
    shares, colours, low, high = drawn
    figure, axis = panel(height=3.4, width=3.8)
    plots.action_map(
        100 * shares[factors.action],
        axis,
        rows=label_texts(factors.rows, 12),
        columns=label_texts(factors.columns, 12),
        limits=(100 * low, 100 * high),
        colours=colours,
        text="{:.1f}",
    )
    axis.set(title=title, ylabel=label_text(factors.names[0]), xlabel=label_text(factors.names[1]))
    if max(map(len, factors.columns)) > 3:
        axis.tick_params(axis="x", rotation=30)
    label = f"Heat map of {len(shares)} actions: {title.lower()}"
    caption = f"{title}: % of the decisions by action.{more}"
    return picture(name, figure, label=label, caption=caption, data=data, small=True)
