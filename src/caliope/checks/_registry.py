"""Checks and findings: the types, the registry that is read from findings.toml, and its printed pages."""

from __future__ import annotations

import difflib
import math
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from numbers import Integral, Real
from string import Formatter
from typing import Any, Literal, get_args

from caliope._cells import visible

Level = Literal["note", "caution", "issue"]
Verdict = Literal["trust", "caution", "do not trust"]
Concern = Literal["weights", "values", "behaviour", "log", "support", "interval", "cohort", "question"]

_VERDICTS: Mapping[Level, Verdict] = {"note": "trust", "caution": "caution", "issue": "do not trust"}
_CONCERNS: tuple[Concern, ...] = get_args(Concern)
_UNIT = "trajectory"
_WIDTH = 100  # of an explanation in a terminal


@dataclass(frozen=True)
class Check:
    """What one code means, and the words in which it is reported.

    Parameters
    ----------
    code : str
        Stable name for scripts, such as ``B104``.
    slug : str
        The same in words, such as ``behaviour-miscalibrated``.
    title : str
        One line for a list.
    concerns : set of str
        What it speaks about: weights, values, behaviour, log, support, interval, cohort or question. A finding is
        attached to the estimates that use what it concerns.
    meaning : str
        What it means for the estimate.
    remedy : str
        What to do about it.
    texts : mapping from variant to template
        The template ``""`` is always printed; those of the variants that a finding names follow it. Templates hold
        facts with format specifications, ``{share:.1%}``. Without being given there are ``{unit}`` and ``{units}``
        (trajectory, trajectories), ``{Unit}`` and ``{Units}``, and for a fact ``x`` its name ``{x_name}``.

    Examples
    --------
    >>> few = Check("X101", "few-visits", "Few visits", texts={"": "The log has only {n} {units}."})
    >>> few.finding("caution", n=7, unit="visit").message
    'The log has only 7 visits.'
    """

    code: str
    slug: str
    title: str
    concerns: frozenset[Concern] = field(default=frozenset(), repr=False)
    meaning: str = field(default="", repr=False)
    remedy: str = field(default="", repr=False)
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        unknown = set(self.concerns) - set(_CONCERNS)
        if unknown:
            raise ValueError(
                f"{self.code} concerns {', '.join(sorted(unknown))}; it must be among {', '.join(_CONCERNS)}."
            )
        if not self.texts:
            raise ValueError(f"{self.code} needs a text: texts={{'': 'What was seen.'}}.")
        object.__setattr__(self, "concerns", frozenset(self.concerns))
        object.__setattr__(self, "texts", dict(self.texts))
        for text in self.texts.values():
            odd = [name for name in fields_of(text) if not name.isidentifier()]
            if odd:
                raise ValueError(f"{self.code}: {odd[0]!r} is no name of a fact, in the text {text!r}.")

    def __hash__(self) -> int:
        return hash(self.code)

    def finding(self, level: Level, /, *variants: str, **facts: Any) -> Finding:
        """Report what was seen.

        Parameters
        ----------
        level : "note", "caution" or "issue"
            A note says how the number was made, a caution weakens it, an issue means that it should not be believed.
        *variants : str
            The texts that follow the main one, by their names.
        **facts : number or str
            What the texts name, and further numbers for scripts.

        Returns
        -------
        Finding
            With the text filled in.
        """
        return Finding(self, level, facts, variants)


@dataclass(frozen=True)
class Finding:
    """Something that a reader of the number must know; made by :meth:`Check.finding`.

    ``note`` says how the number was made, ``caution`` weakens it, ``issue`` means that it should not be believed. The
    code is stable, so that scripts can look for it.

    Attributes
    ----------
    check : Check
        What the code means.
    level : "note", "caution" or "issue"
        How grave it is.
    facts : mapping
        What was seen, by name.
    variants : tuple of str
        Which texts of the check follow the main one.

    Examples
    --------
    >>> finding = find("D104").finding("caution", share=0.25, trajectory=17)
    >>> finding.level, finding.numbers["share"]
    ('caution', 0.25)
    """

    check: Check
    level: Level
    facts: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.level not in _VERDICTS:
            raise ValueError(
                f"the level of a finding must be one of {', '.join(_VERDICTS)}, got {self.level!r}."
            )
        object.__setattr__(self, "facts", dict(self.facts))
        object.__setattr__(self, "variants", tuple(self.variants))
        _ = self.message  # facts that do not fill the text are an error here, not where it is printed

    @property
    def code(self) -> str:
        """Code of the check, such as ``B104``."""
        return self.check.code

    @property
    def concerns(self) -> frozenset[Concern]:
        """What the check speaks about."""
        return self.check.concerns

    @property
    def message(self) -> str:
        """The text, with the facts filled in."""
        texts = self.check.texts
        unknown = [name for name in self.variants if name not in texts]
        named = (("",) if "" in texts else ()) + self.variants
        if unknown or not named:
            known = ", ".join(map(repr, filter(None, texts)))
            raise ValueError(f"{self.code} has the variants {known}, got {unknown or 'none'}.")
        return visible(" ".join(_render(self.code, texts[name], self.facts) for name in named))

    @property
    def numbers(self) -> dict[str, float]:
        """The facts that are numbers."""
        return {name: _plain(x) for name, x in self.facts.items() if _is_number(x)}

    def with_facts(self, **facts: Any) -> Finding:
        """Return a copy with other or further facts, such as ``unit="stay"`` or ``trajectory_name="P-17"``."""
        return replace(self, facts={**self.facts, **facts})

    def at(self, level: Level) -> Finding:
        """Return a copy with another level."""
        return replace(self, level=level)

    def __str__(self) -> str:
        return f"{self.code} {self.level}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not finite becomes None."""
        return {
            "code": self.code,
            "slug": self.check.slug,
            "level": self.level,
            "message": self.message,
            "numbers": {name: x if math.isfinite(x) else None for name, x in self.numbers.items()},
        }


def verdict(findings: Sequence[Finding]) -> Verdict:
    """Return the worst of the findings as a verdict.

    Parameters
    ----------
    findings : sequence of Finding
        About one number.

    Returns
    -------
    str
        "trust", "caution" or "do not trust".

    Examples
    --------
    >>> verdict([find("B101").finding("note")])
    'trust'
    """
    levels = {finding.level for finding in findings}
    worst: Level = "issue" if "issue" in levels else "caution" if "caution" in levels else "note"
    return _VERDICTS[worst]


def fields_of(template: str) -> list[str]:
    """Names of the facts that a template asks for, in order."""
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


def _render(code: str, template: str, facts: Mapping[str, Any]) -> str:
    names = fields_of(template)
    values = _defaults(facts) | {f"{name}_name": x for name, x in facts.items()} | dict(facts)
    missing = [name for name in names if name not in values]
    if missing:
        raise TypeError(
            f"{code} lacks the facts {', '.join(missing)}: its text is {template!r}, and given were "
            f"{', '.join(facts) or 'none'}."
        )
    try:
        return template.format_map(values)
    except (TypeError, ValueError) as error:
        given = {name: values[name] for name in names}
        raise TypeError(f"{code}: the facts {given} do not fit its text {template!r}: {error}.") from error


def _defaults(facts: Mapping[str, Any]) -> dict[str, str]:
    """The unit of the log, in the singular and the plural, also for the beginning of a sentence."""
    unit = str(facts.get("unit", _UNIT))
    units = str(facts.get("units", plural(unit)))
    return {"unit": unit, "units": units, "Unit": _capitalise(unit), "Units": _capitalise(units)}


def plural(word: str) -> str:
    """Return the plural of a regular English noun.

    Parameters
    ----------
    word : str
        The noun.

    Returns
    -------
    str
        Its plural.

    Examples
    --------
    >>> [plural(word) for word in ("trajectory", "stay", "match", "visit")]
    ['trajectories', 'stays', 'matches', 'visits']
    """
    if word.endswith("y") and not word.endswith(("ay", "ey", "iy", "oy", "uy")):
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "z", "ch", "sh")) else f"{word}s"


def _capitalise(word: str) -> str:
    return word[:1].upper() + word[1:]


def _plain(x: Real) -> float:
    """A number of Python's own: whole ones stay whole."""
    return int(x) if isinstance(x, Integral) else float(x)


def _is_number(x: Any) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool)


@cache
def subjects() -> Mapping[str, tuple[Check, ...]]:
    """All checks by subject, in the order of the file."""
    text = resources.files("caliope.checks").joinpath("findings.toml").read_text(encoding="utf-8")
    return {
        subject: tuple(_check(code, entry) for code, entry in entries.items())
        for subject, entries in tomllib.loads(text).items()
    }


def _check(code: str, entry: Mapping[str, Any]) -> Check:
    main = {"": entry["text"]} if "text" in entry else {}
    return Check(
        code,
        entry["slug"],
        entry["title"],
        frozenset(entry["concerns"]),
        entry["meaning"],
        entry["remedy"],
        main | entry.get("texts", {}),
    )


@cache
def _by_code() -> Mapping[str, Check]:
    return {check.code: check for checks in subjects().values() for check in checks}


def every() -> tuple[Check, ...]:
    """Return all checks of the package, by subject.

    Returns
    -------
    tuple of Check
        In the order of the page of findings.

    Examples
    --------
    >>> every()[0].code
    'L101'
    """
    return tuple(_by_code().values())


def find(code: str) -> Check:
    """Return the check of a code or a slug.

    Parameters
    ----------
    code : str
        Such as ``B104`` or ``behaviour-miscalibrated``; small letters serve too.

    Returns
    -------
    Check
        What the code means.

    Examples
    --------
    >>> find("behaviour-miscalibrated").code
    'B104'
    """
    code = str(code).strip()
    if (found := _by_code().get(code.upper())) is not None:
        return found
    slugs = {check.slug: check for check in every()}
    if (found := slugs.get(code.lower())) is not None:
        return found
    close = [
        *difflib.get_close_matches(code.upper(), _by_code(), 3),
        *difflib.get_close_matches(code.lower(), slugs, 3, 0.5),
    ]
    hint = f"similar ones are {', '.join(close)}" if close else "`caliope explain` lists them all"
    raise ValueError(f"no finding is called {code!r}; {hint}.")


def explain(code: str | None = None) -> str:
    """Explain a code in plain text; without one, list all of them.

    Parameters
    ----------
    code : str, optional
        Code or slug.

    Returns
    -------
    str
        Title, what it concerns, what it means, what to do, and the text that is printed.

    Examples
    --------
    >>> print(explain("D104").splitlines()[0])
    D104 weight-on-one-trajectory: One trajectory holds much of the weight
    """
    if code is None:
        return "\n".join(f"{check.code}  {check.slug:38} {check.title}" for check in every())
    check = find(code)
    parts = {
        "Concerns": ", ".join(sort_concerns(check.concerns)),
        "Meaning": check.meaning,
        "What to do": check.remedy,
    }
    lines = [f"{check.code} {check.slug}: {check.title}", ""]
    lines += [_fill(f"{name}: {text}") for name, text in parts.items()]
    return "\n".join([*lines, "", "Text:", *(_fill(line, "  ") for line in texts_of(check))])


def texts_of(check: Check) -> list[str]:
    """Texts of a check, with facts in braces and without their formats."""
    plain = {name: re.sub(r"\{(\w+)[^}]*\}", r"{\1}", text) for name, text in check.texts.items()}
    return [f"[{name}] {text}" if name else text for name, text in plain.items()]


def _fill(text: str, indent: str = "") -> str:
    indents = {"initial_indent": indent, "subsequent_indent": f"{indent}  "}
    return textwrap.fill(text, _WIDTH, **indents, break_on_hyphens=False)  # type: ignore[arg-type]


def sort_concerns(concerns: Iterable[Concern]) -> list[Concern]:
    return sorted(concerns, key=_CONCERNS.index)
