"""The log tests the behaviour model: right ones pass, wrong ones are named."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope.checks import _log as balance
from caliope.domains import ward

TARGET = cal.TabularPolicy(ward.EARLIER)


def codes(evidence):
    return {note.code: note.level for note in evidence.notes}


@pytest.mark.slow
def test_a_model_that_is_right_passes():
    alarms = 0
    for seed in range(40):
        data = ward.simulate(500, rng=seed)
        evidence = cal.gather(data, TARGET, LogisticRegression().fit(data.states, data.actions))
        alarms += bool(codes(evidence))
    assert alarms <= 1  # each test at level 0.001 over all its comparisons


def test_the_true_policy_passes_in_twenty_seeds():
    for seed in range(20):
        data = ward.simulate(400, rng=100 + seed)
        assert codes(cal.gather(data, TARGET, cal.TabularPolicy(ward.PRACTICE))) == {}


def test_a_policy_that_changes_with_time_is_noticed():
    rng = np.random.default_rng(0)
    actions = (rng.random((500, 2)) < [0.2, 0.8]).astype(int).ravel()
    data = cal.Trajectories(rng.normal(size=(1000, 1)), actions, np.zeros(1000), np.arange(501) * 2)
    model = LogisticRegression().fit(data.states, data.actions)
    evidence = cal.gather(data, np.full((1000, 2), 0.5), model)
    assert codes(evidence)["B104"] == "issue"
    assert "at late steps" in evidence.notes[0].message


def test_a_curved_policy_fitted_by_a_line_is_noticed():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 1))
    actions = (rng.random(2000) < np.where(np.abs(x[:, 0]) > 1, 0.8, 0.2)).astype(int)
    data = cal.Trajectories(x, actions, np.zeros(2000), np.arange(2001), feature_names=["lactate"])
    evidence = cal.gather(data, np.full((2000, 2), 0.5), LogisticRegression().fit(x, actions))
    assert codes(evidence)["B104"] == "issue"
    assert "where lactate is far from its mean" in evidence.notes[0].message


@pytest.mark.slow
def test_a_model_that_has_memorised_the_log_is_noticed():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 2))
    actions = (rng.random(800) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    data = cal.Trajectories(x, actions, np.zeros(800), np.arange(801))
    behaviour = cal.fit_behaviour(RandomForestClassifier(50, random_state=0), data, mode="same")
    assert codes(cal.gather(data, cal.practice, behaviour))["B105"] == "issue"
    crossed = cal.fit_behaviour(
        RandomForestClassifier(50, min_samples_leaf=30, random_state=0), data, mode="cross", rng=0
    )
    assert "B105" not in codes(cal.gather(data, cal.practice, crossed))


def test_a_feature_that_gives_the_action_away_is_noticed():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, size=600)
    x = np.stack([rng.normal(size=600), 10.0 * actions], axis=1)
    data = cal.Trajectories(x, actions, np.zeros(600), np.arange(601))
    evidence = cal.gather(data, cal.practice, LogisticRegression(C=100).fit(x, actions))
    assert codes(evidence)["B106"] == "issue"


def test_the_errors_of_one_trajectory_count_once():
    # 30 trajectories of 40 equal steps: 1200 rows, but only 30 coins were tossed.
    rng, alarms = np.random.default_rng(0), 0
    for _ in range(50):
        actions = np.repeat(rng.integers(0, 2, size=30), 40)
        data = cal.Trajectories(np.zeros((1200, 1)), actions, np.zeros(1200), np.arange(31) * 40)
        found = {f.code for f in balance.behaviour_findings(data, np.arange(1200), np.full((1200, 2), 0.5))}
        alarms += bool(found - {"B107"})
        assert "B107" in found  # each action repeats the one before
    assert alarms == 0


def test_logged_probabilities_of_one_leave_no_support_for_the_rest():
    # In every tenth state only action 0 was ever possible; the target takes action 1 there.
    n = 1000
    forced = np.arange(n) % 10 == 0
    actions = np.where(forced, 0, np.arange(n) % 2)
    data = cal.Trajectories(forced[:, None].astype(float), actions, np.zeros(n), np.arange(n + 1))
    target = np.where(forced[:, None], [[0.1, 0.9]], [[0.5, 0.5]])
    (note,) = cal.gather(data, target, np.where(forced, 1.0, 0.5)).notes
    assert note.code == "S101"
    assert note.numbers["mass"] == pytest.approx(0.09)  # 0.9 in a tenth of the steps


def test_cross_fitted_probabilities_follow_the_trajectories_into_selections_and_mixtures():
    from sklearn.dummy import DummyClassifier

    data = ward.simulate(100, rng=0)
    fitted = cal.fit_behaviour(LogisticRegression(), data, mode="cross", rng=0)
    half = data[np.arange(0, 100, 2)]
    rows = data.layout.rows_of(np.arange(0, 100, 2))
    assert np.array_equal(fitted.on(half), fitted.probabilities[rows])
    other = DummyClassifier(strategy="prior").fit(data.states, data.actions)
    mixed = cal.mix(fitted, other, 0.05)
    assert mixed.on(data) == pytest.approx(
        0.95 * fitted.probabilities + 0.05 * other.predict_proba(data.states)
    )
    assert "B102" in codes(cal.gather(data, TARGET, mixed))


def test_a_model_fitted_on_features_in_another_order_gets_them_by_name():
    import pandas as pd

    frame = pd.DataFrame({"sofa": [1.0, 2.0, 3.0, 4.0], "lactate": [0.0, 1.0, 0.0, 1.0]})
    data = cal.Trajectories(
        frame.to_numpy(), [0, 1, 0, 1], np.zeros(4), np.arange(5), feature_names=["sofa", "lactate"]
    )
    model = LogisticRegression().fit(frame[["lactate", "sofa"]], [0, 1, 0, 1])
    found = cal.gather(data, np.full((4, 2), 0.5), model)
    right = model.predict_proba(frame[["lactate", "sofa"]])[np.arange(4), data.actions]
    assert found.rho == pytest.approx(0.5 / right)
    other = LogisticRegression().fit(frame.rename(columns={"sofa": "age"}), [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"was fitted on the features .*'age' is not there"):
        cal.gather(data, np.full((4, 2), 0.5), other)
