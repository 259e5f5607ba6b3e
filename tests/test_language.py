"""One word per concept, in code, messages, documents and report: the paraphrases that were replaced stay out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BANNED = {
    r"\bwho(ever)? acted\b|\bthose who decided\b|\bobserved care\b": "behaviour policy, or current practice",
    r"\bstrangers?\b": "held-out trajectories",
    r"\bunrecorded reasons?\b": "unmeasured confounder",
    r"\btold as\b|\bsecond model of itself\b": "negative control",
    r"\bleans? on\b": "uses, relies on",
    r"\bforetold\b|\bcan be foretold\b": "predicted",
    r"\bimagined (logs?|actions?)\b": "draws from the model",
    r"\bnats a\b|\bknows more of\b|\bhow surprised\b": "log loss",
    r"\b(one|a) (row|line|column|number|file|model|value|group|unit) an? [a-z]+\b": "per: one row per decision",
    r"\b(row|column|number|file|model|value) an? (row|step|fold|length|draw|decision|action|core)\b": "per",
    r"\bthe asked\b|\bwanted: Float\b|\bacted: Float\b": "target, behaviour",
}
CLINICAL = r"\b([Pp]atients?|[Cc]linicians?|[Dd]octors?|[Vv]asopressors?|SOFA|[Ss]epsis|[Dd]rugs?)\b"
# Where clinical words belong: the cohort, the simulated domains, and the demonstration that uses them.
CLINICAL_HOMES = ("clinical", "domains", "cli/_cohort.py", "cli/_simulate.py")


def texts(*folders):
    for folder in folders:
        yield from (
            p
            for p in sorted((ROOT / folder).rglob("*"))
            if p.suffix in {".py", ".md", ".toml", ".j2", ".pyi"}
        )


@pytest.mark.parametrize("pattern", BANNED, ids=list(BANNED.values()))
def test_paraphrases_of_standard_terms_stay_out(pattern):
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in [*texts("src", "docs", "reproduction"), ROOT / "README.md"]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not hits, f"say {BANNED[pattern]}:\n" + "\n".join(hits)


def test_clinical_words_stay_in_the_clinical_parts():
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in texts("src/caliope")
        if not str(path.relative_to(ROOT / "src/caliope")).startswith(CLINICAL_HOMES)
        and path.name != "findings.toml"  # its cohort part: see the test below
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(CLINICAL, line)
    ]
    assert not hits, "\n".join(hits)


def test_only_the_findings_of_cohorts_use_clinical_words():
    from caliope.checks import every

    generic = [check for check in every() if check.concerns != {"cohort"}]
    texts = {c.code: " ".join([c.title, c.meaning, c.remedy, *c.texts.values()]) for c in generic}
    assert not {code: text for code, text in texts.items() if re.search(CLINICAL, text)}
