import numpy as np
import pytest
from hypothesis import given, strategies as st

from caliope._ragged import Ragged, check_offsets, read_only

LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=9)


def layout_of(lengths):
    return Ragged(np.concatenate([[0], np.cumsum(lengths)]))


def pieces(lengths, x):
    """Cut a per-step column into one list for each trajectory, by plain slicing."""
    out, start = [], 0
    for length in lengths:
        out.append(list(x[start : start + length]))
        start += length
    return out


def numbers(lengths, seed=0):
    return np.random.default_rng(seed).normal(size=sum(lengths))


@pytest.mark.slow
@given(LENGTHS)
def test_every_step_knows_its_owner_and_its_time(lengths):
    layout = layout_of(lengths)
    expected = [(i, t) for i, length in enumerate(lengths) for t in range(length)]
    assert list(zip(layout.owner.tolist(), layout.time.tolist(), strict=True)) == expected


@given(LENGTHS)
def test_first_last_lengths_and_horizon_are_those_of_the_slices(lengths):
    layout = layout_of(lengths)
    rows = pieces(lengths, range(sum(lengths)))
    assert layout.n == len(lengths)
    assert layout.lengths.tolist() == lengths
    assert layout.first.tolist() == [piece[0] for piece in rows]
    assert layout.last.tolist() == [piece[-1] for piece in rows]
    assert layout.horizon == max(lengths)
    assert layout.equal == (len(set(lengths)) == 1)


@given(LENGTHS)
def test_cumulate_is_a_running_sum_inside_each_trajectory(lengths):
    x = numbers(lengths)
    expected = []
    for piece in pieces(lengths, x):
        total = 0.0
        for value in piece:
            total += value
            expected.append(total)
    assert layout_of(lengths).cumulate(x) == pytest.approx(expected, abs=1e-12)


@given(LENGTHS, st.data())
def test_minus_infinity_stays_in_its_own_trajectory(lengths, data):
    x = numbers(lengths)
    hit = data.draw(st.integers(0, len(x) - 1))
    x[hit] = -np.inf
    layout = layout_of(lengths)
    zero = np.isneginf(layout.cumulate(x))
    # Everything from the hit to the end of that trajectory, and nothing else.
    expected = (layout.owner == layout.owner[hit]) & (np.arange(len(x)) >= hit)
    assert np.array_equal(zero, expected)
    assert not np.isnan(layout.cumulate(x)).any()


@given(LENGTHS)
def test_sum_steps_is_a_sum_over_each_slice(lengths):
    x = numbers(lengths)
    assert layout_of(lengths).sum_steps(x) == pytest.approx([sum(p) for p in pieces(lengths, x)], abs=1e-12)


@given(LENGTHS, st.booleans())
def test_dense_pads_with_zeros_or_with_the_last_entry(lengths, carry):
    x, horizon = numbers(lengths), max(lengths)
    expected = [p + [p[-1] if carry else 0.0] * (horizon - len(p)) for p in pieces(lengths, x)]
    which = np.arange(len(lengths))[::-1]
    assert np.array_equal(layout_of(lengths).dense(x, which, carry=carry), np.array(expected)[which])


def test_dense_keeps_minus_infinity_out_of_the_padding():
    # Trajectory 0 ends on -inf; padding it with 0 * -inf would be nan.
    layout = layout_of([1, 3])
    x = np.array([-np.inf, 1.0, 2.0, 3.0])
    assert layout.dense(x, np.array([0, 1])).tolist() == [[-np.inf, 0, 0], [1, 2, 3]]


@given(LENGTHS)
def test_blocks_hold_every_trajectory_of_a_length_once(lengths):
    x, layout = numbers(lengths), layout_of(lengths)
    trajectories = pieces(lengths, x)
    seen = []
    for group, block in layout.blocks(x):
        members = np.arange(layout.n)[layout.members(group)].tolist()
        assert block.shape == (len(members), group.length)
        for who, row in zip(members, block.tolist(), strict=True):
            assert row == trajectories[who]
        seen += members
    assert sorted(seen) == list(range(layout.n))


@given(LENGTHS, st.data())
def test_rows_of_are_the_rows_of_the_named_trajectories_in_the_named_order(lengths, data):
    which = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=6))  # repeats, or none at all
    rows = pieces(lengths, range(sum(lengths)))
    expected = [row for i in which for row in rows[i]]
    assert layout_of(lengths).rows_of(np.array(which, dtype=np.int64)).tolist() == expected


def test_trajectories_already_sorted_by_length_are_not_copied():
    layout, x = layout_of([1, 2, 2, 3]), np.arange(8.0)
    assert layout.rows is None
    assert all(np.shares_memory(block, x) for _, block in layout.blocks(x))


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([0], "n >= 1 trajectories"),
        ([[0, 5]], r"got shape \(1, 2\)"),
        ([0.0, 5.0], "integer array .* got shape .* of float64"),
        ([1, 5], "run from 0 to the number of steps, 5; they run from 1 to 5"),
        ([0, 4], "they run from 0 to 4"),
        ([0, 2, 2, 5], "1 have none .first: trajectory 1, rows 2:2"),
        ([0, 3, 2, 5], "first: trajectory 1, rows 3:2"),
        ([0, 0, 0, 5], "2 have none .first: trajectory 0"),
    ],
)
def test_wrong_offsets_are_refused_with_the_place(offsets, message):
    with pytest.raises(ValueError, match=message):
        check_offsets(offsets, 5)


def test_offsets_are_a_copy_of_their_own():
    given_offsets = np.array([0, 2, 5])
    checked = check_offsets(given_offsets, 5)
    given_offsets[1] = 4
    assert checked.tolist() == [0, 2, 5]
    assert checked.dtype == np.int64
    assert not checked.flags.writeable


def test_unsigned_offsets_are_compared_as_whole_numbers():
    # As unsigned numbers 2 - 3 would wrap around to a huge positive length.
    with pytest.raises(ValueError, match="at least one step"):
        check_offsets(np.array([0, 3, 2, 5], dtype=np.uint64), 5)


def test_read_only_leaves_the_callers_array_writeable():
    x = np.zeros(3)
    view = read_only(x)
    assert np.shares_memory(view, x)
    assert not view.flags.writeable
    x[0] = 1.0
    assert view[0] == 1.0


def test_trajectories_with_a_step_are_counted_once():
    layout = Ragged(np.array([0, 2, 5, 6]))
    assert layout.count_with(np.array([True, True, False, False, False, True])) == 2
    assert layout.count_with(np.zeros(6, dtype=bool)) == 0
