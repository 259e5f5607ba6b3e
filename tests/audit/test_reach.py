"""How far a log carries: the new policy in a share of the decisions, and the largest share that is trusted."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

import caliope as cal
from caliope._audit._reach import SHARES, Known, Reach, trace_reach, uniform_arms
from caliope._results import Estimate, Interval, Table
from caliope.checks import A109, D101, D119, L105
from caliope.checks._bias import bias_factor
from caliope.domains import random_mdp, ward

EARLIER, PRACTICE = cal.TabularPolicy(ward.EARLIER), cal.TabularPolicy(ward.PRACTICE)


def traced(n=300, rng=0, target=EARLIER, **options):
    data = ward.simulate(n, rng=rng)
    table = cal.action_probabilities(target, data.states, 3)
    q = np.zeros((data.n_steps, 3))
    base = cal.gather(data, table, PRACTICE, q=q)
    options = {"base": base, "q": q, "level": 0.95, "rng": np.random.default_rng(0)} | options
    return data, trace_reach(data, table, PRACTICE, **options)


def test_each_share_is_the_difference_of_the_mixture():
    # One regressor without randomness, so that each share can be regressed again by itself.
    regressors = {"line": LinearRegression()}
    data, found = traced(regressors=regressors)
    for share, row in zip(found.shares, found.table, strict=True):
        mixed = cal.gather(
            data, cal.mix(cal.practice, EARLIER, share), PRACTICE, q=np.zeros((data.n_steps, 3))
        )
        own = cal.weights.marginalise_weights(
            mixed, data, regressors=regressors, rng=np.random.default_rng(0)
        )
        assert row.value == pytest.approx(float(cal.difference(cal.wdr)(own)), abs=1e-10)
    assert found.shares == SHARES


def test_practice_mixed_with_itself_differs_by_nothing():
    _, found = traced(target=PRACTICE)
    assert [row.value for row in found.table] == pytest.approx([0.0] * len(SHARES), abs=1e-12)
    assert all(row.interval.width < 1e-12 for row in found.table)


def test_a_band_of_one_value_is_its_normal_interval():
    u = np.random.default_rng(1).standard_normal((1, 500))
    arm = uniform_arms(u, level=0.95, rng=np.random.default_rng(0))
    # The 95% quantile of |N(0, 1)| from 2,000 draws: its standard error is sqrt(.95 x .05 / 2000) / (2 x .0584) = .042.
    assert arm[0] / np.sqrt((u**2).sum()) == pytest.approx(1.96, abs=4 * 0.042)


def test_a_band_of_two_independent_values_is_wider():
    u = np.zeros((2, 1000))
    u[0, :500] = u[1, 500:] = np.random.default_rng(1).standard_normal(500)
    arms = uniform_arms(u, level=0.95, rng=np.random.default_rng(0))
    # P(max of two |N| < c) = (2 Phi(c) - 1)^2 = .95 at c = 2.236.
    np.testing.assert_allclose(arms / np.sqrt((u**2).sum(axis=1)), 2.236, atol=0.17)


def test_a_value_without_spread_has_a_band_of_width_zero():
    assert uniform_arms(np.zeros((1, 9)), level=0.95, rng=np.random.default_rng(0)) == [0.0]


def test_what_the_change_of_weights_moves_widens_the_band():
    _, found = traced(n=1000, target=cal.TabularPolicy(ward.AGGRESSIVE))
    row = found.at(0.8)
    facts = next(f.facts for f in row.findings if f.check == A109)
    assert abs(facts["moved"]) > 0.01
    # |N(b, 1)| is below its 95% quantile with probability 0.95: F(c - b) - F(-c - b) = 0.95.
    balance = next((f.facts["bias"] for f in row.findings if f.check == D119), 0.0)
    assert balance < abs(facts["moved"])  # the larger of the two counts
    factor = bias_factor(facts["moved"], facts["se"], 0.95)
    b, c = abs(facts["moved"]) / facts["se"], 1.959964 * factor
    assert stats.norm.cdf(c - b) - stats.norm.cdf(-c - b) == pytest.approx(0.95, abs=1e-6)
    # The critical value of eleven shares that hang together lies between that of one and that of eleven alone.
    assert 1.9 < row.interval.width / 2 / facts["se"] / factor < 2.84


@pytest.mark.slow
def test_the_band_covers_the_whole_curve_as_often_as_it_says():
    problem = random_mdp.random_mdp(horizon=1, rng=4)
    shares, logs = (0.1, 0.3, 0.5), 100
    truth = [
        problem.value((1 - a) * problem.behaviour + a * problem.best) - problem.value(problem.behaviour)
        for a in shares
    ]
    covered = 0
    for seed in range(logs):
        data = problem.simulate(1500, rng=seed)
        best, practice = problem.true_probabilities(data, problem.best), problem.true_probabilities(data)
        q = np.zeros((data.n_steps, data.n_actions))
        found = trace_reach(
            data,
            best,
            practice,
            base=cal.gather(data, best, practice, q=q),
            q=q,
            level=0.95,
            shares=shares,
            rng=np.random.default_rng(seed),
        )
        covered += all(x in row.interval for x, row in zip(truth, found.table, strict=True))
    # Three binomial standard errors below 95%: .95 - 3 sqrt(.95 x .05 / 100) = .885.
    assert covered / logs > 0.885


def rows_of(*findings):
    interval = Interval(0.1, 0.3, 0.95)
    return Table(
        tuple(Estimate(f"s{i}", "", 0.2, interval, 10, 9.0, found) for i, found in enumerate(findings))
    )


FEW = L105.finding("caution", n=50)
TOO_FEW = D101.finding("issue", "too-few", effective_n=5.0, n=50, limit=100)


def test_the_largest_share_comes_before_the_first_doubt():
    found = Reach((0.1, 0.2, 0.3, 0.4), rows_of((), (), (FEW,), (FEW,)))
    assert (found.largest, found.usable) == (0.2, 0.4)
    assert str(found) == (
        "with the new policy in up to 20% of the decisions, the difference from current practice is "
        "+0.20 [0.10, 0.30] (trust)"
    )
    softened = Reach(found.shares, found.table, asked=0.25)
    assert str(softened).startswith(
        "with the new policy in up to 20% of the 25% of the decisions that were asked for, the difference"
    )
    found = Reach((0.1, 0.2), rows_of((FEW,), (TOO_FEW,)))
    assert (found.largest, found.usable) == (None, 0.1)
    assert str(found).endswith("(caution)")
    found = Reach((0.1,), rows_of((TOO_FEW,)))
    assert (found.largest, found.usable) == (None, None)
    assert "not even" in str(found)


def test_a_policy_that_is_trusted_itself_is_answered_whatever_is_said_of_smaller_shares():
    """Two answers to one question, "trust" and "up to 40%", would leave a reader to choose."""
    found = Reach((0.2, 0.6, 1.0), rows_of((), (FEW,), ()))
    assert (found.largest, found.usable, found.advice) == (1.0, 1.0, "")
    found = Reach((0.2, 0.6, 1.0), rows_of((), (TOO_FEW,), (FEW,)))
    assert (found.largest, found.usable) == (0.2, 0.2)


def test_findings_about_the_log_hold_at_every_share():
    _, found = traced(about=Known((FEW,)))
    assert found.largest is None
    assert all(FEW in row.findings for row in found.table)


def test_a_far_policy_is_answered_in_a_small_share():
    _, found = traced(n=300, target=cal.TabularPolicy(ward.AGGRESSIVE))
    assert found.largest is not None
    assert found.largest < 1
    assert found.table[-1].verdict == "do not trust"
    assert found.to_dict()["rows"][0]["share"] == SHARES[0]


@pytest.fixture(scope="module")
def far():
    """An audit of a policy that the log cannot answer for."""
    models, q = {"frequencies": cal.behaviour.TabularFrequencies()}, cal.values.TabularRegressor()
    answers = {"learnt_on": "no", "ended": "all", "recorded_before": "all"}
    data, target = ward.simulate(300, rng=0), cal.TabularPolicy(ward.AGGRESSIVE)
    return cal.audit(data, target, models, regressor=q, n_draws=50, rng=0, **answers)


def test_a_refused_policy_is_answered_in_part(far):
    assert far.verdict == "do not trust"
    assert far.reach.largest is not None
    assert f"How far the log carries: {far.reach}." in str(far)
    assert far.to_dict()["reach"]["largest"] == far.reach.largest
    best = ward.WARD.value((1 - far.reach.largest) * ward.PRACTICE + far.reach.largest * ward.AGGRESSIVE)
    assert best - ward.WARD.value(ward.PRACTICE) in far.reach.at(far.reach.largest).interval
    # With the whole policy the curve ends in the difference of the audit itself.
    assert far.reach.table[-1].value == pytest.approx(far.gain.value, abs=1e-9)


@pytest.mark.slow
def test_the_page_shows_how_far_the_log_carries(far):
    page = cal.report.report_html(far)
    assert "How far the log carries" in page
    assert "share of the decisions that follow the new policy" in page


def test_practice_itself_is_not_asked_in_shares():
    models = {"frequencies": cal.behaviour.TabularFrequencies()}
    data, q = ward.simulate(100, rng=0), cal.values.TabularRegressor()
    assert cal.audit(data, cal.practice, models, regressor=q, n_draws=20, rng=0).reach is None


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True])
def test_a_mixture_ends_in_the_difference_of_the_audit(known):
    models, q = {"frequencies": cal.behaviour.TabularFrequencies()}, cal.values.TabularRegressor()
    data, target = ward.simulate(200, rng=0), cal.mix(cal.practice, EARLIER, 0.5)
    logged = data["behaviour"] if known else None
    found = cal.audit(data, target, models, regressor=q, logged=logged, n_draws=20, rng=0)
    assert found.reach.table[-1].value == pytest.approx(found.gain.value, abs=1e-12)
    assert found.reach.asked == 0.5


def test_it_is_said_how_to_ask_for_the_share_that_is_answered(far):
    found = Reach((0.1, 0.2, 1.0), rows_of((), (FEW,), (TOO_FEW,)))
    assert found.advice == "To ask for that: --soften 0.9, in Python mix(practice, target, 0.1)."
    # With all of them in doubt, up to where the answer is not refused.
    cautious = Reach((0.1, 0.2, 1.0), rows_of((FEW,), (FEW,), (TOO_FEW,)))
    assert cautious.advice.startswith("To ask for that: --soften 0.8,")
    # A tenth of a policy that is followed in a quarter of the decisions.
    assert Reach(found.shares, found.table, asked=0.25).advice.endswith(
        "--soften 0.975, in Python mix(practice, target, 0.025)."
    )
    assert Reach(found.shares, found.table, softens=False).advice == ""
    assert Reach((0.1, 1.0), rows_of((), ())).advice == ""
    assert Reach((0.1, 1.0), rows_of((TOO_FEW,), (TOO_FEW,))).advice == ""
    assert far.reach.advice in str(far)
    assert f"--soften {1 - far.reach.largest:.4g}," in far.reach.advice


@pytest.mark.slow
def test_a_tilt_is_not_to_be_softened():
    models, q = {"frequencies": cal.behaviour.TabularFrequencies()}, cal.values.TabularRegressor()
    tilted = cal.tilt(cal.practice, [1, 1, 60])
    found = cal.audit(ward.simulate(300, rng=0), tilted, models, regressor=q, n_draws=20, rng=0)
    assert (found.verdict, found.reach.usable is not None) == ("do not trust", True)
    assert not found.reach.softens
    assert "--soften" not in str(found)


@pytest.mark.slow
def test_what_is_found_at_a_share_is_in_the_words_of_the_log():
    models, q = {"frequencies": cal.behaviour.TabularFrequencies()}, cal.values.TabularRegressor()
    data = ward.simulate(300, rng=0)
    ids = np.array([f"v{i}" for i in range(300)])
    named = cal.Trajectories(data.states, data.actions, data.rewards, data.offsets, ids=ids, unit="visit")
    found = cal.audit(named, EARLIER, models, regressor=q, n_draws=20, rng=0)
    loudest = next(f for f in found.gain.findings if f.code == "D118")
    whole = next(f for f in found.reach.table[-1].findings if f.code == "D118")
    # The whole policy is the audit's own: the same trajectory, under its own name.
    assert whole.facts["trajectory_name"] == loudest.facts["trajectory_name"]
    assert whole.facts["trajectory"] == int(loudest.facts["trajectory_name"].removeprefix("v"))
    for row in found.reach.table:
        assert not any("trajector" in f.message.lower() for f in row.findings)
