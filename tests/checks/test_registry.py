"""The registry of findings: complete, in plain words, and the same in code, docs and data."""

import ast
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from caliope import checks
from caliope.checks import (
    B104,
    D101,
    D104,
    D107,
    L101,
    Check,
    Finding,
    _registry,
    every,
    explain,
    find,
    verdict,
)
from caliope.checks.__main__ import findings_page
from caliope.checks._registry import fields_of

ROOT = Path(__file__).parents[2]
CHECKS = pytest.mark.parametrize("check", every(), ids=lambda check: check.code)
FREE = {"unit", "units", "Unit", "Units"}
BANNED = (
    "who acted|those who decided|observed care|wanted|acted|told as|strangers?|leans? on|foretold|foretell|mend|"
    "imagined|unrecorded|nats|a row a|what was done there|whoever"
)
CLINICAL = "patients?|stays?|drugs?|doses?|ward|SOFA|vasopressors?|fluids?|clinicians?|doctors?|episodes?"


def prose(check):
    return [check.title, check.meaning, check.remedy, *check.texts.values()]


def sentences(text):
    plain = re.sub(r"\{[^}]*\}", "x", text).replace("et al.", "et al")
    return re.split(r"(?<=[.?!;])\s+", plain)


def facts_for(check, number=0.25):
    """A fact for every field: a number where the format asks for one, else a word."""
    facts = {}
    for text in check.texts.values():
        for name, spec in re.findall(r"\{(\w+)(?:!r)?(?::([^}]*))?\}", text):
            facts[name] = number if spec else name
    return {name: x for name, x in facts.items() if name not in FREE}


@CHECKS
def test_a_check_says_what_it_means_and_what_to_do(check):
    assert re.fullmatch(r"[A-Z]\d{3}", check.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", check.slug)
    assert check.concerns
    assert not check.title.endswith(".")
    for text in prose(check)[1:]:
        assert text.endswith(".")
        assert text[0].isupper() or text[0] in "{"


def test_codes_and_slugs_are_unique():
    codes, slugs = [check.code for check in every()], [check.slug for check in every()]
    assert len(set(codes)) == len(codes)
    assert len(set(slugs)) == len(slugs)


@CHECKS
def test_sentences_are_short(check):
    for text in prose(check):
        for sentence in sentences(text):
            assert len(sentence.split()) <= 25, sentence


@CHECKS
def test_words_are_plain(check):
    for text in prose(check):
        assert not re.search(rf"\b({BANNED})\b", text, flags=re.IGNORECASE)
        if "cohort" not in check.concerns:
            assert not re.search(rf"\b({CLINICAL})\b", text, flags=re.IGNORECASE)


@CHECKS
def test_texts_can_be_printed(check):
    variants = [name for name in check.texts if name]
    finding = check.finding("note", *variants, **facts_for(check))
    assert "{" not in finding.message
    for text in check.texts.values():
        assert all(name.isidentifier() for name in fields_of(text))


def test_every_code_is_a_name_of_the_package():
    named = {name for name in vars(checks) if re.fullmatch(r"[A-Z]\d{3}", name)}
    assert named == {check.code for check in every()}
    assert all(getattr(checks, check.code) is check for check in every())


@pytest.mark.slow
def test_nothing_heavy_is_imported():
    code = "import caliope.checks, sys; sys.exit(any(x in sys.modules for x in ('numpy', 'scipy', 'polars')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_page_of_findings_is_the_generated_one():
    assert (ROOT / "docs" / "findings.md").read_text() == findings_page(), (
        "run python -m caliope.checks > docs/findings.md"
    )


def test_the_page_has_an_anchor_for_every_code():
    page = findings_page()
    assert all(f'<a id="{check.code.lower()}"></a>' in page for check in every())


def test_a_finding_fills_its_text():
    facts = {"action": 0, "often": "less", "where": "where x1 is high", "z": -11.72, "tests": 2550}
    finding = B104.finding("issue", **facts, effect=0.06)
    assert finding.message == (
        "The behaviour model is miscalibrated: action 0 is taken less often than predicted where x1 is high "
        "(z = -11.7, largest of 2550 tests). Importance weights are biased."
    )
    assert str(finding) == f"B104 issue: {finding.message}"
    assert finding.code == "B104"
    assert finding.concerns == {"weights", "behaviour"}
    assert finding.numbers == {"action": 0.0, "z": -11.72, "tests": 2550.0, "effect": 0.06}


def test_variants_follow_the_main_text():
    plain, tested = D107.finding("caution"), D107.finding("caution", "tested", p=0.25)
    assert tested.message == f"{plain.message} A test of unchanged lengths gives p = 0.25."
    with pytest.raises(ValueError, match=r"D107 has the variants 'tested', 'moved', got \['teste'\]"):
        D107.finding("caution", "teste", p=0.25)
    with pytest.raises(ValueError, match="got none"):
        find("D109").finding("caution", z=1.0)


def test_the_unit_is_that_of_the_log():
    finding = L101.finding("issue", copies=10, n=410)
    assert "10 of 410 trajectories" in finding.message
    assert "10 of 410 visits" in finding.with_facts(unit="visit").message
    assert "10 of 410 persons" in finding.with_facts(unit="person").message
    assert "10 of 410 people" in finding.with_facts(unit="person", units="people").message
    held = D104.finding("caution", share=0.5, trajectory=17)
    assert held.message == "Trajectory 17 alone holds 50.0% of the weight."
    named = held.with_facts(unit="stay", trajectory_name="P-2")
    assert named.message == "Stay P-2 alone holds 50.0% of the weight."
    assert held.message.startswith("Trajectory 17")
    assert named.numbers == held.numbers


@pytest.mark.parametrize(
    ("unit", "units"),
    [
        ("trajectory", "trajectories"),
        ("stay", "stays"),
        ("match", "matches"),
        ("box", "boxes"),
        ("city", "cities"),
    ],
)
def test_plurals(unit, units):
    assert f" {units} " in L101.finding("issue", copies=1, n=2, unit=unit).message


def test_a_missing_fact_is_an_error_where_the_finding_is_made():
    with pytest.raises(TypeError, match=r"L101 lacks the facts n: .* given were copies"):
        L101.finding("issue", copies=1)
    with pytest.raises(TypeError, match=r"L101: the facts .* do not fit"):
        L101.finding("issue", copies="many", n=4)


def test_the_level_is_one_of_three():
    with pytest.raises(ValueError, match="must be one of note, caution, issue, got 'isue'"):
        L101.finding("isue", copies=1, n=4)


def test_findings_are_values():
    one = L101.finding("issue", copies=1, n=4)
    assert one == L101.finding("issue", copies=1, n=4)
    assert one != L101.finding("issue", copies=2, n=4)
    assert one.at("note").level == "note"
    assert one.at("note").facts == one.facts
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert again.check == L101
    assert repr(one).startswith("Finding(check=Check(code='L101', slug='copied-trajectories', title=")
    assert repr(one).endswith("level='issue', facts={'copies': 1, 'n': 4}, variants=())")
    assert {again.check} == {L101}


def test_facts_are_copied():
    facts = {"copies": 1, "n": 4}
    finding = Finding(L101, "issue", facts)
    facts["n"] = 5
    assert finding.numbers["n"] == 4


def test_plain_values_for_json():
    facts = {"effective_n": math.nan, "n": np.int64(3), "limit": 100, "known": True, "word": "x"}
    assert D101.finding("issue", "too-few", **facts).to_dict() == {
        "code": "D101",
        "slug": "effective-sample-small",
        "level": "issue",
        "message": "The effective sample size is nan of 3 trajectories. "
        "Below 100, confidence intervals of plain importance weights are too short.",
        "numbers": {"effective_n": None, "n": 3.0, "limit": 100.0},
    }


def test_the_verdict_is_the_worst():
    issue = L101.finding("issue", copies=1, n=4)
    assert verdict(()) == "trust"
    assert verdict((issue.at("note"),)) == "trust"
    assert verdict((issue.at("note"), issue.at("caution"))) == "caution"
    assert verdict((issue.at("caution"), issue)) == "do not trust"


def test_a_check_of_ones_own():
    own = Check("X101", "late-visits", "Late visits", frozenset({"log"}), texts={"": "{share:.0%} are late."})
    finding = own.finding("note", share=0.5)
    assert str(finding) == "X101 note: 50% are late."
    assert pickle.loads(pickle.dumps(finding)) == finding
    with pytest.raises(ValueError, match="X101 concerns weather; it must be among weights"):
        Check("X101", "x", "X", frozenset({"weather"}), texts={"": "x"})
    with pytest.raises(ValueError, match="X101 needs a text"):
        Check("X101", "x", "X")
    with pytest.raises(ValueError, match="is no name of a fact"):
        Check("X101", "x", "X", texts={"": "{a.b}"})


def test_find_by_code_or_slug():
    assert find("B104") is find("b104") is find("behaviour-miscalibrated") is B104
    with pytest.raises(ValueError, match=r"no finding is called 'B144'; similar ones are .*B104"):
        find("B144")
    with pytest.raises(ValueError, match=r"similar ones are .*behaviour-miscalibrated"):
        find("miscalibrated")
    with pytest.raises(ValueError, match="lists them all"):
        find("?")


@CHECKS
def test_explain_says_everything(check):
    text = " ".join(explain(check.code).split())
    assert text.startswith(f"{check.code} {check.slug}: {check.title}")
    for part in prose(check):
        assert re.sub(r"\{(\w+)[^}]*\}", r"{\1}", part) in text


def test_explain_lists_every_code():
    lines = explain().splitlines()
    assert [line.split()[0] for line in lines] == [check.code for check in every()]
    assert max(map(len, lines)) <= 120


# Which findings an estimator is shown depends on what they concern: what uses weights, what uses values.
@pytest.mark.parametrize(
    ("letter", "concerned"),
    [("B", {"weights"}), ("W", {"weights"}), ("V", {"values"}), ("S", {"weights", "values"})],
)
def test_notes_of_evidence_concern_weights_or_values(letter, concerned):
    for check in every():
        if check.code.startswith(letter):
            assert check.concerns & {"weights", "values"} == concerned


def test_of_the_findings_of_a_whole_audit_those_on_the_log_alone_concern_the_log():
    for check in every():
        if check.code[0] in "ALP":
            assert ("log" in check.concerns) == check.code.startswith("L")


def emitted_codes():
    """Codes that some module of the package uses, beside their declaration."""
    package = ROOT / "src" / "caliope"
    for path in package.rglob("*.py"):
        if path.parent.name != "checks" or path.name not in ("__init__.py", "_registry.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    yield node.id


@pytest.mark.slow
def test_every_code_is_raised_somewhere():
    assert {check.code for check in every()} <= set(emitted_codes())


@pytest.mark.slow
def test_no_code_is_a_string_literal_outside_the_registry():
    codes = {check.code for check in every()}
    found = [
        f"{path.name}:{node.lineno} {node.value}"
        for path in (ROOT / "src" / "caliope").rglob("*.py")
        if path.parent.name != "checks"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in codes
    ]
    assert not found


def finding_calls():
    """Every ``CODE.finding("level", "variant", fact=...)`` of the package, with what stands in it literally."""
    for path in (ROOT / "src" / "caliope").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "finding"
            )
            if (
                call
                and isinstance(node.func.value, ast.Name)
                and re.fullmatch(r"[A-Z]\d{3}", node.func.value.id)
            ):
                yield pytest.param(
                    find(node.func.value.id), node, id=f"{node.func.value.id}-{path.stem}:{node.lineno}"
                )


@pytest.mark.parametrize(("check", "call"), list(finding_calls()))
def test_what_is_raised_fills_a_text_that_exists(check, call):
    variants = [x.value for x in call.args[1:] if isinstance(x, ast.Constant)]
    assert set(variants) <= set(check.texts)
    if any(word.arg is None for word in call.keywords) or len(variants) < len(call.args) - 1:
        return  # facts or variants are made elsewhere: rendered when they are
    given = {word.arg for word in call.keywords} | {f"{word.arg}_name" for word in call.keywords}
    texts = [check.texts[name] for name in ("", *variants) if name in check.texts]
    needed = {name for text in texts for name in fields_of(text)} - FREE
    assert needed <= given


def test_a_check_is_shown_in_short_and_the_file_is_read_in_its_order():
    assert repr(D101) == f"Check(code='D101', slug='effective-sample-small', title={D101.title!r})"
    read = _registry.subjects.__wrapped__()  # without what is kept from the first time
    assert [c.code for found in read.values() for c in found] == [c.code for c in every()]
