"""Columns with one probability per action, and the actions that they belong to by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import Any

from caliope._trajectories import Trajectories

_LISTED = 30  # columns that are spelt out


def in_order_of_actions(columns: Sequence[str], data: Trajectories, option: str) -> Sequence[str]:
    """Columns in the order of the actions that their names end in, words or codes; as given for levels of doses.

    A column belongs to the longest name that it ends in: ``p_very low`` to "very low" and not to "low".
    """
    words = _words(data)
    if words is None:
        return _by_number(columns) if _coded(data) else columns  # levels have an order that everybody knows
    belongs: dict[int, list[str]] = {i: [] for i in range(len(words))}
    for column in columns:
        fitting = [i for i, parts in enumerate(words) if _ends_in(column, parts)]
        if fitting:
            belongs[max(fitting, key=lambda i: sum(map(len, words[i])))].append(column)
    for i, found in belongs.items():
        if len(found) != 1:
            name = "_".join(words[i])
            raise ValueError(
                f"{option} must name one column per action, ending in its name, such as p_{name}: {len(found)} of "
                f"{', '.join(columns)} do so for {name!r}. Rename them; their order alone does not say which action "
                "is which."
            )
    return [belongs[i][0] for i in range(len(words))]


def _coded(data: Trajectories) -> bool:
    """Whether actions are whole numbers in the table."""
    return all(not each.cuts and not _named(each) for each in data.encoder.actions)


def _by_number(columns: Sequence[str]) -> Sequence[str]:
    """Columns by the numbers that they end in, where these are all the codes; otherwise as given."""
    numbers = _numbers(columns)
    return columns if numbers is None else [columns[numbers.index(code)] for code in range(len(columns))]


def _numbers(columns: Sequence[str]) -> list[int] | None:
    """The numbers that columns end in, if these are all the codes."""
    found = [re.search(r"\d+$", column) for column in columns]
    numbers = [int(each[0]) for each in found if each]
    return numbers if sorted(numbers) == list(range(len(columns))) else None


def _words(data: Trajectories) -> list[tuple[str, ...]] | None:
    """The words of each action, one per action column; None where some are levels of a dose, or codes."""
    actions = data.encoder.actions
    if data.action_names is None or any(each.cuts or not _named(each) for each in actions):
        return None
    return list(product(*(each.names for each in actions)))


def _named(column: Any) -> bool:
    """Whether an action column holds words."""
    return bool(column.names) and not all(name.isdecimal() for name in column.names)


def _ends_in(column: str, parts: tuple[str, ...]) -> bool:
    """Whether a name ends in words, in their order, with something between them that is no letter."""
    inner = r"[^A-Za-z0-9]+".join(map(re.escape, parts))
    return re.search(rf"(^|[^A-Za-z0-9]){inner}$", column) is not None


def pairing(columns: Sequence[str], data: Trajectories) -> dict[str, str]:
    """What was taken for granted, in words: columns belong to levels and codes by their order alone."""
    names = data.action_names or [str(code) for code in range(data.n_actions)]
    numbered = _coded(data) and _numbers(columns) is not None
    if not columns or numbered or _words(data) is not None:
        return {}
    pairs = [f"{column}: {name}" for column, name in zip(columns, names, strict=False)]
    more = [f"and {len(pairs) - _LISTED} more"] if len(pairs) > _LISTED else []
    return {"probabilities, in the order of the actions": "; ".join([*pairs[:_LISTED], *more])}
