"""The truth passes its own tests, distorted models do not, and the table says which model to take."""

import json

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope.behaviour import NeighbourPolicy, TabularFrequencies, Temperature, fit_behaviour
from caliope.calibration import (
    balance_table,
    choose,
    kernel_error,
    neighbourhood_calibration,
    neighbourhoods,
)
from caliope.calibration._findings import check_held_out
from caliope.domains import ward, zoo

pytestmark = pytest.mark.slow


def verdicts(table, data, near, seed):
    found = neighbourhood_calibration(table, near, n_draws=60, rng=seed)
    return {
        "paper": found.paper_metric().z,
        "averaged": found.averaged_metric().z,
        "balance": balance_table(table, data, n_draws=60, rng=seed).largest.z,
        "kernel": kernel_error(table, data, n_rows=800, n_draws=100, rng=seed).z,
    }


@pytest.mark.parametrize("seed", range(20))
def test_the_truth_passes_its_own_tests_and_a_wrong_temperature_does_not(seed):
    policy = zoo.linear(10, rng=seed)
    data = zoo.simulate(policy, 150, rng=seed + 100)
    near = neighbourhoods(data, np.arange(0, data.n_steps, 5), k=100)
    truth = policy.predict_proba(data.states)
    passed = verdicts(truth, data, near, seed)
    # 80 tests at 3 standard deviations: 0.2 would fail by chance where the null is normal.
    assert all(abs(z) < 3 for z in passed.values()), passed
    for wrong in (0.5, 2.0):
        rejected = verdicts(Temperature(wrong)(truth), data, near, seed)
        assert rejected["averaged"] > 5
        assert rejected["kernel"] > 3
        assert rejected["balance"] > 3
        # The null of the paper's own number misses some of these: its bias by smoothing hides a wrong temperature.


@pytest.fixture(scope="module")
def study():
    policy = zoo.linear(50, rng=0)
    train, test = zoo.simulate(policy, 200, rng=1), zoo.simulate(policy, 200, rng=2)
    models = {
        "marginal": DummyClassifier().fit(train.states, train.actions),
        "logistic": LogisticRegression(C=0.1, max_iter=500).fit(train.states, train.actions),
        "neighbours": NeighbourPolicy(150, shrinkage="cv").fit(train.states, train.actions),
        "truth": policy,
    }
    by = cal.calibration.severity_strata(8 + 3 * test.states[:, 0])
    return models, test, policy, by


@pytest.fixture(scope="module")
def comparison(study):
    models, test, policy, by = study
    return cal.compare_policies(models, test, by=by, truth=policy, n_states=100, n_draws=60, rng=0)


def test_the_truth_is_best_by_likelihood_and_not_by_the_papers_metric(comparison):
    assert comparison.recommended == "truth"
    assert comparison.choice.by_paper != "truth"
    assert "would choose" in str(comparison)
    rows = {row.model: row.measured for row in comparison.overall()}
    assert rows["truth"].true_tv == 0
    assert rows["truth"].inflation == pytest.approx(1)
    assert rows["truth"].paper_tv.value > rows["neighbours"].paper_tv.value
    assert rows["neighbours"].true_tv > 0.4


def test_a_row_for_every_model_and_stratum(comparison, study):
    frame = comparison.to_frame()
    assert frame.height == 4 * (1 + len(set(study[3])))
    assert comparison["truth"].stratum == "all"
    assert [row.stratum for row in comparison if row.model == "truth"] == [
        "all",
        "0-4",
        "5-9",
        "10-13",
        "14+",
    ]
    for name in (
        "nll",
        "nll_low",
        "paper_tv_null",
        "paper_tv_z",
        "averaged_tv_z",
        "kernel_z",
        "true_tv",
        "classwise_debiased",
    ):
        assert name in frame.columns
    steps = frame.filter((frame["model"] == "truth") & (frame["stratum"] != "all"))["n_steps"].sum()
    assert steps == study[1].n_steps


def test_a_stratum_is_the_mean_over_its_steps(comparison, study):
    models, test, _, by = study
    table = cal.action_probabilities(models["logistic"], test.states, 25)
    inside = by == "5-9"
    expected = -np.log(table[inside, test.actions[inside]]).mean()
    assert comparison["logistic / 5-9"].measured.nll == pytest.approx(expected)


def test_intervals_are_percentiles_over_resampled_trajectories(comparison, study):
    row = comparison["logistic"].measured
    test = study[1]
    table = cal.action_probabilities(study[0]["logistic"], test.states, 25)
    losses = test.layout.sum_steps(-np.log(table[np.arange(test.n_steps), test.actions]))
    # Trajectories are equally long here, so the mean has the standard error of a mean over trajectories.
    se = (losses / 10).std(ddof=1) / np.sqrt(len(test))
    # 60 draws know a standard error to about 1 / sqrt(120) = 9%, and two percentiles less well.
    assert row.nll_interval.width == pytest.approx(2 * 1.96 * se, rel=0.35)


def test_it_can_be_read_by_machines(comparison):
    read = json.loads(comparison.to_json())
    assert read["choice"]["recommended"] == "truth"
    assert len(read["rows"]) == len(comparison)
    assert sum(comparison.seconds.values()) > 0
    assert "<table" in comparison._repr_html_()


def test_zero_for_a_logged_action_is_said_and_ranked_last(study):
    models, test, _, _ = study
    raw = NeighbourPolicy(5).fit(test.states[::2], test.actions[::2])
    found = cal.compare_policies(
        {"raw": raw, "marginal": models["marginal"]}, test, n_states=60, n_draws=20, rng=0
    )
    assert found.recommended == "marginal"
    assert found["raw"].measured.nll == np.inf
    assert "K101" in {finding.code for finding in found["raw"].findings}
    assert json.loads(found.to_json())["rows"][1]["nll"] is None
    assert found["raw"].measured.nll_interval.high == np.inf


def test_constant_predictions_and_small_strata_are_said(study):
    models, test, _, _ = study
    by = np.where(np.arange(test.n_steps) < 20, "tiny", "rest")
    found = cal.compare_policies(
        {"marginal": models["marginal"]}, test, by=by, n_states=60, n_draws=20, rng=0
    )
    assert "K104" in {finding.code for finding in found["marginal"].findings}
    assert "K102" in {finding.code for finding in found["marginal / tiny"].findings}
    assert "K102" not in {finding.code for finding in found["marginal / rest"].findings}


def test_one_action_only():
    data = cal.Trajectories(
        np.arange(40.0)[:, None], np.zeros(40, dtype=int), np.zeros(40), np.arange(0, 41, 4)
    )
    found = cal.compare_policies({"sure": np.ones((40, 1))}, data, n_draws=20, rng=0)
    row = found["sure"].measured
    assert row.nll == 0
    assert row.paper_tv.value == 0
    assert row.averaged_tv.z == 0
    assert np.isnan(row.skill_marginal)


def test_judging_a_model_on_its_own_steps_is_an_issue():
    data = ward.simulate(100, rng=0)
    models = {mode: fit_behaviour(LogisticRegression(), data, mode=mode, rng=0) for mode in ("same", "cross")}
    found = cal.compare_policies(models, data, k=50, n_states=60, n_draws=20, rng=0)
    assert "K107" in {finding.code for finding in found["same"].findings}
    assert found.recommended == "cross"
    assert "judged on what it was fitted on" in str(found)
    assert "K107" not in {finding.code for finding in found["cross"].findings}


def test_a_long_log_is_sampled_by_trajectory(study):
    _, test, policy, by = study
    table = policy.predict_proba(test.states)
    found = cal.compare_policies(
        {"table": table, "policy": policy}, test, by=by, max_steps=500, n_states=50, n_draws=20, rng=0
    )
    assert found["table"].measured.n == 50
    assert "sampled from 200 trajectories" in found.title
    assert found["table"].measured.nll == pytest.approx(found["policy"].measured.nll)


def test_bad_input_is_refused(study):
    models, test, _, _ = study
    with pytest.raises(ValueError, match="no models were given"):
        cal.compare_policies({}, test, rng=0)
    with pytest.raises(ValueError, match="by must name a stratum for each of the 2000 steps"):
        cal.compare_policies(models, test, by=["a"], rng=0)
    with pytest.raises(ValueError, match="n_states must be a whole number from 1, got 0"):
        cal.compare_policies(models, test, n_states=0, rng=0)
    with pytest.raises(ValueError, match="n_draws must be a whole number from 20, got 2"):
        cal.compare_policies(models, test, n_draws=2, rng=0)
    with pytest.raises(ValueError, match="model 'bad': "):
        cal.compare_policies({"bad": np.ones((3, 25))}, test, rng=0)
    with pytest.raises(TypeError, match="models must be a mapping"):
        cal.compare_policies([models["marginal"]], test, rng=0)
    labels = np.array(["low"] * test.n_steps, dtype=object)
    for wrong in (None, "all", float("nan")):
        labels[7] = wrong
        with pytest.raises(ValueError, match="by must name a stratum for every step; step 7"):
            cal.compare_policies(models, test, by=labels, rng=0)


def test_severity_strata_refuse_what_they_cannot_name():
    with pytest.raises(ValueError, match="one finite number per step"):
        cal.calibration.severity_strata([1.0, np.nan])
    with pytest.raises(ValueError, match="numbers that rise"):
        cal.calibration.severity_strata([1.0], edges=(14, 10, 5))
    assert cal.calibration.severity_strata([0.2, 3.2, 9], edges=(2.5, 5)).tolist() == [
        "below 2.5",
        "2.5 to 5",
        "5+",
    ]


def test_the_whole_log_is_the_same_with_and_without_strata():
    # Right in 97 of 100 states and wrong in the rest: sampling each stratum alike must not make the rest count more.
    rng = np.random.default_rng(0)
    n = 6000
    states = rng.normal(size=(n, 2))
    sick = states[:, 0] > 1.88
    truth = np.where(sick[:, None], [0.1, 0.9], [0.8, 0.2])
    actions = (rng.random(n) > truth[:, 0]).astype(int)
    data = cal.Trajectories(states, actions, np.zeros(n), np.arange(0, n + 1, 5), n_actions=2)
    model = {"blind": np.tile([0.8, 0.2], (n, 1))}
    plain = cal.compare_policies(model, data, k=50, n_states=600, n_draws=20, rng=0)["blind"].measured
    by = np.where(sick, "sick", "well")
    strata = cal.compare_policies(model, data, by=by, k=50, n_states=600, n_draws=20, rng=0)["blind"].measured
    # Over the same states the number has a spread of about 0.06 / sqrt(600).
    assert strata.paper_tv.value == pytest.approx(plain.paper_tv.value, abs=0.02)


# -- the choice --


def test_within_one_standard_error_the_first_is_taken():
    rng = np.random.default_rng(0)
    lengths = np.full(100, 10)
    shared = rng.normal(20, 5, size=100)
    noise = rng.normal(0, 1, size=100)
    noise -= noise.mean()
    # Sums differ by 0.05 with a spread of 1 over 100 trajectories: 0.005 a step, standard error 0.01.
    losses = {"simple": shared + 0.05 + noise, "complex": shared, "bad": shared + 3}
    choice = choose(losses, lengths, {"simple": 0.3, "complex": 0.4, "bad": 0.1})
    assert choice.recommended == "simple"
    assert choice.ranking == ("complex", "simple", "bad")
    assert choice.behind["simple"] == pytest.approx(0.005)
    assert choice.se["simple"] == pytest.approx(np.sqrt((noise**2).sum() * 100 / 99) / 1000)
    assert choice.by_paper == "bad"
    clear = choose(
        losses | {"simple": shared + 1 + noise}, lengths, {"simple": 0.3, "complex": 0.4, "bad": 0.1}
    )
    assert clear.recommended == "complex"


def test_where_every_model_rules_something_out_that_is_said():
    losses = {"a": np.array([np.inf, 1.0, np.inf]), "b": np.array([np.inf, 1.0, 1.0])}
    choice = choose(losses, np.array([1, 1, 1]), {"a": 0.1, "b": 0.2})
    assert choice.ranking == ("b", "a")
    assert "gives probability 0" in choice.reason
    assert choice.recommended == ""
    assert str(choice).startswith("Recommended: none")


def test_a_clean_split_of_a_discrete_log_is_no_overlap():
    # Six trajectories in a hundred have a twin by chance: ids tell that none of them was in the fit.
    data = ward.simulate(400, rng=0)
    first, second = data[:200], data[200:]
    twins = np.mean([digest in set(first.decision_digests) for digest in second.decision_digests])
    assert twins > 0.05
    fitted = fit_behaviour(TabularFrequencies(), first, mode="same")
    assert check_held_out(fitted, second) == ()
    (found,) = check_held_out(fitted, data)
    assert found.numbers["share"] == pytest.approx(0.5)
