"""Trust carries its condition: in a table, in HTML, in a frame, in JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest

import caliope as cal
from caliope._conditions import DRAWN, TAKEN_TOO, mark_conditions, nothing_missing, spell_out
from caliope.domains import ward

START = "nothing that drives both decisions and outcomes is missing from"


def estimated(*estimators, known=False, names=("severity",), q=False):
    data = ward.simulate(600, rng=0).replace(feature_names=list(names))
    behaviour = data["behaviour"] if known else cal.TabularPolicy(ward.PRACTICE)
    values = np.zeros((data.n_steps, 3)) if q else None
    evidence = cal.gather(data, cal.TabularPolicy(ward.EARLIER), behaviour, q=values)
    return cal.estimate(evidence, *estimators, n_draws=400, rng=0)


def test_every_column_is_named_or_counted():
    assert nothing_missing(("age", "pulse")) == f"{START}: age, pulse"
    assert nothing_missing(()) == f"{START} the states"
    many = nothing_missing([f"x{i}" for i in range(18)])
    assert many == f"{START}: x0, x1, x2, x3, x4, x5, ... (12 more)"
    assert len(nothing_missing(["a" * 500])) < len(START) + 50
    assert spell_out([]) == ""


def test_marks_tell_conditions_apart():
    assert mark_conditions(["", "if b", "if a", "if b"]) == (["", "*", "**", "*"], ["* if b.", "** if a."])
    assert mark_conditions(["", ""]) == (["", ""], [])


def test_a_trusted_row_has_its_condition_and_the_mean_of_practice_none():
    table = estimated(cal.monte_carlo, cal.wis, cal.difference(cal.wis))
    assert table["monte_carlo"].condition == ""
    assert table["wis"].condition == table[2].condition == f"if {START}: severity, and if {TAKEN_TOO}"
    trusted = replace(table["wis"], findings=())
    assert trusted.verdict == "trust"
    assert trusted.verdict_text == f"trust, if {START}: severity, and if {TAKEN_TOO}"
    assert trusted.cells()["verdict"] == "trust, if"


def test_with_logged_probabilities_the_condition_is_another():
    table = estimated(cal.wis, cal.dm, known=True, q=True)
    assert table["wis"].conditions == (DRAWN, TAKEN_TOO)
    assert table["dm"].conditions == (
        nothing_missing(("severity",)),
        TAKEN_TOO,
    )  # it does not use the probabilities


def test_an_estimator_of_unknown_traits_has_the_condition():
    assert estimated(lambda e: cal.wis(e))[0].condition == f"if {START}: severity, and if {TAKEN_TOO}"


def test_evidence_keeps_its_features():
    data = ward.simulate(30, rng=0).replace(feature_names=["a<b"])
    e = cal.gather(data, cal.TabularPolicy(ward.EARLIER), cal.TabularPolicy(ward.PRACTICE))
    again = cal.weights.clip_weights(e).with_counts(np.ones(30)).take(np.arange(5))
    assert again.features == ("a<b",)
    assert again.counts is None or again.counts.shape == (5,)


def row(name, *, conditions=(), findings=()):
    return cal.Estimate(name, name, 0.5, cal.Interval(0.4, 0.6, 0.95), 100, 50.0, findings, conditions)


@pytest.fixture
def table():
    caution = cal.checks.D104.finding("caution", share=0.5, trajectory=3)
    rows = (
        row("practice"),
        row("one", conditions=("a<b holds",)),
        row("two", conditions=("a<b holds", "c holds")),
        row("three", conditions=("a<b holds",)),
        row("doubted", conditions=("a<b holds",), findings=(caution,)),
    )
    return cal.Table(rows, "Values")


def test_a_printed_table_spells_conditions_out(table):
    lines = str(table).splitlines()
    assert [line.split()[-1] for line in lines[2:7]] == ["trust", "if*", "if**", "if*", "caution"]
    assert lines[7:9] == ["* if a<b holds.", "** if a<b holds, and if c holds."]
    assert table.grid().splitlines()[-2:] == lines[7:9]


def test_html_frames_and_json_have_them_too(table):
    page = table._repr_html_()
    assert "trust, if**</td>" in page
    assert "<p>* if a&lt;b holds.</p>" in page
    assert page.count("#1a7f37") == 4  # every trusted cell has its colour
    assert table.to_frame()["condition"].to_list()[:2] == ["", "if a<b holds"]
    read = json.loads(table.to_json())["rows"]
    assert [each["verdict"] for each in read] == ["trust"] * 4 + ["caution"]
    assert read[2]["condition"] == "if a<b holds, and if c holds"
