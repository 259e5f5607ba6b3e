"""Reports: the same bytes for the same results, and a page made of them."""

import json

import pytest

from reproduction._report import Report, ReportTable, read_report, write_page

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
    times = {"seconds": 150.0, "units": 2, "command": "python -m reproduction table1"}
    (tmp_path / "table1.times.json").write_text(json.dumps(times))
    page = tmp_path / "docs" / "reproduction.md"
    assert write_page(tmp_path, page, order=("figure1", "table1")) == ["table1"]
    text = page.read_text()
    assert "`python -m reproduction table1`: 2.5 min on one core." in text
    assert "It agrees." in text
    assert TABLE.to_markdown() in text
    assert "Every digit" not in text
    assert "Configuration: seeds 3, k 1, 2." in text
    assert "(reproduction/table1.svg)" in text
    assert (tmp_path / "docs" / "reproduction" / "table1.svg").read_text() == "<svg/>"


def test_a_page_without_times_says_so(tmp_path):
    a_report().write(tmp_path)
    page = tmp_path / "page.md"
    write_page(tmp_path, page, order=("table1",))
    text = page.read_text()
    assert "Command and time were not recorded." in text
    assert "| Table 1: numbers | not recorded | not recorded |" in text
    assert "``" not in text


def test_the_page_says_how_to_make_it_again_and_how_long_that_takes(tmp_path):
    for name, seconds in (("table1", 150.0), ("zoo", 30.0)):
        a_report(name).write(tmp_path)
        times = {"seconds": seconds, "units": 2, "command": f"python -m reproduction {name}"}
        (tmp_path / f"{name}.times.json").write_text(json.dumps(times))
    write_page(tmp_path, tmp_path / "page.md", order=("table1", "zoo"))
    text = (tmp_path / "page.md").read_text()
    assert "`python -m reproduction all --jobs 2`" in text
    assert "`--full`" in text
    assert "took 3.0 min of work on one core" in text
    assert "domains whose truth is known" in text


def test_a_page_of_a_users_own_cohort_claims_no_truth(tmp_path):
    Report("table1", "Table 1", (TABLE,), ("It agrees.",), {"data": "cohort.parquet"}).write(tmp_path)
    write_page(tmp_path, tmp_path / "page.md", order=("table1",))
    text = (tmp_path / "page.md").read_text()
    assert "whose truth is known" not in text
    assert "the user's own cohort (cohort.parquet), whose truth is unknown." in text


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        ("table1.json", "{"),
        ("table1.json", "[1]"),
        ("table1.json", '{"name": "table1"}'),
        ("table1.times.json", "{"),
        ("table1.times.json", "[1]"),
    ],
)
def test_a_broken_file_is_named(tmp_path, broken, text):
    a_report().write(tmp_path)
    (tmp_path / broken).write_text(text)
    with pytest.raises(ValueError, match=broken.replace(".", r"\.")):
        write_page(tmp_path, tmp_path / "page.md", order=("table1",))


def test_a_folder_without_results_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no results"):
        write_page(tmp_path, tmp_path / "page.md", order=("figure1",))
