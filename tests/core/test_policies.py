import pickle

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from caliope import (
    GreedyPolicy,
    Policy,
    TabularPolicy,
    UniformPolicy,
    action_probabilities,
    gather,
    mix,
    practice,
    tilt,
)
from caliope._given_policies import as_policy
from caliope.domains import ward

ONE = np.zeros((1, 1))  # a single state


class Fixed:
    """A policy that says the same in every state, with its classes in any order."""

    def __init__(self, proba, classes):
        self.proba, self.classes_ = np.asarray(proba), np.asarray(classes)

    def predict_proba(self, X):
        return np.tile(self.proba, (len(X), 1))


def probabilities(policy, n_actions):
    return action_probabilities(policy, ONE, n_actions)[0]


# -- action_probabilities -----------------------------------------------------------------------------


def test_every_scikit_learn_classifier_is_a_policy():
    X, y = np.arange(12.0)[:, None], np.array([0, 1, 2] * 4)
    for model in (
        LogisticRegression(),
        DecisionTreeClassifier(max_depth=2),
        GaussianNB(),
        KNeighborsClassifier(5),
    ):
        for policy in (model.fit(X, y), make_pipeline(StandardScaler(), model).fit(X, y)):
            assert isinstance(policy, Policy)
            assert np.array_equal(action_probabilities(policy, X, 3), policy.predict_proba(X))


def test_columns_follow_the_classes_and_not_their_order():
    assert probabilities(Fixed([0.5, 0.3, 0.2], [2, 0, 1]), 3).tolist() == [0.3, 0.2, 0.5]


def test_an_action_absent_from_training_gets_0_and_shifts_no_column():
    # Fitted on a log in which action 1 never occurs; two columns come back, for 0 and 2.
    policy = DummyClassifier().fit(np.zeros((4, 1)), [0, 2, 2, 2])
    assert probabilities(policy, 4).tolist() == [0.25, 0.0, 0.75, 0.0]


def test_a_binary_classifier_gives_both_columns():
    X, y = np.array([[-1.0], [-2.0], [1.0], [2.0]]), [0, 0, 1, 1]
    model = LogisticRegression().fit(X, y)
    table = action_probabilities(model, X, 2)
    # P(1) = 1 / (1 + exp(-decision)); and P(0) is not P(1).
    expected = 1 / (1 + np.exp(-model.decision_function(X)))
    assert table[:, 1] == pytest.approx(expected)
    assert table[:, 0] == pytest.approx(1 - expected)


def test_a_policy_that_knows_a_single_action_gives_it_probability_1():
    assert probabilities(DummyClassifier().fit(ONE, [1]), 3).tolist() == [0, 1, 0]


def test_classes_stored_as_floats_or_truth_values_are_action_numbers():
    assert probabilities(Fixed([0.4, 0.6], [0.0, 2.0]), 3).tolist() == [0.4, 0.0, 0.6]
    assert probabilities(Fixed([0.4, 0.6], [False, True]), 2).tolist() == [0.4, 0.6]


@pytest.mark.parametrize(
    "policy",
    [
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        GridSearchCV(LogisticRegression(), {"C": [1.0]}),
        LinearSVC(),
        object(),
    ],
)
def test_an_unfitted_estimator_is_no_policy(policy):
    with pytest.raises(TypeError, match=f"predict_proba.* and classes_.*got {type(policy).__name__}"):
        action_probabilities(policy, ONE, 2)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Fixed([0.5, 0.5, 0.0], [0, 1]), r"each of its 2 classes, shape \(1, 2\); got \(1, 3\)"),
        (Fixed(0.5, [0, 1]), r"got \(1, 1\)"),
        (Fixed([0.5, 0.6], [0, 1]), r"sum to 1; 1 of 1 do not .first: row 0, sum 1.1, smallest 0.5"),
        (Fixed([0.5, 0.4], [0, 1]), "sum 0.9"),
        (Fixed([1.2, -0.2], [0, 1]), "sum 1, smallest -0.2"),
        (Fixed([0.5, np.nan], [0, 1]), "sum nan"),
        (Fixed([np.inf, 0.0], [0, 1]), "sum inf"),
        (Fixed(np.log([0.5, 0.5]), [0, 1]), "Log-probabilities or scores are not probabilities"),
        (Fixed([0.5, 0.5], [0, 5]), "knows action 5, but the data have the 2 actions 0 to 1"),
        (Fixed([0.5, 0.5], [-1, 0]), "knows action -1"),
        (Fixed([0.5, 0.5], [0, 0]), "different action numbers"),
        (Fixed([0.5, 0.5], [0, 0.5]), "different action numbers"),
        (Fixed([0.5, 0.5], ["low", "high"]), "different action numbers.*Fit it on the integer actions"),
    ],
)
def test_what_is_no_distribution_over_the_actions_is_refused(policy, message):
    with pytest.raises(ValueError, match=message):
        action_probabilities(policy, ONE, 2)


def test_rounding_of_a_float32_softmax_is_forgiven():
    proba = np.full((1, 3), 1 / 3, dtype=np.float32)
    assert probabilities(Fixed(proba[0] * np.float32(1 + 2e-6), [0, 1, 2]), 3) == pytest.approx(
        1 / 3, abs=1e-5
    )


def test_a_probability_a_rounding_below_0_is_0():
    assert probabilities(Fixed([1.0 + 1e-9, -1e-9], [0, 1]), 2)[1] == 0


def test_the_first_bad_row_is_named():
    table = np.tile([0.5, 0.5], (4, 1))
    table[2] = [0.5, 0.7]

    class Rows(Fixed):
        def predict_proba(self, X):
            return table

    with pytest.raises(ValueError, match=r"Rows: .*1 of 4 do not .first: row 2, sum 1.2"):
        action_probabilities(Rows([0], [0, 1]), np.zeros((4, 1)), 2)


# -- plain policies -----------------------------------------------------------------------------------


def test_a_tabular_policy_reads_the_row_of_the_first_state_column():
    policy = TabularPolicy([[0.1, 0.9], [0.7, 0.3]])
    assert policy.predict_proba([[1, 99], [0, 99]]).tolist() == [[0.7, 0.3], [0.1, 0.9]]
    assert policy.predict_proba(np.float32([[1.0]])).tolist() == [[0.7, 0.3]]
    assert policy.predict_proba(np.array([1, 0])).tolist() == [[0.7, 0.3], [0.1, 0.9]]
    assert policy.predict_proba(np.empty((0, 1))).shape == (0, 2)


@pytest.mark.parametrize("state", [2, -1, 0.5])
def test_a_tabular_policy_refuses_a_state_that_is_not_in_the_table(state):
    with pytest.raises(ValueError, match="whole numbers from 0 to 1"):
        TabularPolicy([[0.1, 0.9], [0.7, 0.3]]).predict_proba([[state]])


@pytest.mark.parametrize(
    ("table", "message"),
    [([0.5, 0.5], r"shape \(states, actions\)"), ([[0.5, 0.6]], "sum to 1"), ([[np.nan, 1.0]], "sum to 1")],
)
def test_a_table_that_is_no_policy_is_refused(table, message):
    with pytest.raises(ValueError, match=message):
        TabularPolicy(table)


def test_a_tabular_policy_neither_freezes_nor_exposes_the_table():
    table = np.array([[0.5, 0.5]])
    policy = TabularPolicy(table)
    assert table.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        policy.probabilities[0, 0] = 1.0


def test_a_uniform_policy_gives_every_action_the_same():
    assert UniformPolicy(4).predict_proba(np.zeros((2, 7))).tolist() == [[0.25] * 4] * 2


@pytest.mark.parametrize("n_actions", [0, -2, 2.5])
def test_a_uniform_policy_needs_a_whole_number_of_actions(n_actions):
    with pytest.raises(ValueError, match="n_actions"):
        UniformPolicy(n_actions)


def test_a_greedy_policy_takes_the_most_likely_action_whatever_the_order_of_classes():
    assert probabilities(GreedyPolicy(Fixed([0.2, 0.7, 0.1], [2, 0, 1])), 4).tolist() == [1, 0, 0, 0]


def test_the_lowest_action_number_wins_a_tie():
    assert probabilities(GreedyPolicy(Fixed([0.4, 0.4, 0.2], [0, 1, 2])), 3).tolist() == [1, 0, 0]
    assert probabilities(GreedyPolicy(Fixed([0.4, 0.4, 0.2], [2, 0, 1])), 3).tolist() == [1, 0, 0]


def test_a_greedy_policy_does_not_hide_probabilities_that_are_missing():
    with pytest.raises(ValueError, match="sum to 1"):
        probabilities(GreedyPolicy(Fixed([0.9, np.nan], [0, 1])), 2)


# -- mix ----------------------------------------------------------------------------------------------


def test_a_mixture_weighs_its_two_policies_by_the_share():
    one, other = Fixed([0.2, 0.8], [0, 1]), Fixed([0.6, 0.4], [0, 1])
    # 0.75 * 0.2 + 0.25 * 0.6 = 0.3; 0.75 * 0.8 + 0.25 * 0.4 = 0.7
    assert probabilities(mix(one, other, 0.25), 2) == pytest.approx([0.3, 0.7])
    assert probabilities(mix(one, other, 0.0), 2).tolist() == [0.2, 0.8]
    assert probabilities(mix(one, other, 1.0), 2).tolist() == [0.6, 0.4]


def test_a_mixture_of_policies_that_know_different_actions_keeps_columns_in_place():
    one, other = Fixed([0.3, 0.7], [3, 0]), Fixed([0.5, 0.5], [1, 3])
    mixture = mix(one, other, 0.5)
    assert mixture.classes_.tolist() == [0, 1, 3]
    # action 0: 0.7 / 2; action 1: 0.5 / 2; action 3: (0.3 + 0.5) / 2
    assert probabilities(mixture, 5) == pytest.approx([0.35, 0.25, 0, 0.4, 0])


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_and_1_is_refused(share):
    for first in (UniformPolicy(2), practice):
        with pytest.raises(ValueError, match=r"share must lie in \[0, 1\]"):
            mix(first, UniformPolicy(2), share)


def test_practice_comes_first_in_a_mixture():
    with pytest.raises(TypeError, match="practice comes first"):
        mix(UniformPolicy(2), practice, 0.5)


@pytest.mark.parametrize(
    "build",
    [
        pytest.param(
            lambda: mix(mix(practice, UniformPolicy(2), 0.1), UniformPolicy(2), 0.1), id="mix of a mix"
        ),
        pytest.param(lambda: mix(practice, tilt(practice, [1.0, 2.0]), 0.1), id="mix with a tilt"),
        pytest.param(lambda: tilt(mix(practice, UniformPolicy(2), 0.1), [1.0, 2.0]), id="tilt of a mix"),
    ],
)
def test_a_change_of_a_change_to_practice_is_refused_where_it_is_stated(build):
    with pytest.raises(TypeError, match="practice"):
        build()


def test_a_mixture_does_not_hide_probabilities_that_are_wrong():
    with pytest.raises(ValueError, match="sum to 1"):
        probabilities(mix(UniformPolicy(2), Fixed([0.9, 0.9], [0, 1]), 0.1), 2)


# -- tilt ---------------------------------------------------------------------------------------------


def test_a_tilt_multiplies_and_renormalises():
    # (0.5 * 1, 0.3 * 2, 0.2 * 5) = (0.5, 0.6, 1.0), sum 2.1
    tilted = tilt(Fixed([0.5, 0.3, 0.2], [0, 1, 2]), [1, 2, 5])
    assert probabilities(tilted, 3) == pytest.approx([0.5 / 2.1, 0.6 / 2.1, 1.0 / 2.1])


def test_the_weights_of_a_tilt_belong_to_action_numbers_and_not_to_columns():
    # P(0) = 0.3, P(1) = 0.2, P(2) = 0.5 in the order of classes 2, 0, 1; weight 4 for action 2.
    # (0.3, 0.2, 0.5 * 4 = 2.0), sum 2.5
    tilted = tilt(Fixed([0.5, 0.3, 0.2], [2, 0, 1]), [1, 1, 4])
    assert probabilities(tilted, 3) == pytest.approx([0.12, 0.08, 0.8])


def test_a_tilt_of_a_policy_that_never_saw_an_action_takes_a_weight_for_every_action():
    # Classes 0 and 2 of three actions: (0.4 * 1, 0, 0.6 * 4 = 2.4), sum 2.8. The weight of action 1 is unused.
    tilted = tilt(Fixed([0.4, 0.6], [0, 2]), [1, 7, 4])
    assert probabilities(tilted, 3) == pytest.approx([0.4 / 2.8, 0.0, 2.4 / 2.8])


@pytest.mark.parametrize("given", [{"high": 1.5, "low": 2}, {"none": 1, "low": 2, "high": 1.5}])
def test_the_weights_of_a_tilt_of_practice_may_be_given_by_the_names_of_actions(given):
    data = ward.simulate(20, rng=0).replace(action_names=list(ward.DOSES))
    behaviour = TabularPolicy(ward.PRACTICE)
    named, listed = (gather(data, tilt(practice, weights), behaviour) for weights in (given, [1, 2, 1.5]))
    np.testing.assert_array_equal(named.log_ratio, listed.log_ratio)
    np.testing.assert_array_equal(as_policy(tilt(practice, given), data).weights, [1, 2, 1.5])


def test_a_tilt_by_names_is_refused_where_a_name_or_all_names_are_unknown():
    data, behaviour = ward.simulate(5, rng=0), TabularPolicy(ward.PRACTICE)
    with pytest.raises(ValueError, match="the actions of the log have none: give one weight per action"):
        gather(data, tilt(practice, {"low": 2}), behaviour)
    data = data.replace(action_names=list(ward.DOSES))
    with pytest.raises(
        ValueError, match=r"a weight for 'Low', and the actions of the log are none, low, high"
    ):
        gather(data, tilt(practice, {"low": 2, "Low": 3}), behaviour)
    with pytest.raises(ValueError, match="weights of a tilt must be positive"):
        gather(data, tilt(practice, {"low": 0}), behaviour)
    with pytest.raises(TypeError, match="by the names of actions are for tilts of practice"):
        tilt(UniformPolicy(3), {"low": 2})


def test_the_weights_of_a_tilt_may_depend_on_the_state():
    def weights(states):
        return np.column_stack([np.ones(len(states)), states[:, 0]])

    # State 1: (0.5, 0.5 * 1), sum 1. State 3: (0.5, 0.5 * 3), sum 2.
    proba = tilt(UniformPolicy(2), weights).predict_proba([[1.0], [3.0]])
    assert proba == pytest.approx(np.array([[0.5, 0.5], [0.25, 0.75]]))


@pytest.mark.parametrize("scale", [1.0, 1e-300, 1e300])
def test_a_common_factor_of_the_weights_changes_nothing(scale):
    weights = scale * np.array([1.0, 3.0])
    assert probabilities(tilt(Fixed([0.5, 0.5], [0, 1]), weights), 2) == pytest.approx([0.25, 0.75])


@pytest.mark.parametrize("weights", [[1, 0], [1, -1], [1, np.nan], [1, np.inf], [1], [[1, 2]] * 3, [], 1.0])
def test_weights_that_are_not_positive_or_not_one_an_action_are_refused(weights):
    with pytest.raises(
        ValueError, match="weights of a tilt must be positive and finite, one for each of the"
    ):
        probabilities(tilt(UniformPolicy(2), weights), 2)


@pytest.mark.parametrize("proba", [np.log([0.9, 0.1]), [0.9, 0.9], [3.0, -1.0]])
def test_a_tilt_does_not_make_probabilities_of_what_was_none(proba):
    # Dividing by the sum turns log-probabilities (-0.105, -2.303) into (0.044, 0.956): a policy, and upside down.
    with pytest.raises(ValueError, match="sum to 1"):
        probabilities(tilt(Fixed(proba, [0, 1]), [1.0, 1.0]), 2)


def test_a_tilt_does_not_freeze_the_callers_weights():
    weights = np.array([1.0, 2.0])
    tilt(UniformPolicy(2), weights)
    assert weights.flags.writeable


# -- relative to practice -----------------------------------------------------------------------------

PIHAT = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
STATES = np.array([[0.0], [1.0]])


def test_practice_is_the_behaviour_policy_itself():
    assert practice.apply(STATES, PIHAT) is PIHAT


def test_a_mixture_with_practice_moves_by_the_share():
    target = mix(practice, Fixed([1.0, 0.0], [2, 0]), 0.2).apply(STATES, PIHAT)
    # 0.8 * pihat, and 0.2 more on action 2.
    assert target == pytest.approx(np.array([[0.4, 0.24, 0.36], [0.08, 0.08, 0.84]]))


def test_a_tilt_of_practice_multiplies_the_behaviour_policy():
    target = tilt(practice, [1.0, 2.0, 1.0]).apply(STATES, PIHAT)
    # (0.5, 0.6, 0.2) / 1.3 and (0.1, 0.2, 0.8) / 1.1
    assert target == pytest.approx(np.array([[0.5, 0.6, 0.2], [0.1, 0.2, 0.8]]) / [[1.3], [1.1]])


def test_a_tilt_of_practice_never_asks_for_an_action_that_nobody_takes():
    pihat = np.array([[0.0, 1.0]])
    assert tilt(practice, [1000.0, 1.0]).apply(ONE, pihat).tolist() == [[0.0, 1.0]]


def named_weights(states):
    return np.column_stack([np.ones(len(states)), np.full(len(states), 2.0), np.ones(len(states))])


@pytest.mark.parametrize(
    "policy",
    [
        TabularPolicy([[0.2, 0.3, 0.5]]),
        UniformPolicy(3),
        GreedyPolicy(TabularPolicy([[0.2, 0.3, 0.5]])),
        mix(UniformPolicy(3), TabularPolicy([[0.2, 0.3, 0.5]]), 0.5),
        tilt(UniformPolicy(3), [1.0, 2.0, 3.0]),
        tilt(UniformPolicy(3), named_weights),
    ],
)
def test_a_pickled_policy_says_the_same(policy):
    other = pickle.loads(pickle.dumps(policy))
    assert np.array_equal(action_probabilities(other, ONE, 3), action_probabilities(policy, ONE, 3))


@pytest.mark.parametrize(
    "target",
    [
        practice,
        mix(practice, UniformPolicy(3), 0.3),
        tilt(practice, [1.0, 2.0, 3.0]),
        tilt(practice, named_weights),
    ],
)
def test_a_pickled_change_to_practice_says_the_same(target):
    other = pickle.loads(pickle.dumps(target))
    assert type(other) is type(target)
    assert np.array_equal(other.apply(STATES, PIHAT), target.apply(STATES, PIHAT))
