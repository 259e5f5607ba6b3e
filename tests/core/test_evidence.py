import pickle
from dataclasses import FrozenInstanceError, replace
from functools import cached_property

import numpy as np
import pytest
from hypothesis import given

import caliope as cal
from conftest import evidences, random_evidence
from support import naive


@given(e=evidences())
def test_weights_are_products_up_to_and_including_each_step(e):
    expected = [x.rho(t) for x in naive.trajectories(e) for t in range(x.length)]
    assert e.rho == pytest.approx(expected)
    before = [x.rho(t - 1) for x in naive.trajectories(e) for t in range(x.length)]
    assert e.rho_before == pytest.approx(before)


@given(e=evidences())
def test_an_ended_trajectory_keeps_its_weight_in_the_sum_of_every_step(e):
    xs = naive.trajectories(e)
    expected = [sum(x.rho(t) for x in xs) for t in range(e.layout.horizon)]
    with np.errstate(invalid="ignore"):
        scale = np.where(np.isneginf(e.log_scale), 0.0, np.exp(e.log_scale))
    assert e.weight_by_time() * scale == pytest.approx(expected)


def test_the_arrays_are_read_only_and_the_callers_are_not():
    rewards = np.zeros(3)
    e = cal.Evidence(rewards, np.zeros(3), [0, 1, 3])
    rewards[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        e.rewards[0] = 2.0
    with pytest.raises(FrozenInstanceError):
        e.gamma = 0.5


def test_other_counts_do_not_linger():
    e = random_evidence()
    ones, twos = e.with_counts(np.eye(len(e))[0]), e.with_counts(np.eye(len(e))[1])
    assert cal.wdr(ones) != cal.wdr(twos)
    assert cal.wdr(ones.with_counts(twos.counts)) == cal.wdr(twos)
    assert e.counts is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 1.1}, "gamma must lie in"),
        ({"gamma": -0.1}, "gamma must lie in"),
        ({"gamma": float("nan")}, "gamma must lie in"),
        ({"rewards": [1.0, np.nan, 0.0]}, "rewards must be finite; 1 are not .first: nan at step 1"),
        ({"log_ratio": [0.0, np.inf, 0.0]}, "probability 0 to an action that was taken"),
        ({"log_ratio": [0.0, np.nan, 0.0]}, "log_ratio must be finite or -inf; 1 are not"),
        ({"log_ratio": [0.0, 0.0]}, r"log_ratio must have shape \(3,\)"),
        ({"offsets": [0, 3, 3]}, "every trajectory needs at least one step"),
        ({"offsets": [0, 2]}, "from 0 to the number of steps, 3"),
        ({"offsets": [0.0, 3.0]}, "integer array"),
        ({"counts": [1.0]}, r"counts must have shape \(2,\)"),
        ({"counts": [1.0, -1.0]}, "not negative"),
        ({"counts": [1.0, np.nan]}, "not negative"),
        ({"q": [0.0, 0.0, 0.0]}, "q and v go together"),
        ({"q": [0.0, np.inf, 0.0], "v": [0.0, 0.0, 0.0]}, "q must be finite"),
    ],
)
def test_bad_input_yields_no_number(change, message):
    good = {"rewards": [1.0, 2.0, 3.0], "log_ratio": np.zeros(3), "offsets": [0, 1, 3]}
    with pytest.raises(ValueError, match=message):
        cal.Evidence(**(good | change))


def test_evidence_prints_its_shape_and_not_its_data():
    e = random_evidence()
    assert repr(replace(e, counts=np.ones((5, len(e))))) == (
        f"Evidence(12 trajectories, {len(e.rewards)} steps, gamma=0.9, 5 rows of counts, with q and v)"
    )


def test_evidence_survives_a_pickle():
    e = random_evidence()
    assert cal.wdr(pickle.loads(pickle.dumps(e))) == cal.wdr(e)


def test_a_new_cached_property_follows_the_counts():
    class WithMean(cal.Evidence):
        @cached_property
        def mean_return(self):
            return self.total(self.returns) / self.n

    e = random_evidence(0)
    e = WithMean(e.rewards, e.log_ratio, e.offsets, e.gamma)
    counts = np.zeros(len(e))
    counts[0] = 1.0
    assert e.mean_return == pytest.approx(e.returns.mean())
    assert e.with_counts(counts).mean_return == pytest.approx(e.returns[0])
    assert e.with_counts(counts).rho is e.rho


def test_the_layout_is_shared_with_changed_columns_and_nothing_else_is():
    e = cal.Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3])
    before = e.rho.copy()
    other = e.changed(log_ratio=e.log_ratio + 1)
    assert other.layout is e.layout
    assert other.rho[0] == pytest.approx(np.e * before[0])
    np.testing.assert_array_equal(e.rho, before)


def test_what_is_forgotten_is_computed_again():
    e = cal.Evidence([1, 3, 5], np.log([2, 0.5, 3]), offsets=[0, 2, 3])
    whole, layout = (e.rho.copy(), e.returns.copy()), e.layout
    e.forget()
    assert e.layout is layout
    np.testing.assert_array_equal(e.rho, whole[0])
    np.testing.assert_array_equal(e.returns, whole[1])


def test_the_residual_of_a_step_that_was_cut_off_is_0():
    """What follows it was not seen: neither the reward there nor the value says anything of the other."""
    e = cal.Evidence([1, 3, 5], np.zeros(3), [0, 2, 3], q=[4, 4, 4], v=[4, 4, 4], terminated=[True, False])
    assert e.residual.tolist() == [-3.0, -1.0, 0.0]
