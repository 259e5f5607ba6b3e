"""Conditions of a verdict: what must hold for an estimate to be right, and no log can show."""

from __future__ import annotations

from collections.abc import Sequence

# With logged probabilities nothing needs to be recorded but them.
DRAWN = "the logged probabilities are those with which the actions were drawn"
# Positivity. S101 and S102 find large regions where it fails; a log of any size can hide small ones.
TAKEN_TOO = "practice sometimes takes each action wherever the new policy takes it"
CONDITIONAL = "trust, if"  # in a cell; the mark of a condition follows
UNMARKED = "trust, if its condition holds"  # where there is no room for the condition nor for a mark
_LISTED = 6  # columns that a condition spells out
_LONGEST = 40  # letters of one of them


def nothing_missing(features: Sequence[str]) -> str:
    """The condition on the recorded columns, as a clause after "if".

    >>> nothing_missing(["age", "pulse"])
    'nothing that drives both decisions and outcomes is missing from: age, pulse'
    """
    start = "nothing that drives both decisions and outcomes is missing from"
    if not features:
        return f"{start} the states"
    shown = [_shorten(name) for name in features[:_LISTED]]
    more = len(features) - _LISTED
    return f"{start}: {', '.join(shown)}" + (f", ... ({more} more)" if more > 0 else "")


def nothing_worse(worst: float) -> str:
    """The condition on outcomes that the log does not show, as a clause after "if".

    >>> nothing_worse(-3.25)
    'no outcome worse than a return of -3.25 can happen'
    """
    return f"no outcome worse than a return of {worst:.4g} can happen"


def independent(units: str) -> str:
    """The condition on what is resampled, as a clause after "if".

    >>> independent("visits")
    'visits are independent of each other'
    """
    return f"{units} are independent of each other"


def _shorten(name: str) -> str:
    text = " ".join(name.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def spell_out(clauses: Sequence[str]) -> str:
    """Clauses as one condition; empty without any.

    >>> spell_out(["nothing is missing", "every visit ended"])
    'if nothing is missing, and if every visit ended'
    """
    return ", and ".join(f"if {clause}" for clause in clauses)


def mark_conditions(conditions: Sequence[str]) -> tuple[list[str], list[str]]:
    """A mark for each row of a table, empty where there is no condition, and what each mark means.

    >>> mark_conditions(["if a", "", "if b", "if a"])
    (['*', '', '**', '*'], ['* if a.', '** if b.'])
    """
    different = [text for text in dict.fromkeys(conditions) if text]
    marks = {text: "*" * (i + 1) for i, text in enumerate(different)} | {"": ""}
    return [marks[text] for text in conditions], [f"{marks[text]} {text}." for text in different]
