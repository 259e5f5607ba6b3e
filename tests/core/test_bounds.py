from itertools import product

import numpy as np
import pytest

from caliope import Evidence, TabularPolicy, Trajectories, gather
from caliope.bounds import _bets, _betting_lower, betting, hcope, maurer_pontil
from caliope.domains import ward
from caliope.weights import clip_ratios, clip_weights, shrink_weights, smooth_weights

UNIT = (0.0, 1.0)


def one_step(rho, returns, *, known=True, **changes):
    """A trajectory of one step for each weight and return."""
    with np.errstate(divide="ignore"):
        return Evidence(returns, np.log(rho), np.arange(len(rho) + 1), behaviour_known=known, **changes)


def bandit(n, rng, *, chance=0.5, wanted=0.8, known=True):
    """Action 1 pays 1, action 0 nothing; it was taken with one probability and is wanted with another."""
    action = rng.random(n) < chance
    return one_step(np.where(action, wanted / chance, (1 - wanted) / (1 - chance)), action * 1.0, known=known)


def all_bounds(e, *, returns_in=UNIT, max_weight=1e3):
    return {
        "maurer_pontil": maurer_pontil(e, returns_in=returns_in, max_weight=max_weight),
        "hcope": hcope(e, returns_in=returns_in, rng=0),
        "betting": betting(e, returns_in=returns_in, rng=0),
    }


# -- arithmetic ---------------------------------------------------------------------------------------


def test_maurer_pontil_by_hand_without_variance():
    # Six returns of 10 in [0, 10], all weights 1, level 1/2: delta = 1/4 a side, ln(2 / delta) = ln 8 = 2.0794.
    # No variance; arm = 7 * 1 * 10 * 2.0794 / (3 * 5) = 9.7041; below 10 - 9.7041; above 10, where returns end.
    interval = maurer_pontil(one_step([1.0] * 6, [10.0] * 6), returns_in=(0, 10), max_weight=1, level=0.5)
    assert (interval.low, interval.high) == (pytest.approx(0.2959, abs=1e-4), 10)
    # Six returns of 0: the same arm from the other side.
    interval = maurer_pontil(one_step([1.0] * 6, [0.0] * 6), returns_in=(0, 10), max_weight=1, level=0.5)
    assert (interval.low, interval.high) == (0, pytest.approx(9.7041, abs=1e-4))


def test_maurer_pontil_by_hand_with_weights():
    # Weights 1 2 1/2 1/2, returns 1 1/2 0 1 in [0, 1]: X = 1, 1, 0, 1/2, each 500 times. Mean 0.625; squared
    # deviations 0.140625 twice, 0.390625, 0.015625: sum 0.6875, variance 500 * 0.6875 / 1999 = 0.171961.
    # ln(2 / 0.025) = 4.382027: sqrt(2 * 0.171961 * 4.382027 / 2000) = 0.027450,
    # 7 * 2 * 4.382027 / (3 * 1999) = 0.010230. Below: 0.625 - 0.037680 = 0.587320.
    e = one_step([1.0, 2.0, 0.5, 0.5] * 500, [1.0, 0.5, 0.0, 1.0] * 500)
    interval = maurer_pontil(e, returns_in=UNIT, max_weight=2)
    assert interval.low == pytest.approx(0.587320, abs=2e-6)
    assert interval.method == "Maurer-Pontil"
    assert interval.level == 0.95


def test_maurer_pontil_counts_from_the_lower_end_of_the_returns():
    # The same data with every return 7 higher.
    e = one_step([1.0, 2.0, 0.5, 0.5] * 500, np.array([1.0, 0.5, 0.0, 1.0] * 500) + 7)
    assert maurer_pontil(e, returns_in=(7, 8), max_weight=2).low == pytest.approx(7.587320, abs=2e-6)


def test_hcope_by_hand_on_equal_values():
    # 20 values X = 0.5; two are set aside, and truncating at c = 0.5 costs least. Of the other 18, at level 1/2:
    # 0.5 - 7 * 0.5 * ln(2 / 0.5) / (3 * 17) = 0.5 - 3.5 * 1.386294 / 51 = 0.404862. Nothing is said above.
    interval = hcope(one_step([1.0] * 20, [0.5] * 20), returns_in=UNIT, level=0.5, rng=0)
    assert (interval.low, interval.high) == (pytest.approx(0.404862, abs=1e-6), np.inf)


def test_hcope_says_nothing_where_it_knows_nothing():
    # Six trajectories: 0.5 (1 - 7 ln 40 / (3 * 3)) is negative, and no return is.
    assert hcope(one_step([1.0] * 6, [0.5] * 6), returns_in=UNIT, rng=0).low == 0
    # All weights zero: no truncation can be chosen.
    assert hcope(one_step([0.0] * 50, [0.5] * 50), returns_in=UNIT, rng=0).low == 0


def naive_hcope(rho, returns, low, *, level, share, seed):
    x = np.random.default_rng(seed).permutation(rho * (returns - low))
    size = max(2, round(share * len(x)))
    log_term = np.log(2 / (1 - level))

    def bound(values, c, n):
        y = [min(value, c) for value in values]
        mean = sum(y) / len(y)
        variance = sum((value - mean) ** 2 for value in y) / (len(y) - 1)
        return mean - 7 * c * log_term / (3 * (n - 1)) - np.sqrt(2 * log_term * variance / n)

    choose, rest = x[:size], x[size:]
    grid = np.geomspace(min(v for v in choose if v > 0), size * max(choose), 200)
    best = max(grid, key=lambda c: bound(choose, c, len(rest)))
    return low + bound(rest, best, len(rest))


def test_hcope_chooses_on_one_part_and_bounds_on_the_other():
    rng = np.random.default_rng(1)
    rho, returns = np.exp(rng.normal(scale=0.5, size=400)), rng.uniform(2, 4, size=400)
    expected = naive_hcope(rho, returns, 2.0, level=0.9, share=0.1, seed=7)
    interval = hcope(one_step(rho, returns), returns_in=(2, 4), level=0.9, share=0.1, rng=7)
    assert interval.low == pytest.approx(expected, abs=1e-10)
    assert 2 < expected < 4


def naive_capital(x, m, scale, delta):
    """The gambler's capital after each value, in loops; each bet looks only at the values before it."""
    n, capital, path = len(x), 1.0, []
    seen, variance = [], scale**2 / 4
    total_squares = scale**2 / 4
    for value in x:
        bet = min(np.sqrt(2 * np.log(1 / delta) / (n * variance)), 0.5 / m)
        capital *= 1 + bet * (value - m)
        path.append(capital)
        seen.append(value)
        mean = (scale / 2 + sum(seen)) / (len(seen) + 1)
        total_squares += (value - mean) ** 2
        variance = total_squares / (len(seen) + 1)
    return path


@pytest.mark.parametrize("seed", range(3))
def test_the_betting_bound_is_where_the_capital_first_reaches_one_over_delta(seed):
    rng = np.random.default_rng(seed)
    x, delta = rng.exponential(size=40) * (rng.random(40) < 0.7), 0.05
    bound = _betting_lower(x, 2.0, delta)
    assert 0 < bound < 2
    assert max(naive_capital(x, bound * (1 - 1e-9), 2.0, delta)) >= 1 / delta
    assert max(naive_capital(x, bound * (1 + 1e-9), 2.0, delta)) < 1 / delta


def test_betting_plays_below_on_one_side_and_above_on_the_other():
    rho, returns = np.array([1.5, 0.5, 1.0, 1.0] * 30), np.array([3.0, 1.0, 2.0, 2.5] * 30)
    order = np.random.default_rng(4).permutation(120)
    interval = betting(one_step(rho, returns), returns_in=(1, 4), level=0.9, rng=4)
    assert interval.low == pytest.approx(1 + _betting_lower((rho * (returns - 1))[order], 3.0, 0.05))
    assert interval.high == pytest.approx(4 - _betting_lower((rho * (4 - returns))[order], 3.0, 0.05))


# -- is betting valid? --------------------------------------------------------------------------------


def test_a_bet_does_not_look_at_the_value_it_is_placed_on_nor_beyond():
    x = np.random.default_rng(0).exponential(size=20)
    bets = _bets(x, 1.0, 0.05)
    for t in range(20):
        other = x.copy()
        other[t:] = 1e6
        assert np.array_equal(_bets(other, 1.0, 0.05)[: t + 1], bets[: t + 1])


@pytest.mark.slow
@pytest.mark.parametrize("values", [(0.0, 0.5, 4.0), (0.0, 0.0, 30.0), (0.9, 1.0, 1.1)])
def test_the_expected_capital_against_the_true_mean_is_1_by_enumeration(values):
    # All 3^6 sequences of three values with chances 0.5, 0.4, 0.1: no luck is involved.
    chances, delta, n = (0.5, 0.4, 0.1), 0.025, 6
    mean = float(np.dot(values, chances))
    scale = 1.25 * mean
    expected, beyond = 0.0, 0.0
    for which in product(range(3), repeat=n):
        x, p = np.take(values, which), np.prod(np.take(chances, which))
        path = np.cumprod(1 + np.minimum(_bets(x, scale, delta), 0.5 / mean) * (x - mean))
        assert path.min() > 0
        expected += p * path[-1]
        beyond += p * (_betting_lower(x, scale, delta) > mean)
    assert expected == pytest.approx(1, abs=1e-12)
    assert beyond <= delta


@pytest.mark.parametrize("seed", range(5))
def test_capital_falls_in_the_mean_that_is_bet_against(seed):
    # So that one bisection finds everything that is rejected.
    x = np.random.default_rng(seed).lognormal(sigma=2, size=30)
    paths = np.array([naive_capital(x, m, 1.0, 0.05) for m in np.linspace(0.01, 1, 60)])
    assert (np.diff(paths, axis=0) <= 1e-12 * paths[1:]).all()


def miss_rate(bound, value, simulate, *, repeats, seed):
    rng = np.random.default_rng(seed)
    return sum(value not in bound(simulate(rng), rng) for _ in range(repeats)) / repeats


def allowed(alpha, repeats):
    """Three standard deviations above the nominal miss rate."""
    return alpha + 3 * np.sqrt(alpha * (1 - alpha) / repeats)


def patients(policy, n):
    def simulate(rng):
        data = ward.simulate(n, rng=rng)
        return gather(data, TabularPolicy(policy), data["behaviour"])

    return simulate


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "n"),
    [
        pytest.param(ward.PRACTICE, 30, id="practice"),
        pytest.param(ward.EARLIER, 100, id="good overlap"),
        pytest.param(ward.AGGRESSIVE, 100, id="poor overlap"),
    ],
)
def test_betting_misses_no_more_often_than_it_may(policy, n):
    truth, repeats = ward.WARD.value(policy), 500
    missed = miss_rate(
        lambda e, rng: betting(e, returns_in=UNIT, level=0.9, rng=rng),
        truth,
        patients(policy, n),
        repeats=repeats,
        seed=0,
    )
    assert missed <= allowed(0.1, repeats)


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("wanted", [0.02, 0.9])
def test_betting_misses_no_more_often_than_it_may_when_weights_are_rare_and_huge(chance, wanted):
    # At chance 0.01 and wanted 0.9, one trajectory in a hundred has weight 90; the others have 0.101.
    repeats = 300
    missed = miss_rate(
        lambda e, rng: betting(e, returns_in=UNIT, level=0.9, rng=rng),
        wanted,
        lambda rng: bandit(60, rng, chance=chance, wanted=wanted),
        repeats=repeats,
        seed=1,
    )
    assert missed <= allowed(0.1, repeats)


@pytest.mark.slow
def test_a_fixed_cap_only_makes_betting_more_careful():
    # A cap lowers X = rho (G - a) and rho (b - G) alike, so that both ends still hold.
    truth, repeats = ward.WARD.value(ward.AGGRESSIVE), 300
    missed = miss_rate(
        lambda e, rng: betting(clip_weights(e, 5.0), returns_in=UNIT, level=0.9, rng=rng),
        truth,
        patients(ward.AGGRESSIVE, 100),
        repeats=repeats,
        seed=2,
    )
    assert missed <= allowed(0.1, repeats)


@pytest.mark.slow
def test_hcope_and_maurer_pontil_miss_no_more_often_than_they_may():
    repeats = 300
    for bound in (
        lambda e, rng: hcope(e, returns_in=UNIT, level=0.9, rng=rng),
        lambda e, rng: maurer_pontil(e, returns_in=UNIT, max_weight=1.7, level=0.9),
    ):
        missed = miss_rate(bound, 0.8, lambda rng: bandit(200, rng), repeats=repeats, seed=3)
        assert missed <= allowed(0.1, repeats)
    missed = miss_rate(
        lambda e, rng: hcope(e, returns_in=UNIT, level=0.9, rng=rng),
        ward.WARD.value(ward.AGGRESSIVE),
        patients(ward.AGGRESSIVE, 200),
        repeats=repeats,
        seed=4,
    )
    assert missed <= allowed(0.1, repeats)


# -- how tight ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [50, 200, 2000])
def test_betting_is_tighter_than_maurer_pontil(n):
    for seed in range(5):
        e = bandit(n, np.random.default_rng(seed))
        bet, bernstein = betting(e, returns_in=UNIT, rng=0), maurer_pontil(e, returns_in=UNIT, max_weight=1.7)
        assert bet.width < bernstein.width
        assert 0.8 in bernstein


def test_betting_gives_an_interval_for_constant_values():
    for value in (0.0, 0.5, 1.0):
        interval = betting(one_step([1.0] * 100, [value] * 100), returns_in=UNIT, rng=0)
        assert value in interval
        # Two-sided Hoeffding for 100 values in [0, 1]: 2 sqrt(ln(2 / 0.05) / 200) = 0.27. Without spread, half that.
        assert 0 < interval.width < 0.135


def test_more_trajectories_make_every_bound_tighter():
    widths = [
        betting(bandit(n, np.random.default_rng(0)), returns_in=UNIT, rng=0).width for n in (20, 200, 2000)
    ]
    assert widths == sorted(widths, reverse=True)
    lows = [hcope(bandit(n, np.random.default_rng(0)), returns_in=UNIT, rng=0).low for n in (40, 400, 4000)]
    assert lows == sorted(lows)


def test_no_end_leaves_the_range_of_the_returns():
    for e in (bandit(5, np.random.default_rng(0)), one_step([50.0] + [0.1] * 9, [1.0] + [0.0] * 9)):
        for name, interval in all_bounds(e).items():
            assert interval.low >= 0, name
            assert interval.high <= (np.inf if name == "hcope" else 1), name


def test_the_seed_decides_the_order_and_nothing_else():
    e = bandit(100, np.random.default_rng(0))
    for bound in (betting, hcope):
        assert bound(e, returns_in=UNIT, rng=3) == bound(e, returns_in=UNIT, rng=np.random.default_rng(3))
        assert bound(e, returns_in=UNIT, rng=3) != bound(e, returns_in=UNIT, rng=4)


def test_another_unit_of_reward_changes_only_the_unit():
    rng = np.random.default_rng(0)
    rho, returns = np.exp(rng.normal(-0.125, 0.5, size=200)), rng.random(200)  # log-normal of mean 1
    plain, scaled = one_step(rho, returns), one_step(rho, 40 * returns - 10)
    for name, interval in all_bounds(plain).items():
        other = all_bounds(scaled, returns_in=(-10, 30))[name]
        assert other.low == pytest.approx(40 * interval.low - 10), name
        assert other.high == pytest.approx(40 * interval.high - 10), name


@pytest.mark.parametrize("name", ["betting", "maurer_pontil"])
def test_a_loss_has_the_mirrored_interval_of_a_gain(name):
    rng = np.random.default_rng(0)
    rho, returns = (
        np.exp(rng.normal(-0.045, 0.3, size=3000)),
        rng.beta(2, 6, size=3000),
    )  # log-normal of mean 1
    gain = all_bounds(one_step(rho, returns), max_weight=5)[name]
    loss = all_bounds(one_step(rho, -returns), returns_in=(-1, 0), max_weight=5)[name]
    assert (loss.low, loss.high) == (pytest.approx(-gain.high), pytest.approx(-gain.low))


# -- the conditions -----------------------------------------------------------------------------------


def test_estimated_behaviour_probabilities_void_the_guarantee_and_known_ones_do_not():
    rng = np.random.default_rng(0)
    for interval in all_bounds(bandit(50, rng, known=False)).values():
        assert [(f.code, f.level) for f in interval.findings] == [("U101", "issue")]
    for interval in all_bounds(bandit(50, rng, known=True)).values():
        assert interval.findings == ()


def codes(interval):
    return [finding.code for finding in interval.findings]


def test_a_lower_bound_survives_weights_that_were_only_made_smaller():
    e = bandit(50, np.random.default_rng(0))
    for smaller in (clip_ratios(e, 1.2), clip_weights(e, 1.2), shrink_weights(e, 4.0)):
        bounds = all_bounds(smaller)
        assert codes(bounds["maurer_pontil"]) == ["U104"]
        assert codes(bounds["hcope"]) == []
        assert codes(bounds["betting"]) == []


def test_smoothed_weights_void_every_bound():
    for interval in all_bounds(smooth_weights(bandit(50, np.random.default_rng(0)))).values():
        assert codes(interval) == ["U104"]


def test_a_cap_that_was_read_off_the_log_voids_every_bound():
    # It depends on all trajectories at once: the values are no longer independent, nor the bets predictable.
    for interval in all_bounds(clip_weights(bandit(50, np.random.default_rng(0)))).values():
        assert codes(interval) == ["U104"]


def test_no_bound_shuts_out_what_actions_without_support_may_bring():
    # Only action 0 was ever taken, with known probability 1, and it brings 0. The target takes action 1 nine
    # times in ten, and that may bring 1: nothing below 0.9 can be excluded.
    n = 2000
    data = Trajectories(np.zeros(n), np.zeros(n, dtype=int), np.zeros(n), np.arange(n + 1), n_actions=2)
    e = gather(data, np.tile([0.1, 0.9], (n, 1)), np.ones(n))
    for name, interval in all_bounds(e, max_weight=1.0).items():
        assert 0.9 in interval or any(f.level == "issue" for f in interval.findings), name


@pytest.mark.parametrize("returns", [[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
def test_ends_that_contradict_each_other_are_reported_and_no_number_is_given(returns):
    # Weights of 3 throughout cannot have mean 1: each end lies beyond the other, or beyond all returns, and an
    # interval of width 0, or one turned around, would look like certainty.
    bounds = all_bounds(one_step([3.0] * 500, returns * 250), max_weight=3.5)
    if not any(returns):
        bounds.pop("hcope")  # rho G = 0 says nothing, rightly
    for name, interval in bounds.items():
        assert any(f.level == "issue" for f in interval.findings), name
        assert np.isnan(interval.low), name


def test_weights_that_are_a_little_wrong_do_not_end_in_certainty():
    # Logged probabilities that are off by a twentieth: mean weight 1.05 instead of 1, in 3000 trajectories.
    e = one_step([1.05] * 3000, np.random.default_rng(0).beta(2, 6, size=3000))
    interval = betting(e, returns_in=UNIT, rng=0)
    assert interval.width > 0 or any(f.level == "issue" for f in interval.findings)


@pytest.mark.parametrize("bound", [betting, hcope])
def test_returns_outside_the_stated_range_are_refused(bound):
    e = one_step([1.0] * 6, [0.5, 2.0, 0.5, -1.0, 0.5, 0.5])
    with pytest.raises(
        ValueError, match=r"2 returns lie outside returns_in = \[0, 1\] .first: 2, trajectory 1"
    ):
        bound(e, returns_in=UNIT, rng=0)
    with pytest.raises(ValueError, match="2 returns lie outside"):
        maurer_pontil(e, returns_in=UNIT, max_weight=1)


def test_returns_that_leave_the_range_by_a_rounding_are_accepted():
    # 0.1 + 0.1 + 0.1 is 0.30000000000000004.
    e = Evidence([0.1] * 30, np.zeros(30), np.arange(0, 31, 3), behaviour_known=True)
    for name, interval in all_bounds(e, returns_in=(0.0, 0.3), max_weight=1).items():
        assert interval.high >= 0.3, name
        assert 0 <= interval.low <= 0.3, name


def test_a_weight_above_the_stated_maximum_is_refused():
    with pytest.raises(ValueError, match="max_weight is 2, but a trajectory has weight 3"):
        maurer_pontil(one_step([1.0, 3.0], [0.0, 1.0]), returns_in=UNIT, max_weight=2)


def test_a_weight_that_exceeds_the_maximum_by_a_rounding_is_accepted():
    # 0.8 / 0.5 = 1.6 is the largest weight there can be; exp(log 0.8 - log 0.5) need not be below it.
    for wanted, chance in ((0.8, 0.5), (0.9, 0.3), (0.3, 0.1), (0.7, 0.1), (0.6, 0.2)):
        e = Evidence([0.0, 1.0], np.log([wanted] * 2) - np.log([chance] * 2), [0, 1, 2], behaviour_known=True)
        assert 0.5 in maurer_pontil(e, returns_in=UNIT, max_weight=wanted / chance)
    assert 0.5 in maurer_pontil(one_step([3.0] * 2, [0.0, 1.0]), returns_in=UNIT, max_weight=3)


@pytest.mark.parametrize("max_weight", [float("nan"), 0.0, -1.0])
def test_a_maximum_that_is_no_positive_number_is_refused(max_weight):
    with pytest.raises(ValueError, match="max_weight must be positive"):
        maurer_pontil(one_step([0.0, 0.0], [0.0, 1.0]), returns_in=UNIT, max_weight=max_weight)


def test_weights_beyond_the_range_of_a_float_are_refused():
    e = Evidence([0.0] * 10 + [1.0] * 10, np.full(20, 400.0), np.arange(0, 21, 2), behaviour_known=True)
    for bound in (betting, hcope):
        with pytest.raises(ValueError, match="weight"):
            bound(e, returns_in=(0.0, 2.0), rng=0)


@pytest.mark.parametrize("returns_in", [(1, 0), (0, 0), (0, np.inf), (-np.inf, 0), (0, np.nan)])
def test_a_range_that_is_none_is_refused(returns_in):
    e = one_step([1.0] * 6, [0.0] * 6)
    for bound in (betting, hcope):
        with pytest.raises(ValueError, match="returns_in must be two finite numbers, low < high"):
            bound(e, returns_in=returns_in, rng=0)
    with pytest.raises(ValueError, match="returns_in must be two finite numbers"):
        maurer_pontil(e, returns_in=returns_in, max_weight=1)


@pytest.mark.parametrize("level", [0.0, 1.0, 95, float("nan")])
def test_a_level_outside_0_and_1_is_refused(level):
    e = one_step([1.0] * 6, [0.0] * 6)
    for bound in (betting, hcope):
        with pytest.raises(ValueError, match="level must lie between 0 and 1"):
            bound(e, returns_in=UNIT, level=level, rng=0)
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        maurer_pontil(e, returns_in=UNIT, max_weight=1, level=level)


def test_too_few_trajectories_and_a_share_that_is_none_are_refused():
    with pytest.raises(ValueError, match="at least 2 trajectories"):
        betting(one_step([1.0], [0.0]), returns_in=UNIT, rng=0)
    with pytest.raises(ValueError, match="at least 4 trajectories, got 3"):
        hcope(one_step([1.0] * 3, [0.0] * 3), returns_in=UNIT, rng=0)
    for share in (0.0, 1.0, -0.5, float("nan")):
        with pytest.raises(ValueError, match="share must lie between 0 and 1"):
            hcope(one_step([1.0] * 9, [0.0] * 9), returns_in=UNIT, share=share, rng=0)


def test_evidence_that_was_resampled_is_refused():
    e = one_step([1.0] * 6, [0.0] * 6).with_counts(np.ones(6))
    for bound in (betting, hcope):
        with pytest.raises(ValueError, match="carries counts"):
            bound(e, returns_in=UNIT, rng=0)
