"""What a reader of the calibration numbers must know: each check a finding with a stable code."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope.calibration.details import ModelDetails
from caliope.calibration.rows import Measured
from caliope.results import Finding, Level
from caliope.trajectories import Trajectories

REJECTED = 3.0  # standard deviations of the null
LARGE = 0.05  # excess total variation, or ratio off by so much: a model that misleads
SMALL = 0.02  # and with enough data any model is rejected: less than this is only noted
EFFECT = 0.01  # mean of error times standardised function, from which a rejected balance weakens a model
FEW_EVENTS = 10  # expected in a bin of ratios, below which its z is not looked at
FEW_STATES, FEW_TRAJECTORIES = 50, 10  # below these a stratum says little


def judge(found: ModelDetails, measured: Measured, *, whole: bool = True) -> tuple[Finding, ...]:
    """Findings on the numbers of one model, for the whole log or a stratum."""
    checks = [_zeros(measured), _few(measured), _averaged(measured)]
    if whole:
        checks += [
            _constant(found),
            _balance(found),
            _kernel(measured),
            _recalibration(measured),
            _ratios(found),
        ]
    return tuple(finding for finding in checks if finding is not None)


def not_held_out(model: Any, data: Trajectories) -> tuple[Finding, ...]:
    """A finding where a model is judged on the very steps that it was fitted on."""
    own = getattr(model, "data", None)
    if getattr(model, "mode", "") != "same" or not isinstance(own, Trajectories):
        return ()
    known = set(own.decision_digests)
    share = float(np.mean([digest in known for digest in data.decision_digests]))
    if share < 0.01:  # episodes of few discrete states are alike by chance
        return ()
    message = (
        f"the model was fitted on {share:.0%} of the trajectories that judge it: its scores say how well it remembers, "
        "and it is not chosen; "
        'use fit_behaviour(..., mode="cross") or other trajectories'
    )
    return (Finding("K107", "issue", message, {"share": share}),)


def worse_than(known: tuple[Finding, ...], found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Findings on a stratum that the whole log does not have, or not so gravely."""
    order = ("note", "caution", "issue")
    said = {finding.code: order.index(finding.level) for finding in known}
    return tuple(f for f in found if order.index(f.level) > said.get(f.code, -1))


def _zeros(m: Measured) -> Finding | None:
    if m.zero_share == 0:
        return None
    message = (
        f"probability 0 for {m.zero_share:.2%} of the actions that were taken: the NLL is infinite and no importance "
        "weight exists there; shrink the model towards the marginal frequencies"
    )
    return Finding("K101", "issue", message, {"share": m.zero_share})


def _few(m: Measured) -> Finding | None:
    if m.n_states >= FEW_STATES and m.n >= FEW_TRAJECTORIES:
        return None
    message = f"these numbers rest on {m.n_states} sampled states and {m.n} trajectories: too few to say much"
    return Finding("K102", "caution", message, {"states": m.n_states, "trajectories": m.n})


def _averaged(m: Measured) -> Finding | None:
    metric = m.averaged_tv
    if metric.z < -REJECTED:
        message = (
            f"around a state the actions taken are closer to those predicted than chance allows (z = {metric.z:.1f}): "
            "was the model fitted on these very steps?"
        )
        return Finding("K110", "caution", message, {"z": metric.z})
    if not metric.z > REJECTED:
        return None
    message = (
        f"rejected by neighbourhoods: around a state the actions taken differ from those predicted by "
        f"{metric.excess:.3f} more than chance (z = {metric.z:.1f})"
    )
    level: Level = "issue" if metric.excess > LARGE else "caution" if metric.excess > SMALL else "note"
    return Finding("K103", level, message, {"z": metric.z, "excess": metric.excess})


def _constant(found: ModelDetails) -> Finding | None:
    if np.ptp(found.table, axis=0).max() > 1e-9:
        return None
    return Finding(
        "K104", "caution", "the same prediction in every state: it ignores what was known of the patient"
    )


def _balance(found: ModelDetails) -> Finding | None:
    table = found.balance
    if table.p_value > 0.01:
        return None
    action, where = table.worst
    message = (
        f"its errors can be foretold: action {action} goes with {where} (|z| = {table.largest.value:.1f}, the largest "
        f"of {table.z.size} comparisons, p = {table.p_value:.3f})"
    )
    effect = float(np.abs(table.effect).max())
    numbers = {"z": table.largest.value, "p": table.p_value, "effect": effect}
    return Finding("K105", "caution" if effect > EFFECT else "note", message, numbers)


def _kernel(m: Measured) -> Finding | None:
    if m.kernel is None or not m.kernel.p_value <= 0.01:
        return None
    message = (
        f"rejected by the kernel test: it errs the same way in states that are alike (z = {m.kernel.z:.1f})"
    )
    return Finding("K106", "note", message, {"z": m.kernel.z})


def _recalibration(m: Measured) -> Finding | None:
    saved = m.calibration_loss
    if saved is None or not (saved > 0.02 and np.isfinite(saved)):
        return None
    message = f"{m.recalibration} would lower its NLL by {saved:.3f}: recalibrate it"
    return Finding("K108", "note", message, {"saved": saved})


def _ratios(found: ModelDetails) -> Finding | None:
    r = found.ratios
    clear = (r.events >= FEW_EVENTS) & (np.abs(r.z) >= 4) & (np.abs(r.observed - 1) >= LARGE)
    if not clear.any():
        return None
    worst = int(np.argmax(np.where(clear, np.abs(r.z), 0.0)))
    off = float(r.observed[worst])
    what = "weights" if r.with_target else "probabilities of about 1 in"
    size = r.ratio[worst] if r.with_target else r.ratio[worst] * found.table.shape[1]
    about = "of about " if r.with_target else ""
    message = (
        f"its {what} {about}{size:.3g} are off: such actions occur {off:.2f} times as often as it says "
        f"(z = {r.z[worst]:.1f})"
    )
    level: Level = "issue" if abs(off - 1) > 0.5 else "caution"
    return Finding("K109", level, message, {"ratio": float(r.ratio[worst]), "observed": off})
