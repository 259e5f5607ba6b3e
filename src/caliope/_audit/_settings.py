"""How an audit was made: its settings, and what each of its stages took."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from caliope._audit._about import About
from caliope._results import finite

_LISTED = 12  # strata that the settings spell out

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """One stage of an audit.

    Attributes
    ----------
    name : str
        What was done.
    seconds : float
        How long it took.
    peak_gb : float
        Largest memory of the process up to its end; nan where the system does not tell.
    """

    name: str
    seconds: float
    peak_gb: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {"name": self.name, "seconds": self.seconds, "peak_gb": finite(self.peak_gb)}


@dataclass
class Stages:
    """A timer to call with a name around each stage; those that are done are in ``done``."""

    progress: Progress | None = None
    done: list[Stage] = field(default_factory=list)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Report the name, run the stage, and keep what it took."""
        if self.progress is not None:
            self.progress(name)
        started = time.perf_counter()
        yield
        self.done.append(Stage(name, time.perf_counter() - started, _peak_gb()))


def _peak_gb() -> float:
    try:
        import resource
    except ImportError:  # not on every system
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e9 if sys.platform == "darwin" else 1e6)  # bytes on a Mac, kilobytes elsewhere


@dataclass(frozen=True)
class AuditSettings:
    """How an audit was made.

    Attributes
    ----------
    gamma : float
        Discount.
    level : float
        Level of the confidence intervals.
    n_draws : int
        Bootstrap draws.
    seed : int
        Seed of everything random.
    n_trajectories, n_steps : int
        Size of the log.
    n_fitted_on : int
        Trajectories that models were fitted on.
    n_looked_at : int
        Trajectories of the negative control and of the other choices.
    propensities_logged : bool
        Whether the log held the probabilities of its actions. They were used then.
    behaviour : str
        The behaviour policy, in words.
    candidates : tuple of str
        Names of the behaviour models that were tried.
    values : str
        How values were fitted, in words.
    target : str
        Kind of the target policy.
    strata : tuple of str
        Names of the strata, sorted; empty without any.
    about : About
        Title, question and names, in the words of the user.
    answers : mapping from str to str
        The questions that no log answers, and the answers in words.
    worst : float or None
        The worst plausible return of a trajectory, where it was given.
    weights : str
        What was done to the weights, in words.
    n_clusters : int, optional
        Clusters that folds and resamples kept together; None where trajectories were independent.
    source : mapping from str to str
        How the log was read, in words: categories, gaps and doses; all columns where the command line read it.
    all_recorded : bool
        Whether the log held the probabilities of all actions, and not of those taken alone.
    learning : str
        Whether fitting on more decisions would help, in words; empty where all were fitted on.
    """

    gamma: float
    level: float
    n_draws: int
    seed: int
    n_trajectories: int
    n_steps: int
    n_fitted_on: int
    n_looked_at: int
    propensities_logged: bool
    behaviour: str
    candidates: tuple[str, ...]
    values: str
    target: str
    strata: tuple[str, ...] = ()
    about: About = field(default_factory=About)
    answers: Mapping[str, str] = field(default_factory=dict)
    worst: float | None = None
    weights: str = (
        "of the estimate and its difference: marginalised (regressed on state and time, out of fold), then capped; of "
        "other rows: as they are, or capped where the row says so. A cap is the mean times sqrt(n) / 3"
    )
    source: Mapping[str, str] = field(default_factory=dict)
    n_clusters: int | None = None
    all_recorded: bool = False
    learning: str = ""

    @property
    def question(self) -> str:
        """What was asked, in words; empty if nobody said."""
        return self.about.question

    def to_dict(self) -> dict[str, Any]:
        """Plain values under readable names, for JSON and for a table of settings."""
        asked = {"question": self.question} if self.question else {}
        own = {
            "gamma": self.gamma,
            "seed": self.seed,
            "level": self.level,
            "draws": self.n_draws,
            "trajectories": self.n_trajectories,
            "steps": self.n_steps,
            "trajectories fitted on": self.n_fitted_on,
            "trajectories of the negative control and of other choices": self.n_looked_at,
            "target": self.target,
            "clusters": "none named" if self.n_clusters is None else self.n_clusters,
            **self.answers,
            "strata": self._list_strata(),
            "probabilities logged": self.propensities_logged,
            "behaviour": self.behaviour,
            "candidates": ", ".join(self.candidates),
            **({"learning curve": self.learning} if self.learning else {}),
            "values": self.values,
            "worst plausible return": "the worst in the log" if self.worst is None else self.worst,
            "weights": self.weights,
        }
        # How the log was read comes first, and says more about the target than its kind does.
        return asked | dict(self.source) | own | dict(self.source)

    def _list_strata(self) -> str:
        shown = ", ".join(self.strata[:_LISTED]) or "none"
        more = len(self.strata) - _LISTED
        return shown if more <= 0 else f"{shown} and {more} more"
