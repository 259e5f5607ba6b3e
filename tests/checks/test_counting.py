"""Three readings of weights that are off count once: which finding carries the level, and with what text."""

import pytest
from scipy.special import ndtr

from caliope._results import Estimate, Interval
from caliope.checks import A102, B101, B104, B109, D101, D102, D103, D104, D118, D119, P103, W102, W108
from caliope.checks._bias import include_capping
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
    ("errors", "level"), [(0.14, None), (0.16, "note"), (2.99, "note"), (3.01, "caution")]
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
    # Beyond three standard errors it is one again.
    assert levels(removed(0.03), moved(3.1)) == {"W102": "note", "A109": "caution"}


def test_two_mild_readings_are_one_caution():
    assert levels(off(), removed(0.03)) == {"D102": "caution", "W102": "note"}
    assert levels(off(), moved(3.1)) == {"D102": "note", "A109": "caution"}


def test_the_finding_that_carries_the_level_says_what_the_others_saw():
    told = next(f for f in count_once([off(), removed(0.03), moved(3.4)]) if f.code == "A109")
    assert told.level == "caution"
    assert "3.4 standard errors" in told.message
    assert "The mean importance weight is 0.93, and should be 1." in told.message
    assert "The cap removed 3.0% of the weight." in told.message
    assert count_once(count_once([off(), removed(0.03), moved(3.4)])) == count_once(
        [off(), removed(0.03), moved(3.4)]
    )


def test_one_clear_reading_is_a_caution_and_counts_once():
    assert levels(off("caution")) == {"D102": "caution"}
    assert levels(off("caution"), moved(3.4)) == {"D102": "note", "A109": "caution"}
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
    assert levels(moved(errors)) == {"A109": "note"}


def test_what_is_about_something_else_is_left_alone():
    other = B101.finding("note")
    assert count_once([other]) == (other,)
    assert count_once([]) == ()


def influential(share, level="note"):
    return D118.finding(level, "one", share=share, trajectory=3)


def weighed(level="caution"):
    return W108.finding(
        level,
        "single",
        regressor="none",
        r2=0.0,
        multiple=7.0,
        changed=9,
        n=500,
        removed=0.3,
        total=-0.3,
        mean=1.0,
        after=0.7,
    )


WEIGHTS = {
    "D101": D101.finding("issue", "too-few", effective_n=50.0, n=500, limit=100),
    "D103": D103.finding("issue", "weights", k=1.2, threshold=0.63),
    "D104": D104.finding("caution", share=0.03, trajectory=3),
    "W108": weighed(),
    "B104": B104.finding("caution", action=1, z=5.0, effect=0.03, often="more", where="overall", tests=9),
    "P103": P103.finding("caution", gain=0.02, se=0.003),
}


@pytest.mark.parametrize("code", WEIGHTS)
def test_what_an_interval_judged_by_influences_includes_is_a_note(code):
    found = WEIGHTS[code]
    assert levels(found) == {code: found.level}
    assert levels(found, influential(0.05)) == {code: "note", "D118": "note"}


def test_what_it_does_not_include_stays():
    few = D101.finding("issue", "too-few", effective_n=49.9, n=500, limit=100)
    off_model = B104.finding("issue", action=1, z=9.0, effect=0.06, often="more", where="overall", tests=9)
    beaten = P103.finding("issue", gain=0.05, se=0.003)
    assert levels(few, off_model, beaten, influential(0.05)) == {
        "D101": "issue", "B104": "issue", "P103": "issue", "D118": "note",
    }  # fmt: skip
    assert levels(WEIGHTS["D103"], influential(0.3, "caution")) == {"D103": "note", "D118": "caution"}


PAST = B109.finding(
    "caution", "passed", what="the past", seen="after action 0", before=-18.3, model="m", z=1.8
)


def off_balance(ratio=0.74, errors=4.1):
    return D119.finding("note", "included", step=2, ratio=ratio, bias=0.1 * errors, se=0.1, errors=errors)


@pytest.mark.parametrize(
    ("ratio", "errors", "level"),
    [(0.79, 2.0, "issue"), (0.81, 2.0, "note"), (0.79, 1.99, "note"), (1.4, 4.0, "note")],
)
def test_weight_that_is_missing_after_some_of_the_past_is_an_issue(ratio, errors, level):
    """S102 does not search the past: a policy that repeats what nobody ever repeats was a caution, far off."""
    lacking = off_balance(ratio, errors)
    assert levels(lacking) == {"D119": "note"}
    assert levels(lacking, PAST) == {"D119": level, "B109": "caution"}
    told = next(f for f in count_once([PAST, lacking]) if f.check == D119)
    assert ("in some such situations the log does not show" in told.message) == (level == "issue")
    assert told.numbers["ratio"] == ratio
