"""Names for a report: its title, the question, the policy, the outcome, and who made it when."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from typing import Any

from caliope._trajectories import Trajectories
from caliope._validation import as_unit

_LINE = ("title", "policy", "outcome", "outcome_unit", "unit", "author", "date")  # one line each


@dataclass(frozen=True)
class About:
    """What an audit is about, in the user's words; shown on the console, on the page and in the JSON.

    All are optional. Nothing else decides what a page speaks of.

    Parameters
    ----------
    title : str
        Title of the page.
    question : str
        What is asked. Where the target is a mixture with current practice, a finding says so.
    policy : str
        Name of the new policy.
    outcome, outcome_unit : str
        What the sum of the rewards of a trajectory measures, such as "spending" in "euros".
    unit : str
        What one trajectory is called, such as "visit"; by default as in the log.
    action_names : sequence of str
        Names of the actions in the order of their codes; by default as in the log.
    grid : mapping from str to int or sequence of str
        Two factors whose levels make up the actions, such as ``{"price": 3, "colour": ["red", "blue"]}``: their number,
        or their names. The last one changes fastest. In place of ``action_names``.
    author, date : str
        Who made the audit, and when; a date may be a ``datetime.date``.

    Examples
    --------
    >>> about = About(title="Banners", policy="late offers", outcome="spending", outcome_unit="euros", unit="visits")
    >>> about.value_label("trajectory"), about.policy_label
    ('spending (euros) per visit', 'New policy (late offers)')
    """

    title: str = ""
    question: str = ""
    policy: str = ""
    outcome: str = ""
    outcome_unit: str = ""
    unit: str = ""
    action_names: Sequence[str] = ()
    grid: Mapping[str, int | Sequence[str]] = field(default_factory=dict)
    author: str = ""
    date: str | datetime.date = ""

    def __post_init__(self) -> None:
        if isinstance(self.date, datetime.date):
            object.__setattr__(self, "date", self.date.isoformat()[:10])
        for name in (*_LINE, "question"):
            text = getattr(self, name)
            if not isinstance(text, str):
                raise TypeError(f"{name} must be text, got {text!r}.")
            object.__setattr__(self, name, " ".join(text.split()))
        if self.unit:
            object.__setattr__(self, "unit", as_unit(self.unit))
        object.__setattr__(self, "action_names", self._names())

    def _names(self) -> tuple[str, ...]:
        if isinstance(self.action_names, str) or not all(isinstance(name, str) for name in self.action_names):
            raise TypeError(f"action_names must be a list of words, got {self.action_names!r}.")
        names = grid_names(self.grid) if self.grid else tuple(self.action_names)
        if self.action_names and tuple(self.action_names) != names:
            raise ValueError("grid and action_names both name the actions: give one of the two.")
        return names

    @property
    def policy_label(self) -> str:
        """The new policy with its name."""
        return f"New policy ({self.policy})" if self.policy else "New policy"

    def value_label(self, unit: str) -> str:
        """What an axis of values shows, per trajectory."""
        measured = f" ({self.outcome_unit})" if self.outcome_unit else ""
        return f"{self.outcome or 'value'}{measured} per {self.unit or unit}"

    def with_unit(self, number: str) -> str:
        """A number with the unit of the outcome."""
        return f"{number} {self.outcome_unit}" if self.outcome_unit else number

    @property
    def made(self) -> str:
        """Who made the audit and when; empty if nobody said."""
        return ", ".join(str(x) for x in (self.author, self.date) if x)

    def name_log(self, data: Trajectories) -> Trajectories:
        """The log with the names of its unit and of its actions."""
        names = self.action_names
        if names and len(names) != data.n_actions:
            what = "grid makes" if self.grid else "action_names has"
            raise ValueError(
                f"{what} {len(names)} actions, and the log has {data.n_actions}: name each of them once, in the order "
                "of their codes."
            )
        changes = ({"unit": self.unit} if self.unit else {}) | ({"action_names": names} if names else {})
        return data.replace(**changes) if changes else data

    def check_named(self, data: Trajectories) -> None:
        """Raise if the log was prepared under other names: findings about it are in words already."""
        if (self.unit and self.unit != data.unit) or (
            self.action_names and tuple(self.action_names) != data.action_names
        ):
            raise ValueError(
                "the log was prepared under other names: give unit and action names before, as in "
                "prepare_audit(data.replace(unit='visit'))."
            )

    def to_dict(self) -> dict[str, Any]:
        """What was said, by name."""
        given = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "grid"}
        return {name: list(x) if isinstance(x, tuple) else x for name, x in given.items() if x}


def as_about(about: Any) -> About:
    """What was said, or nothing; raise in one line if it is something else."""
    if about is None:
        return About()
    if not isinstance(about, About):
        raise TypeError(f"about must be cal.About(title=..., question=...), got {about!r}.")
    return about


def grid_names(grid: Mapping[str, int | Sequence[str]]) -> tuple[str, ...]:
    """Names of actions that combine two factors.

    >>> grid_names({"price": 2, "colour": ["red", "blue"]})
    ('price 0 / colour red', 'price 0 / colour blue', 'price 1 / colour red', 'price 1 / colour blue')
    """
    if not isinstance(grid, Mapping) or len(grid) != 2:
        raise ValueError(f"grid must have two factors, such as {{'price': 3, 'colour': 2}}, got {grid!r}.")
    levels = []
    for name, given in grid.items():
        if isinstance(given, bool) or not isinstance(given, int | list | tuple):
            raise TypeError(f"grid: {name!r} must have a number of levels or their names, got {given!r}.")
        parts = [str(i) for i in range(given)] if isinstance(given, int) else [str(x) for x in given]
        if len(parts) < 2:
            raise ValueError(f"grid: {name!r} must have two levels or more, got {given!r}.")
        levels.append([f"{name} {part}" for part in parts])
    return tuple(f"{first} / {second}" for first, second in product(*levels))
