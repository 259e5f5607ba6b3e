"""How long an audit may still take, from what its stages took so far and what they take of a usual audit."""

from __future__ import annotations

from pathlib import Path

# Shares of an audit with the default models, in per cent (caliope demo); a stage that is not here takes no time.
_SHARES = {
    "reading the log": 2,
    "checking the log": 1,
    "fitting behaviour models": 36,
    "comparing them": 16,
    "predicting practice": 1,
    "placebo": 15,
    "fitting other models": 7,
    "fitting values": 3,
    "gathering evidence": 1,
    "estimating": 1,
    "other choices": 14,
    "what would overturn it": 1,
    "writing the report": 2,
}
_LARGE = 50_000_000  # bytes of a log whose size, and not the fits, decides how long it takes
_TOO_EARLY = 20  # per cent: what was done until then says little about the rest


def time_left(stage: str, elapsed: float) -> str:
    """In words, when a stage begins; empty as long as nobody can tell.

    >>> time_left("predicting practice", 55.0), time_left("checking the log", 1.0)
    ('about 45 s left', '')
    """
    group = stage.partition(":")[0]
    if group not in _SHARES:
        return ""
    names = list(_SHARES)
    done = sum(_SHARES[name] for name in names[: names.index(group)])
    if done < _TOO_EARLY:
        return ""
    seconds = elapsed * (100 - done) / done
    return f"about {seconds:.0f} s left" if seconds < 90 else f"about {seconds / 60:.0f} min left"


def is_usual(log: str) -> bool:
    """Whether a log is small enough for the shares of a usual audit to hold."""
    path = Path(log)
    return not path.is_file() or path.stat().st_size < _LARGE
