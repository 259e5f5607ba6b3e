"""Conditions of the user's own that the result of an audit must meet, such as 200 effective trajectories."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from caliope._results import finite


@dataclass(frozen=True)
class Requirement:
    """A condition, what was found, and whether that meets it; made by :meth:`Audit.require`.

    Attributes
    ----------
    name : str
        Its name, such as "effective_n".
    label : str
        What is measured, in words.
    limit : float
        What is required.
    found : float
        What the audit found; nan where the estimate should not be believed and has no interval.
    least : bool
        Whether at least ``limit`` is required; at most that otherwise.

    Examples
    --------
    >>> few = Requirement("effective_n", "effective sample size of the value", 200, 152.3, least=True)
    >>> few.met, few.text
    (False, 'effective sample size of the value 152.3, required at least 200: not met')
    """

    name: str
    label: str
    limit: float
    found: float
    least: bool

    @property
    def met(self) -> bool:
        """Whether the condition is met; what was not found does not meet it."""
        return self.found >= self.limit if self.least else self.found <= self.limit

    @property
    def text(self) -> str:
        """The condition and what was found, in one line."""
        found = "not known, as the estimate should not be believed" if math.isnan(self.found) else ""
        required = f"required at {'least' if self.least else 'most'} {self.limit:.6g}"
        return f"{self.label} {found or f'{self.found:.4g}'}, {required}: {'' if self.met else 'not '}met"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "name": self.name,
            "required": {"at least" if self.least else "at most": self.limit},
            "found": finite(self.found),
            "met": self.met,
            "text": self.text,
        }


# Name -> what is measured in words, whether at least that much is required, and how it is read from an audit.
_MEASURES: Mapping[str, tuple[str, bool, Callable[[Any], float]]] = {
    "trajectories": ("trajectories in the log", True, lambda a: a.settings.n_trajectories),
    "effective_n": ("effective sample size of the value", True, lambda a: a.headline.effective_n),
    "width": ("width of the interval of the value", False, lambda a: a.headline.shown.width),
    "difference_width": ("width of the interval of the difference", False, lambda a: a.gain.shown.width),
    "value": ("lower end of the interval of the value", True, lambda a: a.headline.shown.low),
    "difference": ("lower end of the interval of the difference", True, lambda a: a.gain.shown.low),
    "breakdown": ("breakdown factor of unmeasured confounding", True, lambda a: a.breakdown.factor),
}
REQUIREMENTS = tuple(_MEASURES)


def check_limits(limits: Mapping[str, Any]) -> None:
    """Raise unless these are limits of known names; before anything is fitted."""
    for name, limit in limits.items():
        if name not in _MEASURES:
            close = get_close_matches(str(name), _MEASURES, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(f"require knows {', '.join(_MEASURES)}; got {name!r}{hint}.")
        number = isinstance(limit, int | float) and not isinstance(limit, bool) and math.isfinite(limit)
        if not number:
            raise ValueError(f"require: the limit of {name} must be a finite number, got {limit!r}.")


def check_requirements(audit: Any, limits: Mapping[str, float]) -> tuple[Requirement, ...]:
    """Each condition with what an audit found."""
    check_limits(limits)
    return tuple(
        Requirement(name, label, float(limits[name]), float(read(audit)), least)
        for name, (label, least, read) in _MEASURES.items()
        if name in limits
    )
