"""The bias that an interval includes: its loop, its size by hand, its level on both sides, and where it enters."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

import caliope as cal
from caliope._results import Estimate, Interval
from caliope.checks import A109, D102, D118, D119
from caliope.checks._bias import Bias, include_bias
from caliope.checks._counting import count_once
from support.naive import imbalance

Z = 1.959963984540054


def log_of_unequal_lengths(seed):
    """Random evidence with given weights; some ratios are 0, and at the last step all of them."""
    rng = np.random.default_rng(seed)
    lengths = np.append(rng.integers(1, 5, size=30), 6)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    ratio = np.where(rng.random(n) < 0.2, 0.0, rng.lognormal(0.2, 0.8, n))
    ratio[-1] = 0.0  # the only one at its step
    with np.errstate(divide="ignore"):
        log_ratio = np.log(ratio)
    weight = log_ratio + rng.normal(0, 0.3, n)
    q, v = rng.normal(size=(2, n))
    return cal.Evidence(rng.normal(size=n), log_ratio, offsets, 0.9, q=q, v=v, log_weight=weight)


@pytest.mark.parametrize("seed", range(5))
def test_weights_off_balance_are_the_loop(seed):
    e = log_of_unequal_lengths(seed)
    assert Bias.of(e, 0.0).unbalanced == pytest.approx(imbalance(e), rel=1e-12)
    members = np.arange(3, 20)
    assert Bias.of(e.take(members), 0.0).unbalanced == pytest.approx(imbalance(e.take(members)), rel=1e-12)


def one_step(ratios, errors):
    """Trajectories of one step with normalised weights, and fitted values that err by so much."""
    ratios = np.asarray(ratios, dtype=float)
    weight = np.log(ratios / ratios.mean())
    n = len(ratios)
    return cal.Evidence(
        errors, np.log(ratios), np.arange(n + 1), q=np.zeros(n), v=np.zeros(n), log_weight=weight
    )


def test_by_hand():
    """Ratios of 0.5 and 1.1 average 0.8: weights of 0.625 and 1.375 come from 1.25 each, and 0.25 is missing.

    The errors 3 and 4 have a root mean square of sqrt(12.5) = 3.5355: the bias is up to 0.25 x 3.5355 = 0.8839.
    """
    bias = Bias.of(one_step([0.5, 1.1], [3.0, -4.0]), 0.1)
    assert bias.ratio == pytest.approx([0.8])
    assert bias.off == pytest.approx([-0.25])
    assert bias.unbalanced == pytest.approx(0.25 * np.sqrt(12.5))
    assert bias.size == bias.unbalanced
    assert Bias.of(one_step([0.5, 1.1], [3.0, -4.0]), -2.0).size == 2.0


def test_ratios_that_average_to_1_and_values_without_error_bias_nothing():
    assert Bias.of(one_step([0.5, 1.5], [3.0, -4.0]), 0.0).size == pytest.approx(0, abs=1e-15)
    assert Bias.of(one_step([0.5, 1.1], [0.0, 0.0]), 0.0).size == 0
    assert Bias.of(one_step([0.5, 1.1], [0.0, 0.0]), 0.0).findings(0.0) == ()


def test_what_two_policies_miss_alike_cancels_in_their_difference():
    a, b = (Bias.of(one_step(x, [3.0, -4.0]), m) for x, m in (([0.5, 1.1], 0.3), ([0.7, 1.1], 0.1)))
    # Mean ratios of 0.8 and 0.9: missing are 1/4 and 1/9.
    between = a - b
    assert between.unbalanced == pytest.approx((1 / 4 - 1 / 9) * np.sqrt(12.5))
    assert between.moved == pytest.approx(0.2)
    assert between.ratio == pytest.approx([0.8])
    assert (a - a).size == 0


@pytest.mark.parametrize(
    ("errors", "level"), [(0.14, None), (0.16, "note"), (4.99, "note"), (5.01, "caution")]
)
def test_weights_off_balance_have_their_level_by_the_bias(errors, level):
    bias = Bias.of(one_step([0.5, 1.1], [3.0, -4.0]), 0.0)
    found = bias.findings(bias.unbalanced / errors)
    assert [f.level for f in found] == ([] if level is None else [level])
    if found:
        assert found[0].check == D119
        assert found[0].numbers["errors"] == pytest.approx(errors)
        assert "ratios average 0.80, and should average 1" in found[0].message


@pytest.mark.parametrize(("size", "levels"), [(0.9e-12, []), (1.1e-12, ["issue"])])
def test_what_rounding_makes_of_equal_estimates_is_no_bias(size, levels):
    """Without spread nothing else says what is small."""
    e = one_step([1.0, 1.0], [0.0, 0.0])
    assert [f.level for f in Bias.of(e, size).findings(0.0) if f.check == A109] == levels
    off = replace(Bias.of(e, 0.0), off=np.array([-size]), error=np.array([1.0]))
    assert [f.level for f in off.findings(0.0) if f.check == D119] == levels


def test_an_interval_of_width_0_cannot_include_a_bias():
    assert [f.level for f in Bias.of(one_step([0.5, 1.1], [3.0, -4.0]), 0.0).findings(0.0)] == ["issue"]


@pytest.mark.parametrize(("moved", "code"), [(0.0, ["D119"]), (3.0, ["A109", "D119"])])
def test_an_interval_includes_the_larger_bias(moved, code):
    """A normal estimate with that bias is within the new half-width 95 times in 100."""
    bias = Bias.of(one_step([0.5, 1.1], [3.0, -4.0]), moved)
    row = Estimate("a", "a", 5.0, Interval(5 - Z, 5 + Z, 0.95), 100, 100.0)
    found = include_bias(row, bias)
    half, b = found.interval.width / 2, max(moved, 0.25 * np.sqrt(12.5))
    assert ndtr(half - b) - ndtr(-half - b) == pytest.approx(0.95)
    assert [f.code for f in found.findings] == code
    assert all(f.numbers["factor"] == pytest.approx(half / Z) for f in found.findings)


@pytest.mark.parametrize(("errors", "level"), [(4.9, "note"), (5.1, "caution")])
def test_a_change_of_weights_is_a_caution_later_where_influences_judge(errors, level):
    moved = A109.finding("caution", "included", moved=errors, se=1.0, errors=errors)
    judged = D118.finding("note", "one", share=0.01, trajectory=0)
    assert {f.code: f.level for f in count_once([moved, judged])}["A109"] == level
    assert [f.level for f in count_once([moved])] == ["caution"]


def test_weights_of_single_steps_have_no_mean_over_trajectories():
    """Mean ratios of 0.4 are an issue of whole trajectories (D102); normalised weights of a step average to 1."""
    ratios = np.full(400, 0.4) + np.linspace(-0.01, 0.01, 400)
    e = one_step(ratios, np.random.default_rng(0).normal(size=400))
    plain = replace(e, log_weight=None)
    assert D102 in {f.check for f in cal.estimate(plain, cal.wdr, n_draws=50, rng=0).rows[0].findings}
    assert D102 not in {f.check for f in cal.estimate(e, cal.wdr, n_draws=50, rng=0).rows[0].findings}


def test_weights_given_by_step_are_not_averaged_over_trajectories_that_end_at_different_steps():
    """300 trajectories of one step have weights of 0.05, and 100 of two steps 3.85 and then 1.

    At each step weights average to 1: (300 x 0.05 + 100 x 3.85) / 400, and 100 / 100. The last ones of the trajectories
    average to (300 x 0.05 + 100) / 400 = 0.29, which would be an issue of whole trajectories.
    """
    lengths = np.repeat([1, 2], [300, 100])
    weight = np.log(np.concatenate([np.full(300, 0.05), np.tile([3.85, 1.0], 100)]))
    ratio = np.log(np.concatenate([np.full(300, 0.05), np.tile([3.85, 1 / 3.85], 100)]))
    rewards = np.random.default_rng(0).normal(size=500)
    e = cal.Evidence(rewards, ratio, np.append(0, np.cumsum(lengths)), q=np.zeros(500), v=np.zeros(500))
    for given, expected in ((None, True), (weight, False)):
        found = cal.estimate(replace(e, log_weight=given), cal.wdr, n_draws=50, rng=0).rows[0].findings
        assert ((D102, "issue") in {(f.check, f.level) for f in found}) == expected
