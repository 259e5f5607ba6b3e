"""Weights normalised among the trajectories under way: formulas against loops, resamples, limits."""

from dataclasses import replace

import numpy as np
import pytest

import caliope as cal
from caliope import Evidence
from caliope.domains.tabular import TabularMDP
from caliope.estimators import wdr_under_way, weight_factors, wis_under_way


def some_evidence(n=60, longest=6, rng=0, gamma=0.9, **fields):
    rng = np.random.default_rng(rng)
    lengths = rng.integers(1, longest + 1, n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    steps = offsets[-1]
    values = {"q": rng.random(steps), "v": rng.random(steps)} | fields
    return Evidence(rng.random(steps), rng.normal(0.2, 0.5, steps), offsets, gamma, **values)


def by_loops(e, counts, few):
    """Scale the ratios step by step; then the self-normalised sums over all trajectories, ended ones included."""
    n, lengths = len(e), np.diff(e.offsets)
    lam, start = np.exp(e.log_ratio), e.offsets
    horizon = max(lengths)
    rho, mean, size = [1.0] * n, [], []
    for t in range(horizon):
        alive = [i for i in range(n) if lengths[i] > t]
        before = sum(counts[i] * rho[i] for i in alive)
        for i in alive:
            rho[i] *= lam[start[i] + t]
        mean.append(sum(counts[i] * rho[i] for i in alive) / before)
        size.append(sum(counts[i] for i in alive))
    late = [t for t in range(horizon) if sum(lengths > t) < few]
    pooled = sum(size[t] * mean[t] for t in late) / max(sum(size[t] for t in late), 1)
    w, wdr = [1.0] * n, 0.0
    for t in range(horizon):
        factor = 1 / (pooled if t in late else mean[t])
        alive = [i for i in range(n) if lengths[i] > t]
        total = sum(counts[i] * w[i] for i in range(n))
        wdr += e.gamma**t * sum(counts[i] * w[i] * e.v[start[i] + t] for i in alive) / total
        for i in alive:
            w[i] *= lam[start[i] + t] * factor
        total = sum(counts[i] * w[i] for i in range(n))
        error = (counts[i] * w[i] * (e.rewards[start[i] + t] - e.q[start[i] + t]) for i in alive)
        wdr += e.gamma**t * sum(error) / total
    wis = sum(counts[i] * w[i] * e.returns[i] for i in range(n)) / sum(counts[i] * w[i] for i in range(n))
    return wis, wdr


@pytest.mark.parametrize("n", [20, 60, 300])  # steps with fewer than 50 under way: all, some, none
def test_the_formulas_are_their_loops(n):
    e = some_evidence(n)
    counts = np.random.default_rng(1).integers(0, 3, n).astype(float)
    for c in (np.ones(n), counts):
        wis, wdr = by_loops(e, c, few=50)
        assert float(wis_under_way(e.with_counts(c))) == pytest.approx(wis, rel=1e-12)
        assert float(wdr_under_way(e.with_counts(c))) == pytest.approx(wdr, rel=1e-12)


def test_trajectories_under_way_keep_their_weight():
    e = some_evidence(300)
    weights = weight_factors(e)[e.layout.time] * e.weight
    before = e.layout.before(weights, 1.0)
    np.testing.assert_allclose(e.total_by_time(weights), e.total_by_time(before), rtol=1e-12)


def test_a_factor_common_to_all_ratios_of_a_step_changes_nothing():
    e = some_evidence(300)
    tilted = replace(e, log_ratio=e.log_ratio + np.array([0.5, -0.2, 0.1, 0.9, 0.3, -1.0])[e.layout.time])
    for f in (wis_under_way, wdr_under_way):
        assert float(f(tilted)) == pytest.approx(float(f(e)), rel=1e-12)
    assert abs(float(cal.wdr(tilted)) - float(cal.wdr(e))) > 0.01  # which the usual one does not withstand


def test_at_equal_lengths_it_is_the_usual_self_normalisation():
    rng = np.random.default_rng(3)
    fields = {"q": rng.random(400), "v": rng.random(400)}
    e = Evidence(rng.random(400), rng.normal(0, 0.4, 400), np.arange(0, 401, 4), 0.9, **fields)
    assert float(wis_under_way(e)) == pytest.approx(float(cal.wis(e)), rel=1e-12)
    assert float(wdr_under_way(e)) == pytest.approx(float(cal.wdr(e)), rel=1e-12)


@pytest.mark.parametrize("n", [40, 200])
def test_a_constant_return_is_estimated_without_error(n):
    e = some_evidence(n, gamma=1.0)
    rewards = np.zeros(len(e.rewards))
    rewards[e.layout.last] = 2.0
    constant = replace(e, rewards=rewards)
    found = cal.bootstrap(wis_under_way, constant, n_draws=50, rng=0)
    assert (found.low, found.high) == pytest.approx((2.0, 2.0), rel=1e-12)


def test_ratios_are_recomputed_for_each_trajectory_left_out():
    e = some_evidence(80)
    values = cal.uncertainty.leave_one_out(wdr_under_way, e)
    for i in (0, 7, 79):
        kept = np.ones(80)
        kept[i] = 0
        assert values[i] == pytest.approx(by_loops(e, kept, few=50)[1], rel=1e-9)
    assert abs(cal.uncertainty.influence(wdr_under_way, e).sum()) < 1e-9


def test_right_ratios_give_the_value():
    """Every possible trajectory of a process with two lengths, counted by its probability: the exact limit."""
    process = TabularMDP(
        initial=np.array([0.6, 0.4, 0.0]),
        transitions=np.array(
            [[[0.5, 0.2, 0.3], [0.1, 0.3, 0.6]], [[0.3, 0.3, 0.4], [0.2, 0.7, 0.1]], [[0, 0, 1]] * 2]
        ),
        rewards=np.array([[1.0, 0.0], [0.5, 2.0], [0.0, 0.0]]),
        absorbing=np.array([False, False, True]),
        horizon=3,
    )
    practice, new = (
        np.array([[0.7, 0.3], [0.4, 0.6], [0.5, 0.5]]),
        np.array([[0.2, 0.8], [0.5, 0.5], [0.5, 0.5]]),
    )
    paths = list(process.paths(practice))
    ratio = [
        np.log(new[s, a] / practice[s, a]) for p in paths for s, a in zip(p.states, p.actions, strict=True)
    ]
    offsets = np.concatenate([[0], np.cumsum([len(p.actions) for p in paths])])
    rewards = np.concatenate([p.rewards for p in paths])
    e = Evidence(rewards, ratio, offsets, q=np.zeros(len(rewards)), v=np.zeros(len(rewards)))
    e = e.with_counts([1000 * p.probability for p in paths])
    truth = process.value(new)
    assert float(wis_under_way(e)) == pytest.approx(truth, rel=1e-9)
    assert float(wdr_under_way(e)) == pytest.approx(truth, rel=1e-9)


def test_no_weight_is_no_value():
    e = some_evidence(20)
    nothing = replace(e, log_ratio=np.full(len(e.rewards), -np.inf))
    assert np.isnan(wis_under_way(nothing))
    assert np.isnan(wdr_under_way(nothing))
    with pytest.raises(ValueError, match="needs action values"):
        wdr_under_way(replace(e, q=None, v=None))
