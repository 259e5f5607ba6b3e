"""Recalibration: planted errors are found, nothing gets worse, zeros and rare actions keep their columns."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import caliope as cal
from caliope.behaviour import (
    Chain,
    Isotonic,
    Recalibrated,
    Shrinkage,
    Temperature,
    VectorScaling,
    recalibrate,
    recalibrate_fitted,
)
from caliope.domains import ward

CALIBRATORS = [Temperature(), VectorScaling(), Shrinkage(), Isotonic(), Chain((Shrinkage(), Temperature()))]
NAMES = ["temperature", "vector", "shrinkage", "isotonic", "chain"]
every_calibrator = pytest.mark.parametrize("calibrator", CALIBRATORS, ids=NAMES)


def draw(p, rng):
    """One action a row, with the probabilities of the row."""
    return (p.cumsum(axis=1) < rng.random(len(p))[:, None]).sum(axis=1).clip(max=p.shape[1] - 1)


def planted(n, n_actions, seed=0, sharpness=2.0):
    """True probabilities, predictions too sharp by a power, and actions drawn from the truth."""
    rng = np.random.default_rng(seed)
    truth = np.exp(rng.normal(size=(n, n_actions)))
    truth /= truth.sum(axis=1, keepdims=True)
    wrong = truth**sharpness / (truth**sharpness).sum(axis=1, keepdims=True)
    return truth, wrong, draw(truth, rng)


def nll(p, actions):
    with np.errstate(divide="ignore"):
        return -np.log(p[np.arange(len(p)), actions]).mean()


class Sharpened(ClassifierMixin, BaseEstimator):
    """A logistic regression that is too sure of itself by a known power."""

    def __init__(self, power=2.0):
        self.power = power

    def fit(self, X, y):
        self.model_ = LogisticRegression(C=100.0).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X):
        p = self.model_.predict_proba(X) ** self.power
        return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("sharpness", [0.5, 2.0, 3.0])
def test_a_planted_temperature_is_recovered_within_five_per_cent(sharpness):
    truth, wrong, actions = planted(20_000, 5, sharpness=sharpness)
    # Fisher information of log T: N Var(log pi) under the truth, so that this is the relative standard error.
    mean = (truth * np.log(truth)).sum(axis=1)
    error = 1 / np.sqrt(((truth * np.log(truth) ** 2).sum(axis=1) - mean**2).sum())
    assert 4 * error < 0.05
    fitted = Temperature().fit(wrong, actions)
    assert fitted.temperature == pytest.approx(sharpness, rel=4 * error)
    assert np.abs(fitted(wrong) - truth).max() < 0.05


@pytest.mark.slow
def test_a_planted_temperature_is_recovered_through_the_folds():
    # The ward's practice is a softmax linear in severity: the regression is right, its square too sharp by 2.
    behaviour = recalibrate(Sharpened(2.0), ward.simulate(3000, rng=0), Temperature(), rng=1)
    assert behaviour.calibrator.temperature == pytest.approx(2, rel=0.05)


def test_temperature_agrees_with_scikit_learn():
    data = ward.simulate(400, rng=0)
    ours = recalibrate(GaussianNB(), data, Temperature(), folds=4, rng=1)
    theirs = CalibratedClassifierCV(
        GaussianNB(), method="temperature", cv=data.folds(4, rng=1), ensemble=False
    ).fit(data.states, data.actions)
    inverse = theirs.calibrated_classifiers_[0].calibrators[0].beta_
    assert ours.calibrator.temperature == pytest.approx(1 / inverse, rel=1e-5)
    assert ours.predict_proba(data.states) == pytest.approx(theirs.predict_proba(data.states), abs=1e-5)


def test_a_model_that_memorises_is_blunted_since_it_is_judged_on_strangers():
    data = ward.simulate(300, rng=0)
    noise = np.random.default_rng(0).normal(size=(data.n_steps, 3))
    data = cal.Trajectories(noise, data.actions, data.rewards, data.offsets)
    tree = DecisionTreeClassifier(min_samples_leaf=3, random_state=0)
    memory = recalibrate(tree, data, Chain((Shrinkage(), Temperature())), rng=0)
    marginal = np.bincount(data.actions) / data.n_steps
    # Nothing can be learnt from noise: what is left of the tree is nearly the marginal.
    assert nll(memory.probabilities, data.actions) == pytest.approx(-(marginal @ np.log(marginal)), abs=0.02)


@pytest.mark.slow
def test_vector_scaling_recovers_planted_weights_and_biases():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1.0, 1.0, 1.0], size=80_000)
    weights, biases = np.array([0.5, 1.0, 2.0]), np.array([0.4, 0.0, -0.4])
    truth = p**weights * np.exp(biases)
    truth /= truth.sum(axis=1, keepdims=True)
    fitted = VectorScaling().fit(p, draw(truth, rng))
    # Biases count up to a common shift. Over twelve seeds of 20,000 steps the standard deviation was at most 0.056;
    # with four times as many it is half of that, and this is four of them.
    assert fitted.weights == pytest.approx(weights, abs=0.112)
    assert np.diff(fitted.biases) == pytest.approx(np.diff(biases), abs=0.112)


def test_vector_scaling_ends_where_no_single_number_can_be_improved():
    _, wrong, actions = planted(300, 4)

    def objective(weights, biases):
        total = 0.0
        for row, a in zip(wrong, actions, strict=True):
            scaled = [np.exp(b) * x**w for x, w, b in zip(row, weights, biases, strict=True)]
            total -= np.log(scaled[a] / sum(scaled))
        return total + 0.5 * (((weights - 1) ** 2).sum() + (biases**2).sum())

    fitted = VectorScaling(ridge=1.0).fit(wrong, actions)
    best = objective(fitted.weights, fitted.biases)
    for step in 0.01 * np.concatenate([np.eye(4), -np.eye(4)]):
        assert objective(fitted.weights + step, fitted.biases) > best
        assert objective(fitted.weights, fitted.biases + step) > best


def test_shrinkage_finds_the_share_of_noise():
    # A share of 0.3 of the actions came from the marginal, whatever was predicted.
    rng = np.random.default_rng(0)
    p = rng.dirichlet([0.3, 0.3, 0.3], size=20_000)
    fitted = Shrinkage().fit(p, draw(0.7 * p + 0.3 / 3, rng))
    # Standard deviation over twelve seeds: 0.007.
    assert fitted.share == pytest.approx(0.3, abs=0.03)
    assert fitted.marginal == pytest.approx([1 / 3] * 3, abs=0.02)


def test_isotonic_weights_by_hand():
    p = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    taken = np.array([0, 0, 1, 0, 1, 1])
    fitted = Isotonic().fit(np.stack([1 - p, p], axis=1), taken)
    # Action 1: 0.1 and 0.2 nobody; 0.3 and 0.4 pool to 1/2; then 1, 1. The level 0 is raised to the lowest, 1/2.
    levels = fitted.logged(np.stack([1 - p, p], axis=1), np.ones(6, dtype=int))
    assert levels == pytest.approx([0.5, 0.5, 0.5, 0.5, 1, 1])
    # Between the points the function is a step, beyond them constant.
    assert fitted.logged([[0.55, 0.45], [0.99, 0.01]], [1, 1]) == pytest.approx([0.5, 0.5])


def level_sets(p, hit):
    """Rows of each level of isotonic regression, by scikit-learn's own estimator."""
    level = IsotonicRegression().fit_transform(p, hit.astype(float))
    return [np.flatnonzero(np.isclose(level, value, rtol=1e-9)) for value in np.unique(level.round(12))]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ties", [False, True])
def test_isotonic_weights_balance_exactly_in_every_level_set(seed, ties):
    _, p, actions = planted(800, 5, seed=seed)
    if ties:  # ten distinct values an action, as from neighbours
        p = np.ceil(10 * p) / np.ceil(10 * p).sum(axis=1, keepdims=True)
    fitted = Isotonic().fit(p, actions)
    weight = 1 / fitted.logged(p, actions)
    for a in range(5):
        held = [rows for rows in level_sets(p[:, a], actions == a) if (actions[rows] == a).any()]
        assert len(held) > 2
        for rows in held:
            assert weight[rows][actions[rows] == a].sum() == pytest.approx(len(rows), rel=1e-9)


def test_scaling_the_rows_would_break_the_balance():
    _, p, actions = planted(800, 5)
    fitted = Isotonic().fit(p, actions)
    scaled = Isotonic(1.0, fitted.steps)(p)
    off = [
        abs((1 / scaled[rows, a])[actions[rows] == a].sum() / len(rows) - 1)
        for a in range(5)
        for rows in level_sets(p[:, a], actions == a)
        if (actions[rows] == a).any()
    ]
    assert max(off) > 0.02


def test_isotonic_does_not_follow_a_floor_that_costs_likelihood():
    # A hundred states where action 1 is never taken and hardly expected, ten where it is an even chance. The floor
    # would say 1/2 in all of them: 100 log(3/2) nats worse than the predictions.
    p = np.repeat([1e-9, 0.5], [100, 10])
    actions = np.array([0] * 100 + [0, 1] * 5)
    table = np.stack([1 - p, p], axis=1)
    fitted = Isotonic().fit(table, actions)
    assert nll(Isotonic(1.0, fitted.steps)(table), actions) > nll(table, actions) + 0.3
    assert fitted.share == pytest.approx(0, abs=1e-6)
    assert nll(fitted(table), actions) <= nll(table, actions)


@pytest.mark.slow
@every_calibrator
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    n_actions=st.sampled_from([1, 2, 5, 100]),
    sharpness=st.sampled_from([0.2, 1.0, 5.0]),
)
def test_no_calibrator_raises_the_nll_of_what_it_was_fitted_on(calibrator, seed, n, n_actions, sharpness):
    _, p, actions = planted(n, n_actions, seed=seed, sharpness=sharpness)
    table = calibrator.fit(p, actions)(p)
    assert table.shape == p.shape
    assert table.sum(axis=1) == pytest.approx(np.ones(n))
    assert (table >= 0).all()
    assert nll(table, actions) <= nll(p, actions) + 1e-9  # rounding


@pytest.mark.parametrize("calibrator", [Shrinkage(), Isotonic(), Chain((Shrinkage(), VectorScaling()))])
@pytest.mark.parametrize("seed", range(5))
def test_predictions_with_zeros_at_logged_actions_become_possible(calibrator, seed):
    rng = np.random.default_rng(seed)
    p = rng.multinomial(5, [0.1, 0.2, 0.3, 0.4], size=200) / 5  # five neighbours
    actions = draw(np.broadcast_to([0.1, 0.2, 0.3, 0.4], p.shape), rng)
    assert nll(p, actions) == np.inf
    assert nll(calibrator.fit(p, actions)(p), actions) < 2


@pytest.mark.parametrize("calibrator", [Temperature(), VectorScaling()])
def test_scaling_refuses_a_zero_at_a_logged_action_and_says_what_to_do(calibrator):
    with pytest.raises(cal.SupportError, match=r"probability 0 to 1 of 2 .*action 1 in row 1.*Shrinkage"):
        calibrator.fit([[0.5, 0.5], [1.0, 0.0]], [0, 1])


@pytest.mark.parametrize("calibrator", [Temperature(), VectorScaling()])
def test_scaling_keeps_exact_zeros_elsewhere(calibrator):
    _, p, actions = planted(500, 4)
    p = np.where((p == p.min(axis=1, keepdims=True)) & (np.arange(4) != actions[:, None]), 0, p)
    p /= p.sum(axis=1, keepdims=True)
    assert np.array_equal(calibrator.fit(p, actions)(p) == 0, p == 0)


def small_log(actions, n_actions, seed=0):
    """Five trajectories of equal length with two features that tell a little."""
    rng = np.random.default_rng(seed)
    actions = np.asarray(actions)
    states = rng.normal(size=(len(actions), 2)) + 0.1 * actions[:, None]
    offsets = np.arange(6) * (len(actions) // 5)
    return cal.Trajectories(states, actions, np.zeros(len(actions)), offsets, n_actions=n_actions)


CASES = {
    "one never taken": small_log([0, 2, 3] * 20, 4),
    "the last never taken": small_log([0, 1, 2] * 20, 4),
    "two actions": small_log([0, 1] * 30, 2),
    "a hundred actions": small_log(list(range(100)) * 5, 100),
}


def check_columns(behaviour, data):
    taken = np.bincount(data.actions, minlength=data.n_actions) > 0
    assert behaviour.classes_.tolist() == list(range(data.n_actions))
    for table in (behaviour.on(data), behaviour.predict_proba(data.states)):
        assert table.shape == (data.n_steps, data.n_actions)
        assert table.sum(axis=1) == pytest.approx(np.ones(data.n_steps))
        assert (table[:, ~taken] == 0).all()
        assert (table[:, taken].max(axis=0) > 0).all()
    assert (behaviour.on(data)[np.arange(data.n_steps), data.actions] > 0).all()


@pytest.mark.slow
@every_calibrator
@pytest.mark.parametrize("case", CASES)
def test_every_action_keeps_its_column_and_every_row_sums_to_one(calibrator, case):
    check_columns(recalibrate(GaussianNB(var_smoothing=1.0), CASES[case], calibrator, rng=0), CASES[case])


@every_calibrator
def test_an_action_of_a_single_fold_is_never_lost(calibrator):
    data = small_log([1, 1, 1] + [0, 2] * 26, 3)  # action 1 in the first trajectory only
    model = GaussianNB(var_smoothing=1.0)
    if isinstance(calibrator, Temperature | VectorScaling):  # predicted 0 by models that have never seen it
        with pytest.raises(cal.SupportError, match="probability 0 to 3 of 55"):
            recalibrate(model, data, calibrator, rng=0)
    check_columns(recalibrate(model, data, Chain((Shrinkage(), calibrator)), rng=0), data)


@every_calibrator
def test_a_fitted_model_is_wrapped_and_learns_of_actions_that_it_never_saw(calibrator):
    model = GaussianNB(var_smoothing=1.0).fit([[0.0], [1.0], [0.2], [0.9]], [0, 2, 0, 2])
    held_out = cal.Trajectories([[0.1], [0.8], [0.5]], [0, 2, 0], np.zeros(3), [0, 2, 3], n_actions=3)
    wrapped = recalibrate_fitted(model, held_out, calibrator)
    assert cal.action_probabilities(wrapped, [[0.3]], 3).sum() == pytest.approx(1)
    assert wrapped.predict_proba([[0.3]])[0, 1] == 0
    surprise = cal.Trajectories([[0.1], [0.8], [0.5]], [0, 2, 1], np.zeros(3), [0, 2, 3])
    repaired = recalibrate_fitted(model, surprise, Chain((Shrinkage(), calibrator)))
    assert repaired.predict_proba([[0.3]])[0, 1] > 0


def test_the_log_itself_is_weighed_by_recalibrated_out_of_fold_probabilities():
    data, others = ward.simulate(300, rng=0), ward.simulate(20, rng=1)
    behaviour = recalibrate(GaussianNB(), data, Temperature(), folds=4, rng=1)
    crossed = cal.fit_behaviour(GaussianNB(), data, mode="cross", folds=4, rng=1)
    assert np.array_equal(behaviour.predictions, crossed.probabilities)
    # Each fold by a temperature of the others, and none by its own.
    for fit, held_out in data.folds(4, rng=1):
        p, actions = crossed.probabilities, data.actions
        by_hand = Temperature().fit(p[fit], actions[fit])(p[held_out])
        assert np.array_equal(behaviour.on(data)[held_out], by_hand)
    assert behaviour.calibrator.temperature == Temperature().fit(p, actions).temperature
    assert behaviour.on(others) == pytest.approx(
        behaviour.calibrator(GaussianNB().fit(data.states, data.actions).predict_proba(others.states))
    )
    target = cal.TabularPolicy(ward.EARLIER)
    evidence = cal.gather(data, target, behaviour)
    assert np.array_equal(evidence.log_ratio, cal.gather(data, target, behaviour.on(data)).log_ratio)
    assert not evidence.behaviour_known
    (note,) = evidence.notes
    assert note.code == "B103"
    assert "temperature" in note.message
    assert "cross-fitted" in note.message
    assert note.numbers["nll_after"] <= note.numbers["nll_before"]


def test_isotonic_weights_reach_the_evidence_unscaled():
    data = ward.simulate(300, rng=0)
    behaviour = recalibrate(LogisticRegression(), data, Isotonic(), rng=1)
    logged = behaviour.calibrator.logged(behaviour.predictions, data.actions)
    ones = np.ones((data.n_steps, data.n_actions)) / data.n_actions
    evidence = cal.gather(data, ones, logged, behaviour_known=False)
    # Summed over all level sets of an action the weights of the log balance: 1 / m_a sums to the rows whose level
    # holds an a, at most all N, and so the mean of the uniform target's ratios is at most 1.
    ratios = np.exp(evidence.log_ratio)
    assert 0.9 < ratios.mean() <= 1 + 1e-12


@every_calibrator
def test_what_has_not_been_fitted_refuses_to_answer(calibrator):
    with pytest.raises(NotFittedError, match=r"has not been fitted: call fit\(probabilities, actions\)"):
        Recalibrated(cal.UniformPolicy(3), calibrator, 3).predict_proba([[0.0]])


@every_calibrator
@pytest.mark.parametrize(
    ("p", "actions", "message"),
    [
        ([[0.5, 0.6]], [0], "sum to 1"),
        ([0.5, 0.5], [0, 1], r"shape \(N, A\)"),
        ([[0.5, 0.5]], [2], "whole numbers from 0 to 1"),
        ([[0.5, 0.5]], [0.0], "whole numbers"),
        ([[0.5, 0.5]], [0, 1], "one per row"),
        (np.empty((0, 2)), np.empty(0, dtype=int), "at least one"),
    ],
)
def test_bad_input_yields_no_number(calibrator, p, actions, message):
    with pytest.raises(ValueError, match=message):
        calibrator.fit(p, actions)


@pytest.mark.parametrize("calibrator", [VectorScaling(), Shrinkage(), Isotonic()])
def test_a_calibrator_of_two_actions_refuses_three(calibrator):
    fitted = calibrator.fit([[0.5, 0.5], [0.4, 0.6]], [0, 1])
    with pytest.raises(ValueError, match=r"shape \(N, 2\), one column per action, got \(1, 3\)"):
        fitted([[0.2, 0.3, 0.5]])


@pytest.mark.parametrize("ridge", [-1.0, np.inf, np.nan])
def test_a_ridge_without_meaning_is_refused(ridge):
    with pytest.raises(ValueError, match="ridge must be a finite number, 0 or more"):
        VectorScaling(ridge=ridge).fit([[0.5, 0.5]], [0])


@pytest.mark.parametrize("share", [-0.1, 2.0, np.nan])
def test_a_share_without_meaning_is_refused(share):
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\]"):
        Shrinkage(share, np.array([0.5, 0.5]))


@pytest.mark.parametrize("rare", [1e-17, 1e-300])
def test_no_temperature_sends_a_logged_action_to_zero(rare):
    # Action 0 always: all but one row ask for the lowest temperature, 1/20, at which 1e-17 becomes 1e-340, which is 0.
    p = np.tile([0.55, 0.45], (20_000, 1))
    p[0] = [rare, 1 - rare]
    assert Temperature().fit(p, np.zeros(20_000, dtype=int))(p)[0, 0] > 0


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.inf, np.nan, "2"])
def test_a_temperature_without_meaning_is_refused(temperature):
    with pytest.raises(ValueError, match="positive and finite"):
        Temperature(temperature)


def test_an_action_that_one_fold_alone_holds_is_not_ruled_out():
    rng = np.random.default_rng(0)
    actions = np.r_[rng.integers(0, 2, 59), 2]
    data = cal.Trajectories(rng.normal(size=(60, 1)), actions, np.zeros(60), np.arange(61))
    behaviour = recalibrate(GaussianNB(), data, Shrinkage(), folds=3, rng=0)
    assert behaviour.probabilities[59, 2] == behaviour.calibrator(behaviour.predictions)[59, 2] > 0
