"""What is called out of fold has not seen the trajectory, and what is said of a fitted model is so."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, StandardScaler
from sklearn.svm import LinearSVC

import caliope as cal
from caliope.behaviour import (
    LogitNeighbours,
    NeighbourPolicy,
    NetworkPolicy,
    PooledPolicy,
    TabularFrequencies,
    boosting,
    default_model,
    default_models,
    fit_behaviour,
    paper_models,
    stack_history,
)
from caliope.behaviour._ensembles import pool_weights
from caliope.behaviour._fit import fit_model
from caliope.behaviour._networks import hold_out, mean_nll
from caliope.domains import ward


def noise(n=50, length=4, d=3, n_actions=3, seed=0):
    """A log without anything to learn: whoever predicts its actions has seen them."""
    rng = np.random.default_rng(seed)
    steps = n * length
    return cal.Trajectories(
        rng.normal(size=(steps, d)),
        rng.integers(n_actions, size=steps),
        rng.normal(size=steps),
        np.arange(0, steps + 1, length),
        n_actions=n_actions,
    )


def built_again(data, **changes):
    """The same log out of its parts, some of them changed."""
    parts = {
        name: getattr(data, name) for name in ("states", "actions", "rewards", "offsets", "ids")
    } | changes
    return cal.Trajectories(n_actions=data.n_actions, **parts)


# -- which trajectories are known --


@pytest.fixture(scope="module")
def memory():
    """A forest that remembers its log by heart, cross-fitted."""
    return fit_behaviour(RandomForestClassifier(10, random_state=0), noise(), mode="cross", rng=0)


@pytest.mark.parametrize(
    "changed",
    [
        lambda data: built_again(data, rewards=100 * data.rewards),
        lambda data: built_again(data, states=data.states.astype(np.float32)),
        lambda data: built_again(data, ids=[f"patient {i}" for i in range(len(data))]),
    ],
    ids=["rewards in other units", "float32", "other ids"],
)
def test_a_changed_copy_of_the_log_keeps_its_out_of_fold_rows(memory, changed):
    assert np.array_equal(memory.on(changed(memory.data)), memory.probabilities)


def test_of_a_log_with_newcomers_the_known_ones_keep_their_rows(memory):
    data, new = memory.data, noise(60, seed=1)
    both = cal.Trajectories(
        np.concatenate([new.states, data.states]),
        np.concatenate([new.actions, data.actions]),
        np.zeros(440),
        np.arange(0, 441, 4),
        n_actions=3,
    )
    found = memory.on(both)
    assert np.array_equal(found[240:], memory.probabilities)
    assert np.array_equal(found[:240], memory.predict_proba(new.states))


def discrete(n, seed):
    """Two steps, two states, two actions: 16 trajectories are possible, and most are taken many times."""
    rng = np.random.default_rng(seed)
    states, actions = rng.integers(2, size=(2 * n, 1)), rng.integers(2, size=2 * n)
    return cal.Trajectories(states, actions, np.zeros(2 * n), np.arange(0, 2 * n + 1, 2), n_actions=2)


@pytest.fixture(scope="module")
def frequencies():
    return fit_behaviour(TabularFrequencies(shrinkage=None), discrete(400, 0), mode="cross", rng=0)


def rows_of(fitted, trajectories):
    return fitted.probabilities[fitted.data.layout.rows_of(np.asarray(trajectories))]


def test_trajectories_alike_are_told_apart_by_place_and_id(frequencies):
    data = frequencies.data
    assert np.array_equal(
        frequencies.on(built_again(data, rewards=data.rewards + 1)), frequencies.probabilities
    )
    chosen = [5, 3, 9, 5]
    assert np.array_equal(frequencies.on(data[chosen]), rows_of(frequencies, chosen))
    # Everybody in another order, and without a name: of several alike the first is taken for the first.
    shuffled = data[np.random.default_rng(0).permutation(400)]
    nameless = frequencies.on(built_again(shuffled, ids=None))
    assert np.sort(nameless, axis=0) == pytest.approx(np.sort(frequencies.probabilities, axis=0))


@pytest.mark.parametrize("n", [20, 400])
def test_strangers_that_coincide_by_chance_are_predicted(frequencies, n):
    new = discrete(n, 1)
    assert set(new.decision_digests) <= set(frequencies.data.decision_digests)
    assert np.array_equal(frequencies.on(new), frequencies.predict_proba(new.states))


def test_values_still_know_a_log_by_its_rewards():
    data = noise()
    assert built_again(data, rewards=2 * data.rewards).digests != data.digests
    assert built_again(data, states=data.states.astype(np.float32)).digests == data.digests


def test_a_policy_that_is_mixed_in_keeps_its_rows_too(memory):
    data, p = memory.data, memory.probabilities
    behaviour = np.full_like(p, 1 / 3)
    logged = p[np.arange(200), data.actions]
    # (1 - share) + share * p / (1/3)
    ratio = np.exp(cal.gather(data, cal.mix(cal.practice, memory, 0.4), behaviour).log_ratio)
    assert ratio == pytest.approx(0.6 + 0.4 * 3 * logged)
    known = np.exp(cal.gather(data, cal.mix(cal.practice, memory, 0.4), behaviour[:, 0]).log_ratio)
    assert known == pytest.approx(0.6 + 0.4 * 3 * logged)
    best = np.exp(cal.gather(data, cal.GreedyPolicy(memory), behaviour).log_ratio)
    assert best == pytest.approx(3 * (p.argmax(axis=1) == data.actions))
    table = cal._gather.target_probabilities(data, cal.mix(cal.practice, memory, 0.4), behaviour)
    assert table == pytest.approx(0.6 / 3 + 0.4 * p)


# -- who has seen the actions --


@pytest.mark.parametrize("first", [LinearDiscriminantAnalysis(), SelectKBest(k=2)])
def test_a_pipeline_that_has_seen_the_actions_is_refitted_by_folds(first):
    data = noise(d=30)
    model = make_pipeline(StandardScaler(), first, NeighbourPolicy(10, shrinkage=1.0))
    fitted = fit_behaviour(model, data, mode="cross", rng=0)
    expected = np.empty((200, 3))
    for fit, held_out in data.folds(5, rng=0):
        part = fit_model(model, data.states[fit], data.actions[fit], data.layout.owner[fit])
        expected[held_out] = part.predict_proba(data.states[held_out])
    assert np.array_equal(fitted.probabilities, expected)
    assert "cross-fitted in 5 folds" in fitted.note.message


def test_a_pipeline_that_has_seen_the_states_alone_is_taken_at_its_word():
    steps = (
        SimpleImputer(),
        make_pipeline(
            KBinsDiscretizer(3, encode="ordinal", quantile_method="averaged_inverted_cdf"),
            NeighbourPolicy(10, shrinkage=1.0),
        ),
    )
    fitted = fit_behaviour(make_pipeline(*steps), noise(), mode="cross")
    assert np.array_equal(fitted.probabilities, fitted.model[-1][-1].oof_proba_)
    assert "own folds" in fitted.note.message


PRIORS = {
    "the marginal": {},
    "frequencies": {"prior": TabularFrequencies(columns=[0])},
    "a regression": {"prior": LogisticRegression(), "bandwidth": 0.5},
    "neighbours": {"prior": NeighbourPolicy(5, shrinkage=1.0)},
}


@pytest.mark.parametrize("settings", PRIORS.values(), ids=PRIORS)
def test_what_a_trajectory_did_does_not_move_its_own_prediction(settings):
    data = noise(20)
    x, own = data.states.round(), data.layout.owner == 7
    tables = []
    for actions in (data.actions, np.where(own, (data.actions + 1) % 3, data.actions)):
        policy = NeighbourPolicy(10, shrinkage=5.0, **settings).fit(x, actions, groups=data.layout.owner)
        tables.append(policy.oof_proba_[own])
    assert tables[0] == pytest.approx(tables[1], abs=1e-12)


def test_the_marginal_without_the_own_trajectory():
    # Trajectory 0 took action 0, trajectory 1 action 1, trajectory 2 action 0 and 1: without it half and half.
    x, actions, groups = np.zeros((4, 1)), [0, 1, 0, 1], [0, 1, 2, 2]
    policy = NeighbourPolicy(1, shrinkage=1e9).fit(x, actions, groups=groups)
    # Of trajectory 0: one of 3 others is action 0. Of trajectory 1: two of 3. Of trajectory 2: one of 2.
    assert policy.predict_own()[:, 0] == pytest.approx([1 / 3, 2 / 3, 1 / 2, 1 / 2], abs=1e-6)
    assert policy.predict_own("point")[:, 0] == pytest.approx([1 / 3, 2 / 3, 1 / 3, 2 / 3], abs=1e-6)
    assert policy.predict_own("include")[:, 0] == pytest.approx([1 / 2] * 4, abs=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y, g: fit_behaviour(NeighbourPolicy(3), noise(1), mode="cross"),
        lambda x, y, g: NeighbourPolicy(3).fit(x, y, groups=g).oof_proba_,
        lambda x, y, g: NeighbourPolicy(3, shrinkage="cv").fit(x, y, groups=g),
        lambda x, y, g: NeighbourPolicy(3, prior=TabularFrequencies()).fit(x, y, groups=g),
        lambda x, y, g: TabularFrequencies().fit(x, y, groups=g),
    ],
)
def test_one_trajectory_has_no_others(make):
    with pytest.raises(ValueError, match="at least 2"):
        make(np.arange(6.0)[:, None], np.arange(6) % 2, np.zeros(6))


def test_a_regression_that_memorises_does_not_choose_its_own_shrinkage():
    rng = np.random.default_rng(0)
    x, y, groups = rng.normal(size=(300, 80)), rng.integers(3, size=300), np.repeat(np.arange(75), 4)
    model = LogitNeighbours(20, c=1.0).fit(x, y, groups=groups)
    assert model.neighbours_.shrinkage_ >= 100  # nothing to learn
    clear = LogitNeighbours(20).fit(x, (x[:, 0] > 0).astype(int), groups=groups)
    assert clear.neighbours_.shrinkage_ <= 25


# -- who is told the trajectories --


def test_groups_reach_the_end_of_nested_pipelines():
    data = noise()
    inner = make_pipeline(StandardScaler(), NeighbourPolicy(5, shrinkage=1.0))
    flat = fit_behaviour(inner, data, mode="same")
    nested = fit_behaviour(make_pipeline(SimpleImputer(), inner), data, mode="same")
    assert np.array_equal(nested.probabilities, flat.probabilities)
    assert "trajectory of a step does not count" in nested.note.message


def test_a_search_by_groups_is_told_the_groups():
    data = noise(12)
    model = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=GroupKFold(3))
    fitted = fit_behaviour(model, data, mode="same")
    expected = model.fit(data.states, data.actions, groups=data.layout.owner)
    assert np.array_equal(fitted.probabilities, expected.predict_proba(data.states))
    assert "does not accept groups" not in fitted.note.message


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (CalibratedClassifierCV(NeighbourPolicy(5), cv=2), "NeighbourPolicy"),
        (GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=2), "GridSearchCV"),
        (GridSearchCV(NeighbourPolicy(), {"k": [3, 5]}, cv=GroupKFold(2)), "NeighbourPolicy"),
    ],
)
def test_whoever_cannot_be_told_the_trajectories_is_named(model, name):
    fitted = fit_behaviour(model, noise(12), mode="same")
    assert f"{name} does not accept groups, so its own folds may split a trajectory" in fitted.note.message


@pytest.mark.parametrize(
    "model", [LogitNeighbours(5, shrinkage=1.0), PooledPolicy({"near": NeighbourPolicy(5)}, folds=2)]
)
def test_neighbours_inside_another_model_are_said_to_count_the_step_itself(model):
    assert "counts among its own neighbours" in fit_behaviour(model, noise(12), mode="same").note.message


# -- few actions --


def one_action():
    return np.zeros(80, dtype=int)


def two_in_one_trajectory():
    actions = one_action()
    actions[4:7] = 1
    return actions


def one_of_them_once():
    actions = np.arange(80) % 2
    actions[3] = 2
    return actions


def small_default_model():
    members = default_models()
    members["network"].set_params(hidden=(8,), max_epochs=3)
    members["forest"].set_params(n_estimators=10, n_jobs=1)
    model = default_model()
    model[-1].prior.set_params(members=members)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("actions", [one_action, two_in_one_trajectory, one_of_them_once])
def test_the_default_model_needs_no_minimum_of_actions(actions):
    a = actions()
    data = cal.Trajectories(noise(20).states, a, np.zeros(80), np.arange(0, 81, 4))
    fitted = fit_behaviour(small_default_model(), data, mode="cross")
    assert fitted.probabilities.sum(axis=1) == pytest.approx(np.ones(80))
    assert (fitted.probabilities[np.arange(80), a] > 0).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("actions", [one_action, two_in_one_trajectory, one_of_them_once])
def test_every_model_needs_no_minimum_of_actions(actions):
    a = actions()
    data = cal.Trajectories(noise(20).states, a, np.zeros(80), np.arange(0, 81, 4))
    for name, model in {**paper_models(), "boosting": boosting(), "logits": LogitNeighbours(5)}.items():
        if name == "network":
            model[-1].set_params(max_iter=2)
        if name == "forest":
            model.set_params(n_estimators=5, n_jobs=1)
        table = fit_behaviour(model, data, mode="cross").probabilities
        assert table.shape == (80, a.max() + 1), name
        assert table.sum(axis=1) == pytest.approx(np.ones(80)), name


def test_boosting_stops_on_held_out_trajectories():
    data = noise(60)
    model = boosting().fit(data.states, data.actions, groups=data.layout.owner)
    # Nothing to learn: strangers are predicted worse from the first trees on. Rows of the same patients would be too.
    assert model.n_iter_ <= 20
    apart = hold_out(240, data.layout.owner, 0.1, 0)
    first = mean_nll(model.predict_proba(data.states[apart]), data.actions[apart])
    assert -model.validation_score_[-1] == pytest.approx(first, rel=1e-6)


def test_members_that_give_no_probability_weigh_the_same():
    assert pool_weights(np.zeros((5, 2))).tolist() == [0.5, 0.5]


# -- the network --


def test_every_epoch_of_the_network_has_batches_of_its_own(monkeypatch):
    from sklearn.neural_network import MLPClassifier

    orders = []
    train = MLPClassifier._backprop

    def watched(self, X, *args, **kwargs):
        orders.append(X[:, 0].tolist())
        return train(self, X, *args, **kwargs)

    monkeypatch.setattr(MLPClassifier, "_backprop", watched)
    data = noise(10)
    # The first epoch has drawn its weights before; only from the second on could all be alike.
    NetworkPolicy((4,), max_epochs=3, batch_size=64).fit(data.states, data.actions, groups=data.layout.owner)
    assert sorted(orders[1]) == sorted(orders[2])
    assert orders[1] != orders[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_epochs": 0}, "max_epochs must be at least 1"),
        ({"held_out": 1.0}, "must lie between 0 and 1"),
        ({"held_out": -0.5}, "must lie between 0 and 1"),
        ({"learning_rate": 1e6, "max_epochs": 2}, "Lower learning_rate"),
    ],
)
def test_a_network_that_cannot_be_trained_says_why(change, message):
    data = noise(20)
    with pytest.raises(ValueError, match=message):
        NetworkPolicy((4,), **change).fit(data.states, data.actions)
    with pytest.raises(ValueError, match=r"shape \(80,\), got \(5,\)"):
        NetworkPolicy((4,)).fit(data.states, data.actions, groups=np.arange(5))


# -- what may enter --


def test_what_cannot_be_fitted_is_refused_with_a_reason():
    data = noise(4)
    for model, data_, message in [
        (LogisticRegression(), data.states, "data must be Trajectories"),
        (LogisticRegression, data, "the class LogisticRegression"),
        (cal.UniformPolicy(3), data, "needs no fitting to gather directly"),
        (LinearSVC(), data, "LinearSVC has none"),
    ]:
        with pytest.raises(TypeError, match=message):
            fit_behaviour(model, data_, mode="same")
    with pytest.raises(ValueError, match="2 folds, got 4 and 1"):
        fit_behaviour(NeighbourPolicy(3), data, mode="cross", folds=1)
    for calibrator in (cal.behaviour.Temperature, "temperature"):
        with pytest.raises(TypeError, match="calibrator must be an unfitted calibrator"):
            cal.recalibrate(LogisticRegression(), data, calibrator, rng=0)
    for members in ({}, [LogisticRegression()]):
        with pytest.raises(ValueError, match="members must map names"):
            PooledPolicy(members).fit(data.states, data.actions)
    with pytest.raises(ValueError, match="list of whole numbers, got 0"):
        TabularFrequencies(columns=0).fit(data.states, data.actions)
    with pytest.raises(ValueError, match="shrinkage must be a finite number, 0 or more"):
        TabularFrequencies(shrinkage=np.inf).fit(data.states, data.actions)
    with pytest.raises(ValueError, match=r"shape \(16,\), got \(16, 1\)"):
        NeighbourPolicy(3).fit(data.states, data.actions, groups=np.zeros((16, 1)))


def test_history_is_stacked_once_and_from_columns():
    data = ward.simulate(5, rng=0)
    with pytest.raises(ValueError, match="contain earlier steps already"):
        stack_history(stack_history(data, 1), 1)
    with pytest.raises(ValueError, match="one row per action"):
        stack_history(data, 1, action_features=lambda a: a.astype(float))
    with pytest.raises(ValueError, match=r"whole number, 1 or more, got 1\.5"):
        stack_history(data, 1.5)
