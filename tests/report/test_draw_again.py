"""A page drawn again from its JSON has the same bytes, and a JSON from elsewhere runs nothing."""

import json

import pytest
from click.testing import CliRunner

from caliope.cli import main
from caliope.report import draw_again, write_report
from support.report_audits import far_audit, near_audit, strange_audit


def run(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_report(near_audit(), tmp_path_factory.mktemp("near") / "report.html")


@pytest.mark.slow
@pytest.mark.parametrize("make", [near_audit, far_audit, strange_audit])
def test_a_page_drawn_again_has_the_same_bytes(make, tmp_path):
    page, numbers = write_report(make(), tmp_path / "report.html")
    again = draw_again(numbers, tmp_path / "again.html")
    assert again.read_bytes() == page.read_bytes()


def test_the_command_needs_the_json_alone(written, tmp_path):
    page, numbers = written
    copy = tmp_path / "moved.json"
    copy.write_bytes(numbers.read_bytes())
    result = run(copy)
    assert result.exit_code == 0, result.output
    assert result.output == f"Report: {tmp_path / 'moved.html'}\n"
    assert (tmp_path / "moved.html").read_bytes() == page.read_bytes()


def test_the_json_has_a_schema(written):
    content = json.loads(written[1].read_text())
    assert (content["schema"], content["page"]["schema"]) == (1, 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x.pop("page"), "holds no page"),
        (lambda x: x["page"].update(schema=2), "schema 2, and this version draws schema 1"),
        (lambda x: x["page"].pop("title"), "holds a damaged page"),
        (lambda x: x["page"]["sections"][0]["blocks"][0].update(kind="Script"), "holds a damaged page"),
    ],
)
def test_what_is_no_page_is_refused_in_one_line(written, tmp_path, change, said):
    content = json.loads(written[1].read_text())
    change(content)
    (tmp_path / "odd.json").write_text(json.dumps(content))
    result = run(tmp_path / "odd.json")
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "odd.html").exists()


@pytest.mark.parametrize(
    "svg",
    [
        "<svg><script>alert(1)</script></svg>",
        "<svg onload='alert(1)'></svg>",
        "<svg><foreignObject></foreignObject></svg>",
        "<svg><a href='javascript:alert(1)'></a></svg>",
        "<p>no drawing</p>",
    ],
)
def test_a_drawing_that_could_run_something_is_refused(written, tmp_path, svg):
    content = json.loads(written[1].read_text())
    blocks = [block for section in content["page"]["sections"] for block in section["blocks"]]
    next(block for block in blocks if block["kind"] == "Picture")["svg"] = svg
    (tmp_path / "odd.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is no drawing of a report"):
        draw_again(tmp_path / "odd.json")


def test_files_that_are_not_there_or_no_json_are_refused_in_one_line(tmp_path):
    (tmp_path / "text.json").write_text("no json")
    for name, said in (("absent.json", "No such file"), ("text.json", "is no JSON file")):
        result = run(tmp_path / name)
        assert result.exit_code == 2
        assert said in result.stderr
