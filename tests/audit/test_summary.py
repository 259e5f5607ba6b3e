"""What the report shows of weights, overlap and influence, with its arithmetic."""

from types import SimpleNamespace

import numpy as np
import pytest

import caliope as cal
from caliope._audit._summary import _confounding, _influential, overlap, weight_shares, weights_over_time


def evidence(ratios, lengths, rewards=None):
    with np.errstate(divide="ignore"):
        log_ratio = np.log(np.array(ratios, dtype=float))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return cal.Evidence(np.zeros(offsets[-1]) if rewards is None else rewards, log_ratio, offsets)


def test_weights_over_time_keep_the_last_weight_of_what_has_ended():
    # Weights at the first step 2, 1/2, 1; at the second 2 (ended), 2 and 0.
    shown = weights_over_time(evidence([2, 0.5, 4, 1, 0], [1, 2, 2]))
    assert shown.step.tolist() == [1, 2]
    assert shown.under_way.tolist() == [3, 2]
    assert shown.mean == pytest.approx([3.5 / 3, 4 / 3])
    assert shown.effective == pytest.approx([3.5**2 / 5.25, 2])
    assert shown.reaching == pytest.approx([3.5**2 / 5.25, 1])
    assert shown.without == pytest.approx([0, 1 / 3])
    first, second = np.log10([0.5, 0.5, 1, 2, 2]), [-np.inf, -np.inf, np.log10(2), np.log10(2), np.log10(2)]
    assert shown.log10[:, 0] == pytest.approx(first)
    assert shown.log10[:, 1] == pytest.approx(second)
    spread = np.array([np.std([2, 0.5, 1]), np.std([2, 2, 0])])
    assert shown.se == pytest.approx(spread / np.sqrt(3))


def test_no_weight_at_all_is_an_effective_sample_of_none():
    shown = weights_over_time(evidence([0, 0], [1, 1]))
    assert (shown.effective[0], shown.mean[0], shown.without[0]) == (0, 0, 1)


@pytest.mark.parametrize(("horizon", "count"), [(39, 39), (40, 40), (41, 40), (100, 40)])
def test_the_time_axis_has_at_most_forty_steps_with_the_first_and_the_last(horizon, count):
    shown = weights_over_time(evidence(np.ones(horizon + 1), [1, horizon]))
    assert (len(shown.step), shown.step[0], shown.step[-1]) == (count, 1, horizon)
    assert shown.under_way.tolist() == [2] + [1] * (count - 1)


def test_shares_of_the_heaviest_trajectories():
    assert weight_shares(evidence(np.arange(1, 12), np.ones(11, int))) == pytest.approx(
        {1: 11 / 66, 10: 65 / 66}
    )
    assert weight_shares(evidence(np.arange(1, 11), np.ones(10, int))) == pytest.approx({1: 10 / 55})
    assert weight_shares(evidence([0, 0], [1, 1])) == {1: 0.0}


def test_actions_of_both_policies_by_how_likely_practice_takes_them():
    practice = np.array([[0.005, 0.995], [0.01, 0.99], [0.0, 1.0]])
    policy = np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])
    shown = overlap(policy, practice)
    assert shown.edges == (0.0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0)
    assert shown.policy == pytest.approx(np.array([0.5, 0.3, 0.6, 0, 0, 1.6]) / 3)
    assert shown.practice == pytest.approx(np.array([0, 0.005, 0.01, 0, 0, 2.985]) / 3)
    assert shown.rare == pytest.approx(0.8 / 3)  # less often than 1 in 100; exactly that is not rare


@pytest.mark.parametrize(("breaks_at", "last"), [(1.0, 2), (2.0, 3), (4.0, 6), (50.0, 10)])
def test_the_curve_of_confounding_ends_beyond_the_breakdown(breaks_at, last):
    e = evidence([1, 1, 2], [1, 1, 1], np.array([0.0, 1.0, 1.0]))
    curve = _confounding(e, SimpleNamespace(factor=breaks_at))
    assert (len(curve.factor), curve.factor[0], curve.factor[-1]) == (25, 1, last)
    assert curve.low[0] == pytest.approx(curve.high[0]) == pytest.approx(0.75)
    assert (np.diff(curve.low) < 0).all()
    assert (np.diff(curve.high) > 0).all()
    assert _confounding(e, SimpleNamespace(factor=float("nan"))) is None


def test_influential_trajectories_have_their_own_numbers():
    ids = np.array(["a", "b", "c"])
    e = evidence([1, 1, 3, 0], [1, 2, 1], np.array([1.0, 2, 4, 8]))
    one, two = _influential(ids, e, SimpleNamespace(top=[1, 2], effect=[0.5, -0.25]))
    assert (one.id, one.steps, one.discounted_return, one.weight_share, one.effect) == ("b", 2, 6, 0.75, 0.5)
    assert (two.id, two.steps, two.discounted_return, two.weight_share, two.effect) == ("c", 1, 8, 0, -0.25)
    none = _influential(ids, evidence([0, 0, 0, 0], [1, 2, 1]), SimpleNamespace(top=[0], effect=[0.0]))
    assert np.isnan(none[0].weight_share)
