"""The logged policy as its own target, and recorded probabilities beside fitted models."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import caliope as cal
from caliope._audit import audit
from caliope._audit._choices import comparable_values
from caliope._ragged import at_actions
from caliope._results import Table
from caliope.behaviour import fit_behaviour
from caliope.behaviour._ensembles import logistic
from caliope.checks._audit import check_logged
from caliope.domains import ward
from caliope.sensitivity import OtherChoice
from caliope.values import TabularRegressor

TRUE = cal.TabularPolicy(ward.PRACTICE)
ANSWERS = {"learnt_on": "no", "ended": "all", "recorded_before": "all"}


@pytest.fixture(scope="module")
def log():
    return ward.simulate(400, rng=3)


def audited(log, target, model=None, **given):
    models = {"logistic": LogisticRegression() if model is None else model}
    settings = {"regressor": TabularRegressor(), "n_draws": 250, "rng": 0} | ANSWERS
    return audit(log, target, models, **settings, **given)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fitted", "logged", "table"])
def test_practice_against_itself_is_exactly_zero_and_trusted(log, kind):
    table = cal.action_probabilities(TRUE, log.states, 3)
    logged = None if kind == "fitted" else at_actions(table, log.actions)
    found = audited(log, table if kind == "table" else cal.practice, logged=logged)
    assert (found.gain.value, found.gain.interval.low, found.gain.interval.high) == (0.0, 0.0, 0.0)
    assert found.verdict == found.gain.verdict == "trust"
    assert found.headline.value == pytest.approx(log.returns().mean())


@pytest.mark.slow
def test_a_mixture_may_be_evaluated_with_logged_probabilities_and_a_tilt_may_not(log):
    logged = at_actions(cal.action_probabilities(TRUE, log.states, 3), log.actions)
    found = audited(log, cal.mix(cal.practice, cal.TabularPolicy(ward.EARLIER), 0.2), logged=logged)
    truth = ward.value(0.8 * np.asarray(ward.PRACTICE) + 0.2 * np.asarray(ward.EARLIER))
    assert truth in found.headline.interval
    with pytest.raises(ValueError, match="a tilt of practice needs the probabilities of all actions"):
        audited(log, cal.tilt(cal.practice, [1.0, 2.0, 1.0]), logged=logged)


def choice(model, value, *, fit="cross", weights="capped"):
    return OtherChoice(model, fit, weights, "WDR", value, 0.0, 100.0)


def test_fitted_models_are_not_held_against_recorded_probabilities(log):
    rows = (
        choice("logged probabilities", 0.5, fit=""),
        choice("logged probabilities", 0.6, fit="", weights="as they are"),
        choice("logistic", 5.0),
        choice("logistic", 7.0, fit="same"),
        choice("logistic", 9.0, weights="shrunk towards current practice"),
    )
    prepared = SimpleNamespace(logged=log["behaviour"], comparison=SimpleNamespace(choice=None))
    assert comparable_values(Table(rows, ""), prepared) == [0.5, 0.6]
    prepared.logged = None
    assert comparable_values(Table(rows, ""), prepared) == [0.5, 0.6, 5.0]


def test_models_that_the_log_refutes_are_no_other_choice():
    names = ["pool", "logistic", "forest", "logistic, k = 25", "pool, temperature", "forest, deep"]
    rows = [OtherChoice(x, "cross", "capped", "wdr", float(i), 0.0, 50.0) for i, x in enumerate(names)]
    # The logistic model is 2.1 standard errors behind, the forest 1.9.
    choice = SimpleNamespace(
        recommended="pool",
        ranking=("pool", "forest", "logistic"),
        behind={"pool": 0.0, "forest": 0.019, "logistic": 0.021},
        se={"pool": 0.0, "forest": 0.01, "logistic": 0.01},
    )
    prepared = SimpleNamespace(logged=None, comparison=SimpleNamespace(choice=choice))
    assert comparable_values(Table(tuple(rows), ""), prepared) == [0.0, 2.0, 4.0, 5.0]


@pytest.mark.parametrize(("worse", "code"), [(0.0009, "A110"), (0.0011, "A105")])
def test_logged_probabilities_are_refuted_beyond_a_margin(worse, code):
    # Two actions at equal chance; a model that is better by so many nats at every decision, without any noise.
    data = cal.Trajectories(np.zeros((40, 1)), [0, 1] * 20, np.zeros(40), np.arange(41))
    model = np.eye(2)[data.actions] * 0.5 * np.exp(worse)
    model += (1 - model.max(axis=1, keepdims=True)) * np.eye(2)[1 - data.actions]
    (found,) = check_logged(data, np.full(40, 0.5), model)
    assert found.code == code
    assert found.numbers["gain"] == pytest.approx(-worse)


@pytest.mark.parametrize("n_actions", [2, 10, 46])
def test_a_constant_is_refuted_where_practice_depends_on_the_state_and_not_where_it_is_right(n_actions):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1500, 2))
    logits = 1.5 * x[:, :1] * np.linspace(-1, 1, n_actions)
    chance = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = set()
    for p in (chance, np.full_like(chance, 1 / n_actions)):
        actions = (rng.random((1500, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(max=n_actions - 1)
        data = cal.Trajectories(x, actions, x[:, 0], np.arange(1501), n_actions=n_actions)
        fitted = fit_behaviour(logistic(0.03), data, mode="cross", rng=0)
        (found,) = check_logged(data, np.full(1500, 1 / n_actions), fitted.probabilities)
        codes.add((p is chance, found.level))
    assert codes == {(True, "issue"), (False, "note")}  # A105, or A111 where the scale is off too; A110
