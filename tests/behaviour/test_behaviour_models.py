"""The behaviour models: pooling, early stopping, history, fitting modes."""

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import caliope as cal
from caliope.behaviour import NeighbourPolicy, fit_behaviour
from caliope.behaviour._ensembles import (
    LogitNeighbours,
    OrderedExtraTrees,
    OrderedForest,
    PooledPolicy,
    pool_weights,
)
from caliope.behaviour._history import stack_history
from caliope.behaviour._models import boosting, default_models, paper_models
from caliope.behaviour._networks import NetworkPolicy, hold_out, mean_nll
from caliope.domains import ward


@pytest.mark.slow
@parametrize_with_checks(
    [
        NetworkPolicy((8,), max_epochs=30, learning_rate=0.01),
        LogitNeighbours(k=5, c=1.0),
        OrderedForest(5, bootstrap=False),  # with it, weights are not copies: so too in scikit-learn
        OrderedExtraTrees(5),
    ],
)
def test_our_classifiers_keep_the_rules_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def log():
    return ward.simulate(400, rng=0)


# -- forests --


@pytest.mark.parametrize("kind", [OrderedForest, OrderedExtraTrees])
def test_trees_vote_in_their_order_on_any_number_of_cores(kind):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(300, 4)), rng.integers(0, 3, 300)
    model = kind(60, min_samples_leaf=3, random_state=0).fit(x, y)
    votes = np.zeros((300, 3))
    for tree in model.estimators_:
        votes += tree.predict_proba(x)
    for jobs in (None, 1, 2, 3, -1):
        found = model.set_params(n_jobs=jobs).predict_proba(x)
        assert np.array_equal(found, votes / 60)
        assert model.n_jobs == jobs


# -- the pool --


def test_pool_weights_maximise_the_likelihood():
    rng = np.random.default_rng(0)
    logged = rng.uniform(0.05, 1, size=(500, 2))
    w = pool_weights(logged)[0]
    grid = np.linspace(0, 1, 1001)
    best = grid[np.argmax([np.log(g * logged[:, 0] + (1 - g) * logged[:, 1]).sum() for g in grid])]
    assert w == pytest.approx(best, abs=2e-3)


def test_a_useless_member_is_left_out(log):
    pool = PooledPolicy({"good": LogisticRegression(), "blind": DummyClassifier(strategy="uniform")}, folds=3)
    pool.fit(log.states, log.actions, groups=log.layout.owner)
    assert pool.weights_["good"] > 0.9
    assert pool.nll_["pool"] <= pool.nll_["good"] + 1e-9
    assert sum(pool.weights_.values()) == pytest.approx(1)


@pytest.mark.slow
def test_the_pool_predicts_each_trajectory_by_models_that_have_not_seen_it(log):
    members = {"one": LogisticRegression(C=1.0), "two": LogisticRegression(C=0.01)}
    pool = PooledPolicy(members, folds=4, random_state=3).fit(
        log.states, log.actions, groups=log.layout.owner
    )
    fold = np.random.default_rng(3).permutation(np.arange(400) % 4)[log.layout.owner]
    j = fold == 2
    parts = [
        w * LogisticRegression(C=c).fit(log.states[~j], log.actions[~j]).predict_proba(log.states[j])
        for w, c in zip(pool.weights_.values(), (1.0, 0.01), strict=True)
    ]
    assert pool.oof_proba_[j] == pytest.approx(pool.calibrator_(sum(parts)))


def test_an_action_missing_from_a_fold_keeps_its_column():
    # Action 2 occurs in one trajectory only: the models of its fold have never seen it.
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 2)), rng.integers(0, 2, size=60)
    y[0] = 2
    members = {"logistic": LogisticRegression(), "marginal": DummyClassifier(strategy="uniform")}
    pool = PooledPolicy(members, folds=3).fit(x, y)
    assert pool.oof_proba_.sum(axis=1) == pytest.approx(np.ones(60))
    assert pool.oof_proba_[0, 2] > 0  # a share of the marginal: the action was taken, so it has a probability
    data = cal.Trajectories(x, y, np.zeros(60), np.arange(61))
    fitted = fit_behaviour(LogisticRegression(), data, mode="cross", folds=3, rng=0)
    assert fitted.probabilities.shape == (60, 3)
    assert fitted.probabilities.sum(axis=1) == pytest.approx(np.ones(60))
    assert fitted.probabilities[0, 2] == 0
    with pytest.raises(cal.SupportError, match="1 of 60 logged actions"):
        cal.gather(data, np.full((60, 3), 1 / 3), fitted)


# -- the network --


def test_the_network_keeps_the_epoch_that_predicts_strangers_best(log):
    network = NetworkPolicy((16,), max_epochs=40, learning_rate=0.02, patience=4).fit(
        log.states, log.actions, groups=log.layout.owner
    )
    apart = hold_out(log.n_steps, log.layout.owner, 0.15, 0)
    held = mean_nll(network.predict_proba(log.states[apart]), log.actions[apart])
    assert held == pytest.approx(min(network.losses_))
    assert len(network.losses_) <= 40


def test_a_share_of_the_groups_is_held_out_and_never_parted():
    groups = np.repeat(np.arange(20), 5)
    apart = hold_out(100, groups, 0.25, 0)
    assert apart.sum() == 25
    assert set(groups[apart]).isdisjoint(groups[~apart])
    assert hold_out(3, None, 0.01, 0).sum() == 1
    assert hold_out(3, None, 0.99, 0).sum() == 2


@pytest.mark.slow
def test_on_the_ward_every_default_model_comes_close_to_the_truth(log):
    truth = ward.PRACTICE[log.states[:, 0].astype(int)]
    for name, model in {**default_models(), "boosting": boosting()}.items():
        fitted = fit_behaviour(model, log, mode="same")
        apart = 0.5 * np.abs(fitted.probabilities - truth).sum(axis=1).mean()
        assert apart < 0.12, name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_models_of_the_paper_fit_and_predict(log):
    for name, model in paper_models().items():
        table = fit_behaviour(model, log[:150], mode="same").probabilities
        assert table.sum(axis=1) == pytest.approx(np.ones(len(table))), name


# -- fitting modes --


def test_same_mode_predicts_the_log_with_the_model_fitted_on_it(log):
    fitted = fit_behaviour(LogisticRegression(), log, mode="same")
    expected = LogisticRegression().fit(log.states, log.actions).predict_proba(log.states)
    assert fitted.probabilities == pytest.approx(expected)
    assert "same trajectories" in fitted.note.message


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrap", [lambda m: m, lambda m: make_pipeline(StandardScaler(), m)], ids=["alone", "pipeline"]
)
def test_neighbours_leave_out_their_own_trajectory_and_say_so(log, wrap):
    fitted = fit_behaviour(wrap(NeighbourPolicy(30)), log, mode="same")
    assert "trajectory of a step does not count" in fitted.note.message
    inner = fitted.model[-1] if hasattr(fitted.model, "steps") else fitted.model
    assert np.array_equal(inner.groups_, log.layout.owner)
    assert fitted.probabilities == pytest.approx(inner.predict_own("trajectory"))
    included = fit_behaviour(wrap(NeighbourPolicy(30, own="include")), log, mode="same")
    assert "counts among its own neighbours" in included.note.message


@pytest.mark.slow
def test_cross_mode_of_a_pool_uses_what_it_has_cross_fitted(log):
    pool = PooledPolicy({"a": LogisticRegression(), "b": LogisticRegression(C=0.01)}, folds=3)
    fitted = fit_behaviour(pool, log, mode="cross")
    assert fitted.probabilities == pytest.approx(fitted.model.oof_proba_)


def test_an_unknown_mode_is_refused(log):
    with pytest.raises(ValueError, match="'same' or 'cross', got 'both'"):
        fit_behaviour(LogisticRegression(), log, mode="both")


def test_another_log_is_predicted_afresh(log):
    fitted = fit_behaviour(LogisticRegression(), log, mode="cross", rng=0)
    other = ward.simulate(10, rng=5)
    assert fitted.on(other) == pytest.approx(fitted.predict_proba(other.states))


# -- history --


def test_history_is_the_loop_over_steps():
    rng = np.random.default_rng(0)
    offsets = np.cumsum([0, 3, 1, 5])
    data = cal.Trajectories(
        rng.normal(size=(9, 2)), rng.integers(0, 25, size=9), np.zeros(9), offsets, n_actions=25
    )
    found = stack_history(data, 2, action_features=lambda a: np.stack([a // 5, a % 5], axis=1))
    for i in range(3):
        for row in range(offsets[i], offsets[i + 1]):
            expected = list(data.states[row])
            for lag in (1, 2):
                before = row - lag
                if before >= offsets[i]:
                    a = data.actions[before]
                    expected += [*data.states[before], a // 5, a % 5]
                else:
                    expected += [*data.states[offsets[i]], 0, 0]
            assert found.states[row] == pytest.approx(expected)
    assert found.feature_names[2:6] == ("x0_lag1", "x1_lag1", "action0_lag1", "action1_lag1")


def test_the_paper_has_198_features():
    data = cal.Trajectories(np.zeros((4, 48)), [0, 1, 2, 24], np.zeros(4), [0, 4], n_actions=25)
    assert stack_history(
        data, 3, action_features=lambda a: np.stack([a // 5, a % 5], axis=1)
    ).states.shape == (4, 198)
