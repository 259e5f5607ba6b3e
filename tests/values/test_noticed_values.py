"""Fitted values: what no other test would show to be wrong."""

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LinearRegression

import caliope as cal
from caliope.domains import ward
from caliope.values import TabularRegressor, _linear, _regression, fitted_q, linear_value, more_robust_q
from caliope.values._defaults import _ROUNDS, AveragedValues, fit_values_by_fold, needs_time
from caliope.values._fqe import Iteration, _warn_if_diverged
from caliope.values._regression import ActionAsFeature

EARLIER = cal.TabularPolicy(ward.EARLIER)


def log_of(lengths, *, terminated=None, seed=0, **more):
    rng, n = np.random.default_rng(seed), int(np.sum(lengths))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return cal.Trajectories(
        rng.integers(3, size=(n, 1)),
        rng.integers(2, size=n),
        rng.random(n),
        offsets,
        terminated=terminated,
        n_actions=2,
        **more,
    )


@pytest.mark.parametrize(
    ("steps", "by_time"), [(1, False), (2, True), (_ROUNDS, True), (_ROUNDS + 1, False), (3 * _ROUNDS, True)]
)
def test_values_are_fitted_by_step_where_many_trajectories_reach_the_cap(steps, by_time):
    assert needs_time(log_of([steps] * 20)) == by_time


def test_a_policy_given_as_probabilities_has_no_values_of_states():
    data = log_of([2] * 20)
    given = fitted_q(data, np.full((40, 2), 0.5), TabularRegressor(), gamma=0.9, n_iterations=2)
    with pytest.raises(TypeError, match="v needs a target policy"):
        given.v(data.states)
    even = cal.TabularPolicy(np.full((3, 2), 0.5))
    named = fitted_q(data, even, TabularRegressor(), gamma=0.9, n_iterations=2)
    assert named.v(data.states) == pytest.approx(named.q_all(data.states).mean(axis=1))


@pytest.mark.parametrize(("largest", "ahead", "diverges"), [(2.1, 0, True), (1.9, 0, False), (2.1, 1, False)])
def test_a_round_diverges_that_doubles_the_largest_possible_return(largest, ahead, diverges):
    """Rewards of at most 1: after one round no value exceeds 1; starting from returns of one step, 2."""
    data = cal.Trajectories(np.zeros((2, 1)), [0, 1], [1.0, -1.0], [0, 1, 2])
    trace = (Iteration(1, 0.5, 0.0, largest),)
    if diverges:
        with pytest.warns(cal.CaliopeWarning, match="after 1 iterations the largest value is 2.1"):
            assert _warn_if_diverged(trace, data, 1.0)
    else:
        assert not _warn_if_diverged(trace, data, 1.0, ahead=ahead)


def test_values_that_diverged_are_an_issue_with_their_size():
    """One state whose value is fitted by a line through 0 and 1: it doubles in every round."""
    data = cal.Trajectories(
        np.array([[1.0], [2.0]] * 20),
        np.zeros(40, int),
        [1.0, 1.0] * 20,
        np.arange(0, 41, 2),
        terminated=[False] * 20,
    )
    slope = LinearRegression(fit_intercept=False)
    with pytest.warns(cal.CaliopeWarning, match="fitted Q diverges"):
        found = fitted_q(data, np.ones((40, 1)), slope, gamma=1.0, n_iterations=30)
    (finding,) = found.check_convergence()
    assert (finding.code, finding.level) == ("V103", "issue")
    assert finding.numbers["largest"] == pytest.approx(found.trace[-1].largest)


def test_the_interval_of_a_linear_value_of_one_action_is_that_of_a_mean():
    """One decision, one action, one state: the value is the mean reward, and Student's interval its own."""
    rewards = np.random.default_rng(0).exponential(size=12)
    data = cal.Trajectories(np.zeros((12, 1)), np.zeros(12, int), rewards, np.arange(13))
    found = linear_value(data, np.ones((12, 1)), gamma=1.0, level=0.9)
    low, high = stats.t.interval(0.9, 11, rewards.mean(), stats.sem(rewards))
    assert found.value == pytest.approx(rewards.mean())
    assert [found.interval.low, found.interval.high] == pytest.approx([low, high])


@pytest.mark.parametrize(("lengths", "how"), [([2] * 20, "by step"), ([1] * 20, "1 rounds")])
def test_values_by_fold_say_how_they_were_fitted(lengths, how):
    data, n = log_of(lengths), sum(lengths)
    _, text = fit_values_by_fold(
        data,
        np.arange(20) % 2,
        lambda fold, which: np.full((data[which].n_steps, 2), 0.5),
        regressor=TabularRegressor(),
        gamma=1.0,
        rng=0,
        fitted_on=np.arange(20),
    )
    assert n == data.n_steps
    assert text == f"TabularRegressor, {how}, fitted without the fold that they evaluate"


class Constant:
    """Values that tell which model gave them."""

    def __init__(self, number):
        self.number = number

    def on(self, data):
        return np.full((data.n_steps, data.n_actions), float(self.number))


@pytest.mark.parametrize(("cluster", "expected"), [(None, [9, 9, 0, 1]), (list("abba"), [9, 9, 1, 0])])
def test_the_rest_of_a_cluster_is_predicted_by_the_model_that_has_not_seen_it(cluster, expected):
    """Trajectories 0 and 1 were fitted on, in folds 0 and 1; 2 and 3 are of their clusters, or take turns."""
    data = log_of([1] * 4, **({} if cluster is None else {"cluster": np.array(cluster)}))
    fitted = AveragedValues(
        np.full((2, 2), 9.0), ((Constant(0), Constant(1)),), (np.array([0, 1]),), "by hand"
    )
    assert fitted.on(data, np.array([0, 1]))[:, 0].tolist() == expected


def test_what_follows_a_cut_off_step_in_robust_values_is_its_value_under_the_target(monkeypatch):
    given, weigh = [], _linear._weigh_steps
    monkeypatch.setattr(_linear, "_weigh_steps", lambda e, data, v: given.append(v) or weigh(e, data, v))
    data = ward.simulate(40, rng=0).replace(terminated=np.arange(40) % 3 > 0)
    more_robust_q(data, EARLIER, cal.TabularPolicy(ward.PRACTICE), gamma=0.9)
    values, proba = linear_value(data, EARLIER, gamma=0.9).values.on(data), EARLIER.predict_proba(data.states)
    expected = [sum(proba[i, a] * values[i, a] for a in range(3)) for i in range(data.n_steps)]
    assert given[0] == pytest.approx(expected)


class Weighing(LinearRegression):
    """A regressor that knows its coefficients, and keeps how many rows each call has."""

    def __init__(self, coefficients):
        self.coefficients, self.calls = coefficients, []

    def predict(self, X):
        self.calls.append(len(X))
        return X @ self.coefficients


class AllAtOnce(Weighing):
    """The same for all actions together."""

    def predict_actions(self, X, n_actions):
        self.calls.append("all")
        return X @ self.coefficients[: X.shape[1], None] + self.coefficients[None, -n_actions:]


def test_values_of_the_actions_that_matter_are_those_of_a_loop_and_take_little_memory(monkeypatch):
    """States of two columns and three actions: a row has five entries, so 12 entries are two rows at a time."""
    monkeypatch.setattr(_regression, "_ENTRIES", 12)
    rng = np.random.default_rng(0)
    states, coefficients = rng.normal(size=(7, 2)), rng.normal(size=5)
    needed = np.array(
        [[1, 0, 0], [0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 1], [0, 0, 1], [0, 1, 0]], dtype=bool
    )
    expected = np.zeros((7, 3))
    for i in range(7):
        for a in range(3):
            if needed[i, a]:
                expected[i, a] = states[i] @ coefficients[:2] + coefficients[2 + a]
    model = Weighing(coefficients)
    assert ActionAsFeature(model, 3).predict(states, needed) == pytest.approx(expected)
    assert model.calls == [2, 2, 2, 2, 1]  # nine values are needed, and no other is predicted
    monkeypatch.setattr(_regression, "_ENTRIES", 1)
    assert ActionAsFeature(model, 3).predict(states, needed) == pytest.approx(expected)
    assert model.calls[5:] == [1] * 9


def test_a_regressor_that_predicts_all_actions_at_once_is_asked_once_whichever_matter():
    rng = np.random.default_rng(0)
    states, coefficients = rng.normal(size=(7, 2)), rng.normal(size=5)
    expected = (states @ coefficients[:2])[:, None] + coefficients[2:]
    for needed in (None, np.eye(7, 3, dtype=bool)):
        model = AllAtOnce(coefficients)
        assert ActionAsFeature(model, 3).predict(states, needed) == pytest.approx(expected)
        assert model.calls == ["all"]
