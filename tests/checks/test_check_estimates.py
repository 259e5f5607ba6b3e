import re
from dataclasses import replace

import numpy as np
import pytest

import caliope as cal
from caliope._traits import traits_of
from caliope.checks import _estimates as diagnostics
from caliope.checks._tails import check_influence
from caliope.domains import ward
from caliope.weights._effective import weigh_trajectories
from conftest import LENGTHY_B, LENGTHY_E, LENGTHY_GAMMA, random_evidence


def weighted(weights, returns=None):
    """One-step trajectories with the given weights."""
    weights = np.asarray(weights, dtype=float)
    with np.errstate(divide="ignore"):
        log_ratio = np.log(weights)
    rewards = np.arange(len(weights)) % 2 if returns is None else returns
    return cal.Evidence(rewards, log_ratio, np.arange(len(weights) + 1))


def codes(estimator, e):
    return {finding.code: finding.level for finding in diagnostics.examine(estimator, e)}


@pytest.fixture(scope="module")
def good():
    data = ward.simulate(1500, rng=1)
    return cal.gather(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"])


def test_a_sound_log_raises_nothing(good):
    assert codes(cal.wis, good) == {}
    assert codes(cal.monte_carlo, good) == {}


def test_the_effective_number_of_two_unequal_weights():
    assert cal.weights.effective_n(weighted([1, 3])) == pytest.approx(16 / 10)  # (1 + 3)^2 / (1 + 9)


def test_the_effective_number_of_a_per_horizon_estimate_is_that_of_its_own_weights():
    # Lengths 1 (weights 1, 3) and 2 (once): shares of the estimate 2/3 * (1/4, 3/4) and 1/3.
    e = cal.Evidence([0, 0, 0, 0], np.log([1, 3, 9, 9]), [0, 1, 2, 4])
    shares = np.array([1 / 6, 1 / 2, 1 / 3])
    assert weigh_trajectories(traits_of(cal.phwis), e) == pytest.approx(shares)
    assert cal.estimate(e, cal.phwis, n_draws=9, rng=0)[0].effective_n == pytest.approx(1 / (shares**2).sum())


@pytest.mark.parametrize(("n", "level"), [(99, "issue"), (150, "note"), (200, None)])
def test_the_absolute_effective_number_decides(n, level):
    assert codes(cal.wis, weighted(np.ones(n))).get("D101") == level


@pytest.mark.parametrize(
    ("mean", "level"),
    [(0.4, "issue"), (0.7, "caution"), (1.0, None), (1.04, None), (1.5, "caution"), (2.5, "issue")],
)
def test_weights_whose_mean_is_not_one_are_reported(mean, level):
    assert codes(cal.wis, weighted(np.full(300, mean))).get("D102") == level


def test_a_heavy_tail_is_reported():
    rng = np.random.default_rng(0)
    light, heavy = rng.uniform(0.5, 1.5, size=1000), rng.pareto(0.8, size=1000) + 0.01
    assert "D103" not in codes(cal.wis, weighted(light))
    assert codes(cal.wis, weighted(heavy))["D103"] == "issue"  # shape 1 / 0.8 = 1.25


def test_one_trajectory_with_much_of_the_weight_is_named():
    weights = np.ones(400)
    weights[17] = 20  # 20 / 419 = 4.8%
    found = [f for f in diagnostics.examine(cal.wis, weighted(weights)) if f.code == "D104"]
    assert found[0].numbers == {"share": pytest.approx(20 / 419), "trajectory": 17}


def test_estimates_that_use_no_weights_are_not_blamed_for_them():
    e = replace(weighted([1e-9] * 50 + [1.0]), q=np.zeros(51), v=np.zeros(51))
    assert codes(cal.monte_carlo, e) == {}
    assert codes(cal.dm, e) == {"D109": "issue"}  # which is about its values: 0, where the rewards are not
    assert "D101" in codes(cal.wis, e)


def test_lengths_without_weight_are_reported_as_lost():
    # 40 of 400 trajectories have length 1 and weight 0: a tenth of the estimate is about other patients.
    offsets = np.cumsum([0, *[1] * 40, *[2] * 360])
    log_ratio = np.zeros(offsets[-1])
    log_ratio[:40] = -np.inf
    e = cal.Evidence(np.ones(offsets[-1]), log_ratio, offsets)
    assert codes(cal.phwis, e)["D105"] == "issue"
    assert "D105" not in codes(cal.wis, e)
    # With the target's own lengths they have no share to lose.
    assert "D105" not in codes(cal.per_horizon(cal.wis, length_weights="evaluation"), e)


def test_tiny_length_groups_are_reported_as_leaks():
    lengths = [*range(1, 61), *[70] * 240]  # 60 of 300 trajectories have a length of their own
    offsets = np.cumsum([0, *lengths])
    e = cal.Evidence(np.zeros(offsets[-1]), np.zeros(offsets[-1]), offsets)
    found = [f for f in diagnostics.examine(cal.phwis, e) if f.code == "D106"]
    assert found[0].numbers["share"] == pytest.approx(0.2)
    assert "D106" not in codes(cal.wis, e)


def test_a_policy_that_changes_the_lengths_is_an_issue_for_per_horizon_estimates(lengthy):
    data = lengthy.simulate(LENGTHY_B, 2000, rng=0)
    e = cal.gather(data, cal.TabularPolicy(LENGTHY_E), data["behaviour"], gamma=LENGTHY_GAMMA)
    found = [f for f in diagnostics.examine(cal.phwis, e) if f.code == "D107"]
    assert found[0].level == "issue"
    assert found[0].numbers["p"] < 1e-4
    # 0.8470 - 1.0962 in the limit.
    assert found[0].numbers["difference"] == pytest.approx(-0.249, abs=0.1)
    assert "D107" not in codes(cal.wis, e)
    assert "D107" not in codes(cal.phis, e)  # which is plain importance sampling, and unbiased


def test_on_ragged_trajectories_per_horizon_is_always_cautioned(good):
    assert codes(cal.phwis, good)["D107"] in ("caution", "issue")
    equal = random_evidence(n=400, equal=True, spread=0.1)
    assert "D107" not in codes(cal.phwis, equal)


@pytest.mark.slow
def test_the_test_of_the_length_law_keeps_its_level():
    # Ratios that have nothing to do with the length: at level 0.01 about 4 of 400 may be rejected, and 12 hardly
    # (the chance of more than 12 is below 0.0003).
    rng, rejected = np.random.default_rng(0), 0
    for _ in range(400):
        lengths = rng.integers(1, 9, size=300)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        log_ratio = np.zeros(offsets[-1])
        log_ratio[offsets[:-1]] = rng.normal(scale=0.5, size=300) - 0.125
        e = cal.Evidence(np.zeros(offsets[-1]), log_ratio, offsets)
        rejected += diagnostics._test_length_law(e) < 0.01
    assert rejected <= 12


def test_a_mean_weight_that_is_clearly_not_one_is_reported_inside_the_limits_too():
    rng = np.random.default_rng(0)
    e = weighted(rng.uniform(1.0, 1.3, size=2000))  # 1.15, z of 77
    assert codes(cal.ois, e)["D102"] == "caution"
    assert codes(cal.wis, replace(e, behaviour_known=True))["D102"] == "caution"
    # With a fitted policy and equal lengths that is nearly a common factor, which normalising removes.
    assert codes(cal.wis, e)["D102"] == "note"
    assert codes(cal.wis, weighted(rng.uniform(1.2, 1.34, size=2000)))["D102"] == "caution"  # 1.27
    ragged = cal.Evidence(np.zeros(3000), np.log(np.full(3000, 1.07)), np.cumsum([0, *[1, 2] * 1000]))
    assert codes(cal.wis, ragged)["D102"] == "caution"  # 1.11: long trajectories count too much


@pytest.mark.parametrize(
    ("n", "known", "fitted"),
    [(380, None, None), (420, "caution", "note"), (1000, "caution", "note"), (1100, "caution", "caution")],
)
def test_a_mean_weight_is_off_from_two_and_a_half_standard_errors_and_clearly_from_four_where_it_was_fitted(
    n, known, fitted
):
    # Half of the weights 0.1, half 1.7: mean 0.9, deviation 0.8, so 0.1 / (0.8 / sqrt(n)) is 2.44, 2.56, 3.95 and 4.15.
    e = weighted(np.tile([0.1, 1.7], n // 2))
    assert codes(cal.ois, e).get("D102") == fitted
    assert codes(cal.wis, replace(e, behaviour_known=True)).get("D102") == known


def test_weight_that_was_removed_explains_a_mean_below_one_and_none_above():
    # 3,000 weights with mean 1; the cap at 1.5 takes 0.5 of 3 from each tenth: mean 0.85, and 15% less weight.
    weights = np.where(np.arange(3000) % 10 == 0, 3.0, 7 / 9)
    capped = cal.weights.clip_weights(weighted(weights), at=1.5)
    found = codes(cal.wis, capped)
    assert "D102" not in found
    assert found["W102"] == "caution"
    too_heavy = cal.weights.clip_weights(weighted(1.5 * weights), at=4.0)  # 1.45, although a part was removed
    assert codes(cal.wis, too_heavy)["D102"] == "caution"


def test_cut_off_trajectories_are_an_issue_where_they_count_as_ended():
    e = replace(weighted(np.ones(300)), terminated=np.arange(300) % 2 == 0)
    assert codes(cal.wis, e)["D110"] == "issue"
    assert codes(cal.monte_carlo, e)["D110"] == "issue"
    few = replace(e, terminated=np.arange(300) != 7)
    assert codes(cal.wis, few)["D110"] == "caution"
    valued = replace(e, q=np.zeros(300), v=np.zeros(300))
    assert "D110" not in codes(cal.wdr, valued)


@pytest.mark.parametrize(
    ("gamma", "cut", "level"),
    [(1.0, 150, "issue"), (1.0, 6, "caution"), (0.05, 150, "caution"), (1.0, 0, None)],
)
def test_what_came_after_a_cut_is_an_issue_where_much_of_the_discount_is_left(gamma, cut, level):
    # One step each, equal weights: gamma * cut / 300 is 0.5, 0.02, 0.025 and 0, against a limit of 0.05.
    e = replace(weighted(np.ones(300)), terminated=np.arange(300) >= cut, gamma=gamma)
    valued = replace(e, q=np.zeros(300), v=np.zeros(300))
    for estimator in (cal.wdr, cal.dr, cal.dm, cal.difference(cal.wdr)):
        assert codes(estimator, valued).get("D112") == level
    assert "D112" not in codes(cal.wis, valued)


def test_a_mean_weight_that_was_capped_is_said_to_be():
    e = cal.weights.clip_weights(weighted(np.where(np.arange(300) % 10 == 0, 9.1, 0.1)), at=2.0)
    # Nine of ten 0.1, one 9.1: mean 1; capped at 2: 0.29, 71% less.
    (found,) = [f for f in diagnostics.examine(cal.wis, e) if f.code == "D102"]
    assert "is 0.29 (standard error" in found.message
    assert "71.0% of the weight was removed" in found.message


def test_rare_outcomes_are_cautioned():
    returns = np.zeros(400)
    returns[:3] = 1.0
    assert codes(cal.monte_carlo, weighted(np.ones(400), returns))["D111"] == "caution"
    assert codes(cal.wis, weighted(np.ones(400), np.zeros(400)))["D111"] == "caution"
    assert "D111" not in codes(cal.wis, weighted(np.ones(400)))


def test_heavy_tailed_returns_are_reported_although_the_weights_are_flat():
    rng = np.random.default_rng(0)
    assert "D103" in codes(cal.wis, weighted(np.ones(2000), rng.pareto(1.1, size=2000)))


def test_weight_removed_by_a_cap_is_an_issue_where_nothing_renormalises():
    rng = np.random.default_rng(0)
    e = cal.weights.clip_weights(weighted(rng.lognormal(-0.5, 1.0, size=2000)), at=1.0)
    assert codes(cal.ois, e)["W102"] == "issue"
    assert codes(cal.wis, e)["W102"] == "caution"


def test_both_sides_of_a_difference_are_examined():
    e = weighted(np.random.default_rng(0).lognormal(0, 3, size=300))
    turned = cal.difference(cal.monte_carlo, cal.wis)
    assert codes(turned, e)["D101"] == "issue"
    assert cal.estimate(e, turned, n_draws=20, rng=0)[0].effective_n == pytest.approx(
        cal.weights.effective_n(e)
    )
    assert turned.__name__ == "difference_monte_carlo_wis"


def test_values_exact_but_for_rounding_are_not_refuted():
    # A deterministic process with its exact values: every correction is rounding.
    e = cal.Evidence(
        np.tile([0.1, 0.3], 200),
        np.zeros(400),
        np.arange(201) * 2,
        q=np.tile([0.4, 0.3], 200),
        v=np.tile([0.4, 0.3], 200),
    )
    assert codes(cal.dm, e)["D109"] == "caution"


def test_too_few_draws_for_the_level_are_cautioned():
    row = cal.estimate(weighted(np.ones(300)), cal.wis, n_draws=20, rng=0)[0]
    assert "U106" in {f.code for f in row.interval.findings}


def test_stepwise_weighting_of_ragged_trajectories_is_cautioned():
    assert codes(cal.step_wis, random_evidence())["D108"] == "caution"
    assert "D108" not in codes(cal.step_wis, random_evidence(equal=True))
    assert "D108" not in codes(cal.estimators.step_phwis, random_evidence())


def test_estimated_probabilities_are_noted():
    e = weighted(np.ones(300))
    assert codes(cal.wis, e)["B101"] == "note"
    assert "B101" not in codes(cal.wis, replace(e, behaviour_known=True))


def test_notes_of_the_evidence_reach_the_estimate():
    e = cal.weights.clip_weights(weighted(np.linspace(0.5, 1.5, 400)), at=1.2)
    assert codes(cal.wis, e)["W102"] == "note"  # 4.5% of the weight above 1.2 was removed
    assert "W102" not in codes(cal.monte_carlo, e)


def test_a_difference_is_examined_like_what_it_is_a_difference_of():
    e = replace(random_evidence(n=50), behaviour_known=True)
    assert codes(cal.difference(cal.phwis), e) == codes(cal.phwis, e)


@pytest.mark.parametrize(
    "pair", [(cal.wis,), (cal.ois,), (cal.phwis,), (cal.step_wis,), (cal.monte_carlo, cal.wis)]
)
def test_fitted_weights_minus_a_plain_mean_are_at_most_a_caution(pair):
    e = weighted(np.ones(300))
    assert codes(cal.difference(*pair), e)["D117"] == "caution"
    assert "D117" not in codes(cal.difference(*pair), replace(e, relative=True))
    assert "D117" not in codes(cal.difference(*pair), replace(e, behaviour_known=True))
    assert not any("D117" in codes(estimator, e) for estimator in pair)


def test_a_difference_that_fitted_values_correct_is_not_blamed_for_the_fit():
    e = replace(weighted(np.ones(300)), q=np.zeros(300), v=np.zeros(300))
    assert "D117" not in codes(cal.difference(cal.wdr), e)
    assert "D117" not in codes(cal.difference(cal.wis, cal.ois), e)  # no plain mean in it
    assert "D117" not in codes(cal.difference(cal.dm), e)


def test_a_value_that_does_not_exist_is_an_issue():
    row = cal.estimate(weighted(np.zeros(300)), cal.wis, n_draws=20, rng=0)[0]
    assert np.isnan(row.value)
    assert row.verdict == "do not trust"
    assert row.effective_n == 0
    assert {f.code for f in row.findings} >= {"D100", "D101"}


@pytest.mark.slow
def test_where_no_trajectory_follows_the_policy_one_reason_is_told_and_not_what_follows_from_it():
    data = ward.simulate(120, rng=0)
    target = np.eye(3)[(data.actions + 1) % 3]  # never what was done
    models = {"frequencies": cal.behaviour.TabularFrequencies()}
    audit = cal.audit(
        data, target, models, learnt_on="no", recorded_before="all", n_draws=20, rng=0, progress=False
    )
    assert np.isnan(audit.headline.value)
    told = [*audit.headline.findings, *audit.gain.findings, *audit.findings]
    assert {f.code for f in told if f.level == "issue"} == {"D100", "D101", "U102"}
    assert [f.message for f in told if re.search(r"\b(nan|inf)\b", f.message)] == []


def test_rare_events_with_bounded_weights_have_no_heavy_tail_and_rare_large_costs_have():
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, 3000)
    for share in (0.005, 0.02):
        assert "D103" not in codes(cal.wis, weighted(weights, (rng.random(3000) < share) * 1.0))
    costs = (rng.random(3000) < 0.2) * rng.pareto(0.8, 3000)
    assert codes(cal.wis, weighted(weights, costs))["D103"] == "issue"


@pytest.mark.parametrize(
    ("largest", "level"), [(0.14, "note"), (0.16, "caution"), (0.49, "caution"), (0.51, "issue")]
)
def test_the_influence_of_one_trajectory_has_its_level_by_its_share(largest, level):
    """With u_0^2 = s and the other n - 1 sharing 1 - s, the largest share is s."""
    n = 100
    e = cal.Evidence(np.ones(n), np.zeros(n), offsets=np.arange(n + 1))
    u = np.full(n, np.sqrt((1 - largest) / (n - 1)))
    u[7] = -np.sqrt(largest)
    (found,) = check_influence(u, e)
    assert (found.level, found.facts["trajectory"]) == (level, 7)
    assert found.numbers["share"] == pytest.approx(largest)


def test_the_influence_of_a_cluster_is_that_of_its_trajectories_together():
    """Four trajectories of 1 / 8 make 1 / 2 together, and 1 / 4 of the squares; the others make 3 / 4."""
    u = np.concatenate([np.full(4, 0.125), np.resize([1, -1], 96) * np.sqrt(0.75 / 96)])
    e = cal.Evidence(
        np.ones(100), np.zeros(100), offsets=np.arange(101), cluster=[0] * 4 + list(range(1, 97))
    )
    (found,) = check_influence(u, e)
    assert (found.level, found.facts) == ("caution", {"share": pytest.approx(0.25)})
    assert found.message == "One cluster alone makes up 25.0% of the squared standard error."


def test_no_influence_is_no_finding():
    e = cal.Evidence(np.ones(3), np.zeros(3), offsets=np.arange(4))
    assert check_influence(np.zeros(3), e) == ()
    # Equal but for rounding: the first is named, so that a log cut otherwise names the same one.
    (found,) = check_influence(np.array([0.0, 1.0, -1.0 - 1e-13]), e)
    assert found.facts["trajectory"] == 1
