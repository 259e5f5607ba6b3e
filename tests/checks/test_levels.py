"""Each finding on both sides of its thresholds: the level that a user sees, and the number that it rests on."""

from dataclasses import replace

import numpy as np
import pytest

import caliope as cal
from caliope._audit._placebo import _check_miss, _Miss, check_underfit
from caliope._results import Estimate, Interval
from caliope.behaviour import fit_behaviour
from caliope.checks import D109, D110, _audit as across, _estimates as single
from caliope.checks._log import (
    _certain,
    _over_or_under_confident,
    behaviour_findings,
    check_log,
)
from caliope.domains import ward


def one_step(weights, returns=None, **fields):
    """One-step trajectories with the given weights."""
    weights = np.asarray(weights, dtype=float)
    with np.errstate(divide="ignore"):
        log_ratio = np.log(weights)
    rewards = np.arange(len(weights)) % 2 if returns is None else returns
    return cal.Evidence(rewards, log_ratio, np.arange(len(weights) + 1), **fields)


def found(estimator, e, code):
    """The finding with a code, or None."""
    return next((f for f in single.examine(estimator, e) if f.code == code), None)


def level(finding):
    return finding and finding.level


def estimate_of(value, low, high, *, n=100, effective_n=100.0, findings=()):
    return Estimate("a", "a", value, Interval(low, high, 0.95), n, effective_n, findings)


# -- the estimate --


@pytest.mark.parametrize(("n", "expected"), [(9, "issue"), (10, "caution"), (29, "caution"), (30, None)])
def test_an_unweighted_mean_needs_ten_and_better_thirty_trajectories(n, expected):
    finding = found(cal.monte_carlo, one_step(np.ones(n)), "D101")
    assert level(finding) == expected
    if finding:
        assert finding.numbers["effective_n"] == n


def test_the_number_of_effective_trajectories_is_said_with_its_limit():
    finding = found(cal.wis, one_step(np.ones(99)), "D101")
    assert (finding.numbers["effective_n"], finding.numbers["limit"]) == (99, 100)
    finding = found(cal.wis, one_step(np.ones(199)), "D101")
    assert (finding.level, finding.numbers["limit"]) == ("note", 200)


@pytest.mark.parametrize(
    ("others", "expected"), [(9, "caution"), (10, None)], ids=["nine other outcomes", "ten other outcomes"]
)
def test_fewer_than_ten_other_outcomes_are_too_few(others, expected):
    returns = np.zeros(400)
    returns[:others] = 1.0
    finding = found(cal.wis, one_step(np.ones(400), returns), "D111")
    assert level(finding) == expected
    if finding:
        assert finding.numbers == {"effective_n": pytest.approx(9), "common": 0.0}


def test_the_commonest_outcome_is_nothing_to_fitted_values():
    e = cal.Evidence(np.zeros(400), np.zeros(400), np.arange(401), q=np.zeros(400), v=np.zeros(400))
    assert found(cal.dm, e, "D111") is None
    assert level(found(cal.wis, e, "D111")) == "caution"


def test_one_other_outcome_without_weight_does_not_hide_those_that_have_it():
    # 100 trajectories with return 1 have weight, one with return 2 has none.
    weights, returns = np.ones(400), np.zeros(400)
    returns[:100], returns[100], weights[100] = 1.0, 2.0, 0.0
    assert found(cal.wis, one_step(weights, returns), "D111") is None


@pytest.mark.parametrize(("cut", "expected"), [(0, None), (1, "caution"), (15, "caution"), (16, "issue")])
def test_more_than_one_in_twenty_cut_off_is_an_issue(cut, expected):
    e = replace(one_step(np.ones(300)), terminated=np.arange(300) >= cut)
    finding = found(cal.wis, e, "D110")
    assert level(finding) == expected
    if finding:
        assert finding.numbers["share"] == pytest.approx(cut / 300)


@pytest.mark.parametrize(("lost", "expected"), [(0, None), (20, "caution"), (21, "issue")])
def test_lengths_without_weight_are_an_issue_above_one_in_twenty(lost, expected):
    lengths = np.where(np.arange(400) < lost, 1, 2)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    log_ratio = np.zeros(offsets[-1])
    log_ratio[:lost] = -np.inf
    finding = found(cal.phwis, cal.Evidence(np.ones(offsets[-1]), log_ratio, offsets), "D105")
    assert level(finding) == expected
    if finding:
        assert finding.numbers == {"share": lost / 400, "lost": lost, "n": 400}


@pytest.mark.parametrize(
    ("single_ones", "expected"), [(15, None), (16, "caution"), (60, "caution"), (61, "issue")]
)
def test_lengths_of_their_own_are_a_caution_above_one_in_twenty_and_an_issue_above_one_in_five(
    single_ones, expected
):
    lengths = np.array([*range(1, single_ones + 1), *[90] * (300 - single_ones)])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    e = cal.Evidence(np.zeros(offsets[-1]), np.zeros(offsets[-1]), offsets)
    assert level(found(cal.phwis, e, "D106")) == expected


@pytest.mark.parametrize(("n", "tested"), [(29, False), (30, True)])
def test_the_lengths_of_the_target_are_tested_from_thirty_effective_trajectories_on(n, tested):
    offsets = np.concatenate([[0], np.cumsum(1 + np.arange(n) % 2)])
    e = cal.Evidence(np.ones(offsets[-1]), np.zeros(offsets[-1]), offsets)
    finding = found(cal.phwis, e, "D107")
    assert finding.level == "caution"
    assert ("p" in finding.numbers) == tested


@pytest.mark.parametrize(("size", "expected"), [(4, "caution"), (5, None)])
def test_a_length_is_rare_below_five_trajectories(size, expected):
    # Five rare lengths of so many trajectories each, among 60 altogether.
    lengths = np.array([*np.repeat(np.arange(1, 6), size), *[9] * (60 - 5 * size)])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    e = cal.Evidence(np.zeros(offsets[-1]), np.zeros(offsets[-1]), offsets)
    assert (level(found(cal.phwis, e, "D106")) is None) == (expected is None)


@pytest.mark.parametrize(("heavy", "expected"), [(1, "caution"), (2, None), (3, None)])
def test_a_length_whose_weight_is_that_of_fewer_than_two_trajectories_is_a_leak(heavy, expected):
    # 30 of 300 trajectories have length 1; so many of them have all the weight of that length.
    lengths = np.where(np.arange(300) < 30, 1, 2)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    log_ratio = np.zeros(offsets[-1])
    log_ratio[heavy:30] = -np.inf
    e = cal.Evidence(np.zeros(offsets[-1]), log_ratio, offsets)
    assert level(found(cal.phwis, e, "D106")) == expected


def valued(n, values, seed=0, weights=None):
    """One-step trajectories with rewards of mean 0 and deviation 1, and one fitted value for all."""
    rewards = np.random.default_rng(seed).normal(size=n)
    rewards = (rewards - rewards.mean()) / rewards.std()
    given = np.full(n, values, dtype=float)
    return one_step(np.ones(n) if weights is None else weights, rewards, q=given, v=given)


@pytest.mark.parametrize(
    ("z", "expected"), [(2.9, "caution"), (3.1, "issue"), (-2.9, "caution"), (-3.1, "issue")]
)
def test_values_are_refuted_from_three_standard_errors_on(z, expected):
    # Values that are all c: the mean of r - c is -c, with a standard error of 1 / sqrt(n).
    e = valued(400, -z / 20)
    finding = found(cal.dm, e, "D109")
    assert finding.level == expected
    assert finding.numbers["z"] == pytest.approx(z, rel=0.01)
    assert finding.numbers["correction"] == pytest.approx(z / 20)


def test_values_are_tested_with_the_weights_where_there_are_thirty_effective_trajectories():
    # Values are 1 where the weights are 2 and the reward is 0, and right elsewhere: on half of 60 trajectories.
    # Plain temporal differences: -0.5. Weighted: (30 * 2 * -1) / (30 * 2) = -1 where the others have no weight.
    n, rng = 400, np.random.default_rng(0)
    weights = np.where(np.arange(n) % 2 == 0, 2.0, 0.0)
    noise = rng.normal(scale=0.1, size=n)
    values = np.where(np.arange(n) % 2 == 0, 1.0, -1.0)
    e = one_step(weights, noise, q=values, v=values)
    finding = found(cal.dm, e, "D109")
    assert finding.level == "issue"
    assert finding.facts["what"] == "weighted correction"
    assert finding.numbers["correction"] == pytest.approx(-1, abs=0.05)
    few = e_part(e, 58)  # 29 effective trajectories: the weights say nothing, and the differences cancel
    assert found(cal.dm, few, "D109").level == "caution"


def e_part(e, n):
    return cal.Evidence(e.rewards[:n], e.log_ratio[:n], np.arange(n + 1), q=e.q[:n], v=e.v[:n])


def test_a_tail_of_the_weights_is_not_held_against_the_direct_method():
    weights = np.random.default_rng(0).pareto(0.8, size=1000) + 0.01
    e = one_step(weights, np.zeros(1000), q=np.zeros(1000), v=np.zeros(1000))
    assert level(found(cal.wis, e, "D103")) == "issue"
    assert found(cal.dm, e, "D103") is None


@pytest.mark.parametrize(
    ("clusters", "expected"), [(9, "issue"), (10, "caution"), (29, "caution"), (30, None)]
)
def test_too_few_clusters(clusters, expected):
    e = replace(one_step(np.ones(30 * clusters)), cluster=np.repeat(np.arange(clusters), 30))
    finding = found(cal.wis, e, "D115")
    assert level(finding) == expected
    if finding:
        assert finding.numbers["effective_clusters"] == clusters


# -- the log --


def log_of(rewards, lengths, states=None):
    steps = int(np.sum(lengths))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(steps, 1)) if states is None else states
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return cal.Trajectories(x, rng.integers(0, 2, steps), rewards, offsets)


def log_findings(data):
    return {f.code: f for f in check_log(data)}


@pytest.mark.parametrize(
    ("missing", "expected"), [(0, None), (4, "caution"), (5, "issue"), (99, "issue"), (100, None)]
)
def test_outcomes_missing_in_more_than_two_of_a_hundred_are_an_issue(missing, expected):
    # 200 trajectories of one or two steps; outcomes are 1 and -1, and missing in the first ones, of one step.
    lengths = np.where(np.arange(200) < 120, 1, 2)
    rewards = np.zeros(lengths.sum())
    rewards[np.cumsum(lengths) - 1] = np.where(np.arange(200) < missing, 0, np.resize([1.0, -1.0], 200))
    finding = log_findings(log_of(rewards, lengths)).get("L103")
    assert level(finding) == expected
    if finding:
        assert finding.numbers["share"] == missing / 200


def test_rewards_along_the_way_are_no_missing_outcomes():
    lengths = np.where(np.arange(200) < 120, 1, 2)
    ends = np.cumsum(lengths) - 1
    rewards = np.zeros(lengths.sum())
    rewards[ends] = np.where(np.arange(200) < 20, 0, np.resize([1.0, -1.0], 200))
    assert "L103" in log_findings(log_of(rewards, lengths))
    rewards[ends[150] - 1] = 0.5  # one reward before the end
    assert "L103" not in log_findings(log_of(rewards, lengths))


def test_a_reward_of_one_sign_leaves_zero_an_outcome():
    lengths = np.where(np.arange(200) < 120, 1, 2)
    rewards = np.zeros(lengths.sum())
    rewards[np.cumsum(lengths) - 1] = np.arange(200) % 4 > 0  # survived or not
    assert "L103" not in log_findings(log_of(rewards, lengths))


@pytest.mark.parametrize(("n", "expected"), [(29, "issue"), (30, "caution"), (99, "caution"), (100, None)])
def test_a_small_log(n, expected):
    finding = log_findings(log_of(np.arange(n) % 2, np.ones(n, dtype=int))).get("L105")
    assert level(finding) == expected
    if finding:
        assert finding.numbers["n"] == n


@pytest.mark.parametrize(("rare", "expected"), [(19, None), (20, "issue")])
def test_an_outcome_that_nearly_all_share_is_not_called_predicted(rare, expected):
    # The feature is the outcome itself. Where nine in ten end alike, it would be predicted without it.
    outcome = np.where(np.arange(200) % 200 < rare, 1.0, 0.0)
    outcome = outcome[np.random.default_rng(1).permutation(200)]
    finding = log_findings(log_of(outcome, np.ones(200, dtype=int), outcome[:, None])).get("L106")
    assert level(finding) == expected
    if finding:
        assert finding.numbers == {"told": 1.0, "column": 0.0}


@pytest.mark.parametrize(("wrong", "expected"), [(8, "issue"), (10, None)])
def test_a_feature_holds_the_outcome_from_98_of_100_on(wrong, expected):
    rng = np.random.default_rng(0)
    outcome = rng.integers(0, 2, 400).astype(float)
    flipped = np.where(np.isin(np.arange(400), rng.choice(400, wrong, replace=False)), 1 - outcome, outcome)
    finding = log_findings(log_of(outcome, np.ones(400, dtype=int), flipped[:, None])).get("L106")
    assert level(finding) == expected
    if finding:
        assert finding.numbers["told"] == pytest.approx(1 - wrong / 400)


# -- the behaviour model on the log --


def confident(n, p, taken):
    """Probabilities p and 1 - p of two actions in n one-step trajectories, of which so many took the first."""
    data = cal.Trajectories(
        np.random.default_rng(0).normal(size=(n, 1)), np.arange(n) >= taken, np.zeros(n), np.arange(n + 1)
    )
    return data, np.column_stack([np.full(n, p), np.full(n, 1 - p)])


@pytest.mark.parametrize(
    ("n", "taken", "expected"),
    [
        (20_000, 0.877, None),  # -0.0184: clear, and too small
        (20_000, 0.873, "caution"),  # -0.0216
        (20_000, 0.839, "caution"),  # -0.0488
        (20_000, 0.835, "issue"),  # -0.052
        (100, 0.83, None),  # -0.056, and a z of -1.8: chance
        (20_000, 0.927, "caution"),  # 0.0216: too little confidence
    ],
)
def test_a_model_that_is_too_sure_or_not_sure_enough(n, taken, expected):
    data, proba = confident(n, 0.9, round(taken * n))
    error = np.eye(2)[data.actions.astype(int)] - proba
    finding = _over_or_under_confident(error, proba, data.layout)
    assert level(finding) == expected
    if finding:
        assert finding.numbers["effect"] == pytest.approx((taken - 0.9) * 0.8)
        assert finding.numbers["by"] == pytest.approx(abs(taken - 0.9) * 0.8)
        assert finding.variants == (("over",) if taken < 0.9 else ("under",))


@pytest.mark.parametrize(("sure", "expected"), [(20, None), (21, "caution"), (50, "caution"), (51, "issue")])
def test_certain_predictions_of_what_was_done(sure, expected):
    logged = np.where(np.arange(100) < sure, 0.995, 0.6)
    finding = _certain(logged, np.arange(100) % 2)
    assert level(finding) == expected
    if finding:
        assert finding.numbers["share"] == sure / 100
    assert (
        _certain(logged, np.zeros(100, dtype=int)) is None
    )  # with one action there is nothing to be unsure of


def test_the_name_of_the_feature_is_right_where_there_are_more_than_fifty():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 55))
    p = 1 / (1 + np.exp(-2 * (x[:, 7] ** 2 - 1)))  # far from the mean of the eighth
    actions = (rng.random(4000) < p).astype(int)
    data = cal.Trajectories(x, actions, np.zeros(4000), np.arange(4001))
    table = np.column_stack([np.full(4000, 1 - p.mean()), np.full(4000, p.mean())])
    (finding,) = [f for f in behaviour_findings(data, np.arange(4000), table) if f.code == "B104"]
    assert finding.facts["where"] == "where x7 is far from its mean"


# -- across an audit --


@pytest.mark.parametrize(
    ("apart", "widths", "expected"),
    [
        (0.9, (1.0, 0.5), None),
        (1.1, (1.0, 0.5), "caution"),
        (-1.1, (1.0, 0.5), "caution"),
        (1.1, (0.5, 1.2), None),
    ],
)
def test_headline_and_direct_method_disagree_beyond_the_wider_interval(apart, widths, expected):
    best, direct = (estimate_of(x, x - w / 2, x + w / 2) for x, w in zip((apart, 0.0), widths, strict=True))
    told = across.check_agreement(best, direct)
    assert [f.level for f in told] == ([] if expected is None else [expected])
    if told:
        assert told[0].numbers == {"apart": abs(apart), "best": apart, "direct": 0.0}


def test_direct_values_that_are_only_doubtful_still_speak_against_the_headline():
    best = estimate_of(2.0, 1.5, 2.5)
    doubtful = D109.finding("caution", "exact", z=1.0, correction=0.1)
    other = D110.finding("issue", share=0.5)
    direct = estimate_of(0.0, -0.1, 0.1, findings=(doubtful, other))
    assert across.check_agreement(best, direct)[0].level == "caution"


@pytest.mark.parametrize(
    ("spread", "share", "alarm"), [(3.9, 1.0, False), (4.1, 1.0, True), (7.9, 0.25, False), (8.1, 0.25, True)]
)
def test_other_choices_that_spread_over_four_intervals(spread, share, alarm):
    best = estimate_of(0.0, -0.5, 0.5)
    told = across.check_choices(best, [1.0, 1.0 + spread, np.nan], share)
    assert bool(told) == alarm
    if told:
        assert told[0].level == "caution"
        assert told[0].numbers == {"low": 1.0, "high": 1.0 + spread}
    assert across.check_choices(best, [1.0, np.inf, np.nan], share) == ()


@pytest.mark.parametrize(
    ("to_flip", "factor", "ends", "codes"),
    [
        (10, 1.5, (0.1, 1.0), {"A103"}),
        (11, 1.5, (0.1, 1.0), set()),
        (None, 1.5, (0.1, 1.0), set()),
        (11, 1.19, (0.1, 1.0), {"A104"}),
        (11, 1.2, (0.1, 1.0), set()),
        (1, 1.0, (-0.1, 1.0), set()),  # a difference that may be 0 has no sign to lose
    ],
)
def test_what_would_reverse_the_comparison(to_flip, factor, ends, codes):
    gain = estimate_of(0.5, *ends, n=1000)
    told = across.check_fragility(gain, to_flip=to_flip, factor=factor)
    assert {f.code for f in told} == codes
    assert {f.level for f in told} <= {"caution", "note"}
    for finding in told:
        assert finding.numbers == (
            {"trajectories": to_flip, "n": 1000} if finding.code == "A103" else {"factor": factor}
        )


def test_one_trajectory_that_reverses_a_comparison_of_few_is_said():
    gain = estimate_of(0.5, 0.1, 1.0, n=20)
    assert [f.code for f in across.check_fragility(gain, to_flip=1, factor=9.0)] == ["A103"]
    assert across.check_fragility(gain, to_flip=2, factor=9.0) == ()


def uniform_log(n):
    return cal.Trajectories(np.zeros((n, 1)), np.arange(n) % 2, np.zeros(n), np.arange(n + 1))


@pytest.mark.parametrize(
    ("logged", "code", "expected", "variant"),
    [
        (0.5, "A110", "note", None),
        (0.5 / 0.96, "A110", "note", None),  # 4% too large
        (0.5 / 1.04, "A105", "issue", None),  # 4% too small: by 0.039 nats less likely than the model's
        (0.5 / 1.06, "A111", "caution", "too-small"),
        (0.5 / 1.12, "A111", "issue", "too-small"),
        (0.5 / 0.94, "A111", "caution", "too-large"),
        (0.5 / 0.88, "A111", "issue", "too-large"),
    ],
)
def test_logged_probabilities_that_are_all_too_large_or_too_small(logged, code, expected, variant):
    data = uniform_log(5000)
    (finding,) = across.check_logged(data, np.full(5000, logged), np.full((5000, 2), 0.5))
    assert (finding.code, finding.level) == (code, expected)
    if variant:
        assert finding.variants == (variant,)
        assert finding.numbers["total"] == pytest.approx(0.5 / logged)
        assert f"too {variant.removeprefix('too-')}" in finding.message


def test_a_few_logged_probabilities_that_are_off_by_chance_are_not_called_wrong():
    # One in five has 0.3 and the others about 0.58: off by 10% in twenty decisions, with a standard error of 8%.
    rng = np.random.default_rng(0)
    data = uniform_log(20)
    logged = np.where(rng.random(20) < 0.3, 0.3, 0.56)
    off = (0.5 / logged - 1).mean()
    assert abs(off) > 0.05
    assert across.check_scale(data, 0.5 / logged) is None


@pytest.mark.parametrize(("apart", "code"), [(0.1, "A105"), (0.01, "A110")])
def test_logged_probabilities_less_likely_than_predictions_are_an_issue_in_nats(apart, code):
    # Practice tosses a coin; 0.5 +- 0.1 was written down, whatever was done. E[0.5 / p] is 1.042: no wrong scale.
    data = uniform_log(4000)
    logged = 0.5 + np.where(np.arange(4000) // 2 % 2 == 0, apart, -apart)
    (finding,) = across.check_logged(data, logged, np.full((4000, 2), 0.5))
    gain = np.log(logged / 0.5)
    assert (finding.code, finding.level) == (code, "issue" if code == "A105" else "note")
    assert finding.numbers["gain"] == pytest.approx(gain.mean())  # -0.0204 and -0.0002
    assert finding.numbers["se"] == pytest.approx(gain.std() / np.sqrt(4000))


@pytest.mark.parametrize(
    ("members", "heavy", "alarm"),
    [(40, 29, True), (40, 31, False), (39, 29, False), (29, 1, False)],
    ids=["few in a tenth", "enough in a tenth", "less than a tenth", "too few to say"],
)
def test_a_stratum_that_is_large_in_the_log_and_small_in_weight(members, heavy, alarm):
    n = 400 if members != 29 else 200
    weights = np.ones(n)
    weights[heavy:members] = 0.0
    strata = np.where(np.arange(n) < members, "severe", "mild")
    told = across.check_strata(one_step(weights), strata)
    assert bool(told) == alarm
    if told:
        assert told[0].level == "caution"
        assert told[0].numbers == {"n": members, "effective_n": pytest.approx(heavy)}


@pytest.mark.parametrize(("fitted", "expected"), [(249, "caution"), (250, None)])
def test_a_model_fitted_on_less_than_a_quarter_of_the_decisions(fitted, expected):
    told = across.check_fitted_share(fitted, 1000)
    assert [f.level for f in told] == ([expected] if expected else [])
    if told:
        assert told[0].numbers["share"] == fitted / 1000
        assert across.check_fitted_share(fitted, 1000, gain=0.02)[0].numbers["gain"] == 0.02


@pytest.mark.parametrize(
    ("width", "effective", "alarm"), [(0.0, 99.0, True), (0.0, 100.0, False), (0.1, 99.0, False)]
)
def test_an_interval_of_no_width_although_weights_differ(width, effective, alarm):
    told = across.check_width(estimate_of(0.0, 0.0, width, n=100, effective_n=effective))
    assert [f.level for f in told] == (["issue"] if alarm else [])


# -- the negative control --


@pytest.mark.parametrize("sign", [1, -1], ids=["above practice", "below practice"])
@pytest.mark.parametrize(
    ("errors", "expected"), [(0.24, "note"), (0.26, "caution"), (0.99, "caution"), (1.01, "issue")]
)
def test_a_control_that_misses_is_graded_by_how_far_it_misses_on_either_side(sign, errors, expected):
    miss = _Miss("action 0 at twice its odds", sign * errors, 0.01)
    ends = Interval(miss.miss - 0.03, miss.miss + 0.03, 0.99)
    (finding,) = _check_miss(miss, 0.5, ends, 1.0)
    assert (finding.code, finding.level) == ("P101", expected)
    assert finding.numbers["errors"] == pytest.approx(errors)
    assert finding.numbers["value"] == pytest.approx(0.5 + sign * errors)
    assert finding.numbers["z"] == pytest.approx(sign * errors / 0.01)


def test_a_control_within_chance_says_nothing():
    miss = _Miss("action 0 at twice its odds", 0.5, 0.4)
    assert _check_miss(miss, 0.5, Interval(-0.1, 1.1, 0.99), 0.1) == ()


@pytest.mark.parametrize(
    ("gain", "expected"), [(0.009, None), (0.011, "caution"), (0.029, "caution"), (0.031, "issue")]
)
def test_a_forest_that_beats_the_only_candidate(gain, expected):
    data = ward.simulate(50, rng=0)
    flat = fit_behaviour(_Flat(), data, mode="same")
    table = flat.probabilities
    better = table.copy()
    rows = np.arange(data.n_steps)
    better[rows, data.actions] *= np.exp(gain)
    told = check_underfit(replace(flat, probabilities=better), flat)
    assert [f.level for f in told] == ([expected] if expected else [])
    if told:
        assert told[0].numbers["gain"] == pytest.approx(gain)


def _Flat():
    from sklearn.dummy import DummyClassifier

    return DummyClassifier(strategy="prior")
