"""A long log is worked on a part at a time, and its columns lie in files: the numbers stay what they are."""

import pickle
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from caliope import Evidence, _columns, _ragged
from caliope._columns import empty_column, holds_everywhere, let_go
from caliope._traced import differentiate
from caliope.checks._audit import effective_by_step
from caliope.checks._bias import Bias
from caliope.checks._markov import check_markov
from caliope.estimators import (
    dm,
    dr,
    monte_carlo,
    ois,
    phwdr,
    phwis,
    step_is,
    step_wis,
    wdr,
    wdr_under_way,
    wis,
)
from caliope.uncertainty import difference
from caliope.uncertainty._intervals import influence, leave_one_out
from caliope.weights import clip_weights, normalise_under_way, shrink_weights
from caliope.weights._effective import weigh_trajectories
from caliope.weights._marginalised import use_regression
from caliope.weights._regressed import WeightRegression

ESTIMATORS = (
    monte_carlo,
    ois,
    step_is,
    wis,
    step_wis,
    dm,
    dr,
    wdr,
    wdr_under_way,
    phwis,
    phwdr,
    difference(wdr),
)
STRETCHES = (1, 7, 10_000)
SHAPES = ("ragged", "equal", "sorted", "single steps", "one long")


def lengths_of(shape, rng):
    ragged = rng.integers(1, 9, size=60)
    return {
        "ragged": ragged,
        "equal": np.full(40, 5),
        "sorted": np.sort(ragged),
        "single steps": np.ones(80, dtype=int),
        "one long": np.array([2, 3, 90, 1, 4, 4, 2]),
    }[shape]


def evidence(shape="ragged", seed=0):
    """Evidence with weights of 0, trajectories that were cut off, and values that are a little wrong."""
    rng = np.random.default_rng(seed)
    lengths = lengths_of(shape, rng)
    n, steps = len(lengths), int(lengths.sum())
    log_ratio = rng.normal(size=steps) * 0.3
    log_ratio[rng.random(steps) < 0.03] = -np.inf
    q = rng.normal(size=steps)
    return Evidence(
        rng.normal(size=steps),
        log_ratio,
        np.concatenate([[0], np.cumsum(lengths)]),
        0.95,
        q=q,
        v=q + rng.normal(size=steps) * 0.1,
        terminated=rng.random(n) < 0.9,
        place=rng.permutation(n),
    )


@pytest.fixture(params=STRETCHES)
def in_parts(request, monkeypatch):
    """Make every log a long one, once it is asked to; how many steps a part has."""

    def begin():
        monkeypatch.setattr(_columns, "LONG", 1)
        monkeypatch.setattr(_ragged, "STRETCH", request.param)

    return begin


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def anew(e):
    """The same evidence without what was derived of it."""
    return pickle.loads(pickle.dumps(e))


@pytest.mark.parametrize("shape", SHAPES)
def test_parts_hold_every_trajectory_once(in_parts, shape):
    e = evidence(shape)
    in_parts()
    parts = list(anew(e).parts())
    same(np.concatenate([part.rewards for part in parts]), e.rewards)
    same(np.concatenate([part.layout.lengths for part in parts]), e.layout.lengths)
    same(np.concatenate([np.arange(len(e))[part.members] for part in parts]), np.arange(len(e)))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_estimates_and_their_derivatives(in_parts, shape):
    e = evidence(shape)
    counts = np.random.default_rng(1).integers(1, 4, size=(3, len(e))).astype(float)
    known = [(f(e), f(e.with_counts(counts)), differentiate(f, e), leave_one_out(f, e)) for f in ESTIMATORS]
    in_parts()
    e = anew(e)
    for f, (value, drawn, slope, without) in zip(ESTIMATORS, known, strict=True):
        same(f(e), value)
        same(f(e.with_counts(counts)), drawn)
        same(f(e.with_counts(counts[0])), drawn[0])
        same(differentiate(f, e), slope)
        same(influence(f, e), slope * len(e))
        same(leave_one_out(f, e), without)


@pytest.mark.parametrize("shape", SHAPES)
def test_columns_of_trajectories_and_of_time(in_parts, shape):
    e = evidence(shape)
    names = (
        "returns",
        "final_weight",
        "log_last",
        "last_rho",
        "first_v",
        "log_scale",
        "log_rho",
        "weight",
        "largest",
    )
    known = {name: getattr(e, name) for name in names}
    lengths = [weigh_trajectories(f.traits, e) for f in (wis, phwis)]
    in_parts()
    e = anew(e)
    for name, column in known.items():
        same(getattr(e, name), column)
    same([weigh_trajectories(f.traits, e) for f in (wis, phwis)], lengths)
    same(e.layout.under_way, np.bincount(e.layout.time))
    taken = e.take(np.array([3, 0, 5]))
    same(taken.rewards, e.rewards[e.layout.rows_of(np.array([3, 0, 5]))])


@pytest.mark.parametrize("shape", SHAPES)
def test_transforms_and_what_is_found_about_them(in_parts, shape):
    e = evidence(shape)
    predicted = np.random.default_rng(2).uniform(0.0, 2.0, len(e.rewards))
    regression = WeightRegression(predicted, "a constant", 0.5, 3, np.zeros(0, dtype=int))

    def changed(e):
        ways = (clip_weights, normalise_under_way, lambda e: shrink_weights(e, 2.0))
        return [
            *(way(e) for way in ways),
            clip_weights(normalise_under_way(e)),
            use_regression(e, regression),
        ]

    def about(e):
        bias = Bias.of(e, 0.1)
        return [bias.off, bias.error, bias.ratio, *effective_by_step(e)]

    known = changed(e)
    told = [about(each) for each in known]
    markov = check_markov(known[3], known[4])
    in_parts()
    found = changed(anew(e))
    for one, other, expected in zip(found, known, told, strict=True):
        same(one.log_rho, other.log_rho)
        same(one.log_ratio, other.log_ratio)
        for note, given in zip(one.notes, other.notes, strict=True):
            assert (note.code, note.variants) == (given.code, given.variants)
            same(list(note.numbers.values()), list(given.numbers.values()))
        for number, column in zip(about(one), expected, strict=True):
            same(number, column)
    again = check_markov(found[3], found[4])
    assert again.level == markov.level
    same(again.numbers["z"], markov.numbers["z"])


def test_a_long_log_without_values_is_refused_as_a_short_one(in_parts):
    e = replace(evidence(), q=None, v=None)
    in_parts()
    for f in (dm, wdr, dr):
        with pytest.raises(ValueError, match="needs action values"):
            f(e)


# -- columns in files --


def test_a_column_in_a_file_is_an_array(monkeypatch):
    monkeypatch.setattr(_columns, "LONG", 1)
    column, table = empty_column(100_000), empty_column(1000, 3)
    column[:] = np.arange(100_000)
    table[7] = 1.0
    for each in (column, column[5_000:90_000], table):
        let_go(each)
    assert column.tolist() == list(range(100_000))
    assert table.sum() == 3
    assert not isinstance(column.base, np.ndarray | type(None)) or column.base.base is not None
    assert pickle.loads(pickle.dumps(column)).sum() == column.sum()


def test_a_column_is_in_memory_where_no_file_can_be_made(monkeypatch, tmp_path):
    monkeypatch.setattr(_columns, "LONG", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    column = empty_column(10)
    column[:] = 1.0
    assert column.sum() == 10


def test_a_column_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(_columns, "LONG", 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    column = empty_column(10_000)
    column[:] = 1.0
    assert list(tmp_path.iterdir()) == []


def test_every_stretch_of_a_column_is_tested(monkeypatch):
    monkeypatch.setattr(_columns, "STRETCH", 3)
    column = np.ones(10)
    assert holds_everywhere(np.isfinite, column)
    column[9] = np.nan
    assert not holds_everywhere(np.isfinite, column)


@pytest.mark.slow
def test_memory_does_not_hold_whole_columns(monkeypatch):
    monkeypatch.setattr(_columns, "LONG", 1)
    monkeypatch.setattr(_ragged, "STRETCH", 1 << 10)
    peaks, length = [], 50
    for n in (400, 4000):
        rng, steps = np.random.default_rng(0), n * length
        log_ratio, q = rng.normal(size=steps) * 0.01, rng.normal(size=steps)
        e = Evidence(rng.normal(size=steps), log_ratio, length * np.arange(n + 1), q=q, v=q)
        tracemalloc.start()
        differentiate(difference(wdr), clip_weights(normalise_under_way(e)))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Less than one column: 8 bytes per step.
    assert peaks[1] - peaks[0] < 8 * length * 3600
