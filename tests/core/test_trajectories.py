import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from caliope import Trajectories


def make(lengths=(1, 3, 2), **changes):
    """Steps that can be told apart: state, reward and column of row j are functions of j."""
    n_steps = sum(lengths)
    row = np.arange(n_steps)
    arguments = {
        "states": np.column_stack([row, -row]).astype(float),
        "actions": row % 2,
        "rewards": row * 10.0,
        "offsets": np.concatenate([[0], np.cumsum(lengths)]),
        "ids": [f"p{i}" for i in range(len(lengths))],
        "terminated": [i % 2 == 0 for i in range(len(lengths))],
        "columns": {"sofa": row + 100},
        "feature_names": ["age", "lactate"],
    }
    return Trajectories(**arguments | changes)


def rows_of(data):
    """Row numbers that a selection holds, trajectory by trajectory."""
    rows = data.states[:, 0].astype(int)
    return [rows[a:b].tolist() for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)]


# -- what is kept of the arrays that were given ---------------------------------------------------------


def test_arrays_that_fit_are_viewed_and_not_copied():
    states, actions, rewards = np.zeros((3, 2)), np.array([0, 1, 0]), np.ones(3)
    data = Trajectories(states, actions, rewards, [0, 1, 3])
    assert np.shares_memory(data.states, states)
    assert np.shares_memory(data.actions, actions)
    assert np.shares_memory(data.rewards, rewards)


def test_the_callers_arrays_stay_writeable_and_unchanged():
    states, actions, rewards, sofa = np.zeros((3, 2)), np.array([0, 1, 0]), np.ones(3), np.arange(3)
    offsets, ids, terminated = np.array([0, 1, 3]), np.array([7, 8]), np.array([True, False])
    given_arrays = [states, actions, rewards, sofa, offsets, ids, terminated]
    before = [x.copy() for x in given_arrays]
    Trajectories(states, actions, rewards, offsets, ids=ids, terminated=terminated, columns={"sofa": sofa})
    assert all(x.flags.writeable for x in given_arrays)
    assert all(np.array_equal(x, y) for x, y in zip(given_arrays, before, strict=True))


def own_arrays(data):
    names = ("states", "actions", "rewards", "offsets", "terminated", "ids")
    return [getattr(data, name) for name in names] + list(data.columns.values())


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(make(), id="as built"),
        pytest.param(make()[1:], id="a slice"),
        pytest.param(make()[[2, 0]], id="a list"),
        pytest.param(pickle.loads(pickle.dumps(make())), id="pickled"),
        pytest.param(copy.deepcopy(make()), id="deep copy"),
        pytest.param(copy.copy(make()), id="copy"),
    ],
)
def test_our_arrays_cannot_be_written(data):
    assert not any(x.flags.writeable for x in own_arrays(data))
    with pytest.raises(ValueError, match="read-only"):
        data.rewards[0] = 99.0


def test_fields_and_columns_cannot_be_replaced_in_place():
    data = make()
    with pytest.raises(FrozenInstanceError):
        data.rewards = np.zeros(6)
    with pytest.raises(TypeError):
        data.columns["sofa"] = np.zeros(6)


def test_float32_states_stay_float32_and_other_numbers_become_float64():
    steps = ([0, 1], [0.0, 0.0], [0, 2])
    assert Trajectories(np.zeros((2, 1), np.float32), *steps).states.dtype == np.float32
    for kind in (np.float16, np.int8, np.uint64, bool):
        assert Trajectories(np.ones((2, 1), kind), *steps).states.dtype == np.float64


def test_rewards_are_float64_whatever_they_were():
    for kind in (np.float32, np.int16, bool):
        assert Trajectories(np.zeros(2), [0, 1], np.ones(2, kind), [0, 2]).rewards.dtype == np.float64


def test_one_dimensional_states_are_one_feature():
    assert Trajectories([5.0, 6.0], [0, 1], [0, 0], [0, 2]).states.tolist() == [[5.0], [6.0]]


def test_replacing_a_field_checks_the_new_one():
    assert replace(make(), rewards=np.ones(6)).returns().tolist() == [1.0, 3.0, 2.0]
    with pytest.raises(ValueError, match=r"rewards must have shape \(6,\)"):
        replace(make(), rewards=np.ones(5))
    changed = make().replace(rewards=np.ones(6))
    assert changed.returns().tolist() == [1.0, 3.0, 2.0]
    assert changed.feature_names == make().feature_names
    with pytest.raises(ValueError, match=r"rewards must have shape \(6,\)"):
        make().replace(rewards=np.ones(5))


# -- choosing trajectories ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("which", "chosen"),
    [
        (0, [0]),
        (-1, [4]),
        (-5, [0]),
        (np.int64(2), [2]),
        (np.uint8(3), [3]),
        ([1, 3], [1, 3]),
        ([3, 1], [3, 1]),
        ([-1, 0], [4, 0]),
        ([2, 2], [2, 2]),
        (np.array([4, 0], dtype=np.uint64), [4, 0]),
        ((0, 1), [0, 1]),
        (slice(1, 3), [1, 2]),
        (slice(None, None, 2), [0, 2, 4]),
        (slice(None, None, -1), [4, 3, 2, 1, 0]),
        (slice(-2, None), [3, 4]),
        ([True, False, True, False, False], [0, 2]),
        (np.ones(5, dtype=bool), [0, 1, 2, 3, 4]),
    ],
)
def test_trajectories_are_chosen_whole_with_all_that_belongs_to_them(which, chosen):
    lengths = (1, 3, 2, 4, 1)
    data = make(lengths)
    part, all_rows = data[which], rows_of(data)
    assert rows_of(part) == [all_rows[i] for i in chosen]
    rows = [row for i in chosen for row in all_rows[i]]
    assert part.rewards.tolist() == [10.0 * row for row in rows]
    assert part.actions.tolist() == [row % 2 for row in rows]
    assert part["sofa"].tolist() == [row + 100 for row in rows]
    assert part.ids.tolist() == [f"p{i}" for i in chosen]
    assert part.terminated.tolist() == [i % 2 == 0 for i in chosen]
    assert part.lengths.tolist() == [lengths[i] for i in chosen]
    assert part.feature_names == ("age", "lactate")


def test_a_slice_shares_memory_with_the_whole():
    data = make()
    part = data[1:3]
    for name in ("states", "actions", "rewards", "terminated", "ids"):
        assert np.shares_memory(getattr(part, name), getattr(data, name))
    assert np.shares_memory(part["sofa"], data["sofa"])


def test_a_part_of_a_part_is_the_part():
    data = make((1, 3, 2, 4, 1))
    assert rows_of(data[1:][[0, 2]][1]) == rows_of(data[3])


def test_a_part_keeps_the_number_of_actions_of_the_whole():
    # Trajectory 0 holds only action 0; a model of three actions must still fit it.
    data = Trajectories(np.zeros(3), [0, 2, 1], np.zeros(3), [0, 1, 3])
    assert data[0].n_actions == 3


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_a_mask_and_the_list_of_its_positions_choose_the_same(lengths, draw):
    mask = draw.draw(st.lists(st.booleans(), min_size=len(lengths), max_size=len(lengths)).filter(any))
    data = make(lengths)
    assert rows_of(data[np.array(mask)]) == rows_of(data[np.flatnonzero(mask)])


@pytest.mark.parametrize("which", [[], slice(2, 2), np.zeros(3, dtype=bool), np.array([], dtype=int)])
def test_an_empty_selection_is_refused(which):
    with pytest.raises(ValueError, match="names no trajectory"):
        make()[which]


@pytest.mark.parametrize(
    ("which", "culprit"), [(3, "3"), (-4, "-4"), ([0, 7, 1], "7"), ([-9, 1], "-9"), ([1, -4, 2], "-4")]
)
def test_a_position_out_of_range_is_named(which, culprit):
    with pytest.raises(IndexError, match=f"trajectory {culprit} is out of range for 3 trajectories"):
        make()[which]


@pytest.mark.parametrize("which", [1.0, [0.0, 1.0], [[0, 1]], None])
def test_what_is_no_selection_is_refused(which):
    with pytest.raises(IndexError, match="whole numbers, a mask over trajectories, or a slice"):
        make()[which]


def test_a_mask_over_steps_is_refused():
    with pytest.raises(IndexError, match=r"must have shape \(3,\), got \(6,\)"):
        make()[np.ones(6, dtype=bool)]


def test_columns_are_read_by_name_and_a_missing_one_lists_the_others():
    assert make()["sofa"].tolist() == [100, 101, 102, 103, 104, 105]
    with pytest.raises(KeyError, match=r"no column or feature 'weight'; there are age, lactate, sofa\."):
        make()["weight"]


def test_a_feature_is_read_by_name_and_a_column_of_that_name_goes_first():
    assert make()["lactate"].tolist() == [0, -1, -2, -3, -4, -5]
    assert make(columns={"lactate": np.arange(6) + 7})["lactate"].tolist() == [7, 8, 9, 10, 11, 12]


# -- splits and folds ---------------------------------------------------------------------------------


def test_a_split_parts_the_trajectories_and_never_one_trajectory():
    data = make([1, 2, 3, 1, 2, 3, 1])
    first, second = data.split(0.4, rng=0)
    assert len(first) == 3  # round(0.4 * 7)
    assert sorted(first.ids.tolist() + second.ids.tolist()) == sorted(data.ids.tolist())
    whole = dict(zip(data.ids.tolist(), rows_of(data), strict=True))
    for part in (first, second):
        assert rows_of(part) == [whole[i] for i in part.ids.tolist()]


def test_the_same_seed_gives_the_same_split_and_another_seed_another():
    data = make([1] * 30)
    ids = [data.split(0.5, rng=seed)[0].ids.tolist() for seed in (3, 3, 4)]
    assert ids[0] == ids[1]
    assert ids[0] != ids[2]
    assert data.split(0.5, rng=np.random.default_rng(3))[0].ids.tolist() == ids[0]


@pytest.mark.parametrize("share", [0, 1, -0.1, 1.1, float("nan")])
def test_a_share_outside_0_and_1_is_refused(share):
    with pytest.raises(ValueError, match="share must lie between 0 and 1"):
        make().split(share, rng=0)


def test_a_split_that_leaves_a_part_empty_is_refused():
    with pytest.raises(ValueError, match="leaves one part empty"):
        make().split(0.1, rng=0)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=10), st.data())
def test_folds_hold_out_every_step_once_and_never_part_a_trajectory(lengths, draw):
    data = make(lengths)
    k = draw.draw(st.integers(2, len(lengths)))
    folds = data.folds(k, rng=draw.draw(st.integers(0, 99)))
    assert len(folds) == k
    held = np.concatenate([held_out for _, held_out in folds])
    assert sorted(held.tolist()) == list(range(data.n_steps))
    owner = data.layout.owner
    for fit, held_out in folds:
        assert not set(owner[fit]) & set(owner[held_out])
        assert sorted([*fit, *held_out]) == list(range(data.n_steps))
    sizes = [len(set(owner[held_out])) for _, held_out in folds]
    assert max(sizes) - min(sizes) <= 1


def test_the_same_seed_gives_the_same_folds():
    data = make([2] * 12)
    for one, other in zip(data.folds(3, rng=5), data.folds(3, rng=5), strict=True):
        assert np.array_equal(one[1], other[1])


def test_folds_serve_as_cv_in_scikit_learn():
    # With one trajectory a fold, the prior is the action frequency of the other two trajectories:
    # p0 holds row 0, p1 rows 1-3, p2 rows 4-5; actions are 0 1 0 1 0 1.
    data = make()
    proba = cross_val_predict(
        DummyClassifier(strategy="prior"),
        data.states,
        data.actions,
        cv=data.folds(3, rng=0),
        method="predict_proba",
    )
    without_p0 = 3 / 5  # rows 1-5: 1 0 1 0 1
    without_p1 = 1 / 3  # rows 0, 4, 5: 0 0 1
    without_p2 = 2 / 4  # rows 0-3: 0 1 0 1
    expected = [without_p0] + 3 * [without_p1] + 2 * [without_p2]
    assert proba[:, 1] == pytest.approx(expected)


def test_a_classifier_is_fitted_on_read_only_states():
    data = make([5, 5, 5])
    model = LogisticRegression()
    proba = cross_val_predict(
        model, data.states, data.actions, cv=data.folds(3, rng=0), method="predict_proba"
    )
    assert proba.shape == (15, 2)


@pytest.mark.parametrize("k", [1, 0, 4])
def test_an_impossible_number_of_folds_is_refused(k):
    with pytest.raises(ValueError, match=f"between 2 and the 3 trajectories, got {k}"):
        make().folds(k, rng=0)


# -- returns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gamma", "expected"),
    [
        # Rewards: 4 | 1 2 4 | 8 2.
        (0, [4.0, 1.0, 8.0]),
        (0.5, [4.0, 3.0, 9.0]),  # 1 + 2/2 + 4/4; 8 + 2/2
        (1, [4.0, 7.0, 10.0]),
        (1.0, [4.0, 7.0, 10.0]),
    ],
)
def test_returns_discount_from_the_start_of_each_trajectory(gamma, expected):
    data = make(rewards=[4, 1, 2, 4, 8, 2])
    assert data.returns(gamma).tolist() == expected


def test_returns_of_equal_lengths_are_those_of_unequal_ones():
    # The same two trajectories alone (equal lengths) and beside a third (unequal lengths).
    data = make([2, 2, 3], rewards=[1, 2, 3, 4, 5, 6, 7])
    # 1 + 0.9 * 2 = 2.8; 3 + 0.9 * 4 = 6.6
    assert data.returns(0.9)[:2] == pytest.approx([2.8, 6.6])
    assert data[:2].returns(0.9) == pytest.approx([2.8, 6.6])


@pytest.mark.parametrize("gamma", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_discount_outside_0_and_1_is_refused(gamma):
    with pytest.raises(ValueError, match=r"gamma must lie in \[0, 1\]"):
        make().returns(gamma)


# -- actions ------------------------------------------------------------------------------------------


def with_actions(actions, **changes):
    return make(actions=np.asarray(actions), **changes)


@pytest.mark.parametrize("kind", [np.uint8, np.uint64, np.int8, np.float32, np.float64])
def test_whole_numbers_of_any_type_are_actions(kind):
    data = with_actions(np.array([0, 1, 2, 0, 1, 2], dtype=kind))
    assert data.actions.dtype == np.int64
    assert data.actions.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.n_actions == 3


def test_true_and_false_are_actions_1_and_0():
    data = with_actions([False, True, False, True, False, True])
    assert data.actions.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.n_actions == 2


def test_a_log_of_a_single_action_is_accepted():
    data = with_actions([0] * 6)
    assert data.n_actions == 1


def test_an_action_that_was_never_taken_can_be_declared():
    assert with_actions([1, 1, 2, 1, 1, 1], n_actions=3).n_actions == 3
    assert with_actions([0] * 6, n_actions=5).n_actions == 5


@pytest.mark.parametrize(
    ("actions", "n_actions", "message"),
    [
        (
            [0, 1, 1.5, 1, 0, 1],
            None,
            r"1 of 6 rows hold no whole number .* .first: 1.5 in trajectory p1, step 1",
        ),
        (
            [0, 1, np.nan, 1, 0, np.nan],
            None,
            r"2 of 6 rows hold no whole number .* .first: nan in trajectory p1, step 1",
        ),
        (
            [0, 1, 0, 1, -1, -2],
            None,
            r"2 of 6 rows hold no whole number from 0 .first: -1 in trajectory p2, step 0",
        ),
        ([0, 1, 0, 1, 0, -np.inf], None, "actions: .* .first: -inf in trajectory p2, step 1"),
        ([0, 1, 2, 3, 0, 1], 3, r"beyond n_actions=3 .first: 3 in trajectory p1, step 2"),
        ([1, 2, 3, 1, 2, 3], 3, "run from 1 to 3 .* numbered from 0: subtract 1"),
        ([1, 2, 3, 1, 2, 3], None, "none of 6 rows holds action 0, .* say n_actions=4"),
        ([True] * 6, None, "none of 6 rows holds action 0"),
        ([0, 1, 0, 1, 0, 1], 0, "beyond n_actions=0"),
        ([0, 1, 0, 1, 0, 1], -3, "n_actions"),
        ([0, 1, 0, 1, 0, np.inf], 2, "actions: .* .first: inf in trajectory p2, step 1"),
    ],
)
def test_bad_actions_are_refused_with_the_place(actions, n_actions, message):
    with pytest.raises(ValueError, match=message):
        with_actions(actions, n_actions=n_actions)


def test_an_infinite_action_is_refused_as_no_whole_number():
    with pytest.raises(
        ValueError, match=r"actions: 1 of 6 rows hold no whole number .* .first: inf in trajectory p2"
    ):
        with_actions([0, 1, 0, 1, 0, np.inf])


def test_an_action_beyond_the_range_of_int64_is_refused():
    # -1 written into an unsigned column. As int64 it is -1 again, and -1 picks the last column of a table.
    with pytest.raises(ValueError, match="actions"):
        with_actions(np.array([0, 1, 0, 1, 0, -1]).astype(np.uint64))


@pytest.mark.parametrize(
    "actions", [["none", "low", "high"] * 2, np.array([0, 1, 0, 1, 0, None], dtype=object), [1j] * 6]
)
def test_actions_that_are_no_numbers_are_refused(actions):
    with pytest.raises(
        TypeError, match=r"actions must be whole numbers from 0, got .* read_table takes words"
    ):
        with_actions(actions)


@pytest.mark.parametrize("n_actions", [2.5, "3", float("nan"), float("inf")])
def test_a_number_of_actions_that_is_no_whole_number_is_refused(n_actions):
    with pytest.raises((ValueError, TypeError), match="n_actions must be a whole number"):
        with_actions([0, 1, 0, 1, 0, 1], n_actions=n_actions)


# -- states, rewards and the rest ---------------------------------------------------------------------


def test_a_missing_state_is_named_by_feature_and_trajectory():
    states = np.zeros((6, 2))
    states[4, 1] = np.nan
    states[5, 1] = np.inf
    with pytest.raises(
        ValueError, match=r"'lactate': 2 of 6 values are NaN or infinite .first: nan in trajectory p2, step 0"
    ):
        make(states=states)


def test_a_missing_state_is_found_in_every_chunk(monkeypatch):
    monkeypatch.setattr("caliope._validation._CHUNK", 4)  # two rows at a time
    make()
    for row in range(6):
        states = np.zeros((6, 2))
        states[row, 0] = np.nan
        with pytest.raises(ValueError, match="'age': 1 of 6"):
            make(states=states)


def test_a_missing_reward_is_named_by_trajectory_and_step():
    with pytest.raises(ValueError, match=r"rewards: 1 of 6 values .* .first: nan in trajectory p1, step 2"):
        make(rewards=[0, 0, 0, np.nan, 0, 0])


def test_masked_values_are_not_read_as_if_they_had_been_seen():
    # numpy.asarray drops the mask and shows what happens to lie beneath it.
    rewards = np.ma.array([0.0, 0.0, 0.0, 999.0, 0.0, 0.0], mask=[0, 0, 0, 1, 0, 0])
    with pytest.raises((ValueError, TypeError), match="rewards"):
        make(rewards=rewards)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"states": np.zeros((6, 0)), "feature_names": None}, ValueError, r"d >= 1, got \(6, 0\)"),
        ({"states": np.zeros((6, 2, 2))}, ValueError, r"shape \(N, d\)"),
        ({"states": np.float64(3)}, ValueError, r"shape \(N, d\)"),
        ({"states": [["a", "b"]] * 6}, TypeError, "states must be numbers, got <U1"),
        (
            {"states": np.array([[0, None]] * 6, dtype=object)},
            TypeError,
            "states must be numbers, got object",
        ),
        ({"states": np.zeros((5, 2))}, ValueError, "run from 0 to the number of steps, 5"),
        (
            {"actions": np.zeros((6, 1), int)},
            ValueError,
            r"actions must have shape \(6,\), .* steps, got \(6, 1\)",
        ),
        ({"actions": [0, 1]}, ValueError, r"actions must have shape \(6,\)"),
        ({"rewards": np.zeros(7)}, ValueError, r"rewards must have shape \(6,\), .* got \(7,\)"),
        ({"rewards": ["1"] * 6}, TypeError, "rewards must be numbers, got <U1"),
        ({"rewards": [1, None, 1, 1, 1, 1]}, TypeError, "rewards must be numbers, got object"),
        ({"rewards": [1j] * 6}, TypeError, "rewards must be numbers, got complex128"),
        ({"ids": ["a", "b"]}, ValueError, r"ids must have shape \(3,\), one for each of the trajectories"),
        ({"terminated": [True] * 6}, ValueError, r"terminated must have shape \(3,\)"),
        ({"terminated": [0.5, 1, 1]}, ValueError, "terminated must hold True or False"),
        ({"terminated": [np.nan, 1, 1]}, ValueError, "terminated must hold True or False"),
        ({"columns": {"sofa": [1, 2]}}, ValueError, r"column 'sofa' must have shape \(6,\)"),
        ({"feature_names": ["age"]}, ValueError, "feature_names must be 2 different names"),
        ({"feature_names": ["age", "age"]}, ValueError, "feature_names must be 2 different names"),
        ({"offsets": [0, 1, 1, 6]}, ValueError, "at least one step; 1 have none .first: trajectory 1"),
        ({"offsets": [0, 1, 4, 7]}, ValueError, "to the number of steps, 6; they run from 0 to 7"),
        ({"offsets": [0.0, 1.0, 4.0, 6.0]}, ValueError, "integer array"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, error, message):
    with pytest.raises(error, match=message):
        make(**changes)


def test_all_trajectories_ended_unless_the_log_says_otherwise():
    assert make(terminated=None).terminated.tolist() == [True, True, True]
    assert make(terminated=[0, 1, 0]).terminated.tolist() == [False, True, False]
    assert make().terminated.dtype == bool


def test_unnamed_features_and_trajectories_are_numbered():
    data = make(feature_names=None, ids=None)
    assert data.feature_names == ("x0", "x1")
    assert data.ids.tolist() == [0, 1, 2]


def test_a_column_may_hold_words_and_missing_values():
    # A stratum or a score that was not always taken: no estimator reads it.
    data = make(columns={"ward": list("aabbcc"), "sofa": [1, np.nan, 3, 4, 5, 6]})
    assert data[1]["ward"].tolist() == ["a", "b", "b"]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_hold_the_same(duplicate):
    data = make(n_actions=4)
    data.layout  # a cache that need not travel  # noqa: B018
    other = duplicate(data)
    assert rows_of(other) == rows_of(data)
    assert other["sofa"].tolist() == data["sofa"].tolist()
    assert (other.n_actions, other.feature_names) == (4, ("age", "lactate"))
    assert other.returns(0.5).tolist() == data.returns(0.5).tolist()
    assert rows_of(other[[2, 0]]) == rows_of(data[[2, 0]])
    assert other.terminated.tolist() == data.terminated.tolist()
    assert other.ids.tolist() == data.ids.tolist()


def test_a_pickled_part_does_not_carry_the_whole():
    data = make([1000] * 100)
    assert len(pickle.dumps(data[0])) < len(pickle.dumps(data)) / 50


def test_printing_says_how_much_there_is():
    assert repr(make()) == "Trajectories(3 trajectories of 1 to 3 steps, 6 steps, 2 features, 2 actions)"
    assert repr(make([2, 2])) == "Trajectories(2 trajectories of 2 steps, 4 steps, 2 features, 2 actions)"


# -- names of actions, and what a trajectory is called --


def shop(**changes):
    given = {"action_names": ["none", "small", "large"], "unit": "visit"} | changes
    return Trajectories(np.zeros((4, 1)), [0, 1, 1, 0], np.ones(4), [0, 1, 3, 4], **given)


def test_names_and_unit_are_shown_only_where_they_were_given():
    assert repr(shop()) == "Trajectories(3 visits of 1 to 2 steps, 4 steps, 1 feature, 3 named actions)"
    plain = shop(action_names=None, unit="trajectory")
    assert repr(plain) == "Trajectories(3 trajectories of 1 to 2 steps, 4 steps, 1 feature, 2 actions)"
    assert plain.action_names is None


def test_there_are_as_many_actions_as_names():
    assert shop().n_actions == 3
    assert shop(n_actions=3).action_names == ("none", "small", "large")


@pytest.mark.parametrize(
    "part",
    [
        lambda data: data[1],
        lambda data: data[[2, 0]],
        lambda data: data.split(0.4, rng=0)[1],
        lambda data: data.part(np.array([0, 2])),
        lambda data: data.replace(rewards=np.zeros(4)),
        copy.copy,
        copy.deepcopy,
        lambda data: pickle.loads(pickle.dumps(data)),
    ],
)
def test_names_and_unit_stay_with_every_part(part):
    found = part(shop())
    assert (found.action_names, found.unit, found.units) == (("none", "small", "large"), "visit", "visits")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"action_names": ["a", "a", "b"]},
            ValueError,
            "3 different names, one per action, got 3 .2 different",
        ),
        (
            {"action_names": ["a", "b"], "n_actions": 3},
            ValueError,
            "3 different names, one per action, got 2",
        ),
        ({"action_names": ["a"]}, ValueError, "n_actions=1"),
        (
            {"action_names": "abc"},
            TypeError,
            "a list of texts in the order of the actions 0, 1, ..., got 'abc'",
        ),
        ({"action_names": [0, 1, 2]}, TypeError, "a list of texts"),
        ({"unit": " "}, ValueError, "an empty text"),
        ({"unit": None}, TypeError, "unit must be text, such as 'visit', got NoneType"),
    ],
)
def test_names_and_units_that_make_no_sense_are_refused(changes, error, message):
    with pytest.raises(error, match=message):
        shop(**changes)


def test_a_copy_is_not_bound_by_what_was_derived_from_the_old_values():
    data = Trajectories([[0.0], [1.0], [2.0]], [0, 1, 1], [0, 1, 0], [0, 2, 3])
    assert data.replace(states=np.zeros((3, 2))).feature_names == ("x0", "x1")
    assert data.replace(actions=[0, 2, 1], action_names=["a", "b", "c"]).n_actions == 3
    with pytest.raises(TypeError, match=r"no field 'foo'; the fields are states, actions"):
        data.replace(foo=1)


@pytest.mark.parametrize("names", [{"high": 1, "low": 0}, {"low", "high"}, "ab", 5, [0, 1]])
def test_names_of_actions_come_in_the_order_of_the_actions(names):
    with pytest.raises(TypeError, match="a list of texts in the order of the actions"):
        Trajectories([[0.0], [1.0]], [0, 1], [0, 1], [0, 2], action_names=names)


def test_an_action_without_a_name_is_refused():
    with pytest.raises(ValueError, match="give every action a name"):
        Trajectories([[0.0], [1.0]], [0, 1], [0, 1], [0, 2], action_names=["low", " "])


def test_a_calendar_follows_the_trajectories():
    data = Trajectories(np.zeros((4, 1)), [0, 1, 1, 0], np.zeros(4), [0, 1, 2, 4], calendar=[5, 3, 9])
    assert data.calendar.tolist() == [5, 3, 9]
    assert data[[2, 0]].calendar.tolist() == [9, 5]
    assert data[1:].calendar.tolist() == [3, 9]
    assert pickle.loads(pickle.dumps(data)).calendar.tolist() == [5, 3, 9]
    assert data.replace(unit="visit").calendar.tolist() == [5, 3, 9]
    assert data.replace(calendar=None).calendar.tolist() == [0, 1, 2]
    days = np.array(["1970-01-02", "1970-01-03T12:00", "1969-12-31"], dtype="datetime64[m]")
    assert data.replace(calendar=days).calendar.tolist() == [1, 2.5, -1]


@pytest.mark.parametrize(
    ("calendar", "message"),
    [
        ([1, 2], r"calendar must have shape \(3,\)"),
        ([1, np.nan, 2], "1 of 3 trajectories have no finite moment .first: trajectory b"),
        (["a", "b", "c"], "must hold numbers or datetimes"),
        (np.array(["NaT", "2020-01-01", "2020-01-01"], dtype="datetime64[D]"), "first: trajectory a"),
    ],
)
def test_a_bad_calendar_is_refused_in_one_line(calendar, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Trajectories(
            np.zeros((3, 1)), [0, 1, 1], np.zeros(3), np.arange(4), ids=["a", "b", "c"], calendar=calendar
        )
