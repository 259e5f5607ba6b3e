"""What no log tells and is asked: what a policy was learnt on, how trajectories ended, when states were recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caliope._policies import Practice
from caliope._ragged import Bool
from caliope._trajectories import Trajectories
from caliope._validation import as_terminated, unmasked
from caliope.checks import Q102, Q103, Q104, Q105, Finding

NOT_ANSWERED = "not answered"
_LISTED = 5  # names that a message spells out


@dataclass(frozen=True)
class Answer:
    """The answer to one question of an audit.

    Attributes
    ----------
    text : str
        The answer in words, for the settings.
    clause : str
        What was asserted and nothing can check; the verdict holds under this condition. Empty without an assertion.
    findings : tuple of Finding
        The question itself where it was not answered, or what the answer means for the estimate.
    """

    text: str
    clause: str = ""
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Answers:
    """The answers to the three questions of an audit.

    Attributes
    ----------
    learnt_on : Answer
        Whether the target policy was learnt on trajectories of this log.
    ended : Answer
        Whether the trajectories ended, or were cut off or lost.
    recorded_before : Answer
        Whether the state columns were recorded before the decisions.
    """

    learnt_on: Answer
    ended: Answer
    recorded_before: Answer

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was not answered, and what the answers mean."""
        return (*self.learnt_on.findings, *self.ended.findings, *self.recorded_before.findings)

    @property
    def conditions(self) -> tuple[str, ...]:
        """What was asserted, as one clause for the condition of a verdict; empty where nothing was."""
        said = [x.clause for x in (self.learnt_on, self.ended, self.recorded_before) if x.clause]
        return (f"it is true, as stated, that {_join(said)}",) if said else ()

    def about(self, n: int) -> Answers:
        """The same answers about a log of n trajectories, of which a sample was asked about."""

        def widen(answer: Answer) -> Answer:
            return replace(
                answer, findings=tuple(f.with_facts(n=n) if "n" in f.facts else f for f in answer.findings)
            )

        return Answers(*(widen(x) for x in (self.learnt_on, self.ended, self.recorded_before)))

    def to_dict(self) -> dict[str, str]:
        """The answers in words, by what was asked."""
        return {
            "policy learnt on these trajectories": self.learnt_on.text,
            "trajectories ended": self.ended.text,
            "states recorded before the decision": self.recorded_before.text,
        }


def _join(parts: list[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])}, and {parts[-1]}"


def _list(names: Iterable[Any]) -> str:
    shown = [str(name) for name in names]
    more = len(shown) - _LISTED
    return ", ".join(shown[:_LISTED]) + (f" and {more} more" if more > 0 else "")


# -- what the policy was learnt on --


def answer_learnt_on(data: Trajectories, given: Any, target: Any) -> Answer:
    """Compare what the target was learnt on with the log: "no", ids, or a mask over its trajectories."""
    if isinstance(target, Practice):
        return Answer("not asked: the target is current practice")
    if given is None:
        return Answer(NOT_ANSWERED, findings=(Q102.finding("caution", n=len(data), unit=data.unit),))
    if isinstance(given, str):
        if given != "no":
            raise ValueError(f"{_learnt_on_needs(data)}, got {given!r}.")
        return Answer("no", "the policy was not learnt on this log")
    ids = list(given) if isinstance(given, set | frozenset) else given
    learnt = _learnt_mask(data, unmasked("learnt_on", ids))
    overlap, n = int(learnt.sum()), len(data)
    if not overlap:
        return Answer(f"on none of these {n} {data.units}", "the policy was not learnt on this log")
    found = Q105.finding("issue", overlap=overlap, n=n, share=overlap / n, unit=data.unit)
    return Answer(f"on {overlap} of these {n} {data.units}", findings=(found,))


def _learnt_on_needs(data: Trajectories) -> str:
    return (
        f"learnt_on must be 'no', the ids of the {data.units} that the policy was learnt on, or a mask of shape "
        f"({len(data)},)"
    )


def _learnt_mask(data: Trajectories, given: NDArray[Any]) -> Bool:
    """Which trajectories the policy was learnt on, (n,)."""
    if given.dtype == bool:
        if given.shape != (len(data),):
            raise ValueError(f"{_learnt_on_needs(data)}; got a mask of shape {given.shape}.")
        return given
    if given.ndim != 1 or not given.size:
        raise ValueError(f"{_learnt_on_needs(data)}; got an array of shape {given.shape}.")
    if given.dtype.kind == "f" and np.isnan(given).any():
        raise ValueError(f"{_learnt_on_needs(data)}; got ids that are missing.")
    if given.dtype.kind in "iuf" and len(given) == len(data) > 2 and np.isin(given, (0, 1)).all():
        raise ValueError(
            f"{_learnt_on_needs(data)}; got {len(data)} numbers 0 and 1, which look like a mask: give True and False."
        )
    kinds = [_kind_of_ids(ids) for ids in (given, data.ids)]
    if kinds[0] != kinds[1]:
        raise TypeError(
            f"learnt_on holds {kinds[0]} (first: {given[0]!r}), and the ids of the log are {kinds[1]} (first: "
            f"{data.ids[0]!r}): give ids as they are in data.ids."
        )
    known = set(given.tolist())
    return np.array([x in known for x in data.ids.tolist()])


def _kind_of_ids(ids: NDArray[Any]) -> str:
    if ids.dtype.kind == "O":
        return "text" if all(isinstance(x, str) for x in ids) else "objects"
    return {"U": "text", "T": "text", "S": "bytes", "M": "dates"}.get(ids.dtype.kind, "numbers")


# -- how trajectories ended --


def answer_ended(data: Trajectories, given: Any) -> tuple[Trajectories, Answer]:
    """The log with the ends that were stated, and the answer: "all", or True per trajectory that ended."""
    if given is None and not data.ends_stated:
        if data.layout.horizon == 1:
            return data, Answer("not asked: one decision each")
        return data, Answer(NOT_ANSWERED, findings=(Q103.finding("caution", n=len(data), unit=data.unit),))
    if given is not None:
        ended = _as_ended(data, given)
        _refuse_contradiction(data, ended)
        data = data if data.ends_stated else data.replace(terminated=ended)
    cut = int((~data.terminated).sum())
    text = f"all {len(data)}" if not cut else f"{len(data) - cut} of {len(data)}; the others were cut off"
    return data, Answer(text, f"every {data.unit} ended as logged")


def _as_ended(data: Trajectories, given: Any) -> Bool:
    if isinstance(given, str):
        if given != "all":
            raise ValueError(
                f"ended must be 'all', or True or False for each of the {len(data)} {data.units}; got {given!r}."
            )
        return np.ones(len(data), dtype=bool)
    try:
        return as_terminated(given, len(data))
    except ValueError as error:
        raise ValueError(str(error).replace("terminated", "ended", 1)) from None


def _refuse_contradiction(data: Trajectories, ended: Bool) -> None:
    odd = np.flatnonzero(data.terminated != ended)
    if data.ends_stated and len(odd):
        raise ValueError(
            f"ended contradicts terminated of the log for {len(odd)} of {len(data)} {data.units} (first: "
            f"{data.ids[odd[0]]}): leave ended out. If the time limit belongs to the question, make the log without "
            "terminated; a dataset of Minari or d3rlpy is then read with time_limit=True."
        )


# -- when states were recorded --


def answer_recorded_before(data: Trajectories, given: Any) -> Answer:
    """Hold the columns that were recorded before the decision against the state: "all", or their names."""
    names = data.feature_names
    if given is None:
        return Answer(NOT_ANSWERED, findings=(Q104.finding("caution", "asked"),))
    if isinstance(given, str):
        if given != "all":
            raise ValueError(f"recorded_before must be 'all' or a list of state columns, got {given!r}.")
        return Answer("all", "the states were recorded before the decision")
    if not isinstance(given, Iterable):
        raise TypeError(f"recorded_before must be 'all' or a list of state columns, got {given!r}.")
    made_of = (
        {} if data.encoder is None else {column.name: column.features for column in data.encoder.columns}
    )
    listed = [feature for name in given for feature in made_of.get(str(name), (str(name),))]
    unknown = [name for name in listed if name not in names]
    if unknown or not listed:
        what = f"{unknown[0]!r} is none of them" if unknown else "the list is empty"
        raise ValueError(f"recorded_before must name state columns ({_list(names)}): {what}.")
    later = [name for name in names if name not in listed]
    facts = {"count": len(later), "total": len(names), "columns": _list(map(repr, later))}
    found = (Q104.finding("issue", "later", **facts),) if later else ()
    return Answer(_list(listed), "the states were recorded before the decision", found)
