"""Reports: the same bytes for the same results, and a page made of them."""

import json

import pytest

from caliope.experiments.documentation import write_page
from caliope.experiments.reports import Report, ReportTable, read_report

TABLE = ReportTable(
    "Numbers", ("model", "|x|", "NLL"), (("a|b", 0.12345, float("inf")), ("c", None, -0.0001)), "Note."
)


def a_report(name="table1"):
    detail = ReportTable("Every digit", ("x",), ((1,),), detail=True)
    return Report(name, "Table 1: numbers", (TABLE, detail), ("It agrees.",), {"seeds": 3, "k": (1, 2)})


def test_a_table_prints_its_numbers_and_keeps_their_digits():
    lines = TABLE.to_markdown().splitlines()
    assert lines[2:6] == [
        "| model | \\|x\\| | NLL |",
        "| --- | --: | --: |",
        "| a\\|b | 0.123 | inf |",
        "| c |  | 0.000 |",  # no minus before a zero
    ]
    assert lines[-1] == "Note."
    assert TABLE.records()[0]["|x|"] == 0.12345


def test_a_row_has_a_cell_for_each_column():
    with pytest.raises(ValueError, match="row 1 of the table 'T' has 1 cells for 2 columns"):
        ReportTable("T", ("a", "b"), ((1, 2), (3,)))


def test_a_report_comes_back_from_its_file(tmp_path):
    a_report().write(tmp_path)
    again = read_report(tmp_path / "table1.json")
    assert again.to_json() == a_report().to_json()
    assert again.to_markdown() == a_report().to_markdown()
    assert json.loads((tmp_path / "table1.json").read_text())["tables"][0]["rows"][0][2] == "inf"
    assert again.table("Numbers").rows[1][1] is None
    with pytest.raises(KeyError, match="0 tables are called 'Nothing'"):
        again.table("Nothing")


def test_the_page_is_made_of_the_files(tmp_path):
    a_report().write(tmp_path)
    (tmp_path / "table1.svg").write_text("<svg/>")
    times = {"seconds": 150.0, "units": 2, "command": "caliope reproduce table1"}
    (tmp_path / "table1.times.json").write_text(json.dumps(times))
    page = tmp_path / "docs" / "reproduction.md"
    assert write_page(tmp_path, page, order=("figure1", "table1")) == ["table1"]
    text = page.read_text()
    assert "`caliope reproduce table1`: 2.5 min on one core." in text
    assert "It agrees." in text
    assert TABLE.to_markdown() in text
    assert "Every digit" not in text
    assert "Configuration: seeds 3, k 1, 2." in text
    assert "(reproduction/table1.svg)" in text
    assert (tmp_path / "docs" / "reproduction" / "table1.svg").read_text() == "<svg/>"


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no results"):
        write_page(tmp_path, tmp_path / "page.md", order=("figure1",))
