"""Findings on the calibration numbers of a behaviour model."""

from __future__ import annotations

from typing import Any

import numpy as np

from caliope._trajectories import Trajectories
from caliope.behaviour._fit import match_trajectories
from caliope.calibration._result import Measured, ModelDetails
from caliope.checks import K101, K102, K103, K104, K105, K106, K107, K108, K109, K110, Finding, Level

# Standard deviations of the null.
REJECTED = 3.0
# Excess total variation, or error of a ratio, from which a model misleads.
LARGE = 0.05
# With enough data any model is rejected: an excess below this is only a note.
SMALL = 0.02
# Mean of error times standardised function from which a failed balance test is a caution.
EFFECT = 0.01
# Events expected in a bin of ratios, below which its z is not used.
FEW_EVENTS = 10
# Share of the trajectories in the fit; up to it they may be equal by chance.
SEEN = 0.05
# Below these a stratum says little.
FEW_STATES, FEW_TRAJECTORIES = 50, 10


def judge(details: ModelDetails, measured: Measured, *, whole: bool = True) -> tuple[Finding, ...]:
    """Check the numbers of one model, for the whole log or a stratum."""
    checks = [_check_zeros(measured), _check_size(measured), _check_averaged(measured)]
    if whole:
        checks += [
            _check_constant(details),
            _check_balance(details),
            _check_kernel(measured),
            _check_recalibration(measured),
            _check_ratios(details),
        ]
    return tuple(finding for finding in checks if finding is not None)


def check_held_out(model: Any, data: Trajectories) -> tuple[Finding, ...]:
    """Report a model that is judged on the steps that it was fitted on."""
    own = getattr(model, "data", None)
    if getattr(model, "mode", "") != "same" or not isinstance(own, Trajectories):
        return ()
    # Trajectories of few discrete states are equal by chance: there ids decide.
    share = float((match_trajectories(own, data) >= 0).mean())
    if share < SEEN:
        return ()
    return (K107.finding("issue", share=share),)


def select_worse(whole: tuple[Finding, ...], part: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Select the findings on a stratum that the whole log does not have, or at a lower level."""
    order = ("note", "caution", "issue")
    levels = {finding.code: order.index(finding.level) for finding in whole}
    return tuple(f for f in part if order.index(f.level) > levels.get(f.code, -1))


def _check_zeros(m: Measured) -> Finding | None:
    if m.zero_share == 0:
        return None
    return K101.finding("issue", share=m.zero_share)


def _check_size(m: Measured) -> Finding | None:
    if m.n_states >= FEW_STATES and m.n >= FEW_TRAJECTORIES:
        return None
    return K102.finding("caution", states=m.n_states, trajectories=m.n)


def _check_averaged(m: Measured) -> Finding | None:
    metric = m.averaged_tv
    if metric.z < -REJECTED:
        return K110.finding("caution", z=metric.z)
    if not metric.z > REJECTED:
        return None
    level: Level = "issue" if metric.excess > LARGE else "caution" if metric.excess > SMALL else "note"
    return K103.finding(level, z=metric.z, excess=metric.excess)


def _check_constant(details: ModelDetails) -> Finding | None:
    if np.ptp(details.table, axis=0).max() > 1e-9:
        return None
    return K104.finding("caution")


def _check_balance(details: ModelDetails) -> Finding | None:
    table = details.balance
    if table.p_value > 0.01:
        return None
    action, where = table.worst
    effect = float(np.abs(table.effect).max())
    facts = {"z": table.largest.value, "p": table.p_value, "effect": effect, "tests": table.z.size}
    return K105.finding("caution" if effect > EFFECT else "note", action=action, where=where, **facts)


def _check_kernel(m: Measured) -> Finding | None:
    if m.kernel is None or not m.kernel.p_value <= 0.01:
        return None
    return K106.finding("note", z=m.kernel.z)


def _check_recalibration(m: Measured) -> Finding | None:
    saved = m.calibration_loss
    if saved is None or not (saved > 0.02 and np.isfinite(saved)):
        return None
    return K108.finding("note", saved=saved, recalibration=m.recalibration)


def _check_ratios(details: ModelDetails) -> Finding | None:
    r = details.ratios
    clear = (r.events >= FEW_EVENTS) & (np.abs(r.z) >= 4) & (np.abs(r.observed - 1) >= LARGE)
    if not clear.any():
        return None
    worst = int(np.argmax(np.where(clear, np.abs(r.z), 0.0)))
    off = float(r.observed[worst])
    size = r.ratio[worst] if r.with_target else r.ratio[worst] * details.table.shape[1]
    level: Level = "issue" if abs(off - 1) > 0.5 else "caution"
    facts = {"ratio": float(r.ratio[worst]), "observed": off, "size": float(size), "z": float(r.z[worst])}
    return K109.finding(level, "weights" if r.with_target else "probabilities", **facts)
