"""The answers of other logs of the same decisions: what is compared, what is said, and which rows hear of it."""

from dataclasses import replace

import numpy as np
import pytest

import caliope as cal
from caliope.behaviour import TabularFrequencies
from caliope.checks import A114
from caliope.domains import ward
from caliope.report import report_html
from caliope.values import TabularRegressor

MODELS = {"frequencies": TabularFrequencies()}
OPTIONS = {"regressor": TabularRegressor(), "n_draws": 200, "learnt_on": "no", "recorded_before": "all"}


def ask(seed, target=ward.EARLIER, n=700, **more):
    data = ward.simulate(n, rng=seed)
    by = np.where(data.states[:, 0] < 3, "mild", "ill") if more.pop("by", False) else None
    return cal.audit(data, cal.TabularPolicy(target), MODELS, **OPTIONS, by=by, rng=0, progress=False, **more)


@pytest.fixture(scope="module")
def here():
    return ask(2, by=True)


@pytest.fixture(scope="module")
def there():
    return ask(3)


@pytest.fixture(scope="module")
def refused():
    return ask(4, ward.HIGH)


def moved(audit, by):
    """An audit whose difference is another."""
    gain = audit.gain
    interval = replace(gain.interval, low=gain.interval.low + by, high=gain.interval.high + by)
    other = replace(gain, value=gain.value + by, interval=interval)
    rows = tuple(other if row is gain else row for row in audit.table)
    return replace(audit, table=replace(audit.table, rows=rows))


def naive_chance(a, b):
    return ((a.interval.width / 2) ** 2 + (b.interval.width / 2) ** 2) ** 0.5


def told(audit, row=None):
    return next(finding for finding in (row or audit.gain).findings if finding.check == A114)


def test_answers_that_chance_explains_are_a_note_and_no_number_moves(here, there):
    found = here.beside({"windows of 2 h": there}, name="windows of 4 h")
    assert told(found).level == "note"
    assert told(found).facts == {
        "n": 1,
        "unanswered": 0,
        "here": here.gain.value,
        "low": there.gain.value,
        "high": there.gain.value,
    }
    assert (found.verdict, found.gain.value, found.gain.interval) == (
        here.verdict,
        here.gain.value,
        here.gain.interval,
    )
    assert [row.name for row in found.other_logs] == ["windows of 4 h", "windows of 2 h"]
    assert [row.difference.value for row in found.other_logs] == [here.gain.value, there.gain.value]
    assert [row.practice.value for row in found.other_logs] == [here.practice.value, there.practice.value]
    steps = [len(audit.data.rewards) / len(audit.data) for audit in (here, there)]
    assert [row.decisions for row in found.other_logs] == steps
    assert here.other_logs is None


@pytest.mark.parametrize("beyond", [-1e-6, 1e-6])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_limit_is_what_two_independent_intervals_allow(here, there, beyond, sign):
    limit = naive_chance(here.gain, there.gain) + beyond
    other = moved(there, here.gain.value - there.gain.value + sign * limit)
    finding = told(here.beside({"b": other, "a": there}))
    assert finding.level == ("caution" if beyond > 0 else "note")
    if beyond > 0:
        assert finding.facts["name"] == "b"
        assert finding.facts["chance"] == pytest.approx(naive_chance(here.gain, there.gain))
        assert finding.facts["other"] == pytest.approx(here.gain.value + sign * limit)


@pytest.mark.slow
def test_an_answer_far_away_is_a_caution_wherever_the_policy_is_judged_but_not_of_practice(here, there):
    assert here.verdict == "trust"
    found = here.beside({"b": moved(there, 1.0)})
    judged = [
        found.headline,
        found.gain,
        *found.reach.table,
        *(x.value for x in found.subgroups.table),
        *(x.difference for x in found.subgroups.table),
        found.other_logs[0],
    ]
    assert len(found.subgroups.table) == 2
    assert {row.verdict for row in judged} == {"caution"}
    assert found.practice == here.practice
    assert found.reach.largest is None
    assert "In b the difference from current practice is" in str(found)
    page = report_html(found)
    assert "figure-other-logs" in page
    assert "figure-other-logs" not in report_html(here)


def test_what_is_not_to_be_trusted_is_compared_with_nothing(here, refused):
    assert refused.gain.withheld
    for found in (here.beside({"b": moved(refused, 9.0)}), refused.beside({"b": moved(here, 9.0)})):
        finding = told(found)
        assert finding.level == "note"
        assert finding.facts["unanswered"] == 1
        assert "low" not in finding.facts
    assert "withheld" in str(here.beside({"b": refused}).other_logs[1].cells())
    assert here.beside({"b": refused}).to_dict()["other_logs"]["rows"][1]["difference"]["interval"][
        "withheld"
    ]
    assert here.to_dict()["other_logs"] is None


def test_answers_that_do_not_compare_are_refused(here, there):
    with pytest.raises(ValueError, match="give the audits of other logs by name"):
        here.beside({})
    with pytest.raises(ValueError, match="two logs are called 'this log'"):
        here.beside({"this log": there})
    with pytest.raises(TypeError, match="are audits, got a Estimate"):
        here.beside({"b": there.gain})
    with pytest.raises(ValueError, match="are at 95%, and those of another log at 90%"):
        here.beside({"b": ask(3, n=100, level=0.9)})
