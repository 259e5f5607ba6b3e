"""What the documents promise: examples run, and names, codes, commands, options, files and links exist."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from itertools import chain
from pathlib import Path

import click
import pytest

import caliope
from caliope import checks, cli
from caliope.domains import ward
from test_architecture import LAYERS, MODULES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "benchmarks/README.md")),
        ROOT / "src/caliope/report/README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    # What the build of the site writes is not ours to judge here.
    if path.relative_to(ROOT).parts[:2] not in {("docs", name) for name in ("_build", "api", "gallery")}
}
# The changelog has the names of before, too.
CURRENT = {name: text for name, text in DOCUMENTS.items() if name != "CHANGELOG.md"}
CODES = {check.code: check for check in checks.every()}
# Run elsewhere: README.md is a doctest, and these pages are executed when the site is built (make docs).
ELSEWHERE = ("README.md", "docs/start/", "docs/guides/", "docs/reference/report-json.md")
BLOCK = re.compile(r"(?:<!-- not run: (?P<reason>[^\n]+) -->\n)?```python\n(?P<code>.*?)```", flags=re.DOTALL)


def resolve(dotted):
    """What a dotted name below caliope stands for: attributes first, then modules."""
    found, path = caliope, "caliope"
    for part in dotted.split("."):
        path = f"{path}.{part}"
        found = getattr(found, part, None) or importlib.import_module(path)
    return found


@pytest.mark.parametrize("document", CURRENT)
def test_every_name_of_the_package_exists(document):
    text = CURRENT[document]
    names = set(re.findall(r"\b(?:cal|caliope)\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", text))
    # `cal.ois wis dr` names several.
    several = [span.split() for span in re.findall(r"`cal\.([a-z_]+(?: [a-z_]+)+)`", text)]
    assert [name for name in [*names, *chain(*several)] if resolve(name) is None] == []


# Codes that are never given again, where a document speaks of an earlier version.
RETIRED = {"CHANGELOG.md": {"P102"}, "docs/reproduction.md": {"P102"}}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_code_is_in_the_registry_under_its_title(document):
    text = DOCUMENTS[document]
    letters = "".join(sorted({code[0] for code in CODES}))
    assert set(re.findall(rf"\b[{letters}]1\d\d\b", text)) <= set(CODES) | RETIRED.get(document, set())
    titles = re.findall(r"^\| \[(\w+)\]\([\w/]*findings\.md#\w+\) \| (.+) \|$", text, flags=re.MULTILINE)
    assert titles == [(code, CODES[code].title) for code, _ in titles]


def including(path):
    """The text of a page with that of the pages that it includes."""
    text = path.read_text(encoding="utf-8")
    included = re.findall(r"^```\{include\} (\S+)$", text, flags=re.MULTILINE)
    return "\n".join([text, *(including(path.parent / name) for name in included)])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_relative_link_leads_somewhere(document):
    for target in re.findall(r"\]\(([^)\s]+)\)", DOCUMENTS[document]):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        assert path.exists(), target
        if anchor:
            text = including(path)
            headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs | set(re.findall(r'<a id="([^"]+)">', text)), target


@pytest.mark.parametrize("document", CURRENT)
def test_every_file_named_exists(document):
    paths = re.findall(r"`((?:src|tests|docs|examples|benchmarks|reproduction)/[\w./-]*)", CURRENT[document])
    assert [path for path in paths if not (ROOT / path).exists()] == []


EXAMPLES = {
    f"examples/{path.name}": path.read_text(encoding="utf-8") for path in (ROOT / "examples").glob("*.py")
}


@pytest.mark.parametrize("document", [*CURRENT, *EXAMPLES])
def test_every_command_named_exists(document):
    text = (CURRENT | EXAMPLES)[document]
    commands = re.findall(r"(?:`|^ *|\$ )caliope ([a-z]+)", text, flags=re.MULTILINE)
    assert set(commands) <= set(cli.main.commands)
    for name, command in cli.main.commands.items():
        if below := getattr(command, "commands", None):
            assert set(re.findall(rf"caliope {name} ([a-z]\w*)", text)) <= set(below)
    groups = re.findall(r"`?python -m ((?:reproduction|benchmarks|caliope)[\w.]*)(?: ([a-z]\w+))?", text)
    for module, command in groups:
        assert importlib.util.find_spec(module), module
        if module == "reproduction" and command:
            assert command in importlib.import_module("reproduction.__main__").main.commands


def options_of(command):
    """The options of a command and of the commands below it."""
    below = getattr(command, "commands", {}).values()
    own = {
        x
        for each in command.params
        if isinstance(each, click.Option)
        for x in (*each.opts, *each.secondary_opts)
    }
    return own.union(*map(options_of, below))


@pytest.mark.parametrize("document", [name for name in CURRENT if name.startswith(("README", "docs/"))])
def test_every_option_named_exists(document):
    options = {"--help", *options_of(cli.main)}
    for path in (ROOT / "benchmarks").glob("*.py"):  # those that read their own command line
        if f"python -m benchmarks.{path.stem}" in DOCUMENTS[document]:
            options |= set(re.findall(r'"(--[a-z-]+)"', path.read_text()))
    if document in ("docs/honesty.md", "docs/reproduction.md"):
        options |= options_of(importlib.import_module("reproduction.__main__").main)
    assert set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", DOCUMENTS[document])) <= options


@pytest.mark.slow
@pytest.mark.parametrize(
    "document", [name for name in CURRENT if not name.startswith(ELSEWHERE) and BLOCK.search(CURRENT[name])]
)
def test_python_blocks_run(document, tmp_path, monkeypatch):
    """One after the other, as a reader would type them."""
    blocks = [match.groupdict() for match in BLOCK.finditer(CURRENT[document])]
    code = [block["code"] for block in blocks if block["reason"] is None]
    if not code:
        pytest.skip(blocks[0]["reason"])
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in code:
        exec(compile(block, document, "exec"), names)


def test_the_architecture_shows_every_module_and_every_layer():
    text = DOCUMENTS["ARCHITECTURE.md"]
    layers = re.findall(r"^\d+\. (.+)$", text.split("From the ground up:")[1], flags=re.MULTILINE)
    assert [re.findall(r"`([\w.]+)`", line) for line in layers] == LAYERS
    tree = text.split("## The tree")[1].split("```")[1]
    shown = set(re.findall(r"\w+", tree))
    packages = {path.parent.name for path in MODULES.values() if path.name == "__init__.py"}
    modules = {path.stem for path in MODULES.values()}
    assert (packages | modules) - shown == set()


def test_every_make_target_that_the_readme_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)", README))
    assert named >= {"demo", "test", "test-fast", "check", "reproduce", "bench", "bench-peers", "docs"}
    assert named <= targets


@pytest.mark.slow
def test_the_example_of_the_shop_tells_the_audit_and_the_truth():
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "shop.py", "400"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Verdict: ")
    assert "0 of 400 visits" in done.stdout
    assert done.stdout.endswith("0.329 now, 0.324 with fewer discounts.\n")
    assert done.stderr == ""


def test_the_true_values_in_the_readme_are_those_of_the_simulator():
    text = " ".join(README.split())
    truth, now = re.search(r"known: ([\d.]+) with the change, and ([\d.]+) is what", text).groups()
    weights = [
        float(x) for x in re.search(r"cal\.tilt\(cal\.practice, \[(.+?)\]\)", README).group(1).split(",")
    ]
    changed = ward.PRACTICE * weights
    assert truth == f"{ward.WARD.value(changed / changed.sum(axis=1, keepdims=True)):.3f}"
    assert now == f"{ward.WARD.value(ward.PRACTICE):.3f}"


def test_the_readme_shows_a_small_picture_of_the_report():
    (name,) = re.findall(r"^!\[.+\]\((.+)\)$", README, flags=re.MULTILINE)
    picture = (ROOT / name).read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) < 150_000  # make picture takes it anew


@pytest.mark.slow
def test_the_example_of_the_readme_runs_as_it_stands(tmp_path):
    block = README.split("## Your own log")[1].split("```")[1]
    activate, write, evaluate = block.strip().replace("\\\n", " ").splitlines()
    assert activate == "source .venv/bin/activate"  # where make demo has put the commands
    command, *simulated = shlex.split(write, comments=True)
    assert command == "caliope"
    subprocess.run([sys.executable, "-m", "caliope", *simulated], cwd=tmp_path, check=True)
    command, *arguments = shlex.split(evaluate)
    assert command == "caliope"
    # With one model and few draws: the default ones take a minute.
    given = [*arguments, "--models", "frequencies", "--draws", "200", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "caliope", *given],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").stat().st_size > 10_000
    found = json.loads(done.stdout)["headline"]["interval"]
    assert found["low"] <= ward.WARD.value(ward.EARLIER) <= found["high"]


def test_ci_calls_the_targets_that_a_contributor_calls():
    called = re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), flags=re.MULTILINE)
    assert called == ["check", "test", "wheel-test", "notebooks", "docs"]
    assert set(called) <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
