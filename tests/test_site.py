"""What the site promises: every public name has a place, every command and setting is described, every block is run."""

import inspect
import re
import sys
import textwrap
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "_ext"))

import executed_pages
import generated_pages

import caliope
from caliope import cli
from caliope._audit._comparison import PolicyComparison
from caliope.cli._config import SETTINGS
from test_docstrings import NAMESPACES, public

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    path
    for path in sorted(DOCS.rglob("*.md"))
    if path.relative_to(DOCS).parts[0] not in ("_build", "api", "gallery")
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
RUN = [path for path in PAGES if str(path.relative_to(DOCS)).startswith(executed_pages.EXECUTED)]


def test_every_public_name_has_a_place_in_the_api():
    pages = generated_pages.api_pages()
    listed = {
        f"{Path(page).stem}.{name}"
        for page, text in pages.items()
        for name in re.findall(r"^   (\w+)$|^\.\. py:data:: (\w+)$", text, flags=re.MULTILINE)
        for name in name
        if name
    }
    linked = set(re.findall(r":obj:`([\w.]+)`", "".join(pages.values())))
    modules = {Path(page).stem for page in pages}
    names = [name for name, thing in public() if not inspect.ismodule(thing)]
    assert len(names) > 200
    missing = []
    for name in names:
        place = generated_pages.place_of(name.removeprefix("caliope."))
        if place is None or not (place in listed or place in linked):
            missing.append(name)
    assert missing == []
    assert {f"caliope.{name}" for name in NAMESPACES if name != "domains"} <= modules
    assert {f"caliope.domains.{name}" for name in caliope.domains.__all__} <= modules


def test_every_command_has_a_section_of_its_own():
    page = (DOCS / "reference" / "commands.md").read_text()
    assert set(re.findall(r"^```\{command\} (\w+)$", page, flags=re.MULTILINE)) == set(cli.main.commands)


@pytest.mark.parametrize("name", sorted(cli.main.commands))
def test_the_description_of_a_command_names_all_its_options(name):
    command = cli.main.commands[name]
    text = "\n".join(generated_pages.command_lines(name, command))
    options = [option for each in command.params for option in each.opts if option.startswith("--")]
    assert [option for option in options if option not in text] == []


def test_every_setting_of_a_study_file_is_described_once():
    keys = re.findall(r"^\| `(\w+)` \|", "\n".join(generated_pages.study_lines()), flags=re.MULTILINE)
    assert sorted(keys) == sorted(SETTINGS)


def test_the_page_of_the_json_lists_its_keys():
    page = (DOCS / "reference" / "report-json.md").read_text()
    for part, made in zip(page.split("## Of a comparison"), (caliope.Audit, PolicyComparison), strict=True):
        listed = re.findall(r"^\| `(\w+)` \|", part, flags=re.MULTILINE)
        written = re.findall(r'^            "(\w+)":', inspect.getsource(made.to_dict), flags=re.MULTILINE)
        assert listed == ["schema", *written, "versions", "figures", "page"]


@pytest.mark.parametrize("path", RUN, ids=lambda path: str(path.relative_to(DOCS)))
def test_every_block_of_an_executed_page_is_run_or_says_why_not(path):
    text = path.read_text()
    fences = re.findall(r"^```(\w+)$", text, flags=re.MULTILINE)
    found = [match["language"] for match in executed_pages.BLOCK.finditer(text)]
    assert [language for language in fences if language in ("python", "bash")] == found
    assert set(fences) <= {"python", "bash", "toml", "text"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_in_the_gallery(example):
    assert example.name.startswith("plot_") or example.name == "shop.py"  # which the tests run by itself


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT)))
def test_code_fits_the_column_of_the_site(path):
    """Also what no formatter wraps: commands and long strings."""
    text = path.read_text(encoding="utf-8")
    code = [match["code"] for match in executed_pages.BLOCK.finditer(text)]
    if path in EXAMPLES:
        # Neither comments nor docstrings: they become prose.
        code = [re.sub(r"(?m)^ *# .*$|(?s:\"\"\".*?\"\"\")", "", text)]
    assert [line for line in "".join(code).splitlines() if len(line) > 88] == []


def test_a_block_is_run_and_shows_what_it_prints(tmp_path):
    page = "```python\nx = 2\nprint(x + 3)\n```\n\n```bash\necho from the shell\n```\n"
    text = executed_pages.run_blocks(page, "guides/x", tmp_path)
    assert "\n5\n````" in text
    assert "\nfrom the shell\n````" in text


@pytest.mark.parametrize("block", ["```python\n1 / 0\n```\n", "```bash\nfalse\n```\n"])
def test_a_block_that_fails_stops_the_build(block, tmp_path):
    with pytest.raises((ZeroDivisionError, RuntimeError)):
        executed_pages.run_blocks(block, "guides/x", tmp_path)


def test_a_block_that_is_not_run_says_why_and_the_output_may_be_cut(tmp_path):
    page = "<!-- not run: installs -->\n```bash\nfalse\n```\n<!-- first: 1 -->\n```python\nprint(1)\nprint(2)\n```\n"
    text = executed_pages.run_blocks(page, "guides/x", tmp_path)
    assert "\n1\n...\n````" in text


def test_what_a_table_folds_is_folded_again_and_a_table_is_not(tmp_path):
    finding = "   B101  " + textwrap.fill("word " * 40, 109).replace("\n", "\n" + " " * 9)
    row = "estimator  " * 10 + "value"
    text = executed_pages.run_blocks(f"```python\nprint({row!r})\nprint({finding!r})\n```\n", "x", tmp_path)
    (shown,) = re.findall(r":class: output\n\n(.+)\n````", text, flags=re.DOTALL)
    first, *folded = shown.splitlines()
    assert first == row
    assert max(map(len, folded)) <= executed_pages.WIDTH
    # Every line but the last is full.
    assert min(map(len, folded[:-1])) > executed_pages.WIDTH - len("word ")
    assert all(line.startswith(" " * 9 + "word") for line in folded[1:])


def test_names_of_the_package_lead_to_their_own_page():
    assert generated_pages.place_of("wdr") == "caliope.wdr"
    assert generated_pages.place_of("estimators.wdr") == "caliope.wdr"
    assert generated_pages.place_of("weights.kish") == "caliope.weights.kish"
    assert generated_pages.place_of("no_such_name") is None


def test_a_figure_has_a_caption_and_a_caption_has_a_figure(tmp_path):
    draw = "```python\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\n```\n"
    assert "a rising line" in executed_pages.run_blocks(
        f"<!-- figure: a rising line -->\n{draw}", "x", tmp_path
    )
    assert [path.name for path in tmp_path.iterdir()] == ["x-1.png"]
    with pytest.raises(RuntimeError, match="needs a caption"):
        executed_pages.run_blocks(draw, "x", tmp_path)
    with pytest.raises(RuntimeError, match="no figure was drawn"):
        executed_pages.run_blocks("<!-- figure: nothing -->\n```python\nx = 1\n```\n", "x", tmp_path)
