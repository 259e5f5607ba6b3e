"""Three readings of weights that are off count once: which finding carries the level, and with what text."""

import pytest
from scipy.special import ndtr

from caliope._results import Estimate, Interval
from caliope.checks import A102, B101, D102, W102
from caliope.checks._audit import include_capping
from caliope.checks._counting import count_once


def moved(errors):
    """A109 for an estimate that capping moved by so many standard errors."""
    z = 1.959963984540054
    best = Estimate("a", "a", errors, Interval(errors - z, errors + z, 0.95), 100, 100.0)
    found = include_capping(best, 0.0).findings
    return found[0] if found else None


def off(level="note", mean=0.93):
    return D102.finding(level, "plain", mean=mean, se=0.03)


def removed(share, level="note"):
    return W102.finding(level, "fixed", at=2.0, changed=10, n=500, removed=share)


def levels(*findings):
    return {finding.code: finding.level for finding in count_once(findings)}


@pytest.mark.parametrize(
    ("errors", "level"), [(0.14, None), (0.16, "note"), (1.99, "note"), (2.01, "caution"), (3.1, "issue")]
)
def test_a_shift_by_capping_has_its_level_by_its_size(errors, level):
    found = moved(errors)
    assert (found and found.level) == level
    if found:
        assert found.numbers["errors"] == pytest.approx(errors)


@pytest.mark.parametrize("errors", [0.2, 1.0, 2.5])
def test_the_interval_includes_what_capping_moved(errors):
    """A normal estimate with a bias of so many standard errors is within the new half-width 95 times in 100."""
    z = 1.959963984540054
    best = Estimate("a", "a", errors, Interval(errors - z, errors + z, 0.95), 100, 100.0)
    found = include_capping(best, 0.0)
    half = found.interval.width / 2
    assert ndtr(half - errors) - ndtr(-half - errors) == pytest.approx(0.95)
    assert found.findings[0].numbers["factor"] == pytest.approx(half / z)
    assert "includes this shift" in found.findings[0].message


def test_an_interval_that_capping_hardly_moves_stays_as_it_is():
    best = Estimate("a", "a", 0.14, Interval(0.14 - 1.96, 0.14 + 1.96, 0.95), 100, 100.0)
    assert include_capping(best, 0.0) == best


def test_one_mild_reading_is_a_note():
    assert levels(off()) == {"D102": "note"}
    assert levels(removed(0.09)) == {"W102": "note"}
    assert levels(moved(0.4)) == {"A109": "note"}


def test_what_the_interval_includes_is_no_reading():
    assert levels(removed(0.03), moved(0.4)) == {"W102": "note", "A109": "note"}
    assert levels(removed(0.2, "caution"), moved(1.9)) == {"W102": "note", "A109": "note"}
    assert levels(off(), moved(0.4)) == {"D102": "note", "A109": "note"}
    assert levels(off("caution"), moved(0.4)) == {"D102": "caution", "A109": "note"}
    # Beyond two standard errors it is one again.
    assert levels(removed(0.03), moved(2.1)) == {"W102": "note", "A109": "caution"}


def test_two_mild_readings_are_one_caution():
    assert levels(off(), removed(0.03)) == {"D102": "caution", "W102": "note"}
    assert levels(off(), moved(2.1)) == {"D102": "note", "A109": "caution"}


def test_the_finding_that_carries_the_level_says_what_the_others_saw():
    told = next(f for f in count_once([off(), removed(0.03), moved(2.4)]) if f.code == "A109")
    assert told.level == "caution"
    assert "2.4 standard errors" in told.message
    assert "The mean importance weight is 0.93, and should be 1." in told.message
    assert "The cap removed 3.0% of the weight." in told.message
    assert count_once(count_once([off(), removed(0.03), moved(2.4)])) == count_once(
        [off(), removed(0.03), moved(2.4)]
    )


def test_one_clear_reading_is_a_caution_and_counts_once():
    assert levels(off("caution")) == {"D102": "caution"}
    assert levels(off("caution"), moved(2.4)) == {"D102": "note", "A109": "caution"}
    assert levels(removed(0.2, "caution"), off()) == {"W102": "note", "D102": "caution"}


def test_issues_stay():
    assert levels(off("issue", mean=0.3), moved(0.4)) == {"D102": "issue", "A109": "note"}
    assert levels(removed(0.2, "issue"), off()) == {"W102": "issue", "D102": "note"}


@pytest.mark.parametrize(("errors", "level"), [(1.9, "note"), (2.1, "issue")])
def test_a_large_shift_where_other_choices_disagree_is_an_issue(errors, level):
    choices = A102.finding("caution", low=0.0, high=9.0)
    found = count_once([choices, moved(errors)])
    assert {f.code: f.level for f in found} == {"A102": "caution", "A109": level}
    assert ("The choice decides here" in found[1].message) == (level == "issue")
    assert levels(moved(errors)) == {"A109": "note" if errors < 2 else "caution"}


def test_what_is_about_something_else_is_left_alone():
    other = B101.finding("note")
    assert count_once([other]) == (other,)
    assert count_once([]) == ()
