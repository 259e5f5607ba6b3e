"""Several target policies of a comparison, each stated in one text: name=policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from caliope.cli._kinds import is_text, split_names

if TYPE_CHECKING:
    from caliope.cli._config import Study

_KINDS = {
    "target-columns": "target_columns",
    "columns": "target_columns",
    "recommended": "recommended",
    "model": "model",
    "policy": "policy",
    "learn": "learn",
}
_FORMS = "target-columns:p0..p2, recommended:COLUMN, model:FILE, policy:MODULE:OBJECT or learn:MODULE:OBJECT"


def parse_target(text: str) -> tuple[str, str]:
    """The setting that a policy is stated in, and its value.

    Without a kind, MODULE:OBJECT is a policy, several columns are probabilities, and one column is recommended.

    >>> parse_target("recommended:advice"), parse_target("my_policies:late"), parse_target("p0..p2")
    (('recommended', 'advice'), ('policy', 'my_policies:late'), ('target_columns', 'p0..p2'))
    """
    kind, colon, rest = (part.strip() for part in text.partition(":"))
    if colon and kind.replace("_", "-") in _KINDS:
        if not rest:
            raise ValueError(f"a policy is stated as {_FORMS}, got {text!r}")
        return _KINDS[kind.replace("_", "-")], rest
    if colon:
        return "policy", text.strip()
    return ("target_columns" if len(split_names(text)) > 1 else "recommended"), text.strip()


def parse_options(given: Sequence[str]) -> dict[str, str]:
    """Policies by name, from the options --target NAME=POLICY; raise where a name stands twice.

    >>> parse_options(["a=p0..p2", "b=recommended:advice"])
    {'a': 'p0..p2', 'b': 'recommended:advice'}
    """
    found: dict[str, str] = {}
    for text in given:
        name, equals, policy = (part.strip() for part in text.partition("="))
        if not equals or not name or not policy:
            raise ValueError(f"--target must be NAME=POLICY, with {_FORMS}; got {text!r}.")
        if name in found:
            raise ValueError(f"--target names {name!r} twice: give each policy a name of its own.")
        found[name] = policy
    return found


def check_targets(name: str, given: Any) -> None:
    """Raise unless it names policies, each stated in one text."""
    if not isinstance(given, Mapping) or not all(is_text(x) for each in given.items() for x in each):
        raise ValueError(f"{name} must be a table of names and policies, such as a = 'p0..p2', got {given!r}")
    for text in given.values():
        parse_target(text)


def each_target(study: Study) -> dict[str, Study]:
    """A study per policy of a comparison; without several, the study itself."""
    if not study.targets:
        return {"": study}
    found = {}
    for name, text in study.targets.items():
        setting, value = parse_target(text)
        value_of: Any = split_names(value) if setting == "target_columns" else value
        found[name] = replace(study, targets={}, **{setting: value_of})
    return found
