"""Outcomes that the log does not show: the rule of three, the lower end that includes it, and when it is a caution."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import caliope as cal
from caliope._audit import prepare_audit
from caliope._audit._estimates import include_unseen
from caliope._audit._inputs import as_worst
from caliope._audit._result import GAIN, HEADLINE
from caliope._results import Estimate, Interval
from caliope.checks._audit import check_unseen
from caliope.domains import ward


def row(value=1.0, low=0.9, *, n=300.0, level=0.95):
    return Estimate("a", "a", value, Interval(low, value + 0.1, level), 400, n)


def d116(estimate):
    (found,) = [finding for finding in estimate.findings if finding.code == "D116"]
    return found


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [80, 300])
def test_the_share_is_the_largest_that_is_not_seen_with_this_chance(n, level):
    share = d116(check_unseen(row(n=float(n), level=level), worst=0.0, given=False)).numbers["share"]
    # No such trajectory among n, as a loop: exp(-n share) is 1 - level, and (1 - share)^n a little less.
    unseen = 1.0
    for _ in range(n):
        unseen *= 1 - share
    assert math.exp(-n * share) == pytest.approx(1 - level)
    assert unseen == pytest.approx(1 - level, rel=0.2)
    assert unseen < 1 - level


def test_the_lower_end_includes_the_worst_plausible_return():
    # 3.0 / 300 of the trajectories with -50 instead of 1: 0.509 lower.
    found = check_unseen(row(), worst=-50.0, given=True)
    assert found.interval.low == pytest.approx(1 + math.log(0.05) / 300 * 51)
    assert found.interval.high == row().interval.high
    assert d116(found).level == "note"
    assert d116(found).numbers["by"] == pytest.approx(0.9 - found.interval.low)
    assert "lowered by 0.409" in d116(found).message


def test_an_interval_is_never_shortened():
    found = check_unseen(row(low=0.2), worst=-50.0, given=True)
    assert found.interval.low == 0.2
    assert d116(found).numbers["by"] == 0


def test_a_difference_falls_by_what_the_weights_add():
    # The policy is worth 1 and the difference is 0.2. With 300 of 400 effective trajectories the weights have a
    # standard deviation of (400 / 300 - 1)^(1/2) = 0.577; so many times 0.509.
    found = check_unseen(row(value=0.2, low=0.1), worst=-50.0, given=True, at=1.0)
    assert found.interval.low == pytest.approx(0.2 + math.log(0.05) / 300 * 51 * (400 / 300 - 1) ** 0.5)
    # From twice as many trajectories as effective ones on it counts in full, and not at all where weights are equal.
    found = check_unseen(row(value=0.2, low=0.1, n=150.0), worst=-50.0, given=True, at=1.0)
    assert found.interval.low == pytest.approx(0.2 + math.log(0.05) / 150 * 51)
    found = check_unseen(row(value=0.0, low=0.0, n=399.99999999999994), worst=-50.0, given=False, at=1.0)
    assert d116(found).level == "note"
    assert d116(found).numbers["fall"] == 0


@pytest.mark.parametrize(("worst", "level"), [(-9.0, "note"), (-9.1, "caution")])
def test_where_the_worst_return_seen_would_leave_the_interval_it_is_a_caution(worst, level):
    # The lower half is 0.1; ln(20) / 300 * (1 + 9) is 0.0999.
    found = check_unseen(row(), worst=worst, given=False)
    assert d116(found).level == level
    assert d116(found).numbers["fall"] == pytest.approx(-math.log(0.05) / 300 * (1 - worst))
    assert ("more than the lower half" in d116(found).message) == (level == "caution")
    assert found.interval == row().interval


def test_without_a_value_nothing_is_said():
    assert check_unseen(row(value=math.nan), worst=0.0, given=True).findings == ()
    assert check_unseen(row(n=0.0), worst=0.0, given=True).findings == ()


def test_more_than_every_trajectory_cannot_be_unseen():
    assert d116(check_unseen(row(n=1.5), worst=0.0, given=False)).numbers["share"] == 1


def test_the_worst_return_must_be_at_most_the_smallest_seen():
    data = cal.Trajectories(
        [[0.0]] * 4, [0, 1, 0, 1], [3.0, -2.0, 1.0, 4.0], [0, 2, 3, 4], ids=["a", "b", "c"]
    )
    assert as_worst(data, None, 1.0) is None
    assert as_worst(data, 1, 1.0) == 1.0  # 3 - 2, 1 and 4
    with pytest.raises(
        ValueError, match=r"must not exceed the smallest return in the log, 1 \(trajectory a\); got 1.5"
    ):
        as_worst(data, 1.5, 1.0)
    assert as_worst(data, 1.0, 0.0) == 1.0  # 3, 1 and 4
    for bad in ("low", math.nan, -math.inf, True):
        with pytest.raises(TypeError, match="worst must be a finite number"):
            as_worst(data, bad, 1.0)


@pytest.mark.slow
def test_an_audit_includes_a_worst_return_that_nobody_saw():
    data = ward.simulate(300, rng=0)
    prepared = prepare_audit(data, {"logistic": LogisticRegression()}, rng=0)
    target = cal.TabularPolicy(ward.EARLIER)
    plain, worst = (
        prepared.audit(target, regressor=LinearRegression(), n_draws=50, worst=given) for given in (None, -20)
    )
    assert d116(plain.headline).level == "note"
    assert d116(plain.headline).numbers["worst"] == 0
    for name in ("headline", "gain", "practice"):
        without, given = getattr(plain, name), getattr(worst, name)
        top = plain.headline.value if name == "gain" else without.value
        spread = (without.n / without.effective_n - 1) ** 0.5 if name == "gain" else 1.0
        low = without.value + math.log(0.05) / without.effective_n * min(1.0, spread) * (top + 20)
        assert given.interval.low == pytest.approx(min(low, without.interval.low))
        assert given.interval.low < without.interval.low
        assert given.interval.high == without.interval.high
        assert given.value == without.value
    assert worst.settings.to_dict()["worst plausible return"] == -20
    assert plain.settings.to_dict()["worst plausible return"] == "the worst in the log"
    with pytest.raises(ValueError, match="worst must not exceed the smallest return in the log, 0"):
        prepared.audit(target, worst=0.5)
    # Many trajectories return 0: nothing is worse. Nobody saw -20, so that it is a condition.
    assert not any("no outcome worse" in clause for clause in plain.headline.conditions)
    assert "no outcome worse than a return of -20 can happen" in worst.headline.conditions
    assert not any("no outcome worse" in clause for clause in worst.practice.conditions)
    # The curve of shares includes it too.
    assert worst.reach.table[-1].interval.low == pytest.approx(worst.gain.interval.low, rel=0.2)


def test_the_smallest_return_is_a_condition_where_hardly_any_trajectory_shares_it():
    rows = tuple(replace(row(), name=name, conditions=("a",)) for name in (HEADLINE, GAIN))
    spread = include_unseen(rows, None, np.arange(200.0))
    assert spread[0].conditions == ("a", "no outcome worse than a return of 0 can happen")
    assert include_unseen(rows, None, np.arange(200.0) % 100)[0].conditions == ("a",)  # 2 of 200 return 0


def test_a_worst_return_that_was_given_lowers_all_rows_and_one_that_was_seen_the_first_two():
    names = (HEADLINE, GAIN, "wis")
    rows = tuple(replace(row(), name=name) for name in names)
    for worst, lowered, told in ((-50.0, names, names), (None, (), names[:2])):
        found = include_unseen(rows, worst, np.linspace(-50, 0, 200))
        assert tuple(x.name for x in found if x.interval.low < 0.9) == lowered
        assert tuple(x.name for x in found if x.findings) == told
