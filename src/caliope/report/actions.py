"""What practice does and what the policy would do, and where the two hardly meet."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope import plots
from caliope.auditing import Audit
from caliope.ragged import Float
from caliope.report.blocks import Grid, Section, Text, grid
from caliope.report.drawing import panel, picture
from caliope.report.summaries import Overlap, overlap

_GRID = 25  # actions: five doses of one drug times five of another
_MOST = 30  # bars


def overlap_section(audit: Audit) -> Section:
    """How often practice does what the policy would do."""
    title = "Overlap: does practice ever do what the policy would?"
    found = overlap(audit.wanted, audit.acted)
    text = (
        "No weighting can tell what an action would do that is never taken. Here is how much of what the new policy "
        "would do falls on actions that practice chooses often, seldom, or hardly ever in the same state. "
        f"{found.rare:.1%} of it falls on actions that practice chooses in fewer than 1 of 100 such cases."
    )
    return Section("overlap", "Overlap", title, (Text(text), _overlap_picture(found)))


def _overlap_picture(found: Overlap) -> Any:
    figure, axis = panel(height=3.4)
    names = [
        f"{100 * low:g} to {100 * high:g}%" for low, high in zip(found.edges, found.edges[1:], strict=False)
    ]
    shares = {"new policy": 100 * found.policy, "practice itself": 100 * found.practice}
    plots.grouped_bars(names, shares, axis)
    axis.tick_params(axis="x", rotation=30)
    axis.set(xlabel="how often practice takes the action", ylabel="% of the decisions")
    axis.legend(fontsize=8, frameon=False, loc="upper left")
    rows = [
        {"practice takes it in": name, "share of the new policy": float(p), "share of practice": float(b)}
        for name, p, b in zip(names, found.policy, found.practice, strict=True)
    ]
    caption = "Bars on the left are decisions of which the log holds little or nothing."
    return picture(
        "overlap-bars",
        figure,
        label="Overlap of policy and practice",
        caption=caption,
        data=grid("Overlap", rows),
    )


def actions_section(audit: Audit) -> Section:
    """How often each action was taken, and would be, in the states of the log."""
    logged = np.bincount(audit.data.actions, minlength=audit.data.n_actions) / audit.data.n_steps
    wanted = audit.wanted.mean(axis=0)
    text = (
        "How often each action was taken, and how often the new policy would take it in the same states. (A policy "
        "that acts differently would meet other states later on; this picture does not show that.)"
    )
    data = _data(logged, wanted)
    drawn = _maps(logged, wanted, data) if len(logged) == _GRID else (_bars(logged, wanted, data),)
    return Section("actions", "Actions", "Actions: practice against policy", (Text(text), *drawn))


def _data(logged: Float, wanted: Float) -> Grid:
    rows = [
        {"action": i, "practice": float(b), "new policy": float(e), "difference": float(e - b)}
        for i, (b, e) in enumerate(zip(logged, wanted, strict=True))
    ]
    return grid("Share of the decisions by action", rows)


def _maps(logged: Float, wanted: Float, data: Grid) -> tuple[Any, ...]:
    top = float(max(logged.max(), wanted.max()))
    apart = wanted - logged
    far = float(max(np.abs(apart).max(), 1e-3))
    return (
        _map("map-practice", "Practice", logged, data, cmap="Oranges", vmin=0, vmax=top),
        _map("map-policy", "New policy", wanted, data, cmap="Blues", vmin=0, vmax=top),
        _map("map-difference", "New policy minus practice", apart, data, cmap="PuOr", vmin=-far, vmax=far),
    )


def _map(name: str, title: str, shares: Float, data: Grid, **colours: Any) -> Any:
    figure, axis = panel(height=3.4, width=3.8)
    table = shares.reshape(5, 5)
    axis.pcolormesh(table, edgecolors="#fefefe", linewidth=0.5, **colours)
    span = max(abs(colours["vmin"]), abs(colours["vmax"]))
    for i, j in np.ndindex(5, 5):
        dark = abs(table[i, j]) > 0.6 * span
        axis.text(
            j + 0.5,
            i + 0.5,
            f"{100 * table[i, j]:.1f}",
            ha="center",
            va="center",
            fontsize=8,
            color="#fefefe" if dark else "#111111",
        )
    axis.set_xticks(np.arange(5) + 0.5, range(5))
    axis.set_yticks(np.arange(5) + 0.5, range(5))
    axis.set(title=title, xlabel="action mod 5: vasopressors", ylabel="action div 5: fluids", aspect="equal")
    caption = (
        f"{title}: % of the decisions. Action 0 is at the lower left, 24 at the upper right; in the sepsis cohort the "
        "dose of fluids rises upwards and that of vasopressors to the right."
    )
    if colours["vmin"] < 0:
        caption += " Violet: the new policy does it more often. Orange: practice does."
    return picture(
        name, figure, label=f"Heat map of 25 actions: {title.lower()}", caption=caption, data=data, small=True
    )


def _bars(logged: Float, wanted: Float, data: Grid) -> Any:
    order = np.argsort(-np.abs(wanted - logged), kind="stable")[:_MOST]
    order = np.sort(order)
    figure, axis = panel(height=3.2)
    names = [str(i) for i in order]
    plots.grouped_bars(names, {"new policy": 100 * wanted[order], "practice": 100 * logged[order]}, axis)
    axis.set(xlabel="action", ylabel="% of the decisions")
    if len(order) > 12:
        axis.tick_params(axis="x", labelsize=5)
    axis.legend(fontsize=8, frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    caption = "How often each action is taken."
    if len(logged) > _MOST:
        caption += f" Of {len(logged)} actions the {_MOST} in which the two differ most."
    return picture("action-bars", figure, label="Actions of practice and policy", caption=caption, data=data)
