"""A policy given as its learner: fitted across folds, and evaluated on what neither it nor its values have seen."""

import json

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import caliope as cal
from caliope._audit._compare import random_stream
from caliope._audit._learn import fold_factor, learn_across_folds
from caliope.cli import main
from caliope.domains import ward
from caliope.values import TabularRegressor, fitted_q, fitted_q_iteration
from caliope.values._defaults import fit_values_by_fold

MODEL = {"logistic": LogisticRegression()}


def learnt(data, learner, seed=0, gamma=1.0):
    return learn_across_folds(data, learner, gamma=gamma, rng=random_stream(seed, 6))


# -- learning across folds --


def test_each_trajectory_has_the_policy_that_has_not_seen_it():
    data = ward.simulate(60, rng=0)
    found = learnt(data, DecisionTreeClassifier(random_state=0))
    assert sorted(np.bincount(found.fold)) == [12] * 5
    for i in range(len(data)):
        rows = np.concatenate(
            [
                np.arange(data.offsets[k], data.offsets[k + 1])
                for k in range(60)
                if found.fold[k] != found.fold[i]
            ]
        )
        tree = DecisionTreeClassifier(random_state=0).fit(data.states[rows], data.actions[rows])
        own = slice(data.offsets[i], data.offsets[i + 1])
        assert found.target[own] == pytest.approx(tree.predict_proba(data.states[own]))


def test_a_regressor_makes_the_greedy_policy_of_fitted_q_iteration():
    data = ward.simulate(60, rng=0)
    found = learnt(data, TabularRegressor())
    for j in range(5):
        part = data[found.fold != j]
        best = fitted_q_iteration(
            part, TabularRegressor(), gamma=1.0, n_iterations=part.layout.horizon
        ).greedy()
        own = data.layout.rows_of(np.flatnonzero(found.fold == j))
        assert (found.target[own] == best.predict_proba(data.states[own])).all()


def test_a_function_may_return_a_policy_a_mixture_or_a_function():
    data, rows = ward.simulate(60, rng=0), []

    def learner(part):
        rows.append(len(part))
        return cal.TabularPolicy(ward.EARLIER)

    expected = ward.EARLIER[data.states[:, 0].astype(int)]
    assert learnt(data, learner).target == pytest.approx(expected)
    assert rows == [48] * 5
    table = learnt(data, lambda part: lambda log: ward.EARLIER[log.states[:, 0].astype(int)]).target
    assert table == pytest.approx(expected)
    mixture = learnt(data, lambda part: cal.mix(cal.practice, cal.TabularPolicy(ward.EARLIER), 0.3)).target
    assert mixture.share == 0.3
    assert mixture.policy == pytest.approx(expected)


def test_the_values_of_a_fold_are_those_of_a_loop_without_it():
    data = ward.simulate(50, rng=0)[:40].replace(
        terminated=np.arange(40) > 3
    )  # some cut off: fitted Q in rounds
    found = learnt(data, TabularRegressor())
    fitted_on = np.arange(0, 40, 2)
    values, _ = fit_values_by_fold(
        data, found.fold, found.without, regressor=TabularRegressor(), gamma=0.9, rng=0, fitted_on=fitted_on
    )
    horizon = data[fitted_on].layout.horizon
    for j in range(5):
        others = [i for i in fitted_on if found.fold[i] != j]
        policy = found.policies[j]
        q = fitted_q(data[others], policy, TabularRegressor(), gamma=0.9, n_iterations=horizon)
        own = data.layout.rows_of(np.flatnonzero(found.fold == j))
        assert values[own] == pytest.approx(q.q_all(data.states[own]))


@pytest.mark.parametrize("capped", [False, True])
def test_no_outcome_of_a_fold_reaches_what_evaluates_it(capped):
    data = ward.simulate(60, rng=0)
    data = data if capped else data.replace(terminated=np.arange(60) > 3)

    def probabilities_and_values(log):
        found = learnt(log, TabularRegressor())
        options = {"regressor": TabularRegressor(), "gamma": 1.0, "rng": 0, "fitted_on": np.arange(60)}
        return found, fit_values_by_fold(log, found.fold, found.without, **options)[0]

    found, values = probabilities_and_values(data)
    own = data.layout.rows_of(np.flatnonzero(found.fold == 2))
    changed = data.rewards.copy()
    changed[own] += np.random.default_rng(0).normal(size=len(own))
    again, other_values = probabilities_and_values(data.replace(rewards=changed))
    assert (again.target[own] == found.target[own]).all()
    assert (other_values[own] == values[own]).all()
    rest = np.setdiff1d(np.arange(data.n_steps), own)
    assert (other_values[rest] != values[rest]).any()


# -- the audit --


@pytest.mark.slow
def test_an_audit_of_a_learner_says_what_the_value_is():
    data = ward.simulate(300, rng=0)

    def learner(part):
        q = fitted_q_iteration(part, TabularRegressor(), gamma=1.0, n_iterations=12)
        return cal.mix(cal.practice, q.greedy(), 0.2)

    found = cal.audit(
        data,
        models=MODEL,
        learn=learner,
        recorded_before="all",
        regressor=TabularRegressor(),
        n_draws=400,
        rng=0,
    )
    note = next(f for f in found.findings if f.code == "Q106")
    assert (note.level, note.numbers["folds"], note.numbers["share"]) == ("note", 5, 0.8)
    assert 1 <= note.numbers["factor"] <= np.sqrt(2)
    assert "Q102" not in {f.code for f in found.findings}
    assert found.settings.target == "learnt across 5 folds by learner"
    said = found.settings.answers["policy learnt on these trajectories"]
    assert said == "no: learnt across 5 folds, each time on the other trajectories"
    assert "not learnt on this log" not in found.headline.condition  # nobody needs to assert it
    assert [stage.name for stage in found.stages].count("learning the policy across folds") == 1
    again = cal.prepare_audit(data, MODEL, recorded_before="all", rng=0).audit(
        learn=learner, regressor=TabularRegressor(), n_draws=400
    )
    assert again.headline == found.headline


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give a target policy or learn, one of the two; got none"),
        ({"target": cal.practice, "learn": LogisticRegression()}, "one of the two; got both"),
        ({"learn": LogisticRegression}, "LogisticRegression is a class: make an object of it"),
        ({"learn": 3}, "learn must be a function from a log to a policy, .*; got int"),
        ({"learn": cal.TabularPolicy(ward.EARLIER)}, "a fitted policy: give it as target"),
        ({"learn": LogisticRegression(), "learnt_on": "no"}, "learnt_on is answered by learn"),
    ],
)
def test_what_cannot_be_learnt_is_refused_before_anything_is_fitted(given, message):
    with pytest.raises(TypeError, match=message):
        cal.audit(ward.simulate(20, rng=0), models={"none": Unfittable()}, rng=0, **given)


class Unfittable(LogisticRegression):
    def fit(self, X, y, sample_weight=None):
        raise AssertionError("fitted")


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (
            lambda part: 1 / 0,
            r"learn failed on 16 trajectories, those without fold 1 of 5: ZeroDivisionError",
        ),
        (lambda part: 3, r"learn must return a policy with predict_proba.*; got int"),
        (lambda part: cal.practice, r"got Practice"),
        (lambda part: cal.mix(cal.practice, cal.UniformPolicy(3), part.rewards.mean()), "the same share"),
        (lambda part: lambda log: np.ones((2, 3)) / 3, r"must have shape"),
    ],
)
def test_a_learner_that_fails_says_where(learner, message):
    with pytest.raises((TypeError, ValueError), match=message):
        _ = learnt(ward.simulate(20, rng=0), learner).target


# -- the error that folds share --


def rows_of(data, policy, values=None):
    q = np.zeros((data.n_steps, 3)) if values is None else values
    return cal.gather(data, policy, cal.TabularPolicy(ward.PRACTICE), q=q)


def test_the_factor_of_shared_folds_is_that_of_a_loop():
    data, estimator = ward.simulate(80, rng=0), cal.difference(cal.wis)
    near = cal.mix(cal.TabularPolicy(ward.EARLIER), cal.UniformPolicy(3), 0.1)
    own, other = rows_of(data, cal.TabularPolicy(ward.EARLIER)), rows_of(data, near)
    moved = total = 0.0
    for i in range(80):
        psi = []
        for e in (own, other):
            rho = [float(np.prod(np.exp(e.log_ratio[e.offsets[k] : e.offsets[k + 1]]))) for k in range(80)]
            value = sum(w * g for w, g in zip(rho, e.returns, strict=True)) / sum(rho)
            mean = float(e.returns.mean())
            psi.append(80 * rho[i] / sum(rho) * (e.returns[i] - value) - (e.returns[i] - mean))
        total += psi[0] ** 2
        moved += (psi[0] - psi[1]) ** 2
    assert 0.001 < moved / total < 1
    assert fold_factor(estimator, own, other) == pytest.approx(np.sqrt(1 + moved / total))


def test_the_factor_of_shared_folds_runs_from_one_to_the_root_of_two():
    data, estimator = ward.simulate(80, rng=0), cal.difference(cal.wis)
    own = rows_of(data, cal.TabularPolicy(ward.EARLIER))
    assert fold_factor(estimator, own, own) == 1.0
    far = rows_of(data, cal.TabularPolicy(ward.AGGRESSIVE))
    assert fold_factor(estimator, own, far) == pytest.approx(np.sqrt(2))
    still = rows_of(data, cal.practice)
    assert fold_factor(estimator, still, far) == 1.0  # a difference of exactly 0 stays so


def test_the_other_target_is_that_of_the_next_fold():
    data = ward.simulate(60, rng=0)
    found = learnt(data, DecisionTreeClassifier(random_state=0))
    for j in range(5):
        own = np.flatnonzero(found.fold == j)
        rows = data.layout.rows_of(own)
        assert (found.other_target[rows] == found.without((j + 1) % 5, own)).all()


# -- a policy that was learnt where nothing can be learnt --


class Better:
    """Mostly the action whose forest predicts more."""

    classes_ = np.arange(2)

    def __init__(self, forests):
        self.forests = forests

    def predict_proba(self, X):
        second = self.forests[1].predict(X) > self.forests[0].predict(X)
        return np.where(second[:, None], [0.1, 0.9], [0.9, 0.1])


def learn_forests(data):
    forest = {"n_estimators": 10, "min_samples_leaf": 3, "random_state": 0}
    rows = [data.actions == a for a in range(2)]
    return Better([RandomForestRegressor(**forest).fit(data.states[x], data.rewards[x]) for x in rows])


def without_effect(seed, n=300):
    rng = np.random.default_rng([7, seed])
    x = rng.normal(size=(n, 3))
    a = (rng.random(n) < 1 / (1 + np.exp(-0.5 * x[:, 0]))).astype(int)
    return cal.Trajectories(x, a, 0.5 * x[:, 0] + rng.normal(size=n), np.arange(n + 1))


@pytest.mark.slow
def test_a_forest_learnt_on_the_log_is_found_out_and_its_learner_is_not_fooled():
    covered, options = 0, {"n_draws": 200, "regressor": LinearRegression()}
    for seed in range(8):
        data = without_effect(seed)
        prepared = cal.prepare_audit(data, MODEL, recorded_before="all", rng=seed)
        policy = learn_forests(data)
        silent, stated = (
            prepared.audit(policy, **options),
            prepared.audit(policy, learnt_on=data.ids, **options),
        )
        assert silent.gain.interval.low > 0  # "significant", where nothing can be gained
        assert silent.verdict == "caution"
        assert stated.verdict == "do not trust"
        assert next(f for f in stated.findings if f.code == "Q105").numbers["share"] == 1.0
        covered += 0.0 in prepared.audit(learn=learn_forests, **options).gain.interval
    # 95% intervals: fewer than 6 of 8 cover with a probability below 0.006.
    assert covered >= 6


# -- the command line --

LEARNERS = """
from sklearn.linear_model import LogisticRegression
import caliope as cal
imitate = LogisticRegression()
nothing = 3
def earlier(data):
    from caliope.domains import ward
    return cal.TabularPolicy(ward.EARLIER)
"""


@pytest.fixture
def table(tmp_path, monkeypatch):
    data = ward.simulate(200, rng=0)
    columns = {"episode": data.ids[data.layout.owner], "severity": data.states[:, 0]}
    columns |= {"action": data.actions, "reward": data.rewards}
    pl.DataFrame(columns).write_csv(tmp_path / "log.csv")
    (tmp_path / "learners_of_a_test.py").write_text(LEARNERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "log.csv"


def run(table, *arguments):
    fixed = ["--states", "severity", "--models", "logistic", "--draws", "20", "--quiet", "--json"]
    return CliRunner().invoke(main, ["evaluate", str(table), *fixed, *arguments])


@pytest.mark.slow
def test_a_learner_on_the_command_line(table):
    found = json.loads(run(table, "--learn", "learners_of_a_test:imitate").stdout)
    assert found["settings"]["target"] == "learnt across 5 folds by LogisticRegression"
    assert {"Q103", "Q104", "Q106"} <= {f["code"] for f in found["headline"]["findings"]}
    softened = json.loads(run(table, "--learn", "learners_of_a_test:earlier", "--soften", "0.8").stdout)
    question = next(f for f in softened["headline"]["findings"] if f["code"] == "Q101")
    assert question["numbers"]["share"] == pytest.approx(0.2)
    assert softened["settings"]["learn"] == "learners_of_a_test:earlier"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--learn", "learners_of_a_test:nothing"],
            "learn must be a function from a log to a policy",
        ),
        (["--learn", "learners_of_a_test:imitate", "--learnt-on", "no"], "learn answers learnt_on"),
        (["--learn", "learners_of_a_test:imitate", "--recommended", "severity"], "are given: give one of"),
    ],
)
def test_a_learner_that_is_none_is_one_line(table, arguments, message):
    result = run(table, *arguments)
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert message in result.stderr
