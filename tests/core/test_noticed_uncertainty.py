"""Intervals and weights: what no other test would show to be wrong."""

import numpy as np
import pytest
from scipy import special
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import caliope as cal
from caliope._traits import label
from caliope.behaviour import TabularFrequencies
from caliope.domains import ward
from caliope.uncertainty import bca, draws, leave_one_out, refit
from caliope.uncertainty._dependence import _PERMUTATIONS, _p_value
from caliope.uncertainty._refit import _cheap_interval, _evaluate, _weight_name
from caliope.weights import _pareto, marginalise_weights
from caliope.weights._marginalised import _scale, regress_weights
from caliope.weights._regressed import predict_weights
from caliope.weights._transforms import _mean_ratios, compare_weights


def single(rewards, log_ratio=None):
    """One decision per trajectory."""
    log_ratio = np.zeros(len(rewards)) if log_ratio is None else log_ratio
    return cal.Evidence(rewards, log_ratio, np.arange(len(rewards) + 1))


# -- intervals --


def test_an_order_like_no_random_one_has_the_smallest_p_value_that_permutations_give():
    ranks = np.arange(200.0)  # each after the one below it
    assert _p_value(1e9, ranks, [1]) == 1 / (1 + _PERMUTATIONS)
    assert _p_value(-1e9, ranks, [1]) == 1.0


def test_of_two_trajectories_each_is_left_out():
    assert leave_one_out(cal.monte_carlo, single([1.0, 3.0])).tolist() == [3.0, 1.0]
    with pytest.raises(ValueError, match="at least 2 trajectories"):
        leave_one_out(cal.monte_carlo, single([1.0]))


def test_bca_has_no_interval_where_too_many_draws_are_undefined():
    """Two of six have a weight: (4 / 6)^6 = 8.8% of the draws have none, though one may be left out at a time."""
    e = single([0.0, 1.0, 2.0, 0.0, 0.0, 0.0], [0.0, 0.0, *[-np.inf] * 4])
    found = bca(cal.wis, e, n_draws=400, rng=0)
    assert np.isnan([found.low, found.high]).all()
    assert found.findings[0].level == "issue"


def test_bca_where_every_draw_lies_above_the_estimate():
    """The share of draws below is then taken as 1 / (2 n), not 0."""

    def beyond(e):
        values = cal.monte_carlo(e)
        return values + (0.0 if e.counts is None or np.ndim(e.counts) < 2 else 10.0)

    e, level = single(np.random.default_rng(0).exponential(size=40)), 0.9
    found = bca(beyond, e, n_draws=200, level=level, rng=1)
    values = np.asarray(draws(beyond, e, n_draws=200, rng=1))
    assert values.min() > float(beyond(e))
    u = e.rewards - e.rewards.mean()  # what leaving out changes, but for a factor that cancels
    a = (u**3).sum() / (6 * (u**2).sum() ** 1.5)
    z0, z = special.ndtri(1 / 400), special.ndtri([0.05, 0.95])
    share = special.ndtr(z0 + (z0 + z) / (1 - a * (z0 + z)))
    assert [found.low, found.high] == pytest.approx(np.quantile(values, share))


def test_a_difference_names_what_it_is_a_difference_to():
    assert label(cal.difference(cal.wis, cal.ois)) == f"{label(cal.wis)}, minus {label(cal.ois)}"
    assert label(cal.difference(cal.wis)) == f"{label(cal.wis)}, minus current practice"


# -- refits --


def test_a_few_undefined_refits_are_a_caution_and_many_leave_no_interval():
    drawn = np.linspace(0.9, 1.1, 100)
    few, many = drawn.copy(), drawn.copy()
    few[:1], many[:20] = np.nan, np.nan
    found = _cheap_interval(1.0, few, 0.95, "")
    arm = special.stdtrit(99, 0.975) * np.sqrt(((few[1:] - 1) ** 2).mean())
    assert [found.low, found.high] == pytest.approx([1 - arm, 1 + arm])
    assert np.isnan(_cheap_interval(1.0, many, 0.95, "").low)
    assert _cheap_interval(1.0, many, 0.95, "").findings[0].level == "issue"


def test_the_values_of_a_policy_relative_to_practice_move_with_practice():
    """V is half of practice's and half of the policy's expectation of q: 0.5 * (0.9 * 3) + 0.5 * 3 = 2.85."""
    data = cal.Trajectories(np.zeros((4, 1)), [0, 1, 0, 1], np.zeros(4), np.arange(5))
    target = cal.mix(cal.practice, cal.TabularPolicy([[0.0, 1.0]]), 0.5)
    even, q = np.full((4, 2), 0.5), np.tile([0.0, 3.0], (4, 1))
    e = cal.gather(data, target, even, q=q)
    assert float(cal.dm(e)) == pytest.approx(0.5 * 1.5 + 0.5 * 3)
    other = np.tile([0.1, 0.9], (4, 1))
    found = _evaluate((cal.dm,), e, data, np.ones(4), target=target, behaviour=other, q=q)
    assert found == pytest.approx([2.85])


def test_the_weights_of_a_resample_reach_the_last_step_of_a_pipeline():
    name = "logisticregression__sample_weight"
    assert _weight_name(make_pipeline(StandardScaler(), LogisticRegression())) == name
    assert _weight_name(make_pipeline(StandardScaler(), KNeighborsClassifier())) is None


# -- weights --


def test_weights_are_counted_by_trajectory_and_not_by_step():
    e = cal.Evidence(np.zeros(5), np.full(5, 0.5), [0, 3, 5])
    halved = np.where(np.arange(5) < 3, e.log_rho - np.log(2), e.log_rho)
    found = compare_weights(e, halved)
    assert found["changed"] == 1
    # exp(1.5) and exp(1): half of the first is removed.
    assert found["removed"] == pytest.approx(0.5 * np.exp(1.5) / (np.exp(1.5) + np.exp(1)))


def test_late_steps_share_one_mean_ratio():
    """Of 60 trajectories 5 last for three steps: their two late steps are normalised together."""
    lengths = np.where(np.arange(60) < 5, 3, 1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    log_ratio = np.random.default_rng(0).normal(size=lengths.sum())
    e = cal.Evidence(np.zeros(len(log_ratio)), log_ratio, offsets)
    time, rho = e.layout.time, np.exp(e.log_rho)
    before = np.exp(e.log_rho - log_ratio)
    means = [rho[time == t].sum() / before[time == t].sum() for t in range(3)]
    found = np.exp(_mean_ratios(e))
    late = (5 * means[1] + 5 * means[2]) / 10
    assert found == pytest.approx([means[0], late, late])


def test_a_step_whose_predictions_are_all_zero_gets_the_mean_of_its_weights():
    """Weights before the second step are 1 and 2; before the first they are 1, whatever was predicted."""
    e = cal.Evidence(np.zeros(4), np.log([1.0, 1.0, 2.0, 1.0]), [0, 2, 4])
    assert _scale(e, np.array([9.0, 0.0, 9.0, 0.0])) == pytest.approx([1, 1.5, 1, 1.5])
    assert _scale(e, np.array([9.0, 1.0, 9.0, 3.0])) == pytest.approx([1, 0.75, 1, 2.25])


def test_five_weights_are_a_tail():
    """Of 25 weights a fifth is the tail: five are enough, four (of 20) are not."""
    weights = 1 / (1 - (np.arange(25) + 0.5) / 25)
    assert np.isfinite(_pareto.smooth_tail(weights).k)
    assert np.isnan(_pareto.smooth_tail(weights[:20]).k)


def test_an_exponential_tail_has_exponential_quantiles(monkeypatch):
    monkeypatch.setattr(_pareto, "fit_pareto", lambda excess: (0.0, 2.0))
    weights = np.concatenate([np.linspace(0.1, 1.0, 45), np.linspace(2.0, 99.0, 5)])
    tail = _pareto.tail_size(50)
    p = (np.arange(1, tail + 1) - 0.5) / tail
    cutoff = np.sort(weights)[-tail - 1]
    found = np.sort(_pareto.smooth_tail(weights).weights)[-tail:]
    assert found == pytest.approx(np.minimum(cutoff - 2 * np.log(1 - p), 99.0))


@pytest.mark.parametrize(("steps", "sampled"), [(1, False), (2, True)])
def test_it_is_said_on_how_many_trajectories_weights_were_regressed(steps, sampled):
    """A log of single decisions needs no regression, so that nothing was sampled there."""
    rng, n = np.random.default_rng(0), 60
    data = cal.Trajectories(
        rng.normal(size=(n * steps, 1)),
        rng.integers(2, size=n * steps),
        rng.random(n * steps),
        np.arange(0, n * steps + 1, steps),
    )
    e = cal.gather(data, np.tile([0.4, 0.6], (n * steps, 1)), np.full((n * steps, 2), 0.5))
    found = marginalise_weights(e, data, fitted_on=np.arange(30), rng=0)
    assert ("30" in found.notes[-1].message) == sampled


class Counted(cal.TabularPolicy):
    """A policy that counts how often it is asked."""

    asked = 0

    def predict_proba(self, X):
        Counted.asked += 1
        return super().predict_proba(X)


def test_a_policy_is_not_asked_again_in_every_refit():
    data, asked = ward.simulate(30, rng=0), []
    for n_refits in (5, 9):
        Counted.asked = 0
        refit(data, TabularFrequencies(), cal.wis, target=Counted(ward.EARLIER), n_refits=n_refits, rng=0)
        asked.append(Counted.asked)
    assert asked[0] == asked[1] > 0


def test_a_regression_without_its_log_predicts_the_same_for_it():
    data = ward.simulate(40, rng=0)
    e = cal.gather(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"])
    (found,) = regress_weights([e], data, rng=0)
    bare = found.without_log()
    assert len(bare.predicted) == len(bare.fold) == 0
    later = data.layout.time > 0
    assert predict_weights([bare], data, found.fold)[later, 0] == pytest.approx(found.predicted[later])
    assert found.predicted[later].std() > 0
