import json
import pickle
import re
from dataclasses import FrozenInstanceError, replace

import numpy as np
import polars as pl
import pytest

from caliope import Estimate, Evidence, Interval, Table, estimate, monte_carlo, phwis, wis
from caliope.checks import Check, verdict


def finding(code, level, text, facts=()):
    return Check(code, "slug", "Title", texts={"": text}).finding(level, **dict(facts))


NOTE = finding("B101", "note", "a note")
CAUTION = finding("D104", "caution", "a caution")
ISSUE = finding("D101", "issue", "an issue", {"n": 3.0})


def row(name="wis", value=1.0, low=0.5, high=1.5, *, level=0.95, findings=(), about_interval=()):
    interval = Interval(low, high, level, "bootstrap", tuple(about_interval))
    return Estimate(name, f"Label of {name}", value, interval, 100, 41.66, tuple(findings))


# -- verdicts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("findings", "expected"),
    [
        ([], "trust"),
        ([NOTE], "trust"),
        ([NOTE, CAUTION], "caution"),
        ([CAUTION, ISSUE, NOTE], "do not trust"),
        ([ISSUE], "do not trust"),
    ],
)
def test_the_verdict_is_the_worst_that_was_found(findings, expected):
    assert verdict(findings) == expected
    assert row(findings=findings).verdict == expected


def test_what_is_wrong_with_the_interval_is_wrong_with_the_estimate():
    assert row(findings=[NOTE], about_interval=[ISSUE]).verdict == "do not trust"


def test_a_misspelt_level_is_no_clean_bill_of_health():
    with pytest.raises(ValueError, match="level"):
        finding("D101", "isue", "the estimate rests on 2 trajectories")


# -- intervals ----------------------------------------------------------------------------------------


def test_an_interval_contains_its_ends_and_what_lies_between():
    interval = Interval(0.5, 1.5, 0.95)
    assert 0.5 in interval
    assert 1.5 in interval
    assert 1 in interval
    assert 0.49 not in interval
    assert 1.51 not in interval
    assert float("nan") not in interval
    assert interval.width == 1.0


def test_an_undefined_interval_contains_nothing():
    assert 0.0 not in Interval(np.nan, np.nan, 0.95)


def test_an_interval_without_upper_end_contains_everything_above():
    assert 1e300 in Interval(0.5, np.inf, 0.95)


def test_an_interval_prints_two_digits_of_its_width():
    # Width 0.0123: its second digit is in the third decimal.
    assert str(Interval(0.123456, 0.135756, 0.95, "delta")) == "[0.123, 0.136] at 95%, delta"
    assert str(Interval(1200.4, 1300.4, 0.9)) == "[1200, 1300] at 90%"
    assert str(Interval(0.5, np.inf, 0.95)) == "[0.5, inf] at 95%"
    assert str(Interval(2.0, 2.0, 0.95)) == "[2, 2] at 95%"
    assert str(Interval(np.nan, np.nan, 0.95)) == "[nan, nan] at 95%"


def test_an_interval_prints_its_findings_below():
    assert str(Interval(0.0, 1.0, 0.95, "m", (ISSUE,))) == "[0.0, 1.0] at 95%, m\n  D101 issue: an issue"


@pytest.mark.parametrize(
    ("level", "text"), [(0.95, "95%"), (0.9, "90%"), (0.975, "97.5%"), (0.995, "99.5%"), (0.999, "99.9%")]
)
def test_a_level_is_not_rounded(level, text):
    # 0.999 rounded to whole percents reads "100%", which no interval has.
    assert f" at {text}, " in str(Interval(0.0, 1.0, level, "m"))
    assert f"{text} interval" in row(level=level).cells()


# -- tables in a terminal -----------------------------------------------------------------------------


def test_a_table_lines_up_numbers_to_the_right_and_words_to_the_left():
    table = Table(
        (row("wis", 1.3, 0.8, 1.8), row("ois", -10.5, -11.0, -10.0), row("dm", np.nan, np.nan, np.nan))
    )
    assert str(table).splitlines() == [
        "estimator     value  95% interval      n  effective n  verdict",
        "Label of wis    1.3  [0.8, 1.8]      100         41.7  trust",
        "Label of ois  -10.5  [-11.0, -10.0]  100         41.7  trust",
        "Label of dm     nan  [nan, nan]      100         41.7  trust",
    ]


def test_every_line_of_a_table_has_its_columns_at_the_same_place():
    table = Table(
        (row("a", 1.0), row("b", -1234.5, -1300.0, -1200.0, findings=[CAUTION]), row("c", 0.001, 0.0, 0.002))
    )
    lines = str(table).splitlines()
    ends = {re.search(r"\s100\s", line).end() for line in lines[1:4]}
    assert len(ends) == 1
    assert {line.index("[") for line in lines[1:4]} == {lines[0].index("95%")}


def test_findings_stand_below_the_table_gravest_first_and_say_whose_they_are():
    table = Table((row("wis", findings=[NOTE, CAUTION]), row("ois", findings=[NOTE, ISSUE])), title="Ward")
    lines = str(table).splitlines()
    assert lines[0] == "Ward"
    assert lines[-3:] == ["!! D101  an issue [ois]", " ! D104  a caution [wis]", "   B101  a note"]


def test_a_finding_of_two_rows_names_both_although_their_numbers_differ_in_the_last_digit():
    one = finding("D101", "issue", "rests on 41.7 effective trajectories", {"effective_n": 41.66})
    other = finding("D101", "issue", "rests on 41.7 effective trajectories", {"effective_n": 41.66 + 1e-9})
    table = Table((row("mean"), row("wis", findings=[one]), row("phwis", findings=[other])))
    assert str(table).splitlines()[-1].endswith("[wis, phwis]")
    assert len(table.findings) == 1


def test_an_estimate_prints_as_a_table_of_one_row():
    assert str(row()) == str(Table((row(),)))


def test_an_empty_table_says_so():
    assert str(Table(())) == "(no rows)"
    assert Table(())._repr_html_() == "<p>(no rows)</p>"


# -- rows ---------------------------------------------------------------------------------------------


def test_rows_are_found_by_name_and_by_position():
    table = Table((row("wis"), row("ois")))
    assert table["ois"] is table.rows[1]
    assert table[0] is table.rows[0]
    assert table[-1] is table.rows[1]
    assert list(table[:1]) == [table.rows[0]]
    assert isinstance(table[:1], Table)
    assert len(table) == 2
    assert [r.name for r in table] == ["wis", "ois"]


def test_numpy_integers_are_positions():
    table = Table((row("wis"), row("ois")))
    assert table[np.argmax([0.0, 1.0])] is table.rows[1]


def test_a_name_that_is_missing_or_doubled_is_refused():
    with pytest.raises(KeyError, match=r"0 rows are called 'dm'; the rows are \['wis', 'ois'\]"):
        Table((row("wis"), row("ois")))["dm"]
    with pytest.raises(KeyError, match="2 rows are called 'wis'"):
        Table((row("wis"), row("wis")))["wis"]


def test_results_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        row().value = 2.0
    with pytest.raises(FrozenInstanceError):
        ISSUE.level = "note"


def test_results_survive_pickling():
    table = Table((row("wis", findings=[ISSUE]), row("ois", about_interval=[CAUTION])), title="t")
    assert pickle.loads(pickle.dumps(table)) == table


# -- JSON, frames, HTML -------------------------------------------------------------------------------


def refuse(constant):
    raise AssertionError(f"{constant} is not JSON")


def test_json_is_strict_and_what_is_not_finite_is_null():
    found = finding("W104", "note", "k", {"k": float("nan"), "at": float("inf"), "n": np.int64(3)})
    table = Table((row("wis", np.nan, -np.inf, np.inf, findings=[found]), row("ois", np.float64(0.5))))
    loaded = json.loads(table.to_json(), parse_constant=refuse)
    first, second = loaded["rows"]
    assert first["value"] is None
    assert first["interval"]["low"] is None
    assert first["interval"]["high"] is None
    assert first["findings"][0]["numbers"] == {"k": None, "at": None, "n": 3.0}
    assert second["value"] == 0.5
    assert second["interval"] == {
        "low": 0.5,
        "high": 1.5,
        "level": 0.95,
        "method": "bootstrap",
        "findings": [],
        "withheld": False,
    }
    assert (second["n"], second["effective_n"], second["verdict"]) == (100, 41.66, "trust")


def test_json_keeps_every_digit_of_a_number():
    value = 0.1 + 0.2
    assert json.loads(Table((row(value=value),)).to_json())["rows"][0]["value"] == value


def test_a_frame_has_a_typed_column_for_each_number():
    table = Table(
        (row("wis", findings=[ISSUE, NOTE], about_interval=[CAUTION]), row("dm", np.nan, np.nan, np.nan))
    )
    frame = table.to_frame()
    assert dict(frame.schema) == {
        "name": pl.String,
        "label": pl.String,
        "value": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "level": pl.Float64,
        "n": pl.Int64,
        "effective_n": pl.Float64,
        "verdict": pl.String,
        "condition": pl.String,
        "findings": pl.String,
    }
    assert frame["findings"].to_list() == ["B101 D101 D104", ""]
    assert frame["verdict"].to_list() == ["do not trust", "trust"]


def test_no_interval_is_shown_under_a_refusal():
    refused = row("wis", 0.35, 0.2, 0.48, findings=[ISSUE])
    assert refused.interval.low == 0.2  # the object keeps it
    assert refused.withheld
    assert refused.text == "0.35 (do not trust; no interval)"
    assert refused.cells()["95% interval"] == "withheld"
    shown = refused.to_dict()["interval"]
    assert (shown["low"], shown["high"], shown["withheld"]) == (None, None, True)
    table = Table((refused,))
    assert np.isnan(table.to_frame()["low"][0])
    for text in (str(table), table._repr_html_(), table.to_json()):
        assert "0.48" not in text
    cautioned = replace(refused, findings=(CAUTION,))
    assert not cautioned.withheld
    assert cautioned.text == "0.35 [0.20, 0.48]"
    assert cautioned.to_dict()["interval"]["high"] == 0.48


def test_html_escapes_everything_that_came_from_outside():
    nasty = "<script>alert('x')</script> & more"
    found = finding("<b>", "note", nasty)
    table = Table(
        (Estimate(nasty, nasty, 1.0, Interval(0, 1, 0.95), 1, 1.0, (found,)), row("plain")), title=nasty
    )
    html = table._repr_html_()
    assert "<script>" not in html
    assert "<b></b>" not in html
    assert "&lt;script&gt;" in html
    assert "&amp; more" in html
    # Title, label, message of the finding, and the row it belongs to.
    assert html.count("&lt;script&gt;") == 4


def test_html_has_a_cell_for_each_column_and_a_line_for_each_finding():
    html = Table((row("wis", findings=[ISSUE]), row("ois")))._repr_html_()
    assert html.count("<th>") == 6
    assert html.count("<td ") == 12
    assert html.count("<li>") == 1


# -- from an estimate ---------------------------------------------------------------------------------


def test_a_table_of_estimates_prints_every_caveat_of_every_row():
    rng = np.random.default_rng(0)
    e = Evidence(rng.normal(size=120), rng.normal(scale=0.8, size=120), np.arange(0, 121, 3))
    table = estimate(e, monte_carlo, wis, phwis, n_draws=50, rng=0)
    printed = re.split(
        r"(?=[A-Z]\d{3} )", " ".join(str(table).split())
    )  # one piece a finding, however it is wrapped
    for line in table:
        for finding in line.findings + line.interval.findings:
            (piece,) = [x for x in printed if f"{finding.code} {' '.join(finding.message.split())}" in x]
            assert line.name in piece or "[" not in piece


@pytest.mark.parametrize(
    ("value", "low", "high", "text", "ends", "decimals"),
    [
        (0.5351, 0.48, 0.593, "0.54", ("0.48", "0.59"), 2),
        (-0.0004, -0.1, 0.1, "0.00", ("-0.10", "0.10"), 2),
        (1234.5, 1000.0, 1500.0, "1230", ("1000", "1500"), 0),
        (15.0, 15.0, 15.0, "15", ("15", "15"), 0),  # no width: four digits, without zeros at the end
        (0.33333, 0.33333, 0.33333, "0.3333", ("0.3333", "0.3333"), 4),
        (12345.0, 12345.0, 12345.0, "1.234e+04", ("1.234e+04", "1.234e+04"), None),
        (99996.0, 99996.0, 99996.0, "1e+05", ("1e+05", "1e+05"), None),
        (2e8, 1e8, 3e8, "2e+08", ("1e+08", "3e+08"), None),
        (0.0, 0.0, 0.0, "0", ("0", "0"), 0),
        (float("nan"), 0.1, 0.2, "nan", ("0.10", "0.20"), None),
        (0.25, float("nan"), float("nan"), "0.25", ("nan", "nan"), 2),
    ],
)
def test_a_value_has_as_many_digits_as_its_interval_deserves(value, low, high, text, ends, decimals):
    row = Estimate("wis", "WIS", value, Interval(low, high, 0.95), 10, 5.0)
    assert row.value_text == text
    assert row.interval.ends == ends
    assert row.interval.text == f"[{', '.join(ends)}]"
    assert row.text == f"{text} {row.interval.text}"
    assert row.decimals == decimals


def test_an_end_that_is_not_zero_does_not_read_as_zero():
    assert Interval(0.004, 2.1, 0.95).text == "[0.004, 2.100]"
    assert Interval(-2.1, -0.03, 0.95).text == "[-2.10, -0.03]"
    assert Interval(0.0, 2.1, 0.95).text == "[0.0, 2.1]"
    assert Interval(1e-12, 2.0, 0.95).text == "[1e-12, 2]"
