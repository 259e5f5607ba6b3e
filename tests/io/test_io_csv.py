"""read_table on CSV: text is taken for what it must mean, and refused where it may mean two things."""

from __future__ import annotations

import gzip

import polars as pl
import pytest

from caliope.io import _csv as csv_files, read_table

ROLES = {"episode": "e", "time": "t", "action": "a", "reward": "r", "states": "x"}


def write(path, ids, times=None, **columns):
    """Write a log of one row for each id; its rewards tell the rows apart."""
    n = len(ids)
    filled = {"e": ids, "t": times or range(n), "a": [0, 1] * n, "r": range(n), "x": [1] * n} | columns
    lines = zip(*(list(values)[:n] for values in filled.values()), strict=True)
    path.write_text("\n".join(",".join(map(str, line)) for line in [filled, *lines]) + "\n")
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.csv"


@pytest.mark.parametrize(
    "times",
    [
        ["01/03/2020", "02/01/2020"],  # either may be the day
        ["13/01/2020", "01/14/2020"],  # both orders
        ["13/01/2020", "14-01-2020"],
        ["32/01/2020", "14/01/2020"],
    ],
)
def test_dates_that_could_be_day_first_or_month_first_are_refused(path, times):
    with pytest.raises(
        ValueError,
        match=rf"'t' must hold .*ISO dates, but 2 of 2 .*'{times[0]}' in episode 7.*2020-03-01.*real",
    ):
        read_table(write(path, [7, 7], times), **ROLES)


@pytest.mark.parametrize("odd", ["2020-13-01", "2020-02-30", "2020-1-1", "20200101T10", "10:30", "noon"])
def test_other_text_than_iso_dates_is_refused_with_its_episode(path, odd):
    with pytest.raises(ValueError, match=rf"1 of 3 rows do not \(first: '{odd}' in episode 9\)"):
        read_table(write(path, [7, 7, 9], ["2020-01-01", "2020-01-02", odd]), **ROLES)


@pytest.mark.parametrize(
    ("late", "early"),
    [
        ("2020-03-01", "2020-02-01"),
        ("2020-03-01 10:00", "2020-03-01 09:59:59.5"),
        ("2020-03-01T00:00:01", "2020-03-01"),
        ("2020-03-01T10:00Z", "2020-03-01T11:30:00+02:00"),
        ("2020-03-01 10:00:00.25+0000", "2020-03-01 10:00:00.125+0000"),
    ],
)
def test_iso_dates_and_datetimes_order_the_rows(path, late, early):
    data = read_table(write(path, [7, 7], [late, early]), **ROLES)
    assert data.rewards.tolist() == [1, 0]


def test_times_with_and_without_a_zone_are_not_compared(path):
    times = ["2020-03-01T10:00Z", "2020-03-01T10:30"]
    with pytest.raises(ValueError, match=r"first: '2020-03-01T10:30' in episode 7.*a time zone, or none"):
        read_table(write(path, [7, 7], times), **ROLES)


def test_an_empty_time_is_a_missing_one(path):
    with pytest.raises(ValueError, match=r"'t': 2 of 3 rows have no time"):
        read_table(write(path, [7, 7, 7], ["2020-03-01", "", '""']), **ROLES)


def test_numbers_in_quotation_marks_are_times(path):
    data = read_table(write(path, [7, 7], ['"10"', '"9"'], x=['"1"', '"2.5"']), **ROLES)
    assert data.states[:, 0].tolist() == [2.5, 1]


def test_a_long_id_is_cut_in_a_message(path):
    path.write_text(f"e,t,s,a,r\n{'x' * 300},1,1,0,1\n{'x' * 300},1,2,1,0\n")
    with pytest.raises(ValueError, match=r"episode x{35}…x{24}, step") as error:
        read_table(path, episode="e", time="t", states=["s"], action="a", reward="r")
    assert len(str(error.value)) < 400


def test_ids_keep_their_zeros_and_are_refused_where_they_differ_in_them_alone(path):
    assert read_table(write(path, ["01", "2", "003"]), **ROLES).ids.tolist() == ["01", "2", "003"]
    with pytest.raises(ValueError, match="differ in leading zeros alone"):
        read_table(write(path, ["01", "1", "001"]), **ROLES)


@pytest.mark.parametrize("ids", [["7", "12"], ["0", "-5"], ["9223372036854775807", "1"]])
def test_ids_that_are_written_as_whole_numbers_are_numbers(path, ids):
    assert read_table(write(path, ids), **ROLES, keep="e").ids.tolist() == [int(x) for x in ids]
    assert read_table(path, **ROLES, keep="e")["e"].tolist() == [int(x) for x in ids]


def test_ids_that_pandas_wrote_as_decimals_after_a_gap_are_whole_numbers(path):
    assert read_table(write(path, ["7.0", "-12.0"]), **ROLES).ids.tolist() == [7, -12]
    assert read_table(write(path, ["7.0", "12.5"]), **ROLES).ids.tolist() == ["7.0", "12.5"]
    with pytest.raises(ValueError, match=r"'7' and '7\.0' differ in the way a number is written alone"):
        read_table(write(path, ["7", "7.0"]), **ROLES)


@pytest.mark.parametrize("odd", ["07", "+7", "7.0", "1e3", "9223372036854775808", "p7", str(2**130)])
def test_one_id_that_is_no_plain_number_makes_all_of_them_text(path, odd):
    assert read_table(write(path, ["12", odd]), **ROLES).ids.tolist() == ["12", odd]


def test_ids_in_several_files_are_judged_together(tmp_path):
    files = [write(tmp_path / "a.csv", ["1"]), write(tmp_path / "b.csv", ["02"])]
    assert read_table(files, **ROLES).ids.tolist() == ["1", "02"]
    files = [write(tmp_path / "a.csv", ["1"]), write(tmp_path / "b.csv", ["01"])]
    with pytest.raises(ValueError, match="differ in leading zeros alone"):
        read_table(files, **ROLES)


def test_an_empty_id_is_refused(path):
    for hole in ("", '""'):
        with pytest.raises(ValueError, match=r"'e': 1 of 3 rows name no episode \(first: row 1\)"):
            read_table(write(path, ["7", hole, "7"]), **ROLES)


def test_a_header_that_names_a_needed_column_twice_is_refused(path):
    path.write_text("e,t,x,a,r,x,y,y\n1,0,1,0,0,2,3,4\n")
    with pytest.raises(ValueError, match=r"'x' must be there once.*log\.csv names 2 .*columns 3 and 6\)"):
        read_table(path, **ROLES)
    path.write_text("e,t,x,a,r,y,y\n1,0,1,0,0,3,4\n")
    assert len(read_table(path, **ROLES)) == 1


def test_a_file_without_rows_among_others_is_named(tmp_path):
    write(tmp_path / "a.csv", [1, 1])
    write(tmp_path / "b.csv", [])
    with pytest.raises(ValueError, match=r"b\.csv has no rows below its header"):
        read_table(tmp_path / "*.csv", **ROLES)
    (tmp_path / "b.csv").write_text("")
    with pytest.raises(ValueError, match=r"b\.csv has no rows and no header"):
        read_table(tmp_path / "*.csv", **ROLES)


def test_a_file_that_lacks_a_column_is_named(tmp_path):
    write(tmp_path / "a.csv", [1, 1])
    (tmp_path / "b.csv").write_text("e,t,a,r\n2,0,0,0\n")
    with pytest.raises(ValueError, match=r"'x' must be in every file, but 1 of 2 .*first: .*b\.csv"):
        read_table(tmp_path / "*.csv", **ROLES)


@pytest.mark.parametrize(("mark", "shown"), [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars")])
def test_other_separators_than_commas_are_found_and_said(path, mark, shown):
    path.write_text(f"e{mark}t{mark}a{mark}r{mark}x\n1{mark}0{mark}0{mark}0,5{mark}1,5\n")
    data = read_table(path, **ROLES)
    assert (data.rewards.tolist(), data.states.tolist()) == ([0.5], [[1.5]])
    assert data.encoder.describe()["file"] == f"columns separated by {shown}, numbers with decimal commas"


def test_with_a_tab_in_the_name_of_the_file_a_lone_column_is_no_mistake(tmp_path):
    (tmp_path / "log.tsv").write_text("e\tt\ta\tr\tx\n1\t0\t0\t0.5\t1.5\n")
    assert read_table(tmp_path / "log.tsv", **ROLES).states.tolist() == [[1.5]]


def test_numbers_with_both_marks_are_refused(path):
    path.write_text("e;t;a;r;x\n1;0;0;0,5;1.5\n")
    with pytest.raises(ValueError, match=r"numbers both as '0,5' and as '1\.5'.*all with commas"):
        read_table(path, **ROLES)


def test_a_semicolon_inside_a_text_separates_nothing(path):
    path.write_text('e,t,a,r,x,note\n1,0,0,0,1,"a;b"\n1,1,1,0,1,"c;d"\n')
    assert read_table(path, **ROLES, keep="note")["note"].tolist() == ["a;b", "c;d"]


@pytest.mark.parametrize("place", ["name", "cell", "late cell"])
def test_latin_1_is_named_as_the_encoding_that_it_is(path, place):
    text = write(path, [1, 1, 1]).read_text().replace("x", "größe" if place == "name" else "x", 1)
    if place != "name":
        text = text.replace(
            "1,0,0,0,1\n", "Größe,0,0,0,1\n" if place == "cell" else "1,0,0,0,1\n" * 90_000 + "ö,0,0,0,1\n", 1
        )
    path.write_bytes(text.encode("latin-1"))
    line = {"name": 1, "cell": 2, "late cell": 90_002}[place]
    with pytest.raises(
        ValueError, match=rf"log\.csv must be UTF-8 text, but line {line} is not .*ö.*iconv -f WINDOWS-1252"
    ):
        read_table(path, **ROLES)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_refused_by_its_name(path, encoding):
    path.write_bytes(write(path, [1, 1]).read_text().encode(encoding))
    with pytest.raises(ValueError, match=r"log\.csv must be UTF-8 text, but looks like UTF-16.*'CSV UTF-8'"):
        read_table(path, **ROLES)


def test_a_byte_order_mark_does_not_change_the_first_name(path):
    path.write_text(write(path, [1, 1]).read_text(), encoding="utf-8-sig")
    assert read_table(path, **ROLES).ids.tolist() == [1]
    packed = path.with_name("log.csv.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_table(packed, **ROLES).ids.tolist() == [1]


@pytest.mark.parametrize("rows", [1, 100], ids=["found when reading", "found when guessing types"])
@pytest.mark.parametrize(("column", "odd"), [("x", "much"), ("r", "low"), ("a", "none"), ("x", '"1,5 or 2"')])
def test_text_among_numbers_is_refused_with_its_row(path, monkeypatch, rows, column, odd):
    monkeypatch.setattr(csv_files, "_CSV_ROWS", rows)
    shown = odd.strip('"')
    with pytest.raises(
        ValueError, match=rf"log\.csv: column '{column}' must hold numbers, but 2 .*'{shown}' in row 3 below"
    ):
        read_table(write(path, [1] * 4, **{column: [0, 1, odd, odd]}), **ROLES)


def test_two_words_as_a_reward_are_named_with_what_to_write(path):
    table = write(path, [1] * 4, r=["no", "yes", "no", "yes"])
    with pytest.raises(ValueError, match=r"It holds 'no' and 'yes': write 1 for the one that counts, and 0 "):
        read_table(table, **ROLES)
    with pytest.raises(
        ValueError, match=r"leave gaps empty\.$"
    ):  # which of three, or what of a number, it cannot say
        read_table(write(path, [1] * 4, r=["no", "yes", "maybe", "yes"]), **ROLES)
    with pytest.raises(ValueError, match=r"leave gaps empty\.$"):
        read_table(write(path, [1] * 4, r=["no", "1", "no", "1"]), **ROLES)


def test_kept_dates_stay_as_they_are_written(path):
    data = read_table(write(path, [1, 1], born=["01/03/2020", "2020-01-02"]), **ROLES, keep="born")
    assert data["born"].tolist() == ["01/03/2020", "2020-01-02"]


def test_a_tilde_stands_for_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "log.csv", [1, 1])
    assert len(read_table("~/log.csv", **ROLES)) == len(read_table(["~/*.csv"], **ROLES)) == 1


def test_a_directory_stands_for_its_parquet_files_or_else_its_csv_files(tmp_path):
    with pytest.raises(ValueError, match=r"is a directory without Parquet or CSV files: name the files"):
        read_table(tmp_path, **ROLES)
    for name in ("b.csv", "a.csv"):
        write(tmp_path / name, [name, name])
    assert read_table(tmp_path, **ROLES).ids.tolist() == ["a.csv", "b.csv"]
    for name in ("b.parquet", "a.pq"):
        row = {"e": [name], "t": [0], "a": [0], "r": [0], "x": [1.0]}
        pl.DataFrame(row).write_parquet(tmp_path / name)
    write(tmp_path / "log.csv", [1, 1])
    assert read_table(str(tmp_path), **ROLES).ids.tolist() == ["a.pq", "b.parquet"]
    with pytest.raises(ValueError, match="path must name a file, but is empty"):
        read_table("", **ROLES)
