"""What results look like in a notebook, in a Python shell, and as tables of a paper."""

import copy
import html
import re
import sys
from dataclasses import replace

import polars as pl
import pytest

from caliope._audit._opened import compare_behaviour
from caliope.behaviour import TabularFrequencies, fit_behaviour
from caliope.domains import ward
from support.report_audits import far_audit, near_audit


@pytest.fixture(scope="module")
def near():
    return near_audit()


@pytest.fixture(scope="module")
def far():
    return far_audit()


def test_the_short_form_of_every_result_is_short(near):
    data, model = ward.simulate(50, rng=0), TabularFrequencies()
    behaviour = fit_behaviour(model, data, mode="same")
    models = compare_behaviour(data, {"frequencies": model}, rng=0)
    parts = [
        near,
        near.headline,
        near.placebo,
        near.reach,
        near.comparison[0],
        near.summary,
        behaviour,
        models,
    ]
    for part in (*parts, near.comparison.details["logistic"], near.comparison.choice):
        assert len(repr(part)) < 400, type(part)
    for table in (near.table, near.comparison, near.others, near.reach.table):
        assert len(repr(table)) < 2500
        assert repr(table).startswith(f"{type(table).__name__} of {len(table)} rows")


def test_the_short_form_of_a_table_shows_its_rows_and_how_many_are_left_out(near):
    text = repr(near.others)
    assert len(text.splitlines()) == 15
    assert text.endswith(f"... and {len(near.others) - 12} more")


def test_a_notebook_shows_the_verdict_three_numbers_and_a_figure(near):
    html = near._repr_html_()
    assert len(html.encode()) < 30_000
    assert "Caution: use with the reservations below" in html
    assert html.count("<svg") == 1
    assert near.gain.value_text in html
    assert "<script" not in html
    assert all(finding.code in html for finding in near.findings if finding.level == "caution")


def test_a_notebook_shows_what_trust_depends_on(near, far):
    condition = "if nothing that drives both decisions and outcomes is missing from"
    rows = tuple(
        replace(row, findings=tuple(f for f in row.findings if f.level == "note")) for row in near.table
    )
    trusted = replace(near, table=replace(near.table, rows=rows))
    assert trusted.verdict == "trust"
    shown = html.unescape(trusted._repr_html_())
    assert condition in trusted.headline.condition
    assert trusted.headline.condition in shown
    assert trusted.strength_text() in shown
    for audit in (near, far):
        assert condition not in audit._repr_html_()


def test_a_notebook_strikes_out_what_is_not_to_be_quoted(near, far):
    assert far._repr_html_().count("line-through") == 2
    assert "line-through" not in near._repr_html_()


def test_without_the_extra_a_notebook_shows_text(near, monkeypatch):
    monkeypatch.setitem(sys.modules, "caliope.report", None)
    html = near._repr_html_()
    assert html.startswith("<p>Verdict: caution")
    assert "<svg" not in html


def test_every_result_shows_in_a_notebook(near):
    for part in (near.headline, near.table, near.comparison, near.placebo, near.reach):
        assert 50 < len(part._repr_html_()) < 30_000


def test_tables_for_a_paper_hold_what_is_printed(near):
    frame = near.to_frame()
    assert isinstance(frame, pl.DataFrame)
    assert frame["name"].to_list() == [row.name for row in near.table]
    markdown, latex = near.to_markdown().splitlines(), near.to_latex().splitlines()
    first = near.table[0]
    for lines in (markdown, latex):
        row = next(line for line in lines if first.label in line)
        assert first.value_text in row
        assert first.interval_text in row
    assert len([line for line in markdown if line.startswith("|")]) == len(near.table) + 2
    assert len([line for line in latex if line.endswith(r"\\")]) == len(near.table) + 1
    assert "95\\% interval" in near.to_latex()
    assert not re.search(r"(?<!\\)[%_#]", near.to_latex())


def test_a_withheld_interval_is_withheld_in_every_table(far):
    assert far.headline.withheld
    for text in (far.to_markdown(), far.to_latex()):
        assert "withheld" in next(line for line in text.splitlines() if far.headline.label in line)
    assert far.to_frame()["low"].is_nan()[0]


def test_results_are_copied_as_before(near):
    assert copy.copy(near.headline) == near.headline
