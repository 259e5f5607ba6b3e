"""Names for a report: in Python, on the command line and in study files, on console, page and JSON."""

import datetime
import json
from dataclasses import replace

import pytest

import caliope as cal
from caliope._audit._about import grid_names
from caliope._validation import singular
from caliope.behaviour import TabularFrequencies
from caliope.checks._registry import plural
from caliope.cli._evaluate import about_of
from caliope.cli._study import read_study
from caliope.domains import ward
from caliope.report import report_html
from caliope.values import TabularRegressor

NAMES = cal.About(
    title="Offers & visits",
    question="What if offers came late?",
    policy="late <offers>",
    outcome="spending",
    outcome_unit="euros",
    unit="visits",
    action_names=["none", "small", "large"],
    author="A. Nalyst",
    date=datetime.date(2026, 11, 18),
)


@pytest.fixture(scope="module")
def named():
    models, q = {"frequencies": TabularFrequencies()}, TabularRegressor()
    data, target = ward.simulate(150, rng=0), cal.TabularPolicy(ward.EARLIER)
    return cal.audit(data, target, models, regressor=q, n_draws=20, about=NAMES, rng=0)


def test_the_console_shows_the_names(named):
    lines = str(named).splitlines()
    assert lines[0] == "Offers & visits (A. Nalyst, 2026-11-18)"
    assert "Question: What if offers came late?" in lines
    assert any(line.startswith("New policy (late <offers>): ") for line in lines)
    assert any(line.startswith("Difference: ") and "(spending (euros) per visit)" in line for line in lines)
    assert named.data.unit == "visit"


@pytest.mark.slow
def test_the_page_shows_the_names_and_nothing_of_anybody_else(named):
    page = report_html(named)
    for text in (
        "<h1>Offers &amp; visits</h1>",
        "The question: What if offers came late?",
        "New policy (late &lt;offers&gt;)",
        "spending (euros) per visit",
        "Audit by A. Nalyst, 2026-11-18.",
        "150 visits",
        "small",
    ):
        assert text in page, text
    assert "visitses" not in page
    for word in ("patient", "fluid", "vasopressor", "trajectories in"):
        assert word not in page.lower(), word


def test_the_json_holds_the_names(named):
    found = json.loads(named.to_json())["about"]
    assert found["title"] == "Offers & visits"
    assert found["date"] == "2026-11-18"
    assert found["action_names"] == ["none", "small", "large"]


def test_numbers_do_not_depend_on_names(named):
    models, q = {"frequencies": TabularFrequencies()}, TabularRegressor()
    data, target = ward.simulate(150, rng=0), cal.TabularPolicy(ward.EARLIER)
    plain = cal.audit(data, target, models, regressor=q, n_draws=20, rng=0)
    assert plain.headline.value == named.headline.value
    assert plain.headline.interval.low == named.headline.interval.low
    assert plain.to_dict()["about"] == {}
    assert str(plain).startswith("Verdict: ")


@pytest.mark.parametrize("word", ["visit", "stay", "study", "match", "process", "trajectory", "case", "box"])
def test_one_or_many_of_a_unit_may_be_given(word):
    data = ward.simulate(5, rng=0)
    for given in (word, plural(word)):
        named = data.replace(unit=given)
        assert (named.unit, named.units) == (word, plural(word))


@pytest.mark.parametrize("word", ["bus", "series", "analysis", "lens"])
def test_a_word_that_ends_like_a_plural_stays_what_it_is(word):
    assert singular(word) == word


def test_a_grid_names_the_actions_of_two_factors():
    about = cal.About(grid={"price": 3, "colour": ["red", "blue"]})
    assert about.action_names == grid_names({"price": 3, "colour": ["red", "blue"]})
    assert about.action_names[3] == "price 1 / colour blue"
    assert replace(about, title="x").action_names == about.action_names


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"title": 3}, TypeError, "title must be text"),
        ({"action_names": "none"}, TypeError, "must be a list of words"),
        ({"grid": {"a": 2}}, ValueError, "two factors"),
        ({"grid": {"a": 2, "b": 1}}, ValueError, "two levels or more"),
        ({"grid": {"a": 2, "b": 2}, "action_names": ["x"]}, ValueError, "give one of the two"),
    ],
)
def test_names_that_make_no_sense_are_refused(given, kind, message):
    with pytest.raises(kind, match=message):
        cal.About(**given)


def test_names_must_fit_the_log_and_come_before_it_is_prepared():
    data, models = ward.simulate(30, rng=0), {"frequencies": TabularFrequencies()}
    with pytest.raises(ValueError, match="action_names has 2 actions, and the log has 3"):
        cal.audit(data, ward.EARLIER, models, about=cal.About(action_names=["a", "b"]), rng=0)
    with pytest.raises(TypeError, match="about must be"):
        cal.audit(data, ward.EARLIER, models, about="title", rng=0)
    prepared = cal.prepare_audit(data, models, rng=0)
    with pytest.raises(ValueError, match="prepared under other names"):
        prepared.audit(cal.TabularPolicy(ward.EARLIER), about=cal.About(unit="visit"))


def test_options_and_study_files_give_the_same_names(tmp_path):
    lines = [
        "log = '/log.csv'",
        "recommended = 'advice'",
        "title = 'T'",
        "policy-name = 'P'",
        "outcome = 'O'",
    ]
    lines += ["outcome-unit = 'U'", "author = 'A'", "date = 'D'", "action-grid = {price = 2, colour = 2}"]
    (tmp_path / "study.toml").write_text("\n".join(lines))
    study = read_study(str(tmp_path / "study.toml"), {}, needs_target=True)
    given = {"recommended": "advice", "title": "T", "policy_name": "P", "outcome": "O", "outcome_unit": "U"}
    given |= {"author": "A", "date": "D", "action_grid": "price:2, colour:2"}
    assert read_study("/log.csv", given, needs_target=True) == study
    about = about_of(study, "Which?")
    assert (about.title, about.policy, about.question, about.made) == ("T", "P", "Which?", "A, D")
    assert len(about.action_names) == 4
    with pytest.raises(ValueError, match="action_grid must be given as"):
        read_study("/log.csv", given | {"action_grid": "price"}, needs_target=True)
    with pytest.raises(ValueError, match="both name the actions"):
        read_study("/log.csv", given | {"action_names": "a,b"}, needs_target=True)
