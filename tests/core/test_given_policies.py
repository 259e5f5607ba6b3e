"""Policies in the forms that people have them give the same probabilities, or one clear line."""

import contextlib
import sys
import types

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, RidgeClassifier

import caliope as cal
from caliope._given_policies import as_policy, describe_form
from caliope.domains import ward

DATA = ward.simulate(20, rng=0)
ACTIONS = ward.EARLIER[DATA.states[:, 0].astype(int)].argmax(axis=1)
WANTED = np.eye(3)[ACTIONS]
NAMED = DATA.replace(action_names=ward.DOSES)


class Algorithm:
    """What an algorithm of d3rlpy has, as far as it concerns us."""

    def predict(self, x):
        assert x.dtype == np.float32
        return ward.EARLIER[x[:, 0].astype(int)].argmax(axis=1)

    def predict_value(self, x, action):
        raise NotImplementedError


class Baseline:
    """And one of stable-baselines3, which also returns its memory."""

    policy = None

    def predict(self, x):
        return ward.EARLIER[x[:, 0].astype(int)].argmax(axis=1), None


@pytest.mark.parametrize(
    "given",
    [
        ACTIONS,
        ACTIONS.tolist(),
        ACTIONS.astype(float),
        lambda log: ward.EARLIER[log.states[:, 0].astype(int)].argmax(axis=1),
        lambda x: np.eye(3)[ward.EARLIER[x[:, 0].astype(int)].argmax(axis=1)],
        Algorithm(),
        Baseline(),
    ],
)
def test_every_form_of_one_policy_gives_the_same_probabilities(given):
    assert np.array_equal(as_policy(given, DATA), WANTED)
    assert describe_form(given)


def test_words_recommend_the_actions_of_that_name():
    assert np.array_equal(as_policy(np.array(ward.DOSES)[ACTIONS], NAMED), WANTED)
    with pytest.raises(
        ValueError, match=r"recommends 'huge' \(1 rows, first: trajectory 0, step 0\).*none, low"
    ):
        as_policy(np.array(["huge", *np.array(ward.DOSES)[ACTIONS[1:]]]), NAMED)


def test_what_is_a_policy_already_is_left_alone():
    for given in (cal.TabularPolicy(ward.EARLIER), cal.practice, cal.tilt(cal.practice, [1, 1, 2])):
        assert as_policy(given, DATA) is given
        assert describe_form(given) == ""
    table = np.full((DATA.n_steps, 3), 1 / 3)
    assert as_policy(table, DATA) is table


def test_a_share_of_a_function_is_the_share_of_its_probabilities():
    mixed = as_policy(cal.mix(cal.practice, lambda x: np.full((len(x), 3), 1 / 3), 0.2), DATA)
    assert mixed.share == 0.2
    assert np.allclose(mixed.policy, 1 / 3)


def test_a_classifier_without_probabilities_is_followed():
    model = RidgeClassifier().fit(DATA.states, DATA.actions)
    assert np.array_equal(as_policy(model, DATA).argmax(axis=1), model.predict(DATA.states))


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (ACTIONS + 2, ValueError, r"recommends action \d .*has the 3 actions 0 to 2.*n_actions="),
        (ACTIONS + 0.5, ValueError, "no whole number from 0"),
        (LinearRegression().fit(DATA.states, DATA.actions), TypeError, "is a regressor"),
        (lambda x: 1 / 0, TypeError, "with the log it failed .ZeroDivisionError.*with its states it failed"),
        (lambda x: np.zeros((2, 2)), TypeError, r"with the log it returned shape \(2, 2\)"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(given, kind, message):
    with pytest.raises(kind, match=message) as refused:
        as_policy(given, DATA)
    assert "\n" not in str(refused.value)


class Tensor:
    """As much of a tensor as a policy returns."""

    dtype, device = "float32", "cpu"

    def __init__(self, x):
        self.x = np.asarray(x)

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return self.x


class Module:
    """As much of a torch module as a policy has."""

    training = True

    def __init__(self, table):
        self.table, self.modes = table, []

    def parameters(self):
        yield Tensor(0.0)

    def forward(self, x):
        assert not self.training
        return Tensor(self.table[x.x[:, 0].astype(int)].astype(np.float32))

    __call__ = forward

    def state_dict(self):
        return {}

    def eval(self):
        self.train(False)

    def train(self, mode):
        self.training = mode


@pytest.fixture
def torch(monkeypatch):
    fake = types.SimpleNamespace(as_tensor=lambda x, **kind: Tensor(x), no_grad=contextlib.nullcontext)
    monkeypatch.setitem(sys.modules, "torch", fake)


@pytest.mark.usefixtures("torch")
def test_a_module_gives_its_probabilities_in_evaluation_mode_and_keeps_its_own():
    module = Module(ward.EARLIER)
    found = as_policy(module, DATA)
    assert np.allclose(found, ward.EARLIER[DATA.states[:, 0].astype(int)], atol=1e-6)
    assert found.sum(axis=1) == pytest.approx(1, abs=1e-12)
    assert module.training


@pytest.mark.usefixtures("torch")
def test_a_module_may_write_into_its_input_and_the_log_stays_as_it_was():
    class Writes(Module):
        def forward(self, x):
            out = super().forward(x)
            x.x[:] = -1.0  # PyTorch warns of arrays that cannot be written to
            return out

        __call__ = forward

    data = DATA.replace()
    before = data.states.copy()
    as_policy(Writes(ward.EARLIER), data)
    assert np.array_equal(data.states, before)


@pytest.mark.usefixtures("torch")
def test_scores_of_a_module_are_refused_since_they_may_be_logits_or_values():
    with pytest.raises(ValueError, match="Scores may be logits or values"):
        as_policy(Module(np.log(ward.EARLIER + 0.1)), DATA)


@pytest.mark.slow
def test_an_audit_takes_recommended_actions_and_functions_alike():
    data = ward.simulate(100, rng=0)
    recommended = ward.EARLIER[data.states[:, 0].astype(int)].argmax(axis=1)
    models, q = {"frequencies": cal.behaviour.TabularFrequencies()}, cal.values.TabularRegressor()
    given = (recommended, lambda x: ward.EARLIER[x[:, 0].astype(int)].argmax(axis=1))
    found = [cal.audit(data, x, models, regressor=q, n_draws=20, rng=0) for x in given]
    assert found[0].headline.value == found[1].headline.value
    assert [x.settings.target for x in found] == ["recommended actions", "function <lambda>"]
