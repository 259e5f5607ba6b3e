"""Fitted values against exact dynamic programming, and against loops."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline

import caliope as cal
from caliope.domains import ward
from caliope.domains.tabular import (
    MODEL_FAIL,
    MODEL_FAIL_LOGGED,
    MODEL_FAIL_TARGET,
    MODEL_WIN,
    MODEL_WIN_LOGGED,
    MODEL_WIN_TARGET,
    TabularMDP,
    hide_states,
)
from caliope.values import (
    TabularRegressor,
    cross_fitted_q,
    cross_fitted_q_by_time,
    fitted_q,
    fitted_q_by_time,
    fitted_q_iteration,
)
from caliope.values._defaults import fit_default_values
from caliope.values._fqe import CaliopeWarning


def one_hot(n):
    return lambda states: np.eye(n)[states[:, 0].astype(int)]


def empirical(data, n_states, horizon=400):
    """The process that the log itself describes: frequencies of what followed, and mean rewards."""
    s, a = data.states[:, 0].astype(int), data.actions
    follows = np.full(data.n_steps, n_states)  # one more state: the end
    follows[:-1] = s[1:]
    follows[data.layout.last] = n_states
    counts = np.zeros((n_states + 1, data.n_actions, n_states + 1))
    np.add.at(counts, (s, a, follows), 1)
    rewards = np.zeros((n_states + 1, data.n_actions))
    np.add.at(rewards, (s, a), data.rewards)
    visits = counts.sum(axis=2)
    counts[visits == 0, n_states] = 1
    seen = np.maximum(visits, 1)
    initial = np.bincount(s[data.layout.first], minlength=n_states + 1) / len(data)
    return TabularMDP(
        initial,
        counts / counts.sum(axis=2, keepdims=True),
        rewards / seen,
        np.arange(n_states + 1) == n_states,
        horizon=horizon,
    )


@pytest.fixture(scope="module")
def chain():
    """Five states in a row: right with chance 0.8 (action 1) or 0.3 (action 0), ending at the right, cost 1 a step."""
    transitions = np.zeros((5, 2, 5))
    for s in range(4):
        for a, p in enumerate((0.3, 0.8)):
            transitions[s, a, s + 1], transitions[s, a, max(s - 1, 0)] = p, 1 - p
    return TabularMDP([1, 0, 0, 0, 0], transitions, np.full((5, 2), -1.0), np.arange(5) == 4, horizon=60)


CASES = {
    "chain": (lambda chain: chain, np.tile([0.5, 0.5], (5, 1)), np.tile([0.2, 0.8], (5, 1)), 0.9),
    "ModelWin": (lambda chain: MODEL_WIN, MODEL_WIN_LOGGED, MODEL_WIN_TARGET, 0.9),
    "ModelFail": (lambda chain: MODEL_FAIL, MODEL_FAIL_LOGGED, MODEL_FAIL_TARGET, 1.0),
    "ward": (lambda chain: ward.WARD, ward.PRACTICE, ward.EARLIER, 0.95),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("per_action", [False, True])
def test_tabular_fitted_q_is_dynamic_programming_on_the_log(case, per_action, chain):
    make, logged, target, gamma = CASES[case]
    data = make(chain).simulate(logged, 300, rng=0)
    n_states = len(logged)
    extended = np.vstack([target, np.full((1, data.n_actions), 1 / data.n_actions)])
    exact = empirical(data, n_states)
    fit = fitted_q(
        data,
        cal.TabularPolicy(target),
        TabularRegressor(),
        gamma=gamma,
        n_iterations=400,
        per_action=per_action,
    )
    q = exact.action_values(extended, gamma)[0]
    s, a = data.states[:, 0].astype(int), data.actions
    assert fit.q(data.states, a) == pytest.approx(q[s, a], abs=1e-8)
    assert fit.trace[-1].value == pytest.approx(exact.value(extended, gamma), abs=1e-8)
    assert fit.v(data.states[data.layout.first]).mean() == pytest.approx(
        exact.value(extended, gamma), abs=1e-8
    )


def test_k_rounds_look_k_steps_ahead():
    # ModelWin: rewards come at every second step, so that the first round sees none from state 0.
    data = MODEL_WIN.simulate(MODEL_WIN_LOGGED, 200, rng=0)
    values = [
        fitted_q(data, cal.TabularPolicy(MODEL_WIN_TARGET), TabularRegressor(), gamma=1.0, n_iterations=k)
        .trace[-1]
        .value
        for k in (1, 2)
    ]
    assert values[0] == 0
    assert values[1] != 0


def test_time_indexed_values_are_exact_where_the_horizon_is_fixed():
    """With every path of the process in the log in its exact proportion, Q_t is that of dynamic programming."""
    # ModelFail is deterministic but for the policy: four trajectories hold every (s, a).
    data = cal.Trajectories(
        [[0.0], [1.0], [0.0], [1.0], [0.0], [2.0], [0.0], [2.0]],
        [0, 0, 0, 1, 1, 0, 1, 1],
        [0, 1, 0, 1, 0, -1, 0, -1],
        [0, 2, 4, 6, 8],
    )
    fit = fitted_q_by_time(data, cal.TabularPolicy(MODEL_FAIL_TARGET), TabularRegressor(), gamma=1.0)
    exact = MODEL_FAIL.action_values(MODEL_FAIL_TARGET, 1.0)
    table = exact[data.layout.time, data.states[:, 0].astype(int)]
    assert fit.on(data) == pytest.approx(table, abs=1e-12)
    e = cal.gather(data, cal.TabularPolicy(MODEL_FAIL_TARGET), cal.UniformPolicy(2), q=fit)
    assert cal.dm(e) == pytest.approx(-0.76)


@pytest.mark.slow
def test_a_cap_on_the_length_is_seen_by_time_indexed_values_only():
    data = ward.simulate(20_000, rng=3)
    target, truth = cal.TabularPolicy(ward.EARLIER), ward.WARD.value(ward.EARLIER)
    by_time = fitted_q_by_time(data, target, TabularRegressor(), gamma=1.0)
    stationary = fitted_q(data, target, TabularRegressor(), gamma=1.0, n_iterations=12)
    e = cal.gather(data, target, data["behaviour"], q=by_time)
    # A share of 0.54 from 20,000 patients has a standard error of 0.0035.
    assert cal.dm(e) == pytest.approx(truth, abs=0.011)
    assert stationary.trace[-1].value < truth - 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("regressor", "error"),
    [
        (ExtraTreesRegressor(30, min_samples_leaf=5, random_state=0), 0.02),
        (RandomForestRegressor(30, min_samples_leaf=5, random_state=0), 0.02),
        (HistGradientBoostingRegressor(max_iter=15, learning_rate=0.4, random_state=0), 0.02),
    ],
    ids=["extra trees", "forest", "boosting"],
)
def test_trees_come_close_to_the_exact_values(regressor, error):
    data = ward.simulate(2000, rng=1)
    target = cal.TabularPolicy(ward.EARLIER)
    tabular = fitted_q(data, target, TabularRegressor(), gamma=0.9, n_iterations=15)
    trees = fitted_q(data, target, regressor, gamma=0.9, n_iterations=15)
    assert np.abs(trees.v(data.states) - tabular.v(data.states)).mean() < error


def test_the_backup_of_evaluation_is_the_mean_and_that_of_improvement_the_best():
    # One state, two actions that pay 0 and 1 and go on once: after two rounds Q = r + V.
    data = cal.Trajectories(np.zeros((4, 1)), [0, 1, 1, 0], [0, 1, 1, 0], [0, 2, 4])
    # Targets of a = 0: r + V next, first trajectory 0 + V, second ends: 0. Mean V / 2; likewise 1 + V / 2 for a = 1.
    quarter = cal.TabularPolicy([[0.75, 0.25]])
    assert fitted_q(data, quarter, TabularRegressor(), gamma=1.0, n_iterations=2).q_all([[0.0]])[
        0
    ] == pytest.approx(
        [0.125, 1.125]  # V_1 = 1/4
    )
    best = fitted_q_iteration(data, TabularRegressor(), gamma=1.0, n_iterations=2)
    assert best.q_all([[0.0]])[0] == pytest.approx([0.5, 1.5])  # V_1 = 1


@pytest.mark.slow
def test_improvement_finds_the_better_action(chain):
    data = chain.simulate(np.full((5, 2), 0.5), 500, rng=0)
    best = fitted_q_iteration(data, TabularRegressor(), gamma=0.95, n_iterations=80)
    assert (best.q_all(np.arange(4.0)[:, None]).argmax(axis=1) == 1).all()
    with pytest.raises(TypeError, match="q_all"):
        best.v([[0.0]])


def test_nothing_follows_a_terminated_step_and_a_cut_off_one_teaches_nothing():
    # One state: reward 1 and on, reward 1 and out. Terminated: V = mean(1 + V, 1) -> Q = 2 at the fixed point.
    data = cal.Trajectories(np.zeros((2, 1)), [0, 0], [1, 1], [0, 2])
    uniform = cal.UniformPolicy(1)
    ended = fitted_q(data, uniform, TabularRegressor(), gamma=1.0, n_iterations=100)
    assert ended.trace[-1].value == pytest.approx(2.0)
    # Cut off: only 1 + gamma V is known, so V = 1 / (1 - gamma).
    cut = cal.Trajectories(np.zeros((2, 1)), [0, 0], [1, 1], [0, 2], terminated=[False])
    known = fitted_q(cut, uniform, TabularRegressor(), gamma=0.5, n_iterations=100)
    assert known.trace[-1].value == pytest.approx(2.0)
    one = cal.Trajectories([[0.0]], [0], [1], [0, 1], terminated=[False])
    with pytest.raises(ValueError, match="cut off after one step"):
        fitted_q(one, uniform, TabularRegressor(), gamma=0.5, n_iterations=1)


@pytest.mark.slow
def test_a_linear_regressor_that_runs_away_is_called_so():
    # Off-policy linear values: state 1 then 2, the value doubles at every backup.
    data = cal.Trajectories([[1.0], [2.0]], [0, 0], [0.0, 0.01], [0, 2], terminated=[False])
    grow = cal.Trajectories(
        [[1.0], [2.0], [2.0]], [0, 0, 0], [0.01, 0.0, 0.0], [0, 2, 3], terminated=[False, False]
    )
    assert data.n_steps == 2
    with pytest.warns(CaliopeWarning, match="fitted Q diverges: after"):
        fit = fitted_q(
            grow,
            cal.UniformPolicy(1),
            LinearRegression(fit_intercept=False),
            gamma=0.99,
            n_iterations=30,
            per_action=True,
        )
    assert fit.diverged
    assert [(x.code, x.level) for x in fit.notes_for(grow)] == [("V102", "caution"), ("V103", "issue")]


def test_the_trace_tells_how_the_fit_settled():
    seen = []
    data = ward.simulate(200, rng=0)
    fit = fitted_q(
        data,
        cal.TabularPolicy(ward.EARLIER),
        TabularRegressor(),
        gamma=0.9,
        n_iterations=30,
        progress=seen.append,
    )
    assert tuple(seen) == fit.trace
    assert [x.number for x in fit.trace] == list(range(1, 31))
    assert fit.trace[-1].change < 0.05 * fit.trace[0].change
    assert not fit.diverged


def codes(q, data):
    return [f"{note.code} {note.level}" for note in q.notes_for(data)]


def test_values_say_whether_they_have_settled_and_whom_they_have_seen():
    rng = np.random.default_rng(0)
    data = cal.Trajectories(rng.normal(size=(40, 2)), np.tile([0, 1], 20), np.ones(40), np.arange(0, 41, 4))
    target, halves = cal.UniformPolicy(2), (data[:5], data[5:])
    # One round of four steps of reward 1: V goes from 0 to 1, and the largest Q is 1. That is not settled.
    early = fitted_q(halves[0], target, TabularRegressor(), gamma=0.9, n_iterations=1)
    assert codes(early, halves[1]) == ["V104 caution"]
    late = fitted_q(halves[0], target, TabularRegressor(), gamma=0.9, n_iterations=60)
    assert codes(late, halves[1]) == []
    assert codes(late, data) == ["V102 caution"]
    assert late.notes_for(data)[0].numbers == {"trajectories": 5.0}
    by_time = fitted_q_by_time(halves[0], target, TabularRegressor(), gamma=0.9)
    assert codes(by_time, halves[1]) == []
    assert codes(by_time, halves[0]) == ["V102 caution"]
    e = cal.gather(data, target, target, gamma=0.9, q=late)
    assert "V102" in {note.code for note in e.notes}


class Odd(RegressorMixin, BaseEstimator):
    """Predicts what it is told to, in a column."""

    def __init__(self, value=1.0, shape=(-1, 1)):
        self.value, self.shape = value, shape

    def fit(self, X, y):
        self.targets_ = y
        return self

    def predict(self, X):
        found = np.full(len(X), self.value if (self.targets_ > 1.5).any() else 1.0)
        return found.reshape(self.shape)


@pytest.mark.parametrize("per_action", [False, True])
def test_a_regressor_must_return_finite_numbers_and_may_do_so_in_a_column(per_action):
    data = cal.Trajectories(np.zeros(4), [0, 1, 1, 0], np.ones(4), [0, 2, 4])
    settings = {"gamma": 1.0, "n_iterations": 3, "per_action": per_action}
    fit = fitted_q(data, cal.UniformPolicy(2), Odd(), **settings)
    assert fit.q_all([[0.0]]).tolist() == [[1.0, 1.0]]
    # The first round has targets of 1; the second 1 + 1 = 2, where the predictions turn bad.
    with pytest.raises(ValueError, match="iteration 2: the regressor predicted NaN or infinity"):
        fitted_q(data, cal.UniformPolicy(2), Odd(np.nan), **settings)
    with pytest.raises(ValueError, match="step 0: the regressor predicted NaN or infinity"):
        fitted_q_by_time(data, cal.UniformPolicy(2), Odd(np.inf), gamma=1.0, per_action=per_action)
    with pytest.raises(ValueError, match="must return one number for each"):
        fitted_q(data, cal.UniformPolicy(2), Odd(shape=(1, -1)), **settings)


@pytest.mark.parametrize(
    "wrong", [LogisticRegression(), make_pipeline(LogisticRegression()), LinearRegression, 3]
)
def test_a_classifier_is_no_regressor(wrong):
    data = ward.simulate(20, rng=0)
    with pytest.raises(TypeError, match="regressor must be a"):
        fitted_q(data, cal.UniformPolicy(3), wrong, gamma=0.9, n_iterations=1)
    with pytest.raises(TypeError, match="regressor must be a"):
        fitted_q_by_time(data, cal.UniformPolicy(3), wrong, gamma=0.9)


def test_the_best_action_is_a_policy_and_an_action_that_is_none_is_refused():
    data = cal.Trajectories(np.zeros(4), [0, 1, 1, 0], [0, 1, 1, 0], np.arange(5))
    best = fitted_q_iteration(data, TabularRegressor(), gamma=1.0, n_iterations=1)
    assert cal._gather.target_probabilities(data, best.greedy()).tolist() == [[0, 1]] * 4
    assert best.q([[0.0], [0.0]], [0, 1]) == pytest.approx([0, 1])
    for wrong in (-1, 2):
        with pytest.raises(ValueError, match="actions must lie between 0 and 1"):
            best.q([[0.0]], [wrong])
    with pytest.raises(ValueError, match="actions must be whole numbers of shape"):
        best.q([[0.0]], [0.5])


def test_a_step_after_which_nothing_is_known_teaches_nothing():
    rewards, zeros, one = [0, 0, 10], np.zeros(3), cal.UniformPolicy(1)
    cut = cal.Trajectories(zeros, zeros.astype(int), rewards, [0, 3], terminated=[False])
    with pytest.raises(ValueError, match="no trajectory ends: use fitted_q"):
        fitted_q_by_time(cut, one, TabularRegressor(), gamma=1.0)
    # Beside it rewards 4, 6 that end. Step 2 is cut off, so step 1 is known of the second alone: 6. Step 0 is known of
    # both: 0 + 6 and 4 + 6, on average 8. Step 2 takes the model of step 1.
    mixed = cal.Trajectories(
        np.zeros(5), np.zeros(5, int), [*rewards, 4, 6], [0, 3, 5], terminated=[False, True]
    )
    fit = fitted_q_by_time(mixed, one, TabularRegressor(), gamma=1.0)
    assert fit.on(mixed)[:, 0].tolist() == [8, 6, 6, 8, 6]
    longer = cal.Trajectories(np.zeros(5), np.zeros(5, int), np.zeros(5), [0, 5])
    assert fit.on(longer)[:, 0].tolist() == [8, 6, 6, 6, 6]


def test_an_action_never_taken_gets_the_mean_target_and_a_full_column():
    data = cal.Trajectories(np.zeros((4, 1)), [0, 0, 2, 2], [0, 2, 4, 6], np.arange(5), n_actions=3)
    fit = fitted_q(data, cal.UniformPolicy(3), TabularRegressor(), gamma=0.0, n_iterations=1, per_action=True)
    assert fit.q_all([[0.0]])[0] == pytest.approx([1.0, 3.0, 5.0])  # (0 + 2 + 4 + 6) / 4 = 3 in the middle


def test_probabilities_at_the_logged_states_serve_as_a_target():
    data = ward.simulate(100, rng=0)
    policy = cal.TabularPolicy(ward.EARLIER)
    a = fitted_q(data, policy, TabularRegressor(), gamma=0.9, n_iterations=10)
    b = fitted_q(data, policy.predict_proba(data.states), TabularRegressor(), gamma=0.9, n_iterations=10)
    assert a.trace == b.trace
    relative = cal.mix(cal.practice, policy, 0.5)
    with pytest.raises(TypeError, match="relative to practice needs the behaviour"):
        fitted_q(data, relative, TabularRegressor(), gamma=0.9, n_iterations=1)
    half = cal._gather.target_probabilities(data, relative, cal.TabularPolicy(ward.PRACTICE))
    states = data.states[:, 0].astype(int)
    assert half == pytest.approx((ward.PRACTICE[states] + ward.EARLIER[states]) / 2)


# -- cross-fitting --


def test_cross_fitted_values_of_a_trajectory_come_from_models_that_have_not_seen_it():
    data = ward.simulate(60, rng=0)
    target = cal.TabularPolicy(ward.EARLIER)
    fit = cross_fitted_q(data, target, TabularRegressor(), gamma=0.9, n_iterations=8, folds=3, rng=0)
    fold = data.fold_of(3, rng=0)
    for j in range(3):
        alone = fitted_q(data[fold != j], target, TabularRegressor(), gamma=0.9, n_iterations=8)
        rows = data.layout.rows_of(np.flatnonzero(fold == j))
        assert fit.table[rows] == pytest.approx(alone.q_all(data.states[rows]))
    with pytest.raises(ValueError, match="belong to the log"):
        fit.on(ward.simulate(60, rng=1))
    assert codes(fit, data) == ["V106 note"]


def test_cross_fitted_values_find_their_trajectories_in_a_copy_and_in_a_selection():
    data = ward.simulate(60, rng=0)  # discrete: some patients are alike, and only their ids tell them apart
    fit = cross_fitted_q(
        data, cal.TabularPolicy(ward.EARLIER), TabularRegressor(), gamma=0.9, n_iterations=8, folds=3, rng=0
    )
    assert (fit.on(ward.simulate(60, rng=0)) == fit.table).all()
    chosen = np.array([41, 7, 7, 0, 59])
    assert (fit.on(data[chosen]) == fit.table[data.layout.rows_of(chosen)]).all()
    with pytest.raises(ValueError, match=r"gamma = 0\.9"):
        cal.gather(data, cal.TabularPolicy(ward.EARLIER), data["behaviour"], gamma=1.0, q=fit)


def test_time_indexed_values_are_cross_fitted_likewise():
    data, target = ward.simulate(60, rng=0), cal.TabularPolicy(ward.EARLIER)
    fit = cross_fitted_q_by_time(data, target, TabularRegressor(), gamma=0.9, folds=3, rng=0)
    fold = data.fold_of(3, rng=0)
    for j in range(3):
        alone = fitted_q_by_time(data[fold != j], target, TabularRegressor(), gamma=0.9)
        rows = data.layout.rows_of(np.flatnonzero(fold == j))
        assert fit.table[rows] == pytest.approx(alone.on(data[fold == j]))
    assert codes(fit, data) == ["V106 note"]
    assert fit.gamma == 0.9


@pytest.mark.slow
def test_three_lines_from_a_log_to_a_doubly_robust_table():
    data = ward.simulate(400, rng=0)
    target = cal.TabularPolicy(ward.EARLIER)
    behaviour = cal.fit_behaviour(LogisticRegression(), data, mode="cross", rng=0)
    q = cal.cross_fitted_q(data, target, TabularRegressor(), gamma=0.9, n_iterations=12, rng=0)
    evidence = cal.gather(data, target, behaviour, gamma=0.9, q=q)
    table = cal.estimate(evidence, n_draws=100, rng=0)
    assert {"dm", "wdr", "phwdr"} <= {row.name for row in table}
    # gather took the cross-fitted numbers, not fresh predictions.
    logged = np.arange(data.n_steps), data.actions
    assert evidence.q == pytest.approx(q.table[logged])
    acted = behaviour.probabilities[logged]
    assert np.exp(evidence.log_ratio) == pytest.approx(target.predict_proba(data.states)[logged] / acted)
    assert "B102" in {note.code for note in evidence.notes}


@pytest.mark.slow
def test_cross_fitted_intervals_cover_and_same_data_ones_do_not():
    """A memorising regressor: on its own data it explains every reward, and the corrections vanish."""
    mdp = TabularMDP(
        initial=[1, 0, 0],
        transitions=np.eye(3)[np.array([[1, 1], [2, 2], [2, 2]])],
        rewards=[[0.0, 1.0], [0.5, 0.0], [0.0, 0.0]],
        absorbing=[False, False, True],
        horizon=2,
    )
    logged, target = np.tile([0.7, 0.3], (3, 1)), np.tile([0.3, 0.7], (3, 1))
    truth, policy = mdp.value(target), cal.TabularPolicy(target)
    covered = {"cross": 0, "same": 0}
    regressor = ExtraTreesRegressor(5, random_state=0)
    for seed in np.random.SeedSequence(4).spawn(100):
        rng = np.random.default_rng(seed)
        clean = mdp.simulate(logged, 150, rng=rng)
        # Noise in the rewards, and in the states enough columns of it to tell every step from every other.
        data = cal.Trajectories(
            np.concatenate([clean.states, rng.normal(size=(clean.n_steps, 3))], axis=1),
            clean.actions,
            clean.rewards + rng.normal(scale=2.0, size=clean.n_steps),
            clean.offsets,
            columns=clean.columns,
        )
        fits = {
            "cross": cross_fitted_q(data, policy, regressor, gamma=1.0, n_iterations=2, folds=3, rng=rng),
            "same": fitted_q(data, policy, regressor, gamma=1.0, n_iterations=2),
        }
        for name, q in fits.items():
            e = cal.gather(data, policy, data["behaviour"], q=q)
            covered[name] += truth in cal.uncertainty.delta_method(cal.dr, e)
    assert covered["cross"] >= 88, covered  # 95 less three standard errors of 2.2
    assert covered["same"] < covered["cross"] - 15, covered


# -- kept on disk --


@pytest.mark.slow
def test_a_fit_goes_on_where_it_was_killed(tmp_path):
    """A real process, a real kill: the resumed fit equals the uninterrupted one."""
    script = textwrap.dedent(
        """
        import sys, time
        import numpy as np, caliope as cal
        from caliope.domains import ward
        from sklearn.ensemble import ExtraTreesRegressor
        data = ward.simulate(80, rng=0)
        slow = (lambda step: (print(step.number, flush=True), time.sleep(0.1))) if sys.argv[2] == "slow" else None
        fit = cal.fitted_q(data, cal.TabularPolicy(ward.EARLIER), ExtraTreesRegressor(5, random_state=0), gamma=0.9,
                           n_iterations=8, work=sys.argv[1] if sys.argv[1] != "none" else None, progress=slow)
        print(repr([x.value for x in fit.trace]), fit.q_all(data.states).sum())
        """
    )
    path = tmp_path / "work"
    command = [sys.executable, "-c", script]
    process = subprocess.Popen([*command, str(path), "slow"], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.strip() == "3":
            os.kill(process.pid, signal.SIGKILL)
            break
    process.wait()
    process.stdout.close()
    assert len(list(path.iterdir())) == 1
    run = lambda *args: subprocess.run([*command, *args], capture_output=True, text=True, check=True).stdout  # noqa: E731
    whole = run("none", "fast")
    assert run(str(path), "fast") == whole


def test_rounds_of_another_problem_are_not_taken_up(tmp_path):
    settings = {"gamma": 0.9, "n_iterations": 2}
    target = cal.TabularPolicy(ward.EARLIER)
    for seed in (0, 1):
        data = ward.simulate(30, rng=seed)
        kept = fitted_q(data, target, TabularRegressor(), **settings, work=tmp_path)
        fresh = fitted_q(data, target, TabularRegressor(), **settings)
        assert kept.trace == fresh.trace
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.slow
def test_rounds_can_be_added_and_fewer_are_fitted_anew(tmp_path):
    data, target = ward.simulate(30, rng=0), cal.TabularPolicy(ward.EARLIER)
    forest = ExtraTreesRegressor(3, random_state=np.random.RandomState(0))
    done = []

    def fit(n_iterations, work=tmp_path):
        done.clear()
        report = lambda x: done.append(x.number)  # noqa: E731
        return fitted_q(
            data, target, forest, gamma=0.9, n_iterations=n_iterations, progress=report, work=work
        )

    four = fit(4)
    forest.set_params(n_jobs=2)  # no other fit for that
    more = fit(6)
    assert done == [5, 6]
    whole = fit(6, work=None)
    # Two threads add up the trees in whatever order they finish.
    assert [x.value for x in more.trace] == pytest.approx([x.value for x in whole.trace], rel=1e-12)
    again = fit(6)  # from the file alone
    assert done == []
    assert again.on(data) == pytest.approx(whole.on(data))
    fewer = fit(4)
    assert done == [1, 2, 3, 4]
    assert [x.value for x in fewer.trace] == pytest.approx([x.value for x in four.trace], rel=1e-12)


def test_a_file_that_is_damaged_is_fitted_anew(tmp_path):
    data, target = ward.simulate(30, rng=0), cal.TabularPolicy(ward.EARLIER)
    settings = {"gamma": 0.9, "n_iterations": 4, "work": tmp_path}
    first = fitted_q(data, target, TabularRegressor(), **settings)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for content in (b"", b"text", whole[: len(whole) // 2]):
        file.write_bytes(content)
        assert fitted_q(data, target, TabularRegressor(), **settings).trace == first.trace
    assert file.read_bytes() == whole


def test_each_fold_keeps_rounds_of_its_own(tmp_path):
    data, target = ward.simulate(30, rng=0), cal.TabularPolicy(ward.EARLIER)
    settings = {"gamma": 0.9, "n_iterations": 4, "work": tmp_path, "folds": 2, "rng": 0}
    fits = [cross_fitted_q(data, target, TabularRegressor(), **settings) for _ in range(2)]
    assert len(list(tmp_path.iterdir())) == 2
    assert (fits[0].table == fits[1].table).all()


# -- the direct method in the table --


def test_values_that_the_log_refutes_are_not_trusted():
    data = ward.simulate(2000, rng=0)
    target = cal.TabularPolicy(ward.EARLIER)
    wrong = fitted_q(
        data, target, TabularRegressor(), gamma=1.0, n_iterations=12
    )  # ignores the cap on the stay
    right = fitted_q_by_time(data, target, TabularRegressor(), gamma=1.0)
    for q, expected in ((wrong, "do not trust"), (right, "caution")):
        e = cal.gather(data, target, data["behaviour"], q=q)
        assert cal.estimate(e, cal.dm, n_draws=50, rng=0)[0].verdict == expected


def test_blind_values_fail_where_states_look_alike_and_weights_do_not():
    data = hide_states(MODEL_FAIL.simulate(MODEL_FAIL_LOGGED, 2000, rng=0))
    target = np.tile([0.12, 0.88], (data.n_steps, 1))
    q = fitted_q_by_time(data, target, TabularRegressor(), gamma=1.0)
    e = cal.gather(data, target, data["behaviour"], q=q)
    # The model sees the mean of the log, 0.76, and not the target's -0.76. The action that the target prefers was
    # taken 240 times: the mean of as many signs has a standard error of 0.04, and three of them are 0.12.
    assert cal.dm(e) == pytest.approx(0.76, abs=0.12)
    # The corrections know better; 16% of n is effective here, so 4 standard errors are 0.12.
    assert cal.wdr(e) == pytest.approx(-0.76, abs=0.12)


# -- ICU-Sepsis --


@pytest.mark.slow
def test_tabular_fitted_q_solves_the_icu_sepsis_log():
    """716 states and 25 actions, one-hot by number: fitted Q is dynamic programming on what was logged."""
    from caliope.domains import icu_sepsis

    try:
        sepsis = icu_sepsis.load()
    except ModuleNotFoundError as missing:
        pytest.skip(str(missing))
    data = sepsis.process.simulate(sepsis.expert, 400, rng=0)
    target = np.vstack([0.8 * sepsis.expert + 0.2 / 25, np.full((1, 25), 1 / 25)])
    # Actions that were never taken in a state have the mean target of all steps in the fit and nothing in the
    # empirical process; so the target keeps to what was taken.
    s = data.states[:, 0].astype(int)
    taken = np.zeros((717, 25))
    np.add.at(taken, (s, data.actions), 1)
    target = np.where(taken > 0, target, 0)
    target[target.sum(axis=1) == 0] = 1 / 25
    target /= target.sum(axis=1, keepdims=True)
    exact = empirical(data, 716, horizon=60)
    v = exact.state_values(target, 0.99)[1]
    q = exact._expected_rewards + 0.99 * exact.transitions @ v  # 60 steps, as many as there are rounds
    fit = fitted_q(data, target[s], TabularRegressor(), gamma=0.99, n_iterations=60, per_action=True)
    logged = np.arange(data.n_steps), data.actions
    assert fit.on(data)[logged] == pytest.approx(q[s, data.actions], abs=1e-8)


@pytest.mark.slow
def test_a_long_horizon_is_not_cut_after_thirty_rounds():
    # Rewards of 1 at each of up to 80 decisions, whatever is done: the value at the start is the mean length.
    rng = np.random.default_rng(0)
    lengths = rng.integers(60, 81, 60)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    left = np.concatenate([np.arange(n)[::-1] for n in lengths]).astype(float)
    data = cal.Trajectories(left, rng.integers(0, 2, len(left)), np.ones(len(left)), offsets)
    values, how = fit_default_values(data, np.full((len(left), 2), 0.5), gamma=1.0, rng=0)
    assert values[data.layout.first].mean() == pytest.approx(lengths.mean(), rel=0.02)
    assert how == "ExtraTreesRegressor, by step, cross-fitted"


@pytest.mark.parametrize("gamma", [1.0, 0.99])
@pytest.mark.parametrize("capped", [True, False])
def test_values_of_practice_are_its_returns_over_two_hundred_decisions(gamma, capped):
    # Rewards of about 35 at each decision, and nothing in the state that tells how many are left.
    rng = np.random.default_rng(1)
    lengths = np.full(60, 200) if capped else rng.integers(50, 201, 60)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    states, actions = rng.integers(0, 3, n).astype(float), rng.integers(0, 2, n)
    rewards = 35 + 4 * states + actions + rng.normal(size=n)
    data = cal.Trajectories(states, actions, rewards, offsets)
    values, how = fit_default_values(data, np.full((n, 2), 0.5), TabularRegressor(), gamma=gamma, rng=0)
    returns = data.returns(gamma)
    error = returns.std() / np.sqrt(len(returns))
    assert how == "TabularRegressor, by step, cross-fitted"
    # Each half is valued by the other: their difference has twice the error of the mean, and actions differ by chance.
    assert abs(values[data.layout.first].mean() - returns.mean()) < 4 * error


@pytest.mark.parametrize("horizon", [1, 6, 40])
def test_values_of_a_small_log_are_the_mean_of_three_divisions_into_folds(horizon):
    rng = np.random.default_rng(3)
    n = 40 * horizon
    data = cal.Trajectories(
        rng.integers(0, 3, n).astype(float),
        rng.integers(0, 2, n),
        rng.normal(size=n),
        horizon * np.arange(41),
    )
    target = np.full((n, 2), 0.5)
    values, how = fit_default_values(data, target, TabularRegressor(), gamma=0.9, rng=4)
    expected = np.zeros((n, 2))
    for seed in (4, [4, 1], [4, 2]):
        fold = data.fold_of(2, rng=np.random.default_rng(seed))
        for j in (0, 1):
            others, own = data[fold != j], np.flatnonzero(fold == j)
            rows = data.layout.rows_of(own)
            if horizon == 1:
                model = fitted_q(
                    others, target[: others.n_steps], TabularRegressor(), gamma=0.9, n_iterations=1
                )
            else:
                model = fitted_q_by_time(others, target[: others.n_steps], TabularRegressor(), gamma=0.9)
            expected[rows] += model.on(data[own]) / 3
        if horizon > 30:  # one model per step takes long
            expected *= 3
            break
    assert values == pytest.approx(expected)
    assert how.endswith("cross-fitted" if horizon > 30 else "cross-fitted 3 times")


def test_rounds_suffice_where_few_decisions_come_late():
    # One in ten trajectories is long: 6% of the decisions lie beyond the thirtieth.
    lengths = np.array([10] * 90 + [36] * 10)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    rng = np.random.default_rng(2)
    data = cal.Trajectories(np.zeros(n), rng.integers(0, 2, n), np.ones(n), offsets)
    how = fit_default_values(data, np.full((n, 2), 0.5), TabularRegressor(), gamma=1.0, rng=0)[1]
    assert how == "TabularRegressor, 30 rounds, practice after 30 decisions, cross-fitted"


def test_a_start_from_the_returns_changes_nothing_once_rounds_reach_the_end():
    data, target = ward.simulate(100, rng=0), cal.TabularPolicy(ward.EARLIER)
    horizon = data.layout.horizon
    zero, logged = (
        fitted_q(data, target, TabularRegressor(), gamma=0.9, n_iterations=5 * horizon, from_returns=x)
        for x in (False, True)
    )
    assert logged.q_all(data.states) == pytest.approx(zero.q_all(data.states), abs=1e-3)
    # One round from the returns is their regression on state and action: the value of practice after one decision.
    once = fitted_q(data, target, TabularRegressor(), gamma=0.9, n_iterations=1, from_returns=True)
    here = (data.states[:, 0] == 2) & (data.actions == 1)
    returns = [
        sum(0.9**k * r for k, r in enumerate(data.rewards[i : data.offsets[data.layout.owner[i] + 1]]))
        for i in np.flatnonzero(here)
    ]
    assert once.q_all([[2.0]])[0, 1] == pytest.approx(np.mean(returns))
